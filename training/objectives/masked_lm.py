"""Causal and masked language modelling: tokens of a text, predicted from those before them or from all others."""

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError
from tmde.training.objectives.base import (
    BatchSizes,
    Masked,
    MaskingObjective,
    ObjectiveOutput,
    check_range,
)
from tmde.training.objectives.cross_entropy import cross_entropy_sum


def special_ids(config: PreTrainedConfig) -> list[int]:
    """The special tokens that a config names, ascending."""
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    return sorted({config.bos_token_id, config.pad_token_id, config.mask_token_id, *eos} - {None})


def own_tokens(
    ids: torch.LongTensor, attention_mask: torch.Tensor, config: PreTrainedConfig
) -> torch.BoolTensor:
    """Where the tokens of the texts themselves are, neither padding nor special tokens; in the shape of both.

    Raises:
        ValueError: The config has no token that hides others.
    """
    if config.mask_token_id is None:
        raise TmdeError(
            "mask_token_id=None, expected the id of the token that hides others, such as <mask>"
        )
    return attention_mask.bool() & ~torch.isin(
        ids, torch.tensor(special_ids(config), device=ids.device)
    )


def random_tokens(number: int, config: PreTrainedConfig, device: torch.device) -> torch.LongTensor:
    """(number,) entries of the vocabulary, drawn uniformly from those that are not special."""
    specials = special_ids(config)
    drawn = torch.randint(config.vocab_size - len(specials), (number,), device=device)
    for token in specials:  # ascending: what is at or above a special token moves over it
        drawn = drawn + (drawn >= token)
    return drawn


class CausalLanguageModel(MaskingObjective):
    """
    Causal language modelling (CLM): the cross-entropy of every token, predicted from those before it.

    The encoder must be `causal`. A text's first token, `<s>`, is not predicted; its last, `</s>`, is.

    Args:
        weight: Factor of this loss in the total.

    Source: thesis 004, section 4.3.3.

    Inputs: outputs of the prediction head (tokens, d_model) at the places before the predicted tokens, the output
        projection (vocab_size, d_model), and these tokens (tokens,).

    Raises:
        ValueError: The encoder is not causal.
    """

    def count(self, sizes: BatchSizes) -> int:
        return sizes.tokens - sizes.texts

    def mask(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """Hides nothing: `places` are those from which the next token is predicted, which is among `targets`."""
        if not config.causal:
            raise TmdeError(
                "objectives.causal_lm: the encoder sees the tokens to predict: set model.causal=true"
            )
        before = nn.functional.pad(attention_mask[..., 1:], (0, 1)).bool()  # a token follows
        places = before.flatten().nonzero().squeeze(1)
        return Masked(input_ids, places, input_ids.flatten()[places + 1], before)

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
            weight = weight.to(hidden.dtype)
        loss = cross_entropy_sum(hidden, weight, targets)
        return ObjectiveOutput(loss, {"loss": loss.detach()})


class MaskedLanguageModel(CausalLanguageModel):
    """
    Masked language modelling (MLM): the cross-entropy of hidden tokens.

    Of all tokens of a batch, special ones apart, a share is chosen, each with the same chance; of the chosen ones,
    `mask_share` become `<mask>`, `random_share` another entry of the vocabulary (no special one), and the rest stay as
    they are. All chosen ones are predicted.

    Exactly `round(share * tokens)` are chosen, at least one, so that the number of terms is known before a batch is
    encoded. The thesis chooses tokens in proportion to the square root of their inverse frequency, which is
    `frequency_power=0.5` with the frequencies of the batch; BERT and XLM-R do not.

    Args:
        weight: Factor of this loss in the total.
        share: Of the tokens to choose.
        mask_share, random_share: What becomes of the chosen ones, each drawn on its own.
        frequency_power: A token that is n times in the batch is chosen in proportion to `n ** -frequency_power`.

    Source: Devlin et al. 2018; thesis 004, section 4.3.3.

    Inputs: outputs of the prediction head (tokens, d_model) at the chosen places, the output projection
        (vocab_size, d_model), and the tokens that stood there (tokens,).

    Raises:
        ValueError: On a share outside (0, 1], or shares of the chosen tokens that are none or more than 1 together.

    Example:

    ```python
    >>> objective = MaskedLanguageModel()
    >>> masked = objective.mask(input_ids, attention_mask, model.config)
    >>> states = model.model(masked.input_ids, attention_mask).token_states.flatten(0, 1)[masked.places]
    >>> output = objective(model.head(states), model.lm_head.weight, masked.targets)
    >>> (output.loss / len(masked.targets)).backward()
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
        for name, value in (("mask_share", mask_share), ("random_share", random_share)):
            check_range(f"masked_lm {name}", value, "[0, 1]")
        check_range("masked_lm mask_share + random_share", mask_share + random_share, "[0, 1]")
        self.share = share
        self.mask_share = mask_share
        self.random_share = random_share
        self.frequency_power = frequency_power

    def chosen(self, tokens: int) -> int:
        """How many of so many tokens are predicted."""
        return max(1, round(self.share * tokens)) if tokens else 0

    def count(self, sizes: BatchSizes) -> int:
        return self.chosen(sizes.tokens - 2 * sizes.texts)  # each has its `<s>` and `</s>`

    def mask(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        own = own_tokens(input_ids, attention_mask, config)
        number = self.chosen(int(own.sum()))
        flat = input_ids.flatten()
        frequencies = torch.bincount(flat[own.flatten()], minlength=config.vocab_size)[flat]
        # The largest u ** (1 / weight) of independent u are a draw without replacement in proportion to the weights.
        chances = (
            torch.rand(own.numel(), device=own.device).log() * frequencies**self.frequency_power
        )
        places = (
            chances.masked_fill(~own.flatten(), -torch.inf).topk(number).indices.sort().values
        )  # (tokens,)
        targets = flat[places]
        fate = torch.rand(targets.shape, device=targets.device)
        shown = torch.where(fate < self.mask_share, config.mask_token_id, targets)
        replaced = (fate >= self.mask_share) & (fate < self.mask_share + self.random_share)
        shown = torch.where(replaced, random_tokens(number, config, flat.device), shown)
        return Masked(flat.index_copy(0, places, shown).view_as(input_ids), places, targets, own)
