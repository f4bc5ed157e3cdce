"""The language of a query, as the demo page guesses it to show translations in it first."""

from collections.abc import Sequence

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

# A guess that is less probable than this is none: a name may belong to any language.
LEAST_PROBABILITY = 0.8


class LanguageGuesser:
    """Naive Bayes over the characters of words (Cavnar and Trenkle, 1994, have the features).

    Args:
        texts: n texts in two or more languages.
        languages: The code of each.
    """

    def __init__(self, texts: Sequence[str], languages: Sequence[str]) -> None:
        features = CountVectorizer(analyzer="char_wb", ngram_range=(1, 3))
        # Queries come in languages alike, however many documents each of them has.
        classifier = MultinomialNB(alpha=0.1, fit_prior=False)
        self._classifier = make_pipeline(features, classifier).fit(texts, languages)

    def guess(self, text: str) -> str | None:
        """Return the language of a text; None if it is too uncertain."""
        probabilities = self._classifier.predict_proba([text])[0]  # (languages,)
        best = probabilities.argmax()
        if probabilities[best] < LEAST_PROBABILITY:
            return None
        return str(self._classifier.classes_[best])
