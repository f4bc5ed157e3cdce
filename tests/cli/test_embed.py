"""`tmde embed`: files and pipes in, .npy and .parquet out, clear errors, nothing left behind."""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.cli.embed import embed
from modeling_tmde.embedding import DocumentEmbedder

app = typer.Typer()
app.command()(embed)
PROGRAM = "import typer; from modeling_tmde.cli.embed import embed; app = typer.Typer(); app.command()(embed); app()"
TEXTS = ["Guten Tag", "", "Good\u2028day\rall", "word " * 60, "Buenos días"]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(path)
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=300, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=34, pad_token_id=1, initializer_range=0.3,
    )  # fmt: skip
    XLMRobertaModel(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def expected(model):
    return DocumentEmbedder.from_pretrained(model, device="cpu").encode(TEXTS)


@pytest.fixture
def inputs(tmp_path):
    """The same documents in each format."""
    text, jsonl, parquet = tmp_path / "in.txt", tmp_path / "in.jsonl", tmp_path / "in.parquet"
    # a BOM, both line ends, and none after the last line
    text.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(TEXTS[:2]).encode() + b"\n" + "\n".join(TEXTS[2:]).encode())
    rows = [{"id": i, "text": text} | ({"late": [0.5]} if i > 2 else {}) for i, text in enumerate(TEXTS)]
    jsonl.write_text("\n\n".join(json.dumps(row) for row in rows) + "\n\n")
    pq.write_table(pa.table({"n": range(5), "body": TEXTS}), parquet, row_group_size=3)
    return {"text": text, "jsonl": jsonl, "parquet": parquet}


def run(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **kwargs)


def vectors_of(path):
    if path.suffix == ".npy":
        return np.load(path)
    return np.stack(pq.read_table(path)["embedding"].to_numpy())


@pytest.mark.parametrize("rows", [2, 8192])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet"])
def test_every_format_equals_encode(model, inputs, expected, kind, suffix, rows, tmp_path):
    out = tmp_path / f"out{suffix}"
    field = ["--field", "body"] if kind == "parquet" else []
    result = run(inputs[kind], "-o", out, "-m", model, "--device", "cpu", "--shard-size", rows, *field)
    assert result.exit_code == 0, result.output
    assert "5 texts (" in result.stderr and "1 truncated" in result.stderr and str(out) in result.stderr
    vectors = vectors_of(out)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(p.name for p in inputs.values()), out.name])


def test_parquet_keeps_the_columns(model, inputs, tmp_path):
    expected = {
        "text": {"text": TEXTS},
        "jsonl": {"text": TEXTS, "id": list(range(5)), "late": [None] * 3 + [[0.5]] * 2},
        "parquet": {"n": list(range(5)), "body": TEXTS},
    }
    for kind, columns in expected.items():
        out = tmp_path / f"{kind}.out.parquet"
        field = ["--field", "body"] if kind == "parquet" else []
        assert run(inputs[kind], "-o", out, "-m", model, "--shard-size", 2, *field).exit_code == 0
        table = pq.read_table(out)
        assert table.drop_columns(["embedding"]).to_pydict() == columns
        assert table.schema.field("embedding").type == pa.list_(pa.float32(), 24)
        assert pq.ParquetFile(out).num_row_groups == 3


def test_options_reach_the_embedder(model, inputs, tmp_path):
    out = tmp_path / "out.npy"
    options = ["--pooling", "cls", "--max-length", 9, "--normalize", "--dtype", "bfloat16", "--batch-tokens", 20]
    assert run(inputs["text"], "-o", out, "-m", model, "--device", "cpu", *options).exit_code == 0
    embedder = DocumentEmbedder.from_pretrained(model, pooling="cls", max_length=9, dtype="bfloat16", device="cpu")
    np.testing.assert_array_equal(np.load(out), embedder.encode(TEXTS, batch_tokens=20, normalize=True))


def test_modes_reach_the_embedder(model, inputs, tmp_path):
    out = tmp_path / "out.npy"
    assert run(inputs["text"], "-o", out, "-m", model, "--device", "cpu", "--quantization", "int8").exit_code == 0
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", quantization="int8")
    np.testing.assert_array_equal(np.load(out), embedder.encode(TEXTS))
    for options in (["--backend", "onnx"], ["--compile"]):
        arguments = [inputs["text"], "-o", out, "-m", model, "--device", "cpu", "--dtype", "bfloat16", "--overwrite"]
        result = run(*arguments, "--quantization", "int8", *options)
        assert result.exit_code == 1 and "Error: --model" in result.stderr, result.output


