"""Which row continues another, from the files of a run to its batches."""

import json
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pytest

from tests.conftest import make_dataset
from tests.training.batches import parallel_batches
from tmde.data import load_parallel
from tmde.data.rows import reading_order, with_reading_order, with_reading_orders
from tmde.data.tokens import Tokens, open_tokens
from tmde.training.dev_rows import hold_out_rows
from tmde.training.document_share import draw_share
from tmde.training.recipe import load_recipe
from tmde.training.run_data import load_data
from tmde.training.starts.replay import mix_rows

BOOKS = 3
SENTENCES = 200


def numbered_row(number: int) -> dict[str, str]:
    return {"de": f"haus {number}", "en": f"house {number}"}


def write_sentences(path: Path, ids: list[str | None], first: int = 0) -> str:
    """Write numbered sentences in two languages, one for each id of a document."""
    with path.open("w", encoding="utf-8") as file:
        for number, name in enumerate(ids, start=first):
            file.write(json.dumps({**numbered_row(number), "doc_id": name}) + "\n")
    return str(path)


def book_ids() -> list[str]:
    ids = []
    for book in range(BOOKS):
        ids += [f"book {book}"] * SENTENCES
    return ids


def numbers_of(texts: list[str]) -> list[int]:
    """Return the numbers in each text, of which it must have one."""
    return [int(text.split()[-1]) for text in texts]


def next_pairs(train: datasets.Dataset, tokenizer) -> tuple[list[tuple[int, int]], Counter]:
    """Return the numbers of each text and of the text that follows it, and the counts of a run."""
    batches = parallel_batches(
        train, tokenizer, ["en"], ["en"], targets=["next"], fewest_languages=1, buffer_rows=10**6
    )
    pairs = []
    for batch in batches:
        texts = tokenizer.batch_decode(batch.input_ids[0].tolist(), skip_special_tokens=True)
        next_ids = batch.targets["next"].input_ids[0].tolist()
        next_texts = tokenizer.batch_decode(next_ids, skip_special_tokens=True)
        pairs += zip(numbers_of(texts), numbers_of(next_texts), strict=True)
    return pairs, batch.counts


def recipe_on(train: str | list[str], *overrides: str):
    return load_recipe(
        "skip_thought",
        [f"data.train={json.dumps(train)}", "data.languages=[de, en]", *overrides],
    )


@pytest.mark.parametrize("kind", ["stream", "long documents", "short documents"])
def test_the_next_row_is_the_next_sentence_where_dev_rows_are_held_out(kind, tmp_path, tokenizer):
    ids = {
        "stream": [None] * BOOKS * SENTENCES,
        "long documents": book_ids(),
        "short documents": [f"d{number // 5}" for number in range(BOOKS * SENTENCES)],
    }[kind]
    recipe = recipe_on(write_sentences(tmp_path / "rows.jsonl", ids), "data.dev_rows=40")
    train, dev, _ = load_data(recipe)
    held = set(numbers_of(text["en"] for text in dev["dev"]["translation"]))
    assert len(held) == 40

    pairs, _ = next_pairs(train, tokenizer)

    expected = set()
    for number in range(len(ids) - 1):
        is_same_document = ids[number] == ids[number + 1]
        if is_same_document and not {number, number + 1} & held:
            expected.add((number, number + 1))
    assert set(pairs) == expected
    assert len(pairs) == len(expected)
    dev_pairs, _ = next_pairs(dev["dev"], tokenizer)
    assert dev_pairs
    assert all(following == number + 1 for number, following in dev_pairs)


@pytest.mark.parametrize("has_documents", [False, True])
def test_joined_rows_are_consecutive_where_dev_rows_are_held_out(
    has_documents, tmp_path, spaced_tokenizer
):
    ids = book_ids() if has_documents else [None] * BOOKS * SENTENCES
    recipe = recipe_on(write_sentences(tmp_path / "rows.jsonl", ids), "data.dev_rows=40")
    train, _, _ = load_data(recipe)
    batches = parallel_batches(
        train, spaced_tokenizer, ["de", "en"], ["en"], max_joined_rows=3, buffer_rows=10**6
    )
    lengths = Counter()
    for batch in batches:
        for ids_of_language in batch.input_ids.tolist():
            texts = spaced_tokenizer.batch_decode(ids_of_language, skip_special_tokens=True)
            for text in texts:
                numbers = [int(word) for word in text.split()[1::2]]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                lengths[len(numbers)] += 1
    # A third of the texts is one row, two rows or three, less those that end before a gap.
    assert min(lengths.values()) > 0.3 * lengths.total()


def test_a_copy_of_a_dev_row_leaves_a_gap(tokenizer):
    rows = [numbered_row(number) for number in range(40)]
    for place in range(0, 40, 3):
        rows[place] = {"de": "ja 99", "en": "yes 99"}  # The same row in many places.
    rest, held = hold_out_rows(make_dataset(rows), 4, seed=0)
    assert numbers_of(row["en"] for row in held["translation"]).count(99) == 1
    pairs, _ = next_pairs(rest, tokenizer)
    assert pairs
    assert all(following == number + 1 for number, following in pairs)


# ---- Mixed corpora


