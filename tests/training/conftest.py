"""What all tests of training share."""

import pytest

from modeling_tmde.training.callbacks import CurvePicture


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no curves, which takes a second of each, except in tests that ask for `pictures`."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(CurvePicture, "_draw", lambda *args: None)


@pytest.fixture
def pictures() -> None:
    """Runs draw their curves."""
    pytest.importorskip("matplotlib")
