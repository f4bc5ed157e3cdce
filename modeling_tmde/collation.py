# SPDX-License-Identifier: Apache-2.0

"""Batches of texts and their translations for the trainers of transformers."""

from dataclasses import dataclass
from typing import Any

from transformers import BatchEncoding, DataCollatorForSeq2Seq

from .common import EmbedderConfig, TmdeError

__all__ = ["TranslationCollator"]


@dataclass
class TranslationCollator(DataCollatorForSeq2Seq):
    """Batch parallel text for transformers' `Seq2SeqTrainer`.

    This `DataCollatorForSeq2Seq` converts the language codes in a `target_language` column into
    positions in `config.languages`. A model with one pivot language requires no such column.

    It also removes the leading `<s>` from `tokenizer(text_target=...)`, because decoders of this
    package never predict it.

    Example:
        ```python
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        from modeling_tmde import TranslationCollator

        model = AutoModelForSeq2SeqLM.from_pretrained("runs/tmde")
        tokenizer = AutoTokenizer.from_pretrained("runs/tmde")
        collator = TranslationCollator(tokenizer, model)
        row = tokenizer("Das Haus ist alt.", text_target="The house is old.")
        batch = collator([row | {"target_language": "en"}])
        loss = model(**batch).loss
        ```
    """

    def __call__(
        self, features: list[dict[str, Any]], return_tensors: str | None = None
    ) -> BatchEncoding:
        """Return a batch as `DataCollatorForSeq2Seq` does, without changing the features.

        Args:
            features: Texts as the tokenizer writes them, with `labels`, if any, as lists or arrays
                (length,), and `target_language`, if any, as codes or positions in
                `config.languages`.
            return_tensors: The kind of tensors; `"pt"` by default.

        Raises:
            ValueError: The collator has no model, which determines how a target begins, or a target
                language is not one of the model's pivot languages.
        """
        if self.model is None:
            raise TmdeError("model: found None, expected the model to train")
        config = self.model.config
        rows = []
        for feature in features:
            row = _without_start(feature, config.decoder_start_token_id)
            rows.append(_with_language_id(row, config))
        return super().__call__(rows, return_tensors)


def _with_language_id(feature: dict[str, Any], config: EmbedderConfig) -> dict[str, Any]:
    """Return a feature whose target language, if it has one, is a position in `languages`.

    Raises:
        ValueError: If it is the code of a language that is no pivot.
    """
    code = feature.get("target_language")
    if not isinstance(code, str):
        return feature
    if code not in config.pivot_languages:
        raise TmdeError(
            f"target_language: found {code!r}, expected one of the pivot languages "
            f"{config.pivot_languages}"
        )
    return {**feature, "target_language": config.languages.index(code)}


def _without_start(feature: dict[str, Any], start_id: int) -> dict[str, Any]:
    """Return a feature whose labels do not begin with `<s>`, which has the id `start_id`."""
    labels = feature.get("labels")
    if labels is None or len(labels) == 0:
        return feature
    if labels[0] != start_id:
        return feature
    return {**feature, "labels": labels[1:]}