def test_without_max_length_all_that_the_model_takes_is_read(model, tokenizer, tmp_path):
    """The XLM-R model takes 32 tokens, the bag any number; what differs lies beyond 750."""
    bag, text, out = tmp_path / "bag", tmp_path / "texts", tmp_path / "out.npy"
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(bag)
    tokenizer.save_pretrained(bag)
    text.write_text("casa " * 800 + "\n" + "casa " * 800 + "noche " * 99, encoding="utf-8")
    for folder, options, cut in ((bag, [], 0), (bag, ["--max-length", 750], 2), (model, [], 2)):
        result = run(text, "-o", out, "-m", folder, "--device", "cpu", "--overwrite", *options)
        assert result.exit_code == 0 and f"{cut} truncated" in result.stderr, result.output
        first, second = np.load(out)
        assert np.allclose(first, second, atol=1e-5) == (cut == 2)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_empty_input(model, tmp_path, suffix):
    empty, out = tmp_path / "empty", tmp_path / f"out{suffix}"
    empty.touch()
    for kind in ("text", "jsonl"):
        result = run(empty, "-o", out, "-m", model, "--format", kind, "--overwrite")
        assert result.exit_code == 0, result.output
        assert (np.load(out).shape == (0, 24)) if suffix == ".npy" else (pq.read_metadata(out).num_rows == 0)


def test_overwrite_and_links(model, inputs, tmp_path):
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    real.write_bytes(b"old")
    link.symlink_to(real)
    # the model is not looked at before OUT
    result = run(inputs["text"], "-o", link, "-m", "no/model/there")
    assert result.exit_code == 1 and "exists; give --overwrite" in result.stderr and real.read_bytes() == b"old"
    assert run(inputs["text"], "-o", link, "-m", model, "--overwrite").exit_code == 0
    assert link.is_symlink() and np.load(real).shape == (5, 24)


def pipe(arguments, **kwargs):
    command = [sys.executable, "-c", PROGRAM, *(str(argument) for argument in arguments)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **kwargs
    )


def test_real_pipe(model, inputs, expected, tmp_path):
    """Two processes at once: a text pipe, and JSONL to parquet, which needs two passes."""
    text = pipe(["-", "-o", tmp_path / "out.npy", "-m", model, "--device", "cpu"])
    jsonl = pipe(["-", "-o", tmp_path / "out.parquet", "-m", model, "--format", "jsonl"], cwd=tmp_path)
    for process, kind, out in ((text, "text", "out.npy"), (jsonl, "jsonl", "out.parquet")):
        stdout, stderr = process.communicate(inputs[kind].read_bytes(), timeout=120)
        assert process.returncode == 0, stderr.decode()
        assert stdout == b"" and b"5 texts (" in stderr and b"Loading weights" not in stderr
        np.testing.assert_allclose(vectors_of(tmp_path / out), expected, rtol=0, atol=1e-5)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_interrupt_leaves_nothing(model, tmp_path):
    # A shell starts what it runs in the background deaf to SIGINT, these tests and their children included.
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = pipe(["-", "-o", tmp_path / "out.npy", "-m", model], preexec_fn=listen)
    process.stdin.write(b"a text\n" * 9000)  # more than a chunk: the writer is open, waiting for more
    process.stdin.flush()
    end = time.monotonic() + 100
    while not list(tmp_path.iterdir()) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0, stderr.decode()
    assert list(tmp_path.iterdir()) == [] and b"Traceback" not in stderr


def jsonl(*rows):
    return "\n".join(rows).encode()


