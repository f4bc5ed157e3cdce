"""The pages of docs/results are those that `python -m benchmarks.report` makes."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

from tmde.training.packaged_files import yaml_files
from tmde.training.recipe.loading import read_yaml

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location(
    "benchmarks_report", ROOT / "benchmarks" / "report.py"
)
report = importlib.util.module_from_spec(specification)
sys.modules["benchmarks_report"] = report  # dataclasses look up their module there
specification.loader.exec_module(report)


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


def write_test_data(folder):
    system = {
        "megabytes": 19.0,
        "texts_per_second": 12_345.0,
        "seeds": 1,
        "dtype": "float32",
        "training": "20 minutes",
    }
    names = (
        "sentences",
        "documents",
        "questions_same",
        "questions_across",
        "similarity_same",
        "similarity_across",
    )
    results = []
    for number, name in enumerate(("default", "small", "e5-small")):
        measures = {measure: [60.0 + number, 58.0, 63.0] for measure in names}
        results.append({"system": name, **system, "measures": measures})
    best = {measure: [70.0, 69.0, 71.0] for measure in names}
    results.append({"system": "accurate", **system, "measures": best})
    machine = {"processor": "a processor"}
    content = {"benchmark": "test_data", "machine": machine, "results": results}
    (folder / "test_data.json").write_text(json.dumps(content))


def test_committed_pages_equal_their_regeneration(pages):
    assert report.differing_pages(pages, report.PAGES) == []


def test_table_of_the_readme_equals_its_regeneration():
    readme = report.README.read_text("utf-8")
    assert report.make_readme(readme) == readme


def test_table_of_the_readme_follows_the_file(folder):
    change(folder, "test_data", set_sentences_of_default)
    readme = "# tmde\n<!-- models -->\nold\n<!-- end of models -->\nend\n"
    lines = report.make_readme(readme, folder).splitlines()
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
    page = tmp_path / "peers.md"
    page.write_text(page.read_text().replace("51 times", "52 times"))
    (tmp_path / "old.md").write_text("# Old\n")
    assert report.main(["--check", "--output", str(tmp_path)]) == 1
    assert "peers.md" in capsys.readouterr().out
    assert report.differing_pages(pages, tmp_path) == ["old", "peers"]


def test_marian_ratio_is_that_of_the_file():
    """In float32 T-MDE read 1,582.94 words a second, Marian 634.02: 2.497, printed as 2.5."""
    text = (report.PAGES / "training-speed.md").read_text()
    results = json.loads((report.RESULTS / "training_small.json").read_text())["results"]
    assert round(results["T-MDE"]["words_per_second"]["median"], 2) == 1582.94
    assert round(results["Marian, Seq2SeqTrainer, by length"]["words_per_second"]["median"]) == 634
    assert "In float32, T-MDE trains 2.5 times as fast as Marian" in text
    assert "in bfloat16, 1.5 times" in text


def test_finding_that_the_numbers_contradict_fails(folder):
    def make_marian_fast(content):
        system = content["results"]["Marian, Seq2SeqTrainer, by length"]
        system["words_per_second"]["median"] *= 2

    change(folder, "training_small", make_marian_fast)
    with pytest.raises(report.ReportError, match=r"training-speed\.md\.jinja, line \d+: .*claim"):
        report.make_pages(folder)


def test_numbers_of_a_page_follow_the_file(folder):
    def make_default_faster(content):
        (system,) = [result for result in content["results"] if result["system"] == "default"]
        system["texts/s"]["median"] = 23_456.0

    change(folder, "peers", make_default_faster)
    assert "| `default` | 19 | 23,000 |" in report.make_pages(folder)["peers"]


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
    write_test_data(folder)
    change(folder, "test_data", set_sentences_of_default)
    figure = tmp_path / "figure.svg"
    output = tmp_path / "pages"
    readme = tmp_path / "README.md"
    shutil.copy(report.README, readme)
    arguments = ["--results", str(folder), "--output", str(output), "--figure", str(figure)]
    arguments += ["--readme", str(readme)]
    assert report.main(arguments) == 0
    assert (
        "`accurate` has the largest value of the models measured here, 70.0 ± 1.0"
        in (output / "test-data.md").read_text()
    )
    summary = (output / "index.md").read_text().replace(report.NO_BREAK, " ")
    assert "| `default` | 12.5 ± 1.0 |" in summary
    first = figure.read_bytes()
    assert report.main(arguments) == 0
    assert figure.read_bytes() == first


def test_the_front_has_what_nothing_is_both_faster_and_better_than():
    points = [(10.0, 90.0), (100.0, 80.0), (50.0, 70.0), (1000.0, 60.0), (5.0, 90.0)]
    assert report.pareto_front(points) == [(1000.0, 60.0), (100.0, 80.0), (10.0, 90.0)]


def test_a_system_of_several_seeds_and_questions_on_the_page_of_test_data(folder):
    write_test_data(folder)

    def train_three_seeds(content):
        default = content["results"][0]
        accurate = content["results"][-1]
        accurate |= {"seeds": 3, "spread": "standard deviation"}
        stored = {"system": "USE", "seeds": 1, "measures": default["measures"]}
        content["results"].append(stored)

    change(folder, "test_data", train_three_seeds)
    page = report.make_pages(folder)["test-data"].replace(report.NO_BREAK, " ")
    assert "| questions, one language | questions, two languages |" in page
    assert "| `accurate` | **70.0 ± 1.0** | **70.0 ± 1.0** | **70.0 ± 1.0** |" in page
    assert "| universal-sentence-encoder-multilingual 3 |  |  |  | 1 |  |" in page
    text = " ".join(page.split())
    assert "with several seeds it is one standard deviation over seeds" in text
    # An interval and a deviation are not compared.
    assert (
        "has the largest value of the models measured here, 70.0 ± 1.0. `default` has 60 ± 3. -"
        in text
    )


def test_without_several_seeds_the_page_of_test_data_has_no_deviation(folder):
    write_test_data(folder)
    page = report.make_pages(folder)["test-data"]
    assert "Questions" in page
    assert "standard deviation" not in page


def test_tables_are_small(pages):
    for name, text in pages.items():
        for table in text.split("\n\n"):
            if table.startswith("|"):
                lines = table.splitlines()
                assert len(lines) <= 2 + 12, (name, lines[0])
                assert lines[0].count("|") - 1 <= 8, (name, lines[0])


def plain_texts(cells):
    return [text.replace(report.NO_BREAK, " ") for text in report.column_texts(cells)]


def test_headings_stand_on_lines_of_their_own(pages):
    for name, text in pages.items():
        for line in text.splitlines():
            assert " ## " not in line, (name, line)
    assert report.tidy("- one\n- two\n## Next\n\ntext\n") == "- one\n- two\n\n## Next\n\ntext\n"


def test_spreads_of_different_kinds_are_not_compared():
    deviation = report.Measure(71.0, 70.0, 72.0, report.DEVIATION)
    interval = report.Measure(60.0, 58.0, 62.0)
    assert deviation.above(report.Measure(60.0, 58.0, 62.0, report.DEVIATION))
    with pytest.raises(report.ReportError, match="standard deviation and one with a 95 % interval"):
        deviation.above(interval)


def test_spread_over_seeds_is_a_standard_deviation():
    systems = report.Measurements(report.RESULTS).compared("compare_beta")
    assert systems["beta_0"]["SIB-200 Cross"].spread == report.DEVIATION


def test_digits_follow_the_intervals():
    wide = report.Measure(71.6, 67.3, 75.8)
    narrow = report.Measure(94.04, 93.5, 94.5)
    assert plain_texts([wide, wide]) == ["72 ± 4", "72 ± 4"]
    assert plain_texts([wide, narrow, None]) == ["71.6 ± 4.3", "94.0 ± 0.5", ""]


def test_best_values_are_bold_as_printed():
    table = report.markdown_table(
        ["", "quality", "seconds"], [["a", 94.04, 3], ["b", "94.0", 2]], report.all_best(3)
    )
    assert "| b | 94.0 | 2 |" in table
    table = report.markdown_table(
        ["", "seconds"], [["a", "3.1"], ["b", "2.0"], ["c", None]], {1: report.SMALLEST}
    )
    assert "| b | **2.0** |" in table and "| a | 3.1 |" in table


def test_paragraphs_are_wrapped_and_code_is_not():
    long = "word " * 40
    text = report.tidy(f"# Title\n\n{long}\n- one\n- two\n\n```text\n{long}\n\nx\n```\n")
    assert f"```text\n{long}\n\nx\n```\n" in text
    assert "- one\n- two\n\n```text" in text
    assert max(map(len, text.split("```")[0].splitlines())) <= 100


# ---- The page of claims


def claims_page(folder) -> str:
    environment = report.make_environment(report.Measurements(folder))
    return report.tidy(environment.get_template("claims.md.jinja").render())


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


def forget_results(content: dict) -> None:
    """Turn `claims.json` into that of a comparison of which nothing is run yet."""
    for claim in content["claims"]:
        if claim["verdict"] == "not tested":
            continue
        claim |= {"verdict": "not run yet", "corrected_p": None, "seeds_done": [0, 0]}
        for pair in claim["measures"]:
            pair |= {"better": {}, "worse": {}, "difference": None}
    for system in content["systems"].values():
        system |= {"seeds": {}, "curve": [], "geometry": {}}
    content |= {"runs": {"planned": 129, "measured": 0}, "cpu_hours": 0.0}


def section_of(page: str, claim: str) -> str:
    return page.partition(f"### {claim}\n")[2].partition("\n### ")[0]


def test_the_page_of_claims_equals_its_regeneration():
    assert claims_page(report.RESULTS) == (report.PAGES.parent / "claims.md").read_text("utf-8")


def test_every_claim_has_a_verdict_or_a_reason():
    claims = json.loads((report.RESULTS / "claims.json").read_text("utf-8"))["claims"]
    assert len(claims) >= 16
    page = claims_page(report.RESULTS)
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


def test_the_page_of_claims_with_some_results(folder):
    """One claim with a verdict, one in the middle of its seeds; all others are not run yet."""

    def add_results(content):
        forget_results(content)
        claims = {claim["id"]: claim for claim in content["claims"]}
        holding = claims["tmde-above-laser-6"]
        holding["verdict"] = "holds"
        holding["corrected_p"] = 0.00423
        holding["seeds_done"] = [3, 3]
        better = {"42": 0.5, "43": 0.6, "44": 0.7}
        worse = {"42": 0.4, "43": 0.5, "44": 0.6}
        holding["measures"] = [measured(better, worse, "share", 0.1, 0.025)]
        begun = claims["pyramid-is-as-fast"]
        begun["seeds_done"] = [2, 1]
        ratio = measured({"42": 5000.0, "43": 5100.0}, {"42": 5050.0}, "ratio", 0.0, 0.0953102)
        begun["measures"] = [ratio]
        leaning = claims["similarity-loss-lifts-classification"]
        leaning["verdict"] = "cannot be told at this size"
        leaning["corrected_p"] = 0.5
        leaning["measures"] = [measured(better, worse, "share", -0.1, 0.025)]
        points = []
        for step in (100, 200, 300, 400):
            points.append(
                {"step": step, "rows": 10 * step, "minutes": step / 50, "retrieval": 0.25}
            )
        content["systems"]["tmde"]["curve"] = points
        others = [{**point, "retrieval": 0.2} for point in points]
        content["systems"]["laser_6"]["curve"] = others
        content["systems"]["tmde"]["seeds"] = {
            "42": {"best_step": 100, "steps": 400},
            "43": {"best_step": 400, "steps": 400},
        }
        content["systems"]["laser_6"]["seeds"] = {
            "42": {"best_step": 100, "steps": 400},
            "43": {"best_step": 100, "steps": 400},
        }
        content["systems"]["tmde"]["geometry"] = {
            "language_accuracy": 0.81,
            "language_accuracy_debiased": 0.54,
            "debiased_rank": 4.0,
            "components_90": 30.25,
            "precision_at_1_cosine": 0.5,
            "precision_at_1_euclidean": 0.4,
            "precision_at_1_debiased": 0.55,
        }
        content["runs"]["measured"] = 6
        content["cpu_hours"] = 1.26

    change(folder, "claims", add_results)
    page = claims_page(folder)
    holding = section_of(page, "tmde-above-laser-6")
    assert "**Holds.** p-value 0.01, corrected 0.0042. T-MDE against LASER_6, which were" in holding
    row = "| the measure | 60.0 (3 seeds) | 50.0 (3 seeds) | +10.0 (+7.5 to +12.5) |"
    assert row in holding
    sentences = " ".join(holding.split())
    assert "Of T-MDE, the checkpoints after 100 of 400 and 400 of 400 steps are" in sentences
    assert "Of LASER_6, the checkpoint after 100 of 400 steps is reported." in sentences
    begun = section_of(page, "pyramid-is-as-fast")
    assert "**Not run yet.** 3 of 6 values." in begun
    assert "| the measure | 5,050 (2 seeds) | 5,050 (1 seed) | × 1.00 (× 0.91 to × 1.10) |" in begun
    assert "| P@1 documents | not run yet | not run yet |  |" in section_of(page, "laser-depth")
    assert "| holds | 1 |" in page
    link = "[tmde-above-laser-6](#tmde-above-laser-6)"
    paper = "73.5 against 70.3 (LASER_6)"
    assert f"| {link} | the measure | +10.0 (+7.5 to +12.5) | {paper} |" in page
    _, _, leaning = page.partition("and leans to the other side**")
    assert "| [similarity-loss-lifts-classification]" in leaning.partition("\n**")[0]
    # With four degrees of freedom, p is 0.05 / 58 at t = 8.95; 8.95 * 2.5 / 2.776445 = 8.06.
    told = section_of(page, "similarity-loss-lifts-classification")
    assert "A difference of 8.1 points could be told." in " ".join(told.split())
    assert "**6 of 129 runs are measured**, in 1.3 CPU hours" in page
    assert "| T-MDE | 30 | 50.0 | 40.0 | 81.0 | 54.0 | 4.0 | 55.0 |" in page
    assert "| T-MDE | 4,000 | 25.0 (2.0) | 25.0 (4.0) | 25.0 (6.0) | 25.0 (8.0) |" in page
    assert "| T-MDE − LASER_6 | +5.0 | +5.0 | +5.0 | +5.0 |" in page


def test_pages_above_the_others_are_written_and_checked(tmp_path):
    pages = {"claims": "# Claims\n", "peers": "# Peers\n"}
    folder = tmp_path / "results"
    report.write_pages(pages, folder)
    assert (tmp_path / "claims.md").read_text() == "# Claims\n"
    assert (folder / "peers.md").read_text() == "# Peers\n"
    assert report.differing_pages(pages, folder) == []
    (tmp_path / "claims.md").write_text("# Other claims\n")
    assert report.differing_pages(pages, folder) == ["claims"]


@pytest.mark.parametrize(("p", "text"), [(0.00004, "< 0.0001"), (0.0123, "0.012"), (1.0, "1")])
def test_text_of_p(p, text):
    assert report.p_text(p) == text


@pytest.mark.parametrize(
    ("unit", "standard_error", "text"),
    [
        # The t quantile of two degrees of freedom at 97.5 % is 4.303.
        ("share", 0.1, "43.0 points"),
        ("share", 0.3, ""),
        ("ratio", 0.3, "a factor of 3.64"),
        ("count", 0.3, "1.3"),
    ],
)
def test_the_smallest_difference_that_could_be_told(unit, standard_error, text):
    difference = {"mean": 0, "low": 0, "high": 0, "p": 1, "degrees": 2}
    difference["standard_error"] = standard_error
    assert report.smallest_told({"unit": unit, "difference": difference}, claims=1) == text
