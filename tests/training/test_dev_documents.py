"""Documents among dev rows, and rows that are held out."""

import datasets
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import make_dataset
from tmde.data.dev_rows import hold_out
from tmde.eval.dev_retrieval import documents_of, join_documents
from tmde.eval.retrieval import retrieval_pool

PLAIN = ("de", "en", "es")


def row(number: int, *languages: str) -> dict[str, str | None]:
    return {
        language: f"{language}{number}" if language in languages else None for language in PLAIN
    }


def with_ids(rows: list[dict], ids: list[str | None]) -> datasets.Dataset:
    return make_dataset(rows).add_column("doc_id", ids, feature=datasets.Value("string"))


# ---- Documents


def test_documents_are_consecutive_rows_of_one_id_and_runs_of_rows_without():
    rows = [row(number, *PLAIN) for number in range(11)]
    ids = ["a", "a", "b", "a", None, None, None, None, None, "c", "c"]
    found = [
        [int(text["de"][2:]) for text in document]
        for document in documents_of(with_ids(rows, ids), 3)
    ]
    assert found == [[0, 1], [2], [3], [4, 5, 6], [7, 8], [9, 10]]
    unnamed = [
        [int(text["de"][2:]) for text in document]
        for document in documents_of(make_dataset(rows), 4)
    ]
    assert unnamed == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def document_pool(documents, source, target, max_rows, size):
    return retrieval_pool(join_documents(documents, source, target, max_rows), source, target, size)


def test_both_sides_of_a_document_are_its_first_rows_that_have_both_languages():
    ragged = [
        row(0, "de"),
        row(1, "de", "en"),
        row(2, *PLAIN),
        row(3, "en", "es"),
        *(row(n, *PLAIN) for n in (4, 5)),
    ]
    short = [row(number, *PLAIN) for number in (6, 7, 8)]
    pool = document_pool([ragged, short, ragged[1:]], "de", "en", max_rows=4, size=10)
    assert (pool.sources, pool.targets) == (
        ["de1 de2 de4 de5"],
        ["en1 en2 en4 en5"],
    )  # the third repeats the first
    assert document_pool([ragged], "en", "es", 5, 10).targets == ["es2 es3 es4 es5"]
    assert document_pool([ragged], "de", "es", 5, 10).sources == []  # three rows only
    six = [[row(8 * number + place, *PLAIN) for place in range(8)] for number in range(6)]
    cut = document_pool(six, "de", "en", max_rows=5, size=2)
    assert cut.sources == ["de0 de1 de2 de3 de4", "de8 de9 de10 de11 de12"]


# ---- Held out


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    unnamed=st.integers(0, 6),
    number=st.integers(1, 30),
    seed=st.integers(0, 5),
    mixed=st.booleans(),
)
@example(lengths=[4, 4, 4], unnamed=2, number=8, seed=1, mixed=True)
def test_whole_documents_are_held_out(lengths, unnamed, number, seed, mixed):
    ids = [f"d{place}" for place, length in enumerate(lengths) for _ in range(length)] + [
        None
    ] * unnamed
    order = np.random.default_rng(seed).permutation(len(ids)) if mixed else np.arange(len(ids))
    rows = with_ids([row(int(place), *PLAIN) for place in order], [ids[place] for place in order])
    if min([*lengths, *[1] * bool(unnamed)]) > number or number >= len(ids):
        return  # the fallback below, or a test set of everything
    rest, held = hold_out(rows, number, seed)
    again = hold_out(rows, number, seed)[1]
    assert rest.column_names == held.column_names == ["translation", "doc_id"]
    texts = [{text["de"] for text in part["translation"]} for part in (rest, held)]
    assert not texts[0] & texts[1]
    assert len(texts[0] | texts[1]) == len(ids)
    assert 0 < len(held) <= number
    assert held["translation"][:] == again["translation"][:]
    left = [ids[int(text["de"][2:])] for text in rest["translation"]]
    assert rest["doc_id"][:] == left  # which joins rows and pairs neighbors in training
    assert not set(held["doc_id"]) & set(left) - {None}
    assert len(held) > number - min(
        left.count(name) if name else 1 for name in left
    )  # nothing more would fit
    named = [name for name in held["doc_id"] if name]
    changes = sum(first != second for first, second in zip(named, named[1:], strict=False))
    assert changes == max(len(set(named)) - 1, 0)


def test_documents_are_drawn_with_equal_chances_however_long():
    ids = ["long"] * 10 + [f"short {number}" for number in range(10)]
    rows = with_ids([row(number, *PLAIN) for number in range(20)], ids)
    held = [len(set(hold_out(rows, 10, seed)[1]["doc_id"])) == 1 for seed in range(100)]
    assert 0.02 < sum(held) / 100 < 0.2  # 1/11: the long one must come first


def test_without_documents_that_fit_single_rows_are_held_out(monkeypatch):
    warnings = []
    monkeypatch.setattr("tmde.data.dev_rows.logger.warning", warnings.append)
    rows = [row(number, *PLAIN) for number in range(40)]
    plain = hold_out(make_dataset(rows), 7, seed=3)
    null = hold_out(with_ids(rows, [None] * 40), 7, seed=3)
    assert not warnings
    long = hold_out(with_ids(rows, ["a"] * 20 + ["b"] * 20), 7, seed=3)
    assert len(warnings) == 1
    assert "every document has more than 7 rows" in warnings[0]
    expected = make_dataset(rows).train_test_split(test_size=7, seed=3)
    for rest, held in (plain, null, long):
        assert rest["translation"][:] == expected["train"]["translation"][:]
        assert held["translation"][:] == expected["test"]["translation"][:]
    for rest, _ in (null, long):
        assert rest.column_names == ["translation", "doc_id"]
    assert plain[0].column_names == ["translation"]
