"""A user's mistake ends in one sentence that names what was found, never in a traceback; exit codes 1, 2 and 130."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
import typer
from typer.testing import CliRunner

from modeling_tmde.cli.main import app
from modeling_tmde.cli.mistakes import CommandGroup, run_told, sentence
from modeling_tmde.data.documents import EmbedError
from tests.conftest import tiny_model

COMMAND = [sys.executable, "-m", "modeling_tmde.cli.main"]
OUT = ["-o", "new.npy", "-m", "model"]
INDEX = ["-o", "new.index", "-m", "model"]
PAIRS = ["-o", "new.tsv", "-m", "model"]
RUN = ["-o", "run", "max_steps=2"]
TASK = ["--tasks", "word_order", "--no-cache", "--no-tfidf"]

# Words after `tmde`, exit code, and what the message says.
MISTAKES: list[tuple[str, int, tuple[str, ...]]] = [
    ("trian small", 2, ("No such command 'trian'", "'train'")),
    ("--verison", 2, ("--verison", "--version")),
    # models
    ("embed de.txt -o new.npy -m missing", 1, ("--model missing", "no such folder")),
    ("embed de.txt -o new.npy -m no/such/model", 1, ("--model no/such/model", "folder", "Hub id")),
    ("embed de.txt -o new.npy -m folder", 1, ("--model folder", "no config.json")),
    ("embed de.txt -o new.npy -m de.txt", 1, ("--model de.txt", "is a file", "folder")),
    ("embed de.txt -o new.npy -m no-weights", 1, ("--model no-weights", "model.safetensors")),
    ("embed de.txt -o new.npy -m cut-weights", 1, ("--model cut-weights", "damaged or cut off", "again")),
    ("embed de.txt -o new.npy -m empty-weights", 1, ("--model empty-weights", "damaged or cut off")),
    ("embed de.txt -o new.npy -m other-sizes", 1, ("--model other-sizes", "other sizes than its config.json")),
    ("embed de.txt -o new.npy -m no-tokenizer", 1, ("--model no-tokenizer", "tokenizer")),
    ("embed de.txt -o new.npy -m bad-config", 1, ("--model bad-config", "config.json", "JSON")),
    ("index d.jsonl -o new.index -m cut-weights", 1, ("--model cut-weights", "damaged or cut off")),
    ("align d.jsonl e.jsonl -o new.tsv -m cut-weights", 1, ("--model cut-weights", "damaged or cut off")),
    ("mine de.txt en.txt -o new.tsv -m cut-weights", 1, ("--model cut-weights", "damaged or cut off")),
    # inputs
    *[
        (f"{command} {name} {rest}", 1, words)
        for command, rest in (("embed", " ".join(OUT)), ("index", " ".join(INDEX)))
        for name, words in (
            ("missing.txt", ("missing.txt", "No such file")),
            ("folder", ("folder", "found a folder", "expected one file")),
            ("binary.txt", ("binary.txt, line 2", "0x80", "UTF-8")),
            ("binary.jsonl", ("binary.jsonl, line 1", "expected one JSON object a line")),
            ("half.jsonl", ("half.jsonl, line 2", "not json", "expected one JSON object a line")),
            ("number.jsonl", ("number.jsonl, line 1, field 'text'", "found 5", "expected a string")),
            ("other.jsonl", ("other.jsonl, line 1", "field 'text' is missing", "['body']", "--field")),
            ("binary.parquet", ("binary.parquet", "not a parquet file")),
            ("table.csv", ("table.csv", ".csv is not an input format", "--format")),
        )
    ],
    ("align missing.jsonl e.jsonl -o new.tsv -m model", 1, ("missing.jsonl", "No such file")),
    ("align empty.jsonl e.jsonl -o new.tsv -m model", 1, ("empty.jsonl", "no document", "expected at least one")),
    ("mine empty.txt en.txt -o new.tsv -m model", 1, ("empty.txt", "no sentence", "expected at least one")),
    ("mine binary.txt en.txt -o new.tsv -m model", 1, ("binary.txt, line 2", "UTF-8")),
    ("mine de.txt en.txt -o new.tsv -m model --gold de.txt", 1, ("--gold de.txt, line 1", "expected two ids")),
    ("mine de.txt en.txt -o new.tsv --vectors-a de.txt --vectors-b de.txt", 1, ("--vectors-a de.txt", ".npy")),
    ("align d.jsonl e.jsonl -m model -o new.tsv --url-field no", 1, ("no field 'no'", "['id', 'text']")),
    ("search bridge missing", 1, ("missing", "index")),
    ("search bridge folder", 1, ("folder", "no index.json")),
    ("search bridge", 1, ("expected a query and an index", "tmde search")),
    ("index -o missing --delete 3", 1, ("missing", "index")),
    # outputs
    ("embed de.txt -o new.txt -m model", 1, ("--output new.txt", "'.txt'", ".npy or .parquet")),
    ("embed de.txt -o there.npy -m model", 1, ("--output there.npy exists", "--overwrite")),
    ("embed de.txt -o no/new.npy -m model", 1, ("--output no/new.npy", "does not exist")),
    ("embed de.txt -o de.txt/new.npy -m model", 1, ("--output de.txt/new.npy", "does not exist")),
    ("index d.jsonl -o folder-with-files -m model", 1, ("folder-with-files", "not an index", "empty folder")),
    ("index d.jsonl -o de.txt -m model", 1, ("--output de.txt", "not an index")),
    ("quickstart -o folder-with-files", 2, ("folder-with-files is not empty", "choose another")),
    ("quickstart -o de.txt", 2, ("de.txt is a file", "folder")),
    ("eval model -o de.txt", 1, ("-o de.txt", "found a file, expected a folder")),
    ("eval model -o folder-with-files", 1, ("-o folder-with-files", "found other files")),
    ("train quickstart -o folder-with-files", 1, ("folder-with-files is not empty", "--overwrite")),
    # values of options
    ("embed", 2, ("INPUT",)),
    ("embed de.txt -m model", 2, ("--output",)),
    ("embed de.txt -o new.npy -m model --windo 3", 2, ("--windo", "--window")),
    ("embed de.txt -o new.npy -m model --dtype float8", 2, ("--dtype", "float8", "bfloat16")),
    ("embed de.txt -o new.npy -m model --batch-tokens -1", 2, ("--batch-tokens", "1")),
    ("embed de.txt -o new.npy -m model --max-length many", 2, ("--max-length", "integer")),
    ("embed de.txt -o new.npy -m model --max-length 1", 1, ("--max-length: found 1, expected more than",)),
    ("embed de.txt -o new.npy -m model --device gpu", 1, ("--device: found 'gpu'", "cpu")),
    ("embed de.txt -o new.npy -m model --window 30", 1, ("--window: found 30", "--long-documents")),
    ("search bridge there.index -k 0", 2, ("-k", "1")),
    ("mine de.txt en.txt -o new.tsv -m model --scoring best", 2, ("--scoring", "best", "ratio")),
    ("mine de.txt en.txt -o new.tsv -m model --language-a de", 1, ("--language-a", "--language-b", "both or neither")),
    ("align d.jsonl e.jsonl -m model", 1, ("--output", "--rows")),
    ("quickstart --seed -1", 2, ("--seed", "0")),
    # recipes and comparisons
    ("train", (1, 2), ("recipe",)),
    ("train smal", 1, ("no recipe 'smal'", "small")),
    ("train broken.yaml", 1, ("broken.yaml is not YAML",)),
    ("train list.yaml", 1, ("list.yaml must be a mapping", "data")),
    ("train near.yaml", 1, ("'learning_rat' is unknown", "did you mean learning_rate")),
    ("train quickstart learning_rat=1 -o run", 1, ("'learning_rat' is unknown", "did you mean learning_rate")),
    ("train quickstart learning_rate -o run", 1, ("'learning_rate'", "key=value")),
    ("train quickstart objectives.distanc={} -o run", 1, ("'distanc' is unknown", "did you mean distance")),
    ("train quickstart --train missing.jsonl -o run", 1, ("missing.jsonl",)),
    ("compare no -o new", 1, ("no comparison 'no'", "papers")),
    ("compare binary.yaml -o new", 1, ("binary.yaml is not YAML", "UTF-8")),
    ("compare broken.yaml -o new", 1, ("broken.yaml is not YAML",)),
    ("compare papers -o new --train sample --dev sample", 1, ("found no data of", "--eval-data")),
    # sharing
    ("push missing user/x", 1, ("no folder missing", "trained model")),
    ("push folder user/x", 1, ("folder has no config.json",)),
    ("push folder-with-files user/x", 1, ("folder-with-files has no config.json",)),
    ("push de.txt user/x", 1, ("de.txt", "folder")),
    ("push cut-weights user/x", 1, ("cut-weights/model.safetensors", "cut off")),
    ("push no-tokenizer user/x", 1, ("no-tokenizer", "tokenizer")),
    ("push bad-config user/x", 1, ("bad-config/config.json", "cannot be read")),
    ("push model tiny", 1, ("'tiny'", "USER/NAME")),
    ("push model user/a/b", 1, ("'user/a/b'", "cannot be the name")),
    ("push model user/x", 1, ("user/x", "no token", "hf auth login", "HF_TOKEN")),
    ("push model user/x --data-license cc0", 1, ("--data-license", "'cc0'", "NAME=LICENCE")),
    ("push model user/x --results folder", 1, ("folder", "no eval.json")),
    ("push missing.jsonl user/x --repo-type dataset", 1, ("missing.jsonl", "no such file")),
    ("push folder user/x --repo-type dataset", 1, ("folder", "without such files", ".parquet")),
    ("push mixed user/x --repo-type dataset", 1, ("mixed/b.jsonl, row 1", "invalid JSON")),
    ("push mixed/a.jsonl x --repo-type dataset", 1, ("'x'", "USER/NAME")),
    ("push mixed/a.jsonl user/x --repo-type dataset", 1, ("user/x", "no token", "hf auth login")),
    ("push mixed/a.jsonl user/x --repo-type dataset --results folder", 1, ("--results", "are of models")),
    ("demo missing", 1, ("MODEL missing", "no such folder")),
    ("demo no/such/model", 1, ("MODEL no/such/model",)),
    ("demo folder", 1, ("MODEL folder", "no config.json")),
    ("demo folder-with-files", 1, ("MODEL folder-with-files", "no config.json")),
    ("demo model missing.jsonl", 1, ("missing.jsonl", "No such file")),
    ("demo model folder", 1, ("folder", "expected one file")),
    ("demo model empty.jsonl", 1, ("empty.jsonl", "no document")),
    ("demo model half.jsonl", 1, ("half.jsonl, line 2", "not json")),
    ("demo model d.jsonl --label-field topic", 1, ("no field 'topic'", "--label-field")),
    ("export onnx missing -o new", 1, ("missing", "no such folder")),
    ("export onnx no/such/model -o new", 1, ("no/such/model",)),
    ("export onnx folder", 1, ("folder", "no config.json")),
    ("export onnx model -o de.txt", 1, ("--output de.txt is a file", "folder")),
    ("export onnx model -o other-sizes", 1, ("--output other-sizes", "another model")),
    ("export onnx cut-weights", 1, ("cut-weights", "damaged or cut off")),
    ("export static missing -o new", 1, ("missing", "no such folder")),
    ("export static model -o folder-with-files", 1, ("--output folder-with-files", "already")),
    ("export static model -o new", 1, ("'tmde'", "expected a BagModel")),
    ("add-language missing it --train d.jsonl -o run", 1, ("missing",)),
    ("add-language folder pt --train d.jsonl -o run", 1, ("folder", "no config.json")),
    ("add-language model de --train d.jsonl -o run", 1, ("'de'", "already")),
    # evaluation
    ("eval missing --tasks word_order", 1, ("missing",)),
    ("eval cut-weights --tasks word_order --no-cache", 1, ("cut-weights", "damaged or cut off")),
    ("eval model --tasks word_ordr", 1, ("word_ordr", "word_order")),
    ("eval model --data missing", 1, ("--data", "missing")),
    ("eval model --tasks sentence_retrieval=missing.jsonl --no-cache", 1, ("missing.jsonl",)),
    ("eval model model --tasks word_order", 1, ("Two are called", "NAME=PATH")),
    ("eval model --set x --tasks word_order", 1, ("--set", "TASK.OPTION=VALUE")),
    ("eval compare folder folder", 1, ("folder",)),
    ("eval curves folder", 1, ("folder",)),
]  # fmt: skip


@pytest.fixture(scope="session")
def place(tmp_path_factory, tokenizer):
    """A folder with a model, damaged copies of it, and files of all kinds."""
    root = tmp_path_factory.mktemp("mistakes")
    binary = bytes(range(256)) * 4
    for name in ("txt", "jsonl", "parquet", "yaml"):
        (root / f"binary.{name}").write_bytes(binary)
    texts = {
        "de.txt": "eins\nzwei\n", "en.txt": "one\ntwo\n", "empty.txt": "", "empty.jsonl": "", "table.csv": "x\n",
        "d.jsonl": '{"id": "a", "text": "eins"}\n{"id": "b", "text": "zwei"}\n',
        "e.jsonl": '{"id": "x", "text": "one"}\n',
        "half.jsonl": '{"text": "x"}\nnot json\n', "number.jsonl": '{"text": 5}\n', "other.jsonl": '{"body": "x"}\n',
        "broken.yaml": "data: {train: sample\n", "list.yaml": "- a\n", "near.yaml": "training: {learning_rat: 1}\n",
        "there.npy": "", "folder-with-files/file": "",
    }  # fmt: skip
    texts |= {"mixed/a.jsonl": '{"translation": {"de": "eins", "en": "one"}}\n', "mixed/b.jsonl": "not json\n"}
    for folder in ("folder", "folder-with-files", "mixed"):
        (root / folder).mkdir()
    for name, text in texts.items():
        (root / name).write_text(text)
    for name in ("model", "no-weights", "cut-weights", "empty-weights", "other-sizes", "no-tokenizer", "bad-config"):
        tiny_model().save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    weights = (root / "model/model.safetensors").read_bytes()
    (root / "no-weights/model.safetensors").unlink()
    (root / "cut-weights/model.safetensors").write_bytes(weights[: len(weights) // 2])
    (root / "empty-weights/model.safetensors").write_bytes(b"")
    config = json.loads((root / "model/config.json").read_text())
    (root / "other-sizes/config.json").write_text(json.dumps(config | {"encoder_ffn_dim": 96}))
    (root / "no-tokenizer/tokenizer.json").unlink()
    (root / "bad-config/config.json").write_text("{")
    return root


@pytest.fixture
def at(place, monkeypatch):
    """Commands run there without a token; nothing looks for the network, and no file or folder of theirs is left."""
    monkeypatch.chdir(place)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(place / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("COLUMNS", "400")
    before = sorted(place.rglob("*"))
    yield place
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES, ids=[words for words, *_ in MISTAKES])
def test_mistake_is_told_in_one_sentence(at, words, code, message):
    result = CliRunner().invoke(app, words.split())
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert result.exit_code == code if isinstance(code, int) else result.exit_code in code
    if result.exit_code == 1:
        told = result.stderr.strip().splitlines()
        assert [line.startswith("Error: ") for line in told].count(True) == 1, result.output
    for part in message:
        assert part in result.output


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        ("faiss", "index d.jsonl -o new.index -m model", "tmde[eval]"),
        ("gradio", "demo model", "tmde[demo]"),
        ("onnxruntime", "embed de.txt -o new.npy -m model --backend onnx", "tmde[onnx]"),
        ("matplotlib", "quickstart -o new", "tmde[figures]"),
        ("matplotlib", "eval model -o new", "tmde[eval]"),
    ],
)
def test_missing_extra_is_named(at, monkeypatch, module, words, message):
    monkeypatch.setitem(sys.modules, module, None)  # importing it raises ModuleNotFoundError
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code in (1, 2) and isinstance(result.exception, SystemExit)
    assert module in result.output and message in result.output


def test_full_disk_leaves_no_file(at, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    result = CliRunner().invoke(app, ["embed", "de.txt", *OUT])
    assert result.exit_code == 1
    assert "Error: --output new.npy: No space left on device" in result.stderr


def failing_app(error: BaseException) -> typer.Typer:
    made = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @made.command()
    def fail() -> None:
        raise error

    made.command("other")(lambda: None)
    return made


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (EmbedError("x.txt: is wrong"), "x.txt: is wrong"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied; choose another place"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; free some space"),
        (OSError("no connection to the Hub"), "no connection to the Hub"),
        (ModuleNotFoundError("No module named 'plotly'", name="plotly.graph_objects"), "pip install 'tmde[demo]'"),
        (ModuleNotFoundError("No module named 'scipy'", name="scipy"), "the package scipy is missing"),
        (ImportError("Give `pip install x`"), "Give `pip install x`"),
        (MemoryError(), "out of memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_net_tells_what_no_command_foresaw(error, message):
    result = CliRunner().invoke(failing_app(error), ["fail"])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert result.stderr.startswith(f"Error: {message}") or message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), ValueError("x"), ImportError("x", name="modeling_tmde.no")])
def test_defects_keep_their_traceback(error, capsys, monkeypatch):
    assert sentence(error) is None
    monkeypatch.setattr(sys, "argv", ["tmde", "fail"])
    assert run_told(failing_app(error)) == 1
    told = capsys.readouterr().err
    assert "Traceback" in told and "test_user_mistakes.py" in told and "please report it" in told


def test_interruption_ends_with_130(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tmde", "fail"])
    assert run_told(failing_app(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "Interrupted\n"


def test_ctrl_c_in_a_real_process(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    process = subprocess.Popen(
        [*COMMAND, "embed", "pipe.txt", *OUT], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    with open(tmp_path / "pipe.txt", "wb"):  # opens when the command does
        for _ in range(20):  # one that arrives within a callback of Python's own is lost, and a person tries again
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
                break
        told = process.communicate(timeout=60)[1]
    assert (process.returncode, told) == (130, "Interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.txt"]


@pytest.mark.parametrize("words", [["--help"], ["eval", "tasks"]], ids=" ".join)
def test_reader_of_a_pipe_that_goes_away_ends_a_command_silently(words):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, *words], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("words", [["--version"], ["--help"]], ids=" ".join)
def test_full_disk_of_what_is_printed(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ") and "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1
