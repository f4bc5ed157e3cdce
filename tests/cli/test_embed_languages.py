"""`tmde embed` with a model that has a part for each language: one code for all, or a field of codes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from transformers import AutoConfig, AutoModel
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.cli.embed import embed
from modeling_tmde.embedding import DocumentEmbedder
from tests.modeling_tmde.test_embedding import make_tokenizer
from tests.modeling_tmde.test_text_languages import TablesConfig, TablesModel, make_tables

app = typer.Typer()
app.command()(embed)
TEXTS = ["a", "open", "open", "", "sesión; gracias", "Sitzung", "open"]
CODES = ["de", "de", "en", "fr", "fr", "de", "fr"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    AutoConfig.register(TablesConfig.model_type, TablesConfig, exist_ok=True)
    AutoModel.register(TablesConfig, TablesModel, exist_ok=True)
    path = tmp_path_factory.mktemp("tables")
    make_tables().save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def expected():
    return DocumentEmbedder(make_tables(), make_tokenizer()).encode(TEXTS, language=CODES)


def write(path, texts=TEXTS, codes=CODES, name="lang"):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts, name: codes}), path, row_group_size=3)
    elif path.suffix == ".jsonl":  # the first line is blank: rows are called by their lines
        rows = [json.dumps({"text": text, name: code}) for text, code in zip(texts, codes, strict=True)]
        path.write_text("\n" + "\n".join(rows) + "\n", encoding="utf-8")
    else:
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


def vectors_of(path):
    return np.load(path) if path.suffix == ".npy" else np.stack(pq.read_table(path)["embedding"].to_numpy())


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("options", [[], ["--resume"]])
def test_a_field_of_codes(model, expected, tmp_path, kind, suffix, options):
    source, out = write(tmp_path / f"in{kind}"), tmp_path / f"out{suffix}"
    result = run(source, "-o", out, "-m", model, "--language-field", "lang", "--shard-size", 2, *options)
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(vectors_of(out), expected, rtol=0, atol=1e-6)
    if suffix == ".parquet":
        table = pq.read_table(out).drop_columns(["embedding"])
        assert table.to_pydict() == {"text": TEXTS, "lang": CODES}


def test_one_code_for_all(model, tmp_path):
    out = tmp_path / "out.npy"
    result = run(write(tmp_path / "in.txt"), "-o", out, "-m", model, "--language", "fr", "--shard-size", 3)
    assert result.exit_code == 0, result.output
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    np.testing.assert_allclose(np.load(out), embedder.encode(TEXTS, language="fr"), rtol=0, atol=1e-6)


BAD_CODES = [*CODES[:4], "xx", *CODES[5:]]
BAD = [
    (".txt", CODES, [], "has an encoder for each language; give --language, one of de, en, fr, or --language-field"),
    (".txt", CODES, ["--language", "xx"], "--language: found 'xx', expected one of the model's: de, en, fr"),
    (
        ".txt",
        CODES,
        ["--language-field", "lang"],
        "--language-field lang: in.txt is read as text, which has no fields",
    ),
    (".jsonl", CODES, ["--language-field", "lang", "--language", "de"], "exclude each other; give one of them"),
    (".jsonl", BAD_CODES, ["--language-field", "lang"], "in.jsonl, line 6, field 'lang': found 'xx', expected one of"),
    (
        ".parquet",
        BAD_CODES,
        ["--language-field", "lang"],
        "in.parquet, row 5, column 'lang': found 'xx', expected one",
    ),
    (".jsonl", ["de", None, *CODES[2:]], ["--language-field", "lang"], "line 3, field 'lang': found null, expected a"),
    (".parquet", ["de", None, *CODES[2:]], ["--language-field", "lang"], "row 2, column 'lang': found null, expected"),
    (
        ".jsonl",
        CODES,
        ["--language-field", "code"],
        "line 2: field 'code' is missing, found ['text', 'lang']; see --lan",
    ),
    (
        ".parquet",
        CODES,
        ["--language-field", "code"],
        "column 'code' is missing, found ['text', 'lang']; see --languag",
    ),
    (".parquet", list(range(7)), ["--language-field", "lang"], "column 'lang': found type int64, expected strings"),
]


@pytest.mark.parametrize(("kind", "codes", "options", "message"), BAD)
def test_what_is_wrong_is_said(model, tmp_path, monkeypatch, kind, codes, options, message):
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / f"in{kind}", codes=codes).name
    result = run(source, "-o", "out.npy", "-m", model, "--shard-size", 2, *options)
    assert result.exit_code == 1 and message in " ".join(result.stderr.split()), result.output
    assert [path.name for path in tmp_path.iterdir()] == [source]


def test_shards_of_another_language_are_not_gone_on_with(model, expected, tmp_path):
    source, out = write(tmp_path / "in.jsonl", codes=BAD_CODES), tmp_path / "out.npy"
    options = ["-o", out, "-m", model, "--shard-size", 2, "--resume"]
    result = run(source, *options, "--language-field", "lang")
    assert result.exit_code == 1 and "line 6, field 'lang': found 'xx'" in result.stderr
    assert len(list((tmp_path / "out.npy.shards").glob("*.npy"))) == 2
    for others in (["--language", "de"], ["--language-field", "text"]):
        result = run(source, *options, *others)
        assert result.exit_code == 1 and "holds shards of another run: its language" in result.stderr
    result = run(source, *options, "--language", "de", "--overwrite")
    assert result.exit_code == 0, result.output
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    np.testing.assert_allclose(np.load(out), embedder.encode(TEXTS, language="de"), rtol=0, atol=1e-6)


def test_other_models_do_not_need_it(tmp_path):
    bag, out = tmp_path / "bag", tmp_path / "out.npy"
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(bag)
    make_tokenizer().save_pretrained(bag)
    plain = DocumentEmbedder.from_pretrained(bag, device="cpu").encode(TEXTS)
    source = write(tmp_path / "in.jsonl", codes=BAD_CODES)
    for options in ([], ["--language", "xx"], ["--language-field", "lang"]):
        assert run(source, "-o", out, "-m", bag, "--overwrite", *options).exit_code == 0
        np.testing.assert_allclose(np.load(out), plain, rtol=0, atol=1e-6)
