"""Token ids of batches: those that the tokenizer itself gives, and for a bag without padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.text_batches import TextTokenizer, TokenizedTexts
from tests.modeling_tmde.test_embedding import make_bag, make_tokenizer

# ---- A bag of tokens, without padding


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.text(max_size=40), max_size=12), batch_tokens=st.integers(1, 60), max_length=st.integers(3, 30)
)
def test_bag_without_padding_equals_the_plain_forward(texts, batch_tokens, max_length):
    tokenizer = make_tokenizer()
    embedder = DocumentEmbedder(make_bag(), tokenizer, max_length=max_length)
    vectors = embedder.encode(texts, batch_tokens=batch_tokens)
    for text, vector in zip(texts, vectors, strict=True):
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length)
        expected = embedder.model(**inputs).pooler_output[0].detach().numpy()
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-6)
    lengths = [len(ids) for ids in tokenizer(texts)["input_ids"]] if texts else []
    report = embedder.last_report
    assert report.tokens == sum(min(length, max_length) for length in lengths)
    assert report.truncated == sum(length > max_length for length in lengths)
    assert report.longest == max(lengths, default=0)


def test_bag_batches_keep_the_token_budget():
    tokenizer = make_tokenizer()
    embedder = DocumentEmbedder(make_bag(), tokenizer)
    sizes, embed = [], embedder.model.embed_ragged
    embedder.model.embed_ragged = lambda ids, lengths: sizes.append((len(ids), len(lengths))) or embed(ids, lengths)
    texts = ["x" * n for n in (1, 2, 3, 40, 5, 1, 2, 4)]
    embedder.encode(texts, batch_tokens=24)
    counts = [len(ids) for ids in tokenizer(texts)["input_ids"]]
    assert sum(tokens for tokens, _ in sizes) == sum(counts) and sum(rows for _, rows in sizes) == 8
    assert all(tokens <= 24 or rows == 1 for tokens, rows in sizes) and max(rows for _, rows in sizes) > 1


def test_mean_of_a_bag_is_refused():
    with pytest.raises(ValueError, match="use pooling='cls'"):
        DocumentEmbedder(make_bag(), make_tokenizer(), pooling="mean").encode(["a b c"])


# ---- The backend alone, where it gives what the tokenizer gives


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["<s> </s>", "", "x<pad>y"])), max_size=6),
    max_length=st.integers(3, 20),
    side=st.sampled_from(["left", "right"]),
    split=st.booleans(),
)
def test_backend_gives_the_ids_of_the_tokenizer(texts, max_length, side, split):
    tokenizer = make_tokenizer()
    tokenizer.truncation_side, tokenizer.split_special_tokens = side, split
    tokenize = TextTokenizer(tokenizer, max_length, vocabulary=None, empty_id=0)
    assert tokenize.plain_backend
    # Settings that another user of the tokenizer may leave behind.
    tokenizer("a", padding="max_length", truncation=True, max_length=50, split_special_tokens=not split)
    result = tokenize(texts)
    ids = [tokenizer(text, truncation=True, max_length=max_length)["input_ids"] for text in texts]
    assert result.token_ids.tolist() == [token for row in ids for token in row]
    assert result.lengths.tolist() == [len(row) for row in ids]
    assert result.full_lengths.tolist() == [len(tokenizer(text)["input_ids"]) for text in texts]


def test_a_tokenizer_that_does_more_than_its_backend_is_asked_itself():
    class Shouting(PreTrainedTokenizerFast):
        def _encode_plus(self, text, *args, **kwargs):
            text = text.upper() if isinstance(text, str) else [one.upper() for one in text]
            return super()._encode_plus(text, *args, **kwargs)

    tokenizer = Shouting(tokenizer_object=make_tokenizer().backend_tokenizer, eos_token="</s>", pad_token="<pad>")
    vectors = DocumentEmbedder(make_bag(), tokenizer).encode(["abc", "ABC"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


# ---- Batches, by hand


def test_padded_batches_by_hand():
    texts = TokenizedTexts(np.array([5, 6, 7, 8, 9, 4], dtype=np.int32), np.array([1, 3, 2]), np.array([1, 3, 2]))
    assert [batch.tolist() for batch in texts.padded_batches(6)] == [[1, 2], [0]]
    assert [batch.tolist() for batch in texts.padded_batches(2)] == [[1], [2], [0]]
    ids, mask = texts.padded(np.array([2, 1]), pad_id=0)
    assert ids.tolist() == [[9, 4, 0], [6, 7, 8]] and mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    batches = [(numbers, ids.tolist(), lengths.tolist()) for numbers, ids, lengths in texts.ragged_batches(4)]
    assert batches == [(slice(0, 2), [5, 6, 7, 8], [1, 3]), (slice(2, 3), [9, 4], [2])]


def test_windows_are_the_whole_in_order():
    texts = ["x " * (i % 7) for i in range(11)]
    tokenize = DocumentEmbedder(make_bag(), make_tokenizer())._tokenize
    whole = tokenize(texts)
    for size in (1, 3, 11, 50):
        windows = list(tokenize.windows(texts, size))
        assert [len(window) for window in windows[:-1]] == [size] * (len(windows) - 1)
        np.testing.assert_array_equal(np.concatenate([window.token_ids for window in windows]), whole.token_ids)
        np.testing.assert_array_equal(np.concatenate([window.lengths for window in windows]), whole.lengths)


def test_an_error_of_a_later_window_has_its_number():
    windows = DocumentEmbedder(make_bag(), make_tokenizer())._tokenize.windows(["a", "b", "c", "d\ud800"], 2, 100)
    assert len(next(windows)) == 2
    with pytest.raises(ValueError, match="text 103: found the lone surrogate"):
        next(windows)


def test_padding_to_a_multiple_within_the_limit():
    texts = TokenizedTexts(np.arange(1, 8, dtype=np.int32), np.array([5, 2]), np.array([5, 2]))
    ids, mask = texts.padded(np.array([1, 0]), pad_id=9, multiple=4)
    assert ids.tolist() == [[6, 7, 9, 9, 9, 9, 9, 9], [1, 2, 3, 4, 5, 9, 9, 9]]
    assert mask.sum(dim=1).tolist() == [2, 5]
    assert texts.padded(np.array([1, 0]), 9, 4, limit=6)[0].shape == (2, 6)
    assert texts.padded(np.array([0]), 9, 4, limit=3)[0].shape == (1, 5)  # nothing is cut off
