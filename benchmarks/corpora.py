"""The rows of the parallel corpora that benchmarks of many texts read."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tmde.data.sample import sample_sentences

SAMPLE_ROWS = 500


def read_rows(data: Path | None) -> Iterator[dict[str, str | None]]:
    """Yield the texts of each row by language.

    Args:
        data: The folder with parallel/ and general/; None for the sample.
    """
    if data is None:
        yield from sample_sentences(SAMPLE_ROWS, "train", seed=0)["translation"]
        return
    files = [*(data / "parallel").glob("*.parquet"), *(data / "general").glob("*.parquet")]
    for path in sorted(files):
        yield from pq.read_table(path, columns=["translation"])["translation"].to_pylist()
