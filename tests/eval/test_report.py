"""The Markdown, read back by a Markdown parser; the terminal's table; the metadata of the model card."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import model_index_to_eval_results
from markdown_it import MarkdownIt
from rich.console import Console

from modeling_tmde.eval.model_index import eval_results, model_index, write_model_index
from modeling_tmde.eval.report import markdown_report, print_report
from modeling_tmde.eval.results import Cell, TaskResult
from modeling_tmde.eval.statistics import summary_intervals

FIVE = ("de", "en", "es", "fr", "it")


def cell(source: str, target: str, hits: int, items: int = 8, metric: str = "accuracy", **options) -> Cell:
    outcomes = np.array([1.0] * hits + [0.0] * (items - hits))
    return Cell(source, target, metric, hits / items, [f"{target}-{i}" for i in range(items)], outcomes, **options)


def result(system: str, cells: list[Cell], **options) -> TaskResult:
    values = {"task": "topics", "protocol": "zero-shot", "data": {"fingerprint": "f1"}}
    return TaskResult(system=system, cells=cells, **(values | options))


def two_by_two(system: str, hits: tuple[int, int, int, int], **options) -> TaskResult:
    pairs = [("de", "de"), ("de", "en"), ("en", "de"), ("en", "en")]
    shared = {"chance": 0.25, "extra": {"majority": 0.375, "size": 8}}
    return result(system, [cell(*pair, count, **shared) for pair, count in zip(pairs, hits, strict=True)], **options)


def five_by_five(system: str, same: int, cross: int, **options) -> TaskResult:
    cells = [cell(a, b, same if a == b else cross, 10) for a in FIVE for b in FIVE]
    rows = dict.fromkeys(FIVE, {"train": 1000, "dev": 1000, "test": 4000})
    published = {"settings": {"head": {"head": "ffn"}}, "data": {"fingerprint": "f1", "rows": rows}}
    return result(system, cells, **({"task": "mldoc"} | published | options))


def tables(markdown: str) -> list[list[list[str]]]:
    """Every table of a Markdown text as GitHub would show it: rows of texts, the header first."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    found: list[list[list[str]]] = []
    for position, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            children = tokens[position + 1].children
            found[-1][-1].append("".join("\n" if child.type == "html_inline" else child.content for child in children))
    return found


def test_means_baselines_and_order():
    report = markdown_report(
        [two_by_two("TF-IDF", (6, 2, 2, 6)), two_by_two("my_model*|", (8, 4, 6, 6)), two_by_two("b", (8, 8, 8, 8))]
    )
    # my_model: 8/8, 4/8, 6/8, 6/8: Same (100 + 75) / 2 = 87.5, Cross (50 + 75) / 2 = 62.5, All 75.
    assert tables(report) == [
        [
            ["System", "Same", "Cross", "All", "de → de", "de → en", "en → de", "en → en"],
            ["my_model*|", "87.5", "62.5", "75.0", "100.0", "50.0", "75.0", "75.0"],
            ["b", *["100.0"] * 7],
            ["TF-IDF", "75.0", "25.0", "50.0", "75.0", "25.0", "25.0", "75.0"],
            ["chance", *["25.0"] * 7],
            ["majority", *["37.5"] * 7],
        ],
        *[
            [["", "de", "en"], ["de", a, b], ["en", c, d]]
            for a, b, c, d in (
                ("100.0", "50.0", "75.0", "75.0"),
                ("100.0", "100.0", "100.0", "100.0"),
                ("75.0", "25.0", "25.0", "75.0"),
            )
        ],
    ]
    assert "trained on (rows), tested on (columns)" in report


def test_large_matrices_have_means_only_and_their_own_tables():
    found = tables(markdown_report([five_by_five("m", 9, 6, task="topics")]))
    # All: (5 x 90 + 20 x 60) / 25 = 66.
    assert found[0] == [["System", "Same", "Cross", "All"], ["m", "90.0", "60.0", "66.0"]]
    assert found[1][0] == ["", *FIVE]
    assert found[1][3] == ["es", "60.0", "60.0", "90.0", "60.0", "60.0"]
    assert len(found) == 2


