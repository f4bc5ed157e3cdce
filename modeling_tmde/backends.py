"""What runs an encoder: plain torch, torch with 8-bit weights, torch.compile, or ONNX Runtime.

`DocumentEmbedder.from_pretrained(..., backend=, quantization=, compile=, dtype=)` chooses, and
`benchmarks/embedding_speed.py` measures what each costs and gains.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig

from .loading import check_device, default_device, encoder_body, has_fast_bf16, pooled_options
from .onnx_backend import OnnxEncoder
from .onnx_session import onnx_device
from .text_languages import needs_language

logger = logging.getLogger(__name__)

BACKENDS = ("torch", "onnx")
QUANTIZATIONS = (None, "int8")
LENGTH_MULTIPLE = 16  # lengths of a compiled model's batches are multiples of this


def load_encoder(
    name: str,
    backend: str = "torch",
    quantization: str | None = None,
    compile: bool = False,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    shared: dict | None = None,
    **model_kwargs,
) -> nn.Module:
    """The encoder of a checkpoint, on its device, ready to run.

    Args:
        name: Folder or Hub id.
        backend, quantization, compile, device, dtype: See `DocumentEmbedder.from_pretrained`.
        shared: `trust_remote_code`, `revision` and `token` of every `from_pretrained`.
        model_kwargs: For `AutoModel.from_pretrained`.

    Raises:
        ValueError: Modes that are unknown, that exclude each other, or that the model or the device does not take.
        ImportError: A package that is missing, with the command that installs it.
    """
    shared = shared or {}
    _check_modes(backend, quantization, compile, dtype)
    plain = backend == "torch" and quantization is None and not compile
    if not plain:
        _refuse_bag(AutoConfig.from_pretrained(name, **shared), backend, quantization, compile)
    if backend == "onnx":
        if "device_map" in model_kwargs:
            raise ValueError("device_map: backend='onnx' runs on one device; give device= instead")
        device = onnx_device(device)
        return OnnxEncoder.from_pretrained(name, quantization, device, shared, **model_kwargs)
    if device is None and "device_map" not in model_kwargs:
        device = default_device()
    check_device(device)
    if dtype is not None:
        model_kwargs["dtype"] = dtype
    model = encoder_body(AutoModel.from_pretrained(name, **shared, **model_kwargs).eval())
    if device is not None:
        model.to(device)
    if model.dtype == torch.bfloat16 and not has_fast_bf16(model.device.type == "cpu"):
        logger.warning(f"dtype: this {model.device.type} has no instructions for bfloat16; float32 is faster on it")
    if quantization == "int8":
        quantize_int8(model)
    if compile:
        compile_encoder(model)
    return model


def _check_modes(backend: str, quantization: str | None, compile: bool, dtype: str | torch.dtype | None) -> None:
    for name, value, expected in (("backend", backend, BACKENDS), ("quantization", quantization, QUANTIZATIONS)):
        if value not in expected:
            raise ValueError(f"{name}: found {value!r}, expected one of {expected}")
    if backend == "onnx" and compile:
        raise ValueError("compile=True is for backend='torch'; ONNX Runtime optimises its graph by itself")
    if backend == "onnx" and dtype not in (None, "auto", "float32", torch.float32):
        raise ValueError(
            f"dtype: found {dtype!r} with backend='onnx', expected None or 'float32'; quantization='int8' is smaller "
            "and faster, and dtype='bfloat16' goes with backend='torch'"
        )
    if quantization is not None and compile:
        raise ValueError("compile=True and quantization='int8' exclude each other; choose one")


def _refuse_bag(config: PreTrainedConfig, backend: str, quantization: str | None, compile: bool) -> None:
    if config.model_type == "tmde_bag":
        given = {"backend": backend, "quantization": quantization, "compile": compile}
        default = {"backend": "torch", "quantization": None, "compile": False}
        asked = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != default[name])
        raise ValueError(
            f"{asked}: found a bag of tokens (model_type 'tmde_bag'), which adds up rows of a table and multiplies "
            "no matrices; leave this out"
        )


class Int8Linear(nn.Module):
    """A linear map with 8-bit weights; inputs are rounded to 8 bits as they come ("dynamic" quantisation).

    Weights are scaled by row of the matrix, inputs by token. A scale for the whole batch, which torch.ao and ONNX
    Runtime take, would let a text's vector depend on the other texts in its batch.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()  # (out_features, in_features)
        scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)  # (out_features,)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """tensor (..., in_features) -> (..., out_features), in the type of `tensor`."""
        rows = tensor.flatten(0, -2).float()  # (rows, in_features)
        scale = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127
        product = torch._int_mm((rows / scale).round_().to(torch.int8), self.weight.t())  # int32
        output = product.float().mul_(scale).mul_(self.scale)
        if self.bias is not None:
            output += self.bias
        return output.to(tensor.dtype).unflatten(0, tensor.shape[:-1])


