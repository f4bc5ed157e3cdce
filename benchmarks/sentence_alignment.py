"""Sentence alignment by lengths, by vecalign's program, and by tmde, with a known right alignment.

    pip install sentweave==0.3.3
    python benchmarks/sentence_alignment.py --data DATA --json sentence_alignment.json

Settings:

- Bleualign: the German and French sentences of one text and their gold alignment by hand, in
  DATA/eval/bleualign_dev (dev.de, dev.fr, dev.defr).
- Edited paragraphs: the paragraphs of documents correspond by position. On each side a random
  tenth is deleted and a tenth of the rest is merged with the next paragraph that is not deleted.
  The right beads are known.

Precision, recall and F1 are those of vecalign, strict and lax
(`tmde.documents.bead_quality.count_beads`).

Systems:

- lengths: lengths alone, with the costs of Gale & Church (1993) for lengths, merges and sentences
  that are left alone. Two merges cost twice as much as one, and a length at most 5.
- vecalign: the program of vecalign (Thompson & Koehn 2019), as the package sentweave has it, with
  its defaults. It embeds up to seven sentences as one text by the same model.
- vectors: `align_sentences` without lengths.
- vectors and lengths: `align_sentences`, as `tmde align` calls it.

`--sizes` measures the seconds from texts to beads for documents of so many sentences.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import typer
from common import cell_in_percent, markdown, translations, write_json

from tmde.documents import align_sentences
from tmde.documents.bead_quality import BeadCounts, SentencePair, count_beads
from tmde.embedding import DocumentEmbedder
from tmde.eval.results import Cell
from tmde.eval.tasks import TASKS

EDITED_SHARE = 0.1  # of the paragraphs of a side
# The priors of Gale & Church (1993) as costs. Where all vectors are zero, each
# aligned sentence costs 1/2, and so one that is left alone has to cost as much more.
LENGTH_COSTS: dict[str, Any] = {
    "max_size": 4,
    "skip": float(-np.log(0.0099 / 2 / 0.89)) + 0.5,
    "merge": float(-np.log(0.0445 / 0.89)),
    "length_weight": 1.0,
}
SPEED_FILE = "parallel/msdocs_operations.parquet"

Gold = set[SentencePair]
Aligner = Callable[["Pair"], list[SentencePair]]


@dataclass(frozen=True)
class Pair:
    """Two texts in units, and the beads that correspond.

    Args:
        first: The units of the first text.
        second: Those of the second.
        gold: The beads with units on both sides.
    """

    first: list[str]
    second: list[str]
    gold: Gold


@dataclass(frozen=True)
class Unit:
    """A text to be aligned.

    Args:
        text: The text.
        paragraphs: The numbers of the paragraphs that it consists of.
    """

    text: str
    paragraphs: tuple[int, ...]


def load_bleualign(folder: Path) -> Pair:
    """Return the development text of Bleualign."""
    (text,) = TASKS["sentence_alignment"]().load(folder).texts.values()
    return Pair(list(text.first), list(text.second), set(text.beads))


def load_edited(path: Path, languages: tuple[str, str], documents: int, seed: int) -> list[Pair]:
    """Return documents of which both sides lost and merged paragraphs."""
    columns = ["doc_id", "language", "text"]
    table = pq.read_table(path, columns=columns, filters=[("split", "==", "dev")])
    texts: dict[str, dict[str, list[str]]] = {language: {} for language in languages}
    for row in table.to_pylist():
        if row["language"] in texts:
            texts[row["language"]][row["doc_id"]] = row["text"].split("\n\n")
    first_side, second_side = (texts[language] for language in languages)
    rng = np.random.default_rng(seed)
    pairs = []
    for name in sorted(first_side.keys() & second_side.keys())[:documents]:
        first = edited(first_side[name], rng)
        second = edited(second_side[name], rng)
        gold = corresponding(first, second)
        pairs.append(Pair([unit.text for unit in first], [unit.text for unit in second], gold))
    return pairs


def edited(paragraphs: Sequence[str], rng: np.random.Generator) -> list[Unit]:
    """Delete some paragraphs, and merge some others with the next one that is not deleted."""
    units: list[Unit] = []
    merges = False
    for number, text in enumerate(paragraphs):
        if rng.random() < EDITED_SHARE:
            continue
        if merges:
            last = units[-1]
            units[-1] = Unit(f"{last.text} {text}", (*last.paragraphs, number))
        else:
            units.append(Unit(text, (number,)))
        merges = not merges and rng.random() < EDITED_SHARE
    return units


def corresponding(first: Sequence[Unit], second: Sequence[Unit]) -> Gold:
    """Return the smallest beads in which units that share a paragraph are together."""
    groups: list[tuple[set[int], set[int], set[int]]] = []  # units of both sides, paragraphs
    for side, units in enumerate((first, second)):
        for place, unit in enumerate(units):
            merged: tuple[set[int], set[int], set[int]] = (set(), set(), set(unit.paragraphs))
            merged[side].add(place)
            apart = []
            for group in groups:
                if group[2] & merged[2]:
                    for known, new in zip(merged, group, strict=True):
                        known.update(new)
                else:
                    apart.append(group)
            groups = [*apart, merged]
    gold: Gold = set()
    for left, right, _ in groups:
        if left and right:
            gold.add((tuple(sorted(left)), tuple(sorted(right))))
    return gold


def lengths_of(pair: Pair) -> tuple[list[int], list[int]]:
    """Return the characters of the units of both sides."""
    return [len(text) for text in pair.first], [len(text) for text in pair.second]


# ---- Systems


def align_by_lengths(pair: Pair) -> list[SentencePair]:
    """Align by lengths alone: all vectors are zero."""
    first = np.zeros((len(pair.first), 1))
    second = np.zeros((len(pair.second), 1))
    beads = align_sentences(first, second, lengths=lengths_of(pair), **LENGTH_COSTS)
    return [(tuple(bead.first), tuple(bead.second)) for bead in beads]


def vector_aligner(embedder: DocumentEmbedder, with_lengths: bool) -> Aligner:
    """Return an aligner by vectors, with the lengths or without them."""

    def align(pair: Pair) -> list[SentencePair]:
        first = embedder.encode(pair.first, show_progress_bar=False)
        second = embedder.encode(pair.second, show_progress_bar=False)
        lengths = lengths_of(pair) if with_lengths else None
        beads = align_sentences(np.asarray(first), np.asarray(second), lengths=lengths)
        return [(tuple(bead.first), tuple(bead.second)) for bead in beads]

    return align


class SilentEncoder:
    """An embedder as sentweave calls it."""

    def __init__(self, embedder: DocumentEmbedder) -> None:
        self.embedder = embedder

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return the vectors of sentences, (n, d)."""
        return np.asarray(self.embedder.encode(list(sentences), show_progress_bar=False))


