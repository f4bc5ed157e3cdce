"""The log of a training run, and which of its measures belong in one panel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from modeling_tmde import TmdeError

LOG_NAME = "log.jsonl"

# The name of the data of measures that are not of a dev set.
TRAINING = "training"

# Parts of the names of losses that are not lowercase in a title.
_SPELLINGS = {"infonce": "InfoNCE", "lm": "LM", "ntdv": "NTDV", "xnli": "XNLI"}

# What damaged lines raise.
_DAMAGE = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


def read_log(path: str | Path) -> list[dict[str, float]]:
    """Read the log of a run, in the order of steps.

    An incomplete last line (still being written, or cut off by a kill) is skipped. If a run was
    resumed from a checkpoint, only the last attempt at each step counts.

    Args:
        path: `log.jsonl`, or the folder of the run.

    Returns:
        The measures of each line, with `step`.

    Raises:
        TmdeError: There is no log, no line in it, or a line that is no JSON object of numbers with
            a step.
    """
    path = Path(path)
    if path.is_dir():
        path = path / LOG_NAME
    if not path.is_file():
        raise TmdeError(
            f"{path}: found no log, expected the {LOG_NAME} of a training run, or the run's folder"
        )
    lines: list[dict[str, float]] = []
    for measures in _parse_lines(path):
        lines = _without_earlier_attempt(lines, measures)
        lines.append(measures)
    if not lines:
        raise TmdeError(
            f"{path}: found no complete line, expected at least one; has the run logged yet?"
        )
    return lines


def _parse_lines(path: Path) -> list[dict[str, float]]:
    """Return the measures of each line.

    Raises:
        TmdeError: A line is damaged that is not the last.
    """
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = []
    for number, text in enumerate(texts, start=1):
        measures = _parse_line(text)
        # Nothing follows the last line, not even its end: it may be incomplete.
        is_last = number == len(texts)
        if measures is not None:
            lines.append(measures)
        elif text.strip() and not is_last:
            raise TmdeError(
                f"{path}, line {number}: found {text[:60]!r}, expected numbers with a step"
            )
    return lines


def _parse_line(text: str) -> dict[str, float] | None:
    """Return the measures of a line; None if it is damaged or lacks a step."""
    try:
        measures = {name: float(value) for name, value in json.loads(text).items()}
    except _DAMAGE:
        return None
    return measures if "step" in measures else None


def _without_earlier_attempt(
    lines: list[dict[str, float]], measures: dict[str, float]
) -> list[dict[str, float]]:
    """Return the lines that are still valid when `measures` follow.

    If the steps go back, the run was resumed, and what it logged beyond the checkpoint is done
    again. Lines of one step with other keys are no earlier attempt: training, dev sets and the
    summary are logged apart.
    """
    step = measures["step"]
    if not lines or step > lines[-1]["step"]:
        return lines
    valid = []
    for line in lines:
        is_other_kind = line["step"] == step and line.keys() != measures.keys()
        if line["step"] < step or is_other_kind:
            valid.append(line)
    return valid


def log_panels(keys: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Assign logged measures to the panels of a figure.

    The panels are the loss, precision at 1 of dev retrieval of documents and of sentences (the mean
    over language pairs), accuracy `Same` and `Cross` on the dev split of classification tasks, the
    loss of each objective, and words per second.

    Args:
        keys: The names of the measures.

    Returns:
        By title of a panel, and then by data (`training`, or the name of a dev set), the names of
        the measures. Empty panels are left out.
    """
    names = set(keys) - {"train_loss"}
    # Measures of training come before those of dev sets.
    ordered = sorted(names, key=lambda key: (key.startswith("eval_"), key))
    patterns = _panel_patterns(ordered)
    panels: dict[str, dict[str, list[str]]] = {title: {} for title in patterns}
    for key in ordered:
        for title, pattern in patterns.items():
            match = re.fullmatch(pattern, key)
            if match is None:
                continue
            data = match["data"] or _default_data(key)
            panels[title].setdefault(data, []).append(key)
            break
    return {title: keys_of_data for title, keys_of_data in panels.items() if keys_of_data}


def _panel_patterns(keys: Iterable[str]) -> dict[str, str]:
    """Return the panels' regular expressions by title; the group `data` names the dev set.

    A measure belongs to the first panel whose expression it matches.
    """
    patterns = {
        "Weighted sum of losses": "(?P<data>)loss",
        "Dev documents, P@1": "eval_(?P<data>.+)_doc_p1_.+",
        "Dev retrieval, P@1": "eval_(?:(?P<data>.+)_)?p1_.+",
        "Dev accuracy": "eval_(?P<data>same|cross)",
    }
    losses = [key for key in keys if key.endswith("_loss") and not key.startswith("eval_")]
    # The name of one objective may end with that of another: longer names come first.
    for loss in sorted(losses, key=len, reverse=True):
        title = " ".join(_SPELLINGS.get(word, word) for word in loss.split("_"))
        title = title[0].upper() + title[1:]
        patterns[title] = rf"(?:eval_(?:(?P<data>.+)_)?)?{loss}"
    patterns["Words per second"] = "(?P<data>)words_per_second"
    return patterns


def _default_data(key: str) -> str:
    return "dev" if key.startswith("eval_") else TRAINING
