"""The pages of docs/results are those that `python -m benchmarks.report` makes."""

import json
import re
import shutil

import pytest

from benchmarks import claims_page, quality_figure, report, tables
from tmde.training.packaged_files import yaml_files
from tmde.training.recipe.loading import read_yaml


@pytest.fixture(scope="module")
def pages():
    return report.make_pages()


@pytest.fixture
def folder(tmp_path):
    """A copy of the files of measurements."""
    copy = tmp_path / "results"
    shutil.copytree(report.RESULTS, copy)
    return copy


def change(folder, name, edit):
    path = folder / f"{name}.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def set_sentences_of_default(content):
    (system,) = [result for result in content["results"] if result["system"] == "default"]
    system["measures"]["sentences"] = [12.5, 11.5, 13.5]


def compact(page):
    """A page whose tables have single spaces around the cells."""
    return re.sub(" +", " ", page.replace(tables.NO_BREAK, " "))


def test_committed_pages_equal_their_regeneration(pages):
    assert report.differing_pages(pages, report.PAGES) == []


def test_table_of_the_readme_equals_its_regeneration():
    readme = report.README.read_text("utf-8")
    assert report.make_readme(readme) == readme


def test_table_of_the_readme_follows_the_file(folder):
    change(folder, "test_data", set_sentences_of_default)
    readme = "# tmde\n<!-- models -->\nold\n<!-- end of models -->\nend\n"
    lines = compact(report.make_readme(readme, folder)).splitlines()
    assert lines[:2] == ["# tmde", "<!-- models -->"]
    row = lines[4].split(" | ")
    assert row[:2] == ["| **`default`**, in the package", "19 MB"]
    assert row[3] == "12.5"
    assert lines[-2:] == ["<!-- end of models -->", "end"]
    with pytest.raises(report.ReportError, match="0 places"):
        report.make_readme("# tmde", folder)


def test_check_reports_a_changed_page_and_a_page_without_a_template(pages, tmp_path, capsys):
    report.write_pages(pages, tmp_path)
    assert report.main(["--check", "--output", str(tmp_path)]) == 0
    page = tmp_path / "quality.md"
    page.write_text(page.read_text() + "One line more.\n")
    (tmp_path / "old.md").write_text("# Old\n")
    assert report.main(["--check", "--output", str(tmp_path)]) == 1
    assert "quality.md" in capsys.readouterr().out
    assert report.differing_pages(pages, tmp_path) == ["old", "quality"]


def test_conclusions_that_are_older_than_a_measurement_fail(folder):
    def measure_again(content):
        content["date"] = "2099-01-01T00:00:00+00:00"

    change(folder, "training_small", measure_again)
    message = (
        r"speed-and-size\.md\.jinja: the conclusions are of 20\d\d-\d\d-\d\d and the .* 2099-01-01"
    )
    with pytest.raises(report.ReportError, match=message):
        report.make_pages(folder)


def test_conclusions_may_be_as_old_as_the_newest_measurement(folder):
    measurements = report.Measurements(folder)
    measurements.load("peers")
    line = measurements.sources("2099-01-01", "cleaning")
    assert "[cleaning.json](../../benchmarks/results/cleaning.json), [peers.json](" in line
    newest = measurements.newest
    assert measurements.sources(newest).endswith(f"checked on {newest}.")
    with pytest.raises(report.ReportError, match="read them again"):
        measurements.sources("2026-11-27")


def test_every_page_of_results_names_its_measurements(pages):
    for name, text in pages.items():
        last = text.splitlines()[-1]
        pattern = r"Measurements: \[.*The conclusions were last checked on \d{4}-"
        assert re.search(pattern, last), name


def test_templates_have_no_conditions_on_numbers():
    for template in report.TEMPLATES.glob("*.jinja"):
        assert not re.search(r"{%-? *(if|elif|claim)\b", template.read_text()), template


def test_numbers_of_a_page_follow_the_file(folder):
    def make_default_faster(content):
        (system,) = [result for result in content["results"] if result["system"] == "default"]
        system["texts_per_second"] = 34_567.0

    change(folder, "test_data", make_default_faster)
    page = compact(report.make_pages(folder)["speed-and-size"])
    assert "| `default` | 19 | 35,000 |" in page
    assert "`default` embeds 35,000 sentences per second" in page


def test_file_that_no_page_uses_fails(folder):
    (folder / "forgotten.json").write_text("{}")
    with pytest.raises(report.ReportError, match="no page uses forgotten"):
        report.make_pages(folder)


