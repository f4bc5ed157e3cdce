"""Dataset cards of parallel corpora: what `tmde mine` and `tmde align --rows` write, and any other rows."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

from modeling_tmde.data import load_parallel
from modeling_tmde.data.files import find_files
from modeling_tmde.eval.markdown import markdown_table
from modeling_tmde.hub_cards.model_cards import hub_languages
from modeling_tmde.hub_cards.readme import fill, found_license, write_card
from modeling_tmde.hub_cards.sources import is_hub_id, public_name

FORMATS = ("parquet", "jsonl")  # that `load_dataset` opens as they are
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
_SIZES += ((10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"))
_COLUMNS = {
    "translation": "the text, by language",
    "score": "how sure the pairing is; higher is surer, and what is high depends on the model",
    "ids": "of the two sentences in the files that were mined, by language",
    "doc_id": "of the document; its rows stand in order",
    "segment": "number of the aligned segment in its document, from 0",
}


class RowFacts(NamedTuple):
    """
    What a folder of rows holds.

    Args:
        paths: Of the files, relative to the folder.
        languages, rows, pairs: Codes; number of rows; of each pair of languages, the rows that have both.
        columns: Name and type.
        scores: Lowest, median and highest; None without such a column, or where it has no numbers.
    """

    folder: Path
    paths: list[str]
    format: str
    languages: list[str]
    rows: int
    pairs: dict[str, int]
    columns: dict[str, str]
    scores: tuple[float, float, float] | None

    @property
    def complete(self) -> bool:
        """Whether every row has every language."""
        possible = len(self.languages) * (len(self.languages) - 1) // 2
        return list(self.pairs.values()) == [self.rows] * possible

    @property
    def origin(self) -> str:
        """`mined` or `aligned` where the columns are those that `tmde` writes, else an empty string."""
        if self.scores is None:
            return ""
        if "ids" in self.columns:
            return "mined"
        return "aligned" if {"segment", "doc_id"} <= set(self.columns) else ""


def dataset_card(
    folder: str | os.PathLike,
    repo_id: str | None = None,
    license: str | None = None,
    description: str | None = None,
    sources: Sequence[str] = (),
    model: str | None = None,
    threshold: float | None = None,
) -> DatasetCard:
    """The card of a folder of parallel rows, with `configs` by which `load_dataset` opens and streams it.

    Args:
        folder: Of parquet or JSONL files, as `tmde train` reads them: a column `translation` or one for each language.
        repo_id: `user/name` on the Hub, for the code in the card. Default: the name of the folder.
        license: An identifier of the Hub, such as `cc-by-4.0`; without one the card says that it is not stated.
        description: Markdown at the top.
        sources: What the text was taken from, in words or as links.
        model: That paired the rows, a Hub id or name; of a path the last component is told.
        threshold: Lowest score that was kept.

    Raises:
        ValueError: No such files, several formats, columns or languages that differ between files, so that
            `load_dataset` cannot open them as one, or rows that are no translations (`CorpusError`).
    """
    facts = read_rows(folder)
    name = repo_id or facts.folder.resolve().name
    data = DatasetCardData(
        language=hub_languages(facts.languages),
        license=license,
        multilinguality="translation" if len(facts.languages) == 2 else "multilingual",
        size_categories=size_category(facts.rows),
        task_categories=["translation", "sentence-similarity"],
        pretty_name=name.rpartition("/")[2],
        tags=["parallel-corpus", "tmde", *filter(None, [facts.origin])],
        configs=[{"config_name": "default", "data_files": [{"split": "train", "path": facts.paths}]}],
    )
    pivots = [code for code in ("en", "es") if code in facts.languages] or facts.languages[:1]
    return fill(
        "dataset_card.md.jinja",
        DatasetCard,
        data,
        python_name=json.dumps(name, ensure_ascii=False),
        shell_name=shlex.quote(name),
        title=name.rpartition("/")[2],
        description=description,
        facts=facts,
        pairs=markdown_table(["pair", "rows"], [[pair, f"{count:,}"] for pair, count in facts.pairs.items()]),
        columns=[(column, kind, _meaning(column, facts)) for column, kind in facts.columns.items()],
        sources=list(sources),
        model=model if model is None or is_hub_id(model) else public_name(model),
        threshold=threshold,
        languages=[_yaml(code) for code in facts.languages],
        pivots=[_yaml(code) for code in pivots],
        license=license,
    )


def write_dataset_card(folder: str | os.PathLike, **options: Any) -> bool:
    """Writes `README.md` into `folder`; of one that a person has edited, or written, only the metadata.

    Args:
        options: Of `dataset_card`. Without a licence, it is the one in the metadata there.

    Returns:
        Whether the text was written, and not the metadata alone.

    Raises:
        ValueError: As `dataset_card`; or the front matter of the `README.md` that is there is damaged.
    """
    path = Path(folder).expanduser() / "README.md"
    license = options.pop("license", None) or found_license(path)
    return write_card(dataset_card(folder, license=license, **options), path)


def read_rows(folder: str | os.PathLike) -> RowFacts:
    """Counts the rows of a folder; see `dataset_card` for what it takes and raises."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise ValueError(f"{folder}: found no folder, expected one with parquet or JSONL files of parallel rows")
    files = find_files(str(folder)) or []
    formats = sorted({file.format for file in files})
    if len(formats) != 1 or formats[0] not in FORMATS:
        raise ValueError(
            f"{folder}: found files of {' and '.join(formats) or 'no format'}, expected parquet or JSONL alone, which "
            "load_dataset opens; put others elsewhere or convert them"
        )
    paths = [path for file in files for path in file.paths]
    # By its files: a README.md that is there already may list configs of other files.
    corpus = load_parallel(paths, bad_rows="report")
    languages = sorted(corpus.features["translation"])
    columns = _open(folder, paths, formats[0])
    return RowFacts(
        folder,
        [Path(path).relative_to(folder).as_posix() for path in paths],
        formats[0],
        languages,
        len(corpus),
        count_pairs(corpus, languages),
        {name: _type_of(feature) for name, feature in columns.features.items()},
        _scores(columns),
    )


