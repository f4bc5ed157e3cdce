"""The page of training arguments: its tables are those that the trainer checks."""

import sys
from pathlib import Path

from tmde.training.argument_table import HONORED, REFUSED

HOOKS = Path(__file__).parents[2] / "docs" / "hooks"


def test_the_page_names_every_argument_once(monkeypatch):
    monkeypatch.syspath_prepend(str(HOOKS))
    from arguments_page import arguments_markdown

    lines = arguments_markdown().splitlines()
    monkeypatch.delitem(sys.modules, "arguments_page")
    names = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert sorted(names) == sorted([*HONORED, *REFUSED])
    refusal = REFUSED["label_smoothing_factor"]
    assert f"| `label_smoothing_factor` | {refusal.reason} | {refusal.instead} |" in lines
