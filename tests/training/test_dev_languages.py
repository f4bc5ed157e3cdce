"""Evaluation while training: each dev text is encoded in its own language, and once where that makes no difference."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.retrieval import precision_at_1
from modeling_tmde.eval.tasks import ClassificationData, Provenance, Split
from modeling_tmde.training.evaluation import checked_evaluation, dev_retrieval, measure_task, retrieval_pools
from tests.conftest import make_dataset
from tests.modeling_tmde.test_embedding import make_tokenizer, make_xlmr
from tests.modeling_tmde.test_text_languages import make_tables

# Row i in English is row i + 1 in German: every text but two is of both languages.
WORDS = ["a", "open", "is", "sesión", "gracias", "Sitzung", "atención", "The sitting"]
ROWS = [
    {"de": first, "en": second, "fr": first + " y"} for first, second in zip(WORDS, WORDS[1:] + WORDS[:1], strict=True)
]
ARGS = SimpleNamespace(
    eval_pairs=None, eval_pool=100, eval_document_rows=8, embed_max_length=None, eval_head="logistic_regression"
)


def run(encoder, monkeypatch, measure=lambda *model: dev_retrieval(*model, make_dataset(ROWS), ARGS)):
    """What is found, and the texts and languages that went into the embedder."""
    model = SimpleNamespace(encoder=encoder, config=SimpleNamespace(languages=["de", "en", "fr"]))
    encode, calls = DocumentEmbedder.encode, []

    def noted(self, texts, *args, language=None, **kwargs):
        codes = [language] * len(texts) if isinstance(language, str) else language
        calls.append(list(zip(texts, codes, strict=True)))
        return encode(self, texts, *args, language=language, **kwargs)

    monkeypatch.setattr(DocumentEmbedder, "encode", noted)
    found = measure(model, make_tokenizer())
    monkeypatch.undo()
    return found, calls


def pairs_of(embedder, told):
    vectors = {
        code: embedder.encode([row[code] for row in ROWS], **({"language": code} if told else {}))
        for code in ("de", "en", "fr")
    }
    pairs = (("de", "en"), ("de", "fr"), ("en", "fr"))
    return {f"p1_{one}-{two}": precision_at_1(vectors[one], vectors[two]) for one, two in pairs}


def test_a_text_of_two_languages_is_encoded_for_each(monkeypatch):
    encoder = make_tables()
    found, calls = run(encoder, monkeypatch)
    assert found == pytest.approx(pairs_of(DocumentEmbedder(encoder, make_tokenizer()), told=True), abs=1e-12)
    assert len(calls) == 1 and len(calls[0]) == len(set(calls[0])) == 24
    assert set(calls[0]) == {(text, code) for row in ROWS for code, text in row.items()}


def test_by_other_models_every_text_is_encoded_once(monkeypatch):
    encoder = make_xlmr()
    found, calls = run(encoder, monkeypatch)
    assert found == pairs_of(DocumentEmbedder(encoder, make_tokenizer()), told=False)
    (told,) = calls
    expected = dict.fromkeys([row["de"] for row in ROWS] + [row["en"] for row in ROWS] + [row["fr"] for row in ROWS])
    assert [text for text, _ in told] == list(expected) and len(told) == 16
    assert found["p1_de-en"] == 0.0  # each finds the equal text, which is another row's
    assert np.isfinite(list(found.values())).all()


def test_a_task_of_equal_texts_is_encoded_by_language(monkeypatch):
    def split(code, name, size=10):
        texts = [f"{name} {WORDS[row % 8]} {row}" for row in range(size)]  # the same in both languages
        return Split([f"{code}-{name}-{row}" for row in range(size)], texts, ["x", "y"] * (size // 2))

    names = ("train", "dev", "test")
    splits = {code: {name: split(code, name) for name in names} for code in ("de", "en")}
    data = ClassificationData(splits, Provenance("none", "none"))
    scores, calls = run(make_tables(), monkeypatch, lambda *model: measure_task(*model, data, ARGS, nullcontext()))
    assert set(scores) == {"same", "cross", "all", "test_same", "test_cross"}
    expected = [[(text, code) for text in splits[code][name].texts] for code in ("de", "en") for name in names]
    assert calls == expected  # each once: the classifiers find the vectors


def test_pairs_of_codes_with_hyphens():
    rows = make_dataset([{"pt-BR": row["de"], "en": row["en"], "fr": row["fr"]} for row in ROWS])
    languages = ["en", "pt-BR", "fr"]
    args = SimpleNamespace(**vars(ARGS) | {"eval_pairs": ["pt-BR-en", "fr-pt-BR"], "metric_for_best_model": "mix"})
    pools = retrieval_pools(rows, languages, args)
    assert {name: (pool.source_language, pool.target_language) for name, pool in pools.items()} == {
        "p1_pt-BR-en": ("pt-BR", "en"),
        "p1_fr-pt-BR": ("fr", "pt-BR"),
    }
    checked_evaluation(rows, None, languages, args)
    for wrong in ("pt-en", "BR-en", "en-en", "pt-BR"):
        args.eval_pairs = [wrong]
        with pytest.raises(ValueError, match=f"eval_pairs: '{wrong}' is not a pair of the languages"):
            checked_evaluation(rows, None, languages, args)
