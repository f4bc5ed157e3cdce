"""Figures: what they show, not only that they exist."""

import json
from pathlib import Path

import numpy as np
import pytest

from tmde.eval.figures import draw_accuracy_matrix, draw_training_curves
from tmde.eval.training_log import read_log
from tmde.eval.results import Cell


def cell(source: str, target: str, value: float) -> Cell:
    return Cell(source, target, "accuracy", value, ["1"], np.array([value]))


def test_matrix_shows_the_number_of_each_cell(tmp_path):
    matrices = {
        "ctmde": [
            cell("en", "en", 0.9),
            cell("en", "de", 0.7),
            cell("de", "de", 0.8),
            cell("de", "en", 0.6),
        ],
        "tmde": [cell("en", "en", 0.85), cell("en", "de", 0.1234)],
    }
    figure = draw_accuracy_matrix(tmp_path / "matrix.png", matrices, "mldoc")
    first, second = figure.axes[:2]
    # x is the target, y the source; both in the order of the sources: en, de
    assert {text.get_position(): text.get_text() for text in first.texts} == {
        (0, 0): "90.0", (1, 0): "70.0", (1, 1): "80.0", (0, 1): "60.0",
    }  # fmt: skip
    assert {text.get_position(): text.get_text() for text in second.texts} == {
        (0, 0): "85.0",
        (1, 0): "12.3",
    }
    for axes in (first, second):
        assert [label.get_text() for label in axes.get_xticklabels()] == ["en", "de"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["en", "de"]
        assert (axes.get_ylabel(), axes.get_xlabel()) == ("trained on", "tested on")
        assert axes.images[0].get_clim() == (pytest.approx(12.34), pytest.approx(90))  # one scale
    assert (
        first.get_title() == "ctmde\nSame 85.0, Cross 65.0"
        and second.get_title() == "tmde\nSame 85.0, Cross 12.3"
    )
    assert figure.get_suptitle() == "mldoc" and figure.axes[-1].get_ylabel() == "Accuracy (%)"


def write_log(path: Path, lines: list[dict], end: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)
    return path


TRAINING = [
    {
        "step": 50,
        "loss": 7.5,
        "translation_loss": 8.0,
        "distance_loss": 6.0,
        "words_per_second": 3000,
        "minutes": 0.5,
    },
    {
        "step": 100,
        "loss": 5.5,
        "translation_loss": 7.0,
        "distance_loss": 4.0,
        "words_per_second": 3500,
        "minutes": 1,
    },
]
DEV = {"step": 60, "eval_retrieval": 0.5, "eval_minutes": 0.6, "eval_other_p1_de-en": 0.1}
DEV |= {
    "eval_small_dev_p1_de-en": 0.2,
    "eval_small_dev_p1_de-fr": 0.4,
    "eval_small_dev_translation_loss": 9.0,
}
DEV |= {
    "eval_small_dev_doc_p1_de-en": 0.7,
    "eval_same": 0.8,
    "eval_cross": 0.6,
    "eval_small_dev_translation_nll": 1.0,
}
RUN = [TRAINING[0], DEV, TRAINING[1], {"step": 100, "train_runtime": 1.0, "train_loss": 6.0}]


def curves(figure, column: int) -> dict[str, list]:
    """By title of a panel, (x, y) of each of its lines."""
    panels = zip(figure.axes[::2], figure.axes[column::2], strict=True)
    return {
        first.get_ylabel(): [
            (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines
        ]
        for first, axes in panels
    }


def test_every_measure_of_a_run_is_drawn_against_steps_and_minutes(tmp_path):
    figure = draw_training_curves(
        tmp_path / "curves.png", {"run": write_log(tmp_path / "log.jsonl", RUN)}
    )
    steps = [50, 100]
    assert curves(figure, 0) == {
        "Weighted sum of losses": [(steps, [7.5, 5.5])],
        "Dev retrieval, P@1": [
            ([60], [0.1]),
            ([60], [pytest.approx(0.3)]),
        ],  # other; small_dev: (0.2 + 0.4) / 2
        "Dev documents, P@1": [([60], [0.7])],
        "Dev accuracy": [([60], [0.6]), ([60], [0.8])],
        "Distance loss": [(steps, [6.0, 4.0])],
        "Translation loss": [(steps, [8.0, 7.0]), ([60], [9.0])],
        "Words per second": [(steps, [3000, 3500])],
    }
    assert curves(figure, 1)["Weighted sum of losses"] == [([0.5, 1.0], [7.5, 5.5])]
    assert curves(figure, 1)["Translation loss"][1] == ([0.6], [9.0])
    assert [axes.get_xlabel() for axes in figure.axes[-2:]] == ["step", "minutes"]


@pytest.mark.parametrize("end", ['{"step": 150, "lo', '{"step": 15', "{", "\n", '"step'])
def test_an_incomplete_last_line_is_skipped(tmp_path, end):
    assert read_log(write_log(tmp_path / "log.jsonl", RUN, end)) == RUN
    assert read_log(tmp_path) == RUN  # the run's folder


@pytest.mark.parametrize(
    "line", ['{"step": 5, "loss": ""}', '{"step": [5]}', '{"loss": 1}', "[5]", "x", "[" * 10**5]
)
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / "log.jsonl").write_text(
        f'{{"step": 1, "loss": 2}}\n{line}\n{{"step": 9, "loss": 1}}\n'
    )
    with pytest.raises(
        ValueError, match="log.jsonl, line 2: found .*, expected numbers with a step"
    ):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ((50, 100, 150, 100, 150), (0, 3, 4)),  # from a checkpoint at 50
        ((50, 100, 150, 150, 200), (0, 1, 3, 4)),  # from one at 100
        ((50, 100, 50), (2,)),  # from the start
    ],
)
def test_a_resumed_run_keeps_the_last_attempt_at_each_step(tmp_path, steps, kept):
    lines = []
    for position, step in enumerate(steps):
        lines += [
            {"step": step, "loss": float(position)},
            {"step": step, "eval_dev_p1_de-en": position / 10},
        ]
    found = read_log(write_log(tmp_path / "log.jsonl", lines))
    assert found == [lines[2 * position + part] for position in kept for part in (0, 1)]
