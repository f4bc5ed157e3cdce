"""Parallel batches: every row once, within the budget, the same for every process and worker."""

import itertools
import random
from collections import Counter

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from modeling_tmde import train_tokenizer
from tests.conftest import LANGUAGES, make_dataset, make_rows
from tmde.training.batches import ParallelBatches

PIVOTS = ["en", "es"]


def numbered_rows(
    num_rows: int, seed: int = 0, missing: float = 0.0
) -> list[dict[str, str | None]]:
    """Rows that end in their number, so that a decoded text tells its row; some languages None
    or empty.
    """
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
    tensors = (
        tuple(batch.input_ids.shape),
        batch.input_ids.tolist(),
        batch.attention_mask.tolist(),
    )
    return (
        batch.languages,
        *tensors,
        batch.sizes,
        batch.words,
        batch.counts,
        batch.position,
        batch.next_position,
    )


def contents(batches) -> list[tuple]:
    return [content(batch) for batch in batches]


def decoded(batch, tokenizer) -> list[dict[str, str]]:
    """The rows of a batch as texts."""
    texts = [
        tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True) for ids in batch.input_ids
    ]
    return [dict(zip(batch.languages, row, strict=True)) for row in zip(*texts, strict=True)]


def number_of(row: dict[str, str]) -> int:
    (number,) = {
        int(text.split()[-1]) for text in row.values()
    }  # all languages of one and the same row
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
    micro_batch_tokens=st.integers(10, 400),
    languages_per_row=st.sampled_from([None, 2, 3]),
    buffer_rows=st.sampled_from([7, 1000]),
    shuffle=st.booleans(),
    streaming=st.booleans(),
    temperature=st.sampled_from([0.5, 1.0, 5.0, float("inf")]),
)
def test_an_epoch_holds_every_usable_row_once(
    tokenizer, num_rows, seed, missing, streaming, **options
):
    rows = [
        *numbered_rows(num_rows, seed, missing),
        {language: f"always {num_rows}" for language in LANGUAGES},
    ]
    dataset = make_dataset(rows)
    source = dataset.to_iterable_dataset() if streaming else dataset
    batches = list(make_batches(source, tokenizer, seed=seed, **options))
    expected = [number for number, row in enumerate(rows) if usable(row)]
    assert sorted(row_numbers(batches, tokenizer)) == expected

    for batch in batches:
        found = decoded(batch, tokenizer)
        assert len(set(batch.languages)) == len(batch.languages) >= 2
        assert set(batch.languages) & set(PIVOTS)
        for row in found:
            original = rows[number_of(row)]
            assert row == {
                language: original[language] for language in batch.languages
            }  # no None, nothing empty
            available = [language for language in LANGUAGES if original[language]]
            assert len(batch.languages) == min(options["languages_per_row"] or 5, len(available))

        num_languages, num_rows_here, length = batch.input_ids.shape
        real = batch.attention_mask.bool()
        lengths = real.sum(-1)
        assert lengths.max() == length  # no more padding than needed
        assert batch.lengths.dtype == np.int64
        assert batch.lengths.tolist() == lengths.tolist()
        assert (batch.input_ids[~real] == tokenizer.pad_token_id).all()
        assert (batch.input_ids[..., 0] == tokenizer.bos_token_id).all()
        assert (batch.input_ids.gather(2, lengths[..., None] - 1) == tokenizer.eos_token_id).all()
        # A row that fits no budget, or a batch that fitted until it took in the last row of its
        # chunk.
        assert num_rows_here == 1 or (num_rows_here - 1) * length <= options["micro_batch_tokens"]

    counts = Counter()
    for batch in {batch.position.chunk: batch for batch in batches}.values():
        counts.update(batch.counts)
    if len({batch.position.chunk for batch in batches}) == -(
        -len(rows) // options["buffer_rows"]
    ):  # every chunk gave a batch
        assert (counts["rows"], counts["rows_without_pair"]) == (
            len(rows),
            len(rows) - len(expected),
        )
        assert counts["texts"] == sum(
            batch.input_ids.shape[0] * batch.input_ids.shape[1] for batch in batches
        )


