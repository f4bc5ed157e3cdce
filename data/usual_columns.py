"""The usual names of columns, by the field that they hold; they are compared without case."""

import shlex
from collections.abc import Collection, Iterable

from .checks import Unquoted, bad_value

USUAL_NAMES = {
    "text": (
        *("body", "content", "document", "article", "sentence", "message", "description"),
        *("texte", "texto"),
    ),
    "label": ("topic", "category", "class", "target", "labels", "tag", "thema", "kategorie"),
    "language": ("lang", "locale", "sprache", "langue", "lingua", "idioma"),
    "split": ("set", "partition", "fold", "subset"),
    "id": ("key", "doc_id", "document_id", "uid", "uuid"),
    "title": ("headline", "heading", "subject", "titel"),
    "url": ("link", "uri"),
}


def same_name(field: str, columns: Iterable[str]) -> str | None:
    """Return the column that is called like a field, apart from case; None if there is none."""
    names = list(columns)
    if field in names:
        return field
    return next((name for name in names if _is_same(name, field)), None)


def find_column(field: str, columns: Collection[str], place: str, option: str) -> str | None:
    """Return the column of a field: the one of its name, else the one that differs by case alone.

    Args:
        field: The name that is looked for.
        columns: All columns.
        place: The file in messages.
        option: The option that names a column, with a blank or `=` at its end.

    Returns:
        The column; None if there is none.

    Raises:
        CorpusError: Several columns differ from the field by case alone.
    """
    if field in columns:
        return field
    candidates = [column for column in columns if _is_same(column, field)]
    if len(candidates) > 1:
        listed = " and ".join(map(repr, candidates))
        raise bad_value(
            place,
            None,
            None,
            Unquoted(f"the columns {listed}"),
            f"one of the name {field!r}",
            f"Name the right one: {option}{shlex.quote(candidates[0])}.",
        )
    return candidates[0] if candidates else None


def usual_column(field: str, columns: Iterable[str]) -> str | None:
    """Return the column that has a usual name of a field; None if there is none.

    The first of the usual names that a column has decides.
    """
    names = list(columns)
    for usual_name in USUAL_NAMES.get(field, ()):
        column = same_name(usual_name, names)
        if column is not None:
            return column
    return None


def _is_same(column: str, name: str) -> bool:
    """Return whether two names are equal apart from case and surrounding blanks."""
    return column.strip().lower() == name.strip().lower()
