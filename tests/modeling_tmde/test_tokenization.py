"""The shared tokenizer: nothing is lost, every language gets its share, and transformers alone opens it."""

import itertools
import json
import os
import random
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from modeling_tmde import TmdeConfig, train_tokenizer
from modeling_tmde.tokenization import SPECIAL_TOKENS, balanced_texts
from tests.conftest import LANGUAGES, WORDS

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


@settings(max_examples=150, deadline=None)
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


def test_post_processor_and_padding(tokenizer):
    alone = [tokenizer.encode(text, add_special_tokens=False) for text in ("house dog", "cat")]
    batch = tokenizer(["house dog", "cat"], padding=True)
    longest = len(alone[0])
    assert longest > len(alone[1]) > 0
    assert batch["input_ids"] == [
        [0, *alone[0], 2],
        [0, *alone[1], 2, *[1] * (longest - len(alone[1]))],
    ]
    assert batch["attention_mask"][1] == [1] * (len(alone[1]) + 2) + [0] * (longest - len(alone[1]))
    assert set(batch) == {"input_ids", "attention_mask"}
    assert tokenizer("house dog", "cat")["input_ids"] == [0, *alone[0], 2, *alone[1], 2]


def test_text_target_gives_labels(tokenizer):
    batch = tokenizer(["haus hund", "katze"], text_target=["house dog", "cat"])
    assert batch["input_ids"] == tokenizer(["haus hund", "katze"])["input_ids"]
    assert batch["labels"] == tokenizer(["house dog", "cat"])["input_ids"]


def test_auto_tokenizer_opens_it_with_equal_ids(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    expected = tokenizer(SAMPLES)["input_ids"]
    assert loaded(SAMPLES)["input_ids"] == expected
    assert loaded.batch_decode(expected, skip_special_tokens=True) == SAMPLES
    assert (loaded.model_max_length, loaded.mask_token, len(loaded)) == (128, "<mask>", len(tokenizer))


def test_a_process_without_this_package_opens_it(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "saved")
    (tmp_path / "samples.json").write_text(json.dumps(SAMPLES))
    script = (
        "import json, sys\n"
        "from transformers import AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained('saved')\n"
        "ids = tokenizer(json.load(open('samples.json')))['input_ids']\n"
        "decoded = tokenizer.batch_decode(ids, skip_special_tokens=True)\n"
        "print(json.dumps([ids, decoded, 'modeling_tmde' in sys.modules]))\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [tokenizer(SAMPLES)["input_ids"], SAMPLES, False]


# ---- Balance


@settings(max_examples=100, deadline=None)
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


def test_endless_and_empty_streams_are_balanced():
    result = list(balanced_texts({"x": itertools.repeat("xxx"), "y": ["yyyy"], "z": [], "e": ["", ""]}, 10))
    assert result == ["xxx"] * 4 + ["yyyy"] * 3


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


# ---- Lower case and the first word


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


@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
@with_examples
def test_options_lose_nothing_but_capitals(optional, text):
    tokenizer, lowercase, _ = optional
    ids = tokenizer.encode(text)
    assert (ids[0], ids[-1]) == (0, 2) and not set(ids[1:-1]) & set(range(len(SPECIAL_TOKENS)))
    # Rust lower-cases character by character, without Python's rule for a sigma at the end of a word.
    expected = "".join(character.lower() for character in text) if lowercase else text
    assert tokenizer.decode(ids, skip_special_tokens=True) == expected


def test_options_do_what_they_say(optional):
    tokenizer, lowercase, add_prefix_space = optional
    # Never the first word of a training text, so that there is an entry for it within a text only.
    bare = {text: tokenizer.encode(text, add_special_tokens=False) for text in ("tree", "TREE", "dog tree", "")}
    assert bare[""] == []
    assert (bare["tree"] == bare["TREE"]) == lowercase
    inside = bare["dog tree"][-1]
    assert tokenizer.convert_ids_to_tokens(inside) == "Ġtree"
    assert (bare["tree"] == [inside]) == add_prefix_space
    pair = tokenizer("dog", "tree")["input_ids"]
    assert (pair[-2] == inside) == add_prefix_space


def test_both_options_are_off_by_default():
    assert trained().backend_tokenizer.normalizer is None
    words = [trained(lowercase=on).encode("HAUS Haus haus", add_special_tokens=False) for on in (False, True)]
    assert len(words[1]) < len(words[0])


# ---- Size and errors


@pytest.mark.parametrize("vocab_size", [261, 300, 350])
def test_vocab_size_is_kept(vocab_size):
    tokenizer = train_tokenizer({language: [" ".join(WORDS[language])] * 9 for language in LANGUAGES}, vocab_size)
    assert len(tokenizer) == vocab_size
    assert set(tokenizer.get_vocab().values()) == set(range(vocab_size))
    for text in SAMPLES:
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_max_characters_limits_what_is_read():
    frequent, later = ["aaaa bbbb"] * 20, ["zzzz yyyy"] * 200
    tokenizer = train_tokenizer({"one": frequent + later}, vocab_size=300, max_characters=9 * 20)
    assert len(tokenizer.tokenize("aaaa bbbb")) < 5
    assert len(tokenizer.tokenize("zzzz")) == 4


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="vocab_size=260 is too small.* 261"):
        train_tokenizer({"en": ["text"]}, vocab_size=260)
    with pytest.raises(ValueError, match=r"No text .*\['de', 'en'\]"):
        train_tokenizer({"de": [], "en": [""]}, vocab_size=300)
