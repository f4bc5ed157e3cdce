"""The shared tokenizer: nothing is lost, every language gets its share, and transformers alone opens it."""

import itertools
import json
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from modeling_tmde import TmdeConfig, train_tokenizer
from modeling_tmde.tokenization import (
    SPECIAL_TOKENS,
    TextTokenizer,
    TokenizedTexts,
    balanced_texts,
    extend_tokenizer,
    share_of_changed_texts,
    tokens_per_word,
)
from tests.conftest import WORDS
from tests.tiny_embedders import make_tokenizer

SAMPLES = [
    "Der Fluß fließt  durch die Stadt.",
    "It's 12,345.67 o'clock!\n\n\tIndented   text \r\n",
    "¿Dónde está el niño? ¡Aquí!",
    unicodedata.normalize("NFD", "L'été où naît la forêt, cœur élevé"),
    "Perché più città?",
    "Привет, мир",
    "漢字かな交じり文、한국어",
    "family 👨‍👩‍👧‍👦 flag 🇩🇪 skin 👍🏽",
    "\x00\x01\x1b[0m\x7f\u200b\u202e\ufeff\u00a0",
    "<s> <pad> </s> <unk> <mask>",
    "a<s>b</s></s>c<mask",
    "   leading and trailing   ",
    "",
]
PIECES = st.sampled_from(
    [*SAMPLES, *SPECIAL_TOKENS, *itertools.chain(*WORDS.values()), " ", "  ", "\t", "\n", "\u0301"]
)
# st.text draws from all of Unicode but surrogates, which are no characters.
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=12).map("".join))


def with_examples(test):
    for sample in SAMPLES:
        test = example(text=sample)(test)
    return test


@settings(max_examples=80, deadline=None)
@given(text=TEXTS)
@with_examples
def test_nothing_is_lost_and_special_tokens_in_text_are_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert (ids[0], ids[-1]) == (0, 2)
    assert not set(ids[1:-1]) & set(range(len(SPECIAL_TOKENS)))
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_special_token_ids_are_the_defaults_of_the_config(tokenizer):
    config = TmdeConfig()
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]) == [0, 1, 2, 3, 4]
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (
        config.bos_token_id,
        config.pad_token_id,
        config.eos_token_id,
    )
    assert config.decoder_start_token_id == tokenizer.bos_token_id
    assert tokenizer.model_max_length == 128


def test_auto_tokenizer_opens_it_with_equal_ids(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    expected = tokenizer(SAMPLES)["input_ids"]
    assert loaded(SAMPLES)["input_ids"] == expected
    assert loaded.batch_decode(expected, skip_special_tokens=True) == SAMPLES
    assert (loaded.model_max_length, loaded.mask_token, len(loaded)) == (128, "<mask>", len(tokenizer))


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 30), max_size=12), min_size=1, max_size=4),
    max_characters=st.integers(1, 120),
)
def test_every_language_gives_as_many_characters(lengths, max_characters):
    # Language k writes only the letter k, so that a text tells where it comes from.
    letters = "abcd"[: len(lengths)]
    texts = {letter: [letter * length for length in own] for letter, own in zip(letters, lengths, strict=True)}
    read = {}
    for letter, own in texts.items():
        read[letter] = []
        for text in own:
            if sum(map(len, read[letter])) >= max_characters:
                break
            read[letter].append(text)
    target = max(sum(map(len, own)) for own in read.values())
    assert target < max_characters + 30

    result = list(balanced_texts(texts, max_characters))
    for letter, own in read.items():
        given = [text for text in result if text[0] == letter]
        if not own:
            assert given == []
            continue
        assert target <= sum(map(len, given)) < target + max(map(len, own))
        assert given == [own[index % len(own)] for index in range(len(given))]  # its texts in order, again and again


def cyrillic_share(tokenizer) -> float:
    """Share of the merged entries that spell Cyrillic."""
    merged = [token for token in tokenizer.get_vocab() if len(token) > 1 and token not in SPECIAL_TOKENS]
    texts = [tokenizer.decode(tokenizer.convert_tokens_to_ids([token])) for token in merged]
    return sum(any("а" <= character <= "я" for character in text) for text in texts) / len(texts)


def test_a_small_language_gets_its_share_of_the_vocabulary():
    rng = random.Random(0)

    def sentences(letters: str, count: int) -> list[str]:
        return [" ".join("".join(rng.choices(letters, k=6)) for _ in range(8)) for _ in range(count)]

    big, small = sentences("abcdefghij", 1500), sentences("абвгдежзик", 150)
    together = train_tokenizer({"one": big + small}, vocab_size=700)
    balanced = train_tokenizer({"big": big, "small": small}, vocab_size=700)
    assert cyrillic_share(together) < 0.2  # what happens without balance
    assert 0.35 < cyrillic_share(balanced) < 0.65
    assert len(together) == len(balanced) == 700


