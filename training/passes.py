"""From the encoded rows of a batch to what each kind of objective takes: tensors, and no models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from modeling_tmde.training.objectives import (
    Distillation,
    EmbeddingObjective,
    Masked,
    MaskedTextObjective,
    MaskedTokenObjective,
    ObjectiveOutput,
    PairMaskingObjective,
    ParameterObjective,
    TranslationObjective,
)

if TYPE_CHECKING:
    from modeling_tmde.training.parallel_model import ParallelModel


@dataclass
class EncodedRows:
    """
    A batch, and what the encoder made of it.

    input_ids: (languages, rows, length), padded on the right.
    seen: (languages, rows, length), 1 where the encoder read a token.
    lengths: (languages, rows) tokens of each text, on the host.
    languages: Codes of the first dimension.
    needed: Which of them were encoded.
    encoded: The encoder's output, texts in the order (needed, rows); None if no objective asked for it.
    embeddings: (needed, rows, d).
    masked: What was hidden from the encoder by a `MaskingObjective`.
    teacher_vectors, taught: (rows, d) and (rows,), what a teacher gave the rows, and which of them; None without one.
    """

    input_ids: torch.LongTensor
    seen: torch.Tensor
    lengths: np.ndarray
    languages: tuple[str, ...]
    needed: list[int]
    encoded: BaseModelOutputWithPooling | None
    embeddings: torch.Tensor | None
    masked: Masked | None
    teacher_vectors: torch.Tensor | None = None
    taught: torch.BoolTensor | None = None


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


def embedding_pass(parallel: "ParallelModel", objective: EmbeddingObjective, rows: EncodedRows) -> ObjectiveOutput:
    embeddings = rows.embeddings
    if objective.takes_context and "context" in rows.encoded:
        embeddings = rows.encoded.context.unflatten(0, embeddings.shape[:2])  # (languages, rows, vectors * d)
    return objective(embeddings, rows.languages) if objective.takes_languages else objective(embeddings)


def teacher_pass(parallel: "ParallelModel", objective: Distillation, rows: EncodedRows) -> ObjectiveOutput:
    return objective(rows.embeddings, rows.teacher_vectors, rows.taught)


def parameter_pass(parallel: "ParallelModel", objective: ParameterObjective, rows: EncodedRows) -> ObjectiveOutput:
    return objective([parameter for parameter in parallel.encoder.parameters() if parameter.requires_grad])


def masked_token_pass(
    parallel: "ParallelModel", objective: MaskedTokenObjective, rows: EncodedRows
) -> ObjectiveOutput:
    model = parallel.model
    states = rows.encoded.token_states.flatten(0, 1).index_select(0, rows.masked.places)  # (tokens, d_model)
    return objective(model.head(states), model.lm_head.weight, rows.masked.targets)


def masked_text_pass(parallel: "ParallelModel", objective: MaskedTextObjective, rows: EncodedRows) -> ObjectiveOutput:
    model = parallel.model
    return objective(model.head(rows.embeddings), model.lm_head.weight, rows.masked, rows.input_ids, rows.seen)


def masked_pair_pass(parallel: "ParallelModel", objective: PairMaskingObjective, rows: EncodedRows) -> ObjectiveOutput:
    model = parallel.model
    pairs = objective.concatenate(rows.input_ids, rows.seen, model.config)
    masked = objective.mask(pairs.input_ids, pairs.attention_mask, model.config)
    encoded = model.model(
        input_ids=masked.input_ids,
        attention_mask=pairs.attention_mask,
        position_ids=pairs.position_ids,
        return_dict=True,
    )
    states = encoded.token_states.flatten(0, 1).index_select(0, masked.places)  # (tokens, d_model)
    return objective(model.head(states), model.lm_head.weight, masked.targets)


def translation_pass(parallel: "ParallelModel", objective: TranslationObjective, rows: EncodedRows) -> ObjectiveOutput:
    """The translation loss of a part of the rows, scaled to all of them."""
    model, lengths, chosen = parallel.model, rows.lengths, slice(None)
    number_of_rows = rows.input_ids.shape[1]
    if parallel.training and objective.row_share < 1:
        drawn = torch.randperm(number_of_rows)[: max(1, round(objective.row_share * number_of_rows))]
        lengths, chosen = lengths[:, drawn.numpy()], drawn.to(rows.input_ids.device)
    input_ids = rows.input_ids[:, chosen]
    directions = translation_directions(rows.languages, model.config.pivot_languages)
    sources = [rows.needed.index(source) for source, _ in directions]
    targets = [target for _, target in directions]
    target_ids = torch.cat([input_ids[target] for target in targets])  # (directions * rows, length)
    target_lengths = lengths[targets].ravel() - 1  # read without the last token, written without the first
    codes = [model.config.languages.index(rows.languages[target]) for target in targets]
    language_ids = torch.tensor(codes).repeat_interleave(input_ids.shape[1])
    places = real_places(target_lengths, target_ids.shape[1] - 1, input_ids.device)  # (tokens,)
    shape = (len(rows.needed), number_of_rows)
    pooled = rows.encoded.pooler_output.unflatten(0, shape)[:, chosen]  # (needed, rows, d_model)
    inputs = {
        "input_ids": target_ids[:, :-1],
        "embedding": torch.cat([pooled[source] for source in sources]),
        "language_ids": language_ids.to(input_ids.device, non_blocking=True),
        "token_indices": places,
    }
    if model.decoder_sees_states:
        states = rows.encoded.get("memory", rows.encoded.last_hidden_state).unflatten(0, shape)
        inputs["encoder_hidden_states"] = states[sources][:, chosen].flatten(0, 1)  # (texts, length, d_model)
        inputs["encoder_attention_mask"] = rows.seen[rows.needed][sources][:, chosen].flatten(0, 1)
    labels = target_ids[:, 1:].flatten().index_select(0, places)  # (tokens,)

    def loss(**kwargs):
        hidden = model.decoder(**inputs, **kwargs, return_dict=True).last_hidden_state  # (tokens, d_model)
        return objective(hidden, model.lm_head.weight, labels)

    output = loss()
    if getattr(model.config, "bottleneck", None) == "dual":
        alone = loss(bottleneck_only=True)
        output.loss = torch.lerp(output.loss, alone.loss, model.config.bottleneck_loss_weight)
        output.components["bottleneck_nll"] = alone.components["nll"]
    if lengths.shape != rows.lengths.shape:
        # The counts are those of all rows: a token of those left out is taken to cost the same.
        factor = float((rows.lengths[targets] - 1).sum() / target_lengths.sum())
        output.loss = output.loss * factor
        output.components = {name: value * factor for name, value in output.components.items()}
    return output


# The first that fits: a PairMaskingObjective is a MaskedTokenObjective too.
PASSES = {
    EmbeddingObjective: embedding_pass,
    Distillation: teacher_pass,
    TranslationObjective: translation_pass,
    ParameterObjective: parameter_pass,
    PairMaskingObjective: masked_pair_pass,
    MaskedTokenObjective: masked_token_pass,
    MaskedTextObjective: masked_text_pass,
}
