r"""Quality against bytes a vector: vectors that are cut to a length and stored in fewer bits.

    python benchmarks/vector_size.py default=default nested=runs/nested --data DATA \
        --json benchmarks/results/vector_size.json

Every model embeds the development data once. Its vectors are then cut (`truncate_dim`), stored
(`precision`), and compared as `DocumentEmbedder.similarity` compares them. `--data` holds
`parallel_dev.parquet`, `general_dev.parquet` and `eval/sts_dev.parquet`; without it the built-in
sample is measured.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import LANGUAGES, load_task, markdown, write_json
from peers import Measure, measures_of, split_named

from tmde.embedding import DocumentEmbedder
from tmde.embedding.quantization import DTYPES, quantized, restored, stored_width
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate
from tmde.eval.model_fingerprint import Role
from tmde.eval.planning import LoadedTask
from tmde.eval.systems import Language

DIMENSIONS = (32, 64, 128, 256, 384)
PRECISIONS = ("float32", "int8", "ubinary")
# The task of each title, and its file in the data folder.
TASKS = {
    "documentation": ("sentence_retrieval", "parallel_dev.parquet"),
    "general": ("sentence_retrieval", "general_dev.parquet"),
    "similarity": ("sts", "eval/sts_dev.parquet"),
}


class StoredVectors:
    """A model whose vectors are cut and stored. It follows the protocol `tmde.eval.systems.System`.

    Args:
        model: The model, which keeps its whole vectors in memory.
        dimension: How many numbers of a vector are kept.
        precision: How they are stored.
    """

    dense = True
    # Other benchmarks measure speed.
    seconds = 0.0
    cpu_seconds = 0.0

    def __init__(self, model: EmbeddingSystem, dimension: int, precision: str) -> None:
        self.model = model
        self.dimension = dimension
        self.precision = precision
        self.name = f"{model.name} {dimension} {precision}"
        self.fingerprint = f"{model.fingerprint} {dimension} {precision}"

    @property
    def bytes(self) -> int:
        """The size of a vector."""
        width = stored_width(self.dimension, self.precision)
        return width * DTYPES[self.precision].itemsize

    @property
    def texts(self) -> int:
        """The number of different texts that the model has embedded."""
        return self.model.texts

    @property
    def truncated(self) -> int:
        """The number of them that were longer than the limit of the model."""
        return self.model.truncated

    def begin(self) -> None:
        """Keep the vectors in memory, because other sizes are measured on the same texts."""

    def describe(self) -> dict[str, str | int]:
        """Return how texts become vectors."""
        sizes = {"truncate_dim": self.dimension, "precision": self.precision}
        return self.model.describe() | sizes

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str] = (),
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> np.ndarray:
        """Return the vectors of texts as they are compared, (n, d) float32.

        Args:
            texts: n texts.
            fit_on: Not used.
            language: The language of the texts, or of each text.
            role: What the texts are in a search.
            fit_language: Not used.
        """
        vectors = self.model.represent(texts, fit_on, language, role)[:, : self.dimension]
        stored = quantized(np.ascontiguousarray(vectors), self.precision)
        return restored(torch.from_numpy(stored), self.precision).numpy()


def sizes_of(
    model: EmbeddingSystem, dimensions: Sequence[int], precisions: Sequence[str]
) -> list[StoredVectors]:
    """Return the model in all sizes; its own width comes last, and none is longer."""
    width = model.embedder.dimension
    shorter = [dimension for dimension in dimensions if dimension < width]
    sizes = []
    for dimension in [*shorter, width]:
        for precision in precisions:
            sizes.append(StoredVectors(model, dimension, precision))
    return sizes


def measure(stored: StoredVectors, tasks: Sequence[LoadedTask], samples: int) -> dict[str, Measure]:
    """Return all measures of one size of a model, in %; `samples` are those of the intervals."""
    typer.echo(stored.name, err=True)
    options = EvaluationOptions(folds=False, samples=samples)
    return measures_of(list(evaluate(tasks, [stored], options)))


def json_row(stored: StoredVectors, measures: dict[str, Measure]) -> dict[str, Any]:
    """Return a row of the file of results: measures in % with their interval."""
    numbers = {}
    for title, measure in measures.items():
        numbers[title] = [measure.value, measure.low, measure.high]
    return {
        "system": stored.name,
        "model": stored.model.name,
        "dimension": stored.dimension,
        "precision": stored.precision,
        "bytes": stored.bytes,
        "measures": numbers,
    }


def table_row(stored: StoredVectors, measures: dict[str, Measure]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row: dict[str, Any] = {
        "model": stored.model.name,
        "numbers": stored.dimension,
        "precision": stored.precision,
        "bytes": stored.bytes,
    }
    for title, measure in measures.items():
        row[title] = measure.value
    return row


def main(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=FOLDER", help="Default: default=default.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data. Default: the built-in sample.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help=f"Default: {', '.join(TASKS)}.")] = None,
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Numbers to keep. Default: 32 to 384.")
    ] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Default: float32, int8 and ubinary.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT before every text of a model.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="NAME=bfloat16.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Bootstrap samples of an interval.")] = 500,
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Measure every model with vectors of every size."""
    folders = split_named(models or ["default=default"])
    prompts = split_named(prompt or [])
    dtypes = split_named(dtype or [])
    dimensions = sorted(dim or DIMENSIONS)
    precisions = precision or PRECISIONS
    if data is None:
        tasks = [load_task("sample", "sample")]
    else:
        tasks = []
        for title in task or TASKS:
            task_name, file_name = TASKS[title]
            tasks.append(load_task(title, task_name, data / file_name))
    rows = []
    printed_rows = []
    for name, folder in folders.items():
        embedder = DocumentEmbedder.from_pretrained(
            folder, device="cpu", dtype=dtypes.get(name, "float32"), prompt=prompts.get(name)
        )
        model = EmbeddingSystem(name, embedder, show_progress_bar=False)
        for stored in sizes_of(model, dimensions, precisions):
            measures = measure(stored, tasks, samples)
            rows.append(json_row(stored, measures))
            printed_rows.append(table_row(stored, measures))
    typer.echo(markdown(printed_rows))
    settings = {
        "data": "development" if data is not None else "built-in sample",
        "prompts": prompts,
        "dtypes": dtypes,
        "samples": samples,
        "languages": list(LANGUAGES),
    }
    write_json(json, "vector_size", settings, rows)


if __name__ == "__main__":
    typer.run(main)
