"""MLDoc: news documents of four topics in eight languages."""

from __future__ import annotations

import ast
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tmde.data.checks import bad_value
from tmde.data.files import read_lines

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .sources import (
    Splits,
    Table,
    choose_languages,
    config_names,
    is_dataset,
    open_splits,
    provenance_of,
    read_columns,
    read_labels,
    source_of,
)

logger = logging.getLogger("tmde.eval.tasks")

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
SIZES = {"train": 1000, "dev": 1000, "test": 4000, "train_10k": 10000}
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
    "dev": "dev",
    "test": "test",
    "train10000": "train_10k",
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


class MLDoc(Task):
    """Topics of Reuters news in eight languages (thesis ch. 4, Evaluations I to III).

    The languages are not parallel. Run under Python 3, the public script writes the texts as
    `b'...'` with escaped bytes; those are decoded. They are then cleaned as LASER's script does
    before its measurements, which the thesis (4.3.3) repeats.
    """

    name = "mldoc"
    description = "news topics, 4 classes, 8 languages (licensed: needs a source)"
    provenance = Provenance(
        citation="Schwenk and Li, A Corpus for Multilingual Document Classification in Eight "
        "Languages, 2018",
        license="Reuters Corpora RCV1 and RCV2, by agreement with NIST; not to be passed on",
        url="https://github.com/facebookresearch/MLDoc",
    )
    languages = ("de", "en", "es", "fr", "it", "ja", "ru", "zh")
    local_names = ("mldoc",)
    needs = "the folder of the public script's output, or a private Hub dataset (licensed)"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        clean: bool = True,
    ) -> ClassificationData:
        """Load `train` (1,000 documents), `dev` (1,000), `test` (4,000), and `train_10k` if there.

        Args:
            source: The folder of the script's output, searched recursively for `label<TAB>text`
                files by their names (`mldoc.de.train.1000`, `german.dev`, `mldoc.train1000.de`
                ...); or a Hub dataset, or a folder laid out like one, with a config for each
                language.
            languages: None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.
            clean: Follow LASER's mldoc.sh: " Co ." and " Inc . " lose the blank before the full
                stop, and "(c) Reuters Limited 1996." (of any year of the nineties) is taken out.
                False leaves the texts as they are.

        Raises:
            CorpusError: No source; a missing language; a line without a tab, or with another label.
        """
        source = source_of(self, source, ADVICE)
        splits: Splits = {}
        for language, tables in self._open_tables(source, languages, streaming).items():
            splits[language] = {}
            for name, table in tables.items():
                splits[language][name] = _read_split(table, language, name, clean)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData(splits, provenance, "ffn")

    def _open_tables(
        self, source: str, languages: Languages, streaming: bool
    ) -> dict[str, dict[str, Table]]:
        """Open the tables of the chosen languages, by language and split."""
        tables: dict[str, dict[str, Table]] = {}
        if is_dataset(source):
            configs = {NAMES.get(name, name): name for name in config_names(source)}
            for language in choose_languages(source, languages, configs, self.languages):
                tables[language] = open_splits(source, configs[language], SIZES, streaming)
            return tables
        files = _find_files(source)
        for language in choose_languages(source, languages, files, self.languages):
            tables[language] = {}
            # The order of splits is part of the fingerprint of the data.
            for name in SIZES:
                if name in files[language]:
                    tables[language][name] = files[language][name]
        return tables


def _find_files(folder: str) -> Mapping[str, Mapping[str, Table]]:
    """Return the files of a folder by language and split.

    Raises:
        CorpusError: There are none.
    """
    files: dict[str, dict[str, Table]] = defaultdict(dict)
    for path in sorted(Path(folder).rglob("*")):
        languages = []
        split_parts = []
        for part in path.name.lower().split("."):
            language = NAMES.get(part, part)
            if language in NAMES.values():
                languages.append(language)
            elif part not in _IGNORED_PARTS:
                split_parts.append(part)
        split = _SPLITS.get("".join(split_parts))
        if len(languages) == 1 and split is not None and path.is_file():
            files[languages[0]][split] = Table(str(path), _read_file(str(path)))
    if not files:
        raise bad_value(folder, None, "source", folder, "a folder with MLDoc's files", ADVICE)
    return files


def _read_split(table: Table, language: str, name: str, clean: bool) -> Split:
    """Read a table, and warn if it has not the size of the benchmark."""
    numbers, rows = read_columns(table, ["text"], ["label"], empty_texts=True)
    labels = read_labels(table, "label", numbers, rows["label"], LABELS)
    texts = rows["text"]
    if clean:
        texts = _clean(texts)
    if len(texts) != SIZES[name]:
        logger.warning(
            "mldoc: %s %s has %d documents, not the benchmark's %d: compare no published results",
            language,
            name,
            len(texts),
            SIZES[name],
        )
    ids = [f"{language}:{name}:{row}" for row in range(len(texts))]
    return Split(ids, texts, labels, place=table.place)


def _clean(texts: Sequence[str]) -> list[str]:
    """Return the texts as LASER's script cleans them."""
    cleaned = list(texts)
    for pattern, replacement in _CLEANING:
        cleaned = [pattern.sub(replacement, text) for text in cleaned]
    return cleaned


def _read_file(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the numbered rows of a file of the script.

    Raises:
        CorpusError: A line has no tab.
    """
    for number, line in read_lines(path):
        label, tab, text = line.partition("\t")
        if not tab:
            advice = (
                "Correct the line; MLDoc's index files must first go through generate_documents.py."
            )
            raise bad_value(path, number, None, line, "label<TAB>text", advice)
        yield number, {"label": label, "text": _decode(path, number, text)}


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
