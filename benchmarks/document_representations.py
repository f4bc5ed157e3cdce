"""Documents as vectors: what debiasing, weights, margins and the unit of text do for alignment and for topics.

The variants of paper 003 (LAWDR), tables 3 and 7: sentences one by one, or as many at once as fit into 512 tokens;
biased or debiased; their mean or weighted by inverse density; cosine or margin. Beside them a document as one input,
cut at 512 tokens and whole, and TF-IDF of characters under the same treatment.

    python benchmarks/document_representations.py small=runs/small --data DATA -o results.json

Alignment is 1-1 and competitive, and its recall is over the documents of a split, for every pair of languages. Means,
directions and densities are fitted without labels or alignments: for alignment on the documents that are aligned, for
topics on the train split. The rank of the language subspace is chosen by the recall on the dev split.
"""

import abc
import argparse
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from common import markdown, write_json
from sklearn.decomposition import TruncatedSVD
from tqdm import tqdm

from modeling_tmde import DocumentEmbedder
from modeling_tmde.documents.alignment import align_documents
from modeling_tmde.documents.lawdr import Lawdr
from modeling_tmde.eval.classification import evaluate_classification
from modeling_tmde.eval.results import Cell, TaskResult, summarize
from modeling_tmde.eval.statistics import compare, summary_intervals
from modeling_tmde.eval.systems import CharacterTfidf
from modeling_tmde.eval.tasks import ClassificationData
from modeling_tmde.eval.tasks.documents import TopicDocuments
from modeling_tmde.long_documents import split_sentences

RANKS = (1, 2, 4, 8, 16, 32)
PIECE_TOKENS = 512  # of paper 003
SPLITS = ("train", "dev", "test")
Vectors = dict[str, np.ndarray]  # by language, (documents, d)
Pieces = dict[tuple[str, str], list[list[str]]]  # by language and split, the inputs that stand for each document


