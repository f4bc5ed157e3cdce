"""`tmde embed`: files and pipes in, .npy and .parquet out; shards, two processes, a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import conftest
from tests.conftest import nightly_except, save
from tests.tiny_embedders import make_tables, make_tokenizer, make_xlmr
from tmde.data.shards import Shards
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentence_density import SentenceDensity

LONG = "Die Sitzung ist eröffnet. The sitting is open! Se abre la sesión; gracias. "
TEXTS = ["Guten Tag", "", "Good\u2028day\rall", LONG * 3, "Buenos días"]
# The columns that a parquet file keeps of each format of the input.
COLUMNS = {
    "text": {"text": TEXTS},
    "jsonl": {"text": TEXTS, "id": [0, 1, 2, 3, 4], "late": [None, None, None, [0.5], [0.5]]},
    "parquet": {"n": [0, 1, 2, 3, 4], "text": TEXTS},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that takes 24 tokens."""
    return save(tmp_path_factory.mktemp("model"), make_xlmr(26), make_tokenizer())


@pytest.fixture(scope="module")
def expected(model):
    return DocumentEmbedder.from_pretrained(model, device="cpu").encode(TEXTS)


@pytest.fixture
def inputs(tmp_path):
    """The same documents in each format."""
    paths = {name: tmp_path / f"in.{name}" for name in ("text", "jsonl", "parquet")}
    paths["text"] = tmp_path / "in.txt"
    # A byte order mark, and both kinds of line ends.
    first_lines = "\r\n".join(TEXTS[:2])
    last_lines = "\n".join(TEXTS[2:])
    paths["text"].write_bytes(f"\ufeff{first_lines}\n{last_lines}".encode())
    lines = []
    for number, text in enumerate(TEXTS):
        row = {"id": number, "text": text}
        if number > 2:
            row["late"] = [0.5]  # The first rows lack this field.
        lines.append(json.dumps(row) + "\n")
    paths["jsonl"].write_text("".join(lines))
    pq.write_table(pa.table(COLUMNS["parquet"]), paths["parquet"], row_group_size=3)
    return paths


def run(*arguments, **kwargs):
    return conftest.run("embed", *arguments, "--device", "cpu", **kwargs)


