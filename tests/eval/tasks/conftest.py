"""Fixtures of the task tests: a cache of their own, no network, and folders laid out as the Hub's datasets are."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the caches of `datasets` in a folder of the test's own."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    # `datasets` sleeps for seconds when a stream of interleaved parquet files ends, for an old bug of pyarrow's
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)
    datasets.disable_progress_bars()
    return cache


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request for a dataset fail as it does without a network, at once."""

    def refuse(real: Callable) -> Callable:
        def call(path: str, *args: object, **options: object) -> object:
            if "/" in path and not Path(path).exists():
                raise ConnectionError(f"Couldn't reach '{path}' on the Hub (LocalEntryNotFoundError)")
            return real(path, *args, **options)

        return call

    for name in ("load_dataset", "get_dataset_config_names", "get_dataset_split_names"):
        monkeypatch.setattr(datasets, name, refuse(getattr(datasets, name)))


Configs = dict[str, dict[str, list[dict]]]  # rows by config and split


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Callable[..., str]:
    """`dataset_folder(configs, features, readme, name)`: a folder laid out like a Hub dataset, by a README.md that
    lists the configs or only by the names of its folders."""

    def build(
        configs: Configs, features: datasets.Features | None = None, readme: bool = True, name: str = "dataset"
    ) -> str:
        folder, listed = tmp_path / "hub" / name, ["---", "configs:"]
        for config, splits in configs.items():
            (folder / config).mkdir(parents=True)
            listed += [f"- config_name: {config}", "  data_files:"]
            for split, rows in splits.items():
                half = (len(rows) + 1) // 2
                parts = [rows[:half], rows[half:]] if len(rows) > 1 else [rows]  # two shards, read in order
                for index, part in enumerate(parts):
                    path = folder / config / f"{split}-{index:05d}-of-{len(parts):05d}.parquet"
                    datasets.Dataset.from_list(part, features=features).to_parquet(path)
                listed += [f"  - split: {split}", f"    path: {config}/{split}-*"]
        if readme:
            (folder / "README.md").write_text("\n".join([*listed, "---", "", "# Dataset", ""]))
        return str(folder)

    return build


def need_shared(name: str) -> Path:
    """Return a file of the data beside the repository; skip the test where it is not there."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"needs the data file {name} beside the repository")
    return path


@pytest.fixture
def shared_file() -> Callable[[str], Path]:
    """`shared_file(name)`: see [`need_shared`]."""
    return need_shared
