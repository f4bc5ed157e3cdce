"""`tmde push` and pushes of a training run: the real clients, in processes of their own, against a
local Hub."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from modeling_tmde import LaserForConditionalGeneration
from modeling_tmde.sentence_transformers_files import COMPANIONS
from tests.conftest import make_rows, save, tiny_model
from tests.tiny_embedders import laser, make_bag, make_tables
from tmde import DocumentEmbedder

# ---- Models without the package

TEXTS = ["haus hund katze", "house dog", "maison"]
LANGUAGES = ["de", "en", "fr"]

PUSH_MODELS = """
folder, *names = arguments
report([tmde("push", f"{folder}/{name}", f"user/{name}") for name in names])
"""

OPEN_MODELS = """
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
names, languages, *texts = arguments
vectors = {}
for name in names.split():
    model = AutoModel.from_pretrained(f"user/{name}", trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(f"user/{name}")
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    if name == "aligned":
        ids = [model.config.languages.index(language) for language in languages.split()]
        inputs["language_ids"] = torch.tensor(ids)
    with torch.no_grad():
        vectors[name] = model(**inputs).pooler_output.tolist()
model = SentenceTransformer("user/tmde", trust_remote_code=True)
vectors["sentence-transformers"] = model.encode(texts).tolist()
report(vectors)
"""


def make_models() -> dict:
    """A model alone, one with a part for each language, and two with decoders.

    tests/test_checkpoints.py has every family.
    """
    return {
        "aligned": make_tables(),
        "bag": make_bag(),
        "laser": LaserForConditionalGeneration(laser()),
        "tmde": tiny_model(bottleneck="pyramid"),
    }


@pytest.mark.nightly
def test_models_open_from_the_hub_without_the_package(hub, client, tokenizer, tmp_path):
    expected = {}
    for name, model in make_models().items():
        save(tmp_path / "models" / name, model.eval(), tokenizer)
        expected[name] = DocumentEmbedder(model, tokenizer).encode(TEXTS, language=LANGUAGES)
    names = list(expected)
    expected["sentence-transformers"] = expected["tmde"]

    pushes = client(PUSH_MODELS, tmp_path / "models", *names)
    vectors = client(OPEN_MODELS, " ".join(names), " ".join(LANGUAGES), *TEXTS, package=False)

    for status, _, stderr in pushes:
        assert status == 0, stderr
    for name, expected_vectors in expected.items():
        assert np.abs(expected_vectors).max() > 1e-3
        np.testing.assert_allclose(vectors[name], expected_vectors, rtol=0, atol=1e-5, err_msg=name)
    for name in names:
        check_repository_of_model(hub, name)


def check_repository_of_model(hub, name: str) -> None:
    """One commit holds all that the model needs, and nothing that runs code when it is loaded."""
    repository = hub.model(f"user/{name}")
    files = repository.resolve().files
    needed = {"model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"}

    assert repository.history() == [f"Upload {name}", "initial commit"]
    assert needed <= set(files)
    assert not [path for path in files if path.endswith((".bin", ".pt"))]
    assert f"user/{name}".encode() in files["README.md"]


SAVE_AND_PUSH = """
from transformers import AutoModel, AutoTokenizer
source, folder = arguments
AutoTokenizer.from_pretrained(source).push_to_hub("user/pushed")
model = AutoModel.from_pretrained(source, trust_remote_code=True)
for _ in range(2):  # The second save finds the files of the first in the folder.
    model.save_pretrained(folder, push_to_hub=True, repo_id="user/pushed")
"""

OPEN_PUSHED = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("user/pushed", trust_remote_code=True)
report(model.encode(arguments).tolist())
"""


@pytest.mark.nightly
@pytest.mark.parametrize("package", [True, False])
def test_a_save_that_pushes_has_the_files_of_sentence_transformers(
    hub, client, model_folder, tmp_path, package
):
    """`save_pretrained(push_to_hub=True)`, with the package and with remote code."""
    client(SAVE_AND_PUSH, model_folder, tmp_path / "saved", package=package)
    assert set(COMPANIONS) <= set(hub.model("user/pushed").resolve().files)
    expected = DocumentEmbedder.from_pretrained(model_folder).encode(TEXTS)
    vectors = client(OPEN_PUSHED, *TEXTS, package=False)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


# ---- A run

PUSH_WITH_DRY_RUN = """
report([tmde("push", *arguments, "--dry-run"), tmde("push", *arguments)])
"""


@pytest.fixture
def run(model_folder, tmp_path) -> Path:
    """A run with logs, checkpoints, scripts, and paths of the machine in its records."""
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
    return run


def test_a_run_is_published_without_logs_and_machine_paths(hub, client, run):
    options = ("--license", "mit", "--private", "-m", "First")

    dry_run, push = client(PUSH_WITH_DRY_RUN, run, "user/tiny", *options)

    check_dry_run(*dry_run)
    status, stdout, stderr = push
    assert status == 0, stderr
    assert f"{hub.endpoint}/user/tiny" in stdout
    repository = hub.model("user/tiny")
    assert repository.history() == ["First", "initial commit"]
    assert repository.private
    check_published_files(repository.resolve().files)


def check_dry_run(status: int, stdout: str, stderr: str) -> None:
    assert status == 0, stderr
    assert "model.safetensors" in stdout
    assert "nothing was sent" in stdout


def check_published_files(files: dict[str, bytes]) -> None:
    needed = {"config.json", "modeling_tmde.py", "recipe.yaml", "results.json", "README.md"}
    private = ("checkpoint", "run", "log", "tokenizer/", "my_script")

    assert needed <= set(files)
    assert not [path for path in files if path.startswith(private)]
    assert not [path for path, content in files.items() if b"secret_place" in content]
    assert json.loads(files["results.json"]) == {"steps": 5, "corpus": {"rows": 3}}
    assert b"license: mit" in files["README.md"]
    assert b"rows.jsonl" in files["recipe.yaml"]


# ---- Refusals

PUSHES = """
tiny, bag = arguments
pushes = {
    "license": tmde("push", tiny, "tiny", "--license", "apache2"),
    "public": tmde("push", tiny, "user/tiny"),
    "same": tmde("push", tiny, "user/tiny"),
    "private": tmde("push", tiny, "user/tiny", "--private"),
    "other": tmde("push", bag, "user/tiny"),
    "request": tmde("push", bag, "user/tiny", "--create-pr", "--overwrite", "-m", "Smaller"),
    "branch": tmde(
        "push", tiny, "user/tiny", "--revision", "v2", "-m", "License", "--license", "mit"
    ),
    "bad token": tmde("push", tiny, "user/new", "--token", "hf_wrong"),
    "reader": tmde("push", tiny, "user/tiny", "--token", "hf_reader"),
    "not mine": tmde("push", tiny, "eve/tiny"),
    "replaced": tmde("push", bag, "user/tiny", "--overwrite", "-m", "Replaced"),
}
del os.environ["HF_TOKEN"]
pushes["no token"] = tmde("push", tiny, "user/new")
report(pushes)
"""

REFUSALS = {
    "license": '"license" must be one of apache-2.0',
    "private": "is public",
    "other": "found 'tmde', expected 'tmde_bag'",
    "bad token": "hf auth login",
    "reader": "take a token with write",
    "not mine": "choose another name",
    "no token": "set HF_TOKEN",
}


def test_refusals_say_what_to_do(hub, client, model_folder, tokenizer, tmp_path):
    bag = save(tmp_path / "bag", make_bag(d_model=8), tokenizer)

    pushes = client(PUSHES, model_folder, bag)

    for name, (status, _, stderr) in pushes.items():
        assert status == (1 if name in REFUSALS else 0), (name, stderr)
        assert REFUSALS.get(name, "") in stderr, (name, stderr)
        assert "Traceback" not in stderr, (name, stderr)
    assert "discussions/1" in pushes["request"][1]
    repository = hub.model("user/tiny")
    assert repository.history() == ["Replaced", "Upload tiny", "initial commit"]
    assert repository.history("refs/pr/1") == ["Smaller", "Upload tiny", "initial commit"]
    assert repository.history("v2") == ["License", "Upload tiny", "initial commit"]
    # `--overwrite` deletes what was there.
    assert "modeling_tmde.py" not in repository.resolve().files
    # What was refused left no repository behind.
    assert set(hub.repositories) == {("models", "user/tiny")}


# ---- Interrupted and repeated pushes

PUSH = 'report(tmde("push", arguments[0], "user/tiny"))'


def test_a_cut_connection_publishes_nothing(hub, client, model_folder):
    for fault in ("cut_upload", "cut_commit"):
        setattr(hub, fault, True)
        status, _, stderr = client(PUSH, model_folder)
        setattr(hub, fault, False)

        assert status == 1
        assert "Nothing was published" in stderr
        assert "Traceback" not in stderr
    status, _, stderr = client(PUSH, model_folder)

    assert status == 0, stderr
    repository = hub.model("user/tiny")
    assert repository.history() == ["Upload tiny", "initial commit"]
    weights = (model_folder / "model.safetensors").read_bytes()
    assert repository.resolve().files["model.safetensors"] == weights
    # One upload was cut off; what arrived later is not sent twice.
    uploads = [status for method, _, status in hub.requests if method == "PUT"]
    assert uploads.count(200) == 1
    assert 0 in uploads


PUSH_TO_EDITED_REPOSITORY = """
from huggingface_hub import HfApi, hf_hub_download
def upload(path, content):
    HfApi().upload_file(
        path_or_fileobj=content.encode(), path_in_repo=path, repo_id="user/tiny"
    )
run, *old_files = arguments
pushes = [tmde("push", run, "user/tiny", "--license", "mit")]
for path in old_files:
    upload(path, "old")
card = open(hf_hub_download("user/tiny", "README.md")).read()
upload("README.md", card + "Written on the Hub.")
pushes.append(tmde("push", run, "user/tiny", "--license", "apache-2.0"))
open(f"{run}/README.md", "w").write("Edited here.")
report([*pushes, tmde("push", run, "user/tiny")])
"""


def test_stale_weights_go_and_edited_cards_stay(hub, client, model_folder, tmp_path):
    run = shutil.copytree(model_folder, tmp_path / "run")
    stale = ["pytorch_model.bin", "model-00001-of-00002.safetensors", "onnx/model.onnx"]

    pushes = client(PUSH_TO_EDITED_REPOSITORY, run, *stale, "notes.txt")

    for status, _, stderr in pushes:
        assert status == 0, stderr
    repository = hub.model("user/tiny")
    assert repository.history()[:2] == ["Upload run", "Upload run"]
    last_commit = repository.resolve()
    files = repository.all_commits[last_commit.parent].files
    assert not set(stale) & set(files)
    assert files["notes.txt"] == b"old"
    assert b"Written on the Hub." in files["README.md"]
    assert b"license: apache-2.0" in files["README.md"]
    last_card = last_commit.files["README.md"].decode()
    assert last_card.endswith("Edited here.")
    assert "license: apache-2.0" in last_card


# ---- Pushes of a training run

TINY_RUN = [
    "model.d_model=16",
    "model.encoder_layers=1",
    "model.encoder_attention_heads=2",
    "model.encoder_ffn_dim=16",
    "tokenizer.vocab_size=300",
    "data.dev=null",
    "dev_rows=20",
    "data.max_rows=null",
    "warmup_steps=0",
    "max_steps=4",
    "eval_steps=2",
    "save_steps=2",
    "push_to_hub=true",
    "eval_pool=10",
    "eval_loss_rows=10",
]

TRAIN = """
folder, *options = arguments
def train(name, *more):
    source = ("--train", f"{folder}/rows.jsonl")
    return tmde("train", "quickstart", *options, *more, *source, "-o", f"{folder}/{name}")
private = ("hub_private_repo=true", "hub_always_push=true")
report({
    "done": train("run", "hub_model_id=user/run", *private),
    "not mine": train("end", "hub_model_id=eve/run"),
    "strategy": train("end", "hub_strategy=checkpoint"),
    "refused runs began": os.path.exists(f"{folder}/end"),
})
"""


def write_lines(path: Path, records: list) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_training_pushes_checkpoints_and_the_best_model(hub, client, tmp_path):
    rows = [{"translation": row} for row in make_rows(150, seed=4)]
    write_lines(tmp_path / "rows.jsonl", rows)

    runs = client(TRAIN, tmp_path, *TINY_RUN)

    check_refused_runs(runs)
    status, stdout, stderr = runs["done"]
    assert status == 0, stderr
    assert f"{hub.endpoint}/user/run" in stdout.replace("\n", "")
    repository = hub.model("user/run")
    assert repository.private
    assert repository.history() == [
        "End of training",
        "Training in progress, step 4",
        "Training in progress, step 2",
        "initial commit",
    ]
    check_trained_model(repository.resolve().files, tmp_path / "run")
    during_training = repository.all_commits[repository.resolve().parent].files
    assert "modeling_tmde.py" in during_training
    assert "optimizer.pt" not in during_training
    for commit in repository.all_commits.values():
        for path, content in commit.files.items():
            assert str(tmp_path).encode() not in content, path


def check_refused_runs(runs: dict) -> None:
    """Runs that could not push are refused before they train."""
    status, _, stderr = runs["not mine"]
    assert status == 1
    assert "choose another name" in stderr
    status, _, stderr = runs["strategy"]
    assert status == 1
    assert "found 'checkpoint', expected 'end' or 'every_save'" in stderr
    assert not runs["refused runs began"]


def check_trained_model(files: dict[str, bytes], run: Path) -> None:
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert files[name] == (run / name).read_bytes(), name
    assert b"user/run" in files["README.md"]
    assert "recipe.yaml" in files


# ---- Corpora

PUSH_CORPUS = """
folder = arguments[0]
def push(place, *more):
    return tmde("push", f"{folder}/mined.jsonl", place, "--repo-type", "dataset", *more)
from huggingface_hub import HfApi
api = HfApi()
corpus = {"repo_id": "user/corpus", "repo_type": "dataset"}
pictures = {"repo_id": "user/pictures", "repo_type": "dataset"}
pushes = {
    "dry": push("user/corpus", "--dry-run"),
    "first": push("user/corpus", "--license", "cc0-1.0"),
}
card = open(api.hf_hub_download(filename="README.md", **corpus)).read() + "By hand."
api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", **corpus)
pushes["again"] = push("user/corpus", "-m", "Again", "--license", "cc-by-4.0")
api.create_repo(**pictures)
api.upload_file(path_or_fileobj=b"P1", path_in_repo="a.pbm", **pictures)
pushes["pictures"] = push("user/pictures")
report(pushes)
"""

STREAM_CORPUS = """
import datasets
stream = datasets.load_dataset("user/corpus", split="train", streaming=True)
report([list(stream), str(stream.features["translation"])])
"""


def test_a_corpus_is_pushed_and_streamed(hub, client, tmp_path):
    rows = make_rows(60, languages=("de", "en"))
    records = []
    for index, row in enumerate(rows):
        ids = {"de": f"a{index}", "en": f"b{index}"}
        records.append({"translation": row, "score": 1 + index / 100, "ids": ids})
    write_lines(tmp_path / "mined.jsonl", records)

    pushes = client(PUSH_CORPUS, tmp_path)
    streamed, features = client(STREAM_CORPUS)

    check_pushes_of_corpus(pushes)
    repository = hub.repositories["datasets", "user/corpus"]
    assert repository.history()[0] == "Again"
    check_files_of_corpus(repository.resolve().files)
    assert [row["translation"] for row in streamed] == rows
    assert streamed[3]["score"] == 1.03
    assert features == "Translation(languages=['de', 'en'])"


def check_pushes_of_corpus(pushes: dict) -> None:
    """Only a repository that holds something else is refused."""
    for name, (status, _, stderr) in pushes.items():
        expected = 1 if name == "pictures" else 0
        assert status == expected, (name, stderr)
    _, _, stderr = pushes["pictures"]
    assert "a.pbm" in stderr
    assert "--overwrite" in stderr


def check_files_of_corpus(files: dict[str, bytes]) -> None:
    card = files["README.md"].decode()

    assert set(files) == {".gitattributes", "README.md", "data/train-00000-of-00001.parquet"}
    assert "By hand." in card
    assert "license: cc-by-4.0" in card
    assert "mined" in card
    assert "lowest 1, median" in card
