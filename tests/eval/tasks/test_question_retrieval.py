"""Questions and their paragraphs: what is read from each kind of file, and what is refused."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tmde.eval.planning import plan_tasks
from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

QUESTIONS = TASKS["question_retrieval"]()

BRIDGE = {
    "de": "Die Brücke ist gesperrt, weil sie seit März repariert wird.",
    "en": "The bridge is closed because it has been under repair since March.",
}
CAKE = {
    "de": "Der Kuchen braucht zwei Eier und eine Stunde im Ofen.",
    "en": "The cake takes two eggs and an hour in the oven.",
}
QUESTION_TEXTS = {
    "de": {
        "why": "Warum ist die Brücke gesperrt?",
        "when": "Seit wann?",
        "eggs": "Wie viele Eier?",
    },
    "en": {"why": "Why is the bridge closed?", "when": "Since when?", "eggs": "How many eggs?"},
}
PARAGRAPHS = {"why": ("bridge", BRIDGE), "when": ("bridge", BRIDGE), "eggs": ("cake", CAKE)}


def make_rows() -> list[dict[str, str]]:
    rows = []
    for language, questions in QUESTION_TEXTS.items():
        for question_id, question in questions.items():
            paragraph_id, texts = PARAGRAPHS[question_id]
            row = {
                "language": language,
                "paragraph_id": paragraph_id,
                "paragraph": texts[language],
                "question_id": question_id,
                "question": question,
            }
            rows.append(row)
    return rows


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_questions_and_paragraphs_of_each_language(tmp_path):
    data = QUESTIONS.load(write_jsonl(tmp_path / "questions.jsonl", make_rows()))
    assert data.languages == ["de", "en"]
    english = data.questions["en"]
    assert list(english.ids) == ["why", "when", "eggs"]
    assert list(english.texts) == list(QUESTION_TEXTS["en"].values())
    assert list(english.paragraph_ids) == ["bridge", "bridge", "cake"]
    assert dict(english.paragraphs) == {"bridge": BRIDGE["en"], "cake": CAKE["en"]}
    assert data.rows()["de"] == {"questions": 3, "paragraphs": 2}


def test_every_format_is_the_same(tmp_path):
    frame = pd.DataFrame(make_rows())
    frame.to_parquet(tmp_path / "questions.parquet")
    frame.to_csv(tmp_path / "questions.csv", index=False)
    frame.to_csv(tmp_path / "questions.tsv", index=False, sep="\t")
    write_jsonl(tmp_path / "questions.jsonl", make_rows())
    fingerprints = set()
    for suffix in ("parquet", "csv", "tsv", "jsonl"):
        data = QUESTIONS.load(tmp_path / f"questions.{suffix}")
        fingerprints.add(data_fingerprint(data))
    assert len(fingerprints) == 1


def test_a_dataset_of_the_hub_has_the_same_columns(dataset_folder, tmp_path):
    source = dataset_folder({"default": {"test": make_rows()}})
    from_file = QUESTIONS.load(write_jsonl(tmp_path / "questions.jsonl", make_rows()))
    for streaming in (False, True):
        data = QUESTIONS.load(source, streaming=streaming)
        assert data_fingerprint(data) == data_fingerprint(from_file)


@pytest.mark.parametrize("changed", ["question", "paragraph", "question_id", "paragraph_id"])
def test_every_column_is_in_the_fingerprint(changed, tmp_path):
    rows = make_rows()
    before = QUESTIONS.load(write_jsonl(tmp_path / "before.jsonl", rows))
    for row in rows:
        if row["question_id"] == "eggs":
            row[changed] += " again"
    after = QUESTIONS.load(write_jsonl(tmp_path / "after.jsonl", rows))
    assert data_fingerprint(after) != data_fingerprint(before)


def test_numbers_are_ids(tmp_path):
    rows = make_rows()
    for number, row in enumerate(rows[:3]):
        row["question_id"] = number
        row["paragraph_id"] = 0 if row["paragraph_id"] == "bridge" else 1
    data = QUESTIONS.load(write_jsonl(tmp_path / "questions.jsonl", rows[:3]))
    assert list(data.questions["de"].ids) == ["0", "1", "2"]
    assert list(data.questions["de"].paragraphs) == ["0", "1"]


def test_languages_are_chosen(tmp_path):
    path = write_jsonl(tmp_path / "questions.jsonl", make_rows())
    assert QUESTIONS.load(path, languages=["en"]).languages == ["en"]
    with pytest.raises(TaskError, match="found 'fr', expected one of the languages in the data"):
        QUESTIONS.load(path, languages=["fr"])


def test_only_files_of_the_benchmarks_name_count_as_copies_of_it(tmp_path):
    named = write_jsonl(tmp_path / "XQuAD.de-en.jsonl", make_rows())
    other = write_jsonl(tmp_path / "faq.jsonl", make_rows())
    assert QUESTIONS.load(named).provenance.license == "CC BY-SA 4.0"
    assert "Artetxe" in QUESTIONS.load(named).provenance.citation
    assert QUESTIONS.load(other).provenance.license == "as given by the source"
    assert QUESTIONS.load(other).provenance.source == str(other)


def test_a_data_folder_is_searched_for_its_file(tmp_path):
    pd.DataFrame(make_rows()).to_parquet(tmp_path / "xquad.parquet")
    planned = plan_tasks(["all"], tmp_path)
    assert "question_retrieval" in [plan.name for plan in planned]


def changed_row(index: int, **values: object) -> list[dict]:
    """The rows, of which one is changed."""
    rows = make_rows()
    rows[index] = rows[index] | values
    return rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            changed_row(1, question_id="why"),
            "row 2, field 'question_id': found 'why', expected an id that no other question in de",
        ),
        (
            changed_row(1, paragraph="Another."),
            "row 2, field 'paragraph': found 'Another.', expected the text that paragraph 'bridge'",
        ),
        (
            changed_row(3, paragraph_id="cake", paragraph=CAKE["en"]),
            "row 4, field 'paragraph_id': found 'cake', expected 'bridge', which question 'why'",
        ),
        (changed_row(2, question=" "), "row 3, field 'question': found ' ', expected a text"),
        (changed_row(2, paragraph_id=None), "row 3, field 'paragraph_id': found None, expected an"),
        (
            [{"language": "de", "paragraph": "a", "question": "b", "question_id": "c"}],
            "field 'paragraph_id': found the columns language, paragraph, question, question_id",
        ),
    ],
)
def test_bad_rows_are_refused(rows, message, tmp_path):
    path = write_jsonl(tmp_path / "questions.jsonl", rows)
    with pytest.raises(TaskError, match=r"questions\.jsonl.*" + message):
        QUESTIONS.load(path)


def test_a_source_is_needed():
    with pytest.raises(TaskError, match="'source': found None, expected a path or a Hub id"):
        QUESTIONS.load()
