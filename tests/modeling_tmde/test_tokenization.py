"""The shared tokenizer: nothing is lost, every language gets its share; and cut vocabularies."""

import itertools
import json
from collections import Counter

import datasets
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from modeling_tmde import TmdeConfig, train_tokenizer
from modeling_tmde.tokenization import (
    SPECIAL_TOKENS,
    balanced_texts,
    can_be_extended,
    cut_tokenizer,
    extend_tokenizer,
    is_byte_level_bpe,
    texts_by_language,
    unknown_share,
    without_invisible,
)
from tests import hub_encoders
from tests.conftest import WORDS
from tests.strange_texts import SAMPLES
from tests.training.added_language_helpers import ciphered_rows

ALL_WORDS = list(itertools.chain.from_iterable(WORDS.values()))
PIECES = st.sampled_from([*SAMPLES, *SPECIAL_TOKENS, *ALL_WORDS, " ", "  ", "\t", "\n", "\u0301"])
# st.text draws from all of Unicode but surrogates, which are no characters.
TEXTS = st.one_of(
    st.text(max_size=60), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=12).map("".join)
)


# ---- Train


def with_examples(test):
    """Decorate a test of hypothesis so that it tries all samples, too."""
    for sample in SAMPLES:
        test = example(text=sample)(test)
    return test


OPTIONS = {
    "cased": {},
    "lower": {"lowercase": True},
    "both": {"lowercase": True, "add_prefix_space": True},
}


@pytest.fixture(scope="module", params=OPTIONS)
def trained(request):
    """A tokenizer with an option, and whether it lower-cases."""
    texts = {}
    for name, words in WORDS.items():
        texts[name] = [" ".join(words)] * 9
    tokenizer = train_tokenizer(texts, 600, **OPTIONS[request.param])
    return tokenizer, request.param != "cased"


@pytest.fixture(scope="module")
def opened(trained, tmp_path_factory):
    """The same, as `AutoTokenizer` opens it."""
    tokenizer, lowercase = trained
    folder = tmp_path_factory.mktemp("trained")
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder), lowercase


def test_auto_tokenizer_gives_the_same_ids(trained, opened):
    assert opened[0](SAMPLES)["input_ids"] == trained[0](SAMPLES)["input_ids"]


@settings(max_examples=25, deadline=None)
@given(text=TEXTS)
@with_examples
def test_what_is_visible_is_kept_and_special_tokens_in_text_are_text(opened, text):
    tokenizer, lowercase = opened
    ids = tokenizer.encode(text, split_special_tokens=True)
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert (ids[0], ids[-1]) == (0, 2)
    assert set(ids[1:-1]).isdisjoint(range(len(SPECIAL_TOKENS)))
    if lowercase:
        # Rust lower-cases character by character, without Python's rule for a sigma at the end of
        # a word.
        text = "".join(map(str.lower, text))
    assert decoded == without_invisible(text)


INVISIBLE = "\u00ad\u061c\u200b\u200e\u200f\u202a\u202c\u202e\u2060\u2064\u2066\u2069\ufeff"
JOINERS = "\u200c\u200d"  # Persian and Hindi words need them.


@pytest.mark.parametrize("character", INVISIBLE)
def test_a_word_with_an_invisible_character_has_the_tokens_of_the_word(opened, cut, character):
    assert without_invisible(f"{character}ha{character}us") == "haus"
    _, cut_tokenizer, _ = cut
    for tokenizer in (opened[0], cut_tokenizer):
        assert ids(tokenizer, f"{character}ha{character}us") == ids(tokenizer, "haus")


@pytest.mark.parametrize("joiner", JOINERS)
def test_joiners_stay(opened, joiner):
    text = f"می{joiner}خواهم"
    assert without_invisible(text) == text
    tokenizer, _ = opened
    assert tokenizer.decode(ids(tokenizer, text)) == text


def test_special_tokens_are_those_of_the_config(tokenizer):
    config = TmdeConfig()
    assert tokenizer.bos_token_id == config.bos_token_id
    assert tokenizer.pad_token_id == config.pad_token_id
    assert tokenizer.eos_token_id == config.eos_token_id
    assert tokenizer.bos_token_id == config.decoder_start_token_id


