"""Find the translation of a sentence among all sentences of the other language, in any parallel source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice

from .base import Provenance, RetrievalData, Task
from .sources import AS_GIVEN, aligned, check_count, is_dataset, parallel_parts, provenance_of, source_of


class SentenceRetrieval(Task):
    """Retrieval over the rows of a parallel source; a row may lack languages."""

    name = "sentence_retrieval"
    description = "translations among the rows of any parallel source"
    local_names = ("*_dev.parquet",)

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        max_rows: int | None = None,
        split: str = "train",
        config: str | None = None,
    ) -> RetrievalData:
        """The rows with two or more of the languages; None: all that the source has.

        Args:
            source: A file, folder, glob, Moses prefix or Hub dataset, as
                [`load_parallel`](modeling_tmde.data.load_parallel) reads them. Of a Hub dataset with a config
                for each pair of languages, every pair of `languages` is taken.
            max_rows: At most that many rows, the first ones; of each pair, if the source is kept in pairs.
            split, config: Of a Hub dataset.

        Raises:
            CorpusError: No source, missing languages, or a source that can't be read.
        """
        source = source_of(self, source, "Pass source= with parallel text: a file, a folder, or a Hub dataset.")
        check_count(self, "max_rows", max_rows)
        streaming = streaming or max_rows is not None  # read no further than needed
        options = {"streaming": streaming, "split": split, "config": config}
        chosen, parts = parallel_parts(source, languages, **options)
        tested = split if is_dataset(source) or source == "sample" else None
        provenance = provenance_of(self, source, Provenance(AS_GIVEN, AS_GIVEN), tested)
        rows = ((part.pair, islice(part.rows(), max_rows)) for part in parts)
        return aligned(rows, chosen, provenance)
