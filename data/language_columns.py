"""Columns that look like the language of each document, and codes of languages as users write them.

Locales are understood: `de-DE` and `de_AT` are `de`.
"""

import logging
from collections.abc import Iterable

from .checks import is_code
from .columns import shown_fields
from .documents import Documents
from .languages import language_of_locale
from .usual_columns import same_name, usual_column

logger = logging.getLogger(__name__)


def named_like_language(columns: Iterable[str]) -> str | None:
    """Return the column whose name says that it holds the language; None if there is none."""
    names = list(columns)
    return same_name("language", names) or usual_column("language", names)


def language_column(documents: Documents) -> str | None:
    """Return the column that holds the language of each document; None if there is none.

    Its name says so, and the first documents have codes there, or nothing.

    Args:
        documents: Documents whose chunks keep that column.
    """
    column = named_like_language(documents.fields)
    if column is None or documents.first_chunk is None:
        return None
    values = documents.first_chunk.values(column)
    filled_values = [value for value in values if value not in (None, "")]
    if not filled_values:
        return None
    for value in filled_values:
        if language_or_none(value) is None:
            return None
    return column


def tell_language_folders(documents: Documents) -> None:
    """Log that the folders of texts are taken as the languages of these, if they are."""
    folder = documents.text_folder
    if folder is None or not folder.has_languages or documents.language_field != "language":
        return
    logger.warning(
        "%s: the folders %s are used as the languages of their texts",
        documents.name,
        shown_fields(folder.subfolders),
    )


def language_or_none(value: object) -> str | None:
    """Return the language that a value names; None if it is no code."""
    if not isinstance(value, str):
        return None
    code = language_of_locale(value)
    return code if is_code(code) else None
