"""A bag of words as an embedding model: of word vectors of several languages in one space."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from modeling_tmde import TmdeError
from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.modeling_bag import SPECIAL_LOG_WEIGHT, BagModel
from modeling_tmde.tokenization import SPECIAL_TOKENS, wrapped
from tmde.documents.unit_rows import unit_vectors
from tmde.documents.word_files import WordVectors

SMALLEST_IDF = 1e-6  # the floor of an idf, because its logarithm is the weight


def word_bag(
    languages: Mapping[str, WordVectors], rows: Sequence[Mapping[str, str | None]] = ()
) -> tuple[BagModel, PreTrainedTokenizerFast]:
    """Return a bag of words of several languages, and its tokenizer.

    Each word has its vector, at length 1, and its idf as weight. A word of several languages has
    the mean of its vectors. A text is lowercased, and punctuation is split off; words without a
    vector are left out of it.

    Args:
        languages: The word vectors by the code of the language.
        rows: Parallel rows, for the idf: the logarithm of their number over that of the texts with
            the word, or over 1. Without rows, words have equal weights.

    Raises:
        TmdeError: The dimensions of the languages differ.
    """
    _check_dimensions(languages)
    vectors = _vectors_by_word(languages)
    words = [word for word in vectors if word not in SPECIAL_TOKENS]
    tokenizer = _tokenizer([*SPECIAL_TOKENS, *words])
    means = [np.mean(vectors[word], axis=0) for word in words]
    table = torch.from_numpy(np.stack(means))  # (words, d)
    config = BagConfig(
        vocab_size=len(SPECIAL_TOKENS) + len(words),
        d_model=table.shape[1],
        languages=list(languages),
        pivot_languages=list(languages),
    )
    model = BagModel(config)
    with torch.no_grad():
        model.embed_tokens.weight[: len(SPECIAL_TOKENS)] = table.mean(dim=0)
        model.embed_tokens.weight[len(SPECIAL_TOKENS) :] = table
        if rows:
            idf = _inverse_document_frequencies(tokenizer, rows, config.vocab_size)
            log_weights = np.log(np.maximum(idf, SMALLEST_IDF))
            model.token_weights.copy_(torch.from_numpy(log_weights))
        model.token_weights[: len(SPECIAL_TOKENS)] = SPECIAL_LOG_WEIGHT
    return model.eval(), tokenizer


def _check_dimensions(languages: Mapping[str, WordVectors]) -> None:
    dimensions = {code: words.vectors.shape[1] for code, words in languages.items()}
    if len(set(dimensions.values())) > 1:
        raise TmdeError(
            f"Found word vectors of different dimensions, {dimensions}, expected equal ones. "
            "Align each language with the same target"
        )


def _vectors_by_word(languages: Mapping[str, WordVectors]) -> dict[str, list[np.ndarray]]:
    """Return the unit vectors that each word has in the languages."""
    vectors: dict[str, list[np.ndarray]] = defaultdict(list)
    for words in languages.values():
        for word, vector in zip(words.words, unit_vectors(words.vectors), strict=True):
            vectors[word].append(vector)
    return vectors


def _tokenizer(names: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer of words, numbered in this order."""
    vocabulary = {name: number for number, name in enumerate(names)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    punctuation = Regex(r"[\p{P}\p{S}]")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(punctuation, "isolated")]
    )
    return wrapped(backend)


def _inverse_document_frequencies(
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Mapping[str, str | None]],
    vocabulary_size: int,
) -> np.ndarray:
    """Return the idf of each token in parallel rows, (vocabulary,)."""
    texts = []
    for row in rows:
        texts += [text for text in row.values() if text]
    counts: Counter[int] = Counter()
    for ids in tokenizer(texts, verbose=False)["input_ids"]:
        counts.update(set(ids))
    texts_with_token = np.ones(vocabulary_size)
    texts_with_token[list(counts)] = list(counts.values())
    return np.log(np.maximum(len(rows) / texts_with_token, 1))
