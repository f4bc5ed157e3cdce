"""The built-in sample: determinism, splits and parallel documents."""

import hashlib
import re

import pytest

from tmde.data.sample import LANGUAGES, SPLITS, sample_documents, sample_parallel, sample_sentences


@pytest.fixture(scope="module")
def sentences():
    return {split: sample_sentences(2500, split)["translation"][:] for split in SPLITS}


@pytest.fixture(scope="module")
def documents():
    return list(sample_documents(202))


def texts_of(translations, language):
    return [translation[language] for translation in translations]


def test_every_process_gives_the_same_rows():
    """Whatever its hash seed: published results are of these very sentences."""
    rows = [*sample_sentences(300, "train", 3), *sample_documents(20, "test", 3)]
    content = "\n".join(map(str, rows))
    assert hashlib.sha256(content.encode()).hexdigest().startswith("3eead01cb6afca79")


@pytest.mark.parametrize("language", LANGUAGES)
def test_splits_are_disjoint_in_every_language(sentences, language):
    texts = []
    for split in SPLITS:
        texts += texts_of(sentences[split], language)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_of_a_document_is_unseen_in_training(sentences, documents, language):
    training = set(texts_of(sentences["train"], language))
    for document in documents:
        if document["language"] == language:
            parts = re.split(r"(?<=\.) ", document["text"])
            assert len(set(parts)) == len(parts)
            assert not training & set(parts)


def test_a_seed_decides_the_parallel_text():
    rows = sample_parallel(400, "test")["translation"][:]
    assert sample_parallel(400, "test")["translation"][:] == rows
    assert sample_parallel(400, "test", seed=1)["translation"][:] != rows


def test_parallel_text_is_of_one_split_and_has_passages():
    rows = sample_parallel(400, "test")["translation"]
    sentences = []
    for row in rows:
        sentences += re.split(r"(?<=[a-zäöüß]\.) ", row["de"])
    assert 2.0 < len(sentences) / len(rows) < 4.0
    for seed in (7, 8):
        training_rows = sample_sentences(3000, "train", seed=seed)["translation"]
        assert set(sentences).isdisjoint(texts_of(training_rows, "de"))