def test_one_training_language_shows_no_cell_twice():
    cells = [cell("en", "en", 8), cell("en", "de", 4), cell("en", "es", 2)]
    # Cross: (50 + 25) / 2. Same would be en → en alone.
    assert tables(markdown_report([result("m", cells)])) == [
        [
            ["System", "Cross", "All", "en → en", "en → de", "en → es"],
            ["m", "37.5", "58.3", "100.0", "50.0", "25.0"],
        ]
    ]


def test_uncertainty_is_printed_where_there_is_any():
    cells = [cell("en", "de", 6, std=0.0125, interval=(0.5, 1.0)), cell("en", "es", 2, std=0.0, interval=(0.0, 0.5))]
    made = result("m", cells, settings={"bootstrap_samples": 50, "seed": 3})
    report = markdown_report([made, result("n", [cell("en", "de", 4)])])
    low, high = summary_intervals(cells, samples=50, seed=3)["Cross"]
    assert tables(report) == [
        [
            ["System", "Cross", "en → de", "en → es"],
            [
                "m",
                f"50.0\n[{100 * low:.1f}, {100 * high:.1f}]",
                "75.0 ± 1.2\n[50.0, 100.0]",
                "25.0 ± 0.0\n[0.0, 50.0]",
            ],
            ["n", "50.0", "50.0", "–"],
        ]
    ]
    assert "± standard deviation over seeds" in report and "95% bootstrap interval" in report
    assert "n was measured on 1 of 2 pairs of languages" in report
    plain = markdown_report([result("n", [cell("en", "de", 4)])])
    assert "deviation" not in plain and "interval" not in plain and "pairs of" not in plain


def test_the_deviation_of_a_mean_is_that_of_the_means_over_seeds():
    # de -> de moves up by the seeds as de -> en moves down: the cells have deviations, Same + Cross (All) has none.
    up, down = (0.5, 0.6, 0.7), (0.7, 0.6, 0.5)
    pairs = {("de", "de"): up, ("en", "en"): up, ("de", "en"): down, ("en", "de"): (0.6, 0.6, 0.6)}
    cells = [
        Cell(*pair, "accuracy", 0.6, ["x"], np.array([0.6]), std=float(np.std(runs, ddof=1)), seed_values=runs)
        for pair, runs in pairs.items()
    ]
    table = tables(markdown_report([result("m", cells)]))[0]
    # Same: of 0.5, 0.6, 0.7: 10 points. Cross: of 0.65, 0.6, 0.55: 5. All: of 0.575, 0.6, 0.625: 2.5.
    means = ["60.0 ± 10.0", "60.0 ± 5.0", "60.0 ± 2.5"]
    assert table[1] == ["m", *means, "60.0 ± 10.0", "60.0 ± 10.0", "60.0 ± 10.0", "60.0 ± 0.0"]
    cells[0] = replace(cells[0], seed_values=())  # as of a cell that was run once: no deviation of means with it
    assert tables(markdown_report([result("m", cells)]))[0][1][1:4] == ["60.0", "60.0 ± 5.0", "60.0"]


def test_cells_of_a_matrix_have_their_intervals():
    cells = [cell(a, b, 4, std=0.01, interval=(0.2, 0.8)) for a in ("de", "en") for b in ("de", "en")]
    matrix = tables(markdown_report([result("m", cells, settings={"bootstrap_samples": 20, "seed": 0})]))[1]
    assert matrix == [["", "de", "en"], *([name, *["50.0 ± 1.0\n[20.0, 80.0]"] * 2] for name in ("de", "en"))]


