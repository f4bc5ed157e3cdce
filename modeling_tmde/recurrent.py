# SPDX-License-Identifier: Apache-2.0

"""What the families with recurrent layers share: LASER, NTDV and the aligned encoders.

A [`TmdeSequenceReader`] runs LSTM, GRU or convolutional layers over texts and makes an embedding of
their states. `check_language_ids` and `by_language` serve models with a part for each language.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init

from .common import (
    EmbedderPreTrainedModel,
    TmdeError,
    computes_from_weights,
    init_linear,
    pool_states,
    sinusoidal_positions,
)
from .configuration_laser import LaserConfig

__all__ = [
    "TextOrder",
    "TmdeRecurrentPreTrainedModel",
    "TmdeSequenceOutput",
    "TmdeSequenceReader",
    "by_language",
    "check_language_ids",
    "order_texts",
    "read_texts",
    "run_packed",
]


class TmdeRecurrentPreTrainedModel(EmbedderPreTrainedModel):
    """Base of the models with recurrent or convolutional layers."""

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Conv1d):
            init_linear(module)
        elif isinstance(module, (nn.LSTM, nn.GRU)):
            init_gates(module)


def init_gates(module: nn.LSTM | nn.GRU) -> None:
    """Initialize every gate by Xavier's rule, and biases to 0.

    The matrices of the gates are stacked, and the rule holds for each of them. The default of torch
    is a third to a half of its bound, and the signal dies out over six layers.
    """
    for name, parameter in module.named_parameters():
        if name.startswith("weight"):
            bound = (6 / (parameter.shape[1] + module.hidden_size)) ** 0.5
            init.uniform_(parameter, -bound, bound)
            continue
        bias = torch.zeros_like(parameter)
        if isinstance(module, nn.LSTM) and name.startswith("bias_ih"):
            # The forget gate, which is the second of four, starts open.
            bias[module.hidden_size : 2 * module.hidden_size] = 1
        init.copy_(parameter, bias)


# ---- The order in which texts are read


@dataclass
class TextOrder:
    """An order of the positions of every text that puts its padding behind its tokens.

    Attributes:
        positions: (batch, length), the positions of the tokens of each text, then of its padding.
        mirrored: (batch, length), in the reordered text, the positions of the tokens from last to
            first, then of the padding.
        lengths: (batch,), the number of tokens of each text.
        is_token: (batch, length), true at tokens of the reordered text.
    """

    positions: torch.Tensor
    mirrored: torch.Tensor
    lengths: torch.Tensor
    is_token: torch.Tensor

    def apply(self, states: torch.Tensor) -> torch.Tensor:
        """Return states (batch, length, width) with those of the tokens first."""
        return take(states, self.positions)

    def undo(self, states: torch.Tensor) -> torch.Tensor:
        """Return states (batch, length, width) of reordered texts in the order of the input."""
        return take(states, self.positions.argsort(dim=1))


def take(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the states (batch, length, width) of every text at `positions` (batch, length)."""
    rows = torch.arange(len(states), device=states.device).unsqueeze(1)  # (batch, 1)
    return states[rows, positions]


def order_texts(attention_mask: torch.Tensor) -> TextOrder:
    """Return the order of texts whose padding, as `attention_mask` (batch, length), is anywhere.

    Raises:
        ValueError: If a text has no token.
    """
    is_token = attention_mask.bool()
    lengths = is_token.sum(dim=1)  # (batch,)
    if not lengths.min():
        raise TmdeError(
            f"Text {int(lengths.argmin())} of the batch has no token: its row of attention_mask is "
            "all 0"
        )
    is_padding = is_token.logical_not().to(torch.uint8)
    order = is_padding.argsort(dim=1, stable=True)  # (batch, length)
    places = torch.arange(is_token.shape[1], device=is_token.device)  # (length,)
    ends = lengths.unsqueeze(1)  # (batch, 1)
    mirrored = torch.where(places < ends, ends - 1 - places, places)  # (batch, length)
    return TextOrder(order, mirrored, lengths, places < ends)


