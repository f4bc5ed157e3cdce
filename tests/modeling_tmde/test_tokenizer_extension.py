"""More tokens for a tokenizer: what stays, what is learned, and what is left out."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from modeling_tmde import train_tokenizer
from modeling_tmde.tokenizer_extension import extend_tokenizer, share_of_changed_texts, tokens_per_word
from tests.conftest import WORDS

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


def test_a_truncating_call_leaves_nothing_behind(known):
    known("haus hund katze", truncation=True, max_length=4)
    extended = extend_tokenizer(known, {"el": [" ".join(GREEK)] * 10}, 20).tokenizer
    assert content(extended)["truncation"] is None and len(ids(extended, "haus hund katze")) == 3


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
