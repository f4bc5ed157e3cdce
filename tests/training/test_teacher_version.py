"""A run has one teacher: settled once, kept by evaluations and resumed runs, and another is refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from modeling_tmde.training import teacher_version
from modeling_tmde.training.recipe import Recipe, load_recipe
from modeling_tmde.training.teacher import Teacher
from modeling_tmde.training.teacher_vectors import open_teacher_vectors, prepare_teacher_vectors
from modeling_tmde.training.teacher_version import TeacherError, TeacherVersion, find_version, settle_version
from modeling_tmde.training.train import train_recipe
from tests.conftest import make_dataset, make_rows
from tests.training.teachers import WIDTH, arguments, static_teacher, student

ROOT = Path(__file__).parents[2]


def small_run(teacher: Path | str, folder: Path, *overrides: str) -> list[str]:
    fixed = ["train=sample", "max_rows=200", "dev_rows=30", "vocab_size=500", f"token_cache_dir={folder / 'caches'}"]
    fixed += ["max_minutes=null", "eval_minutes=null", "save_total_limit=null", f"model.d_model={WIDTH}"]
    return [*fixed, f"objectives.distillation.teacher={teacher}", *overrides]


def recipe_of(teacher: Path, folder: Path, *overrides: str) -> Recipe:
    return load_recipe("distil", small_run(teacher, folder, *overrides))


def forbid_looking_up(monkeypatch) -> None:
    def never(*arguments, **options):
        raise AssertionError("looked up again")

    for name in ("find_version", "folder_checksum", "hf_hub_download"):
        monkeypatch.setattr(teacher_version, name, never)


# ---- What decides the vectors


@pytest.mark.parametrize("name", ["table.npy", "1_Dense/pytorch_model.pt", "prompt.jinja", "code/custom.py", "vocab"])
def test_any_file_that_may_be_read_counts(name, tmp_path):
    static_teacher(tmp_path / "teacher")
    found = {find_version(str(tmp_path / "teacher")).identity}
    path = tmp_path / "teacher" / name
    path.parent.mkdir(exist_ok=True)
    for content in ("one", "two"):
        path.write_text(content)
        found.add(find_version(str(tmp_path / "teacher")).identity)
    path.rename(path.with_name("elsewhere"))
    found.add(find_version(str(tmp_path / "teacher")).identity)
    assert len(found) == 4


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "epochs.md",
        "curves.png",
        "results.json",
        "run.json",
        "log.jsonl",
        "teacher.json",
        "recipe.yaml",
        "checkpoint-7/model.safetensors",
        "warm_start/model.safetensors",
        "onnx/model.onnx",
        ".cache/huggingface/model.safetensors.metadata",
        "__pycache__/modeling.cpython-312.pyc",
    ],
)
def test_records_of_runs_do_not_count(name, tmp_path):
    static_teacher(tmp_path / "teacher")
    before = find_version(str(tmp_path / "teacher"))
    path = tmp_path / "teacher" / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("written later")
    assert find_version(str(tmp_path / "teacher")) == before


def test_a_module_s_folder_counts_whatever_its_name(tmp_path):
    static_teacher(tmp_path / "teacher")
    path = tmp_path / "teacher" / "modules.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), {"idx": 1, "name": "1", "path": "eval", "type": "x"}]))
    (tmp_path / "teacher" / "eval").mkdir()
    before = find_version(str(tmp_path / "teacher"))
    (tmp_path / "teacher" / "eval" / "weights.bin").write_text("decides")
    assert find_version(str(tmp_path / "teacher")).identity != before.identity


# ---- Hub


def test_a_hub_teacher_is_known_by_its_commit(tmp_path, monkeypatch):
    """As the Hub's client keeps it; its folder, as found there, is what sentence-transformers opens."""
    asked, snapshot = [], tmp_path / "hub" / "snapshots" / "0123abcd"
    static_teacher(snapshot, WIDTH)

    def download(name, file, revision=None):
        asked.append((name, file, revision))
        return str(snapshot / file)

    monkeypatch.setattr(teacher_version, "hf_hub_download", download)
    version = find_version("user/model", "v1")
    assert version == TeacherVersion("user/model", "v1", commit="0123abcd")
    assert version.identity == "user/model@0123abcd" and asked == [("user/model", "modules.json", "v1")]
    loaded = []

    def load(path, revision=None, **options):
        loaded.append((path, revision))
        return original(str(snapshot), **options)

    from sentence_transformers import SentenceTransformer as original

    monkeypatch.setattr("sentence_transformers.SentenceTransformer", load)
    assert Teacher(version).width("en") == WIDTH and loaded == [("user/model", "0123abcd")]


