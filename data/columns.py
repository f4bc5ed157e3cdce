"""Which field of a row holds which language: by `--columns`, by its name, or by its locale."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from .checks import NOT_LANGUAGES, CorpusError, Unquoted, bad_value
from .languages import (
    check_code,
    fits_language,
    language_of_locale,
    may_name_a_language,
    names_a_language,
    same_locale,
)
from .rows import (
    ANCHOR,
    DOCUMENT_ID,
    LABEL,
    NLI_TEXTS,
    POSITIVE,
    TRANSLATION,
    is_triple_text,
    triple_texts,
)
from .tables import BAD, FILE, ROW, array_of, fields_of, values_of

ColumnPairs = tuple[tuple[str, str], ...]  # (name, field of the source)
Values: TypeAlias = "list[Any] | pa.Array"

SEGMENT = "segment"  # The number of a row in its document, as `tmde align` writes it.
OTHER_NAMES = (DOCUMENT_ID, SEGMENT, LABEL, *NLI_TEXTS)  # what a field may hold beside languages
FEWEST_LANGUAGES = 2
# Usual names of columns of keys and numbers, of which some are codes of languages too.
KEY_FIELDS = frozenset({"id", "nr", "no", "#", ""})
SEEN_ROWS = 100  # the rows of a table that tell what its columns hold
SHOWN_FIELDS = 40
LONGEST_NAME = 40  # characters


# ---- The columns that the user names


def column_pairs(columns: Mapping[str, str] | None) -> ColumnPairs:
    """Return the fields that the user names, as pairs that can be hashed.

    Raises:
        CorpusError: The fields are not a dict, a name is neither a language nor `doc_id`,
            `segment`, `label`, `premise`, `hypothesis` or a text of a triple, or a field has two
            names.
    """
    if columns is None:
        return ()
    if not isinstance(columns, Mapping):
        expected = "a dict of columns by what they hold"
        advice = 'Pass one, such as columns={"de": "Source"}.'
        raise bad_value("columns", None, None, columns, expected, advice)
    fields = list(columns.values())
    for name, field in columns.items():
        if not is_other_name(name) and not may_name_a_language(name):
            expected = f"NAME=COLUMN, where NAME is a language code such as de, or {DOCUMENT_ID}"
            advice = f"Write the language first, such as de={name}."
            raise bad_value("columns", None, None, Unquoted(f"{name}={field}"), expected, advice)
        if not is_other_name(name):
            check_code(name, "columns")
        if fields.count(field) > 1:
            raise bad_value(
                "columns", None, name, field, "different columns", "Give each column its own name."
            )
    return tuple(columns.items())


def is_other_name(name: str) -> bool:
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


# ---- The columns of a batch


def texts_of(batch: pa.RecordBatch, bad_reasons: dict[int, str] | None = None) -> pa.RecordBatch:
    """Return the texts of rows by field: those in `translation`, or else the columns.

    Args:
        batch: The rows.
        bad_reasons: Gets what is wrong with a row, by its position, instead of an error.

    Raises:
        CorpusError: `translation` is no object of texts.
    """
    if TRANSLATION not in batch.schema.names:
        return batch
    column = batch[TRANSLATION]
    if pa.types.is_struct(column.type):
        return pa.RecordBatch.from_arrays(column.flatten(), column.type.names)
    rows = values_of(batch, TRANSLATION)
    for position, row in enumerate(rows):
        if row is not None and not isinstance(row, dict):
            place = values_of(batch, FILE)[position]
            number = values_of(batch, ROW)[position]
            expected = "an object of texts by language, or null"
            advice = "Correct or delete the row."
            error = bad_value(place, number, TRANSLATION, row, expected, advice)
            if bad_reasons is None:
                raise error
            bad_reasons[position] = str(error)
            rows[position] = None
    arrays = {}
    for name in dict.fromkeys(name for row in rows for name in row or ()):
        arrays[name] = array_of(name, [(row or {}).get(name) for row in rows])
    return pa.RecordBatch.from_pydict(arrays)


def named_columns(
    batch: pa.RecordBatch,
    names: Sequence[str],
    columns: ColumnPairs,
    numbers: Sequence[int],
    place: str,
) -> dict[str, Values]:
    """Return the values of each name that some field of a batch holds.

    Args:
        batch: The rows.
        names: The languages, or `doc_id` and `label`.
        columns: Names, and the fields that the user says hold them.
        numbers: The numbers of the rows.
        place: The source in messages.

    Raises:
        CorpusError: A row has several locales of one language, such as `en-US` and `en-GB`.
    """
    named: dict[str, Values] = {}
    for name, fields in fields_by_name(fields_of(batch), names, columns).items():
        if len(fields) == 1:
            named[name] = _values(batch, fields[0])
            continue
        candidates = [values_of(batch, field) for field in fields]
        values = []
        for number, *row in zip(numbers, *candidates, strict=True):
            filled = [field for field, value in zip(fields, row, strict=True) if value is not None]
            if len(filled) > 1 and filled[0] != name:
                description = Unquoted(f"several columns: {', '.join(filled)}")
                advice = f"Choose one: --columns {name}={filled[0]} (in Python: columns=...)."
                expected = f"one column for {name}"
                raise bad_value(place, number, name, description, expected, advice)
            values.append(row[fields.index(filled[0])] if filled else None)
        named[name] = values
    return named


def _values(batch: pa.RecordBatch, field: str) -> Values:
    """Return the values of a column: texts in Arrow's memory, where they take half the time."""
    column = batch[field]
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_large_string(column.type) or pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    return values_of(batch, field)


