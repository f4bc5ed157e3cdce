"""The command `tmde compare`: trains several systems on the same data, measures all, and writes one table with tests.

The folder of a comparison holds `comparison.yaml`, the recipe of each training in `recipes/`, the runs that others
begin with in `start/`, those of the systems in `runs/`, their evaluations in `eval/`, what each process printed in
`logs/`, and `table.md` and `table.json`.
"""

import copy
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import MODEL_MAPPING

from modeling_tmde.cli.evaluate import find_tasks
from modeling_tmde.data.io import environment, write_atomically
from modeling_tmde.eval.report import markdown_escape, markdown_table, percent
from modeling_tmde.eval.results import EVAL_NAME, TaskResult, group_cells, read_results
from modeling_tmde.eval.statistics import ComparisonError, Difference
from modeling_tmde.eval.statistics import compare as compare_results
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.building import STAGE_FOLDER, find_checkpoint, named_sources, stage_recipe
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe, read_yaml, unknown

TFIDF = "TF-IDF"
EVALUATION_KEYS = ("tasks", "task_options", "folds", "max_length", "eval_data")  # of the file, for all evaluations
LEVEL = 0.05
NEARLY = 0.95  # of its limit: a run ends with a whole step
NAMES = {
    "document_retrieval": "documents",
    "sentence_retrieval": "P@1 sentences",
    "sib200": "SIB-200",
    "topic_documents": "topics",
    "mldoc": "MLDoc",
    "xnli": "XNLI",
}
Column = tuple[str, str]  # task, and `Same` or `Cross`


