"""A comparison file: which systems are trained and measured side by side, checked before anything is trained."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from modeling_tmde.cli.compare_values import (
    ComparisonFileError,
    check_known,
    check_mapping,
    check_names,
    check_seeds,
    check_typed,
)
from modeling_tmde.cli.evaluate import find_tasks
from modeling_tmde.data.io import PlainLoader
from modeling_tmde.training.building import stage_recipe
from modeling_tmde.training.recipe import ARCHITECTURES, Recipe, RecipeError, load_recipe

KEYS = {
    "description", "shared", "start", "systems", "reference", "tasks", "task_options", "contrasts", "seeds", "titles",
    "folds", "tokenizer", "max_length",
}  # fmt: skip
SYSTEM_KEYS = {"recipe", "start", "overrides", "seeds", "title"}
START_KEYS = {"recipe", "overrides", "seed"}
NAME = re.compile(r"[\w.+-]*\w")
DEFAULT_SEEDS = (42,)


@dataclass(frozen=True)
class Training:
    """One training: what the system is called, and the seed.

    Args:
        system: Its name in the comparison file; of a start, the start's.
        start: Name of the start it begins with, or None.
        tokenizer: Name of the start whose tokenizer it takes, or None.
        is_start: Whether it is itself something that others begin with.
    """

    system: str
    seed: int
    recipe: Recipe
    start: str | None = None
    tokenizer: str | None = None
    is_start: bool = False

    @property
    def needs(self) -> list[str]:
        """The starts that must be there before."""
        return list(dict.fromkeys(name for name in (self.start, self.tokenizer) if name is not None))

    @property
    def name(self) -> str:
        """Of its folder and its log."""
        return self.system if self.is_start else f"{self.system}-{self.seed}"

    @property
    def job(self) -> str:
        """Different for every training of a comparison."""
        return f"start {self.system}" if self.is_start else f"train {self.name}"


@dataclass(frozen=True)
class Comparison:
    """A comparison file with nothing left open.

    Args:
        trainings: Starts first, then every system with every seed, in the order of the file.
        reference: The system that the others are tested against.
        max_length: Tokens at which the texts of tasks are cut, or None for what each system takes.
        contrasts: Pairs of systems of which the first is expected to be the better one.
        titles, task_titles: What tables call systems and tasks, where that is another name.
        folds: Whether classification runs the ten folds of thesis 4.6, too.
        resolved: The content of the file with the defaults and the command line's data, as it is kept in the folder.
    """

    trainings: list[Training]
    reference: str
    tasks: list[str]
    task_options: dict[str, Any]
    max_length: int | None
    contrasts: list[tuple[str, str]]
    titles: dict[str, str]
    task_titles: dict[str, str]
    folds: bool
    description: str
    resolved: dict[str, Any] = field(repr=False)

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(each.system for each in self.trainings if not each.is_start))

    @property
    def eval_data(self) -> str | None:
        """Folder where the files of tasks are looked for."""
        return self.resolved["eval_data"]

    def budget_notes(self) -> list[str]:
        """What keeps the systems from having equal time: none, or other limits of CPU minutes than the others."""
        budgets = {each.system: self._budget(each) for each in self.trainings if not each.is_start}
        notes = []
        if open_ended := [name for name, minutes in budgets.items() if minutes is None]:
            notes.append(
                f"Without a limit of CPU minutes (max_cpu_minutes, of a first stage also): {', '.join(open_ended)}"
            )
        limits: dict[float, list[str]] = {}
        for name, minutes in budgets.items():
            if minutes is not None:
                limits.setdefault(minutes, []).append(name)
        if len(limits) > 1:
            usual = max(limits, key=lambda minutes: len(limits[minutes]))
            parts = [f"{each:g} of {', '.join(names)}" for each, names in limits.items() if each != usual]
            told = "; ".join([*parts, f"{usual:g} of the others"])
            notes.append(f"The limits of CPU minutes differ, starts and first stages included: {told}")
        return notes

    def _budget(self, training: Training) -> float | None:
        """CPU minutes of all that leads to a model."""
        recipes = [training.recipe, stage_recipe(training.recipe)]
        recipes += [each.recipe for each in self.trainings if each.is_start and each.system == training.start]
        minutes = [recipe.sections["training"].get("max_cpu_minutes") for recipe in recipes if recipe is not None]
        return None if None in minutes else round(sum(minutes), 6)


def comparison_names() -> list[str]:
    """The comparisons that come with the package."""
    folder = resources.files("modeling_tmde.training.comparisons")
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_comparison(
    name_or_path: str,
    folder: Path,
    train: Sequence[str] | None = None,
    dev: Mapping[str, str] | None = None,
    eval_data: Path | None = None,
) -> Comparison:
    """Opens a comparison by its name or as a YAML file, and settles the recipe of each training.

    Args:
        folder: Of the comparison, where starts will be found.
        train, dev: Data of every training, in place of the recipes'.
        eval_data: Where the files of tasks are looked for; kept in `resolved`.

    Raises:
        ComparisonFileError: No such file, or a key, name or value that does not fit, named with its file.
    """
    content = _read(name_or_path)
    where = name_or_path
    for section in ("shared", "start", "systems", "titles", "task_options"):
        content[section] = check_mapping(content.get(section), f"{where}: {section}")
    _check_shared(content["shared"], where)
    if not content["systems"]:
        raise ComparisonFileError(f"{where}: systems: found none, expected at least one")
    data = {"data.train": train[0] if train and len(train) == 1 else list(train or []), "data.dev": dict(dev or {})}
    data = {key: value for key, value in data.items() if value}
    seeds = check_seeds(content.get("seeds", list(DEFAULT_SEEDS)), f"{where}: seeds")
    trainings, wrong = _trainings(content, data, where, seeds, folder)
    if wrong:
        raise ComparisonFileError("\n".join(wrong))
    _check_alike(trainings, where)
    tasks = check_names(content.get("tasks", ["all"]), f"{where}: tasks")
    _check_tasks(tasks, content["task_options"], eval_data, where)
    resolved = {**content, "seeds": seeds, "data": data, "eval_data": str(eval_data) if eval_data else None}
    return Comparison(
        trainings=trainings,
        reference=_reference(content, where),
        tasks=tasks,
        task_options=content["task_options"],
        max_length=_max_length(content.get("max_length"), f"{where}: max_length"),
        contrasts=_contrasts(content, where),
        titles={name: entry["title"] for name, entry in content["systems"].items() if "title" in entry},
        task_titles=_titles(content["titles"], f"{where}: titles"),
        folds=check_typed(content.get("folds", False), bool, f"{where}: folds", "true or false"),
        description=check_typed(content.get("description", ""), str, f"{where}: description", "text"),
        resolved=resolved,
    )


def _trainings(
    content: dict[str, Any], data: dict[str, Any], where: str, seeds: list[int], folder: Path
) -> tuple[list[Training], list[str]]:
    """All trainings; and what is wrong with those that are not among them, one line each."""
    trainings: list[Training] = []
    wrong: list[str] = []
    for section, make in (("start", _start), ("systems", _system)):
        for name, entry in content[section].items():
            try:
                trainings += make(name, entry, content, data, where, seeds, folder)
            except ComparisonFileError as error:
                wrong.append(str(error))
    return trainings, wrong


def _read(name_or_path: str) -> dict[str, Any]:
    if name_or_path in comparison_names():
        text = (
            resources.files("modeling_tmde.training.comparisons").joinpath(f"{name_or_path}.yaml").read_text("utf-8")
        )
    elif Path(name_or_path).is_file():
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ComparisonFileError(
                f"{name_or_path} is not YAML: found bytes that are not UTF-8 ({error})"
            ) from error
    else:
        raise ComparisonFileError(
            f"There is no comparison {name_or_path!r}: give the path of a YAML file or one of "
            f"{', '.join(comparison_names())}"
        )
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ComparisonFileError(f"{name_or_path} is not YAML: {error}") from error
    content = check_mapping(content, name_or_path)
    for key in content:
        check_known(key, KEYS, f"{name_or_path}: key")
    return content


class _Loader(PlainLoader):
    """As of recipes, and refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        given = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in given]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"found the key {twice!r} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _start(
    name: str, entry: Any, content: dict[str, Any], data: dict[str, Any], where: str, seeds: list[int], folder: Path
) -> list[Training]:
    what = f"{where}: start.{name}"
    entry = _entry(name, entry, START_KEYS, what)
    (seed,) = check_seeds([entry.get("seed", seeds[0])], f"{what}.seed")
    recipe = _recipe(entry, name, content["shared"], {**data, "training.seed": seed}, what)
    return [Training(name, seed, recipe, is_start=True)]


