"""Export an encoder as an ONNX graph: tensors in, states and vectors out."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import BagModel, TmdeError
from modeling_tmde.bags import padded_bag
from modeling_tmde.common import pool_states
from modeling_tmde.inspection import is_ours
from tmde.embedding.document_embedder import DocumentEmbedder, check_token_outputs
from tmde.embedding.export_check import (
    LONGEST,
    TEXTS,
    TOLERANCE,
    check_can_be_exported,
    weighted_table,
)
from tmde.embedding.hub_names import holds_weights
from tmde.embedding.serving_files import check_holds_no_other_model, write_serving_files
from tmde.embedding.text_model import evaluating
from tmde.embedding.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    import onnxruntime

# The outputs of every graph, in order.
OUTPUTS = ("last_hidden_state", "sentence_embedding")
# Cosine of the vectors of an int8 graph and the model: trained models keep 0.99, untrained 0.98.
LEAST_COSINE = 0.9

_FILE_NAME = "model.onnx"
# What `torch.onnx` traces; it must not be specific to these sizes.
_TRACED_TEXTS = ("Written once, run everywhere; 1, 2, 3, 1.", "Written once")
_TRACED_LENGTH = 24  # tokens
# Most weights of a small model are in tables, which are read by Gather.
_QUANTIZED_OPERATORS = ("MatMul", "Gemm", "Gather")
_REFUSED = {
    "tmde_laser": "its LSTM layers read every text to its own length, which the exporter cannot "
    "write",
}


class OnnxExport(NamedTuple):
    """A graph, and how far it is from its model.

    Attributes:
        path: The file of the graph.
        difference: The largest difference of graph and model in any element of an output, over the
            largest element.
        cosine: The smallest cosine of their vectors.
    """

    path: Path
    difference: float
    cosine: float


def export_onnx(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    quantization: str | None = None,
    pooling: str | None = None,
    prompt: str = "",
) -> OnnxExport:
    """Write an encoder as `folder/onnx/model.onnx`, or quantized as `folder/onnx/model_int8.onnx`.

    Inputs are `input_ids` and `attention_mask`, both (batch, length) int64, of any size. Outputs
    are `last_hidden_state`, (batch, length, d) float32, and `sentence_embedding`, (batch, d)
    float32, the vectors of `DocumentEmbedder`. The states of a model of this package may be
    (batch, 1, d), the embedding alone. The graph is compared with the model before it takes its
    place.

    A folder that does not hold the weights of the model also gets the files that
    text-embeddings-inference, transformers.js and fastembed read beside a graph.

    Args:
        model: An encoder in float32 on the CPU; only the encoder of an encoder-decoder is written.
        tokenizer: Its tokenizer.
        folder: Made if missing.
        quantization: `"int8"` for 8-bit weights of matrices and embedding tables, and inputs of
            matrix products rounded to 8 bits as they come.
        pooling: As for `DocumentEmbedder`.
        prompt: What readers are to put before every text. It is written beside the graph, which
            reads tokens only.

    Returns:
        The file, and how far the graph is from the model on `TEXTS`.

    Raises:
        ImportError: A package of the extra `onnx` is missing.
        TmdeError: The model cannot be written as a graph, the graph computes something else, or
            the folder holds the graph of another model.
    """
    # A missing package is reported before any work is done.
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401

    if quantization not in (None, "int8"):
        raise TmdeError(f"quantization: found {quantization!r}, expected None or 'int8'")
    embedder = DocumentEmbedder(model, tokenizer, pooling=pooling, prompt=prompt)
    check_can_be_exported(embedder)
    _check_can_be_a_graph(embedder)
    folder = Path(folder)
    check_holds_no_other_model(embedder, folder)
    onnx_folder = folder / "onnx"
    if not holds_weights(folder):
        _check_graphs_are_of_model(embedder, onnx_folder)
    onnx_folder.mkdir(parents=True, exist_ok=True)
    file_name = _FILE_NAME if quantization is None else f"model_{quantization}.onnx"
    with (
        tempfile.TemporaryDirectory(dir=onnx_folder, prefix=".export-") as temporary,
        evaluating(embedder.model),
    ):
        plain_graph = Path(temporary) / _FILE_NAME
        written_graph = Path(temporary) / file_name
        _write_graph(embedder, plain_graph)
        if quantization is not None:
            _quantize(plain_graph, written_graph, _quantized_operators(embedder))
        difference, cosine = _checked_difference(
            embedder, written_graph, is_exact=quantization is None
        )
        for path in (_data_file(written_graph), written_graph):
            if path.exists():
                os.replace(path, onnx_folder / path.name)
    write_serving_files(embedder, folder)
    return OnnxExport(onnx_folder / file_name, difference, cosine)


def _check_can_be_a_graph(embedder: DocumentEmbedder) -> None:
    """Refuse the models that cannot be a graph, with the reason."""
    encoder = embedder.model
    reason: str | None
    if embedder.needs_language:
        reason = "it has an encoder for each language, but a graph holds one encoder"
    else:
        reason = _REFUSED.get(encoder.config.model_type)
    if reason is not None:
        raise TmdeError(f"{type(encoder).__name__} can't be exported to ONNX: {reason}")


def _check_graphs_are_of_model(embedder: DocumentEmbedder, onnx_folder: Path) -> None:
    """Check that the graphs of earlier exports are of the same model, by their outputs.

    Two models of one configuration differ in their weights alone, and the new graph would stand
    beside one of the other model.

    Raises:
        TmdeError: One is of another model, or cannot be read.
    """
    for path in sorted(onnx_folder.glob("model*.onnx")):
        if not _is_graph_of_model(embedder, path):
            raise TmdeError(
                f"{path} belongs to another model (its outputs differ); choose a new folder, "
                f"or delete {onnx_folder}"
            )


def _is_graph_of_model(embedder: DocumentEmbedder, path: Path) -> bool:
    """Return whether a graph gives the vectors of a model."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        with evaluating(embedder.model):
            difference, cosine = _compare(session, embedder)
    except Exception:  # The errors of onnxruntime have no class in common.
        return False
    if path.name == _FILE_NAME:
        return difference <= TOLERANCE
    return cosine >= LEAST_COSINE


