"""A teacher: its vectors by row, made once, and the version that a run keeps."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.conftest import LANGUAGES, WORDS, make_dataset, make_rows
from tests.training.batches import parallel_batches
from tests.training.teachers import (
    WIDTH,
    arguments,
    expected_vector,
    prepared,
    static_teacher,
    student,
    vectors_of,
)
from tmde import DocumentEmbedder
from tmde.data.tokens import open_tokens
from tmde.training.teachers import Teachers, find_version, open_teachers
from tmde.training.teachers.models import ModelTeacher
from tmde.training.teachers.versions import RECORD, pin_versions

pytest.importorskip("sentence_transformers")


@pytest.fixture
def taught(tmp_path):
    return tmp_path / "teacher", static_teacher(tmp_path / "teacher")


def english_of(text: str) -> str:
    """Return the translation of a text, word by word."""
    translations = {}
    for words in WORDS.values():
        translations |= dict(zip(words, WORDS["en"], strict=True))
    return " ".join(translations[word] for word in text.split())


def english_teachers(folder: Path) -> Teachers:
    """Return a teacher of English whose vectors have two numbers."""
    static_teacher(folder / "any")
    parallel = student(folder / "any", width=2, teacher_languages=["en"])
    return open_teachers(parallel, arguments(folder))


def read_vectors(rows, parallel, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the teacher's vectors of all rows, and whether it has read each of them."""
    teacher = vectors_of(make_dataset(rows), parallel, arguments(folder))
    return teacher(np.arange(len(rows)))


def test_a_teacher_reads_a_share_of_the_rows_after_its_prompt(taught, tmp_path):
    folder, table = taught
    rows = make_rows(200, seed=3)
    word = WORDS["en"][0]
    options = {"teacher_share": 0.25, "teacher_prompt": f"{word} "}
    parallel = student(folder, teacher_languages=["en"], **options)

    vectors, is_read = read_vectors(rows, parallel, tmp_path)
    _, is_read_backwards = read_vectors(rows[::-1], parallel, tmp_path)

    assert 25 < is_read.sum() < 75
    # The texts decide which rows are read, and not their places.
    assert is_read_backwards.tolist() == is_read[::-1].tolist()
    for place in np.flatnonzero(is_read):
        expected = expected_vector(table, f"{word} {rows[place]['en']}")
        # The teacher computes in bfloat16 where that is faster.
        np.testing.assert_allclose(vectors[place], expected, atol=1e-2)


@pytest.mark.parametrize("languages", [["en", "es"], ["es", "en"], ["en"], ["de"]])
def test_a_row_has_the_vector_of_the_first_language_it_has(
    languages, taught, tmp_path, monkeypatch
):
    monkeypatch.setattr("tmde.training.teachers.vectors.SHARD_ROWS", 4)
    folder, table = taught
    rows = make_rows(13, seed=3)
    for row in rows[::3]:
        row["en"] = None
    for row in rows[::6]:
        row["es"] = ""
    parallel = student(folder, teacher_languages=languages)

    vectors, is_read = read_vectors(rows, parallel, tmp_path)

    assert vectors.dtype == np.float16
    assert vectors.shape == (13, WIDTH)
    for place, row in enumerate(rows):
        texts = [row[language] for language in languages if row[language]]
        assert is_read[place] == bool(texts)
        if texts:
            expected = expected_vector(table, texts[0])
            np.testing.assert_allclose(vectors[place], expected, atol=1e-3)


def test_vectors_are_made_once_and_read_in_any_order(taught, tmp_path, monkeypatch):
    rows = make_rows(13, seed=3)
    parallel = student(taught[0])
    vectors, _ = read_vectors(rows, parallel, tmp_path)
    monkeypatch.setattr(ModelTeacher, "encode", None)

    again = vectors_of(make_dataset(rows), parallel, arguments(tmp_path))
    picked, _ = again(np.array([5, 0, 5]))

    assert picked.tolist() == vectors[[5, 0, 5]].tolist()


@pytest.mark.parametrize("folder", ["caches", None])
def test_a_log_says_how_far_the_teacher_is(
    folder, taught, tmp_path, every_line, capsys, monkeypatch
):
    monkeypatch.setattr("tmde.training.teachers.vectors.SHARD_ROWS", 4)
    folder = None if folder is None else str(tmp_path / folder)
    args = arguments(tmp_path, token_cache_dir=folder)
    vectors_of(make_dataset(make_rows(10)), student(taught[0]), args)
    stderr_lines = capsys.readouterr().err.splitlines()
    lines = [line for line in stderr_lines if line.startswith("Teacher reading")]
    assert any(line.startswith("Teacher reading (part 2 of 3): 100%") for line in lines)
    assert "2/2" in lines[-1]
    assert "rows/s" in lines[-1]


