"""What all tests of training share."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tmde.training import callbacks


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs draw no curves, which take a second, except in tests that ask for `pictures`."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(callbacks, "draw_training_curves", lambda *args: None)


@pytest.fixture(autouse=True, scope="session")
def token_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep token caches in a folder that all tests share, instead of the user's."""
    folder = tmp_path_factory.getbasetemp() / "tmde_tokens"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tmde.data.tokens.default_folder", lambda: folder)
        yield folder


@pytest.fixture
def pictures() -> None:
    """Runs draw their curves."""
    pytest.importorskip("matplotlib")


@pytest.fixture(scope="session")
def taught_by(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A teacher that knows English words alone: its `folder`, and the `table` of their vectors."""
    pytest.importorskip("sentence_transformers")
    from tests.training.teachers import static_teacher

    folder = tmp_path_factory.mktemp("teacher") / "static"
    return SimpleNamespace(folder=folder, table=static_teacher(folder))
