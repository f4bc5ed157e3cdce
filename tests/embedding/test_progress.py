"""Progress in a log: what a line counts."""

import io
import time

from tmde.embedding.progress import _LogLines


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
