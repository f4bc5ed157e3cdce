"""Read the files of MLDoc's public script, or a dataset of the Hub with the same documents."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .checks import bad_value
from .labeled_tables import is_dataset, open_configs, split_of
from .lines import read_lines
from .tables import Row, Table, files_in

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
_SPLITS = ("train", "train_2k", "train_5k", "train_10k", "dev", "test")
_IGNORED_PARTS = ("mldoc", "txt", "tsv")
_BYTES_LITERAL = re.compile(r"""b(['"]).*\1""", re.DOTALL)


def open_mldoc(source: str, streaming: bool = False) -> Mapping[str, Mapping[str, Table]]:
    """Open the splits that a source has, by language and split.

    Args:
        source: The folder of the script's output, a Hub dataset, or a folder laid out like one.
        streaming: Read the Hub without downloading whole files first.

    Raises:
        CorpusError: There are no such files.
    """
    if is_dataset(source):
        return open_configs(source, streaming, lambda config: NAMES.get(config, config))
    return _find_files(source)


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
        split = split_of("".join(split_parts))
        if len(languages) == 1 and split in _SPLITS:
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
