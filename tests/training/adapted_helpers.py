"""Small runs on tiny encoders of the Hub."""

from pathlib import Path

from typer.testing import CliRunner

from modeling_tmde.cli.main import app
from tests.conftest import make_rows

KINDS = ("bert", "xlm-roberta", "modernbert", "t5")
LANGUAGES = ["de", "en", "fr"]
ROWS = make_rows(300, seed=5, languages=tuple(LANGUAGES))
SMALL_RUN = [
    "data.languages=[de, en, fr]",
    "data.pivot_languages=[en, fr]",
    "data.dev_rows=30",
    "max_steps=24",
    "eval_steps=12",
    "logging_steps=4",
    "micro_batch_tokens=512",
    "train_max_length=40",
    "encoder_learning_rate=0.003",
    "learning_rate=0.003",
    "warmup_steps=0",
    "eval_on_start=false",
    "eval_loss_rows=20",
    "eval_pairs=[de-en]",
    "disable_tqdm=true",
    "report_to=none",
    "bf16=false",
]


def run(*arguments: str | Path):
    """`tmde train` with these arguments."""
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def failure(*arguments: str | Path) -> str:
    """The one error of `tmde train` with these arguments."""
    result = run(*arguments)
    assert result.exit_code == 1 and "Traceback" not in result.output
    return " ".join(result.output.split("Error: ")[1].split())
