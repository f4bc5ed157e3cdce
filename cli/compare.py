"""The command `tmde compare`: trains several systems on the same data, measures all, and writes one table with tests.

The folder of a comparison holds `evaluation.yaml`, the recipe of each training in `recipes/`, the runs that others
begin with in `start/`, those of the systems in `runs/`, their evaluations in `eval/`, what each process printed in
`logs/`, `table.md`, and the numbers of the table in `table.json`.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from tabulate import tabulate

from modeling_tmde import TmdeError
from tmde.cli.evaluate import find_tasks
from tmde.cli.train import DevOption, TrainOption, one_or_all
from tmde.data.cpus import usable_cpus
from tmde.data.io import write_atomically
from tmde.eval.report import differences_table, markdown_escape, percent
from tmde.eval.results import EVAL_NAME, TaskResult, group_cells, read_results
from tmde.eval.statistics import Difference
from tmde.eval.statistics import compare as compare_results
from tmde.training.checkpoints import find_checkpoint
from tmde.training.recipe import Recipe, load_recipe, read_yaml, unknown, with_settings
from tmde.training.resolving import check_trainable
from tmde.training.run_data import named_sources
from tmde.training.starts import STAGE_FOLDER, stage_recipe

TFIDF = "TF-IDF"
ENTRY_KEYS = ("recipe", "start", "overrides", "seeds", "seed")
NOTE = (
    "All in %. ±: standard deviation over seeds. ▲ and ▼: above and below {} with p < 0.05 (approximate randomization "
    "over test items, with the first seed, not corrected for the number of comparisons). Same: labels in the language "
    "of the test; Cross: in another. CPU minutes: of all threads, with the first seed, first stage and start included."
)


@strict
@dataclass
class ComparisonFile:
    """
    A comparison file; `training/comparisons/__init__.py` shows an example.

    Args:
        systems: By name, mappings with `recipe` and perhaps `start`, `overrides` and `seeds`.
        shared: Keys of recipes and their values: `all`, then those of the recipe's architecture.
        start: Runs that systems begin with, by name: `recipe`, and perhaps `overrides` and `seed`.
        tokenizer: The start whose tokenizer all systems take.
        reference: The system that the others are tested against; the first by default.
        contrasts: Pairs of systems of which the first is expected to be the better one.
        tasks, task_options, folds, max_length: As `tmde eval run` takes them.
        titles: What the table calls systems and tasks.
    """

    systems: dict[str, dict] = field(default_factory=dict)
    description: str = "Comparison"
    shared: dict[str, dict] = field(default_factory=dict)
    start: dict[str, dict] = field(default_factory=dict)
    tokenizer: str | None = None
    reference: str | None = None
    contrasts: list[list[str]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [42])
    tasks: list[str] = field(default_factory=lambda: ["all"])
    task_options: dict[str, Any] = field(default_factory=dict)
    folds: bool = False
    max_length: int | None = None
    titles: dict[str, str] = field(default_factory=dict)

    def validate_names(self):
        if not self.systems or not all(
            entry.get("seeds", self.seeds) for entry in self.systems.values()
        ):
            raise TmdeError("found no systems or no seeds, expected at least one of each")
        if wrong := [pair for pair in self.contrasts if len(pair) != 2]:
            raise TmdeError(f"contrasts: found {wrong[0]}, expected pairs of systems")
        systems = [self.reference, *(name for pair in self.contrasts for name in pair)]
        starts = [self.tokenizer, *(entry.get("start") for entry in self.systems.values())]
        for what, found, known in (
            ("system", systems, self.systems),
            ("start", starts, self.start),
        ):
            if wrong := [name for name in found if name is not None and name not in known]:
                raise TmdeError(unknown(what, wrong[0], known))
        for name, entry in [*self.systems.items(), *self.start.items()]:
            if wrong := [key for key in entry if key not in ENTRY_KEYS]:
                raise TmdeError(unknown(f"{name}: key", wrong[0], ENTRY_KEYS))
            if "recipe" not in entry or not isinstance(entry.get("overrides") or {}, dict):
                raise TmdeError(
                    f"{name}: found {entry}, expected a recipe, and overrides as keys and values"
                )

    def eval_options(self, folder: Path, data: Path | None) -> list[str]:
        """The options of `tmde eval run` for all systems."""
        options = [
            ("--data", data),
            ("--max-length", self.max_length),
            ("--cache-dir", folder / "cache"),
        ]
        options += [("--tasks", task) for task in self.tasks]
        options += [
            ("--set", f"{key}={json.dumps(value)}") for key, value in self.task_options.items()
        ]
        found = [str(part) for option in options if option[1] is not None for part in option]
        return [*found, "--no-figures", "--folds" if self.folds else "--no-folds"]


@dataclass
class Training:
    """One training: a start, or a system with one seed.

    Args:
        name: Of its folders; `SYSTEM-SEED` of a system.
        folder: Of the comparison.
        system: Of which it is a seed; None for a start.
        start, tokenizer: The starts whose model and tokenizer it begins with.
    """

    name: str
    recipe: Recipe
    folder: Path
    system: str | None = None
    start: str | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        kind = "start" if self.system is None else "runs"
        self.run, self.evaluation = self.folder / kind / self.name, self.folder / "eval" / self.name
        self.recipe_path = self.folder / "recipes" / kind / f"{self.name}.yaml"

    def is_measured(self) -> bool:
        return (self.evaluation / EVAL_NAME).is_file()


def load_comparison(
    name_or_path: str, folder: Path, data: dict[str, Any], eval_data: Path | None
) -> tuple[ComparisonFile, list[Training]]:
    """A comparison by its name or as a YAML file, with the recipe of each training, starts first.

    Args:
        data: Keys of the data section that all recipes get.

    Raises:
        ValueError: No such file, or a key, name or value that does not fit.
    """
    content = read_yaml(name_or_path, "tmde.training.comparisons", "Comparison")
    trainings = []
    try:
        known = [each.name for each in fields(ComparisonFile)]
        if wrong := [key for key in content if key not in known]:
            raise TmdeError(unknown("key", wrong[0], known))
        file = ComparisonFile(**content)
        for name, entry in file.start.items():
            recipe = _recipe(
                entry, file.shared, {**data, "training.seed": entry.get("seed", file.seeds[0])}
            )
            trainings.append(Training(name, recipe, folder))
        for name, entry in file.systems.items():
            for seed in entry.get("seeds", file.seeds):
                recipe = _recipe(entry, file.shared, {**data, "training.seed": seed})
                trainings.append(
                    Training(
                        f"{name}-{seed}", recipe, folder, name, entry.get("start"), file.tokenizer
                    )
                )
                _begin_with_start(trainings[-1])
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise TmdeError(f"{name_or_path}: {error.__cause__ or error}") from error
    if any(each.recipe.data.train is None for each in trainings):
        raise TmdeError(
            f"{name_or_path}: found no training data; give --train (also when run again)"
        )
    options = [f"{key}={json.dumps(value)}" for key, value in file.task_options.items()]
    for planned in find_tasks(file.tasks, eval_data, options):
        if planned.source is None:
            raise TmdeError(
                f"{name_or_path}: found no data of {planned.task.name}; give --eval-data, or NAME=SOURCE"
            )
    return file, trainings


def _recipe(entry: dict[str, Any], shared: dict[str, dict], fixed: dict[str, Any]) -> Recipe:
    """The recipe with what is shared by all, by its architecture, its own overrides, and `fixed`, in this order."""
    recipe, own = load_recipe(str(entry["recipe"])), entry.get("overrides") or {}
    architecture = own.get("model.architecture", recipe.architecture)
    for values in (shared.get("all"), shared.get(architecture), own, fixed):
        for key, value in (values or {}).items():
            recipe = with_settings(recipe, {str(key): copy.deepcopy(value)})
    for stage in filter(None, (recipe, stage_recipe(recipe))):  # errors now, not after hours
        check_trainable(stage)
    return recipe


def _begin_with_start(training: Training) -> None:
    """Makes a run begin with its start, and read with the tokenizer of one. A first stage that is a bag, as in
    `small`, is what a start takes the place of; another first stage begins with it."""
    recipe, folder, stage = (
        training.recipe,
        training.folder / "start",
        training.recipe.warm_start.recipe,
    )
    if training.start is not None:
        inner = (
            ""
            if stage is None or load_recipe(stage).architecture == "bag"
            else "warm_start.overrides."
        )
        start = str(folder / training.start)
        recipe = with_settings(recipe, {f"{inner}warm_start.checkpoint": start})
    if training.tokenizer is not None:
        for prefix in ("", "warm_start.overrides.") if stage is not None else ("",):
            tokenizer = str(folder / training.tokenizer)
            recipe = with_settings(recipe, {f"{prefix}tokenizer.path": tokenizer})
    training.recipe = recipe


def open_folder(
    folder: Path, options: list[str], trainings: list[Training], overwrite: bool
) -> None:
    """Makes the folder one of this comparison, and deletes what a changed file makes anew.

    Raises:
        ValueError: It holds another comparison and `overwrite` is not set.
    """
    written = {each.recipe_path: each.recipe.to_yaml() for each in trainings}
    written[folder / "evaluation.yaml"] = yaml.safe_dump(options)
    changed = {
        path.stem
        for path, text in written.items()
        if path.exists() and path.read_text("utf-8") != text
    }
    changed |= {each.name for each in trainings if changed & {each.start, each.tokenizer}}
    if changed and not overwrite:
        raise TmdeError(
            f"{folder} holds another comparison; choose another folder, or --overwrite, which makes anew what the "
            f"changes concern and keeps the rest. Changed: {', '.join(sorted(changed))}"
        )
    for training in trainings:
        if training.name in changed:
            shutil.rmtree(training.run, ignore_errors=True)
        if changed & {training.name, "evaluation"}:
            shutil.rmtree(training.evaluation, ignore_errors=True)
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def run_all(trainings: list[Training], eval_options: list[str], jobs: int) -> dict[str, str]:
    """Does what is not done yet, several processes at a time. If one fails, the others go on; returns why, by name."""
    failures: dict[str, str] = {}

    def finish(training: Training) -> None:
        run, evaluation = training.run, training.evaluation
        try:
            if lost := failures.keys() & {training.start, training.tokenizer}:
                raise RuntimeError(f"needs the start {min(lost)}, which failed")
            if not (run / "results.json").is_file():
                resumed = find_checkpoint(run) or (run / STAGE_FOLDER).is_dir()
                mode = "--resume" if resumed else "--overwrite"
                _process("train", training, jobs, training.recipe_path, "-o", run, mode)
            if training.system is not None and not training.is_measured():
                shutil.rmtree(evaluation, ignore_errors=True)
                _process(
                    "eval",
                    training,
                    jobs,
                    f"{training.name}={run}",
                    "-o",
                    evaluation,
                    *eval_options,
                )
        except RuntimeError as error:
            failures[training.name] = str(error)

    needed = {name for each in trainings for name in (each.start, each.tokenizer)}
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(finish, [each for each in trainings if each.name in needed]))
        list(pool.map(finish, [each for each in trainings if each.system is not None]))
    return failures


def _process(command: str, training: Training, jobs: int, *arguments: str | Path) -> None:
    """Runs `tmde COMMAND` with the arguments in a process of its own.

    Raises:
        RuntimeError: It failed; with the last error of its log.
    """
    log = training.folder / "logs" / f"{command}-{training.name}.log"
    log.parent.mkdir(exist_ok=True)
    threads = str(max(1, usable_cpus() // jobs))
    typer.echo(f"{command} {training.name} ...")
    with open(log, "a", encoding="utf-8") as output:
        code = subprocess.run(
            [sys.executable, "-m", "tmde", command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": threads, "RAYON_NUM_THREADS": threads},
        ).returncode
    typer.echo(f"{command} {training.name}: {'failed' if code else 'done'}")
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line for line in reversed(lines) if "Error" in line), "no output")
        raise RuntimeError(f"{command}: {last} (exit code {code}; log: {log})")


# ---- The table


def write_table(file: ComparisonFile, trainings: list[Training], failures: dict[str, str]) -> str:
    """Writes `table.md` of what is measured so far, and the numbers of all seeds as `table.json`; returns the text."""
    found: dict[str, list[dict[str, TaskResult]]] = {}  # by system, of each of its seeds
    first: dict[str, Training] = {}
    tfidf: dict[str, TaskResult] = {}
    for training in filter(Training.is_measured, trainings):
        results = read_results(training.evaluation)
        tfidf |= {each.task: each for each in results if each.system == TFIDF}
        seeds = found.setdefault(training.system, [])
        seeds.append({each.task: each for each in results if each.system != TFIDF})
        first.setdefault(training.system, training)
    reference = file.reference or next(iter(file.systems))

    rows, chances, numbers = (
        [],
        {"system": "chance"},
        {"description": file.description, "reference": reference},
    )
    numbers |= {"values": defaultdict(dict), "differences": {}}
    for name, seeds in (found | {TFIDF: [tfidf]}).items():
        row = {"system": markdown_escape(file.titles.get(name, name))}
        tested = {} if name in (TFIDF, reference) else _differences(found, name, reference)
        for task, result in seeds[0].items():
            means, by_chance = [_means(each[task]) for each in seeds], _means(result, "chance")
            for group, chance in by_chance.items():
                title = markdown_escape(
                    file.titles.get(task, task) + (f" {group}" if len(by_chance) > 1 else "")
                )
                values = [each[group] for each in means]
                numbers["values"][name][title] = values
                row[title] = percent(np.mean(values))
                if len(values) > 1:
                    row[title] += f" ± {percent(np.std(values, ddof=1))}"
                if (task, group) in tested and tested[task, group].p < 0.05:
                    row[title] += " ▲" if tested[task, group].difference > 0 else " ▼"
                chances[title] = None if np.isnan(chance) else percent(chance)
        rows.append(row | (_costs(first[name]) if name in first else {}))
    options = {
        "missingval": "–",
        "colglobalalign": "right",
        "colalign": ("left",),
        "disable_numparse": True,
    }
    lines = [
        f"# {markdown_escape(file.description)}",
        "",
        tabulate([*rows, chances], "keys", "pipe", **options),
        "",
    ]
    lines += [NOTE.format(markdown_escape(reference)), ""]
    for better, worse in file.contrasts:
        if tested := _differences(found, better, worse):
            lines.append(differences_table(f"{better} - {worse}", list(tested.values())))
            numbers["differences"][f"{better} - {worse}"] = [
                asdict(each) for each in tested.values()
            ]
    lines += [
        f"- Not measured: {markdown_escape(f'{name}: {reason}')}"
        for name, reason in failures.items()
    ]
    text = "\n".join(lines).rstrip() + "\n"
    write_atomically(trainings[0].folder / "table.json", json.dumps(numbers, indent=1))
    write_atomically(trainings[0].folder / "table.md", text)
    return text


def _means(result: TaskResult, of: str = "value") -> dict[str, float]:
    """Means of the groups `Same` and `Cross`, of the values of their cells or of `chance`."""
    cells = np.array([getattr(cell, of) for cell in result.cells], dtype=float)  # None is NaN
    return {
        name: cells[places].mean()
        for name, places in group_cells(result.cells).items()
        if name != "All"
    }


def _differences(
    found: dict[str, list[dict[str, TaskResult]]], system: str, other: str
) -> dict[tuple[str, str], Difference]:
    """Differences of a system from another by task and group, both with their first seed."""
    ours, theirs = (found.get(name, [{}])[0] for name in (system, other))
    tested = [
        each
        for task in ours
        if task in theirs
        for each in compare_results(theirs[task], ours[task])
    ]
    return {(each.task, each.group): each for each in tested if each.group != "All"}


def _costs(training: Training) -> dict[str, str]:
    """CPU minutes of all that led to a model, and its parameters."""
    folders = [
        training.run,
        training.run / STAGE_FOLDER,
        training.folder / "start" / str(training.start),
    ]
    found = [
        json.loads(path.read_text())
        for each in folders
        if (path := each / "results.json").is_file()
    ]
    parameters = json.loads((training.run / "run.json").read_text())["parameters"]
    return {
        "CPU minutes": f"{sum(each['cpu_minutes'] for each in found):.1f}",
        "parameters": f"{parameters:,}",
    }


# ---- The command


def compare(
    comparison: Annotated[
        str, typer.Argument(metavar="COMPARISON", help="papers, beta, infersent ... or a file.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for everything that is made.")
    ],
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    eval_data: Annotated[
        Path | None, typer.Option(help="Folder where the files of tasks are looked for.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes at a time; they share the processor's cores.")
    ] = 1,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Make anew what a changed file concerns.")
    ] = False,
) -> None:
    """Train several systems on the same data under one budget, measure all, and write one table with tests.

    Run again, it goes on where it stopped: what is finished is kept. If one system fails, the others go on.

        tmde compare papers --train PARALLEL --dev dev.parquet --eval-data DATA -o comparison --jobs 2

    A file of your own names systems by their recipes, and what limits them:

        systems:
          narrow: {recipe: bag, overrides: {model.d_model: 64}}
          wide: {recipe: bag}
        shared: {all: {max_cpu_minutes: 5}}
        tasks: \\[sample]
    """
    data = {"data.train": one_or_all(train_data), "data.dev": named_sources(dev_data)}
    file, trainings = load_comparison(
        comparison, output, {k: v for k, v in data.items() if v}, eval_data
    )
    options = file.eval_options(output, eval_data)
    open_folder(output, options, trainings, overwrite)
    failures = run_all(trainings, options, jobs)
    typer.echo(write_table(file, trainings, failures))
    typer.echo(f"Everything is in {output}/, the table in {output / 'table.md'}")
    if failures:
        raise TmdeError("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
