"""Cross-entropy over a large vocabulary, without all logits in memory."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from modeling_tmde.linear import linear

CHUNK_ROWS_CPU, CHUNK_ROWS_GPU = 512, 4096


def cross_entropy_sum(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sum of `cross_entropy(hidden @ weight.T, targets)`, holding the logits of one chunk of rows at a time.

    hidden (tokens, d_model), weight (vocab_size, d_model), targets (tokens,), from 0 to vocab_size - 1 -> scalar, in
    fp32.
    """
    if hidden.device.type == "cpu":
        # Half the time of torch's on CPUs, in float32 and in bfloat16.
        if not torch.is_grad_enabled():
            hidden, weight = hidden.detach(), weight.detach()
        return ChunkedCrossEntropy.apply(hidden, weight, targets, CHUNK_ROWS_CPU)
    if hasattr(nn, "LinearCrossEntropyOptions"):
        return by_torch(hidden, weight, targets, CHUNK_ROWS_GPU)
    return by_checkpoints(hidden, weight, targets, CHUNK_ROWS_GPU)


def by_torch(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk_rows: int) -> torch.Tensor:
    """Computes the gradients chunk by chunk in the forward pass: no logits are kept and none are made twice."""
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=chunk_rows)
    return nn.functional.linear_cross_entropy(hidden, weight, targets, reduction="sum", options=options)


def by_checkpoints(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk_rows: int) -> torch.Tensor:
    """For releases of torch without `linear_cross_entropy`: makes the logits of a chunk twice."""

    def chunk_loss(rows: torch.Tensor, row_targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy((rows @ weight.T).float(), row_targets, reduction="sum")

    chunks = zip(hidden.split(chunk_rows), targets.split(chunk_rows), strict=True)
    return sum(
        (checkpoint(chunk_loss, rows, row_targets, use_reentrant=False) for rows, row_targets in chunks),
        start=hidden.new_zeros((), dtype=torch.float32),
    )


class ChunkedCrossEntropy(torch.autograd.Function):
    """Gradients in the forward pass, as `linear_cross_entropy` does it, with the matrix products of `linear`.

    Products are in the type of `hidden`, softmax and sums over chunks in fp32.
    """

    @staticmethod
    def forward(ctx, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk_rows: int):
        own = weight.to(hidden.dtype)
        of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        loss = hidden.new_zeros((), dtype=torch.float32)
        with torch.autocast("cpu", enabled=False):
            for begin in range(0, len(hidden), chunk_rows):
                rows, chunk_targets = hidden[begin : begin + chunk_rows], targets[begin : begin + chunk_rows, None]
                log_probabilities = linear(rows, own).float().log_softmax(dim=1)  # (rows, vocab_size)
                loss -= log_probabilities.gather(1, chunk_targets).sum()
                if of_hidden is None and of_weight is None:
                    continue
                gradient = log_probabilities.exp_()
                gradient.scatter_add_(1, chunk_targets, gradient.new_full(chunk_targets.shape, -1.0))
                gradient = gradient.to(hidden.dtype)
                if of_hidden is not None:
                    of_hidden[begin : begin + chunk_rows] = linear(gradient, own.t())
                if of_weight is not None:
                    of_weight += linear(gradient.t(), rows.t())
        ctx.save_for_backward(of_hidden, None if of_weight is None else of_weight.to(weight.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: torch.Tensor):
        of_hidden, of_weight = ctx.saved_tensors
        scaled = (None if gradient is None else gradient * upstream for gradient in (of_hidden, of_weight))
        return *scaled, None, None
