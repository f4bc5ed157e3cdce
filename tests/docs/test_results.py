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
        if name not in report.PAGES_ABOVE:
            last = text.splitlines()[-1]
            assert re.search(r"Measurements: \[.*Conclusions last checked on \d{4}-", last), name


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
    assert "`default` embeds 35,000 sentences a second" in page


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
    for name, text in pages.items():
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


# ---- The page of claims


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


def results_of_two_systems(*claims: dict) -> dict:
    """What `claims.json` has of systems A and B, with a learning curve each."""
    seeds = {"42": {"best_step": 100, "steps": 400}, "43": {"best_step": 400, "steps": 400}}
    geometry = {
        "language_accuracy": 0.81,
        "language_accuracy_debiased": 0.54,
        "debiased_rank": 4.0,
        "components_90": 30.25,
        "precision_at_1_cosine": 0.5,
        "precision_at_1_euclidean": 0.4,
        "precision_at_1_debiased": 0.55,
    }
    systems = {}
    for system, retrieval in (("a", 0.25), ("b", 0.2)):
        curve = []
        for step in (100, 200, 300, 400):
            point = {"rows": 10 * step, "minutes": step / 50, "retrieval": retrieval}
            curve.append(point)
        systems[system] = {"seeds": seeds, "curve": curve, "geometry": geometry}
    return {"claims": claims, "titles": {"a": "System A", "b": "System B"}, "systems": systems}


def test_the_section_of_a_claim():
    measure = measured(SHARES, LOWER_SHARES, "share", 0.1, 0.025)
    claim = CLAIM | {"id": "better", "verdict": "holds", "measures": [measure]}
    section = compact(claims_page.claim_sections(results_of_two_systems(claim)))
    assert "“A is better.” (table 1: 2 against 1)" in section
    verdict = "**Holds.** p-value 0.01, corrected 0.0042. System A against System B, which were"
    assert verdict in section
    assert "Of System A, the checkpoints after 100 of 400 and 400 of 400 steps are" in section
    assert "| the measure | 60.0 (3 seeds) | 50.0 (3 seeds) | +10.0 (+7.5 to +12.5) |" in section


def test_a_claim_about_costs_is_about_a_cpu():
    measure = measured({"42": 5000.0, "43": 5100.0}, {"42": 5050.0}, "ratio", 0.0, 0.0953102)
    changes = {"id": "fast", "verdict": "does not hold", "measures": [measure]}
    section = compact(claims_page.claim_sections(results_of_two_systems(CLAIM | changes)))
    assert "**Does not hold on one core of a CPU.**" in section
    row = "| the measure | 5,050 (2 seeds) | 5,050 (1 seed) | × 1.00 (× 0.91 to × 1.10) |"
    assert row in section
    assert "checkpoint" not in section


def test_claims_that_cannot_be_told_are_listed_by_their_side():
    claims = []
    for id, mean, p, margin in [
        ("right", 0.1, 0.01, None),
        ("wrong", -0.1, 0.01, None),
        ("open", 0.1, 0.05, None),
        ("equal", 0.1, 0.01, 0.02),
    ]:
        measure = measured(SHARES, LOWER_SHARES, "share", mean, 0.025)
        measure["difference"]["p"] = p
        verdict = {"verdict": "cannot be told at this size", "margin": margin}
        claims.append(CLAIM | verdict | {"id": id, "measures": [measure]})
    text = claims_page.claim_lists(results_of_two_systems(*claims))
    titles = re.findall(r"leans to [\w' ]+ side|calls the systems equal", text)
    ids = re.findall(r"\[(\w+)\]", text)
    assert titles[0] == "leans to the paper's side" and titles[3] == "calls the systems equal"
    assert ids == ["right", "wrong", "open", "equal"]


def test_the_tables_of_systems():
    measure = measured(SHARES, LOWER_SHARES, "share", 0.1, 0.025)
    claim = CLAIM | {"id": "better", "verdict": "holds", "measures": [measure]}
    results = results_of_two_systems(claim, claim)
    vectors = compact(claims_page.vector_tables(results))
    assert "| System A | 30 | 50.0 | 40.0 | 81.0 | 54.0 | 4.0 | 55.0 |" in vectors
    curves = compact(claims_page.curve_tables(results))
    assert "| System A | 4,000 | 25.0 (2.0) | 25.0 (4.0) | 25.0 (6.0) | 25.0 (8.0) |" in curves
    growth = compact(claims_page.growth_tables(results))
    assert growth.count("System A − System B") == 1
    assert "| System A − System B | +5.0 | +5.0 | +5.0 | +5.0 |" in growth


def section_of(page: str, claim: str) -> str:
    return page.partition(f"### {claim}\n")[2].partition("\n### ")[0]


def test_every_claim_has_a_verdict_or_a_reason(pages):
    claims = json.loads((report.RESULTS / "claims.json").read_text("utf-8"))["claims"]
    assert len(claims) >= 16
    page = pages["claims"]
    for claim in claims:
        section = section_of(page, claim["id"])
        if claim["verdict"] == "not tested":
            assert "**Not tested.** " in section
        else:
            assert f"--only {claim['id']} " in section


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


def test_pages_above_the_others_are_written_and_checked(tmp_path):
    pages = {"claims": "# Claims\n", "quality": "# Quality\n"}
    folder = tmp_path / "results"
    report.write_pages(pages, folder)
    assert (tmp_path / "claims.md").read_text() == "# Claims\n"
    assert (folder / "quality.md").read_text() == "# Quality\n"
    assert report.differing_pages(pages, folder) == []
    (tmp_path / "claims.md").write_text("# Other claims\n")
    assert report.differing_pages(pages, folder) == ["claims"]


@pytest.mark.parametrize(("p", "text"), [(0.00004, "< 0.0001"), (0.0123, "0.012"), (1.0, "1")])
def test_text_of_p(p, text):
    assert claims_page.p_text(p) == text


@pytest.mark.parametrize(
    ("unit", "standard_error", "text"),
    [
        # The t quantile of two degrees of freedom at 97.5 % is 4.303.
        ("share", 0.1, "A difference of 43.0 points could be told."),
        ("share", 0.3, "With seeds that differ so much, no difference could be told."),
        ("ratio", 0.3, "A difference of a factor of 3.64 could be told."),
        ("count", 0.3, "A difference of 1.3 could be told."),
    ],
)
def test_the_smallest_difference_that_could_be_told(unit, standard_error, text):
    difference = {"mean": 0, "low": 0, "high": 0, "p": 1, "degrees": 2}
    difference["standard_error"] = standard_error
    measure = {"unit": unit, "difference": difference}
    assert claims_page.detectable_difference(measure, claims=1) == text
