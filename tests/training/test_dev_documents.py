"""Documents among dev rows, and rows that are held out."""

import itertools
from collections import Counter

import datasets
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.conftest import make_dataset
from tmde.eval.dev_retrieval import documents_of, join_documents
from tmde.eval.retrieval import retrieval_pool
from tmde.training.dev_rows import hold_out

PLAIN = ("de", "en", "es")


def make_row(number: int, *languages: str) -> dict[str, str | None]:
    """Return a row that has texts such as "de3" in some languages."""
    row = dict.fromkeys(PLAIN)
    for language in languages:
        row[language] = f"{language}{number}"
    return row


def numbered_rows(numbers) -> list[dict[str, str | None]]:
    """Return rows in all languages."""
    return [make_row(int(number), *PLAIN) for number in numbers]


def number_of(row: dict[str, str | None]) -> int:
    return int(row["de"].removeprefix("de"))


def numbers_of(rows) -> list[int]:
    return list(map(number_of, rows))


def with_ids(rows: list[dict], ids: list[str | None]) -> datasets.Dataset:
    return make_dataset(rows).add_column("doc_id", ids, feature=datasets.Value("string"))


# ---- Documents


def test_documents_are_consecutive_rows_of_one_id_and_runs_of_rows_without():
    ids = ["a", "a", "b", "a", None, None, None, None, None, "c", "c"]
    rows = with_ids(numbered_rows(range(11)), ids)
    documents = list(map(numbers_of, documents_of(rows, 3)))
    assert documents == [[0, 1], [2], [3], [4, 5, 6], [7, 8], [9, 10]]


def test_rows_without_ids_are_documents_of_so_many_rows():
    rows = make_dataset(numbered_rows(range(11)))
    documents = list(map(numbers_of, documents_of(rows, 4)))
    assert documents == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def document_pool(documents, source, target, max_rows, size):
    return retrieval_pool(join_documents(documents, source, target, max_rows), source, target, size)


RAGGED = [
    make_row(0, "de"),
    make_row(1, "de", "en"),
    make_row(2, *PLAIN),
    make_row(3, "en", "es"),
    make_row(4, *PLAIN),
    make_row(5, *PLAIN),
]


def test_both_sides_of_a_document_are_its_first_rows_that_have_both_languages():
    pool = document_pool([RAGGED], "de", "en", max_rows=4, size=10)
    assert pool.sources == ["de1 de2 de4 de5"]
    assert pool.targets == ["en1 en2 en4 en5"]
    assert document_pool([RAGGED], "en", "es", 5, 10).targets == ["es2 es3 es4 es5"]


def test_documents_of_fewer_than_four_rows_or_with_known_texts_are_left_out():
    short = numbered_rows(range(6, 9))
    repeated = RAGGED[1:]
    pool = document_pool([RAGGED, short, repeated], "de", "en", max_rows=4, size=10)
    assert pool.sources == ["de1 de2 de4 de5"]
    assert document_pool([RAGGED], "de", "es", 5, 10).sources == []  # It has three such rows only.


def test_documents_and_the_pool_have_a_largest_size():
    documents = [numbered_rows(range(begin, begin + 8)) for begin in range(0, 48, 8)]
    pool = document_pool(documents, "de", "en", max_rows=5, size=2)
    assert pool.sources == ["de0 de1 de2 de3 de4", "de8 de9 de10 de11 de12"]


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
    ids = []
    for document, length in enumerate(lengths):
        ids.extend([f"d{document}"] * length)
    ids.extend([None] * unnamed)
    smallest = 1 if unnamed else min(lengths)
    assume(smallest <= number < len(ids))  # Otherwise the fallback below, or all rows are held out.
    order = np.arange(len(ids))
    if mixed:
        order = np.random.default_rng(seed).permutation(order)
    rows = with_ids(numbered_rows(order), [ids[place] for place in order])

    rest, held = hold_out(rows, number, seed)

    rest_numbers = numbers_of(rest["translation"])
    held_numbers = numbers_of(held["translation"])
    assert sorted(rest_numbers + held_numbers) == list(range(len(ids)))
    assert 0 < len(held) <= number
    rest_ids = [ids[place] for place in rest_numbers]
    assert rest["doc_id"][:] == rest_ids  # They join rows and pair neighbors in training.
    columns = ["translation", "doc_id", "reading_order"]
    assert rest.column_names == held.column_names == columns
    named_ids = list(filter(None, held["doc_id"]))
    assert set(named_ids).isdisjoint(rest_ids)
    assert_documents_are_consecutive(named_ids)
    smallest_left = 1 if None in rest_ids else min(Counter(rest_ids).values())
    assert len(held) > number - smallest_left  # Nothing more would fit.
    _, held_again = hold_out(rows, number, seed)
    assert held["translation"][:] == held_again["translation"][:]


