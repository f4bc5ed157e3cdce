# SPDX-License-Identifier: Apache-2.0

"""The byte-level BPE tokenizer that all languages share, and what is done with any tokenizer.

In order: train one, extend it by languages, cut another one to the tokens of some texts, load one.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle, groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from tokenizers import (
    Encoding,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .common import TmdeError

# Their ids are their positions, and the defaults of the configurations. `<s>` is STR_TAG of Li 2021
# (section 4.2.1).
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

# Words with their combining marks, numbers of up to three digits, runs of symbols, spaces: no merge
# crosses these.
WORDS = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+")

NUM_BYTES = 256

# Characters without a shape and a meaning: soft hyphens, zero-width spaces, word joiners, byte
# order marks, marks of direction and invisible operators. Zero-width joiners and non-joiners
# (U+200C, U+200D) stay, because words of some scripts need them.
_INVISIBLE = "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
_INVISIBLE_CHARACTERS = re.compile(f"[{_INVISIBLE}]")

# The supplementary private use planes have one character for each token of a vocabulary.
_FIRST_SYMBOL = 0xF0000
# Merges learned for each one asked for: some of them fire in texts of the old languages too.
_SPARE_MERGES = 1.5
_LATIN_END = 0x250  # the first code point after the Latin letters
_LONG_RUN = re.compile(r"(\S{1000})|\s{1000,}")
# Texts tokenized at once: enough for the tokenizer's threads, little memory.
_TEXTS_AT_ONCE = 2048

ParallelRow = Mapping[str, Any]  # {"translation": {"de": ..., "en": ...}} or {"de": ..., "en": ...}
Word = tuple[int, ...]  # the token ids of a pre-token
Merge = tuple[str, str]
Piece = tuple[str, float]  # an entry of a Unigram vocabulary and its score


# ---- Invisible characters


def without_invisible(text: str) -> str:
    r"""Return a text without soft hyphens, zero-width spaces and other invisible characters.

    The tokenizers of this package do the same before anything else.

    Example:
        >>> without_invisible("bri\u00addge\ufeff")
        'bridge'
    """
    if text.isascii():
        return text
    return _INVISIBLE_CHARACTERS.sub("", text)


def remove_invisible(content: dict[str, Any]) -> None:
    """Edit the content of tokenizer.json so that invisible characters are removed first."""
    steps = _normalizer_steps(content)
    step = {"type": "Replace", "pattern": {"Regex": f"[{_INVISIBLE}]"}, "content": ""}
    if step not in steps:
        content["normalizer"] = {"type": "Sequence", "normalizers": [step, *steps]}


def _invisible_remover() -> normalizers.Normalizer:
    """Return the normalizer that removes invisible characters."""
    return normalizers.Replace(Regex(f"[{_INVISIBLE}]"), "")


def _normalizer_steps(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of the normalizer of tokenizer.json, in order."""
    normalizer = content["normalizer"]
    if normalizer is None:
        return []
    if normalizer["type"] == "Sequence":
        return list(normalizer["normalizers"])
    return [normalizer]


# ---- Train


def balanced_texts(texts: Mapping[str, Iterable[str]], max_characters: int) -> Iterator[str]:
    """Yield the same amount of text for every language, so that each gets its share of tokens.

    Takes up to `max_characters` of each language and repeats the smaller languages until all are as
    large as the largest. A language without any text is left out. More than 1,000 characters
    without a space are split, and as many spaces become one: the time that training takes grows
    with the square of the longest word.

    Args:
        texts: Texts of each language.
        max_characters: Most characters of one language.
    """
    texts_of_languages = [list(_until(stream, max_characters)) for stream in texts.values()]
    sizes = [sum(map(len, language_texts)) for language_texts in texts_of_languages]
    largest = max(sizes, default=0)
    for language_texts, language_size in zip(texts_of_languages, sizes, strict=True):
        if language_size:
            for text in _until(cycle(language_texts), largest):
                yield _LONG_RUN.sub(r"\1 ", text)


