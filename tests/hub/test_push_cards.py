"""Which card and which files a push brings to the Hub, and how a graph comes back from there."""

import importlib.util
import json
import shutil

import pytest

from tests.hub.clients import TMDE, run_client
from tests.hub.test_push_model import TEXTS, commits, files

pytestmark = pytest.mark.slow
needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in ("onnxruntime", "onnx", "onnxscript")),
    reason="needs the extra 'onnx'",
)

EDITED = """
from huggingface_hub import HfApi, hf_hub_download
from pathlib import Path
def card(repo_id):
    return Path(hf_hub_download(repo_id, "README.md", force_download=True)).read_text()
def edit(repo_id, old, new):
    text = card(repo_id)
    assert old in text
    HfApi().upload_file(path_or_fileobj=text.replace(old, new).encode(), path_in_repo="README.md", repo_id=repo_id)
"""


@pytest.fixture
def run(model_folder, tmp_path):
    """A folder with a card, its picture, and what a user left there."""
    from modeling_tmde.hub_cards import write_model_card

    folder = tmp_path / "oldname"
    shutil.copytree(model_folder, folder)
    for name, text in {
        "curves.png": "picture",
        "my_experiment.py": "TOKEN = 'hf_stranger'",
        "0_private/customers.csv": "name",
        "1_Pooling/customers.csv": "name",
        "onnx/notes.txt": "note",
        "optimizer.safetensors": "state",
        "other.model": "model",
        "tokenizer_backup.json": "{}",
        "vocab.private": "words",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    write_model_card(folder, license="mit")
    return folder


STRANGERS = ("my_experiment", "customers", "notes", "optimizer", "other.model", "backup", "private")


def test_the_card_of_other_weights_stays_behind(hub, run, tmp_path):
    code = (
        TMDE
        + """
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM
folder = arguments[0]
assert tmde("push", folder, "user/oldname", "--license", "mit")[0] == 0
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
model.add_model_tags(["mine"])
model.push_to_hub("user/same", tags="abc")
with torch.no_grad():
    next(model.parameters()).add_(1)
model.push_to_hub("user/changed")
model = AutoModelForSeq2SeqLM.from_pretrained("user/oldname")
with torch.no_grad():
    next(model.parameters()).add_(1)
model.push_to_hub("user/finetuned")
AutoModel.from_pretrained(folder).push_to_hub("user/encoder")
"""
    )
    run_client(hub, tmp_path / "client", code, run)
    for name in ("oldname", "same", "changed", "finetuned", "encoder"):
        held = files(hub, f"user/{name}")
        assert {"model.safetensors", "tokenizer.json", "modeling_tmde.py", "layers.py"} <= set(held), name
        assert not [path for path in held if any(stranger in path for stranger in STRANGERS)], name
        card = held["README.md"].decode()
        assert f'"user/{name}"' in card
        own = name in ("oldname", "same")
        assert ("curves.png" in held) == own and ("license: mit" in card) == own, name
        assert ("base_model: user/oldname" in card) == (name == "finetuned")
        assert own or card.count("oldname") == (name == "finetuned")
    same = files(hub, "user/same")["README.md"].decode()
    assert "- abc\n- mine\n" in same and "oldname" not in same


def test_other_weights_replace_a_card_that_was_made_of_those_before(hub, run, tmp_path):
    """Not so the same weights, from wherever they were loaded; and `tmde push` brings a card of the whole again. With
    the card go the results and the recipe."""
    (run / "results.json").write_text(json.dumps({"steps": 5}))
    (run / "recipe.yaml").write_text("data:\n  languages: [de, en]\n")
    code = (
        TMDE
        + """
import torch
from transformers import AutoModelForSeq2SeqLM
folder = arguments[0]
assert tmde("push", folder, "user/run", "--license", "mit")[0] == 0
model = AutoModelForSeq2SeqLM.from_pretrained("user/run")
model.push_to_hub("user/run", tags="again")
with torch.no_grad():
    next(model.parameters()).add_(1)
model.push_to_hub("user/run")
model.push_to_hub("user/run", tags="more")
assert tmde("push", folder, "user/run")[0] == 0
Path(folder, "results.json").unlink()
assert tmde("push", folder, "user/run")[0] == 0
"""
    )
    run_client(hub, tmp_path / "client", "from pathlib import Path\n" + code, run)
    repository = hub.store.find("models", "user/run")
    _, first, same, other, more, last, without = (
        files(hub, "user/run", one.oid) for one in reversed(repository.history())
    )
    assert "recipe.yaml" in without and "results.json" not in without
    for held, whole in ((first, True), (same, True), (other, False), (more, False), (last, True)):
        card = held["README.md"].decode()
        assert ("curves.png" in held) == ("(curves.png)" in card) == ("## Measured results" in card) == whole
        assert "license: mit" in card and '"user/run"' in card
        assert {"results.json", "recipe.yaml"} & set(held) == ({"results.json", "recipe.yaml"} if whole else set())
    assert "- again" in same["README.md"].decode() and "- again" not in first["README.md"].decode()
    assert "- again" in other["README.md"].decode() and "- more" in more["README.md"].decode()


def test_shards_of_the_same_weights_are_known_again(hub, run, tmp_path):
    """Their index is no large file, so that the Hub does not tell its hash."""
    (run / "results.json").write_text(json.dumps({"steps": 5}))
    code = (
        TMDE
        + """
from pathlib import Path
from huggingface_hub import HfApi
from transformers import AutoModelForSeq2SeqLM
from modeling_tmde.hub_upload import HubRepository
folder = arguments[0]
AutoModelForSeq2SeqLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="100KB")
Path(folder, "model.safetensors").unlink()
assert tmde("push", folder, "user/run", "--license", "mit")[0] == 0
HfApi().upload_file(path_or_fileobj=b"graph", path_in_repo="onnx/model.onnx", repo_id="user/run")
AutoModelForSeq2SeqLM.from_pretrained(folder).push_to_hub("user/run", max_shard_size="100KB", tags="folder")
AutoModelForSeq2SeqLM.from_pretrained("user/run").push_to_hub("user/run", max_shard_size="100KB", tags="hub")
repository = HubRepository("user/run")
shard = next(iter(repository.hashes))
report([repository.holds({}), repository.holds({shard: repository.hashes[shard]}), repository.holds({shard: "00"})])
"""
    )
    assert run_client(hub, tmp_path / "client", code, run) == [False, True, False]
    repository = hub.store.find("models", "user/run")
    folder, again = (files(hub, "user/run", commit.oid) for commit in reversed(repository.history()[:2]))
    for held, tag in ((folder, "folder"), (again, "hub")):
        assert "model.safetensors.index.json" in held and "model.safetensors" not in held
        card = held["README.md"].decode()
        assert f"- {tag}\n" in card and "## Measured results" in card
        assert {"onnx/model.onnx", "curves.png", "results.json"} <= set(held)


def test_weights_of_a_folder_that_lacks_a_shard(tmp_path):
    from modeling_tmde.sharing import weight_hashes

    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (tmp_path / shards["a"]).write_bytes(b"weights")
    assert weight_hashes(tmp_path) == {}
    (tmp_path / shards["b"]).write_bytes(b"weights")
    assert sorted(weight_hashes(tmp_path)) == sorted(shards.values())


def test_a_card_that_was_edited_on_the_hub_stays(hub, run, tmp_path):
    code = (
        TMDE
        + EDITED
        + """
from transformers import AutoModelForSeq2SeqLM
folder = Path(arguments[0])
def push(*more):
    status, _, stderr = tmde("push", folder, "user/run", *more)
    return [status, stderr, card("user/run"), (folder / "README.md").read_text()]
found = [push()]
edit("user/run", "## ", "Hub words.\\n\\n## ")
found.append(push("--license", "apache-2.0"))
AutoModelForSeq2SeqLM.from_pretrained(folder).push_to_hub("user/run")
found.append([card("user/run")])
local = (folder / "README.md").read_text()
(folder / "README.md").write_text(local.replace("Hub words.", "Words of mine."))
found.append(push())
(folder / "README.md").write_text(local.replace("Hub words.", "Words of mine again."))
edit("user/run", "Words of mine.", "Other words.")
found.append(push())
report(found)
"""
    )
    first, edited, pushed, mine, both = run_client(hub, tmp_path / "client", code, run)
    assert first[0] == 0 and "Hub words." not in first[2]
    assert edited[0] == 0 and "Hub words." in edited[2] and "license: apache-2.0" in edited[2]
    assert edited[3] == edited[2]
    assert "Hub words." in pushed[0]
    assert mine[0] == 0 and "Words of mine." in mine[2] and "Hub words." not in mine[2]
    assert both[0] == 1 and "edited on the Hub" in both[1] and "Other words." in both[2]
    assert "mine again" in both[3]
    assert ".pushed_cards.json" not in files(hub, "user/run")


def test_saving_can_push_and_a_lost_folder_is_told(hub, run, tmp_path):
    """The same repository as from `push_to_hub`; and no model of a stranger by the name of a folder that has gone."""
    code = """
from pathlib import Path
from transformers import AutoModelForSeq2SeqLM
from modeling_tmde.hub_upload import HubUploadError
folder, place = arguments
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
model.save_pretrained(f"{place}/saved", True, push_to_hub=True, commit_message="Saved", private=True)
weights = {name: tensor * 2 for name, tensor in model.state_dict().items()}
model.save_pretrained(f"{place}/doubled", True, weights, True, repo_id="user/named", token="hf_user")
assert len(weights) > 10
Path(folder).rename(f"{folder}-moved")
try:
    model.push_to_hub("user/lost")
except HubUploadError as error:
    report(str(error))
"""
    message = run_client(hub, tmp_path / "client", code, run, tmp_path)
    assert str(run) in message and "found no folder" in message and "save_pretrained" in message
    assert commits(hub, "user/saved") == ["Saved", "initial commit"] and hub.store.find("models", "user/saved").private
    for name, place in (("saved", "saved"), ("named", "doubled")):
        held = files(hub, f"user/{name}")
        assert {"modules.json", "tokenizer.json", "1_Pooling/config.json", "modeling_tmde.py"} <= set(held)
        assert held["model.safetensors"] == (tmp_path / place / "model.safetensors").read_bytes()
    assert files(hub, "user/saved")["model.safetensors"] != files(hub, "user/named")["model.safetensors"]
    assert ("models", "user/lost") not in hub.store.repositories


def test_a_model_of_given_weights_has_no_source(hub, run, tmp_path):
    code = """
from modeling_tmde import TmdeForConditionalGeneration
whole = TmdeForConditionalGeneration.from_pretrained(arguments[0])
made = TmdeForConditionalGeneration.from_pretrained(None, config=whole.config, state_dict=whole.state_dict())
assert made.name_or_path == "None"
made.push_to_hub("user/made")
"""
    run_client(hub, tmp_path / "client", code, run)
    held = files(hub, "user/made")
    assert held["model.safetensors"] == (run / "model.safetensors").read_bytes() and "tokenizer.json" not in held
    assert b"None" not in held["README.md"] and b'"user/made"' in held["README.md"]


def test_what_goes_along_is_of_the_revision_that_was_loaded(hub, run, tmp_path):
    code = (
        TMDE
        + """
from huggingface_hub import HfApi
from transformers import AutoModel, AutoModelForSeq2SeqLM
from modeling_tmde import TmdeModel
def license(text, branch="main"):
    HfApi().upload_file(
        path_or_fileobj=text.encode(), path_in_repo="LICENSE", repo_id="user/run", revision=branch
    )
assert tmde("push", arguments[0], "user/run")[0] == 0
license("first")
HfApi().create_branch("user/run", branch="old")
license("second")
by_auto = AutoModelForSeq2SeqLM.from_pretrained("user/run", revision="old")
by_class, info = TmdeModel.from_pretrained("user/run", revision="old", output_loading_info=True)
newest = {
    "newest": AutoModel.from_pretrained("user/run"),
    "newest-class": TmdeModel.from_pretrained("user/run"),
    "elsewhere": TmdeModel.from_pretrained("user/run", cache_dir=arguments[1]),
}
license("third")
TmdeModel.from_pretrained("user/run")  # the cache's `main` is another now
for name, model in {"auto": by_auto, "class": by_class, **newest}.items():
    model.push_to_hub("user/" + name)
"""
    )
    run_client(hub, tmp_path / "client", code, run, tmp_path / "cache")
    expected = {"auto": b"first", "class": b"first"}
    expected |= {name: b"second" for name in ("newest", "newest-class", "elsewhere")}
    held = {name: files(hub, f"user/{name}") for name in expected}
    assert {name: one["LICENSE"] for name, one in held.items()} == expected
    assert all("tokenizer.json" in one for one in held.values())


@needs_onnx
def test_a_graph_comes_from_the_hub(hub, run, tmp_path):
    code = (
        TMDE
        + """
folder, *texts = arguments
from modeling_tmde import DocumentEmbedder
assert DocumentEmbedder.from_pretrained(folder, backend="onnx").model.path.is_file()
assert tmde("push", folder, "user/graph")[0] == 0
from huggingface_hub import HfApi
from transformers import AutoModelForSeq2SeqLM
AutoModelForSeq2SeqLM.from_pretrained("user/graph").push_to_hub("user/graph", tags="again")  # the same weights
record = json.dumps({"model.safetensors": "00", "config.json": "00"}).encode()
assert tmde("push", folder, "user/other")[0] == 0
HfApi().upload_file(path_or_fileobj=record, path_in_repo="onnx/model.onnx.tmde.json", repo_id="user/other")
"""
    )
    run_client(hub, tmp_path / "pusher", code, run, *TEXTS)
    held = files(hub, "user/graph")
    assert b"- again" in held["README.md"]
    assert {"onnx/model.onnx", "onnx/model.onnx.tmde.json"} <= set(held) and "onnx/notes.txt" not in held
    assert {"model.safetensors", "config.json"} <= set(json.loads(held["onnx/model.onnx.tmde.json"]))
    code = """
import modeling_tmde.onnx_backend as backend
from modeling_tmde import DocumentEmbedder
export, written = backend.export_and_measure, []
backend.export_and_measure = lambda *given, **options: written.append(1) or export(*given, **options)
found = []
for name in ("user/graph", "user/graph", "user/other"):
    embedder = DocumentEmbedder.from_pretrained(name, backend="onnx")
    found.append([len(written), embedder.encode(arguments).tolist()])
plain = DocumentEmbedder.from_pretrained("user/graph").encode(arguments).tolist()
report([plain, *found])
"""
    plain, *found = run_client(hub, tmp_path / "opener", code, *TEXTS)
    assert [count for count, _ in found] == [0, 0, 1]
    for _, vectors in found:
        for row, expected in zip(vectors, plain, strict=True):
            assert row == pytest.approx(expected, abs=1e-5)


@needs_onnx
def test_versions_of_a_model_on_the_hub_are_told_apart(hub, run, tmp_path):
    """Graphs of two would be beside one config, shards of two in one file of vectors."""
    (tmp_path / "texts.txt").write_text("haus hund\nhouse dog\n")
    code = (
        TMDE
        + """
import torch
from huggingface_hub import HfApi
from transformers import AutoModelForSeq2SeqLM
import modeling_tmde.cli.embed_shards as shards
folder, place = arguments
def export(*more):
    return tmde("export", "onnx", "user/run", "-o", f"{place}/served", *more)
def embed():
    return tmde("embed", f"{place}/texts.txt", "-m", "user/run", "-o", f"{place}/v.npy", "--resume")
assert tmde("push", folder, "user/run")[0] == 0
old = HfApi().model_info("user/run").sha
whole = shards._join
def cut(*given):
    raise shards.EmbedError("cut")
shards._join = cut
found = [export(), embed()]
shards._join = whole
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
with torch.no_grad():
    next(model.parameters()).add_(1)
model.push_to_hub("user/run")
found += [export("--quantization", "int8"), embed(), export("--quantization", "int8", "--revision", old)]
report(found)
"""
    )
    graph, cut, other_graph, other_shards, same = run_client(hub, tmp_path / "client", code, run, tmp_path)
    assert graph[0] == same[0] == 0, (graph, same)
    assert "cut" in cut[2]
    assert other_graph[0] == 1 and "holds another model" in other_graph[2]
    assert other_shards[0] == 1 and "model version" in other_shards[2]
