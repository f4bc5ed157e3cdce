"""Placeholders, tags and addresses: what a translation keeps as it is.

Each style is the notation of a format or a library, such as `%1` of Qt and `{count, plural, ...}`
of ICU. By default all styles are looked for.
"""

from __future__ import annotations

import html
import re
from collections import Counter

from modeling_tmde import TmdeError

_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|[a-zA-Z]\w*);")
# A percent sign behind a number is a percentage: "100 %ige", "50 %aller".
# What is not read as a conversion of C: "%1timed out", which is Qt's %1 before a word, and the rare
# %a, %A and %td, because "27%.A study" is more usual.
_CONVERSION = (
    r"(?!%[1-9](?![hlz])[a-zA-Z]{2})%(?:\d+\$|\(\w+\))?[-+\#0']*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?"
    r"(?:hh|ll|[hlqjz])?[diouxXeEfFgGcsp]"
)
_PRINTF = rf"(?<![%~\d])(?<!\d[-\s]){_CONVERSION} | (?<![%~]){_CONVERSION}(?!\w)"
STYLES = {
    "c": _PRINTF,  # %s, %1$d, %.2f
    "python": rf"{_PRINTF} | \{{[\w.\[\]]*(?:![rsa])?(?::[^{{}}\s]*)?\}}",  # %(name)s, {}, {x:.2f}
    "qt": r"(?<![%~])%(?:L?[1-9]\d?(?!\d)|n(?!\w))",  # %1, %L1, %n
    "objc": r"(?<!%)%(?:\d+\$)?@",  # %@, %1$@
    # {name}, {0, number}, {count, plural, ...}
    "icu": r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal|number|date|time|choice)\b | \{\w+\}",
    # $1, $name; US$50 and $4 million are prices
    "shell": r"""\$\{[^{}\s]*\} | \$[A-Za-z_]\w*(?:[.|]\w+)*
        | (?<![A-Za-z])\$\d{1,2}(?![\d.,]*\d|\s?[mb]illion)""",
    "at": r"(?<![\w.])@(?:\d{1,2}(?!\d)|[A-Za-z_]\w*@)",  # @1, @NAME@; people are @mentioned
    "mustache": r"\{\{\{?\s*[\w.\#/^&!-]+\s*\}?\}\}",  # {{name}}
    "brackets": r"\[\[(?:\d+|(?=[\w.]*[_.])[\w.]+)\]\]",  # [[1]]; [[Haus]] is a link of a wiki
    "escapes": r"\\[nrt]",  # \n, as two characters
    "tags": r"</?[a-zA-Z][\w:.-]*(?:\s[^<>]*)?/?>",
    "urls": r"""https?://\w[^\s<>"']*""",
    "emails": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
}
# Each match of a style has one of these somewhere. Most texts have none, and are not searched.
_SIGN_OF_PLACEHOLDER = re.compile(r"[%{$@\\\[<]|http")
# At the same place, the first style wins: an address is no @name, {{name}} no {name}.
_ORDER = (
    "urls",
    "emails",
    "tags",
    "mustache",
    "icu",
    "python",
    "c",
    "objc",
    "qt",
    "shell",
    "brackets",
    "at",
    "escapes",
)
_NAMES_OF_HTML_TAGS = (
    "a abbr b big blockquote body br center code col dd del div dl dt em font form h1 h2 h3 h4 h5 "
    "h6 head hr html i img ins kbd li mark ol p pre q s small span strong sub sup table tbody td "
    "th thead tr tt u ul wbr"
)
_HTML_TAGS = frozenset(_NAMES_OF_HTML_TAGS.split())
_TAG_NAME = re.compile(r"</?([a-zA-Z][\w:.-]*)")
_TAG_ID = re.compile(r"""\bid\s*=\s*(["'][^"']*["'])""")
_CLOSED_TAG = re.compile(r"</([a-zA-Z][\w:.-]*)>")
_HOST = re.compile(r"https?://[^/?#]+")
_POSITION = re.compile(r"%\d+\$")
_SPECIFICATION = re.compile(r":[^{}:]*\}$")  # of {count:,}: how a language writes a number
_INTEGER = re.compile(r"%(?:\d+\$|\(\w+\))?l*[diun]")
# The singular of a message may write out the number.
_ONE = re.compile(r"\b(?:a|an|one|eine?[mnrs]?|une?|un[oa']?)\b", re.IGNORECASE)
_ARGUMENT = re.compile(r"\$(\d+)")
_ICU = re.compile(r"\{\s*\w+\s*,")
_BRANCHES = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|choice)")
_NAMES = re.compile(r"\w+(?:,\w+)*")

Differing = tuple[list[str], list[str]]


def decoded(text: str) -> str:
    """Return a text with characters in place of entities.

    Example:
        >>> decoded("R&amp;D &copy 2026")
        'R&D &copy 2026'
    """
    if "&" not in text:
        return text
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


