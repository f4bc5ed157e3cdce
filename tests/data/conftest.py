"""Fixtures of the corpora tests: a cache of their own, and writers of small corpora."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml


@pytest.fixture(autouse=True)
def separate_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Keep the caches of `datasets` in a separate folder for each test."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    # `datasets` sleeps for seconds when a stream of interleaved parquet files ends, because of an
    # old bug of pyarrow.
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)
    datasets.disable_progress_bars()
    return cache


def write_rows(kind: str, folder: Path, rows: list[dict], name: str = "corpus") -> object:
    """Write rows in one of the formats.

    Args:
        kind: The format; `-flat` for one column per language, `.gz` for a gzipped file.
        folder: The folder of the file or files.
        rows: `[{language: text or None}]`
        name: The name of the file, without its suffix.

    Returns:
        The source for `load_parallel`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    languages = sorted(set().union(*rows))
    if kind.startswith("moses"):
        files = write_moses(folder, rows, languages, name)
        return str(folder / name) if kind == "moses-prefix" else files
    path = folder / f"{name}.{kind.removesuffix('-flat')}"
    if kind.startswith("parquet"):
        pq.write_table(table_of(rows, languages, is_flat=kind == "parquet-flat"), path)
        return str(path)
    lines = []
    if kind.startswith("tsv"):
        lines.append("\t".join(languages))
    for row in rows:
        lines.append(line_of(kind, row, languages))
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if kind.endswith(".gz") else content)
    return str(path)


def line_of(kind: str, row: dict, languages: list[str]) -> str:
    """Return a row as a line of TSV or JSONL, without its end."""
    if kind.startswith("tsv"):
        return "\t".join(map(row.get, languages))
    if kind == "jsonl-flat":
        return json.dumps(row, ensure_ascii=False)
    return json.dumps({"translation": row, "id": 1}, ensure_ascii=False)


def write_moses(folder: Path, rows: list[dict], languages: list[str], name: str) -> dict[str, str]:
    """Write one text file per language, and return them."""
    files = {}
    for code in languages:
        path = folder / f"{name}.{code}"
        path.write_bytes("".join(row[code] + "\n" for row in rows).encode())
        files[code] = str(path)
    return files


def table_of(rows: list[dict], languages: list[str], is_flat: bool) -> pa.Table:
    """Return rows as a table with a column that is no language."""
    ids = pa.array(range(len(rows)))
    fields = [(code, pa.string()) for code in languages]
    if is_flat:
        table = pa.Table.from_pylist(rows, pa.schema(fields))
        return table.add_column(0, "id", ids)
    return pa.table({"id": ids, "translation": pa.array(rows, pa.struct(fields))})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., object]:
    """`write(kind, rows, name, folder)`: a corpus, by default in the test's folder."""

    def write_corpus(
        kind: str, rows: list[dict], name: str = "corpus", folder: Path = tmp_path
    ) -> object:
        return write_rows(kind, folder, rows, name)

    return write_corpus


def write_hub_folder(
    folder: Path,
    configs: dict[str, dict[str, list[dict]]],
    features: datasets.Features | None = None,
    counts: bool = False,
) -> str:
    """Write rows by config and split as a dataset on the Hub is laid out, and return the path.

    A split has two shards. With `counts`, the card says how many rows there are.
    """
    listed = []
    infos = []
    for config, splits in configs.items():
        (folder / config).mkdir(parents=True)
        files = []
        sizes = []
        for split, rows in splits.items():
            files.append({"split": split, "path": f"{config}/{split}-*"})
            sizes.append({"name": split, "num_bytes": 100, "num_examples": len(rows)})
            table = datasets.Dataset.from_list(rows, features=features)
            write_shards(table, folder / config, split)
        yaml_features = table.features._to_yaml_list()
        listed.append({"config_name": config, "data_files": files})
        infos.append({"config_name": config, "features": yaml_features, "splits": sizes})
    metadata = {"configs": listed}
    if counts:
        metadata["dataset_info"] = infos
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(metadata)}---\n\n# Dataset\n")
    return str(folder)


def write_shards(table: datasets.Dataset, folder: Path, split: str) -> None:
    """Write two parquet files, or one for a single row."""
    count = min(2, len(table))
    for index in range(count):
        shard = table.shard(count, index, contiguous=True)
        shard.to_parquet(folder / f"{split}-{index:05d}.parquet")


@pytest.fixture
def hub_folder(tmp_path: Path) -> Callable[..., str]:
    """`hub_folder({"de-en": rows, ...})`: a folder laid out as a dataset is on the Hub."""

    def build(configs: dict[str, list[dict]], counts: bool = True, split: str = "train") -> str:
        rows = {}
        for name, part in configs.items():
            rows[name] = {split: [{"translation": row} for row in part]}
        return write_hub_folder(tmp_path / "hub" / "europarl", rows, counts=counts)

    return build
