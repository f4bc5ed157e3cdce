"""The seconds and the memory of the stages of a process."""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil

SECONDS_BETWEEN_READINGS = 0.1
MIB = 2**20


class Monitor:
    """Times the stages of this process, and reads its memory.

    Attributes:
        stages: The seconds and the largest memory of each stage, in MiB.
    """

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self._running = ["start"]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read_memory)

    def __enter__(self) -> "Monitor":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _read_memory(self) -> None:
        process = psutil.Process()
        while not self._is_over.wait(SECONDS_BETWEEN_READINGS):
            memory = process.memory_info()
            stage = self._stage(self._running[-1])
            stage["resident"] = max(stage["resident"], memory.rss / MIB)
            stage["own"] = max(stage["own"], (memory.rss - memory.shared) / MIB)

    def _stage(self, name: str) -> dict[str, float]:
        return self.stages.setdefault(name, {"seconds": 0.0, "resident": 0.0, "own": 0.0})

    @contextlib.contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Count the seconds of a block, those of a stage inside of it left out."""
        begin = time.perf_counter()
        inner_before = sum(stage["seconds"] for stage in self.stages.values())
        self._running.append(name)
        try:
            yield
        finally:
            self._running.pop()
            seconds = time.perf_counter() - begin
            inner = sum(stage["seconds"] for stage in self.stages.values()) - inner_before
            self._stage(name)["seconds"] += seconds - inner

    def watch(self, name: str, owner: Any, function_name: str) -> None:  # noqa: ANN401
        """Make a function of a module or class a stage."""
        function = getattr(owner, function_name)

        @functools.wraps(function, updated=())
        def timed(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            with self.timing(name):
                return function(*arguments, **options)

        setattr(owner, function_name, timed)
