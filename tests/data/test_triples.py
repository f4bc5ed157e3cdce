"""Triples: anchor, positive and hard negatives in place of languages."""

import json
from pathlib import Path

import datasets
import pytest

from tmde.data import CorpusReport, load_parallel
from tmde.data.checks import CorpusError
from tmde.data.parts import languages_of
from tmde.data.rows import triple_texts, triples_of

GOOD = [
    {"anchor": "a1", "positive": "p1"},
    {"anchor": "a2", "positive": "p2", "negative": "n2"},
    {"anchor": "a3", "positive": "p3", "negative": ""},
]
BAD = [
    {"anchor": "", "positive": "p4", "negative": "n4"},
    {"positive": "p5", "negative": "n5"},
    {"anchor": "a6", "positive": None, "negative": "n6"},
]


def write_jsonl(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def texts_of(rows) -> list[dict]:
    return [row["translation"] for row in rows]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["positive", "id", "anchor"], ("anchor", "positive")),
        (
            ["negative_10", "anchor", "negative_2", "positive"],
            ("anchor", "positive", "negative_2", "negative_10"),
        ),
        (["anchor", "negative"], ()),
        (["positive", "de", "en"], ()),
    ],
)
def test_texts_of_triples(names, expected):
    assert triple_texts(names) == expected


TRIPLE = {"anchor": "a", "positive": "p"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (TRIPLE, ("anchor", "positive")),
        ({"translation": TRIPLE}, ("anchor", "positive")),
        ({"translation": {"de": "a", "en": "p"}}, ()),
        ({"de": "a", "en": "p"}, ()),
    ],
)
def test_triples_are_found_in_a_stream_that_states_no_features(row, expected):
    stream = datasets.IterableDataset.from_generator(lambda: iter([row, row]))
    assert stream.features is None
    assert triples_of(stream) == triples_of(datasets.Dataset.from_list([row])) == expected


def test_an_empty_stream_holds_no_triples():
    assert triples_of(datasets.IterableDataset.from_generator(lambda: iter([]))) == ()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("languages", [None, ["anchor", "positive"]])
def test_rows_without_an_anchor_or_a_positive_are_bad(streaming, languages, tmp_path):
    source = write_jsonl(tmp_path / "triples.jsonl", GOOD + BAD)
    report = CorpusReport()

    rows = load_parallel(source, languages, streaming=streaming, report=report)

    assert texts_of(rows) == [
        {"anchor": "a1", "negative": None, "positive": "p1"},
        {"anchor": "a2", "negative": "n2", "positive": "p2"},
        {"anchor": "a3", "negative": None, "positive": "p3"},
    ]
    assert report.reasons == {"without an anchor or a positive": 3}
    assert report.empty_texts == 2
    assert languages_of(source) == ["anchor", "positive", "negative"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (BAD[0], "row 2, field 'anchor': found '', expected a text"),
        (BAD[1], "row 2, field 'anchor': found None, expected a text"),
        (BAD[2], "row 2, field 'positive': found None, expected a text"),
    ],
)
def test_the_first_bad_row_raises(row, message, tmp_path):
    source = write_jsonl(tmp_path / "triples.jsonl", [GOOD[1], row])
    with pytest.raises(CorpusError, match=message):
        load_parallel(source, bad_rows="raise")


def test_several_negatives_in_tables(tmp_path):
    rows = [{"id": 7, "anchor": "a", "positive": "p", "negative_2": "n2", "negative_1": "n1"}]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "triples.parquet")
    (tmp_path / "triples.csv").write_text("anchor,positive,negative_1\nb,q,\n")

    loaded = load_parallel([str(tmp_path / f"triples.{kind}") for kind in ("parquet", "csv")])

    assert texts_of(loaded) == [
        {"anchor": "a", "negative_1": "n1", "negative_2": "n2", "positive": "p"},
        {"anchor": "b", "negative_1": None, "negative_2": None, "positive": "q"},
    ]


def test_columns_of_other_names(tmp_path):
    source = write_jsonl(tmp_path / "pairs.jsonl", [{"query": "a", "answer": "p"}] * 2)
    rows = load_parallel(source, columns={"anchor": "query", "positive": "answer"})
    assert texts_of(rows)[0] == {"anchor": "a", "positive": "p"}
    with pytest.raises(CorpusError, match="--columns anchor=query,positive=answer"):
        load_parallel(source, ["anchor", "positive"])


def test_a_missing_column(tmp_path):
    source = write_jsonl(tmp_path / "pairs.jsonl", [{"anchor": "a", "answer": "p"}])
    with pytest.raises(CorpusError, match="found the columns anchor, answer, .*positive=COLUMN"):
        load_parallel(source)


def test_triples_where_languages_are_expected(tmp_path):
    source = write_jsonl(tmp_path / "triples.jsonl", GOOD)
    with pytest.raises(CorpusError, match="These are triples: set data.triples=true"):
        load_parallel(source, ["de", "en"])