@strict
@dataclass
class ComparisonFile:
    """
    A comparison file.

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
        named = [self.reference or next(iter(self.systems), None), *(name for pair in self.contrasts for name in pair)]
        starts = [self.tokenizer, *(entry.get("start") for entry in self.systems.values())]
        for what, found, known in (("system", named, self.systems), ("start", starts, self.start)):
            if wrong := [name for name in found if name is not None and name not in known]:
                raise ValueError(unknown(f"{what}", wrong[0], list(known)))
        for name, entry in [*self.systems.items(), *self.start.items()]:
            for key in entry:
                if key not in ("recipe", "start", "overrides", "seeds", "seed", "title"):
                    raise ValueError(unknown(f"{name}: key", key, ["recipe", "start", "overrides", "seeds", "title"]))
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

    @property
    def name(self) -> str:
        return self.system if self.is_start else f"{self.system}-{self.seed}"

    @property
    def run(self) -> Path:
        return self.folder / ("start" if self.is_start else "runs") / self.name

    @property
    def recipe_path(self) -> Path:
        return self.folder / "recipes" / f"{'start-' if self.is_start else ''}{self.name}.yaml"

    @property
    def evaluation(self) -> Path:
        return self.folder / "eval" / self.name

    def has_changed(self) -> bool:
        """Whether the run in the folder is of another recipe."""
        return self.recipe_path.exists() and self.recipe_path.read_text(encoding="utf-8") != self.recipe.to_yaml()

    def read(self, name: str, stage: bool = False) -> dict[str, Any]:
        """A JSON file of the run, or of its first stage; empty where there is none."""
        path = (self.run / STAGE_FOLDER if stage else self.run) / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def limits(self) -> dict[bool, float | None]:
        """The limits of CPU minutes of the run (False) and of its first stage (True)."""
        recipes = {False: self.recipe, True: stage_recipe(self.recipe)}
        return {k: each.sections["training"].get("max_cpu_minutes") for k, each in recipes.items() if each is not None}


# ---- The file


def load_comparison(
    name_or_path: str, folder: Path, data: dict[str, Any], eval_data: Path | None
) -> tuple[ComparisonFile, list[Training]]:
    """A comparison by its name or as a YAML file, with the recipe of each training.

    Args:
        data: Keys of the data section that all recipes get.

    Raises:
        ValueError: No such file, or a key, name or value that does not fit.
    """
    content = read_yaml(name_or_path, "modeling_tmde.training.comparisons", "Comparison")
    for key in content:
        if key not in ComparisonFile.__annotations__:
            raise ValueError(unknown(f"{name_or_path}: key", key, list(ComparisonFile.__annotations__)))
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


# ---- The folder and its processes


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
        told = ", ".join([*keys, *(f"recipe of {each.name}" for each in changed)])
        raise ValueError(
            f"{folder} holds another comparison; choose another folder, or --overwrite, which makes anew what the "
            f"changes concern and keeps the rest. Changed: {told}"
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
    """Trains and measures, several processes at a time. What fails does not cost the others."""

    def __init__(self, folder: Path, file: ComparisonFile, eval_data: Path | None, jobs: int, lock: int):
        self.folder, self.file, self.eval_data, self.jobs, self.lock = folder, file, eval_data, jobs, lock
        self.threads = max(1, len(os.sched_getaffinity(0)) // jobs)
        self.failures: dict[str, str] = {}
        self.running: list[subprocess.Popen] = []
        self.ended = False

    def run(self, trainings: list[Training]) -> None:
        systems = [each for each in trainings if not each.is_start]
        needed = {name for each in systems for name in each.needs}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                list(pool.map(self._train, [each for each in trainings if each.is_start and each.name in needed]))
                list(pool.map(self._train_and_evaluate, systems, [index == 0 for index in range(len(systems))]))
            except KeyboardInterrupt:
                self.ended = True
                for process in self.running:
                    if process.poll() is None:
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
        self._process(f"train {training.name}", ["train", str(training.recipe_path), "-o", str(run), *options])

    def _train_and_evaluate(self, training: Training, tfidf: bool) -> None:
        if lost := [name for name in training.needs if f"train {name}" in self.failures]:
            self.failures[f"train {training.name}"] = f"needs the start {lost[0]}, which failed"
            return
        self._train(training)
        if (training.evaluation / EVAL_NAME).is_file() or not (training.run / "results.json").is_file():
            return
        output = training.evaluation.with_name(f"{training.name}.tmp")
        arguments = ["eval", "run", f"{training.name}={training.run}", "-o", str(output), "--no-figures"]
        arguments += [part for task in self.file.tasks for part in ("--tasks", task)]
        arguments += [part for k, v in self.file.task_options.items() for part in ("--set", f"{k}={json.dumps(v)}")]
        arguments += ["--data", str(self.eval_data)] if self.eval_data else []
        arguments += ["--max-length", str(self.file.max_length)] if self.file.max_length is not None else []
        arguments += ["--tfidf" if tfidf else "--no-tfidf", "--folds" if self.file.folds else "--no-folds"]
        arguments += ["--cache-dir", str(self.folder / "cache")]
        shutil.rmtree(output, ignore_errors=True)
        if self._process(f"eval {training.name}", arguments):
            os.replace(output, training.evaluation)

    def _process(self, name: str, arguments: list[str]) -> bool:
        """Runs `tmde` with the arguments; returns whether it succeeded."""
        if self.ended:
            return False
        typer.echo(f"{name} ...")
        begin, log = time.monotonic(), self.folder / "logs" / f"{name.replace(' ', '-')}.log"
        log.parent.mkdir(exist_ok=True)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(self.threads))
        with open(log, "a", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "modeling_tmde.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C reaches it through us
                pass_fds=(self.lock,),  # the folder is locked as long as any of them works
            )
            self.running.append(process)
            code = process.wait()
        typer.echo(f"{name}: {'failed' if code else 'done'} after {(time.monotonic() - begin) / 60:.1f} minutes")
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = next((line for line in reversed(lines) if "Error" in line), (lines or ["no output"])[-1])
            self.failures[name] = f"{last} (exit code {code}; log: {log})"
        return not code


# ---- The table


@dataclass
class System:
    """A row of the table: values by column, one a seed; differences from the reference; and costs."""

    name: str
    title: str
    results: list[dict[str, TaskResult]] = field(default_factory=list)  # by task, one a seed
    values: dict[Column, list[float]] = field(default_factory=dict)
    differences: dict[Column, Difference] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)


def write_table(file: ComparisonFile, trainings: list[Training], failures: list[str]) -> str:
    """Writes `table.md` and `table.json` of what is measured so far; returns the Markdown."""
    systems = {name: System(name, entry.get("title", name)) for name, entry in file.systems.items()}
    tfidf: dict[str, TaskResult] = {}
    for training in (each for each in trainings if not each.is_start and (each.evaluation / EVAL_NAME).is_file()):
        results, row = read_results(training.evaluation), systems[training.system]
        tfidf |= {result.task: result for result in results if result.system == TFIDF and result.task not in tfidf}
        row.results.append({result.task: result for result in results if result.system != TFIDF})
        row.costs = row.costs or _costs(training, trainings)
    tasks = {task: result for row in systems.values() for found in row.results for task, result in found.items()}
    columns = [(task, group) for task, each in tasks.items() for group in group_cells(each.cells) if group != "All"]
    for row in systems.values():
        for column in columns:
            values = [_value(found.get(column[0]), column[1]) for found in row.results]
            row.values[column] = [value for value in values if value is not None]
    problems = [*_unequal(trainings), *failures]
    reference = systems[file.reference or next(iter(systems))]
    for row in systems.values():
        row.differences = _differences(reference, row, columns, problems) if row is not reference else {}
    titles = [_title(column, columns, file.titles) for column in columns]
    header = ["system", *titles, "CPU minutes", "words of pairs / CPU s", "parameters"]
    body = [
        [row.title, *(_cell(row, column) for column in columns), *_cost_cells(row.costs)] for row in systems.values()
    ]
    for name, found, of in ((TFIDF, tfidf, "value"), ("chance", tasks, "chance")):
        if found:
            cells = (percent(_value(found.get(task), group, of)) for task, group in columns)
            body.insert(0 if name == TFIDF else len(body), [name, *cells, *["–"] * 3])
    contrasts, contrast_rows = [], []
    for better, worse in file.contrasts:
        found = _differences(systems[worse], systems[better], columns, problems)
        contrasts.append({"better": better, "worse": worse, "measures": _by_title(found, file.titles)})
        cells = [_contrast_cell(found.get(column), systems[better], systems[worse], column) for column in columns]
        contrast_rows.append([f"{systems[better].title} - {systems[worse].title}", *cells])
    missing = [each.name for each in trainings if not each.is_start and not (each.evaluation / EVAL_NAME).is_file()]
    lines = [f"# {markdown_escape(file.description)}", "", *markdown_table(_escaped(header), map(_escaped, body)), ""]
    lines += [
        f"All in %. ▲ and ▼: above and below {markdown_escape(reference.title)} with p < {LEVEL} (approximate "
        "randomization over test items, first seeds, not corrected for the number of comparisons). ±: standard "
        "deviation over seeds; without it, the values are of one seed. Same: labels in the language of the test; "
        "Cross: in another. CPU minutes: of all threads, first stage and start included. Words: of both sides of all "
        "text pairs of the system's own training.",
        "",
    ]
    if told := [row.title for row in systems.values() if row.costs.get("told_languages")]:
        lines += [f"The models of {markdown_escape(', '.join(told))} are told the language of every text.", ""]
    if any(contrast["measures"] for contrast in contrasts):
        note = (
            "In points; in brackets p, bold below 0.05. Of several seeds: the mean, and how many agree with the first."
        )
        lines += ["## Contrasts", "", *markdown_table(["difference", *_escaped(titles)], contrast_rows), "", note, ""]
    if missing:
        lines += [f"**Not measured:** {markdown_escape(', '.join(missing))}.", ""]
    if problems:
        lines += ["## What to know", "", *(f"- {markdown_escape(text)}" for text in problems), ""]
    content = {
        **environment(),
        "description": file.description,
        "reference": reference.name,
        "tasks": {task: result.data for task, result in tasks.items()},
        "systems": {
            row.name: {
                "title": row.title,
                "values": _by_title(row.values, file.titles),
                "differences_from_reference": _by_title(row.differences, file.titles),
                **row.costs,
            }
            for row in systems.values()
        },
        "contrasts": contrasts,
        "problems": problems,
    }
    folder, text = trainings[0].folder, "\n".join(lines).rstrip() + "\n"
    write_atomically(folder / "table.md", text)
    write_atomically(folder / "table.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return text


def _escaped(texts: list[str]) -> list[str]:
    return [markdown_escape(text) for text in texts]


def _title(column: Column, columns: list[Column], titles: dict[str, str]) -> str:
    task, group = column
    kind, _, source = task.partition("/")
    name = titles.get(task) or f"{NAMES.get(kind, kind)} {source}".strip()
    return f"{name} {group}" if sum(other == task for other, _ in columns) > 1 else name


def _by_title(values: dict[Column, Any], titles: dict[str, str]) -> dict[str, Any]:
    plain = {key: asdict(value) if isinstance(value, Difference) else value for key, value in values.items()}
    return {_title(column, list(plain), titles): value for column, value in plain.items()}


def _value(result: TaskResult | None, group: str, of: str = "value") -> float | None:
    """Mean over the cells of a group of their values, or of their `chance`."""
    places = group_cells(result.cells).get(group, []) if result is not None else []
    values = [getattr(result.cells[place], of) for place in places]
    return float(np.mean(values)) if values and None not in values else None


def _differences(a: System, b: System, columns: list[Column], problems: list[str]) -> dict[Column, Difference]:
    """Of b from a, the first seeds of both."""
    found = {}
    for task in dict.fromkeys(task for task, _ in columns) if a.results and b.results else ():
        if task in a.results[0] and task in b.results[0]:
            try:
                for each in compare_results(a.results[0][task], b.results[0][task]):
                    found[task, each.group] = each
            except ComparisonError as error:
                problems.append(str(error))
    return {column: found[column] for column in columns if column in found}


def _cell(row: System, column: Column) -> str:
    """`93.1 ± 0.2 ▲`."""
    values, found = row.values[column], row.differences.get(column)
    if not values:
        return "–"
    text = percent(float(np.mean(values)))
    text += f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return text + (f" {'▲' if found.difference > 0 else '▼'}" if found is not None and found.p < LEVEL else "")


def _contrast_cell(found: Difference | None, better: System, worse: System, column: Column) -> str:
    """`**+1.2** (0.003, 3/3)`."""
    if found is None:
        return "–"
    firsts, seconds = better.values[column], worse.values[column]
    text, told = f"{100 * (np.mean(firsts) - np.mean(seconds)):+.1f}", f"{found.p:.2g}"
    if len(firsts) > 1 or len(seconds) > 1:
        count = max(len(firsts), len(seconds)) if 1 in (len(firsts), len(seconds)) else min(len(firsts), len(seconds))
        pairs = [(firsts[place % len(firsts)], seconds[place % len(seconds)]) for place in range(count)]
        told += f", {sum(np.sign(a - b) == np.sign(found.difference) for a, b in pairs)}/{count}"
    return f"**{text}** ({told})" if found.p < LEVEL else f"{text} ({told})"


def _costs(training: Training, trainings: list[Training]) -> dict[str, Any]:
    """Minutes of all that led to a model, words per CPU second of its own training, and parameters."""
    results, starts = training.read("results.json"), [each for each in trainings if each.is_start]
    begun = str((training.recipe.warm_start.checkpoint, training.recipe.warm_start.overrides))
    parts = [results, training.read("results.json", stage=True)]
    parts += [each.read("results.json") for each in starts if f"{str(each.run)}'" in begun]
    costs = {key: round(sum(part.get(key) or 0 for part in parts), 2) for key in ("minutes", "cpu_minutes")}
    words, minutes = results.get("seen", {}).get("source_words"), results.get("cpu_minutes")
    costs["words_per_cpu_second"] = words / (60 * minutes) if words and minutes else None
    encoder = MODEL_MAPPING[ARCHITECTURES[training.recipe.architecture].config]
    costs["told_languages"] = getattr(encoder, "needs_language_ids", False)
    return {**costs, "steps": results.get("steps"), "parameters": training.read("run.json").get("parameters")}


def _cost_cells(costs: dict[str, Any]) -> list[str]:
    formats = {"cpu_minutes": "{:.1f}", "words_per_cpu_second": "{:,.0f}", "parameters": "{:,}"}
    return ["–" if costs.get(key) is None else text.format(costs[key]) for key, text in formats.items()]


def _unequal(trainings: list[Training]) -> list[str]:
    """What keeps the systems from being compared as equals: limits, and data, versions or machines that differ."""
    systems = [each for each in trainings if not each.is_start]
    notes = []
    if open_ended := [each.name for each in systems if None in each.limits().values()]:
        notes.append(f"Without a limit of CPU minutes (max_cpu_minutes): {', '.join(open_ended)}")
    early = []
    for each in trainings:
        for stage, limit in each.limits().items():
            spent = each.read("results.json", stage).get("cpu_minutes")
            if spent is not None and limit and spent < NEARLY * limit:
                early.append(f"{each.name}{' (first stage)' if stage else ''} after {spent:g} of {limit:g}")
    if early:
        notes.append(f"Ended before its limit of CPU minutes: {', '.join(early)}")
    records = {each: each.read("run.json") for each in systems}
    for key in ("data", "versions", "machine", "tmde"):
        found = {
            each.name: (each.seed, json.dumps(rec.get(key), sort_keys=True)) for each, rec in records.items() if rec
        }
        if key != "data":  # which rows are held out and how they are mixed depends on the seed
            found = {name: (0, value) for name, (_, value) in found.items()}
        usual = {
            seed: Counter(v for s, v in found.values() if s == seed).most_common(1)[0][0] for seed, _ in found.values()
        }
        if others := [name for name, (seed, value) in found.items() if value != usual[seed]]:
            notes.append(f"Not the same in all runs: {key} ({', '.join(others)} unlike the rest)")
    return notes


# ---- The command


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

    Run again, it goes on where it stopped: what is finished is kept. A system that fails does not cost the others.

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
    with open(output / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{output}: another `tmde compare`, or a process of one, is at work in it") from None
        open_folder(output, file, eval_data, trainings, overwrite)
        runner = Runner(output, file, eval_data, jobs, lock.fileno())
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        runner.run([each for each in trainings if each.is_start or not only or each.system in only])
        failures = [f"{name}: {reason}" for name, reason in runner.failures.items()]
        typer.echo(write_table(file, trainings, failures))
    typer.echo(f"Everything is in {output}/, the table in {output / 'table.md'}")
    for failure in failures:
        typer.echo(f"Error: {failure}", err=True)
    if failures:
        raise typer.Exit(1)