def trained(**options):
    return train_tokenizer({name: [" ".join(words)] * 9 for name, words in WORDS.items()}, 600, **options)


@pytest.fixture(scope="module", params=[(True, False), (False, True), (True, True)], ids=["lower", "space", "both"])
def optional(request, tmp_path_factory):
    """A tokenizer with one option or both, as `AutoTokenizer` opens it, and the options."""
    lowercase, add_prefix_space = request.param
    folder = tmp_path_factory.mktemp("optional")
    made = trained(lowercase=lowercase, add_prefix_space=add_prefix_space)
    made.save_pretrained(folder)
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded(SAMPLES)["input_ids"] == made(SAMPLES)["input_ids"]
    return loaded, lowercase, add_prefix_space


@settings(max_examples=40, deadline=None)
@given(text=TEXTS)
@with_examples
def test_options_lose_nothing_but_capitals(optional, text):
    tokenizer, lowercase, _ = optional
    ids = tokenizer.encode(text)
    assert (ids[0], ids[-1]) == (0, 2) and not set(ids[1:-1]) & set(range(len(SPECIAL_TOKENS)))
    # Rust lower-cases character by character, without Python's rule for a sigma at the end of a word.
    expected = "".join(character.lower() for character in text) if lowercase else text
    assert tokenizer.decode(ids, skip_special_tokens=True) == expected


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="vocab_size=260 is too small.* 261"):
        train_tokenizer({"en": ["text"]}, vocab_size=260)
    with pytest.raises(ValueError, match=r"No text .*\['de', 'en'\]"):
        train_tokenizer({"de": [], "en": [""]}, vocab_size=300)


GREEK = ["σπίτι", "σκύλος", "γάτα", "δέντρο", "ποτάμι"]
OLD_TEXTS = {"de": [" ".join(WORDS["de"])] * 20, "en": [" ".join(WORDS["en"])] * 20}


@pytest.fixture(scope="module")
def known() -> PreTrainedTokenizerFast:
    return train_tokenizer(OLD_TEXTS, 380, lowercase=True, add_prefix_space=True, model_max_length=77)


@pytest.fixture(scope="module")
def greek(known):
    return extend_tokenizer(known, {"el": [" ".join(GREEK)] * 10}, 60, OLD_TEXTS)


def content(tokenizer) -> dict:
    return json.loads(tokenizer.backend_tokenizer.to_str())


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def test_words_that_were_bytes_become_tokens(known, greek):
    for word in GREEK:
        assert len(ids(known, word)) == len((" " + word).encode())
        (token,) = ids(greek.tokenizer, word)
        assert token >= len(known) and greek.tokenizer.decode([token]) == word
    assert greek.new_tokens == len(greek.tokenizer) - len(known) <= 60
    text = "ΓΆΤΑ και haus 123 🌊 <s>"
    assert greek.tokenizer.decode(ids(greek.tokenizer, text)) == text.lower()


def test_old_tokens_keep_their_ids_and_old_merges_come_first(known, greek):
    before, after = content(known)["model"], content(greek.tokenizer)["model"]
    assert {token: after["vocab"][token] for token in before["vocab"]} == before["vocab"]
    assert after["merges"][: len(before["merges"])] == before["merges"]
    assert sorted(after["vocab"].values()) == list(range(len(greek.tokenizer)))
    for text in OLD_TEXTS["de"][:1] + OLD_TEXTS["en"][:1]:
        assert ids(known, text) == ids(greek.tokenizer, text)


def test_all_other_settings_stay_and_survive_a_save(known, greek, tmp_path):
    before, after = content(known), content(greek.tokenizer)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "truncation", "padding"):
        assert before[part] == after[part], part
    greek.tokenizer.save_pretrained(tmp_path)
    opened = AutoTokenizer.from_pretrained(tmp_path)
    assert content(opened) == after
    for tokenizer in (greek.tokenizer, opened):
        assert (tokenizer.model_max_length, tokenizer.split_special_tokens) == (77, True)
        assert tokenizer.special_tokens_map == known.special_tokens_map
        assert tokenizer("γάτα")["input_ids"] == [0, *ids(greek.tokenizer, "γάτα"), 2]
        assert tokenizer.get_vocab() == greek.tokenizer.get_vocab()


