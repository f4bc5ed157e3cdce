"""XSR: 2,000 Europarl sentences, each to be found among 200,000 of the other language."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from modeling_tmde.data.checks import bad_value

from .base import RetrievalData, Task
from .sources import (
    EUROPARL,
    EUROPARL_PROVENANCE,
    aligned,
    check_count,
    is_dataset,
    parallel_parts,
    provenance_of,
    source_of,
)


class XSR(Task):
    """Cross-lingual sentence retrieval (002, section 4.4): P@1 of 2,000 queries among 200,000 candidates, between
    English and each other language.

    Leave the sentences out of any training: Europarl is also what the models are trained on.
    """

    name = "xsr"
    description = "2,000 Europarl sentences among 200,000, English and another language"
    languages = ("de", "en", "es", "fr", "it")
    default_source = EUROPARL

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        queries: int = 2000,
        candidates: int = 200_000,
        split: str = "train",
    ) -> RetrievalData:
        """The first `candidates` rows: of each pair with English, where the source keeps pairs of languages in
        configs, else those that lack none of the languages.

        Args:
            source: Any parallel source.
            queries: How many of the rows of each pair are queries, drawn by the evaluation's seed.
            candidates: Rows of each pair of languages, queries included.
            split: Of a Hub dataset.

        Raises:
            CorpusError: Missing languages, fewer rows than `candidates`, or more `queries` than those.
        """
        source = source_of(self, source)
        check_count(self, "queries", queries)
        check_count(self, "candidates", candidates)
        if queries > candidates:
            raise bad_value(self.name, None, "queries", queries, f"at most candidates={candidates}", "Correct one.")
        options = {"streaming": streaming, "split": split, "pivot": "en"}
        chosen, parts = parallel_parts(source, languages, self.languages, **options)
        rows = []
        for part in parts:
            complete = part.complete_rows(part.languages if part.pair else chosen)
            rows.append((part.pair, part.exactly(complete, candidates, "candidates")))
        provenance = provenance_of(self, source, EUROPARL_PROVENANCE, split if is_dataset(source) else None)
        return replace(aligned(rows, chosen, provenance), queries=queries)
