"""Every protocol tells a system the language of the texts: these begin with it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from modeling_tmde.cli.eval_output import _draw_space
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.cache import ArrayCache
from modeling_tmde.eval.classification import evaluate_classification
from modeling_tmde.eval.contrast import evaluate_contrast
from modeling_tmde.eval.folds import fold_scores
from modeling_tmde.eval.retrieval import evaluate_retrieval
from modeling_tmde.eval.similarity import evaluate_similarity
from modeling_tmde.eval.systems import CharacterTfidf, EmbeddingSystem
from modeling_tmde.eval.tasks import (
    ClassificationData,
    ContrastData,
    Provenance,
    RetrievalData,
    SimilarityData,
    SimilarityPairs,
    Split,
)
from tests.modeling_tmde.test_embedding import make_tokenizer
from tests.modeling_tmde.test_text_languages import make_tables

PROVENANCE = Provenance("none", "none")
CODES = ("de", "en", "fr")


class Listener:
    """A system that checks what it is told, and counts the texts by language."""

    name, fingerprint, truncated, texts = "listener", "0", 0, 0

    def __init__(self):
        self.told: dict[str, int] = dict.fromkeys(CODES, 0)

    def represent(self, texts, fit_on=(), language=None):
        assert texts and {text.partition(" ")[0] for text in texts} == {language}
        self.told[language] += len(texts)
        return np.stack([np.random.default_rng(list(text.encode())).normal(size=4) for text in texts]).astype("f")


def split(code, name, size, paired=False):
    texts = [f"{code} {name} {row}" for row in range(size)]
    second = [f"{text} second" for text in texts] if paired else None
    return Split([f"{code}-{name}-{row}" for row in range(size)], texts, ["a", "b"] * (size // 2), second)


def classes(paired=False, size=40):
    parts = ("train", "dev", "test")
    return ClassificationData(
        {code: {name: split(code, name, size, paired) for name in parts} for code in CODES}, PROVENANCE
    )


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("protocol", ["zero-shot", "targeted", "leave-one-out"])
def test_classification(protocol, paired):
    system = Listener()
    evaluate_classification(classes(paired), system, protocol=protocol, seeds=(0,))
    assert min(system.told.values()) > 0


def test_folds():
    system = Listener()
    assert len(fold_scores(classes(), system, size=20)) == 10
    assert min(system.told.values()) > 0


def test_contrast():
    texts = {code: [(f"{code} {row}", f"{code} {row} not") for row in range(3)] for code in CODES}
    system = Listener()
    evaluate_contrast(ContrastData(["0", "1", "2"], texts, ["g"] * 3, PROVENANCE), system)
    assert system.told == dict.fromkeys(CODES, 4 * 6)  # 2 of 3 pairs as source, 2 as target, 6 texts each


def test_similarity():
    pairs = SimilarityPairs(
        list("012"), [f"fr {row}" for row in range(3)], [f"de {row}" for row in range(3)], [0, 1, 2]
    )
    system = Listener()
    evaluate_similarity(SimilarityData({("fr", "de"): pairs}, PROVENANCE), system)
    assert system.told == {"de": 3, "en": 0, "fr": 3}


def test_retrieval_and_its_distractors():
    texts = {code: [f"{code} {row}" for row in range(3)] for code in CODES}
    data = RetrievalData(list("012"), texts, PROVENANCE, distractors={"de": ["de 8", "de 9"]})
    system = Listener()
    evaluate_retrieval(data, system)
    assert system.told == {"de": 4 * 3 + 2 * 2, "en": 4 * 3, "fr": 4 * 3}


def test_the_map_of_documents(tmp_path):
    system = Listener()
    _draw_space(tmp_path / "space.png", SimpleNamespace(name="classes", data=classes()), system, seed=0)
    assert system.told == dict.fromkeys(CODES, 40) and (tmp_path / "space.png").exists()


@pytest.mark.parametrize("cached", [False, True])
def test_a_text_of_two_languages_has_two_vectors(tmp_path, cached):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    system = EmbeddingSystem("tables", embedder, ArrayCache(tmp_path if cached else None))
    for _ in range(2):  # computed, then remembered
        for language in ("de", "en", ["en", "de"]):
            found = system.represent(["open", "open"], language=language)
            np.testing.assert_array_equal(found, embedder.encode(["open", "open"], language=language))
    assert system.texts == 6
    assert not np.allclose(*system.represent(["open", "open"], language=["en", "de"]))
    with pytest.raises(ValueError, match="found None, but TablesModel has an encoder for each language"):
        system.represent(["open", "open"])
    if cached:
        assert len(list(tmp_path.rglob("*.npz"))) == 3


def test_other_systems_know_a_text_by_itself(tmp_path):
    class Alike(type(make_tables())):
        needs_language_ids = False

        def forward(self, input_ids, attention_mask):
            return super().forward(input_ids, attention_mask, torch.zeros(len(input_ids), dtype=torch.long))

    embedder = DocumentEmbedder(Alike(make_tables().config).eval(), make_tokenizer())
    system = EmbeddingSystem("alike", embedder, ArrayCache(tmp_path))
    vectors = system.represent(["open", "a"])
    assert system.represent(["open", "a"], language="de") is system.represent(["open", "a"], language="xx") is vectors
    assert system.texts == 2 and len(list(tmp_path.rglob("*.npz"))) == 1
    tfidf, texts = CharacterTfidf(), ["open sesame", "open door"]
    assert (tfidf.represent(texts, texts, "de") != tfidf.represent(texts, texts)).nnz == 0
