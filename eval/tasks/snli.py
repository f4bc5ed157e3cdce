"""SNLI: does the first sentence entail the second, in English?"""

from __future__ import annotations

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import (
    choose_languages,
    config_names,
    is_dataset,
    open_splits,
)

from .base import ClassificationData, Languages, Provenance, Source, Task
from .nli import read_pairs
from .sources import SPLIT_ORDER, check_count, provenance_of, source_of

NO_GOLD_LABEL = -1  # The label of pairs on which the annotators did not agree.


class SNLI(Task):
    """Natural language inference in English (004, sections 3.1 and 3.2).

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
        splits = {}
        for name, table in open_splits(
            source, _find_config(source), SPLIT_ORDER, streaming
        ).items():
            splits[name] = read_pairs(table, name, max_train, seed, left_out_label=NO_GOLD_LABEL)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData({"en": splits}, provenance, "ffn_512")


def _find_config(source: str) -> str:
    """Return the one config of a dataset.

    Raises:
        CorpusError: It is no dataset, or it has several configs.
    """
    if not is_dataset(source):
        raise bad_value(
            source,
            None,
            None,
            Unquoted("no dataset"),
            "a dataset of the Hub, or a folder laid out like one",
            "Write a README.md that lists the config and its splits.",
        )
    names = config_names(source)
    if len(names) != 1:
        raise bad_value(
            source,
            None,
            None,
            Unquoted(f"the configs {', '.join(names)}"),
            "one config",
            "The task xnli reads a config for each language.",
        )
    return names[0]
