"""Progress in a log: what a line counts."""

import io
import sys
import time
from types import ModuleType, SimpleNamespace

from tmde.embedding.progress import _LogLines, progress_bar


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
