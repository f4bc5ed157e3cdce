"""`tmde push` and `push_to_hub` of models: the real clients, in processes of their own, against a local Hub."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.hub.clients import TMDE, run_client
from tests.hub_server import HubServer

pytestmark = pytest.mark.slow
TEXTS = ["haus hund katze", "house dog cat", "water", "maison chien chat arbre fleuve"]

OPEN = """
import torch
from transformers import AutoModel, AutoTokenizer
def open_model(name, texts, **options):
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    model = AutoModel.from_pretrained(name, trust_remote_code=True, **options).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
    with torch.no_grad():
        return model, model(**tokenizer(texts, return_tensors="pt", padding=True)).pooler_output.tolist()
"""


def vectors_of(folder: Path) -> list[list[float]]:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(TEXTS, return_tensors="pt", padding=True)).pooler_output.tolist()


def commits(hub: HubServer, repo_id: str, kind: str = "models", revision: str = "main") -> list[str]:
    return [commit.title for commit in hub.store.find(kind, repo_id).history(revision)]


def files(hub: HubServer, repo_id: str, revision: str = "main") -> dict[str, bytes]:
    commit = hub.store.find("models", repo_id).resolve(revision)
    return {path: hub.store.read(file) for path, file in commit.files.items()}


def test_a_pushed_run_opens_where_the_package_is_not(hub, model_folder, tmp_path):
    run = tmp_path / "secret_place" / "run"
    shutil.copytree(model_folder, run)
    for name in (
        "run.json",
        "log.jsonl",
        "checkpoint-5/optimizer.pt",
        "tokenizer/tokenizer.json",
        "training_args.bin",
    ):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("{}")
    corpus = {"rows": 3, "first_examples": [f"{run}/rows.jsonl, row 3, de: empty"]}
    (run / "results.json").write_text(json.dumps({"steps": 5, "corpus": corpus}))
    (run / "recipe.yaml").write_text(f"data:\n  train: {run}/rows.jsonl\n  languages: [de, en]\n")
    code = TMDE + "report(tmde('push', *arguments))"
    status, stdout, stderr = run_client(
        hub, tmp_path / "pusher", code, run, "user/tiny", "--license", "mit", "-m", "First"
    )
    assert status == 0, stderr
    assert f"{hub.endpoint}/user/tiny" in stdout
    assert commits(hub, "user/tiny") == ["First", "initial commit"]
    held = files(hub, "user/tiny")
    expected = {"model.safetensors", "config.json", "tokenizer.json", "modeling_tmde.py", "modules.json", "README.md"}
    assert expected | {"1_Pooling/config.json", "recipe.yaml", "results.json"} <= set(held)
    assert not any(
        path.endswith((".bin", ".pt", ".jsonl")) or path.startswith(("checkpoint", "run", "tokenizer/"))
        for path in held
    )
    assert b"license: mit" in held["README.md"] and b"user/tiny" in held["README.md"]
    assert json.loads(held["results.json"]) == {"steps": 5, "corpus": {"rows": 3}}
    assert not any(b"secret_place" in content for content in held.values())
    assert "rows.jsonl" in held["recipe.yaml"].decode()

    code = (
        OPEN
        + """
model, vectors = open_model("user/tiny", arguments)
from sentence_transformers import SentenceTransformer
model.push_to_hub("user/again", commit_message="From remote code")
sentence_vectors = SentenceTransformer("user/again", trust_remote_code=True).encode(arguments)
report([vectors, open_model("user/again", arguments)[1], sentence_vectors.tolist()])
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
"""
    )
    found = run_client(hub, tmp_path / "opener", code, *TEXTS, package=False)
    expected = vectors_of(model_folder)
    assert np.abs(expected).max() > 0.1
    for vectors in found:
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert commits(hub, "user/again") == ["From remote code", "initial commit"]
    again = files(hub, "user/again")
    assert set(held) - {"recipe.yaml", "results.json", "generation_config.json"} == set(again)  # it is the encoder
    assert again["tokenizer.json"] == held["tokenizer.json"]
    card = again["README.md"].decode()  # not that of the whole model, with its snippets and results
    assert "base_model: user/tiny" in card and "model-index" not in card and card.count("user/tiny") == 1


def test_policies(hub, model_folder, tmp_path, tokenizer):
    """Each refusal says what to do, and changes nothing."""
    from modeling_tmde import BagConfig, BagModel

    bag = tmp_path / "bag"
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(bag)
    tokenizer.save_pretrained(bag)
    code = (
        TMDE
        + """