class Encoder(abc.ABC):
    """Texts to vectors, none of them twice."""

    def __init__(self, dimension: int) -> None:
        self.truncated: set[str] = set()  # texts of which something was cut off
        self._rows: dict[str, int] = {}
        self._vectors = np.empty((0, dimension), np.float32)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new:
            self._vectors = np.concatenate([self._vectors, self.compute(new)])
            self._rows |= {text: len(self._rows) + place for place, text in enumerate(new)}
        return self._vectors[[self._rows[text] for text in texts]]

    @abc.abstractmethod
    def compute(self, texts: list[str]) -> np.ndarray:
        """(n, d) float32, of different texts."""

    @abc.abstractmethod
    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each."""

    @abc.abstractmethod
    def cut(self, texts: Sequence[str]) -> list[str]:
        """Their first `PIECE_TOKENS` tokens."""


class ModelEncoder(Encoder):
    """An embedder."""

    def __init__(self, embedder: DocumentEmbedder) -> None:
        super().__init__(embedder.dimension)
        self.embedder = embedder

    def compute(self, texts: list[str]) -> np.ndarray:
        vectors = self.embedder.encode(texts, show_progress_bar=len(texts) > 10_000)
        if self.embedder.last_report.truncated:
            tokens = [len(ids) for ids in self.embedder.tokenizer(texts)["input_ids"]]
            cut = [text for text, count in zip(texts, tokens, strict=True) if count > self.embedder.max_length]
            if len(cut) != self.embedder.last_report.truncated:
                raise RuntimeError(f"found {len(cut)} truncated texts, expected {self.embedder.last_report.truncated}")
            self.truncated.update(cut)
        return vectors

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.embedder.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    def cut(self, texts: Sequence[str]) -> list[str]:
        encoded = self.embedder.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
        ends = [offsets[:PIECE_TOKENS][-1][1] for offsets in encoded["offset_mapping"]]
        return [text[:end] for text, end in zip(texts, ends, strict=True)]


class TfidfEncoder(Encoder):
    """TF-IDF of characters, reduced to 512 leading singular directions (LSA); fitted on sentences of all languages."""

    FITTED, BLOCK = 20_000, 50_000  # texts

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(512)
        texts = list(dict.fromkeys(sentences))
        sample = np.random.default_rng(0).choice(len(texts), min(self.FITTED, len(texts)), replace=False)
        self.fit_on = [texts[place] for place in sorted(sample)]
        self.tfidf = CharacterTfidf()
        self.svd = TruncatedSVD(512, random_state=0).fit(self.tfidf.represent(self.fit_on, self.fit_on))

    def compute(self, texts: list[str]) -> np.ndarray:
        parts = [texts[start : start + self.BLOCK] for start in range(0, len(texts), self.BLOCK)]
        rows = [self.svd.transform(self.tfidf.represent(part, self.fit_on)) for part in parts]
        return np.concatenate(rows).astype(np.float32)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def cut(self, texts: Sequence[str]) -> list[str]:
        return [" ".join(text.split()[:PIECE_TOKENS]) for text in texts]


@dataclass(frozen=True)
class Documents:
    """Documents of every language and split, translations at equal places, and their sentences."""

    data: ClassificationData
    limit: int | None = None
    paragraphs: int | None = None

    @property
    def languages(self) -> list[str]:
        return self.data.languages

    def texts(self, language: str, split: str) -> list[str]:
        texts = list(self.data.splits[language][split].texts)[: self.limit]
        return texts if self.paragraphs is None else [excerpt(text, self.paragraphs) for text in texts]

    def ids(self, split: str) -> list[str]:
        return list(self.data.splits[self.languages[0]][split].ids)[: self.limit]

    @cached_property
    def sentences(self) -> dict[tuple[str, str], list[list[str]]]:
        """By language and split, the sentences of each document."""
        chosen = itertools.product(self.languages, SPLITS)
        return {
            (code, name): [split_sentences(text, code) for text in self.texts(code, name)] for code, name in chosen
        }


def excerpt(text: str, paragraphs: int) -> str:
    """So many paragraphs from the middle: the same ones in every language."""
    parts = text.split("\n\n")
    start = max(0, (len(parts) - paragraphs) // 2)
    return "\n\n".join(parts[start : start + paragraphs])


def joined(sentences: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Consecutive sentences, as many at once as fit into `PIECE_TOKENS` (paper 003, section 7)."""
    pieces: list[list[str]] = []
    size = 0
    for sentence, length in zip(sentences, lengths, strict=True):
        if not pieces or size + length > PIECE_TOKENS:
            pieces.append([])
            size = 0
        pieces[-1].append(sentence)
        size += length
    return [" ".join(piece) for piece in pieces]


def pieces_of(documents: Documents, encoder: Encoder, unit: str) -> Pieces:
    """By language and split, the inputs that stand for each document."""
    pieces: Pieces = {}
    for key, sentences in documents.sentences.items():
        if unit == "sentences":
            pieces[key] = sentences
        elif unit == "several sentences":
            lengths = iter(encoder.lengths([sentence for document in sentences for sentence in document]))
            pieces[key] = [joined(document, list(itertools.islice(lengths, len(document)))) for document in sentences]
        else:
            texts = documents.texts(*key)
            pieces[key] = [[text] for text in (encoder.cut(texts) if unit == "cut at 512" else texts)]
    return pieces


@dataclass(frozen=True)
class Representation:
    """How inputs become one vector a document."""

    unit: str
    debias: bool
    weighted: bool
    rank: int = 1

    @property
    def name(self) -> str:
        parts = [self.unit, f"debiased (rank {self.rank})" if self.debias else "biased"]
        return ", ".join(parts + ["weighted" if self.weighted else "mean"] * (self.unit in UNITS[:2]))

    def fit(self, encoder: Encoder, pieces: Pieces, languages: list[str], split: str) -> Lawdr:
        """A `Lawdr` fitted on all languages of a split."""
        lawdr = Lawdr(encoder, rank=self.rank, debias=self.debias, weighting="density" if self.weighted else None)
        inputs = [document for code in languages for document in pieces[code, split]]
        codes = [code for code in languages for _ in pieces[code, split]]
        return lawdr.fit(inputs, codes)


UNITS = ("sentences", "several sentences", "cut at 512", "whole")


