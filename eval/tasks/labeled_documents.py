"""Labeled documents of one's own: classification within and across their languages.

A row is a document with these fields:

| field | required | content |
|---|---|---|
| `text` | yes | the text |
| `label` | yes | the name of the class, or a number |
| `language` | | a code such as `de`; without it, all documents count as one language |
| `split` | | `train`, `dev` or `test`; without it, splits are drawn |
| `id` | | documents of different languages with one id are translations of each other |
| `title` | | is joined before the text by a blank line |
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import is_dataset
from tmde.data.tables import Quoting

from .base import (
    ClassificationData,
    LabeledText,
    Languages,
    Provenance,
    Source,
    Split,
    Task,
)
from .document_splits import assign_splits
from .labeled_rows import (
    ONE_LANGUAGE,
    LabeledRow,
    open_labeled,
    read_labeled,
)
from .sources import SPLIT_ORDER, Splits, source_of

logger = logging.getLogger("tmde.eval.tasks")

ADVICE = "Pass the file of your labeled documents."
FEW_DOCUMENTS = 10  # With fewer training documents of a label, its accuracy says little.
FEWEST_LABELS = 2


class LabeledDocuments(Task):
    """Classes of labeled documents of one's own.

    Attributes:
        train_languages: The languages whose labels are trained on. Empty before `load`, for all
            that have training documents. After it, None if all languages are trained on.
    """

    name = "labeled_documents"
    description = "classes of your own labeled documents, within and across languages"
    needs = (
        "--labeled FILE: CSV, TSV, JSONL or parquet with text and label (docs/guides/evaluate.md)"
    )
    provenance = Provenance("labeled documents of the user", "as given by the source")
    train_languages: tuple[str, ...] | None = ()

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        columns: Mapping[str, str] | None = None,
        seed: int = 0,
        quoting: Quoting | None = None,
    ) -> ClassificationData:
        """Load labeled documents, and draw the splits that the rows do not name.

        Documents with one id stay in one split. Without splits, three fifths of the documents of
        each label and set of languages are `train`, a fifth is `dev` and a fifth `test`. Without
        `dev`, a fifth of `train` becomes `dev`. A label without training documents in one of the
        train languages is left out, with a warning.

        Args:
            source: A CSV, TSV, JSONL or parquet file, gzipped or not, a folder of such files, or a
                dataset of the Hub. Files of a folder may be called by their splits (`train.csv`).
            languages: None for those of the models that the documents have.
            streaming: Read the Hub without downloading whole files first.
            columns: The names of columns by field, such as `{"label": "topic"}`, where they differ.
            seed: The seed of the splits that are drawn.
            quoting: Whether fields of CSV and TSV may be quoted (`"minimal"`), or quotes are plain
                characters (`"none"`). None to find out.

        Raises:
            TaskError: Columns are missing, or values, ids, languages or splits are bad, or fewer
                than two labels can be trained and tested.
        """
        path = source_of(self, source, ADVICE)
        known_languages = {*self.languages, *(languages or ())}
        tables = open_labeled(self, path, streaming, quoting)
        rows = read_labeled(tables, columns or {}, known_languages)
        if rows[0].language == ONE_LANGUAGE and languages:
            rows = _with_language(path, rows, languages)
        splits_of_ids, how_split = assign_splits(path, rows, seed)
        chosen = self._choose_languages(path, languages, rows)
        splits = _arrange(path, rows, chosen, splits_of_ids)
        trained = self._choose_train_languages(path, splits)
        splits = _without_untrained_labels(path, splits, trained)
        _check_tuned(path, splits, trained)
        _check_tested(path, splits, bool(languages))
        _warn_of_few_documents(path, splits, trained)
        _warn_of_repeated_texts(path, splits)
        self.train_languages = None if trained == list(splits) else tuple(trained)
        provenance = replace(
            self.provenance,
            citation=f"{self.provenance.citation}; {how_split}",
            source=path,
            split="test",
        )
        return ClassificationData(splits, provenance)

    def check(
        self,
        source: Source,
        columns: Mapping[str, str] | None = None,
        quoting: Quoting | None = None,
    ) -> None:
        """Read a local file or folder, and check its rows.

        Args:
            source: As for `load`. A dataset of the Hub is not read.
            columns: As for `load`.
            quoting: As for `load`.

        Raises:
            TaskError: Columns are missing, or a value is bad.
        """
        path = source_of(self, source, ADVICE)
        if os.path.exists(path) or not is_dataset(path):
            # `load` warns.
            read_labeled(open_labeled(self, path, quoting=quoting), columns or {}, warn=False)

    def _choose_languages(
        self, path: str, requested: Languages, rows: Iterable[LabeledRow]
    ) -> list[str]:
        """Return the languages to load, and warn of those that the models do not know.

        Raises:
            TaskError: No document is in one of the languages.
        """
        counts = Counter(row.language for row in rows)
        if requested:
            missing = [language for language in requested if language not in counts]
            if missing:
                raise bad_value(
                    path,
                    None,
                    "language",
                    Unquoted(f"no document in {', '.join(missing)}"),
                    f"languages of the documents: {', '.join(counts)}",
                    "Correct --languages and --train-languages.",
                )
            return list(dict.fromkeys(requested))
        if not self.languages or ONE_LANGUAGE in counts:
            return list(counts)
        known = []
        unknown = []
        for language in counts:
            if language in self.languages:
                known.append(language)
            else:
                unknown.append(language)
        if not known:
            raise bad_value(
                path,
                None,
                "language",
                Unquoted(f"documents in {', '.join(unknown)} alone"),
                f"languages of the models: {', '.join(self.languages)}",
                f"To evaluate them anyway: --languages {','.join(unknown)}",
            )
        if unknown:
            listed = ", ".join(f"{language} {counts[language]:,}" for language in unknown)
            logger.warning(
                "%s: documents in languages that the models were not trained on are left out: %s. "
                "--languages includes them.",
                path,
                listed,
            )
        return known

    def _choose_train_languages(self, path: str, splits: Splits) -> list[str]:
        """Return the languages whose labels are trained on.

        Raises:
            TaskError: None has training documents, or one that was asked for has none.
        """
        having_train = _languages_with("train", splits)
        requested = self.train_languages or having_train
        missing = [language for language in requested if language not in having_train]
        if missing or not requested:
            raise bad_value(
                path,
                None,
                "split",
                Unquoted(f"no training documents in {', '.join(missing or splits)}"),
                "some with the split train",
                "Correct the splits, or leave the column out: splits are then drawn.",
            )
        return list(requested)


def _with_language(
    path: str, rows: Sequence[LabeledRow], languages: Sequence[str]
) -> list[LabeledRow]:
    """Return rows of a file without languages in the one that the user names.

    Raises:
        TaskError: The user names several.
    """
    different_languages = list(dict.fromkeys(languages))
    if len(different_languages) > 1:
        raise bad_value(
            path,
            None,
            "language",
            Unquoted("no such column"),
            f"the language of each document, because {', '.join(different_languages)} are asked "
            "for",
            "Add the column, or name it: --columns language=COLUMN",
        )
    return [row._replace(language=different_languages[0]) for row in rows]


def _arrange(
    path: str,
    rows: Iterable[LabeledRow],
    languages: Sequence[str],
    splits_of_ids: Mapping[str, str],
) -> Splits:
    """Return the documents of the languages by language and split, in the order of the rows."""
    items: dict[tuple[str, str], list[LabeledText]] = {}
    for row in rows:
        key = (row.language, splits_of_ids[row.item_id])
        items.setdefault(key, []).append(LabeledText(row.item_id, row.text, row.label))
    splits: Splits = {}
    for language in languages:
        splits[language] = {}
        for name in SPLIT_ORDER:
            if (language, name) in items:
                place = f"{path}, language {language}, split {name}"
                splits[language][name] = Split.of(items[language, name], place)
    return splits


def _without_untrained_labels(path: str, splits: Splits, trained: Sequence[str]) -> Splits:
    """Return the splits without labels that no classifier of some train language can know.

    Raises:
        TaskError: Fewer than two labels are left.
    """
    all_labels: set[str] = set()
    for by_name in splits.values():
        for split in by_name.values():
            all_labels.update(split.labels)
    languages_without: dict[str, list[str]] = {}
    for language in trained:
        for label in sorted(all_labels.difference(splits[language]["train"].labels)):
            languages_without.setdefault(label, []).append(language)
    usable_labels = all_labels.difference(languages_without)
    if len(usable_labels) < FEWEST_LABELS:
        raise bad_value(
            path,
            None,
            "label",
            Unquoted(_describe_labels(all_labels, usable_labels, trained)),
            "at least two",
            "Add documents, or train on fewer languages: --train-languages",
        )
    for label, languages in languages_without.items():
        logger.warning(
            "%s: the label %r is left out in all languages, because it has no training document "
            "in %s",
            path,
            label,
            ", ".join(languages),
        )
    if not languages_without:
        return splits
    return _with_labels(splits, usable_labels)


def _describe_labels(
    all_labels: Collection[str], usable_labels: Collection[str], trained: Sequence[str]
) -> str:
    """Return a description of labels of which fewer than two can be used."""
    if len(all_labels) < FEWEST_LABELS:
        return f"the label {', '.join(map(repr, all_labels))} alone"
    listed = ", ".join(map(repr, sorted(usable_labels)))
    place = f"training documents in each of {', '.join(trained)}"
    if not listed:
        return f"no label with {place} (of {len(all_labels)} labels)"
    return f"only the label {listed} with {place} (of {len(all_labels)} labels)"


def _with_labels(splits: Splits, labels: Collection[str]) -> Splits:
    """Return the documents that have one of the labels."""
    filtered: Splits = {}
    for language, by_name in splits.items():
        filtered[language] = {}
        for name, split in by_name.items():
            items = []
            rows = zip(split.ids, split.texts, split.labels, strict=True)
            for item_id, text, label in rows:
                if label in labels:
                    items.append(LabeledText(item_id, text, label))
            if items:
                filtered[language][name] = Split.of(items, split.place)
    return filtered


def _languages_with(name: str, splits: Splits) -> list[str]:
    """Return the languages that have documents of a split."""
    return [language for language in splits if name in splits[language]]


def _check_tuned(path: str, splits: Splits, trained: Sequence[str]) -> None:
    """Raise TaskError if a train language has too few documents to tune a classifier."""
    missing = [language for language in trained if "dev" not in splits[language]]
    if missing:
        raise bad_value(
            path,
            None,
            "label",
            Unquoted(f"too few documents of each label in {', '.join(missing)}"),
            "at least three of some label, to train, tune and test",
            "Add documents.",
        )


def _check_tested(path: str, splits: Splits, languages_are_chosen: bool) -> None:
    """Check that documents are tested.

    Raises:
        TaskError: No language has a test document; or one has none, and the user has not chosen the
            languages.
    """
    tested = _languages_with("test", splits)
    missing = [language for language in splits if language not in tested]
    if tested and (languages_are_chosen or not missing):
        return
    advice = "Correct the splits, or leave the column out: splits are then drawn."
    if tested:
        trained = _languages_with("train", splits)
        advice = (
            f"To test in the others alone: --languages {','.join(tested)} "
            f"--train-languages {','.join(trained)}"
        )
    raise bad_value(
        path,
        None,
        "split",
        Unquoted(f"no test documents in {', '.join(missing)}"),
        "some with the split test",
        advice,
    )


def _warn_of_few_documents(path: str, splits: Splits, trained: Sequence[str]) -> None:
    """Warn of labels with few training documents, once for all languages."""
    languages_of: dict[tuple[str, int], list[str]] = {}
    for language in trained:
        for label, count in sorted(Counter(splits[language]["train"].labels).items()):
            if count < FEW_DOCUMENTS:
                languages_of.setdefault((label, count), []).append(language)
    descriptions = []
    for (label, count), languages in languages_of.items():
        descriptions.append(f"{label} {count} ({', '.join(languages)})")
    if descriptions:
        logger.warning(
            "%s: fewer than %d training documents of: %s. Read the results with care.",
            path,
            FEW_DOCUMENTS,
            "; ".join(descriptions),
        )


def _warn_of_repeated_texts(path: str, splits: Splits) -> None:
    """Warn of test documents that a classifier has seen word for word."""
    count = 0
    for by_name in splits.values():
        if "train" in by_name and "test" in by_name:
            train_texts = set(by_name["train"].texts)
            count += sum(text in train_texts for text in by_name["test"].texts)
    if count:
        logger.warning(
            "%s: %d test document(s) repeat a training document of their language word for word, "
            "so results are too high; remove the duplicates",
            path,
            count,
        )


def _counted(counts: Mapping[str, int]) -> str:
    """Return names with their counts, such as `nl 30, pl 12`."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def describe_documents(data: ClassificationData) -> str:
    """Return a sentence on the documents, their languages, labels and splits."""
    of_language: dict[str, int] = {}
    of_label: Counter[str] = Counter()
    of_split: Counter[str] = Counter()
    for language, by_name in data.splits.items():
        of_language[language] = sum(map(len, by_name.values()))
        for name, split in by_name.items():
            of_label.update(split.labels)
            of_split[name] += len(split)
    languages = f" ({_counted(of_language)})"
    if list(of_language) == [ONE_LANGUAGE]:
        languages = ""
    return (
        f"{sum(of_split.values()):,} documents{languages}; "
        f"{len(of_label)} labels ({_counted(dict(of_label.most_common()))}); "
        f"{_counted(of_split)}; {data.provenance.citation.partition('; ')[2]}"
    )
