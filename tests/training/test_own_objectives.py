"""Losses that a recipe names by their import path."""

import sys
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from tests.training.logs import read_log, values_of
from tests.training.test_batching import numbered_rows
from tests.training.test_train import TINY, write_corpus
from tmde.cli.main import app
from tmde.training.recipe import RecipeError, load_recipe
from tmde.training.recipe.building import build_objectives
from tmde.training.recipe.objective_classes import make_objectives

# The loss of the documentation: an embedding must be nearer to its translation than to that of the
# next row, by a margin.
MODULE = """
import torch
from torch.nn import functional as F
from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput


class CosineMargin(EmbeddingObjective):
    def __init__(self, margin: float = 0.2, **kwargs):
        super().__init__(**kwargs)
        self.margin = margin

    def forward(self, embeddings):  # (languages, rows, d_model)
        first, second = F.normalize(embeddings, dim=-1)[:2]
        translated = (first * second).sum(dim=-1)
        other = (first * second.roll(1, dims=0)).sum(dim=-1)
        return ObjectiveOutput(torch.relu(self.margin + other - translated).sum())


class Plain(EmbeddingObjective):
    def forward(self, embeddings):
        return ObjectiveOutput(embeddings.square().sum())


class Unannotated(EmbeddingObjective):
    def __init__(self, margin=0.2):
        super().__init__()


class Required(EmbeddingObjective):
    def __init__(self, margin: float):
        super().__init__()


class Failing(EmbeddingObjective):
    def __init__(self, margin: float = 0.2):
        super().__init__()
        margin + "a"


number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory, with modules of losses, which is not on `sys.path`."""
    (tmp_path / "own_losses.py").write_text(MODULE)
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "losses.py").write_text(MODULE)
    (tmp_path / "broken_losses.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    yield tmp_path
    for name in ("own_losses", "own_package", "own_package.losses"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("module", ["own_losses", "own_package.losses"])
def test_a_loss_of_the_working_directory_is_built_with_its_options(module, folder):
    path = f"{module}:CosineMargin"
    own = folder / "own.yaml"
    own.write_text(f"objectives: {{{path}: {{margin: 0.3}}, {module}:Plain: }}\n")
    recipe = load_recipe(str(own), [f"objectives.{path}.weight=0.5"])
    objectives = build_objectives(recipe)
    assert list(objectives) == ["CosineMargin", "Plain"]
    assert (objectives["CosineMargin"].margin, objectives["CosineMargin"].weight) == (0.3, 0.5)
    assert yaml.safe_load(recipe.to_yaml())["objectives"] == {
        path: {"margin": 0.3, "weight": 0.5},
        f"{module}:Plain": {},
    }
    removed = load_recipe(str(own), [f"objectives.{path}=null"])
    assert list(build_objectives(removed)) == ["Plain"]


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("no_module:Loss", "{}", "found no module 'no_module' in .* the module's folder"),
        ("own_package.no:Loss", "{}", "found no module 'own_package.no' in"),
        ("own_losses:Los", "{}", "own_losses.py has no 'Los'; it has CosineMargin, Plain, Un"),
        ("own_losses:number", "{}", r"found 3, expected a subclass of tmde\..*Objective"),
        ("own_losses:torch", "{}", "expected a subclass of"),
        ("own_losses:CosineMargin", "{margn: 1}", "'margn' is unknown; did you mean margin"),
        ("own_losses:CosineMargin", "{margin: a}", "margin: found 'a', expected a number"),
        ("own_losses:CosineMargin", "3", "found 3, expected a mapping or null"),
        ("own_losses:Unannotated", "{}", "argument 'margin' needs a type annotation"),
        ("own_losses:Required", "{}", "margin is missing, expected a number"),
    ],
)
def test_a_loss_that_is_none_or_has_no_such_option_is_refused(path, options, message, folder):
    with pytest.raises(RecipeError, match=f"'objectives' of recipe bag: .*{message}"):
        load_recipe("bag", [f"objectives.{path}={options}"])


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (
            {"distance": {"margn": 0.3}},
            "objectives.distance: option 'margn' is unknown; did you mean margin",
        ),
        (
            {"own_losses:CosineMargin": {"margn": 0.3}},
            "objectives.own_losses:CosineMargin: option 'margn' is unknown; did you mean margin",
        ),
        # The base class has this option.
        ({"own_losses:Plain": {"wieght": 0.3}}, "'wieght' is unknown; did you mean weight"),
        (
            {"own_losses:Required": {}},
            "objectives.own_losses:Required: option 'margin' is missing",
        ),
        # A number is a weight.
        ({"own_losses:Required": 1.0}, "'weight' is unknown; known: margin"),
    ],
)
def test_options_given_from_python_are_checked(objectives, message, folder):
    with pytest.raises(RecipeError, match=message):
        make_objectives(objectives)


def test_an_error_within_a_loss_is_not_hidden(folder):
    with pytest.raises(TypeError, match="unsupported operand"):
        make_objectives({"own_losses:Failing": {}})


def test_an_error_within_the_module_is_not_hidden(folder):
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load_recipe("bag", ["objectives.broken_losses:Loss={}"])


def test_two_losses_of_one_name_are_refused(folder):
    words = [f"objectives.{module}:Plain={{}}" for module in ("own_losses", "own_package.losses")]
    with pytest.raises(RecipeError, match="found two losses called 'Plain'"):
        build_objectives(load_recipe("bag", words))


def test_a_run_trains_and_resumes_with_a_loss_of_its_own(folder):
    write_corpus(folder / "corpus.jsonl", numbered_rows(150))
    call = ["train", "quickstart", "data.train=corpus.jsonl", *TINY, "-o", "run"]
    call += ["objectives.translation=null", "objectives.own_losses:CosineMargin={margin: 0.1}"]
    for options in (["max_steps=2"], ["max_steps=4", "--resume"]):
        result = CliRunner().invoke(app, [*call, *options])
        assert result.exit_code == 0, result.output
    losses = values_of(read_log(folder / "run", "loss"), "loss")
    assert len(losses) == 4
    assert torch.tensor(losses).isfinite().all()
    changed = "objectives.own_losses:CosineMargin.margin=0.2"
    result = CliRunner().invoke(app, [*call, changed, "max_steps=4", "--resume"])
    assert result.exit_code == 1
    assert "own_losses:CosineMargin.margin is 0.2, but the run started with 0.1" in result.output
