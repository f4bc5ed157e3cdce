"""The tokenizer of a run: the recipe names one, or it is made from the training text."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
from accelerate import PartialState
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from modeling_tmde.tokenization import extend_tokenizer, train_tokenizer, unknown_share
from tmde.embedding.loading import errors_about
from tmde.embedding.packaged_models import packaged_folder
from tmde.embedding.progress import phase
from tmde.training.recipe.building import build_config
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.values import RecipeError
from tmde.training.starts.base import Rows

TOKENIZER_FOLDER = "tokenizer"  # A subfolder of the run.
EXTENSION_CHARACTERS = 5_000_000  # The characters of each language from which tokens are added.
CHECKED_CHARACTERS = 200_000  # The characters of a new language that the tokenizer should know.
MOST_UNKNOWN = 0.05
READ_ROWS = 1000  # Rows are read in batches, which is much faster than one by one.
STREAM_BUFFER = 10_000  # The rows of a stream that are shuffled together.


def prepare_tokenizer(recipe: Recipe, rows: Rows | None, folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of `tokenizer.path`, or that of a run's folder, where it is made once.

    Several processes may call this at once: the first one makes the tokenizer.

    Args:
        recipe: The recipe.
        rows: The training rows, from which a new tokenizer is made.
        folder: The folder of the run.
    """
    if recipe.tokenizer.path and not recipe.tokenizer.new_tokens:
        tokenizer = open_tokenizer_files(recipe.tokenizer.path)
        check_reads_new_languages(tokenizer, recipe, rows)
        return tokenizer
    tokenizer_folder = folder / TOKENIZER_FOLDER
    with PartialState().main_process_first():
        if not (tokenizer_folder / "tokenizer_config.json").exists():
            with phase("Training the tokenizer", is_shown=not recipe.training.disable_tqdm):
                tokenizer = _make_tokenizer(recipe, rows)
            check_reads_new_languages(tokenizer, recipe, rows)
            _save_tokenizer(tokenizer, tokenizer_folder)
        return open_tokenizer_files(tokenizer_folder)


def open_tokenizer_files(path: str | os.PathLike) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a folder or of a Hub id."""
    name = packaged_folder(path) or path
    with errors_about(f"tokenizer.path={path}", RecipeError):
        return AutoTokenizer.from_pretrained(name)


def _make_tokenizer(recipe: Recipe, rows: Rows) -> PreTrainedTokenizerBase:
    """Train the tokenizer of a recipe, or extend the one that it names."""
    if recipe.tokenizer.path:
        return _extended_tokenizer(recipe, open_tokenizer_files(recipe.tokenizer.path), rows)
    # A bag reads texts of any length.
    limit = getattr(build_config(recipe), "max_position_embeddings", VERY_LARGE_INTEGER)
    options: dict[str, Any] = {"model_max_length": limit}
    for name, value in recipe.tokenizer.settings().items():
        if name not in ("path", "new_tokens") and value is not None:
            options[name] = value
    max_characters = recipe.tokenizer.max_characters
    texts = texts_by_language(rows, recipe.read_texts, max_characters, recipe.seed)
    return train_tokenizer(texts, **options)


def _extended_tokenizer(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, rows: Rows
) -> PreTrainedTokenizerBase:
    """Return a tokenizer with `tokenizer.new_tokens` more entries, for the languages it lacks."""
    new_languages = recipe.data.languages
    if recipe.data.replay is not None:
        new_languages = recipe.data.replay.new_languages
    texts = texts_by_language(rows, recipe.data.languages, EXTENSION_CHARACTERS, recipe.seed)
    old_texts: dict[str, list[str]] = {}
    new_texts: dict[str, list[str]] = {}
    for language, language_texts in texts.items():
        side = new_texts if language in new_languages else old_texts
        side[language] = list(dict.fromkeys(language_texts))  # Replayed rows are repeated.
    return extend_tokenizer(
        tokenizer,
        new_texts,
        recipe.tokenizer.new_tokens,
        old_texts,
        max_characters=EXTENSION_CHARACTERS,
    )


def check_reads_new_languages(
    tokenizer: PreTrainedTokenizerBase, recipe: Recipe, rows: Rows | None
) -> None:
    """Refuse a language that is added, and of whose characters the tokenizer knows too few.

    Raises:
        RecipeError: It is in a script of which the tokenizer has no tokens.
    """
    if recipe.data.replay is None or rows is None:
        return
    texts = texts_by_language(
        rows, recipe.data.replay.new_languages, CHECKED_CHARACTERS, recipe.seed
    )
    for language, language_texts in texts.items():
        share = unknown_share(tokenizer, language_texts)
        if share > MOST_UNKNOWN:
            raise RecipeError(
                f"{language}: the tokenizer of {recipe.warm_start.checkpoint} does not know "
                f"{share:.0%} of the characters in these texts, expected at most "
                f"{MOST_UNKNOWN:.0%}. Add {language} to `default`, whose tokenizer gets new "
                "tokens (without --new-tokens 0), or use an encoder from the Hub that knows "
                "it"
            )


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a tokenizer into a folder, which is complete when it gets its name."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    tokenizer.save_pretrained(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)


def texts_by_language(
    rows: Rows, languages: Sequence[str], max_characters: int, seed: int
) -> dict[str, list[str]]:
    """Return texts of shuffled rows, until every language has enough characters or the rows end.

    Args:
        rows: Rows with the column `translation`.
        languages: The languages, or other names of a row's texts.
        max_characters: The number of characters that are enough.
        seed: The seed of the shuffling.
    """
    texts: dict[str, list[str]] = {language: [] for language in languages}
    sizes = dict.fromkeys(languages, 0)
    buffer = {} if isinstance(rows, datasets.Dataset) else {"buffer_size": STREAM_BUFFER}
    for batch in rows.shuffle(seed=seed, **buffer).iter(batch_size=READ_ROWS):
        for row, language in itertools.product(batch["translation"], languages):
            text = row.get(language)
            if text and sizes[language] < max_characters:
                texts[language].append(text)
                sizes[language] += len(text)
        if min(sizes.values()) >= max_characters:
            break
    return texts
