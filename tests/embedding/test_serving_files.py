"""The files beside an ONNX graph say what servers ask."""

import json

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import AutoTokenizer

from tests.conftest import save
from tests.tiny_embedders import make_bag, make_xlmr
from tmde import DocumentEmbedder
from tmde.embedding.model_files import copy_card
from tmde.embedding.serving_files import LONGEST_SERVED, write_serving_files


def read(folder, name):
    return json.loads((folder / name).read_text())


def served(model, tokenizer, folder, **options):
    write_serving_files(DocumentEmbedder(model, tokenizer, **options), folder)
    return folder


def test_the_configuration_has_what_text_embeddings_inference_requires(tokenizer, tmp_path):
    config = read(served(make_bag(), tokenizer, tmp_path), "config.json")

    assert config["model_type"] == "tmde_bag"
    assert config["architectures"] == ["BagModel"]
    assert config["hidden_size"] == 24
    assert config["num_hidden_layers"] == 0
    assert config["max_position_embeddings"] == LONGEST_SERVED
    assert config["pad_token_id"] == 1


def test_no_file_names_code_that_is_not_there(tokenizer, tmp_path):
    model = make_bag()
    model.config.auto_map = {"AutoModel": "modeling_bag.BagModel"}
    assert "auto_map" not in read(served(model, tokenizer, tmp_path), "config.json")


@pytest.mark.parametrize(("make", "pooling"), [(make_bag, "cls_token"), (make_xlmr, "mean_tokens")])
def test_the_pooling_is_named_among_all_poolings(make, pooling, tokenizer, tmp_path):
    content = read(served(make(), tokenizer, tmp_path), "1_Pooling/config.json")
    poolings = {name: value for name, value in content.items() if name.startswith("pooling_mode")}
    assert len(poolings) == 4
    assert [name for name, value in poolings.items() if value] == [f"pooling_mode_{pooling}"]


def test_the_longest_text_is_that_of_the_model(tokenizer, tmp_path):
    folder = served(make_xlmr(max_positions=66), tokenizer, tmp_path)
    assert read(folder, "sentence_bert_config.json")["max_seq_length"] == 64
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 64


def test_the_prompt_is_that_of_the_embedder(tokenizer, tmp_path):
    folder = served(make_xlmr(), tokenizer, tmp_path, prompt="query: ")
    content = read(folder, "config_sentence_transformers.json")
    assert content["prompts"][content["default_prompt_name"]] == "query: "


def test_special_tokens_have_the_file_that_fastembed_reads(tokenizer, tmp_path):
    tokens = read(served(make_bag(), tokenizer, tmp_path), "special_tokens_map.json")
    assert tokens["pad_token"] == "<pad>"


def test_a_second_export_takes_the_place_of_the_first_one(tokenizer, tmp_path, caplog):
    served(make_bag(), tokenizer, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    served(make_bag(), tokenizer, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
    assert not caplog.records


def test_the_folder_of_the_model_itself_is_left_as_it_is(tokenizer, tmp_path):
    model = make_bag()
    folder = save(tmp_path, model, tokenizer)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    served(model, tokenizer, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_card_of_the_model_goes_with_its_graph(tokenizer, tmp_path):
    folder = save(tmp_path / "bag", make_bag(), tokenizer)
    (folder / "README.md").write_text("---\nlicense: cc0-1.0\n---\n")
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    write_serving_files(embedder, tmp_path / "served")
    assert "cc0-1.0" in (tmp_path / "served" / "README.md").read_text()


@pytest.fixture
def hub_bag():
    """A model as if it were loaded from the Hub."""
    model = make_bag()
    model.name_or_path = "user/bag"
    return model


@pytest.mark.parametrize("commit", [None, "abc"])
def test_the_card_of_a_hub_model_is_that_of_its_commit(commit, hub_bag, tmp_path, monkeypatch):
    questions = []

    def download(repo_id, file_name, revision, token):
        questions.append((repo_id, file_name, revision))
        card = tmp_path / "cached.md"
        card.write_text("---\nlicense: mit\n---\n")
        return str(card)

    hub_bag.config._commit_hash = commit
    monkeypatch.setattr("tmde.embedding.model_files.hf_hub_download", download)
    copy_card(hub_bag, tmp_path)
    assert "mit" in (tmp_path / "README.md").read_text()
    assert questions == [("user/bag", "README.md", commit)]


def test_a_hub_model_without_a_card_is_saved_without_one(hub_bag, tmp_path, monkeypatch):
    def download(repo_id, file_name, revision, token):
        raise LocalEntryNotFoundError("no such file")

    monkeypatch.setattr("tmde.embedding.model_files.hf_hub_download", download)
    copy_card(hub_bag, tmp_path)
    assert not (tmp_path / "README.md").exists()
