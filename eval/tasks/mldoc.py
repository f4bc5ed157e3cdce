"""MLDoc: news documents of four topics in eight languages."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

from tmde.data.checks import bad_value
from tmde.data.files import read_lines

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .sources import (
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
NAMES = {
    "german": "de",
    "english": "en",
    "spanish": "es",
    "french": "fr",
    "italian": "it",
    "japanese": "ja",
}
NAMES |= {"russian": "ru", "chinese": "zh"}
SIZES = {"train": 1000, "dev": 1000, "test": 4000, "train_10k": 10000}
ADVICE = (
    "MLDoc is licensed: get RCV1 and RCV2 from NIST (https://trec.nist.gov/data/reuters/reuters.html), run "
    "generate_documents.py of https://github.com/facebookresearch/MLDoc on its index files, and pass source= with the "
    "folder of its output (mldoc.de.train.1000, mldoc.de.dev, mldoc.de.test ...), or a private Hub dataset with one "
    "config per language and the columns label and text."
)
_SPLITS = {
    "train": "train",
    "train1000": "train",
    "dev": "dev",
    "test": "test",
    "train10000": "train_10k",
}
# LASER's tasks/mldoc/mldoc.sh. Its pattern `([cC])` is a basic regular expression of sed: the brackets are literal.
_CLEANING = (
    (re.compile(r" Co \."), " Co."),
    (re.compile(r" Inc \. "), " Inc. "),
    (re.compile(r"\([cC]\) Reuters Limited 199[0-9]\."), ""),
)
_BYTES = re.compile(r"""b(['"]).*\1""", re.DOTALL)


class MLDoc(Task):
    """Topics of Reuters news in eight languages (thesis ch. 4, Evaluations I to III); the languages are not parallel.

    Run under Python 3, the public script writes the texts as `b'...'` with escaped bytes; those are decoded. They are
    then cleaned as LASER's script does before its measurements, which the thesis (4.3.3) repeats.
    """

    name = "mldoc"
    description = "news topics, 4 classes, 8 languages (licensed: needs a source)"
    provenance = Provenance(
        citation="Schwenk and Li, A Corpus for Multilingual Document Classification in Eight Languages, 2018",
        licence="Reuters Corpora RCV1 and RCV2, by agreement with NIST; not to be passed on",
        url="https://github.com/facebookresearch/MLDoc",
    )
    languages = ("de", "en", "es", "fr", "it", "ja", "ru", "zh")
    local_names = ("mldoc",)
    head = "ffn"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        clean: bool = True,
    ) -> ClassificationData:
        """Splits `train` (1,000 documents), `dev` (1,000), `test` (4,000), and `train_10k` where it is there.

        Args:
            source: The folder of the script's output, searched recursively for `label<TAB>text` files by their names
                (`mldoc.de.train.1000`, `german.dev`, `mldoc.train1000.de` ...); or a Hub dataset, or a folder laid
                out like one, with a config for each language.
            clean: Follow LASER's mldoc.sh: " Co ." and " Inc . " lose the blank before the full stop, and
                "(c) Reuters Limited 1996." (of any year of the nineties) is taken out. False leaves the texts as they
                are.

        Raises:
            CorpusError: No source; a missing language; a line without a tab, or with another label.
        """
        source = source_of(self, source, ADVICE)
        if is_dataset(source):
            configs = {NAMES.get(name, name): name for name in config_names(source)}
            chosen = choose_languages(source, languages, configs, self.languages)
            tables = {code: open_splits(source, configs[code], SIZES, streaming) for code in chosen}
        else:
            files = _find_files(source)
            chosen = choose_languages(source, languages, files, self.languages)
            tables = {
                code: {name: files[code][name] for name in SIZES if name in files[code]}
                for code in chosen
            }
        splits = {
            code: {name: _read_split(table, code, name, clean) for name, table in by_name.items()}
            for code, by_name in tables.items()
        }
        return ClassificationData(splits, provenance_of(self, source, "test", copy=True), self.head)


def _find_files(folder: str) -> dict[str, dict[str, Table]]:
    """The files of a folder by language and split."""
    files: dict[str, dict[str, Table]] = {}
    for path in sorted(Path(folder).rglob("*")):
        words = [
            word for word in path.name.lower().split(".") if word not in ("mldoc", "txt", "tsv")
        ]
        languages = [word for word in words if NAMES.get(word, word) in NAMES.values()]
        name = _SPLITS.get("".join(word for word in words if word not in languages))
        if len(languages) == 1 and name and path.is_file():
            files.setdefault(NAMES.get(languages[0], languages[0]), {})[name] = Table(
                str(path), _read_file(str(path))
            )
    if not files:
        raise bad_value(folder, None, "source", folder, "a folder with MLDoc's files", ADVICE)
    return files


def _read_split(table: Table, language: str, name: str, clean: bool) -> Split:
    numbers, rows = read_columns(table, ["text"], ["label"], empty_texts=True)
    texts, labels = rows["text"], read_labels(table, "label", numbers, rows["label"], LABELS)
    for pattern, replacement in _CLEANING if clean else ():
        texts = [pattern.sub(replacement, text) for text in texts]
    if len(texts) != SIZES[name]:
        message = (
            "mldoc: %s %s has %d documents, not the benchmark's %d: compare no published results"
        )
        logger.warning(message, language, name, len(texts), SIZES[name])
    return Split(
        [f"{language}:{name}:{row}" for row in range(len(texts))], texts, labels, place=table.place
    )


def _read_file(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a file of the script."""
    for number, line in read_lines(path):
        label, tab, text = line.partition("\t")
        if not tab:
            advice = (
                "Correct the line; MLDoc's index files must first go through generate_documents.py."
            )
            raise bad_value(path, number, None, line, "label<TAB>text", advice)
        yield number, {"label": label, "text": _decode(path, number, text)}


def _decode(path: str, number: int, text: str) -> str:
    """The text of a line; one that the script wrote as a bytes literal (`b'caf\\xc3\\xa9'`) decoded."""
    if not _BYTES.fullmatch(text):
        return text
    try:
        return ast.literal_eval(text).decode("utf-8")
    except (ValueError, SyntaxError) as error:
        advice = "Run generate_documents.py again."
        raise bad_value(
            path, number, "text", text, "UTF-8 text, or a bytes literal of it", advice
        ) from error
