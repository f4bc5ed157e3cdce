"""The end of `tmde train`: the result beside its start and the packaged model."""

import json
from types import SimpleNamespace

import pytest

from tmde.cli.train_summary import _sets_with_documents, closing_lines, describe_time
from tmde.data import load_parallel


def scores(mean: float, **others: float) -> dict[str, float]:
    return {"eval_retrieval": mean, "eval_dev_p1_de-en": mean, **others}


def results(best: float, start: float | None = None, packaged: float | None = None, steps=500):
    """The content of `results.json` with these means of retrieval."""
    content = {"best": scores(best, eval_cross=0.5, eval_dev_infonce_loss=3.0), "steps": steps}
    content["start"] = None if start is None else scores(start)
    content["packaged"] = None if packaged is None else scores(packaged)
    return content


def rows_of(table: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows by their first, whose words are two spaces apart."""
    rows = {}
    for line in table.splitlines():
        first, *cells = [cell for cell in line.split("  ") if cell.strip()]
        rows[first.strip()] = [cell.strip() for cell in cells]
    return rows


def test_the_table_has_the_packaged_model_the_start_and_the_result():
    (table,) = closing_lines(results(0.986, start=0.975, packaged=0.976), warmup_steps=20)
    rows = rows_of(table)
    assert rows["On the dev rows, %"] == ["packaged model", "start", "yours"]
    assert rows["P@1, mean"] == ["97.6", "97.5", "98.6"]
    assert rows["P@1, dev de-en"] == ["97.6", "97.5", "98.6"]
    assert rows["cross"] == ["-", "-", "50.0"]
    assert not any("loss" in name for name in rows)


def test_rows_stand_in_one_order_whatever_that_of_the_scores():
    best = {"eval_cross": 0.1, "eval_dev_doc_p1_a-b": 0.2, "eval_dev_p1_a-b": 0.3}
    content = {"best": best | {"eval_retrieval": 0.3}, "steps": 500}
    (table,) = closing_lines(content, warmup_steps=20, sets_with_documents=["dev"])
    titles = ["P@1, mean", "P@1, dev a-b", "P@1, dev documents a-b", "cross"]
    assert list(rows_of(table))[2:] == titles


def test_rows_that_name_no_documents_have_no_row_of_documents():
    best = {"eval_dev_doc_p1_a-b": 0.2, "eval_dev_p1_a-b": 0.3, "eval_retrieval": 0.3}
    (table,) = closing_lines({"best": best, "steps": 500}, 20, sets_with_documents=["other"])
    assert list(rows_of(table))[2:] == ["P@1, mean", "P@1, dev a-b"]


def test_dev_sets_name_documents_only_if_their_files_do(tmp_path):
    (tmp_path / "rows.tsv").write_text("de\ten\nein Haus\ta house\nein Baum\ta tree\n")
    translation = {"de": "ein Haus", "en": "a house"}
    row = {"translation": translation, "doc_id": "houses"}
    (tmp_path / "documents.jsonl").write_text(json.dumps(row) + "\n")
    dev_sets = {}
    for name in ("rows.tsv", "documents.jsonl"):
        # A run loads its dev sets so.
        dev_sets[name] = load_parallel(str(tmp_path / name), ["de", "en"], document_ids=True)
    trainer = SimpleNamespace(eval_dataset=dev_sets)
    assert _sets_with_documents(trainer) == {"documents.jsonl"}


def test_what_was_not_measured_has_no_column():
    content = results(0.9)
    del content["start"], content["packaged"]  # Runs of earlier versions have no such keys.
    (table,) = closing_lines(content, warmup_steps=20)
    assert rows_of(table)["On the dev rows, %"] == ["yours"]


def test_a_result_below_the_packaged_model_is_told():
    _, sentence = closing_lines(results(0.961, start=0.5, packaged=0.976), warmup_steps=20)
    assert sentence == (
        "This model is worse than the packaged one on your dev rows (96.1 < 97.6). Train longer, "
        "lower the learning rate, or use the packaged model (`-m default`)."
    )


def test_a_result_below_its_start_is_told():
    _, sentence = closing_lines(results(0.9, start=0.95, packaged=0.5), warmup_steps=20)
    assert "worse than the one it was initialized from (90.0 < 95.0)" in sentence


def test_equal_digits_are_no_difference():
    lines = closing_lines(results(0.97561, start=0.97562, packaged=0.97563), warmup_steps=20)
    assert len(lines) == 1


@pytest.mark.parametrize(("steps", "is_told"), [(1, True), (20, True), (21, False)])
def test_a_run_that_ends_within_the_warm_up_is_told(steps, is_told):
    lines = closing_lines(results(0.9, steps=steps), warmup_steps=20)
    assert any("has hardly learned anything" in line for line in lines) == is_told


def test_without_dev_rows_there_is_no_table():
    assert closing_lines({"best": None, "steps": 500}, warmup_steps=20) == []


def test_the_time_of_evaluations_is_told_apart():
    """`minutes` of `results.json` has both."""
    content = {"steps": 1046, "minutes": 4.71, "evaluation_minutes": 1.71}
    expected = "1,046 steps in 3.00 minutes of training and 1.71 of evaluation"
    assert describe_time(content) == expected


def test_the_time_that_the_teacher_took_is_told_apart():
    content = {"steps": 46, "minutes": 5.0, "evaluation_minutes": 0.0, "teacher_minutes": 2.0}
    expected = "46 steps in 3.00 minutes of training and 2.00 of computing teacher vectors"
    assert describe_time(content) == expected
    content["evaluation_minutes"] = 1.0
    expected = (
        "46 steps in 2.00 minutes of training, 1.00 of evaluation and 2.00 of computing teacher "
        "vectors; 5.00 in all"
    )
    assert describe_time(content) == expected


def test_a_run_without_evaluations_tells_its_training_alone():
    content = {"steps": 46, "minutes": 3.0, "evaluation_minutes": 0.0}
    assert describe_time(content) == "46 steps in 3.00 minutes of training"
