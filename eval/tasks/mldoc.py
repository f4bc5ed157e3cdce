"""MLDoc: news documents of four topics in eight languages."""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from modeling_tmde.data.checks import Words, bad_value
from modeling_tmde.data.files import read_columns, read_lines

from .base import ClassificationData, Provenance, Split, Task
from .sources import choose_languages, config_names, is_dataset, open_splits, provenance_of, read_labels, source_of

logger = logging.getLogger("modeling_tmde.eval.tasks")

LABELS = ("CCAT", "ECAT", "GCAT", "MCAT")
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
    "MLDoc is licensed: get RCV1 and RCV2 from NIST (https://trec.nist.gov/data/reuters/reuters.html), run "
    "generate_documents.py of https://github.com/facebookresearch/MLDoc on its index files, and pass source= with the "
    "folder of its output (mldoc.de.train.1000, mldoc.de.dev, mldoc.de.test ...), or a private Hub dataset with one "
    "config per language and the columns label and text."
)
PROVENANCE = Provenance(
    citation="Schwenk and Li, A Corpus for Multilingual Document Classification in Eight Languages, 2018",
    licence="Reuters Corpora RCV1 and RCV2, by agreement with NIST; not to be passed on",
    url="https://github.com/facebookresearch/MLDoc",
)
_PARTS = {"train": "train", "train1000": "train", "dev": "dev", "test": "test", "train10000": "train_10k"}
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
    languages = ("de", "en", "es", "fr", "it", "ja", "ru", "zh")
    local_names = ("mldoc",)
    head = "ffn"

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
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
            CorpusError: No source; a missing language or split; a line without a tab, or with another label.
        """
        source = source_of(self, source, ADVICE)
        files = _find_files(source) if os.path.isdir(source) else {}
        if files:
            chosen = choose_languages(source, languages, files, self.languages)
            splits = {lang: _read_files(source, lang, files[lang], clean) for lang in chosen}
        elif is_dataset(source):
            splits = self._load_dataset(source, languages, streaming, clean)
        else:
            found = Words("no file named like them")
            raise bad_value(source, None, "source", found, "a folder with MLDoc's files", ADVICE)
        for language, by_name in splits.items():
            for name, split in by_name.items():
                if len(split) != SIZES[name]:
                    message = "mldoc: %s %s has %d documents, not the benchmark's %d: compare no published results"
                    logger.warning(message, language, name, len(split), SIZES[name])
        return ClassificationData(splits, provenance_of(self, source, PROVENANCE, "test", copy=True), self.head)

    def _load_dataset(
        self, source: str, languages: Sequence[str] | None, streaming: bool, clean: bool
    ) -> dict[str, dict[str, Split]]:
        configs = {NAMES.get(name, name): name for name in config_names(source)}
        splits: dict[str, dict[str, Split]] = {}
        for language in choose_languages(source, languages, configs, self.languages):
            config, wanted = configs[language], ("train", "dev", "test")
            opened = open_splits(source, config, wanted, ("train_10k",), streaming)
            splits[language] = {}
            for name, table in opened.items():
                numbers, rows = read_columns(table, ["text"], ["label"], empty_texts=True)
                labels = read_labels(table, "label", numbers, rows["label"], LABELS)
                splits[language][name] = _split(table.place, language, name, rows["text"], labels, clean)
        return splits


def _clean(text: str) -> str:
    """Return the text as LASER's mldoc.sh leaves it."""
    for pattern, replacement in _CLEANING:
        text = pattern.sub(replacement, text)
    return text


def _split(place: str, language: str, name: str, texts: list[str], labels: list[str], clean: bool) -> Split:
    if clean:
        texts = [_clean(text) for text in texts]
    ids = [f"{language}:{name}:{row}" for row in range(len(texts))]
    return Split(ids, texts, labels, place=place)


def _find_files(folder: str) -> dict[str, dict[str, str]]:
    """Return the files of a folder by language and split.

    Raises:
        CorpusError: Two files for one split of a language.
    """
    files: dict[str, dict[str, str]] = {}
    for path in sorted(Path(folder).rglob("*")):
        words = [word for word in path.name.lower().split(".") if word not in ("mldoc", "txt", "tsv")]
        languages = [word for word in words if NAMES.get(word, word) in NAMES.values()]
        name = _PARTS.get("".join(word for word in words if word not in languages))
        if len(languages) != 1 or name is None or not path.is_file():
            continue
        by_name = files.setdefault(NAMES.get(languages[0], languages[0]), {})
        if name in by_name:
            found, expected = Words(f"{by_name[name]} and {path}"), f"one file for {languages[0]}, {name}"
            raise bad_value(folder, None, None, found, expected, "Take one of them out of the folder.")
        by_name[name] = str(path)
    return files


def _read_files(folder: str, language: str, paths: dict[str, str], clean: bool) -> dict[str, Split]:
    for name in ("train", "dev", "test"):
        if name not in paths:
            expected = f"a file such as mldoc.{language}.{'train.1000' if name == 'train' else name}"
            found = Words(f"for {language} only {', '.join(sorted(paths.values()))}")
            raise bad_value(folder, None, f"split {name}", found, expected, "Add the missing split.")
    return {name: _read_file(language, name, paths[name], clean) for name in SIZES if name in paths}


def _read_file(language: str, name: str, path: str, clean: bool) -> Split:
    labels, texts = [], []
    for number, line in read_lines(path):
        label, tab, text = line.partition("\t")
        if not tab:
            advice = "Correct the line; MLDoc's index files must first go through generate_documents.py."
            raise bad_value(path, number, None, line, "label<TAB>text", advice)
        if label not in LABELS:
            raise bad_value(path, number, "label", label, f"one of {', '.join(LABELS)}", "Correct the line.")
        labels.append(label)
        texts.append(_decode(path, number, text))
    if not labels:
        raise bad_value(path, None, None, Words("no rows"), "some", "Run generate_documents.py again.")
    return _split(path, language, name, texts, labels, clean)


def _decode(path: str, number: int, text: str) -> str:
    """Return the text of a line; one that the script wrote as a bytes literal (`b'caf\\xc3\\xa9'`) decoded."""
    if not _BYTES.fullmatch(text):
        return text
    try:
        return ast.literal_eval(text).decode("utf-8")
    except (ValueError, SyntaxError, AttributeError) as error:
        advice = "Run generate_documents.py again."
        raise bad_value(path, number, "text", text, "UTF-8 text, or a bytes literal of it", advice) from error
