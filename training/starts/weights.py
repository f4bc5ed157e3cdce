"""Take the weights of a trained model, whatever the two vocabularies are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.configuration_aligned import AlignedConfig
from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.configuration_tmde import TmdeConfig
from modeling_tmde.modeling_bag import BagModel
from tmde.embedding.loading import errors_about, local_or_hub, without_load_report
from tmde.training.recipe.architectures import ARCHITECTURES, architecture_of
from tmde.training.starts.base import Report, open_config
from tmde.training.starts.vocabulary import VocabularyMap, map_vocabulary

# The encoders of an aligned model, by the name that `AlignedConfig.encoder` has for them.
ALIGNED_ENCODERS = {"bilstm": LaserConfig.model_type, "bag": BagConfig.model_type}
LANGUAGES = "embed_languages"
TOKEN_WEIGHTS = "token_weights"
# Modules with a row for every entry of the vocabulary.
TABLES = ("embed_tokens", "lm_head", "bag_tokens")

NamesInSource = Callable[[str], str]


@torch.no_grad()
def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    checkpoint: str | os.PathLike,
    direct_path: bool = True,
) -> Report:
    """Change a new model in place to begin where a checkpoint ended.

    From a bag, T-MDE with `direct_path` and an encoder from the Hub with `bag_residual` take
    everything; other models take only the embedding table. Models of the same architecture take
    parameters by name. So do an aligned model from one of its encoders, and T-MDE from a language
    model.

    Tokens are matched by [`map_vocabulary`]. A token that the checkpoint lacks is the weighted mean
    of its pieces there; without pieces, it keeps its initial vector.

    Args:
        model: A new model of one of the `ARCHITECTURES`.
        tokenizer: The tokenizer of the model.
        checkpoint: Folder or Hub id of a model with its tokenizer.
        direct_path: Whether T-MDE takes a bag's token weights for its `bag_residual`, or the tables
            alone.

    Returns:
        The `warm_start` of `run.json`. Its `tokens_mapped` are means of their pieces, and its
        `tokens_left` and `tensors_kept` keep their initial values.

    Raises:
        TmdeError: The checkpoint cannot be opened or is of another kind, its width does not fit, it
            has token weights and the model no direct path for them, or the vocabularies cannot be
            compared.
    """
    source = _open_source(checkpoint)
    names = _names_in_source(model, source.model)
    has_direct_path = _has_direct_path(model, direct_path)
    _check_model_type(model, source, names)
    _check_direct_path(model, source, has_direct_path)
    if names is not None:
        _check_width(model, source)
    vocabulary = map_vocabulary(
        tokenizer,
        source.tokenizer,
        model.config.vocab_size,
        len(source.model.get_input_embeddings().get_parameter("weight")),
    )
    known_tokens = int(vocabulary.known.sum())
    report: Report = {
        "checkpoint": str(checkpoint),
        "model_type": source.model_type,
        "checkpoint_width": width_of(source.model.config),
        "width": width_of(model.config),
        "tokens_copied": vocabulary.copied,
        "tokens_mapped": known_tokens - vocabulary.copied,
        "tokens_left": vocabulary.size - known_tokens,
        "tensors_copied": 0,
        "tensors_kept": [],
    }
    if names is not None:
        initial_names = _copy_parameters(model, source, vocabulary, names)
        report["tensors_copied"] = len(list(model.named_parameters())) - len(initial_names)
        report["tensors_kept"] = initial_names
        return report
    bag = source.model
    assert isinstance(bag, BagModel)  # `_check_model_type` refuses other models.
    if not has_direct_path:
        _take_tables(model, bag, vocabulary)
    elif model.config.model_type == TmdeConfig.model_type:
        _take_bag_as_direct_path(model, bag, vocabulary)
    else:
        _take_bag_beside_encoder(model, bag, vocabulary)
    return report


# ---- The checkpoint


@dataclass(frozen=True)
class _Source:
    """A checkpoint that is opened.

    Attributes:
        checkpoint: Its folder or Hub id.
        model: The model.
        tokenizer: The tokenizer.
        missing: The names of parameters that the checkpoint's files lack.
    """

    checkpoint: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    missing: frozenset[str]

    @property
    def model_type(self) -> str:
        """The `model_type` of the model."""
        return self.model.config.model_type


def _open_source(checkpoint: str | os.PathLike) -> _Source:
    architecture = architecture_of(open_config(checkpoint))
    assert architecture is not None  # `open_config` refuses models of other packages.
    path = local_or_hub(checkpoint)
    # A pair, because of `output_loading_info`; transformers annotates the model alone.
    with without_load_report():
        loaded: Any = ARCHITECTURES[architecture].from_pretrained(
            path, dtype=torch.float32, output_loading_info=True
        )
    model, loading = loaded
    with errors_about(f"Warm start from {checkpoint}: expected its tokenizer's files beside it"):
        tokenizer = AutoTokenizer.from_pretrained(path)
    return _Source(str(checkpoint), model, tokenizer, frozenset(loading["missing_keys"]))


def width_of(config: PreTrainedConfig) -> int:
    """Return the width of a model's layers: an embedding may be several vectors of that width."""
    return getattr(config, "d_model", config.hidden_size)


