"""Sentence alignment by lengths, by vectors, and by both, where the right alignment is known.

    python benchmarks/sentence_alignment.py --data DATA --json sentence_alignment.json

Two settings:

- Bleualign: the German and French sentences of one text and their gold alignment by hand, in
  DATA/eval/bleualign_dev (dev.de, dev.fr, dev.defr).
- Edited paragraphs: the paragraphs of documents correspond by position. On each side a random
  tenth is deleted and a tenth of the rest is merged with the next paragraph that is not deleted.
  The right beads are known.

A bead is right if it is one of the gold beads; sentences without a counterpart are no beads to be
found (strict precision and recall, as in the evaluation of vecalign). Lengths alone are the dynamic
program of Gale & Church (1993), with its own costs.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow.parquet as pq
import typer
from common import markdown, write_json

from tmde.documents import align_sentences
from tmde.documents.sentence_alignment import Bead, embedded_spans
from tmde.embedding import DocumentEmbedder

EDITED_SHARE = 0.1  # of the paragraphs of a side
MAX_SIZE = 3
# The priors of Gale & Church (1993) as costs.
LENGTH_COSTS = {
    "skip": float(-np.log(0.0099 / 2 / 0.89)),
    "merge": float(-np.log(0.0445 / 0.89)),
    "length_weight": 1.0,
}

Gold = set[tuple[tuple[int, ...], tuple[int, ...]]]
Aligner = Callable[[Sequence["Pair"]], list[list[Bead]]]


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
    sides = []
    for language in ("de", "fr"):
        lines = (folder / f"dev.{language}").read_text(encoding="utf-8").splitlines()
        sides.append([line.strip() for line in lines])
    gold: Gold = set()
    for line in (folder / "dev.defr").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(":")
        if not right:
            continue
        first = tuple(ast.literal_eval(left.strip()))
        second = tuple(ast.literal_eval(right.strip()))
        if first and second:
            gold.add((first, second))
    return Pair(sides[0], sides[1], gold)


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


def align_by_lengths(pairs: Sequence[Pair]) -> list[list[Bead]]:
    """Align by lengths alone: all vectors are alike."""
    alignments = []
    for pair in pairs:
        first = np.ones((len(pair.first), 1))
        second = np.ones((len(pair.second), 1))
        beads = align_sentences(first, second, MAX_SIZE, lengths=lengths_of(pair), **LENGTH_COSTS)
        alignments.append(beads)
    return alignments


def vector_aligner(embedder: DocumentEmbedder, with_lengths: bool) -> Aligner:
    """Return an aligner by vectors, with the lengths or without them."""

    def align(pairs: Sequence[Pair]) -> list[list[Bead]]:
        longest = MAX_SIZE - 1
        first = embedded_spans([pair.first for pair in pairs], embedder.encode, longest)
        second = embedded_spans([pair.second for pair in pairs], embedder.encode, longest)
        alignments = []
        for pair, first_spans, second_spans in zip(pairs, first, second, strict=True):
            lengths = lengths_of(pair) if with_lengths else None
            alignments.append(align_sentences(first_spans, second_spans, MAX_SIZE, lengths=lengths))
        return alignments

    return align


def measure(pairs: Sequence[Pair], align: Aligner) -> dict[str, float]:
    """Return strict precision, recall and F1 of all beads, the gold beads, and units of a side."""
    predicted = 0
    correct = 0
    for pair, beads in zip(pairs, align(pairs), strict=True):
        for bead in beads:
            if len(bead.first) == 0 or len(bead.second) == 0:
                continue
            predicted += 1
            correct += (tuple(bead.first), tuple(bead.second)) in pair.gold
    gold = sum(len(pair.gold) for pair in pairs)
    return {
        "precision": ratio(correct, predicted),
        "recall": ratio(correct, gold),
        "f1": ratio(2 * correct, predicted + gold),
        "gold": gold,
        "first units": sum(len(pair.first) for pair in pairs),
        "second units": sum(len(pair.second) for pair in pairs),
    }


def ratio(part: int, whole: int) -> float:
    """Return `part / whole`; 0 if there is nothing to divide by."""
    return part / whole if whole else 0.0


def main(
    data: Annotated[Path, typer.Option(help="Folder with eval/topic_documents.parquet and more.")],
    model: Annotated[str, typer.Option(help="A model of `DocumentEmbedder`.")] = "default",
    documents: Annotated[int, typer.Option(help="Documents of each edited pair.")] = 50,
    seed: Annotated[int, typer.Option(help="That of the edits.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure precision, recall and F1 of beads."""
    embedder = DocumentEmbedder.from_pretrained(model)
    aligners: dict[str, Aligner] = {
        "lengths": align_by_lengths,
        "vectors": vector_aligner(embedder, with_lengths=False),
        "vectors and lengths": vector_aligner(embedder, with_lengths=True),
    }
    settings = {"Bleualign, de-fr": [load_bleualign(data / "eval" / "bleualign_dev")]}
    path = data / "eval" / "topic_documents.parquet"
    for languages in (("de", "en"), ("es", "fr")):
        title = f"edited paragraphs, {'-'.join(languages)}"
        settings[title] = load_edited(path, languages, documents, seed)
    results = []
    for setting, pairs in settings.items():
        for name, align in aligners.items():
            results.append({"setting": setting, "system": name, **measure(pairs, align)})
    print(markdown(results))
    options = {"model": model, "documents": documents, "seed": seed}
    write_json(json, "sentence_alignment", options, results)


if __name__ == "__main__":
    typer.run(main)