def test_folds_left_out_rows_and_constants_are_told():
    ran = {"folds": {"draws": 5, "size": 2000, "tuning": "last 1/5"}}
    results = [
        two_by_two("a", (8, 4, 6, 6), settings=ran),
        two_by_two("b", (8, 4, 6, 6), settings=ran),
        two_by_two("c", (8, 4, 6, 6), settings={"folds": {"left_out": "40 rows are too few"}}),
        two_by_two("d", (8, 4, 6, 6)),
    ]
    report = markdown_report(results)
    assert "a, b: folds of the paired t-test (thesis 4.6): 5 draws of 2,000 items, each halved" in report
    assert "back; tuning: last 1/5." in report
    assert "c: the folds of the paired t-test were not run: 40 rows are too few" in report
    assert report.count("paired t-test") == 2 and "Settings" not in report
    found = [cell("de", "en", 4, extra={"left_out": 3}), cell("en", "de", 4, extra={"left_out": 11})]
    assert "earlier row's: 3 to 11 in each of the pairs" in markdown_report([result("m", found)])
    none = [cell("de", "en", 4, extra={"left_out": 0})]
    assert "left out" not in markdown_report([result("m", none)])
    constant = [cell("de", "en", 0, extra={"constant": 1.0}), cell("en", "de", 4)]
    assert "m: all similarities of de-en are equal" in markdown_report([result("m", constant)])


def test_retrieval_with_its_further_measures():
    def pair(source, target, hits, mrr, error):
        extra = {"mrr": mrr, "recall_at_10": 0.9, "error_rate": error, "size": 8}
        return cell(source, target, hits, metric="precision_at_1", chance=0.0001, extra=extra)

    cells = [pair("de", "en", 4, 0.6, 0.25), pair("en", "de", 2, 0.5, 0.5)]
    report = markdown_report([result("m", cells, protocol="retrieval")])
    assert tables(report) == [
        [
            ["System", "Cross", "de → en", "en → de"],
            ["m", "37.5", "50.0", "25.0"],
            ["chance", "<0.1", "<0.1", "<0.1"],
        ],
        [
            ["Measure", "System", "Cross", "de → en", "en → de"],
            ["Error rate by margin (%, lower is better)", "m", "37.5", "25.0", "50.0"],
            ["MRR (%)", "m", "55.0", "60.0", "50.0"],
            ["R@10 (%)", "m", "90.0", "90.0", "90.0"],
        ],
    ]
    six = [pair(a, b, 4, 0.6, 0.25) for a in ("de", "en", "fr") for b in ("de", "en", "fr") if a != b]
    report = markdown_report([result("m", six, protocol="retrieval")])
    assert "m: query (rows), found in (columns)" in report
    assert tables(report)[2] == [
        ["", "de", "en", "fr"],
        ["de", "–", "50.0", "50.0"],
        ["en", "50.0", "–", "50.0"],
        ["fr", "50.0", "50.0", "–"],
    ]


def test_leave_one_out_is_a_list_not_a_matrix():
    cells = [cell(f"all-but-{target}", target, 4) for target in ("de", "en", "fr")]
    (table,) = tables(markdown_report([result("m", cells, protocol="leave-one-out")]))
    assert table[0] == ["System", "Cross", "all-but-de → de", "all-but-en → en", "all-but-fr → fr"]