import os
tiny, bag = arguments
found = {
    "dry": tmde("push", tiny, "user/tiny", "--dry-run", "--license", "apache-2.0"),
    "licence": tmde("push", tiny, "user/tiny", "--license", "apache2"),
    "no place": tmde("push", tiny, "tiny"),
    "public": tmde("push", tiny, "user/tiny"),
    "same": tmde("push", tiny, "user/tiny"),
    "private": tmde("push", tiny, "user/tiny", "--private"),
    "other": tmde("push", bag, "user/tiny"),
    "request": tmde("push", bag, "user/tiny", "--create-pr", "--overwrite", "-m", "Smaller"),
    "branch": tmde("push", tiny, "user/tiny", "--revision", "v2", "-m", "Licence", "--license", "mit"),
    "bad token": tmde("push", tiny, "user/new", "--token", "hf_wrong"),
    "reader": tmde("push", tiny, "user/tiny", "--token", "hf_reader"),
    "stranger": tmde("push", tiny, "user/tiny", "--token", "hf_eve"),
    "not mine": tmde("push", tiny, "eve/tiny"),
    "lab": tmde("push", tiny, "lab/tiny", "--private"),
    "replaced": tmde("push", bag, "user/tiny", "--overwrite", "-m", "Replaced"),
}
del os.environ["HF_TOKEN"]
found["no token"] = tmde("push", tiny, "user/new")
report(found)
"""
    )
    found = run_client(hub, tmp_path / "pusher", code, model_folder, bag)
    refusals = {
        "licence": ["'apache2'", "do you mean 'apache-2.0'", "nothing was published"],
        "no place": ["USER/NAME", "tiny"],
        "private": ["is public", "nothing was uploaded"],
        "other": ["'tmde'", "'tmde_bag'", "--overwrite"],
        "bad token": ["does not accept the token", "hf auth login"],
        "reader": ["may not write", "write permission"],
        "stranger": ["may not write"],
        "not mine": ["may not write", "'eve'"],
        "no token": ["hf auth login", "HF_TOKEN"],
    }
    for name, (status, _, stderr) in found.items():
        assert status == (1 if name in refusals else 0), (name, stderr)
        for words in refusals.get(name, ()):
            assert words.lower() in stderr.lower(), (name, stderr)
        assert "Traceback" not in stderr
    assert "model.safetensors" in found["dry"][1]
    assert "already" in found["same"][1]
    assert "discussions/1" in found["request"][1]
    assert commits(hub, "user/tiny") == ["Replaced", "Upload tiny", "initial commit"]
    assert commits(hub, "user/tiny", revision="refs/pr/1") == ["Smaller", "Upload tiny", "initial commit"]
    assert commits(hub, "user/tiny", revision="v2") == ["Licence", "Upload tiny", "initial commit"]
    assert json.loads(files(hub, "user/tiny")["config.json"])["model_type"] == "tmde_bag"
    assert "modeling_tmde.py" not in files(hub, "user/tiny")
    assert json.loads(files(hub, "user/tiny", "v2")["config.json"])["model_type"] == "tmde"
    assert {repo_id for _, repo_id in hub.store.repositories} == {"user/tiny", "lab/tiny"}
    assert hub.store.find("models", "lab/tiny").private and not hub.store.find("models", "user/tiny").private


def test_a_private_model_needs_a_token(hub, model_folder, tmp_path):
    code = TMDE + "report(tmde('push', *arguments))"
    assert run_client(hub, tmp_path / "pusher", code, model_folder, "user/mine", "--private")[0] == 0
    code = (
        OPEN
        + """
import os
found = {}
for token in ("hf_eve", None, "hf_user"):
    try:
        found[token or "none"] = open_model("user/mine", arguments, token=token)[1]
    except OSError as error:
        found[token or "none"] = str(error)
report(found)
"""
    )
    found = run_client(hub, tmp_path / "opener", code, *TEXTS, package=False, token=None)
    np.testing.assert_allclose(found["hf_user"], vectors_of(model_folder), rtol=0, atol=1e-5)
    for stranger in ("hf_eve", "none"):
        assert isinstance(found[stranger], str) and "user/mine" in found[stranger], found


def test_a_cut_connection_leaves_nothing_half_published(hub, model_folder, tmp_path):
    """In the middle of a large file, before the commit, after it: the same command again completes, and does not send
    again what arrived."""
    run = tmp_path / "run"
    shutil.copytree(model_folder, run)
    (run / "curves.png").write_bytes(b"\x89PNG picture")  # a second large file, a small one
    large = (run / "model.safetensors").stat().st_size

    def number() -> int:
        """Of the push that is going on; each begins by asking for the repository."""
        return sum(path == "/api/repos/create" for _, path, _ in hub.requests)

    hub.cut_upload = lambda size: large // 2 if number() == 1 and size == large else None
    hub.cut_commit = lambda: {2: "before", 3: "after"}.get(number())
    code = TMDE + "report([tmde('push', *arguments) for _ in range(4)])"
    first, second, third, fourth = run_client(hub, tmp_path / "pusher", code, run, "user/tiny")
    for status, _, stderr in (first, second, third):
        assert status == 1 and "half-published" in stderr and "Traceback" not in stderr, stderr
    assert "model.safetensors" in first[2]
    assert fourth[0] == 0 and "already" in fourth[1], fourth  # the third was there, only its answer was lost
    assert commits(hub, "user/tiny") == ["Upload run", "initial commit"]
    assert files(hub, "user/tiny")["model.safetensors"] == (run / "model.safetensors").read_bytes()

    sent = [[], [], [], []]
    for method, path, status in hub.requests:
        if path == "/api/repos/create":
            current = sent.pop(0)
            sent.append(current)
        elif method == "PUT":
            current.append((path.split("/")[6], status))
    weights = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    picture = hashlib.sha256((run / "curves.png").read_bytes()).hexdigest()
    assert sent[0].count((weights, 0)) > 1 and (picture, 200) in sent[0]  # the client itself had tried again
    assert sent[1:] == [[(weights, 200)], [], []]
    made = [(path, status) for _, path, status in hub.requests if path.endswith("/commit/main")]
    assert [status for _, status in made] == [0, 0]