def _system(
    name: str, entry: Any, content: dict[str, Any], data: dict[str, Any], where: str, seeds: list[int], folder: Path
) -> list[Training]:
    what = f"{where}: systems.{name}"
    entry = _entry(name, entry, SYSTEM_KEYS, what)
    check_typed(entry.get("title", name), str, f"{what}.title", "text")
    start = entry.get("start")
    if start is not None:
        check_known(start, set(content["start"]), f"{what}.start: the start")
    tokenizer = content.get("tokenizer")
    if tokenizer is not None:
        check_known(tokenizer, set(content["start"]), f"{where}: tokenizer: the start")
    trainings = []
    for seed in check_seeds(entry.get("seeds", seeds), f"{what}.seeds"):
        recipe = _recipe(entry, f"{name}-{seed}", content["shared"], {**data, "training.seed": seed}, what)
        if start is not None:
            _begin_with(recipe, folder / "start" / start, what)
        if tokenizer is not None:
            _read_with(recipe, folder / "start" / tokenizer)
        trainings.append(Training(name, seed, recipe, start, tokenizer))
    return trainings


def _recipe(entry: dict[str, Any], name: str, shared: dict[str, Any], fixed: dict[str, Any], what: str) -> Recipe:
    """The recipe with what is shared by all, by its architecture, its own overrides, and `fixed`, in this order."""
    own = check_mapping(entry.get("overrides"), f"{what}.overrides")
    for key in ("seed", "training.seed"):
        if key in own:
            raise ComparisonFileError(f"{what}.overrides: found {key}, expected 'seed' or 'seeds' beside 'recipe'")
    try:
        recipe = load_recipe(str(entry["recipe"]))
        recipe.name = name
        architecture = own.get("model.architecture", recipe.architecture)
        for values in (shared.get("all"), shared.get(architecture), own, fixed):
            for key, value in (values or {}).items():
                recipe.set(str(key), copy.deepcopy(value))
        for stage in filter(None, (recipe, stage_recipe(recipe))):
            stage.build_config()
            stage.build_objectives()
            stage.build_arguments("unused")
    except (RecipeError, TypeError, ValueError) as error:
        raise ComparisonFileError(f"{what}: {error}") from error
    return recipe


