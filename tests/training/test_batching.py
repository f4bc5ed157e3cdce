"""Parallel batches: every row once, within the budget, the same for every process and worker."""

import itertools
import math
import random
from collections import Counter

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LANGUAGES, make_dataset, make_rows, nightly_except
from tests.training.batches import parallel_batches
from tmde.training.batches import ParallelBatches, ParallelLoader

PIVOTS = ["en", "es"]


def numbered_rows(
    num_rows: int, seed: int = 0, missing: float = 0.0
) -> list[dict[str, str | None]]:
    """Return rows that end in their number, so that a decoded text tells its row.

    Args:
        num_rows: The number of rows.
        seed: The seed of the words and of what is missing.
        missing: The share of the texts that are None or empty.
    """
    rng = random.Random(seed)
    rows = make_rows(num_rows, seed)
    for number, row in enumerate(rows):
        for language in LANGUAGES:
            if rng.random() < missing:
                row[language] = rng.choice([None, ""])
            else:
                row[language] += f" {number}"
    return rows


def available_languages(row: dict[str, str | None]) -> list[str]:
    """Return the languages in which a row has a text."""
    return [language for language in row if row[language]]


def is_usable(row: dict[str, str | None]) -> bool:
    """Return whether a row has a pair with a pivot."""
    available = available_languages(row)
    return len(available) >= 2 and not set(PIVOTS).isdisjoint(available)


def usable_numbers(rows: list[dict[str, str | None]]) -> list[int]:
    """Return the numbers of the rows that have a pair with a pivot."""
    return [number for number, row in enumerate(rows) if is_usable(row)]


def make_batches(dataset, tokenizer, **options) -> ParallelBatches:
    options = {"micro_batch_tokens": 160, "buffer_rows": 16, "max_length": 128} | options
    return parallel_batches(dataset, tokenizer, list(LANGUAGES), PIVOTS, **options)


def content(batch) -> tuple:
    """Return all that a batch holds but where its round ends, in a form that can be compared."""
    return (
        batch.languages,
        tuple(batch.input_ids.shape),
        batch.input_ids.tolist(),
        batch.attention_mask.tolist(),
        batch.sizes,
        batch.source_words,
        batch.target_words,
        batch.counts,
        batch.position,
    )


def contents(batches) -> list[tuple]:
    """Return the content of every batch with the end of its round."""
    return [(*content(batch), batch.next_position) for batch in batches]


def decoded(batch, tokenizer) -> list[dict[str, str]]:
    """Return the rows of a batch as texts."""
    rows = [{} for _ in range(batch.sizes.rows)]
    for language, token_ids in zip(batch.languages, batch.input_ids, strict=True):
        texts = tokenizer.batch_decode(token_ids.tolist(), skip_special_tokens=True)
        for row, text in zip(rows, texts, strict=True):
            row[language] = text
    return rows


def number_of(row: dict[str, str]) -> int:
    """Return the number of a decoded row, which must be the same in all of its languages."""
    numbers = {int(text.split()[-1]) for text in row.values()}
    assert len(numbers) == 1
    return numbers.pop()


def row_numbers(batches, tokenizer) -> list[int]:
    """Return the numbers of all rows, in the order of the batches."""
    numbers = []
    for batch in batches:
        numbers.extend(map(number_of, decoded(batch, tokenizer)))
    return numbers


def chunk_numbers(batches) -> set[int]:
    return {batch.position.chunk for batch in batches}


def of_epoch(batches, epoch: int) -> list:
    return [batch for batch in batches if batch.position.epoch == epoch]


def rows_by_pair(batches) -> Counter:
    """Return how many rows of each set of languages there are."""
    counts = Counter()
    for batch in batches:
        counts[batch.languages] += batch.sizes.rows
    return counts


def as_source(dataset, kind: str):
    """Return the same rows map-style, as a stream, or as a stream of several files."""
    if kind == "map":
        return dataset
    num_shards = {"stream": 1, "shards": 3}[kind]
    return dataset.to_iterable_dataset(num_shards=num_shards)


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
    complete_row = dict.fromkeys(LANGUAGES, f"always {num_rows}")
    rows = [*numbered_rows(num_rows, seed, missing), complete_row]
    source = as_source(make_dataset(rows), "stream" if streaming else "map")

    batches = list(make_batches(source, tokenizer, seed=seed, **options))

    assert sorted(row_numbers(batches, tokenizer)) == usable_numbers(rows)
    for batch in batches:
        assert_texts_are_those_of_the_rows(batch, rows, tokenizer, options["languages_per_row"])
        assert_padded_on_the_right(batch, tokenizer)
        assert_within_budget(batch, options["micro_batch_tokens"])
    every_chunk_gave_a_batch = len(chunk_numbers(batches)) == math.ceil(
        len(rows) / options["buffer_rows"]
    )
    if every_chunk_gave_a_batch:
        assert_counts_are_those_of_the_rows(batches, rows)


