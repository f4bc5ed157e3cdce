"""The shared tokenizer: nothing is lost, every language gets its share, and transformers alone opens it."""

import itertools
import json
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from modeling_tmde import TmdeConfig, train_tokenizer
from modeling_tmde.tokenization import (
    SPECIAL_TOKENS,
    balanced_texts,
    cut_tokenizer,
    extend_tokenizer,
)
from tests import hub_encoders
from tests.conftest import WORDS
from tests.tiny_embedders import make_tokenizer
from tmde.embedding.text_tokenizer import TextTokenizer, private_copy

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
TEXTS = st.one_of(
    st.text(max_size=60), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=12).map("".join)
)


def with_examples(test):
    for sample in SAMPLES:
        test = example(text=sample)(test)
    return test


OPTIONS = {
    "cased": {},
    "lower": {"lowercase": True},
    "both": {"lowercase": True, "add_prefix_space": True},
}


@pytest.fixture(scope="module", params=OPTIONS)
def trained(request, tmp_path_factory):
    """A tokenizer with an option, as `AutoTokenizer` opens it, and whether it lower-cases."""
    texts = {name: [" ".join(words)] * 9 for name, words in WORDS.items()}
    made = train_tokenizer(texts, 600, **OPTIONS[request.param])
    folder = tmp_path_factory.mktemp("trained")
    made.save_pretrained(folder)
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded(SAMPLES)["input_ids"] == made(SAMPLES)["input_ids"]
    return loaded, request.param != "cased"


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
@with_examples
def test_nothing_but_capitals_is_lost_and_special_tokens_in_text_are_text(trained, text):
    tokenizer, lowercase = trained
    ids = tokenizer.encode(text, split_special_tokens=True)
    assert (ids[0], ids[-1]) == (0, 2)
    assert not set(ids[1:-1]) & set(range(len(SPECIAL_TOKENS)))
    if lowercase:  # Rust lower-cases character by character, without Python's rule for a sigma at the end of a word
        text = "".join(character.lower() for character in text)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_auto_tokenizer_opens_it_with_the_special_tokens_of_the_config(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded, config = AutoTokenizer.from_pretrained(tmp_path), TmdeConfig()
    assert (loaded.model_max_length, loaded.mask_token, len(loaded)) == (
        128,
        "<mask>",
        len(tokenizer),
    )
    for name in ("bos_token_id", "pad_token_id", "eos_token_id"):
        assert getattr(loaded, name) == getattr(config, name)
    assert config.decoder_start_token_id == loaded.bos_token_id


def test_every_language_gives_as_many_characters():
    texts = {"a": ["aaa", "a"] * 9, "b": ["bb", "bbbb"], "c": []}
    result = list(balanced_texts(texts, 10))
    given = {letter: [text for text in result if text[0] == letter] for letter in "abc"}
    assert given["a"] == [
        "aaa",
        "a",
        "aaa",
        "a",
        "aaa",
    ]  # 11 characters: the first text from 10 on is the last
    assert (
        given["b"] == ["bb", "bbbb", "bb", "bbbb"] and given["c"] == []
    )  # in order, again and again
    (text,) = balanced_texts(
        {"en": ["x" * 2500 + " " * 3000 + "y"]}, 100
    )  # of a long word, training would never end
    assert list(map(len, text.split(" "))) == [1000, 1000, 500, 1]


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="vocab_size=260 is too small.* 261"):
        train_tokenizer({"en": ["text"]}, vocab_size=260)
    with pytest.raises(ValueError, match=r"No text .*\['de', 'en'\]"):
        train_tokenizer({"de": [], "en": [""]}, vocab_size=300)


GREEK = ["σπίτι", "σκύλος", "γάτα", "δέντρο", "ποτάμι"]
OLD_TEXTS = {"de": [" ".join(WORDS["de"])] * 20, "en": [" ".join(WORDS["en"])] * 20}


@pytest.fixture(scope="module")
def known() -> PreTrainedTokenizerFast:
    return train_tokenizer(
        OLD_TEXTS, 380, lowercase=True, add_prefix_space=True, model_max_length=77
    )


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
        (token,) = ids(greek, word)
        assert token >= len(known) and greek.decode([token]) == word
    assert 0 < len(greek) - len(known) <= 60
    text = "ΓΆΤΑ και haus 123 🌊 <s>"
    assert greek.decode(ids(greek, text)) == text.lower()


