"""Read translation memories, TMX: a translation unit is a row, in flat memory."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .checks import Unquoted, bad_value
from .lines import GZIP_ERRORS, damaged_file_error, open_binary

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ROOT = "tmx"
UNIT = "tu"
VARIANT = "tuv"
SEGMENT = "seg"
LANGUAGE_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")  # of TMX 1.4 and 1.1
# What stands in these elements is code of the translated format, such as <b>, and no text.
MARKUP = frozenset({"bpt", "ept", "it", "ph", "ut"})


def unit_rows(path: str, place: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the translation units of a TMX file, plain or gzipped.

    Inline tags (`bpt`, `ept`, `it`, `ph`, `ut`) are left out with what they hold; of `hi` the text
    stays. Of several variants in one language, the first is taken.

    Args:
        path: The file.
        place: Its name in messages.

    Yields:
        The number of a unit, from 1, and its texts by `xml:lang`, as the file writes it.

    Raises:
        CorpusError: The file is no XML, declares entities, or is damaged.
    """
    # Imported here, because nothing else needs it.
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import EntitiesForbidden
    from defusedxml.ElementTree import iterparse

    number = 0
    try:
        with open_binary(path) as file:
            open_elements: list[Element] = []
            for event, element in iterparse(file, events=("start", "end")):
                if event == "start":
                    if not open_elements:
                        _check_root(element, place)
                    open_elements.append(element)
                    continue
                open_elements.pop()
                if _name_of(element) == UNIT:
                    number += 1
                    yield number, _texts_of(element)
                    # Units that were read would fill the memory.
                    open_elements[-1].clear()
    except ParseError as error:
        description = Unquoted(f"invalid XML ({error})")
        advice = "Export the file again, or correct it."
        if "invalid character number" in str(error):
            advice = (
                "XML forbids control characters such as &#x1F;: take them out, "
                f"sed -E 's/&#x0*1?[0-9a-fA-F];//g' {shlex.quote(place)} > clean.tmx."
            )
        raise bad_value(place, number + 1, None, description, "a TMX file", advice) from None
    except EntitiesForbidden as error:
        description = Unquoted(f"a declaration of the entity {error.name!r}")
        advice = "Take the declaration out: entities can be made to fill the memory."
        raise bad_value(place, number + 1, None, description, "a TMX file", advice) from None
    except GZIP_ERRORS as error:
        raise damaged_file_error(place, number + 1, None, error) from error


def _check_root(element: "Element", place: str) -> None:
    """Raise CorpusError if the outermost element of a file is not that of TMX."""
    name = _name_of(element)
    if name != ROOT:
        description = Unquoted(f"<{name}>")
        advice = "Export the file as TMX."
        raise bad_value(place, None, None, description, f"the element <{ROOT}>", advice)


def _texts_of(unit: "Element") -> dict[str, str]:
    """Return the texts of a unit by language."""
    texts: dict[str, str] = {}
    for variant in unit:
        if _name_of(variant) != VARIANT:
            continue
        language = _language_of(variant)
        for child in variant:
            if language is not None and _name_of(child) == SEGMENT:
                texts.setdefault(language, _text_of(child).strip())
    return texts


def _language_of(variant: "Element") -> str | None:
    for attribute in LANGUAGE_ATTRIBUTES:
        if attribute in variant.attrib:
            return variant.attrib[attribute]
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
        parts.append(item.text or "")
        for child in reversed(item):
            waiting.append(child.tail or "")
            if _name_of(child) not in MARKUP:
                waiting.append(child)
    return "".join(parts)


def _name_of(element: "Element") -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]
