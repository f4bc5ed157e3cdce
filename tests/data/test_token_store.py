"""The token store: every text tokenised once and given back as it was, from Arrow tables and from lists alike."""

import random
from collections import Counter
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
from tokenizers import processors

from modeling_tmde import train_tokenizer
from modeling_tmde.data import token_store
from modeling_tmde.data.token_store import ArrowSource, ListSource, TextEncoder, TokenStore
from modeling_tmde.training.batching import ParallelBatches
from tests.conftest import LANGUAGES, make_dataset, make_rows

CODES = ["de", "en", "it"]


def holey_rows(number: int, seed: int = 0) -> list[dict[str, str | None]]:
    """Rows of de and en, a text in three None or empty; no row has Italian."""
    rng = random.Random(seed)
    texts = make_rows(number, seed, languages=("de", "en"))
    return [{key: rng.choice([None, "", text]) for key, text in row.items()} for row in texts]


def documented(names: list[str | None]) -> datasets.Dataset:
    ids = datasets.Dataset.from_dict(
        {"doc_id": names}, features=datasets.Features({"doc_id": datasets.Value("string")})
    )
    return datasets.concatenate_datasets([make_dataset(make_rows(len(names))), ids], axis=1)


class Counting:
    """A tokenizer that counts the texts it is given, and has no inner one that could be called past it."""

    backend_tokenizer = None

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.texts: Counter[str] = Counter()

    def __call__(self, texts, **options):
        self.texts.update([texts] if isinstance(texts, str) else texts)
        return self.tokenizer(texts, **options)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __getattr__(self, name: str):
        return getattr(self.tokenizer, name)


def stored_texts(store: TokenStore, rows: list[int], languages: list[int]) -> list[list[int]]:
    """The token ids of cells."""
    cells = store.cells(np.array(rows), np.array(languages))
    ids = store.gather(cells.starts, cells.lengths)
    assert ids.dtype == store.encoder.dtype and len(ids) == cells.lengths.sum()
    return [part.tolist() for part in np.split(ids, np.cumsum(cells.lengths)[:-1])]


# ---- Sources


@pytest.mark.parametrize("indexed", [False, True])
def test_arrow_and_list_sources_agree(indexed, monkeypatch):
    monkeypatch.setattr("modeling_tmde.data.token_store.READ_ROWS", 7)  # the last part is smaller
    rows = holey_rows(40)
    dataset = make_dataset(rows)
    if indexed:  # rows that an index stands for, as after shuffling or holding out
        order = np.random.default_rng(0).permutation(40)[:31]
        rows, dataset = [rows[number] for number in order], dataset.select(order)
    sources = [ArrowSource(dataset, CODES), ListSource(rows, CODES)]
    expected = [[bool(row.get(language)) for language in CODES] for row in rows]
    assert 0 < np.sum(expected) < np.size(expected)
    for source in sources:
        assert source.available.tolist() == expected
        assert source.neighbors.tolist() == [False] * len(rows)  # nothing says that a row continues another
        for number, language in enumerate(CODES):
            there = np.flatnonzero(source.available[:, number])[::-1]  # in the order asked for
            assert source.texts(there, number) == [rows[row][language] for row in there]


def test_a_row_without_any_translation_has_no_text():
    rows = [{"de": "haus", "en": "house"}, None, {"de": "hund", "en": None}]
    features = datasets.Features({"translation": {key: datasets.Value("string") for key in ("de", "en")}})
    dataset = datasets.Dataset.from_list([{"translation": row} for row in rows], features=features)
    for source in (ArrowSource(dataset, CODES), ListSource(rows, CODES)):
        assert source.available.tolist() == [[True, True, False], [False] * 3, [True, False, False]]
        assert source.texts(np.array([2]), 0) == ["hund"]


def test_sources_without_rows():
    dataset = make_dataset(make_rows(1)).select([])
    for source in (ArrowSource(dataset, CODES), ListSource([], CODES)):
        assert source.available.shape == (0, 3) and source.neighbors.shape == (0,)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a", "b", "b", "b", "a"], [True, False, True, True, False, False]),
        (["a", None, None, "a", "a"], [False, False, False, True, False]),  # a row without a name has no neighbours
        ([None, None, None], [False, False, False]),
        (["a"], [False]),
    ],
)
def test_neighbors_are_rows_of_one_document(names, expected, monkeypatch):
    monkeypatch.setattr("modeling_tmde.data.token_store.READ_ROWS", 2)
    assert ArrowSource(documented(names), CODES).neighbors.tolist() == expected


# ---- The store


@pytest.mark.parametrize("kind", ["arrow", "list"])
def test_texts_come_back_as_the_tokenizer_makes_them(kind, tokenizer, monkeypatch):
    monkeypatch.setattr("modeling_tmde.data.token_store.ENCODE_TEXTS", 5)
    rows = make_rows(30, seed=2)
    rows[3] = {language: "ein ſehr seltenes Wort 🏠 " + "haus " * 200 for language in LANGUAGES}  # beyond any limit
    source = ArrowSource(make_dataset(rows), LANGUAGES) if kind == "arrow" else ListSource(rows, LANGUAGES)
    store = TokenStore(source, TextEncoder(tokenizer))
    rng = np.random.default_rng(1)
    for _ in range(4):  # some are known from the rounds before
        places = rng.integers(0, [30, 5], size=(25, 2))
        found = stored_texts(store, places[:, 0].tolist(), places[:, 1].tolist())
        texts = [rows[row][LANGUAGES[language]] for row, language in places]
        assert found == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        words = store.cells(places[:, 0], places[:, 1]).words
        assert words.tolist() == [len(text.split()) for text in texts]
    grid = store.cells(np.array([[3, 4], [3, 5]]), np.array([[0, 0], [1, 1]]))
    assert grid.lengths.shape == (2, 2) and (grid.lengths[:, 0] > 200).all()


