"""How long a run has been training, by the wall and by the processor, those parts before a resume included."""

import time
from collections.abc import Mapping


class RunClock:
    """
    Seconds of training of this process. `elapsed` and `cpu_elapsed` are those of the first process as of this step:
    what depends on time must be decided alike by every process. `trained_cpu_seconds` are those of this process at the
    end of its last step, so that an evaluation after it is no training.

    Seconds of the processor (`cpu_seconds`) are of all threads of this process and do not pass while it waits for a
    core, so that on a busy machine two runs of as many of them do the same work.
    """

    def __init__(self) -> None:
        self._before = {"seconds": 0.0, "cpu_seconds": 0.0}
        self.elapsed = self.cpu_elapsed = self.trained_cpu_seconds = 0.0
        self.start()

    def start(self) -> None:
        self._begin, self._cpu_begin = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        return self._before["seconds"] + time.perf_counter() - self._begin

    @property
    def cpu_seconds(self) -> float:
        return self._before["cpu_seconds"] + time.process_time() - self._cpu_begin

    def step_ended(self) -> None:
        self.trained_cpu_seconds = self.cpu_seconds

    def state(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"elapsed": self.seconds, "cpu_elapsed": self.cpu_seconds}

    def load_state(self, state: Mapping[str, float]) -> None:
        """Goes on from a checkpoint; one of before there was a clock of the processor has none."""
        self.elapsed, self.cpu_elapsed = state["elapsed"], state.get("cpu_elapsed", 0.0)
        self.trained_cpu_seconds = self.cpu_elapsed
        self._before = {"seconds": self.elapsed, "cpu_seconds": self.cpu_elapsed}
