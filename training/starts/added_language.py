"""Begin with a checkpoint of fewer languages and an extended tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

import datasets
from transformers import PreTrainedTokenizerBase

from modeling_tmde.tokenization import extend_tokenizer, is_byte_level_bpe
from tmde.training.recipe.architectures import ADAPTED
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.schema import Recipe
from tmde.training.starts.base import STAGE_FOLDER, BegunModel, Rows, Start
from tmde.training.starts.replay import replay_sources
from tmde.training.starts.tokenizers import open_tokenizer_files, texts_by_language

# The number of characters of each language from which new tokens are learned.
LEARNING_CHARACTERS = 5_000_000


@dataclass(frozen=True)
class FromFewerLanguages(Start):
    """Begin with a checkpoint of fewer languages, and with its tokenizer extended for the new ones.

    The extended tokenizer is in `warm_start/` of the run's folder, where `tmde add-language` puts
    it.

    Attributes:
        start: How the run would begin with the checkpoint without new languages.
    """

    start: Start

    def check(self) -> None:
        """Refuse a checkpoint that cannot be trained on."""
        self.start.check()

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the extended tokenizer; the checkpoint's if none was made."""
        extended = self.folder / STAGE_FOLDER
        if (extended / "tokenizer_config.json").is_file():
            return open_tokenizer_files(extended)
        return self.start.tokenizer(rows)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> BegunModel:
        """Return the checkpoint's model with the tokenizer's new entries and the new languages."""
        return self.start.apply(tokenizer)


def extended_tokenizer(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    rows: datasets.Dataset | None,
    new_tokens: int | None,
) -> PreTrainedTokenizerBase:
    """Return a checkpoint's tokenizer with more entries.

    Args:
        recipe: The recipe of the run that adds languages.
        tokenizer: The checkpoint's tokenizer.
        rows: The training rows.
        new_tokens: The number of entries to add; None adds as many for each new language as the old
            ones have on average.

    Raises:
        RecipeError: Entries are asked for, and the tokenizer is not one that this package trained.
    """
    new_languages = replay_sources(recipe).new_languages
    languages = recipe.data.languages
    # The encoders of the Hub keep their tokenizers.
    is_extendable = is_byte_level_bpe(tokenizer) and recipe.architecture != ADAPTED
    if new_tokens is None and is_extendable:
        old_number = len(languages) - len(new_languages)
        new_tokens = len(tokenizer) // old_number * len(new_languages)
    if not new_tokens:
        return tokenizer
    if not is_extendable:
        raise RecipeError(
            f"new_tokens={new_tokens}: the tokenizer of {recipe.warm_start.checkpoint} is not one "
            "that this package trained, and stays as it is; leave --new-tokens out"
        )
    texts = texts_by_language(rows, languages, LEARNING_CHARACTERS, recipe.seed)
    old_texts: dict[str, list[str]] = {}
    new_texts: dict[str, list[str]] = {}
    for language, language_texts in texts.items():
        side = new_texts if language in new_languages else old_texts
        side[language] = list(dict.fromkeys(language_texts))  # Replayed rows are repeated.
    return extend_tokenizer(
        tokenizer, new_texts, new_tokens, old_texts, max_characters=LEARNING_CHARACTERS
    )
