"""`tmde push` and pushes of a training run: the real clients, in processes of their own, against a local Hub."""

import json
import shutil

import numpy as np
import pytest

from modeling_tmde import LaserForConditionalGeneration
from tests.conftest import make_rows, save, tiny_model
from tests.tiny_embedders import laser, make_bag, make_tables
from tmde import DocumentEmbedder

pytestmark = pytest.mark.slow
TEXTS, LANGUAGES = ["haus hund katze", "house dog", "maison"], ["de", "en", "fr"]

OPEN = """
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
names, languages, *texts = arguments
vectors = {}
for name in names.split():
    model = AutoModel.from_pretrained(f"user/{name}", trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(f"user/{name}")
    told = {}
    if name == "aligned":
        told["language_ids"] = torch.tensor([model.config.languages.index(one) for one in languages.split()])
    with torch.no_grad():
        vectors[name] = model(**tokenizer(texts, return_tensors="pt", padding=True), **told).pooler_output.tolist()
vectors["sentence-transformers"] = SentenceTransformer("user/tmde", trust_remote_code=True).encode(texts).tolist()
report(vectors)
"""


def test_models_open_from_the_hub_without_the_package(hub, client, tokenizer, tmp_path):
    """A model alone, one with a part for each language, and two with decoders; test_checkpoints has every family."""
    models = {
        "aligned": make_tables(),
        "bag": make_bag(),
        "laser": LaserForConditionalGeneration(laser()),
    }
    models["tmde"] = tiny_model(bottleneck="pyramid")
    expected, names = {}, list(models)
    for name, model in models.items():
        save(tmp_path / "models" / name, model.eval(), tokenizer)
        expected[name] = DocumentEmbedder(model, tokenizer).encode(TEXTS, language=LANGUAGES)
    expected["sentence-transformers"] = expected["tmde"]
    push = (
        "report([tmde('push', f'{arguments[0]}/{name}', f'user/{name}') for name in arguments[1:]])"
    )
    for status, _, stderr in client(push, tmp_path / "models", *names):
        assert status == 0, stderr
    opened = client(OPEN, " ".join(names), " ".join(LANGUAGES), *TEXTS, package=False)
    for name, vectors in expected.items():
        assert np.abs(vectors).max() > 1e-3
        np.testing.assert_allclose(opened[name], vectors, rtol=0, atol=1e-5, err_msg=name)
    for name in names:
        assert hub.model(f"user/{name}").history() == [
            f"Upload {name}",
            "initial commit",
        ]  # one commit
        held = hub.model(f"user/{name}").resolve().files
        assert {
            "model.safetensors",
            "tokenizer.json",
            "modules.json",
            "1_Pooling/config.json",
        } <= set(held)
        assert not any(path.endswith((".bin", ".pt")) for path in held)
        assert f"user/{name}".encode() in held["README.md"]


def test_a_run_is_published_without_logs_and_machine_paths(hub, client, model_folder, tmp_path):
    run = shutil.copytree(model_folder, tmp_path / "secret_place" / "run")
    for name in (
        "run.json",
        "log.jsonl",
        "checkpoint-5/optimizer.pt",
        "tokenizer/tokenizer.json",
        "my_script.py",
    ):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("{}")
    corpus = {"rows": 3, "first_examples": [f"{run}/rows.jsonl, row 3, de: empty"]}
    (run / "results.json").write_text(json.dumps({"steps": 5, "corpus": corpus}))
    (run / "recipe.yaml").write_text(f"data:\n  train: {run}/rows.jsonl\n  languages: [de, en]\n")
    code = "report([tmde('push', *arguments, '--dry-run'), tmde('push', *arguments)])"
    dry, done = client(code, run, "user/tiny", "--license", "mit", "--private", "-m", "First")
    assert dry[0] == 0 and "model.safetensors" in dry[1] and "nothing was sent" in dry[1]
    assert done[0] == 0 and f"{hub.endpoint}/user/tiny" in done[1], done
    repository = hub.model("user/tiny")
    assert repository.history() == ["First", "initial commit"] and repository.private
    held = repository.resolve().files
    assert {"config.json", "modeling_tmde.py", "recipe.yaml", "results.json", "README.md"} <= set(
        held
    )
    assert not any(
        path.startswith(("checkpoint", "run", "log", "tokenizer/", "my_script")) for path in held
    )
    assert not any(b"secret_place" in content for content in held.values())
    assert json.loads(held["results.json"]) == {"steps": 5, "corpus": {"rows": 3}}
    assert b"license: mit" in held["README.md"] and b"rows.jsonl" in held["recipe.yaml"]


