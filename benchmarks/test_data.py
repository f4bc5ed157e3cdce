r"""The figures of the README: models on test data, which chose nothing, with size and speed.

    python benchmarks/test_data.py default=default adapted=runs/adapted-1 adapted=runs/adapted-2 \
        adapted=runs/adapted-3 e5-small=E5 MiniLM=MINILM --static runs/static \
        --prompt "e5-small=query: " --document-prompt "e5-small=passage: " \
        --vectors USE=use.parquet --data DATA/test --json benchmarks/results/test_data.json

`--data` holds `tatoeba.parquet` (columns pair, sentence1, sentence2), `tldr_documents.parquet`
(doc_id, language, text), `sts.parquet` (lang, sentence1, sentence2, score) and `xquad.parquet`
(language, paragraph_id, paragraph, question_id, question). Every model reads plain text in float32
unless `--dtype` says otherwise. Vectors and results are cached as in `peers.py`, whose models these
are.

A name that comes several times is one system with a model for each seed: its row has the mean and
the standard deviation over seeds. Size and speed are those of its first model.

`--vectors NAME=FILE` adds a model that cannot be opened here by its vectors: a parquet file with
the columns `text` and `vector`, which has every text of the test data. `--write-texts FILE` writes
these texts, and measures nothing. The speed of such a system is not measured.
"""

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from common import LANGUAGES, load_task, markdown, write_json
from peers import (
    STATIC,
    TFIDF,
    Measure,
    MeasuredSystem,
    describe_size,
    load_systems,
    measure_quality,
    measure_speed,
    measures_of,
    split_name,
    split_named,
)

from modeling_tmde import TmdeError
from tmde.eval.model_fingerprint import Role
from tmde.eval.planning import LoadedTask
from tmde.eval.results import TaskResult, summary_columns
from tmde.eval.systems import Language, default_cache_dir
from tmde.eval.tasks import QuestionData, RetrievalData, SimilarityData
from tmde.training.teachers.files import read_vector_table

# The task of each title, and its file in the data folder.
TASKS = {
    "sentences": ("tatoeba", "tatoeba.parquet"),
    "documents": ("document_retrieval", "tldr_documents.parquet"),
    "similarity": ("sts", "sts.parquet"),
    "questions": ("question_retrieval", "xquad.parquet"),
}
# The name of each measure in the file of results, and its column in a report.
MEASURES = {
    "sentences": "sentences Cross",
    "documents": "documents Cross",
    "questions_same": "questions Same",
    "questions_across": "questions Cross",
    "similarity_same": "similarity Same",
    "similarity_across": "similarity Cross",
}


# ---- Systems


class StoredVectors:
    """A model by the vectors that it gave to the texts of the tasks.

    It follows the protocol `tmde.eval.systems.System`.

    Args:
        name: Its name in the table.
        file: A parquet file with the columns `text` and `vector`.

    Raises:
        TmdeError: The file lacks one of the columns, or vectors differ in length; see
            `tmde.training.teachers.files.read_vector_table`.
    """

    dense = True
    truncated = 0
    seconds = 0.0
    cpu_seconds = 0.0

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.file = file
        table = read_vector_table(file, str(file))
        self._vectors = table.vectors.astype(np.float32)
        self._row_of_text = table.row_of
        self.fingerprint = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        self.begin()

    def begin(self) -> None:
        """Start a new task: reset the count."""
        self.texts = 0

    def describe(self) -> dict[str, str | int]:
        """Return how texts become vectors."""
        return {"vectors": self.file.name, "dimension": self._vectors.shape[1]}

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str] = (),
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> np.ndarray:
        """Return the vectors of texts, (n, d) float32.

        Args:
            texts: n texts.
            fit_on: Not used.
            language: Not used.
            role: Not used.
            fit_language: Not used.

        Raises:
            TmdeError: The file lacks a text.
        """
        missing = [text for text in texts if text not in self._row_of_text]
        if missing:
            raise TmdeError(
                f"{self.file}: found no vectors for {len(missing)} of {len(texts)} texts, such as "
                f"{missing[0][:60]!r}; expected one for every text: write the texts with "
                "--write-texts, and embed all of them"
            )
        self.texts += len(texts)
        return self._vectors[[self._row_of_text[text] for text in texts]]


def folders_of_models(models: Sequence[str]) -> dict[str, list[str]]:
    """Return the folders of `NAME=FOLDER` by name: several are the seeds of one system."""
    folders: dict[str, list[str]] = {}
    for model in models:
        name, folder = split_name(model)
        folders.setdefault(name, []).append(folder)
    return folders


