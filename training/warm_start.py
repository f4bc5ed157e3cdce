"""Warm starts: a new model that begins with what a trained one knows, whatever the two vocabularies are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import decoders, pre_tokenizers
from torch import nn
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.tokenization import is_byte_level_bpe
from tmde.embedding.loading import local_or_hub, reading
from tmde.training.hub_encoder import open_config
from tmde.training.recipe import ARCHITECTURES, architecture_of

BAG, ALIGNED = "tmde_bag", "tmde_aligned"
TABLES = (
    "embed_tokens",
    "lm_head",
    "bag_tokens",
)  # modules with a row for every entry of the vocabulary


@torch.no_grad()
def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    checkpoint: str | os.PathLike,
    direct_path: bool = True,
) -> dict[str, Any]:
    """Changes a new model in place to begin where a checkpoint ended.

    From a bag to T-MDE (with `bag_residual`), the embedding before the first step is `P = LayerNorm(bag)`: encoder,
    decoder and output take the bag's table, times one factor that gives its rows the size of the new ones, the direct
    path its token weights, and the branches of the encoder's layers begin at zero. They learn from there: the first
    step moves the branches' outputs, the second all that is before them.

    A wider model has the bag's columns first and zeros in the others. These do learn: by the decoder and the branches,
    whose random weights differ by column, while the direct path alone would give all of them the same gradient. A
    narrower model has the leading principal directions of the weighted table.

    From a bag to a pretrained encoder with `bag_residual`, the bag's table and token weights become those beside it.

    From a bag to any other architecture, or to T-MDE without `direct_path`, the encoder's tables take the bag's with
    each row times the weight of its token, and the decoder's tables and outputs of a width the bag's without; the
    rest of the model is as it was.

    From a model of the same architecture, parameters of equal name and shape are copied, the rest keep their initial
    values and are reported; languages are matched by their codes, and the embedding of a new one is the mean of the
    checkpoint's. A model with an encoder for each language takes another checkpoint's encoder for each of them.

    In all of them, a token that the checkpoint's vocabulary lacks is the weighted mean of its pieces there, which
    keeps the sum of a bag, and one without pieces has its initial vector, of the size of the others. Pieces know as
    much as they were used: towards a smaller vocabulary, some may be merges that the checkpoint hardly ever saw alone.

    Args:
        model: A new model of one of the `ARCHITECTURES`.
        tokenizer: Its tokenizer.
        checkpoint: Folder or Hub id of a bag or of a model of the same architecture with its tokenizer.
        direct_path: T-MDE takes a bag's token weights for its `bag_residual`; without, the tables alone.

    Returns:
        What the model took: `checkpoint` and its `model_type`; `checkpoint_width` and `width`, d_model of the two;
        `tokens_copied`, `tokens_mapped` and `tokens_left`, entries of the new vocabulary that the old one has as well,
        that are means of their pieces in the old one, and that keep their initial vectors; and, from the same kind,
        `tensors_copied`, how many parameters were taken, tables counted, and `tensors_kept`, the names of those that
        keep their initial values, since the checkpoint lacks them or has another shape.

    Raises:
        ValueError: If the checkpoint cannot be opened or is of another kind, its width does not fit, it has token
            weights and the model no direct path for them, or the vocabularies cannot be compared.
    """
    model_class, path = (
        ARCHITECTURES[architecture_of(open_config(checkpoint))],
        local_or_hub(checkpoint),
    )
    source, loading = model_class.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True
    )
    with reading(f"Warm start from {checkpoint}: expected its tokenizer's files beside it"):
        source_tokenizer = AutoTokenizer.from_pretrained(path)
    kind, source_kind = model.config.model_type, source.config.model_type
    names = _names_in(source, model)
    if names is None and source_kind != BAG:
        expected = " or ".join(sorted({BAG, kind, _kind_inside(model)} - {None}))
        start = f"Warm start of a model of type {kind!r}: expected a checkpoint of {expected}"
        raise TmdeError(f"{start}, found {source_kind!r} in {checkpoint}")
    direct = kind == "tmde_adapted" or (kind == "tmde" and direct_path)
    if direct and hasattr(source.base_model, "token_weights") and not model.config.bag_residual:
        found = f"Warm start from {checkpoint}: its token weights need the direct path, found no bag_residual"
        raise TmdeError(
            f"{found}; set model.bag_residual, or for T-MDE warm_start.direct_path=false (tables alone)"
        )
    width, source_width = _width(model.config), _width(source.config)
    if names is not None and width != source_width:
        key = "model.encoder_config.d_model" if kind == ALIGNED else "model.d_model"
        found = (
            f"Warm start from {checkpoint}: it has d_model={source_width} and the new model {width}"
        )
        raise TmdeError(
            f"{found}; set {key}={source_width} (only a warm start from a bag may change it)"
        )
    old_table = source.get_input_embeddings().weight
    vocabulary = map_vocabulary(
        tokenizer, source_tokenizer, model.config.vocab_size, len(old_table)
    )
    known, copied = int(vocabulary.known.sum()), vocabulary.copied
    report = {
        "checkpoint": str(checkpoint),
        "model_type": source_kind,
        "checkpoint_width": source_width,
    }
    report |= {"width": width, "tokens_copied": copied, "tokens_mapped": known - copied}
    report |= {"tokens_left": vocabulary.size - known, "tensors_copied": 0, "tensors_kept": []}
    if names is not None:
        return report | _copy(model, source, set(loading["missing_keys"]), vocabulary, names)
    _from_bag(model, source, vocabulary, direct)
    return report


def _width(config: PreTrainedConfig) -> int:
    """Of the layers: an embedding may be several vectors of that width."""
    return getattr(config, "d_model", config.hidden_size)


def _kind_inside(model: PreTrainedModel) -> str | None:
    """The type of the encoders of a model that has one for each language as a model of its own."""
    return (
        {"bilstm": "tmde_laser", "bag": BAG}[model.config.encoder]
        if model.config.model_type == ALIGNED
        else None
    )


def _names_in(source: PreTrainedModel, model: PreTrainedModel) -> Callable[[str], str] | None:
    """From a parameter's name in `model` to that in `source`; None if they have none in common but tables."""
    kind, source_kind = model.config.model_type, source.config.model_type
    if kind == source_kind:
        return lambda name: name
    if _kind_inside(model) != source_kind:
        return None
    prefix = "" if source.base_model is source else f"{source.base_model_prefix}."
    return lambda name: prefix + name.split(".", 2)[2]  # encoders.de.layers... is layers... there


