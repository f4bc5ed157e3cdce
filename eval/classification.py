"""Zero-shot cross-lingual classification: labels in one language only."""

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler


def embedding_classifier(seed: int = 0) -> Pipeline:
    """Logistic regression on standardised vectors."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, random_state=seed))


def tfidf_classifier(seed: int = 0) -> Pipeline:
    """The baseline without any embedder: the same classifier on TF-IDF of character 2- to 5-grams within words."""
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
    return make_pipeline(vectorizer, LogisticRegression(max_iter=1000, random_state=seed))


def zero_shot_accuracy(
    classifier: ClassifierMixin,
    train: Sequence[str] | np.ndarray,
    train_labels: Sequence[str],
    test: Mapping[str, Sequence[str] | np.ndarray],
    test_labels: Mapping[str, Sequence[str]],
) -> dict[str, float]:
    """Fits the classifier on one language and scores it on every language.

    Args:
        classifier: Any scikit-learn classifier; a copy of it is fitted.
        train, train_labels: Texts or vectors (n, d) of the source language, and their classes.
        test, test_labels: The same for every test language.

    Returns:
        Accuracy by language, between 0 and 1.
    """
    fitted = clone(classifier).fit(train, train_labels)
    return {language: float(fitted.score(test[language], test_labels[language])) for language in test}


def chance_accuracy(labels: Sequence[str]) -> float:
    """Accuracy of guessing uniformly among the classes."""
    return 1.0 / len(set(labels))
