"""Sentence templates over phrase tables: inflected forms, compiled templates and numbered sentences.

A template has one string per language with slots such as `{firm:of}`: the entry of table `firm` in its form `of`.
Most forms are derived from the entry's article, so that case, contraction and elision are right. The phrases and
templates are in the YAML files beside this one.
"""

import re
from functools import cache
from importlib.resources import files
from math import prod

import yaml

LANGUAGES = ("de", "en", "es", "fr", "it")
TOPICS = ("corporate", "economics", "government", "markets")
NEUTRAL = "neutral"

Row = list[str]  # one phrase in the five languages, in the order of LANGUAGES

_SLOT = re.compile(r"\{([a-z_]+)(\d?)(?::([a-z]+|\d))?\}")
_GERMAN_ARTICLES = {
    "acc": {"der": "den"},
    "gen": {"die": "der"},
    "dat": {"der": "dem", "das": "dem", "die": "der"},
}
_PREPOSITIONS = {
    "es": {"of": "de", "to": "a"},
    "fr": {"of": "de", "to": "à"},
    "it": {"of": "di", "to": "a"},
}
_ITALIAN_STEMS = {"of": "de", "to": "a"}
_ITALIAN_ENDINGS = {"il": "l ", "lo": "llo ", "la": "lla ", "i": "i ", "gli": "gli ", "le": "lle "}
_CONTRACTIONS = {
    "es": {"of": {"el": "del "}, "to": {"el": "al "}},
    "fr": {"of": {"le": "du ", "les": "des "}, "to": {"le": "au ", "les": "aux "}},
    "it": {
        name: {key: stem + end for key, end in _ITALIAN_ENDINGS.items()}
        for name, stem in _ITALIAN_STEMS.items()
    },
}


def _german(parts: list[str], name: str) -> str:
    """Case of a German phrase: given in full (four parts), or derived from the nominative; the genitive of other than
    feminine phrases is given."""
    article = parts[0].partition(" ")[0]
    if len(parts) == 4:
        return parts[("acc", "gen", "dat").index(name) + 1]
    if name == "gen" and article != "die":
        return parts[1]
    return parts[0].replace(article, _GERMAN_ARTICLES[name].get(article, article), 1)


def _romance(language: str, phrase: str, name: str) -> str:
    """A phrase after the preposition `name`, contracted with its article or elided before a vowel."""
    article, _, rest = phrase.partition(" ")
    contracted = _CONTRACTIONS[language][name]
    if article in contracted and rest:
        return contracted[article] + rest
    if language == "it" and phrase.startswith("l'"):
        return f"{_ITALIAN_STEMS[name]}l{phrase}"
    if language == "fr" and name == "of" and phrase[0].lower() in "aàeéèêioôuy":
        return f"d'{phrase}"
    if language == "it" and name == "to" and phrase[0] in "aA":
        return f"ad {phrase}"
    return f"{_PREPOSITIONS[language][name]} {phrase}"


def inflect(language: str, phrase: str, name: str) -> str:
    """Return one form of a table entry.

    Args:
        language: Language code, one of LANGUAGES.
        phrase: The entry: its parts separated by `|`. German noun phrases have one part (feminine, or a name), two
            (nominative, genitive) or four (nominative, accusative, genitive, dative).
        name: "" for the first part, a digit for that part, German `acc`, `gen`, `dat`, or the prepositions `of` and
            `to` (es, fr, it).

    """
    parts = phrase.split("|")
    if not name:
        return parts[0]
    if name.isdigit():
        return parts[int(name)]
    return _german(parts, name) if language == "de" else _romance(language, parts[0], name)


class Template:
    """A compiled template: `capacity` different sentences, numbered from 0.

    Args:
        name: Identity of the template: together with a sentence number it decides the split.
        topic: Topic that its sentences speak about.
        texts: The template by language.
        tables: Phrase tables by slot name.
    """

    def __init__(self, name: str, topic: str, texts: dict[str, str], tables: dict[str, list[Row]]):
        self.name, self.topic = name, topic
        slots = sorted({match[1] + match[2] for match in _SLOT.finditer(texts["en"])})
        bases = [slot.rstrip("0123456789") for slot in slots]
        # Per slot the slot before it that uses the same table, or -1.
        self.earlier = [
            bases.index(base) if base in bases[:place] else -1 for place, base in enumerate(bases)
        ]
        self.radices = [
            len(tables[base]) - (before >= 0)
            for base, before in zip(bases, self.earlier, strict=True)
        ]
        self.capacity = prod(self.radices)
        self.patterns: list[tuple[str, list[tuple[int, list[str]]]]] = []  # per language
        for column, language in enumerate(LANGUAGES):
            used = []
            for match in _SLOT.finditer(texts[language]):
                forms = [inflect(language, row[column], match[3] or "") for row in tables[match[1]]]
                used.append((slots.index(match[1] + match[2]), forms))
            self.patterns.append((_SLOT.sub("%s", texts[language]), used))

    def render(self, number: int) -> dict[str, str]:
        """Return sentence `number` in every language. A table that is used twice gives two different entries."""
        chosen: list[int] = []
        for radix, earlier in zip(self.radices, self.earlier, strict=True):
            number, position = divmod(number, radix)
            chosen.append(position + (earlier >= 0 and position >= chosen[earlier]))
        sentences = {}
        for language, (pattern, slots) in zip(LANGUAGES, self.patterns, strict=True):
            text = pattern % tuple(forms[chosen[slot]] for slot, forms in slots)
            sentences[language] = text[0].upper() + text[1:]
        return sentences


@cache
def templates() -> dict[str, tuple[Template, ...]]:
    """Return the compiled templates by topic, with those of no topic under `neutral`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    read = {
        name: yaml.load(
            files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8"), loader
        )
        for name in ("numbers", "common", *TOPICS)
    }
    tables = {}
    for part in read.values():
        for slot, rows in part["tables"].items():
            tables[slot] = [
                row if isinstance(row, list) else [row] * len(LANGUAGES) for row in rows
            ]
    groups = {NEUTRAL: read["common"], **{topic: read[topic] for topic in TOPICS}}
    return {
        topic: tuple(
            Template(f"{topic}/{place}", topic, text, tables)
            for place, text in enumerate(part["templates"])
        )
        for topic, part in groups.items()
    }