def alignment_result(name: str, vectors: Vectors, ids: Sequence[str], scoring: str) -> TaskResult:
    """Recall of every pair of languages; in `outcomes`, whether the translation of each document was found."""
    cells = []
    for first, second in itertools.combinations(vectors, 2):
        found = np.zeros(len(ids))
        for one, other in pairs_of(vectors[first], vectors[second], scoring):
            found[one] = one == other
        cells.append(Cell(first, second, "recall", float(found.mean()), ids, found, chance=1 / len(ids)))
    return TaskResult("document_alignment", name, "alignment", cells)


def pairs_of(first: np.ndarray, second: np.ndarray, scoring: str) -> list[tuple[int, int]]:
    """Competitive 1-1 matching."""
    return [(int(pair.first), int(pair.second)) for pair in align_documents(first, second, scoring=scoring)]


class Looked:
    """A system for `evaluate_classification` whose vectors are there already."""

    dense = True
    texts = truncated = 0
    seconds = 0.0
    name = fingerprint = "documents"

    def __init__(self, rows: dict[str, np.ndarray]) -> None:
        self.rows = rows

    def begin(self) -> None:
        """Counts nothing."""

    def describe(self) -> dict[str, str | int]:
        return {}

    def represent(self, texts: Sequence[str], fit_on: Sequence[str], language: object = None) -> np.ndarray:
        return np.stack([self.rows[text] for text in texts])


def topic_result(documents: Documents, representation: Representation, encoder: Encoder, pieces: Pieces) -> TaskResult:
    """Logistic regression on the vectors, which are fitted on the train split; a cell for each pair of languages."""
    fitted = representation.fit(encoder, pieces, documents.languages, "train")
    rows: dict[str, np.ndarray] = {}
    for code, split in itertools.product(documents.languages, SPLITS):
        vectors = fitted.transform(pieces[code, split], code)
        rows |= dict(zip(documents.texts(code, split), vectors, strict=True))
    cells = evaluate_classification(documents.data, Looked(rows))
    return TaskResult("topics", representation.name, "zero-shot", cells)


def best_rank(documents: Documents, encoder: Encoder, pieces: Pieces) -> tuple[int, list[dict]]:
    """The rank of the highest recall on the dev split, of debiased means under the margin; and the table of all."""
    rows = []
    for rank in (0, *RANKS):
        chosen = Representation("sentences", rank > 0, False, max(rank, 1))
        vectors = vectors_of(documents, chosen, encoder, pieces, "dev")
        values = {"rank": rank}
        for scoring in ("cosine", "ratio"):
            values[scoring] = mean_recall(alignment_result("", vectors, documents.ids("dev"), scoring))
        rows.append(values)
    best = max((row for row in rows if row["rank"]), key=lambda row: row["ratio"])
    return best["rank"], rows


def vectors_of(documents: Documents, chosen: Representation, encoder: Encoder, pieces: Pieces, split: str) -> Vectors:
    fitted = chosen.fit(encoder, pieces, documents.languages, split)
    return {code: fitted.transform(pieces[code, split], code) for code in documents.languages}


def mean_recall(result: TaskResult) -> float:
    """In %."""
    return 100 * float(np.mean([cell.value for cell in result.cells]))


def measure(name: str, encoder: Encoder, documents: Documents, topics: bool) -> dict:
    """All variants of one system."""
    pieces = {unit: pieces_of(documents, encoder, unit) for unit in UNITS}
    rank, ranks = best_rank(documents, encoder, pieces["sentences"])
    print(f"\n## {name}\n\nRecall on dev by rank (0: biased), means of sentences, in %\n\n{markdown(ranks)}")
    results: dict[str, TaskResult] = {}
    of_topics: dict[str, TaskResult] = {}
    rows = []
    for unit, debias, weighted in tqdm(list(itertools.product(UNITS, (False, True), (False, True))), desc=name):
        if weighted and unit not in UNITS[:2]:
            continue  # one input has no weights
        chosen = Representation(unit, debias, weighted, rank)
        vectors = vectors_of(documents, chosen, encoder, pieces[unit], "test")
        inputs = [text for code in documents.languages for document in pieces[unit][code, "test"] for text in document]
        truncated = sum(text in encoder.truncated for text in inputs)
        accuracy = {}
        if topics:
            of_topics[chosen.name] = topic_result(documents, chosen, encoder, pieces[unit])
            accuracy = summarize(of_topics[chosen.name].cells)
        for scoring in ("cosine", "ratio"):
            label = f"{chosen.name}, {'margin' if scoring == 'ratio' else scoring}"
            result = alignment_result(label, vectors, documents.ids("test"), scoring)
            results[label] = result
            low, high = summary_intervals(result.cells)["Cross"]
            row = {"variant": label, "recall": mean_recall(result), "interval": f"[{100 * low:.1f}, {100 * high:.1f}]"}
            row |= {f"{cell.source}-{cell.target}": 100 * cell.value for cell in result.cells}
            row |= {f"topics {group}": 100 * accuracy[group] for group in ("Same", "Cross") if group in accuracy}
            rows.append(row | {"truncated": truncated})  # inputs of the test split that lost something
    print(f"\nRecall of alignment and accuracy of topics on test, in %\n\n{markdown(rows)}", flush=True)
    return {"rank": rank, "by_rank": ranks, "variants": rows, "differences": differences(results, of_topics, rank)}


