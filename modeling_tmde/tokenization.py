"""Training the byte-level BPE tokenizer that all languages share."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

# Their ids are their positions, and the defaults of the configs. `<s>` is the thesis's STR_TAG (section 4.2.1).
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

# Words with their combining marks, numbers up to three digits, runs of symbols, spaces: no merge crosses these.
WORDS = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+")


def balanced_texts(texts: Mapping[str, Iterable[str]], max_characters: int) -> Iterator[str]:
    """Yields the same amount of text for every language, so that each gets its share of the vocabulary.

    Takes up to `max_characters` of each language and repeats the smaller languages until all are as large as the
    largest. A language without any text is left out.
    """
    collected: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for language, stream in texts.items():
        collected[language], sizes[language] = [], 0
        for text in stream:
            if sizes[language] >= max_characters:
                break
            collected[language].append(text)
            sizes[language] += len(text)
    target = max(sizes.values(), default=0)
    for language, stored in collected.items():
        taken = 0
        for text in cycle(stored) if sizes[language] else ():
            if taken >= target:
                break
            yield text
            taken += len(text)


def train_tokenizer(
    texts: Mapping[str, Iterable[str]],
    vocab_size: int = 50000,
    max_characters: int = 20_000_000,
    model_max_length: int = 2048,
    show_progress: bool = False,
    lowercase: bool = False,
    add_prefix_space: bool = False,
) -> PreTrainedTokenizerFast:
    """Trains one byte-level BPE vocabulary over all languages, balanced by language (thesis 4.3.1: 50k for five).

    Every text survives a round trip, whatever its script: rare characters fall back to bytes, nothing is normalised
    (but with `lowercase`), and a literal `<s>` in a text is text. The post-processor makes `<s> tokens </s>`.

    Args:
        texts: Texts of each language.
        vocab_size: Entries, special tokens and the 256 bytes counted.
        max_characters: Most characters read of one language.
        model_max_length: Longest input of the model, stored with the tokenizer.
        lowercase: Put every text in lower case first: words get one entry, not one for each way to write them, and a
            text comes back from its tokens in lower case.
        add_prefix_space: Begin every text with a space, which decoding takes away again: its first word gets the same
            tokens as within a text, where words are stored with the space before them.

    Returns:
        A tokenizer that `save_pretrained` writes and `AutoTokenizer` opens, with no class of this package.

    Raises:
        ValueError: If the vocabulary cannot hold the bytes, or there is no text.
    """
    smallest = len(SPECIAL_TOKENS) + 256
    if vocab_size < smallest:
        raise ValueError(f"vocab_size={vocab_size} is too small: the special tokens and bytes alone are {smallest}")
    stream = balanced_texts(texts, max_characters)
    first = next(stream, None)
    if first is None:
        raise ValueError(f"No text to train a tokenizer on in any of the languages {list(texts)}")
    tokenizer = Tokenizer(models.BPE())
    steps = [normalizers.Lowercase()] * lowercase + [normalizers.Prepend(" ")] * add_prefix_space
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if add_prefix_space:
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=show_progress,
    )

    def all_texts() -> Iterator[str]:
        yield first
        yield from stream

    tokenizer.train_from_iterator(all_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B </s>",
        special_tokens=[("<s>", SPECIAL_TOKENS.index("<s>")), ("</s>", SPECIAL_TOKENS.index("</s>"))],
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
        split_special_tokens=True,
    )
