"""XNLI: does the first sentence entail the second? With its baselines of machine translation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import datasets

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages, is_dataset, open_configs
from tmde.data.labeled_texts import XNLI_TEXTS
from tmde.data.tables import DatasetTable, Table

from .base import ClassificationData, Languages, Provenance, Source, Task
from .nli import read_pairs
from .sources import SPLIT_ORDER, Splits, check_count, check_parallel, provenance_of, source_of

# The columns of the published files, and what the Hub calls them.
COLUMNS = {
    "sentence1": "premise",
    "sentence2": "hypothesis",
    "gold_label": "label",
    "hypo": "hypothesis",
}
ADVICE = (
    "Pass source= with the folder where XNLI-1.0.zip and XNLI-MT-1.0.zip "
    "(https://github.com/facebookresearch/XNLI) are unpacked."
)

Tables = dict[str, dict[str, Table]]  # by language and split


class XNLI(Task):
    """Natural language inference (Li, 2021, table 4.7; Conneau, 2019, section 4.2).

    Rows of one number are translations of each other in all languages: dev and test by people,
    train by machine.

    Attributes:
        monolingual: Whether each language has a classifier of its own.
        translated_into: The language of the test sets if they were translated; None if not.
    """

    name = "xnli"
    description = "natural language inference, 3 classes, 15 languages"
    provenance = Provenance(
        citation="Conneau et al., XNLI: Evaluating Cross-lingual Sentence Representations, 2018",
        license="CC BY-NC 4.0",
        url="https://github.com/facebookresearch/XNLI",
    )
    languages = (
        "ar",
        "bg",
        "de",
        "el",
        "en",
        "es",
        "fr",
        "hi",
        "ru",
        "sw",
        "th",
        "tr",
        "ur",
        "vi",
        "zh",
    )
    default_source: str | None = XNLI_TEXTS.source
    train_languages: tuple[str, ...] | None = ("en",)
    monolingual: ClassVar[bool] = False
    translated_into: ClassVar[str | None] = None

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        max_train: int | None = None,
        seed: int = 42,
        train_languages: Sequence[str] | None = None,
    ) -> ClassificationData:
        """Load `train` (392,702 pairs), `dev` (2,490) and `test` (5,010).

        The hypotheses are the `second_texts`.

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each language and the
                columns premise, hypothesis, label; or the folder of the published files.
            languages: None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.
            max_train: At most that many train rows of each language: the first after a shuffle with
                `seed`, the same rows in every language, streaming or not.
            seed: Seed of that shuffle.
            train_languages: Languages whose train split is read; the others have dev and test only.
                None for `self.train_languages` (English, as in LASER and the thesis), or for all of
                `languages` if these do not include any of those.

        Raises:
            CorpusError: Missing files, languages or columns; a label that is none of the three (-1,
                no gold label).
        """
        source = source_of(self, source, ADVICE)
        check_count(self, "max_train", max_train)
        # A model need not know the language that a test set was translated from.
        defaults = XNLI.languages if self.translated_into else self.languages
        tables: Mapping[str, Mapping[str, Table]]
        if not self.translated_into and is_dataset(source):
            tables = open_configs(source, streaming)
        else:
            tables = self._open_published(Path(source))
        chosen = choose_languages(source, languages, tables, defaults)
        trained = self._choose_trained(chosen, train_languages)
        splits: Splits = {}
        for language in chosen:
            by_name = {}
            for name in SPLIT_ORDER:
                is_left_out = name == "train" and language not in trained
                if name in tables[language] and not is_left_out:
                    table = tables[language][name]
                    by_name[name] = read_pairs(table, name, max_train, seed, self.translated_into)
            if by_name:
                splits[language] = by_name
        check_parallel(source, splits)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData(splits, provenance, "ffn_nli", self.monolingual)

    def _choose_trained(
        self, languages: Sequence[str], train_languages: Sequence[str] | None
    ) -> set[str]:
        """Return the languages whose train split is read."""
        requested = train_languages or self.train_languages or ()
        trained = set(requested).intersection(languages)
        return trained or set(languages)

    def _open_published(self, folder: Path) -> Tables:
        """Open the published files."""
        tables: Tables = defaultdict(dict)
        for path in sorted(folder.rglob("multinli.train.*.tsv")):
            language = path.name.split(".")[2]
            tables[language]["train"] = _published_table(str(path), _read_published(path))
        for name in ("dev", "test"):
            for language, table in _open_by_language(folder, f"xnli.{name}.tsv").items():
                tables[language][name] = table
        return dict(tables)


class XNLITranslateTrain(XNLI):
    """TRANSLATE TRAIN (Conneau, 2019, section 4.2.3).

    In each language, a classifier is trained on MultiNLI translated into it.
    """

    name = "xnli_translate_train"
    description = "XNLI, trained in each language on MultiNLI translated into it"
    train_languages = None
    monolingual = True


class XNLITranslateTest(XNLI):
    """TRANSLATE TEST (Conneau, 2019, section 4.2.3).

    One English classifier is tested on test sets translated into English.
    """

    name = "xnli_translate_test"
    description = "XNLI, test sets translated into English (the published files: needs a source)"
    default_source = None
    needs = "a folder with the unpacked XNLI-1.0 and XNLI-MT-1.0"
    translated_into = "en"

    def _open_published(self, folder: Path) -> Tables:
        """Open the English files, and the translated ones of the other languages."""
        original_tables = super()._open_published(folder)
        tables: Tables = defaultdict(dict)
        tables["en"] = original_tables.get("en", {})
        for name in ("dev", "test"):
            for language, table in _open_by_language(folder, f"xnli.{name}.en.tsv").items():
                if language != "en":
                    tables[language][name] = table
        return dict(tables)


def _open_by_language(folder: Path, name: str) -> Mapping[str, Table]:
    """Return the rows of a file of all languages, by language.

    They are numbered from 1 in each: those of one number are translations.

    Raises:
        CorpusError: There is no such file.
    """
    paths = sorted(folder.rglob(name))
    if not paths:
        raise bad_value(str(folder), None, None, Unquoted("no file"), name, ADVICE)
    path = paths[0]
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _read_published(path):
        rows[row.get("language", "")].append(row)
    tables = {}
    for language, language_rows in rows.items():
        tables[language] = _published_table(f"{path} (language {language})", language_rows)
    return tables


def _published_table(place: str, rows: Iterable[dict[str, str]]) -> DatasetTable:
    dataset = datasets.Dataset.from_list(list(rows))
    return DatasetTable("dataset", (), name=place, dataset=dataset)


def _read_published(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a published file, with the Hub's names of columns and labels."""
    for _, published_row in Table("tsv", (str(path),)).rows():
        row = {}
        for column, value in published_row.items():
            row[COLUMNS.get(column, column)] = value
        if row.get("label") == "contradictory":
            row["label"] = "contradiction"
        yield row