def vecalign_aligner(embedder: DocumentEmbedder) -> Aligner:
    """Return an aligner by the program of vecalign."""
    from sentweave import align as sentweave_align

    encoder = SilentEncoder(embedder)

    def align(pair: Pair) -> list[SentencePair]:
        result = sentweave_align(pair.first, pair.second, encoder=encoder)
        beads = []
        for alignment in result.alignments:
            beads.append((tuple(alignment.src_indices), tuple(alignment.tgt_indices)))
        return beads

    return align


# ---- Measures


def measure(pairs: Sequence[Pair], align: Aligner) -> dict[str, list[float]]:
    """Return measures in %, strict and lax F1 with their intervals."""
    strict_parts = []
    lax_parts = []
    for pair in pairs:
        beads = align(pair)
        sizes = len(pair.first), len(pair.second)
        strict_parts.append(count_beads(beads, pair.gold, *sizes))
        lax_parts.append(count_beads(beads, pair.gold, *sizes, lax=True))
    strict = BeadCounts.joined(strict_parts)
    return {
        "precision": [100 * strict.precision],
        "recall": [100 * strict.recall],
        "strict": f1_with_interval(strict),
        "lax": f1_with_interval(BeadCounts.joined(lax_parts)),
    }


def f1_with_interval(counts: BeadCounts) -> list[float]:
    """Return F1 and its 95% interval over places in the documents, in %."""
    places = [str(place) for place in range(len(counts.gold))]
    return cell_in_percent(Cell("", "", "strict_f1", counts.f1, places, counts.columns()))


def load_long_pair(data: Path, size: int) -> Pair:
    """Return `size` German and English segments of documentation, one after the other."""
    first = []
    second = []
    for row in translations(data / SPEED_FILE):
        if row["de"] and row["en"]:
            first.append(row["de"])
            second.append(row["en"])
        if len(first) == size:
            break
    return Pair(first, second, set())


def seconds_of(pair: Pair, align: Aligner) -> float:
    """Return the seconds from texts to beads."""
    start = time.perf_counter()
    align(pair)
    return time.perf_counter() - start


def main(
    data: Annotated[Path, typer.Option(help="Folder with eval/topic_documents.parquet and more.")],
    model: Annotated[str, typer.Option(help="A model of `DocumentEmbedder`.")] = "default",
    documents: Annotated[int, typer.Option(help="Documents of each edited pair.")] = 50,
    seed: Annotated[int, typer.Option(help="That of the edits.")] = 0,
    sizes: Annotated[list[int] | None, typer.Option(help="Sentences of documents to time.")] = None,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure precision, recall and F1 of beads, and the time."""
    embedder = DocumentEmbedder.from_pretrained(model)
    aligners: dict[str, Aligner] = {
        "lengths": align_by_lengths,
        "vecalign": vecalign_aligner(embedder),
        "vectors": vector_aligner(embedder, with_lengths=False),
        "vectors and lengths": vector_aligner(embedder, with_lengths=True),
    }
    settings = load_settings(data, documents, seed)
    long_pairs = {size: load_long_pair(data, size) for size in sizes or []}
    results = []
    for name, align in aligners.items():
        measures = {}
        for setting, pairs in settings.items():
            typer.echo(f"{name}: {setting}", err=True)
            for title, numbers in measure(pairs, align).items():
                measures[f"{setting} {title}"] = numbers
        seconds = {}
        for size, pair in long_pairs.items():
            typer.echo(f"{name}: {size} sentences", err=True)
            seconds[str(size)] = seconds_of(pair, align)
        results.append({"system": name, "measures": measures, "seconds": seconds})
    print(markdown([table_row(result) for result in results]))
    gold = {}
    for setting, pairs in settings.items():
        gold[setting] = sum(len(pair.gold) for pair in pairs)
    options = {"model": model, "documents": documents, "seed": seed, "gold": gold}
    write_json(json, "sentence_alignment", options, results)


def load_settings(data: Path, documents: int, seed: int) -> dict[str, list[Pair]]:
    """Return the texts to align, by setting."""
    settings = {"Bleualign": [load_bleualign(data / "eval" / "bleualign_dev")]}
    path = data / "eval" / "topic_documents.parquet"
    for languages in (("de", "en"), ("es", "fr")):
        settings[f"edited {'-'.join(languages)}"] = load_edited(path, languages, documents, seed)
    return settings


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row: dict[str, Any] = {"system": result["system"]}
    for title, numbers in result["measures"].items():
        row[title] = numbers[0]
    for size, seconds in result["seconds"].items():
        row[f"{size} sentences, s"] = seconds
    return row


if __name__ == "__main__":
    typer.run(main)
