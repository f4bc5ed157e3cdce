"""SNLI: does the first sentence entail the second, in English?"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages, open_configs
from tmde.data.tables import Table, values_of

from .base import ClassificationData, Languages, Provenance, Source, Task
from .nli import read_pairs
from .sources import SPLIT_ORDER, check_count, provenance_of, source_of

logger = logging.getLogger("tmde.eval.tasks")

NO_GOLD_LABEL = -1  # The label of pairs on which the annotators did not agree.


class SNLI(Task):
    """Natural language inference in English (Conneau, 2019, sections 3.1 and 3.2).

    The classifier reads [u, v, |u - v|, u * v]. The encoders of InferSent are trained on the same
    pairs: `tmde train infersent --train stanfordnlp/snli`.
    """

    name = "snli"
    description = "natural language inference, 3 classes, English"
    provenance = Provenance(
        citation="Bowman et al., A large annotated corpus for learning natural language inference, "
        "2015",
        license="CC BY-SA 4.0",
        url="https://nlp.stanford.edu/projects/snli/",
    )
    languages = ("en",)
    default_source = "stanfordnlp/snli"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        max_train: int | None = None,
        seed: int = 42,
    ) -> ClassificationData:
        """Load `train` (549,367 pairs), `dev` (9,842) and `test` (9,824).

        Pairs without a gold label (-1) are left out, and their number is logged. The hypotheses
        are the `second_texts`.

        Args:
            source: Hub dataset, or folder laid out like it, with one config and the columns
                premise, hypothesis, label.
            languages: None or English.
            streaming: Read the Hub without downloading whole files first.
            max_train: At most that many train pairs: the first after a shuffle with `seed`.
            seed: Seed of that shuffle.

        Raises:
            CorpusError: The source is no dataset with one config, a column is missing, or a label
                is none of the three and not -1.
        """
        source = source_of(self, source)
        check_count(self, "max_train", max_train)
        choose_languages(source, languages, ["en"])
        tables = _open_config(source, streaming)
        splits = {}
        for name in SPLIT_ORDER:
            if name in tables:
                table = tables[name]
                batches = _with_gold_label(table)
                splits[name] = read_pairs(table, name, max_train, seed, batches=batches)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData({"en": splits}, provenance, "ffn_512")


def _open_config(source: str, streaming: bool) -> Mapping[str, Table]:
    """Return the splits of a dataset with one config.

    Raises:
        CorpusError: It is no dataset, or it has several configs.
    """
    configs = open_configs(source, streaming)
    if len(configs) != 1:
        raise bad_value(
            source,
            None,
            None,
            Unquoted(f"the configs {', '.join(configs)}"),
            "one config",
            "The task xnli reads a config for each language.",
        )
    (tables,) = configs.values()
    return tables


def _with_gold_label(table: Table) -> list[pa.RecordBatch]:
    """Return the rows on whose label annotators agreed, and log the number of the others."""
    batches = []
    left_out = 0
    for batch in table.batches():
        has_label = [value != NO_GOLD_LABEL for value in values_of(batch, "label")]
        batches.append(batch.filter(pa.array(has_label, pa.bool_())))
        left_out += len(batch) - len(batches[-1])
    if left_out:
        logger.info("%s: left out %d pairs without a gold label", table.place, left_out)
    return batches
