"""The command `tmde compare`: trains several systems on the same data, measures all, and writes one table with tests.

The folder of a comparison holds `comparison.yaml`, the recipe of each training in `recipes/`, the runs that others
begin with in `start/`, those of the systems in `runs/`, their evaluations in `eval/`, what each process printed in
`logs/`, and `table.md` and `table.json`.
"""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml
from filelock import FileLock, Timeout
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import MODEL_MAPPING

from modeling_tmde.cli.evaluate import find_tasks
from modeling_tmde.data.io import environment, write_atomically
from modeling_tmde.eval.report import differences_table, markdown_escape, markdown_table, percent
from modeling_tmde.eval.results import EVAL_NAME, TaskResult, group_cells, read_results
from modeling_tmde.eval.statistics import ComparisonError, Difference
from modeling_tmde.eval.statistics import compare as compare_results
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.building import STAGE_FOLDER, find_checkpoint, named_sources, stage_recipe
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe, read_yaml, unknown

TFIDF = "TF-IDF"
EVALUATION_KEYS = ("tasks", "task_options", "folds", "max_length", "eval_data")  # of the file, for all evaluations
ENTRY_KEYS = ("recipe", "start", "overrides", "seeds", "seed", "title")
LEVEL = 0.05
NAMES = {
    "document_retrieval": "documents",
    "sentence_retrieval": "P@1 sentences",
    "sib200": "SIB-200",
    "topic_documents": "topics",
    "mldoc": "MLDoc",
    "xnli": "XNLI",
}


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
                raise ValueError(unknown(what, wrong[0], list(known)))
        for name, entry in [*self.systems.items(), *self.start.items()]:
            if wrong := [key for key in entry if key not in ENTRY_KEYS]:
                raise ValueError(unknown(f"{name}: key", wrong[0], ENTRY_KEYS))
            if "recipe" not in entry:
                raise ValueError(f"{name}: found no 'recipe', expected the name of one, or a path")


