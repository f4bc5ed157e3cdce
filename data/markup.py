"""Read documents in Markdown and HTML: their text by blocks, without markup and code blocks.

```python
for section in sections_of(read_blocks("guide.md")):
    print(section.heading, len(section.text))
```
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$\n?", re.DOTALL | re.MULTILINE)
# How MkDocs writes notes and tabs: a line that opens one, whose text is indented, or lines around.
_OPENING = re.compile(r'^([ \t]*)(?:!!!|\?\?\?\+?|===)[ \t]+["\w].*$')
_FENCE_OF_NOTE = re.compile(r"^[ \t]*/{3,}(?:[ \t].*)?$")
_INDENT = 4  # characters
_HEADING = re.compile("h([1-6])")
_PERMALINK = "\u00b6\uf0c1#"  # what generators of sites write behind a heading
# Elements that have no text of the document: code, and what one clicks on.
_LEFT_OUT = frozenset(
    {"script", "style", "template", "noscript", "svg", "math", "pre", "nav", "button", "select"}
    | {"textarea", "iframe", "object", "title", "dialog", "menu"}
)
# Within an article, these have text of it, too; around it, that of the site.
_AROUND = frozenset({"header", "footer", "aside"})
_ROLES_AROUND = frozenset({"navigation", "banner", "contentinfo", "search", "complementary"})
_CONTENT = frozenset({"main", "article"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
    | {"track", "wbr"}
)
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd"}
    | {"details", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1"}
    | {"h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html", "legend", "li", "main", "ol"}
    | {"p", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"}
)
_CELLS = frozenset({"td", "th"})
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list, a row of a table, or a heading.

    Attributes:
        text: Its text, on one line.
        level: The level of a heading, from 1; 0 for other blocks.
    """

    text: str
    level: int = 0


@dataclass(frozen=True)
class Section:
    """What stands under a heading, up to the next one.

    Attributes:
        heading: The heading; "" for what stands before the first one.
        text: The blocks, with blank lines between.
        level: The level of the heading, from 1; 0 without one.
    """

    heading: str
    text: str
    level: int = 0


def text_of_blocks(blocks: Iterable[Block]) -> str:
    """Return the text of blocks, with blank lines between."""
    return "\n\n".join(block.text for block in blocks)


def sections_of(blocks: Iterable[Block]) -> list[Section]:
    """Return the sections of a document. One without text has a heading alone."""
    sections: list[Section] = []
    heading = Block("")
    texts: list[Block] = []
    for block in blocks:
        if not block.level:
            texts.append(block)
            continue
        if heading.level or texts:
            sections.append(Section(heading.text, text_of_blocks(texts), heading.level))
        heading = block
        texts = []
    if heading.level or texts:
        sections.append(Section(heading.text, text_of_blocks(texts), heading.level))
    return sections


# ---- Markdown


def markdown_blocks(text: str) -> list[Block]:
    """Return the blocks of a text in Markdown: CommonMark, with tables and the notes of MkDocs.

    Links and images leave their texts, code within a sentence stays, and front matter, code blocks
    and comments are left out.
    """
    text = _FRONT_MATTER.sub("", text)
    parser = MarkdownIt("commonmark").enable("table")
    blocks = []
    level = 0
    cells: list[str] = []
    is_row = False
    for token in parser.parse(_without_notes(text)):
        if token.type == "heading_open":
            level = int(token.tag[1])
        elif token.type == "tr_open":
            is_row = True
        elif token.type == "tr_close":
            blocks.append(Block(" | ".join(filter(None, cells))))
            cells = []
            is_row = False
        elif token.type == "inline" and is_row:
            cells.append(_inline_text(token.children or ()))
        elif token.type == "inline":
            blocks.append(Block(_inline_text(token.children or ()), level))
            level = 0
        elif token.type == "html_block":
            blocks += html_blocks(token.content)
    return [block for block in blocks if block.text]


def _without_notes(text: str) -> str:
    """Return Markdown in which the text of notes and tabs is text like any other."""
    lines = []
    indents: list[int] = []
    for line in text.split("\n"):
        blank_count = len(line) - len(line.lstrip())
        if line.strip():
            while indents and blank_count < indents[-1]:
                indents.pop()
        opening = _OPENING.match(line)
        if opening is not None:
            indents.append(len(opening[1]) + _INDENT)
            lines.append("")
        elif _FENCE_OF_NOTE.match(line):
            lines.append("")
        else:
            lines.append(line[indents[-1] :] if indents else line)
    return "\n".join(lines)


def _inline_text(tokens: Sequence[Token]) -> str:
    """Return the text of a paragraph or the like, on one line."""
    parts = []
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type != "html_inline":
            parts.append(token.content)
    return _SPACES.sub(" ", "".join(parts)).strip()


# ---- HTML


def html_blocks(text: str) -> list[Block]:
    """Return the blocks of a page of HTML.

    Scripts, code blocks (`pre`), menus and the like are left out, and so are the header and the
    footer of a site. If a page has a `main` element, its text is the document.
    """
    parser = _PageParser()
    parser.feed(text)
    parser.close()
    return parser.blocks()


class _PageParser(HTMLParser):
    """Collects the blocks of a page of HTML, whatever tags its author forgot to close."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[tuple[Block, bool]] = []  # with whether it is in `main`
        self._parts: list[str] = []
        self._level = 0
        self._left_out: list[str] = []  # an element whose text is left out, and such ones in it
        self._content: list[str] = []  # the elements `main` and `article` that are open

    def blocks(self) -> list[Block]:
        """Return the blocks, those of `main` alone if there are any."""
        self._end_block()
        main_blocks = [block for block, is_main in self._blocks if is_main]
        return main_blocks or [block for block, _ in self._blocks]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, or leave out an element."""
        if self._left_out:
            if tag == self._left_out[-1]:
                self._left_out.append(tag)
        elif tag not in _VOID and self._is_left_out(tag, dict(attrs)):
            self._end_block()
            self._left_out.append(tag)
        elif tag in _CELLS:
            self._parts.append(" ")
        elif tag in _BLOCKS:
            self._end_block()
            self._level = _level_of(tag)
            if tag in _CONTENT:
                self._content.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """End a block, or an element that is left out."""
        if self._left_out:
            if tag == self._left_out[-1]:
                self._left_out.pop()
        elif tag in _BLOCKS:
            self._end_block()
            if tag in self._content:
                self._content.remove(tag)

    def handle_data(self, data: str) -> None:
        """Keep text, except that of elements that are left out."""
        if not self._left_out:
            self._parts.append(data)

    def _is_left_out(self, tag: str, attributes: dict[str, str | None]) -> bool:
        if tag in _LEFT_OUT or "hidden" in attributes:
            return True
        is_around = tag in _AROUND or attributes.get("role") in _ROLES_AROUND
        return is_around and not self._content

    def _end_block(self) -> None:
        text = _SPACES.sub(" ", "".join(self._parts)).strip()
        if self._level:
            text = text.rstrip(_PERMALINK).rstrip()
        if text:
            self._blocks.append((Block(text, self._level), "main" in self._content))
        self._parts.clear()
        self._level = 0


def _level_of(tag: str) -> int:
    heading = _HEADING.fullmatch(tag)
    return 0 if heading is None else int(heading[1])
