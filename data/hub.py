"""Datasets of the Hub, or local folders laid out like them: which configs to take, and their rows."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import datasets
import huggingface_hub
import pyarrow as pa

from .builder import STREAM_BLOCK_ROWS, DatasetSource, build
from .checks import Checker, CorpusError, CorpusReport, Words, bad_value, check_languages, features_of, is_code
from .readers import columns_of_table, languages_of_schema


@dataclass
class HubPart:
    """One config of a Hub dataset, as it came from `datasets.load_dataset`."""

    raw: datasets.Dataset | datasets.IterableDataset
    place: str
    split: str

    def languages(self, requested: Sequence[str] | None, whole: bool = False) -> set[str]:
        """Return the languages of the config, from its schema."""
        return languages_of_schema(self._schema(), self.place, requested)

    def rows(self) -> int | None:
        """Return the number of rows; for a stream, the one that the dataset's card states, or None."""
        if isinstance(self.raw, datasets.Dataset):
            return len(self.raw)
        splits = self.raw.info.splits or {}
        return splits[self.split].num_examples or None if self.split in splits else None

    def load(
        self,
        languages: Sequence[str],
        inferred: bool,
        bad_rows: str,
        max_rows: int | None,
        report: CorpusReport,
        document_ids: bool,
    ) -> datasets.Dataset | datasets.IterableDataset:
        """Return the checked rows as `translation` in `languages`; see [`build`]. A stream has no `doc_id`."""
        if isinstance(self.raw, datasets.Dataset):
            raw = self.raw if max_rows is None else self.raw.select(range(min(max_rows, len(self.raw))))
            source = DatasetSource(raw, self.place)
            split = str(self.raw.split or "train").split("[")[0].replace("+", "_")
            return build([source], languages, inferred, bad_rows, split, False, None, report, document_ids)
        report.begin(self.place)
        check = _StreamCheck(Checker(tuple(languages), bad_rows, report), self.place, self._schema())
        stream = self.raw.with_format("arrow").map(
            check,
            with_indices=True,
            batched=True,
            batch_size=STREAM_BLOCK_ROWS,
            remove_columns=[name for name in self._schema().names if name != "translation"],
            features=features_of(languages),
        )
        return stream.with_format(None)

    def _schema(self) -> pa.Schema:
        if self.raw.features is not None:
            return self.raw.features.arrow_schema
        return next(iter(self.raw.with_format("arrow").iter(batch_size=STREAM_BLOCK_ROWS))).schema


@dataclass
class _StreamCheck:
    check: Checker
    place: str
    schema: pa.Schema

    def __call__(self, table: pa.Table, indices: Sequence[int]) -> pa.Table:
        names = sorted(languages_of_schema(self.schema, self.place, self.check.languages))
        numbers, columns = columns_of_table(table, names, self.place, [index + 1 for index in indices])
        kept = self.check(columns, numbers, self.place)
        self.check.report.log(self.place)  # with the first bad rows: nothing tells when the stream ends
        return kept


def is_hub_layout(path: str | os.PathLike) -> bool:
    """Return whether a local folder has a README.md whose front matter lists `configs`, as on the Hub."""
    readme = os.path.join(path, "README.md")
    if not os.path.isfile(readme):
        return False
    return bool((huggingface_hub.metadata_load(readme) or {}).get("configs"))


def hub_parts(
    path: str,
    languages: Sequence[str] | None,
    pivot_languages: Sequence[str] | None,
    config: str | Sequence[str] | None,
    split: str,
    streaming: bool,
    revision: str | None,
    token: str | bool | None,
) -> list[HubPart]:
    """Load the configs of a Hub dataset: the stated ones, or every pair of two requested languages with a pivot.

    Raises:
        CorpusError: The dataset can't be reached, or no config (or more than one that is no pair) fits.
    """
    try:
        if config is None:
            names = datasets.get_dataset_config_names(path, revision=revision, token=token)
            names = select_configs(names, languages, pivot_languages, path)
        else:
            names = [config] if isinstance(config, str) else list(config)
        parts = []
        for name in names:
            raw = datasets.load_dataset(path, name, split=split, streaming=streaming, revision=revision, token=token)
            parts.append(HubPart(raw, f"{path} (config {name}, split {split})", split))
        return parts
    except CorpusError:
        raise
    except ValueError as error:  # what `datasets` raises for an unknown config or split, with those that there are
        found, advice = Words(f"what can't be loaded ({error})"), "Correct config= and split=."
        stated = f"config {config!r} and split {split!r}"
        raise bad_value(path, None, None, found, stated, advice) from error
    except (FileNotFoundError, ConnectionError) as error:
        found = Words(f"neither a local file or folder nor a dataset that the Hub gives ({error})")
        advice = "Correct the path or the id, log in if the dataset is private, or pass source='sample' to go offline."
        raise bad_value(path, None, None, found, "one of them", advice) from error


def select_configs(
    names: Sequence[str], languages: Sequence[str] | None, pivot_languages: Sequence[str] | None, place: str
) -> list[str]:
    """Return the configs to load, given the names of all of a dataset's.

    Returns:
        The pairs, such as `de-en`, of two `languages` (None: any) of which at least one is in `pivot_languages`
        (None: any); or the only config, if there is one that is not a pair.

    Raises:
        CorpusError: A language is in no pair, no pair fits, or there are several configs that are no pairs.
    """
    pairs = {name: tuple(name.split("-")) for name in names}
    pairs = {name: pair for name, pair in pairs.items() if len(pair) == 2 and all(map(is_code, pair))}
    if not pairs and len(names) == 1:
        return list(names)
    if not pairs:
        advice = "Pass config='...' with the one (or a list of those) to load."
        raise bad_value(place, None, "config", Words(f"the configs {sorted(names)}"), "pairs such as 'de-en'", advice)
    there = set(chain.from_iterable(pairs.values()))
    check_languages([*(languages or ()), *(pivot_languages or ())], there, place)
    wanted, pivots = set(languages or there), set(pivot_languages or there)
    chosen = [name for name, pair in pairs.items() if wanted.issuperset(pair) and pivots.intersection(pair)]
    if not chosen:
        expected = f"a pair of {sorted(wanted)} with a pivot of {sorted(pivots)}"
        advice = "Change the languages or the pivot languages."
        raise bad_value(place, None, "config", Words(f"the configs {sorted(names)}"), expected, advice)
    return sorted(chosen)
