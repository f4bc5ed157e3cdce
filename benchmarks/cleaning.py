"""What `tmde clean` finds of noise that was planted, beside the rules of OpusFilter.

    pip install opusfilter
    python benchmarks/cleaning.py --data DATA --json benchmarks/results/cleaning.json

A fortieth of the rows gets each of eight kinds of noise, so that a fifth of all rows is bad:

- wrong language: the second text is one of a third language, the translation if there is one.
- untranslated: the second text is the first one.
- half translated: the second half of the second text is that of the first one.
- misaligned: the second text is that of another row.
- truncated: the second half of the second text is missing.
- number: a number of the second text is another one.
- placeholder: both texts have a placeholder, and that of the second is lost or renamed. As many
  right rows have one.
- near duplicate: the row repeats another one, with other case, punctuation and digits.

Documentation is `DATA/parallel_dev.parquet`, on which the thresholds were chosen. General text is
`DATA/test/tatoeba.parquet`, on which nothing was. By `--write FOLDER` noisy rows of
`DATA/parallel` are written for trainings, whose folders `--runs` takes: NAME-SEED, where NAME says
what text it is. The page of results has the commands.

The rules of OpusFilter (Aulamo et al. 2020) are its filters of lengths, ratios, long words, HTML,
alphabet, language (by lingua), punctuation, numerals, similarity and
repetition with their defaults, and its removal of duplicates.
"""

import json as json_format
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from common import markdown, sentence_pairs, sum_counts, translations, write_json

from tmde.documents.calibration import Calibration
from tmde.documents.cleaning import RowCleaner
from tmde.documents.pair_checks import near_duplicate_key
from tmde.embedding import DocumentEmbedder

NOISY_SHARE = 1 / 40  # of the rows, for each kind
PLACEHOLDERS = ("{name}", "%s", "<b>", "${value}", "{0}")
OTHER_PLACEHOLDERS = ("", "{nombre}", "{1}", "</i>")
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
        noise: The kind of noise; "" if the row is right.
    """

    first: str
    second: str
    third: str
    noise: str = ""

    def spoiled(self, noise: str, second: str) -> "Row":
        """Return the row with another second text."""
        return Row(self.first, second, self.third, noise)


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
    """Give both texts a placeholder, and lose or rename that of the second."""
    placeholder = generator.choice(PLACEHOLDERS)
    other = generator.choice(OTHER_PLACEHOLDERS)
    second = f"{row.second} {other}".strip()
    return Row(f"{row.first} {placeholder}", second, row.third, "placeholder")


def near_duplicate(row: Row, rows: Sequence[Row], generator: random.Random) -> Row | None:
    """Repeat another row, which stays before it, with other case, punctuation and digits."""
    first = re.sub(r"\d", "4", row.first.upper()).rstrip(".!?")
    second = re.sub(r"\d", "4", row.second.upper()).rstrip(".!?")
    return Row(first, second, row.third, "near duplicate")


NOISE: dict[str, Spoil] = {
    "wrong language": wrong_language,
    "untranslated": untranslated,
    "half translated": half_translated,
    "misaligned": misaligned,
    "truncated": truncated,
    "number": other_number,
    "placeholder": other_placeholder,
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
            row = Row(f"{row.first} {placeholder}", f"{row.second} {placeholder}", row.third)
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
            rows.append(Row(row[languages[0]], row[languages[1]], others[0]))
    return rows


def load_tatoeba(path: Path) -> dict[Texts, list[Row]]:
    """Return the pairs of English with each language; the third text is one of another language."""
    texts = {language: pairs for (language, _), pairs in sentence_pairs(path).items()}
    languages = list(texts)
    pairs = {}
    for position, language in enumerate(languages):
        others = texts[languages[position - 1]]
        rows = []
        for (first, english), (other, _) in zip(texts[language], others, strict=False):
            rows.append(Row(english, first, other))
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


# ---- Measures


def describe(rows: Sequence[Row], reasons: Sequence[set[str]]) -> dict[str, Any]:
    """Return the share of each kind of noise that is removed, and that of right rows."""
    recall = {}
    for noise in NOISE:
        removed = [bool(r) for row, r in zip(rows, reasons, strict=True) if row.noise == noise]
        recall[noise] = [sum(removed), len(removed)]
    is_removed = [bool(found) for found in reasons]
    right_removed = sum(found for row, found in zip(rows, is_removed, strict=True) if not row.noise)
    precision = {}
    for reason in sorted({reason for found in reasons for reason in found}):
        with_reason = [row for row, found in zip(rows, reasons, strict=True) if reason in found]
        noisy = [row for row in with_reason if row.noise]
        precision[reason] = [len(noisy), len(with_reason)]
    return {
        "rows": len(rows),
        "right": sum(not row.noise for row in rows),
        "right_removed": right_removed,
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


def main(
    data: Annotated[Path, typer.Option(help="Folder with parallel_dev.parquet and test/.")],
    model: Annotated[list[str] | None, typer.Option(help="Models of tmde. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="That of the noise.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write rows for a training into this folder, and stop.")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder of the trainings, NAME-SEED.")] = None,
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
    sets = {"documentation": documentation, "general": general}
    removers: dict[str, Remove] = {"OpusFilter": removed_by_opusfilter}
    for name in model or ["default"]:
        removers[name] = partial(removed_by_tmde, model=name)
    results = []
    for title, pairs in sets.items():
        for name, removed_by in removers.items():
            typer.echo(f"{title}: {name}", err=True)
            parts = []
            for languages, rows in pairs.items():
                noisy = plant(rows, seed)
                parts.append(describe(noisy, removed_by(noisy, languages)))
            results.append({"system": name, "text": title} | sum_counts(parts))
    print(markdown([table_row(result) for result in results]))
    for result in results:
        print(result["system"], result["text"], result["precision"])
    settings = {"noisy_share": NOISY_SHARE, "seed": seed, "training": read_runs(runs)}
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
