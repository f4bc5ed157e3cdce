"""SentEval's transfer tasks (Conneau & Kiela, 2018): what English sentence vectors are worth for other tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from tmde.data.checks import Words, bad_value

from .base import (
    ClassificationData,
    Languages,
    Provenance,
    SimilarityData,
    SimilarityPairs,
    Source,
    Split,
    Task,
)
from .sources import choose_languages, provenance_of, read_score, source_of

Row = tuple[str, ...]  # label or score, text, and the second text of a pair
DEV_SHARE = 10  # of the train rows, every tenth is for tuning where a task has no dev set


def _label_behind(line: str) -> Row:  # text<TAB>label
    text, label = line.rsplit("\t", 1)
    return label, text


def _label_before(line: str) -> Row:  # label text
    label, text = line.split(" ", 1)
    return label, text


def _question(line: str) -> Row:  # CLASS:subclass text
    name, text = line.split(" ", 1)
    label, _ = name.split(":", 1)
    return label, text


def _columns(*indices: int) -> Callable[[str], Row]:
    """Columns of a line with tabs between."""
    return lambda line: tuple(line.split("\t")[index] for index in indices)


class SentEval(Task):
    """A transfer task in the layout of SentEval's `data/downstream` (004, section 3.1), in English.

    Pairs are [u, v, |u - v|, u * v], as 004 says; the code of SentEval leaves u and v out.

    Class attributes: `files`, each with its split (`all`: for ten-fold cross-validation) and its label, None where
    `line` makes label and texts of a line; `header`, whether files begin with one; `scored`, whether labels are
    numbers to predict.
    """

    provenance = Provenance(
        citation="Conneau and Kiela, SentEval: An Evaluation Toolkit for Universal Sentence Representations, 2018",
        licence="those of the datasets, which SentEval lists",
        url="https://github.com/facebookresearch/SentEval",
    )
    languages = ("en",)
    files: ClassVar[tuple[tuple[str, str, str | None], ...]]
    line: Callable[[str], Row] | None = None
    header: ClassVar[bool] = False
    scored: ClassVar[bool] = False

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> ClassificationData | SimilarityData:
        """The splits of the task. `streaming` is ignored.

        Args:
            source: The folder `data/downstream` that SentEval's script writes.

        Raises:
            CorpusError: No source, a missing file, or a line that is not as published.
        """
        source = source_of(
            self,
            source,
            "Pass --tasks senteval=FOLDER: the folder data/downstream that SentEval's get_transfer_data.bash writes.",
        )
        source = str(source).removesuffix(self.files[0][1])  # by which the folder was found
        choose_languages(source, languages, ["en"])
        splits: dict[str, list[Row]] = {}
        for split, name, label in self.files:
            rows = self._read(Path(source) / name, label)
            splits.setdefault(split, []).extend(
                (f"en:{split}:{name}:{number}", *row) for number, row in rows
            )
        if "dev" not in splits and "train" in splits:
            splits["dev"] = splits["train"][::DEV_SHARE]
            splits["train"] = [row for n, row in enumerate(splits["train"]) if n % DEV_SHARE]
        provenance = provenance_of(self, source, "test", copy=True)
        columns = {
            split: list(map(list, zip(*rows, strict=True))) for split, rows in splits.items()
        }
        if self.scored:
            pairs = {
                split: SimilarityPairs(*by[:1], *by[2:], by[1]) for split, by in columns.items()
            }
            test = {("en", "en"): pairs.pop("test")}
            return SimilarityData(test, provenance, pairs)
        found = {
            split: Split(ids, texts, labels, *second, place=f"{source}, {split}")
            for split, (ids, labels, texts, *second) in columns.items()
        }
        return ClassificationData({"en": found}, provenance)

    def _read(self, path: Path, label: str | None) -> Iterator[tuple[int, Row]]:
        if not path.exists():
            advice = f"Pass the folder that holds {'/'.join(path.parts[-2:])}, or run SentEval's get_transfer_data.bash."
            raise bad_value(str(path), None, None, Words("no file"), "one of SentEval", advice)
        data = path.read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError:  # some are as old as their tasks
            text = data.decode("latin-1")
        rows = [
            (number, line.strip())
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
        for number, line in rows[self.header :]:
            try:
                row = (label, line) if label else self.line(line)
            except (IndexError, ValueError):
                found = line if len(line) < 80 else line[:80] + "..."
                advice = "Fetch the file again."
                raise bad_value(
                    str(path), number, None, found, "a line of SentEval's file", advice
                ) from None
            yield number, (read_score(str(path), number, row[0]), *row[1:]) if self.scored else row


def _task(
    name: str, description: str, *files: tuple[str, str, str | None], **attributes: object
) -> type[SentEval]:
    about = {"name": f"senteval_{name}", "description": f"SentEval: {description}", "files": files}
    about["local_names"] = (files[0][1], f"downstream/{files[0][1]}")
    line = {"line": staticmethod(attributes.pop("line"))} if "line" in attributes else {}
    return type(
        f"SentEval_{name}",
        (SentEval,),
        {"__doc__": f"SentEval: {description}.", **about, **line, **attributes},
    )


def _three(pattern: str, *names: str) -> Iterator[tuple[str, str, None]]:
    """Files of the splits."""
    splits = ("train", "dev", "test") if len(names) == 3 else ("train", "test")
    return ((split, pattern.format(name), None) for split, name in zip(splits, names, strict=True))


_SICK = ("SICK/SICK_{}.txt", "train", "trial", "test_annotated")
SENTEVAL: list[type[SentEval]] = [
    _task("mr", "sentiment of films", *(("all", f"MR/rt-polarity.{x}", x) for x in ("pos", "neg"))),
    _task("cr", "sentiment of products", *(("all", f"CR/custrev.{x}", x) for x in ("pos", "neg"))),
    _task(
        "subj", "subjectivity", *(("all", f"SUBJ/subj.{x}", x) for x in ("objective", "subjective"))
    ),
    _task("mpqa", "opinion polarity", *(("all", f"MPQA/mpqa.{x}", x) for x in ("pos", "neg"))),
    _task(
        "sst2",
        "sentiment, 2 classes",
        *_three("SST/binary/sentiment-{}", "train", "dev", "test"),
        line=_label_behind,
    ),
    _task(
        "sst5",
        "sentiment, 5 classes",
        *_three("SST/fine/sentiment-{}", "train", "dev", "test"),
        line=_label_before,
    ),
    _task(
        "trec",
        "type of question",
        *_three("TREC/{}.label", "train_5500", "TREC_10"),
        line=_question,
    ),
    _task(
        "mrpc",
        "paraphrases",
        *_three("MRPC/msr_paraphrase_{}.txt", "train", "test"),
        line=_columns(0, 3, 4),
        header=True,
    ),
    _task("sick_e", "entailment", *_three(*_SICK), line=_columns(4, 1, 2), header=True),
    _task(
        "sick_r",
        "relatedness, supervised",
        *_three(*_SICK),
        line=_columns(3, 1, 2),
        header=True,
        scored=True,
    ),
    _task(
        "stsb",
        "similarity, supervised",
        *_three("STS/STSBenchmark/sts-{}.csv", "train", "dev", "test"),
        line=_columns(4, 5, 6),
        scored=True,
    ),
]
