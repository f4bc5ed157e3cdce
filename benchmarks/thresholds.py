"""What each threshold keeps of translations, by domain, on development data.

    python benchmarks/thresholds.py --data DATA --ntrex NTREX --write pairs.parquet
    tmde calibrate default --pairs pairs.parquet -o embedding/default/calibration.json --overwrite
    python benchmarks/thresholds.py --data DATA --ntrex NTREX \
        --json benchmarks/results/thresholds.json

The domains have five languages, and about as many pairs each:

- documentation: every fifth row of `DATA/parallel_dev.parquet`.
- general: every second row of `DATA/general_dev.parquet`, which is of the Bible, Tatoeba and
  Wiktionary.
- news: every fourth row of `NTREX`, a clone of https://github.com/MicrosoftTranslator/NTREX.
- captions: those of images and videos in `DATA/eval/sts_dev.parquet`.

Of each domain, every second block of 20 rows is for fitting: `--write` writes these rows for
`tmde calibrate`. The other rows are for the table, and so are the questions of
`DATA/eval/xquad_dev.parquet`, of which no row is for fitting. Pairs are mined as in
benchmarks/calibration.py: half of the texts of each side have a translation on the other side.

Documents are aligned as by `tmde align` with the model `default`, 62 of two languages, of which a
share has a translation: the first 200 pages of `DATA/eval/topic_documents.parquet`, and the
articles of `NTREX`.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from calibration import DRAWS, load_questions
from common import LANGUAGES, markdown, read_ntrex, write_json

from tmde.documents.alignment import align_documents
from tmde.documents.calibration import Calibration
from tmde.documents.calibration_fit import (
    PairVectors,
    embed_pairs,
    language_pairs,
    mined_evidence,
)
from tmde.documents.reliability import expected_calibration_error, reliability_bins
from tmde.embedding import DocumentEmbedder
from tmde.eval.tasks.documents import DocumentRetrieval

MODELS = ("default", "tmde", "accurate")
SHARE = 0.5
DOCUMENTS = 62
PAGES = 200
DOCUMENT_SHARES = (0.16, 0.3, 0.5, 0.75, 1.0)
DOCUMENT_DRAWS = 2
DISTINCTNESS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
THRESHOLDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
BLOCK = 20  # rows that stay together, most of which are of one document
DOCUMENTATION_STEP = 5
GENERAL_STEP = 2
NEWS_STEP = 4
CAPTIONS = 625  # the first rows of the STS benchmark; forums and news follow

Row = dict[str, str | None]


# ---- The domains


def read_domains(data: Path, ntrex: Path) -> dict[str, list[Row]]:
    """Return the rows of each domain."""
    captions = {}
    for language in LANGUAGES:
        filters = [("lang", "==", f"{language}-{language}")]
        sentences = pq.read_table(data / "eval" / "sts_dev.parquet", filters=filters)["sentence1"]
        captions[language] = sentences.to_pylist()[:CAPTIONS]
    return {
        "documentation": read_rows(data / "parallel_dev.parquet")[::DOCUMENTATION_STEP],
        "general": read_rows(data / "general_dev.parquet")[::GENERAL_STEP],
        "news": read_news(ntrex)[::NEWS_STEP],
        "captions": joined(captions),
    }


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a parallel corpus."""
    rows = []
    for row in pq.read_table(path, columns=["translation"])["translation"].to_pylist():
        rows.append({language: row.get(language) for language in LANGUAGES})
    return rows


def read_news(ntrex: Path) -> list[Row]:
    """Return the sentences of NTREX, those of an article in a row."""
    return joined(read_ntrex(ntrex, LANGUAGES))


def joined(columns: dict[str, list[str]]) -> list[Row]:
    """Return the rows of columns of the same length."""
    return [dict(zip(columns, texts, strict=True)) for texts in zip(*columns.values(), strict=True)]


def half(rows: Sequence[Row], is_for_fitting: bool) -> list[Row]:
    """Return every second block of rows, those for fitting or the others."""
    chosen: list[Row] = []
    start = 0 if is_for_fitting else BLOCK
    for place in range(start, len(rows), 2 * BLOCK):
        chosen += rows[place : place + BLOCK]
    return chosen


# ---- Measures


def measure(vectors: Sequence[PairVectors], calibration: Calibration) -> dict[str, Any]:
    """Return what each threshold keeps, the best one, and the calibration error."""
    mined = mined_evidence(vectors, SHARE, seed=0, draws=DRAWS)
    probabilities = calibration.probabilities(mined.evidence, SHARE)
    right_count = DRAWS * sum(collection.whole_count(SHARE) for collection in vectors)
    kept = {}
    for threshold in THRESHOLDS:
        kept[f"{threshold:g}"] = quality(mined.is_right, probabilities >= threshold, right_count)
    best_threshold = 0.0
    best_f1 = 0.0
    for threshold in np.arange(0.01, 1, 0.01):
        f1 = quality(mined.is_right, probabilities >= threshold, right_count)["f1"]
        if f1 > best_f1:
            best_threshold = float(threshold)
            best_f1 = f1
    return {
        "pairs": sum(len(collection.pairs) for collection in vectors),
        "error": expected_calibration_error(reliability_bins(probabilities, mined.is_right)),
        "kept": kept,
        "best": {"threshold": best_threshold, "f1": best_f1},
    }


