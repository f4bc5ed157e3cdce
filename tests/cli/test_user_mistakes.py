"""A user's mistake ends with one sentence on stderr; exit codes 1, 2 and 130."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from modeling_tmde import TmdeError
from tests.conftest import save, tiny_model
from tmde.cli import errors
from tmde.cli.errors import CommandGroup, describe_error, with_option_names
from tmde.cli.main import app

# Words after `tmde`, exit code, and what the message says.
MISTAKES = [
    ("trian small", 2, ("No such command 'trian'", "'train'")),
    ("embed de.txt -o new.npy -m model --windo 3", 2, ("--windo", "--window")),
    ("embed de.txt -o new.npy -m missing", 1, ("missing", "no such folder")),
    ("embed de.txt -o new.npy -m folder", 1, ("folder", "no config.json")),
    ("embed de.txt -o new.npy -m no-weights", 1, ("no-weights", "model.safetensors")),
    ("embed de.txt -o new.npy -m cut-weights", 1, ("cut-weights: damaged or truncated", "again")),
    (
        "embed de.txt -o new.npy -m strange-shards",
        1,
        ("strange-shards/pytorch_model.bin.index.json", "'../x'"),
    ),
    (
        "embed de.txt -o new.npy -m no-shards",
        1,
        ("no-shards/model.safetensors.index.json: damaged or truncated",),
    ),
    ("embed de.txt -o new.npy -m model --device fire", 1, ("model: Expected one of cpu",)),
    ("embed de.txt -o new.npy -m no-tokenizer", 1, ("no-tokenizer", "tokenizer")),
    # The input is read before the model is loaded.
    ("embed half.jsonl -o new.npy -m missing", 1, ("half.jsonl", "2")),
    ("embed de.txt -o new.txt -m model", 1, ("--output new.txt", ".npy or .parquet")),
    ("embed de.txt -o there.npy -m model", 1, ("--output there.npy exists", "--overwrite")),
    ("embed de.txt -o no/new.npy -m model", 1, ("--output no/new.npy", "does not exist")),
    ("train bag --train sample -o de.txt", 1, ("de.txt", "a file at this path, expected a folder")),
    ("push model a/b/c --dry-run", 1, ("Repo id must be", "'a/b/c'")),
    ("push strange-run a/b --dry-run", 1, ("strange-run/run.json: damaged JSON",)),
    (
        "push strange-link a/b --dry-run",
        1,
        ("strange-link/README.md: found a link to", "de.txt"),
    ),
    ("eval model --tasks sample --set sample.sizes=[", 1, ("--set sample.sizes=[", "YAML")),
    ("search bridge missing", 1, ("missing: no such index", "tmde index")),
    ("search some-index bridge", 1, ("some-index is an index", "tmde search 'bridge' some-index")),
    ("train bag de.txt", 1, ("'de.txt' is not of the form", "did you mean --train de.txt?")),
    ("export static model -o folder-with-files", 1, ("--output folder-with-files", "already")),
]


MODEL_FOLDERS = (
    "model",
    "no-weights",
    "cut-weights",
    "no-tokenizer",
    "strange-shards",
    "no-shards",
    "strange-run",
    "strange-link",
)


@pytest.fixture(scope="session")
def place(tmp_path_factory, tokenizer):
    """A folder with a model, damaged copies of it, and files of all kinds."""
    root = tmp_path_factory.mktemp("mistakes")
    texts = {
        "de.txt": "eins\nzwei\n",
        "half.jsonl": '{"text": "x"}\nnot json\n',
        "there.npy": "",
        "folder-with-files/file": "",
        "some-index/index.json": "{}",
    }
    for folder in ("folder", "folder-with-files", "some-index"):
        (root / folder).mkdir()
    for name, text in texts.items():
        (root / name).write_text(text)
    for name in MODEL_FOLDERS:
        save(root / name, tiny_model(), tokenizer)
    weights = (root / "model/model.safetensors").read_bytes()
    (root / "no-weights/model.safetensors").unlink()
    (root / "strange-shards/pytorch_model.bin.index.json").write_text(
        '{"weight_map": {"x": "../x"}}'
    )
    (root / "no-shards/model.safetensors.index.json").write_text('{"weight_map": [1]}')
    (root / "strange-run/run.json").write_text("{")
    (root / "strange-link/README.md").symlink_to(root / "de.txt")
    (root / "cut-weights/model.safetensors").write_bytes(weights[: len(weights) // 2])
    (root / "no-tokenizer/tokenizer.json").unlink()
    return root


@pytest.fixture
def at(place, monkeypatch):
    """Commands run there without network and token, and leave no file behind."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(place / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("COLUMNS", "400")
    before = sorted(place.rglob("*"))
    yield place
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "code", "message"), MISTAKES, ids=[words for words, *_ in MISTAKES]
)
def test_a_mistake_ends_with_one_sentence(at, words, code, message):
    result = CliRunner().invoke(app, words.split())
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == code
    if code == 1:
        lines = result.stderr.strip().splitlines()
        assert [line.startswith("Error: ") for line in lines].count(True) == 1, result.output
    for part in message:
        assert part in result.output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TmdeError("x.txt, line 3: found 5"), "x.txt, line 3: found 5"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied"),
        (
            ModuleNotFoundError("No module named 'plotly'", name="plotly.graph_objects"),
            "[demo]'",
        ),
        (MemoryError(), "out of memory"),
        (
            RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer"),
            "another process of this run",
        ),
        (
            RuntimeError("[enforce fail at inline_container.cc:672] unexpected pos 8"),
            "the disk is full",
        ),
        # The tokenizers library raises plain exceptions.
        (Exception("No space left on device (os error 28)"), "the disk is full"),
        (TmdeError("a/gloo/b.txt, line 3: found 5"), "a/gloo/b.txt, line 3: found 5"),
        (ZeroDivisionError("x"), None),
        (ValueError("zip() argument 2 is longer than argument 1"), None),
        (ValueError("operands could not be broadcast together"), None),
        (ValueError("Singular matrix"), None),
    ],
    ids=str,
)
def test_defects_alone_keep_their_traceback(error, message, monkeypatch):
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["fail"])
    if message is None:
        assert result.exception is error
        return
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    monkeypatch.setenv("TMDE_TRACEBACK", "1")
    assert CliRunner().invoke(app, ["fail"]).exception is error


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("share: found 2, expected", "--share: found 2, expected"),
        ("share=True replaces it", "--share replaces it"),
        ("give gold=FILE or min_score", "give --gold=FILE or --min-score"),
        # A message about a file of that name, values of Python, and words that are no arguments.
        ("folder: found no column", "folder: found no column"),
        ('pass columns={"de": "a"} or languages=[de, en]',) * 2,
        ("the share of rows in my/min_score.csv",) * 2,
    ],
)
def test_arguments_in_messages_are_options(message, expected):
    names = ("share", "gold", "min_score", "columns", "languages")
    parameters = [SimpleNamespace(name=n, opts=["--" + n.replace("_", "-")]) for n in names]
    parameters.append(SimpleNamespace(name="folder", opts=["--output", "-o"]))
    assert with_option_names(message, SimpleNamespace(params=parameters)) == expected