def texts_by_language(
    rows: Iterable[ParallelRow], max_characters: int, languages: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Return the texts of parallel rows by language.

    Args:
        rows: Rows with an object `translation` of texts by language, or with one column per
            language. They are read once, until each language has `max_characters`. Empty texts and
            None are left out.
        max_characters: Texts of a language are kept until they have so many characters.
        languages: The languages to read; None for all that `translation` has. Rows with one column
            per language need it, because they may have other columns.

    Raises:
        TmdeError: An element is no such row.
    """
    texts: dict[str, list[str]] = {}
    sizes = dict.fromkeys(languages or (), 0)
    for number, row in enumerate(rows, 1):
        for language, text in _texts_of_row(row, number, languages).items():
            sizes.setdefault(language, 0)
            if text and sizes[language] < max_characters:
                texts.setdefault(language, []).append(text)
                sizes[language] += len(text)
        if sizes and min(sizes.values()) >= max_characters:
            break
    return texts


def _texts_of_row(
    row: ParallelRow, number: int, languages: Sequence[str] | None
) -> Mapping[str, str | None]:
    """Return the texts of a row by language.

    Raises:
        TmdeError: It is no row, `languages` are not given for a row that needs them, or it lacks
            the column of a language.
    """
    place = f"train_tokenizer, row {number}"
    if not isinstance(row, Mapping):
        raise TmdeError(
            f"{place}: found {row!r:.80}, expected "
            '{"translation": {"de": ..., "en": ...}}; load_parallel reads files and '
            "datasets as such rows"
        )
    if "translation" in row:
        translation = row["translation"]
        if not isinstance(translation, Mapping):
            raise TmdeError(
                f"{place}, field 'translation': found {translation!r:.80}, expected texts by "
                "language"
            )
        if languages is None:
            return translation
        return {language: translation.get(language) for language in languages}
    columns = ", ".join(map(repr, row))
    if languages is None:
        raise TmdeError(
            f"{place}: found the columns {columns:.200}, expected 'translation'. If each "
            "language has its own column, set languages=['de', 'en']"
        )
    texts = {}
    for language in languages:
        if language not in row:
            raise TmdeError(
                f"{place}: found the columns {columns:.200}, expected a column {language!r}. "
                "Correct languages=[...]"
            )
        texts[language] = row[language]
    return texts


def _until(texts: Iterable[str], num_characters: int) -> Iterator[str]:
    """Yield texts until they have so many characters together."""
    size = 0
    for text in texts:
        if size >= num_characters:
            break
        yield text
        size += len(text)


def train_tokenizer(
    texts: Mapping[str, Iterable[str]] | Iterable[ParallelRow],
    vocab_size: int = 50000,
    max_characters: int = 20_000_000,
    model_max_length: int = 2048,
    lowercase: bool = False,
    add_prefix_space: bool = False,
    languages: Sequence[str] | None = None,
) -> PreTrainedTokenizerFast:
    """Train one byte-level BPE tokenizer on all languages.

    Rare characters are encoded as bytes, so decoding restores every text except invisible
    characters such as soft hyphens and zero-width spaces. A literal `<s>` in a text is treated as
    text. The tokenizer adds the special tokens: `<s> tokens </s>`.

    Args:
        texts: Texts by language, `{"de": [...], "en": [...]}`, or parallel rows as `load_parallel`
            returns them. Rows are read until every language seen so far has `max_characters`.
        vocab_size: The number of entries, including the special tokens and 256 bytes. Li (2021)
            uses 50,000 for five languages.
        max_characters: The maximum number of characters per language to train on.
        model_max_length: The model's maximum input length in tokens, stored with the tokenizer.
        lowercase: Lowercase every text first, which decoding can't undo.
        add_prefix_space: Add a space before every text, which decoding removes, so that the first
            word has the same tokens as within a text.
        languages: The languages to train on; None for all. Required for rows with one column per
            language, or if a language first appears after the others have `max_characters`.

    Returns:
        A tokenizer that `AutoTokenizer` loads without this package.

    Raises:
        TmdeError: The vocabulary is too small for the bytes, a language has no text, or an element
            is not a parallel row.

    Example:
        ```python
        from tmde import load_parallel, train_tokenizer

        rows = load_parallel("sample", languages=["de", "en"], max_rows=1000)
        tokenizer = train_tokenizer(rows, vocab_size=1000)
        print(tokenizer.tokenize("Guten Tag"))
        ```
    """
    smallest = len(SPECIAL_TOKENS) + NUM_BYTES
    if vocab_size < smallest:
        raise TmdeError(
            f"vocab_size={vocab_size} is too small: the special tokens and bytes alone need "
            f"{smallest}"
        )
    if not isinstance(texts, Mapping):
        texts = texts_by_language(texts, max_characters, languages)
    if languages is not None:
        texts = _selected_texts(texts, languages)
    stream = balanced_texts(texts, max_characters)
    first_text = next(stream, None)
    if first_text is None:
        raise TmdeError(f"No text to train a tokenizer on in any of the languages {list(texts)}")
    tokenizer = _untrained_tokenizer(lowercase, add_prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain([first_text], stream), trainer)
    return wrapped(tokenizer, model_max_length)


def _selected_texts(
    texts: Mapping[str, Iterable[str]], languages: Sequence[str]
) -> dict[str, Iterable[str]]:
    """Return the texts of these languages.

    Raises:
        TmdeError: A language has none.
    """
    missing = [language for language in languages if language not in texts]
    if missing:
        raise TmdeError(
            f"languages={list(languages)}: found no text in {missing}, expected languages of the "
            f"texts ({', '.join(texts)}). Correct languages=[...]"
        )
    return {language: texts[language] for language in languages}


def _untrained_tokenizer(lowercase: bool, add_prefix_space: bool) -> Tokenizer:
    """Return a byte-level BPE without a vocabulary; the arguments are those of training."""
    tokenizer = Tokenizer(models.BPE())
    steps = [_invisible_remover()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if add_prefix_space:
        steps.append(normalizers.Prepend(" "))
    tokenizer.normalizer = normalizers.Sequence(steps)
    split_words = pre_tokenizers.Split(WORDS, "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split_words, to_bytes])
    if add_prefix_space:
        remove_prefix_space = decoders.Strip(" ", left=1, right=0)
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), remove_prefix_space])
    else:
        tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def wrapped(tokenizer: Tokenizer, model_max_length: int = 2048) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer for transformers; a text becomes `<s> tokens </s>`.

    Args:
        tokenizer: Its first ids are `SPECIAL_TOKENS`.
        model_max_length: Longest input of the model, stored with the tokenizer.
    """
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B </s>",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=model_max_length,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


# ---- Extend


def can_be_extended(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether `extend_tokenizer` takes this tokenizer."""
    return is_byte_level_bpe(tokenizer) or is_plain_unigram(tokenizer)


def is_plain_unigram(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a vocabulary is a Unigram (XLM-R) without tokens outside of it."""
    if _vocabulary_kind(tokenizer) != "Unigram":
        return False
    entries = tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=False)
    return entries == len(tokenizer)


def is_byte_level_bpe(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer is a BPE of bytes, as `train_tokenizer` makes it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    content = json.loads(backend.to_str())
    model = content["model"]
    if model["type"] != "BPE":
        return False
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    decoder = content["decoder"] or {}
    decoders_of_sequence = decoder.get("decoders", [])
    return any(part.get("type") == "ByteLevel" for part in [decoder, *decoders_of_sequence])


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, Iterable[str]],
    new_tokens: int,
    old_texts: Mapping[str, Iterable[str]] | None = None,
    max_old_share: float = 0.03,
    max_characters: int = 5_000_000,
    fewest_occurrences: int = 10,
) -> PreTrainedTokenizerBase:
    """Continue the training of a tokenizer on texts of other languages.

    New entries stand after the old ones: every old token keeps its id. The normalizer, the
    pre-tokenizer, the special tokens and all other settings stay.

    In a byte-level BPE, the old merges come first in any text. The new merges are learned on words
    that `old_texts` lack. A merge that fires there more than `max_old_share` times as often as in
    `texts` is left out, with all that build on it.

    In a Unigram vocabulary (XLM-R), a vocabulary of the new texts is learned, and the entries that
    the tokenizer lacks are added with their scores: first those of characters that it does not
    know, then the most probable. An entry that occurs in `old_texts` more than `max_old_share`
    times as often as in `texts` is left out.

    Args:
        tokenizer: A byte-level BPE, as `train_tokenizer` makes it, or a Unigram; it is not changed.
        texts: Texts of each new language, balanced as in `train_tokenizer`.
        new_tokens: Entries to add; fewer, if no more of them are frequent enough.
        old_texts: Texts of each language that the tokenizer knows, whose tokens should stay.
        max_old_share: 0 leaves out every merge that fires in `old_texts`, infinity none.
        max_characters: Most characters read of one language.
        fewest_occurrences: How often a merge must be possible in the balanced texts, or an entry of
            a Unigram with several characters occur there, so that its vector can be learned.

    Returns:
        A tokenizer that `save_pretrained` writes and `AutoTokenizer` opens.

    Raises:
        TmdeError: There is no text.
    """
    if is_plain_unigram(tokenizer):
        old_list = list(balanced_texts(old_texts or {}, max_characters))
        new_list = list(balanced_texts(texts, max_characters))
        return _extend_unigram(
            tokenizer, new_list, new_tokens, old_list, max_old_share, fewest_occurrences
        )
    old_words = _count_words(tokenizer, balanced_texts(old_texts or {}, max_characters))
    words = _count_words(tokenizer, balanced_texts(texts, max_characters))
    if not words:
        raise TmdeError(f"No text to extend the tokenizer on in any of the languages {list(texts)}")
    new_words = {}
    for word, count in words.items():
        if len(word) > 1 and word not in old_words:
            new_words[word] = count
    merges = _learn_merges(new_words, round(_SPARE_MERGES * new_tokens), fewest_occurrences)
    new_firing = _count_firing(merges, words)
    old_firing = _count_firing(merges, old_words)
    chosen_merges = []
    dropped_symbols: set[str] = set()
    for merge in merges:
        limit = max_old_share * new_firing[merge]
        fires_in_old_texts = old_firing[merge] > 0 and old_firing[merge] > limit
        builds_on_dropped = not dropped_symbols.isdisjoint(merge)
        if fires_in_old_texts or builds_on_dropped:
            dropped_symbols.add("".join(merge))
        else:
            chosen_merges.append(merge)
    return _append_merges(tokenizer, chosen_merges, new_tokens)