def as_list(values: Values) -> list:
    """Return the values of a column as a list."""
    if isinstance(values, pa.Array):
        return values.to_pylist()
    return values


def fields_by_name(
    fields: Collection[str], names: Sequence[str], columns: ColumnPairs
) -> dict[str, list[str]]:
    """Return the fields that may hold each name, for the names that have some.

    The user's column goes first, then the field of exactly that name, then its locales.

    Args:
        fields: The fields of rows.
        names: The languages, and perhaps `doc_id` and `label`.
        columns: Names, and the fields that the user says hold them.
    """
    fields_of_name = {name: [field] for name, field in columns if field in fields}
    taken = [field for _, field in columns]
    other_names = [name for name in names if name not in fields_of_name]
    for name in other_names:
        if name in fields and name not in taken:
            fields_of_name[name] = [name]
    taken += fields_of_name
    free_fields = [field for field in fields if field not in taken]
    for name in other_names:
        locales = [field for field in free_fields if same_locale(field, name)]
        if not locales:
            locales = [field for field in free_fields if fits_language(field, name)]
        if locales:
            fields_of_name.setdefault(name, []).extend(locales)
    return fields_of_name


# ---- The languages of a source


class Header(NamedTuple):
    """What the fields of a source hold.

    Attributes:
        languages: The languages, in order of appearance.
        fields: All fields that were seen, also those that are no languages.
    """

    languages: list[str]
    fields: list[str]


def header_of(
    batches: Iterable[pa.RecordBatch],
    place: str,
    requested: Sequence[str] | None,
    columns: ColumnPairs,
    any_code: bool = False,
) -> Header:
    """Return the languages and the fields of rows.

    Languages are the fields of `translation`, or else the columns, that are named by the code of a
    known language or its locale, by the user's columns, or as a requested language. In
    `translation`, any code is a language. Of triples, they are the anchor, its positive and all
    negatives.

    Args:
        batches: The rows; they are read until all requested names are seen.
        place: The source in messages.
        requested: The names that the run asks for, whatever they look like; None for all languages.
        columns: Names, and the fields that the user says hold them.
        any_code: Whether any code is a language, also of columns.

    Raises:
        CorpusError: There are no rows that can be read, or none of their fields is a language.
    """
    names = requested or ()
    fields, values, name_of = _read_fields(batches, names, columns)
    if not fields:
        advice = "Fetch or write the file again."
        raise bad_value(place, None, None, Unquoted("no rows"), "some", advice)
    if requested is None or ANCHOR in requested:
        triples = triple_texts([*fields, *(name for name, field in columns if field in fields)])
        if triples:
            return Header(list(triples), list(fields))
    if any_code or TRANSLATION in fields:
        name_of |= _languages_by_looks(values, name_of, columns, may_name_a_language)
    else:
        name_of |= _languages_of_columns(values, name_of, columns)
    languages = list(dict.fromkeys(name_of[field] for field in fields if field in name_of))
    if len(languages) < FEWEST_LANGUAGES:
        check_columns(columns, fields, place)
    if not languages:
        raise missing_languages_error(place, list(fields), requested)
    return Header(languages, list(fields))


def _read_fields(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], columns: ColumnPairs
) -> tuple[dict[str, None], dict[str, list], dict[str, str]]:
    """Read rows until all names are seen.

    Args:
        batches: The rows.
        names: The names that the run asks for.
        columns: Names, and the fields that the user says hold them.

    Returns:
        All fields, in order of appearance; the first values of those that may be languages; and the
        name of each field that the run or the user asks for.

    Raises:
        CorpusError: No row can be read.
    """
    fields: dict[str, None] = {}
    values: dict[str, list] = {}
    name_of: dict[str, str] = {}
    first_reason = None
    for batch in batches:
        bad_reasons: dict[int, str] = {}
        texts = texts_of(batch, bad_reasons).slice(0, SEEN_ROWS)
        for reason in (*values_of(batch, BAD), *bad_reasons.values()):
            first_reason = first_reason or reason
        fields |= dict.fromkeys([*fields_of(batch), *fields_of(texts)])
        for field in fields_of(texts):
            values.setdefault(field, []).extend(values_of(texts, field))
        for name, fields_of_name in fields_by_name(values, names, columns).items():
            if not is_other_name(name) or name in names:
                name_of |= dict.fromkeys(fields_of_name, name)
        # Later rows may have more negatives of triples.
        if ANCHOR not in names and names and set(names) <= set(name_of.values()):
            break
    if not values and first_reason is not None:
        raise CorpusError(first_reason)
    return fields, values, name_of