def assert_texts_are_those_of_the_rows(batch, rows, tokenizer, languages_per_row) -> None:
    """Check the languages and texts of a batch; none is missing or empty."""
    assert len(set(batch.languages)) == len(batch.languages) >= 2
    assert set(batch.languages) & set(PIVOTS)
    for decoded_row in decoded(batch, tokenizer):
        row = rows[number_of(decoded_row)]
        assert decoded_row == {language: row[language] for language in batch.languages}
        num_available = len(available_languages(row))
        assert len(batch.languages) == min(languages_per_row or len(LANGUAGES), num_available)


def assert_padded_on_the_right(batch, tokenizer) -> None:
    """Check special tokens and padding, of which there is no more than needed."""
    is_token = batch.attention_mask.bool()
    lengths = is_token.sum(-1)
    last_tokens = batch.input_ids.gather(2, lengths[..., None] - 1)
    assert lengths.max() == batch.input_ids.shape[2]
    assert batch.lengths.dtype == np.int64
    assert batch.lengths.tolist() == lengths.tolist()
    assert (batch.input_ids[~is_token] == tokenizer.pad_token_id).all()
    assert (batch.input_ids[..., 0] == tokenizer.bos_token_id).all()
    assert (last_tokens == tokenizer.eos_token_id).all()


def assert_within_budget(batch, micro_batch_tokens: int) -> None:
    """Check the size of a batch. Only a single row may be too large."""
    _, num_rows, length = batch.input_ids.shape
    assert num_rows == 1 or num_rows * length <= micro_batch_tokens


def assert_counts_are_those_of_the_rows(batches, rows) -> None:
    """Check the counts of chunks, which every batch of a chunk carries."""
    counts_by_chunk = {batch.position.chunk: batch.counts for batch in batches}
    counts = sum(counts_by_chunk.values(), Counter())
    assert counts["rows"] == len(rows)
    assert counts["rows_without_pair"] == len(rows) - len(usable_numbers(rows))
    assert counts["texts"] == sum(batch.lengths.size for batch in batches)


@pytest.mark.parametrize(
    ("num_rows", "expected"),
    [(1, [1]), (2, [2]), (4, [4]), (5, [3, 2]), (6, [4, 2]), (8, [4, 4]), (9, [4, 3, 2])],
)
@pytest.mark.parametrize("limit", ["rows", "tokens"])
def test_the_last_batch_gets_a_second_row_from_the_one_before_it(
    num_rows, expected, limit, tokenizer
):
    """Four rows fit into a batch. A row alone has no negatives."""
    rows = [dict.fromkeys(("de", "en"), f"house {number % 3}") for number in range(num_rows)]
    options = {"micro_batch_rows": 4, "micro_batch_tokens": 4000}
    if limit == "tokens":
        options = {"micro_batch_tokens": 4 * len(tokenizer.encode("house 0"))}

    batches = parallel_batches(
        make_dataset(rows), tokenizer, ["de", "en"], ["en"], shuffle=False, **options
    )

    assert [batch.sizes.rows for batch in batches] == expected


def test_batches_of_two_rows_leave_a_row_alone(tokenizer):
    """The batch before it has no row to spare, and neither limit is ever exceeded."""
    rows = [dict.fromkeys(("de", "en"), "house")] * 3

    batches = parallel_batches(
        make_dataset(rows), tokenizer, ["de", "en"], ["en"], shuffle=False, micro_batch_rows=2
    )

    assert [batch.sizes.rows for batch in batches] == [2, 1]