def differences(results: dict[str, TaskResult], of_topics: dict[str, TaskResult], rank: int) -> list[dict]:
    """One step at a time: of recall, and of the accuracy of topics."""
    biased, debiased = "biased", f"debiased (rank {rank})"
    steps = [
        (f"sentences, {biased}, mean, cosine", f"sentences, {debiased}, mean, cosine"),
        (f"sentences, {biased}, mean, cosine", f"sentences, {biased}, weighted, cosine"),
        (f"sentences, {biased}, mean, cosine", f"sentences, {biased}, mean, margin"),
        (f"sentences, {biased}, mean, margin", f"several sentences, {biased}, mean, margin"),
        (f"cut at 512, {biased}, margin", f"sentences, {biased}, mean, margin"),
        (f"whole, {biased}, margin", f"sentences, {biased}, mean, margin"),
        (f"sentences, {debiased}, mean, margin", f"sentences, {debiased}, weighted, margin"),
    ]
    topic_steps = [
        (f"sentences, {biased}, mean", f"sentences, {debiased}, mean"),
        (f"sentences, {biased}, mean", f"sentences, {biased}, weighted"),
        (f"sentences, {biased}, mean", f"several sentences, {biased}, mean"),
        (f"cut at 512, {biased}", f"whole, {biased}"),
        (f"sentences, {biased}, mean", f"whole, {biased}"),
        (f"whole, {biased}", f"whole, {debiased}"),
    ]
    found = [(step, results, {"Cross": "recall"}) for step in steps]
    found += [(step, of_topics, {"Same": "topics Same", "Cross": "topics Cross"}) for step in topic_steps if of_topics]
    rows = []
    for (before, after), measured, names in found:
        for difference in compare(measured[before], measured[after]):
            if difference.group in names:
                low, high = (100 * bound for bound in difference.interval)
                row = {"of": names[difference.group], "from": before, "to": after}
                row |= {"difference": 100 * difference.difference, "interval": f"[{low:+.1f}, {high:+.1f}]"}
                rows.append(row | {"p": round(difference.p, 4)})
    print(f"\nOne step at a time\n\n{markdown(rows)}", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="NAME=MODEL")
    parser.add_argument("--data", type=Path, required=True, help="topic_documents.parquet, or its folder")
    parser.add_argument("--languages", default="de,en,es,fr,it")
    parser.add_argument("--documents", type=int, help="at most so many of a split; topics are left out then")
    parser.add_argument(
        "--paragraphs", type=int, help="only so many of each document, which is harder; no topics then"
    )
    parser.add_argument("--no-tfidf", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    data = TopicDocuments().load(options.data, options.languages.split(","))
    documents = Documents(data, options.documents, options.paragraphs)
    topics = options.documents is None and options.paragraphs is None
    results = {}
    for spec in options.models:
        name, _, path = spec.partition("=")
        encoder = ModelEncoder(DocumentEmbedder.from_pretrained(path))
        results[name] = measure(name, encoder, documents, topics)
        write_json(options.output, "document_representations", vars(options), results)
    if not options.no_tfidf:
        fit_on = [text for pieces in documents.sentences.values() for piece in pieces for text in piece]
        results["TF-IDF"] = measure("TF-IDF", TfidfEncoder(fit_on), documents, topics)
        write_json(options.output, "document_representations", vars(options), results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
