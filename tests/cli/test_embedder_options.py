"""Options of long documents: which of them go together, in commands that split by default and in those that do not."""

import pytest
import torch
from typer.testing import CliRunner

from modeling_tmde.cli.embedder_options import LongDocumentsMode, long_document_options
from modeling_tmde.cli.main import app
from modeling_tmde.data.documents import EmbedError
from modeling_tmde.documents.index import PROBES
from modeling_tmde.embedding import DocumentEmbedder
from tests.modeling_tmde.test_embedding import make_tokenizer, make_xlmr
from tests.modeling_tmde.test_long_documents_models import make_bag

MODES = LongDocumentsMode


def test_only_what_is_given_is_passed_on():
    assert long_document_options(None, None, None, None) == {}
    assert long_document_options(MODES.truncate, None, None, None) == {"long_documents": "truncate"}
    given = {"long_documents": "chunk", "window": 9, "stride": 3, "aggregation": "max"}
    assert long_document_options(MODES.chunk, 9, 3, "max") == given
    del given["long_documents"]
    assert long_document_options(None, 9, 3, "max", default=None) == given


@pytest.mark.parametrize(("mode", "default"), [(None, MODES.truncate), (MODES.truncate, None)])
def test_what_needs_a_mode_that_splits_is_refused_without(mode, default):
    for options in ((9, None, None), (None, 9, None), (None, None, "mean")):
        with pytest.raises(EmbedError, match="which splits nothing; give --long-documents chunk or sentences"):
            long_document_options(mode, *options, default=default)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One of 24 tokens, and one without limit."""
    path = tmp_path_factory.mktemp("models")
    for name, model in (("xlmr", make_xlmr(26)), ("bag", make_bag())):
        model.save_pretrained(path / name)
        make_tokenizer().save_pretrained(path / name)
    return path


@pytest.fixture
def documents(tmp_path):
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    paths[0].write_text("Die Sitzung ist eröffnet. Gracias.\nDas Wort. Noch eins.\n" * 2, encoding="utf-8")
    paths[1].write_text("The sitting is open. Thanks.\nThe word. One more.\n" * 2, encoding="utf-8")
    return paths


def tmde(*arguments, status=0):
    """Its stderr."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])
    assert result.exit_code == status and (not status or isinstance(result.exception, SystemExit)), result.output
    return " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["align", "index"])
def test_commands_that_split_into_sentences_by_default(models, documents, tmp_path, command):
    """A window alone is enough, and the mistakes of the options are called by their names."""
    pytest.importorskip("faiss")

    def run(model, *options, status=0):
        inputs = documents if command == "align" else documents[:1]
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.tsv"
        return tmde(command, *inputs, "-o", out, "-m", models / model, *options, status=status)

    run("xlmr", "--window", 5)
    run("bag")
    for model, options, message in (
        ("xlmr", ["--window", 25], "--window: found 25 tokens, expected 1 to 24"),
        ("bag", ["--stride", 5], "--window: the model takes texts of any length, so nothing is split"),
        ("xlmr", ["--aggregation", "avg"], "--aggregation: found 'avg', which is no file"),
        ("xlmr", ["--long-documents", "truncate", "--window", 5], "--window: found 5 with --long-documents truncate,"),
    ):
        said = run(model, *options, status=1)
        assert said.startswith(f"Error: {message}"), said


def test_options_are_not_blamed_on_where_the_model_of_an_index_is(models, documents, tmp_path):
    pytest.importorskip("faiss")
    command = ["index", documents[0], "-o", tmp_path / "index"]
    tmde(*command, "-m", models / "xlmr", "--long-documents", "truncate")
    assert tmde(*command, "--window", 9, status=1).startswith("Error: --window: found 9 with")


@pytest.mark.parametrize("command", [["run"], ["compare", "other"]])
def test_eval_tells_in_one_message(models, command):
    said = tmde("eval", *command, models / "xlmr", "--tasks", "sample", "--window", 9, "--no-cache", status=1)
    assert said.startswith("Error: --window: found 9 with --long-documents truncate (the default)"), said


def test_out_of_memory_names_the_device_and_what_to_do(models, documents, tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    index = tmp_path / "index"
    tmde("index", documents[0], "-o", index, "-m", models / "xlmr")
    encode = DocumentEmbedder.encode

    def fail(self, texts, *arguments, **options):
        if list(texts) == list(PROBES):  # by which an index knows its model
            return encode(self, texts, *arguments, **options)
        raise torch.OutOfMemoryError("Tried to allocate 1 GiB")

    monkeypatch.setattr(DocumentEmbedder, "encode", fail)
    for command, hint in (
        (["search", "gracias", index], "give --device cpu"),
        (["index", documents[1], "-o", index], "lower --max-length"),
        (["align", *documents, "-o", tmp_path / "out.tsv", "-m", models / "xlmr"], "lower --max-length"),
    ):
        said = tmde(*command, status=1)
        assert f"Error: out of memory on cpu; {hint}" in said and said.endswith("Tried to allocate 1 GiB"), said