def test_a_last_row_joins_the_batch_before_it(tokenizer):
    """Three rows of one length where the budget holds two: one batch of three, since a row alone
    has no negatives.
    """
    rows = [dict.fromkeys(("de", "en"), f"house {number}") for number in range(3)]
    length = len(tokenizer.encode("house 0"))
    for found, expected in ((rows, [3]), ([*rows, rows[0]], [2, 2])):
        options = {"micro_batch_tokens": 2 * length}
        batches = ParallelBatches(make_dataset(found), tokenizer, ["de", "en"], ["en"], **options)
        assert [batch.sizes.rows for batch in batches] == expected


def test_truncation_is_counted(tokenizer):
    rows = numbered_rows(40, seed=5)
    batches = list(
        make_batches(
            make_dataset(rows), tokenizer, max_length=9, languages_per_row=None, buffer_rows=100
        )
    )
    lengths = [len(tokenizer.encode(text)) for row in rows for text in row.values()]
    expected = sum(length > 9 for length in lengths)
    assert 0 < expected < len(lengths)
    assert 9 in lengths  # exactly as long as allowed is not truncated
    assert batches[0].counts == dict(
        rows=40, rows_without_pair=0, texts=200, truncated_texts=expected
    )
    assert max(batch.input_ids.shape[2] for batch in batches) == 9
    assert sum(int(batch.attention_mask.sum()) for batch in batches) == sum(
        min(length, 9) for length in lengths
    )


def test_infinite_temperature_evens_out_the_pairs(tokenizer):
    """300 rows of de and en alone, 300 of de, en and es. A row of three can give three pairs.

    By a row's own chances: 300 + 100 de-en, 100 de-es, 100 en-es. With weight 1 / n, n = 600, 300,
    300, the rows of three are drawn 1 : 2 : 2: 300 + 60, 120, 120.
    """
    rows = [
        {"de": f"haus {n}", "en": f"house {n}", "es": f"casa {n}" if n % 2 else None}
        for n in range(600)
    ]
    dataset = make_dataset(rows)
    frequencies = {1.0: Counter(), float("inf"): Counter()}
    for (temperature, counter), seed in itertools.product(frequencies.items(), range(3)):
        options = {"temperature": temperature, "seed": seed}
        for batch in ParallelBatches(dataset, tokenizer, ["de", "en", "es"], PIVOTS, **options):
            counter[batch.languages] += batch.sizes.rows / 3
    pairs = [("de", "en"), ("de", "es"), ("en", "es")]
    # standard deviation of the means of three epochs: about 5
    assert [frequencies[1.0][pair] for pair in pairs] == pytest.approx([400, 100, 100], abs=20)
    assert [frequencies[float("inf")][pair] for pair in pairs] == pytest.approx(
        [360, 120, 120], abs=20
    )
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
def test_epochs_differ_and_hold_the_same_rows(tokenizer, kind):
    source = as_source(make_dataset(numbered_rows(50, seed=1)), kind)
    batches = list(make_batches(source, tokenizer, epochs=2))
    first, second = (
        [batch for batch in batches if batch.position.epoch == epoch] for epoch in range(2)
    )
    assert (
        sorted(row_numbers(first, tokenizer))
        == sorted(row_numbers(second, tokenizer))
        == list(range(50))
    )
    chunks = [[batch for batch in epoch if batch.position.chunk == 0] for epoch in (first, second)]
    # other rows meet each other, not just in another order
    assert set(row_numbers(chunks[0], tokenizer)) != set(row_numbers(chunks[1], tokenizer))
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


@pytest.mark.parametrize("num_workers", [1, 2])
@SOURCES
def test_workers_change_nothing(tokenizer, kind, num_workers):
    source = as_source(make_dataset(numbered_rows(60, seed=1, missing=0.2)), kind)
    for rank, world_size in ((0, 1), (1, 2)):
        batches = make_batches(source, tokenizer, epochs=2, rank=rank, world_size=world_size)
        loader = DataLoader(batches, batch_size=None, num_workers=num_workers)
        assert contents(loader) == contents(batches)


