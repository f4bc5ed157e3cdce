"""Time, data and losses of a run, counted on the host so that no accelerator is waited for before a log."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator

from modeling_tmde.training.batching import ChunkCounts, ParallelBatch


class RunClock:
    """
    Seconds of training, wall clock and CPU time, of this process and before a resume.

    CPU time is that of all threads and does not pass while the process waits for a core, so that runs with one
    CPU-time budget do the same work on a busy machine.

    Attributes:
        elapsed, cpu_elapsed: Seconds of the first process as of this step. Decisions that depend on time use these, so
            that all processes decide alike.
        trained_cpu_seconds: CPU seconds of this process at the end of its last step.
    """

    def __init__(self):
        self.elapsed = self.cpu_elapsed = self.trained_cpu_seconds = 0.0
        self._before = self._cpu_before = 0.0
        self.start()

    def start(self) -> None:
        self._begin, self._cpu_begin = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._begin

    @property
    def cpu_seconds(self) -> float:
        return self._cpu_before + time.process_time() - self._cpu_begin

    def step_ended(self) -> None:
        self.trained_cpu_seconds = self.cpu_seconds

    def state(self) -> dict[str, float]:
        return {"elapsed": self.seconds, "cpu_elapsed": self.cpu_seconds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._before = self.elapsed = state["elapsed"]
        self._cpu_before = self.cpu_elapsed = self.trained_cpu_seconds = state["cpu_elapsed"]


class Throughput:
    """
    Counts of this process, and their rates since the last log.

    Attributes:
        seen: Rows, words and tokens since the beginning of the run.
        chunk_counts: Rows, and truncated texts, in the chunks of data begun so far.
    """

    def __init__(self):
        self.seen: dict[str, float] = defaultdict(float)
        self.chunk_counts = ChunkCounts()
        self._last_chunk: tuple[int, int] | None = None
        self._begin = time.perf_counter()
        self._before: dict[str, float] = {}

    def add(self, batch: ParallelBatch) -> None:
        self.seen["rows"] += batch.sizes.rows
        self.seen["source_tokens"] += float(batch.lengths.sum())
        self.seen["padded_tokens"] += batch.attention_mask.numel()
        self.seen["target_tokens"] += batch.sizes.target_tokens
        self.seen["source_words"] += batch.words[0]
        self.seen["target_words"] += batch.words[1]
        chunk = (batch.position.epoch, batch.position.chunk)
        if chunk != self._last_chunk:
            self._last_chunk = chunk
            self.chunk_counts.add(batch.counts)

    def state(self) -> dict[str, Any]:
        return {"seen": dict(self.seen), "chunk_counts": asdict(self.chunk_counts)}

    def load_state(self, state: Mapping[str, Any], chunk: tuple[int, int]) -> None:
        """Continues from what `state` returned, in this (epoch, chunk) of the data."""
        self.seen = defaultdict(float, state["seen"])
        self.chunk_counts = ChunkCounts(**state["chunk_counts"])
        self._last_chunk = chunk

    def begin(self, data_wait: float = 0.0) -> None:
        """Starts a new interval for the rates."""
        self._begin = time.perf_counter()
        self._before = {**self.seen, "data_wait": data_wait}

    def leave_out(self, seconds: float) -> None:
        """Takes seconds, of an evaluation, out of the interval."""
        self._begin += seconds

    def rates(self, processes: int, data_wait: float) -> dict[str, float]:
        """Words and tokens per second since the last call, and the share of the time spent waiting for data.

        Args:
            processes: Each of which trains an equal share.
            data_wait: Seconds spent waiting for data since the beginning of the run.
        """
        begin, before = self._begin, self._before
        self.begin(data_wait)
        seconds = max(self._begin - begin, 1e-9)
        new = defaultdict(float, {name: total - before.get(name, 0.0) for name, total in self._before.items()})

        def rate(*names: str) -> float:
            return round(sum(new[name] for name in names) * processes / seconds, 1)

        return {
            "words_per_second": rate("source_words", "target_words"),
            "tokens_per_second": rate("source_tokens", "target_tokens"),
            "padding": round(1 - new["source_tokens"] / max(new["padded_tokens"], 1.0), 4),
            "data_wait": round(new["data_wait"] / seconds, 4),
            "rows": self.seen["rows"] * processes,
        }


class ComponentSums:
    """Every component of every loss, summed on its device until a log asks for the means."""

    def __init__(self):
        self._sums: dict[tuple[str, str], torch.Tensor] = {}
        self._counts: dict[str, float] = defaultdict(float)

    def add(self, objective: str, components: Mapping[str, torch.Tensor], count: float) -> None:
        self._counts[objective] += count
        for name, value in components.items():
            if name != "total":
                self._sums[objective, name] = self._sums.get((objective, name), 0) + value

    def means(self, accelerator: Accelerator) -> dict[str, float]:
        """`<objective>_<component>`, averaged over what all processes added since the last call."""
        keys = sorted(self._sums)
        if not keys:
            return {}
        values = torch.stack([self._sums[key].float() for key in keys])
        counts = torch.tensor([self._counts[objective] for objective, _ in keys], device=values.device)
        if accelerator.num_processes > 1:
            values, counts = accelerator.reduce((values, counts.float()), "sum")
        self._sums.clear()
        self._counts.clear()
        means = (values / counts.clamp_min(1)).tolist()
        return {"_".join(key): value for key, value in zip(keys, means, strict=True)}
