"""`tmde embed`: files and pipes in, .npy and .parquet out, shards, two processes, a kill and another start."""

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

from tests.cli import conftest
from tests.conftest import save
from tests.tiny_embedders import make_tables, make_tokenizer, make_xlmr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.long_documents import SentenceDensity

LONG = "Die Sitzung ist eröffnet. The sitting is open! Se abre la sesión; gracias. "
TEXTS = ["Guten Tag", "", "Good\u2028day\rall", LONG * 3, "Buenos días"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Takes 24 tokens."""
    return save(tmp_path_factory.mktemp("model"), make_xlmr(26), make_tokenizer())


@pytest.fixture(scope="module")
def expected(model):
    return DocumentEmbedder.from_pretrained(model, device="cpu").encode(TEXTS)


@pytest.fixture
def inputs(tmp_path):
    """The same documents in each format."""
    text, jsonl, parquet = tmp_path / "in.txt", tmp_path / "in.jsonl", tmp_path / "in.parquet"
    text.write_bytes(
        b"\xef\xbb\xbf" + "\r\n".join(TEXTS[:2]).encode() + b"\n" + "\n".join(TEXTS[2:]).encode()
    )
    rows = [
        {"id": i, "text": text} | ({"late": [0.5]} if i > 2 else {}) for i, text in enumerate(TEXTS)
    ]
    jsonl.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    pq.write_table(pa.table({"n": range(5), "text": TEXTS}), parquet, row_group_size=3)
    return {"text": text, "jsonl": jsonl, "parquet": parquet}


def run(*arguments, **kwargs):
    return conftest.run("embed", *arguments, "--device", "cpu", **kwargs)


def vectors_of(path):
    return (
        np.load(path)
        if path.suffix == ".npy"
        else np.stack(pq.read_table(path)["embedding"].to_numpy())
    )


@pytest.mark.parametrize("options", [["--shard-size", 2, "--resume"], []], ids=str)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet"])
def test_every_format_equals_encode(model, inputs, expected, kind, suffix, options, tmp_path):
    out = tmp_path / f"out{suffix}"
    result = run(inputs[kind], "-o", out, "-m", model, *options)
    assert result.exit_code == 0, result.output
    assert (
        "5 texts (" in result.stderr
        and "1 truncated" in result.stderr
        and f"{out}: 5 x 32" in result.stderr
    )
    vectors = vectors_of(out)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    left = {path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")}
    assert left == {*(path.name for path in inputs.values()), out.name}
    if suffix == ".parquet":
        columns = {
            "text": {"text": TEXTS},
            "jsonl": {"text": TEXTS, "id": list(range(5)), "late": [None] * 3 + [[0.5]] * 2},
            "parquet": {"n": list(range(5)), "text": TEXTS},
        }
        table = pq.read_table(out)
        assert table.drop_columns(["embedding"]).to_pydict() == columns[kind]
        assert table.schema.field("embedding").type == pa.list_(pa.float32(), 32)


def test_options_reach_the_embedder(model, inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = DocumentEmbedder.from_pretrained(model, device="cpu").encode(LONG.split())
    SentenceDensity(components=4, kernel="gaussian").fit(vectors).save("density.npz")
    options = {
        "pooling": "cls",
        "max_length": 16,
        "dtype": "bfloat16",
        "long_documents": "chunk",
        "window": 12,
    }
    options |= {"stride": 3, "aggregation": "density.npz"}
    given = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    result = run(
        inputs["text"], "-o", "out.npy", "-m", model, "--normalize", "--batch-tokens", 40, *given
    )
    assert result.exit_code == 0, result.output
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", **options)
    expected, report = embedder.encode_with_report(TEXTS, 40, normalize=True)
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=0, atol=1e-5)
    assert f"{report.split} split, {report.pieces} pieces" in result.stderr


def test_languages_of_documents(tmp_path):
    save(tmp_path / "model", make_tables(), make_tokenizer())
    codes = ["de", "en", "fr"]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.npy"
    source.write_text("\n".join(json.dumps({"text": "Guten Tag", "code": code}) for code in codes))
    command = [source, "-o", out, "-m", tmp_path / "model", "--overwrite"]
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "model", device="cpu")
    for options, language in (
        (["--language-field", "code", "--shard-size", 2], codes),
        (["--language", "fr"], "fr"),
    ):
        assert run(*command, *options).exit_code == 0
        np.testing.assert_allclose(
            np.load(out), embedder.encode(["Guten Tag"] * 3, language=language), atol=1e-5
        )
    source.write_text(json.dumps({"text": "Guten Tag", "code": "xx"}))
    result = run(*command, "--language-field", "code")
    assert result.exit_code == 1
    assert "row 1, field 'code': found 'xx', expected one of the model's languages" in result.stderr


def test_empty_input_and_a_pipe(model, expected, tmp_path):
    empty, out = tmp_path / "empty.txt", tmp_path / "out.npy"
    empty.touch()
    assert run(empty, "-o", out, "-m", model).exit_code == 0
    assert np.load(out).shape == (0, 32)
    assert (
        run("-", "-o", out, "-m", model, "--overwrite", input="\n".join(TEXTS).encode()).exit_code
        == 0
    )
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-5)


def test_resume_continues_only_the_same_run(model, tmp_path):
    source, out = tmp_path / "in.txt", tmp_path / "out.npy"
    source.write_bytes("\n".join(TEXTS[:2] * 8).encode() + b"\n\xff\nlast\n")
    before = source.stat().st_mtime_ns
    command = [source, "-o", out, "-m", model, "--shard-size", 4]
    assert run(*command, "--resume").exit_code == 1
    folder = tmp_path / "out.npy.shards"
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"{i:08d}.npy" for i in range(4)),
        "manifest.json",
    ]
    result = run(*command)
    assert (
        result.exit_code == 1
        and "holds shards of an unfinished run; give --resume" in result.stderr
    )
    result = run(*command, "--resume", "--normalize")
    assert (
        result.exit_code == 1
        and "its normalize is 'False', now 'True'; give --overwrite" in result.stderr
    )
    source.write_bytes(source.read_bytes().replace(b"\xff", b"x"))
    result = run(*command, "--resume")
    assert result.exit_code == 1 and f"its input is '{source}, changed" in result.stderr
    os.utime(source, ns=(before, before))  # as if it had not changed: finished shards are kept
    np.save(folder / "00000001.npy", np.full((4, 32), 7, np.float32))
    out.touch()  # as after a kill between the last two steps: the file is written, the shards are deleted
    result = run(*command, "--resume")
    assert result.exit_code == 0 and "2 texts (" in result.stderr and not folder.exists(), (
        result.output
    )
    assert (np.load(out)[4:8] == 7).all() and np.load(out).shape == (18, 32)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")
def test_two_killed_processes_and_the_same_commands_again(model, tmp_path, monkeypatch):
    source, out, whole = tmp_path / "in.jsonl", tmp_path / "out.parquet", tmp_path / "whole.parquet"
    source.write_text(
        "".join(json.dumps({"id": i, "text": f"{i} gracias"}) + "\n" for i in range(2000))
    )
    options = ["-m", model, "--device", "cpu", "--shard-size", 4]
    command = [sys.executable, "-m", "tmde", "embed", *map(str, [source, "-o", out, *options])]

    def start(rank: int) -> subprocess.Popen:
        """As a launcher starts one of two processes."""
        environment = os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)

    processes, folder = [start(0), start(1)], tmp_path / "out.parquet.shards"
    end = time.monotonic() + 120
    while (
        not any(int(path.stem) % 2 for path in folder.glob("0*.parquet")) and time.monotonic() < end
    ):
        time.sleep(0.002)
    for process in processes:  # a launcher ends all when one is gone
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    assert 0 < len(list(folder.glob("0*.parquet"))) < 500 and not out.exists()
    second = start(1)
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "2")
        first = run(source, "-o", out, *options)
    assert "process 1 of 2" in second.communicate(timeout=120)[1] and second.returncode == 0
    assert first.exit_code == 0 and f"{out}: 2,000 x 32" in first.stderr and not folder.exists()
    assert run(source, "-o", whole, *options).exit_code == 0
    assert (
        pq.read_table(out)
        .drop_columns(["embedding"])
        .equals(pq.read_table(whole).drop_columns(["embedding"]))
    )
    np.testing.assert_allclose(vectors_of(out), vectors_of(whole), rtol=0, atol=1e-6)
