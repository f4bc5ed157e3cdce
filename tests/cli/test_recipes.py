"""`tmde recipes`, the list of the recipes."""

import re

from typer.testing import CliRunner

from tmde.cli.main import app
from tmde.cli.recipes import described_recipes
from tmde.training.recipe import load_recipe, packaged_names


def test_every_recipe_has_a_line():
    result = CliRunner().invoke(app, ["recipes"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == packaged_names()
    assert lines[packaged_names().index("tmde")].split(maxsplit=1)[1] == (
        "T-MDE as in section 4.3 of Li's thesis, without the distance constraint "
        "[Li 2021, thesis, sections 4.2.1 and 4.3.1, table 4.1]"
    )


def test_papers_have_names_and_no_numbers():
    for name, description in described_recipes().items():
        assert not re.search(r"(thesis|paper) \d", description), name


def test_a_model_trained_mainly_by_another_loss_is_not_called_after_its_constraint():
    for name, description in described_recipes().items():
        objectives = load_recipe(name).objectives.settings()
        weights = {loss: options.get("weight", 1.0) for loss, options in objectives.items()}
        if "cT-MDE" in description:
            assert set(weights) == {"translation", "distance"}, name