def test_what_the_tokenizer_knew_stays(known, greek, tmp_path):
    before, after = content(known), content(greek)
    old, new = before["model"], after["model"]
    assert {token: new["vocab"][token] for token in old["vocab"]} == old["vocab"]
    assert new["merges"][: len(old["merges"])] == old["merges"]
    assert sorted(new["vocab"].values()) == list(range(len(greek)))
    for text in OLD_TEXTS["de"][:1] + OLD_TEXTS["en"][:1]:
        assert ids(known, text) == ids(greek, text)
    for part in (
        "normalizer",
        "pre_tokenizer",
        "post_processor",
        "decoder",
        "added_tokens",
        "truncation",
        "padding",
    ):
        assert before[part] == after[part], part
    greek.save_pretrained(tmp_path)
    opened = AutoTokenizer.from_pretrained(tmp_path)
    assert content(opened) == after
    for tokenizer in (greek, opened):
        assert (tokenizer.model_max_length, tokenizer.split_special_tokens) == (77, False)
        assert tokenizer.special_tokens_map == known.special_tokens_map
        assert tokenizer("γάτα")["input_ids"] == [0, *ids(greek, "γάτα"), 2]


def test_the_most_frequent_pair_is_joined_first(known):
    """By hand: of `qxqxqx`, `qx` joins first, 3 times a word, then `qxqx`, then the word, each with what it has."""
    q, x = ids(known, "q")[-1], ids(known, "x")[-1]
    assert ids(known, "qxqxqx")[-6:] == [q, x] * 3
    extended = extend_tokenizer(known, {"xx": ["qxqxqx"] * 10}, 1)
    assert len(extended) == len(known) + 1 and extended.convert_ids_to_tokens(len(known)) == "qx"
    assert ids(extended, "qxqxqx")[-3:] == [len(known)] * 3


def test_merges_that_old_texts_would_use_are_left_out(known):
    """`zq` is frequent in the new language; an old one has it in one word of its own, as often or hardly."""
    new = {"xx": ["zqzq azqa"] * 100}
    rare, frequent = {"de": ["bzqb"] + ["haus"] * 500}, {"de": ["bzqb"] * 500}
    for old, limit, changed in [
        (frequent, 0.03, 0),
        (rare, 0.0, 0),
        (rare, 0.03, 1),
        (frequent, 1e9, 1),
    ]:
        extended = extend_tokenizer(known, new, 5, old, max_old_share=limit)
        assert (ids(known, "bzqb") != ids(extended, "bzqb")) == bool(changed), (old, limit)


@pytest.fixture(scope="module", params=["unigram", "wordpiece"])
def cut(request, tmp_path_factory):
    """A tokenizer of four languages, the same cut to the words of two of them, and the ids that it kept."""
    texts = [" ".join(words) + " Haus-boot ñandú" for words in WORDS.values()]
    whole = hub_encoders.make_tokenizer(request.param, texts * 5, vocabulary=400)
    smaller, kept = cut_tokenizer(whole, [" ".join(WORDS["de"]), " ".join(WORDS["en"])])
    folder = tmp_path_factory.mktemp("cut")
    smaller.save_pretrained(folder)
    return whole, AutoTokenizer.from_pretrained(folder), kept


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.sampled_from([*itertools.chain(*WORDS.values()), "ñandú", "漢", "<s>", "x!"]), max_size=6
    )
)
def test_texts_of_kept_tokens_keep_their_tokens(cut, words):
    whole, smaller, kept = cut
    text = " ".join(words)
    before, after = whole(text)["input_ids"], smaller(text)["input_ids"]
    if set(before) <= set(kept):
        assert [kept[id] for id in after] == before
    if whole.unk_token_id not in before:  # letters that stand for a token that was cut
        assert smaller.unk_token_id not in after


