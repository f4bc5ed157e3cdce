"""URLs of translations: equal but for the marks of their language."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

# The names that stand for a language in URLs, by ISO 639-1 code, which stands for it as well. They
# are without accents and in lower case.
_NAMES_BY_LANGUAGE = """
ar ara arabic arabe; bg bul bulgarian; ca cat catalan catala; cs cz cze ces czech cesky;
da dan danish dansk; de ger deu german deutsch allemand aleman tedesco;
el gr gre ell greek ellinika; en eng english englisch anglais ingles inglese;
es esp spa spanish espanol spanisch espagnol spagnolo castellano; et est estonian eesti;
fi fin finnish suomi; fr fra fre fran french francais franzoesisch franzosisch frances francese;
hr hrv croatian hrvatski; hu hun hungarian magyar; it ita italian italiano italienisch italien;
ja jp jpn japanese nihongo; ko kr kor korean; lt lit lithuanian lietuviu;
lv lav latvian latviesu; nl nld dut dutch nederlands; no nb nn nor norwegian norsk;
pl pol polish polski; pt por portuguese portugues; ro ron rum romanian romana;
ru rus russian russkij; sk slk slo slovak slovensky; sl slv slovenian slovenski;
sv se swe swedish svenska; tr tur turkish turkce; uk ua ukr ukrainian; zh cn chi zho chinese
"""
_NAMES: dict[str, list[str]] = {}
for _names in _NAMES_BY_LANGUAGE.split(";"):
    _language = _names.split()[0]
    _NAMES[_language] = _names.split()

_LANGUAGE_PARAMETERS = frozenset(
    {
        "lang",
        "language",
        "langue",
        "lingua",
        "idioma",
        "sprache",
        "locale",
        "hl",
        "lg",
        "ln",
        "lng",
        "setlang",
        "setlanguage",
        "sitelang",
        "uselang",
        "clang",
        "selectedlocale",
        "langid",
        "languageid",
        "culture",
    }
)
_GENERIC_DOMAINS = frozenset({"ac", "co", "com", "edu", "gov", "net", "org"})  # as in .co.uk
_INTERNATIONAL = frozenset({"", "co", "com"})  # treated like the domain of a country
_SCRIPTS = "hans|hant|latn|cyrl|arab|deva"
# A language with a script and a region, such as pt_BR and zh-hans-cn.
_LOCALE = re.compile(rf"([a-z]{{2,3}})(?:[-_](?:{_SCRIPTS}))?(?:[-_](?:[a-z]{{2}}|[0-9]{{3}}))?")
_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//")
_PORT = re.compile(r":\d*$")
_WORD = re.compile(r"[^\W_]+")


def match_urls(
    first: Sequence[str], second: Sequence[str], languages: Sequence[str] | None = None
) -> list[tuple[int, int]]:
    """Pair documents whose URLs are equal without their marks of language.

    On each side, no other URL may have the same key.

    Args:
        first: The URL of each document, "" where it is not known, which matches nothing.
        second: Those of the other side.
        languages: See [`strip_language_markers`].

    Returns:
        Positions in `first` and `second`, in order of `first`.
    """
    first_positions = _unique_keys(first, languages)
    second_positions = _unique_keys(second, languages)
    pairs = []
    for key, position in first_positions.items():
        if key in second_positions:
            pairs.append((position, second_positions[key]))
    return pairs


def _unique_keys(urls: Sequence[str], languages: Sequence[str] | None) -> dict[str, int]:
    """Return the position of each key that occurs once."""
    keys = [strip_language_markers(url, languages) for url in urls]
    counts = Counter(keys)
    positions = {}
    for position, key in enumerate(keys):
        if key and counts[key] == 1:
            positions[key] = position
    return positions


def group_by_website(
    urls: Sequence[str], languages: Sequence[str] | None = None
) -> dict[str, list[int]]:
    """Return the positions of the URLs of each [`website`]; those without a host are left out."""
    groups: dict[str, list[int]] = defaultdict(list)
    for position, url in enumerate(urls):
        site = website(url, languages)
        if site:
            groups[site].append(position)
    return groups


def strip_language_markers(url: str, languages: Sequence[str] | None = None) -> str:
    """Return what is left of a URL without scheme, country domain and all marks of a language.

    Marks are codes and names of languages, alone or with a region, that stand as a subdomain
    (de.example.org) or a part of the path (/en-us/, page_fr.html, index.es.html), and parameters
    that are called lang, hl, locale and the like (`l` where its value is a mark). Codes of three
    letters, many of which are words (spa, cat), count as subdomain and as first part of the path
    only. Of a path that is nothing but marks (/en/it), only the first is one. Case, order of
    parameters, separators within a name, and fragments do not count; for domains see [`website`].

    Args:
        url: With or without its scheme.
        languages: The ISO 639-1 codes of the languages whose marks are stripped; None for some
            thirty, which also strips words that happen to be codes ("it", "no"): give the two of
            your documents where you know them.

    Returns:
        A key for comparison, which is no URL; "" for an empty string.
    """
    marks = _marks(languages)
    host, path, query = _split(url)
    key = "/".join([_site(host, marks), *_path_parts(path, marks)])
    parameters = _other_parameters(query, marks)
    if parameters:
        key += "?" + "&".join(parameters)
    return key


def website(url: str, languages: Sequence[str] | None = None) -> str:
    """Return the host of a URL without `www`, language subdomains and the domain of a country.

    foo.de, foo.fr, foo.co.uk, foo.eu and foo.com are one website, "foo". Other generic domains make
    another website: foo.org and foo.org.uk are "foo.org". The result is "" if a URL has no host.
    WMT16 aligns within websites.

    Args:
        url: As for [`strip_language_markers`].
        languages: See [`strip_language_markers`].
    """
    host, _, _ = _split(url)
    return _site(host, _marks(languages))


def _split(url: str) -> tuple[str, str, str]:
    """Return host, path and query, in lower case."""
    url = url.strip().lower()
    if not _SCHEME.match(url):
        url = "//" + url
    try:
        parts = urlsplit(url)
    except ValueError:  # The host has brackets that hold no IPv6 address.
        return "", unquote(url.removeprefix("//")), ""
    host = parts.netloc.rpartition("@")[2]
    return _PORT.sub("", host), unquote(parts.path), parts.query


def _site(host: str, marks: set[str]) -> str:
    """Return the website of a host."""
    labels = [label for label in host.split(".") if label]
    is_address = all(label.isdigit() for label in labels) or host.startswith("[")
    if is_address:
        return host
    domain = labels.pop() if len(labels) > 1 else ""
    is_country = len(domain) == 2
    if is_country:
        has_generic = len(labels) > 1 and labels[-1] in _GENERIC_DOMAINS
        domain = labels.pop() if has_generic else ""
    *subdomains, name = labels
    site = []
    for label in subdomains:
        if label != "www" and not _is_mark(label, marks):
            site.append(label)
    site.append(name)
    if domain not in _INTERNATIONAL:
        site.append(domain)
    return ".".join(site)


def _path_parts(path: str, marks: set[str]) -> list[str]:
    """Return the parts of a path without marks, their words joined by hyphens."""
    segments = [segment for segment in path.split("/") if segment]
    # Codes of three letters are marks in the first part alone.
    inner_marks = {mark for mark in marks if len(mark) != 3}
    parts = []
    for number, segment in enumerate(segments):
        if number == 0 and _is_mark(segment, marks):
            continue
        words = _words_without_marks(segment, inner_marks)
        if words:
            parts.append("-".join(words))
    if parts:
        return parts
    return ["-".join(_WORD.findall(segment)) for segment in segments[1:]]


def _words_without_marks(segment: str, marks: set[str]) -> list[str]:
    words = []
    for part in segment.split("."):
        if not _is_mark(part, marks):
            words += [word for word in _WORD.findall(part) if word not in marks]
    return words


def _other_parameters(query: str, marks: set[str]) -> list[str]:
    """Return the parameters that do not name a language, sorted."""
    parameters = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        # "l" has other meanings, too, so its value decides.
        is_language = name in _LANGUAGE_PARAMETERS or (name == "l" and _is_mark(value, marks))
        if not is_language:
            parameters.append(f"{name}={value}")
    return sorted(parameters)


def _marks(languages: Sequence[str] | None) -> set[str]:
    """Return the codes and names of languages; None for all known ones."""
    codes = _NAMES if languages is None else languages
    marks: set[str] = set()
    for code in codes:
        marks.update(_NAMES.get(code, [code]))
    return marks


def _is_mark(part: str, marks: set[str]) -> bool:
    """Return whether a part of a URL is a mark, perhaps with a script and a region."""
    if part in marks:
        return True
    locale = _LOCALE.fullmatch(part)
    return locale is not None and locale[1] in marks
