"""Pictures: what they show, not only that they exist."""

import builtins
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from modeling_tmde.eval.figures import (
    draw_accuracy_matrix,
    draw_embedding_space,
    draw_training_curves,
    read_log,
)
from modeling_tmde.eval.results import Cell


def documents(count: int) -> dict:
    rng = np.random.default_rng(0)
    return {
        "vectors": rng.normal(size=(count, 8)).astype(np.float32),
        "labels": [("ECAT", "GCAT")[index % 2] for index in range(count)],
        "languages": [("de", "en", "fr")[index % 3] for index in range(count)],
        "document_ids": [str(index // 3) for index in range(count)],
    }


def test_a_readable_picture_is_written_whole(tmp_path):
    path = tmp_path / "space.png"
    path.write_text("an older file")
    draw_embedding_space(path, **documents(24), title="Vectors")
    picture = image.imread(path)
    height, width, _ = picture.shape
    assert (width, height) == (round(16.5 * 130), round(5.6 * 130))
    # Something is drawn in each of the three panels: colours that are neither white, grey nor black.
    for panel in range(3):
        pixels = picture[:, panel * width // 3 : (panel + 1) * width // 3, :3]
        coloured = (pixels.max(-1) - pixels.min(-1)) > 0.3
        assert coloured.sum() > 200
    assert [file.name for file in tmp_path.iterdir()] == ["space.png"]  # nothing temporary stays


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"tmde\[figures\]"):
        draw_embedding_space(tmp_path / "space.png", **documents(6))


def cell(source: str, target: str, value: float, metric: str = "accuracy") -> Cell:
    return Cell(source, target, metric, value, ["1"], np.array([value]))


MATRICES = {
    "ctmde": [cell("en", "en", 0.9), cell("en", "de", 0.7), cell("de", "de", 0.8), cell("de", "en", 0.6)],
    "tmde": [cell("en", "en", 0.85), cell("en", "de", 0.1234)],
}


def test_matrix_numbers_stand_in_their_cells(tmp_path):
    figure = draw_accuracy_matrix(tmp_path / "matrix.png", MATRICES, "mldoc")
    first, second = figure.axes[:2]
    written = {text.get_position(): text.get_text() for text in first.texts}
    # x is the target, y the source; en was the first source, and so it is the first of the targets.
    assert written == {(0, 0): "90.0", (1, 0): "70.0", (1, 1): "80.0", (0, 1): "60.0"}
    assert {text.get_position(): text.get_text() for text in second.texts} == {(0, 0): "85.0", (1, 0): "12.3"}
    for axes in (first, second):
        assert [label.get_text() for label in axes.get_xticklabels()] == ["en", "de"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["en", "de"]
        assert (axes.get_ylabel(), axes.get_xlabel()) == ("trained on", "tested on")
        assert axes.images[0].get_clim() == (pytest.approx(12.34), pytest.approx(90))  # one scale
    assert first.get_title() == "ctmde\nSame 85.0, Cross 65.0"
    assert second.get_title() == "tmde\nSame 85.0, Cross 12.3"
    assert figure.get_suptitle() == "mldoc"
    assert figure.axes[-1].get_ylabel() == "Accuracy (%)"
    assert second.images[0].get_array().mask.tolist() == [[False, False], [True, True]]


def test_matrix_file(tmp_path):
    figure = draw_accuracy_matrix(
        tmp_path / "matrix.png", {f"system {index}": MATRICES["ctmde"] for index in range(4)}
    )
    height, width, _ = image.imread(tmp_path / "matrix.png").shape
    assert (width, height) == (int((3 * (0.68 * 2 + 1.2) + 1.2) * 130), int((2 * (0.68 * 2 + 1.5) + 0.4) * 130))
    assert [file.name for file in tmp_path.iterdir()] == ["matrix.png"]
    assert [axes.axison for axes in figure.axes] == [True] * 4 + [False] * 2 + [True]


def write_log(path: Path, lines: list[dict], end: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)
    return path


RUN = [
    {"step": 50, "loss": 7.5, "translation_loss": 8.0, "distance_loss": 6.0, "words_per_second": 3000, "minutes": 0.5},
    {
        "step": 60,
        "eval_small_dev_p1_de-en": 0.2,
        "eval_small_dev_p1_de-fr": 0.4,
        "eval_other_p1_de-en": 0.1,
        "eval_small_dev_translation_loss": 9.0,
        "eval_small_dev_translation_nll": 1.0,
        "eval_retrieval": 0.5,
        "eval_minutes": 0.6,
    },
    {
        "step": 100,
        "loss": 5.5,
        "translation_loss": 7.0,
        "distance_loss": 4.0,
        "words_per_second": 3500,
        "minutes": 1.0,
    },
    {"step": 100, "train_runtime": 1.0, "train_loss": 6.0},
]


def curves(figure, column: int = 0, columns: int = 2) -> dict[str, list]:
    """By title of a panel, (x, y) of each of its lines."""
    found = {}
    for position in range(0, len(figure.axes), columns):
        title = figure.axes[position].get_ylabel()
        lines = figure.axes[position + column].lines
        found[title] = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in lines]
    return found


def test_every_measure_of_a_run_is_drawn_against_steps_and_minutes(tmp_path):
    figure = draw_training_curves(tmp_path / "curves.png", {"run": write_log(tmp_path / "log.jsonl", RUN)})
    steps = [50, 100]
    assert curves(figure) == {
        "Weighted sum of losses": [(steps, [7.5, 5.5])],
        "Dev retrieval, P@1": [([60], [0.1]), ([60], [pytest.approx(0.3)])],  # other; small_dev: (0.2 + 0.4) / 2
        "Distance loss": [(steps, [6.0, 4.0])],
        "Translation loss": [(steps, [8.0, 7.0]), ([60], [9.0])],
        "Words per second": [(steps, [3000, 3500])],
    }
    minutes = curves(figure, column=1)
    assert minutes["Weighted sum of losses"] == [([0.5, 1.0], [7.5, 5.5])]
    assert minutes["Translation loss"][1] == ([0.6], [9.0])
    assert [axes.get_xlabel() for axes in figure.axes[-2:]] == ["step", "minutes"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["run", "training", "other", "small_dev"]


def curves_of(figure, title: str) -> list:
    (axes,) = [axes for axes in figure.axes if axes.get_ylabel() == title]
    return axes.lines


def test_runs_are_overlaid_each_in_its_colour(tmp_path):
    second = [{"step": 10, "loss": 1.0}, {"step": 20, "loss": 0.5, "contrast_loss": 2.0}]
    logs = {
        "with distance": write_log(tmp_path / "a.jsonl", RUN),
        "without": write_log(tmp_path / "b.jsonl", second),
    }
    figure = draw_training_curves(tmp_path / "curves.png", logs)
    loss = figure.axes[0].lines
    assert loss[1].get_xdata().tolist() == [10, 20]
    assert loss[0].get_color() != loss[1].get_color()
    colours = {line.get_color() for line in curves_of(figure, "Distance loss")}
    assert colours == {loss[0].get_color()}
    assert {line.get_color() for line in curves_of(figure, "Contrast loss")} == {loss[1].get_color()}
    legend = figure.legends[0]
    named = {
        text.get_text(): line.get_color() for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert (named["with distance"], named["without"]) == (loss[0].get_color(), loss[1].get_color())
    training, dev = curves_of(figure, "Translation loss")
    assert training.get_linestyle() != dev.get_linestyle()


@pytest.mark.parametrize("end", ['{"step": 150, "lo', '{"step": 15', "{", "\n", '"step'])
def test_a_last_line_that_is_being_written_is_skipped(tmp_path, end):
    assert read_log(write_log(tmp_path / "log.jsonl", RUN, end)) == RUN
    assert read_log(tmp_path) == RUN  # the run's folder


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ((50, 100, 150, 100, 150), (0, 3, 4)),  # from a checkpoint at 50
        ((50, 100, 150, 150, 200), (0, 1, 3, 4)),  # from one at 100
        ((50, 100, 50), (2,)),  # from the start
        ((50, 100, 150), (0, 1, 2)),
    ],
)
def test_a_run_that_went_back_to_a_checkpoint_counts_its_last_try(tmp_path, steps, kept):
    lines = []
    for position, step in enumerate(steps):
        lines += [{"step": step, "loss": float(position)}, {"step": step, "eval_dev_p1_de-en": position / 10}]
    found = read_log(write_log(tmp_path / "log.jsonl", lines))
    assert found == [lines[2 * position + part] for position in kept for part in (0, 1)]


def test_bad_logs_are_named(tmp_path):
    path = tmp_path / "log.jsonl"
    with pytest.raises(ValueError, match=r"log\.jsonl: found no log"):
        draw_training_curves(tmp_path / "curves.png", {"run": path})
    with pytest.raises(ValueError, match="found no log"):
        read_log(tmp_path / "nowhere")
    for empty in ("", "\n", '{"step": 1'):
        path.write_text(empty)
        with pytest.raises(ValueError, match="found no complete line"):
            read_log(path)
    for bad in ("{broken}", "[1]", '{"loss": 1.0}'):
        path.write_text(f'{{"step": 1}}\n{bad}\n{{"step": 2}}\n')
        with pytest.raises(ValueError, match=r"log\.jsonl, line 2: found .*expected a JSON object with a step"):
            read_log(path)
    write_log(path, [{"step": 1, "epoch": 0.1}])
    with pytest.raises(ValueError, match="found no loss, dev measure or speed to draw"):
        draw_training_curves(tmp_path / "curves.png", {"run": path})
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]
