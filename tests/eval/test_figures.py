"""Figures: what they show, not only that they exist."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.decomposition import PCA

from tmde.eval.figures import (
    COLORS,
    DebiasedPair,
    draw_accuracy_matrix,
    draw_embedding_space,
    draw_principal_components,
    draw_training_curves,
)
from tmde.eval.results import Cell
from tmde.eval.training_log import log_panels, read_log

# ---- Accuracy matrices


def make_cell(source: str, target: str, value: float) -> Cell:
    return Cell(source, target, "accuracy", value, ["1"], np.array([value]))


@pytest.fixture
def matrix_figure(tmp_path):
    """Two systems; the second has only two of the four pairs."""
    cells_by_system = {
        "ctmde": [
            make_cell("en", "en", 0.9),
            make_cell("en", "de", 0.7),
            make_cell("de", "de", 0.8),
            make_cell("de", "en", 0.6),
        ],
        "tmde": [make_cell("en", "en", 0.85), make_cell("en", "de", 0.1234)],
    }
    return draw_accuracy_matrix(tmp_path / "matrix.png", cells_by_system, "mldoc")


def texts_by_place(axes) -> dict[tuple[int, int], str]:
    """The printed numbers by (x, y); x is the target, y the source."""
    return {text.get_position(): text.get_text() for text in axes.texts}


def test_matrix_shows_the_number_of_each_cell(matrix_figure):
    complete, incomplete = matrix_figure.axes[:2]

    assert texts_by_place(complete) == {
        (0, 0): "90.0",
        (1, 0): "70.0",
        (1, 1): "80.0",
        (0, 1): "60.0",
    }
    assert texts_by_place(incomplete) == {(0, 0): "85.0", (1, 0): "12.3"}


def test_matrix_names_languages_and_metric(matrix_figure):
    for axes in matrix_figure.axes[:2]:
        # Both axes are in the order of the sources.
        assert [label.get_text() for label in axes.get_xticklabels()] == ["en", "de"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["en", "de"]
        assert axes.get_ylabel() == "trained on"
        assert axes.get_xlabel() == "tested on"
    color_scale = matrix_figure.axes[-1]
    assert color_scale.get_ylabel() == "Accuracy (%)"


def test_matrices_share_one_color_scale(matrix_figure):
    for axes in matrix_figure.axes[:2]:
        assert axes.images[0].get_clim() == (pytest.approx(12.34), pytest.approx(90))


def test_titles_of_matrices_hold_the_means(matrix_figure):
    titles = [axes.get_title() for axes in matrix_figure.axes[:2]]

    assert titles == ["ctmde\nSame 85.0, Cross 65.0", "tmde\nSame 85.0, Cross 12.3"]
    assert matrix_figure.get_suptitle() == "mldoc"


# ---- Embedding spaces


def test_too_many_documents_are_sampled_with_their_translations(tmp_path, monkeypatch):
    drawn = {}

    def remember(vectors, seed):
        drawn["ids"] = vectors[:, 0].tolist()
        return vectors[:, :2]

    monkeypatch.setattr("tmde.eval.figures._tsne", remember)
    ids = np.tile(np.arange(8), 2)
    vectors = np.stack([ids, np.arange(16)], axis=1).astype(float)
    languages = ["de"] * 8 + ["en"] * 8

    draw_embedding_space(
        tmp_path / "space.png", vectors, ["a"] * 16, languages, ids, max_documents=3
    )

    first_side = drawn["ids"][:3]
    assert len(drawn["ids"]) == 6
    assert drawn["ids"][3:] == first_side


# ---- Principal components


def make_pair(languages: tuple[str, str], seed: int) -> DebiasedPair:
    """Vectors around means that differ between the languages, and around none."""
    generator = np.random.default_rng(seed)
    debiased = [generator.normal(size=(30, 6)), generator.normal(size=(20, 6))]
    raw = [debiased[0] + 3, debiased[1] - 2]
    return DebiasedPair(languages, raw, debiased, rank=seed, accuracies=(0.987, 0.501))


@pytest.fixture
def components_figure(tmp_path):
    pairs = [make_pair(("de", "en"), 1), make_pair(("en", "fr"), 2), make_pair(("de", "fr"), 4)]
    return pairs, draw_principal_components(tmp_path / "components.png", pairs, "geometry: bag")


def drawn_points(axes) -> list[np.ndarray]:
    """The points of both languages, (n, 2) each."""
    return [np.asarray(scatter.get_offsets()) for scatter in axes.collections]


def projected(vectors: list[np.ndarray]) -> np.ndarray:
    """The first two principal components by the SVD of centered vectors, (n, 2)."""
    centered = np.vstack(vectors) - np.vstack(vectors).mean(axis=0)
    return centered @ np.linalg.svd(centered)[2][:2].T


def test_points_are_the_first_two_principal_components(components_figure):
    """The sign of a component is arbitrary."""
    pairs, figure = components_figure
    panels = figure.axes[:6]
    for number, pair in enumerate(pairs):
        for axes, vectors in zip(panels[2 * number :], (pair.raw, pair.debiased), strict=False):
            first, second = drawn_points(axes)
            assert (len(first), len(second)) == (30, 20)
            points = np.vstack([first, second])
            for expected in (projected(vectors), PCA(2).fit_transform(np.vstack(vectors))):
                np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-9)


def test_raw_vectors_of_two_languages_are_apart(components_figure):
    _, figure = components_figure
    first, second = drawn_points(figure.axes[0])
    assert (np.sign(first[:, 0]) == -np.sign(second[0, 0])).all()


def test_axes_say_the_share_of_the_variance(components_figure):
    pairs, figure = components_figure
    variances = np.linalg.eigvalsh(np.cov(np.vstack(pairs[0].debiased).T))[::-1]
    shares = 100 * variances / variances.sum()
    axes = figure.axes[1]
    assert axes.get_xlabel() == f"component 1 ({shares[0]:.1f}% of the variance)"
    assert axes.get_ylabel() == f"component 2 ({shares[1]:.1f}%)"


def test_titles_of_components(components_figure):
    _, figure = components_figure
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        "de and en, raw\nlanguage predicted: 99%",
        "de and en, 1 direction removed\nlanguage predicted: 50%",
        "en and fr, raw\nlanguage predicted: 99%",
        "en and fr, 2 directions removed\nlanguage predicted: 50%",
    ]
    assert figure.get_suptitle() == "geometry: bag"


def test_a_language_has_one_color_in_all_panels(components_figure):
    _, figure = components_figure
    colors = {}
    for axes in figure.axes[:6]:
        for scatter, text in zip(axes.collections, axes.get_legend().texts, strict=True):
            color = to_hex(scatter.get_facecolor()[0])
            colors.setdefault(text.get_text(), set()).add(color)
    assert colors == {"de": {COLORS[0]}, "en": {COLORS[1]}, "fr": {COLORS[2]}}


def test_panels_without_a_pair_stay_empty(components_figure):
    _, figure = components_figure
    assert [axes.axison for axes in figure.axes] == [True] * 6 + [False] * 2


# ---- Training curves


def write_log(path: Path, lines: list[dict], end: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)
    return path


FIRST_TRAINING_LINE = {
    "step": 50,
    "loss": 7.5,
    "translation_loss": 8.0,
    "distance_loss": 6.0,
    "words_per_second": 3000,
    "minutes": 0.5,
}
SECOND_TRAINING_LINE = {
    "step": 100,
    "loss": 5.5,
    "translation_loss": 7.0,
    "distance_loss": 4.0,
    "words_per_second": 3500,
    "minutes": 1,
}
DEV_LINE = {
    "step": 60,
    "eval_retrieval": 0.5,
    "eval_minutes": 0.6,
    "eval_other_p1_de-en": 0.1,
    "eval_small_dev_p1_de-en": 0.2,
    "eval_small_dev_p1_de-fr": 0.4,
    "eval_small_dev_translation_loss": 9.0,
    "eval_small_dev_doc_p1_de-en": 0.7,
    "eval_same": 0.8,
    "eval_cross": 0.6,
    "eval_small_dev_translation_nll": 1.0,
}
SUMMARY_LINE = {"step": 100, "train_runtime": 1.0, "train_loss": 6.0}
RUN = [FIRST_TRAINING_LINE, DEV_LINE, SECOND_TRAINING_LINE, SUMMARY_LINE]


def curves(figure, column: int) -> dict[str, list]:
    """The points of the lines in each panel, by title, as (x values, y values).

    Column 0 is against steps, column 1 against minutes.
    """
    lines_of_panel = {}
    for titled, axes in zip(figure.axes[::2], figure.axes[column::2], strict=True):
        lines = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines]
        lines_of_panel[titled.get_ylabel()] = lines
    return lines_of_panel


@pytest.fixture
def curves_figure(tmp_path):
    log = write_log(tmp_path / "log.jsonl", RUN)
    return draw_training_curves(tmp_path / "curves.png", {"run": log})


def test_every_measure_of_a_run_is_drawn_against_steps(curves_figure):
    steps = [50, 100]
    mean_of_small_dev = pytest.approx(0.3)  # (0.2 + 0.4) / 2

    assert curves(curves_figure, 0) == {
        "Weighted sum of losses": [(steps, [7.5, 5.5])],
        "Dev retrieval, P@1": [([60], [0.1]), ([60], [mean_of_small_dev])],
        "Dev documents, P@1": [([60], [0.7])],
        "Dev accuracy": [([60], [0.6]), ([60], [0.8])],
        "Distance loss": [(steps, [6.0, 4.0])],
        "Translation loss": [(steps, [8.0, 7.0]), ([60], [9.0])],
        "Words per second": [(steps, [3000, 3500])],
    }
    assert curves_figure.axes[-2].get_xlabel() == "step"


def test_every_measure_of_a_run_is_drawn_against_minutes(curves_figure):
    by_minute = curves(curves_figure, 1)

    assert by_minute["Weighted sum of losses"] == [([0.5, 1.0], [7.5, 5.5])]
    assert by_minute["Translation loss"][1] == ([0.6], [9.0])
    assert curves_figure.axes[-1].get_xlabel() == "minutes"


# ---- Logs


@pytest.mark.parametrize("end", ['{"step": 150, "lo', '{"step": 15', "{", "\n", '"step'])
def test_an_incomplete_last_line_is_skipped(tmp_path, end):
    log = write_log(tmp_path / "log.jsonl", RUN, end)

    assert read_log(log) == RUN


def test_a_log_is_found_in_the_folder_of_the_run(tmp_path):
    write_log(tmp_path / "log.jsonl", RUN)

    assert read_log(tmp_path) == RUN


@pytest.mark.parametrize(
    "line", ['{"step": 5, "loss": ""}', '{"step": [5]}', '{"loss": 1}', "[5]", "x", "[" * 10**5]
)
def test_a_damaged_line_is_named(tmp_path, line):
    lines = ['{"step": 1, "loss": 2}', line, '{"step": 9, "loss": 1}', ""]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))

    message = "log.jsonl, line 2: found .*, expected numbers with a step"
    with pytest.raises(ValueError, match=message):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("steps", "valid_positions"),
    [
        ((50, 100, 150, 100, 150), (0, 3, 4)),  # resumed from a checkpoint at 50
        ((50, 100, 150, 150, 200), (0, 1, 3, 4)),  # resumed from one at 100
        ((50, 100, 50), (2,)),  # begun again
    ],
)
def test_a_resumed_run_keeps_the_last_attempt_at_each_step(tmp_path, steps, valid_positions):
    training_lines = []
    dev_lines = []
    for position, step in enumerate(steps):
        training_lines.append({"step": step, "loss": float(position)})
        dev_lines.append({"step": step, "eval_dev_p1_de-en": position / 10})
    all_lines = []
    for training_line, dev_line in zip(training_lines, dev_lines, strict=True):
        all_lines += [training_line, dev_line]

    lines = read_log(write_log(tmp_path / "log.jsonl", all_lines))

    expected = []
    for position in valid_positions:
        expected += [training_lines[position], dev_lines[position]]
    assert lines == expected


def test_panels_spell_the_names_of_losses():
    panels = log_panels(["infonce_loss", "ntdv_distance_loss", "masked_lm_loss"])
    assert set(panels) == {"InfoNCE loss", "NTDV distance loss", "Masked LM loss"}
