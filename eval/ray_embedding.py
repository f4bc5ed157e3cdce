"""Embeds corpora larger than one machine with Ray Data (`pip install 'tmde[ray]'`).

import ray
from tmde.eval.ray_embedding import embed_dataset

documents = ray.data.read_parquet("s3://bucket/documents")
embed_dataset(documents, "path/to/model", concurrency=8, num_gpus=1).write_parquet("s3://bucket/vectors")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from modeling_tmde import TmdeError
from tmde.embedding.document_embedder import DocumentEmbedder

if TYPE_CHECKING:
    import ray.data


class BatchEmbedder:
    """Adds a column of vectors to a batch: the callable class for `ray.data.Dataset.map_batches`.

    Each actor of a pool creates one and loads the model once. The vectors are those of `DocumentEmbedder.encode`, in a
    column of Arrow type `fixed_size_list<float>[d]`, as in the parquet files of `tmde embed`.

    Args:
        model: Folder of a saved model that every machine can read, or a Hub id.
        column: Column of the texts.
        output_column: New column of the vectors.
        batch_tokens, normalize, language: As for `DocumentEmbedder.encode`.
        language_column: Column of the languages of the texts, instead of one `language` for all.
        **loading: As for `DocumentEmbedder.from_pretrained`, such as `dtype` or `max_length`.
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
        self.language_column = language_column
        self.encoding = {"batch_tokens": batch_tokens, "normalize": normalize, "language": language}

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The batch (n rows) and its vectors.

        Raises:
            KeyError: A column is missing.
            TypeError: A text is null or not a string.
            ValueError: The output column exists already; a language is missing or unknown, for a model that has an
                encoder for each language.
        """
        if self.output_column in batch.column_names:
            raise TmdeError(
                f"there is a column {self.output_column!r} already; give another output_column"
            )
        encoding = self.encoding
        if self.language_column is not None:
            encoding = encoding | {"language": batch[self.language_column].to_pylist()}
        vectors = self.embedder.encode(
            batch[self.column].to_pylist(), show_progress_bar=False, **encoding
        )  # (n, d)
        values = pa.array(vectors.reshape(-1), type=pa.float32())
        return batch.append_column(
            self.output_column, pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])
        )


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
    """The dataset with a column of vectors, computed by a pool of actors as its rows are consumed.

    Args:
        dataset: Any Ray dataset with a column of texts.
        model, column, output_column, **options: As for `BatchEmbedder`.
        concurrency: Number of actors in the pool, or (least, most). Each actor holds the model.
        num_cpus: CPUs, and threads, per actor. Default: that of Ray, 1.
        num_gpus: GPUs per actor; with 0.5 two actors share one. Default: none, so that actors compute on the CPU.
        batch_size: Rows per call of an actor. Larger batches need less padding.

    Returns:
        A lazy dataset; consume or write it. The order of the rows is Ray's: see `DataContext.execution_options`.

    Raises:
        ValueError: A `concurrency` that is not at least 1 (Ray's). What `BatchEmbedder` raises comes, wrapped by Ray,
            when the dataset is consumed.
    """
    from ray.data import ActorPoolStrategy

    least, most = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
    if not num_gpus:
        # Some versions of Ray leave all GPUs visible to an actor that has reserved none.
        options.setdefault("device", "cpu")
    return dataset.map_batches(
        BatchEmbedder,
        fn_constructor_args=(model, column, output_column),
        fn_constructor_kwargs=options,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        batch_size=batch_size,
        batch_format="pyarrow",
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
