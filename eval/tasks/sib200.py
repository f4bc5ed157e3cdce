"""SIB-200: topics of sentences in 205 languages."""

from __future__ import annotations

from tmde.data.labeled_tables import choose_languages, is_dataset, open_configs
from tmde.data.labeled_texts import SIB200_TEXTS
from tmde.data.languages import iso_of_flores
from tmde.data.tables import Table

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .sources import (
    SPLIT_ORDER,
    Splits,
    check_parallel,
    labeled_splits,
    named_files,
    provenance_of,
    read_splits,
    source_of,
)


class SIB200(Task):
    """Topics of the sentences of FLORES-200.

    Rows with one `index_id` are translations in all languages.
    """

    name = "sib200"
    description = "sentence topics, 7 classes, 205 languages (any FLORES-200 code)"
    provenance = Provenance(
        citation="Adelani et al., SIB-200: A Simple, Inclusive, and Big Evaluation Dataset for "
        "Topic Classification in 200+ Languages and Dialects, 2023",
        license="Apache-2.0 (annotations), CC BY-SA 4.0 (sentences of FLORES-200)",
        url="https://github.com/dadelani/sib-200",
    )
    languages = ("de", "en", "es", "fr", "it")
    default_source = SIB200_TEXTS.source
    local_names = ("eval/sib200.parquet", "sib200.parquet")

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> ClassificationData:
        """Load the splits `train` (701 sentences), `dev` (99) and `test` (204).

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each FLORES-200 code
                and the columns index_id, category, text; or a file with the columns language,
                split, index_id, label, text.
            languages: ISO 639-1 codes where one is usual, FLORES-200 codes (`deu_Latn` or, say,
                `zho_Hant`) else. Results always go by the former. None for those of the task that
                the source has.
            streaming: Read the Hub without downloading whole files first.

        Raises:
            CorpusError: Missing languages or columns, or translations with different labels.
        """
        source = source_of(self, source)
        requested = list(map(iso_of_flores, languages or ()))
        if is_dataset(source) and not named_files(self, source):
            tables = open_configs(source, streaming, iso_of_flores)
            chosen = choose_languages(source, requested, tables, self.languages)
            splits = read_splits(tables, chosen, SPLIT_ORDER, _read_split)
        else:
            splits = self._read_files(source, requested)
        check_parallel(source, splits)
        return ClassificationData(splits, provenance_of(self, source, "test", copy=True))

    def _read_files(self, source: str, languages: Languages) -> Splits:
        """Read files with the rows of all languages."""
        splits = {}
        for code, by_name in labeled_splits(self, source, "index_id").items():
            splits[iso_of_flores(code)] = by_name
        chosen = choose_languages(source, languages, splits, self.languages)
        return {language: splits[language] for language in chosen}


def _read_split(table: Table, language: str, name: str) -> Split:
    _, columns = SIB200_TEXTS.read(table)
    return Split(columns["index_id"], columns["text"], columns["category"], place=table.place)
