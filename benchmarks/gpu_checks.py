"""What `gpu.py` checks and compares in one process: an accelerator against the CPU, and ways to train on it.

Nothing here needs `datasets`: the batches are random token ids of log-normal lengths.
"""

import copy
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import interleaved, median_ratio, summary
from sizes import LANGUAGES, PIVOTS, Size

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration
from modeling_tmde.training.objectives import DistanceConstraint, Objective, TranslationObjective
from modeling_tmde.training.parallel_model import ParallelModel

TOLERANCES = {"fp32": 1e-4, "bf16": 2e-2, "embedding fp32": 1e-4}
VARIANTS: dict[str, tuple[dict[str, Any], bool]] = {  # changes of the config, and whether by the distance constraint
    "T-MDE": ({}, False),
    "cT-MDE": ({}, True),
    "cT-MDE_P": ({"bottleneck": "pyramid"}, True),
    "cT-MDE_F": ({"bottleneck": "full"}, True),
    "cT-MDE, dual": ({"bottleneck": "dual"}, True),
    "cT-MDE, bag_residual": ({"bag_residual": True, "sublinear_counts": True}, True),
}
FIRST_ID = 4  # special tokens are before


def parallel_model(size: Size, changes: dict[str, Any], constrained: bool, seed: int = 0) -> ParallelModel:
    """A model of this size with random weights and the losses of T-MDE, or of cT-MDE."""
    torch.manual_seed(seed)
    widths = {"d_model": size.d_model, "encoder_ffn_dim": size.ffn, "decoder_ffn_dim": size.ffn}
    heads = {"encoder_attention_heads": size.heads, "decoder_attention_heads": size.heads}
    layers = {"encoder_layers": size.layers, "decoder_layers": size.decoder_layers}
    options = {"vocab_size": size.vocab_size, "dropout": size.dropout} | widths | heads | layers | changes
    model = TmdeForConditionalGeneration(TmdeConfig(**options))
    objectives: dict[str, Objective] = {"translation": TranslationObjective(weight=1.0)}
    if constrained:
        objectives = {"translation": TranslationObjective(weight=0.5), "distance": DistanceConstraint(weight=0.25)}
    return ParallelModel(model, objectives)


def made_up_batch(
    config: TmdeConfig, languages: int, rows: int, lengths: np.ndarray, rng: np.random.Generator
) -> dict[str, Any]:
    """Inputs of `ParallelModel` on the CPU; lengths (languages, rows), `<s>` and `</s>` among them."""
    steps = np.arange(lengths.max())
    ids = rng.integers(FIRST_ID, config.vocab_size, (languages, rows, len(steps)))
    ids[..., 0] = config.bos_token_id
    np.put_along_axis(ids, lengths[..., None] - 1, config.eos_token_id, axis=-1)
    mask = steps < lengths[..., None]
    ids[~mask] = config.pad_token_id
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        "languages": tuple([*PIVOTS, *(code for code in LANGUAGES if code not in PIVOTS)][:languages]),
        "lengths": lengths,
    }