def missing_package(name: str, command: str | None = None) -> str:
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    message = describe_error(error, command)
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("lancedb", "index", "search"),
        ("lancedb", "search", "search"),
        ("lancedb", "demo", "demo"),
        ("matplotlib", "train", "figures"),
        ("faiss", "mine", "search"),
    ],
)
def test_a_missing_package_is_of_the_extra_of_the_command(package, command, extra):
    assert f"[{extra}]" in missing_package(package, command)


def test_a_clone_pins_its_versions(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    assert "pip install -c constraints.txt -e '.[search]'" in missing_package("lancedb", "index")
    monkeypatch.chdir(root / "tests")
    assert f"-c {root / 'constraints.txt'} -e" in missing_package("lancedb", "index")


def test_an_installed_package_has_no_constraints(monkeypatch, tmp_path):
    monkeypatch.setattr(errors.tmde, "__file__", str(tmp_path / "tmde" / "__init__.py"))
    assert "pip install 'tmde[search]'" in missing_package("lancedb", "index")


def test_ctrl_c_that_a_lock_of_python_turns_into_another_error():
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.command()
    def work() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    @app.command()
    def rest() -> None: ...

    result = CliRunner().invoke(app, ["work"])
    assert result.exit_code == 130
    assert result.stderr == "Interrupted\n"


def is_filled(pipe) -> bool:
    """Return whether the reader of a pipe has not read everything yet."""
    fcntl = pytest.importorskip("fcntl")
    termios = pytest.importorskip("termios")
    return fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) != bytes(4)


@pytest.mark.nightly
def test_ctrl_c_in_a_real_process(tmp_path):
    command = [sys.executable, "-m", "tmde", "embed", "pipe.txt", "-o", "new.npy", "-m", "model"]
    os.mkfifo(tmp_path / "pipe.txt")
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    # The pipe opens when the command opens it, and is empty when the command waits for more.
    with open(tmp_path / "pipe.txt", "wb", buffering=0) as pipe:
        pipe.write(b"haus\n")
        while is_filled(pipe):
            time.sleep(0.02)
        # A signal that arrives within a callback of Python's own is lost, so it is sent again.
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
                break
        output = process.communicate(timeout=60)[1]
    assert (process.returncode, output) == (130, "Interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.txt"]
