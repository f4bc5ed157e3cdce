# SPDX-License-Identifier: Apache-2.0

"""A model in other forms: an ONNX graph, a table of static embeddings, an encoder with fewer tokens, files that
sentence-transformers reads."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from modeling_tmde import TmdeError
from modeling_tmde.inspection import is_ours
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from modeling_tmde.tokenization import cut_tokenizer
from tmde.embedding.document_embedder import DocumentEmbedder, evaluating, mean_pooled
from tmde.embedding.text_tokenizer import TextTokenizer

logger = logging.getLogger(__name__)

OUTPUT = "last_hidden_state"  # of every graph
TOLERANCE = 1e-4  # relative to the largest output; what graph and model may differ by in float32
# Cosine of the vectors of an int8 graph and the model: trained models keep 0.99, untrained ones 0.98.
LEAST_COSINE = 0.9
LONGEST = 1024  # tokens of the longest text that graph and model are compared on
LEAST_CHANGE = (
    1e-5  # relative to the largest element; what vectors may differ by after a vocabulary was cut
)
COMPARED = 256  # texts
_INT64 = 7  # onnx.TensorProto.INT64
_REFUSED = {
    "tmde_bag": "it adds up rows of a table; `tmde export static` writes it for sentence-transformers",
    "tmde_laser": "its LSTM layers read every text to its own length, which the exporter cannot write",
}
# Article 1 of the Universal Declaration of Human Rights: what an export is compared on.
TEXTS = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and "
    "should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "人人生而自由，在尊严和权利上一律平等。",
    "Equal. " * LONGEST,
)


def export_onnx(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike,
    quantization: str | None = None,
) -> tuple[Path, float, float]:
    """Writes an encoder as `folder/onnx/model.onnx`, or quantized as `folder/onnx/model_int8.onnx`.

    Inputs are `input_ids` and `attention_mask`, both (batch, length) int64, of any size. The one output,
    `last_hidden_state`, is (batch, length, d) float32, and for T-MDE (batch, 1, d), which is P alone. The graph is
    compared with the model before it takes its place. Config and tokenizer are saved in a folder without a config.

    Args:
        model: An encoder in float32 on the CPU; of an encoder-decoder only the encoder is written.
        tokenizer: Its tokenizer.
        folder: Made if missing.
        quantization: `"int8"` for 8-bit weights of matrices and embedding tables, and inputs of matrix products
            rounded to 8 bits as they come.

    Returns:
        The graph; the largest difference of graph and model in any element of an output on `TEXTS`, over the largest
        element; the smallest cosine of their vectors.

    Raises:
        ImportError: A package of the extra `onnx` is missing.
        ValueError: The model cannot be written as a graph, or the graph computes something else.
    """
    import onnx
    import onnxruntime
    import onnxscript  # noqa: F401

    if quantization not in (None, "int8"):
        raise TmdeError(f"quantization: found {quantization!r}, expected None or 'int8'")
    embedder = DocumentEmbedder(model, tokenizer)
    encoder, name = embedder.model, type(embedder.model).__name__
    reason = _REFUSED.get(encoder.config.model_type)
    if embedder.needs_language:
        reason = "it has an encoder for each language, and a graph holds one for all"
    if reason is not None:
        raise TmdeError(f"{name} cannot be an ONNX graph: {reason}")
    folder = Path(folder)
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    file = "model.onnx" if quantization is None else f"model_{quantization}.onnx"
    with (
        tempfile.TemporaryDirectory(dir=folder / "onnx", prefix=".export-") as temporary,
        evaluating(encoder),
    ):
        plain, written = Path(temporary) / "model.onnx", Path(temporary) / file
        graph = _Graph(encoder)
        _write_graph(graph, embedder, plain)
        if quantization is not None:
            _quantize(plain, written)
        onnx.checker.check_model(os.fspath(written))
        session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
        difference, cosine = _compare(graph, session, embedder)
        if (quantization is None and not difference <= TOLERANCE) or not cosine >= LEAST_COSINE:
            raise TmdeError(
                f"the graph of {name} differs from the model by {difference:.1e} of its largest output, the vectors "
                f"have a cosine of {cosine:.3f}; expected at most {TOLERANCE:.0e} in float32, at least {LEAST_COSINE}"
            )
        del session
        for path in (_data_file(written), written):
            if path.exists():
                os.replace(path, folder / "onnx" / path.name)
    if not (folder / "config.json").exists():
        model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder / "onnx" / file, difference, cosine


class _Graph(nn.Module):
    """The forward pass with tensors in and one tensor out."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.options = {"pooled_only": True} if encoder.config.model_type == "tmde" else {}

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask, **self.options)[0]


