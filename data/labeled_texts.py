"""`load_mldoc`, `load_xnli`, `load_sib200`: the labeled texts of benchmarks, as `datasets`.

The tasks of `tmde.eval` read the same tables by the same functions.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc

from .checks import Unquoted, bad_value, check_language
from .labeled_tables import (
    choose_languages,
    config_names,
    is_hub_source,
    open_named_split,
    open_splits,
    read_columns,
    read_labels,
)
from .languages import iso_of_flores
from .mldoc import LABELS as MLDOC_LABELS
from .mldoc import open_mldoc_split, read_mldoc
from .rows import CLASSES
from .tables import AnyDataset, Table, values_of

logger = logging.getLogger("tmde.data")

XNLI = "facebook/xnli"
SIB200 = "Davlan/sib200"
_BLOCK_ROWS = 1000  # rows that are checked at a time

_TEXT = datasets.Value("string")

Columns = dict[str, list]


def load_mldoc(
    source: str | os.PathLike,
    language: str,
    split: str = "train.1000",
    streaming: bool = False,
    clean: bool = True,
) -> AnyDataset:
    r"""Load the news documents of MLDoc in one language.

    The source comes first, unlike in `load_xnli` and `load_sib200`: MLDoc is licensed, so there is
    no default.

    Args:
        source: The folder with the files that MLDoc's `generate_documents.py` writes,
            `mldoc.de.train.1000` and so on, with a line `label<TAB>text` for each document; or a
            (private) Hub dataset, or a folder laid out like one, with a config for each language
            and the columns `label` and `text`.
        language: Its code, such as `de`.
        split: `train.1000` (or `train`), `train.2000`, `train.5000`, `train.10000`, `dev`, `test`.
            A Hub dataset calls them `train`, `train_2k`, `train_5k`, `train_10k`, `dev` or
            `validation`, and `test`.
        streaming: Return an `IterableDataset`, which reads and checks as it goes.
        clean: Clean the texts as LASER's mldoc.sh does.

    Returns:
        A dataset with the columns `text` and `label`, a `ClassLabel` of CCAT, ECAT, GCAT and MCAT.

    Raises:
        CorpusError: The source has no such language or split, there are no rows, or a row is bad.
            In a stream, rows are checked when they are read.

    Example:
        >>> documents = load_mldoc("mldoc", "de", "train.1000")  # doctest: +SKIP
        >>> documents.features["label"].int2str(documents[0]["label"])  # doctest: +SKIP
        'MCAT'
    """
    source = os.path.expanduser(os.fspath(source))
    opener = partial(open_mldoc_split, source, language, split, streaming)
    label = datasets.ClassLabel(names=list(MLDOC_LABELS))
    features = datasets.Features({"text": _TEXT, "label": label})
    return _dataset_of(opener, partial(read_mldoc, clean=clean), features, streaming)


def load_xnli(
    language: str,
    split: str = "test",
    streaming: bool = False,
    source: str | os.PathLike = XNLI,
) -> AnyDataset:
    """Load the pairs of sentences of XNLI in one language.

    Args:
        language: Its code, such as `de`: the name of a config of the source.
        split: `train`, `validation` (or `dev`), `test`.
        streaming: Return an `IterableDataset`, which reads and checks as it goes.
        source: A Hub dataset, or a folder laid out like one, with a config for each language and
            the columns `premise`, `hypothesis` and `label`: a name, or its number in the order of a
            `ClassLabel` or of entailment, neutral, contradiction.

    Returns:
        A dataset with the columns `premise`, `hypothesis` and `label`, a `ClassLabel` of
        entailment, neutral and contradiction.

    Raises:
        CorpusError: The source has no such language or split, there are no rows, or a row is bad.
            In a stream, rows are checked when they are read.

    Example:
        >>> pairs = load_xnli("de", "test", streaming=True)  # doctest: +SKIP
        >>> next(iter(pairs))["label"]  # doctest: +SKIP
        2
    """
    source = os.path.expanduser(os.fspath(source))
    opener = partial(_open_config, source, language, split, streaming)
    label = datasets.ClassLabel(names=list(CLASSES))
    features = datasets.Features({"premise": _TEXT, "hypothesis": _TEXT, "label": label})
    return _dataset_of(opener, _xnli_columns, features, streaming)


def load_sib200(
    language: str,
    split: str = "test",
    streaming: bool = False,
    source: str | os.PathLike = SIB200,
) -> AnyDataset:
    """Load the sentences of SIB-200 in one language, with their topics.

    Args:
        language: An ISO 639-1 code such as `de` where one is usual, or a FLORES-200 code such as
            `deu_Latn`.
        split: `train`, `validation` (or `dev`), `test`.
        streaming: Return an `IterableDataset`, which reads and checks as it goes.
        source: A Hub dataset, or a folder laid out like one, with a config for each FLORES-200 code
            and the columns `index_id`, `category` and `text`.

    Returns:
        A dataset with the columns `index_id`, `category` and `text`, all of them strings. Sentences
        with one `index_id` are translations.

    Raises:
        CorpusError: The source has no such language or split, there are no rows, or a row is bad.
            In a stream, rows are checked when they are read.

    Example:
        >>> sentences = load_sib200("de", "test")  # doctest: +SKIP
        >>> sentences[0]["category"]  # doctest: +SKIP
        'geography'
    """
    source = os.path.expanduser(os.fspath(source))
    opener = partial(_open_sib200, source, language, split, streaming)
    features = datasets.Features({"index_id": _TEXT, "category": _TEXT, "text": _TEXT})
    return _dataset_of(opener, sib200_columns, features, streaming)


# ---- Opening


def _open_config(source: str, language: str, split: str, streaming: bool) -> Table:
    _check_dataset(source)
    check_language(language, config_names(source), source)
    return open_named_split(source, language, split, streaming)


def _open_sib200(source: str, language: str, split: str, streaming: bool) -> Table:
    _check_dataset(source)
    configs = sib200_configs(source)
    code = iso_of_flores(language)
    check_language(code, configs, source)
    return open_named_split(source, configs[code], split, streaming)


def _check_dataset(source: str) -> None:
    """Raise [`CorpusError`] for a source that is no dataset of the Hub, nor laid out like one."""
    if is_hub_source(source):
        return
    if os.path.exists(source):
        description = Unquoted("no README.md that lists `configs`")
    else:
        description = Unquoted("no such folder")
    expected = "a Hub dataset, or a folder laid out like one, with a config for each language"
    advice = "Download the dataset with its README.md."
    raise bad_value(source, None, None, description, expected, advice)


def sib200_configs(source: str) -> dict[str, str]:
    """Return the config of each language of a dataset like SIB-200, by ISO 639-1 code."""
    return {iso_of_flores(name): name for name in config_names(source)}


def open_sib200(
    source: str,
    languages: Sequence[str],
    splits: Sequence[str],
    streaming: bool,
    defaults: Sequence[str],
) -> dict[str, dict[str, Table]]:
    """Open the splits of several languages, by language and split.

    Args:
        source: A Hub dataset, or a folder laid out like one.
        languages: ISO 639-1 codes; empty for the `defaults` that the source has.
        splits: `train`, `dev` and `test`, in order.
        streaming: Read the Hub without downloading whole files first.
        defaults: The usual languages.
    """
    configs = sib200_configs(source)
    tables = {}
    for language in choose_languages(source, languages, configs, defaults):
        tables[language] = open_splits(source, configs[language], splits, streaming)
    return tables


# ---- Reading


def read_nli(
    table: Table,
    head: tuple[int, int] | None = None,
    left_out_label: int | None = None,
    batches: Iterable[pa.RecordBatch] | None = None,
) -> tuple[list[int], Columns]:
    """Return the numbers of the rows, and their columns `premise`, `hypothesis` and `label`.

    Args:
        table: The table.
        head: See `read_columns`.
        left_out_label: The label of rows that are left out, with a log of their number.
        batches: See `read_columns`.

    Raises:
        CorpusError: A column is missing, a text is none, or a label is none of the three.
    """
    if left_out_label is not None:
        batches = _without_label(table, left_out_label)
    numbers, rows = read_columns(
        table, ["premise", "hypothesis"], ["label"], empty_texts=True, head=head, batches=batches
    )
    columns = {
        "premise": rows["premise"],
        "hypothesis": rows["hypothesis"],
        "label": read_labels(table, "label", numbers, rows["label"], CLASSES),
    }
    return numbers, columns


def _without_label(table: Table, label: int) -> list[pa.RecordBatch]:
    """Return the rows of a table without those of a label."""
    batches = []
    left_out = 0
    for batch in table.batches():
        has_label = pa.array([value == label for value in values_of(batch, "label")], pa.bool_())
        batches.append(batch.filter(pc.invert(has_label)))
        left_out += len(batch) - len(batches[-1])
    if left_out:
        logger.info("%s: left out %d pairs without a gold label", table.place, left_out)
    return batches


def _xnli_columns(table: Table, batches: Iterable[pa.RecordBatch] | None = None) -> Columns:
    _, columns = read_nli(table, batches=batches)
    return columns


def sib200_columns(table: Table, batches: Iterable[pa.RecordBatch] | None = None) -> Columns:
    """Return the checked columns `index_id`, `category` and `text` of a table."""
    numbers, rows = read_columns(table, ["text"], ["index_id", "category"], batches=batches)
    return {
        "index_id": list(map(str, rows["index_id"])),
        "category": read_labels(table, "category", numbers, rows["category"]),
        "text": rows["text"],
    }


def _dataset_of(
    opener: Callable[[], Table],
    read: Callable[..., Columns],
    features: datasets.Features,
    streaming: bool,
) -> AnyDataset:
    """Return the rows of a table as a dataset.

    Args:
        opener: Opens the table, once for each pass through a stream.
        read: Checks rows and returns their columns.
        features: The columns.
        streaming: Whether to return a stream.
    """
    table = opener()  # A wrong name is an error now.
    if streaming:
        arguments: dict[str, Any] = {"opener": opener, "read": read}
        return datasets.IterableDataset.from_generator(
            _read_rows, features=features, gen_kwargs=arguments
        )
    return datasets.Dataset.from_dict(read(table), features)


def _read_rows(
    opener: Callable[[], Table], read: Callable[..., Columns]
) -> Iterator[dict[str, object]]:
    """Yield the checked rows of a table, read in blocks."""
    table = opener()
    is_empty = True
    for batch in table.batches(_BLOCK_ROWS):
        is_empty = False
        columns = read(table, batches=[batch])
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))
    if is_empty:
        read(table)  # It raises an error.
