"""Documents by LAWDR (Gong et al., 2021): all texts of a task, learned of these texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from tmde.documents.lawdr import PAPER_DENSITY, Lawdr
from tmde.eval.model_fingerprint import Role
from tmde.eval.systems import EmbeddingSystem, Language, System
from tmde.eval.tasks.base import LawdrSettings


class LawdrSystem(EmbeddingSystem):
    """A system that represents documents by LAWDR, which is fitted on all texts of a task.

    Args:
        system: The system whose embedder represents sentences.
        settings: How LAWDR represents documents.
        texts: All texts of the task, by language; None where a language lacks a text.

    Attributes:
        rank: The number of directions that are removed of each language.

    Raises:
        TmdeError: A text is blank, there are too few sentences, or a rank that LAWDR cannot have.
    """

    def __init__(
        self,
        system: EmbeddingSystem,
        settings: LawdrSettings,
        texts: Mapping[str, Sequence[str | None]],
    ) -> None:
        super().__init__(system.name, system.embedder)
        self._rows: dict[str, dict[str, int]] = {}  # by language and text
        self._vectors: dict[str, np.ndarray] = {}
        documents: list[str] = []
        languages: list[str] = []
        for language, language_texts in texts.items():
            unique_texts = [text for text in dict.fromkeys(language_texts) if text]
            self._rows[language] = {text: row for row, text in enumerate(unique_texts)}
            documents += unique_texts
            languages += [language] * len(unique_texts)
        density = PAPER_DENSITY if settings.weighted else None
        lawdr = Lawdr(system.embedder, settings.rank, density).fit(documents, languages)
        self.rank = cast(int, lawdr.rank_)
        for language, rows in self._rows.items():
            self._vectors[language] = lawdr.transform(list(rows), language)

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str] = (),
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> np.ndarray:
        """Return the vectors of texts on which LAWDR was fitted.

        Args:
            texts: n texts of one language.
            fit_on: Not used.
            language: The language of the texts.
            role: Not used.
            fit_language: Not used.

        Returns:
            (n, d) float32.
        """
        code = cast(str, language)
        rows = self._rows[code]
        return self._vectors[code][[rows[text] for text in texts]]


def with_lawdr(
    system: System, settings: LawdrSettings | None, texts: Mapping[str, Sequence[str | None]]
) -> System:
    """Return a system that represents documents as the settings say.

    Args:
        system: What represents texts.
        settings: How LAWDR represents documents; None if it does not.
        texts: All texts of the task, by language; None where a language lacks a text.

    Returns:
        A `LawdrSystem`; the system itself without settings, or if it has no embedder, as TF-IDF.
    """
    if settings is None or not system.dense:
        return system
    # LAWDR embeds sentences, so it needs the embedder behind the vectors.
    return LawdrSystem(cast(EmbeddingSystem, system), settings, texts)


def lawdr_measures(system: System) -> dict[str, float]:
    """Return what `Cell.extra` says of LAWDR; nothing of another system."""
    if isinstance(system, LawdrSystem):
        return {"debiased_rank": system.rank}
    return {}


def lawdr_record(system: System, settings: LawdrSettings | None) -> dict[str, str | int | bool]:
    """Return what the settings of a result say of LAWDR; nothing where it was not used."""
    if settings is None or not system.dense:
        return {}
    return {"lawdr_rank": settings.rank, "lawdr_weighted": settings.weighted}
