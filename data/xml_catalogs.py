"""Read catalogs of translations in XML: XLIFF 1.2 and 2.x, and Qt's .ts."""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from .pieces import Piece, UnitFile
from .xml_pieces import XmlPieces, attributes_of, element_pattern, name_of, text_of

# Inline tags without text: of XLIFF 1.2 those that hold code of the format, or stand for it, and
# those of XLIFF 2, which are empty. In `g`, `pc` and `mrk` there is text.
_MARKUP = frozenset(
    {"bpt", "ept", "it", "ph", "x", "bx", "ex", "sc", "ec", "sm", "em", "cp", "byte"}
)
_PLACEHOLDERS = frozenset({"ph", "x"})
# The languages of gettext, of Qt and of many exports that name one language only.
_SOURCE = "en"
_TARGET = "target"
_FINISHED = ("translated", "final", "signed-off", "reviewed")
_ALTERNATIVES = element_pattern("alt-trans")


class _XmlCatalog(UnitFile):
    """A catalog in XML.

    Its units have a source and a target text; their languages stand in elements around them.
    """

    is_catalog = True
    root = ""
    unit = ""
    language_tags = re.compile("")
    source_attributes: tuple[str, ...] = ()
    target_attributes: tuple[str, ...] = ()

    def __init__(self, path: str, place: str) -> None:
        super().__init__(path, place)
        self.xml = XmlPieces(path, place, self.root, self.unit.split())

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces; see `UnitFile.pieces`."""
        languages = (_SOURCE, _TARGET)
        for piece in self.xml:
            if piece.number is None:
                for tag in self.language_tags.findall(piece.text):
                    languages = self._languages_of(attributes_of(tag), languages)
            yield replace(piece, languages=languages)

    def _languages_of(
        self, attributes: dict[str, str], languages: tuple[str, str]
    ) -> tuple[str, str]:
        """Return the languages that a tag names, or else those that hold around it."""
        source, target = languages
        for name in self.source_attributes:
            source = attributes.get(name) or source
        for name in self.target_attributes:
            target = attributes.get(name) or target
        return source, target

    def is_cut_off(self) -> bool:
        """Read the file, and return whether its end is missing; see `UnitFile.is_cut_off`."""
        for _ in self.xml:
            pass
        return self.xml.is_cut_off

    def encoded(self, text: str) -> bytes:
        """Return the bytes of text; see `UnitFile.encoded`."""
        return self.xml.encoded(text)


class XliffCatalog(_XmlCatalog):
    """A file of XLIFF 1.2 or 2.x.

    A unit is a `trans-unit` of 1.2 or a `segment` of 2.x. Those that are drafts by their `state`,
    are not to be translated, or have no target, are no pairs.
    """

    root = "xliff"
    unit = "trans-unit segment"
    language_tags = re.compile(r"<(?:[\w.-]+:)?(?:file|xliff)\s[^>]*>")
    source_attributes = ("source-language", "srcLang")
    target_attributes = ("target-language", "trgLang")

    def rows(self, piece: Piece) -> list[dict[str, str]]:
        """Return the source and the target of a unit; see `UnitFile.rows`."""
        unit = self.xml.parsed(piece)
        texts = {}
        states = [unit.get("state", "")]
        for child in unit:
            if name_of(child) in ("source", "target"):
                texts[name_of(child)] = text_of(child, _MARKUP, _PLACEHOLDERS).strip()
                states.append(child.get("state", ""))
        is_draft = any(state and not state.startswith(_FINISHED) for state in states)
        if is_draft or unit.get("translate") == "no" or not texts.get("target"):
            return []
        source, target = piece.languages
        return [{source: texts.get("source", ""), target: texts["target"]}]

    def edited(self, piece: Piece, languages: Collection[str]) -> str:
        """Return a unit as a draft: `needs-review-translation` in 1.2, `initial` in 2.x."""
        if re.match(r"<(?:[\w.-]+:)?segment[\s/>]", piece.text):
            return _with_attribute(piece.text, 0, "state", "initial")
        hidden = _ALTERNATIVES.sub(lambda match: " " * len(match[0]), piece.text)
        target = re.search(r"<(?:[\w.-]+:)?target[\s/>]", hidden)
        if target is None:
            return piece.text
        text = _with_attribute(piece.text, target.start(), "state", "needs-review-translation")
        return re.sub(r"""^(<[^>]*\sapproved\s*=\s*["'])yes""", r"\1no", text)


class QtCatalog(_XmlCatalog):
    """A file of Qt Linguist, .ts. A unit is a `message`; unfinished and old ones are no pairs.

    Of a message with plural forms, the last form is that of most numbers, and the source is written
    as their text.
    """

    root = "TS"
    unit = "message"
    language_tags = re.compile(r"<TS\s[^>]*>")
    source_attributes = ("sourcelanguage",)
    target_attributes = ("language",)

    def rows(self, piece: Piece) -> list[dict[str, str]]:
        """Return the source and the translations of a message; see `UnitFile.rows`."""
        message = self.xml.parsed(piece)
        source = message.findtext("source") or ""
        translation = message.find("translation")
        if translation is None or translation.get("type"):
            return []
        forms = translation.findall("numerusform") or [translation]
        source_language, target_language = piece.languages
        rows = []
        for form in forms:
            text = text_of(form, _MARKUP, _PLACEHOLDERS).strip()
            if text:
                rows.append({source_language: source.strip(), target_language: text})
        return rows

    def edited(self, piece: Piece, languages: Collection[str]) -> str:
        """Return a message whose translation is unfinished."""
        translation = re.search(r"<translation[\s/>]", piece.text)
        if translation is None:
            return piece.text
        return _with_attribute(piece.text, translation.start(), "type", "unfinished")


def _with_attribute(text: str, start: int, name: str, value: str) -> str:
    """Return text in which the tag at a position has an attribute."""
    end = text.index(">", start)
    tag = text[start:end]
    old = re.compile(rf"""(\s{name}\s*=\s*)("[^"]*"|'[^']*')""")
    if old.search(tag):
        tag = old.sub(rf'\1"{value}"', tag, count=1)
    else:
        name_end = re.match(r"<[^\s/>]+", tag)
        assert name_end is not None
        tag = f'{name_end[0]} {name}="{value}"{tag[name_end.end() :]}'
    return text[:start] + tag + text[end:]
