"""A `DocumentEmbedder` as a model of MTEB, for its hundreds of tasks and its leaderboard.

```python
import mteb
from tmde.eval.mteb_adapter import MtebEncoder

encoder = MtebEncoder.from_pretrained("path/to/checkpoint", name="organization/model")
tasks = mteb.get_tasks(tasks=["Tatoeba"])
result = mteb.evaluate(encoder, tasks, encode_kwargs={"batch_size": 64})
```
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from tmde.data.languages import FLORES_CODES, iso_of_flores, two_letter_code
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.model_fingerprint import model_fingerprint

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

BYTES_OF_MEBIBYTE = 2**20


class MtebEncoder(AbsEncoder):
    """MTEB's `EncoderProtocol` over a `DocumentEmbedder`.

    Texts are embedded alike in all tasks, with the embedder's prompt, and compared by cosine. A
    model with an encoder for each language embeds texts in the language of the subset, which must
    have one.

    `mteb_model_meta` states what the model and its card say. MTEB itself finds the release date of
    a model on the Hub.

    MTEB keeps results by name and revision (in `$MTEB_CACHE` or `~/.cache/mteb`, unless
    `mteb.evaluate` gets another `cache`) and measures nothing twice. The default revision is
    therefore the fingerprint of the model: if it is trained further, its fingerprint changes.

    Args:
        embedder: The loaded embedder.
        name: The name `organization/model` under which MTEB lists the results. By default it is the
            Hub id that the model was loaded from, or else `local/` and the name of its folder.
        revision: The revision of the model, such as its commit on the Hub. By default it is the
            fingerprint of weights, tokenizer, pooling and limit.
    """

    def __init__(
        self, embedder: DocumentEmbedder, name: str | None = None, revision: str | None = None
    ) -> None:
        self.embedder = embedder
        # An attribute, not a property: MTEB sets it when it loads the model by itself.
        self.mteb_model_meta = _model_meta(
            embedder,
            name=_default_name(embedder) if name is None else name,
            revision=revision or model_fingerprint(embedder),
        )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike,
        revision: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> MtebEncoder:
        """Load an embedder. The method may be the `loader` of a `ModelMeta`.

        Args:
            path_or_hub_id: See `DocumentEmbedder.from_pretrained`.
            revision: The commit, branch or tag of the Hub repository. It is recorded as given.
            name: See the class.
            **options: The other arguments of `DocumentEmbedder.from_pretrained`.
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
        """Return the vectors of the `text` of every batch.

        Args:
            inputs: Batches `{"text": [...]}`. The embedder makes batches of its own, of texts of
                similar length.
            task_metadata: The task; with the subset it tells the language, for a model that needs
                it.
            hf_split: The split, for error messages.
            hf_subset: The subset.
            prompt_type: Not used; other models choose a prompt by it.
            batch_size: A forward pass takes at most as many tokens as `batch_size` texts of the
                maximum length have. By default, and for a model without a maximum length (LASER,
                bag), the limit is that of `DocumentEmbedder.encode`.
            show_progress_bar: See `DocumentEmbedder.encode`.
            **kwargs: Not used.

        Returns:
            A float32 array of shape (n, d), in the order of the inputs.

        Raises:
            TmdeError: A batch has no text; or, for a model with an encoder for each language, the
                subset has several languages (bitext, cross-lingual retrieval) or an unknown one.
        """
        texts: list[str] = []
        for index, batch in enumerate(inputs):
            if "text" not in batch:
                raise TmdeError(
                    f"Task {task_metadata.name}, split {hf_split}: batch {index} has "
                    f"{sorted(batch)}, expected 'text'; the model embeds text alone"
                )
            texts.extend(batch["text"])
        language = None
        if self.embedder.needs_language:
            language = self._language_of_subset(task_metadata, hf_subset)
        vectors = self.embedder.encode(
            texts,
            batch_tokens=self._batch_tokens(batch_size),
            show_progress_bar=show_progress_bar,
            language=language,
        )
        return np.asarray(vectors)

    def _batch_tokens(self, batch_size: int | None) -> int | None:
        """Return the budget of tokens of a forward pass; None for the embedder's default.

        MTEB always names a batch size. For a model without a limit, the product of both would put
        a whole dataset into one forward pass.
        """
        max_length = self.embedder.max_length
        if batch_size is None or max_length >= NO_LIMIT:
            return None
        return batch_size * max_length

    def _language_of_subset(self, task_metadata: TaskMetadata, subset: str) -> str:
        codes = task_metadata.hf_subsets_to_langscripts.get(subset, [])  # such as deu-Latn
        languages = sorted({two_letter_code(code.partition("-")[0]) for code in codes})
        if len(languages) != 1:
            model_name = type(self.embedder.model).__name__
            raise TmdeError(
                f"Task {task_metadata.name}, subset {subset}: found the languages {languages}, "
                f"expected one: {model_name} has an encoder for each"
            )
        return languages[0]