def _inner_model_type(model: PreTrainedModel) -> str | None:
    """Return the type of the encoders of an aligned model; None for any other model."""
    if model.config.model_type != AlignedConfig.model_type:
        return None
    return ALIGNED_ENCODERS[model.config.encoder]


def _names_in_source(model: PreTrainedModel, source: PreTrainedModel) -> NamesInSource | None:
    """Return a function from a parameter's name in `model` to its name in `source`.

    It is None if the two models have only tables in common.
    """
    if model.config.model_type == source.config.model_type:
        return lambda name: name
    if _is_language_model_for(model.config, source.config):
        return _name_in_language_model
    if _inner_model_type(model) != source.config.model_type:
        return None
    prefix = ""
    if source.base_model is not source:
        prefix = f"{source.base_model_prefix}."
    # The parameter `encoders.de.layers...` is called `layers...` in the checkpoint.
    return lambda name: prefix + name.split(".", 2)[2]


def _is_language_model_for(config: PreTrainedConfig, source_config: PreTrainedConfig) -> bool:
    """Return whether a checkpoint is a language model, and the new model a T-MDE."""
    is_language_model = source_config.model_type == TmdeEncoderConfig.model_type
    return is_language_model and config.model_type == TmdeConfig.model_type


def _name_in_language_model(name: str) -> str:
    """Return what a parameter of T-MDE is called in a language model.

    The layers of encoder and decoder both begin as the layers of the language model, which are
    called `model.layers...`.
    """
    if name.startswith("decoder."):
        return name.replace("decoder.", "model.", 1)
    return name


def _has_direct_path(model: PreTrainedModel, direct_path: bool) -> bool:
    """Return whether the model takes all of a bag, and not its table alone."""
    if model.config.model_type == TmdeConfig.model_type:
        return direct_path
    return model.config.model_type == AdaptedConfig.model_type


# ---- Checks


def _check_model_type(model: PreTrainedModel, source: _Source, names: NamesInSource | None) -> None:
    if names is not None or source.model_type == BagConfig.model_type:
        return
    model_type = model.config.model_type
    expected_types = {BagConfig.model_type, model_type}
    if model_type == TmdeConfig.model_type:
        expected_types.add(TmdeEncoderConfig.model_type)
    inner_type = _inner_model_type(model)
    if inner_type is not None:
        expected_types.add(inner_type)
    advice = ""
    if source.model_type == AdaptedConfig.model_type:
        advice = "; `tmde train adapted --warm-start` continues from it"
    raise TmdeError(
        f"Warm start of a model of type {model_type!r}: expected a checkpoint of "
        f"{' or '.join(sorted(expected_types))}, found {source.model_type!r} in "
        f"{source.checkpoint}{advice}"
    )


def _check_direct_path(model: PreTrainedModel, source: _Source, has_direct_path: bool) -> None:
    has_weights = hasattr(source.model.base_model, TOKEN_WEIGHTS)
    if has_direct_path and has_weights and not model.config.bag_residual:
        raise TmdeError(
            f"Warm start from {source.checkpoint}: its token weights need model.bag_residual; "
            "set it, or for T-MDE warm_start.direct_path=false (embedding tables only)"
        )