# ---- Options: rows of a batch, any pair, joined rows, neighbors


@pytest.fixture(scope="module")
def spaced_tokenizer():
    """Whose tokens of two texts, one after the other, are those of the texts joined by a blank."""
    texts = {language: [row[language] for row in make_rows(300)] for language in LANGUAGES}
    return train_tokenizer(texts, vocab_size=400, add_prefix_space=True)


def test_without_pivots_every_pair_appears(tokenizer):
    rows = numbered_rows(200, seed=4)
    rows[0] = {"de": "haus 0", "en": None, "es": "", "fr": "maison 0", "it": None}
    batches = list(make_batches(make_dataset(rows), tokenizer, pivots_only=False, buffer_rows=400))
    assert sorted(row_numbers(batches, tokenizer)) == list(range(200))
    rows_of_pair = Counter()
    for batch in batches:
        rows_of_pair[batch.languages] += batch.sizes.rows
    assert set(rows_of_pair) == set(itertools.combinations(LANGUAGES, 2))
    assert min(rows_of_pair.values()) > 5  # of 20 on average, standard deviation 4
    some = {
        batch.languages
        for batch in make_batches(make_dataset(rows[1:]), tokenizer, pivots_only=["es"])
    }
    assert some == {pair for pair in rows_of_pair if "es" in pair}
    with pytest.raises(ValueError, match=r"pivot_pairs=\['fr'\]: expected some of the pivots"):
        make_batches(make_dataset(rows), tokenizer, pivots_only=["fr"])


def with_documents(rows: list[dict], names: list[str | None]) -> datasets.Dataset:
    features = datasets.Features({"doc_id": datasets.Value("string")})
    return datasets.concatenate_datasets(
        [make_dataset(rows), datasets.Dataset.from_dict({"doc_id": names}, features=features)],
        axis=1,
    )


def numbers_in(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdigit()]


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    unnamed=st.booleans(),
    missing=st.sampled_from([0.0, 0.2]),
    most=st.integers(2, 4),
    shuffle=st.booleans(),
    seed=st.integers(0, 100),
)
def test_joined_rows_follow_each_other_in_one_document(
    spaced_tokenizer, lengths, unnamed, missing, most, shuffle, seed
):
    rows = [
        *numbered_rows(sum(lengths), seed, missing),
        {language: f"last {sum(lengths)}" for language in LANGUAGES},
    ]
    names = [f"d{document}" for document, length in enumerate(lengths) for _ in range(length)] + [
        f"d{len(lengths)}"
    ]
    dataset = make_dataset(rows) if unnamed else with_documents(rows, names)
    options = {"max_joined_rows": most, "shuffle": shuffle, "seed": seed, "max_length": 10**4}
    firsts = []
    for batch in make_batches(dataset, spaced_tokenizer, micro_batch_tokens=400, **options):
        for found in decoded(batch, spaced_tokenizer):
            first, *others = joined = numbers_in(found[batch.languages[0]])
            firsts.append(first)
            assert len(joined) <= most
            if (
                unnamed
            ):  # rows without documents are a running text of those with the same languages
                kinds = [[language for language in LANGUAGES if row[language]] for row in rows]
                after = [
                    number for number in range(first, len(rows)) if kinds[number] == kinds[first]
                ]
                assert joined == after[: len(joined)]
            else:
                assert joined == list(range(first, first + len(joined)))
                assert len({names[number] for number in joined}) == 1
            for language in batch.languages:  # so none lacks a language
                assert found[language] == " ".join(rows[number][language] for number in joined)
        words = sum(
            len(text.split()) for row in decoded(batch, spaced_tokenizer) for text in row.values()
        )
        assert batch.words[0] == words
        real = batch.attention_mask.bool()
        assert (batch.input_ids[real] == spaced_tokenizer.bos_token_id).sum() == real[
            ..., 0
        ].numel()  # one a text
        assert (batch.input_ids[real] == spaced_tokenizer.eos_token_id).sum() == real[
            ..., 0
        ].numel()
    assert sorted(firsts) == [number for number, row in enumerate(rows) if usable(row)]