def _batch(
    embedder: DocumentEmbedder, texts: Sequence[str], limit: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Input ids and attention mask, both (texts, length); masked positions hold 0."""
    tokenized = TextTokenizer(embedder.tokenizer, min(limit, embedder.max_length), 0)(list(texts))
    return tokenized.padded(np.arange(len(texts)), 0)


def _write_graph(graph: _Graph, embedder: DocumentEmbedder, path: Path) -> None:
    axes = {0: "batch", 1: "length"}
    try:
        with _quiet_exporter(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                _batch(
                    embedder,
                    ("Written once, run everywhere; 1, 2, 3, 1.", "Written once"),
                    limit=24,
                ),
                dynamo=True,
                verbose=False,
                input_names=["input_ids", "attention_mask"],
                output_names=[OUTPUT],
                dynamic_shapes=(axes, axes),
                custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            )
            program.save(path)
    except Exception as error:  # torch.onnx raises many kinds
        raise TmdeError(
            f"{type(graph.encoder).__name__} cannot be written as an ONNX graph: {error}"
        ) from error


def _searchsorted(sorted_sequence, values, *, right: bool = False, **_):
    """`torch.searchsorted` (of `sublinear_counts`), which the exporter lacks: (batch, n), (batch, m) -> (batch, m)."""
    from onnxscript import opset18 as op

    ordered = op.Unsqueeze(sorted_sequence, op.Constant(value_ints=[-2]))  # (batch, 1, n)
    values = op.Unsqueeze(values, op.Constant(value_ints=[-1]))  # (batch, m, 1)
    before = op.LessOrEqual(ordered, values) if right else op.Less(ordered, values)
    return op.ReduceSum(op.Cast(before, to=_INT64), op.Constant(value_ints=[-1]), keepdims=0)


def _quantize(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet_exporter():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=[
                "MatMul",
                "Gemm",
                "Gather",
            ],  # the last: tables, most of a small model's weights
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=_data_file(source).exists(),
        )


def _compare(graph: _Graph, session, embedder: DocumentEmbedder) -> tuple[float, float]:
    """The largest difference of outputs over the largest output, and the smallest cosine of vectors."""
    differences, largest, cosines = [], [], []
    for texts in (TEXTS[:1], TEXTS[:-1], TEXTS):
        ids, mask = _batch(embedder, texts, limit=LONGEST)
        with torch.no_grad():
            expected = graph(ids, mask).float()
        (found,) = session.run([OUTPUT], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        found = torch.from_numpy(found)
        real = (
            mask.bool() if expected.shape[1] == mask.shape[1] else slice(None)
        )  # padding may be anything
        differences.append((found - expected)[real].abs().max())
        largest.append(expected[real].abs().max())
        first = is_ours(graph.encoder)
        pooled = [
            hidden[:, 0] if first else mean_pooled(hidden, mask) for hidden in (found, expected)
        ]
        cosines.append(nn.functional.cosine_similarity(*pooled).min())
    return float(torch.stack(differences).max() / torch.stack(largest).max()), float(
        torch.stack(cosines).min()
    )


def _data_file(graph: Path) -> Path:
    """The weights of a graph that are too large for one file."""
    return graph.with_name(graph.name + ".data")


@contextmanager
def _quiet_exporter():
    """The exporter and the quantizer log and warn of their internal steps."""
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def export_static_embedding(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: str | os.PathLike
) -> float:
    """Writes a bag model as `SentenceTransformer(folder)` opens it without this package: a table of vectors.

    Its two modules are a StaticEmbedding, which takes the mean of `exp(w_t) E_t` in float32 over the tokens of a text
    (`<s>` and `</s>`, of next to no weight, are left out), and a Normalize. They give the vectors of [`BagModel`]; but
    a text without any token gets zeros.

    Args:
        model: A [`BagModel`].
        tokenizer: Its tokenizer.
        folder: Where to write; files of an earlier export are overwritten.

    Returns:
        The largest difference between the vectors of the table and of the model on `TEXTS`.

    Raises:
        ImportError: sentence-transformers is not installed.
        ValueError: The model is no bag, does not normalize, or damps counts; or the table gives other vectors.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    config = model.config
    if config.model_type != "tmde_bag":
        raise TmdeError(
            f"model: found {type(model).__name__}, expected a BagModel: no other sums token vectors"
        )
    if not config.normalize or config.sublinear_counts:
        found = f"normalize={config.normalize} and sublinear_counts={config.sublinear_counts} in its config"
        raise TmdeError(
            f"model: found {found}, expected True and False: a static embedding is a normalized mean"
        )
    with torch.no_grad():
        weights = model.token_weights.float().exp().cpu()
        table = weights[:, None] * model.embed_tokens.weight.float().cpu()  # (vocab_size, d_model)
    state = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    state |= {"added_tokens": [], "post_processor": None}  # a literal `</s>` is text
    modules = [
        StaticEmbedding(Tokenizer.from_str(json.dumps(state)), embedding_weights=table),
        Normalize(),
    ]
    static = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="cosine")
    found = static.encode(list(TEXTS), show_progress_bar=False)
    difference = float(np.abs(found - DocumentEmbedder(model, tokenizer).encode(TEXTS)).max())
    if not difference <= TOLERANCE:
        raise TmdeError(
            f"the table's vectors differ from the model's by {difference:.1e}, expected {TOLERANCE:.0e}"
        )
    static.save(str(folder), create_model_card=False)
    return difference


