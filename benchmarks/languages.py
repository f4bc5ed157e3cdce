r"""Languages that the training text lacks: what an encoder loses in them while it learns others.

    python benchmarks/languages.py e5-small=E5 adapted=runs/1 adapted=runs/2 adapted=runs/3 \
        --prompt "e5-small=query: " --document-prompt "e5-small=passage: " --data DATA \
        --trained de,en,es,fr,it --json benchmarks/results/languages.json

Two tasks, in every language that their files have:

- Questions (`test/xquad.parquet`): how often the paragraph that answers a question is the nearest
  one, both in one language.
- Topics (`eval/sib200.parquet`): the accuracy of a classifier on the test sentences of a language.
  It is trained on English labels alone.

The first system is the one that the others began as. A name that comes several times is one system
with a model for each seed, as in `test_data.py`. Vectors and results are cached as in `peers.py`.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from common import load_task, markdown, write_json
from peers import MeasuredSystem, load_systems, split_named
from test_data import check_names, folders_of_models, models_of_systems, of_seeds

from tmde.data.languages import iso_of_flores
from tmde.eval import EvaluationOptions, evaluate
from tmde.eval.planning import LoadedTask
from tmde.eval.results import TaskResult
from tmde.eval.systems import default_cache_dir
from tmde.eval.tasks.base import ClassificationData

QUESTIONS = "questions"
TOPICS = "topics"
# The task of each title, and its file in the data folder.
TASKS = {
    QUESTIONS: ("question_retrieval", "test/xquad.parquet"),
    TOPICS: ("sib200", "eval/sib200.parquet"),
}
# The language of the labels by which topics are learned.
LABELED = "en"


# ---- Tasks


def languages_in(file: Path) -> list[str]:
    """Return the languages of a file, by ISO 639-1 code where one is usual."""
    codes = pd.read_parquet(file, columns=["language"])["language"].unique()
    return list(map(iso_of_flores, codes))


def values_by_language(result: TaskResult) -> dict[str, float]:
    """Return the values of a task in % by language.

    Args:
        result: Of questions, those whose question and paragraph are of one language count; of
            topics, all that were learned from English labels.
    """
    values = {}
    for cell in result.cells:
        if cell.metric == "question_precision_at_1" and cell.source != cell.target:
            continue
        values[cell.target] = 100 * cell.value
    return values


def measure(task: LoadedTask, system: MeasuredSystem, cache: Path) -> dict[str, float]:
    """Return the values of a system on a task in % by language."""
    # Topics are learned from the labels of one language.
    train_languages = (LABELED,) if isinstance(task.data, ClassificationData) else None
    options = EvaluationOptions(folds=False, train_languages=train_languages)
    (result,) = evaluate([task], [system], options, cache)
    return values_by_language(result)


# ---- Rows


def mean_of_seeds(values_of_seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over seeds by language."""
    means = {}
    for language in values_of_seeds[0]:
        means[language] = statistics.fmean(values[language] for values in values_of_seeds)
    return means


def group_means(values: Mapping[str, float], trained: Sequence[str]) -> dict[str, float]:
    """Return the mean over the languages of the training text, and over the others."""
    trained_values = [value for language, value in values.items() if language in trained]
    other_values = [value for language, value in values.items() if language not in trained]
    return {"trained": statistics.fmean(trained_values), "others": statistics.fmean(other_values)}


def task_row(
    values_of_seeds: Sequence[Mapping[str, float]], trained: Sequence[str]
) -> dict[str, Any]:
    """Return what a row of the file of results says of a task.

    Args:
        values_of_seeds: The values in % by language, for each seed.
        trained: The languages of the training text.
    """
    means_of_seeds = [group_means(values, trained) for values in values_of_seeds]
    groups = {}
    for group in ("trained", "others"):
        of_group = [means[group] for means in means_of_seeds]
        deviation = statistics.stdev(of_group) if len(of_group) > 1 else None
        groups[group] = {"mean": statistics.fmean(of_group), "deviation": deviation}
    return {"languages": mean_of_seeds(values_of_seeds), "groups": groups}


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    cells = {"system": row["system"], "seeds": row["seeds"]}
    for title in (QUESTIONS, TOPICS):
        for group, values in row[title]["groups"].items():
            cells[f"{title}, {group}"] = f"{values['mean']:.1f}"
    return cells


def main(
    models: Annotated[
        list[str],
        typer.Argument(metavar="NAME=FOLDER", help="Models; a name several times: seeds."),
    ],
    data: Annotated[Path, typer.Option(help="Folder with test/ and eval/.")],
    trained: Annotated[str, typer.Option(help="Languages of the training text.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT before every text of a model.")
    ] = None,
    document_prompt: Annotated[
        list[str] | None,
        typer.Option(help="NAME=TEXT before the paragraphs that questions search."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Of vectors and results. Default: $TMDE_CACHE.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Measure all models in all languages."""
    prompts = split_named(prompt or [])
    document_prompts = split_named(document_prompt or [])
    folders_of_systems = folders_of_models(models)
    check_names("--prompt", prompts, list(folders_of_systems))
    check_names("--document-prompt", document_prompts, list(folders_of_systems))
    trained_languages = trained.split(",")
    cache = cache or default_cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    folders, seeds = models_of_systems(folders_of_systems)
    systems = load_systems(
        folders,
        list(folders),
        of_seeds(prompts, seeds),
        {},
        None,
        cache,
        of_seeds(document_prompts, seeds),
    )
    tasks = {}
    for title, (task_name, file_name) in TASKS.items():
        file = data / file_name
        tasks[title] = load_task(title, task_name, file, languages_in(file))
    system_by_name = {system.name: system for system in systems}
    rows = []
    for name, model_names in seeds.items():
        row: dict[str, Any] = {"system": name, "seeds": len(model_names)}
        for title, task in tasks.items():
            values_of_seeds = []
            for model_name in model_names:
                typer.echo(f"{title}, {model_name}", err=True)
                values_of_seeds.append(measure(task, system_by_name[model_name], cache))
            row[title] = task_row(values_of_seeds, trained_languages)
        rows.append(row)
    typer.echo(markdown([table_row(row) for row in rows]))
    settings = {
        "prompts": prompts,
        "document_prompts": document_prompts,
        "trained": trained_languages,
        "labels": LABELED,
    }
    write_json(json_path, "languages", settings, rows)


if __name__ == "__main__":
    typer.run(main)
