"""SentEval's transfer tasks (Conneau & Kiela, 2018): English sentence vectors in other tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages

from .base import (
    ClassificationData,
    LabeledText,
    Languages,
    Provenance,
    ScoredPair,
    SimilarityData,
    SimilarityPairs,
    Source,
    Split,
    Task,
)
from .sources import hold_out_dev, provenance_of, read_score, source_of

MAX_SHOWN = 80  # Characters of a bad line in a message.


class Fields(NamedTuple):
    """What a line holds.

    Args:
        label: A class name, or a score.
        text: The text, or the first of a pair.
        second_text: The second text of a pair; None for single texts.
    """

    label: str
    text: str
    second_text: str | None = None


class Row(NamedTuple):
    """A line with its place."""

    item_id: str
    place: str
    line_number: int
    fields: Fields


class SentEval(Task):
    """A transfer task of SentEval (`data/downstream`; Conneau, 2019, section 3.1), in English.

    Pairs are [u, v, |u - v|, u * v], as in Conneau (2019); SentEval's code leaves u and v out.

    Attributes:
        files: The names of the files by split; `all` is for ten-fold cross-validation.
        header: Whether files begin with a header.
    """

    provenance = Provenance(
        citation="Conneau and Kiela, SentEval: An Evaluation Toolkit for Universal Sentence "
        "Representations, 2018",
        license="those of the datasets, which SentEval lists",
        url="https://github.com/facebookresearch/SentEval",
    )
    languages = ("en",)
    needs = "the folder data/downstream that SentEval's script writes"
    files: ClassVar[dict[str, Sequence[str]]]
    header: ClassVar[bool] = False

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> ClassificationData | SimilarityData:
        """Load the splits of the task.

        Args:
            source: The folder `data/downstream` that SentEval's script writes.
            languages: None or English.
            streaming: Ignored.

        Raises:
            CorpusError: No source, a missing file, or a line that is not as published.
        """
        advice = (
            "Pass --tasks senteval=FOLDER: the folder data/downstream that SentEval's "
            "get_transfer_data.bash writes."
        )
        source = source_of(self, source, advice)
        # A data folder is searched for the first file of the task.
        first_file = next(iter(self.files.values()))[0]
        folder = source.removesuffix(first_file)
        choose_languages(folder, languages, ["en"])
        rows: dict[str, list[Row]] = {}
        for split, names in self.files.items():
            rows[split] = []
            for name in names:
                rows[split] += self._read_file(Path(folder), name, split)
        if "train" in rows and "dev" not in rows:
            rows["train"], rows["dev"] = hold_out_dev(rows["train"])
        return self._make_data(rows, folder)

    def _make_data(
        self, rows: dict[str, list[Row]], folder: str
    ) -> ClassificationData | SimilarityData:
        """Return the rows as classification data."""
        splits = {}
        for name, split_rows in rows.items():
            splits[name] = Split.of(map(_labeled_text, split_rows), f"{folder}, {name}")
        provenance = provenance_of(self, folder, "test", copy=True)
        return ClassificationData({"en": splits}, provenance)

    def _read_file(self, folder: Path, name: str, split: str) -> Iterator[Row]:
        """Yield the rows of a file.

        Raises:
            CorpusError: The file is missing, or a line is not as published.
        """
        path = folder / name
        if not path.exists():
            advice = (
                f"Pass the folder that holds {'/'.join(path.parts[-2:])}, or run SentEval's "
                "get_transfer_data.bash."
            )
            raise bad_value(str(path), None, None, Unquoted("no file"), "one of SentEval", advice)
        is_header = self.header
        for number, line in enumerate(_read_text(path).split("\n"), 1):
            line = line.strip()
            if not line:
                continue
            if is_header:
                is_header = False
                continue
            try:
                fields = self.read_line(line, name)
            except (IndexError, ValueError):
                shown = line
                if len(line) >= MAX_SHOWN:
                    shown = line[:MAX_SHOWN] + "..."
                raise bad_value(
                    str(path),
                    number,
                    None,
                    shown,
                    "a line of SentEval's file",
                    "Fetch the file again.",
                ) from None
            yield Row(f"en:{split}:{name}:{number}", str(path), number, fields)

    def read_line(self, line: str, name: str) -> Fields:
        """Return what a line holds.

        Args:
            line: The line, without white space around it.
            name: The name of its file.

        Raises:
            IndexError: The line has too few fields.
            ValueError: The line has too few fields.
        """
        raise NotImplementedError


def _read_text(path: Path) -> str:
    """Return the text of a file, which is in Latin-1 if it is as old as its task."""
    data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _labeled_text(row: Row) -> LabeledText:
    fields = row.fields
    return LabeledText(row.item_id, fields.text, fields.label, fields.second_text)


def _scored_pair(row: Row) -> ScoredPair:
    """Return the pair of a row.

    Raises:
        CorpusError: Its score is not a finite number.
    """
    score = read_score(row.place, row.line_number, row.fields.label)
    return ScoredPair(row.item_id, row.fields.text, row.fields.second_text or "", score)


class OneClassAFile(SentEval):
    """A task whose files hold the texts of one class each.

    Attributes:
        labels: The class of each file.
    """

    labels: ClassVar[dict[str, str]]

    def read_line(self, line: str, name: str) -> Fields:
        """Return the label of the file, and the line as the text."""
        return Fields(self.labels[name], line)


class ScoredPairs(SentEval):
    """A task whose labels are similarities to predict, supervised by those of train and dev."""

    def _make_data(self, rows: dict[str, list[Row]], folder: str) -> SimilarityData:
        """Return the rows as similarity data."""
        pairs = {}
        for name, split_rows in rows.items():
            pairs[name] = SimilarityPairs.of(map(_scored_pair, split_rows))
        test_pairs = pairs.pop("test")
        provenance = provenance_of(self, folder, "test", copy=True)
        return SimilarityData({("en", "en"): test_pairs}, provenance, pairs)


class MovieReviews(OneClassAFile):
    """SentEval: sentiment of films."""

    name = "senteval_mr"
    description = "SentEval: sentiment of movie reviews"
    files = {"all": ("MR/rt-polarity.pos", "MR/rt-polarity.neg")}
    labels = {"MR/rt-polarity.pos": "pos", "MR/rt-polarity.neg": "neg"}
    local_names = ("MR/rt-polarity.pos", "downstream/MR/rt-polarity.pos")


class CustomerReviews(OneClassAFile):
    """SentEval: sentiment of products."""

    name = "senteval_cr"
    description = "SentEval: sentiment of product reviews"
    files = {"all": ("CR/custrev.pos", "CR/custrev.neg")}
    labels = {"CR/custrev.pos": "pos", "CR/custrev.neg": "neg"}
    local_names = ("CR/custrev.pos", "downstream/CR/custrev.pos")


class Subjectivity(OneClassAFile):
    """SentEval: subjectivity."""

    name = "senteval_subj"
    description = "SentEval: subjectivity"
    files = {"all": ("SUBJ/subj.objective", "SUBJ/subj.subjective")}
    labels = {"SUBJ/subj.objective": "objective", "SUBJ/subj.subjective": "subjective"}
    local_names = ("SUBJ/subj.objective", "downstream/SUBJ/subj.objective")


class OpinionPolarity(OneClassAFile):
    """SentEval: opinion polarity."""

    name = "senteval_mpqa"
    description = "SentEval: opinion polarity"
    files = {"all": ("MPQA/mpqa.pos", "MPQA/mpqa.neg")}
    labels = {"MPQA/mpqa.pos": "pos", "MPQA/mpqa.neg": "neg"}
    local_names = ("MPQA/mpqa.pos", "downstream/MPQA/mpqa.pos")


class BinarySentiment(SentEval):
    """SentEval: sentiment, 2 classes."""

    name = "senteval_sst2"
    description = "SentEval: sentiment, 2 classes"
    files = {
        "train": ("SST/binary/sentiment-train",),
        "dev": ("SST/binary/sentiment-dev",),
        "test": ("SST/binary/sentiment-test",),
    }
    local_names = ("SST/binary/sentiment-train", "downstream/SST/binary/sentiment-train")

    def read_line(self, line: str, name: str) -> Fields:
        """Read `text<TAB>label`."""
        text, label = line.rsplit("\t", 1)
        return Fields(label, text)


class FineSentiment(SentEval):
    """SentEval: sentiment, 5 classes."""

    name = "senteval_sst5"
    description = "SentEval: sentiment, 5 classes"
    files = {
        "train": ("SST/fine/sentiment-train",),
        "dev": ("SST/fine/sentiment-dev",),
        "test": ("SST/fine/sentiment-test",),
    }
    local_names = ("SST/fine/sentiment-train", "downstream/SST/fine/sentiment-train")

    def read_line(self, line: str, name: str) -> Fields:
        """Read `label text`."""
        label, text = line.split(" ", 1)
        return Fields(label, text)


class QuestionTypes(SentEval):
    """SentEval: type of question."""

    name = "senteval_trec"
    description = "SentEval: question type"
    files = {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)}
    local_names = ("TREC/train_5500.label", "downstream/TREC/train_5500.label")

    def read_line(self, line: str, name: str) -> Fields:
        """Read `CLASS:subclass text`."""
        full_label, text = line.split(" ", 1)
        label, _ = full_label.split(":", 1)
        return Fields(label, text)


class Paraphrases(SentEval):
    """SentEval: paraphrases."""

    name = "senteval_mrpc"
    description = "SentEval: paraphrases"
    files = {
        "train": ("MRPC/msr_paraphrase_train.txt",),
        "test": ("MRPC/msr_paraphrase_test.txt",),
    }
    header = True
    local_names = ("MRPC/msr_paraphrase_train.txt", "downstream/MRPC/msr_paraphrase_train.txt")

    def read_line(self, line: str, name: str) -> Fields:
        """Read label, two ids and two texts, with tabs between."""
        columns = line.split("\t")
        return Fields(columns[0], columns[3], columns[4])


class Entailment(SentEval):
    """SentEval: entailment."""

    name = "senteval_sick_e"
    description = "SentEval: entailment"
    files = {
        "train": ("SICK/SICK_train.txt",),
        "dev": ("SICK/SICK_trial.txt",),
        "test": ("SICK/SICK_test_annotated.txt",),
    }
    header = True
    local_names = ("SICK/SICK_train.txt", "downstream/SICK/SICK_train.txt")

    def read_line(self, line: str, name: str) -> Fields:
        """Read id, two texts, relatedness and label, with tabs between."""
        columns = line.split("\t")
        return Fields(columns[4], columns[1], columns[2])


class Relatedness(ScoredPairs):
    """SentEval: relatedness, supervised."""

    name = "senteval_sick_r"
    description = "SentEval: relatedness, supervised"
    files = Entailment.files
    header = True
    local_names = Entailment.local_names

    def read_line(self, line: str, name: str) -> Fields:
        """Read id, two texts, relatedness and label, with tabs between."""
        columns = line.split("\t")
        return Fields(columns[3], columns[1], columns[2])


class SimilarityBenchmark(ScoredPairs):
    """SentEval: similarity, supervised."""

    name = "senteval_stsb"
    description = "SentEval: similarity, supervised"
    files = {
        "train": ("STS/STSBenchmark/sts-train.csv",),
        "dev": ("STS/STSBenchmark/sts-dev.csv",),
        "test": ("STS/STSBenchmark/sts-test.csv",),
    }
    local_names = ("STS/STSBenchmark/sts-train.csv", "downstream/STS/STSBenchmark/sts-train.csv")

    def read_line(self, line: str, name: str) -> Fields:
        """Read four columns of origin, score and two texts, with tabs between."""
        columns = line.split("\t")
        return Fields(columns[4], columns[5], columns[6])


SENTEVAL: list[type[SentEval]] = [
    MovieReviews,
    CustomerReviews,
    Subjectivity,
    OpinionPolarity,
    BinarySentiment,
    FineSentiment,
    QuestionTypes,
    Paraphrases,
    Entailment,
    Relatedness,
    SimilarityBenchmark,
]
