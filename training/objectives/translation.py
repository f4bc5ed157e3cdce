"""The translation loss l_mt of eq. 4.21: cross-entropy without all logits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from tmde.training.objectives.base import (
    BatchSizes,
    Objective,
    ObjectiveOutput,
    Requirements,
    check_range,
)
from tmde.training.objectives.cross_entropy import autocast_operands, cross_entropy_sum
from tmde.training.objectives.encoded_batch import EncodedBatch, make_language_ids, sees_states
from tmde.training.objectives.targets import (
    PIVOTS,
    Direction,
    decoder_directions,
    target_names,
)

if TYPE_CHECKING:
    from tmde.training.batches import ParallelBatch


def token_positions(lengths: np.ndarray, width: int, device: torch.device) -> torch.Tensor:
    """Return the positions (tokens,) of the real tokens in a flattened batch of padded texts.

    Args:
        lengths: The real tokens of each text (texts,), on the host, so that an accelerator is never
            waited for.
        width: The length to which all texts are padded on the right.
        device: Where the positions are to be.
    """
    ends = np.cumsum(lengths)
    starts_padded = np.arange(len(lengths)) * width
    starts_packed = ends - lengths
    shifts = np.repeat(starts_padded - starts_packed, lengths)
    positions = torch.from_numpy(np.arange(ends[-1]) + shifts)
    if device.type == "cuda":
        return positions.pin_memory().to(device, non_blocking=True)
    return positions.to(device)


def target_ids(batch: ParallelBatch, direction: Direction) -> torch.Tensor:
    """Return the tokens (rows, length) of the texts to predict, `<s>` and `</s>` among them."""
    if direction.target is None:
        return batch.input_ids[direction.text]
    return batch.targets[direction.target].input_ids[direction.text]


def target_lengths(batch: ParallelBatch, directions: Sequence[Direction]) -> np.ndarray:
    """Return how many tokens `target_ids` has of each text, (directions, rows)."""
    lengths = []
    for direction in directions:
        texts = batch if direction.target is None else batch.targets[direction.target]
        lengths.append(texts.lengths[direction.text])
    return np.stack(lengths)


@dataclass
class DecoderBatch:
    """One decoder call for all directions of a batch.

    Attributes:
        inputs: The arguments of the decoder, texts in the order (directions, rows).
        positions: Where the real tokens are (tokens,) in the decoder's flattened output.
        labels: The tokens (tokens,) to predict there.
    """

    inputs: dict[str, Any]
    positions: torch.Tensor
    labels: torch.Tensor


class TranslationObjective(Objective):
    """Label-smoothed cross-entropy of the decoder.

    By default, it predicts translations (Li, 2021, eq. 4.21). Other `targets`, which require no
    translations, train encoders as in Conneau (2019, section 3.3.3).

    With model probabilities `p`, vocabulary `V` and smoothing `e`, a target token `t` costs `(1 -
    e) * -log p_t + e / V * sum_c -log p_c`.

    Args:
        weight: The factor of this loss in the total. Default: 0.5 (eq. 4.21).
        label_smoothing: The share `e` of the target distributed evenly over the vocabulary.
            Default: 0.1 (Li, 2021, section 4.3.1).
        reduction: `"sum"`: a sentence costs the sum over its tokens (eq. 4.21 as printed), averaged
            over sentences. `"mean"`: the average over tokens.
        row_share: The share of rows to translate in training, sampled for each batch. Their loss is
            scaled up to all rows.
        sampled_vocabulary: In training, the number of random vocabulary entries with which targets
            compete (Jean et al., 2015), which is faster with a large vocabulary. The loss and nll
            of such steps are not comparable with the values on dev rows. None uses the whole
            vocabulary.
        targets: What the decoder predicts from the embedding of a text, one of these or a list:

            - `"pivots"`: the row in every other pivot language.
            - `"self"`: the text itself (an autoencoder). With `"pivots"`, two pivots follow the
              curriculum en-en, en-es, es-es, es-en of Li (2021, footnote 11).
            - `"next"`: the next row of the document in the same language (SkipThought). Rows
              without one are skipped and counted.
            - The name of a column, such as linearized parses (Seq2Tree), which is predicted from
              every language of a row. Rows without one are skipped and counted.

            Except for `"pivots"`, the decoder's language is the encoder's.

    Inputs: decoder states (tokens, d_model) of the real target positions, the output projection
    (vocab_size, d_model), and the targets (tokens,).

    Raises:
        TmdeError: The smoothing or a share is out of range, the sampled vocabulary is empty, or
            there is no target.

    Example:
        ```python
        import torch

        from tmde import TranslationObjective

        hidden = torch.randn(50, 64)  # decoder states of 50 target tokens
        projection = torch.randn(1000, 64)  # (vocab_size, d_model)
        targets = torch.randint(1000, (50,))
        objective = TranslationObjective(label_smoothing=0.1, reduction="mean")
        output = objective(hidden, projection, targets)
        loss = objective.weight * output.loss / len(targets)
        ```
    """

    requirements = Requirements(embeddings="sources", decoder=True, pivot=True)

    def __init__(
        self,
        weight: float = 0.5,
        label_smoothing: float = 0.1,
        reduction: Literal["mean", "sum"] = "mean",
        row_share: float = 1.0,
        sampled_vocabulary: int | None = None,
        targets: str | list[str] = PIVOTS,
    ):
        super().__init__(weight)
        check_range("translation label_smoothing", label_smoothing, "[0, 1)")
        check_range("translation row_share", row_share, "(0, 1]")
        check_range("translation sampled_vocabulary", sampled_vocabulary, "[1, inf)")
        self.label_smoothing = label_smoothing
        self.reduction = reduction
        self.row_share = row_share
        self.sampled_vocabulary = sampled_vocabulary
        self.targets = target_names(targets)
        translates = PIVOTS in self.targets
        self.requirements = replace(
            type(self).requirements,
            pivot=translates,
            several_languages=translates,
            targets=self.targets,
        )

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of target tokens, or of predicted texts."""
        if self.reduction == "mean":
            return sizes.target_tokens
        return sizes.rows * sizes.directions

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Decode all directions in one call and return their loss."""
        if not self.training or self.row_share == 1:
            return self._decode(encoded, self._decoder_batch(encoded, None))
        num_rows = encoded.num_rows
        num_drawn = max(1, round(self.row_share * num_rows))
        rows = torch.randperm(num_rows)[:num_drawn]
        output = self._decode(encoded, self._decoder_batch(encoded, rows))
        return self._scaled_to_all_rows(output, encoded, rows)

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        """Return the loss and the negative log-likelihood of the targets."""
        number = self._sampled_entries(len(weight))
        if number is not None:
            drawn = torch.randint(len(weight), (number,), device=weight.device)
            entries = torch.unique(torch.cat([targets, drawn]))  # The entries ascend.
            weight = nn.functional.embedding(entries, weight)
            targets = torch.searchsorted(entries, targets)
        hidden, weight = autocast_operands(hidden, weight)
        nll = cross_entropy_sum(hidden, weight, targets)
        loss = nll
        if self.label_smoothing:
            # sum_c -log p_c / V is logsumexp minus the mean logit, and -log p_t is logsumexp minus
            # the target's logit: their difference needs two vectors a token instead of all logits.
            mean_row = weight.mean(0, dtype=torch.float32)  # (d_model,)
            target_rows = nn.functional.embedding(targets, weight).float()  # (tokens, d_model)
            loss = nll + self.label_smoothing * (hidden.float() * (target_rows - mean_row)).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach(), "nll": nll.detach()})

    def _sampled_entries(self, vocab_size: int) -> int | None:
        """Return how many random entries of the vocabulary compete; None if all do."""
        if not self.training or self.sampled_vocabulary is None:
            return None
        if self.sampled_vocabulary >= vocab_size:
            return None
        return self.sampled_vocabulary

    def _directions(self, encoded: EncodedBatch) -> list[Direction]:
        return decoder_directions(
            self.targets, encoded.batch.languages, encoded.model.config.pivot_languages
        )

    def _decoder_batch(self, encoded: EncodedBatch, rows: torch.Tensor | None) -> DecoderBatch:
        """Gather the decoder's inputs and labels for all directions.

        Args:
            encoded: The batch.
            rows: The rows to translate, on the host; None for all.
        """
        batch = encoded.batch
        config = encoded.model.config
        device = batch.input_ids.device
        directions = self._directions(encoded)
        sources = [encoded.encoded_languages.index(direction.source) for direction in directions]
        lengths = target_lengths(batch, directions)  # (directions, rows)
        chosen: slice | torch.Tensor = slice(None)
        if rows is not None:
            lengths = lengths[:, rows.numpy()]
            chosen = rows.to(device)

        # Inputs end before the last token, labels begin after `<s>`.
        label_lengths = lengths.ravel() - 1
        width = int(label_lengths.max())
        positions = token_positions(label_lengths, width, device)
        texts = []
        for direction in directions:
            ids = target_ids(batch, direction)[chosen, : width + 1]
            missing = width + 1 - ids.shape[1]  # Texts of other targets may be longer.
            texts.append(nn.functional.pad(ids, (0, missing), value=config.pad_token_id))
        decoder_ids = torch.cat(texts)  # (directions * rows, width + 1)
        labels = decoder_ids[:, 1:].flatten().index_select(0, positions)  # (tokens,)

        embeddings = encoded.embeddings
        target_languages = [batch.languages[direction.language] for direction in directions]
        inputs = {
            "input_ids": decoder_ids[:, :-1],
            "embedding": torch.cat([embeddings[source, chosen] for source in sources]),
            "language_ids": make_language_ids(config, target_languages, lengths.shape[1], device),
        }
        if sees_states(encoded.model):
            states = encoded.decoder_memory
            masks = [encoded.attention_mask[direction.source, chosen] for direction in directions]
            inputs["encoder_hidden_states"] = torch.cat(
                [states[source, chosen] for source in sources]
            )
            inputs["encoder_attention_mask"] = torch.cat(masks)
        return DecoderBatch(inputs, positions, labels)

    def _decode(self, encoded: EncodedBatch, decoder_batch: DecoderBatch) -> ObjectiveOutput:
        """Return the loss of one decoder call; of a dual bottleneck that of both its bands."""
        config = encoded.model.config
        output = self._decoder_loss(encoded, decoder_batch)
        if getattr(config, "bottleneck", None) == "dual":
            alone = self._decoder_loss(encoded, decoder_batch, bottleneck_only=True)
            output.loss = torch.lerp(output.loss, alone.loss, config.bottleneck_loss_weight)
            output.components["loss"] = output.loss.detach()
            output.components["bottleneck_nll"] = alone.components["nll"]
        return output

    def _decoder_loss(
        self, encoded: EncodedBatch, decoder_batch: DecoderBatch, **options: bool
    ) -> ObjectiveOutput:
        decoded = encoded.decoder(**decoder_batch.inputs, **options, return_dict=True)
        states = decoded.last_hidden_state.flatten(0, 1)  # (texts * width, d_model)
        hidden = states.index_select(0, decoder_batch.positions)  # (tokens, d_model)
        output: ObjectiveOutput = self(hidden, encoded.output_projection, decoder_batch.labels)
        return output

    def _scaled_to_all_rows(
        self, output: ObjectiveOutput, encoded: EncodedBatch, rows: torch.Tensor
    ) -> ObjectiveOutput:
        """Scale the sums over some rows by the share of the target tokens that these have."""
        # (directions, rows)
        target_tokens = target_lengths(encoded.batch, self._directions(encoded)) - 1
        factor = float(target_tokens.sum() / target_tokens[:, rows.numpy()].sum())
        components = {name: value * factor for name, value in output.components.items()}
        return ObjectiveOutput(output.loss * factor, components)
