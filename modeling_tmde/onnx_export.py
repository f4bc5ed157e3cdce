"""Writes an encoder as an ONNX graph, and measures how near the graph is to it.

from modeling_tmde.onnx_export import export_onnx

export_onnx(model, tokenizer, "folder")  # writes folder/onnx/model.onnx
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .loading import encoder_body, filler_ids, is_ours, length_limit, pooled_options
from .onnx_files import FILES, Sources, data_file, read_sources, replace_graph
from .onnx_session import OUTPUT, open_session, require
from .text_languages import needs_language

BATCH_SIZES = (1, 4, 16)
LONGEST = 1024  # tokens of the longest input that graph and model are compared on
TOLERANCE = 1e-4  # relative to the largest output; what graph and model may differ by in float32
# Cosine of the vectors of an int8 graph and the model, of whatever input: trained models keep 0.99 and untrained ones
# 0.98, while vectors of another model have any cosine.
LEAST_COSINE = 0.9
_INT64 = 7  # onnx.TensorProto.INT64
_EXAMPLE = "ONNX graphs are written once and run everywhere; 1, 2, 3, 1."
_REFUSED = {
    "tmde_bag": "it adds up rows of a table, as many as a text has tokens, which the exporter cannot write; `tmde "
    "export static` writes it for sentence-transformers",
    "tmde_laser": "its LSTM layers read every text to its own length, which the exporter cannot write",
}


@dataclass(frozen=True)
class Parity:
    """What graph and model make of the same inputs, in float32.

    inputs: how many; shortest, longest: their tokens; difference: the largest of any element of an output; largest:
    the largest element of the model's outputs; cosine, mean_cosine: of the vectors of graph and model, the smallest
    and the mean over the inputs.
    """

    inputs: int
    shortest: int
    longest: int
    difference: float
    largest: float
    cosine: float
    mean_cosine: float

    @property
    def share(self) -> float:
        """The difference as a share of the largest element."""
        return self.difference / self.largest


@dataclass(frozen=True)
class ExportedGraph:
    """path: of the graph; size: bytes, with its data; opset: of its operators; parity: to the model."""

    path: Path
    size: int
    opset: int
    parity: Parity


def export_onnx(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike,
    quantization: str | None = None,
) -> Path:
    """Writes an encoder as `folder/onnx/model.onnx`, or quantised as `folder/onnx/model_int8.onnx`.

    Inputs `input_ids` and `attention_mask`, both (batch, length) int64, of any size. The one output,
    `last_hidden_state`, is (batch, length, d) float32, and for T-MDE (batch, 1, d), which is P alone. Config and
    tokenizer are saved in the folder unless it has weights, so that it can be opened without any. The graph
    is checked (`onnx.checker`) and compared with the model before it takes its place: in float32 its outputs may
    differ by a share of `TOLERANCE` of the largest, quantised the cosines of its vectors are to be `LEAST_COSINE`.

    Args:
        model: An encoder in float32; of an encoder-decoder only the encoder is written.
        tokenizer: Its tokenizer.
        folder: Made if missing.
        quantization: `"int8"` for 8-bit weights of matrices and embedding tables, and inputs of matrix products
            rounded to 8 bits as they come.

    Returns:
        The path of the graph.

    Raises:
        ImportError: A package of the extra `onnx` is missing.
        ValueError: A model that cannot be written as a graph, or whose graph computes something else.
    """
    return export_and_measure(model, tokenizer, folder, quantization, (), read_sources(Path(folder))).path


def export_and_measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike,
    quantization: str | None = None,
    texts: Sequence[str] = (),
    sources: Sources | None = None,
) -> ExportedGraph:
    """As [`export_onnx`], with what the graph was found to be.

    Args:
        texts: Compared on these too, cut at several lengths, in batches of `BATCH_SIZES`.
        sources: What to keep in the record of the graph: what it is written from. Default: the weights in `folder`.
    """
    require("onnx", "onnxscript", "onnxruntime")
    if quantization not in FILES:
        raise ValueError(f"quantization: found {quantization!r}, expected one of {tuple(FILES)}")
    folder = Path(folder)
    encoder = encoder_of_one_graph(model)
    target = folder / FILES[quantization]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as temporary:
        written = Path(temporary) / FILES[None].split("/")[1]
        batches = _batches(encoder, tokenizer, texts)
        with _evaluated(encoder) as graph, torch.inference_mode(False), torch.no_grad():
            _write_graph(graph, batches[0], written)
            parity = _compare(graph, batches, written)
            if quantization == "int8":
                plain, written = written, Path(temporary) / target.name
                _quantize(plain, written)
                _remove_graph(plain)
                parity = _compare_int8(graph, batches, written)
        opset = _checked(written, encoder)
        if not read_sources(folder):
            model.config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        replace_graph(written, target, read_sources(folder) if sources is None else sources)
    size = sum(part.stat().st_size for part in (target, data_file(target)) if part.is_file())
    return ExportedGraph(target, size, opset, parity)


def encoder_of_one_graph(model: PreTrainedModel) -> PreTrainedModel:
    """
    Raises:
        ValueError: A model that has an encoder for each language, or whose encoder is no graph.
    """
    encoder = encoder_body(model)
    reason = _REFUSED.get(encoder.config.model_type)
    if needs_language(encoder):
        reason = "it has an encoder for each language, and a graph holds one for all"
    if reason is not None:
        raise ValueError(f"{type(encoder).__name__} cannot be an ONNX graph: {reason}; use backend='torch'")
    return encoder


class _Graph(nn.Module):
    """The forward pass with tensors in and one tensor out."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.options = pooled_options(encoder)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask, **self.options)[0]


