"""Sentence templates over phrase tables: inflected forms, compiled templates and numbered sentences.

A template has one string per language with slots such as `{firm:of}`: the entry of table `firm` in its form `of`.
The forms an entry needs are derived from its article, so case, contraction and elision cannot go wrong.
"""

import re
from dataclasses import dataclass

LANGUAGES = ("de", "en", "es", "fr", "it")

Row = tuple[str, str, str, str, str]
"""One phrase or one template in the five languages, in the order of LANGUAGES."""

_SLOT = re.compile(r"\{([a-z_]+)(\d?)(?::([a-z]+|\d))?\}")
_GERMAN_DATIVE = {"der": "dem", "das": "dem", "die": "der"}
_CONTRACTIONS = {
    "es": {"of": {"el": "del "}, "to": {"el": "al "}},
    "fr": {"of": {"le": "du ", "les": "des "}, "to": {"le": "au ", "les": "aux "}},
}
_PREPOSITIONS = {
    "es": {"of": "de", "to": "a"},
    "fr": {"of": "de", "to": "à"},
    "it": {"of": "di", "to": "a"},
}
_ITALIAN_STEMS = {"of": "de", "to": "a"}
_ITALIAN_ENDINGS = {"il": "l ", "lo": "llo ", "la": "lla ", "i": "i ", "gli": "gli ", "le": "lle "}


def _german(parts: list[str], name: str) -> str:
    """Case of a German phrase: given in full (four parts), or derived from nominative and masculine genitive."""
    article, _, rest = parts[0].partition(" ")
    if len(parts) == 4:
        return parts[("acc", "gen", "dat").index(name) + 1]
    if name == "gen":
        return f"der {rest}" if article == "die" else parts[1]
    if name == "acc":
        return f"den {rest}" if article == "der" else parts[0]
    return f"{_GERMAN_DATIVE[article]} {rest}" if article in _GERMAN_DATIVE else parts[0]


def _romance(language: str, phrase: str, name: str) -> str:
    """A phrase after the preposition `name`, contracted with its article or elided before a vowel."""
    article, _, rest = phrase.partition(" ")
    if language == "it" and article in _ITALIAN_ENDINGS and rest:
        return _ITALIAN_STEMS[name] + _ITALIAN_ENDINGS[article] + rest
    if language == "it" and phrase.startswith("l'"):
        return f"{_ITALIAN_STEMS[name]}l{phrase}"
    contracted = _CONTRACTIONS.get(language, {}).get(name, {})
    if article in contracted and rest:
        return contracted[article] + rest
    preposition = _PREPOSITIONS[language][name]
    if language == "fr" and name == "of" and phrase[0].lower() in "aàeéèêioôuy":
        return f"d'{phrase}"
    if language == "it" and name == "to" and phrase[0] in "aA":
        return f"ad {phrase}"
    return f"{preposition} {phrase}"


def inflect(language: str, phrase: str, name: str) -> str:
    """One form of a table entry.

    Args:
        language: Language code, one of LANGUAGES.
        phrase: The entry: its parts separated by `|`. For German noun phrases one part (feminine or name), two
            (nominative, genitive) or four (nominative, accusative, genitive, dative).
        name: "" for the first part, a digit for that part, German `acc`, `gen`, `dat`, or the prepositions `of` and
            `to` (es, fr, it).

    Returns:
        The words to insert.

    Raises:
        ValueError: If the language has no such form.
    """
    parts = phrase.split("|")
    if not name:
        return parts[0]
    if name.isdigit() and int(name) < len(parts):
        return parts[int(name)]
    if language == "de" and name in ("acc", "gen", "dat"):
        return _german(parts, name)
    if name in _PREPOSITIONS.get(language, {}):
        return _romance(language, parts[0], name)
    raise ValueError(
        f"Form of {phrase!r} in {language!r}: found {name!r}, expected a part's digit, a case or a preposition"
    )


@dataclass(frozen=True)
class Template:
    """A compiled template: `capacity` different sentences, numbered from 0."""

    name: str
    topic: str
    capacity: int
    radices: tuple[int, ...]
    earlier: tuple[int, ...]  # per slot the slot before it that uses the same table, or -1
    patterns: tuple[tuple[str, tuple[tuple[int, tuple[str, ...]], ...]], ...]  # per language

    def fillers(self, number: int) -> list[int]:
        """The table position that sentence `number` has in every slot; a table used twice gives two entries."""
        chosen: list[int] = []
        for radix, earlier in zip(self.radices, self.earlier, strict=True):
            number, position = divmod(number, radix)
            if earlier >= 0 and position >= chosen[earlier]:
                position += 1
            chosen.append(position)
        return chosen

    def render(self, number: int) -> dict[str, str]:
        """Sentence `number` in every language."""
        chosen = self.fillers(number)
        sentences = {}
        for language, (pattern, slots) in zip(LANGUAGES, self.patterns, strict=True):
            text = pattern % tuple([forms[chosen[slot]] for slot, forms in slots])
            sentences[language] = text[0].upper() + text[1:]
        return sentences


def compile_template(name: str, topic: str, texts: Row, tables: dict[str, list[Row]]) -> Template:
    """Look up the tables of a template's slots.

    Args:
        name: Identity of the template: together with a sentence number it decides the split.
        topic: Topic that its sentences speak about.
        texts: The template in the five languages.
        tables: Phrase tables by slot name.

    Returns:
        The compiled template.

    Raises:
        ValueError: If the languages use different slots, or a slot has no table.
    """
    found = [[match.group(1) + match.group(2) for match in _SLOT.finditer(text)] for text in texts]
    slots = sorted(set(found[0]))
    for language, names in zip(LANGUAGES, found, strict=True):
        if set(names) != set(slots):
            raise ValueError(
                f"Slots of template {name!r} in {language!r}: found {sorted(set(names))}, expected {slots}"
            )
    bases = [slot.rstrip("0123456789") for slot in slots]
    unknown = sorted(set(bases) - set(tables))
    if unknown:
        raise ValueError(f"Tables of template {name!r}: found {unknown}, expected some of {sorted(tables)}")
    earlier = [bases.index(base) if base in bases[:place] else -1 for place, base in enumerate(bases)]
    radices = [len(tables[base]) - (before >= 0) for base, before in zip(bases, earlier, strict=True)]
    capacity = 1
    for radix in radices:
        capacity *= radix
    patterns = []
    for column, (language, text) in enumerate(zip(LANGUAGES, texts, strict=True)):
        used = []
        for match in _SLOT.finditer(text):
            table = tables[match.group(1)]
            forms = tuple(inflect(language, row[column], match.group(3) or "") for row in table)
            used.append((slots.index(match.group(1) + match.group(2)), forms))
        patterns.append((_SLOT.sub("%s", text), tuple(used)))
    return Template(name, topic, capacity, tuple(radices), tuple(earlier), tuple(patterns))
