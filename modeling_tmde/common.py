# SPDX-License-Identifier: Apache-2.0

"""What the model families share: base classes, positions, pooling, and the interface of encoder-decoders."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import as_validated_field, strict
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPooling,
    Seq2SeqLMOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import ModelOutput, can_return_tuple, is_tracing


class TmdeError(ValueError):
    """A mistake that the user can set right. The `tmde` command prints it as one sentence."""


@as_validated_field
def size(value: int) -> None:
    """A field of a configuration that counts something, and is at least 1: `d_model: int = size(default=1024)`."""
    if value < 1:
        raise TmdeError(f"found {value}, expected at least 1")


@strict
class EmbedderConfig(PreTrainedConfig):
    r"""
    Base of the configurations of all families.

    Args:
        languages: Language codes; the position of a code in this list is its language id.
        pivot_languages: The languages that the decoder translates into; a subset of `languages`.
        bos_token_id, pad_token_id, eos_token_id: Special tokens of the tokenizer.

    Raises:
        ValueError: If a language is listed twice, or a pivot language is not in `languages`.
    """

    languages: tuple[str, ...] | list[str] = ("de", "en", "es", "fr", "it")
    pivot_languages: tuple[str, ...] | list[str] = ("en", "es")
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs):
        self.languages = list(self.languages)  # JSON has no tuples
        self.pivot_languages = list(self.pivot_languages)
        super().__post_init__(**kwargs)

    def validate_languages(self):
        """Called for every new config, like all methods named `validate_...` of a strict dataclass."""
        if len(set(self.languages)) != len(self.languages):
            raise TmdeError(f"languages={self.languages} names a language twice")
        unknown = [language for language in self.pivot_languages if language not in self.languages]
        if unknown:
            raise TmdeError(f"pivot_languages {unknown} are not among languages={self.languages}")

    def _check_multiple(self, name: str, of: str) -> None:
        if getattr(self, name) % getattr(self, of):
            raise TmdeError(
                f"{name}={getattr(self, name)} is not a multiple of {of}={getattr(self, of)}"
            )

    def _check_even(self, name: str, reason: str) -> None:
        if getattr(self, name) % 2:
            raise TmdeError(f"{name}={getattr(self, name)} must be even: {reason}")

    def _check_sequence(self, settings: Mapping[str, Any]) -> None:
        """Checks the settings of a [`SequenceReader`]."""
        pooling, width, layers = (
            settings["pooling"],
            settings["d_model"],
            settings["encoder_layers"],
        )
        cells = {"conv": ("max", "mean")} | dict.fromkeys(
            ("lstm", "gru"), ("max", "mean", "last", "attention")
        )
        if pooling not in (known := cells.get(settings["cell"], ())):
            raise TmdeError(
                f"cell={settings['cell']!r}, pooling={pooling!r}: expected {', '.join(known or cells)}"
            )
        recurrent = settings["cell"] != "conv"
        parts = (
            (2 * settings["attention_views"] if pooling == "attention" else 2)
            if recurrent
            else layers
        )
        if width % parts:
            raise TmdeError(
                f"d_model={width} is not a multiple of {parts}, which directions, views or layers share"
            )
        if not 0 <= (found := settings["unidirectional_layers"]) <= layers * recurrent:
            raise TmdeError(
                f"unidirectional_layers={found}: expected 0 to {layers * recurrent}, all layers"
            )

    @property
    def special_token_ids(self) -> list[int]:
        """Ids of `<s>`, `<pad>` and `</s>`, without those that are None."""
        eos = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [
            token for token in (self.bos_token_id, self.pad_token_id, *eos) if token is not None
        ]


class TmdeOutputProjection(nn.Linear):
    """Projection of decoder states to the vocabulary. Its own class because it is initialized like an embedding."""


class EmbedderPreTrainedModel(PreTrainedModel):
    """
    Base of the models of all families.

    Attributes:
        _auto_map: For each Auto class, the module and the class that open a checkpoint of this family.
        write_companions: Called with the model and the folder, where `config.json` still is that of an earlier save.
            The package sets it to the function that writes the files of sentence-transformers; remote code has none.
    """

    base_model_prefix = "model"
    _auto_map: ClassVar[dict[str, str]] = {}
    write_companions: ClassVar[Callable[[PreTrainedModel, str | os.PathLike], None] | None] = None

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As in transformers; of a bag, new tokens get the median weight."""
        table = super().resize_token_embeddings(*args, **kwargs)
        for module in self.modules():
            if hasattr(module, "token_weights"):
                module.token_weights = resized_token_weights(
                    module.token_weights, table.num_embeddings
                )
            if hasattr(module, "bag_tokens"):
                module.bag_tokens = self._get_resized_embeddings(
                    module.bag_tokens, table.num_embeddings
                )
        return table

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(getattr(module, "token_weights", None), nn.Parameter):
            init.zeros_(module.token_weights)
        if isinstance(module, TmdeOutputProjection):
            init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, (nn.Linear, nn.Conv1d)):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, TmdeSinusoidalPositions):
            # from_pretrained builds the model on the meta device; a buffer outside the checkpoint is filled here.
            init.copy_(module.weight, module.table())
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, (nn.LSTM, nn.GRU)):
            for name, parameter in module.named_parameters():
                if name.startswith("weight"):
                    # The Xavier bound for each of the stacked gate matrices. The default of torch is a third to
                    # a half of it, and the signal dies out over six layers.
                    bound = (6 / (parameter.shape[1] + module.hidden_size)) ** 0.5
                    init.uniform_(parameter, -bound, bound)
                else:
                    bias = torch.zeros_like(parameter)
                    if name.startswith("bias_ih") and isinstance(module, nn.LSTM):
                        bias[module.hidden_size : 2 * module.hidden_size] = (
                            1  # the forget gate starts open
                        )
                    init.copy_(parameter, bias)

    def save_pretrained(
        self, save_directory: str | os.PathLike, is_main_process: bool = True, **kwargs
    ) -> None:
        """As in transformers. `auto_map` lists every Auto class of the family, whichever of its models is saved."""
        self.config.auto_map = dict(self._auto_map)
        if is_main_process and self.write_companions is not None:
            type(self).write_companions(self, save_directory)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)