def count_pairs(corpus: datasets.Dataset, languages: Sequence[str]) -> dict[str, int]:
    """By pair `a-b`, the rows of a checked corpus that have a text in both; pairs without any are left out."""
    counts: Counter[str] = Counter()
    for table in corpus.with_format("arrow").iter(batch_size=10_000):
        texts = table["translation"].combine_chunks()
        there = {code: pa.compute.is_valid(texts.field(code)).to_numpy(zero_copy_only=False) for code in languages}
        for first, second in itertools.combinations(languages, 2):
            counts[f"{first}-{second}"] += int((there[first] & there[second]).sum())
    return {pair: count for pair, count in counts.items() if count}


def size_category(rows: int) -> str:
    """The Hub's name for so many rows."""
    return next((name for limit, name in _SIZES if rows < limit), "100B<n<1T")


def _open(folder: Path, paths: Sequence[str], format: str) -> datasets.Dataset:
    """All columns, as a reader of the Hub gets them."""
    kind = "parquet" if format == "parquet" else "json"
    try:
        return datasets.load_dataset(kind, data_files=list(paths), split="train")
    except datasets.exceptions.DatasetGenerationError as error:
        why = " ".join(str(error.__cause__ or error).split())
        raise ValueError(
            f"{folder}: load_dataset cannot open its files as one dataset ({why}); expected the same columns in each, "
            "and in `translation` the same languages, with null for what is missing: write them so, or publish the "
            f"folder by tmde push {shlex.quote(str(folder))} USER/NAME --repo-type dataset, which does"
        ) from error


def _scores(columns: datasets.Dataset) -> tuple[float, float, float] | None:
    """See `RowFacts`; rows without a score are left out."""
    kind = columns.features.arrow_schema.field("score").type if "score" in columns.column_names else pa.null()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    values = np.asarray(columns["score"][:], dtype=np.float64)
    values = values[~np.isnan(values)]
    return (float(values.min()), float(np.median(values)), float(values.max())) if len(values) else None


def _type_of(feature: Any) -> str:
    if isinstance(feature, datasets.Translation):
        feature = feature()  # as columns: a mapping
    if isinstance(feature, dict):
        return "{" + ", ".join(f"{name}: {_type_of(part)}" for name, part in feature.items()) + "}"
    return getattr(feature, "dtype", type(feature).__name__)


def _meaning(column: str, facts: RowFacts) -> str:
    if column == "score" and facts.scores is None:  # a word, of whose order nothing is known
        return ""
    return f"the text in `{column}`" if column in facts.languages else _COLUMNS.get(column, "")


def _yaml(code: str) -> str:
    """In a list of YAML; in quotes only what is no text without them, such as `no`."""
    return code if yaml.safe_load(code) == code else json.dumps(code)
