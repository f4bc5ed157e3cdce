"""Fixtures of the task tests: a cache of their own, and folders laid out as the Hub's datasets are."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from tests.data.conftest import own_cache, write_hub_folder  # noqa: F401


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Callable[..., str]:
    """`dataset_folder(rows by config and split, features, name)`: a folder laid out like a Hub dataset."""

    def build(
        configs: dict[str, dict[str, list[dict]]],
        features: datasets.Features | None = None,
        name: str = "dataset",
    ) -> str:
        return write_hub_folder(tmp_path / "hub" / name, configs, features)

    return build
