"""`load_mldoc`, `load_xnli`, `load_sib200`: the labeled texts of benchmarks, as `datasets`.

The tasks of `tmde.eval` read the same tables by the same functions.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import datasets
import pyarrow as pa

from .checks import bad_value, check_language
from .labeled_tables import open_configs, read_columns, read_labels, split_of
from .languages import iso_of_flores
from .mldoc import open_mldoc
from .rows import CLASSES
from .tables import AnyDataset, Table

_BLOCK_ROWS = 1000  # rows that are checked at a time
_TEXT = datasets.Value("string")

Columns = dict[str, list]


@dataclass(frozen=True)
class LabeledTexts:
    """What the tables of a benchmark hold.

    Attributes:
        features: The columns: texts, ids, and a label, which is a `ClassLabel` if its names are
            fixed.
        texts: The columns whose values must be texts.
        label: The column of the label.
        empty_texts: Keep empty texts, with a warning that counts them, rather than raise.
        cleaning: Patterns in the texts, and what takes their place.
        source: The Hub dataset; empty if there is none.
    """

    features: datasets.Features
    texts: tuple[str, ...] = ("text",)
    label: str = "label"
    empty_texts: bool = False
    cleaning: tuple[tuple[re.Pattern[str], str], ...] = ()
    source: str = ""

    def read(
        self,
        table: Table,
        head: tuple[int, int] | None = None,
        batches: Iterable[pa.RecordBatch] | None = None,
    ) -> tuple[list[int], Columns]:
        """Return the numbers of the rows, and their columns.

        Args:
            table: The table.
            head: See `read_columns`.
            batches: See `read_columns`.

        Raises:
            CorpusError: A column is missing, a text is none, or a label is none of the classes.
        """
        values = [name for name in self.features if name not in self.texts]
        numbers, rows = read_columns(table, self.texts, values, self.empty_texts, head, batches)
        classes = getattr(self.features[self.label], "names", ())
        rows[self.label] = read_labels(table, self.label, numbers, rows[self.label], classes)
        for pattern, replacement in self.cleaning:
            for name in self.texts:
                rows[name] = [pattern.sub(replacement, text) for text in rows[name]]
        return numbers, {name: list(map(str, rows[name])) for name in self.features}


MLDOC_TEXTS = LabeledTexts(
    datasets.Features(
        {"text": _TEXT, "label": datasets.ClassLabel(names=["CCAT", "ECAT", "GCAT", "MCAT"])}
    ),
    empty_texts=True,
    # The cleaning of LASER's tasks/mldoc/mldoc.sh. Its pattern `([cC])` is a basic regular
    # expression of sed: the parentheses are literal.
    cleaning=(
        (re.compile(r" Co \."), " Co."),
        (re.compile(r" Inc \. "), " Inc. "),
        (re.compile(r"\([cC]\) Reuters Limited 199[0-9]\."), ""),
    ),
)
RAW_MLDOC_TEXTS = replace(MLDOC_TEXTS, cleaning=())
XNLI_TEXTS = LabeledTexts(
    datasets.Features(
        {"premise": _TEXT, "hypothesis": _TEXT, "label": datasets.ClassLabel(names=list(CLASSES))}
    ),
    texts=("premise", "hypothesis"),
    empty_texts=True,
    source="facebook/xnli",
)
SIB200_TEXTS = LabeledTexts(
    datasets.Features({"index_id": _TEXT, "category": _TEXT, "text": _TEXT}),
    label="category",
    source="Davlan/sib200",
)


def load_mldoc(
    source: str | os.PathLike,
    language: str,
    split: str = "train.1000",
    streaming: bool = False,
    clean: bool = True,
) -> AnyDataset:
    r"""Load the MLDoc news documents of one language.

    MLDoc is licensed, so there is no default source.

    Args:
        source: A folder with files from MLDoc's `generate_documents.py`, such as
            `mldoc.de.train.1000` (`label<TAB>text` per line); or a Hub dataset or a folder with the
            layout of one, with a config per language and `label` and `text` columns.
        language: The language code, such as `de`.
        split: `train.1000` (or `train`), `train.2000`, `train.5000`, `train.10000`, `dev` or
            `test`. In a Hub dataset: `train`, `train_2k`, `train_5k`, `train_10k`, `dev` or
            `validation`, and `test`.
        streaming: Return an `IterableDataset`, which checks rows as it reads them.
        clean: Clean the texts like LASER's mldoc.sh.

    Returns:
        A dataset with the columns `text` and `label`, a `ClassLabel` with CCAT, ECAT, GCAT and
        MCAT.

    Raises:
        CorpusError: The language or split is missing or empty, or a row is invalid. For a stream,
            the error is raised when the row is read.

    Example:
        ```python
        from tmde import load_mldoc

        documents = load_mldoc("mldoc", "de", "train.1000")
        print(documents.features["label"].int2str(documents[0]["label"]))
        ```
    """
    source = os.path.expanduser(os.fspath(source))
    texts = MLDOC_TEXTS if clean else RAW_MLDOC_TEXTS
    return _load(texts, source, open_mldoc(source, streaming), language, split, streaming)


def load_xnli(
    language: str,
    split: str = "test",
    streaming: bool = False,
    source: str | os.PathLike = XNLI_TEXTS.source,
) -> AnyDataset:
    """Load the XNLI sentence pairs of one language.

    Args:
        language: The language code, such as `de`, which is a config of the source.
        split: `train`, `validation` (or `dev`) or `test`.
        streaming: Return an `IterableDataset`, which checks rows as it reads them.
        source: A Hub dataset, or a folder with the layout of one, with a config per language and
            the columns `premise`, `hypothesis` and `label`. A label is a name or a number, in the
            order of a `ClassLabel`, or entailment, neutral, contradiction.

    Returns:
        A dataset with the columns `premise`, `hypothesis` and `label`, a `ClassLabel`.

    Raises:
        CorpusError: As for [`load_mldoc`].

    Example:
        ```python
        from tmde import load_xnli

        pairs = load_xnli("de", "test", streaming=True)
        print(next(iter(pairs))["premise"])
        ```
    """
    source = os.path.expanduser(os.fspath(source))
    return _load(XNLI_TEXTS, source, open_configs(source, streaming), language, split, streaming)


def load_sib200(
    language: str,
    split: str = "test",
    streaming: bool = False,
    source: str | os.PathLike = SIB200_TEXTS.source,
) -> AnyDataset:
    """Load the SIB-200 sentences of one language with their topics.

    Args:
        language: An ISO 639-1 code such as `de`, or a FLORES-200 code such as `deu_Latn`.
        split: `train`, `validation` (or `dev`) or `test`.
        streaming: Return an `IterableDataset`, which checks rows as it reads them.
        source: A Hub dataset, or a folder with the layout of one, with a config per FLORES-200 code
            and the columns `index_id`, `category` and `text`.

    Returns:
        A dataset with the string columns `index_id`, `category` and `text`. Translations share an
        `index_id`.

    Raises:
        CorpusError: As for [`load_mldoc`].

    Example:
        ```python
        from tmde import load_sib200

        sentences = load_sib200("de", "test")
        print(sentences[0]["text"], sentences[0]["category"])
        ```
    """
    source = os.path.expanduser(os.fspath(source))
    tables = open_configs(source, streaming, iso_of_flores)
    return _load(SIB200_TEXTS, source, tables, iso_of_flores(language), split, streaming)


def _load(
    texts: LabeledTexts,
    source: str,
    tables: Mapping[str, Mapping[str, Table]],
    language: str,
    split: str,
    streaming: bool,
) -> AnyDataset:
    """Return a split as a dataset.

    Args:
        texts: What its table holds.
        source: The source, for messages.
        tables: The tables by language and split.
        language: The language.
        split: The name of the split in the source, or ours.
        streaming: Whether to return a stream.

    Raises:
        CorpusError: There is no such language or split.
    """
    check_language(language, tables, source)
    splits = tables[language]
    name = split_of(split)
    if name not in splits:
        place = f"{source} (language {language})"
        expected = f"one of {', '.join(splits)}"
        raise bad_value(place, None, "split", split, expected, "Correct the name.")
    table = splits[name]
    if streaming:
        return datasets.IterableDataset.from_generator(
            _read_rows, features=texts.features, gen_kwargs={"texts": texts, "table": table}
        )
    return datasets.Dataset.from_dict(texts.read(table)[1], texts.features)


def _read_rows(texts: LabeledTexts, table: Table) -> Iterator[dict[str, object]]:
    """Yield the checked rows of a table, read in blocks."""
    is_empty = True
    for batch in table.batches(_BLOCK_ROWS):
        is_empty = False
        _, columns = texts.read(table, batches=[batch])
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))
    if is_empty:
        texts.read(table)  # It raises an error.