def test_provenance_settings_and_truncation():
    data = {
        "fingerprint": "0a1b",
        "rows": {"de": {"train": 1000, "test": 4000}, "en": {"train": 1000, "test": 3998}},
        "citation": "Schwenk and Li, 2018.",
        "licence": "by agreement",
        "hub_id": "some/set",
        "url": None,
        "source": "data/my_set",
        "split": "test",
    }
    common = {"seeds": [0, 1], "max_queries": None}
    first = two_by_two("a", (8, 8, 8, 8), data=data, settings={"head": {"head": "ffn", "epochs": 9}, **common})
    first.truncated, first.system_fingerprint, first.seconds = (
        (412, 7000),
        "c0ffee",
        {"embedding": 1060.0, "measuring": 1.5},
    )
    second = two_by_two("b", (8, 8, 8, 8), data=data, settings={"head": {"head": "svm"}, **common})
    second.truncated = (0, 7000)
    report = markdown_report([first, second])
    assert (
        "Data: Schwenk and Li, 2018. Licence: by agreement. Source: `data/my_set`, "
        "<https://huggingface.co/datasets/some/set>. Tested on the split `test`. "
        "Rows: train 1,000, test 3,998 to 4,000 in each of de, en. "
        "Fingerprint: `0a1b`." in report
    )
    assert "Settings: `seeds: 0 1`." in report
    assert "- a: `head: ffn`, `head.epochs: 9`; fingerprint `c0ffee`; embedding 1,060.0 s, measuring 1.5 s" in report
    assert "- b: `head: svm`" in report
    assert (
        "a: 412 of 7,000 texts were longer than the limit of the model and were cut (TF-IDF reads whole texts)."
        in report
    )
    assert "b: 0 of" not in report


def test_other_data_is_another_section_and_other_settings_another_row():
    settings = [{"scoring": "cosine", "k": 4}, {"scoring": "margin", "k": 4}]
    results = [two_by_two("m", (8, 4, 4, 8), settings=one) for one in settings]
    other = two_by_two("m", (8, 4, 4, 8), data={"fingerprint": "f2"})
    report = markdown_report([*results, other])
    assert report.count("## topics: zero-shot") == 2
    found = tables(report)
    assert [row[0] for row in found[0][1:3]] == ["m (scoring cosine)", "m (scoring margin)"]
    assert found[3][1][0] == "m"


def test_published_rows_stand_beside_measured_ones():
    results = [five_by_five("m_1", 9, 6), five_by_five("TF-IDF", 8, 3)]
    found = tables(markdown_report(results))
    english, summary, bilingual = found[1:4]
    assert english[0] == ["System", "From", "de", "es", "fr", "it", "Avg."]
    assert english[1] == ["m_1", "measured", *["60.0"] * 5]
    assert english[2] == ["TF-IDF", "measured", *["30.0"] * 5]
    assert ["T-MDE*", "published, table 4.2", "84.6", "73.8", "74.9", "70.5", "76.0"] in english
    assert summary[:2] == [["System", "From", "Same", "Cross", "All"], ["m_1", "measured", "90.0", "60.0", "66.0"]]
    assert ["cT-MDE", "published, table 4.3", "89.2", "75.2", "78.0"] in summary
    assert ["T-MDE_F", "published, table 4.6", "82.5", "60.7", "65.1"] in summary
    assert ["cLASER_6, β = 0.1", "published, table 4.7", "87.8", "71.5", "–"] in summary
    assert len(summary) == 1 + 2 + 8 + 2 + 8
    assert bilingual[0] == ["System", "From", "en → en", "en → es", "es → en", "es → es", "Same", "Cross"]
    assert bilingual[1] == ["m_1", "measured", "90.0", "60.0", "60.0", "90.0", "90.0", "60.0"]
    assert ["cT-MDE", "published, table 4.5", "88.4", "68.0", "67.7", "91.6", "90.0", "67.9"] in bilingual
    assert "The Hong Kong University of Science and Technology" in markdown_report(results)


