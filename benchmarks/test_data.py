r"""The figures of the README: models on test data, which chose nothing, with size and speed.

    python benchmarks/test_data.py default=default small=runs/small adapted=runs/adapted \
        e5-small=E5 --prompt "e5-small=query: " --data DATA/test \
        --json benchmarks/results/test_data.json

`--data` holds `tatoeba.parquet` (columns pair, sentence1, sentence2), `tldr_documents.parquet`
(doc_id, language, text) and `sts.parquet` (lang, sentence1, sentence2, score). Every model reads
plain text in float32 unless `--dtype` says otherwise. Vectors and results are cached as in
`peers.py`, whose models these are.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from common import write_json
from peers import (
    LANGUAGES,
    TFIDF,
    SystemReport,
    load_systems,
    measure_quality,
    measure_speed,
    report_systems,
    split_named,
)
from tabulate import tabulate

from tmde.eval import plan_tasks
from tmde.eval.planning import LoadedTask
from tmde.eval.systems import default_cache_dir

# The codes in the names of LASER's files.
ISO3 = {"de": "deu", "en": "eng", "es": "spa", "fr": "fra", "it": "ita"}
# The name of each measure in the file of results, and its column in a report.
MEASURES = {
    "sentences": "sentences Cross",
    "documents": "documents Cross",
    "similarity_same": "similarity Same",
    "similarity_across": "similarity Cross",
}


def write_tatoeba(source: Path, folder: Path) -> Path:
    """Write pairs of sentences as LASER's files, which the task `tatoeba` reads.

    Args:
        source: A table with the columns pair (`de-en`), sentence1 and sentence2.
        folder: The folder to write to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for pair, rows in pd.read_parquet(source).groupby("pair"):
        codes = [ISO3[language] for language in pair.split("-")]
        name = "-".join(codes)
        for code, column in zip(codes, ("sentence1", "sentence2"), strict=True):
            lines = [f"{sentence.strip()}\n" for sentence in rows[column]]
            path = folder / f"tatoeba.{name}.{code}"
            path.write_text("".join(lines), encoding="utf-8")
    return folder


def write_documents(source: Path, file: Path) -> Path:
    """Write documents as parallel rows, which the task `sentence_retrieval` reads.

    Args:
        source: A table with the columns doc_id, language and text.
        file: The JSONL file to write.
    """
    lines = []
    for _, rows in pd.read_parquet(source).groupby("doc_id"):
        translation = dict(zip(rows["language"], rows["text"], strict=True))
        lines.append(json.dumps({"translation": translation}) + "\n")
    file.write_text("".join(lines), encoding="utf-8")
    return file


def load_test_tasks(data: Path, cache: Path) -> list[LoadedTask]:
    """Return the tasks on the files of the data folder."""
    specs = {
        "sentences": f"tatoeba={write_tatoeba(data / 'tatoeba.parquet', cache / 'tatoeba')}",
        "documents": "sentence_retrieval="
        f"{write_documents(data / 'tldr_documents.parquet', cache / 'tldr.jsonl')}",
        "similarity": f"sts={data / 'sts.parquet'}",
    }
    tasks = []
    for title, spec in specs.items():
        (planned,) = plan_tasks([spec])
        task = planned.load(known=LANGUAGES)
        tasks.append(replace(task, name=title))
    return tasks


def speed_texts(data: Path) -> list[str]:
    """Return the texts by which speed is measured: English and foreign sentences of Tatoeba."""
    rows = pd.read_parquet(data / "tatoeba.parquet").sample(frac=1, random_state=0)
    texts = pd.concat([rows["sentence1"], rows["sentence2"]]).drop_duplicates()
    return texts.sample(frac=1, random_state=0).tolist()


def json_row(report: SystemReport, dtype: str, training: str | None) -> dict[str, Any]:
    """Return a row of the file of results: sizes in MB, measures in % with their interval."""
    measures = {}
    for name, column in MEASURES.items():
        measure = report.measures[column]
        measures[name] = [measure.value, measure.low, measure.high]
    return {
        "system": report.name,
        "megabytes": report.size["MB"],
        "texts_per_second": report.speed["median"],
        "seeds": 1,
        "dtype": dtype,
        "training": training,
        "measures": measures,
    }


def main(
    models: Annotated[list[str], typer.Argument(metavar="NAME=FOLDER", help="Models.")],
    data: Annotated[Path, typer.Option(help="Folder of the test data.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT before every text of a model.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="NAME=bfloat16.")] = None,
    training: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT: how long a model was trained.")
    ] = None,
    static: Annotated[Path | None, typer.Option(help="Folder of a StaticEmbedding.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Of vectors and results. Default: $TMDE_CACHE.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Measure all models on all test data."""
    cache = cache or default_cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    folders = split_named(models)
    prompts = split_named(prompt or [])
    dtypes = split_named(dtype or [])
    trainings = split_named(training or [])
    names = [TFIDF, *folders]
    if static is not None:
        names.insert(1, "StaticEmbedding")
    systems = load_systems(folders, names, prompts, dtypes, static, cache)
    tasks = load_test_tasks(data, cache)
    results = measure_quality(tasks, systems, cache)
    speeds = measure_speed(systems, speed_texts(data))
    reports = report_systems(systems, results, speeds)
    rows = []
    for report in reports:
        dtype_of_model = dtypes.get(report.name, "float32")
        rows.append(json_row(report, dtype_of_model, trainings.get(report.name)))
    typer.echo(tabulate([report.table_row() for report in reports], "keys", "pipe", floatfmt=".1f"))
    settings = {"prompts": prompts, "dtypes": dtypes, "languages": list(LANGUAGES)}
    write_json(json_path, "test_data", settings, rows)


if __name__ == "__main__":
    typer.run(main)
