"""The unified generative task: each text predicts the tokens of its translation, and its own hidden token."""

import math
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde.common import occurrences
from tmde.training.objectives.base import Masked, MaskingObjective, ObjectiveOutput
from tmde.training.objectives.cross_entropy import cross_entropy_sum
from tmde.training.objectives.masked_lm import own_tokens


class UnifiedGenerativeTask(MaskingObjective):
    r"""
    Unified generative task (paper 002, eq. 1-4): `KL(q || p)` of one prediction a text and translation.

    In every row one token w_t of one text is hidden, the text and then the token drawn uniformly. With p the softmax
    over the vocabulary of a text's embedding (through the prediction head) and ||S|| the length of a sentence S,
    the text S_l is to predict its translation S_l':

    - w_t was hidden in S_l': `q(w) = N_w / ||S_l'||`, all tokens of S_l' (w_t too) alike (eq. 3);
    - w_t was hidden in S_l: `q(w) = N_w / (2 ||S_l'||)`, and `1/2` more for w_t (eq. 4).

    N_w is 1 for every token of S_l' whatever its frequency, as in the paper's footnote 3, and ||S_l'|| then the number
    of different tokens. Special tokens are no words of a sentence, unless it has no others. In rows of more than two
    languages, every text predicts each of the others.

    The paper's table 6 compares it with the two tasks that it unifies. `"xtr"`, cross-lingual token-level
    reconstruction: nothing is hidden, and q is that of eq. 3. `"smlm"`, the single-word masked language model: all
    texts of a row predict w_t alone (eq. 1). Its MLM is the objective `masked_lm`, which `"xtr"` can stand beside.

    `sum_w q(w) log p(w)` needs the logits of few entries only, and the normalizer of p comes from
    `cross_entropy_sum`: neither q nor p is ever held for the whole vocabulary.

    Args:
        weight: Factor of this loss in the total; 1 in eq. 7.
        task: `"ugt"`, `"xtr"` or `"smlm"`.

    Inputs: outputs of the prediction head for the embeddings (languages, rows, d_model), the output projection
        (vocab_size, d_model), what `mask` hid, and the texts as they were, (languages, rows, length), with their mask.

    The sum has one term for every row and pair of languages, both directions together, as eq. 2 has it.

    Example:

    ```python
    >>> objective = UnifiedGenerativeTask()
    >>> masked = objective.mask(input_ids, attention_mask, model.config)  # (2, 128, length)
    >>> embeddings = model.model(masked.input_ids.flatten(0, 1), attention_mask.flatten(0, 1)).pooler_output
    >>> hidden = model.head(embeddings).unflatten(0, (2, 128))
    >>> output = objective(hidden, model.lm_head.weight, masked, input_ids, attention_mask)
    >>> loss = objective.weight * output.loss / 128
    ```
    """

    def __init__(self, weight: float = 1.0, task: Literal["ugt", "xtr", "smlm"] = "ugt"):
        super().__init__(weight)
        self.task = task
        self.masks_input = task != "xtr"

    def mask(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """One token of every row becomes `<mask>`; none of a row that has only special tokens, and none for XTR."""
        own = own_tokens(input_ids, attention_mask, config)
        texts = torch.rand(own.shape[:2], device=own.device).masked_fill(~own.any(dim=2), -1.0)
        drawn = torch.zeros_like(texts, dtype=torch.bool).scatter(
            0, texts.argmax(dim=0, keepdim=True), True
        )
        chances = torch.rand(own.shape, device=own.device).masked_fill(~own, -1.0)
        hidden = torch.zeros_like(own).scatter(2, chances.argmax(dim=2, keepdim=True), True)
        hidden &= (
            drawn.unsqueeze(2) & own & self.masks_input
        )  # (languages, rows, length), one place a row
        places = hidden.flatten().nonzero().squeeze(1)
        targets = input_ids.flatten()[places]
        return Masked(input_ids.masked_fill(hidden, config.mask_token_id), places, targets, own)

    def forward(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        masked: Masked,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor,
    ) -> ObjectiveOutput:
        languages, rows, length = input_ids.shape
        counted = masked.own | (attention_mask.bool() & ~masked.own.any(dim=2, keepdim=True))
        with torch.autocast(hidden.device.type, enabled=False):  # the terms below cancel in bf16
            dtype = torch.promote_types(hidden.dtype, torch.float32)
            if self.task == "smlm":
                row = (masked.places // length) % rows  # (hidden tokens,)
                targets = masked.targets.repeat(languages)
                loss = cross_entropy_sum(
                    hidden[:, row].flatten(0, 1).to(dtype), weight.to(dtype), targets
                )
                loss = loss * (languages - 1)
                return ObjectiveOutput(loss, {"loss": loss.detach()})
            hidden, weight = hidden.flatten(0, 1).to(dtype), weight.to(dtype)  # (texts, d_model)
            shares, entropies = self._labels(input_ids.flatten(0, 1), counted.flatten(0, 1), dtype)
            means = nn.functional.embedding_bag(
                input_ids.flatten(0, 1), weight, mode="sum", per_sample_weights=shares
            ).unflatten(
                0, (languages, rows)
            )  # (languages, rows, d_model): sum_w q(w) E_w of a text's own tokens
            wanted = (means.sum(0) - means).flatten(
                0, 1
            )  # (texts, d_model): of all other texts of the row
            texts = masked.places // length  # (hidden tokens,), in the order (languages, rows)
            halves = wanted.new_ones(len(wanted)).index_fill(0, texts, 0.5)
            of_hidden = nn.functional.embedding(masked.targets, weight) * ((languages - 1) / 2)
            wanted = (wanted * halves[:, None]).index_add(0, texts, of_hidden)
            # -sum_w q(w) log p(w) is the logsumexp of the logits minus those that q wants. That of any token is the
            # same logsumexp minus one logit: the difference is a product of two vectors.
            any_token = input_ids[..., 0].flatten()
            loss = (languages - 1) * cross_entropy_sum(hidden, weight, any_token)
            excess = (languages - 1) * nn.functional.embedding(any_token, weight) - wanted
            loss = loss + (hidden * excess).sum()
            loss = loss + self._negative_entropy(
                masked, input_ids, shares.view(input_ids.shape), entropies
            )
        return ObjectiveOutput(loss, {"loss": loss.detach()})

    def _labels(
        self, ids: torch.LongTensor, counted: torch.BoolTensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q of eq. 3 for texts (texts, length), spread over the places of each token, in that shape; and its
        `sum_w q(w) log q(w)`, (texts,)."""
        frequencies = occurrences(ids, counted).to(dtype)
        shares = counted / frequencies
        shares = shares / shares.sum(dim=1, keepdim=True)
        return shares, torch.xlogy(shares, shares * frequencies).sum(dim=1)

    @staticmethod
    def _negative_entropy(
        masked: Masked, input_ids: torch.LongTensor, shares: torch.Tensor, entropies: torch.Tensor
    ) -> torch.Tensor:
        """`sum_w q(w) log q(w)` over all labels, of eq. 3 or eq. 4."""
        languages, rows, length = input_ids.shape
        total = (languages - 1) * entropies.sum()
        own_text, row = (
            (masked.places // length) // rows,
            (masked.places // length) % rows,
        )  # (hidden tokens,)
        found = input_ids[:, row] == masked.targets[:, None]  # (languages, hidden tokens, length)
        there = (shares[:, row] * found).sum(
            dim=2
        )  # q(w_t) of eq. 3: w_t may be in the translation as well
        plain = entropies.view(languages, rows)[:, row]
        # All of q is halved, and w_t gets 1/2 more.
        halved = plain / 2 - math.log(2) / 2 - torch.xlogy(there / 2, there / 2)
        change = (
            halved + torch.xlogy((there + 1) / 2, (there + 1) / 2) - plain
        )  # (languages, hidden tokens)
        others = torch.arange(languages, device=own_text.device)[:, None] != own_text
        return total + (change * others).sum()
