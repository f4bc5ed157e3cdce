"""More tokens for a byte-level BPE tokenizer, learned on languages that it was not trained on."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .tokenization import balanced_texts

FIRST_SYMBOL = 0xF0000  # of the supplementary private use planes: a character for each token of a vocabulary
MOST_SYMBOLS = 0x10FFFD - FIRST_SYMBOL
SPARE = 1.5  # merges that are learned for each that is asked for: some fire in old texts too
BATCH = 1000  # texts encoded at once

Word = tuple[int, ...]  # ids of a pre-token
Merge = tuple[str, str]


@dataclass(frozen=True)
class TokenizerExtension:
    """
    tokenizer: The extended one.
    new_tokens: Entries that the vocabulary gained.
    left_out: Merges that were learned and left out, since texts of the old languages would have used them.
    """

    tokenizer: PreTrainedTokenizerBase
    new_tokens: int
    left_out: int


def is_byte_level_bpe(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer is of the kind that `extend_tokenizer` takes, as those that this package trains are."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    parts = json.loads(backend.to_str())
    model, decoder = parts["model"], parts["decoder"] or {}
    marks = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    decoders = {item["type"] for item in [decoder, *decoder.get("decoders", [])] if "type" in item}
    return model["type"] == "BPE" and not marks and "ByteLevel" in decoders


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, Iterable[str]],
    new_tokens: int,
    old_texts: Mapping[str, Iterable[str]] | None = None,
    max_old_share: float = 0.03,
    max_characters: int = 5_000_000,
) -> TokenizerExtension:
    """Goes on with the training of a byte-level BPE tokenizer where it ended, on texts of other languages.

    New entries and merges stand after the old ones. So every old token keeps its id, and in any text the old merges
    come first; then new ones join what is left. They are learned on the words that `old_texts` lack, and one that
    fires there more than `max_old_share` times as often as in `texts` is left out with all that build on it.
    Normaliser, pre-tokeniser, special tokens and all other settings stay.

    Args:
        tokenizer: As `train_tokenizer` makes it; it is not changed.
        texts: Texts of each new language, balanced as `train_tokenizer` does.
        new_tokens: Entries to add; fewer, if the texts have no more words that repeat.
        old_texts: Texts of each language that the tokenizer knows, whose tokens should stay.
        max_old_share: 0 leaves out every merge that fires in `old_texts`, infinity none.
        max_characters: Most characters read of one language.

    Returns:
        A tokenizer that `save_pretrained` writes and `AutoTokenizer` opens, and the counts.

    Raises:
        ValueError: It is no byte-level BPE tokenizer, its vocabulary is too large, or there is no text.
    """
    if not is_byte_level_bpe(tokenizer):
        raise ValueError(
            f"The tokenizer {tokenizer.name_or_path!r} is a {type(tokenizer).__name__} that is not byte-level BPE, "
            "expected one as this package trains them: only these can be extended"
        )
    if new_tokens < 1:
        raise ValueError(f"new_tokens={new_tokens} must be at least 1")
    if max(tokenizer.get_vocab().values()) > MOST_SYMBOLS:
        raise ValueError(f"The vocabulary of {len(tokenizer):,} is too large, expected at most {MOST_SYMBOLS:,}")
    known = _count_words(tokenizer, balanced_texts(old_texts or {}, max_characters))
    words = _count_words(tokenizer, balanced_texts(texts, max_characters))
    if not words:
        raise ValueError(f"No text to extend the tokenizer on in any of the languages {list(texts)}")
    unknown = Counter({word: count for word, count in words.items() if len(word) > 1 and word not in known})
    learned = _learn_merges(unknown, round(SPARE * new_tokens))
    kept = _without_old(learned, words, known, max_old_share)
    extended, added = _append(tokenizer, kept, new_tokens)
    return TokenizerExtension(extended, added, len(learned) - len(kept))


def tokens_per_word(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> float:
    """Fertility: tokens, special ones left out, for each whitespace-separated word; 0 without words."""
    tokens = words = 0
    for batch, encodings in _encoded(tokenizer, texts):
        tokens += sum(len(encoding.ids) for encoding in encodings)
        words += sum(len(text.split()) for text in batch)
    return tokens / words if words else 0.0


def share_of_changed_texts(
    old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, texts: Iterable[str]
) -> tuple[float, float]:
    """How much of some texts two tokenizers read differently.

    Returns:
        The share of texts whose ids are not the same, and the share of the new tokens whose id the old one lacks.
    """
    known = set(old.get_vocab().values())
    count = changed = tokens = novel = 0
    texts = list(texts)
    for (_, before), (_, after) in zip(_encoded(old, texts), _encoded(new, texts), strict=True):
        for one, other in zip(before, after, strict=True):
            count += 1
            tokens += len(other.ids)
            if one.ids != other.ids:
                changed += 1
                novel += sum(token not in known for token in other.ids)
    return changed / max(count, 1), novel / max(tokens, 1)


def _encoded(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Iterator[tuple[list[str], list]]:
    """Batches of texts with their encodings without special tokens; a literal `<s>` is text, and nothing is cut."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # a copy, whose settings are ours
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    texts = iter(texts)
    while batch := list(islice(texts, BATCH)):
        yield batch, backend.encode_batch(batch, add_special_tokens=False)


