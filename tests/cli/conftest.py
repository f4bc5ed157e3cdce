"""A tiny model on disk, whose documents are bags of words, and `tmde` in this process."""

import json

import pytest
import torch
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from tests.conftest import save
from tmde.cli.main import app


def run(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **kwargs)


def ok(*arguments, **kwargs):
    result = run(*arguments, **kwargs)
    assert result.exit_code == 0, result.output
    return result


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


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
