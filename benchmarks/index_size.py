r"""Quality against bytes on disk of an index whose vectors are cut and stored in fewer bits.

    python benchmarks/index_size.py default=default accurate=accurate --data DATA \
        --json benchmarks/results/index_size.json

The English sentences of development data are indexed, once for each size, and each is searched by
its translation into another language. With `--large`, one more index holds the sentences of all
languages: more than are searched exactly. `--data` holds `parallel_dev.parquet` and
`general_dev.parquet`; without it the built-in sample is measured.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from common import LANGUAGES, markdown, write_json
from peers import split_named

from tmde.data import load_parallel
from tmde.documents.index import DocumentIndex
from tmde.embedding import DocumentEmbedder

K = 10  # documents of a query whose recall is measured
CUT = 128  # numbers of the truncated vectors
SIZES = (
    ("float32", None),
    ("float16", None),
    ("float32", CUT),
    ("float16", CUT),
)
FILES = {"documentation": "parallel_dev.parquet", "general": "general_dev.parquet"}
LARGE_QUERIES = 500

Rows = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Collection:
    """Documents and queries with their vectors.

    Attributes:
        texts: n documents; the first ones are the translations of the queries.
        vectors: Their vectors, (n, d).
        queries: The vectors of q queries, (q, d).
    """

    texts: list[str]
    vectors: np.ndarray
    queries: np.ndarray


def read_rows(data: Path | None) -> dict[str, Rows]:
    """Return the rows of each data set, a mapping of languages to sentences each.

    Args:
        data: The data folder; None for the built-in sample.
    """
    if data is None:
        return {"sample": load_parallel("sample")["translation"]}
    rows = {}
    for title, file in FILES.items():
        rows[title] = load_parallel(str(data / file), languages=LANGUAGES)["translation"]
    return rows


def collection_of(embedder: DocumentEmbedder, rows: Rows, most_rows: int) -> Collection:
    """Return English sentences as documents, and a translation of each as its query.

    The languages of the queries take turns.

    Args:
        embedder: The model.
        rows: Sentences by language.
        most_rows: The number of documents, at most.
    """
    texts: list[str] = []
    queries: list[str] = []
    for row in rows:
        others = [language for language in LANGUAGES if language != "en" and row.get(language)]
        if not row.get("en") or not others or row["en"] in texts:
            continue
        texts.append(row["en"])
        queries.append(row[others[len(queries) % len(others)]])
        if len(texts) == most_rows:
            break
    return Collection(texts, encoded(embedder, texts), encoded(embedder, queries))


def large_collection_of(embedder: DocumentEmbedder, all_rows: Sequence[Rows]) -> Collection:
    """Return the sentences of all languages as documents, and some that are left out as queries."""
    different: dict[str, None] = {}
    for rows in all_rows:
        for row in rows:
            different |= dict.fromkeys(text for text in row.values() if text)
    texts = list(different)
    order = np.random.default_rng(0).permutation(len(texts))
    vectors = encoded(embedder, texts)
    documents = order[LARGE_QUERIES:]
    queries = order[:LARGE_QUERIES]
    return Collection([texts[row] for row in documents], vectors[documents], vectors[queries])


def encoded(embedder: DocumentEmbedder, texts: list[str]) -> np.ndarray:
    """Return the unit vectors of texts, (n, d)."""
    return embedder.encode(texts, normalize=True, show_progress_bar=False)


def make_index(
    folder: Path, collection: Collection, precision: str, truncate_dim: int | None
) -> DocumentIndex:
    """Return an index of a collection, written in one commit; ids are the numbers of documents."""
    dimension = collection.vectors.shape[1]
    index = DocumentIndex.create(
        folder, dimension=dimension, precision=precision, truncate_dim=truncate_dim
    )
    ids = list(map(str, range(len(collection.texts))))
    index.upsert(ids, collection.texts, vectors=collection.vectors)
    return index


def bytes_on_disk(folder: Path) -> int:
    """Return the size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def found_ids(index: DocumentIndex, queries: np.ndarray, exact: bool) -> list[list[str]]:
    """Return the ids of the K nearest documents of each query."""
    hits_of_queries = index.search(queries, k=K, exact=exact, snippet_width=0)
    return [[hit.id for hit in hits] for hits in hits_of_queries]


def recall(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """Return the share of expected ids that are found, in %."""
    shared = 0
    count = 0
    for expected_ids, ids in zip(expected, found, strict=True):
        shared += len(set(expected_ids) & set(ids))
        count += len(expected_ids)
    return 100 * shared / count


def measure_small(collection: Collection) -> list[dict[str, Any]]:
    """Return a row for each size: P@1 and recall against whole vectors in float32, in %."""
    rows = []
    whole: list[list[str]] = []
    for precision, truncate_dim in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            index = make_index(Path(folder), collection, precision, truncate_dim)
            found = found_ids(index, collection.queries, exact=True)
            size = bytes_on_disk(Path(folder))
        if not whole:
            whole = found
        correct = sum(ids[0] == str(number) for number, ids in enumerate(found))
        rows.append(
            {
                "precision": precision,
                "dimension": truncate_dim or collection.vectors.shape[1],
                "documents": len(collection.texts),
                "bytes a document": round(size / len(collection.texts)),
                "P@1": round(100 * correct / len(found), 2),
                "recall@10 of float32": round(recall(whole, found), 2),
            }
        )
    return rows


def measure_large(collection: Collection) -> list[dict[str, Any]]:
    """Return a row for each precision: bytes, and what the approximate search finds, in %."""
    rows = []
    whole: list[list[str]] = []
    for precision in ("float32", "float16"):
        with tempfile.TemporaryDirectory() as folder:
            index = make_index(Path(folder), collection, precision, None)
            exact = found_ids(index, collection.queries, exact=True)
            approximate = found_ids(index, collection.queries, exact=False)
            size = bytes_on_disk(Path(folder))
        if not whole:
            whole = exact
        rows.append(
            {
                "precision": precision,
                "dimension": collection.vectors.shape[1],
                "documents": len(collection.texts),
                "bytes a document": round(size / len(collection.texts)),
                "recall@10 of exact search": round(recall(exact, approximate), 2),
                "recall@10 of float32": round(recall(whole, approximate), 2),
                "is exact": index.exact,
            }
        )
    return rows


def main(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=FOLDER", help="Default: default=default.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data. Default: the built-in sample.")
    ] = None,
    most_rows: Annotated[
        int, typer.Option("--rows", min=1, help="Documents of each data set, at most.")
    ] = 1000,
    large: Annotated[
        list[str] | None, typer.Option(help="NAME of a model whose large index is measured.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Measure the index of every model with vectors of every size."""
    all_rows = read_rows(data)
    results = []
    for name, folder in split_named(models or ["default=default"]).items():
        embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
        for title, rows in all_rows.items():
            typer.echo(f"{name}, {title}", err=True)
            collection = collection_of(embedder, rows, most_rows)
            for row in measure_small(collection):
                results.append({"model": name, "data": title, **row})
        if name in (large or []):
            collection = large_collection_of(embedder, list(all_rows.values()))
            for row in measure_large(collection):
                results.append({"model": name, "data": "large", **row})
    typer.echo(markdown(results))
    settings = {
        "data": "development" if data is not None else "built-in sample",
        "rows": most_rows,
        "large": large or [],
        "languages": list(LANGUAGES),
    }
    write_json(json, "index_size", settings, results)


if __name__ == "__main__":
    typer.run(main)
