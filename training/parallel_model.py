"""The model that data parallelism wraps: one forward encodes a batch once and computes every objective on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from modeling_tmde import TmdeError
from tmde.training.objectives import (
    Distillation,
    NaturalLanguageInference,
    TranslationLanguageModel,
    base,
)
from tmde.training.objectives.translation import TranslationObjective
from tmde.training.objectives.unified_generative import UnifiedGenerativeTask

if TYPE_CHECKING:
    from tmde.training.batching import ParallelBatch


def translation_directions(
    languages: tuple[str, ...], pivot_languages: list[str]
) -> list[tuple[int, int]]:
    """(source, target) indices into `languages`, for every language into every other pivot (thesis 4.2)."""
    targets = [index for index, language in enumerate(languages) if language in pivot_languages]
    return [
        (source, target)
        for target in targets
        for source in range(len(languages))
        if source != target
    ]


def token_positions(lengths: np.ndarray, width: int, device: torch.device) -> torch.LongTensor:
    """Positions (tokens,) of the real tokens in a flattened batch of texts that are padded on the right to `width`.

    Lengths (texts,) are on the host, so an accelerator is never waited for.
    """
    ends = np.cumsum(lengths)
    shift = np.arange(len(lengths)) * width - (ends - lengths)
    positions = torch.from_numpy(
        np.arange(ends[-1] if len(ends) else 0) + np.repeat(shift, lengths)
    )
    return (
        positions.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else positions.to(device)
    )


@dataclass
class EncodedBatch:
    """
    What the encoder made of a batch.

    Attributes:
        batch: The batch itself.
        attention_mask: (languages, rows, length), 1 where the encoder reads a token.
        encoded: Indices of the languages that are encoded.
        masked: The tokens hidden by an objective with `masks_input`.
        output: The encoder's output, texts in the order (encoded, rows); None if no objective needs it.
        embeddings: (encoded, rows, d_model).
    """

    batch: ParallelBatch
    attention_mask: torch.Tensor
    encoded: list[int]
    masked: base.Masked | None = None
    output: BaseModelOutputWithPooling | None = None
    embeddings: torch.Tensor | None = None


class ParallelModel(nn.Module):
    """
    A model of any architecture with its objectives, trained on parallel rows.

    Each language of a batch is encoded once, all languages in one encoder call, and decoded into every pivot in one
    decoder call.

    Args:
        model: An encoder with `pooler_output` whose config names the languages; or a model whose encoder is its
            `model`, with a `decoder` and `lm_head`, or a `head` and `lm_head`. Parts that no objective uses are
            frozen.
        objectives: Losses by name; the total is the sum of `weight * loss / count` over them.
        token_dropout: In training, the probability that a token is hidden from the encoder. The decoder still predicts
            the whole text, so an embedding relies on several words of its text.
        token_dropout_share: Share of the rows to which token dropout applies.

    Attributes:
        texts: What the texts of a row are called: the languages, or premise and hypothesis.

    Raises:
        ValueError: There is no objective, an objective needs a decoder or head that the model lacks, two objectives
            mask the input of the same encoder call, or a probability is outside [0, 1].
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objectives: dict[str, base.Objective],
        token_dropout: float = 0.0,
        token_dropout_share: float = 1.0,
    ):
        super().__init__()
        base.check_range("token_dropout", token_dropout, "[0, 1]")
        base.check_range("token_dropout_share", token_dropout_share, "[0, 1]")
        if not objectives:
            raise TmdeError(
                "At least one objective is needed: add one to the `objectives` of the recipe"
            )
        self.model = model
        self.objectives = nn.ModuleDict(objectives)
        self.texts = model.config.languages
        for objective in objectives.values():
            objective.build(model.config.hidden_size)
            self.texts = objective.texts or self.texts
        self.token_dropout = token_dropout
        self.token_dropout_share = token_dropout_share
        self._check_objectives()
        self._masking = next(
            (objective for objective in objectives.values() if objective.masks_input), None
        )
        if not any(
            objective.needs_decoder or objective.needs_head for objective in objectives.values()
        ):
            encoder = set(self.encoder.parameters())  # which may share its table with the decoder
            for parameter in set(model.parameters()) - encoder:
                parameter.requires_grad_(False)

    def _check_objectives(self) -> None:
        for name, objective in self.objectives.items():
            part, architecture = (
                ("head", "encoder") if objective.needs_head else ("decoder", "tmde")
            )
            if (objective.needs_head or objective.needs_decoder) and not hasattr(self.model, part):
                raise TmdeError(
                    f"Objective {name!r} needs a {part}, which {type(self.model).__name__} does not have: remove "
                    f"the objective (objectives.{name}=null), or set model.architecture={architecture}"
                )
            if objective.needs_head and self.token_dropout:
                raise TmdeError(
                    f"token_dropout={self.token_dropout} would drop tokens that objective {name!r} predicts: set "
                    "token_dropout=0"
                )
            if isinstance(objective, NaturalLanguageInference) and getattr(
                self.encoder, "needs_language_ids", False
            ):
                raise TmdeError(
                    f"Objective {name!r} needs one shared encoder, not {type(self.model).__name__}"
                )
        masking = [name for name, objective in self.objectives.items() if objective.masks_input]
        if len(masking) > 1:
            raise TmdeError(
                f"Objectives {masking[0]!r} and {masking[1]!r} both mask the encoder's input: remove one"
            )

    @property
    def config(self):
        return self.model.config

    @property
    def encoder(self) -> PreTrainedModel:
        """The model itself, or the encoder of a model with a decoder or a head."""
        return getattr(self.model, "model", self.model)

    @property
    def needs_pivot(self) -> bool:
        """Whether every row must hold a pivot language."""
        return any(objective.needs_pivot for objective in self.objectives.values())

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Tables from tokens to vectors and back, and the token weights of a bag."""
        tables = [
            module.weight for module in self.model.modules() if isinstance(module, nn.Embedding)
        ]
        tables = [table for table in tables if len(table) == self.config.vocab_size]
        output = self.model.get_output_embeddings()
        others = [
            None if output is None else output.weight,
            getattr(self.encoder, "token_weights", None),
        ]
        return list(dict.fromkeys([*tables, *(table for table in others if table is not None)]))

    @property
    def _no_split_modules(self) -> list[str]:
        """Layers that FSDP shards one by one; the tables, which may be tied, and the rest are one more unit."""
        tables, names = set(self.embedding_parameters()), set(self.model._no_split_modules or [])
        layers = [module for module in self.model.modules() if type(module).__name__ in names]
        return sorted(
            {type(layer).__name__ for layer in layers if tables.isdisjoint(layer.parameters())}
        )

    def activation_checkpointing_enable(self, *args, **kwargs) -> None:
        self.model.activation_checkpointing_enable(*args, **kwargs)

    def gradient_checkpointing_enable(
        self, *args, **kwargs
    ) -> None:  # the name before transformers 5.23
        self.model.gradient_checkpointing_enable(*args, **kwargs)

    def forward(self, batch: ParallelBatch) -> dict[str, dict[str, torch.Tensor]]:
        """For every objective its differentiable sum under `"total"`, and its components, sums as well."""
        ids, mask, languages = (
            batch.input_ids,
            batch.attention_mask,
            self._encoded_languages(batch.languages),
        )
        masked = None if self._masking is None else self._masking.mask(ids, mask, self.config)
        encoded = EncodedBatch(batch, self._drop_tokens(ids, mask), languages, masked)
        if languages:
            encoded.output = self._encode(encoded)
            encoded.embeddings = encoded.output.pooler_output.unflatten(
                0, (len(languages), ids.shape[1])
            )
        outputs = {
            name: self._loss(objective, encoded) for name, objective in self.objectives.items()
        }
        return {
            name: {"total": output.loss, **output.components} for name, output in outputs.items()
        }

    def _encoded_languages(self, languages: tuple[str, ...]) -> list[int]:
        """All languages, or those that are translated from, or none."""
        if any(objective.needs_all_embeddings for objective in self.objectives.values()):
            return list(range(len(languages)))
        if not any(objective.needs_decoder for objective in self.objectives.values()):
            return []
        return sorted(
            {source for source, _ in translation_directions(languages, self.config.pivot_languages)}
        )

    def _encode(self, encoded: EncodedBatch) -> BaseModelOutputWithPooling:
        batch, places = encoded.batch, encoded.encoded
        input_ids = batch.input_ids if encoded.masked is None else encoded.masked.input_ids
        attention_mask, rows = encoded.attention_mask, input_ids.shape[1]
        if len(places) < len(input_ids):  # indexing by a list copies the list to the device
            input_ids, attention_mask = input_ids[places], attention_mask[places]
        options = {}
        if self.encoder.config.model_type == "tmde":
            # Only a decoder that sees every state needs more of the last layer than the embedding.
            options["pooled_only"] = not getattr(self.model, "decoder_sees_states", False)
        if getattr(self.encoder, "needs_language_ids", False):
            options["language_ids"] = self._language_ids(
                [batch.languages[i] for i in places], rows, input_ids
            )
        if not getattr(self.config, "reads_bos", True):  # `<s>` is there for the decoder alone
            input_ids, attention_mask = input_ids[..., 1:], attention_mask[..., 1:]
        return self.encoder(
            input_ids.flatten(0, 1), attention_mask.flatten(0, 1), return_dict=True, **options
        )

    def _language_ids(
        self, languages: list[str], rows: int, like: torch.Tensor
    ) -> torch.LongTensor:
        """(languages * rows,) index of each text's language in the config."""
        codes = torch.tensor([self.config.languages.index(language) for language in languages])
        return codes.repeat_interleave(rows).to(like.device, non_blocking=True)

    def _drop_tokens(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The mask after token dropout. Special tokens and at least one other token of each text stay."""
        if not (self.training and self.token_dropout and self.token_dropout_share):
            return attention_mask
        noisy = (
            torch.rand(input_ids.shape[1], device=input_ids.device) < self.token_dropout_share
        )  # (rows,)
        chances = torch.rand(input_ids.shape, device=input_ids.device)
        special = (input_ids == self.config.bos_token_id) | (input_ids == self.config.eos_token_id)
        candidates = attention_mask.bool() & ~special
        kept = chances.masked_fill(~candidates, -1).argmax(dim=-1, keepdim=True)
        dropped = candidates & noisy[:, None] & (chances < self.token_dropout)
        return attention_mask.masked_fill(dropped.scatter(-1, kept, False), 0)

    # ---- What each kind of objective takes

    def _loss(self, objective: base.Objective, encoded: EncodedBatch) -> base.ObjectiveOutput:
        batch, embeddings, output = encoded.batch, encoded.embeddings, encoded.output
        if isinstance(objective, base.EmbeddingObjective):
            if objective.takes_context and "context" in output:
                embeddings = output.context.unflatten(
                    0, embeddings.shape[:2]
                )  # (languages, rows, vectors * d)
            return (
                objective(embeddings, batch.languages)
                if objective.takes_languages
                else objective(embeddings)
            )
        if isinstance(objective, NaturalLanguageInference):
            return objective(embeddings, batch.labels)
        if isinstance(objective, Distillation):
            return objective(embeddings, batch.teacher_vectors, batch.taught)
        if isinstance(objective, TranslationObjective):
            return self._translation(objective, encoded)
        if isinstance(objective, base.ParameterObjective):
            return objective(
                [parameter for parameter in self.encoder.parameters() if parameter.requires_grad]
            )
        head, table, masked = self.model.head, self.model.lm_head.weight, encoded.masked
        if isinstance(objective, UnifiedGenerativeTask):
            if (
                not objective.masks_input
            ):  # what masked language modeling beside it has hidden is not its concern
                masked = objective.mask(batch.input_ids, encoded.attention_mask, self.config)
            return objective(
                head(embeddings), table, masked, batch.input_ids, encoded.attention_mask
            )
        if isinstance(objective, TranslationLanguageModel):
            masked = objective.mask(batch.input_ids, encoded.attention_mask, self.config)
            inputs = {"attention_mask": masked.attention_mask, "position_ids": masked.position_ids}
            output = self.encoder(masked.input_ids, **inputs, return_dict=True)
        states = output.token_states.flatten(0, 1).index_select(
            0, masked.places
        )  # (tokens, d_model)
        return objective(head(states), table, masked.targets)

    def _translation(
        self, objective: TranslationObjective, encoded: EncodedBatch
    ) -> base.ObjectiveOutput:
        """All directions in one decoder call; of a share of the rows (`row_share`), scaled to all of them."""
        model, batch, rows = self.model, encoded.batch, encoded.batch.input_ids.shape[1]
        device = batch.input_ids.device
        lengths, chosen = batch.lengths, slice(None)
        if self.training and objective.row_share < 1:
            drawn = torch.randperm(rows)[: max(1, round(objective.row_share * rows))]
            lengths, chosen = lengths[:, drawn.numpy()], drawn.to(device)
        directions = translation_directions(batch.languages, self.config.pivot_languages)
        sources = [encoded.encoded.index(source) for source, _ in directions]
        targets = [target for _, target in directions]
        target_lengths = (
            lengths[targets].ravel() - 1
        )  # inputs end before the last token, labels begin after `<s>`
        width = int(target_lengths.max())
        target_ids = torch.cat([batch.input_ids[target, chosen, : width + 1] for target in targets])
        positions = token_positions(target_lengths, width, device)
        labels = target_ids[:, 1:].flatten().index_select(0, positions)  # (tokens,)
        inputs = {
            "input_ids": target_ids[:, :-1],  # (directions * rows, width)
            "embedding": torch.cat([encoded.embeddings[source, chosen] for source in sources]),
            "language_ids": self._language_ids(
                [batch.languages[i] for i in targets], lengths.shape[1], target_ids
            ),
        }
        if model.decoder_sees_states:
            states = encoded.output.get("memory", encoded.output.last_hidden_state).unflatten(
                0, (-1, rows)
            )
            masks = [encoded.attention_mask[encoded.encoded[source], chosen] for source in sources]
            inputs["encoder_hidden_states"] = torch.cat(
                [states[source, chosen] for source in sources]
            )
            inputs["encoder_attention_mask"] = torch.cat(masks)

        def loss(**options) -> base.ObjectiveOutput:
            hidden = model.decoder(
                **inputs, **options, return_dict=True
            ).last_hidden_state  # (texts, width, d_model)
            return objective(
                hidden.flatten(0, 1).index_select(0, positions), model.lm_head.weight, labels
            )

        output = loss()
        if getattr(self.config, "bottleneck", None) == "dual":
            bottleneck = loss(bottleneck_only=True)
            output.loss = torch.lerp(
                output.loss, bottleneck.loss, self.config.bottleneck_loss_weight
            )
            output.components["bottleneck_nll"] = bottleneck.components["nll"]
        if lengths.shape != batch.lengths.shape:
            factor = float((batch.lengths[targets] - 1).sum() / target_lengths.sum())
            output.loss = output.loss * factor
            output.components = {name: value * factor for name, value in output.components.items()}
        return output