def test_every_text_is_tokenised_once(tokenizer):
    """Over three epochs of a run, and those that are never asked for not at all."""
    rows = [
        {language: f"{text} {number}" for language, text in row.items()} for number, row in enumerate(make_rows(60))
    ]
    counting = Counting(tokenizer)
    batches = ParallelBatches(
        make_dataset(rows), counting, ["de", "en"], ["en"], micro_batch_tokens=300, buffer_rows=16, epochs=3
    )
    assert sum(batch.sizes.rows for batch in batches) == 3 * 60
    del counting.texts["a"]  # what the tokenizer is tried on
    assert counting.texts == Counter(row[language] for row in rows for language in ("de", "en"))
    assert sum(batch.sizes.rows for batch in batches) == 3 * 60
    assert set(counting.texts.values()) == {1}


def test_the_array_grows_and_keeps_what_it_holds(tokenizer):
    rows = make_rows(200, seed=3)
    store = TokenStore(ListSource(rows, LANGUAGES), TextEncoder(tokenizer))
    arrays = []
    for row in range(200):
        store.cells(np.array([row]), np.array([row % 5]))
        if not arrays or arrays[-1] is not store.ids:
            arrays.append(store.ids)
    expected = [
        tokenizer(row[LANGUAGES[number % 5]], add_special_tokens=False)["input_ids"] for number, row in enumerate(rows)
    ]
    assert store.size == sum(map(len, expected)) <= len(store.ids)
    assert 3 < len(arrays) < 15  # copied at each doubling, not at each text
    assert stored_texts(store, list(range(200)), [number % 5 for number in range(200)]) == expected


def test_a_text_without_tokens_is_kept_as_such(tokenizer):
    class Silent(Counting):
        def __call__(self, texts, **options):
            made = super().__call__(texts, **options)
            if isinstance(texts, list):
                made["input_ids"] = [
                    [] if text == "..." else ids for text, ids in zip(texts, made["input_ids"], strict=True)
                ]
            return made

    silent = Silent(tokenizer)
    store = TokenStore(ListSource([{"de": "..."}, {"de": "haus"}, {"de": "..."}], ["de"]), TextEncoder(silent))
    for _ in range(2):
        assert list(map(len, stored_texts(store, [0, 1, 2], [0, 0, 0])))[::2] == [0, 0]
    assert silent.texts["..."] == 2  # two rows, one call each


@pytest.mark.parametrize("number", [0, 1, 2, 10])
def test_threads_of_a_dataloader_worker_change_nothing(number, tokenizer, monkeypatch):
    texts = [row["de"] for row in make_rows(number)]
    encoder = TextEncoder(tokenizer)
    expected = encoder(texts)
    calls = []
    encode = TextEncoder._encode_part
    monkeypatch.setattr(
        TextEncoder, "_encode_part", lambda self, part: (calls.append(len(part)), encode(self, part))[1]
    )
    monkeypatch.setenv("RAYON_NUM_THREADS", "6")
    monkeypatch.setattr(token_store, "get_worker_info", lambda: SimpleNamespace(num_workers=2))
    for found, known in zip(encoder(texts), expected, strict=True):
        assert found.dtype == known.dtype and found.tolist() == known.tolist()
    assert sorted(calls) == {0: [], 1: [1], 2: [1, 1], 10: [2, 4, 4]}[number]


class Large:
    """A tokenizer with one token a word: its number."""

    bos_token_id, eos_token_id = 0, 2

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __call__(self, texts, add_special_tokens=True, **options):
        if isinstance(texts, str):
            return {"input_ids": [0, 9, 2] if add_special_tokens else [9]}
        return {"input_ids": [[int(word) for word in text.split()] for text in texts]}


@pytest.mark.parametrize(("size", "dtype"), [(65536, np.uint16), (65537, np.int32), (250_000, np.int32)])
def test_large_vocabularies(size, dtype):
    rows = [{"de": f"5 {size - 1} 7"}, {"de": f"{min(65535, size - 1)}"}]
    store = TokenStore(ListSource(rows, ["de"]), TextEncoder(Large(size)))
    assert stored_texts(store, [1, 0], [0, 0]) == [[min(65535, size - 1)], [5, size - 1, 7]]
    assert store.ids.dtype == dtype  # no more memory than needed


@pytest.mark.parametrize("template", ["$A", "$A </s>", "<s> $A", "<s> <s> $A </s>", "<mask> $A </s>"])
def test_tokenizers_that_make_something_else_are_refused(template):
    tokenizer = train_tokenizer({"de": ["haus hund"]}, vocab_size=261)
    special = [("<s>", 0), ("</s>", 2), ("<mask>", 4)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    own = tokenizer("a", add_special_tokens=False)["input_ids"]
    with pytest.raises(
        ValueError, match=rf"makes \[.*\] of 'a', whose own tokens are \[{own[0]}\].*eos_token 2 after"
    ):
        TextEncoder(tokenizer)
