"""What a run has trained on and how fast, counted on the host: nothing here waits for an accelerator before a log."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde.training.batching import ChunkCounts, ParallelBatch
from modeling_tmde.training.objectives import MaskedTextObjective, MaskingObjective, PairMaskingObjective
from modeling_tmde.training.parallel_model import ParallelModel


class Throughput:
    """
    Counts of this process, and their rates since the last log.

    Attributes:
        seen: Rows, words and tokens since the beginning of the run.
        chunk_counts: Rows, and texts that were too long, in the chunks of data begun so far.
    """

    def __init__(self):
        self.seen: dict[str, float] = defaultdict(float)
        self.chunk_counts = ChunkCounts()
        self._last_chunk: tuple[int, int] | None = None
        self._begin: float | None = None
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
        """Goes on from what `state` returned; `chunk` is the epoch and the chunk of data that the run is in."""
        self.seen = defaultdict(float, state["seen"])
        self.chunk_counts = ChunkCounts(**state["chunk_counts"])
        self._last_chunk = chunk

    def begin(self, data_wait: float = 0.0) -> None:
        """Rates count from now on."""
        self._begin = time.perf_counter()
        self._before = {**self.seen, "data_wait": data_wait}

    def leave_out(self, seconds: float) -> None:
        """Rates do not count so many of the seconds since they began."""
        if self._begin is not None:
            self._begin += seconds

    def rates(self, processes: int, data_wait: float) -> dict[str, float]:
        """Words and tokens per second since the last call, and the share of the time spent waiting for data.

        Args:
            processes: Each of which trains an equal share.
            data_wait: Seconds spent waiting for data, since the beginning of the run.
        """
        begin, before = self._begin, self._before
        self.begin(data_wait)
        seconds = max(self._begin - begin, 1e-9)
        new = defaultdict(float, {name: total - before.get(name, 0.0) for name, total in self._before.items()})
        return {
            "words_per_second": round((new["source_words"] + new["target_words"]) * processes / seconds, 1),
            "source_words_per_second": round(new["source_words"] * processes / seconds, 1),
            "target_words_per_second": round(new["target_words"] * processes / seconds, 1),
            "tokens_per_second": round((new["source_tokens"] + new["target_tokens"]) * processes / seconds, 1),
            "padding": round(1 - new["source_tokens"] / max(new["padded_tokens"], 1.0), 4),
            "data_wait": round(new["data_wait"] / seconds, 4),
            "rows": self.seen["rows"] * processes,
        }


class ComponentSums:
    """Every component of every loss, summed where it was computed until a log asks for the means."""

    def __init__(self):
        self._sums: dict[tuple[str, str], torch.Tensor] = {}
        self._counts: dict[str, float] = defaultdict(float)

    def add(self, objective: str, components: Mapping[str, torch.Tensor], count: float) -> None:
        self._counts[objective] += count
        for name, value in components.items():
            key = (objective, name)
            self._sums[key] = self._sums.get(key, 0) + value

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


class OperationCount:
    """6 operations per parameter and token (Kaplan et al. 2020), tables not counted; of a bag, which has little else,
    6 per dimension and token, the share of its table that a token has."""

    def __init__(self, parallel: ParallelModel):
        model, encoder, config = parallel.model, parallel.encoder, parallel.config
        output = getattr(model, "lm_head", None)
        written = 0 if output is None else output.weight.numel()
        per_token = self._weights(encoder, config)
        objectives = parallel.objectives.values()
        self.pair_calls = sum(isinstance(objective, PairMaskingObjective) for objective in objectives)
        self.shared_call = parallel.decodes or any(objective.needs_all_embeddings for objective in objectives)
        self.masking = [objective for objective in objectives if isinstance(objective, MaskingObjective)]
        self.per_padded_token = 6.0 * per_token
        self.per_source_token = 0.0 if per_token else 6.0 * config.hidden_size
        self.per_target_token = 6.0 * (self._weights(model.decoder, config) + written) if parallel.decodes else 0.0
        self.per_hidden_token = 6.0 * (self._weights(model.head, config) + written) if self.masking else 0.0

    @staticmethod
    def _weights(part: nn.Module, config: PreTrainedConfig) -> float:
        """Parameters that a token meets: no table, and of those that every language has of its own, one language's."""
        tables = {f"{name}.weight" for name, module in part.named_modules() if isinstance(module, nn.Embedding)}
        shares = {"encoders": len(config.languages), "decoders": len(config.pivot_languages)}
        return sum(
            parameter.numel() / shares.get(name.partition(".")[0], 1)
            for name, parameter in part.named_parameters()
            if name not in tables and not name.endswith("token_weights")
        )

    def of(self, batch: ParallelBatch) -> float:
        calls = self.pair_calls + self.shared_call
        operations = self.per_padded_token * batch.attention_mask.numel() * calls
        operations += self.per_target_token * batch.sizes.target_tokens
        operations += self.per_hidden_token * sum(self._hidden(objective, batch) for objective in self.masking)
        return operations + self.per_source_token * float(batch.lengths.sum())

    @staticmethod
    def _hidden(objective: MaskingObjective, batch: ParallelBatch) -> int:
        """How many predictions the head makes: one a hidden token, or one a text."""
        return batch.sizes.texts if isinstance(objective, MaskedTextObjective) else objective.count(batch.sizes)
