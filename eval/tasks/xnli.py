"""XNLI: does the first sentence entail the second? Fifteen languages, and its two baselines of machine translation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tmde.data.checks import Words, bad_value
from tmde.data.files import FileSource, read_rows

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .sources import (
    Row,
    Splits,
    Table,
    check_count,
    check_parallel,
    choose_languages,
    config_names,
    is_dataset,
    open_splits,
    provenance_of,
    read_columns,
    read_labels,
    source_of,
)

LABELS = ("entailment", "neutral", "contradiction")
COLUMNS = {
    "sentence1": "premise",
    "sentence2": "hypothesis",
    "gold_label": "label",
    "hypo": "hypothesis",
}
ADVICE = (
    "Pass source= with the folder where XNLI-1.0.zip and XNLI-MT-1.0.zip (https://github.com/facebookresearch/XNLI) "
    "are unpacked."
)


class XNLI(Task):
    """Natural language inference (thesis, table 4.7; 004, section 4.2).

    Rows of one number are translations of each other in all languages: dev and test by people, train by machine.
    """

    name = "xnli"
    description = "natural language inference, 3 classes, 15 languages"
    provenance = Provenance(
        citation="Conneau et al., XNLI: Evaluating Cross-lingual Sentence Representations, 2018",
        licence="CC BY-NC 4.0",
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
    default_source = "facebook/xnli"
    head = "ffn_nli"
    train_languages = ("en",)
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
        """Splits `train` (392,702 pairs), `dev` (2,490), `test` (5,010), with the hypotheses as `second_texts`.

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each language and the columns premise,
                hypothesis, label; or the folder of the published files.
            max_train: At most that many train rows of each language: the first after a shuffle with `seed`, the same
                rows in every language, streaming or not.
            train_languages: Languages whose train split is read; the others have dev and test only. None for
                `self.train_languages` (English, as in LASER and the thesis), or for all of `languages` if these do
                not include any of those.

        Raises:
            CorpusError: Missing files, languages or columns; a label that is none of the three (-1, no gold label).
        """
        source = source_of(self, source, ADVICE)
        check_count(self, "max_train", max_train)
        tables = (
            None if not self.translated_into and is_dataset(source) else self._tables(Path(source))
        )
        there = config_names(source) if tables is None else tables
        # A model need not know the language that a test set was translated from.
        chosen = choose_languages(
            source, languages, there, XNLI.languages if self.translated_into else self.languages
        )
        trained = set(train_languages or self.train_languages or ()).intersection(chosen) or set(
            chosen
        )
        splits: Splits = {}
        for language in chosen:
            names = ("train", "dev", "test") if language in trained else ("dev", "test")
            opened = tables[language] if tables else open_splits(source, language, names, streaming)
            for name in filter(opened.get, names):
                table, head = (
                    opened[name],
                    (max_train, seed) if max_train and name == "train" else None,
                )
                texts = ["premise", "hypothesis"]
                numbers, rows = read_columns(table, texts, ["label"], empty_texts=True, head=head)
                labels = read_labels(table, "label", numbers, rows["label"], LABELS)
                ids = [f"{name}:{number - 1}" for number in numbers]
                columns = (ids, rows["premise"], labels, rows["hypothesis"], self.translated_into)
                splits.setdefault(language, {})[name] = Split(*columns, place=table.place)
        check_parallel(source, splits)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData(splits, provenance, self.head, self.monolingual)

    def _tables(self, folder: Path) -> dict[str, dict[str, Table]]:
        """The published files by language and split."""
        tables: dict[str, dict[str, Table]] = {}
        for path in sorted(folder.rglob("multinli.train.*.tsv")):
            language = path.name.split(".")[2]
            tables.setdefault(language, {})["train"] = Table(str(path), enumerate(_rows(path), 1))
        for name in ("dev", "test"):
            for language, table in _tables_by_language(folder, f"xnli.{name}.tsv").items():
                tables.setdefault(language, {})[name] = table
        return tables


class XNLITranslateTrain(XNLI):
    """TRANSLATE TRAIN (004, section 4.2.3): in each language, a classifier trained on MultiNLI translated into it."""

    name = "xnli_translate_train"
    description = "XNLI, trained in each language on MultiNLI translated into it"
    train_languages = None
    monolingual = True


class XNLITranslateTest(XNLI):
    """TRANSLATE TEST (004, section 4.2.3): one English classifier, tested on test sets translated into English."""

    name = "xnli_translate_test"
    description = "XNLI, test sets translated into English (the published files: needs a source)"
    default_source = None
    translated_into = "en"

    def _tables(self, folder: Path) -> dict[str, dict[str, Table]]:
        tables = {"en": super()._tables(folder).get("en", {})}
        for name in ("dev", "test"):
            for language, table in _tables_by_language(folder, f"xnli.{name}.en.tsv").items():
                if language != "en":
                    tables.setdefault(language, {})[name] = table
        return tables


def _tables_by_language(folder: Path, name: str) -> dict[str, Table]:
    """The rows of a file of all languages, numbered from 1 in each: those of one number are translations."""
    path = next(iter(sorted(folder.rglob(name))), None)
    if path is None:
        raise bad_value(str(folder), None, None, Words("no file"), name, ADVICE)
    rows: dict[str, list[Row]] = {}
    for row in _rows(path):
        rows.setdefault(row.get("language"), []).append(row)
    return {
        code: Table(f"{path} (language {code})", enumerate(part, 1)) for code, part in rows.items()
    }


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a published file, with the names of columns and labels that the Hub has."""
    for _, row in read_rows(FileSource("tsv", (str(path),))):
        row = {COLUMNS.get(column, column): value for column, value in row.items()}
        yield row | {"label": "contradiction"} if row.get("label") == "contradictory" else row
