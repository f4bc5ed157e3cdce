"""Linear maps in float32 by oneDNN, on CPUs where torch's own choice, MKL, leaves half of the vector unit idle.

MKL takes its AVX-512 kernels on Intel's processors alone; on AMD's with AVX-512 oneDNN multiplies twice as fast, and
as exactly. torch uses oneDNN for bfloat16 anyway. `torch.backends.mkldnn.flags(enabled=False)` gives the plain path.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


def uses_onednn(tensor: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether `linear` multiplies these two by oneDNN: float32 on a CPU with AVX-512, run eagerly."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and torch.backends.mkldnn.is_available()
        and torch._C._get_mkldnn_enabled()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # what torch.compile makes of a linear map
    )


def _multiply(tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(tensor, weight, bias, "none", [], "")


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(tensor, weight)
        return _multiply(tensor, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tensor, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)  # (rows, out_features)
        of_tensor = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_tensor = _multiply(gradient, weight.t())
        if ctx.needs_input_grad[1]:
            of_weight = _multiply(rows.t(), tensor.flatten(0, -2).t())
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        return of_tensor, of_weight, of_bias


def linear(tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.nn.functional.linear`, by oneDNN where that is faster. There it has first derivatives only, and none for
    `torch.func`.

    tensor (..., in_features), weight (out_features, in_features), bias (out_features,) -> (..., out_features)
    """
    if tensor.dim() < 2 or tensor.numel() == 0 or not uses_onednn(tensor, weight):
        return nn.functional.linear(tensor, weight, bias)
    learned = tensor.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if torch.is_grad_enabled() and learned:
        return _OneDnnLinear.apply(tensor, weight, bias)
    return _multiply(tensor, weight, bias)


class Linear(nn.Linear):
    """`torch.nn.Linear` that multiplies by `linear`."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return linear(tensor, self.weight, self.bias)
