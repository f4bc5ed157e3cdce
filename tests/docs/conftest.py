"""Files that pages presuppose, by the names that the pages use, made from the built-in sample."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import datasets
import pytest

from tmde.data.sample import LANGUAGES, sample_documents, sample_parallel, sample_sentences

TRAINING = ["max_steps=20", "eval_steps=20", "max_rows=2000", "eval_pool=50"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A model of the recipe `quickstart`, trained for some steps: enough to answer."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    options = ["--train", "sample", "--dev", "sample", "-o", str(folder)]
    command = [sys.executable, "-m", "tmde", "train", "quickstart", *TRAINING, *options]
    environment = {
        **os.environ,
        "HF_HOME": str(folder.parent / "cache"),
        "TMDE_CACHE": str(folder.parent / "cache"),
    }
    done = subprocess.run(command, env=environment, text=True, timeout=600, capture_output=True)
    assert done.returncode == 0, done.stderr
    return folder


def make_file(path: Path, name: str, trained: Path) -> None:
    """Make the file or folder that pages call `name` at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in ("tmde-quickstart/model", "runs/mine", "runs/other"):
        shutil.copytree(trained, path)
    elif name in FILE_MAKERS:
        FILE_MAKERS[name](path)
    elif name.startswith("moses/"):
        language = name[-2:]
        _write(path, [row[language] for row in sample_sentences(1000)["translation"]])
    elif name.endswith(".vec"):
        numbers = ["2026 0.1 0.5", "2027 0.4 0.2", "2028 0.3 -0.1"]
        _write(path, ["4 2", f"haus{name[5]} 0.5 0.1", *numbers])
    else:
        raise ValueError(
            f"no page may presuppose {name!r}: tests/docs/conftest.py does not make it"
        )


def _make_corpus(path: Path) -> None:
    path.mkdir()
    _parallel(1000).to_parquet(path / "part-0.parquet")


def _make_tab_separated_memory(path: Path) -> None:
    lines = ["de\ten"]
    for row in sample_sentences(1000)["translation"]:
        lines.append(f"{row['de']}\t{row['en']}")
    _write(path, lines)


def _make_dev_rows(path: Path) -> None:
    _parallel(60, "dev").to_json(path, force_ascii=False)


def _make_single_texts(path: Path) -> None:
    """Write a file of German and one of English rows, of which none translates another."""
    path.mkdir()
    rows = sample_sentences(1000)["translation"]
    for first, code in enumerate(("de", "en")):
        with (path / f"{code}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows[first::2]:
                line = {"translation": {code: row[code]}}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _make_unseen_rows(path: Path) -> None:
    """Write pairs of sentences for a calibration, which needs at least 200."""
    rows = []
    for row in sample_sentences(400, "dev", seed=7)["translation"]:
        rows.append({"translation": {code: row[code] for code in ("de", "en")}})
    datasets.Dataset.from_list(rows).to_json(path, force_ascii=False)


def _make_italian_rows(path: Path) -> None:
    rows = []
    for row in _parallel(1000, seed=3)["translation"]:
        rows.append({"translation": {code: row[code] for code in ("it", "en")}})
    datasets.Dataset.from_list(rows).to_json(path, force_ascii=False)


def _make_translation_memory(path: Path) -> None:
    """Write a table as a translation tool exports it."""
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["File", "Source", "Target"])
        for number, row in enumerate(sample_sentences(300)["translation"]):
            writer.writerow([f"{number // 10}.txt", row["de"], row["en"]])


def _make_tmx(path: Path) -> None:
    """Write a memory of 200 units, and six with a mistake."""
    units = [(row["de"], row["en"]) for row in sample_sentences(200)["translation"]]
    german, english = units[0]
    units += [
        (german, "Nous avons besoin de plus de temps et de moyens."),
        (german, "The museum opens at nine o'clock."),
        ("Der Preis stieg auf 30 Euro.", "The price rose to 40 euros."),
        ("Lesen Sie Seite 17.", "Read page 18."),
        (german.upper(), english.upper()),
        (f"{german}!", f"{english}!"),
    ]
    lines = ['<?xml version="1.0"?>', '<tmx version="1.4"><header/><body>']
    for texts in units:
        variants = ""
        for language, text in zip(("de", "en"), texts, strict=True):
            variants += f'<tuv xml:lang="{language}"><seg>{escape(text)}</seg></tuv>'
        lines.append(f"<tu>{variants}</tu>")
    _write(path, [*lines, "</body></tmx>"])


