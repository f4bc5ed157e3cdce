"""Published tables: as printed, and consistent but where the papers are not."""

import numpy as np
import pytest

from modeling_tmde.eval.published import PublishedError, published_for, published_tables, tables
from modeling_tmde.eval.results import Cell, TaskResult
from modeling_tmde.eval.tasks import TASKS


def rows(key: str) -> dict[tuple[str, ...], list]:
    found = {row.labels: list(row.values.values()) for row in published_tables()[key].rows}
    assert len(found) == len(published_tables()[key].rows)  # no row twice
    return found


def test_which_tables_there_are_and_for_which_task():
    numbers = ["4.2", "4.3", "4.4", "4.5", "4.6", "4.7-mldoc", "4.7-xnli", "4.8", "4.9", "4.10", "4.11", "4.12"]
    thesis = [f"thesis-{number}" for number in numbers]
    parts = ("2", "4", "4-loo", "6-zero-shot", "6-targeted")
    assert list(published_tables()) == [*(f"similarity_loss-{part}" for part in parts), *thesis]
    assert [table.key for table in published_for("xnli")] == ["thesis-4.7-xnli"]
    assert [table.key for table in published_for("europarl_matrix")] == ["similarity_loss-2"]
    assert len(published_for("mldoc")) == 15
    assert {table.task for table in published_tables().values()} <= set(TASKS)
    protocols = {table.key: table.protocol for table in published_tables().values()}
    others = {"similarity_loss-2": "retrieval", "similarity_loss-4-loo": "leave-one-out"}
    others["similarity_loss-6-targeted"] = "targeted"
    assert {key: name for key, name in protocols.items() if name != "zero-shot"} == others
    assert published_for("unheard of") == []
    for table in published_tables().values():
        assert table.citation and table.caption and table.section
        assert (table.page is not None) == table.key.startswith("thesis")


def test_numbers_of_the_papers():
    assert rows("thesis-4.2")["LASER_5 2019",] == [84.8, 77.3, 78.0, 69.4, 77.4]
    assert rows("thesis-4.2")["T-MDE*",] == [84.6, 73.8, 74.9, 70.5, 76.0]
    assert rows("thesis-4.3")["cT-MDE",] == [75.2, 89.2, 78.0, "15.2K"]
    assert rows("thesis-4.3")["LASER 2018",] == [68.0, 88.3, 72.6, None]
    assert rows("thesis-4.4")["LASER_6", "cLASER_6"] == ["<0.0001"]
    assert rows("thesis-4.5")["T-MDE",] == [87.3, 42.8, 60.6, 91.5, 89.4, 51.7]
    assert rows("thesis-4.6")["T-MDE_F",] == [60.7, 82.5, 65.1, "17.4K"]
    assert rows("thesis-4.7-mldoc")["cT-MDE", "0.25"] == [89.2, 75.2]
    assert rows("thesis-4.7-mldoc")["cLASER_6", "0.1"] == [87.8, 71.5]
    assert rows("thesis-4.7-xnli")["cLASER_6", "0"] == [69.09]
    assert rows("thesis-4.8")["18",] == [90.1, 75.5, 89.2, 75.2]
    assert rows("thesis-4.9")["17",] == [89.8, 73.3, 88.7, 73.9]
    assert rows("thesis-4.10")["14",] == [88.6, 67.2, 87.8, 67.4]
    assert rows("thesis-4.11")["20",] == [88.8, 67.7, 88.0, 67.6]
    assert rows("thesis-4.12")["LASER_1", "LASER_6"] == [0.0373]
    assert rows("similarity_loss-2")["without regularization", "De"] == [96.9, 87.0, 86.7, 85.3, 83.2, 85.8, 87.5]
    assert rows("similarity_loss-2")["weight regularization", "En"] == [89.1, 97.1, None, None, None, None, 91.6]
    assert rows("similarity_loss-2")["similarity loss", "Pt"] == [87.9, 92.2, 93.0, 91.7, 90.1, 97.3, 92.0]
    assert rows("similarity_loss-4")["similarity loss", "Es"] == [79.5, 73.4, 92.4, 78.9, 72.0, 58.0, 75.7]
    assert rows("similarity_loss-4-loo")["similarity loss", "LOO"] == [78.5, 89.4, 73.0, 80.5, 70.0, 65.6, 76.2]
    assert rows("similarity_loss-6-zero-shot") == {("Zero-shot transfer",): [74.6]}
    assert rows("similarity_loss-6-targeted") == {("Targeted transfer",): [75.6]}
    assert published_tables()["thesis-4.3"].page == 44
    assert published_tables()["similarity_loss-4"].section == "5.2"


