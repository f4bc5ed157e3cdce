"""Pair the documents of two files, align their sentences, and write both."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from modeling_tmde import TmdeError
from tmde.data.model_languages import LanguageWatch
from tmde.documents.alignment import CLEAR_DISTINCTNESS, AlignedPair, align_documents
from tmde.documents.alignment_leftovers import AlignmentLeftovers
from tmde.documents.bead_probabilities import ALIGNED_PROBABILITY, ALIGNED_SHARE
from tmde.documents.calibration import Calibration, check_min_probability, check_share
from tmde.documents.corpus_writer import checked_output_or_none, write_rows
from tmde.documents.distinct_pairs import check_min_distinctness
from tmde.documents.document_sets import (
    Reading,
    Sides,
    needed_languages,
    open_embedder_of_sides,
    read_sides,
    unknown_languages_of_sides,
    warn_of_threshold,
)
from tmde.documents.language_debiaser import Rank
from tmde.documents.lawdr import Lawdr
from tmde.documents.memory_writer import write_memory
from tmde.documents.mining import GoldPairs, read_gold_pairs
from tmde.documents.neighbors import check_scoring
from tmde.documents.pair_probabilities import find_calibration, needed_calibration, warn_of_few
from tmde.documents.parallel_rows import Outcome, ParallelRowsReport, parallel_rows
from tmde.documents.quality import PairQuality, alignment_quality
from tmde.embedding import DocumentEmbedder
from tmde.embedding.opening import without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar

_DECIMALS = 6


@dataclass
class AlignmentReport:
    """The report of `align_files`.

    Attributes:
        pairs: The number of document pairs; None if known pairs were passed.
        pairs_by_url: The number of document pairs found by URL.
        quality: The comparison with the reference; None without one.
        beads: The counts of sentences read, aligned and omitted; None if no rows were written.
        notes: Sentences about what was done.
    """

    pairs: int | None = None
    pairs_by_url: int = 0
    quality: PairQuality | None = None
    beads: ParallelRowsReport | None = None
    notes: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """Return the report as sentences to print."""
        return self.notes


def align_files(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    rows: str | os.PathLike[str] | None = None,
    unpaired: str | os.PathLike[str] | None = None,
    identical: str | os.PathLike[str] | None = None,
    model: str = DEFAULT_MODEL,
    loading: Mapping[str, Any] | None = None,
    url_field: str | None = None,
    language_a: str | None = None,
    language_b: str | None = None,
    same_domain: bool = False,
    scoring: str = "ratio",
    k: int = 4,
    threshold: float | None = None,
    min_distinctness: float = 0.0,
    lawdr_rank: Rank | None = None,
    pairs: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    paragraphs: bool = False,
    min_score: float | None = None,
    min_probability: float | None = None,
    share: float | None = None,
    calibration: str | os.PathLike[str] | None = None,
    **reading: Unpack[Reading],
) -> AlignmentReport:
    """Align documents one to one, and align their sentences.

    By default, every document that has a partner is paired, and sentence pairs with a probability
    below 0.1 are omitted.

    Args:
        a: A file or folder of documents in one language: text (one document per line), CSV, TSV,
            JSONL or parquet; `-` is stdin.
        b: The same in the other language.
        output: The .tsv file for the document pairs, best first.
        rows: The .jsonl or .tmx file for the aligned sentences. Requires both languages.
        unpaired: The .tsv or .jsonl file for unpaired documents and, with `rows`, for sentences
            without a good partner.
        identical: The .tsv or .jsonl file for documents and, with `rows`, sentences that are
            identical on both sides.
        model: A folder, a Hub id or a packaged model's name.
        loading: Arguments for `DocumentEmbedder.from_pretrained`. Default: documents are embedded
            sentence by sentence (`long_documents`).
        url_field: The URL column. Documents with matching URLs are paired first.
        language_a: The language code of A.
        language_b: The language code of B.
        same_domain: Pair only documents from the same website.
        scoring: `cosine`, `ratio` or `distance`; see [`~tmde.documents.align_documents`].
        k: The number of neighbors for a margin.
        threshold: The minimum score of a pair, unless URLs match; None for no limit.
        min_distinctness: The minimum distinctness of such a pair, from 0 to 1, see
            [`~tmde.documents.distinct_pairs`]. 0.25 suits pages if many have no translation.
        lawdr_rank: Embed with LAWDR and remove this many directions, or `auto`. Requires both
            languages.
        pairs: A file of known pairs, in the format of `output` or as two ids separated by a tab.
            Only their sentences are aligned.
        reference: A file of correct pairs in the same format, for evaluation.
        paragraphs: Align lines instead of sentences.
        min_score: The minimum score of a sentence pair, from 0 (unrelated) to 1; None for no limit.
        min_probability: The minimum probability of a sentence pair; 0 keeps all. Default: 0.1 if
            the model is calibrated and there is no `min_score`, otherwise 0.
        share: The expected share of correct sentence pairs. Default: 0.9.
        calibration: A calibration file. Default: the model's own.
        reading: The fields of [`~tmde.documents.document_sets.Reading`].

    Raises:
        TmdeError: A file, the model or an argument can't be used.
        OSError: A file does not exist.

    Example:
        ```python
        from tmde import align_files

        report = align_files(
            "german.jsonl",
            "english.jsonl",
            "pairs.tsv",
            rows="rows.jsonl",
            language_a="de",
            language_b="en",
        )
        print(*report.sentences())
        ```
    """
    needs_probabilities = (min_probability, share, calibration) != (None, None, None)
    outputs = (output, rows, unpaired, identical)
    _check_purpose(outputs, pairs, needs_probabilities)
    targets = AlignmentTargets.of(*outputs, inputs=(a, b))
    check_scoring(scoring, k)
    check_min_distinctness(min_distinctness)
    row_share = ALIGNED_SHARE if share is None else share
    check_share(row_share)
    check_min_probability(min_probability)
    if same_domain and url_field is None:
        raise TmdeError("same_domain needs url_field")
    sides = read_sides(a, b, language_a, language_b, url_field, **reading)
    if rows is not None or lawdr_rank is not None:
        # Raises if one is missing, before the model is loaded.
        needed_languages(sides, "Aligned sentences and LAWDR need")
    right_pairs = _read_pairs(reference, sides)
    row_pairs = _read_pairs(pairs, sides)
    loading = {"long_documents": "sentences"} | dict(loading or {})
    embedder = open_embedder_of_sides(model, loading, sides)
    LanguageWatch(embedder).check_codes(unknown_languages_of_sides(embedder, sides))
    model_calibration = None
    if needs_probabilities:
        model_calibration = needed_calibration(calibration, model, loading, embedder)
    elif rows is not None:
        model_calibration = find_calibration(model, loading, embedder)
    report = AlignmentReport()
    leftovers = AlignmentLeftovers(sides)
    with without_truncation_warnings():
        if row_pairs is None:
            documents = _pair_documents(
                sides,
                embedder,
                lawdr_rank,
                report,
                scoring=scoring,
                k=k,
                threshold=threshold,
                min_distinctness=min_distinctness,
                same_domain=same_domain,
            )
            row_pairs = [(pair.first, pair.second) for pair in documents]
            if targets.pairs is not None:
                _write_pairs(targets.pairs, sides, documents)
                report.notes.append(f"{len(documents):,} pairs -> {output}")
        leftovers.add_documents(row_pairs)
        if right_pairs is not None:
            report.quality = alignment_quality(row_pairs, right_pairs)
            report.notes.append(f"{reference}: {report.quality}")
        if targets.rows is not None:
            report.beads = _write_parallel_rows(
                targets.rows,
                sides,
                row_pairs,
                embedder,
                leftovers,
                paragraphs=paragraphs,
                min_score=min_score,
                calibration=model_calibration,
                min_probability=_least_row_probability(
                    min_probability, min_score, model_calibration
                ),
                share=row_share,
            )
            unit = "paragraphs" if paragraphs else "sentences"
            if model_calibration is not None:
                fewest = min(report.beads.first_segments, report.beads.second_segments)
                warn_of_few(fewest, f"{unit} of a side")
            report.notes += [
                _describe_beads(report.beads, unit),
                f"{_describe_rows(report.beads)} -> {rows}",
            ]
    report.notes += leftovers.write(targets.unpaired, targets.identical)
    return report


@dataclass(frozen=True)
class AlignmentTargets:
    """The files that an alignment writes; None for those that it does not write.

    Attributes:
        pairs: The file of the pairs of documents.
        rows: That of the aligned sentences.
        unpaired: That of the texts without a partner.
        identical: That of the texts that are the same on both sides.
    """

    pairs: Path | None
    rows: Path | None
    unpaired: Path | None
    identical: Path | None

    @classmethod
    def of(
        cls,
        *outputs: str | os.PathLike[str] | None,
        inputs: tuple[str | os.PathLike[str], str | os.PathLike[str]],
    ) -> "AlignmentTargets":
        """Check the files.

        Args:
            outputs: Those of the attributes, in their order.
            inputs: The files that are read.

        Raises:
            TmdeError: One of them cannot be written, or is given twice.
        """
        suffixes = {
            "output": (".tsv",),
            "rows": (".jsonl", ".tmx"),
            "unpaired": (".tsv", ".jsonl"),
            "identical": (".tsv", ".jsonl"),
        }
        targets: list[Path | None] = []
        for (argument, endings), path in zip(suffixes.items(), outputs, strict=True):
            target = checked_output_or_none(path, endings, argument, inputs=inputs)
            if target is not None and target in targets:
                raise TmdeError(f"{argument}: found {path}, which is another output")
            targets.append(target)
        return cls(*targets)


def _check_purpose(
    outputs: Sequence[str | os.PathLike[str] | None],
    pairs: str | os.PathLike[str] | None,
    needs_probabilities: bool,
) -> None:
    """Raise `TmdeError` if there is nothing to write, or nothing of what was asked for.

    Args:
        outputs: The files of pairs, rows, unpaired and identical texts.
        pairs: That of known pairs.
        needs_probabilities: Whether probabilities were asked for.
    """
    output, rows, *_ = outputs
    if all(path is None for path in outputs):
        raise TmdeError(
            "Nothing to write; set output=FILE for document pairs, rows=FILE for their "
            "sentences, unpaired=FILE or identical=FILE"
        )
    if pairs is not None and (output is not None or rows is None):
        raise TmdeError(
            "Known pairs need rows=FILE and no output, because only their sentences are aligned"
        )
    if needs_probabilities and rows is None:
        raise TmdeError(
            "Probabilities need rows=FILE, because only sentence pairs have them; or omit "
            "min_probability, share and calibration"
        )


def _least_row_probability(
    min_probability: float | None, min_score: float | None, calibration: Calibration | None
) -> float | None:
    """Return the lowest probability of a row; None for any."""
    if min_probability is not None or min_score is not None or calibration is None:
        return min_probability
    return ALIGNED_PROBABILITY


def _read_pairs(path: str | os.PathLike[str] | None, sides: Sides) -> GoldPairs | None:
    """Read pairs of ids as pairs of rows; None without a file."""
    if path is None:
        return None
    return read_gold_pairs(path, sides[0].ids, sides[1].ids)


def _pair_documents(
    sides: Sides,
    embedder: DocumentEmbedder,
    lawdr_rank: Rank | None,
    report: AlignmentReport,
    *,
    min_distinctness: float,
    **alignment: Any,
) -> list[AlignedPair]:
    """Return pairs of documents that are not empty, by the rows of the files, best first.

    Args:
        sides: Both sides.
        embedder: The model.
        lawdr_rank: The directions that LAWDR removes; None does without LAWDR.
        report: Gets the number of pairs, and notes.
        min_distinctness: As in `align_files`.
        alignment: Arguments of `align_documents`.
    """
    rows_of_sides = [_filled_rows(side.texts) for side in sides]
    first_rows, second_rows = rows_of_sides
    if lawdr_rank is None:
        first_vectors, first_note = sides[0].embed(first_rows, embedder)
        second_vectors, second_note = sides[1].embed(second_rows, embedder)
        report.notes += [first_note, second_note]
    else:
        first_vectors, second_vectors, note = _embed_by_lawdr(
            lawdr_rank, sides, rows_of_sides, embedder
        )
        report.notes.append(note)
    candidates = align_documents(
        first_vectors,
        second_vectors,
        first_urls=sides[0].urls_of(first_rows),
        second_urls=sides[1].urls_of(second_rows),
        languages=_url_languages(sides),
        **alignment,
    )
    aligned = []
    doubtful = 0
    for pair in candidates:
        if pair.by_url or pair.distinctness >= min_distinctness:
            aligned.append(pair)
            if not pair.by_url and pair.distinctness < CLEAR_DISTINCTNESS:
                doubtful += 1
    scores = [pair.score for pair in aligned if not pair.by_url]
    report.pairs = len(aligned)
    report.pairs_by_url = len(aligned) - len(scores)
    score_range = ""
    if scores:
        score_range = f"; {alignment['scoring']} {scores[0]:.4f} to {scores[-1]:.4f}"
    report.notes.append(
        f"{report.pairs:,} pairs of documents, {report.pairs_by_url:,} by URL{score_range}"
    )
    if min_distinctness:
        left_out = len(candidates) - len(aligned)
        pairs_left_out = "1 pair" if left_out == 1 else f"{left_out:,} pairs"
        report.notes.append(
            f"Left out {pairs_left_out} with a distinctness below {min_distinctness:g}"
        )
    threshold = alignment["threshold"]
    if doubtful and not min_distinctness and threshold is None:
        report.notes.append(
            f"Pairs with a distinctness below {CLEAR_DISTINCTNESS:g}: {doubtful:,} of "
            f"{report.pairs:,}. Such pairs of long documents are often wrong; leave them out with "
            "min_distinctness (--min-distinctness)"
        )
    if not candidates and threshold is not None:
        warn_of_threshold(threshold)
    pairs = []
    for pair in aligned:
        pairs.append(pair._replace(first=first_rows[pair.first], second=second_rows[pair.second]))
    return pairs


def _filled_rows(texts: Sequence[str]) -> list[int]:
    """Return the rows of the texts that are not empty."""
    return [row for row, text in enumerate(texts) if text.strip()]


def _url_languages(sides: Sides) -> list[str] | None:
    """Return the languages as in URLs, such as `pt` for pt-BR; None unless both are known."""
    codes = []
    for side in sides:
        if side.language is None:
            return None
        codes.append(side.language.split("-")[0].lower())
    return codes


def _embed_by_lawdr(
    rank: Rank, sides: Sides, rows_of_sides: list[list[int]], embedder: DocumentEmbedder
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the LAWDR vectors of some rows of both sides, (rows, d) each, and a sentence."""
    codes = needed_languages(sides, "LAWDR needs")
    texts: list[str] = []
    languages: list[str] = []
    for side, code, rows in zip(sides, codes, rows_of_sides, strict=True):
        texts += [side.texts[row] for row in rows]
        languages += [code] * len(rows)
    lawdr = Lawdr(embedder, rank=rank)
    vectors = lawdr.fit_transform(texts, languages)
    note = (
        f"{len(texts):,} documents by LAWDR, {lawdr.rank_} directions removed "
        f"({lawdr.truncated_:,} sentences truncated)"
    )
    first_count = len(rows_of_sides[0])
    return vectors[:first_count], vectors[first_count:], note