def test_a_tokenizer_that_would_glue_words_together_cannot_join(tokenizer):
    dataset = make_dataset(numbered_rows(3))
    with pytest.raises(
        ValueError,
        match="max_joined_rows=2: .* makes 'aa' .*expected 'a a': .*add_prefix_space=true",
    ):
        make_batches(dataset, tokenizer, max_joined_rows=2)
    assert (
        sum(batch.sizes.rows for batch in make_batches(dataset, tokenizer, max_joined_rows=1)) == 3
    )


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("documented", [False, True])
def test_neighbors_are_the_rows_that_follow(spaced_tokenizer, documented, most):
    rows = numbered_rows(60, seed=6)
    rows[25]["it"] = None
    rows[45]["en"] = ""
    names = [f"d{number // 10}" for number in range(60)]
    dataset = with_documents(rows, names) if documented else make_dataset(rows)

    def alignments(share: float) -> Counter:
        """How often the last language's text is that of the others, or the next row's, or could
        not be.
        """
        kinds = Counter()
        options = {
            "neighbor_share": share,
            "max_joined_rows": most,
            "buffer_rows": 100,
            "epochs": 3,
        }
        for batch in make_batches(dataset, spaced_tokenizer, languages_per_row=3, **options):
            *others, last = batch.languages
            for found in decoded(batch, spaced_tokenizer):
                (joined,) = {tuple(numbers_in(found[language])) for language in others}
                following = joined[-1] + 1
                possible = following < 60 and all(
                    rows[following][language] for language in batch.languages
                )
                possible &= documented and following % 10 != 0
                if numbers_in(found[last]) == list(joined):
                    kinds["same" if possible else "alone"] += 1
                else:
                    assert possible
                    assert found[last] == rows[following][last]
                    kinds["next"] += 1
        return kinds

    assert set(alignments(0.0)) == ({"same", "alone"} if documented else {"alone"})
    everywhere = alignments(1.0)
    if not documented:
        assert everywhere == {"alone": 3 * 60}
        return
    assert set(everywhere) == {"next", "alone"}
    if most == 1:  # the last rows of six documents, and perhaps the two before incomplete rows
        assert 3 * 6 <= everywhere["alone"] <= 3 * 8
    half = alignments(0.5)
    assert (
        0.35 < half["next"] / (half["next"] + half["same"]) < 0.65
    )  # of 150 or more, standard deviation 0.04


# ---- Resuming


OPTIONS = {"max_joined_rows": 3, "neighbor_share": 0.4, "micro_batch_rows": 3, "pivots_only": False}


@pytest.mark.parametrize("options", [{"shuffle": True}, {"shuffle": False}, OPTIONS])
@SOURCES
def test_a_run_resumes_at_any_batch(spaced_tokenizer, kind, options):
    rows = numbered_rows(60, seed=1, missing=0.2)
    source = as_source(with_documents(rows, [f"d{number // 9}" for number in range(60)]), kind)
    options = {"epochs": 2, "micro_batch_tokens": 200} | options
    whole = list(make_batches(source, spaced_tokenizer, **options))
    expected = contents(whole)
    assert {batch.position.chunk for batch in whole} == {0, 1, 2, 3}
    for index, batch in enumerate(whole):
        rest = make_batches(source, spaced_tokenizer, start=batch.next_position, **options)
        assert contents(rest) == expected[index + 1 :], f"from {batch.next_position}"


# ---- Errors


@SOURCES
@pytest.mark.parametrize("epochs", [1, None])
def test_a_corpus_without_any_usable_row_is_an_error(tokenizer, kind, epochs):
    rows = [{"de": f"haus {number}", "fr": f"maison {number}", "en": None} for number in range(9)]
    batches = ParallelBatches(
        as_source(make_dataset(rows), kind),
        tokenizer,
        ["de", "en", "fr"],
        ["en"],
        epochs=epochs,
        buffer_rows=4,
    )
    with pytest.raises(ValueError, match=r"No row .*\['de', 'en', 'fr'\] with one of .*\['en'\]"):
        next(iter(batches))