def test_the_most_frequent_pair_is_joined_first(known):
    """By hand: of `qxqxqx`, `qx` joins first, 3 times a word, then `qxqx`, then the word, each with what it has."""
    q, x = ids(known, "q")[-1], ids(known, "x")[-1]
    assert ids(known, "qxqxqx")[-6:] == [q, x] * 3
    extended = extend_tokenizer(known, {"xx": ["qxqxqx"] * 10}, 1)
    assert extended.new_tokens == 1 and extended.tokenizer.convert_ids_to_tokens(len(known)) == "qx"
    assert ids(extended.tokenizer, "qxqxqx")[-3:] == [len(known)] * 3


def test_merges_that_old_texts_would_use_are_left_out(known):
    """`zq` is frequent in the new language; an old one has it in one word of its own, as often or hardly."""
    new = {"xx": ["zqzq azqa"] * 100}
    rare, frequent = {"de": ["bzqb"] + ["haus"] * 500}, {"de": ["bzqb"] * 500}
    text = "bzqb"
    for old, limit, changes in [
        (frequent, 0.03, False),
        (rare, 0.0, False),
        (rare, 0.03, True),
        (frequent, 1e9, True),
    ]:
        extension = extend_tokenizer(known, new, 5, old, max_old_share=limit)
        changed, novel = share_of_changed_texts(known, extension.tokenizer, [text])
        assert (changed == 1.0 and novel > 0) if changes else changed == novel == 0.0, (old, limit)
        assert (extension.left_out == 0) == changes
    assert extend_tokenizer(known, new, 5).left_out == 0  # nothing is known of old texts


def test_shares_and_fertility_by_hand(known, greek):
    assert tokens_per_word(known, ["haus hund", "katze"]) == 1.0  # a token each
    assert tokens_per_word(known, ["haus γάτα"]) == (1 + len(" γάτα".encode())) / 2
    assert tokens_per_word(greek.tokenizer, ["haus γάτα"]) == 1.0
    assert tokens_per_word(known, []) == 0.0
    texts = ["haus hund", "haus γάτα", "katze", "σπίτι"]
    assert share_of_changed_texts(known, greek.tokenizer, texts) == (2 / 4, 2 / 6)


def test_what_can_not_be_extended_is_one_clear_error(known):
    wordpiece = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    wordpiece.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ValueError, match="not byte-level BPE, expected one as this package trains them"):
        extend_tokenizer(PreTrainedTokenizerFast(tokenizer_object=wordpiece), {"el": GREEK}, 5)
    with pytest.raises(ValueError, match=r"No text to extend the tokenizer on in any of the languages \['el'\]"):
        extend_tokenizer(known, {"el": []}, 5)
    with pytest.raises(ValueError, match="new_tokens=0 must be at least 1"):
        extend_tokenizer(known, {"el": GREEK}, 0)


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["<s> </s>", "", "x<pad>y"])), max_size=6),
    max_length=st.integers(3, 20),
    side=st.sampled_from(["left", "right"]),
    split=st.booleans(),
)
def test_backend_gives_the_ids_of_the_tokenizer(texts, max_length, side, split):
    tokenizer = make_tokenizer()
    tokenizer.truncation_side, tokenizer.split_special_tokens = side, split
    tokenize = TextTokenizer(tokenizer, max_length, empty_id=0)
    assert tokenize._backend_is_all
    # Settings that another user of the tokenizer may leave behind.
    tokenizer("a", padding="max_length", truncation=True, max_length=50, split_special_tokens=not split)
    result = tokenize(texts)
    ids = [tokenizer(text, truncation=True, max_length=max_length)["input_ids"] for text in texts]
    assert result.token_ids.tolist() == [token for row in ids for token in row]
    assert result.lengths.tolist() == [len(row) for row in ids]
    assert result.full_lengths.tolist() == [len(tokenizer(text)["input_ids"]) for text in texts]


def test_padded_batches_by_hand():
    texts = TokenizedTexts(np.array([5, 6, 7, 8, 9, 4], dtype=np.int32), np.array([1, 3, 2]), np.array([1, 3, 2]))
    assert [batch.tolist() for batch in texts.padded_batches(6)] == [[1, 2], [0]]
    assert [batch.tolist() for batch in texts.padded_batches(2)] == [[1], [2], [0]]
    ids, mask = texts.padded(np.array([2, 1]), pad_id=0)
    assert ids.tolist() == [[9, 4, 0], [6, 7, 8]] and mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    batches = [(numbers, ids.tolist(), lengths.tolist()) for numbers, ids, lengths in texts.ragged_batches(4)]
    assert batches == [(slice(0, 2), [5, 6, 7, 8], [1, 3]), (slice(2, 3), [9, 4], [2])]
