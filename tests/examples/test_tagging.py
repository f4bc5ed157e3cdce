"""What the tagging script reads: the labels of tokens, words that are cut off, and bad tags."""

import importlib.util
from pathlib import Path

import pytest

from modeling_tmde.tokenization import train_tokenizer

SCRIPT = Path(__file__).parents[2] / "examples" / "tag_parts_of_speech.py"
TEXT = "the old house stands near the river"
SPECIAL = "-"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    specification = importlib.util.spec_from_file_location("tag_parts_of_speech", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def make_tokenizer(add_prefix_space=False, model_max_length=100):
    """A tokenizer that knows all words of `TEXT` but "house", of which it knows the letters."""
    texts = [TEXT.replace("house", "")] * 10
    return train_tokenizer(
        {"en": texts},
        vocab_size=300,
        add_prefix_space=add_prefix_space,
        model_max_length=model_max_length,
    )


def conllu(path: Path, words: str, tags: str) -> Path:
    lines = []
    for number, (word, tag) in enumerate(zip(words.split(), tags.split(), strict=True), start=1):
        lines.append(f"{number}\t{word}\t{word}\t{tag}" + "\t_" * 6)
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_bare_words_are_those_of_the_sentence_with_a_prefix_space_alone(add_prefix_space):
    tokenizer = make_tokenizer(add_prefix_space)
    bare = tokenizer(TEXT.split(), is_split_into_words=True)["input_ids"]
    assert (bare == tokenizer(TEXT)["input_ids"]) == add_prefix_space


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_the_tokens_are_those_of_the_sentence(script, add_prefix_space):
    tokenizer = make_tokenizer(add_prefix_space)
    row = {"words": TEXT.split(), "tags": list(range(7))}
    tokens = script.tokenize(row, tokenizer)
    assert tokens["input_ids"] == tokenizer(TEXT)["input_ids"]
    assert set(tokens) == {"input_ids", "attention_mask", "labels"}


def test_the_first_token_of_a_word_has_its_tag(script):
    row = {"words": ["the", "house", "stands"], "tags": [5, 7, 15]}
    tokenizer = make_tokenizer()
    tokens = script.tokenize(row, tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(tokens["input_ids"])
    assert pieces == ["<s>", "the", "Ġ", "h", "o", "u", "s", "e", "Ġstands", "</s>"]
    assert tokens["labels"] == [-100, 5, -100, 7, -100, -100, -100, -100, 15, -100]


def test_words_that_are_cut_off_are_counted(script, tmp_path, capsys):
    path = conllu(tmp_path / "test.conllu", TEXT, "DET ADJ NOUN VERB ADP DET NOUN")
    whole = script.tokenize_file(path, make_tokenizer())
    assert capsys.readouterr().out == ""
    # `<s> the old </s>`: five words are left.
    cut = script.tokenize_file(path, make_tokenizer(model_max_length=4))
    expected = "test.conllu: 5 of 7 words are left out, because they stand behind the first 4 token"
    assert capsys.readouterr().out.startswith(expected)
    det = script.TAGS.index("DET")
    adj = script.TAGS.index("ADJ")
    assert cut["labels"][0] == [-100, det, adj, -100]
    assert sum(label != -100 for label in whole["labels"][0]) == 7


def test_words_without_a_tag_are_named(script, tmp_path):
    path = conllu(tmp_path / "bare.conllu", "the old house", "DET _ NOUN")
    message = r"bare.conllu, line 2: found the tag '_' for the word 'old', expected one of ADJ, "
    with pytest.raises(SystemExit, match=message):
        script.read_sentences(path)