def _write_pairs(target: Path, sides: Sides, pairs: list[AlignedPair]) -> None:
    first, second = sides
    columns = ["score", "distinctness", "id_a", "id_b"]
    if first.urls is not None:
        columns += ["url_a", "url_b", "matched_by"]
    rows = []
    for pair in pairs:
        row: list[str | float] = [pair.score, round(pair.distinctness, _DECIMALS)]
        row += [first.ids[pair.first], second.ids[pair.second]]
        if first.urls is not None and second.urls is not None:
            matched_by = "url" if pair.by_url else "score"
            row += [first.urls[pair.first], second.urls[pair.second], matched_by]
        rows.append(row)
    write_rows(target, columns, rows)


def _write_parallel_rows(
    target: Path,
    sides: Sides,
    row_pairs: GoldPairs,
    embedder: DocumentEmbedder,
    leftovers: AlignmentLeftovers,
    *,
    calibration: Calibration | None,
    **alignment: Any,
) -> ParallelRowsReport:
    """Align the sentences of each pair, and write them as rows that `tmde train` reads.

    Args:
        target: The file.
        sides: Both sides.
        row_pairs: The rows of each pair.
        embedder: The model.
        leftovers: Gets the beads that become no row.
        calibration: Its calibration; None without one.
        alignment: Further arguments of `parallel_rows`.
    """
    report = ParallelRowsReport()
    languages = needed_languages(sides, "Aligned sentences need")
    ordered_pairs = list(row_pairs)
    aligned = parallel_rows(
        _texts_of_pairs(sides, ordered_pairs),
        embedder,
        languages,
        calibration=calibration,
        report=report,
        on_left_out=partial(leftovers.add_bead, ordered_pairs),
        **alignment,
    )
    columns = ["translation", "doc_id", "segment", "score"]
    if calibration is not None:
        columns.append("probability")
    rows = ([row[column] for column in columns] for row in aligned)
    if target.suffix == ".tmx":
        write_memory(target, languages, columns, rows)
    else:
        write_rows(target, columns, rows)
    return report


