"""Which field of a row holds which language: by `--columns`, by its name, or by its locale."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from .checks import NOT_LANGUAGES, CorpusError, Unquoted, bad_value
from .locales import (
    fits_language,
    language_of_locale,
    may_name_a_language,
    names_a_language,
    same_locale,
)
from .rows import ANCHOR, DOCUMENT_ID, LABEL, NLI_TEXTS, POSITIVE, is_triple_text, triple_texts

ColumnPairs = tuple[tuple[str, str], ...]  # (name, field of the source)

SEGMENT = "segment"  # The number of a row in its document, as `tmde align` writes it.
OTHER_NAMES = (DOCUMENT_ID, SEGMENT, LABEL, *NLI_TEXTS)  # what a field may hold beside languages
FEWEST_LANGUAGES = 2
# Usual names of columns of keys and numbers, of which some are codes of languages too.
KEY_FIELDS = frozenset({"id", "nr", "no", "#", ""})
SEEN_ROWS = 100  # the rows of a table that tell what its columns hold
SHOWN_FIELDS = 40
LONGEST_NAME = 40  # characters


def column_pairs(columns: Mapping[str, str] | None) -> ColumnPairs:
    """Return the fields that the user names, as pairs that can be looked up in a cache.

    Raises:
        CorpusError: A name is neither a language nor `doc_id`, `segment`, `label`, `premise`,
            `hypothesis` or a text of a triple, or a field has two names.
    """
    if columns is None:
        return ()
    fields = list(columns.values())
    for name, field in columns.items():
        if not _is_other_name(name) and not may_name_a_language(name):
            expected = f"NAME=COLUMN, where NAME is a language code such as de, or {DOCUMENT_ID}"
            advice = f"Write the language first, such as de={name}."
            raise bad_value("columns", None, None, Unquoted(f"{name}={field}"), expected, advice)
        if fields.count(field) > 1:
            raise bad_value(
                "columns", None, name, field, "different columns", "Give each column one name."
            )
    return tuple(columns.items())


def _is_other_name(name: str) -> bool:
    """Return whether a name is that of no language, but of something else that a row may hold."""
    return name in OTHER_NAMES or is_triple_text(name)


def with_plain_languages(columns: Mapping[str, str]) -> dict[str, str]:
    """Return columns whose locales are named by their language: `de` for `de-DE`.

    Locales of one language, such as `en-US` and `en-GB`, keep their names.

    Args:
        columns: Fields by the names that the user gives them, as in `--columns de-DE=Source`.
    """
    languages = [language_of_locale(name) for name in columns]
    plain = {}
    for name, field in columns.items():
        language = language_of_locale(name)
        is_plain = names_a_language(name) and languages.count(language) == 1
        plain[language if is_plain else name] = field
    return plain


@lru_cache(maxsize=4096)
def fields_by_name(
    fields: tuple[str, ...], names: tuple[str, ...], columns: ColumnPairs, place: str
) -> dict[str, str]:
    """Return the field of a row that holds each name, for the names that have one.

    The user's columns go first, then fields of exactly that name, then its only locale.

    Args:
        fields: The fields of the row.
        names: The languages, and perhaps `doc_id` and `label`.
        columns: Names, and the fields that the user says hold them.
        place: The source in messages.

    Raises:
        CorpusError: Several fields are locales of one language, such as `en-US` and `en-GB`.
    """
    field_of = {}
    for name, field in columns:
        if field in fields:
            field_of[name] = field
    taken = set(field_of.values())
    for name in names:
        if name not in field_of and name in fields and name not in taken:
            field_of[name] = name
    taken = set(field_of.values())
    free_fields = [field for field in fields if field not in taken]
    for name in names:
        if name not in field_of:
            locales = _locales_of(name, free_fields)
            _check_one(name, locales, place)
            if locales:
                field_of[name] = locales[0]
    return field_of


def _locales_of(language: str, fields: Sequence[str]) -> list[str]:
    """Return the fields that are locales of a language; only the same locale if there is one."""
    same = [field for field in fields if same_locale(field, language)]
    if same:
        return same
    return [field for field in fields if fits_language(field, language)]


def _check_one(language: str, locales: Sequence[str], place: str) -> None:
    """Raise [`CorpusError`] if a language has several locales."""
    if len(locales) < 2:
        return
    description = Unquoted(f"several columns: {', '.join(locales)}")
    advice = f"Choose one: --columns {language}={locales[0]} (in Python: columns=...)."
    raise bad_value(place, None, language, description, f"one column for {language}", advice)


def languages_in(fields: Sequence[str], columns: ColumnPairs) -> list[str]:
    """Return the languages of fields that were chosen as texts, in order of appearance."""
    name_of = {}
    for name, field in columns:
        if field in fields and not _is_other_name(name):
            name_of[field] = name
    name_of |= named_languages(fields, columns, name_of.values(), may_name_a_language)
    return _names_in_order(fields, name_of)


def _names_in_order(fields: Iterable[str], name_of: Mapping[str, str]) -> list[str]:
    """Return the names of those fields that have one."""
    return [name_of[field] for field in fields if field in name_of]


def named_languages(
    fields: Sequence[str],
    columns: ColumnPairs,
    known: Collection[str],
    is_language: Callable[[str], bool] = names_a_language,
) -> dict[str, str]:
    """Return the language of each field that looks like one, beside those that are known.

    A locale is its language, unless several fields have that language: then each keeps its full
    name.

    Args:
        fields: The fields of texts.
        columns: Names, and the fields that the user says hold them. If they name two or more of
            the known languages, no field is taken by its looks.
        known: The languages that have a field already.
        is_language: Whether the name of a field is that of a language.
    """
    field_of = dict(columns)
    known_of_user = set(field_of).intersection(known)
    if len(known_of_user) >= FEWEST_LANGUAGES:
        return {}
    named_fields = {*field_of.values(), *known}
    locales = []
    languages = []
    for field in fields:
        if field not in named_fields and is_language(field):
            locales.append(field)
            languages.append(language_of_locale(field))
    names = {}
    for locale, language in zip(locales, languages, strict=True):
        if language in known_of_user:
            continue  # The user has chosen another column of this language.
        is_clear = languages.count(language) == 1 and language not in known
        names[locale] = language if is_clear else locale
    return names


def one_of_each(names: Sequence[str], place: str) -> list[str]:
    """Return languages without the locales of those that are there by their own name.

    Args:
        names: Languages, and locales of languages with several, see [`named_languages`].
        place: The source in messages.

    Raises:
        CorpusError: A language has several locales, and none is the language itself.
    """
    locales_of: dict[str, list[str]] = {}
    for name in names:
        locales_of.setdefault(language_of_locale(name), []).append(name)
    chosen = []
    for language, locales in locales_of.items():
        if language in locales:
            chosen.append(language)
            continue
        if len(locales) > 1:
            advice = (
                f"Choose one, --columns {language}={locales[0]}, or name the languages of the run, "
                f"--languages {','.join(names)}."
            )
            description = Unquoted(f"several columns: {', '.join(locales)}")
            raise bad_value(
                place, None, language, description, f"one column for {language}", advice
            )
        chosen += locales
    return chosen


class Header(NamedTuple):
    """What the fields of a source hold.

    Attributes:
        languages: The languages, in order of appearance.
        fields: All fields that were seen, also those that are no languages.
    """

    languages: list[str]
    fields: list[str]


def header_of_rows(
    rows: Iterable[Mapping[str, Any]],
    place: str,
    requested: tuple[str, ...] | None,
    columns: ColumnPairs,
    rows_differ: bool = False,
) -> Header:
    """Return the languages and the fields of rows.

    Languages are the fields of `translation`, or else the columns, that are named by the code of a
    known language or its locale, by the user's columns, or as a requested language. In
    `translation`, any code is a language. Of triples, they are the anchor, its positive and all
    negatives.

    Args:
        rows: The rows of a part.
        place: Its name in messages.
        requested: The names that the run asks for, whatever they look like; None for all languages.
        columns: Names, and the fields that the user says hold them.
        rows_differ: Whether rows may have different fields. Then all rows are read, or as many as
            it takes to see all requested names.

    Raises:
        CorpusError: There are no rows, or none of their fields is a language.
    """
    names = requested or ()
    name_of: dict[str, str] = {}  # the name of each field that the run or the user asks for
    fields: dict[str, None] = {}  # all fields, in order of appearance
    values: dict[str, list] = {}  # the first values of the fields that may be languages
    row: Mapping[str, Any] | None = None
    if not rows_differ:
        rows = islice(rows, SEEN_ROWS)
    for row in rows:
        fields |= dict.fromkeys(row)
        texts = texts_of(row)
        if isinstance(texts, Mapping):
            fields |= dict.fromkeys(texts)
            name_of |= _names_of_fields(texts, names, columns, place)
            _add_first_values(values, texts)
        if rows_differ and _has_all_names(names, name_of.values()):
            break
    if row is None:
        advice = "Fetch or write the file again."
        raise bad_value(place, None, None, Unquoted("no rows"), "some", advice)
    triples = _requested_triple_texts(fields, columns, requested)
    if triples:
        return Header(list(triples), list(fields))
    name_of |= _languages_by_looks(row, values, name_of, columns)
    languages = _names_in_order(fields, name_of)
    if len(languages) < FEWEST_LANGUAGES:
        check_columns(columns, fields, place)
    if not languages:
        raise missing_languages_error(place, list(fields), requested)
    return Header(list(dict.fromkeys(languages)), list(fields))


def _names_of_fields(
    texts: Collection[str], names: tuple[str, ...], columns: ColumnPairs, place: str
) -> dict[str, str]:
    """Return the name of each field of a row that the run or the user asks for."""
    name_of = {}
    for name, field in fields_by_name(tuple(texts), names, columns, place).items():
        if not _is_other_name(name) or name in names:
            name_of[field] = name
    return name_of


def _add_first_values(values: dict[str, list], texts: Mapping[str, Any]) -> None:
    """Append the texts of a row to the first values of their fields."""
    for field, text in texts.items():
        first_values = values.setdefault(field, [])
        if len(first_values) < SEEN_ROWS:
            first_values.append(text)


def _languages_by_looks(
    row: Mapping[str, Any],
    values: Mapping[str, list],
    name_of: Mapping[str, str],
    columns: ColumnPairs,
) -> dict[str, str]:
    """Return the language of each text of rows that looks like one and has no name yet.

    Args:
        row: One of the rows.
        values: The first values of each field.
        name_of: The fields that have a name.
        columns: Names, and the fields that the user says hold them.
    """
    other_fields = [field for field in values if field not in name_of]
    if row is not texts_of(row):
        return named_languages(other_fields, columns, name_of.values(), may_name_a_language)
    candidates = []
    for field in other_fields:
        if not _are_texts(values[field]):
            continue
        if field.strip().lower() not in KEY_FIELDS or _are_sentences(values[field]):
            candidates.append(field)
    languages = named_languages(candidates, columns, name_of.values())
    # `ts` with numbers is no Tsonga where two other columns have words.
    with_words = [field for field in languages if _have_letters(values[field])]
    if len(with_words) + len(name_of) >= FEWEST_LANGUAGES:
        languages = {field: languages[field] for field in with_words}
    return languages


def _are_texts(values: Sequence) -> bool:
    """Return whether there is a text, or no value at all; the check of rows finds other values."""
    filled_values = [value for value in values if value is not None]
    return not filled_values or any(isinstance(value, str) for value in filled_values)


def _have_letters(values: Sequence) -> bool:
    """Return whether some text has a letter, or there is no text at all."""
    texts = [value for value in values if isinstance(value, str) and value]
    if not texts:
        return True
    return any(character.isalpha() for text in texts for character in text)


def _are_sentences(values: Sequence) -> bool:
    """Return whether most texts have several words, as those in Indonesian and not keys have."""
    texts = [value for value in values if isinstance(value, str) and value]
    sentence_count = sum(" " in text.strip() for text in texts)
    return sentence_count > len(texts) / 2


def _has_all_names(requested: Collection[str], known: Collection[str]) -> bool:
    """Return whether later rows cannot add to the names of the texts of a file."""
    if ANCHOR in requested:
        return False  # They may have more negatives.
    return bool(requested) and set(requested) <= set(known)


def _requested_triple_texts(
    fields: Collection[str], columns: ColumnPairs, requested: Collection[str] | None
) -> tuple[str, ...]:
    """Return the texts of triples among fields and the names that the user gives them.

    The result is () for other rows, and if the run asks for languages.
    """
    if requested is not None and ANCHOR not in requested:
        return ()
    names = [name for name, field in columns if field in fields]
    return triple_texts([*fields, *names])


def texts_of(row: Mapping[str, Any]) -> Any:
    """Return the texts of a row by language: its `translation`, or else the row itself."""
    return row.get("translation", row)


def missing_languages_error(
    place: str, fields: Sequence[str], requested: Sequence[str] | None
) -> CorpusError:
    """Return the error of a source none of whose fields is a language.

    Args:
        place: The source.
        fields: Its fields.
        requested: The languages of the run; None if it asks for none.
    """
    expected = (
        "an object `translation` of texts by language, or one column per language, named by its "
        "code"
    )
    description = Unquoted(f"the columns {shown_fields(fields)}")
    if any(map(_looks_like_a_sentence, fields)):
        advice = "The first row must name the columns: add one, such as de and en."
    elif triple_texts(fields):
        advice = "These are triples: set data.triples=true in a recipe, or leave out `languages`."
    elif any(map(is_triple_text, fields)):
        expected = f"the columns {ANCHOR} and {POSITIVE} of triples"
        advice = f"Name the missing one, for example --columns {POSITIVE}=COLUMN."
    else:
        proposal = proposed_columns(fields, requested or ("de", "en"))
        advice = (
            f"Say which column is which language, for example --columns {proposal} (in Python: "
            "columns={...}), or rename them."
        )
    return bad_value(place, None, "translation", description, expected, advice)


def _looks_like_a_sentence(field: str) -> bool:
    """Return whether a field is probably no name, because the first row is no header."""
    return len(field) > LONGEST_NAME or field.strip().endswith((".", "!", "?"))


def shown_fields(fields: Sequence[str]) -> str:
    """Return the first fields of a source, for messages."""
    shown = ", ".join(fields[:SHOWN_FIELDS])
    if len(fields) > SHOWN_FIELDS:
        shown += ", ..."
    return shown


def check_columns(columns: ColumnPairs, fields: Collection[str], place: str) -> None:
    """Raise [`CorpusError`] if some of the user's columns are not among the fields of a source.

    A source that has none of them, but fields of the names, is read by these: held-out rows may
    have other columns than training rows.
    """
    field_of = dict(columns)
    missing = [field for field in field_of.values() if field not in fields]
    has_names = set(field_of).issubset(fields)
    if not missing or (has_names and len(missing) == len(columns)):
        return
    description = Unquoted(f"no column {', '.join(map(repr, missing))}")
    expected = f"some of the columns {shown_fields(list(fields))}"
    advice = "Correct the names after the equals signs."
    raise bad_value(place, None, "columns", description, expected, advice)


def proposed_columns(fields: Sequence[str], languages: Sequence[str]) -> str:
    """Return what `--columns` may be: `de=Source,en=Target` for the fields Source and Target.

    A field whose name is that of a language is proposed for it alone.
    """
    no_texts = NOT_LANGUAGES.union(KEY_FIELDS, OTHER_NAMES)
    texts = [field for field in fields if field.lower() not in no_texts] or list(fields)
    field_of: dict[str, str] = {}
    for language in languages:
        for field in texts:
            if fits_language(field, language):
                field_of.setdefault(language, field)
    unnamed = [field for field in texts if not names_a_language(field)]
    for language in languages:
        if language not in field_of and unnamed:
            field_of[language] = unnamed.pop(0)
    proposal = ",".join(f"{language}={field}" for language, field in field_of.items())
    if " " in proposal:
        return f"'{proposal}'"
    return proposal
