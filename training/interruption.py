"""Ctrl-C (SIGINT) and SIGTERM during a run: a checkpoint is written before the run ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A launcher passes a Ctrl-C on that its processes have got from the terminal too. Within this time
# after the first signal, another one is no second Ctrl-C.
ECHO_SECONDS = 1.0


class RunInterrupted(KeyboardInterrupt):
    """A run was interrupted by a signal.

    Attributes:
        message: A sentence or two for the user: what is saved, and how to go on.
        exit_code: The exit code of the command, 128 and the number of the signal.
    """

    def __init__(self, message: str = "Interrupted", number: int = signal.SIGINT):
        super().__init__(message)
        self.message = message
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code that shells give to a command which the signal ends."""
        return 128 + self.number


class Interruption:
    """What signals have asked of a run.

    The first signal asks for a checkpoint after the step that is being made, or after the
    evaluation; the second ends the run at once. Before the first step there is nothing to save, so
    there the first signal ends the run.

    Attributes:
        number: The number of the signal that asks for a checkpoint; None without one.
        is_agreed: Whether all processes of the run know that one was asked, and stop after the same
            step.
        makes_steps: Whether the run is making steps, so that there is something to save.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.is_agreed = False
        self.makes_steps = False
        self._asked_at = 0.0
        self._process = os.getpid()

    @property
    def is_asked(self) -> bool:
        """Whether a signal has asked this process for a checkpoint."""
        return self.number is not None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            RunInterrupted: There is nothing to save, or it is the second signal.
        """
        if os.getpid() != self._process:
            return  # A process that loads data inherits this handler, and ends with the run.
        if not self.makes_steps:
            raise RunInterrupted(number=number)
        if not self.is_asked:
            self.number = number
            self._asked_at = time.monotonic()
            if os.environ.get("RANK", "0") == "0":
                _tell(
                    "Interrupted: a checkpoint is written after this step or evaluation. "
                    "Press Ctrl-C again to stop at once."
                )
        elif time.monotonic() - self._asked_at > ECHO_SECONDS:
            raise RunInterrupted(number=number)

    def stop(self) -> None:
        """End the run, whose checkpoint is complete.

        Raises:
            RunInterrupted: Always.
        """
        number = signal.SIGINT if self.number is None else self.number
        raise RunInterrupted(number=number)

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Handle signals in this way; other handlers, such as Python's own, are restored.

        A signal that is ignored stays so: shells start jobs with `&` that ignore Ctrl-C, and
        `nohup` those that outlive their terminal. So does one whose handler is not Python's.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # Python handles signals in its main thread alone.
            return
        before = {}
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, self.handle)
        try:
            yield
        finally:
            self.makes_steps = False
            for number, handler in before.items():
                signal.signal(number, handler)


def _tell(message: str) -> None:
    """Write a line to stderr.

    A handler may run amid a write to the same stream, which `print` would refuse to repeat.
    """
    with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"\n{message}\n".encode())