def test_auto_tokenizer_opens_it_with_its_settings(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 128
    assert loaded.mask_token == "<mask>"
    assert loaded.special_tokens_map == tokenizer.special_tokens_map
    assert len(loaded) == len(tokenizer)


def test_every_language_gives_as_many_characters():
    texts = {"a": ["aaa", "a"] * 9, "b": ["bb", "bbbb"], "c": []}
    balanced = list(balanced_texts(texts, 10))
    # 11 characters: the text with which there are 10 or more is the last.
    assert [text for text in balanced if "a" in text] == ["aaa", "a", "aaa", "a", "aaa"]
    # In order, again and again.
    assert [text for text in balanced if "b" in text] == ["bb", "bbbb", "bb", "bbbb"]
    assert len(balanced) == 9


def test_long_words_are_split():
    """Training on a very long word would never end."""
    (text,) = balanced_texts({"en": ["x" * 2500 + " " * 3000 + "y"]}, 100)
    assert [len(word) for word in text.split(" ")] == [1000, 1000, 500, 1]


PARALLEL_ROWS = [
    {"de": "Das Haus ist alt.", "en": "The house is old."},
    {"de": None, "en": "The mouse is grey."},
    {"de": "Der Baum ist grün.", "en": ""},
]


def nested(rows: list[dict]) -> list[dict]:
    return [{"translation": row, "doc_id": "a"} for row in rows]


@pytest.mark.parametrize(
    ("rows", "languages"),
    [
        (PARALLEL_ROWS, ["de", "en"]),
        (nested(PARALLEL_ROWS), None),
        (iter(nested(PARALLEL_ROWS)), None),
        (datasets.Dataset.from_list(nested(PARALLEL_ROWS)), None),
        (
            datasets.Dataset.from_list([*PARALLEL_ROWS, {"de": "no", "en": "no"}])
            .to_iterable_dataset()
            .take(3),
            ["de", "en"],
        ),
    ],
    ids=["flat", "nested", "iterator", "dataset", "stream"],
)
def test_parallel_rows_give_the_tokenizer_of_their_texts(rows, languages):
    texts = {
        "de": ["Das Haus ist alt.", "Der Baum ist grün."],
        "en": ["The house is old.", "The mouse is grey."],
    }
    expected = train_tokenizer(texts, vocab_size=300)
    tokenizer = train_tokenizer(rows, vocab_size=300, languages=languages)
    assert tokenizer.get_vocab() == expected.get_vocab()


def test_rows_are_read_once_and_only_the_first_texts_are_kept():
    rows = [{"de": "a" * 6, "en": "b"}, {"de": "c" * 6}, {"de": "d" * 6, "en": "e"}]
    assert texts_by_language(iter(nested(rows)), 10) == {"de": ["a" * 6, "c" * 6], "en": ["b", "e"]}


@pytest.mark.parametrize(
    ("languages", "rows_read"),
    [(None, 4), (["de"], 2), (["de", "fr"], 9)],
    ids=["languages seen so far", "one language", "one that comes late"],
)
def test_no_row_is_read_after_every_language_has_its_share(languages, rows_read):
    rows = nested([{"de": "a" * 5, "en": "b" * 3}] * 8 + [{"fr": "c" * 10}] + [{"de": "d"}] * 99)
    remaining = iter(rows)
    texts = texts_by_language(remaining, 10, languages)
    assert len(rows) - len(list(remaining)) == rows_read
    assert texts["de"] == ["a" * 5] * 2


WITH_METADATA = {"de": "Haus", "en": "house", "url": "http://a.de", "id": "7", "doc": "x"}


def test_metadata_columns_are_no_languages():
    assert texts_by_language([WITH_METADATA], 10, ["de", "en"]) == {"de": ["Haus"], "en": ["house"]}
    with pytest.raises(ValueError, match=r"found the columns 'de', .*'url'.* languages=\['de', "):
        train_tokenizer([WITH_METADATA], vocab_size=300)
    with pytest.raises(ValueError, match=r"row 1: found the columns .* expected a column 'fr'"):
        train_tokenizer([WITH_METADATA], vocab_size=300, languages=["de", "fr"])


@pytest.mark.parametrize("texts", [{"de": ["Haus"]}, nested([{"de": "Haus"}])])
def test_a_language_that_the_texts_lack_is_named(texts):
    with pytest.raises(ValueError, match=r"found no text in \['fr'\], expected .*\(de\)"):
        train_tokenizer(texts, vocab_size=300, languages=["de", "fr"])


@pytest.mark.parametrize(
    ("row", "found"),
    [("Haus", ": found 'Haus'"), ({"translation": None}, ", field 'translation': found None")],
)
def test_what_is_no_parallel_row_is_named(row, found):
    with pytest.raises(ValueError, match=f"^train_tokenizer, row 2{found}, expected "):
        train_tokenizer([{"translation": {"de": "Haus"}}, row], vocab_size=300)


def test_a_vocabulary_smaller_than_the_bytes_is_refused():
    with pytest.raises(ValueError, match="vocab_size=260 is too small.* 261"):
        train_tokenizer({"en": ["text"]}, vocab_size=260)


def test_languages_without_text_are_named():
    with pytest.raises(ValueError, match=r"No text .*\['de', 'en'\]"):
        train_tokenizer({"de": [], "en": [""]}, vocab_size=300)


# ---- Extend


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


@pytest.mark.parametrize("word", GREEK)
def test_words_that_were_bytes_become_tokens(known, greek, word):
    assert len(ids(known, word)) == len((" " + word).encode())
    (token,) = ids(greek, word)
    assert token >= len(known)
    assert greek.decode([token]) == word


def test_no_more_tokens_are_added_than_asked_for(known, greek):
    assert 0 < len(greek) - len(known) <= 60


def test_an_extended_tokenizer_loses_nothing(greek):
    text = "ΓΆΤΑ και haus 123 🌊 <s>"
    assert greek.decode(ids(greek, text)) == text.lower()


def test_old_tokens_and_merges_stay(known, greek):
    old_model = content(known)["model"]
    new_model = content(greek)["model"]
    assert new_model["vocab"].items() >= old_model["vocab"].items()
    assert new_model["merges"][: len(old_model["merges"])] == old_model["merges"]
    assert sorted(new_model["vocab"].values()) == list(range(len(greek)))


@pytest.mark.parametrize("language", OLD_TEXTS)
def test_old_texts_keep_their_tokens(known, greek, language):
    text = OLD_TEXTS[language][0]
    assert ids(greek, text) == ids(known, text)


PARTS = (
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "added_tokens",
    "truncation",
    "padding",
)


@pytest.mark.parametrize("part", PARTS)
def test_every_other_part_stays(known, greek, part):
    assert content(greek)[part] == content(known)[part]


def test_auto_tokenizer_opens_an_extended_tokenizer(known, greek, tmp_path):
    greek.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert content(loaded) == content(greek)
    for tokenizer in (greek, loaded):
        assert tokenizer.model_max_length == 77
        assert not tokenizer.split_special_tokens
        assert tokenizer.special_tokens_map == known.special_tokens_map
        assert tokenizer("γάτα")["input_ids"] == [0, *ids(greek, "γάτα"), 2]


def test_the_most_frequent_pair_is_joined_first(known):
    """By hand: in `qxqxqx`, `qx` joins first, three times a word."""
    q = ids(known, "q")[-1]
    x = ids(known, "x")[-1]
    assert ids(known, "qxqxqx")[-6:] == [q, x] * 3
    extended = extend_tokenizer(known, {"xx": ["qxqxqx"] * 10}, 1)
    new_token = len(known)
    assert len(extended) == len(known) + 1
    assert extended.convert_ids_to_tokens(new_token) == "qx"
    assert ids(extended, "qxqxqx")[-3:] == [new_token] * 3


RARE = {"de": ["bzqb"] + ["haus"] * 500}
FREQUENT = {"de": ["bzqb"] * 500}


@pytest.mark.parametrize(
    ("old_texts", "max_old_share", "changes"),
    [(FREQUENT, 0.03, False), (RARE, 0.0, False), (RARE, 0.03, True), (FREQUENT, 1e9, True)],
)
def test_merges_that_old_texts_would_use_are_left_out(known, old_texts, max_old_share, changes):
    """`zq` is frequent in the new language; an old one has it in one word of its own."""
    new_texts = {"xx": ["zqzq azqa"] * 100}
    extended = extend_tokenizer(known, new_texts, 5, old_texts, max_old_share=max_old_share)
    assert (ids(extended, "bzqb") != ids(known, "bzqb")) == changes


@pytest.mark.parametrize(
    ("kind", "is_bpe", "is_extendable"),
    [("bpe", True, True), ("wordpiece", False, False), ("unigram", False, True)],
)
def test_which_tokenizers_can_be_extended(kind, is_bpe, is_extendable):
    tokenizer = hub_encoders.make_tokenizer(kind, ALL_WORDS)
    assert is_byte_level_bpe(tokenizer) == is_bpe
    assert can_be_extended(tokenizer) == is_extendable


@pytest.fixture(scope="module")
def unigram():
    return hub_encoders.make_tokenizer("unigram", [" ".join(ALL_WORDS)] * 20)


@pytest.fixture(scope="module")
def ciphered():
    return [row["el"] for row in ciphered_rows(300)]


@pytest.fixture(scope="module")
def greek_unigram(unigram, ciphered):
    old_texts = {"de": [" ".join(WORDS["de"])] * 20}
    return extend_tokenizer(unigram, {"el": ciphered}, 300, old_texts)


def test_a_unigram_gets_tokens_of_another_script(unigram, greek_unigram, ciphered):
    assert unknown_share(unigram, ciphered) > 0.5
    assert unknown_share(greek_unigram, ciphered) == 0
    assert len(unigram) + 200 < len(greek_unigram) <= len(unigram) + 300
    tokens = sum(len(ids(greek_unigram, text)) for text in ciphered)
    assert tokens < 0.6 * sum(map(len, ciphered))


def test_old_entries_of_a_unigram_stay(unigram, greek_unigram):
    old_entries = content(unigram)["model"]["vocab"]
    assert content(greek_unigram)["model"]["vocab"][: len(old_entries)] == old_entries
    assert ids(greek_unigram, " ".join(ALL_WORDS)) == ids(unigram, " ".join(ALL_WORDS))
    for part in PARTS:
        assert content(greek_unigram)[part] == content(unigram)[part]


@pytest.mark.parametrize(("max_old_share", "changes"), [(0.03, False), (1e9, True)])
def test_entries_that_old_texts_would_use_are_left_out(unigram, max_old_share, changes):
    texts = {"nl": ["zqzq azqa"] * 100}
    old_texts = {"de": ["zqzq"] * 100}
    extended = extend_tokenizer(unigram, texts, 9, old_texts, max_old_share=max_old_share)
    assert (len(ids(extended, "zqzq")) < len(ids(unigram, "zqzq"))) == changes


@pytest.mark.parametrize(("fewest", "changes"), [(10, True), (11, False)])
def test_a_merge_occurs_often_enough(known, fewest, changes):
    texts = {"nl": ["haus zq"] * 10}
    extended = extend_tokenizer(known, texts, 9, fewest_occurrences=fewest)
    assert (len(ids(extended, "zq")) < len(ids(known, "zq"))) == changes


@pytest.mark.parametrize("fewest", [1, 4, 20])
def test_an_entry_of_a_unigram_occurs_often_enough(unigram, ciphered, fewest):
    extended = extend_tokenizer(unigram, {"el": ciphered}, 300, fewest_occurrences=fewest)
    counts = Counter(token for text in ciphered for token in extended.tokenize(text))
    added = set(extended.get_vocab()) - set(unigram.get_vocab())
    words = [token for token in added if len(token) > 1]
    assert words
    assert min(counts[token] for token in words) >= fewest


def test_unknown_share():
    tokenizer = hub_encoders.make_tokenizer("unigram", ["abc"] * 9)
    assert unknown_share(tokenizer, ["abc", "cab"]) == 0
    assert unknown_share(tokenizer, ["abя"]) == pytest.approx(1 / 3, abs=0.1)
    assert unknown_share(tokenizer, []) == 0


# ---- Cut


GERMAN = " ".join(WORDS["de"])
ENGLISH = " ".join(WORDS["en"])


@pytest.fixture(scope="module", params=["unigram", "wordpiece"])
def cut(request, tmp_path_factory):
    """A tokenizer, the same cut to the words of two languages, and the ids that it kept."""
    texts = []
    for words in WORDS.values():
        texts.append(" ".join([*words, "Haus-boot ñandú"]))
    whole = hub_encoders.make_tokenizer(request.param, texts * 5, vocabulary=400)
    smaller, kept_ids = cut_tokenizer(whole, [GERMAN, ENGLISH])
    folder = tmp_path_factory.mktemp("cut")
    smaller.save_pretrained(folder)
    return whole, AutoTokenizer.from_pretrained(folder), kept_ids


@settings(max_examples=25, deadline=None)
@given(words=st.lists(st.sampled_from([*ALL_WORDS, "ñandú", "漢", "<s>", "x!"]), max_size=6))
def test_texts_of_kept_tokens_keep_their_tokens(cut, words):
    whole, smaller, kept_ids = cut
    text = " ".join(words)
    before = whole(text)["input_ids"]
    after = smaller(text)["input_ids"]
    if set(before) <= set(kept_ids):
        assert [kept_ids[token_id] for token_id in after] == before
    if whole.unk_token_id not in before:  # Letters stand for a token that was cut.
        assert smaller.unk_token_id not in after


def test_a_cut_tokenizer_is_smaller_and_has_the_special_tokens(cut):
    whole, smaller, kept_ids = cut
    assert len(smaller) == len(kept_ids)
    assert len(smaller) < len(whole)
    assert smaller.special_tokens_map == whole.special_tokens_map


@pytest.mark.parametrize("language", ["de", "en"])
def test_a_cut_tokenizer_has_the_tokens_of_its_texts(cut, language):
    whole, _, kept_ids = cut
    assert set(whole(" ".join(WORDS[language]))["input_ids"]) <= set(kept_ids)


def test_the_most_frequent_token_is_kept_first(cut):
    whole, _, _ = cut
    smallest, _ = cut_tokenizer(whole, [GERMAN], max_tokens=0)
    larger, _ = cut_tokenizer(whole, ["haus " * 5 + GERMAN], max_tokens=len(smallest) + 1)
    (added,) = set(larger.get_vocab()) - set(smallest.get_vocab())
    assert added in whole.tokenize("haus")


def test_rare_tokens_are_left_out(cut):
    whole, _, _ = cut
    smallest, _ = cut_tokenizer(whole, [GERMAN], max_tokens=0)
    without_rare, _ = cut_tokenizer(whole, [GERMAN], min_count=1000)
    assert set(without_rare.get_vocab()) <= set(smallest.get_vocab())


def test_the_tokens_of_a_prompt_are_kept(cut):
    whole, _, _ = cut
    _, kept_ids = cut_tokenizer(whole, [], keep=GERMAN)
    assert set(whole(GERMAN)["input_ids"]) <= set(kept_ids)


def unigram_of(tokens):
    """Return a Unigram whose scores are those of the tokens; the special `<s>` has none."""
    special = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    backend = Tokenizer(models.Unigram([*special, *tokens.items()], unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return wrapped_for_cutting(backend, ["<s>", "</s>", "<unk>"])


def wordpiece_of(tokens):
    """Return a WordPiece with these tokens."""
    special = ["[CLS]", "[SEP]", "[UNK]"]
    every_token = [*special, *tokens]
    vocabulary = dict(zip(every_token, range(len(every_token)), strict=True))
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return wrapped_for_cutting(backend, special)


def wrapped_for_cutting(backend, special):
    backend.add_special_tokens(special)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=special[2])


UNIGRAM_SCORES = {
    "▁Haus": -3.0,
    "▁haus": -5.0,
    "▁HAUS": -9.0,
    "▁alt": -2.0,
    "▁<S>": -8.0,
    "É": -7.0,
    "é": -6.0,
}
# The most probable of a Unigram is the best, the first of WordPiece.
CASES = {
    "unigram": (unigram_of(UNIGRAM_SCORES), {"haus": "▁Haus", "alt": "▁alt", "é": "é"}),
    "wordpiece": (
        wordpiece_of(["Haus", "haus", "HAUS", "alt", "<S>", "É", "é"]),
        {"haus": "Haus", "alt": "alt", "é": "É"},
    ),
}


@pytest.mark.parametrize("text", ["haus", "alt", "é"])
@pytest.mark.parametrize("kind", CASES)
def test_of_tokens_that_differ_by_case_the_best_one_is_kept(kind, text):
    whole, best_tokens = CASES[kind]
    smaller, kept_ids = cut_tokenizer(whole, ["haus alt", "é"], lowercase=True)
    for written in (text, text.upper(), text.title()):
        token_id = smaller(written, add_special_tokens=False)["input_ids"][-1]
        assert whole.convert_ids_to_tokens(kept_ids[token_id]) == best_tokens[text]


@pytest.mark.parametrize("kind", CASES)
def test_special_tokens_keep_their_case(kind):
    whole, _ = CASES[kind]
    smaller, kept_ids = cut_tokenizer(whole, ["haus alt", "é"], lowercase=True)
    assert len(smaller) == len(kept_ids)
    assert len(kept_ids) == len(set(kept_ids))
    for old_id in range(3):
        token = smaller.convert_ids_to_tokens(kept_ids.index(old_id))
        assert token == whole.convert_ids_to_tokens(old_id)


def test_merges_cannot_be_cut(tokenizer):
    with pytest.raises(ValueError, match="of type BPE can't be trimmed; expected Unigram"):
        cut_tokenizer(tokenizer, ["haus"])
