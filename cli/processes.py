"""The processes that `torchrun` or `accelerate launch` started for one command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from modeling_tmde.data.documents import EmbedError

Result = TypeVar("Result")
_joined = False  # whether this process has been one of several
_PATIENCE = timedelta(days=30)  # the first process to finish waits for the last one


class OtherProcessFailed(Exception):
    """With a text: another process is gone. Without: it has told what went wrong."""


def process_count() -> int:
    """How many there are; 1 where no launcher has set `WORLD_SIZE`."""
    return int(os.environ.get("WORLD_SIZE", 1))


@dataclass(frozen=True)
class Processes:
    """This process (`rank`, from 0, and `local_rank` on its machine) among `count`."""

    rank: int = 0
    local_rank: int = 0
    count: int = 1

    def together(self, work: Callable[[], Result]) -> Result:
        """Does `work` on every process, and goes on only if all succeeded.

        Raises:
            EmbedError: The first one of any process, on process 0.
            OtherProcessFailed: The same on all others, so that it is told once.
        """
        result, error = None, None
        try:
            result = work()
        except EmbedError as problem:
            error = str(problem)
        errors = [text for text in self._exchange(error) if text is not None]
        if errors:
            raise EmbedError(errors[0]) if self.rank == 0 else OtherProcessFailed
        return result

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Does `work` on process 0 and gives its result (which can be pickled) to all; raises what `together` does."""
        result = self.together(lambda: work() if self.rank == 0 else None)
        return self._exchange(result)[0]

    def gather(self, value: Result) -> list[Result]:
        """The values of all processes, in the order of their ranks; waits for all.

        Raises:
            OtherProcessFailed: One is gone.
        """
        return self._exchange(value)

    def _exchange(self, value: Any) -> list[Any]:
        if self.count == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.count
        try:
            dist.all_gather_object(values, value)
        except RuntimeError:  # its connection is closed
            raise OtherProcessFailed(
                "another process ended early; what is finished is kept: run the same command again"
            ) from None
        return values


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Joins the processes of the launcher; alone without one.

    They exchange small objects only, through gloo, whatever device they compute on. SIGTERM, by which a launcher ends
    the others when one has failed, becomes a KeyboardInterrupt.
    """
    if process_count() == 1:
        yield Processes()
        return
    import torch.distributed as dist

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    global _joined
    _joined = True
    before = signal.signal(signal.SIGTERM, interrupt)
    dist.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield Processes(dist.get_rank(), int(os.environ.get("LOCAL_RANK", 0)), dist.get_world_size())
    finally:
        dist.destroy_process_group()
        signal.signal(signal.SIGTERM, before)


def end_process(code: int) -> None:
    """Ends a process that was one of several at once; returns where it was not.

    A thread of gloo may still be letting go of the tensors of the last exchange. If the interpreter, which it needs
    for that, ends under it, it aborts the process, and a launcher takes the whole run for failed.
    """
    if _joined:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
