"""Tatoeba: 1,000 or fewer sentences of each of 112 languages, with English translations."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from tmde.data import load_parallel
from tmde.data.checks import bad_value
from tmde.data.labeled_tables import choose_languages, is_dataset, read_columns
from tmde.data.languages import two_letter_code
from tmde.data.parts import pair_of
from tmde.data.tables import config_names, open_split

from .base import Languages, Provenance, RetrievalData, Source, Task
from .sources import Row, aligned, open_tables, provenance_of, source_of

LanguagePair = tuple[str, str]


class Tatoeba(Task):
    """Retrieval between a language and English.

    The English sentences of different languages differ, so every row holds one language and
    English, and None in the others.
    """

    name = "tatoeba"
    description = "translations of sentences, 112 languages with English, up to 1,000 each"
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
        """Load rows by pair, with ids `"deu-eng:<row>"`, or `"de-en:<row>"` of a table.

        Args:
            source: A folder with LASER's files `tatoeba.deu-eng.deu` and `tatoeba.deu-eng.eng`; a
                parquet, JSONL, CSV or TSV file with the columns pair (`de-en` or `deu-eng`),
                sentence1 and sentence2; or a Hub dataset, or folder laid out like it, with a config
                for each pair, split test and the columns sentence1, sentence2.
            languages: ISO 639-1 codes, ISO 639-3 ones (`ast`, `cbk`) where a language has no other.
                English is always among them. None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.

        Raises:
            CorpusError: Missing languages, columns or files, a pair without English, or an empty
                sentence.
        """
        source = source_of(self, source)
        if os.path.isfile(source):
            return self._load_table(source, languages)
        has_configs = is_dataset(source)
        names = config_names(source) if has_configs else _pairs_of_files(source)
        pairs = {}
        for name in names:
            if name.endswith("-eng"):
                pairs[two_letter_code(name.removesuffix("-eng"))] = name
        if not pairs:
            expected = (
                "a folder with tatoeba.deu-eng.deu, tatoeba.deu-eng.eng ..., a file with the "
                "columns pair, sentence1 and sentence2, or a dataset with such configs"
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

    def _load_table(self, source: str, languages: Languages) -> RetrievalData:
        """Load the rows of a file with the pair of languages in a column."""
        rows_of_pair = _table_rows(self, source)
        foreign_language_of = {}
        for pair in rows_of_pair:
            (foreign_language,) = set(pair) - {"en"}
            foreign_language_of["-".join(pair)] = foreign_language
        available = [*foreign_language_of.values(), "en"]
        chosen = choose_languages(source, languages, available, self.languages)
        parts = []
        for pair, rows in rows_of_pair.items():
            name = "-".join(pair)
            if foreign_language_of[name] in chosen:
                parts.append((name, rows))
        foreign_languages = [language for language in chosen if language != "en"]
        return aligned(parts, [*foreign_languages, "en"], provenance_of(self, source, None))


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
        yield {two_letter_code(code): text for code, text in row["translation"].items()}


def _dataset_rows(source: str, pair: str, streaming: bool) -> Iterator[Row]:
    """Yield the rows of a config."""
    table = open_split(source, pair, "test", streaming)
    _, columns = read_columns(table, ["sentence1", "sentence2"])
    first_code, second_code = pair.split("-")
    languages = (two_letter_code(first_code), two_letter_code(second_code))
    for sentences in zip(columns["sentence1"], columns["sentence2"], strict=True):
        yield _row(languages, sentences)


def _table_rows(task: Task, source: str) -> dict[LanguagePair, list[Row]]:
    """Return the rows of a file by their pair of languages.

    Raises:
        CorpusError: A pair is not English and another language.
    """
    rows_of_pair: dict[LanguagePair, list[Row]] = {}
    for table in open_tables(task, source):
        numbers, columns = read_columns(table, ["pair", "sentence1", "sentence2"])
        for row, number in enumerate(numbers):
            codes = pair_of(columns["pair"][row])
            languages = (
                None if codes is None else (two_letter_code(codes[0]), two_letter_code(codes[1]))
            )
            if languages is None or languages.count("en") != 1:
                expected = "a language and English, such as 'de-en'"
                raise bad_value(
                    table.place,
                    number,
                    "pair",
                    columns["pair"][row],
                    expected,
                    "Correct the row, or evaluate parallel text of other languages with "
                    "sentence_retrieval.",
                )
            sentences = (columns["sentence1"][row], columns["sentence2"][row])
            rows_of_pair.setdefault(languages, []).append(_row(languages, sentences))
    return rows_of_pair


def _row(languages: LanguagePair, sentences: tuple[str, str]) -> Row:
    """Return a row. Some sentences kept the end of their line, which is taken off."""
    first_language, second_language = languages
    first, second = sentences
    return {first_language: first.rstrip("\r\n"), second_language: second.rstrip("\r\n")}