def test_refusals_say_what_to_do(hub, client, model_folder, tokenizer, tmp_path):
    bag = save(tmp_path / "bag", make_bag(d_model=8), tokenizer)
    code = """
tiny, bag = arguments
found = {
    "license": tmde("push", tiny, "tiny", "--license", "apache2"),
    "public": tmde("push", tiny, "user/tiny"),
    "same": tmde("push", tiny, "user/tiny"),
    "private": tmde("push", tiny, "user/tiny", "--private"),
    "other": tmde("push", bag, "user/tiny"),
    "request": tmde("push", bag, "user/tiny", "--create-pr", "--overwrite", "-m", "Smaller"),
    "branch": tmde("push", tiny, "user/tiny", "--revision", "v2", "-m", "License", "--license", "mit"),
    "bad token": tmde("push", tiny, "user/new", "--token", "hf_wrong"),
    "reader": tmde("push", tiny, "user/tiny", "--token", "hf_reader"),
    "not mine": tmde("push", tiny, "eve/tiny"),
    "replaced": tmde("push", bag, "user/tiny", "--overwrite", "-m", "Replaced"),
}
del os.environ["HF_TOKEN"]
found["no token"] = tmde("push", tiny, "user/new")
report(found)
"""
    found = client(code, model_folder, bag)
    refusals = {
        "license": '"license" must be one of apache-2.0',
        "private": "is public",
        "other": "found 'tmde', expected 'tmde_bag'",
        "bad token": "hf auth login",
        "reader": "take a token with write",
        "not mine": "choose another name",
        "no token": "set HF_TOKEN",
    }
    for name, (status, _, stderr) in found.items():
        assert status == (1 if name in refusals else 0), (name, stderr)
        assert refusals.get(name, "") in stderr and "Traceback" not in stderr, (name, stderr)
    assert "discussions/1" in found["request"][1]
    repository = hub.model("user/tiny")
    assert repository.history() == ["Replaced", "Upload tiny", "initial commit"]
    assert repository.history("refs/pr/1") == ["Smaller", "Upload tiny", "initial commit"]
    assert repository.history("v2") == ["License", "Upload tiny", "initial commit"]
    assert (
        "modeling_tmde.py" not in repository.resolve().files
    )  # --overwrite deletes what was there
    assert set(hub.repositories) == {("models", "user/tiny")}


def test_a_cut_connection_publishes_nothing(hub, client, model_folder):
    push = "report(tmde('push', arguments[0], 'user/tiny'))"
    for fault in ("cut_upload", "cut_commit"):
        setattr(hub, fault, True)
        status, _, stderr = client(push, model_folder)
        setattr(hub, fault, False)
        assert status == 1 and "Nothing was published" in stderr and "Traceback" not in stderr, (
            stderr
        )
    assert client(push, model_folder)[0] == 0
    assert hub.model("user/tiny").history() == ["Upload tiny", "initial commit"]
    sent = [status for method, _, status in hub.requests if method == "PUT"]
    assert sent.count(200) == 1 and 0 in sent  # what arrived is not sent twice
    held = hub.model("user/tiny").resolve().files
    assert held["model.safetensors"] == (model_folder / "model.safetensors").read_bytes()


def test_stale_weights_go_and_edited_cards_stay(hub, client, model_folder, tmp_path):
    run = shutil.copytree(model_folder, tmp_path / "run")
    code = """
from huggingface_hub import HfApi, hf_hub_download
def upload(path, content):
    HfApi().upload_file(path_or_fileobj=content.encode(), path_in_repo=path, repo_id="user/tiny")
run = arguments[0]
found = [tmde("push", run, "user/tiny", "--license", "mit")]
for path in ("pytorch_model.bin", "model-00001-of-00002.safetensors", "onnx/model.onnx", "notes.txt"):
    upload(path, "old")
card = open(hf_hub_download("user/tiny", "README.md")).read()
upload("README.md", card.replace("## Use it", "Edited on the Hub."))
found.append(tmde("push", run, "user/tiny", "--license", "apache-2.0"))
open(f"{run}/README.md", "w").write("Edited here.")
report([*found, tmde("push", run, "user/tiny")])
"""
    found = client(code, run)
    assert [status for status, _, _ in found] == [0, 0, 0], found
    repository = hub.model("user/tiny")
    assert repository.history()[:2] == ["Upload run", "Upload run"]
    last = repository.resolve()
    kept = repository.all_commits[last.parent].files
    stale = {"pytorch_model.bin", "model-00001-of-00002.safetensors", "onnx/model.onnx"}
    assert not stale & set(kept) and kept["notes.txt"] == b"old"
    assert (
        b"Edited on the Hub." in kept["README.md"] and b"license: apache-2.0" in kept["README.md"]
    )
    card = last.files["README.md"].decode()
    assert card.endswith("Edited here.") and "license: apache-2.0" in card


