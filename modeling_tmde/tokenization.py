# SPDX-License-Identifier: Apache-2.0

"""The byte-level BPE tokenizer that all languages share: train it, extend it; and any tokenizer: cut, load, run it."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, cycle, groupby, islice
from pathlib import Path

from tokenizers import (
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

# Their ids are their positions, and the defaults of the configs. `<s>` is the thesis's STR_TAG (section 4.2.1).
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

# Words with their combining marks, numbers up to three digits, runs of symbols, spaces: no merge crosses these.
WORDS = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+")

_FIRST_SYMBOL = (
    0xF0000  # of the supplementary private use planes: one character for each token of a vocabulary
)
_SPARE = 1.5  # merges learned for each one asked for: some of them fire in texts of the old languages too
_LATIN_END = 0x250  # the first code point after the Latin letters
_LONG = re.compile(r"(\S{1000})|\s{1000,}")
_CHUNK = 2048  # texts tokenized at once: enough for the tokenizer's threads, little memory

Word = tuple[int, ...]  # token ids of a pre-token
Merge = tuple[str, str]


def balanced_texts(texts: Mapping[str, Iterable[str]], max_characters: int) -> Iterator[str]:
    """Yields the same amount of text for every language, so that each gets its share of the vocabulary.

    Takes up to `max_characters` of each language and repeats the smaller languages until all are as large as the
    largest. A language without any text is left out. More than 1,000 characters without a space are split, as many
    spaces become one: the time that training takes grows with the square of the longest word.
    """
    collected = [list(_until(stream, max_characters)) for stream in texts.values()]
    target = max((sum(map(len, stored)) for stored in collected), default=0)
    for stored in filter(any, collected):
        yield from (_LONG.sub(r"\1 ", text) for text in _until(cycle(stored), target))


def _until(texts: Iterable[str], characters: int) -> Iterator[str]:
    """Texts until they have so many characters together."""
    size = 0
    for text in texts:
        if size >= characters:
            break
        yield text
        size += len(text)


def train_tokenizer(
    texts: Mapping[str, Iterable[str]],
    vocab_size: int = 50000,
    max_characters: int = 20_000_000,
    model_max_length: int = 2048,
    lowercase: bool = False,
    add_prefix_space: bool = False,
) -> PreTrainedTokenizerFast:
    """Trains one byte-level BPE vocabulary over all languages, balanced by language (thesis 4.3.1: 50k for five).

    Every text survives a round trip, whatever its script: rare characters fall back to bytes, nothing is normalized
    (except by `lowercase`), and a literal `<s>` in a text is text. The post-processor makes `<s> tokens </s>`.

    Args:
        texts: Texts of each language.
        vocab_size: Entries, including the special tokens and the 256 bytes.
        max_characters: Most characters read of one language.
        model_max_length: Longest input of the model, stored with the tokenizer.
        lowercase: Lowercase every text first. Decoding then gives lowercase text.
        add_prefix_space: Begin every text with a space, which decoding removes: the first word gets the same tokens
            as within a text, where words are stored with the space before them.

    Returns:
        A tokenizer that `save_pretrained` writes and `AutoTokenizer` opens, with no class of this package.

    Raises:
        ValueError: The vocabulary cannot hold the bytes, or there is no text.
    """
    smallest = len(SPECIAL_TOKENS) + 256
    if vocab_size < smallest:
        raise TmdeError(
            f"vocab_size={vocab_size} is too small: the special tokens and bytes alone are {smallest}"
        )
    stream = balanced_texts(texts, max_characters)
    first = next(stream, None)
    if first is None:
        raise TmdeError(f"No text to train a tokenizer on in any of the languages {list(texts)}")
    tokenizer = Tokenizer(models.BPE())
    steps = [normalizers.Lowercase()] * lowercase + [normalizers.Prepend(" ")] * add_prefix_space
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if add_prefix_space:
        tokenizer.decoder = decoders.Sequence(
            [decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)]
        )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain([first], stream), trainer)
    return wrapped(tokenizer, model_max_length)


def wrapped(tokenizer: Tokenizer, model_max_length: int = 2048) -> PreTrainedTokenizerFast:
    """A tokenizer whose first ids are `SPECIAL_TOKENS`, as transformers opens it; a text becomes `<s> tokens </s>`."""
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


def is_byte_level_bpe(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether `extend_tokenizer` takes this tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    parts = json.loads(backend.to_str())
    model, decoder = parts["model"], parts["decoder"] or {}
    marks = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    kinds = {item.get("type") for item in [decoder, *decoder.get("decoders", [])]}
    return model["type"] == "BPE" and not marks and "ByteLevel" in kinds


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, Iterable[str]],
    new_tokens: int,
    old_texts: Mapping[str, Iterable[str]] | None = None,
    max_old_share: float = 0.03,
    max_characters: int = 5_000_000,
) -> PreTrainedTokenizerBase:
    """Continues the training of a byte-level BPE tokenizer on texts of other languages.

    New entries and merges stand after the old ones: every old token keeps its id, and the old merges come first in
    any text. The new merges are learned on words that `old_texts` lack. A merge that fires there more than
    `max_old_share` times as often as in `texts` is left out, with all that build on it. The normalizer, the
    pre-tokenizer, the special tokens and all other settings stay.

    Args:
        tokenizer: A byte-level BPE, as `train_tokenizer` makes it; it is not changed.
        texts: Texts of each new language, balanced as in `train_tokenizer`.
        new_tokens: Entries to add; fewer, if the texts have no more words that repeat.
        old_texts: Texts of each language that the tokenizer knows, whose tokens should stay.
        max_old_share: 0 leaves out every merge that fires in `old_texts`, infinity none.
        max_characters: Most characters read of one language.

    Returns:
        A tokenizer that `save_pretrained` writes and `AutoTokenizer` opens.

    Raises:
        ValueError: There is no text.
    """
    old_words = _count_words(tokenizer, balanced_texts(old_texts or {}, max_characters))
    words = _count_words(tokenizer, balanced_texts(texts, max_characters))
    if not words:
        raise TmdeError(f"No text to extend the tokenizer on in any of the languages {list(texts)}")
    unknown = {
        word: count for word, count in words.items() if len(word) > 1 and word not in old_words
    }
    learned = _learn_merges(unknown, round(_SPARE * new_tokens))
    firing, old_firing = _count_firing(learned, words), _count_firing(learned, old_words)
    dropped: set[str] = set()
    kept = []
    for merge in learned:
        used_before = old_firing[merge] and old_firing[merge] > max_old_share * firing[merge]
        if used_before or not dropped.isdisjoint(merge):
            dropped.add("".join(merge))
        else:
            kept.append(merge)
    return _append_merges(tokenizer, kept, new_tokens)


def _encodings(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Iterator:
    """Encodings without special tokens; a literal `<s>` is text, and nothing is truncated."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    texts = iter(texts)
    while batch := list(islice(texts, _CHUNK)):
        yield from backend.encode_batch(batch, add_special_tokens=False)


