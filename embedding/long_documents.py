"""Documents longer than an input of the model, which are split, embedded and aggregated.

They are split into windows or sentences, whose vectors become one. Yu et al. (2018), table 5,
compare such splits (by punctuation, by a fixed number of words) and aggregations (mean, maximum);
the density weights are those of LAWDR (Gong et al., 2021), eq. 3.

    from tmde.embedding import DocumentEmbedder

    embedder = DocumentEmbedder.from_pretrained("path/to/checkpoint", long_documents="sentences")
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.sentences import split_at_punctuation, split_sentences, word_windows
from tmde.embedding.text_tokenizer import TextTokenizer, TokenizedTexts, private_copy

MODES = ("truncate", "chunk", "sentences", "punctuation", "words")
AGGREGATIONS = ("mean", "max")

WINDOW_WORDS = 128  # Of Yu et al. (2018); the stride is half of it

# The vectors of so many pieces are in memory at once, and no more than of so many tokens.
_BLOCK_PIECES = 4096
_BLOCK_TOKENS = 2**20


@dataclass
class SplitDocuments:
    """Tokenized documents, some of which are split into sentences or windows of words.

    Attributes:
        full_lengths: The number of tokens of each document, (documents,).
        segments: The token ids of each document: of its parts if it was split, else of the whole.
        language_ids: The language of each document, (documents,) int64, for a model that needs it.
    """

    full_lengths: np.ndarray
    segments: list[list[np.ndarray]]
    language_ids: torch.Tensor | None = None


@dataclass(frozen=True)
class EmbeddedDocuments:
    """The vectors of documents, and what the model read for them.

    Attributes:
        vectors: (documents, d) float32.
        piece_counts: The number of inputs of the model that each document became, (documents,).
        num_tokens: The number of tokens of all pieces.
    """

    vectors: torch.Tensor
    piece_counts: np.ndarray
    num_tokens: int


class LongDocuments:
    """Split documents into pieces and aggregate their vectors.

    Args:
        tokenize: The tokenizer of the model, with its prompt and its longest input.
        mode: `"chunk"`, `"sentences"`, `"punctuation"` or `"words"`.
        window: See `DocumentEmbedder`.
        stride: See `DocumentEmbedder`.
        aggregation: See `DocumentEmbedder`.

    Raises:
        TmdeError: The mode or the aggregation is unknown, or a number leaves no room for text or
            leaves text out.
    """

    def __init__(
        self,
        tokenize: TextTokenizer,
        mode: str,
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike[str] | SentenceDensity = "mean",
    ) -> None:
        if mode not in MODES[1:]:
            raise TmdeError(f"long_documents: found {mode!r}, expected one of {MODES}")
        self.mode = mode
        self.prompt = tokenize.prompt
        self.aggregation = load_aggregation(aggregation)
        tokenizer = tokenize.tokenizer
        self._tokenize = TextTokenizer(tokenizer, NO_LIMIT, tokenize.empty_id, tokenize.prompt)
        self._affixes = _count_affixes(tokenizer, tokenize.prompt)
        self.window = self._checked_window(window, tokenize.max_length)
        self.piece_length = self.window if mode == "chunk" else tokenize.max_length
        self._content_length = self.piece_length - self._affixes.total
        self.stride = self._checked_stride(stride)
        # Of a window of words that is longer than the longest input of the model.
        self._token_stride = self._half(self._content_length) if mode == "words" else self.stride

    def _checked_window(self, window: int | None, max_length: int) -> int:
        """Return the window in tokens, by default the longest input of the model, or in words."""
        if self.mode == "words":
            num_words = WINDOW_WORDS if window is None else window
            if num_words < 1:
                raise TmdeError(f"window: found {window} words, expected at least 1")
            return num_words
        least = self._affixes.total + 1 if self.mode == "chunk" else 1
        length = max_length if window is None else window
        if not least <= length <= max_length:
            raise TmdeError(
                f"window: found {window} tokens, expected {least} to {max_length:,}, the longest "
                "input of the model"
            )
        return length

    def _checked_stride(self, stride: int | None) -> int:
        """Return the stride, by default half of the text in a window."""
        longest = self.window if self.mode == "words" else self._content_length
        unit = "words" if self.mode == "words" else "tokens"
        if stride is None:
            stride = self._half(longest)
        if not 1 <= stride <= longest:
            raise TmdeError(
                f"stride: found {stride} {unit}, expected 1 to {longest:,}, the {unit} of "
                "text in a window, so that windows leave no gaps"
            )
        return stride

    @staticmethod
    def _half(length: int) -> int:
        return max(1, length // 2)

    def describe(self) -> dict[str, str | int]:
        """Return all settings that a vector depends on; a density is named by its contents."""
        settings: dict[str, str | int] = {"long_documents": self.mode, "window": self.window}
        if self.mode == "words" or self.piece_length < NO_LIMIT:
            settings["stride"] = self.stride
        if isinstance(self.aggregation, SentenceDensity):
            settings["aggregation"] = f"density {self.aggregation.fingerprint()}"
        else:
            settings["aggregation"] = self.aggregation
        return settings

    def split(self, texts: list[str], languages: Sequence[str | None]) -> SplitDocuments:
        """Tokenize documents, and split the long ones into sentences or windows of words.

        Those of mode "chunk", which are windows of tokens, are made later.

        Args:
            texts: The documents.
            languages: The language code of each, which helps to find the ends of sentences.
        """
        whole = self._tokenize(texts)
        segments = [[token_ids] for token_ids in whole.rows()]
        if self.mode != "chunk":
            long_numbers = self._long_numbers(texts, whole.lengths)
            parts = [self._parts(texts[number], languages[number]) for number in long_numbers]
            tokenized = self._tokenize(list(itertools.chain.from_iterable(parts)))
            rows = iter(tokenized.rows())
            for number, document_parts in zip(long_numbers, parts, strict=True):
                segments[number] = list(itertools.islice(rows, len(document_parts)))
        return SplitDocuments(whole.lengths, segments)

    def _long_numbers(self, texts: list[str], lengths: np.ndarray) -> list[int]:
        """Return the numbers of the texts that are longer than the window."""
        if self.mode == "words":
            lengths = np.array([len(text.split()) for text in texts], dtype=np.int64)
        return np.flatnonzero(lengths > self.window).tolist()

    def _parts(self, text: str, language: str | None) -> list[str]:
        """Return the sentences or windows of a text, at least one.

        A text of white space alone has no sentences, but may have tokens.
        """
        if self.mode == "words":
            return word_windows(text, self.window, self.stride)
        if self.mode == "punctuation":
            return split_at_punctuation(text) or [text]
        return split_sentences(text, language) or [text]

    def embed(
        self,
        documents: SplitDocuments,
        embed: Callable[[TokenizedTexts], torch.Tensor],
        progress: Callable[[int], object],
    ) -> EmbeddedDocuments:
        """Embed the pieces of documents, a block at a time, and aggregate their vectors.

        Args:
            documents: At least one document.
            embed: Returns the vectors (pieces, d) of inputs of the model.
            progress: Called with the number of documents that are done.
        """
        num_documents = len(documents.segments)
        aggregate = _Aggregate(self.aggregation, num_documents)
        num_tokens = 0
        last_done = -1
        for owners, pieces in self._blocks(documents):
            if documents.language_ids is not None:
                pieces.language_ids = documents.language_ids[owners]
            aggregate.add(owners, embed(pieces))
            num_tokens += len(pieces.token_ids)
            last_owner = int(owners[-1])
            progress(last_owner - last_done)
            last_done = last_owner
        return EmbeddedDocuments(aggregate.result(), aggregate.piece_counts, num_tokens)

    def _blocks(self, documents: SplitDocuments) -> Iterator[tuple[torch.Tensor, TokenizedTexts]]:
        """Yield pieces that are embedded at once, with the number of the document of each."""
        longest = min(self.piece_length, int(documents.full_lengths.max()))
        block_size = max(1, min(_BLOCK_PIECES, _BLOCK_TOKENS // longest))
        pieces = self._pieces(documents.segments)
        while block := list(itertools.islice(pieces, block_size)):
            owners = torch.tensor([owner for owner, _ in block])
            lengths = np.array([len(token_ids) for _, token_ids in block])
            token_ids = np.concatenate([token_ids for _, token_ids in block])
            yield owners, TokenizedTexts(token_ids, lengths, lengths)

    def _pieces(self, documents: list[list[np.ndarray]]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of a document and the token ids of an input of the model, in order."""
        for number, segments in enumerate(documents):
            for token_ids in segments:
                for piece in self._windows(token_ids):
                    yield number, piece

    def _windows(self, token_ids: np.ndarray) -> Iterator[np.ndarray]:
        """Yield overlapping windows of a segment, with its prefix and suffix around each.

        The last window ends where the segment ends. A short segment is one window.
        """
        if len(token_ids) <= self.piece_length:
            yield token_ids
            return
        content_end = len(token_ids) - self._affixes.suffix
        prefix = token_ids[: self._affixes.prefix]
        content = token_ids[self._affixes.prefix : content_end]
        suffix = token_ids[content_end:]
        last_start = len(content) - self._content_length
        for start in (*range(0, last_start, self._token_stride), last_start):
            window = content[start : start + self._content_length]
            yield np.concatenate([prefix, window, suffix])


