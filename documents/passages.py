"""Passages of a document: its sections, cut where they are long.

One vector for a long document says what the whole is about, and little of what stands in it. So an
index has a vector for each passage. The headings above a passage are embedded with it, because they
say what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_CHARACTERS = 500  # of a passage, unless no line or sentence ends before

_HEADING = re.compile(r"(?P<marks>#{1,6})[ \t]+(?P<title>\S.*)")  # of Markdown
_FENCE = re.compile(r"[ \t]*(?P<marks>`{3,}|~{3,})")  # around code, whose `#` begins a comment
# What may stand at the end of a heading: `#` once more, and an anchor such as `{ #install }`.
_HEADING_END = re.compile(r"[ \t]*(#+|\{[^{}]*\})[ \t]*$")
_EMPHASIS = re.compile(r"[*_`]{1,3}(?=\S)(.+?)(?<=\S)[*_`]{1,3}")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# Where a paragraph may be cut: behind a line, or behind a sentence.
_PIECE_END = re.compile(r"\n|(?<=[.!?…])\s+|(?<=[。！？])")
_HEADING_SEPARATOR = " › "


@dataclass(frozen=True)
class Passage:
    """A passage of a document.

    Attributes:
        begin: The place of its first character in the text.
        end: The place behind its last character.
        headings: The headings that it stands under, the title of the document first, without those
            that it begins with.
        path: All headings that it stands under.
    """

    begin: int
    end: int
    headings: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    def embedded_text(self, text: str) -> str:
        """Return the passage of a text below its headings, as it is embedded."""
        return "\n\n".join([*self.headings, text[self.begin : self.end].strip()])

    @property
    def heading(self) -> str:
        """The headings as one line, "" without one."""
        return _HEADING_SEPARATOR.join(self.path)


@dataclass
class _Block:
    """A heading, a paragraph, or a piece of a long paragraph.

    Attributes:
        begin: The place of its first character.
        end: The place behind its last character.
        level: That of the heading, from 1; 0 for text.
        title: That of the heading.
    """

    begin: int
    end: int
    level: int = 0
    title: str = ""


def split_passages(text: str) -> list[Passage]:
    """Return the passages of a document, at least one. Together they hold all of its characters.

    A passage ends where the next section begins (a line `## Heading` of Markdown), and where
    another paragraph would make it longer than 500 characters. Longer paragraphs are cut at the
    ends of lines and sentences.

    Args:
        text: The document.
    """
    passages: list[Passage] = []
    current: list[_Block] = []
    path: list[str] = []
    above: list[str] = []  # the headings above the first block of the current passage
    has_text = False  # Headings alone are no passage.
    for block in _blocks(text):
        is_full = bool(current) and block.end - current[0].begin > MOST_CHARACTERS
        if is_full or (has_text and block.level):
            passages.append(_passage(current, above, path))
            current = []
            has_text = False
        if not current:
            above = [title for title in path if title]
        if block.level:
            # A heading ends the sections of its level and below. Levels may be left out.
            path = path[: block.level - 1]
            path += [""] * (block.level - 1 - len(path))
            path.append(block.title)
            above = above[: block.level - 1]
        elif not text[block.begin : block.end].isspace():
            has_text = True
        current.append(block)
    passages.append(_passage(current or [_Block(0, len(text))], above, path))
    return passages


def heading_at(text: str, begin: int) -> str:
    """Return the headings of the passage that begins at a place, as one line; "" without one."""
    for passage in split_passages(text):
        if passage.begin == begin:
            return passage.heading
    return ""


def _passage(blocks: Sequence[_Block], above: Sequence[str], path: Sequence[str]) -> Passage:
    """Return the passage of some blocks.

    Args:
        blocks: The blocks.
        above: The headings above the first of them.
        path: The headings that the last one stands under.
    """
    titles = tuple(title for title in path if title)
    own_titles = {block.title for block in blocks if block.level}
    headings = tuple(title for title in above if title not in own_titles)
    return Passage(blocks[0].begin, blocks[-1].end, headings, titles)


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the headings and paragraphs of a text, the blank lines behind them included."""
    begin = 0
    fence = ""
    is_blank_before = False
    for match in _LINE.finditer(text):
        line = match.group()
        fence_match = _FENCE.match(line)
        is_code = bool(fence) or fence_match is not None
        if fence_match is not None:
            marks = fence_match["marks"]
            if not fence:
                fence = marks
            elif marks.startswith(fence):
                fence = ""
        heading = None if is_code else _HEADING.match(line)
        is_blank = not line.strip()
        begins_block = heading is not None or (is_blank_before and not is_blank and not is_code)
        if begins_block and match.start() > begin:
            yield from _pieces(text, begin, match.start())
            begin = match.start()
        if heading is not None:
            yield _Block(begin, match.end(), len(heading["marks"]), _title(heading["title"]))
            begin = match.end()
        is_blank_before = is_blank
    if begin < len(text):
        yield from _pieces(text, begin, len(text))


def _pieces(text: str, begin: int, end: int) -> Iterator[_Block]:
    """Yield a paragraph, in pieces if it is long."""
    piece_begin = begin
    piece_end = begin
    cuts = [match.end() for match in _PIECE_END.finditer(text, begin, end)]
    for cut in [*cuts, end]:
        if cut - piece_begin > MOST_CHARACTERS and piece_end > piece_begin:
            yield _Block(piece_begin, piece_end)
            piece_begin = piece_end
        piece_end = cut
    if end > piece_begin:
        yield _Block(piece_begin, end)


def _title(heading: str) -> str:
    """Return a heading without anchors and emphasis."""
    previous = ""
    while heading != previous:
        previous = heading
        heading = _HEADING_END.sub("", heading)
    return _EMPHASIS.sub(r"\1", heading).strip()
