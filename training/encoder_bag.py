"""A bag of the token vectors of an encoder of the Hub, which knows words before training."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.common import pool_states
from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.tokenization import cut_tokenizer, edited, load_tokenizer
from tmde.data.delimited import Quoting
from tmde.data.io import write_atomically
from tmde.data.parallel import load_parallel
from tmde.data.tokens import TextEncoder, text_bounds
from tmde.embedding.document_embedder import check_token_outputs
from tmde.embedding.loading import local_or_hub
from tmde.embedding.progress import progress_bar
from tmde.hub_cards import describe_origins, describe_sources
from tmde.training.starts.hub_encoders import open_encoder, token_settings
from tmde.training.starts.tokenizers import texts_by_language
from tmde.training.starts.weights import fit_width

# The relative frequency at which a token has half the weight of a very rare one.
RARE = 1e-4
# The characters of each language that the vocabulary of an exported bag is made of.
_CHARACTERS = 15_000_000
BATCH_SIZE = 512  # Tokens, each of which is encoded as a text.
WORD = re.compile(r"[^\W\d_]{3,}")
WORD_START = "▁"  # In a Unigram vocabulary, tokens that begin a word have this prefix.


def export_bag(
    encoder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    train: str | Sequence[str],
    *,
    languages: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    quoting: Quoting | None = None,
    vocab_size: int = 44_000,
    whole_words: int = 8_000,
    width: int | None = None,
    lowercase: bool = True,
) -> BagModel:
    """Write a bag of an encoder's token vectors, as a checkpoint to train.

    ```python
    bag = export_bag("intfloat/multilingual-e5-small", "runs/e5-bag", "corpus/")
    ```

    Args:
        encoder: See `encoder_bag`.
        output: The folder to make.
        train: Parallel rows, as `load_parallel` reads them, whose tokens the bag has.
        languages: The languages of the rows; None for all.
        columns: See `load_parallel`.
        quoting: See `load_parallel`.
        vocab_size: See `encoder_bag`, as the others.
        whole_words: The number of entries that are frequent words.
        width: The numbers of a vector; None for those of the encoder.
        lowercase: Whether all text is read in lower case.

    Raises:
        TmdeError: The encoder or the rows cannot be used.
    """
    sources = [train] if isinstance(train, str) else list(train)
    rows = load_parallel(sources, languages, columns=columns, quoting=quoting)
    codes = list(languages or sorted(rows.features["translation"]))
    texts_of = texts_by_language(rows, codes, _CHARACTERS, seed=42)
    options: dict[str, Any] = {"languages": codes, "pivot_languages": []}
    if width is not None:
        options["d_model"] = width
    model, tokenizer = encoder_bag(
        encoder,
        itertools.chain.from_iterable(texts_of.values()),
        vocab_size=vocab_size,
        whole_words=whole_words,
        lowercase=lowercase,
        sublinear_counts=True,
        **options,
    )
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    # Cards of models that begin with the bag name the encoder and its license.
    record = {
        "sources": describe_sources(sources),
        **describe_origins({"warm_start": {"checkpoint": encoder}}),
    }
    write_atomically(Path(output) / "run.json", json.dumps(record, indent=2))
    return model


@torch.no_grad()
def encoder_bag(
    encoder: str | os.PathLike[str],
    texts: Iterable[str],
    *,
    vocab_size: int | None = None,
    whole_words: int = 0,
    lowercase: bool = False,
    **options: Any,
) -> tuple[BagModel, PreTrainedTokenizerBase]:
    """Return a bag of an encoder's token vectors, before any training, and its tokenizer.

    The tokenizer is the encoder's, cut to the tokens of the texts. Frequent words of which it makes
    several tokens become tokens. The vector of a token is the mean of the encoder's outputs for
    that token or word alone, between its special tokens; of these vectors the mean is removed. A
    bag that is as wide as the encoder so begins in its space; a narrower one has the leading
    principal directions. The weight of a token with the relative frequency f is `1e-4 / (1e-4 + f)`
    (Arora et al. 2017, smooth inverse frequency).

    Args:
        encoder: Folder or Hub id of an encoder whose tokenizer can be cut, see `cut_tokenizer`.
        texts: Texts in all languages of the bag.
        vocab_size: The number of entries of the vocabulary; None keeps all tokens of the texts.
        whole_words: The number of entries that are frequent words.
        lowercase: Read all text in lower case, see `cut_tokenizer`.
        options: Options of [`BagConfig`], such as `languages` and `sublinear_counts`. `d_model` is
            at most the encoder's width, which is its default.

    Raises:
        RecipeError: The encoder can't be opened.
        TmdeError: Its tokenizer can't be cut, `whole_words` does not fit, or it is narrower than
            the bag.
    """
    texts = list(texts)
    model = open_encoder(encoder)
    full_tokenizer = load_tokenizer(local_or_hub(encoder), trust_remote_code=False)
    cut_size = None
    if vocab_size is not None:
        cut_size = vocab_size - whole_words
    tokenizer, kept_ids = cut_tokenizer(full_tokenizer, texts, cut_size, lowercase=lowercase)
    if whole_words:
        _check_word_number(whole_words, vocab_size, tokenizer)
    if lowercase:
        texts = [text.lower() for text in texts]
    tokenizer, words = add_words(tokenizer, texts, whole_words)
    vectors = _token_vectors(model, full_tokenizer, kept_ids, words)  # (tokens, width)
    width = vectors.shape[1]
    options.setdefault("d_model", width)
    options.update(_special_ids(full_tokenizer, kept_ids))
    config = BagConfig(vocab_size=len(tokenizer), **options)
    if config.d_model > width:
        raise TmdeError(
            f"d_model={config.d_model}: expected at most {width}, the width of {encoder}"
        )
    bag = BagModel(config)
    vectors = fit_width(vectors - vectors.mean(dim=0), torch.zeros(len(vectors)), config.d_model)
    bag.embed_tokens.weight.copy_(vectors / vectors.norm(dim=1).mean())
    weights = _frequency_weights(tokenizer, texts)
    special = torch.tensor(config.special_token_ids)
    weights[special] = bag.token_weights[special]
    bag.token_weights.copy_(weights)
    return bag, tokenizer


def _check_word_number(number: int, size: int | None, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse words for which the vocabulary has no room, or whose ids other tokens have.

    Args:
        number: The number of words.
        size: The number of entries of the vocabulary, with the words.
        tokenizer: The tokenizer without the words. The ids of its added tokens follow those of the
            vocabulary.
    """
    outside = len(tokenizer) - tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=False)
    too_small = size is not None and size <= number
    if outside or too_small:
        raise TmdeError(
            f"whole_words={number}: found vocab_size={size} and {outside} tokens outside the "
            "encoder's vocabulary, expected a larger size and none"
        )