def _count_words(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Counter[Word]:
    """Counts the pre-tokens of texts, each as the tokens that it has now."""
    counts: Counter[Word] = Counter()
    for encoding in _encodings(tokenizer, texts):
        pairs = zip(encoding.word_ids, encoding.ids, strict=True)
        counts.update(
            tuple(token for _, token in word)
            for _, word in groupby(pairs, key=lambda pair: pair[0])
        )
    return counts


def _symbols(word: Word) -> list[str]:
    return [chr(_FIRST_SYMBOL + token) for token in word]


def _learn_merges(words: Mapping[Word, int], number: int) -> list[Merge]:
    """Learns BPE merges of tokens: each token is one character, so that the `tokenizers` library can train on them."""
    alphabet = sorted({symbol for word in words for symbol in _symbols(word)})
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + number,
        min_frequency=2,
        special_tokens=[],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    repeated = (" ".join(["".join(_symbols(word))] * count) for word, count in words.items())
    learner.train_from_iterator(repeated, trainer)
    return [tuple(merge) for merge in json.loads(learner.to_str())["model"]["merges"]]


def _count_firing(merges: list[Merge], words: Counter[Word]) -> Counter[Merge]:
    """How often each merge joins two symbols in the words; earlier merges come first."""
    ranks = {merge: rank for rank, merge in reversed(list(enumerate(merges)))}
    counts: Counter[Merge] = Counter()
    for word, count in words.items():
        symbols = _symbols(word)
        while found := [
            (ranks[pair], place)
            for place, pair in enumerate(zip(symbols, symbols[1:], strict=False))
            if pair in ranks
        ]:
            rank, place = min(found)
            counts[merges[rank]] += count
            symbols[place : place + 2] = ["".join(merges[rank])]
    return counts


def _append_merges(
    tokenizer: PreTrainedTokenizerBase, found: list[Merge], new_tokens: int
) -> PreTrainedTokenizerBase:
    """The tokenizer with the first of the found merges, which give `new_tokens` entries."""
    names = {chr(_FIRST_SYMBOL + id): token for token, id in tokenizer.get_vocab().items()}

    def edit(content: dict) -> None:
        vocabulary, ranked = content["model"]["vocab"], content["model"]["merges"]
        known, first = {tuple(merge) for merge in ranked}, max(tokenizer.get_vocab().values()) + 1
        new: dict[str, int] = {}
        for merge in found:
            parts = tuple("".join(names[symbol] for symbol in part) for part in merge)
            joined = "".join(parts)
            if joined not in vocabulary and joined not in new:  # two merges may give the same token
                if len(new) == new_tokens:
                    break
                new[joined] = first + len(new)
            if parts not in known:
                known.add(parts)
                ranked.append(list(parts))
        vocabulary |= new

    return edited(tokenizer, edit)


def edited(
    tokenizer: PreTrainedTokenizerBase, edit: Callable[[dict], None]
) -> PreTrainedTokenizerBase:
    """A copy of a tokenizer after `edit` has changed the content of its tokenizer.json."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        path = Path(folder, "tokenizer.json")
        content = json.loads(path.read_text(encoding="utf-8"))
        content["truncation"] = content["padding"] = None  # left by the last call
        edit(content)
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        edited = AutoTokenizer.from_pretrained(folder)
    edited.name_or_path = tokenizer.name_or_path
    return edited


def _lowercase(content: dict) -> None:
    """Reads texts in lower case. A token takes the lowercase name, and one that had it a name that no text has now."""
    vocab, unigram = content["model"]["vocab"], content["model"]["type"] == "Unigram"
    ranks = (
        {token: (-score, id) for id, (token, score) in enumerate(vocab)} if unigram else dict(vocab)
    )
    special = {token["content"] for token in content["added_tokens"]}
    best: dict[str, str] = {}  # by lowercase name
    for token in sorted(ranks, key=ranks.__getitem__):
        if not special & {token, token.lower()}:
            best.setdefault(token.lower(), token)
    renamed = {token: name for name, token in best.items()}
    renamed |= {name: token for name, token in best.items() if name in ranks}
    if unigram:
        content["model"]["vocab"] = [[renamed.get(token, token), score] for token, score in vocab]
    else:
        content["model"]["vocab"] = {renamed.get(token, token): id for token, id in vocab.items()}
    known = [content["normalizer"]] if content["normalizer"] else []
    content["normalizer"] = {"type": "Sequence", "normalizers": [*known, {"type": "Lowercase"}]}


def cut_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    max_tokens: int | None = None,
    min_count: int = 1,
    keep: str = "",
    lowercase: bool = False,
) -> tuple[PreTrainedTokenizerBase, list[int]]:
    """Cuts a Unigram (XLM-R) or WordPiece (BERT) vocabulary to the tokens of some texts.

    Special tokens, Latin letters and all characters of the texts stay, so that any text in these scripts has tokens.
    A text whose tokens are all kept has the same tokens as before, with new ids in the old order.

    Args:
        tokenizer: It is not changed.
        texts: Texts of all languages to keep.
        max_tokens: Most entries to keep; of the tokens of the texts, the most frequent.
        min_count: Tokens that the texts have less often are left out.
        keep: A text whose tokens are kept in any case, such as a prompt.
        lowercase: Texts are read in lower case. Of tokens that then are the same, one stays: the most probable in a
            Unigram vocabulary, the first in WordPiece.

    Returns:
        The new tokenizer, and the old id of each of its entries: `old_embeddings[kept_ids]` are its embeddings.

    Raises:
        ValueError: The vocabulary is of another kind.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = json.loads(backend.to_str()) if backend is not None else {"model": {"type": "slow"}}
    kind = content["model"]["type"]
    if kind not in ("Unigram", "WordPiece"):
        raise TmdeError(
            f"{tokenizer.name_or_path}: its vocabulary, of type {kind}, cannot be cut; expected Unigram (XLM-R) or "
            "WordPiece (BERT): the merges of a BPE build on one another"
        )
    if lowercase:
        tokenizer = edited(tokenizer, _lowercase)
        content = json.loads(tokenizer.backend_tokenizer.to_str())
    names = {id: name for name, id in tokenizer.get_vocab().items()}
    counts: Counter[int] = Counter()
    for encoding in _encodings(tokenizer, texts):
        counts.update(encoding.ids)
    frequent = [id for id, count in counts.most_common() if count >= min_count]
    characters = {character for id in frequent for character in names[id]}
    characters.update(map(chr, range(_LATIN_END)))
    kept = {token["id"] for token in content["added_tokens"]} | set(
        next(_encodings(tokenizer, [keep])).ids
    )
    if kind == "Unigram":
        scores = [score for _, score in content["model"]["vocab"]]
        kept |= {
            content["model"]["unk_id"],
            scores.index(min(scores)),
        }  # the lowest sets the score of <unk>
        kept.update(
            id for id, name in names.items() if name.startswith("<0x")
        )  # bytes, if it falls back to them
    kept.update(id for id, name in names.items() if name.removeprefix("##") in characters)
    room = len(frequent) if max_tokens is None else max(0, max_tokens - len(kept))
    kept.update([id for id in frequent if id not in kept][:room])
    kept_ids = sorted(kept)
    new_ids = {old: new for new, old in enumerate(kept_ids)}

    def edit(content: dict) -> None:
        model, added = content["model"], content["added_tokens"]
        if kind == "Unigram":
            model["unk_id"] = new_ids[model["unk_id"]]
            model["vocab"] = [model["vocab"][id] for id in kept_ids if id < len(model["vocab"])]
        else:
            model["vocab"] = {
                token: new_ids[id] for token, id in model["vocab"].items() if id in new_ids
            }
        content["added_tokens"] = [token | {"id": new_ids[token["id"]]} for token in added]
        processor = content["post_processor"] or {}
        for part in [processor, *processor.get("processors", [])]:
            for token in part.get("special_tokens", {}).values():  # of a template
                token["ids"] = [new_ids[id] for id in token["ids"]]
            for name in {"cls", "sep"} & part.keys():  # of BERT's and RoBERTa's
                part[name][1] = new_ids[part[name][1]]

    return edited(tokenizer, edit), kept_ids


def load_tokenizer(name: str | os.PathLike, **loading) -> PreTrainedTokenizerBase:
    """`AutoTokenizer.from_pretrained`, with an error where the tokenizer's files are missing.

    Raises:
        OSError, ValueError: Its files are missing or damaged.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **loading)
        tokenizer.model_max_length = int(tokenizer.model_max_length)
    except OSError:
        raise
    except Exception as error:  # without its files, anything from KeyError to a Rust error
        raise TmdeError(
            f"{name}: its tokenizer cannot be loaded; are its files there? {error}"
        ) from error
    # Where files are missing, transformers 5 makes up a tokenizer of special tokens; mBART's has a word mark as well.
    if len(tokenizer) <= len(tokenizer.all_special_ids) + 1:
        raise TmdeError(
            f"{name}: its tokenizer has a vocabulary of special tokens alone; are its files there?"
        )
    return tokenizer