@dataclass(eq=False)
class Training:
    """One training: a start, or a system with one seed."""

    system: str
    seed: int
    recipe: Recipe
    folder: Path  # of the comparison
    needs: list[str] = field(default_factory=list)  # names of starts
    is_start: bool = False

    def __post_init__(self) -> None:
        self.name = self.system if self.is_start else f"{self.system}-{self.seed}"
        self.run = self.folder / ("start" if self.is_start else "runs") / self.name
        self.recipe_path = self.folder / "recipes" / f"{'start-' if self.is_start else ''}{self.name}.yaml"
        self.evaluation = self.folder / "eval" / self.name

    def is_measured(self) -> bool:
        return not self.is_start and (self.evaluation / EVAL_NAME).is_file()

    def has_changed(self) -> bool:
        """Whether the run in the folder is of another recipe."""
        return self.recipe_path.exists() and self.recipe_path.read_text(encoding="utf-8") != self.recipe.to_yaml()

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the run; empty where there is none."""
        path = self.run / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


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
    if wrong := [key for key in content if key not in ComparisonFile.__annotations__]:
        raise ValueError(unknown(f"{name_or_path}: key", wrong[0], list(ComparisonFile.__annotations__)))
    try:
        file = ComparisonFile(**content)
    except (TypeError, StrictDataclassError) as error:
        raise ValueError(f"{name_or_path}: {error.__cause__ or error}") from error
    trainings = []
    for name, entry in [*file.start.items(), *file.systems.items()]:
        is_start = len(trainings) < len(file.start)
        for seed in [entry.get("seed", file.seeds[0])] if is_start else entry.get("seeds", file.seeds):
            try:
                recipe = _recipe(entry, file.shared, {**data, "training.seed": seed})
                training = Training(name, seed, recipe, folder, is_start=is_start)
                if not is_start:
                    _begin_with(training, entry.get("start"), file.tokenizer)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name_or_path}: {name}: {error}") from error
            trainings.append(training)
    for key in ("languages", "train", "dev", "max_rows"):
        if len({json.dumps(getattr(each.recipe.data, key)) for each in trainings}) > 1:
            raise ValueError(f"{name_or_path}: data.{key} differs; set it in shared.all, or with --train and --dev")
    if trainings[0].recipe.data.train is None:
        raise ValueError(f"{name_or_path}: found no training data; give --train, or data.train in shared.all")
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
    for stage in filter(None, (recipe, stage_recipe(recipe))):
        stage.build_config()
        stage.build_objectives()
        stage.build_arguments("unused")
    return recipe


def _begin_with(training: Training, start: str | None, tokenizer: str | None) -> None:
    """Makes a run begin with a start, and read with the tokenizer of one. A first stage that is a bag, as in `small`,
    is what a start takes the place of; another first stage begins with it."""
    recipe, folder, stage = training.recipe, training.folder / "start", training.recipe.warm_start.recipe
    training.needs = [name for name in (start, tokenizer) if name is not None]
    inner = "" if stage is None or load_recipe(stage).architecture == "bag" else "warm_start.overrides."
    if start is not None:
        recipe.set(f"{inner}warm_start.checkpoint", str(folder / start))
    if tokenizer is not None:
        recipe.set("tokenizer.path", str(folder / tokenizer))
        if stage is not None:
            recipe.set("warm_start.overrides.tokenizer.path", str(folder / tokenizer))


def open_folder(
    folder: Path, file: ComparisonFile, eval_data: Path | None, trainings: list[Training], overwrite: bool
) -> None:
    """Makes the folder one of this comparison, and deletes what a changed file makes anew.

    Raises:
        ValueError: It holds other files, or another comparison and `overwrite` is not set.
    """
    record = folder / "comparison.yaml"
    now = {**asdict(file), "eval_data": str(eval_data) if eval_data else None}
    if not record.exists() and any(path.name != ".lock" for path in folder.iterdir()):
        raise ValueError(f"-o {folder}: found other files, expected an empty folder or an earlier comparison")
    before = yaml.safe_load(record.read_text(encoding="utf-8")) if record.exists() else now
    changed = [each for each in trainings if each.has_changed()]
    starts = {each.name for each in changed if each.is_start}
    changed += [each for each in trainings if each not in changed and starts.intersection(each.needs)]
    keys = [key for key in now if before.get(key) != now[key]]
    if (keys or changed) and not overwrite:
        listed = ", ".join([*keys, *(f"recipe of {each.name}" for each in changed)])
        raise ValueError(
            f"{folder} holds another comparison; choose another folder, or --overwrite, which makes anew what the "
            f"changes concern and keeps the rest. Changed: {listed}"
        )
    for training in trainings:
        if training in changed:
            shutil.rmtree(training.run, ignore_errors=True)
        if training in changed or set(EVALUATION_KEYS) & set(keys):
            shutil.rmtree(training.evaluation, ignore_errors=True)
        training.recipe_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(training.recipe_path, training.recipe.to_yaml())
    write_atomically(record, yaml.safe_dump(now, sort_keys=False, allow_unicode=True))


class Runner:
    """Trains and measures, several processes at a time. A failure is noted, and the others go on.

    Attributes:
        failures: What went wrong, by the name of a training.
    """

    def __init__(self, folder: Path, file: ComparisonFile, eval_data: Path | None, jobs: int) -> None:
        self.folder, self.jobs = folder, jobs
        self.failures: dict[str, str] = {}
        self.running: list[subprocess.Popen] = []
        options = [("--data", eval_data), ("--max-length", file.max_length), ("--cache-dir", folder / "cache")]
        options += [("--tasks", task) for task in file.tasks]
        options += [("--set", f"{key}={json.dumps(value)}") for key, value in file.task_options.items()]
        self.eval_options = [str(part) for option in options if option[1] is not None for part in option]
        self.eval_options += ["--no-figures", "--folds" if file.folds else "--no-folds"]

    def run(self, trainings: list[Training]) -> None:
        systems = [each for each in trainings if not each.is_start]
        needed = {name for each in systems for name in each.needs}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                list(pool.map(self._train, [each for each in trainings if each.is_start and each.name in needed]))
                list(pool.map(self._train_and_evaluate, systems))
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in self.running:
                    process.send_signal(signal.SIGINT)
                raise

    def _train(self, training: Training) -> None:
        run, stage = training.run, training.run / STAGE_FOLDER
        if (run / "results.json").is_file():
            return
        goes_on = find_checkpoint(run) or find_checkpoint(stage) or (stage / "results.json").is_file()
        if not goes_on:
            shutil.rmtree(run, ignore_errors=True)
        options = ["--resume"] if goes_on else []
        self._process("train", training, str(training.recipe_path), "-o", str(run), *options)

    def _train_and_evaluate(self, training: Training) -> None:
        if lost := [name for name in training.needs if name in self.failures]:
            self.failures[training.name] = f"needs the start {lost[0]}, which failed"
            return
        self._train(training)
        if training.is_measured() or training.name in self.failures:
            return
        output = training.evaluation.with_name(f"{training.name}.tmp")
        shutil.rmtree(output, ignore_errors=True)
        self._process("eval", training, f"{training.name}={training.run}", "-o", str(output), *self.eval_options)
        if training.name not in self.failures:
            os.replace(output, training.evaluation)

    def _process(self, command: str, training: Training, *arguments: str) -> None:
        """Runs `tmde COMMAND` with the arguments in a process of its own."""
        log = self.folder / "logs" / f"{command}-{training.name}.log"
        log.parent.mkdir(exist_ok=True)
        threads = str(max(1, len(os.sched_getaffinity(0)) // self.jobs))
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), threads)
        typer.echo(f"{command} {training.name} ...")
        with open(log, "a", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "modeling_tmde.cli.main", command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **limits},
                start_new_session=True,  # Ctrl-C reaches it through us
            )
            self.running.append(process)
            code = process.wait()
        typer.echo(f"{command} {training.name}: {'failed' if code else 'done'}")
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or ["no output"]
            last = next((line for line in reversed(lines) if "Error" in line), lines[-1])
            self.failures[training.name] = f"{command}: {last} (exit code {code}; log: {log})"


def write_table(file: ComparisonFile, trainings: list[Training], failures: dict[str, str]) -> str:
    """Writes `table.md` and `table.json` of what is measured so far; returns the Markdown."""
    results: dict[str, list[dict[str, TaskResult]]] = {name: [] for name in (TFIDF, *file.systems)}  # one a seed
    for training in filter(Training.is_measured, trainings):
        found = read_results(training.evaluation)
        results[training.system].append({each.task: each for each in found if each.system != TFIDF})
        results[TFIDF] = results[TFIDF] or [{each.task: each for each in found if each.system == TFIDF}]
    tasks = {task: result for seeds in results.values() for by_task in seeds for task, result in by_task.items()}
    columns = _columns(tasks, file.titles)
    values = {
        name: {title: _values(seeds, *column) for title, column in columns.items()} for name, seeds in results.items()
    }
    notes = [*_notes(trainings), *(f"{name}: {reason}" for name, reason in failures.items())]
    reference = file.reference or next(iter(file.systems))
    against = {name: _differences(results, name, reference, notes) for name in file.systems if name != reference}
    contrasts = [(better, worse, _differences(results, better, worse, notes)) for better, worse in file.contrasts]
    costs = {each.system: _costs(each, trainings) for each in reversed(trainings) if each.is_measured()}
    titles = {name: file.systems.get(name, {}).get("title", name) for name in results}

    body = []
    for name in results:
        tested = {(each.task, each.group): each for each in against.get(name, [])}
        cells = [_cell(values[name][title], tested.get(column)) for title, column in columns.items()]
        body.append([titles[name], *cells, *_cost_cells(costs.get(name, {}))])
    chances = [percent(_mean(tasks[task], group, "chance")) for task, group in columns.values()]
    body.append(["chance", *chances, "–", "–", "–"])
    header = ["system", *columns, "CPU minutes", "words of pairs / CPU s", "parameters"]
    escaped = [[markdown_escape(text) for text in row] for row in (header, *body)]
    note = (
        f"All in %. ▲ and ▼: above and below {markdown_escape(titles[reference])} with p < {LEVEL} (approximate "
        "randomization over test items, first seeds, not corrected for the number of comparisons). ±: standard "
        "deviation over seeds. Same: labels in the language of the test; Cross: in another. CPU minutes: of all "
        "threads, first stage and start included. Words: of both sides of all text pairs of the system's own training."
    )
    lines = [f"# {markdown_escape(file.description)}", "", *markdown_table(escaped[0], escaped[1:]), "", note, ""]
    for better, worse, found in contrasts:
        lines += [differences_table(f"{titles[better]} - {titles[worse]}", found)] if found else []
    if missing := [each.name for each in trainings if not each.is_start and not each.is_measured()]:
        lines += [f"**Not measured:** {markdown_escape(', '.join(missing))}.", ""]
    lines += ["## What to know", "", *(f"- {markdown_escape(text)}" for text in notes), ""] if notes else []
    content = {
        **environment(),
        "description": file.description,
        "reference": reference,
        "tasks": {task: result.data for task, result in tasks.items()},
        "systems": {
            name: {
                "title": titles[name],
                "values": values[name],
                "differences_from_reference": [asdict(each) for each in against.get(name, [])],
                **costs.get(name, {}),
            }
            for name in results
        },
        "contrasts": [
            {"better": better, "worse": worse, "differences": [asdict(each) for each in found]}
            for better, worse, found in contrasts
        ],
        "notes": notes,
    }
    folder, text = trainings[0].folder, "\n".join(lines).rstrip() + "\n"
    write_atomically(folder / "table.md", text)
    write_atomically(folder / "table.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return text


def _columns(tasks: dict[str, TaskResult], titles: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Task and group of cells (`Same`, `Cross`) of each column, by its title."""
    columns = {}
    for task, result in tasks.items():
        kind, _, source = task.partition("/")
        title = titles.get(task) or f"{NAMES.get(kind, kind)} {source}".strip()
        groups = [group for group in group_cells(result.cells) if group != "All"]
        columns |= {f"{title} {group}" if len(groups) > 1 else title: (task, group) for group in groups}
    return columns