def quality(is_right: np.ndarray, is_kept: np.ndarray, right_count: int) -> dict[str, float]:
    """Return precision, recall and F1 of the pairs that are kept.

    Args:
        is_right: Whether each pair is right, (p,) bool.
        is_kept: Whether each is kept, (p,) bool.
        right_count: The number of right pairs, found or not.
    """
    found = int(is_right[is_kept].sum())
    kept_count = int(is_kept.sum())
    return {
        "precision": found / max(kept_count, 1),
        "recall": found / right_count,
        "f1": 2 * found / (kept_count + right_count),
    }


# ---- Documents


def read_documents(data: Path, ntrex: Path) -> dict[str, dict[str, list[str]]]:
    """Return the documents of each collection by language, translations at one place."""
    pages = DocumentRetrieval().load(data / "eval" / "topic_documents.parquet", LANGUAGES)
    articles: dict[str, dict[str, str]] = {language: {} for language in LANGUAGES}
    ids = (ntrex / "DOCUMENT_IDS.tsv").read_text(encoding="utf-8").split()
    for id, row in zip(ids, read_news(ntrex), strict=True):
        for language, articles_of_language in articles.items():
            articles_of_language[id] = f"{articles_of_language.get(id, '')} {row[language]}"
    return {
        "pages": {language: list(pages.texts[language])[:PAGES] for language in LANGUAGES},
        "articles": {language: list(articles[language].values()) for language in LANGUAGES},
    }


def measure_documents(
    vectors: dict[str, np.ndarray], share: float, generator: np.random.Generator
) -> dict[str, Any]:
    """Return what each distinctness keeps of documents of which a share has a translation.

    Args:
        vectors: The vectors of each language, translations in the same row, (n, d).
        share: The share.
        generator: Draws the documents.
    """
    whole_count = round(share * DOCUMENTS)
    distinctness = []
    is_right = []
    right_count = 0
    for first, second in itertools.combinations(LANGUAGES, 2):
        for _ in range(DOCUMENT_DRAWS):
            order = generator.permutation(len(vectors[first]))
            first_rows = generator.permutation(order[:DOCUMENTS])
            start = DOCUMENTS - whole_count
            second_rows = generator.permutation(order[start : start + DOCUMENTS])
            right_count += whole_count
            for pair in align_documents(vectors[first][first_rows], vectors[second][second_rows]):
                distinctness.append(pair.distinctness)
                is_right.append(first_rows[pair.first] == second_rows[pair.second])
    kept = {}
    for threshold in DISTINCTNESS:
        is_kept = np.array(distinctness) >= threshold
        kept[f"{threshold:g}"] = quality(np.array(is_right), is_kept, right_count)
    return {"share": share, "documents": DOCUMENTS, "right": whole_count, "kept": kept}


# ---- The command


def main(
    data: Annotated[Path, typer.Option(help="Folder of the development data.")],
    ntrex: Annotated[Path, typer.Option(help="Clone of NTREX.")],
    write: Annotated[
        Path | None, typer.Option(help="Only write the rows for fitting, .parquet.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure the thresholds of the packaged models."""
    domains = read_domains(data, ntrex)
    if write is not None:
        rows = []
        for domain_rows in domains.values():
            rows += half(domain_rows, True)
        pq.write_table(pa.table({"translation": rows}), write)
        return
    pairs = {name: language_pairs(half(rows, False)) for name, rows in domains.items()}
    pairs["questions"] = load_questions(data / "eval" / "xquad_dev.parquet")
    results = []
    for model in MODELS:
        embedder = DocumentEmbedder.from_pretrained(model)
        calibration = Calibration.from_pretrained(model)
        for name, domain_pairs in pairs.items():
            typer.echo(f"{model}: {name}", err=True)
            vectors = embed_pairs(domain_pairs, embedder)
            results.append({"model": model, "domain": name} | measure(vectors, calibration))
    embedder = DocumentEmbedder.from_pretrained(MODELS[0], long_documents="sentences")
    document_results = []
    for name, documents in read_documents(data, ntrex).items():
        vectors_of_language = {}
        for language, texts in documents.items():
            vectors_of_language[language] = np.asarray(embedder.encode(texts, language=language))
        generator = np.random.default_rng(0)
        for share in DOCUMENT_SHARES:
            measured = measure_documents(vectors_of_language, share, generator)
            document_results.append({"model": MODELS[0], "collection": name} | measured)
    print(markdown([table_row(result) for result in results]))
    print(markdown([table_row(result) for result in document_results]))
    write_json(json, "thresholds", {"draws": DRAWS, "share": SHARE}, results + document_results)


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row = {name: value for name, value in result.items() if name not in ("kept", "best")}
    for threshold, numbers in result["kept"].items():
        row[f"{threshold}: P / R"] = f"{numbers['precision']:.3f} / {numbers['recall']:.3f}"
    return row


if __name__ == "__main__":
    typer.run(main)