def _make_news_table(path: Path) -> None:
    _documents(LANGUAGES).to_parquet(path)


def _make_news(path: Path) -> None:
    languages = {"german.jsonl": ("de",), "english.jsonl": ("en",)}.get(path.name, LANGUAGES)
    _documents(languages).to_json(path, force_ascii=False)


def _make_labeled_news(path: Path) -> None:
    _labeled_documents().to_csv(path)


def _make_articles(path: Path) -> None:
    """Write labeled documents as a spreadsheet in German writes them, with headers of its own."""
    names = {"text": "Body", "label": "Topic", "language": "Locale", "id": "Nr"}
    _labeled_documents().rename_columns(names).to_csv(path, sep=";", encoding="utf-8-sig")


def _make_notes(path: Path) -> None:
    _write(path, sample_documents(8, "test", seed=4)["text"])


def _make_sentences(path: Path) -> None:
    """Write 200 sentences with a translation in every such file, and 100 with none."""
    language = path.stem
    shared = sample_sentences(200, "test", seed=0)["translation"]
    alone = sample_sentences(100, "dev", seed=LANGUAGES.index(language))["translation"]
    _write(path, [row[language] for row in [*shared, *alone]])


def _make_dictionary(path: Path) -> None:
    _write(path, ["hausd hause"])


def _make_gzipped_articles(path: Path) -> None:
    rows = _documents(LANGUAGES).to_pandas().rename(columns={"id": "title", "text": "body"})
    rows.to_csv(path, index=False)


def _make_folder_of_texts(path: Path) -> None:
    for row in _documents(("de", "en")):
        note = path / row["language"] / f"{row['id']}.txt"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(row["text"], "utf-8")


def _make_triples(path: Path) -> None:
    rows = sample_parallel(200, "train", seed=0)["translation"][:]
    triples = []
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        triples.append({"anchor": row["de"], "positive": row["en"], "negative": other["en"]})
    datasets.Dataset.from_list(triples).to_json(path)


FILE_MAKERS = {
    "memory.tsv": _make_tab_separated_memory,
    "my_corpus": _make_corpus,
    "dev.jsonl": _make_dev_rows,
    "triples.jsonl": _make_triples,
    "texts": _make_single_texts,
    "unseen.jsonl": _make_unseen_rows,
    "it-en.jsonl": _make_italian_rows,
    "memory.tmx": _make_tmx,
    "memory.csv": _make_translation_memory,
    "news.parquet": _make_news_table,
    "news.jsonl": _make_news,
    "news.csv": _make_labeled_news,
    "articles.csv": _make_articles,
    "german.jsonl": _make_news,
    "english.jsonl": _make_news,
    "notes.txt": _make_notes,
    "articles.csv.gz": _make_gzipped_articles,
    "notes": _make_folder_of_texts,
    "articles": _make_folder_of_texts,
    "de.txt": _make_sentences,
    "en.txt": _make_sentences,
    "de-en.txt": _make_dictionary,
}


def _parallel(number: int, split: str = "train", seed: int = 0) -> datasets.Dataset:
    return sample_parallel(number, split, seed).select_columns(["translation"])


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _labeled_documents() -> datasets.Dataset:
    """Documents with the columns text, label, language and id, which translations share."""
    documents = sample_documents(60, "test", seed=2, languages=("de", "en"))
    documents = documents.rename_column("doc_id", "id")
    return documents.select_columns(["text", "label", "language", "id"])


def _documents(languages: tuple[str, ...]) -> datasets.Dataset:
    rows = sample_documents(24, "test", seed=1, languages=languages).rename_column("label", "topic")
    ids = [f"{row['language']}-{row['doc_id']}" for row in rows]
    urls = [f"https://example.org/{name}" for name in ids]
    return (
        rows.select_columns(["language", "topic", "text"])
        .add_column("id", ids)
        .add_column("url", urls)
    )
