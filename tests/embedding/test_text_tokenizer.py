"""TextTokenizer: the ids of the tokenizer itself, in any thread, without side effects."""

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from tests import hub_encoders
from tests.conftest import WORDS
from tests.strange_texts import SAMPLES
from tests.tiny_embedders import make_tokenizer
from tmde.embedding.text_tokenizer import TextTokenizer, private_copy

TEXTS = st.one_of(st.text(max_size=30), st.sampled_from(["<s> </s>", "", "x<pad>y"]))


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(TEXTS, max_size=6),
    max_length=st.integers(3, 20),
    side=st.sampled_from(["left", "right"]),
    split=st.booleans(),
)
def test_the_backend_gives_the_ids_of_the_tokenizer(texts, max_length, side, split):
    tokenizer = make_tokenizer()
    tokenizer.truncation_side = side
    tokenizer.split_special_tokens = split
    tokenize = TextTokenizer(tokenizer, max_length, empty_id=0)
    assert tokenize._backend_is_all
    # Settings that another user of the tokenizer may leave behind.
    tokenizer("a", padding="max_length", truncation=True, max_length=50)

    tokenized = tokenize(texts)

    as_text = {"split_special_tokens": True}  # A literal "</s>" is text.
    truncation = {"truncation": True, "max_length": max_length}
    rows = [tokenizer(text, **truncation, **as_text)["input_ids"] for text in texts]
    full_rows = [tokenizer(text, **as_text)["input_ids"] for text in texts]
    assert tokenized.token_ids.tolist() == list(itertools.chain.from_iterable(rows))
    assert tokenized.lengths.tolist() == list(map(len, rows))
    assert tokenized.full_lengths.tolist() == list(map(len, full_rows))


class CallsItsBackend(PreTrainedTokenizerFast):
    """A class with its own `__call__`, as Luke's, which `TextTokenizer` has to call."""

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


@pytest.mark.parametrize("tokenizer_class", [PreTrainedTokenizerFast, CallsItsBackend])
def test_threads_that_share_a_tokenizer_do_not_disturb_each_other(tokenizer_class):
    """Two threads share a `TextTokenizer`, one has another, and one calls the tokenizer itself."""
    tokenizer = make_tokenizer()
    tokenizer.__class__ = tokenizer_class
    texts = ["kurz", "etwas länger, aber nicht sehr " * 4] * 8
    shared = TextTokenizer(tokenizer, 9, empty_id=0)
    other = TextTokenizer(tokenizer, 500, empty_id=0)
    barrier = threading.Barrier(4)

    def count_wrong_results(tokenize: TextTokenizer, alone) -> int:
        barrier.wait()
        num_wrong = 0
        for _ in range(150):
            result = tokenize(texts)
            has_ids = np.array_equal(result.token_ids, alone.token_ids)
            has_lengths = np.array_equal(result.full_lengths, alone.full_lengths)
            if not (has_ids and has_lengths):
                num_wrong += 1
        return num_wrong

    def call_tokenizer() -> int:
        barrier.wait()
        for _ in range(1500):
            tokenizer("ein Text", truncation=True, max_length=4, padding="max_length")
        return 0

    short_alone = shared(texts)
    long_alone = other(texts)
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(count_wrong_results, shared, short_alone),
            pool.submit(count_wrong_results, shared, short_alone),
            pool.submit(count_wrong_results, other, long_alone),
            pool.submit(call_tokenizer),
        ]
        assert [job.result() for job in jobs] == [0, 0, 0, 0]


EVERY_KIND = pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "t5"])


def tokenizer_with_added_tokens(kind):
    tokenizer = hub_encoders.make_tokenizer(kind, list(map(" ".join, WORDS.values())))
    special = AddedToken("<neu>", special=True)
    tokenizer.add_tokens(["neues Wort", special, AddedToken("hund", single_word=True)])
    return tokenizer


@EVERY_KIND
def test_a_private_copy_has_all_parts_of_the_tokenizer(kind):
    tokenizer = tokenizer_with_added_tokens(kind)
    backend = tokenizer.backend_tokenizer
    expected = json.loads(backend.to_str())
    backend.enable_truncation(5)
    backend.enable_padding(length=7)
    private = private_copy(tokenizer)
    assert json.loads(private.backend_tokenizer.to_str()) == expected


@EVERY_KIND
def test_a_private_copy_gives_the_ids_of_the_tokenizer(kind):
    tokenizer = tokenizer_with_added_tokens(kind)
    texts = [*SAMPLES, "ein neues Wort<neu>hund hunde", "haus " * 90]
    expected = tokenizer(texts)["input_ids"]
    assert private_copy(tokenizer)(texts)["input_ids"] == expected


@EVERY_KIND
def test_a_private_copy_leaves_the_settings_of_the_tokenizer_alone(kind):
    tokenizer = tokenizer_with_added_tokens(kind)
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(5)
    backend.enable_padding(length=7)
    private_copy(tokenizer)(["haus " * 90])
    assert backend.truncation["max_length"] == 5
    assert backend.padding["length"] == 7
