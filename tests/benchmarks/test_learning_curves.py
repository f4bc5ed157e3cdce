"""Learning curves: values between checkpoints, contrasts at equal rows and minutes, the figure."""

import pytest

from tests.benchmarks.test_alignment_benchmarks import load_script

learning_curves = load_script("learning_curves")


def points_of(rows_of_checkpoints, values):
    """Return a curve with a checkpoint every 10 minutes."""
    points = []
    for number, (rows, value) in enumerate(zip(rows_of_checkpoints, values, strict=True), start=1):
        measures = {"Cross": value, "general Cross": value + 10}
        points.append({"rows": rows, "minutes": 10.0 * number, "measures": measures})
    return points


# LASER reads half of T-MDE's rows in a minute.
CURVES = {
    "tmde": {
        42: points_of([100, 200], [20.0, 40.0]),
        43: points_of([100, 200], [22.0, 42.0]),
    },
    "laser_1": {
        42: points_of([50, 100], [10.0, 18.0]),
        43: points_of([50, 100], [10.0, 22.0]),
    },
}


def test_value_between_two_checkpoints_is_on_their_line():
    points = CURVES["tmde"][42]
    assert learning_curves.value_at(points, "rows", 150, "Cross") == pytest.approx(30.0)
    assert learning_curves.value_at(points, "minutes", 12.5, "Cross") == pytest.approx(25.0)


def test_contrasts_by_hand():
    by_rows, by_minutes = learning_curves.contrast_rows(CURVES, [["tmde", "laser_1"]])
    # All runs have read 100 rows: T-MDE 20 and 22, LASER 18 and 22, difference 21 - 20.
    assert (by_rows["equal"], by_rows["at"]) == ("rows", 100)
    assert by_rows["differences"]["Cross"]["mean"] == pytest.approx(1.0)
    # After 20 minutes: 40 and 42, 18 and 22, difference 41 - 20. Variances 2 and 8 of the values,
    # 1 and 4 of the means. Satterthwaite: 5² / (1²/1 + 4²/1) = 25 / 17 degrees of freedom.
    difference = by_minutes["differences"]["Cross"]
    assert (by_minutes["equal"], by_minutes["at"]) == ("minutes", 20)
    assert difference["mean"] == pytest.approx(21.0)
    assert difference["standard_error"] == pytest.approx(5**0.5)
    assert difference["degrees"] == pytest.approx(25 / 17)
    assert by_minutes["corrected_p"] == pytest.approx(2 * difference["p"])


def test_family_shares_a_variance():
    curves = CURVES | {"ctmde": {42: points_of([100, 200], [30.0, 50.0])}}
    _, by_minutes = learning_curves.contrast_rows(curves, [["ctmde", "tmde"]])
    difference = by_minutes["differences"]["Cross"]
    # T-MDE's variance is 2, with one degree of freedom: 2 / 1 + 2 / 2 = 3.
    assert difference["mean"] == pytest.approx(9.0)
    assert difference["standard_error"] == pytest.approx(3**0.5)
    assert difference["degrees"] == 1


def test_contrast_without_measurements_is_left_out():
    contrasts = [["tmde_f", "tmde"], ["tmde", "laser_1"]]
    rows = learning_curves.contrast_rows(CURVES, contrasts)
    assert [row["better"] for row in rows] == ["tmde", "tmde"]
    # Those that are missing count in Holm's correction.
    smallest = min(row["differences"]["Cross"]["p"] for row in rows)
    assert min(row["corrected_p"] for row in rows) == pytest.approx(min(1, 4 * smallest))


def test_systems_without_a_common_stretch_are_not_compared():
    slow = {42: points_of([10, 20], [1.0, 2.0]), 43: points_of([10, 20], [1.0, 3.0])}
    rows = learning_curves.contrast_rows(CURVES | {"laser_1": slow}, [["laser_1", "tmde"]])
    assert [row["equal"] for row in rows] == ["minutes"]


def test_figure_has_the_mean_of_each_system(tmp_path):
    path = tmp_path / "curves.svg"
    figure = learning_curves.draw_curves(CURVES, path)
    assert path.is_file()
    panel = figure.axes[0]
    assert panel.get_legend_handles_labels()[1] == ["T-MDE", "LASER_1"]
    rows, values = panel.lines[0].get_data()
    assert (rows[-1], values[-1]) == pytest.approx((200, 41.0))
