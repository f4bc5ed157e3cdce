"""Causal and masked language modeling: tokens predicted from earlier or from all others."""

from dataclasses import replace

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError
from tmde.training.objectives.base import BatchSizes, ObjectiveOutput, check_range
from tmde.training.objectives.cross_entropy import autocast_operands, cross_entropy_sum
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.masking import (
    Masked,
    MaskingObjective,
    content_tokens,
    hiding_token,
    random_tokens,
)
from tmde.training.objectives.sampling import draw_without_replacement


class TokenPrediction(MaskingObjective):
    """Base class of losses that predict tokens from the encoder's states.

    A subclass says in `mask` what the encoder reads and which tokens are predicted from which
    places.

    Args:
        weight: Factor of this loss in the total.

    Inputs: Outputs of the prediction head (tokens, d_model) at the places that predict, the output
        projection (vocab_size, d_model), and the predicted tokens (tokens,).
    """

    # Texts are read one by one, so rows of one language are enough.
    requirements = replace(MaskingObjective.requirements, several_languages=False)

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the tokens that were chosen before the batch was encoded."""
        masked = encoded.masked
        assert masked is not None  # The requirements ask for it.
        states = encoded.token_states(masked.places)  # (tokens, d_model)
        return self.predict(encoded, states, masked.targets)

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        """Return the cross-entropy of the targets."""
        hidden, weight = autocast_operands(hidden, weight)
        loss = cross_entropy_sum(hidden, weight, targets)
        return ObjectiveOutput(loss, {"loss": loss.detach()})

    def predict(
        self, encoded: EncodedBatch, states: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        """Return the loss of targets (tokens,) that are predicted from states (tokens, d_model)."""
        output: ObjectiveOutput = self(encoded.head(states), encoded.output_projection, targets)
        return output


class CausalLanguageModel(TokenPrediction):
    """Causal language modeling (CLM): the cross-entropy of every token given the tokens before it.

    The encoder must be `causal`. The first token, `<s>`, is not predicted; the last, `</s>`, is.

    Args:
        weight: The factor of this loss in the total.

    Source: Conneau 2019, section 4.3.3.

    Inputs: outputs of the prediction head (tokens, d_model) at the places before the predicted
    tokens, the output projection (vocab_size, d_model), and these tokens (tokens,).

    Raises:
        TmdeError: The encoder is not causal.

    Example:
        ```python
        from tmde import CausalLanguageModel, TmdeEncoderConfig, TmdeEncoderForMaskedLM

        model = TmdeEncoderForMaskedLM(TmdeEncoderConfig(vocab_size=1000, d_model=64, causal=True))
        objective = CausalLanguageModel(weight=0.5)
        objective.check_config(model.config)  # raises unless the encoder is causal
        ```
    """

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of predicted tokens."""
        return sizes.tokens - sizes.texts

    def check_config(self, config: PreTrainedConfig) -> None:
        """Check that the encoder is causal.

        Raises:
            TmdeError: It is not.
        """
        if not config.causal:
            raise TmdeError("objectives.causal_lm needs a causal encoder: set model.causal=true")

    def mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """Hide nothing: the next token is predicted from `places`."""
        has_next_token = nn.functional.pad(attention_mask[..., 1:], (0, 1)).bool()
        places = has_next_token.flatten().nonzero().squeeze(1)
        targets = input_ids.flatten()[places + 1]
        return Masked(input_ids, places, targets, has_next_token)


class MaskedLanguageModel(TokenPrediction):
    """Masked language modeling (MLM): the cross-entropy of hidden tokens.

    Exactly `round(share * tokens)` tokens of a batch, at least one, are chosen at random, without
    special tokens. Of these, `mask_share` become `<mask>`, `random_share` become another
    non-special vocabulary entry, and the rest don't change. All chosen tokens are predicted.
    Conneau (2019) chooses tokens in proportion to the square root of their inverse frequency:
    `frequency_power=0.5`, with frequencies from the batch.

    Args:
        weight: The factor of this loss in the total.
        share: The share of tokens to choose.
        mask_share: The probability that a chosen token becomes `<mask>`.
        random_share: The probability that a chosen token becomes another vocabulary entry.
        frequency_power: Tokens that occur n times in the batch are chosen in proportion to `n **
            -frequency_power`.

    Source: Devlin et al. 2018; Conneau 2019, section 4.3.3.

    Inputs: outputs of the prediction head (tokens, d_model) at the chosen places, the output
    projection (vocab_size, d_model), and the original tokens there (tokens,).

    Raises:
        TmdeError: The share is outside (0, 1], or the shares of chosen tokens are not probabilities
            or exceed 1 together.

    Example:
        ```python
        import torch
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        from tmde import MaskedLanguageModel

        model = AutoModelForMaskedLM.from_pretrained("runs/encoder")
        tokenizer = AutoTokenizer.from_pretrained("runs/encoder")
        texts = ["Das Haus ist alt.", "Die Brücke ist gesperrt."]
        batch = tokenizer(texts, return_tensors="pt", padding=True)

        objective = MaskedLanguageModel()
        masked = objective.mask(batch["input_ids"], batch["attention_mask"], model.config)
        states = model.model(masked.input_ids, batch["attention_mask"]).token_states
        hidden = model.head(states.flatten(0, 1)[masked.places])
        output = objective(hidden, model.lm_head.weight, masked.targets)
        (output.loss / len(masked.targets)).backward()
        ```
    """

    def __init__(
        self,
        weight: float = 1.0,
        share: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        frequency_power: float = 0.0,
    ):
        super().__init__(weight)
        check_range("masked_lm share", share, "(0, 1]")
        check_range("masked_lm frequency_power", frequency_power, "[0, inf)")
        check_range("masked_lm mask_share", mask_share, "[0, 1]")
        check_range("masked_lm random_share", random_share, "[0, 1]")
        check_range("masked_lm mask_share + random_share", mask_share + random_share, "[0, 1]")
        self.share = share
        self.mask_share = mask_share
        self.random_share = random_share
        self.frequency_power = frequency_power

    def num_chosen(self, tokens: int) -> int:
        """Return the number of tokens to predict among this many."""
        if not tokens:
            return 0
        return max(1, round(self.share * tokens))

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of predicted tokens."""
        num_special = 2 * sizes.texts  # Each text has `<s>` and `</s>`.
        return self.num_chosen(sizes.tokens - num_special)

    def mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """Choose tokens and hide most of them."""
        is_content = content_tokens(input_ids, attention_mask, config)
        flat_is_content = is_content.flatten()
        flat_ids = input_ids.flatten()
        number = self.num_chosen(int(is_content.sum()))
        counts = torch.bincount(flat_ids[flat_is_content], minlength=config.vocab_size)
        frequencies = counts[flat_ids]
        chosen = draw_without_replacement(
            flat_is_content, number, inverse_weights=frequencies**self.frequency_power
        )
        places = chosen.sort().values  # (tokens,)
        targets = flat_ids[places]
        shown = self._shown(targets, config)
        masked_ids = flat_ids.index_copy(0, places, shown).view_as(input_ids)
        return Masked(masked_ids, places, targets, is_content)

    def _shown(self, targets: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
        """Return what stands in place of the chosen tokens (tokens,)."""
        fate = torch.rand(targets.shape, device=targets.device)
        is_masked = fate < self.mask_share
        is_replaced = ~is_masked & (fate < self.mask_share + self.random_share)
        shown = targets
        if self.mask_share:
            shown = torch.where(is_masked, hiding_token(config), targets)
        replacements = random_tokens(len(targets), config, targets.device)
        return torch.where(is_replaced, replacements, shown)