class Placeholders:
    """Finds placeholders of some styles.

    Args:
        styles: Names of `STYLES`, separated by commas, or a regular expression; None for all
            styles.

    Raises:
        TmdeError: It is neither.

    Example:
        >>> Placeholders("qt").differing("%1 von %2", "%1 of ${x}")
        (['%2'], [])
    """

    def __init__(self, styles: str | None = None) -> None:
        self._names, self._pattern = _pattern_of(styles)

    def differing(self, first: str, second: str) -> Differing:
        """Return the placeholders of each text that the other lacks: two empty lists if none.

        Entities are decoded. Tags are compared by their names, addresses by their hosts. What
        stands between < and > like a tag, but is none, such as <path>, is a word to translate.
        """
        first_counts = Counter(self._placeholders_of(first))
        second_counts = Counter(self._placeholders_of(second))
        if first_counts == second_counts:
            return [], []
        has_positions = [
            any(map(_POSITION.match, counts)) for counts in (first_counts, second_counts)
        ]
        if has_positions[0] != has_positions[1]:  # "%s: %s" became "%2$s: %1$s".
            first_counts = _without_positions(first_counts)
            second_counts = _without_positions(second_counts)
        only_first = sorted((first_counts - second_counts).elements())
        only_second = sorted((second_counts - first_counts).elements())
        return _unexplained(only_first, second), _unexplained(only_second, first)

    def without(self, text: str) -> str:
        """Return a text with spaces in place of placeholders; $1, which may be a price, stays."""

        def space(match: re.Match[str]) -> str:
            return match[0] if _ARGUMENT.fullmatch(match[0]) else " "

        text = decoded(text)
        return self._pattern.sub(space, text) if self._may_have_matches(text) else text

    def _may_have_matches(self, text: str) -> bool:
        """Return whether a text has a sign that every placeholder of a style has."""
        is_expression = not self._names
        return is_expression or _SIGN_OF_PLACEHOLDER.search(text) is not None

    def _placeholders_of(self, text: str) -> list[str]:
        """Return the placeholders of a text as they are compared, in order."""
        text = decoded(text)
        if not self._may_have_matches(text):
            return []
        matches = [match[0] for match in self._pattern.finditer(text)]
        if not self._names:
            return matches
        has_branches = any(map(_BRANCHES.match, matches))
        closed_tags = frozenset(_CLOSED_TAG.findall(text))
        placeholders = []
        for match in matches:
            if match.startswith("<"):
                if _is_tag(match, closed_tags):
                    placeholders.append(_plain_tag(match))
            elif match.startswith("http"):
                host = _HOST.match(match)
                placeholders.append(match if host is None else host[0].rstrip(".,;:!?)"))
            elif _ICU.match(match):
                placeholders.append("".join(match.split()))
            elif match.startswith("{") and has_branches:
                pass  # A branch of a plural of ICU is text: one {file}.
            else:
                placeholders.append(_SPECIFICATION.sub("}", match))
        return placeholders


def _pattern_of(styles: str | None) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the names of the styles, in order, and their pattern; no names for an expression.

    Raises:
        TmdeError: `styles` are neither names nor an expression.
    """
    if styles is None:
        names = set(STYLES)
    elif _NAMES.fullmatch(styles.replace(" ", "")):
        names = set(styles.replace(" ", "").split(","))
        for name in sorted(names - set(STYLES)):
            raise TmdeError(
                f"placeholders: found {name!r}, expected names of {', '.join(STYLES)}, separated "
                "by commas, or a regular expression"
            )
    else:
        try:
            return (), re.compile(styles)
        except re.error as error:
            raise TmdeError(
                f"placeholders: found {styles!r}, expected a regular expression ({error}) or "
                f"names of {', '.join(STYLES)}, separated by commas"
            ) from error
    ordered = tuple(name for name in _ORDER if name in names)
    alternatives = " | ".join(f"(?:{STYLES[name]})" for name in ordered)
    return ordered, re.compile(alternatives, re.VERBOSE)


def _is_tag(match: str, closed_tags: frozenset[str]) -> bool:
    """Return whether <...> is a tag, and not a word to translate, such as <path>.

    Args:
        match: What looks like a tag.
        closed_tags: The names of the tags that the text closes.
    """
    name_match = _TAG_NAME.match(match)
    assert name_match is not None  # The pattern of tags begins so.
    name = name_match[1]
    has_slash = match.startswith("</") or match.endswith("/>")
    if has_slash or "=" in match or name.lower() in _HTML_TAGS:
        return True
    return name in closed_tags


def _plain_tag(tag: str) -> str:
    """Return a tag without attributes, except for the id by which XLIFF tells tags apart."""
    name = _TAG_NAME.match(tag)
    assert name is not None
    identity = _TAG_ID.search(tag)
    attribute = "" if identity is None else f" id={identity[1]}"
    return f"{name[0].lower()}{attribute}>"


def _without_positions(counts: Counter[str]) -> Counter[str]:
    """Return the counts of placeholders with `%s` in place of `%1$s`."""
    plain: Counter[str] = Counter()
    for placeholder, count in counts.items():
        plain[_POSITION.sub("%", placeholder)] += count
    return plain


def _unexplained(placeholders: list[str], other_text: str) -> list[str]:
    """Return the placeholders without those that the other text may have written otherwise.

    The other text of "$5" may have "5 dollars", and that of "%d file" may have "a file".
    """
    has_one = _ONE.search(other_text) is not None
    remaining = []
    for placeholder in placeholders:
        argument = _ARGUMENT.fullmatch(placeholder)
        is_price = argument and re.search(rf"(?<!\d){argument[1]}(?!\d)", other_text)
        is_one = has_one and _INTEGER.fullmatch(placeholder)
        if not is_price and not is_one:
            remaining.append(placeholder)
    return remaining
