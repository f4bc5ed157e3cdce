"""A teacher's vectors: those of the right texts in every batch, made once, gone on with, and refused clearly."""

import pickle
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder
from modeling_tmde.data import token_cache
from modeling_tmde.data.token_cache import open_token_cache
from modeling_tmde.data.token_store import ListSource
from modeling_tmde.training import teacher_vectors
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.objectives import InfoNCE
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.teacher import Teacher
from modeling_tmde.training.teacher_vectors import LiveTeacher, TeacherCache, open_teacher_vectors
from tests.conftest import LANGUAGES, WORDS, make_dataset, make_rows
from tests.training.teachers import (
    WIDTH,
    arguments,
    bert_teacher,
    expected_vector,
    holey_rows,
    static_teacher,
    student,
)
from tests.training.test_warm_start_families import aligned


def vector_of(table: torch.Tensor, row: dict, languages: tuple[str, ...] = ("en", "es")) -> torch.Tensor | None:
    text = next((row[language] for language in languages if row[language]), None)
    return None if text is None else expected_vector(table, text)


def never(*arguments, **options):
    raise AssertionError("read again")


# ---- The right vectors


@pytest.mark.parametrize("block", [4, 2048])
def test_a_row_has_the_vector_of_the_first_language_it_has(block, taught_by, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_vectors, "BLOCK_ROWS", block)
    rows = holey_rows(13)
    cache = open_teacher_vectors(make_dataset(rows), student(taught_by.folder), arguments(tmp_path))
    vectors, taught = cache(None, np.arange(13))
    for place, row in enumerate(rows):
        expected = vector_of(taught_by.table, row)
        assert taught[place] == (expected is not None) == (place % 6 != 0)
        if expected is not None:
            np.testing.assert_allclose(vectors[place], expected, atol=1e-3)  # of float16
    assert vectors.dtype == np.float16 and vectors.shape == (13, WIDTH)
    picked, of_picked = cache(None, np.array([5, 0, 5]))
    assert picked.tolist() == vectors[[5, 0, 5]].tolist() and of_picked.tolist() == [True, False, True]


def test_the_teacher_s_languages_are_those_that_the_recipe_says(taught_by, tmp_path):
    rows = holey_rows(12)
    made = {}
    for languages in (["es", "en"], ["en"], ["de"]):
        parallel = student(taught_by.folder, teacher_languages=languages)
        made[languages[0]] = open_teacher_vectors(make_dataset(rows), parallel, arguments(tmp_path))
        vectors, taught = made[languages[0]](None, np.arange(12))
        for place, row in enumerate(rows):
            expected = vector_of(taught_by.table, row, tuple(languages))
            assert taught[place] == (expected is not None)
            if expected is not None:
                np.testing.assert_allclose(vectors[place], expected, atol=1e-3)
    assert len({cache.folder for cache in made.values()}) == 3


def english_of(text: str) -> str:
    meaning = {word: WORDS["en"][place] for words in WORDS.values() for place, word in enumerate(words)}
    return " ".join(meaning[word] for word in text.split())


@pytest.mark.parametrize("kind", ["cache", "stream", "no cache"])
@pytest.mark.parametrize("processes", [1, 2])
def test_every_batch_carries_the_vectors_of_its_rows(kind, processes, tokenizer, taught_by, tmp_path):
    """Whatever languages were drawn: each text of a row, translated word by word, is what the teacher has read."""
    rows = make_rows(60, seed=4)
    for row in rows[::4]:
        row["en"] = None
    dataset = make_dataset(rows)
    args = arguments(tmp_path, **({"token_cache_dir": None} if kind == "no cache" else {}))
    if kind == "stream":
        dataset = dataset.to_iterable_dataset()
    parallel = student(taught_by.folder, teacher_languages=["en"])
    teacher = open_teacher_vectors(dataset, parallel, args)
    assert isinstance(teacher, TeacherCache if kind == "cache" else LiveTeacher)
    tokens = open_token_cache(dataset, tokenizer, LANGUAGES, args.token_cache_dir)
    without = {english_of(row["de"]) for row in rows[::4]}
    seen = 0
    for rank in range(processes):
        options = {"buffer_rows": 20, "pivots_only": False, "rank": rank, "world_size": processes, "epochs": 2}
        batches = ParallelBatches(
            dataset, tokenizer, LANGUAGES, ["en"], 250, token_cache=tokens, teacher=teacher, **options
        )
        for batch in batches:
            assert batch.teacher_vectors.shape == (batch.sizes.rows, WIDTH)
            assert batch.sizes.taught_rows == int(batch.taught.sum())
            for language in range(batch.sizes.languages):
                texts = tokenizer.batch_decode(batch.input_ids[language], skip_special_tokens=True)
                for text, vector, taught in zip(texts, batch.teacher_vectors, batch.taught, strict=True):
                    assert bool(taught) == (english_of(text) not in without)
                    seen += int(taught)
                    if taught:
                        expected = expected_vector(taught_by.table, english_of(text))
                        torch.testing.assert_close(vector.float(), expected, rtol=0, atol=1e-3)
    assert seen > 100


