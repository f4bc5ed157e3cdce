"""The table of a comparison: its values, tests, contrasts and columns."""

import json

import pytest

from modeling_tmde.cli.compare_report import write_table
from modeling_tmde.cli.compare_table import Column, Differences, Measured, columns_of
from modeling_tmde.eval.results import read_results, write_results
from modeling_tmde.eval.statistics import compare
from tests.cli.compare_helpers import classified, content, load, outcomes_of


def test_values_of_the_table(measured):
    comparison, folder = measured
    header, rows = write_table(comparison, folder)
    assert header == ["system", "SIB-200 Same", "SIB-200 Cross", "CPU minutes", "words of pairs / CPU s", "parameters"]
    by_name = {row[0]: row[1:] for row in rows}
    assert list(by_name) == ["TF-IDF", "bag", "warm", "chance"]
    assert by_name["TF-IDF"] == ["100.0", "40.0", "–", "–", "–"]
    # 60,000 words in 2 minutes are 500 a second
    assert by_name["bag"] == ["60.0", "50.0", "2.0", "500", "1.23 M"]
    # 90 and 70: mean 80, deviation sqrt(200) = 14.1; 80 and 46: 63, sqrt(578) = 24.0. 4 minutes and 1.5 of the start
    assert by_name["warm"] == ["80.0 ± 14.1 ▲", "63.0 ± 24.0 ▲", "5.5", "250", "1.23 M"]
    assert by_name["chance"][:2] == ["25.0", "25.0"]


def test_tests_and_contrasts_are_those_of_tmde_eval_compare(measured):
    comparison, folder = measured
    write_table(comparison, folder)
    found = json.loads((folder.path / "table.json").read_text())
    (bag,), (warm,) = ([r for r in read_results(folder.evaluation(each)) if r.system == each.name]
                       for each in comparison.trainings[1:3])  # fmt: skip
    expected = {each.group: each for each in compare(bag, warm)}
    tested = found["systems"]["warm"]["differences_from_reference"]
    (contrast,) = found["contrasts"]
    assert (contrast["better"], contrast["worse"]) == ("warm", "bag")
    for group in ("Same", "Cross"):
        for values in (tested[f"SIB-200 {group}"], contrast["measures"][f"SIB-200 {group}"]):
            assert values["difference"] == pytest.approx(0.3)
            assert values["p"] == expected[group].p and tuple(values["interval"]) == expected[group].interval
    # The second seed is above the bag in Same (70 to 60), below it in Cross (46 to 50).
    measures = contrast["measures"]
    counts = [(each["pairs_that_agree"], each["pairs_of_seeds"]) for each in measures.values()]
    assert counts == [(2, 2), (1, 2)]
    assert measures["SIB-200 Cross"]["mean_difference"] == pytest.approx(0.13)
    text = (folder.path / "table.md").read_text()
    assert "| warm - bag | **+20.0** (≤0.0001, 2/2) | **+13.0** (" in text and ", 1/2) |" in text
    assert "Texts that were cut: bag 1 of 1,000 on sib200; warm 1 of 1,000 on sib200." in text
    assert "The limits of CPU minutes differ" in text


def test_a_worse_system_is_marked_and_a_difference_by_chance_is_not(measured):
    comparison, folder = measured
    values = content(reference="warm", contrasts=[["bag", "warm"]])
    comparison = load(folder.path.parent, values)
    _, rows = write_table(comparison, folder)
    by_name = {row[0]: row for row in rows}
    assert by_name["bag"][1:3] == ["60.0 ▼", "50.0 ▼"] and by_name["warm"][1] == "80.0 ± 14.1"
    assert "| bag - warm | **-20.0** (" in (folder.path / "table.md").read_text()
    # One item of a hundred more is no more than chance.
    near = classified("warm-1", outcomes_of(0.5, 0.41, 0.6, 0.71, seed=3))
    write_results(folder.evaluation(comparison.trainings[2]), [near], {})
    _, rows = write_table(load(folder.path.parent), folder)
    (warm,) = [row for row in rows if row[0] == "warm"]
    assert warm[1:3] == ["65.2 ± 6.7", "48.2 ± 3.2"]  # 60.5 and 70, 50.5 and 46


def test_a_table_of_what_there_is(measured):
    comparison, folder = measured
    folder.begin_evaluation(comparison.trainings[2])
    (folder.evaluation(comparison.trainings[3]) / "outcomes.npz").write_bytes(b"damaged")
    _, rows = write_table(comparison, folder, ["train warm-1: Error: out of memory"])
    assert [row for row in rows if row[0] == "warm"] == [["warm", *5 * ["–"]]]
    text = (folder.path / "table.md").read_text()
    assert "**Not measured:** warm-1, warm-2." in text
    assert "out of memory" in text and "outcomes.npz: damaged" in text


def test_differences_are_drawn_once(measured, monkeypatch):
    comparison, folder = measured
    write_table(comparison, folder)
    first = (folder.path / "table.json").read_text()
    monkeypatch.setattr("modeling_tmde.cli.compare_table.compare", lambda *_: pytest.fail("drawn again"))
    write_table(comparison, folder)
    assert (folder.path / "table.json").read_text() == first


def test_results_on_other_data_are_not_compared(tmp_path):
    results = [classified("a", outcomes_of(1, 1, 1, 1)), classified("b", outcomes_of(1, 1, 1, 1))]
    results[1].data["fingerprint"] = "another"
    found = Measured(
        {("a", 1): {"sib200": results[0]}, ("b", 1): {"sib200": results[1]}}, {("a", 1): "1", ("b", 1): "2"}
    )
    differences = Differences(found, tmp_path / "d.json")
    assert differences.between(("a", 1), ("b", 1), Column("sib200", "Same", "x")) is None
    assert "data of a is 'f', of b 'another'" in found.problems[0]
    assert differences.between(("a", 1), ("c", 1), Column("sib200", "Same", "x")) is None  # not measured


def test_columns_follow_from_the_tasks():
    cross = {pair: values for pair, values in outcomes_of(1, 1, 1, 1).items() if pair[0] != pair[1]}
    results = {
        task: classified("a", values, task)
        for task, values in [
            ("sentence_retrieval/general_dev", cross), ("sentence_retrieval/other", cross),
            ("document_retrieval", cross), ("sib200", outcomes_of(1, 1, 1, 1)), ("mine", cross),
        ]
    }  # fmt: skip
    for task in list(results)[:3]:
        results[task].protocol = "retrieval"
    columns = columns_of(Measured({("a", 1): results}), {"sentence_retrieval/general_dev": "general"})
    assert [column.title for column in columns] == [
        "general", "P@1 sentences other", "P@1 documents", "SIB-200 Same", "SIB-200 Cross", "mine"
    ]  # fmt: skip
    assert [column.group for column in columns] == ["Cross", "Cross", "Cross", "Same", "Cross", "Cross"]