def test_truncation_is_counted(tokenizer):
    rows = numbered_rows(40, seed=5)
    lengths = []
    for row in rows:
        lengths.extend(len(tokenizer.encode(text)) for text in row.values())
    lengths = np.array(lengths)
    num_longer = int((lengths > 9).sum())
    assert 0 < num_longer < len(lengths)
    assert 9 in lengths  # A text that is exactly as long as allowed is not truncated.

    options = {"max_length": 9, "languages_per_row": None, "buffer_rows": 100}
    batches = list(make_batches(make_dataset(rows), tokenizer, **options))

    expected_counts = {"rows": 40, "rows_without_pair": 0, "texts": 200}
    assert batches[0].counts == {**expected_counts, "truncated_texts": num_longer}
    assert max(batch.input_ids.shape[2] for batch in batches) == 9
    num_tokens = sum(batch.attention_mask.sum().item() for batch in batches)
    assert num_tokens == np.minimum(lengths, 9).sum()


def test_infinite_temperature_evens_out_the_pairs(tokenizer):
    """300 rows of de and en alone, 300 of de, en and es. A row of three can give three pairs.

    By a row's own chances: 300 + 100 de-en, 100 de-es, 100 en-es. With weight 1 / n, n = 600, 300,
    300, the rows of three are drawn 1 : 2 : 2: 300 + 60, 120, 120.
    """
    rows = []
    for number in range(600):
        spanish = f"casa {number}" if number % 2 else None
        rows.append({"de": f"haus {number}", "en": f"house {number}", "es": spanish})
    dataset = make_dataset(rows)

    def mean_frequencies(temperature: float) -> list[float]:
        """Return the rows of each pair, as a mean of three epochs."""
        counts = Counter()
        for seed in range(3):
            options = {"temperature": temperature, "seed": seed}
            counts += rows_by_pair(
                parallel_batches(dataset, tokenizer, ["de", "en", "es"], PIVOTS, **options)
            )
        pairs = [("de", "en"), ("de", "es"), ("en", "es")]
        return [counts[pair] / 3 for pair in pairs]

    plain = mean_frequencies(1.0)
    even = mean_frequencies(float("inf"))

    # The standard deviation of the means is about 5.
    assert plain == pytest.approx([400, 100, 100], abs=20)
    assert even == pytest.approx([360, 120, 120], abs=20)
    assert even[0] < plain[0]


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

    rows_of_first_chunk = []
    for epoch in range(2):
        epoch_batches = of_epoch(batches, epoch)
        assert sorted(row_numbers(epoch_batches, tokenizer)) == list(range(50))
        chunk = [batch for batch in epoch_batches if batch.position.chunk == 0]
        rows_of_first_chunk.append(set(row_numbers(chunk, tokenizer)))
    # Other rows meet each other, not just in another order.
    assert rows_of_first_chunk[0] != rows_of_first_chunk[1]


@SOURCES
def test_without_a_number_of_epochs_there_is_always_another(tokenizer, kind):
    source = as_source(make_dataset(numbered_rows(50, seed=1)), kind)
    expected = contents(make_batches(source, tokenizer, epochs=2))

    endless = make_batches(source, tokenizer, epochs=None)
    batches = contents(itertools.islice(endless, len(expected) + 5))

    assert len(batches) == len(expected) + 5
    assert batches[: len(expected)] == expected


# ---- Processes and workers


@pytest.mark.parametrize("world_size", [2, 3, 4])
@SOURCES
def test_processes_take_turns_in_one_stream(tokenizer, kind, world_size):
    source = as_source(make_dataset(numbered_rows(60, seed=1, missing=0.2)), kind)
    whole = list(make_batches(source, tokenizer, epochs=2))
    num_rounds = len(whole) // world_size
    last_of_rounds = whole[world_size - 1 :: world_size]
    ends_of_rounds = [batch.next_position for batch in last_of_rounds]

    for rank in range(world_size):
        options = {"epochs": 2, "rank": rank, "world_size": world_size}
        batches = list(make_batches(source, tokenizer, **options))

        expected = whole[rank::world_size][:num_rounds]
        assert list(map(content, batches)) == list(map(content, expected))
        assert [batch.next_position for batch in batches] == ends_of_rounds


@pytest.mark.parametrize(
    ("rank", "world_size"), [pytest.param(0, 1, marks=pytest.mark.nightly), (1, 2)]
)
@pytest.mark.parametrize("num_workers", nightly_except([2], [1, 2]))
@SOURCES
def test_workers_change_nothing(tokenizer, kind, num_workers, rank, world_size):
    source = as_source(make_dataset(numbered_rows(60, seed=1, missing=0.2)), kind)
    batches = make_batches(source, tokenizer, epochs=2, rank=rank, world_size=world_size)

    loader = ParallelLoader(batches, num_workers=num_workers)

    assert contents(loader) == contents(batches)


# ---- Options: rows of a batch, any pair, joined rows, neighbors


