"""TmdeVectorizer: what scikit-learn asks of a transformer of texts."""

import os
import pickle
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from modeling_tmde import TmdeError
from tests.conftest import save, tiny_model
from tests.tiny_embedders import TEXTS
from tmde import DocumentEmbedder, TmdeVectorizer
from tmde.embedding import vectorizer as vectorizer_module

LABELS = ["a", "b", "a", "b", "a"]


@pytest.fixture
def folder(tmp_path, tokenizer):
    vectorizer_module._load_embedder.cache_clear()
    return save(tmp_path / "model", tiny_model(), tokenizer)


# The common checks that need no data. The others fit tables of numbers: scikit-learn leaves them
# out for a transformer of texts, and names its kind of input in a warning.
CHECKS = [
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
]


def test_check_estimator_passes():
    with pytest.warns(SkipTestWarning, match="requires input +of type.*string=True"):
        estimator_checks.check_estimator(TmdeVectorizer())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_common_checks_without_data(check):
    check("TmdeVectorizer", TmdeVectorizer())


def test_vectors_can_be_cut(folder):
    embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
    expected = embedder.encode(TEXTS, truncate_dim=5, normalize=True)
    vectorizer = TmdeVectorizer(folder, device="cpu", normalize=True, truncate_dim=5)
    np.testing.assert_allclose(vectorizer.fit_transform(TEXTS), expected, rtol=0, atol=1e-6)
    assert len(vectorizer.get_feature_names_out()) == 5
    with pytest.raises(TmdeError, match="truncate_dim: found 99, expected 1 to 32"):
        TmdeVectorizer(folder, device="cpu", truncate_dim=99).fit(TEXTS)


def test_vectors_are_those_of_the_embedder(folder):
    expected = DocumentEmbedder.from_pretrained(folder, device="cpu").encode(TEXTS, normalize=True)
    vectorizer = TmdeVectorizer(folder, device="cpu", batch_size=2, normalize=True)
    vectors = vectorizer.fit_transform(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    "kind", [list, tuple, iter, np.array, lambda texts: pd.Series(texts, index=list("vwxyz"))]
)
def test_texts_in_any_form(kind, folder):
    vectorizer = TmdeVectorizer(folder)
    np.testing.assert_array_equal(vectorizer.transform(kind(TEXTS)), vectorizer.transform(TEXTS))


def test_settings_reach_the_embedder(folder):
    text = "haus hund katze baum " * 60
    vectorizer = TmdeVectorizer(
        folder, pooling="mean", long_documents="chunk", max_length=30, prompt="hund "
    )
    embedder = DocumentEmbedder.from_pretrained(
        folder, pooling="mean", long_documents="chunk", max_length=30, prompt="hund "
    )
    np.testing.assert_array_equal(vectorizer.transform([text]), embedder.encode([text]))


def test_copies_share_one_model_until_it_is_saved_again(folder, tokenizer):
    vectorizer = TmdeVectorizer(folder)
    copied = clone(vectorizer)
    before = vectorizer.transform(TEXTS)
    assert copied._embedder() is vectorizer._embedder()
    save(folder, tiny_model(seed=1), tokenizer)
    later = time.time() + 10
    os.utime(folder / "config.json", (later, later))
    assert abs(copied.transform(TEXTS) - before).max() > 1e-3


def test_a_pickle_holds_the_name_and_not_the_weights(folder):
    vectorizer = TmdeVectorizer(folder).fit(TEXTS)
    pickled = pickle.dumps(vectorizer)
    assert len(pickled) < 1000
    opened = pickle.loads(pickled)
    np.testing.assert_array_equal(opened.transform(TEXTS), vectorizer.transform(TEXTS))


def test_parameters_can_be_set(folder):
    vectorizer = TmdeVectorizer().set_params(model=folder, batch_size=3)
    parameters = vectorizer.get_params()
    assert parameters["model"] == folder
    assert parameters["batch_size"] == 3
    assert vectorizer.transform(TEXTS).shape == (5, 32)


def test_names_of_features_and_tables(folder):
    vectorizer = TmdeVectorizer(folder)
    names = [f"tmdevectorizer{number}" for number in range(32)]
    assert vectorizer.get_feature_names_out().tolist() == names
    table = vectorizer.set_output(transform="pandas").fit_transform(
        pd.Series(TEXTS, index=list("vwxyz"))
    )
    assert table.columns.tolist() == names
    assert table.index.tolist() == list("vwxyz")


def test_a_pipeline_and_a_grid_search(folder):
    pipeline = make_pipeline(TmdeVectorizer(folder), LogisticRegression())
    grid = {"tmdevectorizer__pooling": ["cls", "mean"], "logisticregression__C": [0.1, 10]}
    texts = ["haus hund", "house dog", "haus katze", "house cat"] * 3
    search = GridSearchCV(pipeline, grid, cv=2).fit(texts, ["de", "en"] * 6)
    assert search.predict(["haus", "house"]).tolist() == ["de", "en"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("haus", "X: found one text 'haus', expected a list of texts"),
        (pd.DataFrame({"text": TEXTS}), r"X: found a table of shape \(5, 1\), .*X\['text'\]"),
        (5, "X: found int, expected a list of texts"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_what_is_no_list_of_texts(method, texts, message, folder):
    with pytest.raises(TmdeError, match=message):
        getattr(TmdeVectorizer(folder), method)(texts)


def test_a_missing_text_is_named(folder):
    with pytest.raises(TypeError, match="text 1: found float, expected str"):
        TmdeVectorizer(folder).transform(pd.Series(["haus", np.nan]))


def test_a_model_is_given_by_name(folder):
    embedder = DocumentEmbedder.from_pretrained(folder)
    with pytest.raises(TmdeError, match="model: found DocumentEmbedder, expected a folder"):
        TmdeVectorizer(embedder).fit(TEXTS)
