"""Alignment of documents by vectors of sentences, as LAWDR makes them, or of whole texts.

    python benchmarks/documents.py default=default mlm=runs/mlm --data DATA --json out.json

The representations are those of LAWDR (Gong et al.): the mean of the vectors of sentences, without
the dominant direction of their language (debiased), weighted by inverse density, or both; beside
them a document as one text. Alignment is one to one and greedy, by cosine or by margin (ratio,
k = 4). Its recall is the share of documents whose translation was found, the mean of all pairs of
languages. Directions and densities are fitted on the documents that are aligned, without their
pairs. Character TF-IDF, reduced to 512 dimensions, gets the same treatment.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer
from common import LANGUAGES, in_percent, markdown, write_json
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from tmde.documents import Lawdr, align_documents
from tmde.embedding import DocumentEmbedder
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.sentences import split_sentences
from tmde.eval.tasks.documents import DocumentRetrieval

TFIDF = "TF-IDF"
TFIDF_DIMENSIONS = 512
SCORINGS = {"cosine": "cosine", "margin": "ratio"}


class Encoder(Protocol):
    """What `Lawdr` takes."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return (n, d) float32."""


class CachedEncoder:
    """An encoder that computes the vector of a text once.

    Args:
        encoder: The encoder behind it.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._vectors: dict[str, np.ndarray] = {}

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return (n, d) float32."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            vectors = self.encoder.encode(new)
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[text] for text in texts])


class ReducedTfidf:
    """Character TF-IDF reduced by a singular value decomposition (LSA).

    Args:
        texts: The texts that it is fitted on.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.vectorizer = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(2, 5),
            sublinear_tf=True,
            min_df=2,
            max_features=200_000,
        )
        self.reduction = TruncatedSVD(TFIDF_DIMENSIONS, random_state=0)
        self.reduction.fit(self.vectorizer.fit_transform(texts))

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return (n, 512) float32."""
        return self.reduction.transform(self.vectorizer.transform(texts)).astype(np.float32)


@dataclass(frozen=True)
class Representation:
    """How a document becomes one vector.

    Args:
        title: Its name in tables.
        whole: Whether a document is one text; otherwise it is its sentences.
        debias: Whether the dominant direction of each language is removed.
        weighted: Whether sentences are weighted by inverse density.
    """

    title: str
    whole: bool = False
    debias: bool = False
    weighted: bool = False


REPRESENTATIONS = (
    Representation("sentences, mean"),
    Representation("sentences, weighted", weighted=True),
    Representation("sentences, debiased, mean", debias=True),
    Representation("sentences, debiased, weighted", debias=True, weighted=True),
    Representation("whole text", whole=True),
    Representation("whole text, debiased", whole=True, debias=True),
)


def middle_paragraphs(text: str, number: int | None) -> str:
    """Return so many paragraphs from the middle of a text; the whole text for None."""
    if number is None:
        return text
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    start = max(0, (len(paragraphs) - number) // 2)
    return "\n\n".join(paragraphs[start : start + number])


def document_vectors(
    representation: Representation, encoder: Encoder, texts: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """Return the vectors of the documents of each language, (documents, d)."""
    documents: list[list[str]] = []
    languages: list[str] = []
    for language, language_texts in texts.items():
        for text in language_texts:
            pieces = [text] if representation.whole else split_sentences(text, language)
            documents.append(pieces)
            languages.append(language)
    density = SentenceDensity() if representation.weighted else None
    lawdr = Lawdr(encoder, rank=1, density=density, debias=representation.debias)
    vectors = lawdr.fit_transform(documents, languages)
    rows = np.array(languages)
    return {language: vectors[rows == language] for language in texts}


def translation_matches(vectors: Mapping[str, np.ndarray], scoring: str) -> np.ndarray:
    """Return whether the translation of each document was found, (pairs, documents)."""
    matches = []
    for first, second in itertools.combinations(vectors, 2):
        is_match = np.zeros(len(vectors[first]))
        for pair in align_documents(vectors[first], vectors[second], scoring=scoring):
            is_match[pair.first] = pair.first == pair.second
        matches.append(is_match)
    return np.stack(matches)


def measure(encoder: Encoder, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return recalls of all representations, and their differences from the mean of sentences."""
    cached = CachedEncoder(encoder)
    recalls = {}
    for representation in REPRESENTATIONS:
        vectors = document_vectors(representation, cached, texts)
        for title, scoring in SCORINGS.items():
            recall = translation_matches(vectors, scoring).mean(axis=0)  # (documents,)
            recalls[f"{representation.title}, {title}"] = recall
    reference = recalls["sentences, mean, cosine"]
    measures = {}
    differences = {}
    for name, recall in recalls.items():
        measures[name] = in_percent(recall)
        differences[name] = in_percent(recall - reference)
    return {"measures": measures, "differences": differences}


def main(
    models: Annotated[list[str], typer.Argument(help="NAME=MODEL, of this package or the Hub.")],
    data: Annotated[Path, typer.Option(help="topic_documents.parquet, or its folder.")],
    documents: Annotated[int, typer.Option(help="The first ones of the split.")] = 200,
    paragraphs: Annotated[
        int | None, typer.Option(help="So many paragraphs of each document; default: all.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure the alignment of documents under several representations."""
    path = data / "topic_documents.parquet" if data.is_dir() else data
    loaded = DocumentRetrieval().load(path, LANGUAGES)
    texts = {}
    for language in LANGUAGES:
        first_texts = list(loaded.texts[language])[:documents]
        texts[language] = [middle_paragraphs(text, paragraphs) for text in first_texts]
    results = []
    for name, encoder in encoders(models, texts):
        results.append({"system": name, **measure(encoder, texts)})
        rows = []
        for title, numbers in results[-1]["measures"].items():
            rows.append({"documents as": title, "recall": numbers[0]})
        print(f"\n{name}\n\n{markdown(rows)}", flush=True)
    settings = {"documents": documents, "paragraphs": paragraphs, "languages": list(LANGUAGES)}
    write_json(json, "documents", settings, results)


def encoders(
    models: Sequence[str], texts: Mapping[str, Sequence[str]]
) -> list[tuple[str, Encoder]]:
    """Return the systems by name, TF-IDF last."""
    systems: list[tuple[str, Encoder]] = []
    for model in models:
        name, _, location = model.partition("=")
        systems.append((name, DocumentEmbedder.from_pretrained(location)))
    sentences = []
    for language, language_texts in texts.items():
        for text in language_texts:
            sentences.extend(split_sentences(text, language))
    systems.append((TFIDF, ReducedTfidf(sentences)))
    return systems


if __name__ == "__main__":
    typer.run(main)