def _check_width(model: PreTrainedModel, source: _Source) -> None:
    width = width_of(model.config)
    source_width = width_of(source.model.config)
    if width == source_width:
        return
    is_aligned = model.config.model_type == AlignedConfig.model_type
    key = "model.encoder_config.d_model" if is_aligned else "model.d_model"
    raise TmdeError(
        f"Warm start from {source.checkpoint}: it has d_model={source_width} and the new "
        f"model {width}; set {key}={source_width} (only a warm start from a bag can change "
        "it)"
    )


# ---- From a bag


def _take_bag_beside_encoder(
    model: PreTrainedModel, bag: BagModel, vocabulary: VocabularyMap
) -> None:
    """Take the table and the token weights of a bag for those beside a pretrained encoder."""
    is_known = vocabulary.known
    table = _table_of(bag, vocabulary, width_of(model.config))
    model.model.bag_tokens.weight[is_known] = table[is_known]
    model.model.token_weights[is_known] = vocabulary.log_weights(bag.token_weights)[is_known]


def _take_bag_as_direct_path(
    model: PreTrainedModel, bag: BagModel, vocabulary: VocabularyMap
) -> None:
    """Let T-MDE begin as the bag: its first embedding is `P = LayerNorm(bag)`.

    Encoder, decoder and output take the bag's table, times one factor that gives its rows the size
    of the new ones, and the direct path its token weights. The branches of the encoder's layers
    begin at zero. They learn from there: the first step moves the branches' outputs, the second all
    that is before them.

    Columns that a wider model has more begin at zero. They learn too: by the decoder and the
    branches, whose random weights differ by column. The direct path alone would give all of them
    the same gradient.
    """
    is_known = vocabulary.known
    weights = _table_weights(model)
    table = _table_of(bag, vocabulary, weights[0].shape[1])
    scale = _row_size(weights[0][is_known]) / _row_size(table[is_known])
    for weight in weights:
        weight[is_known] = (scale * table[is_known]).to(weight)
    _clear_padding(model)
    encoder = model.model
    log_weights = vocabulary.log_weights(bag.token_weights)
    encoder.token_weights[is_known] = log_weights[is_known].to(encoder.token_weights)
    layers = list(encoder.layers)
    if model.config.bottleneck == "pyramid":
        layers.append(encoder.pyramid_layer)
    for layer in layers:
        for output in (layer.self_attn.out_proj, layer.fc2):
            output.weight.zero_()
            output.bias.zero_()


def _take_tables(model: PreTrainedModel, bag: BagModel, vocabulary: VocabularyMap) -> None:
    """Take the table of a bag for each table of the model, at its width and scale.

    The rows of the encoder's tables are multiplied by the weights of their tokens; those of the
    decoder and the output are not. The rest of the model stays as it was.
    """
    is_known = vocabulary.known
    log_weights = vocabulary.log_weights(bag.token_weights)
    relative_weights = (log_weights - log_weights[is_known].median()).exp()  # (size,)
    encoder = getattr(model, "model", model)
    encoder_parameters = {id(parameter) for parameter in encoder.parameters()}
    for weight in _table_weights(model):
        table = _table_of(bag, vocabulary, weight.shape[1])
        if id(weight) in encoder_parameters:
            table = table * relative_weights[:, None]
        scale = _row_size(weight[is_known]) / _row_size(table[is_known])
        weight[is_known] = (scale * table[is_known]).to(weight)
    _clear_padding(model)


def _table_of(bag: BagModel, vocabulary: VocabularyMap, width: int) -> torch.Tensor:
    """Return the table of a bag for the new vocabulary, (size, width)."""
    fitted = fit_width(bag.embed_tokens.weight, bag.token_weights, width)
    return vocabulary.table(fitted, bag.token_weights)


def _table_modules(model: PreTrainedModel) -> list[nn.Module]:
    modules = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in TABLES:
            modules.append(module)
    return modules


def _table_weights(model: PreTrainedModel) -> list[nn.Parameter]:
    """Return the weights of all tables; those that several modules share once."""
    weights = [module.get_parameter("weight") for module in _table_modules(model)]
    return list(dict.fromkeys(weights))


