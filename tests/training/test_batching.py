"""Parallel batches: every row once, within the budget, the same for every process, worker and resume."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from modeling_tmde.training.batching import ChunkCounts, ParallelBatches, Position
from tests.conftest import LANGUAGES, make_dataset, make_rows

PIVOTS = ["en", "es"]


def numbered_rows(num_rows: int, seed: int = 0, missing: float = 0.0) -> list[dict[str, str | None]]:
    """Rows that end in their number, so that a decoded text tells its row; some languages None or empty."""
    rng = random.Random(seed)
    return [
        {
            language: rng.choice([None, ""]) if rng.random() < missing else f"{text} {number}"
            for language, text in row.items()
        }
        for number, row in enumerate(make_rows(num_rows, seed))
    ]


def usable(row: dict[str, str | None]) -> bool:
    available = [language for language, text in row.items() if text]
    return len(available) >= 2 and any(language in PIVOTS for language in available)


def make_batches(dataset, tokenizer, **options) -> ParallelBatches:
    options = {"micro_batch_tokens": 160, "buffer_rows": 16, "max_length": 128} | options
    return ParallelBatches(dataset, tokenizer, list(LANGUAGES), PIVOTS, **options)


def content(batch) -> tuple:
    """All of a batch, to be compared."""
    tensors = (tuple(batch.input_ids.shape), batch.input_ids.tolist(), batch.attention_mask.tolist())
    return (batch.languages, *tensors, batch.sizes, batch.words, batch.counts, batch.position, batch.next_position)


def contents(batches) -> list[tuple]:
    return [content(batch) for batch in batches]


def decoded(batch, tokenizer) -> list[dict[str, str]]:
    """The rows of a batch as texts."""
    texts = [tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True) for ids in batch.input_ids]
    return [dict(zip(batch.languages, row, strict=True)) for row in zip(*texts, strict=True)]


def number_of(row: dict[str, str]) -> int:
    (number,) = {int(text.split()[-1]) for text in row.values()}  # all languages of one and the same row
    return number


def row_numbers(batches, tokenizer) -> list[int]:
    return [number_of(row) for batch in batches for row in decoded(batch, tokenizer)]


def as_source(dataset, kind: str):
    """The same rows map-style, as a stream, and as a stream of several files."""
    if kind == "map":
        return dataset
    return dataset.to_iterable_dataset(num_shards={"stream": 1, "shards": 3}[kind])


SOURCES = pytest.mark.parametrize("kind", ["map", "stream", "shards"])

# ---- What is in a batch


@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(1, 40),
    seed=st.integers(0, 1000),
    missing=st.sampled_from([0.0, 0.3, 0.7]),
    budget=st.integers(10, 400),
    languages_per_row=st.sampled_from([None, 2, 3]),
    buffer_rows=st.sampled_from([7, 1000]),
    shuffle=st.booleans(),
    streaming=st.booleans(),
    temperature=st.sampled_from([0.5, 1.0, 5.0, float("inf")]),
)
def test_an_epoch_holds_every_usable_row_once_in_sound_batches(
    tokenizer, num_rows, seed, missing, budget, languages_per_row, buffer_rows, shuffle, streaming, temperature
):
    rows = [*numbered_rows(num_rows, seed, missing), {language: f"always {num_rows}" for language in LANGUAGES}]
    dataset = make_dataset(rows)
    batches = list(
        make_batches(
            dataset.to_iterable_dataset() if streaming else dataset,
            tokenizer,
            micro_batch_tokens=budget,
            languages_per_row=languages_per_row,
            buffer_rows=buffer_rows,
            shuffle=shuffle,
            seed=seed,
            temperature=temperature,
        )
    )
    expected = [number for number, row in enumerate(rows) if usable(row)]
    assert sorted(row_numbers(batches, tokenizer)) == expected

    for batch in batches:
        found = decoded(batch, tokenizer)
        assert len(set(batch.languages)) == len(batch.languages) >= 2
        assert set(batch.languages) & set(PIVOTS)
        for row in found:
            original = rows[number_of(row)]
            assert row == {language: original[language] for language in batch.languages}  # no None, nothing empty
            available = [language for language in LANGUAGES if original[language]]
            assert len(batch.languages) == min(languages_per_row or 5, len(available))

        num_languages, num_rows_here, length = batch.input_ids.shape
        real = batch.attention_mask.bool()
        lengths = real.sum(-1)
        assert lengths.max() == length  # no more padding than needed
        assert (batch.input_ids[~real] == tokenizer.pad_token_id).all()
        assert (batch.input_ids[..., 0] == tokenizer.bos_token_id).all()
        assert (batch.input_ids.gather(2, lengths[..., None] - 1) == tokenizer.eos_token_id).all()
        over = num_languages * num_rows_here * length > budget
        # a row that fits no budget, or a batch that fitted until it took in the last row of its chunk
        assert not over or num_rows_here == 1 or num_languages * (num_rows_here - 1) * length <= budget

    counts = ChunkCounts()
    for batch in {batch.position.chunk: batch for batch in batches}.values():
        counts.add(batch.counts)
    if len({batch.position.chunk for batch in batches}) == -(-len(rows) // buffer_rows):  # every chunk gave a batch
        assert (counts.rows, counts.rows_without_pair) == (len(rows), len(rows) - len(expected))
        assert counts.texts == sum(batch.input_ids.shape[0] * batch.input_ids.shape[1] for batch in batches)


@pytest.mark.parametrize("languages_per_row", [None, 2, 3])
def test_sizes_and_words_equal_a_plain_count(tokenizer, languages_per_row):
    rows = numbered_rows(60, seed=3, missing=0.2)
    num_directions = set()
    for batch in make_batches(make_dataset(rows), tokenizer, languages_per_row=languages_per_row):
        found = decoded(batch, tokenizer)
        directions = [
            (source, target)
            for source in batch.languages
            for target in batch.languages
            if source != target and target in PIVOTS
        ]
        num_directions.add(len(directions))
        target_texts = [row[target] for row in found for _, target in directions]
        assert batch.sizes.rows == len(found)
        assert batch.sizes.languages == len(batch.languages)
        assert batch.sizes.directions == len(directions)
        # the decoder predicts every token but <s>
        assert batch.sizes.target_tokens == sum(len(tokenizer.encode(text)) - 1 for text in target_texts)
        assert batch.words == (
            sum(len(text.split()) for row in found for text in row.values()),
            sum(len(text.split()) for text in target_texts),
        )
        assert batch.model_inputs() == {
            "input_ids": batch.input_ids,
            "attention_mask": batch.attention_mask,
            "languages": batch.languages,
        }
    assert num_directions <= {2: {1, 2}, 3: {1, 2, 4}, None: {1, 2, 3, 4, 6, 8}}[languages_per_row]
    assert len(num_directions) >= 2


def test_rows_of_like_length_share_a_batch(tokenizer):
    """Half of the rows are 2 words and half are 40: mixed, the short ones would be mostly padding."""
    rows = [{language: " ".join(["house"] * size) for language in ("de", "en")} for size in [2, 40] * 40]
    batches = list(make_batches(make_dataset(rows), tokenizer, micro_batch_tokens=1000, buffer_rows=80))
    assert len(batches) > 3
    real = sum(int(batch.attention_mask.sum()) for batch in batches)
    padded = sum(batch.attention_mask.numel() for batch in batches)
    assert real / padded > 0.85


def test_a_last_row_joins_the_batch_before_it(tokenizer):
    """Three rows of one length where the budget holds two: one batch of three, since a row alone has no negatives."""
    rows = [dict.fromkeys(("de", "en"), f"house {number}") for number in range(3)]
    length = len(tokenizer.encode("house 0"))
    batches = ParallelBatches(make_dataset(rows), tokenizer, ["de", "en"], ["en"], micro_batch_tokens=2 * 2 * length)
    assert [batch.sizes.rows for batch in batches] == [3]
    batches.dataset = make_dataset([*rows, rows[0]])
    assert [batch.sizes.rows for batch in batches] == [2, 2]


def test_truncation_is_counted(tokenizer):
    rows = numbered_rows(40, seed=5)
    batches = list(make_batches(make_dataset(rows), tokenizer, max_length=9, languages_per_row=None, buffer_rows=100))
    lengths = [len(tokenizer.encode(text)) for row in rows for text in row.values()]
    expected = sum(length > 9 for length in lengths)
    assert 0 < expected < len(lengths)
    assert 9 in lengths  # exactly as long as allowed is not truncated
    assert batches[0].counts == ChunkCounts(rows=40, rows_without_pair=0, texts=200, truncated_texts=expected)
    assert max(batch.input_ids.shape[2] for batch in batches) == 9
    assert sum(int(batch.attention_mask.sum()) for batch in batches) == sum(min(length, 9) for length in lengths)
    for batch in batches:
        last = batch.attention_mask.sum(-1, keepdim=True) - 1
        assert (batch.input_ids.gather(2, last) == tokenizer.eos_token_id).all()


def test_infinite_temperature_evens_out_the_pairs(tokenizer):
    """300 rows of de and en alone, 300 of de, en and es. A row of three can give three pairs.

    By a row's own chances: 300 + 100 de-en, 100 de-es, 100 en-es. With weight 1 / n, n = 600, 300, 300, the rows of
    three are drawn 1 : 2 : 2: 300 + 60, 120, 120.
    """
    rows = [
        {"de": f"haus {number}", "en": f"house {number}", "es": f"casa {number}" if number % 2 else None}
        for number in range(600)
    ]
    frequencies = {}
    for temperature in (1.0, float("inf")):
        counter = Counter()
        for seed in range(3):
            batches = ParallelBatches(
                make_dataset(rows), tokenizer, ["de", "en", "es"], PIVOTS, temperature=temperature, seed=seed
            )
            for batch in batches:
                counter[batch.languages] += batch.sizes.rows / 3
        frequencies[temperature] = counter
    pairs = [("de", "en"), ("de", "es"), ("en", "es")]
    # standard deviation of the means of three epochs: about 5
    assert [frequencies[1.0][pair] for pair in pairs] == pytest.approx([400, 100, 100], abs=20)
    assert [frequencies[float("inf")][pair] for pair in pairs] == pytest.approx([360, 120, 120], abs=20)
    assert frequencies[float("inf")][pairs[0]] < frequencies[1.0][pairs[0]]


# ---- One stream for every kind of source


@SOURCES
def test_streams_give_the_rows_of_the_dataset(tokenizer, kind):
    dataset = make_dataset(numbered_rows(50, seed=1, missing=0.2))
    source = as_source(dataset, kind)
    plain = make_batches(source, tokenizer, shuffle=False)
    assert contents(plain) == contents(make_batches(dataset, tokenizer, shuffle=False))
    shuffled = make_batches(source, tokenizer)
    assert sorted(row_numbers(shuffled, tokenizer)) == sorted(row_numbers(plain, tokenizer))
    assert row_numbers(shuffled, tokenizer) != row_numbers(plain, tokenizer)


@SOURCES
def test_the_same_seed_gives_the_same_batches(tokenizer, kind):
    source = as_source(make_dataset(numbered_rows(50, seed=1)), kind)
    first = contents(make_batches(source, tokenizer, seed=7, epochs=2))
    assert contents(make_batches(source, tokenizer, seed=7, epochs=2)) == first
    batches = make_batches(source, tokenizer, seed=7, epochs=2)
    assert contents(batches) == contents(batches) == first
    assert contents(make_batches(source, tokenizer, seed=8, epochs=2)) != first


@SOURCES
def test_epochs_differ_and_hold_the_same_rows(tokenizer, kind):
    source = as_source(make_dataset(numbered_rows(50, seed=1)), kind)
    batches = list(make_batches(source, tokenizer, epochs=3))
    epochs = [
        row_numbers([batch for batch in batches if batch.position.epoch == epoch], tokenizer) for epoch in range(3)
    ]
    assert [sorted(epoch) for epoch in epochs] == [list(range(50))] * 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    first_chunks = [
        frozenset(
            row_numbers(
                [batch for batch in batches if (batch.position.epoch, batch.position.chunk) == (epoch, 0)], tokenizer
            )
        )
        for epoch in range(3)
    ]
    assert len(set(first_chunks)) == 3  # other rows meet each other, not just in another order
    endless = itertools.islice(make_batches(source, tokenizer, epochs=None), len(batches) + 5)
    assert contents(endless)[: len(batches)] == contents(batches)


# ---- Processes and workers


@pytest.mark.parametrize("world_size", [2, 3, 4])
@SOURCES
def test_processes_take_turns_in_one_stream(tokenizer, kind, world_size):
    source = as_source(make_dataset(numbered_rows(60, seed=1, missing=0.2)), kind)
    whole = list(make_batches(source, tokenizer, epochs=2))
    rounds = len(whole) // world_size
    for rank in range(world_size):
        own = list(make_batches(source, tokenizer, epochs=2, rank=rank, world_size=world_size))
        expected = whole[rank::world_size][:rounds]
        # all but next_position, which is where the whole round ends, for every process alike
        assert [content(batch)[:-1] for batch in own] == [content(batch)[:-1] for batch in expected]
        ends = [batch.next_position for batch in whole[world_size - 1 :: world_size]]
        assert [batch.next_position for batch in own] == ends


def test_a_round_that_cannot_be_filled_is_left_out(tokenizer):
    rows = [{"de": f"haus {number}", "en": f"house {number}"} for number in range(5)]
    options = {"micro_batch_tokens": 1, "shuffle": False}  # every row is a batch
    lengths = []
    for rank in range(2):
        batches = ParallelBatches(
            make_dataset(rows), tokenizer, ["de", "en"], ["en"], rank=rank, world_size=2, **options
        )
        lengths.append(len(list(batches)))
    assert lengths == [2, 2]


@pytest.mark.parametrize("num_workers", [1, 2])
@SOURCES
def test_workers_change_nothing(tokenizer, kind, num_workers):
    source = as_source(make_dataset(numbered_rows(60, seed=1, missing=0.2)), kind)
    for rank, world_size in ((0, 1), (1, 2)):
        batches = make_batches(source, tokenizer, epochs=2, rank=rank, world_size=world_size)
        loader = DataLoader(batches, batch_size=None, num_workers=num_workers)
        assert contents(loader) == contents(batches)


# ---- Resuming


@pytest.mark.parametrize("shuffle", [True, False])
@SOURCES
def test_a_run_resumes_at_any_batch(tokenizer, kind, shuffle):
    source = as_source(make_dataset(numbered_rows(60, seed=1, missing=0.2)), kind)
    options = {"epochs": 2, "shuffle": shuffle, "micro_batch_tokens": 200}
    whole = list(make_batches(source, tokenizer, **options))
    expected = contents(whole)
    assert {batch.position.chunk for batch in whole} == {0, 1, 2, 3}
    for index, batch in enumerate(whole):
        rest = make_batches(source, tokenizer, start=batch.next_position, **options)
        assert contents(rest) == expected[index + 1 :], f"from {batch.next_position}"


@SOURCES
def test_processes_resume_together(tokenizer, kind):
    source = as_source(make_dataset(numbered_rows(60, seed=1)), kind)
    for rank in range(2):
        options = {"epochs": 2, "rank": rank, "world_size": 2}
        whole = list(make_batches(source, tokenizer, **options))
        for index in range(0, len(whole), 5):
            rest = make_batches(source, tokenizer, start=whole[index].next_position, **options)
            assert contents(rest) == contents(whole[index + 1 :])


# ---- Errors


@pytest.mark.parametrize(
    ("languages", "options", "message"),
    [
        (["en"], {}, r"at least two languages, found \['en'\]"),
        (["de", "en"], {"languages_per_row": 1}, "languages_per_row=1 must be at least 2"),
        (["de", "en"], {"temperature": 0.0}, "pair_temperature=0.0 must be above 0"),
        (["de", "en"], {"temperature": -1.0}, "pair_temperature=-1.0 must be above 0"),
    ],
)
def test_constructor_errors(tokenizer, languages, options, message):
    with pytest.raises(ValueError, match=message):
        ParallelBatches(make_dataset(numbered_rows(3)), tokenizer, languages, ["en"], **options)


@SOURCES
@pytest.mark.parametrize("epochs", [1, None])
def test_a_corpus_without_any_usable_row_is_an_error(tokenizer, kind, epochs):
    rows = [{"de": f"haus {number}", "fr": f"maison {number}", "en": None} for number in range(9)]
    batches = ParallelBatches(
        as_source(make_dataset(rows), kind), tokenizer, ["de", "en", "fr"], ["en"], epochs=epochs, buffer_rows=4
    )
    with pytest.raises(ValueError, match=r"No row .*\['de', 'en', 'fr'\] with one of .*\['en'\]"):
        next(iter(batches))


def test_a_single_chunk_without_usable_rows_is_none(tokenizer):
    rows = [{"de": f"haus {number}", "en": None if number < 8 else f"house {number}"} for number in range(12)]
    batches = ParallelBatches(
        make_dataset(rows), tokenizer, ["de", "en"], ["en"], epochs=2, buffer_rows=4, shuffle=False
    )
    found = list(batches)
    assert [batch.position for batch in found] == [Position(0, 2, 0), Position(1, 2, 0)]
    assert contents(
        ParallelBatches(
            make_dataset(rows),
            tokenizer,
            ["de", "en"],
            ["en"],
            epochs=2,
            buffer_rows=4,
            shuffle=False,
            start=found[0].next_position,
        )
    ) == contents(found[1:])