def _from_bag(
    model: PreTrainedModel, bag: PreTrainedModel, vocabulary: VocabularyMap, direct: bool
) -> None:
    """Takes the tables of a bag. Each has its own width and scale, and those of the encoder are weighted. With the
    direct path, which takes the token weights, all are the same table, and the branches beside it begin at zero.
    """
    inside = {id(parameter) for parameter in getattr(model, "model", model).parameters()}
    known, log_weights = vocabulary.known, vocabulary.log_weights(bag.token_weights)
    if direct and model.config.model_type != "tmde":  # a bag beside an encoder
        table = fit_width(bag.embed_tokens.weight, bag.token_weights, _width(model.config))
        model.model.bag_tokens.weight[known] = vocabulary.table(table, bag.token_weights)[known]
        model.model.token_weights[known] = log_weights[known]
        return
    modules = [
        module for name, module in model.named_modules() if name.rpartition(".")[2] in TABLES
    ]
    scale = None
    for key, weight in {
        id(module.weight): module.weight for module in modules
    }.items():  # once if they are shared
        if scale is None or not direct:
            fitted = fit_width(bag.embed_tokens.weight, bag.token_weights, weight.shape[1])
            table = vocabulary.table(fitted, bag.token_weights)
            if key in inside and not direct:
                table = table * (log_weights - log_weights[known].median()).exp()[:, None]
            scale = _size(weight[known]) / _size(table[known])
        weight[known] = (scale * table[known]).to(weight)
    for module in modules:
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx] = 0
    if direct:
        encoder = model.model
        encoder.token_weights[known] = log_weights[known].to(encoder.token_weights)
        for layer in [
            *encoder.layers,
            *([encoder.pyramid_layer] if model.config.bottleneck == "pyramid" else []),
        ]:
            for output in (layer.self_attn.out_proj, layer.fc2):
                output.weight.zero_()
                output.bias.zero_()


def _size(rows: torch.Tensor) -> torch.Tensor:
    """Root mean square of the rows' norms."""
    return rows.float().square().sum(dim=1).mean().sqrt()


def fit_width(table: torch.Tensor, log_weights: torch.Tensor, d_model: int) -> torch.Tensor:
    """The table (vocabulary, width) with `d_model` columns."""
    width = table.shape[1]
    if d_model >= width:
        return nn.functional.pad(table, (0, d_model - width))
    weighted = table.double() * (log_weights - log_weights.max()).double().exp().unsqueeze(1)
    # The right singular vectors of the weighted table, the largest last, from its small Gram matrix.
    _, directions = torch.linalg.eigh(weighted.T @ weighted)
    return (table.double() @ directions[:, -d_model:].flip(1)).float()


def _copy(
    model: PreTrainedModel,
    source: PreTrainedModel,
    missing: set[str],
    vocabulary: VocabularyMap,
    names: Callable[[str], str],
) -> dict[str, int | list[str]]:
    """Parameters of equal name and shape, tables by vocabulary, languages by code; returns what the report says."""
    old = dict(source.named_parameters(remove_duplicate=False))
    weights = getattr(source.base_model, "token_weights", torch.zeros(source.config.vocab_size))
    known, languages = vocabulary.known, source.config.languages
    kept, parameters = [], dict(model.named_parameters())
    for name, parameter in parameters.items():
        source_name = names(name)
        owner, _, last = source_name.removesuffix(".weight").rpartition(".")
        value, by_row = old.get(source_name), last in (*TABLES, "embed_languages", "token_weights")
        if (
            value is None
            or source_name in missing
            or parameter.shape[by_row:] != value.shape[by_row:]
        ):
            kept.append(name)
        elif last == "token_weights":
            parameter[known] = vocabulary.log_weights(value)[known].to(parameter)
        elif last in TABLES:
            table = vocabulary.table(value, old.get(f"{owner}.token_weights".lstrip("."), weights))
            scale = _size(table[known]) / _size(parameter[known])
            parameter.copy_(torch.where(known.unsqueeze(1), table, scale * parameter))
        elif last == "embed_languages":  # one that is new begins as the mean of all there
            wanted, mean = model.config.languages, value.mean(0)
            rows = [value[languages.index(one)] if one in languages else mean for one in wanted]
            parameter.copy_(torch.stack(rows))
        else:
            parameter.copy_(value)
    return {"tensors_copied": len(parameters) - len(kept), "tensors_kept": kept}