def test_without_pivots_every_pair_appears(tokenizer):
    rows = numbered_rows(200, seed=4)
    rows[0] = {"de": "haus 0", "en": None, "es": "", "fr": "maison 0", "it": None}

    batches = list(make_batches(make_dataset(rows), tokenizer, pivots_only=False, buffer_rows=400))

    assert sorted(row_numbers(batches, tokenizer)) == list(range(200))
    pair_counts = rows_by_pair(batches)
    assert set(pair_counts) == set(itertools.combinations(LANGUAGES, 2))
    # The mean is 20 and the standard deviation 4.
    assert min(pair_counts.values()) > 5


def test_with_some_of_the_pivots_every_pair_holds_one(tokenizer):
    dataset = make_dataset(numbered_rows(200, seed=4))

    batches = make_batches(dataset, tokenizer, pivots_only=["es"])

    all_pairs = itertools.combinations(LANGUAGES, 2)
    assert set(rows_by_pair(batches)) == {pair for pair in all_pairs if "es" in pair}


def test_languages_that_are_no_pivots_are_refused(tokenizer):
    dataset = make_dataset(numbered_rows(3))
    with pytest.raises(ValueError, match=r"pivot_pairs=\['fr'\]: expected some of the pivots"):
        make_batches(dataset, tokenizer, pivots_only=["fr"])


def with_documents(rows: list[dict], names: list[str | None]) -> datasets.Dataset:
    return make_dataset(rows).add_column("doc_id", names, feature=datasets.Value("string"))


def numbers_in(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdigit()]


def following_numbers(
    rows: list[dict], first: int, names: list[str] | None, count: int
) -> list[int]:
    """Return the numbers of up to `count` rows that can be read as one text, from the first on.

    Args:
        rows: All rows.
        first: The number of the first row.
        names: The documents of the rows, whose rows follow each other; None if the rows are a
            running text, in which a row is followed by the next with the same languages.
        count: The number of rows.
    """
    numbers = []
    for number in range(first, len(rows)):
        if names is not None:
            belongs = names[number] == names[first]
        else:
            belongs = available_languages(rows[number]) == available_languages(rows[first])
        if belongs:
            numbers.append(number)
    return numbers[:count]


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
    num_rows = sum(lengths)
    complete_row = dict.fromkeys(LANGUAGES, f"last {num_rows}")
    rows = [*numbered_rows(num_rows, seed, missing), complete_row]
    documents = np.repeat(np.arange(len(lengths) + 1), [*lengths, 1])
    names = [f"d{document}" for document in documents]
    dataset = make_dataset(rows) if unnamed else with_documents(rows, names)

    options = {"max_joined_rows": most, "shuffle": shuffle, "seed": seed, "max_length": 10**4}
    batches = make_batches(dataset, spaced_tokenizer, micro_batch_tokens=400, **options)

    first_numbers = []
    for batch in batches:
        num_words = 0
        for decoded_row in decoded(batch, spaced_tokenizer):
            joined = numbers_in(decoded_row[batch.languages[0]])
            first_numbers.append(joined[0])
            assert len(joined) <= most
            assert joined == following_numbers(
                rows, joined[0], None if unnamed else names, len(joined)
            )
            for language, text in decoded_row.items():  # No joined row lacks a language.
                assert text == " ".join(rows[number][language] for number in joined)
                num_words += len(text.split())
        assert batch.source_words == num_words
        assert_one_begin_and_end_per_text(batch, spaced_tokenizer)
    assert sorted(first_numbers) == usable_numbers(rows)


def assert_one_begin_and_end_per_text(batch, tokenizer) -> None:
    token_ids = batch.input_ids[batch.attention_mask.bool()]
    assert (token_ids == tokenizer.bos_token_id).sum() == batch.lengths.size
    assert (token_ids == tokenizer.eos_token_id).sum() == batch.lengths.size


def test_a_tokenizer_that_would_glue_words_together_cannot_join(tokenizer):
    dataset = make_dataset(numbered_rows(3))
    message = "max_joined_rows=2: .* into 'aa', expected 'a a': .*add_prefix_space=true"
    with pytest.raises(ValueError, match=message):
        make_batches(dataset, tokenizer, max_joined_rows=2)
    single_rows = make_batches(dataset, tokenizer, max_joined_rows=1)
    assert len(row_numbers(single_rows, tokenizer)) == 3


