"""Split files of XML at their units, so that each can be read, left out or marked by itself.

A piece is text as the file has it: joined again and encoded, the pieces are the file, byte for
byte. A unit that is no XML spoils no other one.
"""

import codecs
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from .checks import CorpusError, Unquoted, bad_value
from .lines import GZIP_ERRORS, UTF_16_MARKS, damaged_file_error, open_binary
from .pieces import Piece

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_BLOCK_BYTES = 1 << 20
_START_BYTES = 1024  # The encoding is declared in them.
_LONGEST_PIECE = 1 << 26  # characters

_DECLARED_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
# Names that Python does not know, and encodings whose files have characters of a larger one.
_ENCODINGS = {"ansi": "cp1252", "shift_jis": "cp932", "gb2312": "gb18030", "gbk": "gb18030"}
_UTF_16_OF_START = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_UTF_16_OF_MARK = dict(zip(UTF_16_MARKS, ("utf-16-le", "utf-16-be"), strict=True))
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_REFERENCES = re.compile("(?:&#(?:[0-9]+|x[0-9a-fA-F]+);)+")
_REFERENCE = re.compile("&#(x?)([0-9a-fA-F]+);")
_LAST_CHARACTER = 0x10FFFF
_PLACE = "\0"  # of a placeholder; no XML holds it
# What programs fill in, written as text: {1}, {{name}}, {:,.2f}, %s, %.2f, %(name)s, %1$d, %ld, %1,
# $name, ${name}
_WRITTEN_PLACEHOLDER = re.compile(
    r"\{+[\w.]*(?::[^{}\s]*)?\}+|%(?:\d+\$|\(\w+\))?[-+#0']*[\d.*]*(?:hh|ll|[hlqjzL])?[A-Za-z@]"
    r"|%L?\d+|\$\w+|\$\{\w+\}",
    re.ASCII,
)
_PLACE_BETWEEN_WORDS = re.compile(r"(?<=\w)\0+(?=\w)")

