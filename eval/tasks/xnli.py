"""XNLI: does the first sentence entail the second? Fifteen languages."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .sources import (
    Splits,
    check_count,
    check_parallel,
    choose_languages,
    config_names,
    open_splits,
    provenance_of,
    read_columns,
    read_labels,
    source_of,
)

LABELS = ("entailment", "neutral", "contradiction")


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
    languages = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
    default_source = "facebook/xnli"
    head = "ffn_nli"
    train_languages = ("en",)

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
                hypothesis, label.
            max_train: At most that many train rows of each language: the first after a shuffle with `seed`, the same
                rows in every language, streaming or not.
            train_languages: Languages whose train split is read; the others have dev and test only. None for
                `self.train_languages` (English, as in LASER and the thesis), or for all of `languages` if these do
                not include any of those.

        Raises:
            CorpusError: Missing languages or columns; a label that is none of the three (-1, no gold label).
        """
        source = source_of(self, source)
        check_count(self, "max_train", max_train)
        chosen = choose_languages(source, languages, config_names(source), self.languages)
        trained = set(train_languages or self.train_languages or ()).intersection(chosen) or set(chosen)
        splits: Splits = {}
        for language in chosen:
            names = ("train", "dev", "test") if language in trained else ("dev", "test")
            for name, table in open_splits(source, language, names, streaming).items():
                head = (max_train, seed) if max_train and name == "train" else None
                texts = ["premise", "hypothesis"]
                numbers, rows = read_columns(table, texts, ["label"], empty_texts=True, head=head)
                labels = read_labels(table, "label", numbers, rows["label"], LABELS)
                ids = [f"{name}:{number - 1}" for number in numbers]
                columns = (ids, rows["premise"], labels, rows["hypothesis"])
                splits.setdefault(language, {})[name] = Split(*columns, place=table.place)
        check_parallel(source, splits)
        return ClassificationData(splits, provenance_of(self, source, "test", copy=True), self.head)
