"""STS: pairs of sentences with the similarity that people gave them, also across languages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages, is_dataset, read_columns
from tmde.data.parts import pair_of
from tmde.data.tables import Table, config_names, open_split

from .base import (
    Languages,
    Provenance,
    ScoredPair,
    SimilarityData,
    SimilarityPairs,
    Source,
    Task,
)
from .sources import open_tables, provenance_of, read_score, source_of

LanguagePair = tuple[str, str]


class STS(Task):
    """Semantic textual similarity: rank correlation of cosine and gold score, by language pair."""

    name = "sts"
    description = "sentence similarity in 8 language pairs and 3 single languages (Spearman)"
    provenance = Provenance(
        citation="Cer et al., SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and "
        "Crosslingual Focused Evaluation, 2017",
        license="as SemEval-2017 Task 1 gives it (the dataset's card states none)",
        url="https://alt.qcri.org/semeval2017/task1/",
    )
    default_source = "mteb/sts17-crosslingual-sts"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        split: str = "test",
    ) -> SimilarityData:
        """Load pairs of sentences by pair of languages, with ids `"en-de:<row>"`.

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each pair (`en-de`)
                and the columns sentence1, sentence2, score. Or a JSONL, TSV or parquet file, or
                folder of them, with those columns and the languages, in a column lang (`en-de`) or
                as the name of the file (`en-de.tsv`).
            languages: Only pairs of which both are among these; None for all.
            streaming: Read the Hub without downloading whole files first.
            split: Split of a Hub dataset.

        Raises:
            CorpusError: Missing languages or columns; a score that is not a finite number.
        """
        source = source_of(self, source)
        by_languages: dict[LanguagePair, list[ScoredPair]] = defaultdict(list)
        if is_dataset(source):
            tested_split = split
            for pair in self._choose_configs(source, languages):
                split_table = open_split(source, "-".join(pair), split, streaming)
                _read_table(split_table, "-".join(pair), by_languages, has_lang_column=False)
        else:
            tested_split = None
            for table in open_tables(self, source):
                file_stem = Path(table.place).name.split(".")[0]
                _read_table(table, file_stem, by_languages, has_lang_column=True)
        similarity_pairs = {}
        for pair in self._choose_pairs(source, languages, by_languages):
            similarity_pairs[pair] = SimilarityPairs.of(by_languages[pair])
        return SimilarityData(similarity_pairs, provenance_of(self, source, tested_split))

    def _choose_configs(self, source: str, languages: Languages) -> list[LanguagePair]:
        """Return the pairs of languages of a dataset's configs that are asked for."""
        pairs = []
        for name in config_names(source):
            pair = pair_of(name)
            if pair is not None:
                pairs.append(pair)
        return self._choose_pairs(source, languages, pairs)

    def _choose_pairs(
        self, source: str, languages: Languages, pairs: Collection[LanguagePair]
    ) -> list[LanguagePair]:
        """Return the pairs of two of the languages; None for all, or those of `self.languages`.

        Raises:
            CorpusError: There are none.
        """
        available: list[str] = []
        for pair in pairs:
            available += pair
        chosen = choose_languages(source, languages, available, self.languages)
        chosen_pairs = [pair for pair in pairs if set(pair) <= set(chosen)]
        if not chosen_pairs:
            listed = ", ".join(map("-".join, pairs))
            raise bad_value(
                source,
                None,
                "languages",
                Unquoted(f"no pair of {', '.join(sorted(chosen))}"),
                f"one of {listed}",
                "Request both languages of a pair.",
            )
        return chosen_pairs


def _read_table(
    table: Table,
    name: str,
    by_languages: dict[LanguagePair, list[ScoredPair]],
    has_lang_column: bool,
) -> None:
    """Add the pairs of sentences of a table to those of their languages.

    Args:
        table: The table.
        name: The languages of its rows if it has no column `lang`, such as `en-de`.
        by_languages: The pairs of all tables that were read before.
        has_lang_column: Whether a column `lang` counts.

    Raises:
        CorpusError: The languages of a row are not known, or its score is not a finite number.
    """
    numbers, columns = read_columns(table, ["sentence1", "sentence2"], ["score"])
    names = [name] * len(numbers)
    if has_lang_column and "lang" in columns:
        names = columns["lang"]
    for row, number in enumerate(numbers):
        languages = pair_of(str(names[row]))
        if languages is None:
            expected = "two language codes such as 'en-de'"
            advice = "Add a column 'lang' with such codes, or name the file like en-de.tsv."
            raise bad_value(table.place, number, "lang", names[row], expected, advice)
        first = columns["sentence1"][row]
        second = columns["sentence2"][row]
        score = read_score(table.place, number, columns["score"][row])
        pairs = by_languages[languages]
        pair_id = f"{'-'.join(languages)}:{len(pairs)}"
        pairs.append(ScoredPair(pair_id, first, second, score))