def export_vocabulary(
    embedder: DocumentEmbedder,
    texts: Iterable[str],
    folder: str | os.PathLike,
    max_tokens: int | None = None,
    min_count: int = 1,
) -> tuple[int, float]:
    """Writes an encoder whose vocabulary is that of some texts, see `cut_tokenizer`. Of multilingual-e5-small, whose
    table holds 81% of its parameters, the half or less is left.

    Args:
        embedder: With the prompt and the pooling that the new checkpoint carries.
        folder: Made if missing.
        texts, max_tokens, min_count: See `cut_tokenizer`.

    Returns:
        Entries of the new vocabulary; the largest difference between old and new vectors, over their largest element,
        of those of the first 256 texts whose tokens are all kept.

    Raises:
        ValueError: The vocabulary is no Unigram or WordPiece, or vectors differ.
    """
    model, texts = copy.deepcopy(embedder.model), iter(texts)
    first = list(itertools.islice(texts, COMPARED))
    prompt = f"{embedder.prompt} {getattr(model.config, 'prompt', '')}"
    options = {"max_tokens": max_tokens, "min_count": min_count, "keep": prompt}
    tokenizer, kept = cut_tokenizer(embedder.tokenizer, itertools.chain(first, texts), **options)
    _keep_rows(model, kept)
    write_sentence_transformers_files(model, folder, embedder.pooling, embedder.prompt)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    found = DocumentEmbedder.from_pretrained(folder, embedder.pooling, device="cpu")
    inputs = embedder.tokenizer(first)["input_ids"] if first else []
    known = [text for text, ids in zip(first, inputs, strict=True) if set(kept).issuperset(ids)]
    before, after = embedder.encode(known), found.encode(known)
    difference = float(abs(before - after).max() / abs(before).max()) if known else 0.0
    if not difference <= LEAST_CHANGE:
        raise TmdeError(
            f"{folder}: its vectors change by {difference:.1e}, expected at most {LEAST_CHANGE:.0e}"
        )
    return len(kept), difference


def _keep_rows(model: PreTrainedModel, kept: list[int]) -> None:
    """Of all tables and weights of tokens, the rows of the kept ids; and the new ids in the config."""
    size, new_ids = (
        len(model.get_input_embeddings().weight),
        {old: new for new, old in enumerate(kept)},
    )
    for module, name in _token_parameters(model):
        weight = getattr(module, name)
        if len(weight) == size:
            setattr(module, name, nn.Parameter(weight.detach()[kept]))
    configs: list[PreTrainedConfig] = [model.config]
    configs += [getattr(model.config, name) for name in model.config.sub_configs]
    for config in configs:
        config.vocab_size = len(kept)
        for name, value in config.to_dict().items():
            if name.endswith("_token_id") and isinstance(value, int):
                setattr(config, name, new_ids.get(value))
            elif name == "prompt_ids" and value:
                config.prompt_ids = [new_ids[id] for id in value]


def _token_parameters(model: PreTrainedModel) -> set[tuple[nn.Module, str]]:
    """Return where the parameters with a row for each token are, as modules and names of their parameters.

    These are the input and output embeddings of the model and of its parts, and this package's tables and weights of
    tokens. The number of rows tells nothing: a layer may be as wide as the vocabulary is large.
    """
    tables = set()
    parameters = set()
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            tables |= _embeddings_of_part(module)
        tables |= {getattr(module, name, None) for name in ("embed_tokens", "bag_tokens")}
        if isinstance(getattr(module, "token_weights", None), nn.Parameter):
            parameters.add((module, "token_weights"))
    for table in tables - {None}:
        parameters |= {(table, name) for name, _ in table.named_parameters(recurse=False)}
    return parameters


def _embeddings_of_part(part: PreTrainedModel) -> set[nn.Module | None]:
    """Return the input and output embeddings of a model within a model; some have none and raise."""
    try:
        return {part.get_input_embeddings(), part.get_output_embeddings()}
    except (AttributeError, NotImplementedError):
        return set()