def _encodings(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Iterator[Encoding]:
    """Encode texts without special tokens; a literal `<s>` is text, and nothing is truncated."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    texts = iter(texts)
    while batch := list(islice(texts, _TEXTS_AT_ONCE)):
        yield from backend.encode_batch(batch, add_special_tokens=False)


def _count_words(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Counter[Word]:
    """Count the pre-tokens of texts, each as the tokens that it has now."""
    counts: Counter[Word] = Counter()
    for encoding in _encodings(tokenizer, texts):
        words_and_tokens = zip(encoding.word_ids, encoding.ids, strict=True)
        for _, word in groupby(words_and_tokens, key=itemgetter(0)):
            counts[tuple(token for _, token in word)] += 1
    return counts


def _symbols(word: Word) -> list[str]:
    """Return one character for each token of a word."""
    return [chr(_FIRST_SYMBOL + token) for token in word]


def _learn_merges(
    words: Mapping[Word, int], num_merges: int, fewest_occurrences: int
) -> list[Merge]:
    """Learn BPE merges of tokens.

    Each token is one character, so that the `tokenizers` library can train on them.

    Args:
        words: Words and how often they occur.
        num_merges: Most merges to learn.
        fewest_occurrences: How often a merge must be possible in the words.
    """
    alphabet: set[str] = set()
    for word in words:
        alphabet.update(_symbols(word))
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + num_merges,
        min_frequency=fewest_occurrences,
        special_tokens=[],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(_repeated_words(words), trainer)
    return [tuple(merge) for merge in json.loads(learner.to_str())["model"]["merges"]]


def _repeated_words(words: Mapping[Word, int]) -> Iterator[str]:
    """Yield each word, as symbols, as often as it occurs."""
    for word, count in words.items():
        symbols = "".join(_symbols(word))
        yield " ".join([symbols] * count)


def _count_firing(merges: list[Merge], words: Counter[Word]) -> Counter[Merge]:
    """Count how often each merge joins two symbols in the words; earlier merges come first."""
    ranks: dict[Merge, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge, rank)
    counts: Counter[Merge] = Counter()
    for word, count in words.items():
        symbols = _symbols(word)
        place = _place_of_first_merge(symbols, ranks)
        while place is not None:
            merge = (symbols[place], symbols[place + 1])
            counts[merge] += count
            symbols[place : place + 2] = ["".join(merge)]
            place = _place_of_first_merge(symbols, ranks)
    return counts


def _place_of_first_merge(symbols: list[str], ranks: Mapping[Merge, int]) -> int | None:
    """Return where BPE joins two symbols next: the merge of lowest rank, from the left; or None."""
    lowest_rank = len(ranks)
    lowest_place = None
    for place, pair in enumerate(pairwise(symbols)):
        rank = ranks.get(pair)
        if rank is not None and (lowest_place is None or rank < lowest_rank):
            lowest_rank = rank
            lowest_place = place
    return lowest_place


def _append_merges(
    tokenizer: PreTrainedTokenizerBase, merges: list[Merge], new_tokens: int
) -> PreTrainedTokenizerBase:
    """Return the tokenizer with the first of the merges, which give `new_tokens` entries.

    Args:
        tokenizer: It is not changed.
        merges: Merges of symbols, as `_learn_merges` gives them.
        new_tokens: Most entries to add.
    """
    token_of_symbol = {}
    for token, token_id in tokenizer.get_vocab().items():
        token_of_symbol[chr(_FIRST_SYMBOL + token_id)] = token
    first_id = max(tokenizer.get_vocab().values()) + 1

    def append(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        stored_merges = content["model"]["merges"]
        known_merges = {tuple(merge) for merge in stored_merges}
        new_ids: dict[str, int] = {}
        for left, right in merges:
            left_token = "".join(token_of_symbol[symbol] for symbol in left)
            right_token = "".join(token_of_symbol[symbol] for symbol in right)
            joined = left_token + right_token
            # Two merges may give the same token.
            if joined not in vocabulary and joined not in new_ids:
                if len(new_ids) == new_tokens:
                    break
                new_ids[joined] = first_id + len(new_ids)
            if (left_token, right_token) not in known_merges:
                known_merges.add((left_token, right_token))
                stored_merges.append([left_token, right_token])
        vocabulary.update(new_ids)

    return edited(tokenizer, append)


def _extend_unigram(
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    new_tokens: int,
    old_texts: list[str],
    max_old_share: float,
    fewest_occurrences: int,
) -> PreTrainedTokenizerBase:
    """Return a Unigram tokenizer with entries of other texts; see `extend_tokenizer`."""
    if not texts:
        raise TmdeError("No text to extend the tokenizer on in any of the languages")
    known = tokenizer.get_vocab()
    # The old vocabulary may have as many of the pieces as it has entries.
    pieces = _learn_pieces(tokenizer, texts, len(known) + round(_SPARE_MERGES * new_tokens))
    candidates = [piece for piece in pieces if piece[0] not in known]
    # Without its characters, no text of another script could be read.
    candidates.sort(key=lambda piece: (len(piece[0]) > 1, -piece[1]))
    candidates = candidates[: round(_SPARE_MERGES * new_tokens)]
    extended = _with_pieces(tokenizer, candidates)
    counts = Counter(chain.from_iterable(row.ids for row in _encodings(extended, texts)))
    old_counts = Counter(chain.from_iterable(row.ids for row in _encodings(extended, old_texts)))
    chosen_pieces = []
    for token_id, piece in enumerate(candidates, len(known)):
        is_character = len(piece[0]) == 1
        is_of_old_texts = old_counts[token_id] > max_old_share * counts[token_id]
        is_frequent = counts[token_id] >= fewest_occurrences
        if is_character or (is_frequent and not is_of_old_texts):
            chosen_pieces.append(piece)
    return _with_pieces(tokenizer, chosen_pieces[:new_tokens])


def _learn_pieces(tokenizer: PreTrainedTokenizerBase, texts: list[str], size: int) -> list[Piece]:
    """Learn a Unigram vocabulary of texts, which are read as a tokenizer reads them."""
    backend = tokenizer.backend_tokenizer
    learner = Tokenizer(models.Unigram())
    learner.normalizer = backend.normalizer
    learner.pre_tokenizer = backend.pre_tokenizer
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    return [tuple(piece) for piece in json.loads(learner.to_str())["model"]["vocab"]]


def _with_pieces(
    tokenizer: PreTrainedTokenizerBase, pieces: list[Piece]
) -> PreTrainedTokenizerBase:
    """Return a Unigram tokenizer with more entries, and their scores."""

    def append(content: dict[str, Any]) -> None:
        content["model"]["vocab"] += [list(piece) for piece in pieces]

    return edited(tokenizer, append)


def unknown_share(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> float:
    """Return the share of the characters of texts that a tokenizer reads as its unknown token."""
    unknown = 0
    characters = 0
    for encoding in _encodings(tokenizer, texts):
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            characters += end - start
            if token_id == tokenizer.unk_token_id:
                unknown += end - start
    return unknown / max(characters, 1)


def edited(
    tokenizer: PreTrainedTokenizerBase, edit: Callable[[dict], None]
) -> PreTrainedTokenizerBase:
    """Return a copy of a tokenizer after `edit` has changed the content of its tokenizer.json."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        path = Path(folder, "tokenizer.json")
        content = json.loads(path.read_text(encoding="utf-8"))
        content["truncation"] = None  # The last call left it, as it left the padding.
        content["padding"] = None
        edit(content)
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        edited_tokenizer = AutoTokenizer.from_pretrained(folder)
    edited_tokenizer.name_or_path = tokenizer.name_or_path
    return edited_tokenizer


# ---- Cut


def cut_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    max_tokens: int | None = None,
    min_count: int = 1,
    keep: str = "",
    lowercase: bool = False,
) -> tuple[PreTrainedTokenizerBase, list[int]]:
    """Cut a Unigram (XLM-R) or WordPiece (BERT) vocabulary to the tokens of some texts.

    Special tokens, Latin letters and all characters of the texts stay, so that any text in these
    scripts has tokens. A text whose tokens are all kept has the same tokens as before, with new ids
    in the old order. Invisible characters, such as soft hyphens, are removed from texts.

    Args:
        tokenizer: It is not changed.
        texts: Texts of all languages to keep.
        max_tokens: Most entries to keep; of the tokens of the texts, the most frequent.
        min_count: Tokens that the texts have less often are left out.
        keep: A text whose tokens are kept in any case, such as a prompt.
        lowercase: Read texts in lower case. Of tokens that then are the same, one stays: the most
            probable in a Unigram vocabulary, the first in WordPiece.

    Returns:
        The new tokenizer, and the old id of each of its entries: `old_embeddings[kept_ids]` are its
        embeddings.

    Raises:
        TmdeError: The vocabulary is of another kind.
    """
    kind = _vocabulary_kind(tokenizer)
    if kind not in ("Unigram", "WordPiece"):
        raise TmdeError(
            f"{tokenizer.name_or_path}: its vocabulary of type {kind} can't be trimmed; "
            "expected Unigram (XLM-R) or WordPiece (BERT)"
        )
    if lowercase:
        tokenizer = edited(tokenizer, _lowercase)
    tokenizer = edited(tokenizer, remove_invisible)
    frequent_ids = _frequent_ids(tokenizer, texts, min_count)
    kept = _indispensable_ids(tokenizer, frequent_ids)
    kept.update(next(_encodings(tokenizer, [keep])).ids)
    room = len(frequent_ids) if max_tokens is None else max(0, max_tokens - len(kept))
    further_ids = [token_id for token_id in frequent_ids if token_id not in kept]
    kept.update(further_ids[:room])
    kept_ids = sorted(kept)

    def cut(content: dict[str, Any]) -> None:
        _cut_content(content, kept_ids)

    return edited(tokenizer, cut), kept_ids