def test_missing_file_is_named(folder):
    (folder / "peers.json").unlink()
    with pytest.raises(report.ReportError, match=r"peers\.json does not exist"):
        report.make_pages(folder)


def test_command_writes_pages_readme_and_a_figure(folder, tmp_path):
    pytest.importorskip("matplotlib")
    change(folder, "test_data", set_sentences_of_default)
    figure = tmp_path / "figure.svg"
    output = tmp_path / "pages"
    readme = tmp_path / "README.md"
    shutil.copy(report.README, readme)
    arguments = ["--results", str(folder), "--output", str(output), "--figure", str(figure)]
    arguments += ["--readme", str(readme)]
    assert report.main(arguments) == 0
    summary = compact((output / "index.md").read_text())
    assert "| `default` | 12.5 ± 1.0 |" in summary
    first = figure.read_bytes()
    assert report.main(arguments) == 0
    assert figure.read_bytes() == first


def test_the_front_has_what_nothing_is_both_faster_and_better_than():
    points = [(10.0, 90.0), (100.0, 80.0), (50.0, 70.0), (1000.0, 60.0), (5.0, 90.0)]
    assert quality_figure.pareto_front(points) == [(1000.0, 60.0), (100.0, 80.0), (10.0, 90.0)]


def test_labels_of_the_figure_are_on_the_side_of_the_wider_gap():
    speeds = [46, 49, 8_300, 23_000, 25_000]
    sides = [quality_figure.label_is_left(speed, speeds) for speed in speeds]
    assert sides == [True, False, True, True, False]


def test_tables_are_small(pages):
    """Except for the catalogs of claims, one row a claim."""
    for name, text in pages.items():
        if name.startswith("claims-"):
            continue
        for table in text.split("\n\n"):
            if table.startswith("|"):
                lines = table.splitlines()
                assert len(lines) <= 2 + 12, (name, lines[0])
                assert lines[0].count("|") - 1 <= 8, (name, lines[0])


def plain_texts(cells):
    return [text.replace(tables.NO_BREAK, " ") for text in tables.column_texts(cells)]


def test_lists_tables_and_headings_begin_after_an_empty_line(pages):
    begins_block = re.compile(r"- |\||#{2,} |!\[")
    for name, text in pages.items():
        assert "\n\n\n" not in text, name
        for block in re.sub(r"(?ms)^```.*?^```$", "", text).split("\n\n"):
            first, *lines = block.strip().splitlines() or [""]
            for line in lines:
                begin = begins_block.match(line)
                assert begin is None or first.startswith(begin[0]), (name, line)


def test_digits_follow_the_intervals():
    wide = tables.Measure(71.6, 67.3, 75.8)
    narrow = tables.Measure(94.04, 93.5, 94.5)
    assert plain_texts([wide, wide]) == ["72 ± 4", "72 ± 4"]
    assert plain_texts([wide, narrow, None]) == ["71.6 ± 4.3", "94.0 ± 0.5", ""]


def test_best_values_are_bold_as_printed():
    rows = [["a", 94.04, 3], ["b", "94.0", 2]]
    table = compact(tables.markdown_table(["", "quality", "seconds"], rows, tables.all_best(3)))
    assert "| b | 94.0 | 2 |" in table
    rows = [["a", "3.1"], ["b", "2.0"], ["c", None]]
    table = compact(tables.markdown_table(["", "seconds"], rows, {1: tables.SMALLEST}))
    assert "| b | **2.0** |" in table and "| a | 3.1 |" in table


# ---- The pages of claims


def measured(better: dict, worse: dict, unit: str, mean: float, half: float) -> dict:
    """A measure of a claim with its difference, as `tmde compare` writes it."""
    difference = {
        "mean": mean,
        "low": mean - half,
        "high": mean + half,
        "p": 0.01,
        "standard_error": half / 2.776445,  # the quantile of t with four degrees of freedom
        "degrees": 4.0,
    }
    return {
        "title": "the measure",
        "unit": unit,
        "better": better,
        "worse": worse,
        "difference": difference,
    }


CLAIM = {
    "paper": "Li, 2021",
    "verbatim": True,
    "sentence": "A is better.",
    "place": "table 1",
    "figure": "2 against 1",
    "better": "a",
    "worse": "b",
    "columns": None,
    "equal": "rows",
    "less_is_better": False,
    "experiment": None,
    "margin": None,
    "corrected_p": 0.00423,
}
SHARES = {"42": 0.5, "43": 0.6, "44": 0.7}
LOWER_SHARES = {"42": 0.4, "43": 0.5, "44": 0.6}