def test_workers_and_resumed_runs_get_the_same(tokenizer, taught_by, tmp_path):
    dataset = make_dataset(holey_rows(60))
    teacher = open_teacher_vectors(dataset, student(taught_by.folder), arguments(tmp_path))

    def contents(batches) -> list:
        return [(each.input_ids.tolist(), each.teacher_vectors.tolist(), each.taught.tolist()) for each in batches]

    def batches(**options):
        return ParallelBatches(dataset, tokenizer, LANGUAGES, ["en"], 250, buffer_rows=20, teacher=teacher, **options)

    plain = list(batches())
    assert contents(DataLoader(batches(), batch_size=None, num_workers=1)) == contents(plain)
    assert contents(batches(start=plain[3].next_position)) == contents(plain[4:])


@pytest.mark.parametrize("stream", [False, True])
def test_a_teacher_with_a_part_for_each_language_is_told_which(stream, tokenizer, tmp_path):
    """A checkpoint of this package, as it was saved, opens as a teacher: here one with two encoders."""
    model = aligned("bag", languages=("en", "es"))
    model.save_pretrained(tmp_path / "aligned")
    tokenizer.save_pretrained(tmp_path / "aligned")
    rows = holey_rows(12)
    dataset = make_dataset(rows).to_iterable_dataset() if stream else make_dataset(rows)
    parallel = student(tmp_path / "aligned", width=model.config.hidden_size, trust_remote_code=True)
    teacher = open_teacher_vectors(dataset, parallel, arguments(tmp_path))
    source = SimpleNamespace(source=ListSource(rows, LANGUAGES))
    vectors, taught = teacher(source, np.arange(12))
    embedder = DocumentEmbedder(model, tokenizer)
    languages = [None if place % 6 == 0 else "es" if place % 3 == 0 else "en" for place in range(12)]
    assert taught.tolist() == [language is not None for language in languages]
    for row, language, vector in zip(rows, languages, vectors, strict=True):
        if language is not None:
            np.testing.assert_allclose(vector, embedder.encode([row[language]], language=language)[0], atol=2e-3)


def test_the_bytes_of_a_pickled_cache_are_few(taught_by, tmp_path):
    cache = open_teacher_vectors(make_dataset(make_rows(200)), student(taught_by.folder), arguments(tmp_path))
    content = pickle.dumps(cache)
    assert len(content) < 500 < cache.vectors.nbytes
    assert pickle.loads(content).vectors.tolist() == cache.vectors.tolist()


def test_without_a_teacher_there_is_nothing(tokenizer, tmp_path):
    dataset = make_dataset(make_rows(20))
    model = BagModel(BagConfig(vocab_size=400, d_model=WIDTH, languages=list(LANGUAGES), pivot_languages=["en"]))
    assert open_teacher_vectors(dataset, ParallelModel(model, {"infonce": InfoNCE()}), arguments(tmp_path)) is None
    batch = next(iter(ParallelBatches(dataset, tokenizer, LANGUAGES, ["en"])))
    assert batch.teacher_vectors is None and batch.taught is None and batch.sizes.taught_rows == 0
    assert not (tmp_path / "caches").exists()


# ---- Made once


def test_made_once_for_the_same_rows_and_weights(taught_by, tmp_path, monkeypatch):
    dataset, args = make_dataset(make_rows(20)), arguments(tmp_path)
    first = open_teacher_vectors(dataset, student(taught_by.folder), args)
    copied = shutil.copytree(taught_by.folder, tmp_path / "copy")
    (copied / "README.md").write_text("a card is no weight")
    (copied / "checkpoint-1").mkdir()
    (copied / "checkpoint-1" / "model.safetensors").write_text("nor is another model")
    monkeypatch.setattr(Teacher, "encode", never)
    for folder in (taught_by.folder, copied):
        again = open_teacher_vectors(make_dataset(make_rows(20)), student(folder), args)
        assert again.folder == first.folder


