"""From pairs of documents to rows: the right rows, and counts of all that is left out."""

import json
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.conftest import WORDS
from tmde.documents import parallel_rows as module
from tmde.documents.parallel_rows import parallel_rows
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
        report = EncodeReport(texts=len(texts), truncated=sum("long" in text for text in texts))
        vectors = np.array([self.vector(text) for text in texts], np.float32)
        return EncodeOutput(vectors.reshape(len(texts), 64), report)

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


def test_rows_and_counts():
    embedder = Dictionary()
    report = Counter()
    rows = list(parallel_rows([("one", GERMAN, ENGLISH)], embedder, ("de", "en"), report=report))
    assert [row["translation"] for row in rows] == [
        {"de": "Haus Hund Katze.", "en": "House dog cat."},
        {"de": "Baum Fluss. Stadt Licht Nacht.", "en": "Tree river town light night."},
        {"de": "Wasser Hund Baum.", "en": "Water dog tree."},
    ]
    assert [row["doc_id"] for row in rows] == ["one"] * 3
    # "Brot Brot." has no counterpart, "7 8 9." no letters.
    assert [row["segment"] for row in rows] == [0, 1, 4]
    assert [row["score"] for row in rows] == pytest.approx([1, 1, 1], abs=1e-4)
    expected = dict(
        documents=1, first=6, second=5, rows=3, identical=1, alone=2, texts=20,
    )  # fmt: skip
    assert report == Counter(expected) + Counter({"1-1": 3, "2-1": 1, "1-0": 1, "0-1": 1})
    assert [language for language, _ in embedder.asked] == ["de", "en"]
    # What two sentences make was a text of its own.
    assert "Baum Fluss. Stadt Licht Nacht." in embedder.asked[0][1]


DOCUMENTS = [
    (
        "a",
        "Haus Hund.\n3 4.\nAzure blue.\nlong Katze.",
        "House dog.\n3 5.\nAzure blue.\nlong cat.",
    )
]
OUTCOMES = ("identical", "wordless", "low", "rows")


def rows_and_report(**options):
    report = Counter()
    rows = parallel_rows(DOCUMENTS, Dictionary(), ("de", "en"), report=report, **options)
    return list(rows), report


def test_identical_and_wordless_rows_are_left_out():
    rows, report = rows_and_report(max_size=2)
    assert [row["translation"]["en"] for row in rows] == ["House dog.", "long cat."]
    assert [report[name] for name in OUTCOMES] == [1, 1, 0, 2]
    assert report["truncated"] == 2


def test_rows_of_a_low_score_are_left_out():
    """The two numbers have one word in common: by far the lowest score of the four."""
    _, report = rows_and_report(max_size=2, min_score=0.9)
    assert [report[name] for name in OUTCOMES] == [1, 0, 1, 2]


def test_all_rows_may_be_left_out():
    rows, report = rows_and_report(min_score=1.1)
    assert rows == []
    assert report["low"] == 4
    assert report["rows"] == 0


def test_scores_of_documents_of_one_paragraph(monkeypatch):
    """What all texts have in common is known from the documents so far, not from the pair alone."""
    monkeypatch.setattr(module, "_SEGMENTS", 20)
    words = [word for word in WORDS["de"] if word in GERMAN_TO_ENGLISH]
    rng = np.random.default_rng(0)
    german = [" ".join(rng.choice(words, 5, replace=False)) for _ in range(31)]
    english = []
    for text in german:
        kept_words = text.split()[:-1]  # one word is lost
        english.append(" ".join(GERMAN_TO_ENGLISH[word] for word in kept_words))
    right = []
    documents = []  # 62: the last batch has 2
    for number in range(31):
        right.append((f"right {number}", german[number], english[number]))
        documents.append(right[-1])
        documents.append((f"wrong {number}", german[number], english[number - 7]))
    rows = list(parallel_rows(documents, Dictionary(), ("de", "en"), paragraphs=True))
    scores = {row["doc_id"]: row["score"] for row in rows}
    assert len(scores) == 62
    assert min(score for name, score in scores.items() if name.startswith("right")) > 0.6
    assert np.mean([score for name, score in scores.items() if name.startswith("wrong")]) < 0.3
    assert scores["right 30"] > scores["wrong 30"] + 0.3
    alone = list(parallel_rows(right[:1], Dictionary(), ("de", "en"), paragraphs=True))
    assert json.dumps(alone[0]["score"]) == "0.0"  # nothing to compare with


def test_many_documents_are_embedded_together_and_read_as_rows_are_asked_for(monkeypatch):
    monkeypatch.setattr(module, "_SEGMENTS", 25)
    read = []

    def documents():
        for number in range(10):
            read.append(number)
            yield str(number), GERMAN, ENGLISH

    embedder = Dictionary()
    report = Counter()
    rows = parallel_rows(documents(), embedder, ("de", "en"), report=report)
    next(rows)
    assert read == [0, 1, 2]  # 11 segments a pair
    assert len(embedder.asked) == 2
    rest = list(rows)
    assert len(rest) == 29
    assert report["documents"] == 10
    assert [row["doc_id"] for row in rest[-3:]] == ["9"] * 3
