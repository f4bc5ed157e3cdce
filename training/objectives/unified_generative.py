"""The unified generative task: each text predicts its translation's tokens and its hidden token."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde.bags import occurrences
from tmde.training.objectives.base import ObjectiveOutput
from tmde.training.objectives.cross_entropy import cross_entropy_sum
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.masking import Masked, MaskingObjective, content_tokens, hiding_token
from tmde.training.objectives.sampling import draw_without_replacement


@dataclass
class TokenLabels:
    """q of eq. 3 for every text, as what the text is to the others of its row.

    Attributes:
        shares: q(w) spread evenly over the places of each token w, (languages, rows, length).
        entropies: `sum_w q(w) log q(w)`, (languages, rows).
    """

    shares: torch.Tensor
    entropies: torch.Tensor


class UnifiedGenerativeTask(MaskingObjective):
    """Predict the words of the translation from the vector (Mao et al. 2021, eq. 1-4).

    The loss is `KL(q || p)`. In every row, one token w_t of one text is hidden: the text, then the
    token, is drawn uniformly. p is the softmax over the vocabulary of a text's embedding, through
    the prediction head. The text S_l predicts its translation S_l', which has ||S_l'|| different
    tokens:

    - If w_t was hidden in S_l', `q(w) = 1 / ||S_l'||` for all its tokens, including w_t (eq. 3).
    - If w_t was hidden in S_l, `q(w) = 1 / (2 ||S_l'||)`, and `1/2` more for w_t (eq. 4).

    Special tokens do not count, unless a sentence has no others. In rows with more than two
    languages, every text predicts each of the others.

    Args:
        weight: The factor of this loss in the total; 1 in eq. 7.
        task: `"ugt"`, or one of the tasks it unifies (table 6). `"xtr"`, cross-lingual token-level
            reconstruction, hides nothing and uses q from eq. 3. With `"smlm"`, the single-word
            masked language model, all texts of a row predict only w_t (eq. 1).

    Inputs: outputs of the prediction head for the embeddings (languages, rows, d_model), the output
    projection (vocab_size, d_model), the hidden tokens from `mask`, and the original texts,
    (languages, rows, length), with their mask. The sum has one term per row and pair of languages,
    both directions together, as in eq. 2.

    Example:
        ```python
        import torch

        from tmde import TmdeEncoderConfig, TmdeEncoderForMaskedLM, UnifiedGenerativeTask

        config = TmdeEncoderConfig(vocab_size=1000, d_model=64, mask_token_id=4)
        model = TmdeEncoderForMaskedLM(config)
        input_ids = torch.randint(5, 1000, (2, 8, 12))  # (languages, rows, length)
        attention_mask = torch.ones_like(input_ids)

        objective = UnifiedGenerativeTask()
        masked = objective.mask(input_ids, attention_mask, config)
        shown = masked.input_ids.flatten(0, 1)
        embeddings = model.model(shown, attention_mask.flatten(0, 1)).pooler_output
        hidden = model.head(embeddings).unflatten(0, (2, 8))
        output = objective(hidden, model.lm_head.weight, masked, input_ids, attention_mask)
        ```
    """

    def __init__(self, weight: float = 1.0, task: Literal["ugt", "xtr", "smlm"] = "ugt"):
        super().__init__(weight)
        self.task = task
        self.requirements = replace(
            type(self).requirements, encoder_states=False, masked_input=task != "xtr"
        )

    def mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """Hide one token of every row, except for `"xtr"` and in rows of only special tokens."""
        is_content = content_tokens(input_ids, attention_mask, config)
        if self.task == "xtr":
            nothing = input_ids.new_empty(0)
            return Masked(input_ids, nothing, nothing, is_content)
        has_content = is_content.any(dim=2)  # (languages, rows)
        chosen_texts = draw_without_replacement(has_content, 1, dim=0)  # (1, rows)
        chosen_places = draw_without_replacement(is_content, 1)  # (languages, rows, 1)
        in_chosen_text = torch.zeros_like(has_content).scatter(0, chosen_texts, True)
        at_chosen_place = torch.zeros_like(is_content).scatter(2, chosen_places, True)
        is_chosen = at_chosen_place & in_chosen_text.unsqueeze(2)
        is_hidden = is_content & is_chosen  # At most one place of a row is hidden.
        places = is_hidden.flatten().nonzero().squeeze(1)
        targets = input_ids.flatten()[places]
        masked_ids = input_ids.masked_fill(is_hidden, hiding_token(config))
        return Masked(masked_ids, places, targets, is_content)

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of predictions from the embeddings."""
        input_ids = encoded.batch.input_ids
        attention_mask = encoded.attention_mask
        masked = encoded.masked
        if not self.requirements.masked_input:
            # Another objective may have hidden tokens, which does not concern this one.
            masked = self.mask(input_ids, attention_mask, encoded.model.config)
        hidden = encoded.head(encoded.embeddings)
        output: ObjectiveOutput = self(
            hidden, encoded.output_projection, masked, input_ids, attention_mask
        )
        return output

    def forward(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        masked: Masked,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
    ) -> ObjectiveOutput:
        """Return the loss of all texts."""
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):  # In bf16, the terms cancel.
            hidden = hidden.to(dtype)
            weight = weight.to(dtype)
            if self.task == "smlm":
                loss = self._hidden_word_loss(hidden, weight, masked, input_ids.shape)
            else:
                labels = self._labels(masked, input_ids, attention_mask, dtype)
                loss = self._cross_entropy(hidden, weight, masked, input_ids, labels)
                loss = loss + self._negative_entropy(masked, input_ids, labels)
        return ObjectiveOutput(loss, {"loss": loss.detach()})

    @staticmethod
    def _hidden_word_loss(
        hidden: torch.Tensor, weight: torch.Tensor, masked: Masked, shape: torch.Size
    ) -> torch.Tensor:
        """Return the loss of `"smlm"`: every text predicts its row's hidden token (eq. 1)."""
        languages, rows, length = shape
        row = (masked.places // length) % rows  # (hidden tokens,)
        predictions = hidden[:, row].flatten(0, 1)  # (languages * hidden tokens, d_model)
        targets = masked.targets.repeat(languages)
        return cross_entropy_sum(predictions, weight, targets) * (languages - 1)

    @staticmethod
    def _labels(
        masked: Masked,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        dtype: torch.dtype,
    ) -> TokenLabels:
        """Return q of eq. 3 of every text."""
        without_content = ~masked.is_content.any(dim=2, keepdim=True)
        is_special_only = attention_mask.bool() & without_content
        counted = masked.is_content | is_special_only  # (languages, rows, length)
        flat_counted = counted.flatten(0, 1)
        frequencies = occurrences(input_ids.flatten(0, 1), flat_counted).to(dtype)
        shares = flat_counted / frequencies  # (texts, length)
        shares = shares / shares.sum(dim=1, keepdim=True)
        entropies = torch.xlogy(shares, shares * frequencies).sum(dim=1)  # (texts,)
        return TokenLabels(shares.view(input_ids.shape), entropies.view(input_ids.shape[:2]))

    @staticmethod
    def _cross_entropy(
        hidden: torch.Tensor,
        weight: torch.Tensor,
        masked: Masked,
        input_ids: torch.Tensor,
        labels: TokenLabels,
    ) -> torch.Tensor:
        """Return `-sum_w q(w) log p(w)` over all texts and translations.

        For one label it is the logsumexp of the logits minus the logits weighted by q. The
        cross-entropy of any one token is the same logsumexp minus one logit, so the difference of
        the two is a product of two vectors.
        """
        languages, rows, length = input_ids.shape
        hidden = hidden.flatten(0, 1)  # (texts, d_model)
        # sum_w q(w) E_w of each text's content, (languages, rows, d_model)
        means = nn.functional.embedding_bag(
            input_ids.flatten(0, 1),
            weight,
            mode="sum",
            per_sample_weights=labels.shares.flatten(0, 1),
        ).view(languages, rows, -1)
        # Each text predicts all other texts of its row, (texts, d_model).
        label_vectors = (means.sum(0) - means).flatten(0, 1)
        hiding_texts = masked.places // length  # (hidden tokens,), texts as (languages, rows)
        factors = label_vectors.new_ones(len(label_vectors)).index_fill(0, hiding_texts, 0.5)
        hidden_words = nn.functional.embedding(masked.targets, weight) * ((languages - 1) / 2)
        label_vectors = label_vectors * factors[:, None]
        label_vectors = label_vectors.index_add(0, hiding_texts, hidden_words)

        any_token = input_ids[..., 0].flatten()
        loss = (languages - 1) * cross_entropy_sum(hidden, weight, any_token)
        any_vectors = (languages - 1) * nn.functional.embedding(any_token, weight)
        return loss + (hidden * (any_vectors - label_vectors)).sum()

    @staticmethod
    def _negative_entropy(
        masked: Masked, input_ids: torch.Tensor, labels: TokenLabels
    ) -> torch.Tensor:
        """Return `sum_w q(w) log q(w)` over all labels, of eq. 3 or eq. 4."""
        languages, rows, length = input_ids.shape
        total: torch.Tensor = (languages - 1) * labels.entropies.sum()
        hiding_text = masked.places // length  # (hidden tokens,)
        hiding_language = hiding_text // rows
        row = hiding_text % rows
        # (languages, hidden tokens, length)
        is_target = input_ids[:, row] == masked.targets[:, None]
        # q(w_t) of eq. 3 is not 0 where w_t is in the translation as well.
        # (languages, hidden tokens)
        target_share = (labels.shares[:, row] * is_target).sum(dim=2)
        plain = labels.entropies[:, row]
        # All of q is halved, and w_t gets 1/2 more.
        halved_target = torch.xlogy(target_share / 2, target_share / 2)
        raised_target = torch.xlogy((target_share + 1) / 2, (target_share + 1) / 2)
        halved = plain / 2 - math.log(2) / 2 - halved_target
        change = halved + raised_target - plain
        language = torch.arange(languages, device=row.device)[:, None]
        is_translation = language != hiding_language
        return total + (change * is_translation).sum()
