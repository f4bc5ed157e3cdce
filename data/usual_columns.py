"""The usual names of columns, by the field that they hold; they are compared without case."""

from collections.abc import Iterable

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
    return _first_named(field, names)


def usual_column(field: str, columns: Iterable[str]) -> str | None:
    """Return the column that has a usual name of a field; None if there is none.

    The first of the usual names that a column has decides.
    """
    names = list(columns)
    for usual_name in USUAL_NAMES.get(field, ()):
        column = _first_named(usual_name, names)
        if column is not None:
            return column
    return None


def _first_named(name: str, columns: Iterable[str]) -> str | None:
    for column in columns:
        if column.strip().lower() == name.lower():
            return column
    return None
