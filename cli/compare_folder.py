"""The folder of a comparison: what is finished in it, and what a changed comparison makes anew.

comparison.yaml            the comparison, as it was given
recipes/NAME.yaml          the recipe of each training, whole
start/NAME/                runs that others begin with
runs/NAME-SEED/            runs of the systems
eval/NAME-SEED/            their evaluations (eval.json, outcomes.npz, report.md), and `complete` when they are whole
logs/                      what each process printed
cache/                     vectors and results
table.md, table.json
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from modeling_tmde.cli.compare_file import Comparison, Training
from modeling_tmde.data.io import write_atomically
from modeling_tmde.eval.results import EVAL_NAME, OUTCOMES_NAME
from modeling_tmde.training.building import STAGE_FOLDER, find_checkpoint

COMPARISON_NAME = "comparison.yaml"
COMPLETE_NAME = "complete"
EVALUATION_KEYS = {
    "tasks",
    "task_options",
    "folds",
    "eval_data",
    "max_length",
}  # of the file, they decide all evaluations
MAX_TOLD = 12
TFIDF = "TF-IDF"


class ComparisonFolderError(ValueError):
    """A folder that holds something else than this comparison."""


class ComparisonFolder:
    """Paths and states of a comparison in `path`."""

    def __init__(self, path: Path):
        self.path = path

    def run(self, training: Training) -> Path:
        return self.path / ("start" if training.is_start else "runs") / training.name

    def recipe(self, training: Training) -> Path:
        return self.path / "recipes" / f"{'start-' if training.is_start else ''}{training.name}.yaml"

    def evaluation(self, training: Training) -> Path:
        return self.path / "eval" / training.name

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name.replace(' ', '-').removeprefix('train-')}.log"

    def is_trained(self, training: Training) -> bool:
        """`results.json` is the last that a run writes."""
        return (self.run(training) / "results.json").is_file()

    def is_evaluated(self, training: Training) -> bool:
        return (self.evaluation(training) / COMPLETE_NAME).is_file()

    def begin_run(self, training: Training) -> list[str]:
        """Clears away what cannot be gone on with; returns the options of `tmde train` that go on with the rest."""
        run = self.run(training)
        if not run.exists():
            return []
        stage = run / STAGE_FOLDER
        if find_checkpoint(run) is not None or (stage / "results.json").is_file() or find_checkpoint(stage):
            return ["--resume"]
        shutil.rmtree(run)
        return []

    def begin_evaluation(self, training: Training) -> None:
        shutil.rmtree(self.evaluation(training), ignore_errors=True)

    def finish_evaluation(self, training: Training) -> None:
        write_atomically(self.evaluation(training) / COMPLETE_NAME, "")

    def has_evaluation(self, training: Training) -> bool:
        """Whether there are results, be it of a part of the tasks."""
        folder = self.evaluation(training)
        return (folder / EVAL_NAME).is_file() and (folder / OUTCOMES_NAME).is_file()

    def has_tfidf(self, training: Training) -> bool:
        """Whether a finished evaluation measured TF-IDF beside the system."""
        if not self.is_evaluated(training):
            return False
        record = json.loads((self.evaluation(training) / EVAL_NAME).read_text(encoding="utf-8"))
        return any(result["system"] == TFIDF for result in record["results"])

    def open(self, comparison: Comparison, overwrite: bool) -> list[str]:
        """Makes the folder one of this comparison.

        Returns:
            What differed from an earlier comparison there and was made way for; empty if nothing.

        Raises:
            ComparisonFolderError: The folder holds other files, or another comparison and `overwrite` is not set.
        """
        record = self.path / COMPARISON_NAME
        if self.path.exists() and not self.path.is_dir():
            raise ComparisonFolderError(f"-o {self.path}: found a file, expected a folder")
        changed: list[str] = []
        if record.exists():
            changed = self._changes(comparison, record)
        elif self.path.exists() and any(each.name != ".lock" for each in self.path.iterdir()):
            raise ComparisonFolderError(
                f"-o {self.path}: found other files, expected an empty folder or an earlier comparison"
            )
        if changed and not overwrite:
            told = "\n  ".join([*changed[:MAX_TOLD], *(["..."] if len(changed) > MAX_TOLD else [])])
            raise ComparisonFolderError(
                f"{self.path} holds another comparison; choose another folder, or --overwrite, which makes anew what "
                f"the changes concern and keeps the rest:\n  {told}"
            )
        if changed:
            self._make_way(comparison, record)
        for training in comparison.trainings:
            self.recipe(training).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.recipe(training), training.recipe.to_yaml())
        write_atomically(record, yaml.safe_dump(comparison.resolved, sort_keys=False, allow_unicode=True))
        return changed

    def _changes(self, comparison: Comparison, record: Path) -> list[str]:
        before = yaml.safe_load(record.read_text(encoding="utf-8")) or {}
        changes = _differences(_plain(before), _plain(comparison.resolved))
        for training in comparison.trainings:
            if not changes and self._recipe_changed(training):  # of the package, then
                now = _comparable(training.recipe.to_yaml(), training)
                changes += [
                    f"recipe of {training.name}: {each}" for each in _differences(self._stored_recipe(training), now)
                ]
        return changes

    def _recipe_changed(self, training: Training) -> bool:
        path = self.recipe(training)
        if not path.exists():
            return self.run(training).exists()
        return self._stored_recipe(training) != _comparable(training.recipe.to_yaml(), training)

    def _stored_recipe(self, training: Training) -> dict[str, Any]:
        path = self.recipe(training)
        return _comparable(path.read_text(encoding="utf-8"), training) if path.exists() else {}

    def _make_way(self, comparison: Comparison, record: Path) -> None:
        """Deletes runs whose recipe or start has changed, with their evaluations; all of these if the tasks have."""
        before = yaml.safe_load(record.read_text(encoding="utf-8")) or {}
        evaluations = any(before.get(key) != _plain(comparison.resolved).get(key) for key in EVALUATION_KEYS)
        changed_starts = {each.system for each in comparison.trainings if each.is_start and self._recipe_changed(each)}
        for training in comparison.trainings:
            if self._recipe_changed(training) or changed_starts.intersection(training.needs):
                shutil.rmtree(self.run(training), ignore_errors=True)
                shutil.rmtree(self.evaluation(training), ignore_errors=True)
            elif evaluations:
                (self.evaluation(training) / COMPLETE_NAME).unlink(missing_ok=True)


def _comparable(recipe_yaml: str, training: Training) -> dict[str, Any]:
    """A recipe without what decides nothing: its description, and where the folder of the comparison lies."""
    recipe = yaml.safe_load(recipe_yaml)
    recipe.pop("description", None)
    stage = recipe["warm_start"].get("overrides") or {}
    if training.start is not None:
        if "warm_start.checkpoint" in stage:
            stage["warm_start.checkpoint"] = training.start
        else:
            recipe["warm_start"]["checkpoint"] = training.start
    if training.tokenizer is not None:
        recipe["tokenizer"]["path"] = training.tokenizer
        if "tokenizer.path" in stage:
            stage["tokenizer.path"] = training.tokenizer
    return recipe


def _plain(values: Any) -> Any:
    """As YAML gives it back."""
    return yaml.safe_load(yaml.safe_dump(values))


def _flatten(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """`key: was 5, is 6`, of every key that differs."""
    first, second = dict(_flatten(before)), dict(_flatten(now))
    lines = []
    for key in dict.fromkeys([*first, *second]):
        if key not in second:
            lines.append(f"{key}: was {json.dumps(first[key], default=str)}, is gone")
        elif key not in first:
            lines.append(f"{key}: is new, {json.dumps(second[key], default=str)}")
        elif first[key] != second[key]:
            lines.append(
                f"{key}: was {json.dumps(first[key], default=str)}, is {json.dumps(second[key], default=str)}"
            )
    return lines
