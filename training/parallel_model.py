"""What data parallelism wraps: one forward that encodes a batch once and hands it to every objective."""

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from modeling_tmde.packing import LEAST_PADDING
from modeling_tmde.training.objectives import MaskingObjective, Objective, PairMaskingObjective
from modeling_tmde.training.passes import PASSES, EncodedRows, real_places, translation_directions


def hides_from_all(objective: Objective) -> bool:
    """Whether what this objective hides is hidden in the encoder call that all share."""
    return isinstance(objective, MaskingObjective) and not isinstance(objective, PairMaskingObjective)


class ParallelModel(nn.Module):
    """
    A model of any architecture with its objectives, trained on parallel rows.

    Every language of a batch that any objective needs is encoded once, all in one encoder call; the embedding is
    decoded into every pivot, all in one decoder call.

    Args:
        model: An encoder, whose output has `pooler_output` and whose config names the languages; or a model whose
            encoder is its `model`, with a `decoder` and `lm_head`, or a `head` and `lm_head`, which are frozen if no
            objective uses them.
        objectives: Losses by name; the total is the sum of `weight * loss / count` over them.
        token_dropout: In training, the chance with which the encoder does not see a token. What is left of a text
            then stands for words that go with it, in all languages: vectors learn more of their meaning, and rely on
            several words. The decoder writes the whole text.
        token_dropout_share: Share of the rows to which this happens.

    Raises:
        ValueError: If there is no objective, or one needs a decoder or a head that the model lacks, or two hide
            tokens from the same encoder call, or a share is none.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objectives: dict[str, Objective],
        token_dropout: float = 0.0,
        token_dropout_share: float = 1.0,
    ):
        super().__init__()
        for name, value in (("token_dropout", token_dropout), ("token_dropout_share", token_dropout_share)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name}={value} must lie between 0 and 1")
        self.least_padding = LEAST_PADDING
        self.token_dropout = token_dropout
        self.token_dropout_share = token_dropout_share
        if not objectives:
            raise ValueError("At least one objective is needed: add one to the `objectives` of the recipe")
        self.model = model
        self.objectives = nn.ModuleDict(objectives)
        self._check_parts()
        self._masking = next((o for o in objectives.values() if hides_from_all(o)), None)
        if not self.decodes and not any(isinstance(o, MaskingObjective) for o in objectives.values()):
            encoder = {id(parameter) for parameter in self.encoder.parameters()}  # a shared table is the encoder's too
            for parameter in model.parameters():
                if id(parameter) not in encoder:
                    parameter.requires_grad_(False)

    def _check_parts(self) -> None:
        """Whether the model has what its objectives ask for."""
        kind = type(self.model).__name__
        masking = []
        for name, objective in self.objectives.items():
            needs = None
            if objective.needs_decoder and not self.has_decoder:
                needs = "a decoder", "model.architecture=tmde"
            elif isinstance(objective, MaskingObjective) and not hasattr(self.model, "head"):
                needs = "a language-model head", "model.architecture=encoder"
            if needs is not None:
                lacks = "is an encoder alone" if self.encoder is self.model else "has none"
                raise ValueError(
                    f"Objective {name!r} needs {needs[0]}, and {kind} {lacks}: remove the objective "
                    f"(objectives.{name}=null), or train a model that has it ({needs[1]})"
                )
            if isinstance(objective, MaskingObjective) and self.token_dropout:
                raise ValueError(
                    f"token_dropout={self.token_dropout} would drop tokens that objective {name!r} is to find: set "
                    "token_dropout=0"
                )
            masking += [name] if hides_from_all(objective) else []
        if len(masking) > 1:
            raise ValueError(
                f"Objectives {masking[0]!r} and {masking[1]!r} would both hide tokens from the same encoder call: "
                "remove one"
            )

    @property
    def config(self):
        return self.model.config

    @property
    def _no_split_modules(self) -> list[str]:
        """Layers that FSDP shards one by one; tables, which may be shared, and all else are one more unit."""
        tables = {id(parameter) for parameter in self.embedding_parameters()}
        named = set(self.model._no_split_modules or [])
        return sorted(
            {
                type(module).__name__
                for module in self.model.modules()
                if type(module).__name__ in named and tables.isdisjoint(map(id, module.parameters()))
            }
        )

    @property
    def has_decoder(self) -> bool:
        return hasattr(self.model, "decoder")

    @property
    def encoder(self) -> PreTrainedModel:
        """What is called with `input_ids` and `attention_mask` and gives embeddings: a part of the model, or all."""
        return getattr(self.model, "model", self.model)

    @property
    def has_parts_by_language(self) -> bool:
        """Whether a batch trains only what belongs to its languages."""
        return getattr(self.encoder, "needs_language_ids", False)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Tables from tokens to vectors and back, and the tokens' weights."""
        modules = [module for module in self.model.modules() if isinstance(module, nn.Embedding)]
        tables = {
            id(module.weight): module.weight for module in modules if module.num_embeddings == self.config.vocab_size
        }
        output = self.model.get_output_embeddings()
        others = [None if output is None else output.weight, getattr(self.encoder, "token_weights", None)]
        tables.update({id(parameter): parameter for parameter in others if parameter is not None})
        return list(tables.values())

    @property
    def sees_states(self) -> bool:
        """Whether the decoder sees every output of the encoder, and not the embedding alone."""
        return self.has_decoder and self.model.decoder_sees_states

    @property
    def decodes(self) -> bool:
        """Whether any objective translates."""
        return any(objective.needs_decoder for objective in self.objectives.values())

    @property
    def needs_pivot(self) -> bool:
        """Whether every row must hold a pivot language, for one that is translated into or compared with."""
        return any(objective.needs_decoder or objective.needs_pivot for objective in self.objectives.values())

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict | None = None, **kwargs) -> None:
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs, **kwargs)

    def activation_checkpointing_enable(self, **kwargs) -> None:
        """The name that transformers calls from 5.23 on."""
        self.model.activation_checkpointing_enable(**kwargs)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        languages: tuple[str, ...],
        lengths: np.ndarray | None = None,
        teacher_vectors: torch.Tensor | None = None,
        taught: torch.Tensor | None = None,
    ) -> dict[str, dict[str, torch.Tensor]]:
        """
        Args:
            input_ids, attention_mask: (languages, rows, length), padded on the right.
            languages: Codes in the order of the first dimension.
            lengths: (languages, rows) tokens of each text, on the host; counted from the mask when missing.
            teacher_vectors, taught: (rows, d) and (rows,), what a teacher gave the rows, and which of them.

        Returns:
            For every objective its differentiable sum under `"total"`, and its components, sums as well.
        """
        if lengths is None:
            lengths = attention_mask.sum(dim=-1).cpu().numpy()
        masked = None if self._masking is None else self._masking.mask(input_ids, attention_mask, self.config)
        seen = self._drop_tokens(input_ids, attention_mask)
        needed = self._needed(languages)
        rows = EncodedRows(input_ids, seen, lengths, languages, needed, None, None, masked, teacher_vectors, taught)
        if rows.needed:
            shown = input_ids if masked is None else masked.input_ids
            rows.encoded = self._encode(shown, seen, lengths, languages, rows.needed)
            shape = (len(rows.needed), input_ids.shape[1])
            rows.embeddings = rows.encoded.pooler_output.unflatten(0, shape)  # (needed, rows, d_model)
        outputs = {}
        for name, objective in self.objectives.items():
            run = next(run for kind, run in PASSES.items() if isinstance(objective, kind))
            output = run(self, objective, rows)
            outputs[name] = {"total": output.loss, **output.components}
        return outputs

    def _needed(self, languages: tuple[str, ...]) -> list[int]:
        """Which languages are encoded: all, or those that are translated from, or none."""
        if any(objective.needs_all_embeddings for objective in self.objectives.values()):
            return list(range(len(languages)))
        if not self.decodes:
            return []
        return sorted({source for source, _ in translation_directions(languages, self.config.pivot_languages)})

    def _encode(
        self,
        input_ids: torch.Tensor,
        seen: torch.Tensor,
        lengths: np.ndarray,
        languages: tuple[str, ...],
        needed: list[int],
    ):
        """The encoder's output for the needed languages, texts in the order (needed, rows)."""
        rows = input_ids.shape[1]
        if needed != list(range(len(input_ids))):  # a list as an index is copied to the device
            input_ids, seen, lengths = (part[needed] for part in (input_ids, seen, lengths))
        options = {}
        if self.encoder.config.model_type == "tmde":
            # Only a decoder of every output needs more of the last layer than the embedding.
            options["pooled_only"] = not self.sees_states
            padding = input_ids.numel() - int(lengths.sum())
            if input_ids.device.type != "cpu" and padding > self.least_padding * input_ids.numel():
                options["token_indices"] = real_places(lengths.ravel(), input_ids.shape[-1], input_ids.device)
        if self.has_parts_by_language:
            codes = torch.tensor([self.config.languages.index(languages[place]) for place in needed])
            options["language_ids"] = codes.repeat_interleave(rows).to(input_ids.device, non_blocking=True)
        if not getattr(self.config, "reads_bos", True):  # it is there for the decoder alone
            input_ids, seen = input_ids[..., 1:], seen[..., 1:]
        return self.encoder(input_ids.flatten(0, 1), seen.flatten(0, 1), return_dict=True, **options)

    def _drop_tokens(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The mask (languages, rows, length) of what the encoder reads: special tokens and one more always stay."""
        if not (self.training and self.token_dropout and self.token_dropout_share):
            return attention_mask
        noisy = torch.rand(input_ids.shape[1], device=input_ids.device) < self.token_dropout_share  # (rows,)
        chances = torch.rand(input_ids.shape, device=input_ids.device)
        special = torch.zeros_like(chances, dtype=torch.bool)
        for token in (self.config.bos_token_id, self.config.eos_token_id):
            special |= input_ids == token
        kept = attention_mask.bool() & ~special
        luckiest = chances.masked_fill(~kept, -1).argmax(dim=-1, keepdim=True)
        dropped = kept & noisy[:, None] & (chances < self.token_dropout)
        return attention_mask.masked_fill(dropped.scatter(-1, luckiest, False), 0)
