"""The blocks of code of a Markdown page, and the comments that steer how the tests run them.

At the top of a page:
    <!-- test: files my_corpus dev.jsonl -->   what its text presupposes; fixtures.py makes it
    <!-- test: hub user -->                    there is a local Hub (tests/hub_server.py) whose token is that of `user`
Right before a block:
    <!-- test: skip needs four GPUs -->        it is not run; the reason is told
    <!-- test: append max_steps=10 -->         words added to each `tmde train` and `tmde compare` in it

Every bash and python block of a page runs verbatim, in order, in one folder. There, `pip install` does nothing.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = ("bash", "python")
COMMANDS = frozenset(
    "tmde python torchrun accelerate mteb pip cat cd cmp cp curl echo export head ls mkdir mv printf tail wc".split()
)
_FENCE = re.compile(r"(?P<indent> *)(?P<marks>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
_COMMENT = re.compile(r"<!--\s*test:(?P<words>.*?)-->\s*$")
_ENDS = {"&&", "||", "|", ";", "&", "(", ")"}


class PageError(Exception):
    """A page that the tests cannot run as it is; names page and line."""


@dataclass(frozen=True)
class Block:
    """A block of code; `line`: of the page, of its first line of code."""

    page: str
    line: int
    language: str
    code: str
    skip: str | None = None
    append: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass
class Page:
    """`files`: names of fixtures; `hub`: whose token a local Hub takes, if one is needed."""

    name: str
    blocks: list[Block] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    hub: str | None = None


def documentation_pages(root: Path = ROOT) -> list[Path]:
    """README.md and docs/*.md, as far as they have blocks that could run."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [path for path in pages if re.search(r"^ *```(bash|python)\b", path.read_text("utf-8"), re.MULTILINE)]


def read_page(path: Path, name: str | None = None) -> Page:
    """Parses a page.

    Raises:
        PageError: A comment that says nothing known, a skip without reason, a fence that never closes, a command that
            is not one of COMMANDS.
    """
    page = Page(name or path.name)
    notes: dict[str, str] = {}  # comments that wait for their block
    lines = path.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if comment := _COMMENT.match(line.strip()):
            _take_comment(page, notes, comment["words"].split(), number)
        elif fence := _FENCE.match(line):
            start, indent = number, len(fence["indent"])
            while number < len(lines) and lines[number].strip() != fence["marks"]:
                number += 1
            if number == len(lines):
                raise PageError(f"{page.name}:{start}: the block never ends")
            code = "\n".join(text[indent:] if not text[:indent].strip() else text for text in lines[start:number])
            number += 1
            if fence["info"].strip() in LANGUAGES:
                page.blocks.append(_block(page, start + 1, fence["info"].strip(), code, notes))
            elif notes:
                raise PageError(f"{page.name}:{start}: a test comment stands before a block that is not run")
            notes = {}
        elif line.strip() and not line.lstrip().startswith("<!--") and notes:
            raise PageError(f"{page.name}:{number}: expected a block of code after the comment `test: {[*notes][0]}`")
    if notes:
        raise PageError(f"{page.name}: no block follows the comment `test: {[*notes][0]}`")
    return page


def _take_comment(page: Page, notes: dict[str, str], words: list[str], line: int) -> None:
    verb, *rest = words or [""]
    if verb == "files" and rest:
        page.files += rest
    elif verb == "hub" and len(rest) == 1:
        page.hub = rest[0]
    elif verb in ("skip", "append") and rest:
        notes[verb] = " ".join(rest)
    elif verb in ("skip", "append", "files"):
        raise PageError(f"{page.name}:{line}: `test: {verb}` needs {'a reason' if verb == 'skip' else 'words'}")
    else:
        known = "`skip REASON`, `append WORDS`, `files NAMES` or `hub USER`"
        raise PageError(f"{page.name}:{line}: found `test: {' '.join(words)}`, expected {known}")


def _block(page: Page, line: int, language: str, code: str, notes: dict[str, str]) -> Block:
    append = tuple(shlex.split(notes.get("append", "")))
    block = Block(page.name, line, language, code, notes.get("skip"), append)
    found = list(shell_commands(block)) if language == "bash" else []
    if append and not any(words[:2] in (["tmde", "train"], ["tmde", "compare"]) for _, words in found):
        raise PageError(f"{block.place}: `test: append` without a `tmde train` or `tmde compare`")
    for number, words in found:
        if block.skip is None and words[0] not in COMMANDS:
            raise PageError(
                f"{page.name}:{number}: found the command {words[0]!r}, expected one of {' '.join(sorted(COMMANDS))}; "
                "else put a comment `test: skip REASON` before the block"
            )
    return block


def shell_commands(block: Block) -> list[tuple[int, list[str]]]:
    """The simple commands of a bash block, with the lines of the page that they begin at; assignments are dropped.

    Raises:
        PageError: Quotes that never close.
    """
    found: list[tuple[int, list[str]]] = []
    waiting, begin, document_end = "", block.line, None
    for number, line in enumerate(block.code.split("\n"), block.line):
        if document_end is not None:
            document_end = None if line == document_end else document_end
            continue
        begin = begin if waiting else number
        waiting += line
        if waiting.endswith("\\"):
            waiting = waiting[:-1] + " "
            continue
        lexer = shlex.shlex(waiting, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quote that the next line closes
            waiting += "\n"
            continue
        if "<<" in words:  # a here-document
            document_end = words[words.index("<<") + 1]
        waiting = ""
        command: list[str] = []
        for word in [*words, ";"]:
            if word not in _ENDS:
                command.append(word)
                continue
            while command and re.match(r"[A-Za-z_]\w*=", command[0]):
                command.pop(0)
            if command:
                found.append((begin, command))
            command = []
    if waiting.strip():
        raise PageError(f"{block.page}:{begin}: a quote or a backslash at the end that nothing follows")
    return found