def test_published_rows_only_where_they_compare():
    assert "published" not in markdown_report([five_by_five("m", 9, 6)], published=False)
    assert "published" not in markdown_report([five_by_five("m", 9, 6, task="topics")])
    assert "published" not in markdown_report([five_by_five("m", 9, 6, protocol="targeted")])
    # Of other sizes, or with another classifier: one line instead.
    rows = dict.fromkeys(FIVE, {"train": 1000, "test": 200})
    small = five_by_five("m", 9, 6, data={"fingerprint": "f1", "rows": rows}, settings={"head": {"head": "svm"}})
    report = markdown_report([small])
    line = "Not comparable with the published numbers: m (test 200 instead of 4,000; head svm, published ffn)."
    assert line in report and "published, table" not in report and "The Hong Kong" not in report
    tfidf = five_by_five("TF-IDF", 8, 3, settings={"head": {"head": "logistic_regression"}})
    report = markdown_report([five_by_five("m", 9, 6), tfidf])
    assert [row[0] for row in tables(report)[2] if row[1] == "measured"] == ["m"]
    assert "numbers: TF-IDF (head logistic\\_regression, published ffn)." in report
    # German and English only: no published table has just these.
    assert "published" not in markdown_report([two_by_two("m", (8, 8, 8, 8), task="mldoc")])
    # A system that lacks a language is left out of the table, another stays.
    smaller = five_by_five("smaller", 9, 6)
    smaller.cells = [one for one in smaller.cells if "it" not in (one.source, one.target)]
    report = markdown_report([five_by_five("m", 9, 6), smaller])
    assert [row[0] for row in tables(report)[2] if row[1] == "measured"] == ["m"]


def test_what_is_no_text_for_markdown_stays_text():
    name = "<b>[x](y)`_a_` $z$ &amp; \\"
    report = markdown_report([two_by_two(name, (8, 8, 8, 8), task="<i>topics")])
    assert tables(report)[0][1][0] == name
    html = MarkdownIt("commonmark").enable("table").render(report)
    assert "<b>" not in html and "<i>" not in html and "<a " not in html and "<code>_a_" not in html


def test_a_result_without_cells_is_refused():
    with pytest.raises(ValueError, match="topics, m: found no cells"):
        markdown_report([result("m", [])])


def test_the_terminal_shows_the_summary(capsys):
    results = [two_by_two("[red]m", (8, 4, 6, 6)), two_by_two("TF-IDF", (6, 2, 2, 6))]
    results[0].truncated = (2, 8)
    console = Console(width=120, record=True, force_terminal=False)
    print_report(results, console)
    lines = [[part.strip() for part in line.strip("│").split("│")] for line in console.export_text().splitlines()]
    assert ["[red]m", "87.5", "62.5", "75.0", "100.0", "50.0", "75.0", "75.0"] in lines
    rows = [line[0] for line in lines if len(line) == 8]
    assert rows == ["[red]m", "TF-IDF", "chance", "majority"]
    assert [
        "[red]m: 2 of 8 texts were longer than the limit of the model and were cut (TF-IDF reads whole texts)."
    ] in lines
    assert "Accuracy (%)" in lines[0][0]


def of_a_model() -> list[TaskResult]:
    pairs = [cell("de", "de", 8), cell("de", "en", 4), cell("en", "de", 6, extra={"macro_f1": 0.7, "size": 8})]
    hub = {"hub_id": "Davlan/sib200", "fingerprint": "f", "split": "test"}
    gold = np.array([[1.0, 0.5], [2.0, 0.75]])
    return [
        result("m", pairs, task="sib200", data=hub, settings={"head": {"head": "svm", "max_iter": 5}}),
        result("m", [cell("de", "en", 2, metric="precision_at_1")], task="tatoeba", protocol="retrieval"),
        result("m", [Cell("en", "en", "spearman", 0.8, ["a", "b"], gold)], task="sts", protocol="similarity"),
        result("m", [Cell("en", "en", "spearman", np.nan, ["a", "b"], gold)], task="constant", protocol="similarity"),
    ]


