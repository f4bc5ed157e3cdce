"""Tatoeba: 1,000 or fewer sentences of each of 112 languages, with English translations."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from modeling_tmde.data import load_parallel
from modeling_tmde.data.checks import Words, bad_value
from modeling_tmde.data.files import read_columns

from .base import Provenance, RetrievalData, Task
from .languages import iso_of_iso3
from .sources import Row, aligned, choose_languages, config_names, is_dataset, open_splits, provenance_of, source_of

PROVENANCE = Provenance(
    citation="Artetxe and Schwenk, Massively Multilingual Sentence Embeddings for Zero-Shot Cross-Lingual Transfer "
    "and Beyond, 2019; sentences by the contributors of tatoeba.org",
    licence="CC BY 2.0 FR",
    url="https://github.com/facebookresearch/LASER/tree/main/data/tatoeba/v1",
)


class Tatoeba(Task):
    """Retrieval between a language and English. The English sentences of different languages differ, so every row
    holds one language and English, and None in the others."""

    name = "tatoeba"
    description = "sentences of 112 languages against English, 1,000 or fewer each"
    languages = ("de", "en", "es", "fr", "it")
    default_source = "mteb/tatoeba-bitext-mining"

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
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
        files = _find_pairs(source)
        if not files and not is_dataset(source):
            found, expected = Words("no such files"), "tatoeba.deu-eng.deu and tatoeba.deu-eng.eng, and so on"
            raise bad_value(source, None, "source", found, expected, "Pass LASER's folder data/tatoeba/v1.")
        pairs = list(files) or [name for name in config_names(source) if _other(name)]
        if not pairs:
            found = Words(f"the configs {', '.join(config_names(source))}")
            raise bad_value(source, None, "config", found, "pairs such as deu-eng", "Pass another source.")
        by_language = {iso_of_iso3(_other(pair)): pair for pair in pairs}
        chosen = choose_languages(source, languages, [*by_language, "en"], self.languages)
        chosen = [language for language in chosen if language != "en"]
        if not chosen:
            listed = f"also one of {', '.join(sorted(by_language))}"
            raise bad_value(source, None, "languages", Words("only en"), listed, "Add another language.")
        provenance = provenance_of(self, source, PROVENANCE, None if files else "test")
        parts = [
            (pair, self._file_rows(files[pair]) if files else self._dataset_rows(source, pair, streaming))
            for pair in (by_language[language] for language in chosen)
        ]
        return aligned(parts, [*chosen, "en"], provenance)

    def _file_rows(self, paths: dict[str, str]) -> Iterator[Row]:
        for row in load_parallel(paths, bad_rows="raise", streaming=True):  # a thousand lines: nothing to cache
            yield {iso_of_iso3(code): text for code, text in row["translation"].items()}

    def _dataset_rows(self, source: str, pair: str, streaming: bool) -> Iterator[Row]:
        table = open_splits(source, pair, ("test",), streaming=streaming)["test"]
        _, columns = read_columns(table, ["sentence1", "sentence2"])
        first, second = map(iso_of_iso3, pair.split("-"))
        for one, two in zip(columns["sentence1"], columns["sentence2"], strict=True):
            yield {first: one.rstrip("\r\n"), second: two.rstrip("\r\n")}  # some rows kept the end of their line


def _other(pair: str) -> str | None:
    """Return the language that a pair such as `deu-eng` has beside English, or None if it is no such pair."""
    codes = pair.split("-")
    if len(codes) != 2 or codes.count("eng") != 1:
        return None
    return next(code for code in codes if code != "eng")


def _find_pairs(folder: str) -> dict[str, dict[str, str]]:
    """Return the files of a folder by pair and language; of a pair with one file, the other's path all the same."""
    pairs: dict[str, dict[str, str]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "tatoeba.*-*.*"))):
        pair, language = os.path.basename(path).split(".")[1:3]
        if _other(pair) and language in pair.split("-"):
            prefix = path.removesuffix(language)
            pairs[pair] = {code: prefix + code for code in pair.split("-")}
    return pairs