class _Aggregate:
    """The vectors of documents, made of those of their pieces, block after block.

    Sums are in float64, so that their order does not matter.

    Args:
        aggregation: `"mean"`, `"max"`, or a density that gives the weights of a mean.
        num_documents: The number of documents.
    """

    def __init__(self, aggregation: str | SentenceDensity, num_documents: int) -> None:
        self.aggregation = aggregation
        self.piece_counts: np.ndarray = np.zeros(num_documents, int)
        self._values: torch.Tensor | None = None  # (documents, d), when the width is known
        self._weight_sums = torch.zeros((num_documents, 1), dtype=torch.float64)

    def add(self, owners: torch.Tensor, vectors: torch.Tensor) -> None:
        """Add the vectors of pieces.

        Args:
            owners: The number of the document of each piece, (pieces,).
            vectors: (pieces, d).
        """
        num_documents = len(self.piece_counts)
        self.piece_counts += np.bincount(owners, minlength=num_documents)
        vectors = vectors.cpu().double()
        if self._values is None:
            start = -torch.inf if self.aggregation == "max" else 0.0
            self._values = vectors.new_full((num_documents, vectors.shape[1]), start)
        if self.aggregation == "max":
            places = owners[:, None].expand_as(vectors)
            self._values.scatter_reduce_(0, places, vectors, "amax")
            self._weight_sums.fill_(1)
        else:
            weights = self._weights(vectors)
            self._values.index_add_(0, owners, vectors * weights)
            self._weight_sums.index_add_(0, owners, weights)

    def _weights(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the weight of each piece in the mean, (pieces, 1) float64."""
        if isinstance(self.aggregation, SentenceDensity):
            weights = self.aggregation.weights(vectors.numpy())
            return torch.from_numpy(weights).double()[:, None]
        return vectors.new_ones((len(vectors), 1))

    def result(self) -> torch.Tensor:
        """Return the vectors of the documents, (documents, d) float32."""
        assert self._values is not None  # Every document has a piece.
        return (self._values / self._weight_sums).float()


def load_aggregation(
    aggregation: str | os.PathLike[str] | SentenceDensity,
) -> str | SentenceDensity:
    """Return "mean", "max", or a density, which may be given by its file.

    Raises:
        TmdeError: It is none of these.
    """
    if isinstance(aggregation, SentenceDensity) or aggregation in AGGREGATIONS:
        return aggregation
    try:
        return SentenceDensity.load(Path(aggregation).expanduser())
    except (OSError, ValueError) as error:
        raise TmdeError(
            f"aggregation: found {str(aggregation)!r}, expected 'mean', 'max' or a saved "
            f"SentenceDensity: {error}"
        ) from error


@dataclass(frozen=True)
class _Affixes:
    """The number of tokens before a text (special tokens and the prompt) and after it."""

    prefix: int
    suffix: int

    @property
    def total(self) -> int:
        return self.prefix + self.suffix


def _count_affixes(tokenizer: PreTrainedTokenizerBase, prompt: str) -> _Affixes:
    """Return how many tokens the tokenizer and the prompt put around a text."""
    tokenizer = private_copy(tokenizer)
    text_ids = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole_ids = tokenizer("a")["input_ids"]
    prompted_ids = tokenizer(prompt + "a", add_special_tokens=False)["input_ids"]
    places = range(len(whole_ids))
    num_before = next(i for i in places if whole_ids[i : i + len(text_ids)] == text_ids)
    num_after = len(whole_ids) - len(text_ids) - num_before
    num_prompt = len(prompted_ids) - len(text_ids)
    return _Affixes(num_before + num_prompt, num_after)
