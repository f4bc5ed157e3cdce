"""Reads `log.jsonl`, the log of a training run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LOG_NAME = "log.jsonl"


class LogError(ValueError):
    """A log that is missing, empty or damaged."""


@dataclass(frozen=True)
class Curve:
    """One measure over a run: (n,) steps, minutes (NaN where they were not logged) and values."""

    steps: np.ndarray
    minutes: np.ndarray
    values: np.ndarray


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a run's log, in order of steps.

    A last line without its end is one that is being written, or was when the run was killed: it is skipped. Where a
    run went back to a checkpoint, the steps that it did again count once, as they were the last time.

    Args:
        path: `log.jsonl`, or the run's folder.

    Raises:
        LogError: No log, no line in it, or a line that is no JSON object with a step.
    """
    path = Path(path)
    path = path / LOG_NAME if path.is_dir() else path
    if not path.is_file():
        raise LogError(f"{path}: found no log, expected the {LOG_NAME} of a training run, or the run's folder")
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            step = line["step"]
        except (ValueError, KeyError, TypeError):
            if number == len(texts):  # nothing follows it, not even its end
                continue
            raise LogError(f"{path}, line {number}: found {text[:60]!r}, expected a JSON object with a step") from None
        if lines and (step < lines[-1]["step"] or _is_repeated(line, lines)):
            while lines and lines[-1]["step"] >= step:
                lines.pop()
        lines.append(line)
    if not lines:
        raise LogError(f"{path}: found no complete line, expected at least one; has the run logged yet?")
    return lines


def _is_repeated(line: dict[str, Any], lines: Sequence[dict[str, Any]]) -> bool:
    """Whether a training step is there already; its dev measures and the run's summary have lines of their own."""
    same_step = itertools.takewhile(lambda other: other["step"] == line["step"], reversed(lines))
    return "loss" in line and any("loss" in other for other in same_step)


def curve(lines: Sequence[dict[str, Any]], keys: Sequence[str]) -> Curve | None:
    """The mean of these keys in each line that has any of them; None if no line has."""
    rows = []
    for line in lines:
        if found := [line[key] for key in keys if line.get(key) is not None]:
            minutes = line.get("minutes", line.get("eval_minutes", np.nan))
            rows.append((line["step"], minutes, np.mean(found)))
    return Curve(*np.array(rows, dtype=np.float64).T) if rows else None


def panels(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, Curve]]:
    """By title of a panel, by what was measured on (`training`, or a dev set), the curves of a log that has them.

    Loss, precision at 1 of dev retrieval, of sentences and of documents (mean over the pairs of languages), accuracy
    Same and Cross of the dev split of classification tasks, each objective's loss, words per second.
    """
    training = {key for line in lines if "loss" in line for key in line}
    evaluation = sorted({key for line in lines for key in line if key.startswith("eval_")})
    found: dict[str, dict[str, Curve | None]] = {"Weighted sum of losses": {"training": curve(lines, ["loss"])}}
    pairs: dict[str, dict[str, list[str]]] = {"Dev retrieval, P@1": {}, "Dev documents, P@1": {}}
    for key in evaluation:
        if match := re.fullmatch(r"eval_(?:(.+)_)?p1_.+", key):
            name = match[1] or "dev"
            title = "Dev documents, P@1" if name.endswith("_doc") else "Dev retrieval, P@1"
            pairs[title].setdefault(name.removesuffix("_doc"), []).append(key)
    for title, sets in pairs.items():
        found[title] = {name: curve(lines, keys) for name, keys in sets.items()}
    found["Dev accuracy"] = {name: curve(lines, [f"eval_{name.lower()}"]) for name in ("Same", "Cross")}
    for objective in sorted(key.removesuffix("_loss") for key in training if key.endswith("_loss")):
        curves = {"training": curve(lines, [f"{objective}_loss"])}
        for key in evaluation:
            if match := re.fullmatch(rf"eval_(?:(.+)_)?{re.escape(objective)}_loss", key):
                curves[match[1] or "dev"] = curve(lines, [key])
        found[f"{objective.replace('_', ' ').capitalize()} loss"] = curves
    found["Words per second"] = {"training": curve(lines, ["words_per_second"])}
    kept = {title: {name: one for name, one in curves.items() if one is not None} for title, curves in found.items()}
    return {title: curves for title, curves in kept.items() if curves}
