"""Fixtures of the corpora tests: a cache of their own, and writers of small corpora in every format."""

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
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the caches of `datasets` in a folder of the test's own."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    # `datasets` sleeps for seconds when a stream of interleaved parquet files ends, for an old bug of pyarrow's
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)
    datasets.disable_progress_bars()
    return cache


def write_rows(kind: str, folder: Path, rows: list[dict], name: str = "corpus") -> object:
    """Write `[{language: text or None}]` in one of the formats and return the source for `load_parallel`."""
    folder.mkdir(parents=True, exist_ok=True)
    languages = sorted(set().union(*rows))
    if kind.startswith("moses"):
        for code in languages:
            (folder / f"{name}.{code}").write_bytes(
                "".join(row[code] + "\n" for row in rows).encode()
            )
        files = {code: str(folder / f"{name}.{code}") for code in languages}
        return str(folder / name) if kind == "moses-prefix" else files
    path = folder / f"{name}.{kind.removesuffix('-flat')}"
    if kind.startswith("parquet"):
        columns = {
            code: pa.array([row.get(code) for row in rows], pa.string()) for code in languages
        }
        if kind == "parquet":
            columns = {
                "translation": pa.array(
                    rows, pa.struct([(code, pa.string()) for code in languages])
                )
            }
        pq.write_table(pa.table(columns | {"id": pa.array(range(len(rows)))}), path)
        return str(path)
    if kind.startswith("tsv"):
        lines = ["\t".join(languages)] + [
            "\t".join(row[code] for code in languages) for row in rows
        ]
    else:
        values = rows if kind == "jsonl-flat" else [{"translation": row, "id": 1} for row in rows]
        lines = [json.dumps(value, ensure_ascii=False) for value in values]
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if kind.endswith(".gz") else data)
    return str(path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., object]:
    """`write(kind, rows, name, folder)`: a corpus, by default in the test's folder."""
    return lambda kind, rows, name="corpus", folder=tmp_path: write_rows(kind, folder, rows, name)


def write_hub_folder(
    folder: Path,
    configs: dict[str, dict[str, list[dict]]],
    features: datasets.Features | None = None,
    counts: bool = False,
) -> str:
    """Write rows by config and split as a dataset on the Hub is laid out, in two shards a split, and return the path.

    With `counts`, the card says how many rows there are.
    """
    listed, infos = [], []
    for config, splits in configs.items():
        (folder / config).mkdir(parents=True)
        files = [{"split": split, "path": f"{config}/{split}-*"} for split in splits]
        sizes = [
            {"name": split, "num_bytes": 100, "num_examples": len(rows)}
            for split, rows in splits.items()
        ]
        for split, rows in splits.items():
            table = datasets.Dataset.from_list(rows, features=features)
            for index in range(min(2, len(rows))):
                shard = table.shard(min(2, len(rows)), index, contiguous=True)
                shard.to_parquet(folder / config / f"{split}-{index:05d}.parquet")
        listed.append({"config_name": config, "data_files": files})
        infos.append(
            {"config_name": config, "features": table.features._to_yaml_list(), "splits": sizes}
        )
    metadata = {"configs": listed} | ({"dataset_info": infos} if counts else {})
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(metadata)}---\n\n# Dataset\n")
    return str(folder)


@pytest.fixture
def hub_folder(tmp_path: Path) -> Callable[..., str]:
    """`hub_folder({"de-en": rows, ...})`: a folder laid out as `Helsinki-NLP/europarl` is on the Hub."""

    def build(configs: dict[str, list[dict]], counts: bool = True, split: str = "train") -> str:
        rows = {
            name: {split: [{"translation": row} for row in part]} for name, part in configs.items()
        }
        return write_hub_folder(tmp_path / "hub" / "europarl", rows, counts=counts)

    return build
