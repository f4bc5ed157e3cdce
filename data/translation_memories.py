"""Read translation memories, TMX: a translation unit is a row, in flat memory."""

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from .checks import Unquoted, bad_value
from .lines import GZIP_ERRORS, UTF_16_MARKS, damaged_file_error, open_binary

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ROOT = "tmx"
UNIT = "tu"
VARIANT = "tuv"
SEGMENT = "seg"
LANGUAGE_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")  # of TMX 1.4 and 1.1
# What stands in these elements is code of the translated format, such as <b>, and no text.
MARKUP = frozenset({"bpt", "ept", "it", "ph", "ut"})
PLACEHOLDER = "ph"  # It stands for something by itself, such as a line break, also between words.

_DECLARED_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
# Names that Python does not know, and encodings whose files have characters of a larger one.
_ENCODINGS = {"ansi": "cp1252", "shift_jis": "cp932", "gb2312": "gb18030", "gbk": "gb18030"}
_UTF_16_OF_START = {b"<\0": "utf-16le", b"\0<": "utf-16be"}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_REFERENCES = re.compile("(?:&#(?:[0-9]+|x[0-9a-fA-F]+);)+")
_REFERENCE = re.compile("&#(x?)([0-9a-fA-F]+);")
_PLACE = "\0"  # of a placeholder; no XML holds it
_PLACE_BETWEEN_WORDS = re.compile(r"(?<=\w)\0+(?=\w)")
_LAST_CHARACTER = 0x10FFFF


