"""RCV1/RCV2: news of four topics in English and German, classified across the two."""

from __future__ import annotations

from pathlib import Path

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages
from tmde.data.labeled_texts import MLDOC_TEXTS
from tmde.data.lines import read_lines

from .base import ClassificationData, LabeledText, Languages, Provenance, Source, Split, Task
from .sources import Splits, hold_out_dev, provenance_of, source_of

LABELS = MLDOC_TEXTS.features["label"].names
ADVICE = (
    "RCV1 and RCV2 are licensed: get them from NIST "
    "(https://trec.nist.gov/data/reuters/reuters.html) and pass the folder of Klementiev et al.'s "
    "documents: train/EN1000/CCAT/DOCUMENT, test/de/CCAT/DOCUMENT ... (or C for CCAT)."
)


class RCV(Task):
    """Cross-lingual document classification of Klementiev et al. (Li, 2021, section 3.3).

    1,000 train documents of one language, 5,000 test documents of the other.
    """

    name = "rcv"
    description = (
        "news topics of RCV1/RCV2, 4 classes, English and German (licensed: needs a source)"
    )
    provenance = Provenance(
        citation="Klementiev et al., Inducing Crosslingual Distributed Representations of Words, "
        "2012",
        license="Reuters Corpora RCV1 and RCV2, by agreement with NIST; not to be passed on",
        url="https://aclanthology.org/C12-1089/",
    )
    languages = ("de", "en")
    needs = "a folder with train/EN1000/CCAT/..., test/de/CCAT/... (licensed)"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        train_size: int = 1000,
    ) -> ClassificationData:
        """Load the splits `train`, `dev` and `test`, and `mirrored` if there is one.

        `train` and `dev` are nine tenths and one tenth of the train documents. `mirrored` holds the
        documents of `test` in the other language: the figures of Li (2021, section 3.4) show
        these pairs.

        Args:
            source: The folder that holds `train` and `test`, in which every class is a folder of
                documents. Mirrored documents, which an NMT model has translated, have the names of
                their originals: those of `test/de/CCAT/1.txt` and the like are in `test/de-en`.
            languages: None for both.
            streaming: Ignored.
            train_size: Which train folders are read: EN1000 and DE1000, or 100, 200, 500, 5000,
                10000.

        Raises:
            CorpusError: No source, a missing folder, or one that is named after no class.
        """
        source = source_of(self, source, ADVICE)
        splits: Splits = {}
        for language in choose_languages(source, languages, RCV.languages, self.languages):
            splits[language] = _read_language(Path(source), language, train_size)
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData(splits, provenance, "svm", six_folds=True)


def _read_language(folder: Path, language: str, train_size: int) -> dict[str, Split]:
    """Read the splits of a language."""
    train_folder = folder / "train" / f"{language.upper()}{train_size}"
    train_documents = _read_folder(train_folder, f"{language}:train")
    train_documents, dev_documents = hold_out_dev(train_documents)
    documents = {
        "train": train_documents,
        "dev": dev_documents,
        "test": _read_folder(folder / "test" / language, f"{language}:test"),
    }
    splits = {}
    for name, split_documents in documents.items():
        splits[name] = Split.of(split_documents, f"{folder}, {language} {name}")
    other_language = "en" if language == "de" else "de"
    mirrored_folder = folder / "test" / f"{language}-{other_language}"
    if mirrored_folder.is_dir():
        mirrored_documents = _read_folder(mirrored_folder, f"{language}:test")
        place = f"{folder}, {language} mirrored"
        splits["mirrored"] = Split.of(mirrored_documents, place, other_language)
    return splits


def _read_folder(folder: Path, id_prefix: str) -> list[LabeledText]:
    """Read the documents of all classes.

    Raises:
        CorpusError: There are none, or a folder is named after no class.
    """
    documents = []
    for path in sorted(folder.glob("*/*")):
        if not path.is_file():
            continue
        label = _label_of(path.parent)
        text = "\n".join(line for _, line in read_lines(str(path)))
        documents.append(LabeledText(f"{id_prefix}:{label}/{path.name}", text, label))
    if not documents:
        expected = "folders of the classes with some"
        raise bad_value(str(folder), None, None, Unquoted("no documents"), expected, ADVICE)
    return documents


def _label_of(folder: Path) -> str:
    """Return the class that a folder is named after: `CCAT`, or `C` for it.

    Raises:
        CorpusError: It is named after none.
    """
    for label in LABELS:
        if folder.name in (label, label[0]):
            return label
    raise bad_value(str(folder), None, "class", folder.name, f"one of {', '.join(LABELS)}", ADVICE)
