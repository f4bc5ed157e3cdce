"""Read translation memories, TMX: a translation unit is a row, in flat memory."""

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from .checks import Unquoted, bad_value
from .pieces import WHITE_SPACE, Piece, UnitFile
from .xml_pieces import (
    XmlPieces,
    attributes_of,
    element_pattern,
    has_end_tag,
    name_of,
    text_of,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ROOT = "tmx"
_UNIT = "tu"
_VARIANT = "tuv"
_SEGMENT = "seg"
_LANGUAGE_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")  # of TMX 1.4 and 1.1
# What stands in these elements is code of the translated format, such as <b>, and no text.
_MARKUP = frozenset({"bpt", "ept", "it", "ph", "ut"})
_PLACEHOLDERS = frozenset({"ph"})
_VARIANTS = element_pattern(_VARIANT)
_START_TAG = re.compile(r"<[^>]*>")


class TranslationMemory(UnitFile):
    """A TMX file in any encoding.

    Inline tags (`bpt`, `ept`, `it`, `ph`, `ut`) are left out with what they hold; of `hi` the text
    stays. A `ph` that a program fills in, such as `<ph>{1}</ph>`, is text; another one between two
    words becomes a space. Of several variants in one language, the first with text is taken.
    """

    def __init__(self, path: str, place: str) -> None:
        super().__init__(path, place)
        self._xml = XmlPieces(path, place, _ROOT, (_UNIT,))

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces; see `UnitFile.pieces`."""
        yield from self._xml

    def missing_end(self) -> str:
        """Return the end tags that a memory lacks; see `UnitFile.missing_end`."""
        end = self._xml.end
        if end is None:
            return ""
        body = self._xml.root_name.removesuffix(_ROOT) + "body"  # with the prefix of the root
        missing = [name for name in (body, self._xml.root_name) if not has_end_tag(end, name)]
        return "".join(f"\n</{name}>" for name in missing) + "\n"

    def encoded(self, text: str) -> bytes:
        """Return the bytes of text; see `UnitFile.encoded`."""
        return self._xml.encoded(text)

    def rows(self, piece: Piece) -> list[dict[str, str]]:
        """Return the texts of a unit by `xml:lang`, as the file writes it.

        Raises:
            CorpusError: The unit is no XML, or none of its variants has a language and a segment.
        """
        unit = self._xml.parsed(piece)
        texts: dict[str, str] = {}
        variants = [child for child in unit if name_of(child) == _VARIANT]
        for variant in variants:
            language = _language_of(variant)
            for child in variant:
                is_segment = name_of(child) == _SEGMENT
                if language is not None and is_segment and not texts.get(language):
                    texts[language] = text_of(child, _MARKUP, _PLACEHOLDERS).strip()
        if variants and not texts:
            self._check_variants(variants, piece.number)
        return [texts]

    def edited(self, piece: Piece, languages: Collection[str]) -> str:
        """Return a unit without the variants of some languages, and the white space before them."""
        parts = []
        end = 0
        for match in _VARIANTS.finditer(piece.text):
            tag = _START_TAG.match(match[0])
            if not match["element"] or tag is None:
                continue
            attributes = attributes_of(self._xml.decoded(tag[0]))
            language = attributes.get("xml:lang", attributes.get("lang", "")).strip()
            if language in languages:
                parts.append(piece.text[end : match.start()].rstrip(WHITE_SPACE))
                end = match.end()
        return "".join([*parts, piece.text[end:]])

    def _check_variants(self, variants: list["Element"], number: int | None) -> None:
        """Raise CorpusError, because no variant of a unit has a language and a segment."""
        advice = "Correct or delete the unit, or export the file again."
        if all(_language_of(variant) is None for variant in variants):
            description = Unquoted("<tuv> without xml:lang")
            expected = "the language of each text"
        else:
            description = Unquoted("<tuv> without <seg>")
            expected = "a <seg> with the text"
        raise bad_value(self.place, number, None, description, expected, advice)


def _language_of(variant: "Element") -> str | None:
    for attribute in _LANGUAGE_ATTRIBUTES:
        if attribute in variant.attrib:
            return variant.attrib[attribute].strip() or None
    return None