TINY = [
    "model.d_model=16",
    "model.encoder_layers=1",
    "model.encoder_attention_heads=2",
    "model.encoder_ffn_dim=16",
]
TINY += [
    "tokenizer.vocab_size=300",
    "data.dev=null",
    "dev_rows=20",
    "data.max_rows=null",
    "warmup_steps=0",
]
TINY += [
    "max_steps=4",
    "eval_steps=2",
    "save_steps=2",
    "push_to_hub=true",
    "eval_pool=10",
    "eval_loss_rows=10",
]


def test_training_pushes_checkpoints_and_the_best_model(hub, client, tmp_path):
    with open(tmp_path / "rows.jsonl", "w") as file:
        file.writelines(json.dumps({"translation": row}) + "\n" for row in make_rows(150, seed=4))
    code = """
folder, *options = arguments
def train(name, *more):
    return tmde("train", "quickstart", *options, *more, "--train", f"{folder}/rows.jsonl", "-o", f"{folder}/{name}")
more = ("hub_private_repo=true", "hub_always_push=true")
found = [train("run", "hub_model_id=user/run", *more), train("end", "hub_model_id=eve/run")]
found.append(train("end", "hub_strategy=checkpoint"))
report([found, os.path.exists(f"{folder}/end")])
"""
    (done, refused, other), begun = client(code, tmp_path, *TINY)
    assert done[0] == 0 and f"{hub.endpoint}/user/run" in done[1].replace("\n", ""), done
    assert refused[0] == 1 and "choose another name" in refused[2] and not begun  # before training
    assert other[0] == 1 and "found 'checkpoint', expected 'end' or 'every_save'" in other[2]
    repository, run = hub.model("user/run"), tmp_path / "run"
    steps = [f"Training in progress, step {step}" for step in (4, 2)]
    assert (
        repository.history() == ["End of training", *steps, "initial commit"] and repository.private
    )
    held = repository.resolve().files
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert held[name] == (run / name).read_bytes(), name
    assert b"user/run" in held["README.md"] and "recipe.yaml" in held
    during = repository.all_commits[repository.resolve().parent].files
    assert "modeling_tmde.py" in during and "optimizer.pt" not in during
    contents = [
        content for commit in repository.all_commits.values() for content in commit.files.values()
    ]
    assert not any(str(tmp_path).encode() in content for content in contents)


def test_a_corpus_is_pushed_streamed_and_trained_on(hub, client, tmp_path):
    rows = make_rows(60, languages=("de", "en"))
    with open(tmp_path / "mined.jsonl", "w") as file:
        for index, row in enumerate(rows):
            line = {
                "translation": row,
                "score": 1 + index / 100,
                "ids": {"de": f"a{index}", "en": f"b{index}"},
            }
            file.write(json.dumps(line) + "\n")
    code = """
folder = arguments[0]
def push(place, *more):
    return tmde("push", f"{folder}/mined.jsonl", place, "--repo-type", "dataset", *more)
from huggingface_hub import HfApi
found = {"dry": push("user/corpus", "--dry-run"), "first": push("user/corpus", "--license", "cc0-1.0")}
api, place = HfApi(), {"repo_id": "user/corpus", "repo_type": "dataset"}
card = open(api.hf_hub_download(filename="README.md", **place)).read()
api.upload_file(path_or_fileobj=(card + "By hand.").encode(), path_in_repo="README.md", **place)
found["again"] = push("user/corpus", "-m", "Again", "--license", "cc-by-4.0")
api.create_repo("user/pictures", repo_type="dataset")
api.upload_file(path_or_fileobj=b"P1", path_in_repo="a.pbm", repo_id="user/pictures", repo_type="dataset")
found["pictures"] = push("user/pictures")
report(found)
"""
    found = client(code, tmp_path)
    for name, (status, _, stderr) in found.items():
        assert status == (name == "pictures"), (name, stderr)
    assert "a.pbm" in found["pictures"][2] and "--overwrite" in found["pictures"][2]
    repository = hub.repositories["datasets", "user/corpus"]
    assert repository.history()[0] == "Again"
    held = repository.resolve().files
    assert set(held) == {".gitattributes", "README.md", "data/train-00000-of-00001.parquet"}
    card = held["README.md"].decode()
    assert (
        "By hand." in card
        and "license: cc-by-4.0" in card
        and "mined" in card
        and "lowest 1, median" in card
    )
    stream = """
import datasets
stream = datasets.load_dataset("user/corpus", split="train", streaming=True)
report([list(stream), str(stream.features["translation"])])
"""
    streamed, features = client(stream)
    assert [row["translation"] for row in streamed] == rows and streamed[3]["score"] == 1.03
    assert features == "Translation(languages=['de', 'en'])"
