"""Embed corpora larger than one machine with Ray Data (`pip install 'tmde[ray]'`).

```python
import ray
from tmde.documents.ray_embedding import embed_dataset

documents = ray.data.read_parquet("s3://bucket/documents")
vectors = embed_dataset(documents, "path/to/model", concurrency=8, num_gpus=1)
vectors.write_parquet("s3://bucket/vectors")
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from modeling_tmde import TmdeError
from tmde.embedding.document_embedder import DocumentEmbedder

if TYPE_CHECKING:
    import ray.data


class BatchEmbedder:
    """Add a column of vectors to a batch: the callable class for `ray.data.Dataset.map_batches`.

    Each actor of a pool creates one and loads the model once. The vectors are those of
    `DocumentEmbedder.encode`, in a column of Arrow type `fixed_size_list<float>[d]`, as in the
    parquet files of `tmde embed`.

    Args:
        model: The folder of a saved model that every machine can read, or a Hub id.
        column: The column of the texts.
        output_column: The new column of the vectors.
        batch_tokens: See `DocumentEmbedder.encode`.
        normalize: See `DocumentEmbedder.encode`.
        language: The language of all texts.
        language_column: The column of the languages of the texts, instead of `language`.
        **loading: The arguments of `DocumentEmbedder.from_pretrained`, such as `dtype` or
            `max_length`.
    """

    def __init__(
        self,
        model: str,
        column: str = "text",
        output_column: str = "embedding",
        batch_tokens: int | None = None,
        normalize: bool = False,
        language: str | None = None,
        language_column: str | None = None,
        **loading: Any,
    ) -> None:
        self.embedder = DocumentEmbedder.from_pretrained(model, **loading)
        self.column = column
        self.output_column = output_column
        self.batch_tokens = batch_tokens
        self.normalize = normalize
        self.language = language
        self.language_column = language_column

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the batch with its vectors.

        Args:
            batch: A table of n rows.

        Raises:
            KeyError: A column is missing.
            TypeError: A text is null or not a string.
            TmdeError: The output column exists already; or a language is missing or unknown, for a
                model that has an encoder for each language.
        """
        if self.output_column in batch.column_names:
            raise TmdeError(
                f"the column {self.output_column!r} already exists; choose another output_column"
            )
        language: str | list[str] | None = self.language
        if self.language_column is not None:
            language = batch[self.language_column].to_pylist()
        vectors = self.embedder.encode(
            batch[self.column].to_pylist(),
            language=language,
            batch_tokens=self.batch_tokens,
            normalize=self.normalize,
            show_progress_bar=False,
        )  # (n, d)
        dimension = vectors.shape[1]
        values = pa.array(vectors.reshape(-1), type=pa.float32())  # (n * d,)
        lists = pa.FixedSizeListArray.from_arrays(values, dimension)
        return batch.append_column(self.output_column, lists)


def embed_dataset(
    dataset: ray.data.Dataset,
    model: str,
    column: str = "text",
    output_column: str = "embedding",
    *,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    batch_size: int = 8192,
    **options: Any,
) -> ray.data.Dataset:
    """Add a column of vectors to a dataset; a pool of actors computes them as rows are consumed.

    Args:
        dataset: Any Ray dataset with a column of texts.
        model: See `BatchEmbedder`.
        column: See `BatchEmbedder`.
        output_column: See `BatchEmbedder`.
        concurrency: The number of actors in the pool, or the smallest and the largest number. Each
            actor holds the model.
        num_cpus: The CPUs, and threads, per actor. By default Ray gives one.
        num_gpus: The GPUs per actor; with 0.5, two actors share one. By default there is none, and
            actors compute on the CPU.
        batch_size: The number of rows per call of an actor. Larger batches need less padding.
        **options: The other arguments of `BatchEmbedder`.

    Returns:
        A lazy dataset; consume or write it. The order of the rows is Ray's, see
        `DataContext.execution_options`.

    Raises:
        ValueError: `concurrency` is not at least 1 (from Ray). What `BatchEmbedder` raises comes
            wrapped by Ray when the dataset is consumed.
    """
    from ray.data import ActorPoolStrategy

    if not isinstance(concurrency, tuple):
        concurrency = (concurrency, concurrency)
    smallest, largest = concurrency
    if not num_gpus:
        # Some versions of Ray leave all GPUs visible to an actor that has reserved none.
        options.setdefault("device", "cpu")
    return dataset.map_batches(
        BatchEmbedder,
        fn_constructor_args=(model, column, output_column),
        fn_constructor_kwargs=options,
        compute=ActorPoolStrategy(min_size=smallest, max_size=largest),
        batch_size=batch_size,
        batch_format="pyarrow",
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
