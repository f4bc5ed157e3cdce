"""The `tmde` command itself: its version, and choices that are stated twice so that its help is fast."""

from typer.testing import CliRunner

from modeling_tmde import __version__
from modeling_tmde.cli import eval_options
from modeling_tmde.cli.main import app
from modeling_tmde.documents.nearest import SCORINGS
from modeling_tmde.embedding import POOLINGS
from modeling_tmde.eval.classification import PROTOCOLS
from modeling_tmde.eval.heads import HEADS


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0 and result.output == f"tmde {__version__}\n"


def test_choices_of_eval_are_those_of_the_modules():
    assert eval_options.POOLINGS == POOLINGS
    assert eval_options.PROTOCOLS == tuple(PROTOCOLS)
    assert eval_options.HEADS == tuple(HEADS)
    assert eval_options.SCORINGS == SCORINGS
