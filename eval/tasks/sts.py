"""STS: pairs of sentences with the similarity that people gave them, within and across languages."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tmde.data.checks import Words, bad_value

from .base import Languages, Provenance, SimilarityData, SimilarityPairs, Source, Task
from .sources import (
    choose_languages,
    config_names,
    is_dataset,
    open_split,
    open_tables,
    pair_of,
    provenance_of,
    read_columns,
    read_score,
    source_of,
)

Pair = tuple[str, str]


class STS(Task):
    """Semantic textual similarity: rank correlation of cosine and gold score, by pair of languages."""

    name = "sts"
    description = "similarity of sentence pairs, 8 pairs of languages and 3 single ones (Spearman)"
    provenance = Provenance(
        citation="Cer et al., SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual Focused "
        "Evaluation, 2017",
        licence="as SemEval-2017 Task 1 gives it (the dataset's card states none)",
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
        """Pairs of sentences by pair of languages, with ids `"en-de:<row>"`.

        Args:
            source: Hub dataset, or folder laid out like it, with a config for each pair (`en-de`) and the columns
                sentence1, sentence2, score. Or a JSONL, TSV or parquet file, or folder of them, with those columns
                and the languages, in a column lang (`en-de`) or as the name of the file (`en-de.tsv`).
            languages: Only pairs of which both are among these.
            split: Of a Hub dataset.

        Raises:
            CorpusError: Missing languages or columns; a score that is not a finite number.
        """
        source = source_of(self, source)
        dataset = is_dataset(source)
        if dataset:
            pairs = _choose(
                self, source, languages, list(filter(None, map(pair_of, config_names(source))))
            )
            names = ["-".join(pair) for pair in pairs]
            tables = {name: open_split(source, name, split, streaming) for name in names}
        else:
            tables = {
                Path(table.place).name.split(".")[0]: table for table in open_tables(self, source)
            }
        rows: dict[Pair, list[tuple[str, str, float]]] = {}
        for name, table in tables.items():
            numbers, columns = read_columns(table, ["sentence1", "sentence2"], ["score"])
            stated = columns["lang"] if "lang" in columns and not dataset else [name] * len(numbers)
            values = (stated, columns["sentence1"], columns["sentence2"], columns["score"])
            for number, lang, first, second, score in zip(numbers, *values, strict=True):
                pair = pair_of(str(lang))
                if pair is None:
                    advice = "Add a column 'lang' with such codes, or name the file like en-de.tsv."
                    raise bad_value(
                        table.place,
                        number,
                        "lang",
                        lang,
                        "two language codes such as 'en-de'",
                        advice,
                    )
                rows.setdefault(pair, []).append(
                    (first, second, read_score(table.place, number, score))
                )
        found = {}
        for pair in _choose(self, source, languages, rows):
            ids = [f"{'-'.join(pair)}:{row}" for row in range(len(rows[pair]))]
            found[pair] = SimilarityPairs(ids, *map(list, zip(*rows[pair], strict=True)))
        return SimilarityData(found, provenance_of(self, source, split if dataset else None))


def _choose(task: Task, source: str, languages: Languages, pairs: Collection[Pair]) -> list[Pair]:
    """The pairs of two of the languages; None: all, or those of `task.languages`."""
    chosen = set(
        choose_languages(
            source, languages, [code for pair in pairs for code in pair], task.languages
        )
    )
    kept = [pair for pair in pairs if chosen.issuperset(pair)]
    if not kept:
        found, listed = (
            Words(f"no pair of {', '.join(sorted(chosen))}"),
            ", ".join(map("-".join, pairs)),
        )
        raise bad_value(
            source,
            None,
            "languages",
            found,
            f"one of {listed}",
            "Request both languages of a pair.",
        )
    return kept