def _padded_batch(
    embedder: DocumentEmbedder, texts: Sequence[str], limit: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return input ids and attention mask, both (texts, length); masked places hold 0."""
    tokenize = TextTokenizer(embedder.tokenizer, min(limit, embedder.max_length), empty_id=0)
    return tokenize(list(texts)).padded(np.arange(len(texts)), pad_id=0)


def _write_graph(embedder: DocumentEmbedder, path: Path) -> None:
    """Trace an encoder and write its graph."""
    axes = {0: "batch", 1: "length"}
    try:
        with _quiet_exporter(), torch.no_grad():
            program = torch.onnx.export(
                graph_of(embedder).eval(),
                _padded_batch(embedder, _TRACED_TEXTS, limit=_TRACED_LENGTH),
                dynamo=True,
                verbose=False,
                input_names=["input_ids", "attention_mask"],
                output_names=list(OUTPUTS),
                dynamic_shapes=(axes, axes),
            )
            assert program is not None  # `dynamo=True` gives a program.
            program.save(path)
    except Exception as error:  # torch.onnx raises many kinds.
        raise TmdeError(
            f"{type(embedder.model).__name__} can't be exported to ONNX: {error}"
        ) from error


def _quantized_operators(embedder: DocumentEmbedder) -> list[str]:
    """Return the operators whose weights become 8-bit numbers.

    The one matrix product of a bag sums vectors, and has no weights.
    """
    if embedder.model.config.model_type == "tmde_bag":
        return ["Gather"]
    return list(_QUANTIZED_OPERATORS)


def _quantize(source: Path, target: Path, operators: list[str]) -> None:
    """Write a graph with 8-bit weights."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet_exporter():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=operators,
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=_data_file(source).exists(),
        )


def _checked_difference(
    embedder: DocumentEmbedder, graph: Path, is_exact: bool
) -> tuple[float, float]:
    """Return how far a graph is from its model, see [`OnnxExport`], if that is close enough.

    Args:
        embedder: The embedder around the model.
        graph: The file to check.
        is_exact: Whether all outputs must agree, not only the directions of the vectors.

    Raises:
        TmdeError: The graph computes something else.
    """
    import onnx
    import onnxruntime

    onnx.checker.check_model(os.fspath(graph))
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    difference, cosine = _compare(session, embedder)
    # Written so that NaN fails.
    is_close = difference <= TOLERANCE or not is_exact
    if not is_close or not cosine >= LEAST_COSINE:
        raise TmdeError(
            f"the graph of {type(embedder.model).__name__} differs from the model by "
            f"{difference:.1e} of its largest output, the vectors have a cosine of {cosine:.3f}; "
            f"expected at most {TOLERANCE:.0e} in float32, at least {LEAST_COSINE}"
        )
    return difference, cosine


