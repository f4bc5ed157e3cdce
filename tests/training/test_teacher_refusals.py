"""Teachers and runs that do not fit each other: one clear error before training, or one warning."""

import shutil
import sys

import pytest
import torch
import typer
from typer.testing import CliRunner

from modeling_tmde.training import teacher_vectors
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.teacher import Teacher
from modeling_tmde.training.teacher_vectors import open_teacher_vectors
from modeling_tmde.training.teacher_version import TeacherError
from modeling_tmde.training.train import train
from tests.conftest import LANGUAGES, make_dataset, make_rows
from tests.training.teachers import WIDTH, arguments, bert_teacher, holey_rows, static_teacher, student


def error_of(parallel: ParallelModel, args: TmdeTrainingArguments, rows: list[dict] | None = None) -> str:
    with pytest.raises((ValueError, ImportError)) as error:
        open_teacher_vectors(make_dataset(rows or make_rows(10)), parallel, args)
    return str(error.value)


def test_a_student_of_another_width(taught_by, tmp_path):
    for _ in range(2):  # before the teacher has read, and after
        message = error_of(student(taught_by.folder, width=24), arguments(tmp_path))
        assert "d=32" in message and "d=24" in message and "model.d_model=32" in message
        assert not list((tmp_path / "caches").glob("*/vectors.bin"))
    open_teacher_vectors(make_dataset(make_rows(10)), student(taught_by.folder), arguments(tmp_path))
    assert "model.d_model=32" in error_of(student(taught_by.folder, width=24), arguments(tmp_path))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e6])
def test_numbers_that_are_none_name_the_row(number, tmp_path):
    static_teacher(tmp_path / "bad", WIDTH, cat=[0.0] * 31 + [number])
    rows = make_rows(10)
    first = next(place for place, row in enumerate(rows) if "cat" in row["en"].split())
    assert first > 0
    message = error_of(student(tmp_path / "bad"), arguments(tmp_path), rows)
    assert f"row {first} " in message and repr(rows[first]["en"][:60]) in message
    assert ("nan" if number != number else "inf") in message


@pytest.mark.parametrize(("option", "value"), [("max_joined_rows", 3), ("neighbor_share", 0.1)])
def test_texts_of_several_rows(option, value, tokenizer, taught_by, tmp_path):
    pattern = f"teacher's vectors are of single rows, and found {option}={value}"
    assert pattern in error_of(student(taught_by.folder), arguments(tmp_path, **{option: value}))
    dataset = make_dataset(make_rows(10))
    teacher = open_teacher_vectors(dataset, student(taught_by.folder), arguments(tmp_path))
    with pytest.raises(ValueError, match=pattern):
        ParallelBatches(dataset, tokenizer, LANGUAGES, ["en"], teacher=teacher, **{option: value})


def test_a_language_that_is_not_trained(taught_by, tmp_path):
    message = error_of(student(taught_by.folder, teacher_languages=["en", "pt"]), arguments(tmp_path))
    assert "teacher_languages: found ['pt'], expected some of data.languages=[de, en, es, fr, it]" in message


def test_rows_without_any_language_of_the_teacher(taught_by, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(teacher_vectors.logger, "warning_once", said.append)
    parallel, args, rows = student(taught_by.folder), arguments(tmp_path), holey_rows(12)
    teacher_vectors.prepare_teacher_vectors(make_dataset(rows), [], parallel, args)
    assert len(said) == 1 and said[0].startswith("2 of 12 rows have no text in en, es")
    for row in rows:
        row["en"] = row["es"] = None
    with pytest.raises(TeacherError, match="found no row of the training data in en, es"):
        teacher_vectors.prepare_teacher_vectors(make_dataset(rows), [], parallel, args)


def test_a_stream_without_any_language_of_the_teacher_is_said(tokenizer, taught_by, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(teacher_vectors.logger, "warning_once", said.append)
    stream = make_dataset(make_rows(10, languages=("de", "it"))).to_iterable_dataset()
    teacher = open_teacher_vectors(stream, student(taught_by.folder), arguments(tmp_path))
    batches = ParallelBatches(stream, tokenizer, LANGUAGES, ["en"], 100, teacher=teacher, pivots_only=False)
    assert all(batch.sizes.taught_rows == 0 for batch in batches)
    assert set(said) == {
        "No row of 10 has a text in en, es, which the teacher reads (objectives.distillation.teacher_languages): they "
        "are not distilled"
    }


def test_a_stream_in_a_worker(taught_by, tmp_path):
    stream = make_dataset(make_rows(10)).to_iterable_dataset()
    args = arguments(tmp_path, dataloader_num_workers=1)
    with pytest.raises(ValueError, match=r"set training.dataloader_num_workers=0; or .* data.streaming=false"):
        open_teacher_vectors(stream, student(taught_by.folder), args)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing/model", "found no such folder and no such model on the Hub"),
        ("/no/such/folder", "found no such folder and no such model on the Hub"),
        ("EMPTY", "found no model, without modules.json"),
        ("FILE", "found a file, expected a model's folder"),
        ("OLD", "'tmde_bag' saved by an older release, without modules.json"),
        ("BROKEN", "sentence-transformers can't open it"),
    ],
)
def test_teachers_that_cannot_be_opened(name, expected, taught_by, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for kind in ("EMPTY", "OLD"):
        (tmp_path / kind).mkdir()
    (tmp_path / "OLD" / "config.json").write_text('{"model_type": "tmde_bag"}')
    (tmp_path / "FILE").write_text("")
    broken = shutil.copytree(taught_by.folder, tmp_path / "BROKEN")
    (broken / "model.safetensors").write_bytes(b"no weights")
    name = str(tmp_path / name) if name.isupper() else name
    message = error_of(student(name), arguments(tmp_path))
    assert message.startswith(f"objectives.distillation.teacher={name}: ") and expected in message


def test_sentence_transformers_is_an_extra(taught_by, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert "pip install 'tmde[sentence-transformers]'" in error_of(student(taught_by.folder), arguments(tmp_path))


def test_a_mistake_is_one_line_of_tmde_train(taught_by, tmp_path):
    app = typer.Typer()
    app.command()(train)
    overrides = ["distil", "train=sample", "max_rows=200", "dev_rows=20", "vocab_size=300", "max_steps=1"]
    overrides += [f"objectives.distillation.teacher={taught_by.folder}", f"token_cache_dir={tmp_path / 'caches'}"]
    result = CliRunner().invoke(app, [*overrides, "-o", str(tmp_path / "run")])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert "found vectors of d=32" in line and "d=384; set model.d_model=32" in line
    assert not (tmp_path / "run").exists()  # the corrected command begins anew
    corrected = [*overrides, "model.d_model=32", "micro_batch_tokens=400", "eval_pool=10", "use_cpu=true"]
    result = CliRunner().invoke(app, [*corrected, "-o", str(tmp_path / "run")])
    assert result.exit_code == 0, result.stderr


def test_loading_a_teacher_leaves_the_random_numbers_of_training_alone(tmp_path):
    bert_teacher(tmp_path / "bert", max_length=8)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert Teacher(str(tmp_path / "bert")).width("en") == 32
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