def check_names(option: str, values: Mapping[str, str], systems: Sequence[str]) -> None:
    """Check that an option names systems that are measured.

    Raises:
        typer.BadParameter: It names another one.
    """
    for name in values:
        if name not in systems:
            raise typer.BadParameter(f"{option}: found {name}, expected {', '.join(systems)}")


def seed_names(name: str, count: int) -> list[str]:
    """Return the names of the models of a system; the first model has the name of the system."""
    return [name, *(f"{name}, seed {number}" for number in range(2, count + 1))]


def models_of_systems(
    folders_of_systems: Mapping[str, Sequence[str]],
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the folder of each model, and the names of the models of each system."""
    folders: dict[str, str] = {}
    seeds = {}
    for system, folders_of_system in folders_of_systems.items():
        seeds[system] = seed_names(system, len(folders_of_system))
        folders |= dict(zip(seeds[system], folders_of_system, strict=True))
    return folders, seeds


def of_seeds(values: Mapping[str, str], seeds: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the values of systems by the names of their models."""
    value_by_name = {}
    for system, value in values.items():
        for name in seeds.get(system, [system]):
            value_by_name[name] = value
    return value_by_name


# ---- Tasks


def texts_of_tasks(tasks: Sequence[LoadedTask]) -> list[str]:
    """Return every text of the tasks once."""
    texts: dict[str, None] = {}
    for task in tasks:
        for column in _columns_of_texts(task):
            texts.update(dict.fromkeys(text for text in column if text is not None))
    return list(texts)


def _columns_of_texts(task: LoadedTask) -> list[Sequence[str | None]]:
    """Return the texts of a task in lists."""
    columns: list[Sequence[str | None]] = []
    data = task.data
    if isinstance(data, RetrievalData):
        columns += data.texts.values()
    if isinstance(data, QuestionData):
        for questions in data.questions.values():
            columns += [questions.texts, list(questions.paragraphs.values())]
    if isinstance(data, SimilarityData):
        for pairs in data.pairs.values():
            columns += [pairs.first, pairs.second]
    return columns


def speed_texts(data: Path) -> list[str]:
    """Return the texts by which speed is measured: English and foreign sentences of Tatoeba."""
    rows = pd.read_parquet(data / "tatoeba.parquet").sample(frac=1, random_state=0)
    texts = pd.concat([rows["sentence1"], rows["sentence2"]]).drop_duplicates()
    return texts.sample(frac=1, random_state=0).tolist()


# ---- Results


def spread_over_seeds(measures: Sequence[Measure]) -> Measure:
    """Return the mean of a measure over seeds, one standard deviation below and above it."""
    values = [measure.value for measure in measures]
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values)
    return Measure(mean, mean - deviation, mean + deviation)


def mean_reciprocal_ranks(results: Sequence[TaskResult]) -> dict[str, float]:
    """Return the mean reciprocal ranks of questions in % by the name of the measure."""
    names = {"Same": "questions_same", "Cross": "questions_across"}
    ranks = {}
    for result in results:
        if result.task != "questions":
            continue
        for column in summary_columns(result):
            if column.title in names:
                ranks[names[column.title]] = 100 * column.extra["mrr"]
    return ranks


def quality_row(results: Sequence[TaskResult], names: Sequence[str]) -> dict[str, Any]:
    """Return what a row of the file of results says of quality, in %.

    Args:
        results: The results of all models on all tasks.
        names: The names of the models of the system, one for each seed.
    """
    results_of_seeds = []
    for name in names:
        results_of_seeds.append([result for result in results if result.system == name])
    columns_of_seeds = [measures_of(results_of_seed) for results_of_seed in results_of_seeds]
    measures = {}
    seed_measures = {}
    for name, column in MEASURES.items():
        values = [columns[column] for columns in columns_of_seeds]
        measure = values[0] if len(values) == 1 else spread_over_seeds(values)
        measures[name] = [measure.value, measure.low, measure.high]
        seed_measures[name] = [[value.value, value.low, value.high] for value in values]
    ranks_of_seeds = [
        mean_reciprocal_ranks(results_of_seed) for results_of_seed in results_of_seeds
    ]
    ranks = {}
    for name in ranks_of_seeds[0]:
        ranks[name] = statistics.fmean(ranks_of_seed[name] for ranks_of_seed in ranks_of_seeds)
    row: dict[str, Any] = {
        "seeds": len(names),
        "measures": measures,
        "mrr": ranks,
    }
    if len(names) > 1:
        row["seed_measures"] = seed_measures
    return row


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    cells = {
        "system": row["system"],
        "MB": row.get("megabytes"),
        "texts/s": row.get("texts_per_second"),
        "seeds": row["seeds"],
    }
    for name, (value, low, high) in row["measures"].items():
        if row["seeds"] > 1:
            cells[name] = f"{value:.1f} ± {high - value:.1f}"
        else:
            cells[name] = f"{value:.1f} [{low:.1f}, {high:.1f}]"
    return cells


