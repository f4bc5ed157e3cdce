"""What data parallelism wraps: one forward that encodes a batch once and hands it to every objective."""

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from modeling_tmde.modeling_tmde import TmdeForConditionalGeneration
from modeling_tmde.packing import LEAST_PADDING
from modeling_tmde.training.objectives import EmbeddingObjective, Objective, ObjectiveOutput, TranslationObjective


def translation_directions(languages: tuple[str, ...], pivot_languages: list[str]) -> list[tuple[int, int]]:
    """(source, target) indices into `languages` for every language into every other pivot (thesis 4.2)."""
    targets = [index for index, language in enumerate(languages) if language in pivot_languages]
    return [(source, target) for target in targets for source in range(len(languages)) if source != target]


def real_places(lengths: np.ndarray, width: int, device: torch.device) -> torch.LongTensor:
    """(tokens,) places of the real tokens in a flattened batch of texts padded on the right.

    Args:
        lengths: (texts,) tokens of each, counted on the host: an accelerator need not be waited for.
        width: What the texts are padded to.
    """
    ends = np.cumsum(lengths)
    shift = np.arange(len(lengths)) * width - (ends - lengths)
    places = torch.from_numpy(np.arange(ends[-1] if len(ends) else 0) + np.repeat(shift, lengths))
    return places.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else places.to(device)