def test_a_run_keeps_the_commit_that_was_the_newest_when_it_began(tmp_path, monkeypatch):
    newest = {None: "aaaa", "v1": "aaaa", "v2": "bbbb"}
    monkeypatch.setattr(teacher_version, "_commit", lambda name, revision: newest[revision])
    assert settle_version(student("user/model").objectives["distillation"], tmp_path).commit == "aaaa"
    assert json.loads((tmp_path / "teacher.json").read_text())["commit"] == "aaaa"
    newest[None] = "bbbb"
    for revision in (None, "aaaa", "v1"):
        parallel = student("user/model", teacher_revision=revision)
        assert settle_version(parallel.objectives["distillation"], tmp_path).commit == "aaaa"
    for name, revision, found in (
        ("user/model", "v2", "user/model at commit bbbb"),
        ("user/other", "v1", "user/other"),
    ):
        objective = student(name, teacher_revision=revision).objectives["distillation"]
        with pytest.raises(TeacherError, match=f"found {found}.*the run began with user/model at commit aaaa"):
            settle_version(objective, tmp_path)
        assert objective.version is None
    assert settle_version(student("user/model").objectives["distillation"], tmp_path / "new").commit == "bbbb"


def test_a_resumed_run_refuses_a_folder_that_has_changed(tmp_path):
    teacher, moved = tmp_path / "teacher", tmp_path / "moved"
    static_teacher(teacher, WIDTH)
    run = tmp_path / "run"
    train_recipe(recipe_of(teacher, tmp_path, "max_steps=2", "eval_steps=2"), run)
    assert json.loads((run / "teacher.json").read_text())["sha256"] == find_version(str(teacher)).sha256
    shutil.copytree(teacher, moved)
    static_teacher(teacher, WIDTH, seed=1)
    longer = ["max_steps=4", "eval_steps=2"]
    with pytest.raises(
        TeacherError, match="found other files in the folder than those that the run began with"
    ) as error:
        train_recipe(recipe_of(teacher, tmp_path, *longer), run, resume=True)
    assert "\n" not in str(error.value) and "--overwrite" in str(error.value)
    trainer = train_recipe(recipe_of(moved, tmp_path, *longer), run, resume=True)
    assert trainer.state.global_step == 4
    train_recipe(recipe_of(teacher, tmp_path, "max_steps=2"), run, overwrite=True)
    assert json.loads((run / "teacher.json").read_text())["sha256"] == find_version(str(teacher)).sha256


def test_a_folder_has_no_revisions(taught_by):
    with pytest.raises(TeacherError, match="teacher_revision: found 'main' of the folder .* expected null"):
        find_version(str(taught_by.folder), "main")


@pytest.mark.parametrize(("content", "message"), [("{", "is no JSON file"), ("{}", "holds a dict, expected a list")])
def test_modules_that_are_none(content, message, tmp_path):
    static_teacher(tmp_path / "teacher")
    (tmp_path / "teacher" / "modules.json").write_text(content)
    with pytest.raises(TeacherError, match=message):
        find_version(str(tmp_path / "teacher"))


def test_a_record_that_cannot_be_read(taught_by, tmp_path):
    (tmp_path / "teacher.json").write_text('{"teacher": 1}')
    with pytest.raises(TeacherError, match="teacher.json: found no record of a teacher"):
        settle_version(student(taught_by.folder).objectives["distillation"], tmp_path)


# ---- During a run


def test_a_run_looks_up_and_loads_its_teacher_once(tmp_path, monkeypatch):
    from sentence_transformers import SentenceTransformer as original

    static_teacher(tmp_path / "teacher", WIDTH)
    loaded, found = [], []
    find = teacher_version.find_version

    def load(path, **options):
        loaded.append(path)
        return original(path, **options)

    monkeypatch.setattr("sentence_transformers.SentenceTransformer", load)
    monkeypatch.setattr(teacher_version, "find_version", lambda *words: found.append(words) or find(*words))
    recipe = recipe_of(tmp_path / "teacher", tmp_path, "max_steps=3", "eval_steps=1", "logging_steps=1")
    trainer = train_recipe(recipe, tmp_path / "run")
    assert sum("eval_dev_distillation_loss" in entry for entry in trainer.state.log_history) >= 3
    assert len(loaded) == 1 and len(found) == 1


def test_evaluations_ask_neither_the_hub_nor_the_folder(tmp_path, monkeypatch):
    static_teacher(tmp_path / "teacher", WIDTH)
    rows, args, parallel = make_dataset(make_rows(20)), arguments(tmp_path), student(tmp_path / "teacher")
    prepare_teacher_vectors(rows, [rows.select(range(5))], parallel, args)
    forbid_looking_up(monkeypatch)
    shutil.rmtree(tmp_path / "teacher")
    for _ in range(2):
        assert open_teacher_vectors(rows.select(range(5)), parallel, args).vectors.shape == (5, WIDTH)


def test_a_folder_that_changes_while_a_run_goes_is_not_read(tmp_path):
    static_teacher(tmp_path / "teacher", WIDTH)
    rows, args, parallel = make_dataset(make_rows(20)), arguments(tmp_path), student(tmp_path / "teacher")
    prepare_teacher_vectors(rows, [], parallel, args)
    static_teacher(tmp_path / "teacher", WIDTH, seed=1)
    open_teacher_vectors(rows, parallel, args)  # read already
    with pytest.raises(TeacherError, match="found other files in the folder than when the run began"):
        open_teacher_vectors(rows.select(range(5)), parallel, args)


@pytest.mark.slow
def test_the_first_process_settles_it_for_all(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [*command, str(Path(__file__).with_name("worker_teacher.py")), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    for rank in (0, 1):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == [2, "0123abcd", ["found no such model"]]
    assert not (tmp_path / "other").exists()