def main(
    data: Annotated[Path, typer.Option(help="Folder of the test data.")],
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=FOLDER", help="Models; a name several times: seeds."),
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT before every text of a model.")
    ] = None,
    document_prompt: Annotated[
        list[str] | None,
        typer.Option(help="NAME=TEXT before the paragraphs that questions search."),
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="NAME=bfloat16.")] = None,
    bfloat16: Annotated[
        list[str] | None, typer.Option(help="NAME: measure its speed in bfloat16, too.")
    ] = None,
    training: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT: how long a model was trained.")
    ] = None,
    static: Annotated[Path | None, typer.Option(help="Folder of a StaticEmbedding.")] = None,
    vectors: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: vectors of a model in a parquet file.")
    ] = None,
    write_texts: Annotated[
        Path | None, typer.Option(help="Write all texts to this parquet file, and stop.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Of vectors and results. Default: $TMDE_CACHE.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Measure all models on all test data."""
    prompts = split_named(prompt or [])
    document_prompts = split_named(document_prompt or [])
    dtypes = split_named(dtype or [])
    trainings = split_named(training or [])
    stored_files = split_named(vectors or [])
    folders_of_systems = folders_of_models(models or [])
    known = [TFIDF, STATIC, *folders_of_systems, *stored_files]
    check_names("--prompt", prompts, known)
    check_names("--document-prompt", document_prompts, known)
    check_names("--dtype", dtypes, known)
    check_names("--training", trainings, known)
    check_names("--bfloat16", dict.fromkeys(bfloat16 or [], ""), list(folders_of_systems))

    tasks = []
    for title, (task_name, file_name) in TASKS.items():
        tasks.append(load_task(title, task_name, data / file_name))
    if write_texts is not None:
        pd.DataFrame({"text": texts_of_tasks(tasks)}).to_parquet(write_texts)
        return
    cache = cache or default_cache_dir()
    cache.mkdir(parents=True, exist_ok=True)

    folders, seeds = models_of_systems(folders_of_systems)
    computed: list[MeasuredSystem] = load_systems(
        folders,
        [TFIDF, STATIC, *folders],
        of_seeds(prompts, seeds),
        of_seeds(dtypes, seeds),
        static,
        cache,
        of_seeds(document_prompts, seeds),
    )
    stored = []
    for name, file in stored_files.items():
        stored.append(StoredVectors(name, Path(file)))
    results = measure_quality(tasks, [*computed, *stored], cache)
    first_models = [system for system in computed if system.name not in folders]
    first_models += [system for system in computed if system.name in seeds]
    speeds = measure_speed(first_models, speed_texts(data))
    in_bfloat16 = bfloat16 or []
    bfloat16_systems = load_systems(
        folders,
        in_bfloat16,
        prompts,
        dict.fromkeys(in_bfloat16, "bfloat16"),
        static,
        cache,
        document_prompts,
    )
    bfloat16_speeds = measure_speed(bfloat16_systems, speed_texts(data))

    rows = []
    for system in first_models:
        row = {
            "system": system.name,
            "megabytes": describe_size(system)["MB"],
            "texts_per_second": speeds[system.name]["median"],
            "dtype": dtypes.get(system.name, "float32"),
            "training": trainings.get(system.name),
        }
        if system.name in bfloat16_speeds:
            row["texts_per_second_bfloat16"] = bfloat16_speeds[system.name]["median"]
        rows.append(row | quality_row(results, seeds.get(system.name, [system.name])))
    for system in stored:
        row = {"system": system.name, "training": trainings.get(system.name)}
        rows.append(row | quality_row(results, [system.name]))
    typer.echo(markdown([table_row(row) for row in rows]))
    settings = {
        "prompts": prompts,
        "document_prompts": document_prompts,
        "dtypes": dtypes,
        "bfloat16": in_bfloat16,
        "languages": list(LANGUAGES),
    }
    write_json(json_path, "test_data", settings, rows)


if __name__ == "__main__":
    typer.run(main)