@pytest.mark.parametrize("has_documents", [False, True])
@pytest.mark.parametrize("dev_rows", [0, 30])
@pytest.mark.parametrize("temperature", [".inf", "2.0"])
def test_mixing_by_temperature_loses_no_next_row(
    temperature, dev_rows, has_documents, tmp_path, tokenizer
):
    """Both files have documents of the same names, and the smaller one is repeated."""
    sizes = (1000, 200)
    files = []
    first = 0
    for size in sizes:
        ids = [None] * size
        if has_documents:
            ids = [f"d{number // 20}" for number in range(size)]
        files.append(write_sentences(tmp_path / f"{size}.jsonl", ids, first))
        first += size
    recipe = recipe_on(files, f"data.temperature={temperature}", f"data.dev_rows={dev_rows}")
    train, dev, _ = load_data(recipe)
    held = set()
    if dev_rows:
        held = set(numbers_of(row["en"] for row in dev["dev"]["translation"]))

    pairs, counts = next_pairs(train, tokenizer)

    trained = Counter(numbers_of(row["en"] for row in train["translation"][:]))
    assert max(trained.values()) > 1
    expected = Counter()
    for number, copies in trained.items():
        ends_text = number + 1 in (*np.cumsum(sizes), *held)
        if has_documents:
            ends_text = ends_text or (number + 1) % 20 == 0
        if not ends_text:
            expected[number, number + 1] = copies
    assert Counter(pairs) == expected
    assert counts["rows_without_next"] == trained.total() - expected.total()


def test_rows_of_one_language_each_are_followed_in_their_language(tmp_path, tokenizer):
    path = tmp_path / "rows.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(200):
            language = "de" if number % 2 else "en"
            file.write(json.dumps({"translation": {language: f"haus {number}"}}) + "\n")
    train, dev, _ = load_data(recipe_on(str(path), "data.dev_rows=20"))
    pairs, _ = next_pairs(train, tokenizer)
    assert len(pairs) > 80
    assert all(following == number + 2 for number, following in pairs)
    assert len(dev["dev"]) == 20


def test_only_documents_and_mixing_ask_for_the_order(tmp_path):
    first = write_sentences(tmp_path / "first.jsonl", ["a"] * 3)
    second = write_sentences(tmp_path / "second.jsonl", ["a"] * 3, first=3)
    languages = ["de", "en"]
    mixed = load_parallel([first, second], languages, temperature=1.0, document_ids=True)
    assert mixed.column_names == ["translation", "doc_id", "reading_order"]
    assert load_parallel([first, second], languages, temperature=1.0).column_names == [
        "translation"
    ]
    plain = load_parallel([first, second], languages, document_ids=True)
    assert plain.column_names == ["translation", "doc_id"]


# ---- The numbers


def test_consecutive_numbers_are_consecutive_rows_of_a_document_or_stream():
    documents = np.array([0, 0, 1, -1, -1, 0, 0])
    has_text = np.ones((7, 2), bool)
    assert reading_order(documents, has_text).tolist() == [0, 1, 3, 5, 7, 9, 10]
    # Rows 0, 2 and 5 have both languages, the others the second one alone, which sorts first.
    has_text[[1, 3, 4, 6], 0] = False
    assert reading_order(None, has_text).tolist() == [5, 0, 6, 1, 2, 7, 3]
    assert reading_order(None, np.ones((0, 2), bool)).tolist() == []


def test_no_row_continues_one_of_another_part():
    parts = [make_dataset([numbered_row(number)] * 2) for number in range(3)]
    ordered = with_reading_orders([with_reading_order(parts[0]), *parts[1:]])
    assert [rows["reading_order"][:] for rows in ordered] == [[0, 1], [3, 4], [6, 7]]


def test_the_order_of_selected_rows_is_that_of_the_whole(tokenizer):
    rows = with_reading_order(make_dataset([numbered_row(number) for number in range(6)]))
    chosen = rows.select([4, 3, 1, 0, 3])
    assert with_reading_order(chosen)["reading_order"][:] == [4, 3, 1, 0, 3]
    assert with_reading_order(chosen).features == rows.features
    tokens = open_tokens(chosen, tokenizer, ["de", "en"], None)
    assert tokens.following.tolist() == [-1, 0, -1, 2, 0]
    function, arguments = tokens.__reduce__()
    assert function is Tokens
    assert function(*arguments).following.tolist() == tokens.following.tolist()


def test_a_share_of_single_rows_has_gaps(tokenizer):
    share = draw_share(make_dataset([numbered_row(number) for number in range(300)]), 0.5)
    drawn = set(numbers_of(row["en"] for row in share["translation"]))
    pairs, _ = next_pairs(share, tokenizer)
    assert set(pairs) == {(number, number + 1) for number in drawn if number + 1 in drawn}


def test_replayed_rows_keep_their_order(tokenizer):
    new = make_dataset([numbered_row(number) for number in range(30)])
    old = make_dataset([numbered_row(number) for number in range(100, 110)])
    mixed = mix_rows(new, old, 0.5)
    pairs, _ = next_pairs(mixed, tokenizer)
    expected = Counter({(number, number + 1): 1 for number in range(29)})
    expected.update({(number, number + 1): 3 for number in range(100, 109)})
    assert Counter(pairs) == expected
