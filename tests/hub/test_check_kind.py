"""What a repository may hold for a model to be pushed there; and a push is none the worse for a local card."""

import json
from types import SimpleNamespace

import pytest

from modeling_tmde.hub_upload import HubUploadError
from modeling_tmde.training import publishing


def repository(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return SimpleNamespace(repo_id="user/held", files=sorted(files), download=lambda path: folder / path)


KEPT = {
    "nothing": {},
    "card": {"README.md": "x"},
    "notes": {"README.md": "x", "LICENSE": "x", ".gitignore": "x", "NOTICE.txt": "x"},
    "tokenizer": {"tokenizer.json": "{}", "tokenizer_config.json": "{}", "special_tokens_map.json": "{}"},
    "slow tokenizer": {"vocab.json": "{}", "merges.txt": "x", "sentencepiece.bpe.model": "x"},
    "same": {"config.json": json.dumps({"model_type": "tmde"}), "model.safetensors": "x", "notes.txt": "x"},
}
REFUSED = {
    "weights": ({"model.safetensors": "x", "README.md": "x"}, "'model.safetensors' and no config.json"),
    "other weights": ({"pytorch_model.bin": "x", "tokenizer.json": "{}"}, "'pytorch_model.bin'"),
    "dense layer": ({"2_Dense/model.safetensors": "x"}, "2_Dense"),
    "rows": ({"data/train.parquet": "x"}, "'data/train.parquet'"),
    "pictures": ({"images/a.png": "x"}, "'images/a.png'"),
    "other type": ({"config.json": json.dumps({"model_type": "bert"})}, "a model of type 'bert'"),
    "no type": ({"config.json": "[]"}, "a model of type None"),
    "damaged": ({"config.json": "{"}, "config.json that cannot be read"),
}


@pytest.mark.parametrize("kept", KEPT)
def test_nothing_is_lost(kept, tmp_path):
    publishing.check_kind(repository(tmp_path, KEPT[kept]), "tmde")


@pytest.mark.parametrize("refused", REFUSED)
def test_another_kind_of_thing_is_refused(refused, tmp_path):
    files, words = REFUSED[refused]
    with pytest.raises(HubUploadError, match="Nothing was published") as error:
        publishing.check_kind(repository(tmp_path, files), "tmde")
    assert words in str(error.value)


def test_a_local_card_that_cannot_be_written(model_folder, monkeypatch, caplog):
    def full(path):
        raise PermissionError(13, "Permission denied", str(path))

    held = repository(model_folder, {})
    held.sha, held.commit = "0" * 40, lambda files, *message, **options: SimpleNamespace(oid="1" * 40)
    monkeypatch.setattr(publishing, "HubRepository", lambda *options: held)
    monkeypatch.setattr(publishing, "replacing", full)
    publication = publishing.push_model(model_folder, "user/held")
    assert publication.commit.oid == "1" * 40 and not publication.unchanged
    assert "README.md was not brought up to date" in caplog.text and "Permission denied" in caplog.text
