"""Whether a person has edited a card that this package made."""

import hashlib
import re

_MARKER = re.compile(r"<!-- tmde:card ([0-9a-f]{16})[^>]*-->")


def marked(body: str) -> str:
    """The text of a card, with the mark by which `is_untouched` knows that nobody has edited it."""
    note = "delete this line to keep the text as it is; edited text is kept anyway"
    return f"\n{body}\n\n<!-- tmde:card {_digest(body)} ({note}) -->\n"


def is_untouched(content: str) -> bool:
    """Whether the text below the metadata is one that was `marked`, as it was (white space at its ends aside)."""
    text = re.sub(r"\A\s*---\r?\n.*?\r?\n---(\r?\n|\Z)", "", content, count=1, flags=re.DOTALL).replace("\r\n", "\n")
    marks = list(_MARKER.finditer(text))
    if len(marks) != 1:
        return False
    (mark,) = marks
    return not text[mark.end() :].strip() and _digest(text[: mark.start()].strip()) == mark[1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
