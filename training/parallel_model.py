"""The model that data parallelism wraps: it encodes a batch once and computes every objective."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tmde.data.rows import ANCHOR, POSITIVE, triple_texts
from tmde.training.objective_checks import check_objectives, check_triples
from tmde.training.objectives.base import Objective, ObjectiveOutput, check_range
from tmde.training.objectives.encoded_batch import (
    EncodedBatch,
    encode_texts,
    encoder_of,
    make_language_ids,
    sees_states,
)
from tmde.training.objectives.masking import Masked, MaskingObjective
from tmde.training.objectives.targets import decoder_directions, target_columns

if TYPE_CHECKING:
    from tmde.training.batches import ParallelBatch


class ObjectiveDict(nn.ModuleDict):
    """The losses of a model by name."""

    if TYPE_CHECKING:  # The values of `ModuleDict` are modules of any class.

        def __getitem__(self, key: str) -> Objective: ...

        def values(self) -> ValuesView[Objective]:
            """Return the losses."""

        def items(self) -> ItemsView[str, Objective]:
            """Return the losses with their names."""


class ParallelModel(nn.Module):
    """A model of any architecture with its objectives, trained on parallel rows.

    Each language of a batch is encoded once, all languages in one encoder call, and decoded into
    every pivot in one decoder call.

    Args:
        model: An encoder with `pooler_output` whose config names the languages; or a model whose
            encoder is its `model`, with a `decoder` and `lm_head`, or a `head` and `lm_head`.
        objectives: Losses by name. The total is the sum of `weight * loss / count` over them.
        token_dropout: In training, the probability that a token is hidden from the encoder. The
            decoder still predicts the whole text, so an embedding relies on several words of its
            text.
        token_dropout_share: The share of the rows to which token dropout applies.
        triples: The texts of the rows if these are triples, from `triple_texts`; () otherwise.

    Attributes:
        texts: What the texts of a row are called: the languages, premise and hypothesis, or anchor,
            positive and negatives.

    Raises:
        TmdeError: There is no objective, an objective cannot be computed with the model or with
            triples, two objectives mask the input of the same encoder call or relate different
            texts, or a probability is outside [0, 1].
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objectives: Mapping[str, Objective],
        token_dropout: float = 0.0,
        token_dropout_share: float = 1.0,
        triples: Sequence[str] = (),
    ):
        super().__init__()
        check_range("token_dropout", token_dropout, "[0, 1]")
        check_range("token_dropout_share", token_dropout_share, "[0, 1]")
        self.model = model
        self.token_dropout = token_dropout
        self.token_dropout_share = token_dropout_share
        check_objectives(model, objectives, token_dropout)
        self.objectives = ObjectiveDict(objectives)
        self.texts: Sequence[str] = model.config.languages
        for objective in objectives.values():
            objective.build(model.config.hidden_size)
            if objective.requirements.texts is not None:
                self.texts = objective.requirements.texts
        if triples:
            check_triples(objectives)
            self.texts = triples

    # ---- Parts of the model

    @property
    def config(self) -> PreTrainedConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def encoder(self) -> PreTrainedModel:
        """The model itself, or the encoder of a model with a decoder or a head."""
        return encoder_of(self.model)

    @property
    def needs_pivot(self) -> bool:
        """Whether every row must hold a pivot language."""
        return self._requires("pivot")

    @property
    def needs_several_languages(self) -> bool:
        """Whether every row must hold two languages or more."""
        return self._requires("several_languages")

    @property
    def targets(self) -> tuple[str, ...]:
        """What the decoder predicts, see `TranslationObjective`; () without a decoder."""
        for objective in self.objectives.values():
            if objective.requirements.targets:
                return objective.requirements.targets
        return ()

    @property
    def read_texts(self) -> list[str]:
        """The texts of a row that are tokenized: those that are encoded, then target columns."""
        return [*self.texts, *target_columns(self.targets)]

    @property
    def has_named_texts(self) -> bool:
        """Whether the texts of a row are no languages: premise and hypothesis, or triples."""
        return list(self.texts) != list(self.config.languages)

    @property
    def searched_texts(self) -> Sequence[str]:
        """The texts between which retrieval is measured: languages, or anchor and positive.

        A hypothesis does not translate its premise, so none is measured between these.
        """
        if triple_texts(self.texts):
            return (ANCHOR, POSITIVE)
        if self.has_named_texts:
            return ()
        return self.texts

    @property
    def _needs_language_ids(self) -> bool:
        """Whether the encoder has parts of its own for each language."""
        return bool(getattr(self.encoder, "needs_language_ids", False))

    def _requires(self, requirement: str) -> bool:
        """Return whether any objective has one of the requirements that are yes or no."""
        requirements = [objective.requirements for objective in self.objectives.values()]
        return any(getattr(required, requirement) for required in requirements)

    @property
    def _masking_objective(self) -> MaskingObjective | None:
        """The objective that masks the texts that the encoder reads; None if none does."""
        for objective in self.objectives.values():
            if objective.requirements.masked_input:
                assert isinstance(objective, MaskingObjective)  # No other class has `mask`.
                return objective
        return None

    @property
    def unused_parameters(self) -> set[nn.Parameter]:
        """The parameters of a decoder or head that no objective uses."""
        if self._requires("decoder") or self._requires("head"):
            return set()
        # The encoder may share a table with the decoder.
        return set(self.model.parameters()) - set(self.encoder.parameters())

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Return the tables from tokens to vectors and back, and the token weights of a bag."""
        parameters = []
        for module in self.model.modules():
            if isinstance(module, nn.Embedding) and len(module.weight) == self.config.vocab_size:
                parameters.append(module.get_parameter("weight"))
        output_embeddings = self.model.get_output_embeddings()
        if output_embeddings is not None:
            parameters.append(output_embeddings.get_parameter("weight"))
        token_weights = getattr(self.encoder, "token_weights", None)
        if token_weights is not None:
            parameters.append(token_weights)
        return list(dict.fromkeys(parameters))  # A tied parameter is there once.

    # ---- What transformers and accelerate ask a model

    @property
    def _no_split_modules(self) -> list[str]:
        """Layers that FSDP shards one by one.

        The tables, which may be tied, and the rest are one more unit.
        """
        tables = set(self.embedding_parameters())
        candidates = set(self.model._no_split_modules or [])
        names = set()
        for module in self.model.modules():
            name = type(module).__name__
            if name in candidates and tables.isdisjoint(module.parameters()):
                names.add(name)
        return sorted(names)

    def activation_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Turn on the model's activation checkpointing."""
        self.model.activation_checkpointing_enable(*args, **kwargs)

    def gradient_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Turn on activation checkpointing by its name before transformers 5.23."""
        self.model.gradient_checkpointing_enable(*args, **kwargs)

    # ---- The forward pass

    def forward(self, batch: ParallelBatch) -> dict[str, dict[str, torch.Tensor]]:
        """Return for every objective its sums over a batch.

        The differentiable sum is called `"total"`; the others are logged: `"loss"`, and the
        components of the objective.
        """
        encoded = self._encode(batch)
        sums = {}
        for name, objective in self.objectives.items():
            output = objective.compute(encoded)
            if isinstance(output, torch.Tensor):
                output = ObjectiveOutput(output)
            loss = output.loss
            sums[name] = {"total": loss, "loss": loss.detach(), **output.components}
        return sums

    def _encode(self, batch: ParallelBatch) -> EncodedBatch:
        """Hide tokens and encode the languages that any objective requires, in one call."""
        masked = None
        masking = self._masking_objective
        if masking is not None:
            masked = masking.mask(batch.input_ids, batch.attention_mask, self.config)
        encoded = EncodedBatch(
            model=self.model,
            batch=batch,
            attention_mask=self._drop_tokens(batch.input_ids, batch.attention_mask),
            encoded_languages=self._languages_to_encode(batch.languages),
            masked=masked,
        )
        if encoded.encoded_languages:
            encoded.encoder_output = self._call_encoder(encoded, masked)
        return encoded

    def _languages_to_encode(self, languages: Sequence[str]) -> list[int]:
        """Return the indices of all languages, of those that are translated from, or of none."""
        required = {objective.requirements.embeddings for objective in self.objectives.values()}
        if "all" in required:
            return list(range(len(languages)))
        if "sources" in required:
            directions = decoder_directions(self.targets, languages, self.config.pivot_languages)
            return sorted({direction.source for direction in directions})
        return []

    def _call_encoder(
        self, encoded: EncodedBatch, masked: Masked | None
    ) -> BaseModelOutputWithPooling:
        batch = encoded.batch
        indices = encoded.encoded_languages
        input_ids = batch.input_ids if masked is None else masked.input_ids
        attention_mask = encoded.attention_mask
        if len(indices) < len(input_ids):  # Indexing by a list copies it to the device.
            input_ids = input_ids[indices]
            attention_mask = attention_mask[indices]
        options = {}
        if self._needs_language_ids:
            languages = [batch.languages[index] for index in indices]
            options["language_ids"] = make_language_ids(
                self.config, languages, encoded.num_rows, input_ids.device
            )
        all_states = sees_states(self.model) or self._requires("encoder_states")
        return encode_texts(self.model, input_ids, attention_mask, all_states, **options)

    def _drop_tokens(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the mask (languages, rows, length) after token dropout.

        Special tokens and at least one other token of each text stay.
        """
        if not self.training or not self.token_dropout or not self.token_dropout_share:
            return attention_mask
        device = input_ids.device
        in_noisy_row = torch.rand(input_ids.shape[1], device=device) < self.token_dropout_share
        chances = torch.rand(input_ids.shape, device=device)
        candidates = attention_mask.bool()
        for token_id in self.config.special_token_ids:
            candidates = candidates & (input_ids != token_id)
        least_likely = chances.masked_fill(~candidates, -1).argmax(dim=-1, keepdim=True)
        dropped = candidates & in_noisy_row[:, None] & (chances < self.token_dropout)
        dropped = dropped.scatter(-1, least_likely, False)
        return attention_mask.masked_fill(dropped, 0)
