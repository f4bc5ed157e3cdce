"""RCV1/RCV2: news of four topics in English and German, classified in one language and tested in the other."""

from __future__ import annotations

from pathlib import Path

from tmde.data.checks import Words, bad_value
from tmde.data.files import read_lines

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .mldoc import LABELS
from .sources import Splits, choose_languages, provenance_of, source_of

DEV_SHARE = 10  # every tenth train document is for tuning: the benchmark has no dev set
ADVICE = (
    "RCV1 and RCV2 are licensed: get them from NIST (https://trec.nist.gov/data/reuters/reuters.html) and pass the "
    "folder of Klementiev et al.'s documents: train/EN1000/CCAT/DOCUMENT, test/de/CCAT/DOCUMENT ... (or C for CCAT)."
)


class RCV(Task):
    """Cross-lingual document classification of Klementiev et al. (thesis 3.3): 1,000 train documents of one language,
    5,000 test documents of the other."""

    name = "rcv"
    description = (
        "news topics of RCV1/RCV2, 4 classes, English and German (licensed: needs a source)"
    )
    provenance = Provenance(
        citation="Klementiev et al., Inducing Crosslingual Distributed Representations of Words, 2012",
        licence="Reuters Corpora RCV1 and RCV2, by agreement with NIST; not to be passed on",
        url="https://aclanthology.org/C12-1089/",
    )
    languages = ("de", "en")
    head = "svm"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        train_size: int = 1000,
    ) -> ClassificationData:
        """Splits `train` and `dev` (nine tenths and one tenth of the train documents) and `test`; and `mirrored`, the
        documents of `test` in the other language, where there are any: the figures of thesis 3.4 are of these pairs.

        Args:
            source: The folder that holds `train` and `test`, in which every class is a folder of documents. Mirrored
                documents, which an NMT model has translated, have the names of their originals: those of
                `test/de/CCAT/1.txt` and the like are in `test/de-en`.
            streaming: Without influence.
            train_size: Which train folders are read: EN1000 and DE1000, or 100, 200, 500, 5000, 10000.

        Raises:
            CorpusError: No source, a missing folder, or one that is named after no class.
        """
        source = source_of(self, source, ADVICE)
        splits: Splits = {}
        for code in choose_languages(source, languages, RCV.languages, self.languages):
            train = _read(Path(source, "train", f"{code.upper()}{train_size}"), f"{code}:train")
            parts = {
                "train": [row for place, row in enumerate(train) if place % DEV_SHARE],
                "dev": train[::DEV_SHARE],
            }
            parts["test"] = _read(Path(source, "test", code), f"{code}:test")
            other = "en" if code == "de" else "de"
            if (mirrored := Path(source, "test", f"{code}-{other}")).is_dir():
                parts["mirrored"] = _read(mirrored, f"{code}:test")
            splits[code] = {}
            for name, rows in parts.items():
                columns = map(list, zip(*rows, strict=True))
                language = other if name == "mirrored" else None
                splits[code][name] = Split(
                    *columns, language=language, place=f"{source}, {code} {name}"
                )
        return ClassificationData(
            splits, provenance_of(self, source, "test", copy=True), self.head, six_folds=True
        )


def _read(folder: Path, prefix: str) -> list[tuple[str, str, str]]:
    """Id, text and label of the documents, by class."""
    rows = []
    for path in sorted(path for path in folder.glob("*/*") if path.is_file()):
        label = next((label for label in LABELS if path.parent.name in (label, label[0])), None)
        if label is None:
            raise bad_value(
                str(path.parent),
                None,
                "class",
                path.parent.name,
                f"one of {', '.join(LABELS)}",
                ADVICE,
            )
        text = "\n".join(line for _, line in read_lines(str(path)))
        rows.append((f"{prefix}:{label}/{path.name}", text, label))
    if not rows:
        raise bad_value(
            str(folder),
            None,
            None,
            Words("no documents"),
            "folders of the classes with some",
            ADVICE,
        )
    return rows