def _token_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    token_ids: Sequence[int],
    words: Sequence[str],
) -> torch.Tensor:
    """Return the mean output of an encoder for every token and every word alone.

    Returns:
        (tokens + words, width).
    """
    bos, eos, _ = text_bounds(tokenizer)
    pieces = [[token] for token in token_ids]
    for word in words:
        pieces.append(tokenizer(word, add_special_tokens=False)["input_ids"])
    vectors = []
    for start in progress_bar(range(0, len(pieces), BATCH_SIZE), desc="Token vectors"):
        batch = pieces[start : start + BATCH_SIZE]
        rows = [torch.tensor([bos, *tokens, eos]) for tokens in batch]
        input_ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        hidden = model(input_ids=input_ids, attention_mask=mask).last_hidden_state
        check_token_outputs(hidden, mask)
        vectors.append(pool_states(hidden.float(), mask, "mean"))  # (batch, width)
    return torch.cat(vectors)


def _special_ids(full: PreTrainedTokenizerBase, kept_ids: Sequence[int]) -> dict[str, int]:
    """Return the ids of the special tokens in the bag's vocabulary, by their names."""
    new_ids = {old: new for new, old in enumerate(kept_ids)}
    settings = token_settings(full)
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: new_ids[settings[name]] for name in names}


def _frequency_weights(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> torch.Tensor:
    """Return the logarithm of each token's weight by its frequency, (tokens,) float32."""
    ids = itertools.chain.from_iterable(TextEncoder(tokenizer)(texts))
    used = np.fromiter(ids, dtype=np.int64)
    counts = torch.from_numpy(np.bincount(used, minlength=len(tokenizer)))
    return torch.log(RARE / (RARE + counts / counts.sum())).float()


def add_words(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], number: int
) -> tuple[PreTrainedTokenizerBase, list[str]]:
    """Add the most frequent words of the texts that a tokenizer splits, as its last entries.

    In a Unigram vocabulary, the score of a word is the logarithm of its share of all words.

    Args:
        tokenizer: The tokenizer, which stays as it is.
        texts: The texts whose words are counted.
        number: The number of words to add.

    Returns:
        A tokenizer with the words, and the words in the order of their entries.
    """
    if not number:
        return tokenizer, []
    counts = Counter(itertools.chain.from_iterable(map(WORD.findall, texts)))
    words = _split_words(tokenizer, counts)[:number]
    if not words:
        return tokenizer, []

    def edit(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        if content["model"]["type"] == "Unigram":
            for word in words:
                score = math.log(counts[word] / counts.total())
                vocabulary.append([f"{WORD_START}{word}", score])
        else:
            vocabulary.update(zip(words, itertools.count(len(vocabulary))))

    return edited(tokenizer, edit), words


def _split_words(tokenizer: PreTrainedTokenizerBase, counts: Counter[str]) -> list[str]:
    """Return the words of which a tokenizer makes several tokens, the most frequent first."""
    if not counts:
        return []
    words = [word for word, _ in counts.most_common()]
    token_ids = tokenizer(words, add_special_tokens=False)["input_ids"]
    return [word for word, ids in zip(words, token_ids, strict=True) if len(ids) > 1]