def _begin_with(recipe: Recipe, checkpoint: Path, what: str) -> None:
    """Makes a run begin with a start: itself, or the first stage of a recipe that has one.

    A first stage that is a bag, as in `small`, is what a start takes the place of.
    """
    warm_start = recipe.warm_start
    if warm_start.checkpoint is not None:
        raise ComparisonFileError(f"{what}: found start and warm_start.checkpoint, expected one of them")
    if warm_start.recipe is None or load_recipe(warm_start.recipe).architecture == "bag":
        recipe.set("warm_start.checkpoint", str(checkpoint))
    else:
        recipe.set("warm_start.overrides.warm_start.checkpoint", str(checkpoint))


def _read_with(recipe: Recipe, checkpoint: Path) -> None:
    """Gives a run and its first stage, if it has one, the tokenizer of a start."""
    recipe.set("tokenizer.path", str(checkpoint))
    if recipe.warm_start.recipe is not None:
        recipe.set("warm_start.overrides.tokenizer.path", str(checkpoint))


def _check_shared(shared: dict[str, Any], where: str) -> None:
    for block, values in shared.items():
        check_known(block, {"all", *ARCHITECTURES}, f"{where}: shared: block")
        check_mapping(values, f"{where}: shared.{block}")


def _check_alike(trainings: Sequence[Training], where: str) -> None:
    """Systems are measured on the languages that all were trained on, which should be the same; and on equal data."""
    first = trainings[0]
    for each in trainings:
        for key in ("languages", "train", "dev", "max_rows"):
            values = [getattr(training.recipe.data, key) for training in (first, each)]
            if values[0] != values[1]:
                raise ComparisonFileError(
                    f"{where}: data.{key} of {first.name} is {values[0]!r}, of {each.name} {values[1]!r}, expected "
                    "the same of all; set it in shared.all, or with --train and --dev"
                )
    if first.recipe.data.train is None:
        raise ComparisonFileError(f"{where}: found no training data; give --train, or data.train in shared.all")


def _reference(content: dict[str, Any], where: str) -> str:
    reference = content.get("reference", next(iter(content["systems"])))
    check_known(reference, set(content["systems"]), f"{where}: reference: the system")
    return reference


def _contrasts(content: dict[str, Any], where: str) -> list[tuple[str, str]]:
    pairs = content.get("contrasts") or []
    what = f"{where}: contrasts"
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ComparisonFileError(f"{what}: found {pairs!r}, expected pairs of systems, such as [[tmde, bag]]")
    for pair in pairs:
        for name in pair:
            check_known(name, set(content["systems"]), f"{what}: the system")
        if pair[0] == pair[1]:
            raise ComparisonFileError(f"{what}: found {pair}, expected two different systems")
    return [(first, second) for first, second in pairs]


def _titles(titles: dict[str, Any], what: str) -> dict[str, str]:
    for task, title in titles.items():
        check_typed(title, str, f"{what}.{task}", "text")
        if list(titles.values()).count(title) > 1:
            raise ComparisonFileError(f"{what}: found {title!r} twice, expected different titles")
    return titles


def _max_length(value: Any, what: str) -> int | None:
    if value is not None and (type(value) is not int or value < 3):
        raise ComparisonFileError(f"{what}: found {value!r}, expected a whole number of at least 3, or null")
    return value


def _check_tasks(tasks: list[str], options: dict[str, Any], eval_data: Path | None, where: str) -> None:
    """Raises where `tmde eval` would, and on tasks without data, before anything is trained."""
    try:
        planned = find_tasks(tasks, eval_data, [f"{key}={json.dumps(value)}" for key, value in options.items()])
    except ValueError as error:
        raise ComparisonFileError(f"{where}: tasks: {error}") from error
    for plan in planned:
        if plan.source is None:
            raise ComparisonFileError(
                f"{where}: tasks: found no data of {plan.task.name}; give --eval-data, a folder with its files, or "
                f"name them in the comparison: {plan.task.name}=SOURCE"
            )


def _entry(name: Any, entry: Any, keys: set[str], what: str) -> dict[str, Any]:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ComparisonFileError(f"{what}: the name {name!r} becomes a folder's; use letters, digits and . _ + -")
    entry = check_mapping(entry, what)
    for key in entry:
        check_known(key, keys, f"{what}: key")
    if "recipe" not in entry:
        raise ComparisonFileError(f"{what}: found no 'recipe', expected the name of one, or a path")
    return entry