def _count_words(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Counter[Word]:
    """The pre-tokens of texts as the tokens that they are now."""
    counts: Counter[Word] = Counter()
    for _, encodings in _encoded(tokenizer, texts):
        for encoding in encodings:
            pairs = zip(encoding.word_ids, encoding.ids, strict=True)
            counts.update(tuple(token for _, token in word) for _, word in groupby(pairs, key=lambda pair: pair[0]))
    return counts


def _symbols(word: Word) -> list[str]:
    return [chr(FIRST_SYMBOL + token) for token in word]


def _learn_merges(words: Counter[Word], number: int) -> list[Merge]:
    """BPE over words whose smallest parts are tokens, each a character of its own, so that the trainer of the
    `tokenizers` library can do it."""
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
    """How often each merge joins two symbols in the words, where the first merges come first."""
    ranks = {merge: rank for rank, merge in reversed(list(enumerate(merges)))}
    counts: Counter[Merge] = Counter()
    for word, count in words.items():
        symbols = _symbols(word)
        while found := [
            (ranks[pair], place) for place, pair in enumerate(zip(symbols, symbols[1:], strict=False)) if pair in ranks
        ]:
            rank, place = min(found)
            counts[merges[rank]] += count
            symbols[place : place + 2] = ["".join(merges[rank])]
    return counts


def _without_old(
    merges: list[Merge], new_words: Counter[Word], old_words: Counter[Word], max_old_share: float
) -> list[Merge]:
    """The merges that hardly fire in old words, and build on no other."""
    new, old = _count_firing(merges, new_words), _count_firing(merges, old_words)
    gone: set[str] = set()
    kept = []
    for merge in merges:
        if (old[merge] and old[merge] > max_old_share * new[merge]) or not gone.isdisjoint(merge):
            gone.add("".join(merge))
        else:
            kept.append(merge)
    return kept


def _append(
    tokenizer: PreTrainedTokenizerBase, merges: list[Merge], new_tokens: int
) -> tuple[PreTrainedTokenizerBase, int]:
    """The tokenizer with the first merges that give so many entries, and how many they gave."""
    names = {chr(FIRST_SYMBOL + id): token for token, id in tokenizer.get_vocab().items()}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)  # opened again, it has all its settings
        path = Path(folder, "tokenizer.json")
        content = json.loads(path.read_text(encoding="utf-8"))
        content["truncation"] = content["padding"] = None  # which the last call may have left
        vocabulary, ranked = content["model"]["vocab"], content["model"]["merges"]
        known, last, added = {tuple(merge) for merge in ranked}, max(tokenizer.get_vocab().values()), 0
        for merge in merges:
            parts = tuple("".join(names[symbol] for symbol in part) for part in merge)
            if (joined := "".join(parts)) not in vocabulary:  # two ways may lead to one token
                if added == new_tokens:
                    break
                added += 1
                vocabulary[joined] = last + added
            if parts not in known:
                known.add(parts)
                ranked.append(list(parts))
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        extended = AutoTokenizer.from_pretrained(folder)
    extended.name_or_path = tokenizer.name_or_path
    return extended, added


__all__ = ["TokenizerExtension", "extend_tokenizer", "is_byte_level_bpe", "share_of_changed_texts", "tokens_per_word"]
