"""Fixtures of the task tests: a cache of their own, and folders laid out as the Hub's datasets are."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caches of `datasets` in a folder of the test's own."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    # `datasets` sleeps for seconds when a stream of interleaved parquet files ends, for an old bug of pyarrow's
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)
    datasets.disable_progress_bars()


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Callable[..., str]:
    """`dataset_folder(rows by config and split, features, name)`: a folder laid out like a Hub dataset."""

    def build(
        configs: dict[str, dict[str, list[dict]]], features: datasets.Features | None = None, name: str = "dataset"
    ) -> str:
        folder, listed = tmp_path / "hub" / name, ["---", "configs:"]
        for config, splits in configs.items():
            (folder / config).mkdir(parents=True)
            listed += [f"- config_name: {config}", "  data_files:"]
            for split, rows in splits.items():
                half = (len(rows) + 1) // 2
                for index, part in enumerate(filter(None, (rows[:half], rows[half:]))):  # shards, read in order
                    path = folder / config / f"{split}-{index:05d}.parquet"
                    datasets.Dataset.from_list(part, features=features).to_parquet(path)
                listed += [f"  - split: {split}", f"    path: {config}/{split}-*"]
        (folder / "README.md").write_text("\n".join([*listed, "---", "", "# Dataset", ""]))
        return str(folder)

    return build
