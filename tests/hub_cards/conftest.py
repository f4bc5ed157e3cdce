"""A recorded run for all tests of cards."""

from pathlib import Path

import pytest

from tests.hub_cards.recorded_runs import make_run


@pytest.fixture
def run(tmp_path) -> Path:
    return make_run(tmp_path / "somebody" / "mine")