# ---- Attention and positions


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention (eq. 4.1) in plain operations; returns the probabilities as well."""
    scores = query @ key.transpose(2, 3) * scaling  # (batch, heads, query_length, key_length)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    output = probabilities @ value  # (batch, heads, query_length, head_dim)
    return output.transpose(1, 2).contiguous(), probabilities


class TmdeSelfAttention(nn.Module):
    """Multi-head self-attention (eq. 4.1-4.2)."""

    def __init__(
        self,
        config: EmbedderConfig,
        num_heads: int,
        is_causal: bool = False,
        layer_idx: int | None = None,
    ):
        super().__init__()
        self.config = config
        self.is_causal = is_causal
        self.layer_idx = layer_idx
        self.head_dim = config.d_model // num_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        # A bias on keys adds the same to all scores of a query, which softmax ignores.
        self.k_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        cache: DynamicCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(batch, length, d_model) -> the same, and under eager attention the probabilities."""
        query, key, value = (
            projection(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )  # (batch, heads, length, head_dim)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        options = {
            "dropout": self.config.attention_dropout if self.training else 0.0,
            "scaling": self.head_dim**-0.5,
        }
        output, probabilities = attention(self, query, key, value, attention_mask, **options)
        return self.out_proj(output.flatten(2)), probabilities


