"""Index corpora larger than one machine with Ray Data (`pip install 'tmde[ray,search]'`).

```python
import ray
from tmde.documents.ray_index import index_dataset

documents = ray.data.read_parquet("s3://bucket/documents")
changes = index_dataset(documents, "documents.index", "path/to/model", concurrency=8, num_gpus=1)
print(changes.added)
```
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from modeling_tmde import TmdeError
from tmde.data.id_places import IdPlaces
from tmde.documents.index import Changes, DocumentIndex
from tmde.documents.index_settings import SETTINGS
from tmde.documents.ray_embedding import embed_dataset
from tmde.embedding.document_embedder import DocumentEmbedder

if TYPE_CHECKING:
    import ray.data

_VECTOR_COLUMN = "_tmde_vector"


def index_dataset(
    dataset: ray.data.Dataset,
    folder: str | os.PathLike,
    model: str,
    *,
    id_column: str = "id",
    column: str = "text",
    language_column: str | None = None,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    batch_size: int = 8192,
    **loading: Any,
) -> Changes:
    """Add or replace the documents of a dataset in an index, which is made if missing.

    A pool of actors embeds the documents, and the process that calls this function writes them,
    one batch a commit. An interruption loses no batch that is committed. Unlike `tmde index`, it
    embeds known documents again, and a document has one vector, for its whole text.

    Args:
        dataset: Any Ray dataset with columns of ids and texts. All other columns become metadata.
        folder: The folder of the index, on the machine that calls this function.
        model: The folder of a saved model that every machine can read, or a Hub id.
        id_column: The column of the ids, strings or integers.
        column: The column of the texts. Empty ones are left out.
        language_column: The column of the languages, for a model that needs them and to find the
            ends of sentences.
        concurrency: The number of actors, see [`~tmde.documents.ray_embedding.embed_dataset`].
        num_cpus: The CPU cores of each actor.
        num_gpus: The GPUs of each actor, see `embed_dataset`.
        batch_size: The number of documents that are embedded and committed at a time.
        **loading: The arguments of `DocumentEmbedder.from_pretrained`, such as `dtype`. By default
            documents are embedded sentence by sentence, as by `tmde index`.

    Returns:
        The numbers of documents that were added and updated.

    Raises:
        TmdeError: The index was made with another model, another process writes to it, or an id
            occurs twice. What `BatchEmbedder` raises comes wrapped by Ray.
    """
    loading = {"long_documents": "sentences"} | loading
    embedder = DocumentEmbedder.from_pretrained(model, **loading)
    if (Path(folder) / SETTINGS).exists():
        index = DocumentIndex.open(folder, embedder)
    else:
        index = DocumentIndex.create(
            folder, embedder, revision=loading.get("revision"), passages=False
        )
    embedded = embed_dataset(
        dataset,
        model,
        column,
        _VECTOR_COLUMN,
        concurrency=concurrency,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        batch_size=batch_size,
        language_column=language_column,
        **loading,
    )
    changes = Changes()
    id_places = IdPlaces()
    row_count = 0
    with index.writing():
        for batch in embedded.iter_batches(batch_size=batch_size, batch_format="pyarrow"):
            rows = _rows_with_text(batch, column)
            ids = [str(id) for id in rows[id_column].to_pylist()]
            _check_ids(ids, row_count, id_places)
            row_count += len(ids)
            languages = None
            if language_column is not None:
                languages = rows[language_column].to_pylist()
            changes += index.upsert(
                ids,
                rows[column].to_pylist(),
                rows.drop_columns([id_column, column, _VECTOR_COLUMN]).to_pylist() or None,
                _vectors(rows),
                languages,
            )
        index.index_words()
    return changes


def _rows_with_text(batch: pa.Table, column: str) -> pa.Table:
    """Return the rows of a batch whose text is not empty."""
    has_text = [bool(text.strip()) for text in batch[column].to_pylist()]
    return batch.filter(pa.array(has_text, pa.bool_()))


def _check_ids(ids: list[str], row_count: int, id_places: IdPlaces) -> None:
    """Add ids to those that were written.

    Args:
        ids: The ids of a batch.
        row_count: The number of rows before the batch.
        id_places: The ids that were written.

    Raises:
        TmdeError: One occurs twice.
    """
    places = [("dataset", row_count + position) for position in range(len(ids))]
    repeated = id_places.add(ids, places)
    if repeated is not None:
        raise TmdeError(f"id: found {ids[repeated]!r} twice, expected unique ids")


def _vectors(rows: pa.Table) -> np.ndarray:
    """Return the vectors of rows, (n, d) float32."""
    column = rows[_VECTOR_COLUMN].combine_chunks()
    return column.flatten().to_numpy().reshape(len(rows), column.type.list_size)
