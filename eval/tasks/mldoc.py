"""MLDoc: news documents of four topics in eight languages."""

from __future__ import annotations

import logging
from functools import partial

from tmde.data.labeled_tables import choose_languages
from tmde.data.labeled_texts import MLDOC_TEXTS, RAW_MLDOC_TEXTS
from tmde.data.mldoc import ADVICE, open_mldoc
from tmde.data.tables import Table

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .sources import provenance_of, read_splits, source_of

logger = logging.getLogger("tmde.eval.tasks")

SIZES = {"train": 1000, "dev": 1000, "test": 4000, "train_10k": 10000}


class MLDoc(Task):
    """Topics of Reuters news in eight languages (Li, 2021, chapter 4, Evaluations I to III).

    The languages are not parallel. Run under Python 3, the public script writes the texts as
    `b'...'` with escaped bytes; those are decoded. They are then cleaned as LASER's script does
    before its measurements, which the thesis (4.3.3) repeats.
    """

    name = "mldoc"
    description = "news topics, 4 classes, 8 languages (licensed: needs a source)"
    provenance = Provenance(
        citation="Schwenk and Li, A Corpus for Multilingual Document Classification in Eight "
        "Languages, 2018",
        license="Reuters Corpora RCV1 and RCV2, by agreement with NIST; not to be passed on",
        url="https://github.com/facebookresearch/MLDoc",
    )
    languages = ("de", "en", "es", "fr", "it", "ja", "ru", "zh")
    local_names = ("mldoc",)
    needs = "the folder of the public script's output, or a private Hub dataset (licensed)"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        clean: bool = True,
    ) -> ClassificationData:
        """Load `train` (1,000 documents), `dev` (1,000), `test` (4,000), and `train_10k` if there.

        Args:
            source: The folder of the script's output, searched recursively for `label<TAB>text`
                files by their names (`mldoc.de.train.1000`, `german.dev`, `mldoc.train1000.de`
                ...); or a Hub dataset, or a folder laid out like one, with a config for each
                language.
            languages: None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.
            clean: Follow LASER's mldoc.sh: " Co ." and " Inc . " lose the blank before the full
                stop, and "(c) Reuters Limited 1996." (of any year of the nineties) is taken out.
                False leaves the texts as they are.

        Raises:
            CorpusError: No source; a missing language; a line without a tab, or with another label.
        """
        source = source_of(self, source, ADVICE)
        tables = open_mldoc(source, streaming)
        chosen = choose_languages(source, languages, tables, self.languages)
        read = partial(_read_split, clean=clean)
        # The order of splits is part of the fingerprint of the data.
        splits = read_splits(tables, chosen, SIZES, read)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData(splits, provenance, "ffn")


def _read_split(table: Table, language: str, name: str, clean: bool) -> Split:
    """Read a table, and warn if it has not the size of the benchmark."""
    texts_of_table = MLDOC_TEXTS if clean else RAW_MLDOC_TEXTS
    _, columns = texts_of_table.read(table)
    texts = columns["text"]
    if len(texts) != SIZES[name]:
        logger.warning(
            "mldoc: %s %s has %d documents, not the benchmark's %d, so don't compare with "
            "published results",
            language,
            name,
            len(texts),
            SIZES[name],
        )
    ids = [f"{language}:{name}:{row}" for row in range(len(texts))]
    return Split(ids, texts, columns["label"], place=table.place)
