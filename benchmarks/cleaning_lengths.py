r"""How many right rows `tmde clean` takes for no translations, by their number of words.

    python benchmarks/cleaning_lengths.py --data DATA --memory de-en.tmx --memory fr-en.tmx \
        --json benchmarks/results/cleaning_lengths.json

All rows are development rows: sentences of `DATA/general_dev.parquet`, words of
`DATA/general/wiktionary.parquet`, to which the packaged models were trained, and interface texts
of translation memories, whose file names say their languages. A fifth of the rows of each length
gets the second text of another row of this length. A row is as long as its shorter text.

*One threshold* is the same probability for all rows, which is what the rule by letters is compared
with.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from common import markdown, sum_counts, translations, write_json

from tmde.data.checks import CorpusError
from tmde.data.unit_files import read_units
from tmde.documents.calibration import Calibration
from tmde.documents.cleaning import MIN_PROBABILITY, RowCleaner
from tmde.documents.pair_checker import Reason
from tmde.embedding import DocumentEmbedder

LENGTHS = ("1", "2", "3-4", "5-8", "9+")  # words
LAST_OF_LENGTHS = (1, 2, 4, 8)
WRONG_SHARE = 1 / 5
SETS = {
    "sentences": ("general_dev.parquet", (("de", "en"), ("en", "fr"))),
    "dictionary": ("general/wiktionary.parquet", (("de", "en"), ("en", "fr"))),
}

Texts = tuple[str, str]


def length_of(texts: Texts) -> str:
    """Return the name of the number of words of the shorter text."""
    words = min(len(re.findall(r"\w+", text)) for text in texts)
    for name, last in zip(LENGTHS, LAST_OF_LENGTHS, strict=False):
        if words <= last:
            return name
    return LENGTHS[-1]


def spread(rows: Sequence[Texts], count: int) -> list[Texts]:
    """Return at most `count` different rows, in random order that is always the same."""
    unique = sorted(set(rows))
    random.Random(0).shuffle(unique)
    return unique[:count]


def load_corpus(path: Path, languages: Texts) -> list[Texts]:
    """Return the rows of two languages whose texts differ."""
    rows = []
    for texts in translations(path):
        first = texts.get(languages[0])
        second = texts.get(languages[1])
        if first and second and first != second:
            rows.append((first, second))
    return rows


def load_memory(path: Path, languages: Texts) -> list[Texts]:
    """Return the units of a memory whose texts differ; a `^` ends a note to the translator."""
    rows = []
    for _, texts in read_units("tmx", str(path), str(path)):
        if isinstance(texts, CorpusError):
            continue
        first = texts.get(languages[0])
        second = texts.get(languages[1])
        if first and second and first != second and "^" not in first + second:
            rows.append((first, second))
    return rows


def misalign(rows: Sequence[Texts]) -> tuple[list[Texts], list[bool]]:
    """Return rows of which some have the second text of another of their length, and which."""
    generator = random.Random(0)
    spoiled = list(rows)
    is_wrong = [False] * len(rows)
    for length in LENGTHS:
        positions = [number for number, row in enumerate(rows) if length_of(row) == length]
        for position in generator.sample(positions, round(len(positions) * WRONG_SHARE)):
            other = rows[generator.choice(positions)]
            if other[1] != rows[position][1]:
                spoiled[position] = (rows[position][0], other[1])
                is_wrong[position] = True
    return spoiled, is_wrong


def measure(cleaner: RowCleaner, rows: Sequence[Texts], languages: Texts) -> dict[str, Any]:
    """Return how many rows are removed, by length.

    Returns:
        For `right` and `misaligned` and each length: the rows that one threshold removes, those
        that `tmde clean` removes, and all.
    """
    spoiled, is_wrong = misalign(rows)
    counts: dict[str, dict[str, list[int]]] = {"right": {}, "misaligned": {}}
    texts = [dict(zip(languages, row, strict=True)) for row in spoiled]
    for row, wrong, checked in zip(rows, is_wrong, cleaner.clean(texts), strict=True):
        kind = "misaligned" if wrong else "right"
        count = counts[kind].setdefault(length_of(row), [0, 0, 0])
        count[0] += checked.probability is not None and checked.probability < MIN_PROBABILITY
        count[1] += not checked.is_kept
        count[2] += 1
    return counts


def main(
    data: Annotated[Path, typer.Option(help="Folder with general_dev.parquet and general/.")],
    memory: Annotated[
        list[Path] | None, typer.Option(help="NAME-de-en.tmx of German and English. Repeatable.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Models of tmde. Repeatable.")] = None,
    rows: Annotated[int, typer.Option(help="Of each pair of languages, at most.")] = 500,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure what is removed as no translation."""
    sets: dict[str, list[tuple[Texts, list[Texts]]]] = {}
    for title, (name, pairs) in SETS.items():
        sets[title] = []
        for languages in pairs:
            sets[title].append((languages, spread(load_corpus(data / name, languages), rows)))
    sets["interface"] = []
    for path in memory or ():
        first, second = path.stem.split("-")[-2:]
        units = load_memory(path, (first, second))
        sets["interface"].append(((first, second), spread(units, rows)))
    results = []
    for name in model or ["default"]:
        embedder = DocumentEmbedder.from_pretrained(name)
        calibration = Calibration.from_pretrained(name)
        for title, pairs_of_set in sets.items():
            typer.echo(f"{title}: {name}", err=True)
            parts = []
            for languages, pair_rows in pairs_of_set:
                cleaner = RowCleaner(embedder, calibration, reasons={Reason.IMPROBABLE})
                parts.append(measure(cleaner, pair_rows, languages))
            results.append({"system": name, "text": title} | sum_counts(parts))
    for result in results:
        table = []
        for kind in ("right", "misaligned"):
            for length, (flat, removed, total) in sorted(result[kind].items()):
                row = {"system": result["system"], "text": result["text"], "rows": kind}
                row |= {"words": length, "all": total}
                row["one threshold, %"] = 100 * flat / total
                row["by letters, %"] = 100 * removed / total
                table.append(row)
        print(markdown(table))
    settings = {"wrong_share": WRONG_SHARE, "rows": rows, "min_probability": MIN_PROBABILITY}
    write_json(json, "cleaning_lengths", settings, results)


if __name__ == "__main__":
    typer.run(main)