def _vocabulary_kind(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the type of a vocabulary by its name in tokenizer.json, "slow" without that file."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return "slow"
    return json.loads(backend.to_str())["model"]["type"]


def _frequent_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], min_count: int
) -> list[int]:
    """Return the tokens that texts have at least `min_count` times, the most frequent first."""
    counts: Counter[int] = Counter()
    for encoding in _encodings(tokenizer, texts):
        counts.update(encoding.ids)
    return [token_id for token_id, count in counts.most_common() if count >= min_count]


def _indispensable_ids(tokenizer: PreTrainedTokenizerBase, frequent_ids: list[int]) -> set[int]:
    """Return the tokens without which the vocabulary or some text would not work.

    These are special tokens, bytes to fall back to, and single characters: Latin letters and those
    of the frequent tokens.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    names = {token_id: name for name, token_id in tokenizer.get_vocab().items()}
    characters = {chr(code_point) for code_point in range(_LATIN_END)}
    for token_id in frequent_ids:
        characters.update(names[token_id])
    kept = {token["id"] for token in content["added_tokens"]}
    for token_id, name in names.items():
        if name.removeprefix("##") in characters:
            kept.add(token_id)
    if content["model"]["type"] == "Unigram":
        kept.add(content["model"]["unk_id"])
        scores = [score for _, score in content["model"]["vocab"]]
        kept.add(scores.index(min(scores)))  # The lowest score decides that of <unk>.
        kept.update(token_id for token_id, name in names.items() if name.startswith("<0x"))
    return kept


def _cut_content(content: dict[str, Any], kept_ids: list[int]) -> None:
    """Cut the content of tokenizer.json to the kept tokens, whose ids become 0, 1, ..."""
    new_ids = {old_id: new_id for new_id, old_id in enumerate(kept_ids)}
    model = content["model"]
    vocabulary = model["vocab"]
    if model["type"] == "Unigram":
        model["unk_id"] = new_ids[model["unk_id"]]
        # Added tokens may have ids behind the vocabulary.
        model["vocab"] = [vocabulary[old_id] for old_id in kept_ids if old_id < len(vocabulary)]
    else:
        kept_tokens = [token for token, old_id in vocabulary.items() if old_id in new_ids]
        model["vocab"] = {token: new_ids[vocabulary[token]] for token in kept_tokens}
    for token in content["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    processor = content["post_processor"] or {}
    for part in [processor, *processor.get("processors", [])]:
        _renumber_processor(part, new_ids)


def _renumber_processor(processor: dict[str, Any], new_ids: Mapping[int, int]) -> None:
    """Give the special tokens of a post-processor their new ids."""
    for token in processor.get("special_tokens", {}).values():  # those of a template
        token["ids"] = [new_ids[old_id] for old_id in token["ids"]]
    for name in ("cls", "sep"):  # those of BERT and RoBERTa: a token and its id
        if name in processor:
            processor[name][1] = new_ids[processor[name][1]]


def _lowercase(content: dict[str, Any]) -> None:
    """Edit the content of tokenizer.json so that texts are read in lower case.

    Of the tokens that are the same in lower case, the best one gets the lowercase string. If
    another token has that string, it gets the string of the best one, which no text has any more.
    """
    model = content["model"]
    vocabulary = model["vocab"]
    tokens = _tokens_from_best_to_worst(model)
    special_tokens = {token["content"] for token in content["added_tokens"]}
    best_tokens: dict[str, str] = {}  # by their lowercase string
    for token in tokens:
        if special_tokens.isdisjoint((token, token.lower())):
            best_tokens.setdefault(token.lower(), token)
    known_tokens = set(tokens)
    new_strings = {token: lowercase for lowercase, token in best_tokens.items()}
    for lowercase, token in best_tokens.items():
        if lowercase in known_tokens:
            new_strings[lowercase] = token
    if model["type"] == "Unigram":
        model["vocab"] = [[new_strings.get(token, token), score] for token, score in vocabulary]
    else:
        model["vocab"] = {new_strings.get(token, token): i for token, i in vocabulary.items()}
    steps = [*_normalizer_steps(content), {"type": "Lowercase"}]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}


def _tokens_from_best_to_worst(model: Mapping[str, Any]) -> list[str]:
    """Return the tokens by score in a Unigram vocabulary, by id in WordPiece."""
    vocabulary = model["vocab"]
    if model["type"] == "Unigram":
        # `sorted` is stable: of tokens of the same score, the first one comes first.
        by_score = sorted(vocabulary, key=itemgetter(1), reverse=True)
        return [token for token, _ in by_score]
    return sorted(vocabulary, key=vocabulary.__getitem__)


# ---- Load


def load_tokenizer(name: str | os.PathLike, **loading: Any) -> PreTrainedTokenizerBase:
    """Load a tokenizer as `AutoTokenizer` does, with an error if its files are missing.

    Args:
        name: A folder or a Hub id.
        loading: Arguments of `AutoTokenizer.from_pretrained`.

    Raises:
        OSError: The repository or a file of it is missing.
        TmdeError: Its files are missing or damaged.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **loading)
        tokenizer.model_max_length = int(tokenizer.model_max_length)
    except OSError:
        raise
    except Exception as error:  # Without its files, anything from KeyError to a Rust error.
        raise TmdeError(
            f"{name}: its tokenizer can't be loaded; are its files missing? {error}"
        ) from error
    # If files are missing, transformers 5 makes up a tokenizer of special tokens; that of mBART has
    # a word mark as well.
    if len(tokenizer) <= len(tokenizer.all_special_ids) + 1:
        raise TmdeError(f"{name}: its tokenizer has only special tokens; are its files missing?")
    return tokenizer
