"""Time, data and losses of a run, counted on the host so that no accelerator is waited for before a log."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import Accelerator

from tmde.training.batches import ParallelBatch


class RunMeter:
    """
    Seconds of training, before a resume too, and the data of this process, with their rates since the last log.

    CPU time is that of all threads and does not pass while the process waits for a core, so that runs with one
    CPU-time budget do the same work on a busy machine.

    Attributes:
        elapsed, cpu_elapsed: Seconds of the first process as of this step. Decisions that depend on time use these, so
            that all processes decide alike.
        seen: Rows, words and tokens since the beginning of the run.
        chunk_counts: Rows, and truncated texts, in the chunks of data begun so far.
        data_wait: Seconds spent waiting for data since the last log.
    """

    def __init__(self):
        self.elapsed = self.cpu_elapsed = 0.0
        self.seen: Counter[str] = Counter()
        self.chunk_counts: Counter[str] = Counter()
        self._chunk: tuple[int, int] | None = None
        self.start()

    def start(self) -> None:
        """Starts the clocks, after the seconds that a resumed run has had."""
        self._begin, self._cpu_begin = (
            time.perf_counter() - self.elapsed,
            time.process_time() - self.cpu_elapsed,
        )
        self.start_interval()

    def start_interval(self) -> None:
        """Starts a new interval for the rates."""
        self.interval_begin, self._before, self.data_wait = (
            time.perf_counter(),
            self.seen.copy(),
            0.0,
        )

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    @property
    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu_begin

    def add(self, batch: ParallelBatch) -> None:
        tokens = {
            "source_tokens": int(batch.lengths.sum()),
            "padded_tokens": batch.attention_mask.numel(),
        }
        words = {"source_words": batch.words[0], "target_words": batch.words[1]}
        self.seen.update(
            tokens | words, rows=batch.sizes.rows, target_tokens=batch.sizes.target_tokens
        )
        chunk = (batch.position.epoch, batch.position.chunk)
        if chunk != self._chunk:
            self._chunk = chunk
            self.chunk_counts.update(batch.counts)

    def state(self) -> dict[str, Any]:
        counts = {"seen": dict(self.seen), "chunk_counts": dict(self.chunk_counts)}
        return {"elapsed": self.seconds, "cpu_elapsed": self.cpu_seconds, **counts}

    def load_state(self, state: Mapping[str, Any], chunk: tuple[int, int]) -> None:
        """Continues from what `state` returned, in this (epoch, chunk) of the data."""
        self.elapsed, self.cpu_elapsed, self._chunk = state["elapsed"], state["cpu_elapsed"], chunk
        self.seen, self.chunk_counts = Counter(state["seen"]), Counter(state["chunk_counts"])
        self.start()

    def rates(self, processes: int) -> dict[str, float]:
        """Words and tokens per second since the last call, and the share of the time spent waiting for data; of
        `processes`, each of which trains an equal share."""
        seconds, new = (
            max(time.perf_counter() - self.interval_begin, 1e-9),
            self.seen - self._before,
        )
        rates = {
            "words_per_second": round(
                (new["source_words"] + new["target_words"]) * processes / seconds, 1
            ),
            "tokens_per_second": round(
                (new["source_tokens"] + new["target_tokens"]) * processes / seconds, 1
            ),
            "padding": round(1 - new["source_tokens"] / max(new["padded_tokens"], 1), 4),
            "data_wait": round(self.data_wait / seconds, 4),
            "rows": self.seen["rows"] * processes,
        }
        self.start_interval()
        return rates


class ComponentSums:
    """Every component of every loss, summed on its device until its mean is asked for."""

    def __init__(self):
        self._sums: dict[
            tuple[str, str], tuple[torch.Tensor | float, float]
        ] = {}  # with the count of terms

    def add(self, objective: str, components: Mapping[str, torch.Tensor], count: float) -> None:
        for name, value in components.items():
            if name != "total":
                total, terms = self._sums.get((objective, name), (0.0, 0.0))
                self._sums[objective, name] = (total + value, terms + count)

    def means(self, accelerator: Accelerator | None = None) -> dict[str, float]:
        """`<objective>_<component>`, averaged over what was added since the last call, on all processes of an
        accelerator. One that counted nothing is left out."""
        if not self._sums:
            return {}
        keys = sorted(self._sums)
        totals, counts = zip(*(self._sums.pop(key) for key in keys), strict=True)
        sums = torch.stack([total.float() for total in totals])
        both = torch.stack([sums, sums.new_tensor(counts)])
        sums, counts = (both if accelerator is None else accelerator.reduce(both)).tolist()
        return {
            "_".join(key): total / count
            for key, total, count in zip(keys, sums, counts, strict=True)
            if count
        }
