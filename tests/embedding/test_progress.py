"""Progress in a log: what a line counts."""

import io
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from tmde.embedding import progress
from tmde.embedding.progress import _LogLines, phase, progress_bar


def make_ipython(shell):
    """Make a stand-in of the package IPython, with a running shell or None."""
    module = ModuleType("IPython")
    module.get_ipython = lambda: shell
    return module


def test_a_package_of_jupyter_that_is_imported_makes_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", make_ipython(shell=None))
    assert isinstance(progress_bar(range(2)), _LogLines)


def test_a_kernel_of_jupyter_shows_a_bar(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", make_ipython(SimpleNamespace(kernel=object())))
    assert not isinstance(progress_bar(range(2)), _LogLines)


def test_a_refresh_within_an_iteration_counts_nothing():
    bar = _LogLines(range(4), file=io.StringIO(), mininterval=0.02, delay=1e-9, miniters=1)
    counts = []
    for _ in bar:
        counts.append(bar.n)
        for number in range(3):
            time.sleep(0.015)
            bar.set_postfix_str(str(number))
    assert counts == sorted(counts)
    assert max(counts) <= 3


def test_a_disabled_bar_takes_a_description():
    """With TQDM_DISABLE=1, tqdm makes a bar without the times of its last lines."""
    bar = _LogLines(range(2), disable=True)
    bar.set_description("reading")
    assert list(bar) == [0, 1]
    bar.close()


# ---- Phases whose progress cannot be counted


class Stream(io.StringIO):
    """A stand-in of stderr, a terminal or not."""

    def __init__(self, is_terminal: bool):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def set_stderr(monkeypatch, is_terminal: bool = False) -> Stream:
    """Replace stderr; pytest would undo it after a fixture."""
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_log_says_at_once_what_begins_and_no_more_if_that_is_quick(monkeypatch):
    log = set_stderr(monkeypatch)
    with phase("Reading"):
        assert log.getvalue() == "Reading\n"
    assert log.getvalue() == "Reading\n"


def test_a_log_says_from_time_to_time_that_work_goes_on(monkeypatch):
    log = set_stderr(monkeypatch)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.01)
    with phase("Reading"):
        for _ in range(600):
            if len(log.getvalue().splitlines()) > 1:
                break
            time.sleep(0.1)
    assert log.getvalue().splitlines()[1].startswith("Reading: 00:0")


def test_an_error_ends_a_phase():
    with pytest.raises(ValueError, match="bad row"), phase("Reading"):
        raise ValueError("bad row")


def test_nothing_is_shown_if_nobody_asked(monkeypatch):
    log = set_stderr(monkeypatch)
    with phase("Reading", is_shown=False):
        pass
    monkeypatch.setenv("TQDM_DISABLE", "1")
    progress.announce("Reading")
    assert log.getvalue() == ""


def test_a_terminal_shows_the_time_that_has_passed(monkeypatch):
    terminal = set_stderr(monkeypatch, is_terminal=True)
    with phase("Reading"):
        assert "Reading: 00:00" in terminal.getvalue()
    assert "Reading\n" not in terminal.getvalue()
