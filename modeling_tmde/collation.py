# SPDX-License-Identifier: Apache-2.0

"""Batches of texts and their translations for the trainers of transformers."""

from dataclasses import dataclass
from typing import Any

from transformers import BatchEncoding, DataCollatorForSeq2Seq

from .common import TmdeError

__all__ = ["TranslationCollator"]


@dataclass
class TranslationCollator(DataCollatorForSeq2Seq):
    """transformers' `DataCollatorForSeq2Seq`, without the `<s>` of labels.

    `tokenizer(text_target=...)` writes `<s>` before a target. A decoder of this package is given it
    and never predicts it, but `Trainer` counts it among the targets by which it divides the loss,
    and label smoothing has a loss for it. With this collator neither sees it.

    Example:
    ```python
    >>> collator = TranslationCollator(tokenizer, model)
    >>> Seq2SeqTrainer(model, arguments, data_collator=collator, train_dataset=rows)
    ```
    """

    def __call__(
        self, features: list[dict[str, Any]], return_tensors: str | None = None
    ) -> BatchEncoding:
        """Return a batch as `DataCollatorForSeq2Seq` does; the features stay as they are.

        Args:
            features: Texts as the tokenizer writes them, with `labels`, if any, as lists or arrays
                (length,).
            return_tensors: The kind of tensors; `"pt"` by default.

        Raises:
            ValueError: If the collator has no model, which tells what a target begins with.
        """
        if self.model is None:
            raise TmdeError("model: found None, expected the model that is trained")
        start_id = self.model.config.decoder_start_token_id
        targets_only = [_without_start(feature, start_id) for feature in features]
        return super().__call__(targets_only, return_tensors)


def _without_start(feature: dict[str, Any], start_id: int) -> dict[str, Any]:
    """Return a feature whose labels do not begin with `<s>`, which has the id `start_id`."""
    labels = feature.get("labels")
    if labels is None or len(labels) == 0:
        return feature
    if labels[0] != start_id:
        return feature
    return {**feature, "labels": labels[1:]}
