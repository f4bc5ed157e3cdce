"""What runs leave behind, read for tests: their logs and their weights."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch


def read_log(folder: Path, key: str | None = None) -> list[dict]:
    """Return the entries of `log.jsonl` in a run's folder, or those with a key."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    entries = list(map(json.loads, lines))
    if key is None:
        return entries
    return entries_with(entries, key)


def entries_with(entries: list[dict], key: str) -> list[dict]:
    """Return the entries that have a key: "loss" is that of training."""
    return [entry for entry in entries if key in entry]


def values_of(entries: list[dict], key: str) -> list:
    """Return one value of every entry."""
    return [entry[key] for entry in entries]


def pick(values: Mapping, names) -> dict:
    """Return some of the values."""
    return {name: values[name] for name in names}


def assert_equal_weights(
    weights: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> None:
    """Check that all of the expected weights are equal to the last bit."""
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name
