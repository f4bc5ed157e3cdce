"""Cross-entropy over a large vocabulary that never holds all logits."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable

CHUNK_ROWS_CPU, CHUNK_ROWS_GPU = 512, 4096


def cross_entropy_sum(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Sum of `cross_entropy(hidden @ weight.T, targets)`, holding the logits of one chunk of rows at a time.

    hidden (tokens, d_model), weight (vocab_size, d_model), targets (tokens,) -> scalar in fp32
    """
    if hidden.device.type != "cpu" and hasattr(nn, "LinearCrossEntropyOptions"):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK_ROWS_GPU)
        return nn.functional.linear_cross_entropy(
            hidden, weight, targets, reduction="sum", options=options
        )
    # On a CPU as fast as torch's function in fp32, and 2.5 times as fast in bf16.
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    return ChunkedCrossEntropy.apply(hidden, weight, targets, CHUNK_ROWS_CPU)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, so logits are neither kept nor computed twice.

    Matrix products are in the type of `hidden`, softmax and sums over chunks in fp32.
    """

    @staticmethod
    def forward(
        ctx, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk_rows: int
    ):
        table = weight.to(hidden.dtype)
        hidden_gradient = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        weight_gradient = (
            torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        )
        loss = hidden.new_zeros((), dtype=torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            for begin in range(0, len(hidden), chunk_rows):
                rows, chunk_targets = (
                    hidden[begin : begin + chunk_rows],
                    targets[begin : begin + chunk_rows, None],
                )
                log_probabilities = (
                    (rows @ table.T).float().log_softmax(dim=1)
                )  # (rows, vocab_size)
                loss -= log_probabilities.gather(1, chunk_targets).sum()
                if not any(ctx.needs_input_grad):
                    continue
                gradient = log_probabilities.exp_()
                gradient.scatter_add_(
                    1, chunk_targets, gradient.new_full(chunk_targets.shape, -1.0)
                )
                gradient = gradient.to(hidden.dtype)
                if hidden_gradient is not None:
                    hidden_gradient[begin : begin + chunk_rows] = gradient @ table
                if weight_gradient is not None:
                    weight_gradient += gradient.T @ rows
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.weight_dtype = weight.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: torch.Tensor):
        hidden_gradient, weight_gradient = ctx.saved_tensors
        if hidden_gradient is not None:
            hidden_gradient = hidden_gradient * upstream
        if weight_gradient is not None:
            weight_gradient = (weight_gradient * upstream).to(ctx.weight_dtype)
        return hidden_gradient, weight_gradient, None, None