@pytest.mark.parametrize(("is_main_process", "warnings"), [(True, 1), (False, 0)])
def test_the_main_process_alone_warns_of_rows_that_are_not_read(
    is_main_process, warnings, tmp_path, monkeypatch
):
    messages = []
    state = SimpleNamespace(is_main_process=is_main_process)
    monkeypatch.setattr("tmde.training.teachers.vectors.PartialState", lambda: state)
    monkeypatch.setattr("tmde.training.teachers.vectors.logger.warning_once", messages.append)
    english_teachers(tmp_path).warn(truncated=0, unread=1)
    assert len(messages) == warnings


def test_rows_with_another_text_in_a_language_are_not_taught(spaced_tokenizer, taught, tmp_path):
    folder, table = taught
    rows = make_rows(60, seed=4)
    dataset = make_dataset(rows).add_column("doc_id", [str(row // 6) for row in range(60)])
    args = arguments(tmp_path)
    teacher = vectors_of(dataset, student(folder, teacher_languages=["en"]), args)
    token_ids = open_tokens(dataset, spaced_tokenizer, LANGUAGES, args.token_cache_dir)
    options = {"pivots_only": False, "epochs": 2, "tokens": token_ids, "teacher": teacher}
    options["neighbor_share"] = 0.5
    taught_rows = Counter()
    batches = parallel_batches(dataset, spaced_tokenizer, LANGUAGES, ["en"], 4000, **options)
    for batch in batches:
        texts = []
        for token_ids in batch.input_ids:
            decoded = spaced_tokenizer.batch_decode(token_ids, skip_special_tokens=True)
            texts.append([english_of(text) for text in decoded])
        for row, is_taught in enumerate(batch.taught):
            first, *translations = [of_language[row] for of_language in texts]
            assert is_taught == all(text == first for text in translations)
            taught_rows[bool(is_taught)] += 1
            if is_taught:
                torch.testing.assert_close(
                    batch.teacher_vectors[row].float(),
                    expected_vector(table, first),
                    atol=1e-3,
                    rtol=0,
                )
    assert taught_rows[False] > 10
    assert taught_rows[True] > 10


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_every_batch_carries_the_vectors_of_its_rows(is_in_memory, tokenizer, taught, tmp_path):
    """Whatever languages were drawn, a text's translation is what the teacher has read."""
    folder, table = taught
    rows = make_rows(60, seed=4)
    for row in rows[::4]:
        row["en"] = None
    args = arguments(tmp_path)
    if is_in_memory:
        args.token_cache_dir = None
    dataset = make_dataset(rows)
    teacher = vectors_of(dataset, student(folder, teacher_languages=["en"]), args)
    token_ids = open_tokens(dataset, tokenizer, LANGUAGES, args.token_cache_dir)
    without = {english_of(row["de"]) for row in rows[::4]}
    options = {
        "buffer_rows": 20,
        "pivots_only": False,
        "epochs": 2,
        "tokens": token_ids,
        "teacher": teacher,
    }
    seen = 0
    for batch in parallel_batches(dataset, tokenizer, LANGUAGES, ["en"], 125, **options):
        assert batch.sizes.taught_rows == int(batch.taught.sum())
        for language in range(batch.sizes.languages):
            texts = tokenizer.batch_decode(batch.input_ids[language], skip_special_tokens=True)
            for text, vector, is_taught in zip(
                texts, batch.teacher_vectors, batch.taught, strict=True
            ):
                english = english_of(text)
                assert is_taught == (english not in without)
                if is_taught:
                    torch.testing.assert_close(
                        vector.float(), expected_vector(table, english), atol=1e-3, rtol=0
                    )
                seen += 1
    assert seen >= 2 * 60


def fake_model(tokenizer, **prompts) -> SimpleNamespace:
    """Return a model that reads six tokens, but for `encode`."""
    model = SimpleNamespace(max_seq_length=6, tokenizer=tokenizer, get_model_kwargs=list)
    model.prompts = prompts
    model.default_prompt_name = next(iter(prompts), None)
    return model


def test_longer_texts_than_the_teacher_reads_are_counted(tokenizer, monkeypatch, tmp_path):
    model = fake_model(tokenizer)
    model.encode = lambda texts, **options: np.ones((len(texts), 2))
    monkeypatch.setattr(ModelTeacher, "model", model)
    rows = make_dataset([{"de": "haus", "en": text} for text in ("house " * 9, "house", None)])
    vectors = english_teachers(tmp_path).vectors_of(rows)
    assert vectors.truncated == 1
    numbers, is_taught = vectors(np.arange(3))
    assert is_taught.tolist() == [True, True, False]
    assert numbers.tolist() == [[1, 1], [1, 1], [0, 0]]


def test_the_default_prompt_of_a_teacher_counts_as_well(tokenizer, monkeypatch, tmp_path):
    model = fake_model(tokenizer, query="house " * 5)
    model.encode = lambda texts, prompt, **options: np.full((len(texts), 2), len(prompt.split()))
    monkeypatch.setattr(ModelTeacher, "model", model)
    rows = make_dataset([{"de": "haus", "en": "house"}])
    vectors = english_teachers(tmp_path).vectors_of(rows)
    assert vectors(np.arange(1))[0].tolist() == [[5, 5]]
    assert vectors.truncated == 1
    assert ModelTeacher(find_version(str(tmp_path / "any")), 2, "house ").prompt == "house "


def test_a_run_keeps_the_teacher_with_which_it_began(taught, tmp_path):
    folder, _ = taught
    objective = student(folder).objectives["distillation"]
    (version,) = pin_versions(objective, tmp_path / "run")
    (record,) = json.loads((tmp_path / "run" / RECORD).read_text())
    assert version == find_version(str(folder))
    assert record["sha256"] == version.sha256
    (folder / "README.md").write_text("words")  # It decides no vector.
    (folder / "results.json").write_text("{}")
    assert find_version(str(folder)) == version
    static_teacher(folder, seed=1)
    with pytest.raises(ValueError, match="the run started with .*restore it"):
        pin_versions(objective, tmp_path / "run")


def test_a_hub_teacher_is_pinned_to_its_commit(tmp_path, monkeypatch):
    commits = iter(["aaa", "bbb"])
    path = "tmde.training.teachers.versions.snapshot_download"
    monkeypatch.setattr(path, lambda name, **options: f"/cache/snapshots/{next(commits)}")
    for _ in range(2):  # whatever is the newest by now
        objective = student("someone/labse").objectives["distillation"]
        (version,) = pin_versions(objective, tmp_path)
        assert version.identity == "someone/labse@aaa"


@pytest.mark.parametrize(
    ("options", "training", "message"),
    [
        (
            {"teacher": "nowhere"},
            {},
            "teacher=nowhere is neither a folder nor a model that the Hub",
        ),
        ({"teacher_revision": "v1"}, {}, "teacher_revision: found 'v1' of the folder"),
        ({"teacher_languages": ["pl"]}, {}, r"teacher_languages: found \['pl'\], expected some of"),
        (
            {"width": 16},
            {},
            r"found vectors of d=32, and the model that learns them has d=16; .*model.d_model=32",
        ),
        ({}, {"max_joined_rows": 2}, "found max_joined_rows=2, which joins rows"),
    ],
)
def test_what_cannot_teach_is_refused(options, training, message, taught, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    rows = make_dataset(make_rows(4))
    parallel = student(options.pop("teacher", taught[0]), **options)
    with pytest.raises(ValueError, match=message):
        vectors_of(rows, parallel, arguments(tmp_path, **training))


def test_vectors_without_numbers_are_refused(tmp_path):
    static_teacher(tmp_path / "nan", house=[float("nan")] * WIDTH)
    with pytest.raises(ValueError, match="found a vector of 'house' with NaN"):
        ModelTeacher(find_version(str(tmp_path / "nan")), WIDTH).encode(["house"], "en")


def test_rows_without_the_teacher_s_language_are_refused_before_training(taught, tmp_path):
    rows = make_dataset([{"de": "haus", "fr": "maison", "en": None}] * 4)
    parallel = student(taught[0], teacher_languages=["en"])
    with pytest.raises(ValueError, match="found no row of the training data in en"):
        prepared(rows, [], parallel, arguments(tmp_path))


def test_a_stream_cannot_be_taught(taught, tmp_path):
    rows = make_dataset(make_rows(4)).to_iterable_dataset()
    with pytest.raises(ValueError, match=r"found a stream, .*data.streaming=false"):
        prepared(rows, [], student(taught[0]), arguments(tmp_path))


@pytest.mark.parametrize("name", ["default", "tmde", "accurate"])
def test_a_packaged_model_teaches_by_its_name(name):
    teacher = ModelTeacher(find_version(name), 384)
    texts = ["The bridge is closed.", "Le pont est fermé."]
    expected = DocumentEmbedder.from_pretrained(name).encode(texts)
    # The teacher may compute in bfloat16.
    np.testing.assert_allclose(teacher.encode(texts, "en"), expected, atol=0.02)
