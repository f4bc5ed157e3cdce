"""The languages of a translation memory: locales of one language are the same language."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tmde.data.languages import merged_languages
from tmde.documents.cleaning import FEWEST_TEXTS

Texts = Mapping[str, str | None]  # by the code that the source has


class MergedLanguages:
    """Puts the texts of a row under the languages of their codes.

    Args:
        codes: The codes of the source.
        is_chosen: Whether the user has named them. Then they keep their names.

    Attributes:
        languages: The languages, sorted.
        several_count: The rows so far with texts under several codes of one language.
        single_count: The rows so far whose texts are all in one language.
    """

    def __init__(self, codes: Sequence[str], is_chosen: bool) -> None:
        self._language_of = merged_languages(codes)
        if is_chosen:
            self._language_of = {code: code for code in codes}
        self.languages = sorted(set(self._language_of.values()))
        self.several_count = 0
        self.single_count = 0

    def rows(self, rows: Iterable[Texts]) -> Iterator[dict[str, str]]:
        """Yield the texts of each row by language.

        Of texts under several codes of one language, the one whose code comes first is taken: `de`
        before `de-AT` before `de-DE`.
        """
        for row in rows:
            texts: dict[str, str] = {}
            has_several = False
            for code in sorted(row):
                text = row[code]
                if text is None:
                    continue
                language = self._language_of[code]
                has_several = has_several or language in texts
                texts.setdefault(language, text)
            if has_several:
                self.several_count += 1
            if len(texts) < FEWEST_TEXTS:
                self.single_count += 1
            yield texts

    def notes(self) -> list[str]:
        """Return which codes were read as which language, and what was left out of rows."""
        sentences = []
        codes_of: dict[str, list[str]] = {}
        for code, language in self._language_of.items():
            codes_of.setdefault(language, []).append(code)
        merged = []
        for language, codes in codes_of.items():
            if codes != [language]:
                merged.append(f"{', '.join(codes)} as {language}")
        if merged:
            sentences.append(
                f"Languages: {'; '.join(merged)} (name them as languages to keep them apart)"
            )
        if self.several_count:
            sentences.append(
                f"{self.several_count:,} rows have several texts in one language; the first in "
                "the order of codes is kept (de, de-AT, de-DE)"
            )
        if self.single_count:
            sentences.append(f"{self.single_count:,} rows have text in only one language")
        return sentences
