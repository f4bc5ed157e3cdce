"""Mine translations in two files of sentences, and write the pairs."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from typing_extensions import Unpack

from modeling_tmde import TmdeError
from tmde.data.model_languages import LanguageWatch, describe_unknown
from tmde.documents import mining
from tmde.documents.calibration import (
    DEFAULT_MIN_PROBABILITY,
    DEFAULT_SHARE,
    Calibration,
    check_min_probability,
    check_share,
    mined_pair_evidence,
)
from tmde.documents.corpus_writer import checked_output, write_rows
from tmde.documents.document_sets import (
    DocumentSet,
    Reading,
    Sides,
    needed_languages,
    open_embedder_of_sides,
    read_sides,
    unknown_languages_of_sides,
    warn_of_threshold,
)
from tmde.documents.memory_writer import write_memory
from tmde.documents.mining import ChosenTexts, ScoredPairs
from tmde.documents.neighbors import check_scoring
from tmde.documents.pair_probabilities import find_calibration, needed_calibration, warn_of_few
from tmde.documents.quality import PairQuality, pair_quality
from tmde.documents.unit_rows import slices
from tmde.embedding import DocumentEmbedder
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.quantization import DTYPES, PACKED, check_precision, signed_bytes

logger = logging.getLogger(__name__)

_DECIMALS = 6
_BLOCK = 16_384  # vectors that are copied at a time


@dataclass(frozen=True)
class MiningReport:
    """The report of `mine_files`.

    Attributes:
        pairs: The number of mined pairs.
        threshold: The threshold with the highest F1; None if not optimized.
        quality: The comparison with the gold pairs; None without them.
        notes: Sentences about what was done.
    """

    pairs: int
    threshold: float | None
    quality: PairQuality | None
    notes: list[str]

    def sentences(self) -> list[str]:
        """Return the report as sentences to print."""
        return self.notes


def mine_files(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    model: str | None = None,
    loading: Mapping[str, Any] | None = None,
    language_a: str | None = None,
    language_b: str | None = None,
    vectors_a: str | os.PathLike[str] | None = None,
    vectors_b: str | os.PathLike[str] | None = None,
    precision: str = "float32",
    truncate_dim: int | None = None,
    scoring: str = "ratio",
    k: int = 4,
    retrieval: str = "max",
    threshold: float | None = None,
    max_pairs: int | None = None,
    drop_identical: bool = False,
    search: str = "auto",
    min_probability: float | None = None,
    share: float | None = None,
    calibration: str | os.PathLike[str] | None = None,
    gold: str | os.PathLike[str] | None = None,
    optimize_threshold: bool = False,
    judge_anyway: bool = False,
    **reading: Unpack[Reading],
) -> MiningReport:
    """Mine bitext: write sentence pairs that are translations, best first.

    Repeated sentences count once. By default, pairs with a probability below 0.4 are omitted. If
    the model has no calibration, every sentence that has a partner is written, correct or not.

    Args:
        a: A file or folder of sentences in one language: text (one sentence per line), CSV, TSV,
            JSONL or parquet; `-` is stdin.
        b: The same in the other language.
        output: The file to write or replace: .tsv, .tmx or .jsonl. With both languages, .jsonl is a
            parallel corpus.
        model: A folder, a Hub id or a packaged model's name. Default: the default model.
        loading: Arguments for `DocumentEmbedder.from_pretrained`.
        language_a: The language code of A.
        language_b: The language code of B.
        vectors_a: The vectors of A from `tmde embed`, .npy, (n, d), instead of embedding A.
        vectors_b: The vectors of B, (m, d).
        precision: The type of the vectors, including those in files.
        truncate_dim: Use only the first `truncate_dim` elements of each vector.
        scoring: `cosine`, `ratio` or `distance`; see [`~tmde.documents.mine_bitext`].
        k: The number of neighbors for a margin.
        retrieval: `forward`, `backward`, `intersection` or `max`.
        threshold: The minimum score of a pair; None for no limit.
        max_pairs: Keep only the best `max_pairs` pairs; None for all.
        drop_identical: Omit pairs of identical texts.
        search: `auto`, `exact` or `hnsw`.
        min_probability: The minimum probability of a pair; 0 keeps all. Default: 0.4 if the model
            is calibrated and no other option limits the pairs, otherwise 0.
        share: The expected share of sentences that have a translation on the other side. Default:
            0.5.
        calibration: A calibration file. Default: the model's own.
        gold: A file of correct pairs for evaluation: two tab-separated ids per line.
        optimize_threshold: Keep the pairs above the threshold with the highest F1 on `gold`.
        judge_anyway: Also mine languages that the model does not support.
        reading: The fields of [`~tmde.documents.document_sets.Reading`].

    Raises:
        TmdeError: A file, the model or an argument can't be used, or the model does not support a
            language.
        OSError: A file does not exist.

    Example:
        ```python
        from tmde import mine_files

        report = mine_files("news.de.txt", "news.en.txt", "pairs.tsv")
        print(*report.sentences())
        ```
    """
    target = checked_output(output, (".tsv", ".jsonl", ".tmx"), inputs=(a, b))
    model_name = _model_of_vectors(model, vectors_a, vectors_b)
    if optimize_threshold:
        _check_optimization(gold, threshold, max_pairs, min_probability)
    check_scoring(scoring, k)
    mining.check_retrieval(retrieval)
    check_precision(precision)
    check_share(DEFAULT_SHARE if share is None else share)
    is_limited = optimize_threshold or (threshold, max_pairs) != (None, None)
    least_probability = _least_probability(min_probability, is_limited)
    _check_languages(target, language_a, language_b)
    sides = read_sides(a, b, language_a, language_b, **reading)
    first = Candidates.of(sides[0])
    second = Candidates.of(sides[1])
    right_pairs = None if gold is None else _read_right_pairs(gold, first, second)
    needs_probabilities = (min_probability, share, calibration) != (None, None, None)
    # Vectors may need much space, so they go where the output has to find space, too.
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        files = MinedVectors(Path(folder), precision, truncate_dim)
        vectors_of_first = files.open(vectors_a, sides[0])
        vectors_of_second = files.open(vectors_b, sides[1])
        embedder = None
        if model_name is not None and None in (vectors_a, vectors_b):
            embedder = _open_embedder(model_name, loading, sides, judge_anyway)
        model_calibration: Calibration | None
        if needs_probabilities:
            model_calibration = needed_calibration(calibration, model_name, loading, embedder)
        else:
            model_calibration = find_calibration(model_name, loading, embedder)
        model_calibration = _usable_calibration(model_calibration, files, k, needs_probabilities)
        pairs = mining.mine_bitext(
            files.of(first, vectors_of_first, embedder),
            files.of(second, vectors_of_second, embedder),
            # No candidate is empty or repeated, so texts are needed to compare both of a pair only.
            first.texts if drop_identical else None,
            second.texts if drop_identical else None,
            scoring,
            k,
            retrieval,
            threshold,
            max_pairs,
            drop_identical,
            search,
        )
    pairs = pairs.renumbered(first.rows, second.rows)
    if not len(pairs) and threshold is not None:
        warn_of_threshold(threshold)
    notes = files.notes
    best_threshold = None
    if optimize_threshold and right_pairs is not None:
        best_threshold, best_quality = mining.best_threshold(pairs, right_pairs)
        pairs = pairs[: best_quality.found]  # The best pairs come first.
        notes.append(
            f"threshold={best_threshold:.6g} has the highest F1 on {gold}: {best_quality.f1:.4f}; "
            "measure it on another list for an unbiased score"
        )
    probabilities = None
    if model_calibration is not None:
        warn_of_few(min(len(first.rows), len(second.rows)), "sentences of a side")
        pairs, probabilities = _with_probabilities(
            sides, pairs, model_calibration, share, least_probability, notes
        )
    _write_pairs(target, sides, pairs, probabilities)
    quality = None
    if right_pairs is not None:
        quality = pair_quality(pairs.rows(), right_pairs)
        notes.append(f"{gold}: {quality}")
    notes.append(f"{len(pairs):,} pairs ({scoring}, {retrieval}{_range(pairs)}) -> {output}")
    return MiningReport(len(pairs), best_threshold, quality, notes)


def _check_languages(target: Path, language_a: str | None, language_b: str | None) -> None:
    """Raise `TmdeError` if one language is missing, or both where the output names them."""
    if (language_a is None) != (language_b is None):
        raise TmdeError("Found one of language_a and language_b, expected both or neither")
    if target.suffix == ".tmx" and language_a is None:
        raise TmdeError(
            f"output: found {target.name} without languages; a translation memory needs "
            "language_a and language_b"
        )


def _check_optimization(gold: object, *limits: float | None) -> None:
    """Raise `TmdeError` if there are no right pairs, or if a limit leaves out some pairs."""
    if gold is None or any(limit is not None for limit in limits):
        raise TmdeError(
            "optimize_threshold needs gold=FILE, and no threshold, max_pairs or min_probability"
        )


def _open_embedder(
    model: str, loading: Mapping[str, Any] | None, sides: Sides, judge_anyway: bool
) -> DocumentEmbedder:
    """Open a model, and check that it knows the languages of both sides, or only warn.

    Raises:
        TmdeError: It does not know one.
    """
    embedder = open_embedder_of_sides(model, loading, sides)
    unknown = unknown_languages_of_sides(embedder, sides)
    if judge_anyway or not unknown:
        LanguageWatch(embedder).check_codes(unknown)
        return embedder
    raise TmdeError(f"{describe_unknown(embedder, unknown)} To mine anyway, set judge_anyway=True")


def _model_of_vectors(
    model: str | None,
    vectors_a: str | os.PathLike[str] | None,
    vectors_b: str | os.PathLike[str] | None,
) -> str | None:
    """Return the model of the vectors; None if all are in files, because it is not known then.

    Raises:
        TmdeError: Vectors of one side have no model, or those of both sides have one.
    """
    file_count = 2 - (vectors_a, vectors_b).count(None)
    if file_count == 0:
        return model or DEFAULT_MODEL
    if (file_count == 2) == (model is not None):
        raise TmdeError(
            "Set both vectors_a and vectors_b without a model, or one of them with its model"
        )
    return model


def _usable_calibration(
    calibration: Calibration | None, files: "MinedVectors", k: int, is_needed: bool
) -> Calibration | None:
    """Return the calibration, if it is that of pairs that are mined so; otherwise warn.

    Raises:
        TmdeError: It is not, and it is needed.
    """
    if calibration is None:
        return None
    if not files.keep_cosines:
        reason = (
            "they need whole vectors: no truncate_dim, and the precision float32, int8 or uint8"
        )
    elif k != calibration.neighbors:
        reason = (
            f"found k={k}, expected k={calibration.neighbors}, the neighbors of the calibration"
        )
    else:
        return calibration
    if is_needed:
        raise TmdeError(f"Cannot compute probabilities: {reason}")
    logger.warning("No probabilities: %s", reason)
    return None


def _least_probability(min_probability: float | None, is_limited: bool) -> float:
    """Return the lowest probability of a pair.

    Args:
        min_probability: That of the user; None for the default.
        is_limited: Whether something else limits the pairs.

    Raises:
        TmdeError: It is out of range.
    """
    check_min_probability(min_probability)
    if min_probability is not None:
        return min_probability
    return 0.0 if is_limited else DEFAULT_MIN_PROBABILITY


def _with_probabilities(
    sides: Sides,
    pairs: ScoredPairs,
    calibration: Calibration,
    share: float | None,
    min_probability: float,
    notes: list[str],
) -> tuple[ScoredPairs, np.ndarray]:
    """Return the pairs that are probable enough, and their probabilities, (p,).

    Args:
        sides: Both sides, with their texts.
        pairs: All pairs.
        calibration: The calibration of the model.
        share: The share of sentences that have a translation; None for the default.
        min_probability: The lowest probability of a pair.
        notes: Get the number of pairs that are left out.
    """
    first, second = sides
    evidence = mined_pair_evidence(pairs, first.texts, second.texts)
    probabilities = calibration.probabilities(evidence, DEFAULT_SHARE if share is None else share)
    is_probable = probabilities >= min_probability
    if len(pairs) and not is_probable.any():
        logger.warning(
            "No pair reaches the probability %g; the best has %.3f",
            min_probability,
            probabilities.max(),
        )
    if min_probability:
        left_out = np.count_nonzero(~is_probable)
        pairs_left_out = "1 pair" if left_out == 1 else f"{left_out:,} pairs"
        notes.append(f"Left out {pairs_left_out} with a probability below {min_probability:g}")
    return pairs[is_probable], probabilities[is_probable]


def _range(pairs: ScoredPairs) -> str:
    """Return the lowest and the highest score for people; "" without pairs."""
    if not len(pairs):
        return ""
    return f", scores {pairs.scores[-1]:.4f} to {pairs.scores[0]:.4f}"


@dataclass(frozen=True)
class Candidates:
    """The sentences of one side that take part: neither empty nor repeated.

    Attributes:
        side: All sentences.
        occurrences: For each row of the side, the first row with the same sentence, (n,) int64.
        rows: The rows that take part, (candidates,) int64.
    """

    side: DocumentSet
    occurrences: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, side: DocumentSet) -> "Candidates":
        """Find the sentences of a side that take part."""
        occurrences, rows = mining.first_occurrences(side.texts)
        return cls(side, occurrences, rows)

    @property
    def texts(self) -> Sequence[str]:
        """The sentences that take part."""
        return ChosenTexts(self.side.texts, self.rows)


def _read_right_pairs(
    gold: str | os.PathLike[str], first: Candidates, second: Candidates
) -> set[tuple[int, int]]:
    """Read the gold list as pairs of rows.

    A pair of repeated sentences is that of their first occurrences, because these alone are mined.
    """
    right_pairs = set()
    for first_row, second_row in mining.read_gold_pairs(gold, first.side.ids, second.side.ids):
        pair = int(first.occurrences[first_row]), int(second.occurrences[second_row])
        right_pairs.add(pair)
    return right_pairs


class MinedVectors:
    """Makes vectors whose cosines can be taken: of files, or embedded into temporary ones.

    They are mapped from files, because a side may be larger than memory.

    Args:
        folder: An empty folder for files of vectors.
        precision: How the numbers of vectors are stored, as by `tmde embed`.
        truncate_dim: How many numbers of a vector are kept, except for signs in files; None for
            all.

    Attributes:
        notes: What was embedded, a sentence for each side.
    """

    def __init__(self, folder: Path, precision: str, truncate_dim: int | None) -> None:
        self.folder = folder
        self.precision = precision
        self.truncate_dim = truncate_dim
        self.notes: list[str] = []
        self._file_count = 0

    @property
    def keep_cosines(self) -> bool:
        """Whether the vectors have nearly the cosines that the model's own have."""
        return self.truncate_dim is None and self.precision not in PACKED

    def open(self, path: str | os.PathLike[str] | None, side: DocumentSet) -> np.ndarray | None:
        """Open the vectors of all rows of a side, (n, width), which stay in their file.

        Args:
            path: The file; None without one, which returns None.
            side: The sentences.

        Raises:
            TmdeError: The file holds something else.
        """
        if path is None:
            return None
        try:
            vectors: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise TmdeError(f"{path}: not a .npy file ({error})") from error
        if vectors.ndim != 2 or len(vectors) != len(side):
            raise TmdeError(
                f"{path}: found shape {vectors.shape}, expected ({len(side)}, d): one vector "
                f"per row of {side.name}, in the same order, including repeated and empty "
                "rows"
            )
        expected = DTYPES[self.precision]
        has_floats = np.issubdtype(vectors.dtype, np.floating)
        if vectors.dtype != expected and not (has_floats and self.precision == "float32"):
            raise TmdeError(
                f"{path}: found {vectors.dtype} elements, expected {expected}; set the "
                "precision they were embedded with"
            )
        if self.truncate_dim is None or self.precision in PACKED:
            return vectors
        return vectors[:, : self.truncate_dim]

    def of(
        self, candidates: Candidates, vectors: np.ndarray | None, embedder: DocumentEmbedder | None
    ) -> np.ndarray:
        """Return the vectors of the sentences that take part, (candidates, d).

        They are in a new file unless all vectors of another one can be taken as they are.

        Args:
            candidates: The sentences.
            vectors: What `open` returns, (n, width); None to embed the sentences.
            embedder: The model; None if there are vectors.
        """
        rows = candidates.rows
        if vectors is None:
            assert embedder is not None  # It was opened because a side has no vectors.
            vectors, note = candidates.side.embed_to_file(
                rows, embedder, self._new_file(), self.truncate_dim, self.precision
            )
            self.notes.append(note)
            rows = np.arange(len(rows))
        if len(rows) == len(vectors) and self.precision in ("float32", "int8"):
            return vectors
        return self._converted(vectors, rows)

    def _converted(self, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Copy the vectors of some rows to a new file, as numbers that cosines can be taken of."""
        first_rows = self._comparable(vectors[:1])
        target = np.lib.format.open_memmap(
            self._new_file(), "w+", first_rows.dtype, (len(rows), first_rows.shape[1])
        )
        for block in slices(len(rows), _BLOCK):
            target[block] = self._comparable(vectors[rows[block]])
        target.flush()
        return target

    def _comparable(self, vectors: np.ndarray) -> np.ndarray:
        if self.precision == "float32":
            return vectors
        return signed_bytes(vectors, self.precision)

    def _new_file(self) -> Path:
        self._file_count += 1
        return self.folder / f"{self._file_count}.npy"


def _write_pairs(
    target: Path, sides: Sides, pairs: ScoredPairs, probabilities: np.ndarray | None
) -> None:
    """Write pairs as TSV, TMX or JSONL; JSONL of known languages is a parallel corpus."""
    first, second = sides
    is_corpus = target.suffix != ".tsv" and first.language is not None
    scores = {"score": _rounded(pairs.scores)}
    if probabilities is not None:
        scores["probability"] = _rounded(probabilities)
    columns = [*scores, "id_a", "id_b", "text_a", "text_b"]
    if is_corpus:
        columns = ["translation", *scores, "ids"]
    rows = _rows(sides, pairs, list(scores.values()), is_corpus)
    if target.suffix == ".tmx":
        languages = needed_languages(sides, "A translation memory needs")
        write_memory(target, languages, columns[:-1], (row[:-1] for row in rows))
    else:
        write_rows(target, columns, rows)


def _rows(
    sides: Sides, pairs: ScoredPairs, scores: list[list[float]], is_corpus: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each pair as it is written.

    Args:
        sides: Both sides.
        pairs: The pairs.
        scores: The columns of scores.
        is_corpus: Whether the rows are those of a parallel corpus.
    """
    first, second = sides
    for position in range(len(pairs)):
        first_row = pairs.first[position]
        second_row = pairs.second[position]
        values = [column[position] for column in scores]
        first_id = first.ids[first_row]
        first_text = first.texts[first_row]
        second_id = second.ids[second_row]
        second_text = second.texts[second_row]
        if is_corpus:
            translation = {first.language: first_text, second.language: second_text}
            ids = {first.language: first_id, second.language: second_id}
            yield translation, *values, ids
        else:
            yield *values, first_id, second_id, first_text, second_text


def _rounded(numbers: np.ndarray) -> list[float]:
    """Return numbers as they are written."""
    return [round(number, _DECIMALS) for number in numbers.tolist()]
