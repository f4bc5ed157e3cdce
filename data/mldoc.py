"""Read the files of MLDoc's public script, or a dataset of the Hub with the same documents."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from .checks import bad_value, check_language
from .labeled_tables import (
    SPLIT_NAMES,
    choose_languages,
    config_names,
    is_hub_source,
    open_named_split,
    open_splits,
    read_columns,
    read_labels,
)
from .lines import read_lines
from .tables import Row, Table, files_in

LABELS = ("CCAT", "ECAT", "GCAT", "MCAT")
# Names of languages in file names and configs.
NAMES = {
    "german": "de",
    "english": "en",
    "spanish": "es",
    "french": "fr",
    "italian": "it",
    "japanese": "ja",
    "russian": "ru",
    "chinese": "zh",
}
ADVICE = (
    "MLDoc is licensed: get RCV1 and RCV2 from NIST "
    "(https://trec.nist.gov/data/reuters/reuters.html), run generate_documents.py of "
    "https://github.com/facebookresearch/MLDoc on its index files, and pass source= with the "
    "folder of its output (mldoc.de.train.1000, mldoc.de.dev, mldoc.de.test ...), or a private Hub "
    "dataset with one config per language and the columns label and text."
)
# What names of files hold besides the language, without dots, and the split that it means.
_SPLITS = {
    "train": "train",
    "train1000": "train",
    "train2000": "train_2k",
    "train5000": "train_5k",
    "train10000": "train_10k",
    "dev": "dev",
    "test": "test",
}
_IGNORED_PARTS = ("mldoc", "txt", "tsv")
# The cleaning of LASER's tasks/mldoc/mldoc.sh. Its pattern `([cC])` is a basic regular expression
# of sed: the parentheses are literal.
_CLEANING = (
    (re.compile(r" Co \."), " Co."),
    (re.compile(r" Inc \. "), " Inc. "),
    (re.compile(r"\([cC]\) Reuters Limited 199[0-9]\."), ""),
)
_BYTES_LITERAL = re.compile(r"""b(['"]).*\1""", re.DOTALL)


def open_mldoc(
    source: str,
    languages: Sequence[str] | None,
    splits: Sequence[str],
    streaming: bool = False,
    defaults: Sequence[str] = (),
) -> dict[str, dict[str, Table]]:
    """Open the splits that a source has, by language and split.

    Args:
        source: The folder of the script's output, a Hub dataset, or a folder laid out like one.
        languages: None for the `defaults` that the source has.
        splits: `train`, `dev`, `test` and `train_2k`, `train_5k`, `train_10k`, in order.
        streaming: Read the Hub without downloading whole files first.
        defaults: The usual languages; empty for all that the source has.

    Raises:
        CorpusError: There are no such files, or a language is missing.
    """
    tables: dict[str, dict[str, Table]] = {}
    if is_hub_source(source):
        configs = _configs(source)
        for language in choose_languages(source, languages, configs, defaults):
            tables[language] = open_splits(source, configs[language], splits, streaming)
        return tables
    files = _find_files(source)
    for language in choose_languages(source, languages, files, defaults):
        tables[language] = {}
        for name in splits:
            if name in files[language]:
                tables[language][name] = files[language][name]
    return tables


def open_mldoc_split(source: str, language: str, split: str, streaming: bool = False) -> Table:
    """Open one split in one language.

    Args:
        source: See `open_mldoc`.
        language: Its code.
        split: The name of the script, of the Hub, or ours.
        streaming: Read the Hub without downloading whole files first.

    Raises:
        CorpusError: There are no such files, or the language or the split is missing.
    """
    name = mldoc_split(split)
    if is_hub_source(source):
        configs = _configs(source)
        check_language(language, configs, source)
        return open_named_split(source, configs[language], name, streaming)
    files = _find_files(source)
    check_language(language, files, source)
    tables = files[language]
    if name not in tables:
        place = f"{source} (language {language})"
        expected = f"one of {', '.join(tables)}"
        raise bad_value(place, None, "split", split, expected, "Correct the name.")
    return tables[name]


def _configs(dataset: str) -> dict[str, str]:
    """Return the config of each language."""
    return {NAMES.get(name, name): name for name in config_names(dataset)}


def mldoc_split(name: str) -> str:
    """Return our name of a split, `train` for `train.1000`; an unknown name is returned itself."""
    name = SPLIT_NAMES.get(name, name)
    return _SPLITS.get(name.replace(".", ""), name)


def read_mldoc(
    table: Table, clean: bool = True, batches: Iterable[pa.RecordBatch] | None = None
) -> dict[str, list]:
    """Return the columns `text` and `label` of a table.

    Args:
        table: The table.
        clean: Clean the texts as LASER's mldoc.sh does.
        batches: See `read_columns`.

    Raises:
        CorpusError: A column is missing, a text is none, or a label is none of `LABELS`.
    """
    numbers, rows = read_columns(table, ["text"], ["label"], empty_texts=True, batches=batches)
    labels = read_labels(table, "label", numbers, rows["label"], LABELS)
    texts = rows["text"]
    for pattern, replacement in _CLEANING if clean else ():
        texts = [pattern.sub(replacement, text) for text in texts]
    return {"text": texts, "label": labels}


def _find_files(folder: str) -> Mapping[str, Mapping[str, Table]]:
    """Return the files of a folder by language and split.

    Raises:
        CorpusError: There are none.
    """
    files: dict[str, dict[str, Table]] = defaultdict(dict)
    for path in map(Path, files_in(folder)):
        languages = []
        split_parts = []
        for part in path.name.lower().split("."):
            language = NAMES.get(part, part)
            if language in NAMES.values():
                languages.append(language)
            elif part not in _IGNORED_PARTS:
                split_parts.append(part)
        split = _SPLITS.get("".join(split_parts))
        if len(languages) == 1 and split is not None:
            files[languages[0]][split] = MldocFile("mldoc", (str(path),))
    if not files:
        raise bad_value(folder, None, "source", folder, "a folder with MLDoc's files", ADVICE)
    return files


@dataclass(frozen=True)
class MldocFile(Table):
    """A file of the script: a label, a tab and a text on each line."""

    def _numbered_rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the rows.

        Raises:
            CorpusError: A line has no tab.
        """
        for number, line in read_lines(self.paths[0], self.place):
            label, tab, text = line.partition("\t")
            if not tab:
                advice = (
                    "Correct the line; MLDoc's index files must first go through "
                    "generate_documents.py."
                )
                raise bad_value(self.place, number, None, line, "label<TAB>text", advice)
            yield number, {"label": label, "text": _decode(self.place, number, text)}


def _decode(path: str, number: int, text: str) -> str:
    r"""Return the text of a line; decode one that the script wrote as a bytes literal.

    Such a text is `b'caf\xc3\xa9'`.

    Raises:
        CorpusError: The bytes are not UTF-8, or the literal is damaged.
    """
    if not _BYTES_LITERAL.fullmatch(text):
        return text
    try:
        return ast.literal_eval(text).decode("utf-8")
    except (ValueError, SyntaxError) as error:
        expected = "UTF-8 text, or a bytes literal of it"
        advice = "Run generate_documents.py again."
        raise bad_value(path, number, "text", text, expected, advice) from error