@pytest.fixture(scope="module")
def document_rows() -> list[dict[str, str | None]]:
    """Six documents of ten rows, two of which lack a language."""
    rows = numbered_rows(60, seed=6)
    rows[25]["it"] = None
    rows[45]["en"] = ""
    return rows


@pytest.fixture(scope="module")
def count_neighbors(document_rows, spaced_tokenizer):
    """A function that counts what the last language's text is: "same", "next" or "alone".

    It is that of the others, or the next row's, or no row follows that it could be.
    """

    def count(share: float, is_documented: bool, most: int) -> Counter:
        dataset = make_dataset(document_rows)
        if is_documented:
            names = [f"d{number // 10}" for number in range(60)]
            dataset = with_documents(document_rows, names)
        options = {"languages_per_row": 3, "buffer_rows": 100, "epochs": 3}
        options |= {"neighbor_share": share, "max_joined_rows": most}
        kinds = Counter()
        for batch in make_batches(dataset, spaced_tokenizer, **options):
            for row in decoded(batch, spaced_tokenizer):
                kinds[kind_of(row, is_documented)] += 1
        return kinds

    def kind_of(row: dict[str, str], is_documented: bool) -> str:
        languages = list(row)
        joined = numbers_in(row[languages[0]])
        for language in languages[1:-1]:
            assert numbers_in(row[language]) == joined
        following = joined[-1] + 1
        can_follow = is_documented and following % 10 != 0
        if can_follow:
            can_follow = all(document_rows[following][language] for language in languages)
        last_text = row[languages[-1]]
        if numbers_in(last_text) == joined:
            return "same" if can_follow else "alone"
        assert can_follow
        assert last_text == document_rows[following][languages[-1]]
        return "next"

    return count


@pytest.mark.parametrize("most", [1, 3])
def test_neighbors_are_the_rows_that_follow(count_neighbors, most):
    kinds = count_neighbors(1.0, is_documented=True, most=most)
    assert set(kinds) == {"next", "alone"}
    if most == 1:
        # The last rows of six documents, and perhaps the two before incomplete rows.
        assert 3 * 6 <= kinds["alone"] <= 3 * 8


@pytest.mark.parametrize("most", [1, 3])
def test_the_share_of_neighbors_is_that_of_the_option(count_neighbors, most):
    assert set(count_neighbors(0.0, is_documented=True, most=most)) == {"same", "alone"}
    kinds = count_neighbors(0.5, is_documented=True, most=most)
    # The share is that of 150 rows or more, with a standard deviation of 0.04.
    assert 0.35 < kinds["next"] / (kinds["next"] + kinds["same"]) < 0.65


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("most", [1, 3])
def test_rows_without_documents_have_no_neighbors(count_neighbors, most, share):
    assert count_neighbors(share, is_documented=False, most=most) == {"alone": 3 * 60}


# ---- Resuming


OPTIONS = {"max_joined_rows": 3, "neighbor_share": 0.4, "micro_batch_rows": 3, "pivots_only": False}


@pytest.mark.parametrize(
    "options", nightly_except([OPTIONS], [{"shuffle": True}, {"shuffle": False}, OPTIONS])
)
@SOURCES
def test_a_run_resumes_at_any_batch(spaced_tokenizer, kind, options):
    rows = numbered_rows(60, seed=1, missing=0.2)
    names = [f"d{number // 9}" for number in range(60)]
    source = as_source(with_documents(rows, names), kind)
    options = {"epochs": 2, "micro_batch_tokens": 200} | options
    whole = list(make_batches(source, spaced_tokenizer, **options))
    expected = contents(whole)
    assert chunk_numbers(whole) == {0, 1, 2, 3}

    for index, batch in enumerate(whole):
        rest = make_batches(source, spaced_tokenizer, start=batch.next_position, **options)
        assert contents(rest) == expected[index + 1 :], f"from {batch.next_position}"


# ---- Errors


@SOURCES
@pytest.mark.parametrize("epochs", [1, None])
def test_a_corpus_without_any_usable_row_is_an_error(tokenizer, kind, epochs):
    rows = [{"de": f"haus {number}", "fr": f"maison {number}", "en": None} for number in range(9)]
    batches = parallel_batches(
        as_source(make_dataset(rows), kind),
        tokenizer,
        ["de", "en", "fr"],
        ["en"],
        epochs=epochs,
        buffer_rows=4,
    )
    with pytest.raises(ValueError, match=r"No row .*\['de', 'en', 'fr'\] with one of .*\['en'\]"):
        next(iter(batches))
