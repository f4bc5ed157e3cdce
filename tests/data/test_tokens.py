"""Tokens of a corpus: what the tokenizer makes, made once; and which rows follow each other."""

import pickle
import random

import datasets
import numpy as np
import pytest

from tests.conftest import LANGUAGES, make_dataset, make_rows
from tmde.data.tokens import open_tokens, tokenize


def ids_of(tokens, row: int, language: int) -> list[int]:
    place = (np.array([row]), np.array([language]))
    return tokens.gather(*place, tokens.lengths[place]).tolist()


def holey(number: int) -> list[dict]:
    rows = make_rows(number, 3)
    for place, row in enumerate(rows):
        row["de"] = None if place % 3 == 0 else row["de"]
        row["es"] = "" if place % 4 == 0 else row["es"]
    return rows


@pytest.fixture
def small_blocks(monkeypatch):
    """Record batches of 7 rows, so that the tokens of 40 rows are in several."""
    monkeypatch.setattr("tmde.data.tokens.BLOCK_ROWS", 7)


@pytest.mark.parametrize("folder", [None, "cache"])
@pytest.mark.parametrize("number", [1, 40])
def test_ids_are_those_of_the_tokenizer(folder, number, tokenizer, tmp_path, small_blocks):
    rows = holey(40)[:number]
    dataset = make_dataset(holey(40)).select(range(number))
    tokens = open_tokens(dataset, tokenizer, LANGUAGES, folder and tmp_path / folder)
    assert len(tokens) == number
    for place, row in enumerate(rows):
        for column, language in enumerate(LANGUAGES):
            text = row[language]
            if not text:
                assert tokens.lengths[place, column] == -1
                assert tokens.words[place, column] == 0
                continue
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert ids_of(tokens, place, column) == ids
            assert tokens.words[place, column] == len(text.split())


@pytest.mark.parametrize("folder", [None, "cache"])
def test_the_first_tokens_of_texts_in_any_order(folder, tokenizer, tmp_path, small_blocks):
    """They come from several record batches, also in another process."""
    rows = holey(40)
    tokens = open_tokens(make_dataset(rows), tokenizer, LANGUAGES, folder and tmp_path / folder)
    chosen = random.Random(0).sample(np.argwhere(tokens.lengths >= 0).tolist(), 30)
    expected = []
    for place, column in chosen:
        text = rows[place][LANGUAGES[column]]
        expected += tokenizer.encode(text, add_special_tokens=False)[:3]
    places, columns = np.array(chosen).T
    lengths = np.minimum(tokens.lengths[places, columns], 3)
    unpickled = pickle.loads(pickle.dumps(tokens))
    assert tokens.gather(places, columns, lengths).tolist() == expected
    assert unpickled.gather(places, columns, lengths).tolist() == expected


def test_no_texts_have_no_tokens(tokenizer):
    tokens = open_tokens(make_dataset(make_rows(3)), tokenizer, LANGUAGES, None)
    nothing = np.empty(0, np.int64)
    assert tokens.gather(nothing, nothing, nothing).tolist() == []


@pytest.mark.parametrize(
    ("names", "following"),
    [
        (["a", "a", "b", None, None, "c", "c"], [1, -1, -1, -1, -1, 6, -1]),
        # Without documents, the next row with the same languages follows.
        (None, [2, 3, 4, 5, 6, -1, -1]),
    ],
)
def test_which_row_follows(names, following, tokenizer):
    rows = [{"de": "haus" if place % 2 else None, "en": "house", "fr": "la"} for place in range(7)]
    dataset = make_dataset(rows)
    if names:
        dataset = dataset.add_column("doc_id", names)
    tokens = open_tokens(dataset, tokenizer, ["de", "en", "fr"], None)
    assert tokens.following.tolist() == following


@pytest.fixture
def calls(monkeypatch):
    """The tables that are tokenized."""
    tables = []

    def recording_tokenize(table, encoder, languages):
        tables.append(table)
        return tokenize(table, encoder, languages)

    monkeypatch.setattr("tmde.data.tokens.tokenize", recording_tokenize)
    return tables


def test_the_cache_is_made_once_for_the_same_data_and_languages(calls, tokenizer, tmp_path):
    rows = make_dataset(make_rows(20))
    for dataset, languages, expected in (
        (rows, ["de", "en"], 1),
        (rows, ["de", "en"], 0),
        (rows.select(range(5)), ["de", "en"], 1),
        (rows, ["de", "fr"], 1),
    ):
        calls.clear()
        open_tokens(dataset, tokenizer, languages, tmp_path)
        assert len(calls) == expected


def test_truncation_of_the_tokenizer_changes_nothing(calls, tokenizer, tmp_path):
    rows = make_dataset(make_rows(20))
    open_tokens(rows, tokenizer, ["de", "en"], tmp_path)
    tokenizer(["house"], truncation=True, max_length=3)  # The tokenizer keeps these options.
    open_tokens(rows, tokenizer, ["de", "en"], tmp_path)
    assert len(calls) == 1


def test_a_stream_has_no_tokens(tokenizer, tmp_path):
    stream = make_dataset(make_rows(20)).to_iterable_dataset()
    assert open_tokens(stream, tokenizer, ["de", "en"], tmp_path) is None


def test_a_folder_that_cannot_be_written(tokenizer, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match="set token_cache_dir to a folder with free space, or to null"
    ):
        open_tokens(make_dataset(make_rows(3)), tokenizer, LANGUAGES, tmp_path / "file" / "cache")


# ---- Progress


@pytest.mark.parametrize("folder", ["caches", None])
def test_a_log_says_how_many_rows_are_read_their_share_and_rate(
    folder, tokenizer, tmp_path, every_line, capsys
):
    folder = None if folder is None else tmp_path / folder
    open_tokens(make_dataset(make_rows(10)), tokenizer, LANGUAGES, folder)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Tokenizing")]
    assert lines[0] == "Tokenizing 10 rows"
    assert "40%" in lines[1]
    assert "4/10" in lines[1]
    assert "rows/s" in lines[-1]
    assert "10/10" in lines[-1]


def test_only_the_first_of_several_processes_writes_what_all_of_them_read(
    tokenizer, every_line, capsys, monkeypatch
):
    monkeypatch.setattr("tmde.data.tokens.is_first_process", lambda: False)
    open_tokens(make_dataset(make_rows(10)), tokenizer, LANGUAGES, None)
    assert "Tokenizing" not in capsys.readouterr().err


def test_where_datasets_shows_a_bar_there_is_no_second_one(
    tokenizer, every_line, capsys, monkeypatch
):
    monkeypatch.setattr(datasets, "are_progress_bars_disabled", lambda: False)
    open_tokens(make_dataset(make_rows(10)), tokenizer, LANGUAGES, None)
    assert "rows/s" not in capsys.readouterr().err
