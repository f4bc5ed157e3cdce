"""Europarl: the matrix of retrieval accuracies between all languages of the same 5,000 sentences."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice

from .base import RetrievalData, Task
from .sources import (
    BLOCK_ROWS,
    EUROPARL,
    EUROPARL_PROVENANCE,
    ParallelPart,
    Row,
    aligned,
    check_count,
    is_dataset,
    parallel_parts,
    provenance_of,
    source_of,
)

PIVOT = "en"


class EuroparlMatrix(Task):
    """Sentences that all languages have (001, section 4, table 2), every language against every other.

    Leave the sentences out of any training: Europarl is also what the models are trained on.
    """

    name = "europarl_matrix"
    description = "5,000 Europarl sentences, every language against every other"
    languages = ("de", "en", "es", "fr", "it", "pt")
    default_source = EUROPARL

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        rows: int = 5000,
        split: str = "train",
    ) -> RetrievalData:
        """The first `rows` rows that lack no language.

        Args:
            source: Any parallel source. Pairs of languages in configs, as the Hub keeps Europarl, are joined where
                their English sentences are identical; of an English sentence that comes again, the first is taken.
            languages: With English, if pairs are to be joined; None for those of the task's that are there.
            streaming: Of the Hub, read the beginning of each pair only, rather than fetch them whole.
            rows: How many.
            split: Of a Hub dataset.

        Raises:
            CorpusError: Missing languages, or fewer complete rows than `rows`.
        """
        source = source_of(self, source)
        check_count(self, "rows", rows)
        options = {"streaming": streaming, "split": split, "pivot": PIVOT}
        chosen, parts = parallel_parts(source, languages, self.languages, **options)
        found = self._join(parts, chosen, rows) if parts[0].pair else parts[0].complete_rows(chosen)
        provenance = provenance_of(self, source, EUROPARL_PROVENANCE, split if is_dataset(source) else None)
        return aligned([(None, parts[0].exactly(found, rows, "rows"))], chosen, provenance)

    def _join(self, parts: Sequence[ParallelPart], languages: Sequence[str], rows: int) -> Iterable[Row]:
        """Read the pairs a block at a time, in turn, until `rows` English sentences have all translations.

        Returns:
            The complete rows in the order in which their English was read; the same whether streamed or not.
        """
        readers = {code: part.rows() for part in parts for code in part.languages if code != PIVOT}
        joined: dict[str, Row] = {}
        complete = 0
        while readers and complete < rows:
            for language, reader in list(readers.items()):
                block = list(islice(reader, BLOCK_ROWS))
                if len(block) < BLOCK_ROWS:
                    del readers[language]
                for row in block:
                    entry = joined.setdefault(row[PIVOT], {PIVOT: row[PIVOT]})
                    if language not in entry:
                        entry[language] = row[language]
                        complete += len(entry) == len(languages)
        return (entry for entry in joined.values() if len(entry) == len(languages))
