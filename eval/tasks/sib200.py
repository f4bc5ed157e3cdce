"""SIB-200: topics of sentences in 205 languages."""

from __future__ import annotations

import os
from collections.abc import Sequence

from modeling_tmde.data.files import read_columns

from .base import ClassificationData, Provenance, Split, Task
from .languages import iso_of_flores
from .sources import (
    check_parallel,
    choose_languages,
    config_names,
    is_dataset,
    labelled_splits,
    named_files,
    open_splits,
    provenance_of,
    read_labels,
    require_splits,
    source_of,
)

SPLITS = ("train", "dev", "test")
PROVENANCE = Provenance(
    citation="Adelani et al., SIB-200: A Simple, Inclusive, and Big Evaluation Dataset for Topic Classification in "
    "200+ Languages and Dialects, 2023",
    licence="Apache-2.0 (annotations), CC BY-SA 4.0 (sentences of FLORES-200)",
    url="https://github.com/dadelani/sib-200",
)


class SIB200(Task):
    """Topics of the sentences of FLORES-200; rows with one `index_id` are translations in all languages."""

    name = "sib200"
    description = "sentence topics, 7 classes, 205 languages (any FLORES-200 code)"
    languages = ("de", "en", "es", "fr", "it")
    default_source = "Davlan/sib200"
    local_names = ("eval/sib200.parquet", "sib200.parquet")

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
    ) -> ClassificationData:
        """Splits `train` (701 sentences), `dev` (99), `test` (204).

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each FLORES-200 code and the columns
                index_id, category, text; or a file with the columns language, split, index_id, label, text.
            languages: ISO 639-1 codes where one is usual, FLORES-200 codes (`deu_Latn` or, say, `zho_Hant`) else.
                Results always go by the former.

        Raises:
            CorpusError: Missing languages, splits or columns, or translations with different labels.
        """
        source = source_of(self, source)
        if isinstance(languages, Sequence) and not isinstance(languages, str):
            languages = [iso_of_flores(code) for code in languages]
        if is_dataset(source) and not named_files(self, source):
            splits = self._load_configs(source, languages, streaming)
        else:
            found = labelled_splits(self, source, "index_id", streaming=streaming)
            found = {iso_of_flores(code): by_name for code, by_name in found.items()}
            splits = require_splits(source, found, choose_languages(source, languages, found, self.languages), SPLITS)
        check_parallel(source, splits, SPLITS)
        return ClassificationData(splits, provenance_of(self, source, PROVENANCE, "test", copy=True))

    def _load_configs(
        self, source: str, languages: Sequence[str] | None, streaming: bool
    ) -> dict[str, dict[str, Split]]:
        configs = {iso_of_flores(name): name for name in config_names(source)}
        splits: dict[str, dict[str, Split]] = {}
        for language in choose_languages(source, languages, configs, self.languages):
            splits[language] = {}
            opened = open_splits(source, configs[language], SPLITS, streaming=streaming)
            for name, table in opened.items():
                numbers, rows = read_columns(table, ["text"], ["index_id", "category"])
                labels = read_labels(table, "category", numbers, rows["category"])
                ids = [str(index) for index in rows["index_id"]]
                splits[language][name] = Split(ids, rows["text"], labels, place=table.place)
        return splits
