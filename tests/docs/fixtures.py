"""Files that pages presuppose, by the names that the pages use, made from the built-in sample."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from modeling_tmde.data.sample import LANGUAGES, sample_documents, sample_parallel, sample_sentences

Maker = Callable[[Path], None]
_ROWS = 3000


def make_files(folder: Path, names: list[str], trained: Callable[[str], Path]) -> None:
    """Makes the named files in `folder`.

    Args:
        trained: Gives the folder of a model that a recipe has trained for a few steps; it is copied.

    Raises:
        ValueError: There is no such fixture.
    """
    for name in (name.rstrip("/") for name in names):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in MODELS:
            shutil.copytree(trained(MODELS[name]), target)
        elif name in MAKERS:
            MAKERS[name](target)
        else:
            raise ValueError(f"There is no fixture {name!r}; known: {', '.join(sorted({*MODELS, *MAKERS}))}")


def _parallel(rows: int, split: str = "train", seed: int = 0) -> Maker:
    def make(path: Path) -> None:
        data = sample_parallel(rows, split, seed).select_columns(["translation"])
        if path.suffix == ".jsonl":
            data.to_json(path, force_ascii=False)
        else:
            if not path.suffix:
                path.mkdir()
                path /= "part-0.parquet"
            data.to_parquet(path)

    return make


def _pairs(path: Path) -> None:
    rows = sample_parallel(_ROWS, seed=3)["translation"]
    lines = [
        json.dumps({"translation": {code: row[code] for code in ("it", "en")}}, ensure_ascii=False) for row in rows
    ]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _documents(languages: tuple[str, ...] = LANGUAGES, number: int = 24) -> Maker:
    """Documents of some languages, with id, url, language and topic; translations of each other."""

    def make(path: Path) -> None:
        data = sample_documents(number, "test", seed=1, languages=languages)
        rows = [
            {
                "id": f"{row['language']}-{row['doc_id']}",
                "url": f"https://example.org/{row['language']}/{row['doc_id']}",
                "language": row["language"],
                "topic": row["label"],
                "text": row["text"],
            }
            for row in data
        ]
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")

    return make


def _moses(language: str) -> Maker:
    def make(path: Path) -> None:
        rows = sample_sentences(_ROWS)["translation"]
        path.write_text("".join(row[language] + "\n" for row in rows), "utf-8")

    return make


def _sentences(language: str) -> Maker:
    """Sentences of one language: 200 have a translation in every such file, the others in none."""

    def make(path: Path) -> None:
        shared = sample_sentences(200, "test", seed=0)["translation"]
        other = sample_sentences(100, "dev", seed=LANGUAGES.index(language))["translation"]
        path.write_text("".join(row[language] + "\n" for row in [*shared, *other]), "utf-8")

    return make


def _notes(path: Path) -> None:
    path.write_text("".join(row["text"] + "\n" for row in sample_documents(8, "test", seed=4)), "utf-8")


def _topic_documents(folder: Path) -> None:
    """A folder that `tmde eval --data` finds the tasks topic_documents and document_retrieval in."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for split, number in (("train", 40), ("dev", 20), ("test", 40)):
        for row in sample_documents(number, split, seed=2):
            title, _, text = row["text"].partition(" ")
            shared = {"doc_id": f"{split}-{row['doc_id']}", "language": row["language"], "label": row["label"]}
            rows.append({**shared, "title": title, "text": text, "split": split})
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "topic_documents.parquet")


def _data_folder(folder: Path) -> None:
    """DATA of the comparisons: parallel text, held-out rows and a task."""
    _topic_documents(folder)
    for name, maker in (("parallel", _parallel(_ROWS)), ("general", _parallel(_ROWS, seed=1))):
        maker(folder / name)
    for name in ("parallel_dev.parquet", "general_dev.parquet"):
        _parallel(200, "dev")(folder / name)


# Recipes that the models of these names are trained by, for a few steps.
MODELS = {
    "tmde-quickstart/model": "quickstart",
    "runs/mine": "quickstart",
    "runs/other": "quickstart",
    "runs/small": "quickstart",
    "runs/tmde": "quickstart",
    "runs/ctmde": "quickstart",
    "runs/bag": "bag",
}
MAKERS: dict[str, Maker] = {
    "my_corpus": _parallel(_ROWS),
    "PARALLEL": _parallel(_ROWS),
    "GENERAL": _parallel(_ROWS, seed=1),
    "corpus.jsonl": _parallel(_ROWS),
    "it-en.jsonl": _pairs,
    "dev.jsonl": _parallel(200, "dev"),
    "dev.parquet": _parallel(200, "dev"),
    "parallel_dev.parquet": _parallel(200, "dev"),
    "general_dev.parquet": _parallel(200, "dev", seed=1),
    "documents.jsonl": _documents(),
    "news.jsonl": _documents(),
    "news.parquet": _documents(),
    "german.jsonl": _documents(("de",)),
    "english.jsonl": _documents(("en",)),
    "notes.txt": _notes,
    "moses/corpus.de-en.de": _moses("de"),
    "moses/corpus.de-en.en": _moses("en"),
    "de.txt": _sentences("de"),
    "en.txt": _sentences("en"),
    "my_data": _topic_documents,
    "DATA": _data_folder,
}