def _mean(result: TaskResult, group: str, of: str = "value") -> float | None:
    """Mean over the cells of a group of their values, or of their `chance`."""
    found = [getattr(result.cells[place], of) for place in group_cells(result.cells).get(group, [])]
    return float(np.mean(found)) if found and None not in found else None


def _values(seeds: list[dict[str, TaskResult]], task: str, group: str) -> list[float]:
    found = [_mean(by_task[task], group) for by_task in seeds if task in by_task]
    return [value for value in found if value is not None]


def _differences(
    results: dict[str, list[dict[str, TaskResult]]], system: str, other: str, notes: list[str]
) -> list[Difference]:
    """Differences of a system from another, of the first seeds of both."""
    if not results[system] or not results[other]:
        return []
    ours, theirs = results[system][0], results[other][0]
    found = []
    for task in (task for task in ours if task in theirs):
        try:
            found += [each for each in compare_results(theirs[task], ours[task]) if each.group != "All"]
        except ComparisonError as error:
            notes.append(str(error))
    return found


def _cell(values: list[float], difference: Difference | None) -> str:
    """`93.1 ± 0.2 ▲`."""
    if not values:
        return "–"
    text = percent(float(np.mean(values)))
    text += f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    if difference is None or difference.p >= LEVEL:
        return text
    return f"{text} {'▲' if difference.difference > 0 else '▼'}"