def quantize_int8(model: nn.Module) -> nn.Module:
    """Replaces every linear map of an encoder by an `Int8Linear`, in place; embeddings and norms keep their type.

    Raises:
        ValueError: A model that is not on a CPU, or has no linear layers.
    """
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise ValueError(
            f"quantization='int8': found device {str(device)!r}, expected 'cpu'; on a GPU use dtype='bfloat16'"
        )
    replaced = 0
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            # The class that multi-head attention of torch reads weights from without calling it.
            if isinstance(child, nn.Linear) and not isinstance(
                child, nn.modules.linear.NonDynamicallyQuantizableLinear
            ):
                setattr(parent, name, Int8Linear(child))
                replaced += 1
    if not replaced:
        raise ValueError(f"quantization='int8': found no linear layers in {type(model).__name__}, expected some")
    return model


def compile_encoder(model: nn.Module) -> nn.Module:
    """Compiles the forward pass for every batch size and length, in place, and runs it once.

    Raises:
        ValueError: On a CPU without a C++ compiler, or a model that cannot be compiled, such as one with an encoder
            for each language.
    """
    if needs_language(model):
        raise ValueError(
            f"compile: {type(model).__name__} has an encoder for each language, of which every batch runs others; "
            "leave compile out"
        )
    if model.device.type == "cpu":
        compiler = os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
        if shutil.which(compiler) is None:
            raise ValueError(
                f"compile: found no C++ compiler {compiler!r}, which torch.compile needs on a CPU; install one "
                "(Debian and Ubuntu: apt install g++), name it in CXX, or leave compile out"
            )
    model.compile(dynamic=True)
    try:
        with torch.inference_mode():  # as `encode` does: another mode would compile anew
            ids = torch.zeros((2, LENGTH_MULTIPLE), dtype=torch.long, device=model.device)
            model(input_ids=ids, attention_mask=torch.ones_like(ids), **pooled_options(model))
    except Exception as error:  # from a missing header to an operation that the compiler does not know
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"compile: {type(model).__name__} cannot be compiled here: {first[0]}") from error
    return model


def is_compiled(model: nn.Module) -> bool:
    return getattr(model, "_compiled_call_impl", None) is not None


def mean_pooled(hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """(rows, d) float32 of outputs (rows, length, d): the mean over the tokens of the mask, (rows, length).

    Raises:
        ValueError: another number of outputs than of tokens.
    """
    if hidden.shape[:2] != attention_mask.shape:
        raise ValueError(
            f"pooling 'mean' needs one output per token: found {tuple(hidden.shape)}, expected "
            f"{(*attention_mask.shape, 'd')}; use pooling='cls'"
        )
    # fp32 sum: in bf16 a long text would lose its last tokens. masked_fill: padding may hold anything, even NaN.
    summed = hidden.masked_fill(attention_mask[:, :, None] == 0, 0.0).sum(dim=1, dtype=torch.float32)
    return summed / attention_mask.sum(dim=1, keepdim=True)


def fetch_vectors(part: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """The tensor on this device, and the event after which its values are there."""
    if part.device.type != "cuda" or device.type == "cuda":
        return part.to(device), None
    copy = part.to(device, non_blocking=True)  # into pinned memory
    event = torch.cuda.Event()
    event.record()
    return copy, event


def store_vectors(fetched: tuple[int, torch.Tensor, torch.cuda.Event | None] | None, vectors: torch.Tensor) -> None:
    """Rows of one window into their place."""
    if fetched is not None:
        start, part, event = fetched
        if event is not None:
            event.synchronize()
        vectors[start : start + len(part)] = part
