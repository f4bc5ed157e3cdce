"""Time, data and losses of a run, counted on the host so that no accelerator is waited for."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator

from tmde.training.batches import ParallelBatch

SHORTEST_INTERVAL = 1e-9  # Seconds; no rate divides by 0.


class RunMeter:
    """The seconds of training, those before a resume included, and the data of this process.

    CPU time is that of all threads and does not pass while the process waits for a core, so that
    runs with one CPU-time budget do the same work on a busy machine.

    Evaluations do not count as training: a run of ten minutes trains for ten minutes. Of CPU time,
    only the evaluation before the first step is left out.

    Attributes:
        elapsed: The seconds of training of the first process as of this step. Decisions that depend
            on time use these, so that all processes decide alike.
        cpu_elapsed: The seconds of CPU time of the first process as of this step.
        evaluation_seconds: The seconds of all evaluations.
        evaluation_cpu_seconds: The seconds of CPU time of those evaluations that count as CPU time.
        seen: The rows, words and tokens since the beginning of the run.
        chunk_counts: The rows and truncated texts in the chunks of data begun so far.
        data_wait: The seconds spent waiting for data since the last log.
    """

    def __init__(self):
        self.elapsed = 0.0
        self.cpu_elapsed = 0.0
        self.evaluation_seconds = 0.0
        self.evaluation_cpu_seconds = 0.0
        self._seconds_before = 0.0  # Those before a resume.
        self._cpu_seconds_before = 0.0
        self.seen: Counter[str] = Counter()
        self.chunk_counts: Counter[str] = Counter()
        self._chunk: tuple[int, int] | None = None
        self.start()

    def start(self) -> None:
        """Start the clocks, after the seconds that a resumed run has had."""
        self._begin = time.perf_counter() - self._seconds_before
        self._cpu_begin = time.process_time() - self._cpu_seconds_before
        self.start_interval()

    def start_interval(self) -> None:
        """Start a new interval for the rates."""
        self._interval_begin = time.perf_counter()
        self._seen_before = self.seen.copy()
        self.data_wait = 0.0

    @contextmanager
    def evaluation(self, is_before_training: bool = False) -> Iterator[None]:
        """Leave the seconds of an evaluation out of those of training.

        Args:
            is_before_training: Whether no step was made yet. Then its CPU time is left out as well.
        """
        begin = time.perf_counter()
        cpu_begin = time.process_time()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            self.evaluation_seconds += seconds
            self._interval_begin += seconds
            cpu_seconds = time.process_time() - cpu_begin
            if is_before_training:
                self._cpu_begin += cpu_seconds
            else:
                self.evaluation_cpu_seconds += cpu_seconds

    @property
    def seconds(self) -> float:
        """The seconds of this process, evaluations included."""
        return time.perf_counter() - self._begin

    @property
    def training_seconds(self) -> float:
        """The seconds of this process without those of evaluations."""
        return self.seconds - self.evaluation_seconds

    @property
    def cpu_seconds(self) -> float:
        """The seconds of CPU time of this process."""
        return time.process_time() - self._cpu_begin

    def add(self, batch: ParallelBatch) -> None:
        """Count the data of a batch, and of its chunk if it is the first of one."""
        self.seen.update(
            rows=batch.sizes.rows,
            source_words=batch.source_words,
            target_words=batch.target_words,
            source_tokens=int(batch.lengths.sum()),
            target_tokens=batch.sizes.target_tokens,
            padded_tokens=batch.attention_mask.numel(),
        )
        chunk = (batch.position.epoch, batch.position.chunk)
        if chunk != self._chunk:
            self._chunk = chunk
            self.chunk_counts.update(batch.counts)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "elapsed": self.seconds,
            "cpu_elapsed": self.cpu_seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "evaluation_cpu_seconds": self.evaluation_cpu_seconds,
            "seen": dict(self.seen),
            "chunk_counts": dict(self.chunk_counts),
        }

    def load_state(self, state: Mapping[str, Any], chunk: tuple[int, int]) -> None:
        """Continue from what `state` returned.

        Args:
            state: The state of a checkpoint.
            chunk: The (epoch, chunk) of the data at which the run resumes.
        """
        self._seconds_before = state["elapsed"]
        self._cpu_seconds_before = state["cpu_elapsed"]
        self.evaluation_seconds = state["evaluation_seconds"]
        self.evaluation_cpu_seconds = state["evaluation_cpu_seconds"]
        self.elapsed = self._seconds_before - self.evaluation_seconds
        self.cpu_elapsed = self._cpu_seconds_before
        self.seen = Counter(state["seen"])
        self.chunk_counts = Counter(state["chunk_counts"])
        self._chunk = chunk
        self.start()

    def rates(self, processes: int) -> dict[str, float]:
        """Return speeds since the last call, and start a new interval.

        Args:
            processes: How many processes train an equal share each.

        Returns:
            Words and tokens per second, the shares of padding and of the time spent waiting for
            data, and all rows so far.
        """
        seconds = max(time.perf_counter() - self._interval_begin, SHORTEST_INTERVAL)
        new = self.seen - self._seen_before
        words = new["source_words"] + new["target_words"]
        tokens = new["source_tokens"] + new["target_tokens"]
        rates = {
            "words_per_second": round(words * processes / seconds, 1),
            "tokens_per_second": round(tokens * processes / seconds, 1),
            "padding": round(1 - new["source_tokens"] / max(new["padded_tokens"], 1), 4),
            "data_wait": round(self.data_wait / seconds, 4),
            "rows": self.seen["rows"] * processes,
        }
        self.start_interval()
        return rates


@dataclass
class ComponentSum:
    """The sum of one component of a loss, on its device, and the number of its terms."""

    total: torch.Tensor
    terms: float


class ComponentSums:
    """Every component of every loss, summed on its device until its mean is asked for."""

    def __init__(self):
        self._sums: dict[str, ComponentSum] = {}

    def add(self, objective: str, components: Mapping[str, torch.Tensor], terms: float) -> None:
        """Add the components of one batch, but for the differentiable total.

        Args:
            objective: The name of the objective.
            components: Its sums by name.
            terms: The number of terms of each sum.
        """
        for component, value in components.items():
            if component == "total":
                continue
            name = f"{objective}_{component}"
            if name in self._sums:
                self._sums[name].total = self._sums[name].total + value
                self._sums[name].terms += terms
            else:
                self._sums[name] = ComponentSum(value, terms)

    def means(self, accelerator: Accelerator | None = None) -> dict[str, float]:
        """Return the mean of every `<objective>_<component>` since the last call.

        A component without any terms is left out.

        Args:
            accelerator: Where it is given, the means are over all of its processes.
        """
        if not self._sums:
            return {}
        names = sorted(self._sums)
        sums = [self._sums.pop(name) for name in names]
        totals = torch.stack([component.total.float() for component in sums])
        terms = totals.new_tensor([component.terms for component in sums])
        both = torch.stack([totals, terms])
        if accelerator is not None:
            both = accelerator.reduce(both)
        means = {}
        for name, total, count in zip(names, *both.tolist(), strict=True):
            if count:
                means[name] = total / count
        return means