class ParallelModel(nn.Module):
    """
    A T-MDE model or an encoder alone, such as the bag, with its objectives, trained on parallel rows.

    Every language of a batch that any objective needs is encoded once, all in one encoder call; the embedding is
    decoded into every pivot, all in one decoder call.

    Args:
        model: The encoder-decoder, whose decoder is frozen if no objective uses it, or an encoder: a model whose
            output has `pooler_output` and whose config names the languages.
        objectives: Losses by name; the total is the sum of `weight * loss / count` over them.
        token_dropout: In training, the chance with which the encoder does not see a token. What is left of a text
            then stands for words that go with it, in all languages: vectors learn more of their meaning, and rely on
            several words. The decoder writes the whole text.
        token_dropout_share: Share of the rows to which this happens.

    Raises:
        ValueError: If there is no objective, or one needs a decoder that the model lacks, or a share is none.
    """

    def __init__(
        self,
        model: TmdeForConditionalGeneration | PreTrainedModel,
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
        decoding = [name for name, objective in objectives.items() if objective.needs_decoder]
        if decoding and not self.has_decoder:
            raise ValueError(
                f"Objective {decoding[0]!r} needs a decoder, and {type(model).__name__} is an encoder alone: remove "
                f"the objective (objectives.{decoding[0]}=null), or train a model with a decoder "
                "(model.architecture=tmde)"
            )
        if not decoding:
            encoder = {id(parameter) for parameter in self.encoder.parameters()}  # a shared table is the encoder's too
            for parameter in model.parameters():
                if id(parameter) not in encoder:
                    parameter.requires_grad_(False)

    @property
    def config(self):
        return self.model.config

    @property
    def _no_split_modules(self) -> list[str]:
        """Layers that FSDP shards one by one; tables, which may be shared, and all else are one more unit."""
        return list(self.model._no_split_modules or [])

    @property
    def has_decoder(self) -> bool:
        return hasattr(self.model, "decoder")

    @property
    def encoder(self) -> PreTrainedModel:
        """What is called with `input_ids` and `attention_mask` and gives embeddings: a part of the model, or all."""
        return self.model.model if self.has_decoder else self.model

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
        return self.has_decoder and self.config.bottleneck in ("full", "dual")

    @property
    def needs_pivot(self) -> bool:
        """Whether every row must hold a pivot language, which the decoder translates into."""
        return any(objective.needs_decoder for objective in self.objectives.values())

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
    ) -> dict[str, dict[str, torch.Tensor]]:
        """
        Args:
            input_ids, attention_mask: (languages, rows, length), padded on the right.
            languages: Codes in the order of the first dimension.
            lengths: (languages, rows) tokens of each text, on the host; counted from the mask when missing.

        Returns:
            For every objective its differentiable sum under `"total"`, and its components, sums as well.
        """
        if lengths is None:
            lengths = attention_mask.sum(dim=-1).cpu().numpy()
        directions = translation_directions(languages, self.config.pivot_languages)
        needed = sorted({source for source, _ in directions})
        if any(objective.needs_all_embeddings for objective in self.objectives.values()):
            needed = list(range(len(languages)))
        seen = self._drop_tokens(input_ids, attention_mask)
        encoded = self._encode(input_ids, seen, lengths, needed)
        shape = (len(needed), input_ids.shape[1])
        embeddings = encoded.pooler_output.unflatten(0, shape)  # (needed, rows, d_model)
        outputs = {}
        for name, objective in self.objectives.items():
            if isinstance(objective, EmbeddingObjective):
                output = objective(embeddings)
            else:
                states = None
                if self.sees_states:
                    states = encoded.last_hidden_state.unflatten(0, shape)  # (needed, rows, length, d_model)
                output = self._translate(objective, states, embeddings, input_ids, lengths, seen, languages, needed)
            outputs[name] = {"total": output.loss, **output.components}
        return outputs

    def _encode(self, input_ids: torch.Tensor, seen: torch.Tensor, lengths: np.ndarray, needed: list[int]):
        """The encoder's output for the needed languages, texts in the order (needed, rows)."""
        if needed != list(range(len(input_ids))):  # a list as an index is copied to the device
            input_ids, seen, lengths = (part[needed] for part in (input_ids, seen, lengths))
        options = {}
        if self.has_decoder:
            # Only a decoder of every output needs more of the last layer than the embedding.
            options["pooled_only"] = not self.sees_states
            padding = input_ids.numel() - int(lengths.sum())
            if input_ids.device.type != "cpu" and padding > self.least_padding * input_ids.numel():
                options["token_indices"] = real_places(lengths.ravel(), input_ids.shape[-1], input_ids.device)
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

    def _translate(
        self,
        objective: TranslationObjective,
        states: torch.Tensor | None,
        embeddings: torch.Tensor,
        input_ids: torch.Tensor,
        lengths: np.ndarray,
        seen: torch.Tensor,
        languages: tuple[str, ...],
        needed: list[int],
    ) -> ObjectiveOutput:
        """The translation loss of a part of the rows, scaled to all of them."""
        all_lengths, rows = lengths, slice(None)
        if self.training and objective.row_share < 1:
            number = max(1, round(objective.row_share * input_ids.shape[1]))
            chosen = torch.randperm(input_ids.shape[1])[:number]
            lengths, rows = lengths[:, chosen.numpy()], chosen.to(input_ids.device)
        embeddings, input_ids = embeddings[:, rows], input_ids[:, rows]
        directions = translation_directions(languages, self.config.pivot_languages)
        sources = [needed.index(source) for source, _ in directions]
        targets = [target for _, target in directions]
        target_ids = torch.cat([input_ids[target] for target in targets])  # (directions * rows, length)
        target_lengths = lengths[targets].ravel() - 1  # read without the last token, written without the first
        codes = [self.config.languages.index(languages[target]) for target in targets]
        language_ids = torch.tensor(codes).repeat_interleave(input_ids.shape[1])
        places = real_places(target_lengths, target_ids.shape[1] - 1, input_ids.device)  # (tokens,)
        inputs = {
            "input_ids": target_ids[:, :-1],
            "embedding": torch.cat([embeddings[source] for source in sources]),
            "language_ids": language_ids.to(input_ids.device, non_blocking=True),
            "token_indices": places,
        }
        if self.sees_states:
            inputs["encoder_hidden_states"] = states[sources][:, rows].flatten(0, 1)
            inputs["encoder_attention_mask"] = seen[needed][sources][:, rows].flatten(0, 1)
        labels = target_ids[:, 1:].flatten().index_select(0, places)  # (tokens,)

        def loss(**kwargs):
            hidden = self.model.decoder(**inputs, **kwargs, return_dict=True).last_hidden_state  # (tokens, d_model)
            return objective(hidden, self.model.lm_head.weight, labels)

        output = loss()
        if self.config.bottleneck == "dual":
            share = self.config.bottleneck_loss_weight
            alone = loss(bottleneck_only=True)
            output.loss = torch.lerp(output.loss, alone.loss, share)
            output.components["bottleneck_nll"] = alone.components["nll"]
        if lengths.shape != all_lengths.shape:
            # The counts are those of all rows: a token of those left out is taken to cost the same.
            factor = float((all_lengths[targets] - 1).sum() / target_lengths.sum())
            output.loss = output.loss * factor
            output.components = {name: value * factor for name, value in output.components.items()}
        return output