def _clear_padding(model: PreTrainedModel) -> None:
    for module in _table_modules(model):
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx] = 0


def _row_size(rows: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the rows' norms."""
    return rows.float().square().sum(dim=1).mean().sqrt()


def fit_width(table: torch.Tensor, log_weights: torch.Tensor, d_model: int) -> torch.Tensor:
    """Return a table with `d_model` columns.

    A wider one has zeros in the others, a narrower one the leading principal directions.

    Args:
        table: The table, (vocabulary, width).
        log_weights: The logarithms of the rows' weights, (vocabulary,).
        d_model: The number of columns.
    """
    width = table.shape[1]
    if d_model >= width:
        return nn.functional.pad(table, (0, d_model - width))
    weights = (log_weights - log_weights.max()).double().exp()
    weighted = table.double() * weights.unsqueeze(1)  # (vocabulary, width)
    # The right singular vectors of the weighted table, the largest last, from its small Gram
    # matrix.
    _, directions = torch.linalg.eigh(weighted.T @ weighted)
    leading = directions[:, -d_model:].flip(1)  # (width, d_model)
    return (table.double() @ leading).float()


# ---- From a model of the same architecture, or a language model


def _copy_parameters(
    model: PreTrainedModel, source: _Source, vocabulary: VocabularyMap, names: NamesInSource
) -> list[str]:
    """Copy the parameters that fit, tables by vocabulary and languages by code.

    A model with an encoder for each language takes another checkpoint's encoder for each of them.
    T-MDE takes the tables, layers and last norm of a language model for its encoder and its decoder
    (Conneau 2019, thesis, section 4.3.4); the attention from the decoder to the encoder and the
    languages keep their initial values.

    Returns:
        The names of the parameters that keep their initial values.
    """
    old_parameters = dict(source.model.named_parameters(remove_duplicate=False))
    no_weights = torch.zeros(source.model.config.vocab_size)
    encoder_weights = getattr(source.model.base_model, TOKEN_WEIGHTS, no_weights)
    initial_names = []
    for name, parameter in model.named_parameters():
        source_name = names(name)
        owner, _, module = source_name.removesuffix(".weight").rpartition(".")
        value = old_parameters.get(source_name)
        if value is None or source_name in source.missing or not _fits(parameter, value, module):
            initial_names.append(name)
        elif module == TOKEN_WEIGHTS:
            is_known = vocabulary.known
            parameter[is_known] = vocabulary.log_weights(value)[is_known].to(parameter)
        elif module in TABLES:
            weights_name = f"{owner}.{TOKEN_WEIGHTS}".lstrip(".")
            log_weights = old_parameters.get(weights_name, encoder_weights)
            _copy_table(parameter, vocabulary.table(value, log_weights), vocabulary.known)
        elif module == LANGUAGES:
            rows = _language_rows(value, source.model.config.languages, model.config.languages)
            parameter.copy_(rows)
        else:
            parameter.copy_(value)
    return initial_names


def _fits(parameter: torch.Tensor, value: torch.Tensor, module: str) -> bool:
    """Return whether a parameter can take a value: tables may have other numbers of rows."""
    if module in (*TABLES, LANGUAGES, TOKEN_WEIGHTS):
        return parameter.shape[1:] == value.shape[1:]
    return parameter.shape == value.shape


def _copy_table(parameter: torch.Tensor, table: torch.Tensor, is_known: torch.Tensor) -> None:
    """Copy the rows of known tokens, and scale those of unknown tokens to their size."""
    scale = _row_size(table[is_known]) / _row_size(parameter[is_known])
    parameter.copy_(torch.where(is_known.unsqueeze(1), table, scale * parameter))


def _language_rows(
    value: torch.Tensor, old_languages: list[str], languages: list[str]
) -> torch.Tensor:
    """Return the embeddings of languages by code; a new language begins as the mean."""
    mean = value.mean(dim=0)
    rows: list[Any] = []
    for language in languages:
        if language in old_languages:
            rows.append(value[old_languages.index(language)])
        else:
            rows.append(mean)
    return torch.stack(rows)
