"""URLs without the marks of their language: pages that differ in these alone are translations.

The URL matching of WMT16's alignment of documents (Buck & Koehn 2016, "Findings of the WMT 2016 bilingual document
alignment shared task"), which paper 003 (LAWDR, section 6.1) runs before it scores the documents that are left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlsplit

# By ISO 639-1 code, what else stands for a language in URLs; the code itself always does. Without accents, lower case.
_NAMES = {
    "ar": "ara arabic arabe",
    "bg": "bul bulgarian",
    "ca": "cat catalan catala",
    "cs": "cz cze ces czech cesky",
    "da": "dan danish dansk",
    "de": "ger deu german deutsch allemand aleman tedesco",
    "el": "gr gre ell greek ellinika",
    "en": "eng english englisch anglais ingles inglese",
    "es": "esp spa spanish espanol spanisch espagnol spagnolo castellano",
    "et": "est estonian eesti",
    "fi": "fin finnish suomi",
    "fr": "fra fre fran french francais franzoesisch franzosisch frances francese",
    "hr": "hrv croatian hrvatski",
    "hu": "hun hungarian magyar",
    "it": "ita italian italiano italienisch italien",
    "ja": "jp jpn japanese nihongo",
    "ko": "kr kor korean",
    "lt": "lit lithuanian lietuviu",
    "lv": "lav latvian latviesu",
    "nl": "nld dut dutch nederlands",
    "no": "nb nn nor norwegian norsk",
    "pl": "pol polish polski",
    "pt": "por portuguese portugues",
    "ro": "ron rum romanian romana",
    "ru": "rus russian russkij",
    "sk": "slk slo slovak slovensky",
    "sl": "slv slovenian slovenski",
    "sv": "se swe swedish svenska",
    "tr": "tur turkish turkce",
    "uk": "ua ukr ukrainian",
    "zh": "cn chi zho chinese",
}
_PARAMETERS = frozenset(
    "lang language langue lingua idioma sprache locale hl lg ln lng setlang setlanguage sitelang uselang clang "
    "selectedlocale langid languageid culture".split()
)
_SHORT_PARAMETERS = frozenset("l")  # stand for other things, too: only where their value is a mark
_GENERIC = frozenset("ac co com edu gov net org".split())  # before a country, as in .co.uk
_INTERNATIONAL = frozenset(("", "co", "com"))  # as good as the domain of a country
_SCRIPTS = "hans|hant|latn|cyrl|arab|deva"
_LOCALE = re.compile(rf"([a-z]{{2,3}})(?:[-_](?:{_SCRIPTS}))?(?:[-_](?:[a-z]{{2}}|[0-9]{{3}}))?")  # pt_BR, zh-hans-cn
_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//")
_WORD = re.compile(r"[^\W_]+")


def strip_language_markers(url: str, languages: Iterable[str] | None = None) -> str:
    """What is left of a URL without scheme, country domain and all marks of a language.

    Marks are codes and names of languages, alone or with a region, that stand as a subdomain (de.example.org) or a
    part of the path (/en-us/, page_fr.html, index.es.html), and parameters that are called lang, hl, locale and the
    like (`l` where its value is a mark). Codes of three letters, many of which are words (spa, cat), count as
    subdomain and as first part of the path only. Of a path that is nothing but marks (/en/it), only the first is one.
    Case, order of parameters, separators within a name, and fragments do not count; for domains see [`website`].

    Args:
        url: With or without its scheme.
        languages: ISO 639-1 codes of the languages whose marks are stripped; None for some thirty, which also strips
            words that happen to be codes ("it", "no"): give the two of your documents where you know them.

    Returns:
        A key for comparison, no URL; "" of an empty string.

    Raises:
        TypeError: A URL that is not a string, or `languages` that are one string.
        ValueError: A code that is not two or three letters.
    """
    if not isinstance(url, str):
        raise TypeError(f"url: found {type(url).__name__}, expected str")
    marks = _marks(_codes(languages))
    host, path, query = _parts(url)
    parameters = sorted(
        (name, value)
        for name, value in parse_qsl(query, keep_blank_values=True)
        if name not in _PARAMETERS and not (name in _SHORT_PARAMETERS and _is_mark(value, marks))
    )
    key = "/".join([_site(host, marks), *_segments(path, marks)])
    return key + ("?" + "&".join(f"{name}={value}" for name, value in parameters) if parameters else "")


def website(url: str, languages: Iterable[str] | None = None) -> str:
    """The host of a URL without `www`, subdomains that name a language, and the domain of a country.

    foo.de, foo.fr, foo.co.uk, foo.eu and foo.com are one website, "foo"; other generic domains are others, such as
    "foo.org", also in foo.org.uk. "" where a URL has no host. WMT16 aligns within websites.

    Arguments and errors as for [`strip_language_markers`].
    """
    if not isinstance(url, str):
        raise TypeError(f"url: found {type(url).__name__}, expected str")
    return _site(_parts(url)[0], _marks(_codes(languages)))


def match_urls(
    first: Sequence[str], second: Sequence[str], languages: Iterable[str] | None = None
) -> list[tuple[int, int]]:
    """Pairs of documents whose URLs are equal without their marks of language, and on each side like no other's.

    Args:
        first, second: URL of each document, "" where it is not known, which matches nothing.
        languages: See [`strip_language_markers`].

    Returns:
        Positions in `first` and `second`, in order of `first`.
    """
    codes = _codes(languages)
    sides = [[strip_language_markers(url, codes) for url in urls] for urls in (first, second)]
    counts = [Counter(keys) for keys in sides]
    position = {key: number for number, key in enumerate(sides[1])}
    return [
        (number, position[key])
        for number, key in enumerate(sides[0])
        if key and counts[0][key] == 1 and counts[1][key] == 1
    ]


def _codes(languages: Iterable[str] | None) -> tuple[str, ...] | None:
    if languages is None:
        return None
    if isinstance(languages, str):
        raise TypeError(f"languages: found the string {languages!r}, expected a list of codes such as ['de', 'en']")
    codes = tuple(languages)
    for code in codes:
        if not re.fullmatch(r"[a-z]{2,3}", code):
            raise ValueError(f"languages: found {code!r}, expected codes of two or three letters, such as 'de'")
    return codes


@lru_cache(maxsize=64)
def _marks(codes: tuple[str, ...] | None) -> frozenset[str]:
    chosen = _NAMES if codes is None else codes
    return frozenset(mark for code in chosen for mark in (code, *_NAMES.get(code, "").split()))


def _is_mark(part: str, marks: frozenset[str]) -> bool:
    locale = _LOCALE.fullmatch(part)
    return part in marks or (locale is not None and locale[1] in marks)


def _segments(path: str, marks: frozenset[str]) -> list[str]:
    """The parts of a path without marks, words joined by hyphens."""
    given = [segment for segment in path.split("/") if segment]
    inner = frozenset(mark for mark in marks if len(mark) != 3)
    kept = []
    for number, segment in enumerate(given):
        if number == 0 and _is_mark(segment, marks):
            continue
        parts = [part for part in segment.split(".") if not _is_mark(part, inner)]
        kept.append("-".join(word for part in parts for word in _WORD.findall(part) if word not in inner))
    kept = [segment for segment in kept if segment]
    return kept or ["-".join(_WORD.findall(segment)) for segment in given[1:]]


def _parts(url: str) -> tuple[str, str, str]:
    """Host, path and query, in lower case."""
    url = url.strip().lower()
    try:
        parts = urlsplit(url if _SCHEME.match(url) else "//" + url)
    except ValueError:  # brackets of no IPv6 address
        return "", unquote(url), ""
    host = parts.netloc.rpartition("@")[2]
    return re.sub(r":\d*$", "", host), unquote(parts.path), parts.query


def _site(host: str, marks: frozenset[str]) -> str:
    labels = [label for label in host.split(".") if label]
    if all(label.isdigit() for label in labels) or host.startswith("["):
        return host  # an address of numbers
    domain = labels.pop() if len(labels) > 1 else ""
    if len(domain) == 2:  # of a country
        domain = labels.pop() if len(labels) > 1 and labels[-1] in _GENERIC else ""
    *subdomains, name = labels
    kept = [label for label in subdomains if label != "www" and not _is_mark(label, marks)]
    return ".".join([*kept, name] if domain in _INTERNATIONAL else [*kept, name, domain])