def test_a_cut_tokenizer_has_the_tokens_of_its_texts(cut):
    whole, smaller, kept = cut
    assert len(smaller) == len(kept) < len(whole)
    assert smaller.special_tokens_map == whole.special_tokens_map
    for language in ("de", "en"):
        text = " ".join(WORDS[language])
        assert set(whole(text)["input_ids"]) <= set(kept)
    smallest, _ = cut_tokenizer(whole, [" ".join(WORDS["de"])], max_tokens=0)
    some, _ = cut_tokenizer(
        whole, ["haus " * 5 + " ".join(WORDS["de"])], max_tokens=len(smallest) + 1
    )
    (added,) = set(some.get_vocab()) - set(smallest.get_vocab())
    assert added in whole.tokenize("haus")
    rare, _ = cut_tokenizer(whole, [" ".join(WORDS["de"])], min_count=1000)
    assert set(rare.get_vocab()) <= set(smallest.get_vocab())


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_of_tokens_that_differ_by_case_the_best_known_one_is_kept(kind):
    mark = "▁" if kind == "unigram" else ""
    tokens = [f"{mark}Haus", f"{mark}haus", f"{mark}HAUS", f"{mark}alt", f"{mark}<S>", "É", "é"]
    if kind == "unigram":  # the scores decide, and the special <s> has none
        tokens = ["<s>", "</s>", "<unk>", *tokens]
        scores = [0.0, 0.0, 0.0, -3.0, -5.0, -9.0, -2.0, -8.0, -7.0, -6.0]
        backend = Tokenizer(models.Unigram(list(zip(tokens, scores, strict=True)), unk_id=2))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        expected = {"haus": "▁Haus", "alt": "▁alt", "é": "é"}
    else:
        tokens = ["[CLS]", "[SEP]", "[UNK]", *tokens]
        backend = Tokenizer(
            models.WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]")
        )
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        expected = {"haus": "Haus", "alt": "alt", "é": "É"}
    backend.add_special_tokens(tokens[:3])
    whole = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=tokens[2])
    smaller, kept = cut_tokenizer(whole, ["haus alt", "é"], lowercase=True)
    assert len(smaller) == len(kept) == len(set(kept))
    assert [smaller.convert_ids_to_tokens(kept.index(id)) for id in range(3)] == tokens[:3]
    for text, token in expected.items():
        for written in (text, text.upper(), text.title()):
            last = smaller(written, add_special_tokens=False)["input_ids"][-1]
            assert whole.convert_ids_to_tokens(kept[last]) == token


def test_merges_cannot_be_cut(tokenizer):
    with pytest.raises(ValueError, match="of type BPE, cannot be cut; expected Unigram"):
        cut_tokenizer(tokenizer, ["haus"])


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(
        st.one_of(st.text(max_size=30), st.sampled_from(["<s> </s>", "", "x<pad>y"])), max_size=6
    ),
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
    tokenizer("a", padding="max_length", truncation=True, max_length=50)
    result = tokenize(texts)
    plain = {"split_special_tokens": True}  # a literal "</s>" is text
    ids = [
        tokenizer(text, truncation=True, max_length=max_length, **plain)["input_ids"]
        for text in texts
    ]
    assert result.token_ids.tolist() == [token for row in ids for token in row]
    assert result.lengths.tolist() == [len(row) for row in ids]
    assert result.full_lengths.tolist() == [
        len(tokenizer(text, **plain)["input_ids"]) for text in texts
    ]


class CallsItsBackend(PreTrainedTokenizerFast):
    """Its own `__call__`, as Luke's, so that `TextTokenizer` calls it instead of the backend."""

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


@pytest.mark.parametrize("tokenizer_class", [PreTrainedTokenizerFast, CallsItsBackend])
def test_threads_that_share_a_tokenizer_do_not_disturb_each_other(tokenizer_class):
    """Two threads share one `TextTokenizer`, a third has another, and a fourth calls the tokenizer itself."""
    tokenizer = make_tokenizer()
    tokenizer.__class__ = tokenizer_class
    texts = ["kurz", "etwas länger, aber nicht sehr " * 4] * 8
    tokenizes = [TextTokenizer(tokenizer, 9, empty_id=0), TextTokenizer(tokenizer, 500, empty_id=0)]
    alone = [tokenize(texts) for tokenize in tokenizes]
    barrier = threading.Barrier(4)

    def count_wrong_results(number: int) -> int:
        barrier.wait()
        wrong = 0
        for _ in range(150):
            result = tokenizes[number](texts)
            same = np.array_equal(result.token_ids, alone[number].token_ids)
            wrong += not (same and np.array_equal(result.full_lengths, alone[number].full_lengths))
        return wrong

    def call_tokenizer() -> int:
        barrier.wait()
        for _ in range(1500):
            tokenizer("ein Text", truncation=True, max_length=4, padding="max_length")
        return 0

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(count_wrong_results, number) for number in (0, 0, 1)]
        jobs.append(pool.submit(call_tokenizer))
        assert [job.result() for job in jobs] == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "t5"])
def test_a_private_copy_is_the_tokenizer_without_truncation_and_padding(kind):
    tokenizer = hub_encoders.make_tokenizer(kind, [" ".join(words) for words in WORDS.values()])
    tokenizer.add_tokens(
        ["neues Wort", AddedToken("<neu>", special=True), AddedToken("hund", single_word=True)]
    )
    texts = [*SAMPLES, "ein neues Wort<neu>hund hunde", "haus " * 90]
    expected = tokenizer(texts)["input_ids"]
    backend = tokenizer.backend_tokenizer
    content = json.loads(backend.to_str())
    backend.enable_truncation(5)
    backend.enable_padding(length=7)
    private = private_copy(tokenizer)
    assert json.loads(private.backend_tokenizer.to_str()) == content
    assert private(texts)["input_ids"] == expected
    assert (backend.truncation["max_length"], backend.padding["length"]) == (5, 7)
