"""Read gettext's catalogs, .po, by translate-toolkit: an entry is a unit."""

import codecs
import contextlib
import gettext
import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from .checks import CorpusError, Unquoted, bad_value
from .languages import names_a_language
from .lines import GZIP_ERRORS, damaged_file_error, open_binary
from .pieces import Piece, UnitFile

if TYPE_CHECKING:
    from translate.storage.pypo import pounit

_SOURCE = "en"  # gettext's texts are English, if the header does not name another language.
_TARGET = "target"  # A language that nobody names.
_VIEW = "latin-1"  # In it any bytes are text, and that text is these bytes.
_CHARSET = re.compile(r"charset=([\w.:-]+)")
_OBSOLETE = re.compile("#~ ?")
_KEYWORD = re.compile('msg(ctxt|id|id_plural|str)[ \t\\["]')
_FLAGS = re.compile(r"^#,[ \t]*", re.MULTILINE)
# The line before which flags stand.
_ENTRY = re.compile(r"^(#\||msg)", re.MULTILINE)
_FEWEST = 2  # The number that tells the form of several things from that of one.


class PoCatalog(UnitFile):
    """A .po file. The number of a unit is the line of its `msgid`, or `msgctxt`.

    Fuzzy, obsolete and untranslated entries are no pairs. An entry with plural forms has a row for
    each: the form for one beside `msgid`, the others beside `msgid_plural`.

    Args:
        path: The file, plain or gzipped.
        place: Its name in messages.

    Raises:
        ImportError: The package translate-toolkit is missing (extra `localization`).
    """

    is_catalog = True

    def __init__(self, path: str, place: str) -> None:
        super().__init__(path, place)
        self._encoding = "utf-8"
        self._languages = (_SOURCE, _language_of_path(path))
        self._form_of: Callable[[int], int] | None = None

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces; see `UnitFile.pieces`. Comments and blank lines begin a unit."""
        number = 0
        unit_number = 0
        lines: list[str] = []
        is_complete = False  # Whether the lines have a translation, which may go on.
        try:
            with open_binary(self.path) as file:
                for number, data in enumerate(file, 1):
                    line = data.decode(_VIEW)
                    kind = _kind_of(line)
                    is_between = unit_number > 0 and kind == ""
                    if is_between or (is_complete and kind == "msgid"):
                        yield self._unit("".join(lines), unit_number)
                        lines = []
                        unit_number = 0
                        is_complete = False
                    if kind == "msgid" and not unit_number:
                        unit_number = number
                    is_complete |= kind == "msgstr"
                    lines.append(line)
        except GZIP_ERRORS as error:
            raise damaged_file_error(self.place, number + 1, None, error) from error
        yield self._unit("".join(lines), unit_number)

    def encoded(self, text: str) -> bytes:
        """Return the bytes of text; see `UnitFile.encoded`."""
        return text.encode(_VIEW)

    def rows(self, piece: Piece) -> list[dict[str, str]]:
        """Return the texts of an entry; see `UnitFile.rows`."""
        entry = self._parsed(piece)
        if entry is None or entry.isheader() or entry.isobsolete() or entry.isfuzzy():
            return []
        sources = _forms_of(entry.source)
        targets = _forms_of(entry.target)
        rows = []
        for form, target in enumerate(targets):
            if target.strip():
                texts = (self._source_of(form, sources).strip(), target.strip())
                rows.append(dict(zip(self._languages, texts, strict=True)))
        return rows

    def edited(self, piece: Piece, languages: Collection[str]) -> str:
        """Return an entry that is fuzzy."""
        flags = _FLAGS.search(piece.text)
        if flags is not None:
            return f"{piece.text[: flags.start()]}#, fuzzy, {piece.text[flags.end() :]}"
        entry = _ENTRY.search(piece.text)
        if entry is None:
            return piece.text
        line_end = "\r\n" if "\r\n" in piece.text else "\n"
        return f"{piece.text[: entry.start()]}#, fuzzy{line_end}{piece.text[entry.start() :]}"

    def _unit(self, text: str, number: int) -> Piece:
        """Return a piece; the header is read for what it says about the others."""
        piece = Piece(text, number or None)
        if number and re.search(r'^msgid ""\r?\n(msgstr|$)', text, re.MULTILINE):
            self._read_header(piece)
        return piece

    def _read_header(self, piece: Piece) -> None:
        """Read the encoding, the languages and the plural forms of a file."""
        charset = _CHARSET.search(piece.text)
        if charset is not None:
            # CHARSET stands in templates, whose texts are ASCII.
            with contextlib.suppress(LookupError):
                self._encoding = codecs.lookup(charset[1]).name
        try:
            header = self._parsed(piece)
        except CorpusError:
            return
        if header is None or not header.isheader():
            return
        fields = {}
        for line in str(header.target).splitlines():
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        source, target = self._languages
        source = fields.get("x-source-language") or source
        target = fields.get("language") or target
        self._languages = (source, target)
        plural = re.search(r"plural\s*=\s*([^;]+)", fields.get("plural-forms", ""))
        if plural is not None:
            try:
                self._form_of = gettext.c2py(plural[1])
            except ValueError:
                self._form_of = None

    def _source_of(self, form: int, sources: list[str]) -> str:
        """Return the source of a plural form: that of one, or else that of several."""
        if len(sources) == 1:
            return sources[0]
        form_of_one = 0
        form_of_several = 1
        if self._form_of is not None:
            form_of_one = self._form_of(1)
            form_of_several = self._form_of(_FEWEST)
        is_one = form == form_of_one and form != form_of_several
        return sources[0 if is_one else 1]

    def _parsed(self, piece: Piece) -> "pounit | None":
        """Return the entry of a piece; None for comments.

        Raises:
            CorpusError: It is no entry, or its bytes can't be decoded.
        """
        pypo = _toolkit()
        advice = "Correct or delete the entry."
        try:
            text = self.encoded(piece.text).decode(self._encoding)
        except UnicodeDecodeError as error:
            description = Unquoted(
                f"the undecodable bytes {error.object[error.start : error.end]!r}"
            )
            raise bad_value(
                self.place, piece.number, None, description, self._encoding, advice
            ) from None
        store = pypo.pofile()
        try:
            store.parse(text.encode())
        except ValueError as error:
            reason = re.sub(r" on line \d+", "", str(error)).strip()
            description = Unquoted(f"a broken entry ({reason})")
            expected = "msgid and msgstr"
            raise bad_value(self.place, piece.number, None, description, expected, advice) from None
        if not store.units and piece.number is not None:
            description = Unquoted("a msgid without msgstr")
            raise bad_value(self.place, piece.number, None, description, "both", advice)
        return store.units[0] if store.units else None


def _forms_of(text: str) -> list[str]:
    """Return the plural forms of a text; the text alone without them."""
    return [str(form) for form in getattr(text, "strings", [text])]


def _toolkit():  # noqa: ANN202 - a module
    """Return the reader of translate-toolkit."""
    try:
        from translate.storage import pypo
    except ImportError as error:
        raise ImportError(
            "Reading .po files needs translate-toolkit: pip install 'tmde[localization]'",
            name="translate_toolkit",
        ) from error
    return pypo


def _kind_of(line: str) -> str:
    """Return what a line of a catalog is: `msgid`, `msgstr`, `string`, or another."""
    text = _OBSOLETE.sub("", line, count=1).lstrip() if line.startswith("#~") else line.lstrip()
    if text.startswith('"'):
        return "string"
    keyword = _KEYWORD.match(text)
    if keyword is None:
        return ""
    return "msgstr" if keyword[1] == "str" else "msgid"


def _language_of_path(path: str) -> str:
    """Return the language that the name of a file or its folder says: `de.po`, `de/a.po`."""
    name = os.path.basename(path).removesuffix(".gz")
    stem = os.path.splitext(name)[0]
    folders = os.path.dirname(os.path.abspath(path)).split(os.sep)
    folders = [folder for folder in folders[-2:] if folder != "LC_MESSAGES"]
    for candidate in (stem, stem.rpartition(".")[2], *reversed(folders)):
        if names_a_language(candidate):
            return candidate
    return _TARGET