def _loaded_from(embedder: DocumentEmbedder) -> str:
    """Return the folder or Hub id of the model; empty for a model that was never saved."""
    return embedder.model.name_or_path or ""


def _default_name(embedder: DocumentEmbedder) -> str:
    """Return the Hub id of the model, or else `local/` and the name of its folder or its type."""
    path = Path(_loaded_from(embedder))
    is_hub_id = len(path.parts) == 2 and not path.exists()
    if is_hub_id:
        return str(path)
    return f"local/{path.name or embedder.model.config.model_type}"


def _model_meta(embedder: DocumentEmbedder, name: str, revision: str) -> ModelMeta:
    """Return what the model and its card say about it."""
    model = embedder.model
    commit = getattr(model.config, "_commit_hash", None)
    card = _read_card_metadata(_loaded_from(embedder), commit)
    parameter_count = 0
    byte_count = 0
    for parameter in model.parameters():
        parameter_count += parameter.numel()
        byte_count += parameter.nbytes
    embedding_count = 0
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            embedding_count += module.weight.numel()
    loading = {
        "pooling": embedder.pooling,
        "max_length": embedder.max_length,
        "prompt": embedder.prompt,
        "revision": commit,
        "dtype": model.dtype,
        **embedder.long_document_settings,
    }
    return ModelMeta.create_empty(
        {
            "name": name,
            "revision": revision,
            "loader": partial(_load, _loaded_from(embedder), loading),
            "languages": _language_codes(model.config.languages or ()) or None,
            "license": next(iter(_values(card, "license")), None),
            "open_weights": True,
            "training_datasets": set(_values(card, "datasets")) or None,
            "adapted_from": next(iter(_values(card, "base_model")), None),
            "n_parameters": parameter_count,
            "n_embedding_parameters": embedding_count,
            "memory_usage_mb": byte_count / BYTES_OF_MEBIBYTE,
            "max_tokens": embedder.max_length,
            "embed_dim": embedder.dimension,
            "framework": ["PyTorch", "Transformers"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": False,
        }
    )


def _language_codes(languages: tuple[str, ...] | list[str]) -> list[str]:
    """Return MTEB's codes of languages, such as `deu-Latn`; unknown languages are left out."""
    code_of_language = {iso_of_flores(code): code.replace("_", "-") for code in FLORES_CODES}
    return [code_of_language[name] for name in languages if name in code_of_language]


def _read_card_metadata(name: str, revision: str | None) -> Mapping[str, Any]:
    """Return the metadata of the card of a folder or of a model on the Hub.

    They are empty if there is no card, or if it cannot be read.
    """
    # A model that was never saved has no name.
    readme = Path(name or os.devnull, "README.md")
    try:
        path = _local_or_cached(readme, name, revision)
        if path is None:
            return {}
        return metadata_load(path) or {}
    except (OSError, ValueError, YAMLError):
        return {}


def _local_or_cached(readme: Path, name: str, revision: str | None) -> str | Path | None:
    """Return the card of a folder, or else the copy of the Hub's; None if there is neither."""
    if readme.is_file():
        return readme
    return cached_file(name, readme.name, revision=revision)


def _values(card: Mapping[str, Any], field: str) -> list[str]:
    """Return the values of a field of a card, which may hold one value or a list of them."""
    value = card.get(field) or []
    return [value] if isinstance(value, str) else value


def _load(
    path: str, loading: dict[str, Any], name: str, revision: str | None = None, **options: Any
) -> MtebEncoder:
    """Load the model from where it was, with its settings: the loader of `ModelMeta.load_model`."""
    embedder = DocumentEmbedder.from_pretrained(path, **loading | options)
    return MtebEncoder(embedder, name=name, revision=revision)
