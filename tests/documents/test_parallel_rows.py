"""From pairs of documents to rows: the right rows, and counts of all that is left out."""

import json
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from tests.conftest import WORDS
from tmde.documents import parallel_rows as module
from tmde.documents.parallel_rows import Outcome, ParallelRowsReport, parallel_rows
from tmde.embedding.document_embedder import EncodeOutput, EncodeReport

GERMAN_TO_ENGLISH = dict(zip(WORDS["de"], WORDS["en"], strict=True))


@dataclass
class Dictionary:
    """Knows what every word means.

    A text is the sum of its words' random directions, one for each meaning.
    """

    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def encode_with_report(self, texts, language, show_progress_bar):
        self.asked.append((language, tuple(texts)))
        vectors = np.empty((len(texts), 64), np.float32)
        truncated = 0
        for row, text in enumerate(texts):
            vectors[row] = self.vector(text)
            if "long" in text:
                truncated += 1
        return EncodeOutput(vectors, EncodeReport(texts=len(texts), truncated=truncated))

    def vector(self, text):
        total = np.zeros(64)
        for word in text.lower().replace(".", "").split():
            meaning = GERMAN_TO_ENGLISH.get(word, word)
            total += np.random.default_rng(list(meaning.encode())).normal(size=64)
        return total


GERMAN = "Haus Hund Katze. Baum Fluss. Stadt Licht Nacht.\n\nBrot Brot.\n7 8 9.\nWasser Hund Baum."
ENGLISH = (
    "House dog cat. Tree river town light night.\n\n7 8 9.\nWater dog tree. Cat cat cat river."
)


def test_rows_of_one_pair_of_documents():
    rows = pd.DataFrame(parallel_rows([("one", GERMAN, ENGLISH)], Dictionary(), ("de", "en")))
    assert rows["translation"].tolist() == [
        {"de": "Haus Hund Katze.", "en": "House dog cat."},
        {"de": "Baum Fluss. Stadt Licht Nacht.", "en": "Tree river town light night."},
        {"de": "Wasser Hund Baum.", "en": "Water dog tree."},
    ]
    assert rows["doc_id"].tolist() == ["one"] * 3
    # "Brot Brot." has no counterpart, "7 8 9." no letters.
    assert rows["segment"].tolist() == [0, 1, 4]
    assert rows["score"].tolist() == pytest.approx([1, 1, 1], abs=2e-3)


def test_all_beads_are_counted():
    report = ParallelRowsReport()
    list(parallel_rows([("one", GERMAN, ENGLISH)], Dictionary(), ("de", "en"), report=report))
    assert report == ParallelRowsReport(
        documents=1,
        first_segments=6,
        second_segments=5,
        embedded_texts=11,
        truncated_texts=0,
        beads=Counter({(1, 1): 3, (2, 1): 1, (1, 0): 1, (0, 1): 1}),
        outcomes=Counter({Outcome.ROW: 3, Outcome.IDENTICAL: 1, Outcome.ALONE: 2}),
    )


def test_every_sentence_is_embedded_once():
    embedder = Dictionary()
    documents = [("one", GERMAN, ENGLISH), ("two", GERMAN, ENGLISH)]
    list(parallel_rows(documents, embedder, ("de", "en")))
    (first_language, first_texts), (second_language, second_texts) = embedder.asked
    assert (first_language, second_language) == ("de", "en")
    assert len(first_texts) == len(set(first_texts)) == 6
    assert len(second_texts) == len(set(second_texts)) == 5


DOCUMENTS = [
    (
        "a",
        "Haus Hund.\n3 4.\nAzure blue.\nlong Katze.",
        "House dog.\n3 5.\nAzure blue.\nlong cat.",
    )
]


def rows_and_report(**options):
    report = ParallelRowsReport()
    rows = parallel_rows(DOCUMENTS, Dictionary(), ("de", "en"), report=report, **options)
    return list(rows), report


def test_identical_and_wordless_rows_are_left_out():
    rows, report = rows_and_report(max_size=2)
    first_row, second_row = rows
    assert first_row["translation"]["en"] == "House dog."
    assert second_row["translation"]["en"] == "long cat."
    assert report.outcomes == {Outcome.IDENTICAL: 1, Outcome.WORDLESS: 1, Outcome.ROW: 2}
    assert report.truncated_texts == 2


def test_rows_of_a_low_score_are_left_out():
    """The two numbers have one word in common: by far the lowest score of the four."""
    _, report = rows_and_report(max_size=2, min_score=0.9)
    assert report.outcomes == {Outcome.IDENTICAL: 1, Outcome.LOW_SCORE: 1, Outcome.ROW: 2}


def test_all_rows_may_be_left_out():
    rows, report = rows_and_report(min_score=1.1)
    assert rows == []
    assert report.outcomes == {Outcome.LOW_SCORE: 4}


def random_paragraphs(count):
    """Paragraphs of five German words, and their translations, which lack the last word."""
    rng = np.random.default_rng(0)
    german = []
    english = []
    for _ in range(count):
        words = rng.choice(list(GERMAN_TO_ENGLISH), 5, replace=False)
        german.append(" ".join(words))
        english.append(" ".join(map(GERMAN_TO_ENGLISH.get, words[:-1])))
    return german, english


def test_scores_of_documents_of_one_paragraph(monkeypatch):
    """What all texts have in common is known from the documents so far, not from the pair alone."""
    monkeypatch.setattr(module, "_SEGMENTS", 20)
    german, english = random_paragraphs(31)
    documents = []  # There are 62, so the last batch has 2.
    for number in range(31):
        documents.append((f"right {number}", german[number], english[number]))
        documents.append((f"wrong {number}", german[number], english[number - 7]))
    rows = pd.DataFrame(parallel_rows(documents, Dictionary(), ("de", "en"), paragraphs=True))
    assert len(rows) == 62
    scores = rows.set_index("doc_id")["score"]
    assert scores[scores.index.str.startswith("right")].min() > 0.6
    assert scores[scores.index.str.startswith("wrong")].mean() < 0.3
    assert scores["right 30"] > scores["wrong 30"] + 0.3


def test_the_score_of_a_single_paragraph_is_zero():
    """There is nothing to compare it with."""
    german, english = random_paragraphs(1)
    documents = [("one", german[0], english[0])]
    (row,) = parallel_rows(documents, Dictionary(), ("de", "en"), paragraphs=True)
    assert json.dumps(row["score"]) == "0.0"


def test_many_documents_are_embedded_together_and_read_as_rows_are_asked_for(monkeypatch):
    monkeypatch.setattr(module, "_SEGMENTS", 25)
    read = []

    def documents():
        for number in range(10):
            read.append(number)
            yield str(number), GERMAN, ENGLISH

    embedder = Dictionary()
    report = ParallelRowsReport()
    rows = parallel_rows(documents(), embedder, ("de", "en"), report=report)
    next(rows)
    assert read == [0, 1, 2]  # A pair has 11 segments.
    assert len(embedder.asked) == 2
    rest = pd.DataFrame(rows)
    assert len(rest) == 29
    assert report.documents == 10
    assert rest["doc_id"].tolist()[-3:] == ["9"] * 3