def test_averages_of_the_thesis_follow_from_its_columns():
    for label, (*languages, average) in rows("thesis-4.2").items():
        assert average == pytest.approx(np.mean(languages), abs=0.051), label
    off = []
    for key in ("thesis-4.3", "thesis-4.6"):
        for label, (cross, same, everything, _) in rows(key).items():
            # Each of the two means is rounded to 0.05, and so is their weighted mean.
            if abs(everything - (5 * same + 20 * cross) / 25) > 0.1:
                off.append((key, label))
    assert off == [("thesis-4.3", ("LASER 2018",))]
    assert "72.1" in published_tables()["thesis-4.3"].inconsistent[0]
    for en_en, en_es, es_en, es_es, same, cross in rows("thesis-4.5").values():
        assert same == pytest.approx((en_en + es_es) / 2, abs=0.051)
        assert cross == pytest.approx((en_es + es_en) / 2, abs=0.051)


def test_tables_of_the_thesis_agree_with_each_other():
    main = rows("thesis-4.3")
    assert rows("thesis-4.6")["T-MDE",] == main["T-MDE",]
    beta = rows("thesis-4.7-mldoc")
    for model, value, name in (
        ("cT-MDE", "0.25", "cT-MDE"),
        ("cT-MDE", "0", "T-MDE"),
        ("cLASER_6", "0.25", "cLASER_6"),
        ("cLASER_6", "0", "LASER_6"),
    ):
        assert beta[model, value] == [main[name,][1], main[name,][0]]
    # Each model of table 4.3 is one of the epochs of tables 4.8 to 4.11.
    for number, name in (("4.8", "cT-MDE"), ("4.9", "T-MDE"), ("4.10", "cLASER_6"), ("4.11", "LASER_6")):
        cross, same = main[name,][:2]
        assert [same, cross] in [values[2:] for values in rows(f"thesis-{number}").values()]
    shared = set(rows("thesis-4.4")) & set(rows("thesis-4.12"))
    assert len(shared) == 3
    assert all(rows("thesis-4.4")[pair] == rows("thesis-4.12")[pair] for pair in shared)


@pytest.mark.parametrize(
    ("key", "off"),
    [("similarity_loss-2", ["similarity loss, column De"]), ("similarity_loss-4", ["similarity loss, row De"])],
)
def test_averages_of_the_matrices_follow_from_their_cells(key, off):
    found = []
    table = rows(key)
    languages = list(published_tables()[key].measures)[:-1]
    checked = 0
    for training in dict.fromkeys(labels[0] for labels in table):
        matrix = np.array([table[training, language] for language in languages], dtype=np.float64)  # None: NaN
        bottom = np.array(table[training, "All"], dtype=np.float64)
        for position, language in enumerate(languages):
            for name, values, mean in (
                ("row", matrix[position, :-1], matrix[position, -1]),
                ("column", matrix[:, position], bottom[position]),
            ):
                checked += np.isfinite(values).all()
                if abs(values.mean() - mean) > 0.1001:  # NaN where cells are empty
                    found.append(f"{training}, {name} {language}")
        if np.isfinite(matrix).all():
            assert bottom[-1] == pytest.approx(matrix[:, :-1].mean(), abs=0.1001)
    assert found == off
    assert checked == {"similarity_loss-2": 26, "similarity_loss-4": 24}[key]
    assert [note.partition(" is ")[0].lower() for note in published_tables()[key].inconsistent] == [
        name.lower() for name in off
    ]