def _texts_of_pairs(sides: Sides, row_pairs: GoldPairs) -> Iterator[tuple[str, str, str]]:
    """Yield the id and both texts of each pair, under a progress bar."""
    for first_row, second_row in progress_bar(row_pairs, desc="Aligning", unit=" pairs"):
        first_id = sides[0].ids[first_row]
        second_id = sides[1].ids[second_row]
        id = first_id if first_id == second_id else f"{first_id}|{second_id}"
        yield id, sides[0].texts[first_row], sides[1].texts[second_row]


def _describe_beads(report: ParallelRowsReport, unit: str) -> str:
    """Return what was read and how often each kind of bead occurs: `812 1-1, 40 1-2`.

    Args:
        report: The counts.
        unit: What is aligned, in the plural.
    """
    counts = []
    for (first_size, second_size), count in report.beads.most_common():
        counts.append(f"{count:,} {first_size}-{second_size}")
    return (
        f"{report.documents:,} pairs: {report.first_segments:,} and {report.second_segments:,} "
        f"{unit} ({report.embedded_texts:,} texts embedded, {report.truncated_texts:,} truncated): "
        f"{', '.join(counts) or 'none'}"
    )


def _describe_rows(report: ParallelRowsReport) -> str:
    """Return how many beads became rows, and why the others did not."""
    outcomes = report.outcomes
    left_out = [
        f"{outcomes[Outcome.LOW_SCORE]:,} of a low score",
        f"{outcomes[Outcome.IMPROBABLE]:,} improbable",
        f"{outcomes[Outcome.IDENTICAL]:,} identical",
        f"{outcomes[Outcome.WORDLESS]:,} without letters",
    ]
    return f"{outcomes[Outcome.ROW]:,} rows (left out: {', '.join(left_out)})"
