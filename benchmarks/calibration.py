"""How well the probabilities of the packaged models hold, on pairs that nothing was chosen on.

    python benchmarks/calibration.py --data DATA --json benchmarks/results/calibration.json \
        --figure docs/figures/calibration.png

Each collection has pairs of translations of two languages. For a share s, so many pairs lose one of
their texts that a share s of the texts of each side has its translation on the other side. The
rest is mined with the defaults of `tmde mine`, and each mined pair gets its probability for this
share. Several draws lose different texts.

- Tatoeba: `DATA/test/tatoeba.parquet`, English with German, Spanish, French and Italian.
- questions: those of `DATA/test/xquad.parquet`, in German, English and Spanish.
- beads: `DATA/eval/bleualign_dev` is aligned by `tmde align`, whose rows are right if they have
  exactly the sentences of a right pair (strict), or overlap with one on both sides (lax). These
  data chose the alignment's constants and the share of 0.9.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import typer
from common import markdown, sentence_pairs, write_json
from sklearn.metrics import precision_score, recall_score

from tmde.documents.bead_probabilities import ALIGNED_SHARE, BeadProbabilities
from tmde.documents.calibration import Calibration
from tmde.documents.calibration_fit import (
    LanguagePair,
    MinedEvidence,
    PairVectors,
    Translation,
    embed_pairs,
    mined_evidence,
)
from tmde.documents.reliability import (
    ReliabilityBin,
    expected_calibration_error,
    reliability_bins,
)
from tmde.documents.sentence_alignment import align_sentences
from tmde.embedding import DocumentEmbedder
from tmde.eval.tasks import TASKS

MODELS = ("default", "tmde", "accurate")
SHARES = (0.9, 0.5, 0.1)
DRAWS = 10
QUESTION_LANGUAGES = ("de", "en", "es")
STATED = (0.5, 0.9, 0.99)
BEADS = "beads"

Pairs = dict[LanguagePair, list[Translation]]


def load_questions(path: Path) -> Pairs:
    """Return the pairs of translated questions of every two languages."""
    questions: dict[str, dict[str, str]] = {language: {} for language in QUESTION_LANGUAGES}
    for row in pq.read_table(path).to_pylist():
        if row["language"] in questions:
            questions[row["language"]][row["question_id"]] = row["question"]
    pairs: Pairs = {}
    for first, second in itertools.combinations(QUESTION_LANGUAGES, 2):
        shared = sorted(questions[first].keys() & questions[second].keys())
        pairs[first, second] = [(questions[first][id], questions[second][id]) for id in shared]
    return pairs


def measure_mining(
    vectors: Sequence[PairVectors], calibration: Calibration, share: float
) -> dict[str, Any]:
    """Return how well probabilities of mined pairs hold."""
    mined: MinedEvidence = mined_evidence(vectors, share, seed=0, draws=DRAWS)
    return describe(calibration.probabilities(mined.evidence, share), mined.is_right)


def measure_beads(
    folder: Path, embedder: DocumentEmbedder, calibration: Calibration
) -> dict[str, dict[str, Any]]:
    """Return how well probabilities of aligned sentences hold, strict and lax."""
    (text,) = TASKS["sentence_alignment"]().load(folder).texts.values()
    first = np.asarray(embedder.encode(list(text.first)))
    second = np.asarray(embedder.encode(list(text.second)))
    lengths = [len(sentence) for sentence in text.first], [len(each) for each in text.second]
    aligned = align_sentences(first, second, lengths=lengths)
    beads = [bead for bead in aligned if bead.score is not None]
    model = BeadProbabilities(calibration, ALIGNED_SHARE, [first], [second])
    probabilities = np.array(
        model.probabilities_of(beads, (text.first, text.second), (first, second))
    )
    gold = [(set(first_side), set(second_side)) for first_side, second_side in text.beads]
    strict = []
    lax = []
    for bead in beads:
        first_side = set(bead.first)
        second_side = set(bead.second)
        strict.append((first_side, second_side) in gold)
        lax.append(any(first_side & right[0] and second_side & right[1] for right in gold))
    return {
        "strict": describe(probabilities, np.array(strict)),
        "lax": describe(probabilities, np.array(lax)),
    }


def describe(probabilities: np.ndarray, is_right: np.ndarray) -> dict[str, Any]:
    """Return the calibration error, the bins, and what each stated probability keeps."""
    bins = reliability_bins(probabilities, is_right)
    kept = {}
    for stated in STATED:
        is_kept = probabilities >= stated
        kept[str(stated)] = {
            "precision": float(precision_score(is_right, is_kept)) if is_kept.any() else None,
            "recall": float(recall_score(is_right, is_kept)) if is_right.any() else None,
        }
    return {
        "pairs": len(is_right),
        "right": float(is_right.mean()),
        "error": expected_calibration_error(bins),
        "bins": [[bin.count, bin.mean_probability, bin.right_share] for bin in bins],
        "kept": kept,
    }


# ---- The figure


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw a reliability diagram for each model, with a line for each share of both collections."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colors = dict(zip(SHARES, ("#0072b2", "#009e73", "#d55e00"), strict=True))
    lines = {"Tatoeba": "-", "questions": "--"}
    with pyplot.rc_context({"font.size": 12, "figure.facecolor": "white"}):
        size = (5 * len(MODELS), 5.4)
        figure, panels = pyplot.subplots(1, len(MODELS), figsize=size, layout="constrained")
        for panel, model in zip(panels, MODELS, strict=True):
            panel.plot([0, 1], [0, 1], color="#b0b0b0", linewidth=1)
            for result in results:
                if result["model"] != model or result["collection"] not in lines:
                    continue
                bins = [ReliabilityBin(*numbers) for numbers in result["bins"]]
                panel.plot(
                    [bin.mean_probability for bin in bins],
                    [bin.right_share for bin in bins],
                    color=colors[result["share"]],
                    linestyle=lines[result["collection"]],
                    marker="o",
                    markersize=4,
                    label=f"{result['collection']}, {result['share']:.0%} have a translation",
                )
            panel.set_title(model)
            panel.set_xlabel("predicted probability")
            panel.set_ylabel("fraction of pairs that are right")
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(color="#e5e5e5")
            panel.set_axisbelow(True)
        handles, labels = panels[-1].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=2)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        pyplot.close(figure)


# ---- The command


def main(
    data: Annotated[Path, typer.Option(help="Folder with test/ and eval/.")],
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
    figure: Annotated[Path | None, typer.Option(help="File of the figure, .png.")] = None,
) -> None:
    """Measure the calibration of the packaged models."""
    collections = {
        "Tatoeba": sentence_pairs(data / "test" / "tatoeba.parquet"),
        "questions": load_questions(data / "test" / "xquad.parquet"),
    }
    results = []
    for name in MODELS:
        embedder = DocumentEmbedder.from_pretrained(name)
        calibration = Calibration.from_pretrained(name)
        for title, pairs in collections.items():
            typer.echo(f"{name}: {title}", err=True)
            vectors = embed_pairs(pairs, embedder)
            for share in SHARES:
                measured = measure_mining(vectors, calibration, share)
                results.append({"model": name, "collection": title, "share": share} | measured)
        beads = measure_beads(data / "eval" / "bleualign_dev", embedder, calibration)
        for title, measured in beads.items():
            place = {"model": name, "collection": f"{BEADS} {title}", "share": ALIGNED_SHARE}
            results.append(place | measured)
    print(markdown([table_row(result) for result in results]))
    sizes = {}
    for title, pairs in collections.items():
        sizes[title] = sum(len(texts) for texts in pairs.values())
    write_json(json, "calibration", {"draws": DRAWS, "pairs": sizes}, results)
    if figure is not None:
        draw(results, figure)


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row = {key: result[key] for key in ("model", "collection", "share", "pairs", "right", "error")}
    for stated, kept in result["kept"].items():
        for measure, value in kept.items():
            row[f"{measure} at {stated}"] = value
    return row


if __name__ == "__main__":
    typer.run(main)
