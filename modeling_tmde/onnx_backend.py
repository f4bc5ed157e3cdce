"""ONNX: an encoder written once as a graph, and run by ONNX Runtime.

from modeling_tmde.onnx_backend import export_onnx

export_onnx(model, tokenizer, "folder")  # writes folder/onnx/model.onnx
"""

from __future__ import annotations

import importlib.util
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from .loading import encoder_body, filler_ids, length_limit, pooled_options
from .onnx_files import (
    FILES,
    Sources,
    data_file,
    find_graph,
    first_writable,
    read_sources,
    replace_graph,
    sha256_of,
)
from .text_languages import needs_language

if TYPE_CHECKING:
    import onnxruntime

logger = logging.getLogger(__name__)

_INT64 = 7  # onnx.TensorProto.INT64
_OUTPUT = "last_hidden_state"
_TOLERANCE = 1e-3  # relative to the largest output; what graph and model may differ by in float32


def export_onnx(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike,
    quantization: str | None = None,
) -> Path:
    """Writes an encoder as `folder/onnx/model.onnx`, or quantised as `folder/onnx/model_int8.onnx`.

    Inputs `input_ids` and `attention_mask`, both (batch, length) int64, of any size. The one output,
    `last_hidden_state`, is (batch, length, d) float32, and for T-MDE (batch, 1, d), which is P alone. Config and
    tokenizer are saved in the folder unless it has a config, so that it can be opened without the weights. The graph
    is compared with the model before it takes its place.

    Args:
        model: An encoder in float32; of an encoder-decoder only the encoder is written.
        tokenizer: Its tokenizer.
        folder: Made if missing.
        quantization: `"int8"` for 8-bit weights, and inputs of matrix products rounded to 8 bits as they come.

    Returns:
        The path of the graph.

    Raises:
        ImportError: A package of the extra `onnx` is missing.
        ValueError: A model that cannot be written as a graph, or whose graph computes something else.
    """
    _require("onnx", "onnxscript", "onnxruntime")
    if quantization not in FILES:
        raise ValueError(f"quantization: found {quantization!r}, expected one of {tuple(FILES)}")
    return _export(model, tokenizer, Path(folder), quantization, read_sources(Path(folder)))


def _export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    quantization: str | None,
    sources: Sources,
) -> Path:
    encoder = _encoder_of_one_graph(model)
    target = folder / FILES[quantization]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as temporary:
        plain = Path(temporary) / FILES[None].split("/")[1]
        _write_graph(encoder, _example(encoder, tokenizer), plain)
        written = plain
        if quantization == "int8":
            written = Path(temporary) / target.name
            _quantize(plain, written)
            _remove_graph(plain)
        if not (folder / "config.json").exists():
            model.config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        replace_graph(written, target, sources)
    return target


def _encoder_of_one_graph(model: PreTrainedModel) -> PreTrainedModel:
    """
    Raises:
        ValueError: A model that has an encoder for each language.
    """
    encoder = encoder_body(model)
    if needs_language(encoder):
        raise ValueError(
            f"backend='onnx': {type(encoder).__name__} has an encoder for each language, expected one for all, which "
            "is what a graph holds; use backend='torch'"
        )
    return encoder


