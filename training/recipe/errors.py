"""Errors of recipes. Each names the section, the key, the value found and the value expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from modeling_tmde import TmdeError


class RecipeError(TmdeError):
    """A recipe, or a key of one, that does not exist or does not fit."""


def unknown_name_message(kind: str, name: object, known: Iterable[str]) -> str:
    """Return a sentence about a name that is not among the known ones.

    Args:
        kind: What the name should be, such as "Recipe key".
        name: The name that was found.
        known: The names that exist. The closest ones are suggested; if none is close, all are
            listed.
    """
    known_names = sorted(known)
    close_names = difflib.get_close_matches(str(name), known_names, n=3)
    hint = f"known: {', '.join(known_names)}"
    if close_names:
        hint = f"did you mean {' or '.join(close_names)}?"
    return f"{kind} {name!r} is unknown; {hint}"


def section_message(section: str, recipe_name: str, problem: str) -> str:
    """Return a sentence about a problem in one section of a recipe."""
    return f"Section {section!r} of recipe {recipe_name}: {problem}"
