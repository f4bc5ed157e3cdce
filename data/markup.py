"""Read documents in Markdown and HTML: their text by blocks, without markup and code blocks.

```python
text = text_of_blocks(read_blocks("guide.md"))
```
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

from .checks import Unquoted, bad_value
from .lines import BYTE_ORDER_MARK, GZIP_ERRORS, damaged_file_error, open_binary, read_lines

MARKDOWN_SUFFIXES = (".md", ".markdown")
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
MARKUP_SUFFIXES = (*MARKDOWN_SUFFIXES, *HTML_SUFFIXES)
_CHARSET = re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""\A\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_START_BYTES = 4096  # The encoding is declared in them.
# Browsers read these as the larger encodings.
_LARGER_ENCODINGS = {"iso8859-1": "cp1252", "ascii": "cp1252"}
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_ATTRIBUTES_OF_HEADING = re.compile(r"\s*\{\s*[#.:][^{}]*\}$")
# What a template or an extension puts into a page stands in such a line.
_TEMPLATE = re.compile(r"\{([*!%{]).*[*!%}]\}")
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


def text_of_blocks(blocks: Iterable[Block], marks_headings: bool = False) -> str:
    """Return the text of blocks, with blank lines between.

    Args:
        blocks: The blocks.
        marks_headings: Whether headings begin with `#`, as in Markdown.
    """
    texts = []
    for block in blocks:
        is_marked = marks_headings and block.level
        texts.append(f"{'#' * block.level} {block.text}" if is_marked else block.text)
    return "\n\n".join(texts)


def read_blocks(path: str, place: str | None = None) -> list[Block]:
    """Return the blocks of a file of Markdown or HTML, by its suffix, plain or gzipped.

    Args:
        path: The file.
        place: Its name in messages; None for its path.

    Raises:
        CorpusError: It is damaged, or has bytes that are none of its encoding.
        OSError: There is no such file.
    """
    if path.lower().removesuffix(".gz").endswith(HTML_SUFFIXES):
        return html_blocks(_decoded_page(path, place or path))
    return markdown_blocks("\n".join(line for _, line in read_lines(path, place)))


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
    cells: list[str] | None = None  # of the row of a table
    for token in parser.parse(_without_notes(text)):
        if token.type == "heading_open":
            level = int(token.tag[1])
        elif token.type == "tr_open":
            cells = []
        elif token.type == "tr_close":
            blocks.append(Block(" ".join(cells or ())))
            cells = None
        elif token.type == "html_block":
            blocks += html_blocks(token.content)
        elif token.type == "inline":
            inline_text = _inline_text(token.children or ())
            if cells is None:
                blocks.append(_block_of(inline_text, level))
                level = 0
            else:
                cells.append(inline_text)
    return [block for block in blocks if block.text]


def _block_of(text: str, level: int) -> Block:
    """Return a heading without attributes, `{ #anchor }`, or another block; "" for a template."""
    if level:
        text = _ATTRIBUTES_OF_HEADING.sub("", text)
    elif _TEMPLATE.fullmatch(text):
        text = ""
    return Block(text, level)


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


def _decoded_page(path: str, place: str) -> str:
    """Return a page of HTML in the encoding that it declares, or else in UTF-8.

    Raises:
        CorpusError: It is damaged, or has bytes that are none of this encoding.
    """
    try:
        with open_binary(path) as file:
            data = file.read()
    except GZIP_ERRORS as error:
        raise damaged_file_error(place, 1, None, error) from error
    encoding = _UTF_16.get(data[:2], "utf-8")
    declared = _CHARSET.search(data[:_START_BYTES]) or _XML_ENCODING.search(data[:_START_BYTES])
    if declared is not None and encoding == "utf-8" and not data.startswith(BYTE_ORDER_MARK):
        try:
            name = codecs.lookup(declared[1].decode()).name
        except LookupError:
            name = "utf-8"
        encoding = _LARGER_ENCODINGS.get(name, name)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        found = Unquoted(f"the undecodable bytes {error.object[error.start : error.end]!r}")
        row = data.count(b"\n", 0, error.start) + 1
        advice = "Declare the encoding of the page, <meta charset=...>, or save it as UTF-8."
        raise bad_value(place, row, None, found, encoding, advice) from None


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
