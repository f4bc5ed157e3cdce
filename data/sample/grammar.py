"""Sentence templates over phrase tables: inflected forms, templates and numbered sentences.

A template has one string per language with slots such as `{firm:of}`: the entry of table `firm` in
its form `of`. Most forms are derived from the entry's article, so that case, contraction and
elision are right. The phrases and templates are in the YAML files beside this one.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import prod

import yaml

LANGUAGES = ("de", "en", "es", "fr", "it")
TOPICS = ("corporate", "economics", "government", "markets")
NEUTRAL = "neutral"

Row = list[str]  # one phrase in the five languages, in the order of LANGUAGES

# A slot: the name of its table, a digit that tells slots of one table apart, and a form.
_SLOT = re.compile(r"\{([a-z_]+)(\d?)(?::([a-z]+|\d))?\}")
_DIGITS = "0123456789"
_GERMAN_ARTICLES = {
    "acc": {"der": "den"},
    "gen": {"die": "der"},
    "dat": {"der": "dem", "das": "dem", "die": "der"},
}
_GERMAN_CASES = ("acc", "gen", "dat")  # the order in which an entry gives them in full
_PREPOSITIONS = {
    "es": {"of": "de", "to": "a"},
    "fr": {"of": "de", "to": "à"},
    "it": {"of": "di", "to": "a"},
}
_CONTRACTIONS = {
    "es": {"of": {"el": "del "}, "to": {"el": "al "}},
    "fr": {"of": {"le": "du ", "les": "des "}, "to": {"le": "au ", "les": "aux "}},
    "it": {
        "of": {
            "il": "del ",
            "lo": "dello ",
            "la": "della ",
            "i": "dei ",
            "gli": "degli ",
            "le": "delle ",
        },
        "to": {
            "il": "al ",
            "lo": "allo ",
            "la": "alla ",
            "i": "ai ",
            "gli": "agli ",
            "le": "alle ",
        },
    },
}
_ITALIAN_STEMS = {"of": "de", "to": "a"}  # before l'
_FRENCH_ELISION = "aàeéèêioôuy"


# ---- Forms


def inflect(language: str, phrase: str, form: str) -> str:
    """Return one form of a table entry.

    Args:
        language: The language code, one of LANGUAGES.
        phrase: The entry: its parts separated by `|`. German noun phrases have one part (feminine,
            or a name), two (nominative, genitive) or four (nominative, accusative, genitive,
            dative).
        form: "" for the first part, a digit for that part, German `acc`, `gen`, `dat`, or the
            prepositions `of` and `to` (es, fr, it).
    """
    parts = phrase.split("|")
    if not form:
        return parts[0]
    if form.isdigit():
        return parts[int(form)]
    if language == "de":
        return _german(parts, form)
    return _romance(language, parts[0], form)


def _german(parts: list[str], case: str) -> str:
    """Return a German phrase in a case.

    The case is given, in an entry of four parts, or derived from the nominative. The genitive of
    phrases that are not feminine is always given.
    """
    if len(parts) == 4:
        return parts[1 + _GERMAN_CASES.index(case)]
    article = parts[0].partition(" ")[0]
    if case == "gen" and article != "die":
        return parts[1]
    case_article = _GERMAN_ARTICLES[case].get(article, article)
    return parts[0].replace(article, case_article, 1)


def _romance(language: str, phrase: str, preposition: str) -> str:
    """Return a phrase after a preposition.

    The preposition is contracted with the article, or elided before a vowel.
    """
    article, _, rest = phrase.partition(" ")
    contractions = _CONTRACTIONS[language][preposition]
    if article in contractions and rest:
        return contractions[article] + rest
    if language == "it" and phrase.startswith("l'"):
        return f"{_ITALIAN_STEMS[preposition]}l{phrase}"
    if language == "fr" and preposition == "of" and phrase[0].lower() in _FRENCH_ELISION:
        return f"d'{phrase}"
    if language == "it" and preposition == "to" and phrase[0] in "aA":
        return f"ad {phrase}"
    return f"{_PREPOSITIONS[language][preposition]} {phrase}"


# ---- Templates


@dataclass(frozen=True)
class _Pattern:
    """The sentence of one language.

    Attributes:
        text: The sentence with `%s` for each slot.
        slots: The slots of the template, by number, that stand there.
        forms: The phrases of each of them, in the form that stands there.
    """

    text: str
    slots: list[int]
    forms: list[list[str]]


class Template:
    """A compiled template: `capacity` different sentences, numbered from 0.

    Args:
        name: The identity of the template: together with a sentence number it decides the split.
        topic: The topic that its sentences speak about.
        texts: The template by language.
        tables: The phrase tables by slot name.
    """

    def __init__(self, name: str, topic: str, texts: dict[str, str], tables: dict[str, list[Row]]):
        self.name = name
        self.topic = topic
        slots = sorted({match[1] + match[2] for match in _SLOT.finditer(texts["en"])})
        table_names = [slot.rstrip(_DIGITS) for slot in slots]
        # A table that is used twice gives two different entries. Its second slot has one choice
        # fewer, and skips the entry of the first.
        self.earlier_slots: list[int | None] = []
        self.choices: list[int] = []
        for place, table_name in enumerate(table_names):
            choices = len(tables[table_name])
            earlier_slot = None
            if table_name in table_names[:place]:
                earlier_slot = table_names.index(table_name)
                choices -= 1
            self.earlier_slots.append(earlier_slot)
            self.choices.append(choices)
        self.capacity = prod(self.choices)
        self.patterns: dict[str, _Pattern] = {}
        for column, language in enumerate(LANGUAGES):
            self.patterns[language] = _compile(texts[language], column, language, slots, tables)

    def render(self, number: int) -> dict[str, str]:
        """Return sentence `number` in every language."""
        entries: list[int] = []  # the row of its table, for each slot
        for choices, earlier_slot in zip(self.choices, self.earlier_slots, strict=True):
            number, entry = divmod(number, choices)
            if earlier_slot is not None and entry >= entries[earlier_slot]:
                entry += 1
            entries.append(entry)
        sentences = {}
        for language, pattern in self.patterns.items():
            phrases = []
            for slot, forms in zip(pattern.slots, pattern.forms, strict=True):
                phrases.append(forms[entries[slot]])
            text = pattern.text % tuple(phrases)
            sentences[language] = text[0].upper() + text[1:]
        return sentences


def _compile(
    text: str, column: int, language: str, slots: list[str], tables: dict[str, list[Row]]
) -> _Pattern:
    """Return the pattern of a template in one language, whose phrases stand in a column."""
    slot_numbers = []
    forms = []
    for match in _SLOT.finditer(text):
        table_name, digit, form = match.groups(default="")
        slot_numbers.append(slots.index(table_name + digit))
        forms.append([inflect(language, row[column], form) for row in tables[table_name]])
    return _Pattern(_SLOT.sub("%s", text), slot_numbers, forms)


@cache
def templates() -> dict[str, tuple[Template, ...]]:
    """Return the compiled templates by topic, with those of no topic under `neutral`."""
    contents = {name: _read_yaml(name) for name in ("numbers", "common", *TOPICS)}
    tables: dict[str, list[Row]] = {}
    for content in contents.values():
        for table_name, entries in content["tables"].items():
            tables[table_name] = [_in_all_languages(entry) for entry in entries]
    compiled = {NEUTRAL: _compile_group(NEUTRAL, contents["common"]["templates"], tables)}
    for topic in TOPICS:
        compiled[topic] = _compile_group(topic, contents[topic]["templates"], tables)
    return compiled


def _read_yaml(name: str) -> dict:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # The one in C is faster.
    text = files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, loader)


def _in_all_languages(entry: Row | str) -> Row:
    """Return the row of an entry; a phrase without translations is the same in all languages."""
    return entry if isinstance(entry, list) else [entry] * len(LANGUAGES)


def _compile_group(
    topic: str, texts: list[dict[str, str]], tables: dict[str, list[Row]]
) -> tuple[Template, ...]:
    compiled = []
    for place, template_texts in enumerate(texts):
        compiled.append(Template(f"{topic}/{place}", topic, template_texts, tables))
    return tuple(compiled)
