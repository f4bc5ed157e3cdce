"""A `DocumentEmbedder` as a model of MTEB, for its hundreds of tasks and its leaderboard.

import mteb
from tmde.eval.mteb_adapter import MtebEncoder

encoder = MtebEncoder.from_pretrained("path/to/checkpoint", name="organization/model")
result = mteb.evaluate(encoder, mteb.get_tasks(tasks=["Tatoeba"]), encode_kwargs={"batch_size": 64})
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from huggingface_hub import metadata_load
from transformers.utils import cached_file
from yaml import YAMLError

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.systems import model_fingerprint
from tmde.eval.tasks.languages import FLORES_CODES, iso_of_flores, iso_of_iso3

try:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs MTEB ({error}): pip install 'tmde[mteb]'") from error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput, PromptType
    from torch.utils.data import DataLoader


class MtebEncoder(AbsEncoder):
    """
    MTEB's `EncoderProtocol` over a `DocumentEmbedder`: texts are embedded alike in all tasks, with the embedder's
    prompt, and compared by cosine. A model with an encoder for each language embeds texts in the language of the
    subset, which must have one.

    `mteb_model_meta` states what the model and its card say; MTEB itself finds the release date of a model on the Hub.

    MTEB keeps results by name and revision (in `$MTEB_CACHE` or `~/.cache/mteb`, unless `mteb.evaluate` gets another
    `cache`) and measures nothing twice. The default revision is therefore the fingerprint of weights, tokenizer,
    pooling and limit, which a further trained model does not share.

    Args:
        embedder: Loaded embedder.
        name: `organization/model`, under which MTEB lists the results. Default: the Hub id that the model was loaded
            from, else `local/` and its folder's name.
        revision: Of the model, such as its commit on the Hub. Default: its fingerprint.
    """

    def __init__(
        self, embedder: DocumentEmbedder, name: str | None = None, revision: str | None = None
    ) -> None:
        if name is None:
            path = Path(embedder.model.name_or_path)
            is_hub_id = len(path.parts) == 2 and not path.exists()
            name = (
                str(path) if is_hub_id else f"local/{path.name or embedder.model.config.model_type}"
            )
        self.embedder = embedder
        model, parameters = embedder.model, list(embedder.model.parameters())
        commit = getattr(model.config, "_commit_hash", None)
        loading = {
            "pooling": embedder.pooling,
            "max_length": embedder.max_length,
            "prompt": embedder.prompt,
        }
        loading |= {"revision": commit, "dtype": model.dtype, **embedder.long_document_settings}
        card = _metadata_of_card(model.name_or_path, commit)
        tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        codes = {iso_of_flores(code): code.replace("_", "-") for code in FLORES_CODES}
        # An attribute, not a property: MTEB sets it when it loads the model by itself.
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": name,
                "revision": revision or model_fingerprint(embedder),
                "loader": partial(_load, model.name_or_path, loading),
                "languages": [codes[code] for code in model.config.languages or () if code in codes]
                or None,
                "license": next(iter(card["license"]), None),
                "open_weights": True,
                "training_datasets": set(card["datasets"]) or None,
                "adapted_from": next(iter(card["base_model"]), None),
                "n_parameters": sum(parameter.numel() for parameter in parameters),
                "n_embedding_parameters": sum(table.weight.numel() for table in tables),
                "memory_usage_mb": sum(parameter.nbytes for parameter in parameters) / 2**20,
                "max_tokens": embedder.max_length,
                "embed_dim": embedder.dimension,
                "framework": ["PyTorch", "Transformers"],
                "similarity_fn_name": ScoringFunction.COSINE,
                "use_instructions": False,
            }
        )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike,
        revision: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> MtebEncoder:
        """Loads an embedder; fit to be the `loader` of a `ModelMeta`.

        Args:
            path_or_hub_id, **options: As for `DocumentEmbedder.from_pretrained`.
            revision: Commit, branch or tag of the Hub repository, recorded as it is given.
            name: See the class.
        """
        embedder = DocumentEmbedder.from_pretrained(path_or_hub_id, revision=revision, **options)
        return cls(embedder, name=name, revision=revision)

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Vectors of the `text` of every batch.

        Args:
            inputs: Batches `{"text": [...]}`; the embedder makes its own, of texts of like length.
            task_metadata, hf_subset: Name the language, for a model that needs it.
            hf_split, prompt_type, **kwargs: Not used; other models choose a prompt by them.
            batch_size: A forward pass takes at most as many tokens as `batch_size` texts of the maximum length have.
                The default, and a model without a maximum length (LASER, bag), takes that of
                `DocumentEmbedder.encode`.
            show_progress_bar: As for `DocumentEmbedder.encode`.

        Returns:
            (n, d) float32, in the order of the inputs.

        Raises:
            ValueError: A batch without text; for a model with an encoder for each language, a subset of several
                languages (bitext, cross-lingual retrieval) or of an unknown one.
        """
        texts: list[str] = []
        for index, batch in enumerate(inputs):
            if "text" not in batch:
                place = f"Task {task_metadata.name}, split {hf_split}: batch {index}"
                raise TmdeError(
                    f"{place} has {sorted(batch)}, expected 'text'; the model embeds text alone"
                )
            texts.extend(batch["text"])
        budget = {}
        # MTEB always names a size. Times no limit, it would put a whole dataset into one forward pass.
        if batch_size is not None and self.embedder.max_length < NO_LIMIT:
            budget["batch_tokens"] = batch_size * self.embedder.max_length
        language = None
        if self.embedder.needs_language:
            codes = task_metadata.hf_subsets_to_langscripts.get(hf_subset, [])  # such as deu-Latn
            found = sorted({iso_of_iso3(code.partition("-")[0]) for code in codes})
            if len(found) != 1:
                place, name = (
                    f"Task {task_metadata.name}, subset {hf_subset}",
                    type(self.embedder.model).__name__,
                )
                raise TmdeError(
                    f"{place}: found the languages {found}, expected one: {name} has an encoder for each"
                )
            language = found[0]
        return self.embedder.encode(
            texts, show_progress_bar=show_progress_bar, language=language, **budget
        )


def _metadata_of_card(name: str, revision: str | None) -> dict[str, list[str]]:
    """Fields of the card of a folder or of a model on the Hub; empty where it does not tell or cannot be read."""
    found, readme = (
        {},
        Path(name or os.devnull, "README.md"),
    )  # a model that was never saved has no name
    with suppress(OSError, ValueError, YAMLError):
        readme = readme if readme.is_file() else cached_file(name, readme.name, revision=revision)
        found = metadata_load(readme) or {}
    fields = ("license", "datasets", "base_model")
    return {
        name: [value] if isinstance(value := found.get(name) or [], str) else value
        for name in fields
    }


def _load(
    path: str, loading: dict[str, Any], name: str, revision: str | None = None, **options: Any
) -> MtebEncoder:
    """The loader of `ModelMeta.load_model`: the model from where it was, with its settings."""
    return MtebEncoder(
        DocumentEmbedder.from_pretrained(path, **loading | options), name=name, revision=revision
    )