def read_texts(layer: nn.LSTM | nn.GRU, states: torch.Tensor, order: TextOrder) -> torch.Tensor:
    """Run a layer over texts that are padded on the right.

    Both directions read the tokens first and the padding last, so padding cannot change the states
    of tokens. Packed sequences give the same result, but take twice as long on a CPU, which has no
    fused kernel for them. They are for layers that have to be called: those that are quantized or
    have hooks.

    Args:
        layer: The layer.
        states: (batch, length, width).
        order: The order of the texts.

    Returns:
        (batch, length, width of the layer), undefined at padding.
    """
    kinds = (nn.LSTM, nn.GRU)
    if not any(computes_from_weights(layer, kind) for kind in kinds):
        return run_packed(layer, states, order.lengths.cpu())
    mirrored = order.mirrored
    outputs = _run_direction(layer, states, "")
    if not layer.bidirectional:
        return outputs
    backward = _run_direction(layer, take(states, mirrored), "_reverse")
    return torch.cat([outputs, take(backward, mirrored)], dim=-1)


def run_packed(
    layer: nn.LSTM | nn.GRU, states: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Run a layer over texts that begin at position 0.

    Args:
        layer: The layer.
        states: (batch, length, features).
        lengths: (batch,), on the host, all at least 1.

    Returns:
        (batch, length, width), zeros after the end of a text.
    """
    packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
    outputs, _ = layer(packed)
    padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=states.shape[1])
    return padded


def _run_direction(layer: nn.LSTM | nn.GRU, states: torch.Tensor, suffix: str) -> torch.Tensor:
    """Read states from first to last with the weights of one direction, "" or "_reverse"."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = [getattr(layer, name + suffix) for name in names]
    start = states.new_zeros(1, len(states), layer.hidden_size)  # (1, batch, hidden_size)
    options: dict[str, Any] = {
        "has_biases": True,
        "num_layers": 1,
        "dropout": 0.0,
        "train": torch.is_grad_enabled(),
        "bidirectional": False,
        "batch_first": True,
    }
    if isinstance(layer, nn.LSTM):
        return torch.lstm(states, (start, start), weights, **options)[0]
    return torch.gru(states, start, weights, **options)[0]  # (batch, length, hidden_size)


# ---- Layers and pooling


@dataclass
class TmdeSequenceOutput:
    """What a [`TmdeSequenceReader`] makes of texts.

    Attributes:
        embedding: (batch, d_model).
        states: The token vectors, then the states of every layer, (batch, length, width) each.
            Tokens are first, and the states at padding are undefined.
        order: The order of the positions in the states.
    """

    embedding: torch.Tensor
    states: list[torch.Tensor]
    order: TextOrder

    def states_at_input(self) -> list[torch.Tensor]:
        """Return the states of every layer in the order of the input, with zeros at padding."""
        is_padding = ~self.order.is_token.unsqueeze(2)  # (batch, length, 1)
        return [self.order.undo(states.masked_fill(is_padding, 0)) for states in self.states[1:]]


class TmdeSequenceReader(nn.Module):
    """Base of the encoders with recurrent or convolutional layers: LASER, X-BiLSTM, InferSent.

    It is a base and not a part so that its layers are named `layers.0`, ... in a checkpoint.

    Gated convolutions are those of GatedConvNet (Conneau 2019, section 3.3.3): positions are added
    to the token vectors, and the sigmoid of one half of a convolution's output gates the other
    half. Their residual connections are those of Gehring et al. (2017).
    """

    def make_layers(self, settings: LaserConfig) -> None:
        """Make the layers and, with `pooling="attention"`, the parts of the attention."""
        self.settings = settings
        self.dropout = nn.Dropout(settings.dropout)
        width = settings.layer_width
        if settings.pooling == "attention":
            self.attention = nn.Linear(width, width)
            self.contexts = nn.Linear(width, settings.attention_views, bias=False)
        self.layers = nn.ModuleList()
        num_bidirectional = settings.encoder_layers - settings.unidirectional_layers
        input_width = settings.embedding_dim
        for index in range(settings.encoder_layers):
            self.layers.append(self._make_layer(input_width, width, index < num_bidirectional))
            input_width = width

    def _make_layer(self, input_width: int, width: int, is_bidirectional: bool) -> nn.Module:
        """Make a layer whose states are `width` wide, both directions together."""
        if self.settings.cell == "gated_conv":
            return nn.Conv1d(input_width, 2 * width, kernel_size=3, padding=1)
        if not self.settings.is_recurrent:
            return nn.Conv1d(input_width, width, kernel_size=3, padding=1)
        cell_class = nn.GRU if self.settings.cell == "gru" else nn.LSTM
        hidden_size = width // 2 if is_bidirectional else width
        return cell_class(
            input_width, hidden_size, batch_first=True, bidirectional=is_bidirectional
        )

    def read(self, vectors: torch.Tensor, attention_mask: torch.Tensor) -> TmdeSequenceOutput:
        """Run the layers over token vectors, and make the embedding of their states.

        Args:
            vectors: (batch, length, embedding_dim).
            attention_mask: (batch, length); padding may be anywhere.

        Raises:
            ValueError: If a text has no token.
        """
        order = order_texts(attention_mask)
        vectors = order.apply(vectors)
        if self.settings.cell == "gated_conv":
            length, width = vectors.shape[1:]
            positions = sinusoidal_positions(length, width)
            vectors = vectors * width**0.5 + positions.to(vectors)
        states = [vectors]
        for layer in self.layers:
            layer_input = self.dropout(states[-1])
            if self.settings.cell == "gated_conv":
                convolution = cast(nn.Conv1d, layer)
                gated = self._gated_convolve(convolution, layer_input, order.is_token)
                states.append(_add_residual(states[-1], gated))
            elif self.settings.cell == "conv":
                convolution = cast(nn.Conv1d, layer)
                states.append(self._convolve(convolution, layer_input, order.is_token).relu())
            else:
                recurrent_layer = cast(nn.LSTM | nn.GRU, layer)
                states.append(read_texts(recurrent_layer, layer_input, order))
        return TmdeSequenceOutput(self._pool(states, order), states, order)

    def _convolve(
        self, layer: nn.Conv1d, states: torch.Tensor, is_token: torch.Tensor
    ) -> torch.Tensor:
        """Run a convolution over (batch, length, width); it reads zeros at padding."""
        states = states.masked_fill(~is_token.unsqueeze(2), 0)
        channels = layer(states.transpose(1, 2))  # (batch, channels, length)
        return channels.transpose(1, 2)

    def _gated_convolve(
        self, layer: nn.Conv1d, states: torch.Tensor, is_token: torch.Tensor
    ) -> torch.Tensor:
        """Run a gated convolution over (batch, length, width)."""
        channels = self._convolve(layer, states, is_token)  # (batch, length, 2 * width)
        return nn.functional.glu(channels, dim=2)  # (batch, length, width)

    def _pool(self, states: list[torch.Tensor], order: TextOrder) -> torch.Tensor:
        """Return the embedding (batch, d_model) of token vectors and the states of all layers."""
        if self.settings.joins_layers:
            pooled = [
                pool_states(layer_states, order.is_token, self.settings.pooling)
                for layer_states in states[1:]
            ]
            return torch.cat(pooled, dim=1)
        if self.settings.pooling == "attention":
            return self._attend(states[-1], order.is_token)
        if self.settings.pooling == "last":
            return self._last_states(states[-1], order.lengths)
        return pool_states(states[-1], order.is_token, self.settings.pooling)

    def _attend(self, states: torch.Tensor, is_token: torch.Tensor) -> torch.Tensor:
        """Return one weighted mean a context vector, joined (Conneau 2019, section 3.2.2)."""
        scores = self.contexts(torch.tanh(self.attention(states)))  # (batch, length, views)
        scores = scores.masked_fill(~is_token.unsqueeze(2), -torch.inf)
        shares = scores.softmax(dim=1).transpose(1, 2)  # (batch, views, length)
        return (shares @ states).flatten(1)  # (batch, views * width)

    def _last_states(self, states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the state of each direction that has read the whole text, joined."""
        rows = torch.arange(len(states), device=states.device)
        hidden_size = self.layers[-1].hidden_size
        forward = states[rows, lengths - 1, :hidden_size]  # (batch, hidden_size)
        backward = states[:, 0, hidden_size:]  # (batch, hidden_size), or (batch, 0) without it
        return torch.cat([forward, backward], dim=1)


def _add_residual(states: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """Return the sum of the states before and after a layer, scaled to keep their variance.

    The first layer has no residual connection if token vectors have another width.
    """
    if states.shape != outputs.shape:
        return outputs
    return (states + outputs) * 0.5**0.5


# ---- Models with a part for each language


def check_language_ids(
    language_ids: torch.Tensor | None,
    language: str | None,
    languages: Sequence[str],
    batch_size: int,
) -> torch.Tensor:
    """Return the language ids of texts, (batch,), for models with a part for each language.

    Args:
        language_ids: (batch,) or (1,), positions in `languages`.
        language: The language code of all texts, instead of `language_ids`.
        languages: The codes of the model's languages.
        batch_size: The number of texts.

    Raises:
        ValueError: If both or neither are given, they do not fit the batch, or the code is unknown.
    """
    if (language is None) == (language_ids is None):
        raise TmdeError(
            "This model has separate weights for each language: give language_ids (batch,), "
            f"positions in its languages {languages}, or language=, the code of all texts, as "
            f"in SentenceTransformer.encode(texts, language={languages[0]!r})"
        )
    if language is not None:
        if language not in languages:
            raise TmdeError(
                f"language: found {language!r}, expected one of {languages}; for texts in "
                "several languages, give language_ids or use DocumentEmbedder"
            )
        return torch.tensor([languages.index(language)]).expand(batch_size)
    assert language_ids is not None  # One of both is given.
    if language_ids.dim() != 1 or len(language_ids) not in (1, batch_size):
        raise TmdeError(
            f"language_ids {tuple(language_ids.shape)} must be ({batch_size},), one for each text"
        )
    return language_ids.expand(batch_size)


def by_language(
    language_ids: torch.Tensor,
    languages: Sequence[str],
    parts: nn.ModuleDict,
    apply: Callable[[Any, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Call `apply(part, rows)` for every language of a batch, and join the results in batch order.

    Args:
        language_ids: (batch,), positions in `languages`.
        languages: The codes of the model's languages.
        parts: The module of each language, by its code.
        apply: A function that takes a module and the rows (n,) of its texts, and returns a tensor
            (n, ...).

    Returns:
        (batch, ...).

    Raises:
        ValueError: If there is no language with one of the ids, or no module for the language.
    """
    rows = []
    results = []
    for language_id in torch.unique(language_ids).tolist():
        code = languages[language_id] if 0 <= language_id < len(languages) else None
        if code is None or code not in parts:
            raise TmdeError(
                f"language id {language_id} ({code!r} of languages={languages}): this model has "
                f"{list(parts)}"
            )
        rows_of_language = (language_ids == language_id).nonzero().squeeze(1)
        rows.append(rows_of_language)
        results.append(apply(parts[code], rows_of_language))
    if len(results) == 1:
        return results[0]
    joined = torch.cat(results)
    batch_order = torch.cat(rows).argsort().to(joined.device)
    return joined.index_select(0, batch_order)