class _Graph(nn.Module):
    """The forward pass with tensors in and one tensor out."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.options = pooled_options(encoder)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask, **self.options)[0]


def _example(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, (2, up to 24), of a text and half of it, padded; with a token that occurs twice."""
    limit = min(24, length_limit(encoder, tokenizer, True, None))
    pad, _ = filler_ids(encoder, tokenizer)
    ids = tokenizer("ONNX graphs are written once and run everywhere; 1, 2, 3, 1.")["input_ids"][:limit]
    ids = torch.tensor([ids, ids])
    mask = torch.ones_like(ids)
    mask[1, max(1, ids.shape[1] // 2) :] = 0
    return ids.masked_fill(mask == 0, pad), mask


def _write_graph(encoder: PreTrainedModel, example: tuple[torch.Tensor, torch.Tensor], path: Path) -> None:
    graph = _Graph(encoder)
    axes = {0: "batch", 1: "length"}
    training = encoder.training
    graph.eval()
    try:
        with warnings.catch_warnings(), _quiet_exporter(), torch.inference_mode(False), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph,
                example,
                dynamo=True,
                verbose=False,
                input_names=["input_ids", "attention_mask"],
                output_names=[_OUTPUT],
                dynamic_shapes=(axes, axes),
                custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            )
            program.save(path)
            _compare(graph, example, path)
    except ValueError:
        raise
    except Exception as error:  # torch.onnx raises many kinds, none of which says more than its text
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        first = str(cause).strip().splitlines() or [type(cause).__name__]
        raise ValueError(
            f"backend='onnx': {type(encoder).__name__} cannot be written as an ONNX graph: {first[0]}"
        ) from error
    finally:
        encoder.train(training)


def _searchsorted(sorted_sequence, values, *, right: bool = False, **_):
    """`torch.searchsorted` (of `sublinear_counts`), which the exporter lacks: (batch, n), (batch, m) -> (batch, m)."""
    from onnxscript import opset18 as op

    ordered = op.Unsqueeze(sorted_sequence, op.Constant(value_ints=[-2]))  # (batch, 1, n)
    values = op.Unsqueeze(values, op.Constant(value_ints=[-1]))  # (batch, m, 1)
    before = op.LessOrEqual(ordered, values) if right else op.Less(ordered, values)
    return op.ReduceSum(op.Cast(before, to=_INT64), op.Constant(value_ints=[-1]), keepdims=0)


def _compare(graph: _Graph, example: tuple[torch.Tensor, torch.Tensor], path: Path) -> None:
    """Graph against model, on the example and on shapes that it was not written with."""
    session = _session(path, torch.device("cpu"))
    for rows, length in ((2, example[0].shape[1]), (1, example[0].shape[1] - 1), (3, 1)):
        ids, mask = (tensor[[0, 1, 0][:rows], :length].clone() for tensor in example)
        expected = graph(ids, mask)
        (found,) = session.run([_OUTPUT], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        if found.shape != tuple(expected.shape):
            raise ValueError(
                f"backend='onnx': the graph of {type(graph.encoder).__name__} gives {found.shape} for input of "
                f"{(rows, length)}, expected {tuple(expected.shape)}; use backend='torch'"
            )
        real = slice(None) if found.shape[1] != length else mask.bool().numpy()  # padding may be anything
        expected = expected.numpy()[real]
        difference = np.abs(found[real] - expected).max() / np.abs(expected).max()
        if not difference <= _TOLERANCE:
            raise ValueError(
                f"backend='onnx': the graph of {type(graph.encoder).__name__} differs from the model by a share of "
                f"{difference:.1e} of its largest output, expected at most {_TOLERANCE:.0e}; use backend='torch'"
            )


def _quantize(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with warnings.catch_warnings(), _quiet_exporter():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=data_file(source).exists(),
        )


def _remove_graph(graph: Path) -> None:
    for path in (graph, data_file(graph)):
        path.unlink(missing_ok=True)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """The exporter and the quantiser log steps that mean nothing to who wants vectors."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


class OnnxEncoder(nn.Module):
    """An ONNX graph in the place of an encoder: the same call, the same first output.

    Args:
        path: Of the graph.
        skeleton: The encoder that was exported, without weights (on the meta device): its config, limits and names.
        device: `cpu` or `cuda`.
    """

    dtype = torch.float32

    def __init__(self, path: Path, skeleton: PreTrainedModel, device: str | torch.device = "cpu") -> None:
        super().__init__()
        self.path = path
        self._skeleton = (skeleton,)  # in a tuple: no submodule, which would be moved and saved
        self.config = skeleton.config
        self.name_or_path = skeleton.name_or_path
        # Of T-MDE the graph has P alone.
        self.pooled_only = bool(pooled_options(skeleton))
        # State for those who tell models apart by it.
        self.register_buffer("sha256", _sha256(path))
        self.to(device)
        self.eval()

    @classmethod
    def from_pretrained(
        cls, name: str, quantization: str | None, device: torch.device, shared: dict, **model_kwargs
    ) -> OnnxEncoder:
        """The graph of a checkpoint, which is written first if there is none of its weights."""
        _require("onnxruntime")
        config = AutoConfig.from_pretrained(name, **shared)
        with torch.device("meta"):
            skeleton = AutoModel.from_config(config, trust_remote_code=shared.get("trust_remote_code", False))
        skeleton = _encoder_of_one_graph(skeleton)
        path, places, sources = find_graph(name, config, quantization)
        if path is None:
            model = AutoModel.from_pretrained(name, **shared, **(model_kwargs | {"dtype": torch.float32})).eval()
            tokenizer = AutoTokenizer.from_pretrained(name, **shared)
            path = _export(model, tokenizer, first_writable(places), quantization, sources)
            logger.info(f"wrote {path}")
        skeleton.name_or_path = name
        return cls(path, skeleton, device)

    @property
    def device(self) -> torch.device:
        return self.sha256.device

    def to(self, device: str | torch.device) -> OnnxEncoder:
        """A graph belongs to a session, and a session to a device."""
        device = onnx_device(device)
        super().to(device)
        session = _session(self.path, device)
        outputs = [output.name for output in session.get_outputs()]
        if _OUTPUT not in outputs:
            raise ValueError(
                f"{self.path}: found a graph with outputs {outputs}, expected {_OUTPUT!r}; it was not written by this "
                "package: move it away, and a new one is written"
            )
        self._inputs = {given.name for given in session.get_inputs()}
        self._run = session.run
        return self

    def get_encoder(self) -> OnnxEncoder:
        return self

    def get_input_embeddings(self) -> nn.Module:
        return self._skeleton[0].get_input_embeddings()

    def named_modules(self, *args, **kwargs) -> Iterator[tuple[str, nn.Module]]:
        """Those of the encoder that was exported."""
        return self._skeleton[0].named_modules(*args, **kwargs)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs) -> tuple[torch.Tensor]:
        """input_ids, attention_mask (batch, length) -> last_hidden_state (batch, length or, of T-MDE, 1, d)."""
        inputs = {"input_ids": input_ids.cpu().numpy(), "attention_mask": attention_mask.cpu().numpy()}
        if "token_type_ids" in self._inputs:  # of BERTs that others have exported
            inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
        (hidden,) = self._run([_OUTPUT], inputs)
        return (torch.from_numpy(hidden).to(self.device),)


def _sha256(graph: Path) -> torch.Tensor:
    """(32,) uint8, of the graph and of the weights beside it."""
    digest = sha256_of(part for part in (graph, data_file(graph)) if part.is_file())
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)


def _session(path: Path, device: torch.device) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # plans memory for each shape anew; batches have hundreds of shapes
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if device.type == "cuda":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    return onnxruntime.InferenceSession(path, options, providers=providers)


def onnx_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, or cuda where ONNX Runtime has it, else cpu.

    Raises:
        ImportError: Without ONNX Runtime.
        ValueError: A device that this ONNX Runtime cannot use.
    """
    _require("onnxruntime")
    import onnxruntime

    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and torch.cuda.is_available()
    if device is None:
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: found {device!r}, expected 'cpu' or 'cuda' with backend='onnx'") from error
    if device.type == "cpu" or (device.type == "cuda" and has_cuda):
        return device
    raise ValueError(
        f"device: found {str(device)!r} with backend='onnx', expected 'cpu'"
        + (" or 'cuda'" if has_cuda else "; for a GPU install onnxruntime-gpu in place of onnxruntime")
    )


def _require(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(f"backend='onnx' needs {' and '.join(missing)}: pip install 'tmde[onnx]'")
