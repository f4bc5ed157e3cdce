"""What `tmde clean` finds of noise that was planted, beside the rules of OpusFilter and Bicleaner.

    pip install opusfilter bicleaner-hardrules
    python benchmarks/cleaning.py --data DATA --catalog keepassxc.jsonl --memory audacity-de.jsonl

A fortieth of the rows gets each of twelve kinds of noise, so that 30% of the rows are bad:

- wrong language: the second text is one of a third language, the translation if there is one.
- untranslated: the second text is the first one.
- half translated: the second half of the second text is that of the first one.
- misaligned: the second text is that of another row.
- truncated: the second half of the second text is missing.
- number: a number of the second text is another one.
- placeholder: both texts have a placeholder, and that of the second is lost or another one. As many
  right rows have one.
- tag: both texts are in bold, and the second lacks an end tag.
- mojibake: a text in UTF-8 was read as Windows-1252.
- lost letters: question marks are in place of the letters of a text that ASCII does not have.
- negation: the second text lacks its "not".
- near duplicate: the row repeats another one, with other case and punctuation.

Documentation is `DATA/parallel_dev.parquet`, on which the thresholds were chosen. General text is
`DATA/test/tatoeba.parquet`, on which nothing was. Software strings are catalogs in several
languages, `--catalog`, as JSONL with a column `translation`. `--memory` counts what is removed of a
memory as it is, and `--verdicts` has what a reader thought of a sample of that: the rows that are
right and the rows read, by memory and reason. By `--write FOLDER` noisy rows of `DATA/parallel` are
written for trainings, whose folders `--runs` takes: NAME-SEED, where NAME says what text it is. The
page of results has the commands.

The rules of OpusFilter (Aulamo et al. 2020) are its filters of lengths, ratios, long words, HTML,
alphabet, language (by lingua), punctuation, numerals, similarity and repetition with their
defaults, and its removal of duplicates. Those of Bicleaner (Ramírez-Sánchez et al. 2020) are the
default rules of bicleaner-hardrules, without the models of fluency and of vulgar language.
"""

import json as json_format
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from common import markdown, sentence_pairs, sum_counts, translations, write_json

from tmde.documents.calibration import Calibration
from tmde.documents.cleaning import RowCleaner
from tmde.documents.pair_checks import near_duplicate_key
from tmde.embedding import DocumentEmbedder

NOISY_SHARE = 1 / 40  # of the rows, for each kind
PLACEHOLDERS = ("{name}", "{0}", "{{name}}", "%s", "%(name)s", "%1", "%n", "%@", "$1", "$name")
PLACEHOLDERS += ("${value}", "@1", "[[1]]", r"\n")
NEGATIONS = {
    "de": r" nicht\b",
    "en": r" not\b|(?<=[a-z])n't\b",
    "es": r"\bno ",
    "fr": r"\bne |\bn'| pas\b",
    "it": r"\bnon ",
}
MOST_ROWS = 500  # of two languages
FEWEST_WORDS = 6  # of a text that is cut
DOCUMENTATION_PAIRS = (("de", "en"), ("en", "fr"), ("es", "it"))
TRAINING_LANGUAGES = ("de", "en", "fr")

Texts = tuple[str, str]


@dataclass(frozen=True)
class Row:
    """Two texts, and a text of a third language.

    Attributes:
        first: The first text.
        second: Its translation.
        third: A text of another language.
        language: That of the second text.
        noise: The kind of noise; "" if the row is right.
    """

    first: str
    second: str
    third: str
    language: str = ""
    noise: str = ""

    def spoiled(self, noise: str, second: str) -> "Row":
        """Return the row with another second text."""
        return replace(self, second=second, noise=noise)


Spoil = Callable[[Row, Sequence[Row], random.Random], Row | None]
Remove = Callable[[Sequence[Row], Texts], list[set[str]]]  # why each row is removed


# ---- Noise