def test_model_card_metadata():
    entries = eval_results(of_a_model())
    assert [
        (one.task_type, one.dataset_type, one.dataset_name, one.dataset_config, one.metric_type, one.metric_value)
        for one in entries
    ] == [
        ("text-classification", "Davlan/sib200", "sib200", "Cross", "accuracy", 0.625),  # (4/8 + 6/8) / 2
        ("text-classification", "Davlan/sib200", "sib200", "de-de", "accuracy", 1.0),
        ("text-classification", "Davlan/sib200", "sib200", "de-en", "accuracy", 0.5),
        ("text-classification", "Davlan/sib200", "sib200", "en-de", "accuracy", 0.75),
        ("text-classification", "Davlan/sib200", "sib200", "en-de", "f1", 0.7),
        ("translation-retrieval", "tatoeba", "tatoeba", "de-en", "precision_at_1", 0.25),
        ("sentence-similarity", "sts", "sts", "en-en", "spearmanr", 0.8),
    ]
    assert [one.dataset_split for one in entries] == ["test"] * 5 + [None] * 2
    assert entries[0].metric_args == {"protocol": "zero-shot", "head": "svm"}


def test_model_card_of_many_cells_has_their_means():
    pairs = [(a, b) for a in FIVE for b in FIVE]
    cells = [cell(a, b, 9 if a == b else 6, 10, extra={"macro_f1": 0.8 if a == b else 0.5}) for a, b in pairs]
    entries = eval_results([result("m", cells, task="topic_documents/my set")])
    assert [(one.dataset_config, one.metric_type, one.metric_value) for one in entries] == [
        ("Same", "accuracy", 0.9),
        ("Same", "f1", 0.8),
        ("Cross", "accuracy", 0.6),
        ("Cross", "f1", 0.5),
    ]
    assert {one.dataset_type for one in entries} == {"topic_documents-my-set"}  # nobody's dataset on the Hub
    english = [cell("en", target, 6, 10) for target in ("en", "de", "es", "fr", "it", "ru", "pt")]
    configs = [one.dataset_config for one in eval_results([result("m", english)])]
    assert configs == ["Same", "Cross"]  # Same is one cell, and not there otherwise


def test_model_card_round_trip(tmp_path):
    results = of_a_model()
    write_model_index(tmp_path / "index.yaml", results, "my-model")
    metadata = yaml.safe_load((tmp_path / "index.yaml").read_text())
    assert metadata["model-index"] == model_index(results, "my-model")
    # Through a card as the Hub reads it: the front matter of a README, checked and parsed by huggingface_hub.
    card = ModelCard(f"---\n{(tmp_path / 'index.yaml').read_text()}---\n# A model\n")
    assert card.data.model_name == "my-model"
    assert card.data.eval_results == eval_results(results)
    card.save(tmp_path / "README.md")
    assert ModelCard.load(tmp_path / "README.md").data.eval_results == eval_results(results)
    assert model_index_to_eval_results(metadata["model-index"]) == ("my-model", eval_results(results))
    built = ModelCardData(model_name="my-model", eval_results=eval_results(results)).to_dict()
    assert built["model-index"] == metadata["model-index"]
    numbers = [metric["value"] for entry in metadata["model-index"][0]["results"] for metric in entry["metrics"]]
    assert all(type(number) is float for number in numbers) and len(numbers) == 7


def test_the_model_s_own_results_are_taken():
    results = of_a_model()[:1]
    other = two_by_two("TF-IDF", (1, 1, 1, 1))
    assert model_index([*results, other], "m") == model_index(results, "m")
    assert model_index(results, "org/name")[0]["name"] == "org/name"
    for wrong in ([*results, other], []):
        with pytest.raises(ValueError, match="model_index of 'org/name': found results of"):
            model_index(wrong, "org/name")
    with pytest.raises(ValueError, match="topics: found metric 'bleu', expected one of"):
        eval_results([result("m", [cell("de", "en", 1, metric="bleu")])])


def test_what_is_not_above_the_majority_is_named():
    # of 8 items a cell, 3 are of the most frequent class: Same (3 + 3) / 16 is no better, Cross (4 + 3) / 16 is
    report = markdown_report([two_by_two("weak", (3, 4, 3, 3)), two_by_two("fine", (4, 4, 4, 4))])
    assert "weak: no better than always guessing the most frequent class (Same)." in report
    assert "fine: no better" not in report