def _compare(
    session: onnxruntime.InferenceSession, embedder: DocumentEmbedder
) -> tuple[float, float]:
    """Return the largest relative difference of outputs, and the smallest cosine of vectors."""
    differences = []
    largest_outputs = []
    cosines = []
    for texts in (TEXTS[:1], TEXTS[:-1], TEXTS):
        ids, mask = _padded_batch(embedder, texts, limit=LONGEST)
        expected_states, expected_vectors = _model_outputs(embedder, ids, mask)
        inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        states, vectors = map(torch.from_numpy, session.run(list(OUTPUTS), inputs))
        has_output_per_token = expected_states.shape[1] == mask.shape[1]
        # The output at padding may be anything.
        compared = mask.bool() if has_output_per_token else slice(None)
        differences.append((states - expected_states)[compared].abs().max())
        differences.append((vectors - expected_vectors).abs().max())
        largest_outputs.append(expected_states[compared].abs().max())
        cosines.append(nn.functional.cosine_similarity(vectors, expected_vectors).min())
    difference = torch.stack(differences).max() / torch.stack(largest_outputs).max()
    return float(difference), float(torch.stack(cosines).min())


def _model_outputs(
    embedder: DocumentEmbedder, input_ids: torch.Tensor, attention_mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the states (texts, length or 1, d) and vectors (texts, d) of the model itself."""
    with torch.no_grad():
        states, vectors = EncoderGraph(embedder.model, embedder.pooling)(input_ids, attention_mask)
    return states.float(), vectors.float()


def _data_file(graph: Path) -> Path:
    """Return the file that holds the weights of a graph if they are too large for one file."""
    return graph.with_name(graph.name + ".data")


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter and the quantizer, which log and warn of their internal steps."""
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


# ---- The forward passes that a graph holds


def graph_of(embedder: DocumentEmbedder) -> nn.Module:
    """Return the module to trace: `input_ids` and `attention_mask` in, `OUTPUTS` out.

    Args:
        embedder: The model, its tokenizer and its pooling.
    """
    if embedder.model.config.model_type == "tmde_bag":
        return BagGraph(cast(BagModel, embedder.model))
    return EncoderGraph(embedder.model, embedder.pooling)


class EncoderGraph(nn.Module):
    """The forward pass of an encoder, and the pooling of its states."""

    def __init__(self, encoder: PreTrainedModel, pooling: str) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.options = {"pooled_only": True} if is_ours(encoder) else {}

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return states (batch, length or 1, d) and vectors (batch, d)."""
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **self.options)
        states: torch.Tensor = outputs[0]
        return states, pooled(states, attention_mask, self.pooling)


class BagGraph(nn.Module):
    """The vectors of a bag in operations that a graph can hold.

    [`BagModel`] reads texts without padding, which no graph can.
    """

    def __init__(self, bag: BagModel) -> None:
        super().__init__()
        self.sublinear_counts = bag.config.sublinear_counts
        self.normalize = bag.config.normalize
        self.table = nn.Parameter(weighted_table(bag), requires_grad=False)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return states (batch, 1, d) and vectors (batch, d), which are the same numbers."""
        embedding = padded_bag(
            input_ids,
            attention_mask.bool(),
            nn.functional.embedding(input_ids, self.table),  # (batch, length, d)
            # The table is weighted already: a graph of 8-bit numbers would round the logarithms.
            torch.zeros_like(input_ids, dtype=self.table.dtype),
            sublinear_counts=self.sublinear_counts,
            normalize=self.normalize,
        )
        return embedding.unsqueeze(1), embedding


def pooled(states: torch.Tensor, attention_mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the vectors (batch, d) of states (batch, length or 1, d).

    Raises:
        TmdeError: A mean is asked for, but there is no state for each token.
    """
    if pooling == "cls":
        return states[:, 0]
    check_token_outputs(states, attention_mask)
    return pool_states(states.float(), attention_mask, "mean")
