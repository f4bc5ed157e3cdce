"""The options of `tmde train` that set recipe keys. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tmde.cli.errors import OptionError

LANGUAGES = "data.languages"
PIVOTS = "data.pivot_languages"
MINUTES = "training.max_minutes"
STEPS = "training.max_steps"
SEED = "training.seed"
BATCH_TOKENS = "training.batch_tokens"
QUOTING = "data.quoting"
OPTION_OF_KEY = {
    LANGUAGES: "--languages",
    PIVOTS: "--pivots",
    MINUTES: "--minutes",
    STEPS: "--steps",
    SEED: "--seed",
    BATCH_TOKENS: "--batch-tokens",
    QUOTING: "--quoting",
}


def check_quoting(words: Sequence[str]) -> None:
    """Reject a value with brackets that the shell has split at spaces.

    Args:
        words: The arguments of the form `key=value`, as the shell has passed them.

    Raises:
        OptionError: The brackets of a value do not close in the same argument.
    """
    for number, word in enumerate(words):
        key, separator, value = word.partition("=")
        if not separator or _is_balanced(value):
            continue
        pieces = [word]
        for piece in words[number + 1 :]:
            pieces.append(piece)
            if _is_balanced(" ".join(pieces)):
                break
        whole = " ".join(pieces)
        quoted = whole.replace("'", '"')
        message = f"{word}: unclosed brackets. The shell splits arguments at spaces: write "
        message += f"'{quoted}'" if _is_balanced(whole) else f"'{key}=...' in quotes"
        option = _option_of(key)
        if option in ("--languages", "--pivots") and _is_balanced(whole):
            codes = whole.partition("=")[2].strip("[] ").replace(" ", "")
            message += f", or {option} {codes}"
        raise OptionError(message)


def _is_balanced(text: str) -> bool:
    """Return whether as many brackets close as open."""
    return text.count("[") == text.count("]") and text.count("{") == text.count("}")


def _option_of(key: str) -> str | None:
    """Return the option that stands for a recipe key, with or without its section."""
    for full_key, option in OPTION_OF_KEY.items():
        if key in (full_key, full_key.rpartition(".")[2]):
            return option
    return None


# ---- What the user has set


def user_settings(
    words: Sequence[str],
    *,
    languages: str | None = None,
    pivots: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    batch_tokens: int | None = None,
    quoting: str | None = None,
) -> dict[str, Any]:
    """Return all that the user has set of a recipe.

    Args:
        words: Words of the form `key=value`.
        languages: The languages, separated by commas or blanks. Here and below, None stands for an
            option that is not given.
        pivots: The pivot languages, separated in the same way.
        minutes: The minutes of training.
        steps: The number of steps.
        seed: The seed.
        batch_tokens: The tokens of a step.
        quoting: What the quotes of CSV and TSV are.

    Returns:
        The values by key; keys that have an option are complete, `section.key`.

    Raises:
        OptionError: An option and a word set the same key to different values.
        RecipeError: A word cannot be read.
    """
    from tmde.training.recipe import parse_override

    full_key_of = {key.rpartition(".")[2]: key for key in OPTION_OF_KEY}
    values: dict[str, Any] = {}
    for word in words:
        key, value = parse_override(word)
        values[full_key_of.get(key, key)] = value
    options: dict[str, Any] = {
        MINUTES: minutes,
        STEPS: steps,
        SEED: seed,
        BATCH_TOKENS: batch_tokens,
        QUOTING: quoting,
    }
    if languages is not None:
        options[LANGUAGES] = _languages_of_locales(_codes_of(languages, "--languages"), ())
    if pivots is not None:
        chosen = options.get(LANGUAGES, ())
        options[PIVOTS] = _languages_of_locales(_codes_of(pivots, "--pivots"), chosen)
    for key, value in options.items():
        if value is not None:
            _check_option(key, value, values)
            values[key] = value
    if steps is not None and MINUTES not in values:
        values[MINUTES] = None  # Whoever counts steps wants all of them.
    return values


def _codes_of(text: str, option: str) -> list[str]:
    """Return the language codes of an option; commas or blanks separate them."""
    codes = text.replace(",", " ").split()
    if not codes or any(mark in text for mark in "[]'\""):
        raise OptionError(f"{option}: found {text!r}, expected codes such as de,en")
    return codes


def _languages_of_locales(codes: list[str], chosen: Sequence[str]) -> list[str]:
    """Return the languages of codes: `de` of `de-DE`, unless two codes are of one language.

    Args:
        codes: Codes of languages or locales.
        chosen: The languages of the run, if they are known, which keep their names.
    """
    from tmde.data.languages import language_of_locale

    languages = []
    for code in codes:
        languages.append(code if code in chosen else language_of_locale(code))
    if len(set(languages)) < len(set(codes)):
        return codes
    return languages


def _check_option(key: str, value: Any, values: Mapping[str, Any]) -> None:
    """Refuse an option that contradicts a word."""
    if key not in values or values[key] == value:
        return
    short_key = key.rpartition(".")[2]
    raise OptionError(
        f"{OPTION_OF_KEY[key]} is {value}, but {short_key} is {values[key]}; give only one"
    )
