"""What the trainings of a comparison cost, and what of them keeps its systems from being compared as equals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import MODEL_MAPPING

from modeling_tmde.cli.compare_file import Comparison, Training
from modeling_tmde.cli.compare_folder import ComparisonFolder
from modeling_tmde.training.building import STAGE_FOLDER, stage_recipe
from modeling_tmde.training.recipe import ARCHITECTURES

RESULTS, RECORD = "results.json", "run.json"
TRAINING_DATA, HELD_OUT = "the training data", "the held-out rows"
NEARLY = 0.95  # of its limit: a run ends with a whole step


def read_json(path: Path) -> dict[str, Any]:
    """Empty where there is no such file, or one that was cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def costs_of(training: Training, comparison: Comparison, folder: ComparisonFolder) -> dict[str, Any]:
    """Minutes of all that led to a model, words a second of the processor, parameters, and the training data.

    A first stage of the recipe's own and the start count as minutes. `cpu_minutes` end with the last training step;
    `minutes`, by the wall, with the evaluation after it. The words are those of all texts that were trained on, the
    first stage and the start not included, whether an encoder reads them or a decoder writes them.
    """
    run = folder.run(training)
    parts = [run, run / STAGE_FOLDER]
    parts += [folder.run(each) for each in comparison.trainings if each.is_start and each.system == training.start]
    found = [part for part in map(read_json, (part / RESULTS for part in parts)) if part]
    results, record = read_json(run / RESULTS), read_json(run / RECORD)
    costs: dict[str, Any] = {}
    for key in ("minutes", "cpu_minutes"):
        known = [part.get(key) for part in found]
        costs[key] = round(sum(known), 2) if known and None not in known else None
        costs[f"own_{key}"] = results.get(key)
    words, minutes = results.get("seen", {}).get("source_words"), results.get("cpu_minutes")
    costs["words_per_cpu_second"] = words / (60 * minutes) if words and minutes else None
    costs["limit"] = training.recipe.sections["training"].get("max_cpu_minutes")
    return costs | {"steps": results.get("steps"), "parameters": record.get("parameters"), "data": record.get("data")}


def is_told_languages(training: Training) -> bool:
    """Whether its encoder has to be told the language of every text, since it has a part for each."""
    encoder = MODEL_MAPPING[ARCHITECTURES[training.recipe.architecture].config]
    return getattr(encoder, "needs_language_ids", False)


def ended_early(comparison: Comparison, folder: ComparisonFolder) -> list[str]:
    """Of trainings that epochs, steps or early stopping ended, not the limit of CPU minutes that makes them equal.

    Starts, first stages and every seed are looked at, each with the limit that it has itself.
    """
    parts = []
    for training in comparison.trainings:
        run, stage = folder.run(training), stage_recipe(training.recipe)
        for name, path, recipe in (
            (_short_name(training, comparison), run, training.recipe),
            (f"the first stage of {_short_name(training, comparison)}", run / STAGE_FOLDER, stage),
        ):
            own = read_json(path / RESULTS).get("cpu_minutes")
            limit = None if recipe is None else recipe.sections["training"].get("max_cpu_minutes")
            if own is not None and limit and own < NEARLY * limit:
                parts.append(f"{name} after {own:g} of {limit:g}")
    return [f"Ended before its limit of CPU minutes: {', '.join(parts)}"] if parts else []


def unlike_runs(comparison: Comparison, folder: ComparisonFolder) -> list[str]:
    """What differs between runs that should be of the same data, package and machine, from their `run.json`.

    Runs that a change of files, of the package or of the machine left beside newer ones are found by it; a resumed
    comparison looks at its own file and at recipes alone.
    """
    found = []
    for training in comparison.trainings:
        if record := read_json(folder.run(training) / RECORD):
            found.append((training, dict(_facts(record))))
    facts = dict.fromkeys(fact for _, known in found for fact in known)
    lines = (_unlike(fact, [(training, known.get(fact)) for training, known in found], comparison) for fact in facts)
    return [line for line in lines if line is not None]


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What it is called, and its value as text."""
    data = record.get("data") or {}
    yield TRAINING_DATA, _fingerprints(data.get("train"))
    yield HELD_OUT, _fingerprints(data.get("dev"))
    yield "the data of eval_task", _fingerprints(data.get("eval_task"))
    yield "the version of tmde", str(record.get("tmde"))
    for name, version in (record.get("versions") or {}).items():
        yield f"the version of {name}", str(version)
    yield "the machine or its threads", json.dumps(record.get("machine"), sort_keys=True)


def _fingerprints(data: Any) -> str:
    """As text, without what a source is called: a file may move."""
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "source"}
        return ", ".join(f"{key} {_fingerprints(value)}" for key, value in sorted(data.items()))
    return str(data)


def _unlike(fact: str, values: Sequence[tuple[Training, str | None]], comparison: Comparison) -> str | None:
    """A line that names the runs which do not have the value of most; None if all have the same."""
    if len({value for _, value in values}) < 2:
        return None
    by_seed = {(training.seed, value) for training, value in values}
    seeds, found = ({pair[place] for pair in by_seed} for place in (0, 1))
    if fact in (TRAINING_DATA, HELD_OUT) and len(by_seed) == len(seeds) == len(found):
        return f"Not the same for all seeds: {fact}"  # rows are held out, mixed and drawn by the seed
    ((usual, _),) = Counter(value for _, value in values).most_common(1)
    names = [_short_name(training, comparison) for training, value in values if value != usual]
    return f"Not the same in all runs: {fact} ({', '.join(names)} unlike the rest)"


def _short_name(training: Training, comparison: Comparison) -> str:
    """The system's, with the seed where it has several."""
    if training.is_start:
        return training.job
    seeds = sum(each.system == training.system and not each.is_start for each in comparison.trainings)
    return training.name if seeds > 1 else training.system