def _languages_of_columns(
    values: Mapping[str, list], name_of: Mapping[str, str], columns: ColumnPairs
) -> dict[str, str]:
    """Return the language of each column that is named by one, and holds texts.

    Args:
        values: The first values of each column.
        name_of: The columns that have a name.
        columns: Names, and the fields that the user says hold them.
    """
    candidates = {}
    for field, column in values.items():
        filled_values = [value for value in column if value is not None]
        texts = [value for value in filled_values if isinstance(value, str) and value]
        # Where there are texts too, the check of rows finds values that are none.
        if filled_values and not any(isinstance(value, str) for value in filled_values):
            continue
        sentence_count = sum(" " in text.strip() for text in texts)
        # Indonesian has sentences, and keys are single words.
        if field.strip().lower() not in KEY_FIELDS or sentence_count > len(texts) / 2:
            candidates[field] = texts
    languages = _languages_by_looks(candidates, name_of, columns, names_a_language)
    # `ts` with numbers is no Tsonga where two other columns have words.
    with_words = {}
    for field, language in languages.items():
        text = "".join(candidates[field])
        if not text or any(map(str.isalpha, text)):
            with_words[field] = language
    if len(with_words) + len(name_of) >= FEWEST_LANGUAGES:
        return with_words
    return languages


def _languages_by_looks(
    fields: Iterable[str],
    name_of: Mapping[str, str],
    columns: ColumnPairs,
    is_language: Callable[[str], bool],
) -> dict[str, str]:
    """Return the language of each field that looks like one and has no name yet.

    A locale is its language, unless several fields have that language: then each keeps its full
    name. If the user names two or more languages, no field is taken by its looks.

    Args:
        fields: The fields of texts.
        name_of: The fields that have a name.
        columns: Names, and the fields that the user says hold them.
        is_language: Whether the name of a field is that of a language.
    """
    known = set(name_of.values())
    known_of_user = known.intersection(dict(columns))
    if len(known_of_user) >= FEWEST_LANGUAGES:
        return {}
    taken = {*dict(columns).values(), *name_of, *known}
    locales = [field for field in fields if field not in taken and is_language(field)]
    languages = list(map(language_of_locale, locales))
    names = {}
    for locale, language in zip(locales, languages, strict=True):
        is_clear = languages.count(language) == 1 and language not in known
        if language not in known_of_user:  # The user may have chosen another column of it.
            names[locale] = language if is_clear else locale
    return names


def one_of_each(names: Sequence[str], place: str) -> list[str]:
    """Return languages without the locales of those that are there by their own name.

    Args:
        names: Languages, and locales of languages with several, see [`header_of`].
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
            locales = [language]
        if len(locales) > 1:
            advice = (
                f"Choose one, --columns {language}={locales[0]}, or name the languages of the run, "
                f"--languages {','.join(names)}."
            )
            description = Unquoted(f"several columns: {', '.join(locales)}")
            expected = f"one column for {language}"
            raise bad_value(place, None, language, description, expected, advice)
        chosen += locales
    return chosen


# ---- Messages


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
        proposal = _proposed_columns(fields, requested or ("de", "en"))
        advice = (
            f"Say which column is which language, for example --columns {proposal} (in Python: "
            "columns={...}), or rename them."
        )
        if requested is None and "," not in proposal:
            advice = (
                "Parallel text has a column for each language. Texts of one language are paired "
                "with those of another by `tmde align` or `tmde mine`."
            )
    return bad_value(place, None, TRANSLATION, description, expected, advice)


def _looks_like_a_sentence(field: str) -> bool:
    """Return whether a field is probably no name, because the first row is no header."""
    return len(field) > LONGEST_NAME or field.strip().endswith((".", "!", "?"))


def _proposed_columns(fields: Sequence[str], languages: Sequence[str]) -> str:
    """Return what `--columns` may be: `de=Source,en=Target` for the fields Source and Target.

    A field whose name is that of a language is proposed for it alone.
    """
    no_texts = NOT_LANGUAGES.union(KEY_FIELDS, OTHER_NAMES)
    texts = [field for field in fields if field.lower() not in no_texts] or list(fields)
    # The texts of triples may be those of two languages.
    is_free = ANCHOR in languages
    unnamed = [field for field in texts if is_free or not names_a_language(field)]
    proposals = []
    for language in languages:
        fitting = [field for field in texts if fits_language(field, language)]
        if not fitting and unnamed:
            fitting = [unnamed.pop(0)]
        proposals += [f"{language}={field}" for field in fitting[:1]]
    proposal = ",".join(proposals) or f"{languages[0]}=COLUMN"
    return f"'{proposal}'" if " " in proposal else proposal


def shown_fields(fields: Sequence[str]) -> str:
    """Return the first fields of a source, for messages."""
    shown = ", ".join(fields[:SHOWN_FIELDS])
    if len(fields) > SHOWN_FIELDS:
        shown += ", ..."
    return shown
