"""A tiny model on disk, whose documents are bags of words, and `tmde` in this process."""

import json

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from tests.conftest import save
from tmde.cli.main import app


def run(*arguments, **kwargs):
    return CliRunner().invoke(app, list(map(str, arguments)), **kwargs)


def ok(*arguments, **kwargs):
    result = run(*arguments, **kwargs)
    assert result.exit_code == 0, result.output
    return result


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    return path


def read_rows(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_tsv(path):
    """Read a TSV file with a header as a table of strings."""
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)


def id_pairs(table):
    """The columns `id_a` and `id_b` of a table as pairs, in order."""
    return list(zip(table["id_a"], table["id_b"], strict=True))


def option_words(options):
    """Options of a command, given by the names of arguments: `max_pairs` is `--max-pairs`."""
    words = []
    for name, value in options.items():
        dashes = "-" if len(name) == 1 else "--"
        words += [dashes + name.replace("_", "-"), value]
    return words


def save_bag(path, tokenizer, seed=0):
    torch.manual_seed(seed)
    return save(path, BagModel(BagConfig(vocab_size=400, d_model=48)), tokenizer)


@pytest.fixture(scope="session")
def bag(tokenizer, tmp_path_factory):
    return save_bag(tmp_path_factory.mktemp("bag"), tokenizer)


def turned(text):
    """Reverse the words after the first, which has no space before it: to a bag, the same text."""
    first, *others = text.split() or [""]
    return " ".join([first, *others[::-1]])