def assert_documents_are_consecutive(ids: list[str]) -> None:
    runs = list(itertools.groupby(ids))
    assert len(runs) == len(set(ids))


def test_documents_are_drawn_with_equal_chances_however_long():
    ids = ["long"] * 10
    ids += [f"short {number}" for number in range(10)]
    rows = with_ids(numbered_rows(range(20)), ids)
    num_long = 0
    for seed in range(100):
        _, held = hold_out(rows, 10, seed)
        num_long += held["doc_id"][:] == ["long"] * 10
    # The long one must come first of eleven, with a probability of 1/11.
    assert 2 < num_long < 20


@settings(max_examples=40, deadline=None)
@given(row_count=st.integers(3, 300), share=st.floats(0.01, 0.99), seed=st.integers(0, 5))
@example(row_count=291, share=0.1, seed=0)
def test_without_documents_blocks_of_ten_rows_are_held_out(row_count, share, seed):
    number = max(1, int(share * row_count))
    rows = make_dataset(numbered_rows(range(row_count)))
    rest, held = hold_out(rows, number, seed)
    held_numbers = numbers_of(held["translation"])
    rest_numbers = numbers_of(rest["translation"])
    assert len(held_numbers) == number
    assert held_numbers == sorted(held_numbers)
    assert rest_numbers == sorted(set(range(row_count)) - set(held_numbers))
    # The last block of the corpus may be shorter, and one is cut to the number of rows.
    sizes = Counter(number // 10 for number in held_numbers)
    assert sum(size < 10 for size in sizes.values()) <= 2
    null, _ = hold_out(with_ids(numbered_rows(range(row_count)), [None] * row_count), number, seed)
    assert numbers_of(null["translation"]) == rest_numbers


def test_blocks_are_spread_over_the_corpus():
    rows = make_dataset(numbered_rows(range(20_000)))
    counts = np.zeros(10)
    for seed in range(5):
        _, held = hold_out(rows, 1_000, seed)
        counts += np.histogram(numbers_of(held["translation"]), bins=10, range=(0, 20_000))[0]
    # 50 of 500 blocks are expected in each tenth, and four standard deviations are 26.
    assert counts.min() > 240
    assert counts.max() < 760
    _, first = hold_out(rows, 1_000, seed=0)
    assert numbers_of(first["translation"]) != numbers_of(held["translation"])


@pytest.mark.parametrize(("number", "sizes"), [(7, [7]), (15, [7, 8]), (38, [12, 13, 13])])
def test_the_ends_of_documents_that_are_too_long_are_held_out(number, sizes, monkeypatch):
    warnings = []
    monkeypatch.setattr("tmde.training.dev_rows.logger.warning", warnings.append)
    ids = ["a"] * 40 + ["b"] * 50 + ["c"] * 60
    rows = with_ids(numbered_rows(range(150)), ids)
    rest, held = hold_out(rows, number, seed=3)
    assert len(warnings) == 1
    assert f"every document has more than {number} rows" in warnings[0]
    assert f"the last rows of {len(sizes)} training documents" in warnings[0]
    ends = {"a": 40, "b": 90, "c": 150}
    expected = []
    for name, size in Counter(held["doc_id"][:]).items():
        expected.extend(range(ends[name] - size, ends[name]))
    held_numbers = numbers_of(held["translation"])
    assert held_numbers == expected
    assert sorted(Counter(held["doc_id"][:]).values()) == sizes
    assert numbers_of(rest["translation"]) == sorted(set(range(150)) - set(held_numbers))
