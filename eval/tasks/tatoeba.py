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
    """Retrieval between a language and English.

    The English sentences of different languages differ, so every row holds one language and
    English, and None in the others.
    """

    name = "tatoeba"
    description = "sentences of 112 languages against English, 1,000 or fewer each"
    provenance = Provenance(
        citation="Artetxe and Schwenk, Massively Multilingual Sentence Embeddings for Zero-Shot "
        "Cross-Lingual Transfer and Beyond, 2019; sentences by the contributors of tatoeba.org",
        license="CC BY 2.0 FR",
        url="https://github.com/facebookresearch/LASER/tree/main/data/tatoeba/v1",
    )
    languages = ("de", "en", "es", "fr", "it")
    default_source = "mteb/tatoeba-bitext-mining"

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> RetrievalData:
        """Load rows by pair, with ids `"deu-eng:<row>"`.

        Args:
            source: A folder with LASER's files `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng`; or
                a Hub dataset, or folder laid out like it, with a config for each pair, split test
                and the columns sentence1, sentence2.
            languages: ISO 639-1 codes, ISO 639-3 ones (`ast`, `cbk`) where a language has no other.
                English is always among them. None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.

        Raises:
            CorpusError: Missing languages or files, or an empty sentence.
        """
        source = source_of(self, source)
        has_configs = is_dataset(source)
        names = config_names(source) if has_configs else _pairs_of_files(source)
        pairs = {}
        for name in names:
            if name.endswith("-eng"):
                pairs[iso_of_iso3(name.removesuffix("-eng"))] = name
        if not pairs:
            expected = (
                "a folder with tatoeba.deu-eng.deu, tatoeba.deu-eng.eng ..., or a dataset with "
                "such configs"
            )
            advice = "Pass LASER's folder data/tatoeba/v1."
            raise bad_value(source, None, "source", source, expected, advice)
        chosen = choose_languages(source, languages, [*pairs, "en"], self.languages)
        foreign_languages = [language for language in chosen if language != "en"]
        parts = []
        for language in foreign_languages:
            pair = pairs[language]
            if has_configs:
                rows = _dataset_rows(source, pair, streaming)
            else:
                rows = _file_rows(source, pair)
            parts.append((pair, rows))
        provenance = provenance_of(self, source, "test" if has_configs else None)
        return aligned(parts, [*foreign_languages, "en"], provenance)


def _pairs_of_files(folder: str) -> list[str]:
    """Return the pairs of LASER's files, such as `deu-eng`."""
    paths = glob.glob(os.path.join(glob.escape(folder), "tatoeba.*-eng.eng"))
    return sorted(os.path.basename(path).split(".")[1] for path in paths)


def _file_rows(folder: str, pair: str) -> Iterator[Row]:
    """Yield the rows of LASER's files of a pair."""
    files = {}
    for code in pair.split("-"):
        files[code] = os.path.join(folder, f"tatoeba.{pair}.{code}")
    for row in load_parallel(files, bad_rows="raise", streaming=True):
        yield {iso_of_iso3(code): text for code, text in row["translation"].items()}


def _dataset_rows(source: str, pair: str, streaming: bool) -> Iterator[Row]:
    """Yield the rows of a config. Some of them kept the end of their line, which is taken off."""
    table = open_split(source, pair, "test", streaming)
    _, columns = read_columns(table, ["sentence1", "sentence2"])
    first_code, second_code = pair.split("-")
    first_language = iso_of_iso3(first_code)
    second_language = iso_of_iso3(second_code)
    for first, second in zip(columns["sentence1"], columns["sentence2"], strict=True):
        yield {first_language: first.rstrip("\r\n"), second_language: second.rstrip("\r\n")}