def log_normal(shape: tuple[int, ...], spread: float, longest: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths around 30 tokens."""
    return rng.lognormal(np.log(30), spread, shape).round().clip(3, longest).astype(np.int64)


def to_device(batch: dict[str, Any], device: str) -> dict[str, Any]:
    return {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.items()}


def total_loss(parallel: ParallelModel, batch: dict[str, Any]) -> torch.Tensor:
    """Every objective's sum, weighted and divided by a count that makes both about as large."""
    tokens = float((batch["lengths"] - 1).sum())
    counts = {"translation": tokens, "distance": float(batch["lengths"].size)}
    outputs = parallel(**batch)
    return sum(parallel.objectives[name].weight / counts[name] * parts["total"] for name, parts in outputs.items())


def loss_and_gradient(
    parallel: ParallelModel, batch: dict[str, Any], device: str, bf16: bool
) -> tuple[float, float, torch.Tensor]:
    """The loss, the norm of its gradient, and the embeddings (languages * rows, d_model) in fp32, on the CPU."""
    parallel.zero_grad()
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss = total_loss(parallel, batch)
        with torch.no_grad():
            flat = {key: batch[key].flatten(0, 1) for key in ("input_ids", "attention_mask")}
            embeddings = parallel.encoder(**flat, pooled_only=True).pooler_output.float().cpu()
    loss.backward()
    squares = [
        parameter.grad.double().square().sum() for parameter in parallel.parameters() if parameter.grad is not None
    ]
    return loss.item(), torch.stack(squares).sum().sqrt().item(), embeddings


def relative(found: float, expected: float) -> float:
    return abs(found - expected) / max(abs(expected), 1e-12)


def check_variant(name: str, size: Size, device: str) -> dict[str, Any]:
    """One fixed batch on the accelerator, in fp32 and bf16, against fp32 on the CPU."""
    changes, constrained = VARIANTS[name]
    parallel = parallel_model(replace(size, dropout=0.0), changes, constrained)
    rng = np.random.default_rng(0)
    # The constraint draws no negatives at random if it has no more than it wants.
    rows, languages = 24, 3
    batch = made_up_batch(parallel.config, languages, rows, log_normal((languages, rows), 0.5, 96, rng), rng)
    loss, norm, embeddings = loss_and_gradient(parallel, batch, "cpu", bf16=False)
    parallel, batch = parallel.to(device), to_device(batch, device)
    found: dict[str, Any] = {"variant": name, "loss": loss, "gradient norm": norm}
    for precision in ("fp32", "bf16"):
        other_loss, other_norm, other = loss_and_gradient(parallel, batch, device, precision == "bf16")
        found[f"loss, {precision}"] = relative(other_loss, loss)
        found[f"gradient, {precision}"] = relative(other_norm, norm)
        found[f"embedding, {precision}"] = float((other - embeddings).abs().max())
    limits = {
        "loss, fp32": TOLERANCES["fp32"],
        "gradient, fp32": TOLERANCES["fp32"],
        "loss, bf16": TOLERANCES["bf16"],
        "gradient, bf16": TOLERANCES["bf16"],
        "embedding, fp32": TOLERANCES["embedding fp32"],
    }
    beyond = [key for key, limit in limits.items() if not found[key] <= limit]
    return found | {"within tolerance": "yes" if not beyond else f"NO: {', '.join(beyond)}"}


def check_waiting(size: Size, device: str) -> dict[str, Any]:
    """What a step waits for the accelerator for, by line of code: none if `lengths` are given."""
    if device != "cuda":
        return {"waits": "only an accelerator is waited for"}
    parallel = parallel_model(size, {}, constrained=True).to(device)
    rng = np.random.default_rng(0)
    batch = to_device(made_up_batch(parallel.config, 2, 64, log_normal((2, 64), 0.5, 96, rng), rng), device)
    found: dict[str, Any] = {}
    for title, inputs in (("lengths given", batch), ("lengths not given", {**batch, "lengths": None})):
        for warm in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("default" if warm else "warn")
                try:
                    with torch.autocast(device, torch.bfloat16):
                        outputs = parallel(**inputs)
                        loss = sum(parts["total"] for parts in outputs.values())
                    loss.backward()
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
        lines = Counter(
            f"{'/'.join(Path(warning.filename).parts[-2:])}:{warning.lineno}"
            for warning in caught
            if "synchroniz" in str(warning.message)
        )
        found[title] = dict(lines)
    return {"waits": found}


# -------------------------------------------------------------------------------------------------------- variations


class Step:
    """One training step of one model in bf16, over the same batches in turn."""

    def __init__(self, parallel: ParallelModel, batches: list[dict[str, Any]], device: str):
        self.parallel, self.batches, self.device = parallel, batches, device
        self.optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-5, fused=True)

    def __call__(self, least_padding: float) -> None:
        self.parallel.least_padding = least_padding
        for batch in self.batches:
            with torch.autocast(self.device, torch.bfloat16):
                loss = total_loss(self.parallel, batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    @torch.no_grad()
    def loss(self, least_padding: float) -> float:
        """In evaluation, of the first batch."""
        self.parallel.least_padding = least_padding
        self.parallel.eval()
        with torch.autocast(self.device, torch.bfloat16):
            found = total_loss(self.parallel, self.batches[0]).item()
        self.parallel.train()
        return found


def padded_batches(config: TmdeConfig, size: Size, spread: float, number: int, device: str) -> list[dict[str, Any]]:
    """Batches of pairs that fill the budget of tokens, padding included."""
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(number):
        rows = max(4, size.micro_batch_tokens // (2 * 30))
        lengths = log_normal((2, rows), spread, size.max_length, rng)
        lengths = lengths[:, : max(4, size.micro_batch_tokens // (2 * int(lengths.max())))]
        batches.append(to_device(made_up_batch(config, 2, lengths.shape[1], lengths, rng), device))
    return batches


def vary(size: Size, device: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Padded against packed by the share of padding, then both by torch.compile; a row as soon as it is measured."""
    parallel = parallel_model(size, {}, constrained=True).to(device)
    modes = {"padded": 1.0, "packed": -1.0}
    middle = []
    for spread in (0.01, 0.03, 0.1, 0.5):
        batches = padded_batches(parallel.config, size, spread, 2, device)
        step = Step(parallel, batches, device)
        middle = batches if spread == 0.1 else middle
        real = sum(int(batch["lengths"].sum()) for batch in batches)
        functions: dict[str, Callable] = {name: lambda s=step, m=mode: s(m) for name, mode in modes.items()}
        seconds = interleaved(functions, repeats, warmup=1, synchronize=device == "cuda")
        yield {
            "variation": "packed / padded",
            "padding": 1 - real / sum(batch["input_ids"].numel() for batch in batches),
            "tokens/s": real / summary(seconds["packed"])["median"],
            "speed-up": median_ratio(seconds["padded"], seconds["packed"]),
            "difference of losses": relative(step.loss(-1.0), step.loss(1.0)),
        }
    for name, mode in modes.items():
        yield compiled_against_eager(name, mode, parallel, middle, device, repeats)


def compiled_against_eager(
    name: str, mode: float, parallel: ParallelModel, batches: list[dict[str, Any]], device: str, repeats: int
) -> dict[str, Any]:
    """torch.compile of every encoder layer."""
    torch.compiler.reset()
    real = sum(int(batch["lengths"].sum()) for batch in batches)
    eager = Step(parallel, batches, device)
    compiled = Step(copy.deepcopy(parallel), batches, device)
    for layer in compiled.parallel.encoder.layers:
        layer.compile(dynamic=True)
    row: dict[str, Any] = {
        "variation": f"compiled / eager, {name}",
        "padding": 1 - real / sum(b["input_ids"].numel() for b in batches),
    }
    begin = time.perf_counter()
    try:
        compiled(mode)
    except Exception as error:  # from a missing compiler to an operation that it does not know
        lines = str(error).strip().splitlines() or [""]
        return row | {"reason": f"{type(error).__name__}: {lines[0]}"}
    took = time.perf_counter() - begin
    functions = {"eager": lambda: eager(mode), "compiled": lambda: compiled(mode)}
    seconds = interleaved(functions, repeats, warmup=2, synchronize=device == "cuda")
    compiled.parallel.load_state_dict(eager.parallel.state_dict())
    return row | {
        "tokens/s": real / summary(seconds["compiled"])["median"],
        "speed-up": median_ratio(seconds["eager"], seconds["compiled"]),
        "difference of losses": relative(compiled.loss(mode), eager.loss(mode)),
        "seconds to compile": took,
    }