@contextmanager
def _evaluated(encoder: PreTrainedModel) -> Iterator[_Graph]:
    training = encoder.training
    try:
        yield _Graph(encoder).eval()
    finally:
        encoder.train(training)


def _batches(
    encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ids and masks, (batch, length) each. First what the graph is traced with: (2, up to 24), a text and half of it,
    padded; with a token that occurs twice. Then other shapes of it, then the texts."""
    limit = min(LONGEST, length_limit(encoder, tokenizer, is_ours(encoder), None))
    pad, empty = filler_ids(encoder, tokenizer)

    def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        length = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (length - len(row)) for row in rows])
        return ids, torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])

    example = tokenizer(_EXAMPLE)["input_ids"][: min(24, limit)]
    half = example[: max(1, len(example) // 2)]
    batches = [padded([example, half]), padded([example[:-1]]), padded([[token] for token in example[:3]])]
    rows = [tokenizer(text, truncation=True, max_length=limit)["input_ids"] or [empty] for text in texts]
    rows += [row[: max(1, len(row) // share)] for share in (2, 5) for row in rows]
    for size in BATCH_SIZES if rows else ():
        batches += [padded(rows[start : start + size]) for start in range(0, len(rows), size)]
    return batches


def _write_graph(graph: _Graph, example: tuple[torch.Tensor, torch.Tensor], path: Path) -> None:
    axes = {0: "batch", 1: "length"}
    try:
        with warnings.catch_warnings(), _quiet_exporter():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph,
                example,
                dynamo=True,
                verbose=False,
                input_names=["input_ids", "attention_mask"],
                output_names=[OUTPUT],
                dynamic_shapes=(axes, axes),
                custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            )
            program.save(path)
    except Exception as error:  # torch.onnx raises many kinds, none of which says more than its text
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        first = str(cause).strip().splitlines() or [type(cause).__name__]
        raise ValueError(f"{type(graph.encoder).__name__} cannot be written as an ONNX graph: {first[0]}") from error


def _searchsorted(sorted_sequence, values, *, right: bool = False, **_):
    """`torch.searchsorted` (of `sublinear_counts`), which the exporter lacks: (batch, n), (batch, m) -> (batch, m)."""
    from onnxscript import opset18 as op

    ordered = op.Unsqueeze(sorted_sequence, op.Constant(value_ints=[-2]))  # (batch, 1, n)
    values = op.Unsqueeze(values, op.Constant(value_ints=[-1]))  # (batch, m, 1)
    before = op.LessOrEqual(ordered, values) if right else op.Less(ordered, values)
    return op.ReduceSum(op.Cast(before, to=_INT64), op.Constant(value_ints=[-1]), keepdims=0)


def _compare(graph: _Graph, batches: list[tuple[torch.Tensor, torch.Tensor]], path: Path) -> Parity:
    """
    Raises:
        ValueError: The graph computes something else.
    """
    parity = measure_parity(graph, batches, path)
    if not parity.share <= TOLERANCE:
        raise ValueError(
            f"the graph of {type(graph.encoder).__name__} differs from the model by a share of {parity.share:.1e} of "
            f"its largest output, expected at most {TOLERANCE:.0e}; use backend='torch'"
        )
    return parity


def _compare_int8(graph: _Graph, batches: list[tuple[torch.Tensor, torch.Tensor]], path: Path) -> Parity:
    """
    Raises:
        ValueError: The graph computes something else, or loses too much.
    """
    parity = measure_parity(graph, batches, path)
    if not parity.cosine >= LEAST_COSINE:
        raise ValueError(
            f"the int8 graph of {type(graph.encoder).__name__} gives vectors whose cosine with those of the model is "
            f"as low as {parity.cosine:.3f}, expected at least {LEAST_COSINE}; 8 bits are too few for it, use float32"
        )
    return parity


def measure_parity(graph: _Graph, batches: list[tuple[torch.Tensor, torch.Tensor]], path: Path) -> Parity:
    """
    Raises:
        ValueError: Outputs of another shape.
    """
    session = open_session(path, torch.device("cpu"))
    lengths, differences, largest, cosines = [], [], [], []
    for ids, mask in batches:
        expected = graph(ids, mask).float().numpy()
        (found,) = session.run([OUTPUT], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        if found.shape != expected.shape:
            raise ValueError(
                f"the graph of {type(graph.encoder).__name__} gives {found.shape} for input of {tuple(ids.shape)}, "
                f"expected {expected.shape}; use backend='torch'"
            )
        real = mask.bool().numpy()
        compared = real if found.shape[1] == ids.shape[1] else slice(None)  # padding may be anything
        differences.append(np.abs(found[compared] - expected[compared]).max())
        largest.append(np.abs(expected[compared]).max())
        pooled = [_pooled(hidden, real, is_ours(graph.encoder)) for hidden in (found, expected)]
        cosines.append(nn.functional.cosine_similarity(*map(torch.from_numpy, pooled)).double().numpy())
        lengths.extend(mask.sum(dim=1).tolist())
    cosine = np.concatenate(cosines)
    return Parity(
        inputs=len(lengths),
        shortest=min(lengths),
        longest=max(lengths),
        difference=float(np.max(differences)),  # max() of Python would lose a NaN
        largest=float(np.max(largest)),
        cosine=float(np.min(cosine)),
        mean_cosine=float(np.mean(cosine)),
    )


def _pooled(hidden: np.ndarray, real: np.ndarray, first: bool) -> np.ndarray:
    """(batch, d) float64 of outputs (batch, length, d): the first one, or the mean over the real ones."""
    if first:
        return hidden[:, 0].astype(np.float64)
    return np.where(real[:, :, None], hidden, 0).sum(axis=1, dtype=np.float64) / real.sum(axis=1)[:, None]


def _quantize(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with warnings.catch_warnings(), _quiet_exporter():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],  # the last: tables, most of a small model's weights
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=data_file(source).exists(),
        )


def _checked(path: Path, encoder: PreTrainedModel) -> int:
    """The graph's opset, where it is a valid graph; by its path, since it may have its weights in a second file.

    Raises:
        ValueError: It is none.
    """
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # of the checker and of the inference of shapes
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"onnx.checker refuses the graph of {type(encoder).__name__}: {first[0]}") from error
    imports = onnx.load(path, load_external_data=False).opset_import
    return next(each.version for each in imports if each.domain == "")


def _remove_graph(graph: Path) -> None:
    for path in (graph, data_file(graph)):
        path.unlink(missing_ok=True)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """The exporter and the quantiser log steps that mean nothing to who wants vectors."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx", "onnxscript", "onnx_ir", "")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