def cell(source: str, target: str, value: float) -> Cell:
    return Cell(source, target, "accuracy", value, ["1"], np.array([value]))


def test_measured_numbers_in_the_columns_of_a_table():
    english = [cell("en", target, value) for target, value in (("de", 0.8), ("es", 0.7), ("fr", 0.6), ("it", 0.5))]
    others = [cell("en", "en", 0.99), cell("de", "es", 0.01)]  # of no column
    measured = published_tables()["thesis-4.2"].measured(english + others)
    assert measured == pytest.approx({"de": 80, "es": 70, "fr": 60, "it": 50, "Avg.": 65})
    assert published_tables()["thesis-4.2"].measured(english[:3] + others) is None
    pair = [cell("en", "en", 0.9), cell("en", "es", 0.5), cell("es", "en", 0.4), cell("es", "es", 0.7)]
    assert published_tables()["thesis-4.5"].measured(pair + english) == pytest.approx(
        {"en -> en": 90, "en -> es": 70, "es -> en": 40, "es -> es": 70, "Same": 80, "Cross": 55}
    )  # of a pair that is there twice the last counts
    assert published_tables()["thesis-4.3"].measured(pair) is None
    assert published_tables()["thesis-4.8"].measured(pair) is None  # nothing in it that an evaluation measures


def test_five_published_languages_beside_six_measured_ones():
    languages = "de en es fr it".split()
    five = [cell(a, b, 0.9 if a == b else 0.7) for a in languages for b in languages]
    sixth = [cell("ru", "ru", 0.1), cell("ru", "de", 0.1), cell("en", "ru", 0.1)]
    measured = published_tables()["thesis-4.3"].measured(five + sixth)
    assert measured == pytest.approx({"Cross": 70, "Same": 90, "All": (5 * 90 + 20 * 70) / 25})


def test_what_was_measured_otherwise_than_published():
    table = published_tables()["thesis-4.2"]  # trained on en, tested on de, es, fr, it

    def differences(train=1000, test=(4000,) * 4, head="ffn", **data) -> list[str]:
        rows = {code: {"train": 7, "test": size} for code, size in zip(table.targets, test, strict=True)}
        data = data or {"rows": rows | {"en": {"train": train, "dev": 3, "test": 9}}}
        return table.differences(
            TaskResult("mldoc", "m", "zero-shot", [], settings={"head": {"head": head}}, data=data)
        )

    assert differences() == []  # what English is tested on, and others trained on, is not of this table
    assert differences(train=10000) == ["train 10,000 instead of 1,000"]
    assert differences(test=(4000, 200, 150, 4000), head="svm") == [
        "test 150 to 200 instead of 4,000",
        "head svm, published ffn",
    ]
    unknown = ["train of unknown size instead of 1,000", "test of unknown size instead of 4,000"]
    assert differences(rows=4000) == differences(rows={"en": 1000}) == differences(rows=None) == unknown
    bare = table.differences(TaskResult("mldoc", "m", "zero-shot", []))
    assert bare == [*unknown, "head unknown, published ffn"]


def test_a_bad_file_is_named():
    record = {
        "number": "9",
        "section": "1",
        "caption": "c",
        "task": "t",
        "protocol": "p",
        "metric": "m",
        "labels": ["Model"],
        "sources": ["en"],
        "targets": ["de"],
        "columns": {"x": "en -> de"},
        "rows": [["a", 1.0], ["b"]],
    }
    paper = {"citation": "c", "short": "s"}
    with pytest.raises(PublishedError, match=r"f\.yaml, table 9, row 2: found 1 entries, expected 1 labels and 1"):
        tables._table("f.yaml", paper, record, {})
    record |= {"rows": [], "columns": {"x": "de -> en"}}
    with pytest.raises(PublishedError, match=r"f\.yaml, table 9, x: found measure 'de -> en', expected one of"):
        tables._table("f.yaml", paper, record, {})
