"""Sentence alignment where paragraphs are known to correspond: precision and recall, beside lengths alone.

    python benchmarks/sentence_alignment.py --data FOLDER -m MODEL [-m MODEL ...] --pairs de-en,es-fr --documents 50

`FOLDER/topic_documents.parquet` (or `--data FILE`) holds columns doc_id, language, split and text: the same
paragraphs, apart by an empty line, in each language. Three settings:

- paragraphs: units are paragraphs; right is paragraph i with paragraph i.
- edited paragraphs: of each side a random 10 % were deleted, and 10 % merged with the next one. A bead is right if it
  is one of the alignment that this leaves (strict precision and recall of beads, as in the evaluation of vecalign:
  deletions are no beads to be found).
- sentences: units are sentences. A bead is right if both sides come from the same paragraph(s). Recall is over
  paragraphs that are one sentence on both sides (found as just that bead), and over all sentences (share of those in
  right beads).

The peer is the dynamic program of Gale & Church (1993, "A program for aligning sentences in bilingual corpora") over
lengths in characters, on the same units. Models are named by their folders, and align by vectors and lengths, or (no
lengths) by vectors alone; `--skip`, `--merge`, `--length-weight` and `--max-size` are those of `align_sentences`.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from common import markdown, write_json

from modeling_tmde.documents.sentence_alignment import (
    Bead,
    align_sentences,
    embedded_spans,
)
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.long_documents import split_sentences

SETTINGS = ("paragraphs", "edited paragraphs", "sentences")
EDITED = 0.1  # of the paragraphs of a side are deleted, and as many merged with the next one


Texts = list[tuple[list[str], list[str]]]  # units of both sides of each document
Aligner = Callable[[Texts, tuple[str, str]], tuple[list[list[Bead]], int]]  # also: how many texts were truncated


@dataclass(frozen=True)
class Unit:
    """A text to be aligned, and the paragraphs that it comes from."""

    text: str
    paragraphs: tuple[int, ...]


def load(path: Path, split: str, languages: Sequence[str], documents: int | None) -> dict[str, list[list[str]]]:
    """By language, the paragraphs of each document of the split; documents in one order."""
    file = path / "topic_documents.parquet" if path.is_dir() else path
    table = pq.read_table(file, columns=["doc_id", "language", "text"], filters=[("split", "==", split)])
    texts: dict[str, dict[str, str]] = {language: {} for language in languages}
    for row in table.to_pylist():
        if row["language"] in texts:
            texts[row["language"]][row["doc_id"]] = row["text"]
    common = sorted(set.intersection(*(set(of_language) for of_language in texts.values())))[:documents]
    if not common:
        raise SystemExit(f"{file}: found no document of split {split!r} in all of {', '.join(languages)}")
    return {language: [texts[language][name].split("\n\n") for name in common] for language in languages}


def edited(paragraphs: list[str], rng: np.random.Generator) -> list[Unit]:
    """Some paragraphs deleted, others merged with the one that follows."""
    kept = [Unit(text, (number,)) for number, text in enumerate(paragraphs) if rng.random() >= EDITED]
    units: list[Unit] = []
    merge = False
    for unit in kept:
        if merge:
            units[-1] = Unit(f"{units[-1].text} {unit.text}", units[-1].paragraphs + unit.paragraphs)
        else:
            units.append(unit)
        merge = not merge and rng.random() < EDITED
    return units


def units_of(setting: str, paragraphs: list[str], language: str, rng: np.random.Generator) -> list[Unit]:
    if setting == "edited paragraphs":
        return edited(paragraphs, rng)
    if setting == "paragraphs":
        return [Unit(text, (number,)) for number, text in enumerate(paragraphs)]
    split = [(number, split_sentences(text, language)) for number, text in enumerate(paragraphs)]
    return [Unit(sentence, (number,)) for number, sentences in split for sentence in sentences]


def gold_beads(first: list[Unit], second: list[Unit]) -> set[tuple[range, range]]:
    """The smallest beads that hold all of what corresponds: units that share a paragraph are of one bead."""
    beads = set()
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i].paragraphs[-1] < second[j].paragraphs[0]:
            i += 1
            continue
        if second[j].paragraphs[-1] < first[i].paragraphs[0]:
            j += 1
            continue
        i1, j1 = i + 1, j + 1
        while True:  # grows while the next unit of a side shares a paragraph with the bead
            if i1 < len(first) and first[i1].paragraphs[0] <= second[j1 - 1].paragraphs[-1]:
                i1 += 1
            elif j1 < len(second) and second[j1].paragraphs[0] <= first[i1 - 1].paragraphs[-1]:
                j1 += 1
            else:
                break
        bead = range(i, i1), range(j, j1)
        if covered(first, bead[0]) & covered(second, bead[1]):  # not if one was inside a gap of the other
            beads.add(bead)
        i, j = i1, j1
    return beads


def gale_church(first: list[str], second: list[str], max_size: int) -> list[Bead]:
    """Alignment by lengths in characters alone, with the priors of Gale & Church 1993 as costs."""
    nothing = np.ones((len(first), 1)), np.ones((len(second), 1))  # vectors that are all alike
    costs = {"skip": -np.log(0.0099 / 2 / 0.89), "merge": -np.log(0.0445 / 0.89), "length_weight": 1.0}
    return align_sentences(*nothing, max_size, lengths=characters(first, second), **costs)


def characters(first: list[str], second: list[str]) -> tuple[list[int], list[int]]:
    return [len(text) for text in first], [len(text) for text in second]


def counts(setting: str, first: list[Unit], second: list[Unit], beads: list[Bead]) -> dict[str, int]:
    """Of one document: beads found and right, and what was to be found."""
    found = [bead for bead in beads if len(bead.first) and len(bead.second)]
    if setting != "sentences":
        gold = gold_beads(first, second)
        right = sum((bead.first, bead.second) in gold for bead in found)
        return {"found": len(found), "right": right, "gold": len(gold), "hits": right}
    right = [bead for bead in found if covered(first, bead.first) == covered(second, bead.second)]
    alone = [positions_alone(side) for side in (first, second)]
    single = {(alone[0][p], alone[1][p]) for p in alone[0].keys() & alone[1].keys()}
    return {
        "found": len(found),
        "right": len(right),
        "gold": len(first) + len(second),
        "hits": sum(len(bead.first) + len(bead.second) for bead in right),
        "singles": len(single),
        "single_hits": sum((bead.first, bead.second) in single for bead in found),
    }


def covered(units: list[Unit], chosen: range) -> set[int]:
    return {paragraph for i in chosen for paragraph in units[i].paragraphs}


def positions_alone(units: list[Unit]) -> dict[int, range]:
    """Paragraphs that are one unit, and where it is."""
    of_paragraph = Counter(paragraph for unit in units for paragraph in unit.paragraphs)
    return {
        unit.paragraphs[0]: range(i, i + 1) for i, unit in enumerate(units) if of_paragraph[unit.paragraphs[0]] == 1
    }


def measure(
    setting: str, pair: tuple[str, str], documents: dict[str, list[list[str]]], align: Aligner, seed: int
) -> dict[str, Any]:
    """Precision, recall, F1 and counts over all documents; `truncated` texts of those embedded."""
    rng = np.random.default_rng(seed)
    units = [
        tuple(units_of(setting, side, language, rng) for side, language in zip(both, pair, strict=True))
        for both in zip(*(documents[language] for language in pair), strict=True)
    ]
    texts = [tuple([unit.text for unit in side] for side in both) for both in units]
    start = time.perf_counter()
    aligned, truncated = align(texts, pair)
    seconds = time.perf_counter() - start
    total: Counter[str] = Counter()
    for (first, second), beads in zip(units, aligned, strict=True):
        total.update(counts(setting, first, second, beads))
    precision, recall = total["right"] / max(total["found"], 1), total["hits"] / max(total["gold"], 1)
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "recall_single": total["single_hits"] / total["singles"] if total["singles"] else None,
        "truncated": truncated,
        "seconds": seconds,
        "counts": dict(total),
    }


def by_lengths(max_size: int) -> Aligner:
    return lambda texts, pair: ([gale_church(*both, max_size) for both in texts], 0)


def by_model(embedder: DocumentEmbedder, options: dict[str, Any]) -> Aligner:
    """options: of `align_sentences`; a weight of 0 leaves lengths out."""

    def align(texts: Texts, pair: tuple[str, str]) -> tuple[list[list[Bead]], int]:
        truncated = 0

        def encode(some: list[str], language: str) -> np.ndarray:
            nonlocal truncated
            vectors = embedder.encode(some, language=language)
            truncated += embedder.last_report.truncated
            return vectors

        sides = [
            embedded_spans([both[side] for both in texts], partial(encode, language=language), options["max_size"] - 1)
            for side, language in enumerate(pair)
        ]
        beads = [
            align_sentences(*vectors, lengths=characters(*both), **options)
            for *vectors, both in zip(*sides, texts, strict=True)
        ]
        return beads, truncated

    return align


def table(results: list[dict[str, Any]]) -> str:
    rows = []
    for result in results:
        row = {key: result[key] for key in ("setting", "pair", "system")}
        for key in ("precision", "recall", "f1", "recall_single"):
            row[key.replace("_", ", ")] = "" if result[key] is None else f"{100 * result[key]:.1f}"
        rows.append(row | {"texts truncated": f"{result['truncated']:,}", "seconds": f"{result['seconds']:.1f}"})
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of topic_documents.parquet, or the file")
    parser.add_argument("-m", "--model", action="append", default=[], help="of DocumentEmbedder.from_pretrained")
    parser.add_argument("--pairs", default="de-en,es-fr", help="pairs of languages, such as de-en,es-fr")
    parser.add_argument("--split", default="test")
    parser.add_argument("--documents", type=int, help="the first ones; default: all")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--max-size", type=int, default=3)
    parser.add_argument("--skip", type=float, default=0.55)
    parser.add_argument("--merge", type=float, default=0.3)
    parser.add_argument("--length-weight", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    pairs = [tuple(pair.split("-")) for pair in args.pairs.split(",")]
    settings = args.settings.split(",")
    if any(len(pair) != 2 for pair in pairs) or not set(settings) <= set(SETTINGS):
        parser.error(f"expected --pairs such as de-en,es-fr and --settings of {', '.join(SETTINGS)}")
    languages = sorted({language for pair in pairs for language in pair})
    documents = load(args.data, args.split, languages, args.documents)
    systems = {"lengths (Gale & Church)": by_lengths(args.max_size)}
    for model in args.model:
        name, embedder = Path(model).name, DocumentEmbedder.from_pretrained(model)
        options = {"max_size": args.max_size, "skip": args.skip, "merge": args.merge}
        systems[name] = by_model(embedder, options | {"length_weight": args.length_weight})
        systems[f"{name}, no lengths"] = by_model(embedder, options | {"length_weight": 0})
    results = []
    for setting in settings:
        for pair in pairs:
            for name, align in systems.items():
                found = measure(setting, pair, documents, align, args.seed)
                results.append({"setting": setting, "pair": "-".join(pair), "system": name} | found)
    number = len(documents[languages[0]])
    print(f"{number} documents a language of split {args.split}, percent\n\n{table(results)}")
    write_json(args.json, "sentence_alignment", vars(args) | {"documents": number}, results)


if __name__ == "__main__":
    main()