class TmdeSinusoidalPositions(nn.Module):
    """Fixed sine and cosine positions. The table is computed, so it is not part of a checkpoint."""

    def __init__(self, max_positions: int, d_model: int):
        super().__init__()
        self.max_positions = max_positions
        self.d_model = d_model
        self.register_buffer("weight", self.table(), persistent=False)

    def table(self) -> torch.Tensor:
        """(max_positions, d_model): sines in the first half, cosines in the second."""
        half = self.d_model // 2
        rates = torch.exp(
            torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / max(half - 1, 1))
        )
        angles = torch.arange(self.max_positions, dtype=torch.float64)[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()

    def forward(
        self, length: int, start: int | torch.Tensor = 0, firsts: torch.LongTensor | None = None
    ) -> torch.Tensor:
        """Return the vectors of positions `start` to `start + length`, (length, d_model).

        Args:
            start: The first position. A static cache counts its tokens on the device, in a tensor of
                shape ().
            firsts: (batch,) index of the first token of each text, which is at position 0; then the
                result is (batch, length, d_model). Not together with `start`.

        Raises:
            ValueError: If the input is longer than the model's longest. A compiled graph cannot check
                a `start` that is a tensor; there, the lookup itself fails.
        """
        if isinstance(start, torch.Tensor):
            if not is_tracing(start):
                self._check_length(int(start) + length)
            positions = start + torch.arange(length, device=start.device)  # (length,)
            return nn.functional.embedding(positions, self.weight)
        self._check_length(start + length)
        if firsts is None:
            return self.weight[start : start + length]
        positions = torch.arange(length, device=firsts.device) - firsts[:, None]  # (batch, length)
        return nn.functional.embedding(positions.clamp(min=0), self.weight)

    def _check_length(self, length: int) -> None:
        if length > self.max_positions:
            raise TmdeError(
                f"An input of {length} tokens is longer than max_position_embeddings={self.max_positions}; "
                "truncate it, or embed it with DocumentEmbedder, which truncates and says so."
            )


# ---- Texts of a batch


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
) -> torch.Tensor:
    """Returns the ids (batch, length) or the vectors (batch, length, width), whichever were given.

    Raises:
        ValueError: If both or neither were given, or the mask is not (batch, length).
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise TmdeError("Give exactly one of input_ids and inputs_embeds")
    given = input_ids if inputs_embeds is None else inputs_embeds
    if attention_mask is not None and attention_mask.shape != given.shape[:2]:
        found, expected = tuple(attention_mask.shape), tuple(given.shape)
        raise TmdeError(f"attention_mask {found} must be (batch, length) of the input, {expected}")
    return given


def check_position_ids(position_ids: torch.LongTensor, limit: int, training: bool) -> None:
    """Check that the positions that a caller gave are within a table of `limit` rows.

    Reading them on the host would make every training step wait for the accelerator, so there they
    are checked in evaluation mode only. A traced graph cannot check them at all.

    Raises:
        ValueError: If one is negative, or not less than `limit`.
    """
    is_on_host = position_ids.device.type == "cpu"
    if position_ids.is_meta or is_tracing(position_ids) or (training and not is_on_host):
        return
    is_outside = (position_ids < 0) | (position_ids >= limit)
    if is_outside.any():
        position = int(position_ids[is_outside][0])
        raise TmdeError(
            f"position_ids: found {position}, expected 0 to {limit - 1}, the positions for which the model has vectors"
        )


def first_places(attention_mask: torch.Tensor) -> torch.LongTensor:
    """(batch,) position of the first token of each text, after any padding on the left."""
    return attention_mask.ne(0).long().argmax(dim=1)


def pool_states(states: torch.Tensor, real: torch.Tensor, pooling: str) -> torch.Tensor:
    """The embedding (batch, width) of states (batch, length, width) at the tokens of each text.

    Args:
        real: (batch, length), true or 1 at tokens.
        pooling: `"mean"`, `"max"`, or the state of the first token: `"first"`, `"cls"`.
    """
    if pooling not in ("mean", "max"):
        return states[torch.arange(len(states), device=states.device), first_places(real)]
    padding = real.eq(0).unsqueeze(2)  # (batch, length, 1)
    if pooling == "max":
        return states.masked_fill(padding, -torch.inf).max(dim=1).values
    total = states.masked_fill(padding, 0).sum(
        dim=1, dtype=torch.promote_types(states.dtype, torch.float32)
    )
    return (total / real.ne(0).sum(dim=1, keepdim=True).clamp(min=1)).to(states.dtype)


def resized_token_weights(weights: nn.Parameter, size: int) -> nn.Parameter:
    """The log weights of the tokens of a bag for a vocabulary of `size`; new tokens get the median weight."""
    new = weights.detach().median().repeat(size)
    kept = min(len(weights), size)
    new[:kept] = weights.detach()[:kept]
    return nn.Parameter(new, requires_grad=weights.requires_grad)


def occurrences(input_ids: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """How often each token occurs in its text.

    Args:
        input_ids: (batch, length).
        counted: (batch, length), true where a token counts.

    Returns:
        (batch, length), at least 1; undefined where a token does not count.
    """
    ids = input_ids.masked_fill(~counted, -1).contiguous()
    ordered = ids.sort(dim=1).values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


def bag_direction(
    config: EmbedderConfig,
    input_ids: torch.LongTensor,
    attention_mask: torch.Tensor | None,
    token_weights: torch.Tensor,
    vectors: torch.Tensor,
) -> torch.Tensor:
    """Unit vectors in the direction of `sum_t exp(w_t) E_t` over the tokens of a text other than special ones; that of
    its first token for a text without others.

    Args:
        config: Has `sublinear_counts`, with which n occurrences of a token count sqrt(n) times together.
        input_ids, attention_mask: (batch, length).
        token_weights: (vocab_size,), the w_t.
        vectors: (batch, length, d_model), the E_t of `input_ids`.

    Returns:
        (batch, d_model).
    """
    counted = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    at_first = torch.arange(len(input_ids), device=input_ids.device), first_places(counted)
    counted = counted.bool()  # (batch, length)
    for special in config.special_token_ids:
        counted = counted & (input_ids != special)
    log_weights = nn.functional.embedding(input_ids, token_weights.unsqueeze(1)).squeeze(2)
    log_weights = log_weights.to(torch.promote_types(log_weights.dtype, torch.float32))
    if config.sublinear_counts:
        log_weights = log_weights - occurrences(input_ids, counted).to(log_weights.dtype).log() / 2
    counted[at_first] |= ~counted.any(dim=1)
    # The direction does not depend on the scale of the weights, and a softmax cannot overflow.
    shares = log_weights.masked_fill(~counted, -torch.inf).softmax(dim=1).to(vectors.dtype)
    return nn.functional.normalize(torch.bmm(shares.unsqueeze(1), vectors).squeeze(1), dim=-1)


class SequenceReader(nn.Module):
    """Base of the encoders with recurrent or convolutional layers (LASER, X-BiLSTM, InferSent): the layers, and how
    the embedding is made of their states. [`LaserConfig`] explains the settings."""

    def make_layers(self, settings: Mapping[str, Any]) -> None:
        """Layers of these settings of [`LaserConfig`], by their names there."""
        self.pooling, width, views = (
            settings["pooling"],
            settings["d_model"],
            settings["attention_views"],
        )
        number, given = settings["encoder_layers"], settings["embedding_dim"]
        if settings["cell"] == "conv":  # the embedding is made of all layers
            width //= number
        if self.pooling == "attention":
            width //= views
            self.attention, self.contexts = (
                nn.Linear(width, width),
                nn.Linear(width, views, bias=False),
            )
        self.layers = nn.ModuleList()
        for index in range(number):
            both = index < number - settings["unidirectional_layers"]
            if settings["cell"] == "conv":
                layer = nn.Conv1d(given, width, kernel_size=3, padding=1)
            else:
                kind = nn.GRU if settings["cell"] == "gru" else nn.LSTM
                layer = kind(given, width // (1 + both), batch_first=True, bidirectional=both)
            self.layers.append(layer)
            given = width

    def read(
        self, vectors: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor], torch.BoolTensor, torch.LongTensor]:
        """
        Args:
            vectors: (batch, length, embedding_dim).
            attention_mask: (batch, length), padding may be anywhere.

        Returns:
            The embedding (batch, d_model); the vectors and the states of every layer, (batch, length, width), with
            padding on the right, where they are undefined; where tokens are in these, (batch, length); and the
            order of their positions, (batch, length).

        Raises:
            ValueError: If a text has no token.
        """
        order, mirrored, lengths = tokens_first(attention_mask)
        rows = torch.arange(len(order), device=order.device)
        real = torch.arange(order.shape[1], device=order.device) < lengths[:, None]
        states = [vectors[rows[:, None], order]]
        for layer in self.layers:
            given = self.dropout(states[-1])
            if isinstance(layer, nn.Conv1d):
                given = given.masked_fill(~real.unsqueeze(2), 0)
                states.append(layer(given.transpose(1, 2)).relu().transpose(1, 2))
            else:
                states.append(read_texts(layer, given, mirrored))
        last = states[-1]
        if self.pooling == "attention":  # thesis 004, section 3.2.2
            scores = self.contexts(torch.tanh(self.attention(last))).masked_fill(
                ~real.unsqueeze(2), -torch.inf
            )
            embedding = (scores.softmax(dim=1).transpose(1, 2) @ last).flatten(
                1
            )  # (batch, views * width)
        elif self.pooling == "last":  # each direction has read the whole text
            half = self.layers[-1].hidden_size
            embedding = torch.cat([last[rows, lengths - 1, :half], last[:, 0, half:]], dim=1)
        else:
            pooled = states[1:] if isinstance(self.layers[-1], nn.Conv1d) else [last]
            embedding = torch.cat(
                [pool_states(state, real, self.pooling) for state in pooled], dim=1
            )
        return embedding, states, real, order


def read_texts(
    layer: nn.LSTM | nn.GRU, states: torch.Tensor, mirrored: torch.LongTensor
) -> torch.Tensor:
    """Runs `layer` over texts padded on the right, (batch, length, width) -> (batch, length, d_model). Outputs at
    padding are undefined.

    Both directions read the tokens first and the padding last, so padding cannot change the states of tokens. Packed
    sequences give the same result, but take twice as long on a CPU, which has no fused kernel for them.

    Args:
        mirrored: (batch, length) positions of the tokens of each text from last to first, then of the padding.
    """
    rows = torch.arange(len(states), device=states.device).unsqueeze(1)
    zeros = states.new_zeros(1, len(states), layer.hidden_size)
    run, start = (torch.lstm, (zeros, zeros)) if isinstance(layer, nn.LSTM) else (torch.gru, zeros)
    outputs = []
    for suffix in ("", "_reverse") if layer.bidirectional else ("",):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(layer, name + suffix) for name in names]
        given = states[rows, mirrored] if suffix else states
        output = run(given, start, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]
        outputs.append(output[rows, mirrored] if suffix else output)
    return torch.cat(outputs, dim=-1)


def tokens_first(
    attention_mask: torch.Tensor,
) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor]:
    """Orders that move padding behind the tokens.

    Returns:
        `order` (batch, length): positions of the tokens of each text, then of its padding. `mirrored` (batch, length):
        in the reordered text, positions of the tokens from last to first, then of the padding. `lengths` (batch,).

    Raises:
        ValueError: If a text has no token.
    """
    real = attention_mask.bool()
    lengths = real.sum(dim=1)
    if not lengths.min():
        raise TmdeError(
            f"Text {int(lengths.argmin())} of the batch has no token: its row of attention_mask is all 0"
        )
    order = real.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    places = torch.arange(real.shape[1], device=real.device)
    mirrored = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    return order, mirrored, lengths


def check_language_ids(
    language_ids: torch.LongTensor | None,
    language: str | None,
    languages: list[str],
    batch_size: int,
) -> torch.LongTensor:
    """Language ids (batch,) of texts, for models with a module for each language.

    Args:
        language_ids: (batch,) or (1,) positions in `languages`.
        language: The language code of all texts, instead of `language_ids`.

    Raises:
        ValueError: If both or neither are given, they do not fit the batch, or the code is unknown.
    """
    if (language is None) == (language_ids is None):
        raise TmdeError(
            "This model has a part for each language: give language_ids (batch,), positions in its languages "
            f"{languages}, or language=, the code of all texts, as in SentenceTransformer.encode(texts, "
            f"language={languages[0]!r})"
        )
    if language is not None:
        if language not in languages:
            raise TmdeError(
                f"language: found {language!r}, expected one of {languages}, the code of all texts of a call; for "
                "texts of several languages give language_ids, or use DocumentEmbedder"
            )
        return torch.tensor([languages.index(language)]).expand(batch_size)
    if language_ids.dim() != 1 or len(language_ids) not in (1, batch_size):
        raise TmdeError(
            f"language_ids {tuple(language_ids.shape)} must be ({batch_size},), one for each text"
        )
    return language_ids.expand(batch_size)


def by_language(
    language_ids: torch.LongTensor,
    languages: list[str],
    parts: nn.ModuleDict,
    apply: Callable[[nn.Module, torch.LongTensor], torch.Tensor],
) -> torch.Tensor:
    """Calls `apply(part, rows)` for every language of a batch, and returns the results in batch order.

    Args:
        language_ids: (batch,) positions in `languages`.
        parts: The module of each language.
        apply: Takes a module and the rows (n,) of its texts, and returns a tensor (n, ...).

    Raises:
        ValueError: If there is no language with this id, or no module for the language.
    """
    rows, results = [], []
    for index in torch.unique(language_ids).tolist():
        code = languages[index] if 0 <= index < len(languages) else None
        if code not in parts:
            raise TmdeError(
                f"language id {index} ({code!r} of languages={languages}): this model has {list(parts)}"
            )
        rows.append((language_ids == index).nonzero().squeeze(1))
        results.append(apply(parts[code], rows[-1]))
    if len(results) == 1:
        return results[0]
    return torch.cat(results).index_select(0, torch.cat(rows).argsort().to(results[0].device))


# ---- Encoder-decoders


class EmbeddingSeq2Seq:
    """
    Mixin for models with a translation decoder. They have an encoder `model`, whose `pooler_output` is the embedding,
    a `decoder` that takes the target language, and an output projection `lm_head`.

    The mixin is the first base and, as transformers requires, `GenerationMixin` the last:
    `class XForConditionalGeneration(EmbeddingSeq2Seq, XPreTrainedModel, GenerationMixin)`.

    Attributes:
        decoder_sees_states: Whether the decoder attends all encoder outputs, not only the embedding.
        decodes_embeddings: Whether the model can generate from an embedding alone.
    """

    decoder_sees_states = False
    decodes_embeddings = True

    def get_encoder(self, modality: str | None = None) -> PreTrainedModel:
        return self.model if modality is None else self

    def get_decoder(self) -> PreTrainedModel:
        return self.decoder

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As in transformers, which resizes the encoder's embeddings and the output, and also the decoder's."""
        self.decoder.resize_token_embeddings(*args, **kwargs)
        return super().resize_token_embeddings(*args, **kwargs)

    def language_ids(
        self, target_language: str | list[str] | torch.LongTensor | None, batch_size: int
    ) -> torch.LongTensor:
        """Ids (batch,) of target languages given as one code, a list of codes, or ids.

        Raises:
            ValueError: If they are missing, unknown, or do not fit the batch.
        """
        known = self.config.languages
        if target_language is None:
            raise TmdeError(
                f"target_language is missing: name the language to decode into, one of {known}"
            )
        if isinstance(target_language, torch.Tensor):
            return target_language.to(self.device).expand(batch_size)
        codes = (
            [target_language] * batch_size
            if isinstance(target_language, str)
            else list(target_language)
        )
        unknown = sorted(set(codes) - set(known))
        if unknown:
            raise TmdeError(
                f"target_language {unknown[0]!r} is unknown to this model; it has {known}"
            )
        if len(codes) != batch_size:
            raise TmdeError(f"target_language names {len(codes)} languages for {batch_size} texts")
        return torch.tensor([known.index(code) for code in codes], device=self.device)

    def mask_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Return a copy of labels with -100 wherever nothing is predicted.

        Args:
            labels: (batch, length), padded on either side with -100 or `pad_token_id`.

        Returns:
            (batch, length), -100 at padding and at the `<s>` that a row begins with.
        """
        targets = labels.masked_fill(labels == self.config.pad_token_id, -100)
        first_columns = first_places(targets != -100).unsqueeze(1)  # (batch, 1)
        first_labels = targets.gather(1, first_columns)  # (batch, 1)
        is_start = first_labels == self.config.decoder_start_token_id
        return targets.scatter(1, first_columns, first_labels.masked_fill(is_start, -100))

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Return the decoder input of labels, which stay as they are.

        In every row `<s>` is read where the first target is predicted, and each target where
        the next one is. A row that begins with `<s>`, as `tokenizer(text_target=...)` writes it,
        has padding at that place: `[<s>, a, b]` gives `[<pad>, <s>, a]`, and `[a, b]` gives
        `[<s>, a]`. `forward` moves such padding behind the row before it decodes.

        Args:
            labels: (batch, length), padded with -100 or `pad_token_id`.

        Returns:
            (batch, length); `logits[:, t]` predict `labels[:, t]`.
        """
        start = self.config.decoder_start_token_id
        first_columns = first_places(self.mask_labels(labels) != -100).unsqueeze(1)  # (batch, 1)
        columns = torch.arange(labels.shape[1], device=labels.device)
        decoder_input_ids = labels.roll(1, dims=1)
        is_padding = (decoder_input_ids == -100) | (columns < first_columns)
        decoder_input_ids = decoder_input_ids.masked_fill(is_padding, self.config.pad_token_id)
        return decoder_input_ids.masked_fill(columns == first_columns, start)

    def translation_loss(
        self,
        logits: torch.Tensor,
        labels: torch.LongTensor,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the cross-entropy per target, where padding and a leading `<s>` are no targets.

        transformers' `Trainer` counts every label that is not -100. If some of the labels here
        are no targets, the same share of `num_items_in_batch` is taken for targets. This is exact
        for one batch; for accumulated batches it is exact if they have the same share of such
        labels, as those of [`TranslationCollator`] have, which has none.

        Args:
            logits: (batch, length, vocab_size).
            labels: (batch, length), padded with -100 or `pad_token_id`.
            num_items_in_batch: Labels of all accumulated batches; those of `labels` if None.
        """
        targets = self.mask_labels(labels)
        flat_logits = logits.flatten(0, 1).float()  # (batch * length, vocab_size)
        if num_items_in_batch is None:
            return nn.functional.cross_entropy(flat_logits, targets.flatten())
        total = nn.functional.cross_entropy(flat_logits, targets.flatten(), reduction="sum")
        if isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(total.device)
        num_labels = (labels != -100).sum()
        num_targets = (targets != -100).sum().clamp(min=1)
        return total / num_items_in_batch * (num_labels / num_targets)

    def decoder_loss(
        self,
        logits: torch.Tensor,
        labels: torch.LongTensor,
        num_items_in_batch: int | torch.Tensor | None,
        decoder_inputs: dict[str, Any],
    ) -> torch.Tensor:
        """Return the loss of logits that `_decode(**decoder_inputs)` gave."""
        return self.translation_loss(logits, labels, num_items_in_batch)

    def embedding_as_encoder_outputs(self, embedding: torch.Tensor) -> BaseModelOutputWithPooling:
        """Embeddings (batch, d_model) as encoder outputs of length 1.

        Raises:
            ValueError: If the decoder needs more than the embedding.
        """
        if not self.decodes_embeddings:
            raise TmdeError(
                f"{type(self).__name__} decodes from the outputs of its encoder for every token, which an embedding "
                f"alone ({tuple(embedding.shape)}) does not give; pass input_ids, or what get_encoder() returned"
            )
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None], pooler_output=embedding
        )

    def as_encoder_outputs(
        self, encoder_outputs: ModelOutput | tuple | torch.Tensor
    ) -> BaseModelOutputWithPooling:
        """Return encoder outputs of any form with the embedding as `pooler_output`.

        Args:
            encoder_outputs: Output of `get_encoder()`, an output or a tuple whose first entry is
                `last_hidden_state` with the embedding at position 0, or embeddings
                (batch, d_model).

        Raises:
            ValueError: If the decoder needs more than the last hidden state.
        """
        if isinstance(encoder_outputs, torch.Tensor):
            return self.embedding_as_encoder_outputs(encoder_outputs)
        if isinstance(encoder_outputs, tuple):
            encoder_outputs = BaseModelOutput(last_hidden_state=encoder_outputs[0])
        if encoder_outputs.get("pooler_output") is not None:
            return encoder_outputs
        states = encoder_outputs["last_hidden_state"]  # (batch, length, d_model)
        embedding = self.embedding_as_encoder_outputs(states[:, 0]).pooler_output
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=embedding,
            hidden_states=encoder_outputs.get("hidden_states"),
            attentions=encoder_outputs.get("attentions"),
        )

    def _leading_padding(self, decoder_input_ids: torch.LongTensor) -> torch.LongTensor | None:
        """Return how much padding each row begins with, (batch,), or None if no row does."""
        if self.config.pad_token_id == self.config.decoder_start_token_id:
            return None  # every row begins with this token
        is_token = decoder_input_ids != self.config.pad_token_id
        if is_token[:, 0].all():
            return None
        return first_places(is_token)

    def _decode(
        self,
        input_ids: torch.LongTensor | None,
        leading_padding: torch.LongTensor | None,
        logits_to_keep: int,
        **decoder_inputs,
    ) -> tuple[torch.Tensor, ModelOutput]:
        """Return the logits (batch, length, vocab_size) and the output of the decoder.

        Decoders count positions from the first column, and recurrent ones read all of a row.
        Padding that rows begin with is therefore moved behind them, and their logits are moved
        back. The logits at such padding are 0, so that no loss has a gradient there.
        """
        if leading_padding is None:
            outputs = self.decoder(input_ids=input_ids, **decoder_inputs)
            return self.lm_head(outputs.last_hidden_state[:, -logits_to_keep:]), outputs
        length = input_ids.shape[1]
        columns = torch.arange(length, device=input_ids.device)
        shifts = leading_padding.unsqueeze(1)  # (batch, 1)
        outputs = self.decoder(
            input_ids=input_ids.gather(1, (columns + shifts) % length), **decoder_inputs
        )
        states = outputs.last_hidden_state  # (batch, length, width)
        rows = torch.arange(len(states), device=states.device).unsqueeze(1)  # (batch, 1)
        states = states[rows, (columns - shifts) % length]
        states = states.masked_fill((columns < shifts).unsqueeze(2), 0)
        return self.lm_head(states[:, -logits_to_keep:]), outputs

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: ModelOutput | tuple | torch.Tensor | None = None,
        past_key_values: object | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        target_language: str | list[str] | torch.LongTensor | None = None,
        language_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        bottleneck_only: bool = False,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, inputs_embeds, attention_mask: (batch, length[, width]), the source; not needed with
                `encoder_outputs`.
            decoder_input_ids, decoder_inputs_embeds: (batch, target_length[, width]), beginning with `<s>`; made from
                `labels` when both are missing. Padding before `<s>` is not read, except in
                generation. With `past_key_values`, only the new ones.
            encoder_outputs: Output of `get_encoder()`, an output or a tuple (last_hidden_state,
                ...) whose position 0 is the embedding, or embeddings (batch, d_model).
            labels: (batch, target_length), `tokens </s>`, padded with -100 or `pad_token_id`. The
                `<s>` that a row begins with, as the tokenizer writes it, is no target.
            target_language: Language of the target: one code, one code per text, or ids (batch,).
            language_ids: (batch,) source languages, for models with an encoder per language.
            token_type_ids: (batch, length), for encoders that take them.
            logits_to_keep: Compute the logits of this many last positions only; 0 for all.
            num_items_in_batch: Labels of all accumulated batches, as transformers' `Trainer`
                counts them, to divide the loss by; see [`EmbeddingSeq2Seq.translation_loss`].
                Default: the targets of this batch.
            bottleneck_only: For `TmdeConfig(bottleneck="dual")`: decode from the embedding alone.

        Returns:
            `logits` (batch, target_length, vocab_size), where `logits[:, t]` predict `labels[:, t]`, and with
            `labels` the mean cross-entropy per target token.

        Raises:
            ValueError: If there is nothing to decode, or the target language is missing or unknown.
        """
        if encoder_outputs is None:
            source = {
                "language_ids": language_ids,
                "token_type_ids": token_type_ids,
                "inputs_embeds": inputs_embeds,
            }
            source = {name: value for name, value in source.items() if value is not None}
            source |= {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "return_dict": True,
            }
            encoder_outputs = self.model(**source, **kwargs)
        else:
            if isinstance(encoder_outputs, torch.Tensor):
                attention_mask = None  # it is that of the tokens, and an embedding is one slot
            encoder_outputs = self.as_encoder_outputs(encoder_outputs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise TmdeError("Give decoder_input_ids, or labels to make them from")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        leading_padding = None
        generates = labels is None and use_cache
        is_continued = past_key_values is not None or decoder_attention_mask is not None
        if decoder_input_ids is not None and not (generates or is_continued):
            leading_padding = self._leading_padding(decoder_input_ids)
        if use_cache is None:
            is_inference = labels is None and leading_padding is None
            use_cache = is_inference and getattr(self.config, "use_cache", False)
        embedding = encoder_outputs.pooler_output
        decoder_inputs = {
            "input_ids": decoder_input_ids,
            "leading_padding": leading_padding,
            "logits_to_keep": logits_to_keep,
            "inputs_embeds": decoder_inputs_embeds,
            "embedding": embedding,
            "language_ids": self.language_ids(target_language, len(embedding)),
            "encoder_hidden_states": encoder_outputs.get(
                "memory", encoder_outputs.last_hidden_state
            ),
            "encoder_attention_mask": attention_mask,
            "attention_mask": decoder_attention_mask,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
            "bottleneck_only": bottleneck_only,
            "return_dict": True,
            **kwargs,
        }
        logits, outputs = self._decode(**decoder_inputs)
        loss = None
        if labels is not None:
            loss = self.decoder_loss(logits, labels, num_items_in_batch, decoder_inputs)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.get("past_key_values"),
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.get(
                "cross_attentions", None if outputs.attentions is None else ()
            ),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def generate(self, inputs=None, *args, target_language=None, encoder_outputs=None, **kwargs):
        """Translates texts, or decodes `encoder_outputs`, which are as for `forward`: embeddings (batch, d_model) or
        what an encoder returned.

        Arguments as in `GenerationMixin.generate`, and `target_language`: one code, or one code per text.
        """
        if isinstance(encoder_outputs, torch.Tensor):
            encoder_outputs = encoder_outputs.to(self.device, self.dtype)
        if encoder_outputs is not None:
            encoder_outputs = self.as_encoder_outputs(encoder_outputs)
            kwargs["encoder_outputs"] = encoder_outputs
            batch_size = len(encoder_outputs.pooler_output)
        else:
            given = (inputs, kwargs.get("input_ids"), kwargs.get("inputs_embeds"))
            source = next((tensor for tensor in given if tensor is not None), None)
            if source is None:
                raise TmdeError(
                    "Give input_ids to translate, or encoder_outputs to decode embeddings from"
                )
            batch_size = len(source)
        kwargs["target_language"] = self.language_ids(target_language, batch_size)
        return super().generate(inputs, *args, **kwargs)