def _costs(training: Training, trainings: list[Training]) -> dict[str, Any]:
    """Minutes of all that led to a model, words per CPU second of its own training, and parameters."""
    results, start = training.read("results.json"), training.recipe.warm_start
    begun = str((start.checkpoint, start.overrides))
    parts = [results, training.read(f"{STAGE_FOLDER}/results.json")]
    parts += [each.read("results.json") for each in trainings if each.is_start and f"{str(each.run)}'" in begun]
    costs = {key: round(sum(part.get(key) or 0 for part in parts), 2) for key in ("minutes", "cpu_minutes")}
    words, minutes = results.get("seen", {}).get("source_words"), results.get("cpu_minutes")
    costs["words_per_cpu_second"] = words / (60 * minutes) if words and minutes else None
    return {**costs, "steps": results.get("steps"), "parameters": training.read("run.json").get("parameters")}


def _cost_cells(costs: dict[str, Any]) -> list[str]:
    formats = {"cpu_minutes": "{:.1f}", "words_per_cpu_second": "{:,.0f}", "parameters": "{:,}"}
    return ["–" if costs.get(key) is None else text.format(costs[key]) for key, text in formats.items()]


def _notes(trainings: list[Training]) -> list[str]:
    """What keeps the systems from being compared as equals."""
    systems = [each for each in trainings if not each.is_start]
    models = {each.system: MODEL_MAPPING[ARCHITECTURES[each.recipe.architecture].config] for each in systems}
    informed = [name for name, model in models.items() if getattr(model, "needs_language_ids", False)]
    unlimited = [each.name for each in systems if each.recipe.sections["training"].get("max_cpu_minutes") is None]
    notes = [f"These models are told the language of every text: {', '.join(informed)}"] if informed else []
    notes += [f"Without a limit of CPU minutes (max_cpu_minutes): {', '.join(unlimited)}"] if unlimited else []
    runs = [run for each in systems if (run := each.read("run.json"))]
    unequal = [key for key in ("versions", "machine", "tmde") if any(run.get(key) != runs[0].get(key) for run in runs)]
    return notes + ([f"Not the same in all runs: {', '.join(unequal)}"] if unequal else [])