def wrong_language(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Put the text of the third language in place of the second."""
    return row.spoiled("wrong language", row.third)


def untranslated(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Copy the first text."""
    return row.spoiled("untranslated", row.first)


def half_translated(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Let the second half be that of the first text; None if a text is short."""
    first = row.first.split()
    second = row.second.split()
    if min(len(first), len(second)) < FEWEST_WORDS:
        return None
    halves = second[: len(second) // 2] + first[len(first) // 2 :]
    return row.spoiled("half translated", " ".join(halves))


def misaligned(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Take the second text of another row."""
    other = generator.choice(rows)
    return None if other.second == row.second else row.spoiled("misaligned", other.second)


def truncated(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Cut the second text in half; None if it is short."""
    words = row.second.split()
    if len(words) < FEWEST_WORDS:
        return None
    return row.spoiled("truncated", " ".join(words[: len(words) // 2]))


def other_number(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Change a number of the second text; None if it has none."""
    numbers = list(re.finditer(r"\d+", row.second))
    if not numbers:
        return None
    number = generator.choice(numbers)
    changed = str(int(number.group()) + generator.randint(1, 9))
    second = row.second[: number.start()] + changed + row.second[number.end() :]
    return row.spoiled("number", second)


def other_placeholder(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Give both texts a placeholder, and lose that of the second, or put another one there."""
    placeholder = generator.choice(PLACEHOLDERS)
    others = ["", "", *(other for other in PLACEHOLDERS if other != placeholder)]
    second = f"{row.second} {generator.choice(others)}".strip()
    return replace(row, first=f"{row.first} {placeholder}", second=second, noise="placeholder")


def lost_tag(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Put both texts in bold, and lose the end tag of the second."""
    return replace(row, first=f"<b>{row.first}</b>", second=f"<b>{row.second}", noise="tag")


def mojibake(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Read a text in UTF-8 as Windows-1252; None if both have ASCII alone."""
    return _with_other_letters(row, "mojibake", _as_windows_text)


def lost_letters(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Put question marks in place of letters within words; None if both have ASCII alone."""
    return _with_other_letters(row, "lost letters", _with_question_marks)


def _with_other_letters(row: Row, noise: str, spoil: Callable[[str], str]) -> Row | None:
    """Return the row with one of its texts spoiled; None if neither changes."""
    second = spoil(row.second)
    if second != row.second:
        return row.spoiled(noise, second)
    first = spoil(row.first)
    return None if first == row.first else replace(row, first=first, noise=noise)


def _as_windows_text(text: str) -> str:
    letters = re.search(r"[À-ÿ]", text)
    return text if letters is None else text.encode().decode("cp1252", errors="replace")


def _with_question_marks(text: str) -> str:
    return re.sub(r"(?<=[a-z])[À-ÿ](?=[a-z])", "?", text)


def no_negation(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Take the negation out of the second text; None if it has none."""
    pattern = NEGATIONS.get(row.language)
    if pattern is None:
        return None
    second = re.sub(pattern, "", row.second)
    return None if second == row.second else row.spoiled("negation", second)


def near_duplicate(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Repeat another row, which stays before it, with other case and punctuation."""
    first = row.first.upper().rstrip(".!?")
    second = row.second.upper().rstrip(".!?")
    return replace(row, first=first, second=second, noise="near duplicate")


NOISE: dict[str, Spoil] = {
    "wrong language": wrong_language,
    "untranslated": untranslated,
    "half translated": half_translated,
    "misaligned": misaligned,
    "truncated": truncated,
    "number": other_number,
    "placeholder": other_placeholder,
    "tag": lost_tag,
    "mojibake": mojibake,
    "lost letters": lost_letters,
    "negation": no_negation,
    "near duplicate": near_duplicate,
}


def plant(rows: Sequence[Row], seed: int) -> list[Row]:
    """Return the rows with noise of all kinds, in random order.

    Near duplicates are added, and all others replace a row. Each original is spoiled once.
    """
    generator = random.Random(seed)
    waiting = list(rows)
    generator.shuffle(waiting)
    wanted = round(len(rows) * NOISY_SHARE)
    noisy: list[Row] = []
    for noise, spoil in NOISE.items():
        count = 0
        unused = []
        while waiting and count < wanted:
            row = waiting.pop()
            spoiled = spoil(row, rows, generator)
            if spoiled is None:
                unused.append(row)
                continue
            noisy.append(spoiled)
            count += 1
            if noise == "near duplicate":
                unused.append(row)
        waiting += unused
        generator.shuffle(waiting)
    right = []
    for number, row in enumerate(waiting):
        if number < wanted:
            placeholder = generator.choice(PLACEHOLDERS)
            first = f"{row.first} {placeholder}"
            row = replace(row, first=first, second=f"{row.second} {placeholder}")
        right.append(row)
    duplicates = [row for row in noisy if row.noise == "near duplicate"]
    mixed = right + [row for row in noisy if row.noise != "near duplicate"]
    generator.shuffle(mixed)
    return mixed + duplicates  # Those that repeat come after those that they repeat.


# ---- Data


def load_documentation(path: Path, languages: Texts) -> list[Row]:
    """Return the rows of two languages, with a text of a third one."""
    rows = []
    for row in translations(path):
        others = [text for code, text in row.items() if text and code not in languages]
        if row[languages[0]] and row[languages[1]] and others:
            rows.append(Row(row[languages[0]], row[languages[1]], others[0], languages[1]))
    return rows


def load_catalog(path: Path) -> dict[Texts, list[Row]]:
    """Return the rows of English and each other language of a catalog of software strings."""
    translations_of_rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        translations_of_rows.append(json_format.loads(line)["translation"])
    codes = sorted({code for row in translations_of_rows for code in row if code != "en"})
    pairs: dict[Texts, list[Row]] = {}
    for code in codes:
        rows = []
        for row in translations_of_rows:
            others = [text for other, text in row.items() if other not in ("en", code)]
            if row.get("en") and row.get(code) and others:
                rows.append(Row(row["en"], row[code], others[0], code))
        pairs["en", code] = rows
    return pairs


def load_tatoeba(path: Path) -> dict[Texts, list[Row]]:
    """Return the pairs of English with each language; the third text is one of another language."""
    texts = {language: pairs for (language, _), pairs in sentence_pairs(path).items()}
    languages = list(texts)
    pairs = {}
    for position, language in enumerate(languages):
        others = texts[languages[position - 1]]
        rows = []
        for (first, english), (other, _) in zip(texts[language], others, strict=False):
            rows.append(Row(english, first, other, language))
        pairs["en", language] = rows
    return pairs


# ---- Systems


def removed_by_tmde(rows: Sequence[Row], languages: Texts, model: str) -> list[set[str]]:
    """Return why `tmde clean` removes each row."""
    embedder = DocumentEmbedder.from_pretrained(model)
    calibration = Calibration.from_pretrained(model)
    first, second = languages
    texts = [{first: row.first, second: row.second} for row in rows]
    reasons = []
    for checked in RowCleaner(embedder, calibration).clean(texts):
        found = {finding.reason.value for finding in checked.findings}
        reasons.append(found if not checked.is_kept else set())
    return reasons


def removed_by_opusfilter(rows: Sequence[Row], languages: Texts) -> list[set[str]]:
    """Return which rules of OpusFilter remove each row."""
    from opusfilter import filters, lid

    names = list(languages)
    rules = [
        filters.LengthFilter(unit="word"),
        filters.LengthRatioFilter(unit="word"),
        filters.LongWordFilter(),
        filters.HtmlTagFilter(),
        filters.AlphabetRatioFilter(),
        filters.CharacterScoreFilter(scripts=["Latin", "Latin"]),
        lid.LinguaFilter(languages=names),
        filters.TerminalPunctuationFilter(),
        filters.NonZeroNumeralsFilter(),
        filters.SimilarityFilter(),
        filters.RepetitionFilter(),
    ]
    pairs = [[row.first, row.second] for row in rows]
    reasons: list[set[str]] = [set() for _ in rows]
    for rule in rules:
        for found, is_accepted in zip(reasons, rule.decisions(iter(pairs)), strict=True):
            if not is_accepted:
                found.add(type(rule).__name__)
    seen = set()
    for found, (first, second) in zip(reasons, pairs, strict=True):
        # Its removal of duplicates compares lower case without signs and digits, if asked to.
        key = near_duplicate_key(first), near_duplicate_key(second)
        if key in seen:
            found.add("duplicate")
        seen.add(key)
    return reasons


def removed_by_hardrules(rows: Sequence[Row], languages: Texts) -> list[set[str]]:
    """Return which default rules of bicleaner-hardrules remove each row."""
    from hardrules.hardrules import Hardrules

    arguments = SimpleNamespace(
        source_lang=languages[0],
        target_lang=languages[1],
        disable_lm_filter=True,
        disable_porn_removal=True,
        disable_lang_ident=False,
        disable_minimal_length=False,
        lm_threshold=0.5,
        run_all_rules=True,
        rules_config=None,
    )
    rules = Hardrules(arguments)
    reasons = []
    for row in rows:
        found = rules.wrong_tu(row.first.strip(), row.second.strip()) or []
        reasons.append({rule.partition("(")[0] for rule in found})
    return reasons


def count_removed(path: Path, model: str) -> dict[str, Any]:
    """Return how many rows of a memory are removed, and for which reasons."""
    embedder = DocumentEmbedder.from_pretrained(model)
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        rows.append(json_format.loads(line)["translation"])
    reasons: Counter[str] = Counter()
    removed = 0
    for checked in RowCleaner(embedder, Calibration.from_pretrained(model)).clean(rows):
        removed += not checked.is_kept
        reasons.update({finding.reason.value for finding in checked.findings})
    return {"memory": path.stem, "rows": len(rows), "removed": removed, "reasons": dict(reasons)}


# ---- Measures


def describe(rows: Sequence[Row], reasons: Sequence[set[str]]) -> dict[str, Any]:
    """Return the share of each kind of noise that is removed, and that of right rows."""
    recall = {}
    for noise in NOISE:
        removed = [bool(r) for row, r in zip(rows, reasons, strict=True) if row.noise == noise]
        recall[noise] = [sum(removed), len(removed)]
    is_removed = [bool(found) for found in reasons]
    right_reasons = [found for row, found in zip(rows, reasons, strict=True) if not row.noise]
    right_removed = sum(bool(found) for found in right_reasons)
    right_repeats = sum(found == {"duplicate"} for found in right_reasons)
    precision = {}
    for reason in sorted({reason for found in reasons for reason in found}):
        with_reason = [row for row, found in zip(rows, reasons, strict=True) if reason in found]
        noisy = [row for row in with_reason if row.noise]
        precision[reason] = [len(noisy), len(with_reason)]
    return {
        "rows": len(rows),
        "right": sum(not row.noise for row in rows),
        "right_removed": right_removed,
        "right_repeats": right_repeats,
        "removed": sum(is_removed),
        "recall": recall,
        "precision": precision,
    }


# ---- The command


def write_training(data: Path, folder: Path, seed: int) -> None:
    """Write rows for a training: right ones alone, and the same with noise."""
    generator = random.Random(seed)
    first, second, third = TRAINING_LANGUAGES
    rows = []
    for path in sorted((data / "parallel").glob("*.parquet")):
        for texts in translations(path):
            if all(texts[language] for language in TRAINING_LANGUAGES):
                rows.append(Row(texts[first], texts[second], texts[third]))
    generator.shuffle(rows)
    folder.mkdir(parents=True, exist_ok=True)
    noisy = plant(rows, seed)
    generator.shuffle(noisy)
    for name, chosen in {"right": rows, "noisy": noisy}.items():
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for row in chosen:
                line = {"translation": {first: row.first, second: row.second}}
                file.write(json_format.dumps(line, ensure_ascii=False) + "\n")


def measure(
    sets: Sequence[tuple[str, dict[Texts, list[Row]]]], models: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """Return what each system removes of each kind of text.

    Args:
        sets: The kinds of text, several of them more than once, with their rows by languages.
        models: The models of tmde.
        seed: That of the noise.
    """
    removers: dict[str, Remove] = {
        "OpusFilter": removed_by_opusfilter,
        "Bicleaner": removed_by_hardrules,
    }
    for name in models:
        removers[name] = partial(removed_by_tmde, model=name)
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for title, pairs in sets:
        for name, removed_by in removers.items():
            typer.echo(f"{title}: {name}", err=True)
            for languages, rows in pairs.items():
                noisy = plant(rows[:MOST_ROWS], seed)
                described = describe(noisy, removed_by(noisy, languages))
                parts.setdefault((title, name), []).append(described)
    results = []
    for (title, name), described_parts in parts.items():
        results.append({"system": name, "text": title} | sum_counts(described_parts))
    return results


def main(
    data: Annotated[Path, typer.Option(help="Folder with parallel_dev.parquet and test/.")],
    model: Annotated[list[str] | None, typer.Option(help="Models of tmde. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="That of the noise.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write rows for a training into this folder, and stop.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder of the trainings, NAME-SEED. Default: those that JSON has."),
    ] = None,
    catalog: Annotated[
        list[Path] | None, typer.Option(help="Software strings in several languages. Repeatable.")
    ] = None,
    memory: Annotated[
        list[Path] | None, typer.Option(help="A memory that is cleaned as it is. Repeatable.")
    ] = None,
    verdicts: Annotated[
        Path | None, typer.Option(help="What a reader thought of rows that were removed.")
    ] = None,
) -> None:
    """Measure what is removed."""
    if write is not None:
        write_training(data, write, seed)
        return
    documentation = {}
    for languages in DOCUMENTATION_PAIRS:
        rows = load_documentation(data / "parallel_dev.parquet", languages)
        documentation[languages] = rows
    general = load_tatoeba(data / "test" / "tatoeba.parquet")
    sets = [("documentation", documentation), ("general", general)]
    sets += [("software", load_catalog(path)) for path in catalog or []]
    models = model or ["default"]
    results = measure(sets, models, seed)
    print(markdown([table_row(result) for result in results]))
    for result in results:
        print(result["system"], result["text"], result["precision"])
    memories = [count_removed(path, models[0]) for path in memory or []]
    settings: dict[str, Any] = {"noisy_share": NOISY_SHARE, "seed": seed, "memories": memories}
    if verdicts is not None:
        settings["verdicts"] = json_format.loads(verdicts.read_text(encoding="utf-8"))
    settings["training"] = read_runs(runs)
    if runs is None and json is not None and json.exists():
        known = json_format.loads(json.read_text(encoding="utf-8"))
        settings["training"] = known["settings"]["training"]
    write_json(json, "cleaning", settings, results)


def read_runs(folder: Path | None) -> dict[str, dict[str, list[float]]]:
    """Return P@1 on development rows of each training, a number for each seed.

    Args:
        folder: The folder with the runs, NAME-SEED; None without any.

    Returns:
        By the name of the text it was trained on and of the development rows.
    """
    measures: dict[str, dict[str, list[float]]] = {}
    if folder is None:
        return measures
    for path in sorted(folder.glob("*/results.json")):
        name = path.parent.name.rpartition("-")[0]
        best = json_format.loads(path.read_text(encoding="utf-8"))["best"]
        for rows in ("documentation", "general"):
            value = best[f"eval_{rows}_p1_de-en"]
            measures.setdefault(name, {}).setdefault(rows, []).append(value)
    return measures


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row: dict[str, Any] = {"system": result["system"], "text": result["text"]}
    row["right removed, %"] = 100 * result["right_removed"] / result["right"]
    for noise, (removed, total) in result["recall"].items():
        row[noise] = 100 * removed / max(total, 1)
    return row


if __name__ == "__main__":
    typer.run(main)
