"""`tmde embed` with documents longer than the model takes: in one pass, in shards, by two processes."""

import json
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from typer.testing import CliRunner

from modeling_tmde import long_documents
from modeling_tmde.cli.embed import embed
from modeling_tmde.cli.embedder_options import AGGREGATIONS
from modeling_tmde.density import SentenceDensity
from modeling_tmde.embedding import DocumentEmbedder
from tests.cli.test_embed_shards import free_port, start
from tests.modeling_tmde.test_embedding import make_tokenizer, make_xlmr

app = typer.Typer()
app.command()(embed)
LONG = "Die Sitzung ist eröffnet. The sitting is open! Se abre la sesión; gracias. "
TEXTS = ["a", LONG * 3, "", "gracias.", LONG, LONG * 2 + "b", "The sitting.", LONG[9:], "Das ist bzw. Das war. " * 9]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Takes 24 tokens."""
    path = tmp_path_factory.mktemp("model")
    make_xlmr(26).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def density(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("density") / "density.npz"
    sentences = [f"{word} {other}" for word in LONG.split() for other in LONG.split()]
    vectors = DocumentEmbedder.from_pretrained(model, device="cpu").encode(sentences)
    SentenceDensity(components=4, kernel="gaussian").fit(vectors).save(path)
    return path


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


def expected_vectors(model, **options):
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", **options)
    return embedder.encode(TEXTS), embedder.last_report


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"long_documents": "truncate"},
        {"long_documents": "chunk"},
        {"long_documents": "chunk", "window": 12, "stride": 3, "aggregation": "max"},
        {"long_documents": "sentences", "window": 10, "aggregation": "density"},
    ],
)
def test_every_mode_equals_encode(model, density, source, tmp_path, options, resume):
    options = options | ({"aggregation": str(density)} if options.get("aggregation") == "density" else {})
    given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    out = tmp_path / "out.npy"
    result = run(source, "-o", out, "-m", model, "--shard-size", 4, *given, *resume)
    assert result.exit_code == 0, result.output
    vectors, report = expected_vectors(model, **options)
    np.testing.assert_allclose(np.load(out), vectors, rtol=0, atol=1e-5)
    if options.get("long_documents", "truncate") == "truncate":
        said = f"({report.tokens:,} tokens, {report.truncated} truncated)"
        assert report.truncated > 2
    else:
        pieces = report.pieces - len(TEXTS) + report.split
        said = f"({report.tokens:,} tokens, 0 truncated, {report.split} split into {pieces} pieces)"
        assert report.split > 2 and pieces > 2 * report.split
    assert said in result.stderr


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
def test_sentences_end_by_the_rules_of_each_documents_language(model, tmp_path, kind):
    """The model needs no language, but the splitter knows 'bzw.' as an abbreviation of German only."""
    codes = ["de" if i % 2 else "en" for i in range(len(TEXTS))]
    source, out = tmp_path / f"in{kind}", tmp_path / "out.npy"
    if kind == ".parquet":
        pq.write_table(pa.table({"text": TEXTS, "code": codes}), source)
    else:
        rows = [json.dumps({"text": text, "code": code}) for text, code in zip(TEXTS, codes, strict=True)]
        source.write_text("\n".join(rows), encoding="utf-8")
    options = ["-m", model, "--long-documents", "sentences", "--shard-size", 2, "--overwrite"]
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", long_documents="sentences")
    for language, given in ((codes, ["--language-field", "code"]), ("de", ["--language", "de"])):
        result = run(source, "-o", out, *options, *given)
        assert result.exit_code == 0, result.output
        vectors = embedder.encode(TEXTS, language=language)
        np.testing.assert_allclose(np.load(out), vectors, rtol=0, atol=1e-5)
    assert np.abs(vectors[-1] - embedder.encode(TEXTS[-1], language="en")).max() > 1e-3
    # Without sentences, as ever: not even read in step.
    result = run(
        source, "-o", out, "-m", model, "--long-documents", "chunk", "--language-field", "code", "--overwrite"
    )
    assert result.exit_code == 0, result.output


def test_shards_of_other_settings_are_not_gone_on_with(model, density, source, tmp_path, monkeypatch):
    out = tmp_path / "out.npy"
    options = [source, "-o", out, "-m", model, "--shard-size", 2, "--resume"]
    other = tmp_path / "other.npz"
    other.write_bytes(density.read_bytes())
    chunk = ["--long-documents", "chunk", "--window", 12, "--aggregation"]

    def fail(*_, **__):
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("modeling_tmde.cli.embed_shards._join", fail)
        error = run(*options, *chunk, density).exception
        assert isinstance(error, RuntimeError) and str(error) == "interrupted"
    assert len(list((tmp_path / "out.npy.shards").glob("*.npy"))) == 5
    SentenceDensity(components=3).fit(np.random.default_rng(0).normal(size=(50, 32))).save(tmp_path / "new.npz")
    for changed, message in (
        ([], "its long_documents is 'chunk', now it is 'truncate'"),
        (["--long-documents", "sentences", "--window", 12], "its long_documents is 'chunk', now it is 'sentences'"),
        ([*chunk[:3], 13, "--aggregation", density], "its window is 12, now it is 13"),
        ([*chunk, density, "--stride", 1], "its stride is 5, now it is 1"),
        ([*chunk, "mean"], "its aggregation is 'density"),
        ([*chunk, tmp_path / "new.npz"], "its aggregation is 'density"),
    ):
        result = run(*options, *changed)
        assert result.exit_code == 1 and "holds shards of another run" in result.stderr, result.output
        assert message in " ".join(result.stderr.split())
    # The same density in another file, and a default that is spelt out, are the same.
    result = run(*options, *chunk, other, "--stride", 5)
    assert result.exit_code == 0 and "9 were done before" in result.stderr, result.output
    vectors, _ = expected_vectors(model, long_documents="chunk", window=12, aggregation=density)
    np.testing.assert_allclose(np.load(out), vectors, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_two_processes(model, source, tmp_path):
    out, port = tmp_path / "out.npy", free_port()
    options = ["--long-documents", "sentences", "--window", 10, "--aggregation", "max", "--shard-size", 2]
    command = [source, "-o", out, "-m", model, "--device", "cpu", *options]
    processes = [start(rank, port, *command) for rank in (0, 1)]
    try:
        _, stderr = processes[0].communicate(timeout=120)
        processes[1].communicate(timeout=60)
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        raise
    assert [process.returncode for process in processes] == [0, 0], stderr
    vectors, report = expected_vectors(model, long_documents="sentences", window=10, aggregation="max")
    np.testing.assert_allclose(np.load(out), vectors, rtol=0, atol=1e-5)
    pieces = report.pieces - len(TEXTS) + report.split
    assert f"9 texts ({report.tokens:,} tokens, 0 truncated, {report.split} split into {pieces} pieces)" in stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--window", 9],
            "--window: found 9 with --long-documents truncate (the default), which splits",
        ),
        (["--stride", 9, "--long-documents", "truncate"], "--stride: found 9 with --long-documents truncate, which"),
        (["--aggregation", "max"], "--aggregation: found max with --long-documents truncate (the default)"),
        (
            ["--long-documents", "chunk", "--aggregation", "avg"],
            "--aggregation: found 'avg', which is no file; expected mean, max or the file",
        ),
    ],
)
def test_options_that_cannot_be_are_told_before_the_model_is_loaded(source, tmp_path, options, message):
    result = run(source, "-o", tmp_path / "out.npy", "-m", tmp_path / "nowhere", *options)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith(f"Error: {message}"), result.output
    assert AGGREGATIONS == long_documents.AGGREGATIONS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--long-documents", "chunk", "--window", 25], "--window: found 25 tokens, expected 3 to 24"),
        (["--long-documents", "chunk", "--stride", 23], "--stride: found 23 tokens, expected 1 to 22"),
        (
            ["--long-documents", "chunk", "--aggregation", "in.txt"],
            "--aggregation: in.txt: not a density that SentenceDensity.save",
        ),
        (
            ["--long-documents", "chunk", "--aggregation", "d.npz"],
            "--aggregation: found a density of vectors of dimension 5, expected 32, that of the model",
        ),
    ],
)
def test_what_is_wrong_is_said(model, source, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    SentenceDensity(components=3).fit(np.random.default_rng(0).normal(size=(50, 5))).save("d.npz")
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run("in.txt", "-o", "out.npy", "-m", model, *options)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith(f"Error: {message}"), result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_out_of_memory_names_device_and_what_to_do(model, source, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("Tried to allocate 1 GiB")

    monkeypatch.setattr(DocumentEmbedder, "_embed_window", fail)
    result = run(source, "-o", tmp_path / "out.npy", "-m", model)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit), result.exception
    said = "out of memory on cpu; lower --batch-tokens. Tried to allocate 1 GiB"
    assert said in " ".join(result.stderr.split()), result.output