def compare(
    comparison: Annotated[
        str, typer.Argument(metavar="COMPARISON", help="Name of one (papers, bilingual), or path of a YAML file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for everything that is made.")],
    train_data: Annotated[
        list[str] | None,
        typer.Option("--train", help="Parallel text for every system: file, folder, glob, Hub id or 'sample'."),
    ] = None,
    dev_data: Annotated[
        list[str] | None, typer.Option("--dev", help="Held-out rows, [NAME=]SOURCE. Repeatable.")
    ] = None,
    eval_data: Annotated[
        Path | None, typer.Option("--eval-data", help="Folder where the files of tasks are looked for.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time; they share the processor's cores.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Train and measure this system alone. Repeatable.")
    ] = None,
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
    data: dict[str, Any] = {"data.train": train_data[0] if train_data and len(train_data) == 1 else train_data}
    data["data.dev"] = named_sources(dev_data) if dev_data else None
    file, trainings = load_comparison(comparison, output, {k: v for k, v in data.items() if v}, eval_data)
    if wrong := set(only or ()) - set(file.systems):
        raise RecipeError(unknown("--only: system", min(wrong), list(file.systems)))
    output.mkdir(parents=True, exist_ok=True)
    runner = Runner(output, file, eval_data, jobs)
    try:
        with FileLock(output / ".lock", timeout=0):
            open_folder(output, file, eval_data, trainings, overwrite)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            runner.run([each for each in trainings if each.is_start or not only or each.system in only])
            typer.echo(write_table(file, trainings, runner.failures))
    except Timeout:
        raise ValueError(f"{output}: another `tmde compare` is at work in it") from None
    typer.echo(f"Everything is in {output}/, the table in {output / 'table.md'}")
    for name, reason in runner.failures.items():
        typer.echo(f"Error: {name}: {reason}", err=True)
    if runner.failures:
        raise typer.Exit(1)