BAD = [
    ("in.txt", b"fine\nno\xff\n", [], "in.txt, line 2: found 0xff at byte 3, expected UTF-8"),
    ("in.txt", b"fine", ["--field", "text"], "which has no fields"),
    ("in.csv", b"fine", [], ".csv is not an input format"),
    ("in.jsonl", jsonl('{"text": "a"}', '{"text": '), [], "in.jsonl, line 2: found"),
    ("in.jsonl", jsonl('["a"]'), [], 'line 1: found ["a"], expected a JSON object'),
    ("in.jsonl", jsonl('{"text": "a"}', "", '{"body": "a"}'), [], "line 3: field 'text' is missing, found ['body']"),
    ("in.jsonl", jsonl('{"text": null}'), [], "line 1, field 'text': found null, expected a string"),
    ("in.jsonl", jsonl('{"body": 3}'), ["--field", "body"], "field 'body': found 3, expected a string"),
    ("in.jsonl", jsonl(r'{"text": "a\ud800"}'), [], "lone surrogate"),
    ("in.parquet", b"PAR", [], "not a parquet file"),
]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize(("name", "content", "options", "message"), BAD)
def test_bad_input_is_named(tmp_path, name, content, options, message, suffix):
    source = tmp_path / name
    source.write_bytes(content)
    result = run(source, "-o", tmp_path / f"out{suffix}", "-m", "never/loaded/model", *options)
    assert result.exit_code == 1 and message in result.stderr, result.stderr
    assert result.stderr.startswith("Error: ") and result.exception.code == 1 and list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a", None]}, "row 2, column 'text': found null, expected a string"),
        ({"text": [1, 2]}, "column 'text': found type int64, expected strings"),
        ({"body": ["a"], "n": [1]}, "column 'text' is missing, found ['body', 'n']"),
        ({"text": ["a"], "embedding": [1]}, "has a column 'embedding' already"),
    ],
)
def test_bad_parquet_is_named(tmp_path, columns, message):
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns), source)
    result = run(source, "-o", tmp_path / "out.parquet", "-m", "never/loaded/model")
    assert result.exit_code == 1 and message in result.stderr, result.stderr


def test_fields_that_no_column_can_hold(tmp_path):
    for rows in (1, 10):  # in different chunks, in one
        source = tmp_path / "in.jsonl"
        source.write_bytes(jsonl('{"text": "a", "k": 1}', '{"text": "a", "k": "one"}'))
        result = run(source, "-o", tmp_path / "out.parquet", "-m", "never/loaded/model", "--shard-size", rows)
        assert result.exit_code == 1 and "in.jsonl, lines" in result.stderr and "k" in result.stderr


def test_late_error_leaves_nothing(model, tmp_path):
    source = tmp_path / "in.txt"
    source.write_bytes(b"fine\n" * 7 + b"\xff")
    for suffix in (".npy", ".parquet"):
        result = run(source, "-o", tmp_path / f"out{suffix}", "-m", model, "--shard-size", 2)
        assert result.exit_code == 1 and "line 8: found 0xff" in result.stderr
        assert list(tmp_path.iterdir()) == [source]


def test_other_mistakes(model, inputs, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text, out = inputs["text"], tmp_path / "out.npy"
    no_model, no_tokenizer = tmp_path / "no_model", tmp_path / "no_tokenizer"
    for folder in (no_model, no_tokenizer):
        folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (no_tokenizer / name).write_bytes((model / name).read_bytes())
    for arguments, message in [
        ((tmp_path / "nope.txt", "-o", out, "-m", model), "nope.txt: No such file"),
        ((tmp_path, "-o", out, "-m", model), "found a folder, expected one file"),
        ((text, "-o", tmp_path / "out.txt", "-m", model), "found suffix '.txt', expected .npy or .parquet"),
        ((text, "-o", tmp_path / "no" / "out.npy", "-m", model), "does not exist"),
        ((text, "-o", out, "-m", tmp_path / "nowhere"), "no folder"),
        ((text, "-o", out, "-m", "nowhere/model"), "no such folder, and as a Hub id"),
        ((text, "-o", out, "-m", text), "is a file; expected the folder"),
        ((text, "-o", out, "-m", no_model), "has no config.json"),
        ((text, "-o", out, "-m", no_tokenizer), "are the tokenizer's files in"),
        ((text, "-o", out, "-m", model, "--device", "nonsense"), "device: found 'nonsense'"),
        ((text, "-o", out, "-m", model, "--max-length", 2), "--max-length: found 2"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 1 and message in result.stderr, (arguments, result.output)
        assert not out.exists()
