"""Progress of long work, for a terminal and for a log."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm.auto import tqdm
from tqdm.std import tqdm as tqdm_std

_SECONDS_BETWEEN_LINES = 30


class _LogLines(tqdm_std):  # type: ignore[misc]  # tqdm has no types.
    """Progress for a log: whole lines, at most one every 30 seconds, and none if it takes less."""

    last_print_t: float
    refreshed_at: float = float("-inf")  # when `refresh` has last written a line
    shown_n: float | None = None  # The progress of the last line.

    def display(self, *args: Any, **kwargs: Any) -> bool | None:
        """Write a line, and note its progress."""
        self.shown_n = self.n
        shown: bool | None = super().display(*args, **kwargs)
        return shown

    def close(self) -> None:
        """Write the last line, unless the line before says the same."""
        if self.shown_n == self.n:
            self.last_print_t = float("-inf")  # As if nothing was shown yet: nothing is repeated.
        super().close()

    def refresh(self, *args: Any, **kwargs: Any) -> None:
        """Refresh the display, but no earlier than the interval allows.

        Without this, tqdm would write a line whenever the description changes.
        """
        if self.disable:  # By TQDM_DISABLE=1; a disabled bar has no `last_print_t`.
            return
        # tqdm counts by `last_print_t` while it iterates, so that time must stay as it is.
        last_line = max(self.last_print_t, self.refreshed_at)
        if self._time() - last_line >= self.mininterval:
            super().refresh(*args, **kwargs)
            self.refreshed_at = self._time()

    @staticmethod
    def status_printer(file: TextIO) -> Callable[[str], None]:
        """Return a function that prints a status as a line of its own."""

        def print_line(status: str) -> None:
            print(status.strip(), file=file, flush=True)

        return print_line


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm_std:
    """Return a tqdm bar on stderr, which writes a line every 30 seconds if that is no terminal.

    Args:
        iterable: What the bar iterates over; None if the caller updates it.
        options: Arguments of `tqdm`.
    """
    if not _is_log():
        return tqdm(iterable, **options)
    seconds = _SECONDS_BETWEEN_LINES
    return _LogLines(iterable, **options, mininterval=seconds, delay=seconds, miniters=1)


@contextmanager
def phase(description: str, is_shown: bool = True, leave: bool = True) -> Iterator[None]:
    """Show that work goes on whose progress cannot be counted.

    A terminal shows the time that it has taken. A log gets a line when the work begins, and one
    every 30 seconds.

    Args:
        description: What is done, such as "Training the tokenizer".
        is_shown: Whether to show anything.
        leave: Whether the time stays on the terminal after the end.
    """
    if is_shown:
        announce(description)
    with progress_bar(
        desc=description, bar_format="{desc}: {elapsed}", leave=leave, disable=not is_shown
    ) as bar:
        is_over = threading.Event()
        clock = threading.Thread(target=_refresh_until, args=(is_over, bar), daemon=True)
        clock.start()
        try:
            yield
        finally:
            is_over.set()
            clock.join()


def announce(description: str) -> None:
    """Write a line to a log when some work begins; a terminal shows a bar instead."""
    is_silenced = os.environ.get("TQDM_DISABLE", "") not in ("", "0")
    if _is_log() and not is_silenced and sys.stderr is not None:
        print(description, file=sys.stderr, flush=True)


def _refresh_until(is_over: threading.Event, bar: tqdm_std) -> None:
    """Refresh a bar every second until its work is over."""
    while not is_over.wait(timeout=1.0):
        bar.refresh()


def _is_log() -> bool:
    """Return whether stderr is a file or a pipe, outside of a notebook."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return not is_terminal and not _is_notebook()


def _is_notebook() -> bool:
    """Return whether the code runs in a kernel of Jupyter, as the shell of IPython knows."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    shell = ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
