"""A `DocumentEmbedder` as a model of MTEB, for its hundreds of tasks and its leaderboard.

```python
import mteb
from tmde.eval.mteb_adapter import MtebEncoder

encoder = MtebEncoder.from_pretrained("path/to/checkpoint", name="organization/model")
tasks = mteb.get_tasks(tasks=["Tatoeba"])
result = mteb.evaluate(encoder, tasks)
```
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from modeling_tmde import TmdeError
from tmde.data.languages import two_letter_code
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.model_fingerprint import model_fingerprint

try:
    from mteb.models import SentenceTransformerEncoderWrapper
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs MTEB ({error}): pip install 'tmde[mteb]'") from error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput
    from torch.utils.data import DataLoader


class MtebEncoder(SentenceTransformerEncoderWrapper):
    """MTEB's wrapper of a `SentenceTransformer`, with a revision and languages.

    MTEB keeps results by name and revision (in `$MTEB_CACHE` or `~/.cache/mteb`, unless
    `mteb.evaluate` gets another `cache`) and measures nothing twice. The default revision is
    therefore the fingerprint of the model: if it is trained further, its fingerprint changes.

    A model with an encoder for each language embeds texts in the language of the subset, which must
    have one.

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
        super().__init__(embedder)
        self.mteb_model_meta = self.mteb_model_meta.model_copy(
            update={
                "name": _default_name(embedder) if name is None else name,
                "revision": revision or model_fingerprint(embedder),
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
        hf_subset: str,
        **options: Any,
    ) -> np.ndarray:
        """Return the vectors of the `text` of every batch, (n, d) float32.

        Args:
            inputs: Batches `{"text": [...]}`.
            task_metadata: The task; with the subset it tells the language, for a model that needs
                it.
            hf_subset: The subset.
            **options: The other arguments of MTEB's wrapper.

        Raises:
            TmdeError: The model has an encoder for each language, and the subset has several
                languages (bitext, cross-lingual retrieval) or an unknown one.
        """
        if self.model.needs_language:
            options["language"] = self._language_of_subset(task_metadata, hf_subset)
        vectors = super().encode(
            inputs, task_metadata=task_metadata, hf_subset=hf_subset, **options
        )
        return np.asarray(vectors)

    def _language_of_subset(self, task_metadata: TaskMetadata, subset: str) -> str:
        codes = task_metadata.hf_subsets_to_langscripts.get(subset, [])  # such as deu-Latn
        languages = sorted({two_letter_code(code.partition("-")[0]) for code in codes})
        if len(languages) != 1:
            model_name = type(self.model.model).__name__
            raise TmdeError(
                f"Task {task_metadata.name}, subset {subset}: found the languages {languages}, "
                f"expected one: {model_name} has an encoder for each"
            )
        return languages[0]


def _default_name(embedder: DocumentEmbedder) -> str:
    """Return the Hub id of the model, or else `local/` and the name of its folder or its type."""
    path = Path(embedder.model.name_or_path or "")
    is_hub_id = len(path.parts) == 2 and not path.exists()
    if is_hub_id:
        return str(path)
    return f"local/{path.name or embedder.model.config.model_type}"
