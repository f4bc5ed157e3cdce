"""STS: pairs of sentences with the similarity that people gave them, within and across languages."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from modeling_tmde.data.checks import Words, bad_value
from modeling_tmde.data.files import Table, read_columns

from .base import Provenance, SimilarityData, SimilarityPairs, Task
from .sources import (
    choose_languages,
    config_names,
    is_dataset,
    open_splits,
    open_tables,
    pair_of,
    provenance_of,
    source_of,
)

Pair = tuple[str, str]
TEXTS = ("sentence1", "sentence2")
PROVENANCE = Provenance(
    citation="Cer et al., SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual Focused "
    "Evaluation, 2017",
    licence="as SemEval-2017 Task 1 gives it (the dataset's card states none)",
    url="https://alt.qcri.org/semeval2017/task1/",
)


class STS(Task):
    """Semantic textual similarity: rank correlation of cosine and gold score, by pair of languages."""

    name = "sts"
    description = "similarity of sentence pairs, 8 pairs of languages and 3 single ones (Spearman)"
    languages = ("ar", "de", "en", "es", "fr", "it", "ko", "nl", "tr")
    default_source = "mteb/sts17-crosslingual-sts"

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        split: str = "test",
    ) -> SimilarityData:
        """Pairs of sentences by pair of languages, with ids `"en-de:<row>"`.

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each pair (`en-de`) and the columns
                sentence1, sentence2, score. Or a JSONL, TSV or parquet file, or folder of them, with those columns
                and the languages: in a column lang (`en-de`), in columns lang1 and lang2, or as the name of the file
                (`en-de.tsv`).
            languages: Only pairs of which both are among these.
            split: Of a Hub dataset.

        Raises:
            CorpusError: Missing languages, split or columns; a score that is not a finite number.
        """
        source = source_of(self, source)
        if is_dataset(source):
            configs = {pair: name for name in config_names(source) if (pair := pair_of(name))}
            chosen = self._choose(source, languages, configs)
            rows = {}
            for pair in chosen:
                table = open_splits(source, configs[pair], (split,), streaming=streaming)[split]
                rows[pair] = self._read(table, pair)[pair]
        else:
            found: dict[Pair, list[tuple[str, str, float]]] = {}
            for table in open_tables(self, source, streaming):
                for pair, pair_rows in self._read(table, None).items():
                    found.setdefault(pair, []).extend(pair_rows)
            rows = {pair: found[pair] for pair in self._choose(source, languages, found)}
        pairs = {}
        for pair, pair_rows in rows.items():
            ids = [f"{'-'.join(pair)}:{row}" for row in range(len(pair_rows))]
            pairs[pair] = SimilarityPairs(ids, *(list(column) for column in zip(*pair_rows, strict=True)))
        tested = split if is_dataset(source) else None
        return SimilarityData(pairs, provenance_of(self, source, PROVENANCE, tested))

    def _choose(self, source: str, languages: Sequence[str] | None, pairs: Sequence[Pair]) -> list[Pair]:
        there = sorted({language for pair in pairs for language in pair})
        # A source of one's own may hold any languages: the default ones do not select among them.
        chosen = set(choose_languages(source, languages, there))
        kept = [pair for pair in pairs if chosen.issuperset(pair)]
        if not kept:
            found = Words(f"no pair of {', '.join(sorted(chosen)) or 'languages'}")
            listed = f"one of {', '.join(map('-'.join, pairs)) or 'the configs en-de, es-en and so on'}"
            raise bad_value(source, None, "languages", found, listed, "Request both languages of a pair.")
        return kept

    def _read(self, table: Table, pair: Pair | None) -> dict[Pair, list[tuple[str, str, float]]]:
        """Return sentences and scores by pair of languages; all of them of `pair` if it is stated."""
        optional = [] if pair else ["lang", "lang1", "lang2"]
        numbers, columns = read_columns(table, TEXTS, ["score"], optional)
        if pair is None and "lang" not in columns and not {"lang1", "lang2"} <= columns.keys():
            stem = os.path.basename(table.place).split(".")[0]
            pair = pair_of(stem)
            if pair is None:
                found = Words(f"neither a column lang nor lang1 and lang2 beside {', '.join(columns)}")
                expected = "one of them, or a name such as en-de.tsv"
                raise bad_value(table.place, None, "lang", found, expected, "Add or rename it.")
        rows: dict[Pair, list[tuple[str, str, float]]] = {}
        for index, number in enumerate(numbers):
            row_pair = pair or self._pair_of_row(table.place, number, {n: c[index] for n, c in columns.items()})
            score = self._score(table.place, number, columns["score"][index])
            rows.setdefault(row_pair, []).append((*(columns[name][index] for name in TEXTS), score))
        return rows

    def _pair_of_row(self, place: str, number: int, row: dict[str, object]) -> Pair:
        stated = str(row["lang"]) if "lang" in row else f"{row['lang1']}-{row['lang2']}"
        pair = pair_of(stated)
        if pair is None:
            advice = "Correct the row."
            raise bad_value(place, number, "lang", stated, "two language codes such as 'en-de'", advice)
        return pair

    def _score(self, place: str, number: int, value: object) -> float:
        try:
            score = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score):
            advice = "Correct or delete the row."
            raise bad_value(place, number, "score", value, "a finite number", advice)
        return score