# ---- Vocabularies


@dataclass(frozen=True)
class VocabularyMap:
    """The tokens of a new vocabulary as pieces of an old one: token `rows[i]` has the piece `pieces[i]`.

    rows, pieces: (pieces,), by ascending row. A row without pieces is not known to the old vocabulary.
    size: Rows of the new tables.
    copied: Rows whose one piece is the same token.
    """

    rows: torch.Tensor
    pieces: torch.Tensor
    size: int
    copied: int

    @property
    def known(self) -> torch.Tensor:
        """(size,) bool."""
        return torch.bincount(self.rows, minlength=self.size) > 0

    def log_weights(self, old: torch.Tensor) -> torch.Tensor:
        """(size,): the logarithm of the pieces' summed weights; `-inf` where there are none.

        Together with `table` it keeps every bag: `exp(w) E` of a token is the sum of `exp(w_p) E_p` over its pieces.
        """
        values = old[self.pieces]
        largest = torch.full((self.size,), -torch.inf).scatter_reduce(0, self.rows, values, "amax")
        sums = torch.zeros(self.size).index_add(0, self.rows, (values - largest[self.rows]).exp())
        return largest + sums.log()

    def table(self, old: torch.Tensor, log_weights: torch.Tensor) -> torch.Tensor:
        """(size, d): the means of the pieces' rows of `old`, weighted by `exp(log_weights)`; 0 without pieces."""
        shares = (
            log_weights[self.pieces] - self.log_weights(log_weights)[self.rows]
        ).exp()  # (pieces,)
        offsets = torch.searchsorted(self.rows, torch.arange(self.size))
        return nn.functional.embedding_bag(
            self.pieces, old, offsets, mode="sum", per_sample_weights=shares
        )


def map_vocabulary(
    new: PreTrainedTokenizerBase, old: PreTrainedTokenizerBase, new_size: int, old_size: int
) -> VocabularyMap:
    """Finds every token of the tokenizer `new` in the tokenizer `old`: as itself, else as the pieces it falls into there.
    Byte-level tokens are compared byte by byte, so that one which is no text alone (half a character) has its pieces
    as well. Special and added tokens that `old` lacks have none. Of an `old` that reads lower case only, a token with
    capitals is that without.

    Args:
        new_size, old_size: Rows of the embedding tables, at least the sizes of the vocabularies.

    Raises:
        ValueError: If a vocabulary is larger than its table, or they differ and not both are byte-level.
    """
    new_ids, old_ids = new.get_vocab(), old.get_vocab()
    for tokenizer, ids, size in ((new, new_ids, new_size), (old, old_ids, old_size)):
        if max(ids.values()) >= size:
            raise TmdeError(
                f"The tokenizer {tokenizer.name_or_path!r} has the id {max(ids.values())}, but the embedding table of "
                f"its model has {size} rows; expected the tokenizer that the model was made with"
            )
    if new_ids != old_ids and not (is_byte_level_bpe(new) and is_byte_level_bpe(old)):
        raise TmdeError(
            f"The vocabularies of {new.name_or_path!r} and of the checkpoint {old.name_or_path!r} differ, which works "
            "between byte-level BPE tokenizers only; take the checkpoint's tokenizer (tokenizer.path in a recipe)"
        )
    added = {token.content for token in new.added_tokens_decoder.values()}
    rows, pieces, copied = [], [], 0
    normalizer = old.backend_tokenizer.normalizer if new_ids != old_ids else None
    lowered = normalizer is not None and normalizer.normalize_str("A").strip() == "a"
    for token, row in sorted(new_ids.items(), key=lambda item: item[1]):
        # What the old tokenizer never makes of a text, its model has never seen.
        seen = _lower_case(token) if lowered and token not in added else token
        if seen in old_ids:
            found = [old_ids[seen]]
            copied += seen == token
        else:
            found = (
                []
                if token in added
                else [piece.id for piece in old.backend_tokenizer.model.tokenize(seen)]
            )
        rows += [row] * len(found)
        pieces += found
    return VocabularyMap(torch.tensor(rows), torch.tensor(pieces), new_size, copied)


def _lower_case(token: str) -> str:
    """A byte-level token in lower case; unchanged if its bytes are no text alone."""
    text = decoders.ByteLevel().decode([token])
    if "\ufffd" in text or text.lower() == text:
        return token
    [(lower, _)] = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(text.lower())
    return lower
