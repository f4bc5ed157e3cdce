"""Help, version and wrong options answer at once: nothing heavy is imported for them."""

import json
import subprocess
import sys
from typing import get_args

import pytest

import tmde
from tmde.cli import align_words, options
from tmde.cli.main import COMMANDS
from tmde.data import documents
from tmde.documents import word_mapping
from tmde.documents.index_settings import SETTINGS
from tmde.documents.neighbors import SCORINGS
from tmde.embedding.quantization import PRECISIONS
from tmde.eval import correlations
from tmde.eval.classification import PROTOCOLS
from tmde.eval.heads import HEADS

HEAVY = {
    "accelerate",
    "datasets",
    "evaluate",
    "gradio",
    "huggingface_hub",
    "lancedb",
    "matplotlib",
    "modeling_tmde",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "sklearn",
    "tokenizers",
    "torch",
    "transformers",
    "yaml",
}


def imported_packages(*statements: str) -> set[str]:
    """The packages that a fresh interpreter imports for some statements."""
    program = [
        "import sys",
        *statements,
        "print('imported:', *{name.partition('.')[0] for name in sys.modules})",
    ]
    process = subprocess.run(
        [sys.executable, "-c", "\n".join(program)], capture_output=True, text=True, check=True
    )
    last_line = process.stdout.splitlines()[-1]
    assert last_line.startswith("imported: ")
    return set(last_line.split()[1:])


CALLS = [
    ["--help"],
    ["--version"],
    *([name, "--help"] for name in COMMANDS),
    ["train", "--no-such-option"],
    ["search", "query", "no-such-index"],
    ["embed", "x.txt", "-o", "x.npy", "-m", "./no-such-model"],
    ["embed", "no-such.csv", "-o", "x.npy"],
    ["index", "no-such.csv", "-o", "x.index"],
    ["mine", "no-such.csv", "-", "-o", "x.tsv"],
    ["align", "-", "no-such.csv", "-o", "x.tsv"],
    ["no-such-command"],
]
# One interpreter runs them all: what none of them may import is there after none of them.
RUN_CALLS = """
import json, sys
from tmde.cli.main import main
packages = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["tmde", *words]
    try:
        main()
    except SystemExit:
        pass
    packages.append(sorted({name.partition(".")[0] for name in sys.modules}))
with open("packages.json", "w") as file:
    json.dump(packages, file)
"""


def test_nothing_heavy_is_imported_before_a_command_runs(tmp_path):
    program = [sys.executable, "-c", RUN_CALLS, json.dumps(CALLS)]
    subprocess.run(program, cwd=tmp_path, capture_output=True, check=True)
    packages = json.loads((tmp_path / "packages.json").read_text())
    assert len(packages) == len(CALLS)
    for words, imported in zip(CALLS, packages, strict=True):
        assert "typer" in imported
        assert HEAVY.isdisjoint(imported), words


def test_importing_tmde_imports_nothing_else():
    without = imported_packages("pass")
    packages = imported_packages("import tmde") - without - set(sys.stdlib_module_names)
    assert packages == {"tmde"}


def test_every_public_name_is_there_when_it_is_asked_for():
    for name in tmde.__all__:
        assert getattr(tmde, name) is not None, name
    assert set(tmde.__all__) <= set(dir(tmde))


def test_other_names_of_the_packages_are_not_public():
    with pytest.raises(AttributeError, match="module 'tmde' has no attribute 'split_sentences'"):
        _ = tmde.split_sentences


def test_embedding_does_not_import_evaluation_and_training():
    packages = imported_packages("import tmde.data.file_embedding")
    # sentence-transformers imports scikit-learn.
    assert packages & {"evaluate", "gradio", "lancedb", "matplotlib"} == set()


def test_a_command_imports_its_own_module_only():
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from tmde.cli.main import app; import typer\n"
            "typer.main.get_command(app).commands['push']\n"
            "print(*sorted(name for name in sys.modules if name.startswith('tmde.cli.')))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == [
        "tmde.cli.declaration",
        "tmde.cli.errors",
        "tmde.cli.main",
        "tmde.cli.push",
    ]


@pytest.mark.parametrize(
    ("choices", "values"),
    [
        (options.InputFormat, get_args(documents.InputFormat)),
        (options.Precision, PRECISIONS),
        (options.Scoring, SCORINGS),
        (options.Protocol, PROTOCOLS),
        (options.Head, HEADS),
        (options.CorrelationMethod, get_args(correlations.Method)),
        (align_words.Fit, get_args(word_mapping.Fit)),
        (align_words.Start, get_args(word_mapping.Start)),
    ],
)
def test_the_choices_of_an_option_are_those_of_the_library(choices, values):
    assert get_args(choices) == tuple(values)


def test_the_file_of_an_index_is_that_of_the_library():
    assert options.INDEX_SETTINGS == SETTINGS
