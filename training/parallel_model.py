"""What data parallelism wraps: one forward that encodes a batch once and hands it to every objective."""

import torch
from torch import nn

from modeling_tmde.modeling_tmde import TmdeForConditionalGeneration
from modeling_tmde.training.objectives import EmbeddingObjective, Objective, TranslationObjective


def translation_directions(languages: tuple[str, ...], pivot_languages: list[str]) -> list[tuple[int, int]]:
    """(source, target) indices into `languages` for every language into every other pivot (thesis 4.2)."""
    targets = [index for index, language in enumerate(languages) if language in pivot_languages]
    return [(source, target) for target in targets for source in range(len(languages)) if source != target]


class ParallelModel(nn.Module):
    """
    A T-MDE model with its objectives, trained on parallel rows.

    Every language of a batch that any objective needs is encoded once, all in one encoder call; the embedding is
    decoded into every pivot, all in one decoder call.

    Args:
        model: The encoder-decoder. Its decoder is frozen if no objective uses it.
        objectives: Losses by name; the total is the sum of `weight * loss / count` over them.
    """

    def __init__(self, model: TmdeForConditionalGeneration, objectives: dict[str, Objective]):
        super().__init__()
        if not objectives:
            raise ValueError("At least one objective is needed: add one to the `objectives` of the recipe")
        self.model = model
        self.objectives = nn.ModuleDict(objectives)
        if not any(objective.needs_decoder for objective in objectives.values()):
            encoder = {id(parameter) for parameter in model.model.parameters()}  # a shared table is the encoder's too
            for parameter in model.parameters():
                if id(parameter) not in encoder:
                    parameter.requires_grad_(False)

    @property
    def config(self):
        return self.model.config

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict | None = None, **kwargs) -> None:
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs, **kwargs)

    def activation_checkpointing_enable(self, **kwargs) -> None:
        """The name that transformers calls from 5.23 on."""
        self.model.activation_checkpointing_enable(**kwargs)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, languages: tuple[str, ...]
    ) -> dict[str, dict[str, torch.Tensor]]:
        """
        Args:
            input_ids, attention_mask: (languages, rows, length).
            languages: Codes in the order of the first dimension.

        Returns:
            For every objective its differentiable sum under `"total"`, and its components, sums as well.
        """
        directions = translation_directions(languages, self.config.pivot_languages)
        needed = sorted({source for source, _ in directions})
        if any(objective.needs_all_embeddings for objective in self.objectives.values()):
            needed = list(range(len(languages)))
        encoded = self.model.model(
            input_ids[needed].flatten(0, 1), attention_mask[needed].flatten(0, 1), return_dict=True
        )
        shape = (len(needed), input_ids.shape[1])
        embeddings = encoded.pooler_output.unflatten(0, shape)  # (needed, rows, d_model)
        outputs = {}
        for name, objective in self.objectives.items():
            if isinstance(objective, EmbeddingObjective):
                output = objective(embeddings)
            else:
                states = encoded.last_hidden_state.unflatten(0, shape)  # (needed, rows, length, d_model)
                output = self._translate(objective, states, embeddings, input_ids, attention_mask, languages, needed)
            outputs[name] = {"total": output.loss, **output.components}
        return outputs

    def _translate(
        self, objective: TranslationObjective, states, embeddings, input_ids, attention_mask, languages, needed
    ):
        directions = translation_directions(languages, self.config.pivot_languages)
        sources = [needed.index(source) for source, _ in directions]
        targets = [target for _, target in directions]
        target_ids = input_ids[targets].flatten(0, 1)  # (directions * rows, length)
        codes = [self.config.languages.index(languages[target]) for target in targets]
        language_ids = torch.tensor(codes, device=input_ids.device).repeat_interleave(input_ids.shape[1])
        sees_states = self.config.bottleneck in ("full", "dual")
        inputs = {
            "input_ids": target_ids[:, :-1],
            "embedding": embeddings[sources].flatten(0, 1),
            "language_ids": language_ids,
            "encoder_hidden_states": states[sources].flatten(0, 1) if sees_states else None,
            "encoder_attention_mask": attention_mask[needed][sources].flatten(0, 1) if sees_states else None,
        }
        real = attention_mask[targets].flatten(0, 1)[:, 1:].bool()
        labels = target_ids[:, 1:][real]  # (tokens,)

        def loss(**kwargs):
            hidden = self.model.decoder(**inputs, **kwargs, return_dict=True).last_hidden_state
            return objective(hidden[real], self.model.lm_head.weight, labels)

        output = loss()
        if self.config.bottleneck == "dual":
            share = self.config.bottleneck_loss_weight
            alone = loss(bottleneck_only=True)
            output.loss = torch.lerp(output.loss, alone.loss, share)
            output.components["bottleneck_nll"] = alone.components["nll"]
        return output
