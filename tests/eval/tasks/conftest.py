"""Fixtures of the task tests: a cache of their own, and folders laid out like Hub datasets."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from tests.data.conftest import separate_cache, write_hub_folder  # noqa: F401 (a fixture)


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Callable[..., str]:
    """`dataset_folder(rows by config and split, features, name)` writes a folder.

    It is laid out like a dataset of the Hub.
    """

    def build(
        configs: dict[str, dict[str, list[dict]]],
        features: datasets.Features | None = None,
        name: str = "dataset",
    ) -> str:
        return write_hub_folder(tmp_path / "hub" / name, configs, features)

    return build