# Parts of XML. Each can match in one way only, so that a file that is cut off takes no longer.
_ATTRIBUTES = r"""(?:[^<>"']|"[^<"]*"|'[^<']*')*"""
_SKIPPED = (
    r"<!--[^-]*(?:-(?!->)[^-]*)*-->"
    r"|<!\[CDATA\[[^\]]*(?:\](?!\]>)[^\]]*)*\]\]>"
    r"|<\?[^?]*(?:\?(?!>)[^?]*)*\?>"
)
_SKIPPED_STARTS = r"<!--|<!\[CDATA\[|<\?"
_COMMENTS = re.compile(_SKIPPED)
_TAG = re.compile(rf"</?{_ATTRIBUTES}>")
_ROOT = re.compile(rf"<(?:[\w.-]+:)?([\w.-]+){_ATTRIBUTES}>")
_ATTRIBUTE = re.compile(r"""([\w.:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_ENTITY = re.compile(r"<!ENTITY\s+(?:%\s*)?([\w.-]+)")


def element_pattern(*names: str) -> re.Pattern[str]:
    """Return a pattern of whole elements, with any prefix of a namespace.

    Its group `element` is an element, or one whose end is missing before the next begins. Comments
    and the like match too; the group `begun` is the start of what does not end in the text.

    Args:
        names: The names of elements that are not nested.
    """
    name = rf"(?:[\w.-]+:)?(?:{'|'.join(names)})(?=[\s/>])"
    inner = rf"(?:{_SKIPPED}|<(?!/?{name}|!--|!\[CDATA\[|\?))[^<]*"
    element = (
        rf"<{name}(?:{_ATTRIBUTES}|[^>]*)"  # A tag with wrong quotes ends with the next >.
        rf"(?:(?<=/)>|(?<!/)>[^<]*(?:{inner})*(?:</{name}\s*>|(?=<{name})))"
    )
    return re.compile(
        rf"(?P<element>{element})|(?:{_SKIPPED})|(?P<begun><{name}|{_SKIPPED_STARTS})"
    )


def has_end_tag(text: str, name: str) -> bool:
    """Return whether a text has the end tag of an element, outside of comments and the like."""
    return re.search(rf"</{re.escape(name)}\s*>", _COMMENTS.sub("", text)) is not None


def _without_unfinished_tag(text: str) -> str:
    """Return a text without a tag at its end whose own end is missing."""
    begin = 0  # The tag is behind the last comment, which may have any signs.
    for comment in _COMMENTS.finditer(text):
        begin = comment.end()
    start = text.rfind("<", begin)
    if start < 0 or _TAG.match(text, start):
        return text
    return text[:start]


def attributes_of(tag: str) -> dict[str, str]:
    """Return the attributes of a start tag, with names as the file writes them."""
    attributes = {}
    for name, first, second in _ATTRIBUTE.findall(tag):
        attributes[name] = first or second
    return attributes


class XmlPieces:
    """The pieces of a file of XML, plain or gzipped, in any encoding.

    Args:
        path: The file.
        place: Its name in messages.
        root: The name of its outermost element.
        units: The names of the elements that are units.

    Attributes:
        is_cut_off: Whether the end tag of the root is missing. Known after the last piece.
        end: The text behind the last whole unit, without a last unit or tag whose end is missing;
            None if the file has its end. Known after the last piece.
        root_name: The name of the outermost element, with its prefix if the file has one.
    """

    def __init__(self, path: str, place: str, root: str, units: Sequence[str]) -> None:
        self._path = path
        self._place = place
        self._root = root
        self._units = element_pattern(*units)
        self._encoding = "utf-8"
        # In this encoding any bytes are text, and that text is these bytes.
        self._view = "latin-1"
        self._root_tag = ""
        self.root_name = root
        self.is_cut_off = False
        self.end: str | None = None

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces in the order of the file.

        Raises:
            CorpusError: The file has another outermost element, declares entities, is damaged, or
                has an unknown encoding.
        """
        number = 0
        rest = ""
        try:
            for block in self._blocks():
                text = rest + block
                end = 0
                for match in self._whole_units(text):
                    if number == 0:
                        self._read_start(text[: match.end()])
                    number += 1
                    yield Piece(text[end : match.start()])
                    yield Piece(match[0], number)
                    end = match.end()
                rest = text[end:]
                if len(rest) > _LONGEST_PIECE:
                    raise self._endless_piece(number + 1)
        except GZIP_ERRORS as error:
            raise damaged_file_error(self._place, number + 1, None, error) from error
        if number == 0:
            self._read_start(rest)
        yield from self._last_pieces(rest, number + 1)

    def _whole_units(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the units of a text, up to what does not end in it."""
        for match in self._units.finditer(text):
            if match["begun"]:
                return
            if match["element"]:
                yield match

    def _last_pieces(self, rest: str, number: int) -> Iterator[Piece]:
        """Yield what follows the last whole unit: perhaps another one, whose end is missing.

        Args:
            rest: The text up to the end of the file.
            number: The number of the next unit.
        """
        begun = next((match for match in self._units.finditer(rest) if match["begun"]), None)
        end = rest if begun is None else rest[: begun.start()]
        self.is_cut_off = not has_end_tag(rest, self.root_name)
        if begun is None:
            end = _without_unfinished_tag(end)
        if has_end_tag(end, self.root_name):
            yield Piece(end)  # What follows is a comment without an end, or a part of a tag.
            return
        self.end = end
        yield Piece(end)
        yield Piece(rest[len(end) :], number)

    def encoded(self, text: str) -> bytes:
        """Return text of pieces as the bytes that the file has."""
        return text.encode(self._view, "surrogatepass")

    def decoded(self, text: str) -> str:
        """Return text of a piece as its characters.

        Raises:
            UnicodeDecodeError: The bytes of the file are none.
        """
        if self._view == self._encoding:
            return text.encode(self._view, "surrogatepass").decode(self._view)
        return text.encode(self._view).decode(self._encoding)

    def parsed(self, piece: Piece) -> "Element":
        """Return the element of a unit.

        Control characters, which XML forbids and many tools write, are left out; two references to
        the halves of a character, `&#xD83D;&#xDE00;`, are read as the character.

        Raises:
            CorpusError: It is no XML, or its bytes can't be decoded.
        """
        # Imported here, because nothing else needs it. No document type is parsed, and so no
        # entity can be made to fill the memory.
        from xml.etree.ElementTree import ParseError, fromstring

        if not self._units.match(piece.text):
            description = Unquoted(f"the end of the file without </{self.root_name}>")
            advice = "The file is cut off: fetch or export it again."
            raise self._bad_unit(piece, description, "a unit, or that end", advice)
        try:
            text = _FORBIDDEN.sub("", self.decoded(piece.text))
        except UnicodeDecodeError as error:
            bad_bytes = error.object[error.start : error.end]
            description = Unquoted(f"the undecodable bytes {bad_bytes!r}")
            advice = (
                "Correct the encoding in the first line of the file, or export it again as UTF-8."
            )
            raise self._bad_unit(piece, description, self._encoding, advice) from None
        text = _REFERENCES.sub(_allowed_references, text)
        try:
            return fromstring(f"{self._root_tag}{text}</{self.root_name}>")[0]
        except ParseError as error:
            reason = str(error).partition(": line ")[0]
            description = Unquoted(f"invalid XML ({reason})")
            advice = "Correct or delete the unit, or export the file again."
            raise self._bad_unit(piece, description, "a whole unit", advice) from None

    def _bad_unit(self, piece: Piece, description: str, expected: str, advice: str) -> CorpusError:
        return bad_value(self._place, piece.number, None, description, expected, advice)

    def _endless_piece(self, number: int) -> CorpusError:
        description = Unquoted("a unit or a comment that does not end")
        advice = "Correct it, or export the file again."
        return bad_value(self._place, number, None, description, "an end", advice)

    def _blocks(self) -> Iterator[str]:
        """Yield the file as text in which each character stands for the bytes that it has.

        Raises:
            CorpusError: Its encoding is unknown.
        """
        with open_binary(self._path) as file:
            block = file.read(_START_BYTES)
            self._encoding = _encoding_of(block)
            self._view = self._encoding if self._encoding.startswith("utf-16-") else "latin-1"
            try:
                codecs.lookup(self._encoding)
            except LookupError:
                advice = "Correct the encoding in the first line of the file, or export it again."
                expected = "a known encoding, such as UTF-8"
                raise bad_value(self._place, 1, None, self._encoding, expected, advice) from None
            decoder = codecs.getincrementaldecoder(self._view)("surrogatepass")
            while block:
                yield decoder.decode(block)
                block = file.read(_BLOCK_BYTES)

    def _read_start(self, start: str) -> None:
        """Check the start of a file, and keep its outermost tag, which declares namespaces.

        Raises:
            CorpusError: The file is no XML of this kind, or declares entities.
        """
        start = _COMMENTS.sub("", start)
        entity = _ENTITY.search(start)
        if entity is not None:
            description = Unquoted(f"a declaration of the entity {entity[1]!r}")
            advice = "Take the declaration out: entities can be made to fill the memory."
            raise bad_value(self._place, None, None, description, "a file without", advice)
        root = _ROOT.search(start)
        if root is None:
            description = Unquoted("invalid XML (no element found)")
        else:
            description = Unquoted(f"<{root[1]}>")
        if root is None or root[1] != self._root:
            expected = f"the element <{self._root}>"
            advice = f"Export the file as {self._root.upper()}."
            raise bad_value(self._place, None, None, description, expected, advice)
        self._root_tag = root[0].removesuffix("/>").removesuffix(">") + ">"
        self.root_name = re.split(r"[\s/>]", root[0][1:])[0]


def _encoding_of(start: bytes) -> str:
    """Return the encoding that the first bytes of a file say."""
    for starts in (_UTF_16_OF_MARK, _UTF_16_OF_START):
        if start[:2] in starts:
            return starts[start[:2]]
    declared = _DECLARED_ENCODING.search(start)
    if declared is None or start.startswith(codecs.BOM_UTF8):
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


# ---- Elements


def name_of(element: "Element") -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def text_of(element: "Element", markup: Collection[str], placeholders: Collection[str]) -> str:
    """Return the text of an element without that of inline tags.

    Args:
        element: The element.
        markup: The names of inline tags that hold no text.
        placeholders: Those of them that stand for something by themselves, such as a line break.
            What a program fills in, such as `{1}`, is text. The others become a space between two
            words.
    """
    parts: list[str] = []
    # Not recursive: tags may be nested more deeply than Python calls.
    waiting: list[Element | str] = [element]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        name = name_of(item)
        if name in placeholders:
            written = _WRITTEN_PLACEHOLDER.fullmatch((item.text or "").strip())
            parts.append(written[0] if written else _PLACE)
        if name in markup:
            continue
        parts.append(item.text or "")
        for child in reversed(item):
            waiting.append(child.tail or "")
            waiting.append(child)
    text = _PLACE_BETWEEN_WORDS.sub(" ", "".join(parts))
    return text.replace(_PLACE, "")
