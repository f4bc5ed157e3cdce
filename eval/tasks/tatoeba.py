"""Tatoeba: 1,000 or fewer sentences of each of 112 languages, with English translations."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from tmde.data import load_parallel
from tmde.data.checks import bad_value

from .base import Languages, Provenance, RetrievalData, Source, Task
from .languages import iso_of_iso3
from .sources import (
    Row,
    aligned,
    choose_languages,
    config_names,
    is_dataset,
    open_split,
    provenance_of,
    read_columns,
    source_of,
)


class Tatoeba(Task):
    """Retrieval between a language and English. The English sentences of different languages differ, so every row
    holds one language and English, and None in the others."""

    name = "tatoeba"
    description = "sentences of 112 languages against English, 1,000 or fewer each"
    provenance = Provenance(
        citation="Artetxe and Schwenk, Massively Multilingual Sentence Embeddings for Zero-Shot Cross-Lingual "
        "Transfer and Beyond, 2019; sentences by the contributors of tatoeba.org",
        licence="CC BY 2.0 FR",
        url="https://github.com/facebookresearch/LASER/tree/main/data/tatoeba/v1",
    )
    languages = ("de", "en", "es", "fr", "it")
    default_source = "mteb/tatoeba-bitext-mining"

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> RetrievalData:
        """Rows by pair, with ids `"deu-eng:<row>"`.

        Args:
            source: A folder with LASER's files `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng`; or a Hub dataset, or
                folder laid out like it, with a config for each pair, split test and the columns sentence1, sentence2.
            languages: ISO 639-1 codes, ISO 639-3 ones (`ast`, `cbk`) where a language has no other. English is always
                among them.

        Raises:
            CorpusError: Missing languages or files, or an empty sentence.
        """
        source = source_of(self, source)
        dataset = is_dataset(source)
        if dataset:
            pairs = config_names(source)
        else:
            files = glob.glob(os.path.join(glob.escape(source), "tatoeba.*-eng.eng"))
            pairs = sorted(os.path.basename(path).split(".")[1] for path in files)
        pairs = {
            iso_of_iso3(name.removesuffix("-eng")): name for name in pairs if name.endswith("-eng")
        }
        if not pairs:
            expected = "a folder with tatoeba.deu-eng.deu, tatoeba.deu-eng.eng ..., or a dataset with such configs"
            raise bad_value(
                source, None, "source", source, expected, "Pass LASER's folder data/tatoeba/v1."
            )
        chosen = choose_languages(source, languages, [*pairs, "en"], self.languages)
        chosen = [language for language in chosen if language != "en"]
        read = _dataset_rows if dataset else _file_rows
        parts = [(pairs[language], read(source, pairs[language], streaming)) for language in chosen]
        return aligned(
            parts, [*chosen, "en"], provenance_of(self, source, "test" if dataset else None)
        )


def _file_rows(folder: str, pair: str, streaming: bool) -> Iterator[Row]:
    prefix = os.path.join(folder, f"tatoeba.{pair}.")
    for row in load_parallel(
        {code: prefix + code for code in pair.split("-")}, bad_rows="raise", streaming=True
    ):
        yield {iso_of_iso3(code): text for code, text in row["translation"].items()}


def _dataset_rows(source: str, pair: str, streaming: bool) -> Iterator[Row]:
    _, columns = read_columns(
        open_split(source, pair, "test", streaming), ["sentence1", "sentence2"]
    )
    first, second = map(iso_of_iso3, pair.split("-"))
    for one, two in zip(columns["sentence1"], columns["sentence2"], strict=True):
        yield {
            first: one.rstrip("\r\n"),
            second: two.rstrip("\r\n"),
        }  # some rows kept the end of their line