def test_other_rows_and_weights_have_others(taught_by, tmp_path):
    args, rows = arguments(tmp_path), make_rows(20)
    changing = tmp_path / "changing"
    static_teacher(changing, WIDTH)
    folders = {open_teacher_vectors(make_dataset(rows), student(changing), args).folder}
    assert folders == {open_teacher_vectors(make_dataset(rows), student(taught_by.folder), args).folder}
    folders.add(open_teacher_vectors(make_dataset(rows[1:]), student(changing), args).folder)
    table = static_teacher(changing, WIDTH, seed=1)  # in the same place, in the same process
    changed = open_teacher_vectors(make_dataset(rows), student(changing), args)
    folders.add(changed.folder)
    assert len(folders) == 3
    np.testing.assert_allclose(changed.vectors[0], expected_vector(table, rows[0]["en"]), atol=1e-3)


def test_an_interrupted_teacher_goes_on_where_it_was(taught_by, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_vectors, "BLOCK_ROWS", 5)
    rows, args = holey_rows(23), arguments(tmp_path)
    whole = open_teacher_vectors(
        make_dataset(rows), student(taught_by.folder), arguments(tmp_path, token_cache_dir=str(tmp_path / "other"))
    )
    read, encode = [], Teacher.encode

    def interrupted(teacher, texts, language):
        if len(read) == 4:  # of two languages in each of two blocks
            raise KeyboardInterrupt
        read.append(texts)
        return encode(teacher, texts, language)

    monkeypatch.setattr(Teacher, "width", lambda teacher, language: WIDTH)
    monkeypatch.setattr(Teacher, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_teacher_vectors(make_dataset(rows), student(taught_by.folder), args)
    (unfinished,) = (tmp_path / "caches").glob(".*.tmp")
    assert [path for path in (tmp_path / "caches").iterdir() if path.is_dir()] == [unfinished]
    with (unfinished / "vectors.bin").open("ab") as file:
        file.write(b"half a block")
    monkeypatch.setattr(Teacher, "encode", lambda *arguments: (read.append(arguments[1]), encode(*arguments))[1])
    cache = open_teacher_vectors(make_dataset(rows), student(taught_by.folder), args)
    taught = [row["en"] or row["es"] for row in rows if row["en"] or row["es"]]
    assert sorted(sum(read, [])) == sorted(taught)  # each text once
    assert cache.vectors.tolist() == whole.vectors.tolist() and cache.states.tolist() == whole.states.tolist()
    assert not unfinished.exists()


def test_damaged_vectors_are_made_anew_with_a_warning(taught_by, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(token_cache.logger, "warning", warnings.append)
    dataset, args = make_dataset(make_rows(20)), arguments(tmp_path)
    cache = open_teacher_vectors(dataset, student(taught_by.folder), args)
    expected, path = cache.vectors.tolist(), cache.folder / "vectors.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))
    assert open_teacher_vectors(dataset, student(taught_by.folder), args).vectors.tolist() == expected
    assert len(warnings) == 1 and "vectors.bin is not what was written" in warnings[0]


def test_truncated_texts_are_counted_and_said_once_for_every_run(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(teacher_vectors.logger, "warning_once", said.append)
    bert_teacher(tmp_path / "bert", max_length=6)
    rows = make_rows(50)
    long = sum(len(row["en"].split()) > 4 for row in rows)  # [CLS] and [SEP] are two of the six
    assert 0 < long < 50
    for _ in range(2):
        cache = open_teacher_vectors(make_dataset(rows), student(tmp_path / "bert"), arguments(tmp_path))
        assert cache.count(teacher_vectors.TRUNCATED) == long
    assert said == [said[0]] * 2 and f"{long} of 50 texts" in said[0] and str(tmp_path / "bert") in said[0]
    model = Teacher(str(tmp_path / "bert")).model
    vectors = model.encode([row["en"] for row in rows])
    np.testing.assert_allclose(cache.vectors, vectors, atol=2e-3)
    np.testing.assert_allclose(
        model.encode(["house dog cat tree river"]), model.encode(["house dog cat tree"]), atol=1e-6
    )


def test_a_stream_of_truncated_texts_is_said_once(tmp_path, tokenizer, monkeypatch):
    """Though every batch has a number of its own of them."""
    bert_teacher(tmp_path / "bert", max_length=6)
    stream = make_dataset(make_rows(60)).to_iterable_dataset()
    teacher = open_teacher_vectors(stream, student(tmp_path / "bert"), arguments(tmp_path))
    said = []
    monkeypatch.setattr(teacher_vectors.logger, "warning", lambda *words, **options: said.append(words[0]))
    batches = list(ParallelBatches(stream, tokenizer, LANGUAGES, ["en"], 100, buffer_rows=20, teacher=teacher))
    assert len(batches) > 5 and len(said) == 1 and str(tmp_path / "bert") in said[0]