def read_units(path: str, place: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the translation units of a TMX file in any encoding, plain or gzipped.

    Inline tags (`bpt`, `ept`, `it`, `ph`, `ut`) are left out with what they hold; of `hi` the text
    stays. A `ph` between two words becomes a space. Of several variants in one language, the first
    with text is taken. Control characters, which XML forbids and many tools write, are left out;
    two references to the halves of a character, `&#xD83D;&#xDE00;`, are read as the character.

    Args:
        path: The file.
        place: Its name in messages.

    Yields:
        The number of a unit, from 1, and its texts by `xml:lang`, as the file writes it.

    Raises:
        CorpusError: The file is no XML, declares entities, is damaged, or has no text with a
            language.
    """
    # Imported here, because nothing else needs it.
    from xml.etree.ElementTree import ParseError, TreeBuilder

    from defusedxml.common import EntitiesForbidden
    from defusedxml.ElementTree import DefusedXMLParser, iterparse

    number = 0
    has_texts = False
    try:
        with open_binary(path) as file:
            parser = DefusedXMLParser(target=TreeBuilder(), encoding="utf-8")
            open_elements: list[Element] = []
            events = iterparse(_Utf8File(file, place), ("start", "end"), parser)
            for event, element in events:
                if event == "start":
                    if not open_elements:
                        _check_root(element, place)
                    open_elements.append(element)
                    continue
                open_elements.pop()
                if _name_of(element) == UNIT:
                    number += 1
                    texts = _texts_of(element)
                    has_texts = has_texts or bool(texts)
                    if not has_texts:
                        _check_variants(element, place, number)
                    yield number, texts
                    # Units that were read would fill the memory.
                    open_elements[-1].clear()
    except ParseError as error:
        description = Unquoted(f"invalid XML ({error})")
        advice = "Export the file again, or correct it."
        raise bad_value(place, number + 1, None, description, "a TMX file", advice) from None
    except EntitiesForbidden as error:
        description = Unquoted(f"a declaration of the entity {error.name!r}")
        advice = "Take the declaration out: entities can be made to fill the memory."
        raise bad_value(place, number + 1, None, description, "a TMX file", advice) from None
    except UnicodeDecodeError as error:
        bad_bytes = error.object[error.start : error.end]
        description = Unquoted(f"the undecodable bytes {bad_bytes!r}")
        advice = "Correct the encoding in the first line of the file, or export it again as UTF-8."
        raise bad_value(place, number + 1, None, description, error.encoding, advice) from None
    except GZIP_ERRORS as error:
        raise damaged_file_error(place, number + 1, None, error) from error


class _Utf8File:
    """A file of XML as the parser can read it: in UTF-8, without characters that XML forbids.

    Args:
        file: The file.
        place: Its name in messages.

    Raises:
        CorpusError: Its encoding is unknown.
    """

    def __init__(self, file: BinaryIO, place: str) -> None:
        self._file = file
        self._start = file.read(1024)
        encoding = _encoding_of(self._start)
        try:
            self._decoder = codecs.getincrementaldecoder(encoding)()
        except LookupError:
            advice = "Correct the encoding in the first line of the file, or export it again."
            expected = "a known encoding, such as UTF-8"
            raise bad_value(place, 1, None, encoding, expected, advice) from None
        self._rest = ""

    def read(self, size: int) -> bytes:
        """Return the next bytes; none at the end."""
        while True:
            data = self._start + self._file.read(size)
            self._start = b""
            text = self._rest + self._decoder.decode(data, final=not data)
            # No reference goes on after a tag, so what is cut here is whole.
            end = text.rfind(">") + 1 if data else len(text)
            self._rest = text[end:]
            repaired = _REFERENCES.sub(_allowed_references, _FORBIDDEN.sub("", text[:end]))
            if repaired or not data:
                return repaired.encode("utf-8", "replace")


def _encoding_of(start: bytes) -> str:
    """Return the encoding that the first bytes of a file say."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if start.startswith(UTF_16_MARKS):
        return "utf-16"
    if start[:2] in _UTF_16_OF_START:
        return _UTF_16_OF_START[start[:2]]
    declared = _DECLARED_ENCODING.search(start)
    if declared is None:
        return "utf-8"
    name = declared[1].decode().lower()
    if name.startswith("utf-16"):
        return "utf-8"  # The bytes of the declaration say that it is not UTF-16.
    return _ENCODINGS.get(name, name)


def _allowed_references(match: re.Match[str]) -> str:
    """Return references to characters, without those that XML forbids."""
    characters = ""
    for is_hexadecimal, digits in _REFERENCE.findall(match[0]):
        code = int(digits, 16 if is_hexadecimal else 10)
        if code <= _LAST_CHARACTER:
            characters += chr(code)
    # Two halves of a character, which a reference each stands for, become the character.
    data = characters.encode("utf-16le", "surrogatepass")
    allowed = _FORBIDDEN.sub("", data.decode("utf-16le", "replace"))
    return "".join(f"&#{ord(character)};" for character in allowed)


def _check_root(element: "Element", place: str) -> None:
    """Raise CorpusError if the outermost element of a file is not that of TMX."""
    name = _name_of(element)
    if name != ROOT:
        description = Unquoted(f"<{name}>")
        advice = "Export the file as TMX."
        raise bad_value(place, None, None, description, f"the element <{ROOT}>", advice)


def _check_variants(unit: "Element", place: str, number: int) -> None:
    """Raise CorpusError if a unit has variants, but none with a language and a segment."""
    variants = [child for child in unit if _name_of(child) == VARIANT]
    if not variants:
        return
    advice = "Export the file again, or correct it."
    if all(_language_of(variant) is None for variant in variants):
        description = Unquoted("<tuv> without xml:lang")
        raise bad_value(place, number, None, description, "the language of each text", advice)
    description = Unquoted("<tuv> without <seg>")
    raise bad_value(place, number, None, description, "a <seg> with the text", advice)


def _texts_of(unit: "Element") -> dict[str, str]:
    """Return the texts of a unit by language."""
    texts: dict[str, str] = {}
    for variant in unit:
        language = _language_of(variant)
        if _name_of(variant) != VARIANT or language is None:
            continue
        for child in variant:
            if _name_of(child) == SEGMENT and not texts.get(language):
                texts[language] = _text_of(child).strip()
    return texts


def _language_of(variant: "Element") -> str | None:
    for attribute in LANGUAGE_ATTRIBUTES:
        if attribute in variant.attrib:
            return variant.attrib[attribute].strip() or None
    return None


def _text_of(segment: "Element") -> str:
    """Return the text of a segment without that of inline tags."""
    parts: list[str] = []
    # Not recursive: tags may be nested more deeply than Python calls.
    waiting: list[Element | str] = [segment]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        name = _name_of(item)
        if name == PLACEHOLDER:
            parts.append(_PLACE)
        if name in MARKUP:
            continue
        parts.append(item.text or "")
        for child in reversed(item):
            waiting.append(child.tail or "")
            waiting.append(child)
    text = _PLACE_BETWEEN_WORDS.sub(" ", "".join(parts))
    return text.replace(_PLACE, "")


def _name_of(element: "Element") -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]