def ok(*arguments, **kwargs):
    result = run(*arguments, **kwargs)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    """The message of a command that ends with exit code 1."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


def vectors_of(path):
    if path.suffix == ".npy":
        return np.load(path)
    return np.stack(pq.read_table(path)["embedding"].to_numpy())


# ---- Formats


@pytest.mark.parametrize("options", [["--shard-size", 2, "--resume"], []], ids=str)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_every_format_equals_encode(model, inputs, expected, kind, suffix, options, tmp_path):
    out = tmp_path / f"out{suffix}"
    ok(inputs[kind], "-o", out, "-m", model, *options)
    vectors = vectors_of(out)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [["--shard-size", 2, "--resume"], []], ids=str)
def test_a_finished_run_leaves_its_output_alone(model, inputs, options, tmp_path):
    before = set(tmp_path.iterdir())
    ok(inputs["text"], "-o", tmp_path / "out.npy", "-m", model, *options)
    new_files = {path.name for path in set(tmp_path.iterdir()) - before}
    assert {name for name in new_files if not name.endswith(".lock")} == {"out.npy"}


def test_the_report(model, inputs, tmp_path):
    out = tmp_path / "out.npy"
    message = ok(inputs["text"], "-o", out, "-m", model).stderr
    assert "5 texts (" in message
    assert "1 truncated" in message
    assert f"{out}: 5 x 32" in message


@pytest.mark.parametrize("options", [["--shard-size", 2, "--resume"], []], ids=str)
@pytest.mark.parametrize("kind", COLUMNS)
def test_parquet_keeps_the_columns_of_the_input(model, inputs, kind, options, tmp_path):
    out = tmp_path / "out.parquet"
    ok(inputs[kind], "-o", out, "-m", model, *options)
    table = pq.read_table(out)
    assert table.drop_columns(["embedding"]).to_pydict() == COLUMNS[kind]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 32)


def test_empty_input(model, tmp_path):
    source = tmp_path / "empty.txt"
    source.touch()
    ok(source, "-o", tmp_path / "out.npy", "-m", model)
    assert np.load(tmp_path / "out.npy").shape == (0, 32)


def test_a_pipe(model, expected, tmp_path):
    out = tmp_path / "out.npy"
    ok("-", "-o", out, "-m", model, input="\n".join(TEXTS).encode())
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-5)


# ---- Options


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
        "stride": 3,
        "aggregation": "density.npz",
    }
    words = ["--normalize", "--batch-tokens", 40, *conftest.option_words(options)]
    result = ok(inputs["text"], "-o", "out.npy", "-m", model, *words)
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", **options)
    expected, report = embedder.encode_with_report(TEXTS, batch_tokens=40, normalize=True)
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=0, atol=1e-5)
    assert f"{report.split} split, {report.pieces} pieces" in result.stderr


@pytest.mark.parametrize("sharding", [["--shard-size", 2, "--resume"], []], ids=str)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
def test_small_vectors(model, inputs, precision, suffix, sharding, tmp_path):
    out = tmp_path / f"out{suffix}"
    command = [inputs["text"], "-o", out, "-m", model, "--precision", precision]
    command += ["--truncate-dim", 16, *sharding]
    message = ok(*command).stderr
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu")
    expected = embedder.encode(TEXTS, truncate_dim=16, precision=precision)
    vectors = vectors_of(out)
    assert vectors.dtype == expected.dtype
    assert f"{out}: 5 x {expected.shape[1]} {expected.dtype}" in message
    # In 8 bits, a number may round to the next step.
    tolerance = {"float32": 1e-5, "int8": 1, "ubinary": 0}[precision]
    difference = np.abs(vectors.astype(float) - expected).max()
    assert difference <= tolerance
    if sharding:
        assert "is already complete: 5 x" in ok(*command).stderr


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_a_complete_file_of_other_small_vectors_is_refused(model, inputs, precision, tmp_path):
    command = ["-o", tmp_path / "out.npy", "-m", model, "--precision", precision, "--resume"]
    ok(inputs["text"], *command)
    other = tmp_path / "other.txt"
    other.write_text("\n".join(["Buenas noches a todos", *TEXTS[1:3], "x", "y"]))
    os.utime(other, (0, 0))
    assert "its vectors are from other texts" in refused(other, *command)
    message = refused(inputs["text"], *command[:-2], f"u{precision}", "--resume")
    assert "its type is int8, expected uint8" in message


def test_more_numbers_than_the_model_has_are_refused(model, inputs, tmp_path):
    message = refused(inputs["text"], "-o", tmp_path / "out.npy", "-m", model, "--truncate-dim", 33)
    assert "--truncate-dim: found 33, expected 1 to 32" in message
    assert not (tmp_path / "out.npy").exists()


@pytest.fixture
def language_model(tmp_path):
    """A model with an encoder for each of de, en and fr."""
    return save(tmp_path / "model", make_tables(), make_tokenizer())


def write_coded(path, codes):
    """The same text in a row for each code."""
    return conftest.write_rows(path, [{"text": "Guten Tag", "code": code} for code in codes])


@pytest.mark.parametrize(
    ("options", "language"),
    [
        (["--language-field", "code", "--shard-size", 2], ["de", "en", "fr"]),
        (["--language", "fr"], "fr"),
    ],
)
def test_languages_of_documents(language_model, options, language, tmp_path):
    source = write_coded(tmp_path / "in.jsonl", ["de", "en", "fr"])
    ok(source, "-o", tmp_path / "out.npy", "-m", language_model, *options)
    embedder = DocumentEmbedder.from_pretrained(language_model, device="cpu")
    expected = embedder.encode(["Guten Tag"] * 3, language=language)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_a_language_that_the_model_does_not_know(language_model, tmp_path):
    source = write_coded(tmp_path / "in.jsonl", ["xx"])
    out = tmp_path / "out.npy"
    message = refused(source, "-o", out, "-m", language_model, "--language-field", "code")
    assert "row 1, field 'code': found 'xx', expected one of the model's languages" in message


def test_locales_are_languages_of_the_model(language_model, tmp_path):
    source = write_coded(tmp_path / "in.jsonl", ["de-DE", "en_US", "FR"])
    out = tmp_path / "out.npy"
    ok(source, "-o", out, "-m", language_model, "--language-field", "code")
    embedder = DocumentEmbedder.from_pretrained(language_model, device="cpu")
    expected = embedder.encode(["Guten Tag"] * 3, language=["de", "en", "fr"])
    np.testing.assert_allclose(np.load(out), expected, atol=1e-5)


def test_folders_name_the_languages_of_their_texts(language_model, tmp_path, caplog):
    for code in ("de", "en"):
        (tmp_path / "in" / code).mkdir(parents=True)
        (tmp_path / "in" / code / "a.txt").write_text("Guten Tag")
    out = tmp_path / "out.npy"
    ok(tmp_path / "in", "-o", out, "-m", language_model)
    assert "in: the folders de, en are used as the languages of their texts" in caplog.text
    embedder = DocumentEmbedder.from_pretrained(language_model, device="cpu")
    expected = embedder.encode(["Guten Tag"] * 2, language=["de", "en"])
    np.testing.assert_allclose(np.load(out), expected, atol=1e-5)


def test_a_column_that_looks_like_the_language_is_proposed(language_model, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("text,lang\nGuten Tag,de\n")
    message = refused(source, "-o", tmp_path / "out.npy", "-m", language_model)
    assert "the model needs the language of each text" in message
    assert "The column 'lang' looks like the language; give --language-field lang" in message


@pytest.mark.parametrize("options", [[], ["--field", "text"]], ids=str)
def test_the_language_field_is_not_the_field_of_the_text(model, inputs, options, tmp_path):
    options = [*options, "--language-field", "text"]
    message = refused(inputs["jsonl"], "-o", tmp_path / "out.npy", "-m", model, *options)
    assert "--language-field text: found the text column, expected" in message


def test_several_fields_are_one_text(model, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("title,body\nGuten Tag,Buenos días\n")
    out = tmp_path / "out.parquet"
    ok(source, "-o", out, "-m", model, "--field", "title", "--field", "body")
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu")
    expected = embedder.encode(["Guten Tag\n\nBuenos días"])
    np.testing.assert_allclose(vectors_of(out), expected, atol=1e-5)
    assert pq.read_table(out).column_names == ["title", "body", "embedding"]


# ---- Interruptions


@pytest.fixture
def interrupted(model, tmp_path):
    """A run that stopped in the fifth shard, where the input is damaged."""
    source = tmp_path / "in.txt"
    source.write_bytes("\n".join(TEXTS[:2] * 8).encode() + b"\n\xff\nlast\n")
    command = [source, "-o", tmp_path / "out.npy", "-m", model, "--shard-size", 4]
    refused(*command, "--resume")
    return command


def mend(source):
    source.write_bytes(source.read_bytes().replace(b"\xff", b"x"))


def test_an_interrupted_run_keeps_its_shards(interrupted, tmp_path):
    names = sorted(path.name for path in (tmp_path / "out.npy.shards").iterdir())
    assert names == [
        "00000000.parquet",
        "00000001.parquet",
        "00000002.parquet",
        "00000003.parquet",
        "manifest.json",
    ]


def test_shards_are_not_forgotten(interrupted):
    message = refused(*interrupted)
    assert "has shards of an unfinished run; set --resume" in message


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (["--normalize"], "normalize is 'False', now 'True'"),
        (["--truncate-dim", "16"], "--truncate-dim is 'None', now '16'"),
        (["--precision", "int8"], "precision is 'float32', now 'int8'"),
    ],
)
def test_another_run_is_not_continued(words, difference, interrupted):
    message = refused(*interrupted, "--resume", *words)
    assert f"its {difference}; set --overwrite" in message


def test_another_input_is_not_continued(interrupted):
    source = interrupted[0]
    mend(source)
    assert f"its input is '{source}, changed" in refused(*interrupted, "--resume")


def test_a_resumed_run_embeds_what_is_missing(interrupted, tmp_path):
    source = interrupted[0]
    out = tmp_path / "out.npy"
    folder = tmp_path / "out.npy.shards"
    changed = source.stat().st_mtime_ns
    mend(source)
    os.utime(source, ns=(changed, changed))  # The file looks as if it had not changed.
    vectors = pa.FixedSizeListArray.from_arrays(np.full(4 * 32, 7, np.float32), 32)
    pq.write_table(pa.table({"embedding": vectors}), folder / "00000001.parquet")
    # As after a kill between the last two steps, when the file is written and the shards deleted.
    out.touch()
    message = ok(*interrupted, "--resume").stderr
    assert "2 texts (" in message
    assert not folder.exists()
    assert np.load(out).shape == (18, 32)
    assert (np.load(out)[4:8] == 7).all()


def test_a_folder_that_grew_is_not_continued(model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("Guten Tag")
    (folder / "c.txt").write_bytes(b"\xff")
    command = [folder, "-o", tmp_path / "out.npy", "-m", model, "--shard-size", 1, "--resume"]
    assert f"{folder}/c.txt, row 1" in refused(*command)
    (folder / "d.txt").write_text("Buenos días")
    assert "files: 4" in refused(*command)


def start_rank(rank: int, command: list) -> subprocess.Popen:
    """Start one of two processes, as a launcher does."""
    environment = os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    words = [sys.executable, "-m", "tmde", "embed", *map(str, command)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("options", nightly_except([[]], [[], ["--overwrite"]]), ids=str)
def test_a_process_without_a_shard_that_starts_late(model, tmp_path, options):
    """The first process must not finish before it: it would find the output, or no folder."""
    source = tmp_path / "in.txt"
    out = tmp_path / "out.npy"
    source.write_text("one shard\n")
    folder = tmp_path / "out.npy.shards"
    command = [source, "-o", out, "-m", model, "--device", "cpu", *options]
    first = start_rank(0, command)
    end = time.monotonic() + 60
    while not (folder / "00000000.parquet").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    second = start_rank(1, command)
    for process in (first, second):
        message = process.communicate(timeout=60)[1]
        assert process.returncode == 0, message
    assert np.load(out).shape == (1, 32)
    assert not folder.exists()


def make_shards(folder):
    return Shards(folder, pa.schema([]), dimension=2)


def test_a_note_of_an_earlier_run_does_not_count(tmp_path):
    shards = make_shards(tmp_path / "shards")
    shards.begin({"model": "a"}, overwrite=False)
    with ThreadPoolExecutor() as pool:
        # The second process finds the manifest of the run that was killed, and is done at once.
        second = pool.submit(shards.report_done, 1)
        note = shards.folder / "rank-1.done"
        while not note.exists():
            time.sleep(0.01)
        earlier_run = note.read_text()
        shards.begin({"model": "a"}, overwrite=False)
        shards.wait_for_others(2)
        assert note.read_text() != earlier_run
        shards.delete()
        second.result(timeout=10)


def kill_after_a_shard_of_the_second(processes, folder):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if any(int(path.stem) % 2 for path in folder.glob("0*.parquet")):
            break
        time.sleep(0.002)
    for process in processes:  # A launcher ends all when one is gone.
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)


@pytest.mark.nightly
@pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")
def test_two_killed_processes_and_the_same_commands_again(model, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    whole = tmp_path / "whole.parquet"
    rows = [{"id": number, "text": f"{number} gracias"} for number in range(2000)]
    source = conftest.write_rows(tmp_path / "in.jsonl", rows)
    options = ["-m", model, "--shard-size", 4]
    command = [source, "-o", out, *options, "--device", "cpu"]
    folder = tmp_path / "out.parquet.shards"

    kill_after_a_shard_of_the_second([start_rank(0, command), start_rank(1, command)], folder)
    assert 0 < len(list(folder.glob("0*.parquet"))) < 500
    assert not out.exists()

    second = start_rank(1, command)
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "2")
        message = ok(source, "-o", out, *options).stderr
    second_message = second.communicate(timeout=120)[1]
    assert second.returncode == 0
    assert "process 1 of 2" in second_message
    assert f"{out}: 2,000 x 32" in message
    assert not folder.exists()

    ok(source, "-o", whole, *options)
    joined_columns = pq.read_table(out).drop_columns(["embedding"])
    assert joined_columns.equals(pq.read_table(whole).drop_columns(["embedding"]))
    np.testing.assert_allclose(vectors_of(out), vectors_of(whole), rtol=0, atol=1e-6)


@pytest.fixture
def completed(model, inputs, tmp_path):
    """A command that has written its file, as before a kill at its very end."""
    command = [inputs["jsonl"], "-o", tmp_path / "out.parquet", "-m", model, "--shard-size", 2]
    ok(*command, "--resume")
    return command


def test_a_complete_file_is_not_written_again(completed, tmp_path):
    before = (tmp_path / "out.parquet").stat().st_mtime_ns
    assert "out.parquet is already complete: 5 x 32" in ok(*completed, "--resume").stderr
    assert (tmp_path / "out.parquet").stat().st_mtime_ns == before


def test_without_resume_a_complete_file_is_refused(completed):
    assert "exists; set --overwrite" in refused(*completed)


def test_a_file_of_other_vectors_is_not_complete(completed):
    message = refused(*completed, "--resume", "--normalize")
    assert (
        "its vectors are from other texts, other options or another model; set --overwrite"
        in message
    )


def test_a_file_is_not_complete_if_its_input_has_changed(completed, tmp_path):
    later = time.time() + 60
    os.utime(completed[0], (later, later))
    assert "in.jsonl has changed since then; set --overwrite" in refused(*completed, "--resume")


def test_a_folder_with_a_changed_text_is_not_complete(model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(35):
        (folder / f"{number:02}.txt").write_text(f"Guten Tag {number}")
    command = [folder, "-o", tmp_path / "out.npy", "-m", model, "--shard-size", 4, "--resume"]
    ok(*command)
    assert "is already complete: 35 x 32" in ok(*command).stderr
    changed = folder / "34.txt"
    later = (tmp_path / "out.npy").stat().st_mtime_ns + 1_000_000_000
    changed.write_text("Buenos días")
    os.utime(changed, ns=(later, later))
    assert "in has changed since then; set --overwrite" in refused(*command)


def test_a_file_of_fewer_rows_is_not_complete(completed, tmp_path):
    out = tmp_path / "out.parquet"
    pq.write_table(pq.read_table(out).slice(0, 4), out)
    assert "set --overwrite" in refused(*completed, "--resume")


def test_files_without_a_manifest_are_named(inputs, model, tmp_path):
    folder = tmp_path / "strange.npy.shards"
    folder.mkdir()
    (folder / "00000000.parquet").touch()
    message = refused(inputs["text"], "-o", tmp_path / "strange.npy", "-m", model, "--resume")
    assert "strange.npy.shards contains files, but no manifest.json" in message


def test_a_run_killed_before_its_manifest_begins_again(inputs, model, tmp_path):
    out = tmp_path / "killed.npy"
    folder = tmp_path / "killed.npy.shards"
    folder.mkdir()
    (folder / ".manifest.1.tmp.json").write_text("{")
    ok(inputs["text"], "-o", out, "-m", model, "--resume")
    assert len(np.load(out)) == len(TEXTS)


def test_the_manifest_is_deleted_last(tmp_path, monkeypatch):
    """A run that is killed while it deletes its shards can be continued."""
    folder = tmp_path / "out.npy.shards"
    shards = Shards(folder, pa.schema([]), dimension=32)
    shards.begin({}, overwrite=False)
    (folder / "00000000.parquet").touch()
    deleted_names = []
    unlink = Path.unlink

    def unlink_and_note(path: Path) -> None:
        deleted_names.append(path.name)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", unlink_and_note)
    shards.delete()
    assert deleted_names == ["00000000.parquet", "manifest.json"]
    assert not folder.exists()