def results_of(*claims: dict) -> dict:
    """What `claims.json` has of these claims."""
    return {"claims": list(claims)}


def test_the_row_of_a_claim():
    measure = measured(SHARES, LOWER_SHARES, "share", 0.1, 0.025)
    claim = CLAIM | {"id": "better", "verdict": "replicates", "measures": [measure]}
    table = compact(claims_page.paper_table(results_of(claim), "Li, 2021"))
    name = '<span id="better">better</span>'
    outcome = "the measure: +10.0 (+7.5 to +12.5) | replicates"
    assert f"| {name} | “A is better.” (table 1: 2 against 1) | {outcome} |" in table
    decided = compact(claims_page.decided_claims(results_of(claim)))
    assert (
        "| [better](claims-li-2021.md#better) | A is better. | +10.0 (+7.5 to +12.5) |" in decided
    )


def test_a_claim_about_costs_has_a_ratio():
    measure = measured({"42": 5000.0, "43": 5100.0}, {"42": 5050.0}, "ratio", 0.0, 0.0953102)
    changes = {"id": "fast", "verdict": "does not replicate", "measures": [measure]}
    table = compact(claims_page.paper_table(results_of(CLAIM | changes), "Li, 2021"))
    assert "the measure: × 1.00 (× 0.91 to × 1.10) | does not replicate" in table


def test_an_inconclusive_claim_states_what_was_detectable():
    measure = measured(SHARES, LOWER_SHARES, "share", 0.01, 0.025)
    claim = CLAIM | {"id": "open", "verdict": "inconclusive", "measures": [measure]}
    table = compact(claims_page.paper_table(results_of(claim), "Li, 2021"))
    assert "inconclusive (detectable: 2.5 points)" in table
    equal = compact(claims_page.paper_table(results_of(claim | {"margin": 0.02}), "Li, 2021"))
    assert "| inconclusive |" in equal
    assert "open" not in claims_page.decided_claims(results_of(claim))


def test_the_counts_of_verdicts():
    measure = measured(SHARES, LOWER_SHARES, "share", 0.1, 0.025)
    claims = []
    for number, verdict in enumerate(["replicates", "replicates", "inconclusive"]):
        claims.append(CLAIM | {"id": str(number), "verdict": verdict, "measures": [measure]})
    counts = compact(claims_page.verdict_counts(results_of(*claims)))
    assert "| [Li, 2021](claims-li-2021.md) | 2 | 0 | 1 | 0 |" in counts


def test_every_claim_is_on_the_page_of_its_paper(pages):
    claims = json.loads((report.RESULTS / "claims.json").read_text("utf-8"))["claims"]
    assert len(claims) >= 16
    for claim in claims:
        page = pages[claims_page.PAGES[claim["paper"]].removesuffix(".md")]
        (row,) = [line for line in page.splitlines() if f'<span id="{claim["id"]}">' in line]
        assert f" {claim['verdict']}" in row


def test_the_page_has_the_claims_of_the_comparison_file():
    """Claims and systems that were changed since are to be measured, or written, again."""
    claims = json.loads((report.RESULTS / "claims.json").read_text("utf-8"))["claims"]
    file = read_yaml("claims", yaml_files("tmde.papers", "comparisons"), "Comparison")
    assert [claim["id"] for claim in claims] == list(file["claims"])
    for claim in claims:
        planned = file["claims"][claim["id"]]
        assert claim["place"] == planned["place"]
        assert claim["verbatim"] == planned["verbatim"]
        assert claim["less_is_better"] == planned.get("less_is_better", False)
        for key in (
            "sentence",
            "figure",
            "better",
            "worse",
            "columns",
            "margin",
            "why_not",
            "equal",
            "experiment",
        ):
            assert claim[key] == planned.get(key), (claim["id"], key)


@pytest.mark.parametrize(
    ("unit", "standard_error", "text"),
    [
        # The t quantile of two degrees of freedom at 97.5% is 4.303.
        ("share", 0.1, "43.0 points"),
        ("share", 0.3, "more than 100 points"),
        ("ratio", 0.3, "a factor of 3.64"),
        ("count", 0.3, "1.3"),
    ],
)
def test_the_smallest_difference_that_could_be_detected(unit, standard_error, text):
    difference = {"mean": 0, "low": 0, "high": 0, "p": 1, "degrees": 2}
    difference["standard_error"] = standard_error
    measure = {"unit": unit, "difference": difference}
    claim = {"verdict": "inconclusive", "measures": [measure]}
    assert claims_page.detectable(claim, results_of(claim)) == text
