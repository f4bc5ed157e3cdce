"""The command `tmde compare`: trains several systems on the same data, measures all, and writes one table with tests.

The folder of a comparison holds `comparison.yaml`, the recipe of each training in `recipes/`, the runs that others
begin with in `start/`, those of the systems in `runs/`, their evaluations in `eval/`, what each process printed in
`logs/`, and `table.md`.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from modeling_tmde.cli.evaluate import find_tasks
from modeling_tmde.data.io import write_atomically
from modeling_tmde.eval.report import differences_table, markdown_escape, markdown_table, percent
from modeling_tmde.eval.results import EVAL_NAME, TaskResult, group_cells, read_results
from modeling_tmde.eval.statistics import Difference
from modeling_tmde.eval.statistics import compare as compare_results
from modeling_tmde.training.building import STAGE_FOLDER, find_checkpoint, named_sources, stage_recipe
from modeling_tmde.training.recipe import Recipe, load_recipe, read_yaml, unknown
from modeling_tmde.training.train import DevOption, TrainOption, one_or_all

TFIDF = "TF-IDF"
ENTRY_KEYS = ("recipe", "start", "overrides", "seeds", "seed", "title")
NOTE = (
    "All in %. ▲ and ▼: above and below {} with p < 0.05 (approximate randomization over test items, not corrected "
    "for the number of comparisons). Same: labels in the language of the test; Cross: in another. CPU minutes: of all "
    "threads, first stage and start included. Words: of both sides of all text pairs of the system's own training."
)


@strict
@dataclass
class ComparisonFile:
    """
    A comparison file; `training/comparisons/__init__.py` shows an example.

    Args:
        systems: By name, mappings with `recipe` and perhaps `start`, `overrides`, `seeds` and `title`.
        shared: Keys of recipes and their values: `all`, then those of the recipe's architecture.
        start: Runs that systems begin with, by name: `recipe`, and perhaps `overrides` and `seed`.
        tokenizer: The start whose tokenizer all systems take.
        reference: The system that the others are tested against; the first by default.
        contrasts: Pairs of systems of which the first is expected to be the better one.
        tasks, task_options, folds, max_length: As `tmde eval run` takes them.
        titles: What tables call tasks.
    """

    systems: dict[str, dict]
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
        systems = [self.reference, *(name for pair in self.contrasts for name in pair)]
        starts = [self.tokenizer, *(entry.get("start") for entry in self.systems.values())]
        for what, found, known in (("system", systems, self.systems), ("start", starts, self.start)):
            if wrong := [name for name in found if name is not None and name not in known]:
                raise ValueError(unknown(what, wrong[0], known))
        for name, entry in [*self.systems.items(), *self.start.items()]:
            if wrong := [key for key in entry if key not in ENTRY_KEYS]:
                raise ValueError(unknown(f"{name}: key", wrong[0], ENTRY_KEYS))

    def eval_options(self, folder: Path, data: Path | None) -> list[str]:
        """The options of `tmde eval run` for all systems."""
        options = [("--data", data), ("--max-length", self.max_length), ("--cache-dir", folder / "cache")]
        options += [("--tasks", task) for task in self.tasks]
        options += [("--set", f"{key}={json.dumps(value)}") for key, value in self.task_options.items()]
        found = [str(part) for option in options if option[1] is not None for part in option]
        return [*found, "--no-figures", "--folds" if self.folds else "--no-folds"]


@dataclass
class Training:
    """One training: a start, or a system with one seed.

    Args:
        name: Of its folders; `SYSTEM-SEED` of a system.
        title: In the table.
        folder: Of the comparison.
        start, tokenizer: The starts whose model and tokenizer it begins with.
    """

    name: str
    title: str
    recipe: Recipe
    folder: Path
    is_start: bool
    start: str | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        kind = "start" if self.is_start else "runs"
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
    content = read_yaml(name_or_path, "modeling_tmde.training.comparisons", "Comparison")
    trainings = []
    try:
        file = ComparisonFile(**content)
        for name, entry in file.start.items():
            recipe = _recipe(entry, file.shared, {**data, "training.seed": entry.get("seed", file.seeds[0])})
            trainings.append(Training(name, name, recipe, folder, is_start=True))
        for name, entry in file.systems.items():
            seeds, title = entry.get("seeds", file.seeds), entry.get("title", name)
            for seed in seeds:
                recipe = _recipe(entry, file.shared, {**data, "training.seed": seed})
                titled = title if seed == seeds[0] else f"{title}, seed {seed}"
                starts = entry.get("start"), file.tokenizer
                trainings.append(Training(f"{name}-{seed}", titled, recipe, folder, False, *starts))
                _begin_with_start(trainings[-1])
    except (KeyError, TypeError, ValueError, StrictDataclassError) as error:
        raise ValueError(f"{name_or_path}: {error.__cause__ or error}") from error
    for key in ("languages", "train", "dev", "max_rows"):
        if len({json.dumps(getattr(each.recipe.data, key)) for each in trainings}) > 1:
            raise ValueError(f"{name_or_path}: data.{key} differs; set it in shared.all, or with --train and --dev")
    options = [f"{key}={json.dumps(value)}" for key, value in file.task_options.items()]
    for planned in find_tasks(file.tasks, eval_data, options):
        if planned.source is None:
            raise ValueError(f"{name_or_path}: found no data of {planned.task.name}; give --eval-data, or NAME=SOURCE")
    return file, trainings


def _recipe(entry: dict[str, Any], shared: dict[str, dict], fixed: dict[str, Any]) -> Recipe:
    """The recipe with what is shared by all, by its architecture, its own overrides, and `fixed`, in this order."""
    recipe, own = load_recipe(str(entry["recipe"])), entry.get("overrides") or {}
    architecture = own.get("model.architecture", recipe.architecture)
    for values in (shared.get("all"), shared.get(architecture), own, fixed):
        for key, value in (values or {}).items():
            recipe.set(str(key), copy.deepcopy(value))
    for stage in filter(None, (recipe, stage_recipe(recipe))):  # errors now, not after hours
        stage.build_config()
        stage.build_objectives()
        stage.build_arguments("unused")
    return recipe


def _begin_with_start(training: Training) -> None:
    """Makes a run begin with its start, and read with the tokenizer of one. A first stage that is a bag, as in
    `small`, is what a start takes the place of; another first stage begins with it."""
    recipe, folder, stage = training.recipe, training.folder / "start", training.recipe.warm_start.recipe
    if training.start is not None:
        inner = "" if stage is None or load_recipe(stage).architecture == "bag" else "warm_start.overrides."
        recipe.set(f"{inner}warm_start.checkpoint", str(folder / training.start))
    if training.tokenizer is not None:
        for prefix in ("", "warm_start.overrides.") if stage is not None else ("",):
            recipe.set(f"{prefix}tokenizer.path", str(folder / training.tokenizer))


def open_folder(folder: Path, options: list[str], trainings: list[Training], overwrite: bool) -> None:
    """Makes the folder one of this comparison, and deletes what a changed file makes anew.

    Raises:
        ValueError: It holds other files, or another comparison and `overwrite` is not set.
    """
    record = folder / "comparison.yaml"
    if not record.exists() and any(folder.iterdir()):
        raise ValueError(f"-o {folder}: found other files, expected an empty folder or an earlier comparison")
    now = {each.name: yaml.safe_load(each.recipe.to_yaml()) for each in trainings} | {"evaluation": options}
    before = yaml.safe_load(record.read_text(encoding="utf-8")) if record.exists() else now
    changed = {name for name in now if before.get(name, now[name]) != now[name]}
    changed |= {each.name for each in trainings if changed & {each.start, each.tokenizer}}
    if changed and not overwrite:
        raise ValueError(
            f"{folder} holds another comparison; choose another folder, or --overwrite, which makes anew what the "
            f"changes concern and keeps the rest. Changed: {', '.join(sorted(changed))}"
        )
    for training in trainings:
        if training.name in changed:
            shutil.rmtree(training.run, ignore_errors=True)
        if changed & {training.name, "evaluation"}:
            shutil.rmtree(training.evaluation, ignore_errors=True)
        training.recipe_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(training.recipe_path, training.recipe.to_yaml())
    write_atomically(record, yaml.safe_dump(before | now, sort_keys=False, allow_unicode=True))


class Runner:
    """Trains and measures, several processes at a time. A failure is noted, and the others go on.

    Attributes:
        failures: What went wrong, by the name of a training.
    """

    def __init__(self, folder: Path, eval_options: list[str], jobs: int) -> None:
        self.folder, self.eval_options, self.jobs = folder, eval_options, jobs
        self.failures: dict[str, str] = {}

    def run(self, trainings: list[Training]) -> None:
        systems = [each for each in trainings if not each.is_start]
        needed = {name for each in systems for name in (each.start, each.tokenizer)}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                list(pool.map(self._finish, [each for each in trainings if each.is_start and each.name in needed]))
                list(pool.map(self._finish, systems))
            except KeyboardInterrupt:  # which reaches the processes, too
                pool.shutdown(cancel_futures=True)
                raise

    def _finish(self, training: Training) -> None:
        """Does what is not done of a training and its evaluation."""
        if lost := self.failures.keys() & {training.start, training.tokenizer}:
            self.failures[training.name] = f"needs the start {min(lost)}, which failed"
            return
        run, evaluation = training.run, training.evaluation
        if not (run / "results.json").is_file():
            goes_on = find_checkpoint(run) or (run / STAGE_FOLDER).is_dir()
            if not goes_on:
                shutil.rmtree(run, ignore_errors=True)
            self._process("train", training, training.recipe_path, "-o", run, *(["--resume"] if goes_on else []))
        if not (training.is_start or training.is_measured() or training.name in self.failures):
            shutil.rmtree(evaluation, ignore_errors=True)
            self._process("eval", training, f"{training.name}={run}", "-o", evaluation, *self.eval_options)

    def _process(self, command: str, training: Training, *arguments: str | Path) -> None:
        """Runs `tmde COMMAND` with the arguments in a process of its own."""
        log = self.folder / "logs" / f"{command}-{training.name}.log"
        log.parent.mkdir(exist_ok=True)
        threads = str(max(1, len(os.sched_getaffinity(0)) // self.jobs))
        typer.echo(f"{command} {training.name} ...")
        with open(log, "a", encoding="utf-8") as output:
            code = subprocess.run(
                [sys.executable, "-m", "modeling_tmde.cli.main", command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": threads, "RAYON_NUM_THREADS": threads},
            ).returncode
        typer.echo(f"{command} {training.name}: {'failed' if code else 'done'}")
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = next((line for line in reversed(lines) if "Error" in line), "no output")
            self.failures[training.name] = f"{command}: {last} (exit code {code}; log: {log})"


# ---- The table


def write_table(file: ComparisonFile, trainings: list[Training], failures: dict[str, str]) -> str:
    """Writes `table.md` of what is measured so far; returns the Markdown."""
    systems = [each for each in trainings if not each.is_start]
    measured = {each.name: each for each in systems if each.is_measured()}
    found = {name: read_results(each.evaluation) for name, each in measured.items()}
    results = {TFIDF: {each.task: each for part in found.values() for each in part if each.system == TFIDF}}
    results |= {name: {each.task: each for each in part if each.system != TFIDF} for name, part in found.items()}
    first = {name: f"{name}-{entry.get('seeds', file.seeds)[0]}" for name, entry in file.systems.items()}
    reference = first[file.reference or next(iter(first))]

    rows: list[dict[str, str]] = []
    chances: dict[str, str] = {}
    for name, by_task in results.items():
        row = {"system": measured[name].title if name in measured else name}
        tested = {} if name in (TFIDF, reference) else _differences(results, name, reference)
        for task, result in by_task.items():
            means, by_chance = _means(result), _means(result, "chance")
            for group, value in means.items():
                title = file.titles.get(task, task) + (f" {group}" if len(means) > 1 else "")
                row[title] = percent(value)
                chances[title] = "–" if np.isnan(by_chance[group]) else percent(by_chance[group])
                difference = tested.get((task, group))
                if difference is not None and difference.p < 0.05:
                    row[title] += " ▲" if difference.difference > 0 else " ▼"
        rows.append(row | (_costs(measured[name]) if name in measured else {}))
    header = list(dict.fromkeys(key for row in (*rows[1:], *rows) for key in row))
    table = [[row.get(key, "–") for key in header] for row in (*rows, {"system": "chance"} | chances)]
    escaped = [[markdown_escape(text) for text in row] for row in (header, *table)]
    lines = [f"# {markdown_escape(file.description)}", "", *markdown_table(escaped[0], escaped[1:]), ""]
    lines += [NOTE.format(markdown_escape(reference)), ""]
    for better, worse in file.contrasts:
        if tested := _differences(results, first[better], first[worse]):
            lines.append(differences_table(f"{better} - {worse}", list(tested.values())))
    if missing := [each.name for each in systems if each.name not in measured]:
        lines += [f"**Not measured:** {markdown_escape(', '.join(missing))}.", ""]
    lines += [f"- {markdown_escape(f'{name}: {reason}')}" for name, reason in failures.items()]
    text = "\n".join(lines).rstrip() + "\n"
    write_atomically(trainings[0].folder / "table.md", text)
    return text


def _means(result: TaskResult, of: str = "value") -> dict[str, float]:
    """Means of the groups `Same` and `Cross`, of the values of their cells or of `chance`."""
    groups = group_cells(result.cells)
    groups.pop("All")
    cells = np.array([getattr(cell, of) for cell in result.cells], dtype=float)  # None is NaN
    return {name: float(cells[places].mean()) for name, places in groups.items()}


def _differences(
    results: dict[str, dict[str, TaskResult]], system: str, other: str
) -> dict[tuple[str, str], Difference]:
    """Differences of a system from another by task and group."""
    ours, theirs = results.get(system, {}), results.get(other, {})
    found = [each for task in ours if task in theirs for each in compare_results(theirs[task], ours[task])]
    return {(each.task, each.group): each for each in found if each.group != "All"}


def _costs(training: Training) -> dict[str, str]:
    """CPU minutes of all that led to a model, words per CPU second of its own training, and parameters."""
    folders = [training.run, training.run / STAGE_FOLDER]
    if training.start is not None:
        folders.append(training.folder / "start" / training.start)
    results = [_read(folder / "results.json") for folder in folders]
    minutes = [each.get("cpu_minutes", 0) for each in results]
    words = results[0]["seen"]["source_words"] / (60 * minutes[0])
    parameters = _read(training.run / "run.json")["parameters"]
    texts = {"CPU minutes": f"{sum(minutes):.1f}", "words of pairs / CPU s": f"{words:,.0f}"}
    return texts | {"parameters": f"{parameters:,}"}


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


# ---- The command


def compare(
    comparison: Annotated[
        str, typer.Argument(metavar="COMPARISON", help="Name of one (papers, bilingual), or path of a YAML file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for everything that is made.")],
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    eval_data: Annotated[
        Path | None, typer.Option("--eval-data", help="Folder where the files of tasks are looked for.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time; they share the processor's cores.")] = 1,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="In the folder of another comparison, make anew what has changed."),
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
    file, trainings = load_comparison(comparison, output, {k: v for k, v in data.items() if v}, eval_data)
    output.mkdir(parents=True, exist_ok=True)
    options = file.eval_options(output, eval_data)
    runner = Runner(output, options, jobs)
    open_folder(output, options, trainings, overwrite)
    runner.run(trainings)
    typer.echo(write_table(file, trainings, runner.failures))
    typer.echo(f"Everything is in {output}/, the table in {output / 'table.md'}")
    if runner.failures:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in runner.failures.items()))
