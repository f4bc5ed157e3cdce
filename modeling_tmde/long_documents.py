"""Documents longer than an input of the model: split into pieces, which are embedded and aggregated to one vector.

`DocumentEmbedder(..., long_documents="chunk" | "sentences")` takes it. Paper 001, table 5, compares such splits (by
punctuation, by a fixed number of tokens) and aggregations (mean, maximum); the density weights are paper 003's, eq. 3.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from .loading import NO_LIMIT
from .sentences import split_sentences
from .text_batches import EncodeReport, TextTokenizer, TokenizedTexts, made_ahead

if TYPE_CHECKING:
    from .density import SentenceDensity

LONG_DOCUMENTS = ("truncate", "chunk", "sentences")
AGGREGATIONS = ("mean", "max")
_GROUP_CHARACTERS = 2**22  # of documents tokenised at once, which takes some 100 MB
_BLOCK_TOKENS = 2**20  # of overlapping windows cut out at once
_BLOCK_PIECES = 4096  # whose vectors are there at once

Progress = Callable[[int], object]


class LongDocuments:
    """How a document becomes pieces, and their vectors one.

    Args:
        tokenize: of the model; its limit is not used.
        max_length: longest input of the model in tokens, special tokens included.
        mode: "chunk" or "sentences".
        window, stride, aggregation: see `DocumentEmbedder`; None takes the default.

    Raises:
        ValueError: a number that leaves no room for text, or leaves text out; an unknown mode or aggregation; a stride
            or an aggregation where nothing is ever split.
    """

    def __init__(
        self,
        tokenize: TextTokenizer,
        max_length: int,
        mode: str,
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike | SentenceDensity = "mean",
    ) -> None:
        if mode not in LONG_DOCUMENTS[1:]:
            raise ValueError(f"long_documents: found {mode!r}, expected one of {LONG_DOCUMENTS}")
        self.mode = mode
        self.aggregation = load_aggregation(aggregation)
        if window is None and max_length >= NO_LIMIT and (stride is not None or self.aggregation != "mean"):
            raise ValueError(
                "window: the model takes texts of any length, so nothing is split; give window=, in tokens"
            )
        # Documents are tokenised whole: what is longer than the model takes is cut here.
        self._tokenize = TextTokenizer(tokenize.tokenizer, NO_LIMIT, tokenize.vocabulary, tokenize.empty_id)
        self._affixes = _special_affixes(tokenize.tokenizer)
        special = sum(self._affixes)
        self.window = max_length if window is None else window
        least = special + 1 if mode == "chunk" else 1
        if not least <= self.window <= max_length:
            raise ValueError(
                f"window: found {window} tokens, expected {least} to {max_length:,}: an input of the model, with its "
                f"{special} special tokens"
            )
        self.piece_length = self.window if mode == "chunk" else max_length
        if stride is not None and self.piece_length >= NO_LIMIT:
            raise ValueError(
                f"stride: found {stride}, but the model takes sentences of any length, so that none is cut into "
                "windows; leave it out, or give long_documents='chunk'"
            )
        content = self.piece_length - special
        self.stride = max(1, content // 2) if stride is None else stride
        if not 1 <= self.stride <= content:
            raise ValueError(
                f"stride: found {stride} tokens, expected 1 to {content:,}, the tokens of text in a piece of "
                f"{self.piece_length:,}; a larger one would leave text out"
            )

    def describe(self) -> dict[str, str | int]:
        """All that a vector depends on; a density is named by its contents."""
        kind = self.aggregation
        if not isinstance(kind, str):
            kind = f"density {_fingerprint(kind)}"
        cut = {"stride": self.stride} if self.piece_length < NO_LIMIT else {}
        return {"long_documents": self.mode, "window": self.window, **cut, "aggregation": kind}

    def groups(
        self, texts: list[str], size: int, first_number: int = 0, languages: Sequence[str | None] | None = None
    ) -> Iterator[DocumentGroup]:
        """At most `size` documents at a time, in order; the next ones are split by a second thread.

        Args:
            texts: documents.
            size: fewer come together where they are long.
            first_number: by which errors number them.
            languages: code of each, for its abbreviations.
        """
        spans = list(_spans([len(text) for text in texts], size))
        groups = (
            self._group(texts[start:stop], first_number + start, languages and languages[start:stop])
            for start, stop in spans
        )
        return made_ahead(groups) if len(spans) > 1 else groups

    def _group(self, texts: list[str], first_number: int, languages: Sequence[str | None] | None) -> DocumentGroup:
        whole = self._tokenize(texts, first_number)
        owners = np.arange(len(texts))
        segments = whole
        if self.mode == "sentences" and len(long := np.flatnonzero(whole.lengths > self.window)):
            fits = whole.lengths <= self.window
            # White space alone has no sentences, but may have tokens.
            codes = [languages[i] if languages else None for i in long]
            sentences = [split_sentences(texts[i], code) or [texts[i]] for i, code in zip(long, codes, strict=True)]
            split = self._tokenize([sentence for document in sentences for sentence in document])
            owners = np.concatenate([owners[fits], long.repeat([len(document) for document in sentences])])
            kept = whole.token_ids[fits.repeat(whole.lengths)]
            lengths = np.concatenate([whole.lengths[fits], split.lengths])
            segments = TokenizedTexts(np.concatenate([kept, split.token_ids]), lengths, lengths)
        return DocumentGroup(
            segments, owners, whole.lengths, self.piece_length, self.stride, self._affixes, self.aggregation
        )


@dataclass(frozen=True)
class DocumentGroup:
    """Tokenised documents on their way to one vector each.

    segments: documents or sentences, whole; owners: (segments,) number of the document of each; full_lengths:
    (documents,) tokens; piece_length, stride, affixes: a segment longer than piece_length is cut into windows of that
    many tokens, stride apart, each with the special tokens that stand before and after the segment; language_ids:
    (documents,) int64, for a model that needs them.
    """

    segments: TokenizedTexts
    owners: np.ndarray
    full_lengths: np.ndarray
    piece_length: int
    stride: int
    affixes: tuple[int, int]
    aggregation: str | SentenceDensity
    language_ids: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.full_lengths)

    @cached_property
    def windows(self) -> np.ndarray:
        """(segments,) into how many pieces each is cut: 1 where it fits."""
        beyond = np.maximum(self.segments.lengths - self.piece_length, 0)
        return 1 - (-beyond // self.stride)

    @cached_property
    def pieces(self) -> np.ndarray:
        """(documents,) into how many pieces each is split."""
        return np.bincount(self.owners, self.windows, minlength=len(self)).astype(np.int64)

    def report(self) -> EncodeReport:
        """Without the time that it took."""
        lengths = np.minimum(self.segments.lengths, self.piece_length)
        return EncodeReport(
            len(self),
            int((lengths * self.windows).sum()),
            longest=int(self.full_lengths.max(initial=0)),
            split=int((self.pieces > 1).sum()),
            pieces=int(self.pieces.sum()),
        )

    def embedded(self, embed: Callable[[TokenizedTexts, Progress], torch.Tensor], progress: Progress) -> torch.Tensor:
        """(documents, d) float32, on the model's device.

        Args:
            embed: inputs of the model, told its progress, to their vectors.
            progress: is told the documents that are done.
        """
        total = int(self.pieces.sum())
        if total == len(self) and (self.owners == np.arange(len(self))).all():  # the batches of whole documents
            return embed(self._told(self.segments, self.owners), progress)
        done = 0

        def step(pieces: int) -> None:
            nonlocal done
            before, done = done, done + pieces
            progress(done * len(self) // total - before * len(self) // total)

        aggregate = _Maximum(len(self)) if self.aggregation == "max" else _WeightedMean(len(self))
        for inputs, owners in self._blocks():
            vectors = embed(inputs, step)
            weights = None
            if not isinstance(self.aggregation, str):
                weights = self._weights(vectors, self.pieces[owners] > 1)
            aggregate.add(vectors, torch.from_numpy(owners).to(vectors.device), weights)
        return aggregate.vectors()

    def _told(self, inputs: TokenizedTexts, owners: np.ndarray) -> TokenizedTexts:
        if self.language_ids is None:
            return inputs
        return replace(inputs, language_ids=self.language_ids[torch.from_numpy(owners)])

    def _weights(self, vectors: torch.Tensor, split: np.ndarray) -> torch.Tensor:
        """(pieces,): those of the density where a document has several pieces, else 1."""
        weights = np.ones(len(vectors), dtype=np.float32)
        if split.any():
            weights[split] = self.aggregation.weights(vectors[torch.from_numpy(split)].cpu().numpy())
        return torch.from_numpy(weights).to(vectors.device)

    def _blocks(self) -> Iterator[tuple[TokenizedTexts, np.ndarray]]:
        """Pieces, as many as may be in memory, with the number of the document of each."""
        ends = np.cumsum(self.windows)
        longest = int(np.minimum(self.segments.lengths, self.piece_length).max())
        size = max(1, min(_BLOCK_PIECES, _BLOCK_TOKENS // longest))
        for start in range(0, int(ends[-1]), size):
            numbers = np.arange(start, min(start + size, int(ends[-1])))
            rows = np.searchsorted(ends, numbers, side="right")
            inputs = self._cut(rows, numbers - (ends[rows] - self.windows[rows]))
            owners = self.owners[rows]
            yield self._told(inputs, owners), owners

    def _cut(self, rows: np.ndarray, windows: np.ndarray) -> TokenizedTexts:
        """Window `windows[i]` of segment `rows[i]`, both (pieces,); the last one of a segment ends where it ends."""
        prefix, suffix = self.affixes
        full = self.segments.lengths[rows]
        lengths = np.minimum(full, self.piece_length)
        ends = np.cumsum(lengths)
        tokens = np.arange(ends[-1]) - (ends - lengths).repeat(lengths)  # place of each token in its piece
        shift = np.minimum(windows * self.stride, full - lengths).repeat(lengths)
        shift[tokens < prefix] = 0
        after = tokens >= (lengths - suffix).repeat(lengths)
        shift[after] = (full - lengths).repeat(lengths)[after]
        starts = (self.segments.ends[rows] - full).repeat(lengths)
        return TokenizedTexts(self.segments.token_ids[starts + shift + tokens], lengths, lengths)


class _WeightedMean:
    """sum w v / sum w over the pieces of each document, in float64 where there is such: in any order the same."""

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._sums: torch.Tensor | None = None  # (documents, d)

    def add(self, vectors: torch.Tensor, owners: torch.Tensor, weights: torch.Tensor | None) -> None:
        dtype = torch.float32 if vectors.device.type == "mps" else torch.float64
        if self._sums is None:
            self._sums = vectors.new_zeros((self._documents, vectors.shape[-1]), dtype=dtype)
            self._weights = vectors.new_zeros(self._documents, dtype=dtype)
        weights = vectors.new_ones(len(vectors)) if weights is None else weights
        weights = weights.to(dtype)
        self._sums.index_add_(0, owners, vectors.to(dtype) * weights[:, None])
        self._weights.index_add_(0, owners, weights)

    def vectors(self) -> torch.Tensor:
        return (self._sums / self._weights[:, None]).float()


class _Maximum:
    """The largest value of each element over the pieces of each document."""

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._largest: torch.Tensor | None = None  # (documents, d)

    def add(self, vectors: torch.Tensor, owners: torch.Tensor, weights: None) -> None:
        if self._largest is None:
            self._largest = vectors.new_full((self._documents, vectors.shape[-1]), -torch.inf)
        self._largest.scatter_reduce_(0, owners[:, None].expand_as(vectors), vectors, "amax")

    def vectors(self) -> torch.Tensor:
        return self._largest


def long_documents_of(
    tokenize: TextTokenizer,
    mode: str,
    window: int | None,
    stride: int | None,
    aggregation: str | os.PathLike | SentenceDensity,
) -> LongDocuments | None:
    """None for "truncate".

    Raises:
        ValueError: "truncate" with settings that it has no use for; what `LongDocuments` raises.
    """
    if mode != "truncate":
        return LongDocuments(tokenize, tokenize.max_length, mode, window, stride, aggregation)
    defaults = {"window": (window, None), "stride": (stride, None), "aggregation": (aggregation, "mean")}
    for name, (found, default) in defaults.items():
        if found is not default and found != default:
            raise ValueError(
                f"{name}: found {found!r} with long_documents='truncate', which splits nothing; give "
                "long_documents='chunk' or 'sentences' as well"
            )
    return None


def load_aggregation(aggregation: str | os.PathLike | SentenceDensity) -> str | SentenceDensity:
    """ "mean", "max", or a density, which may be given by the file that it was saved to.

    Raises:
        ValueError: neither a known name nor a file; a file of something else; a density that is not fitted.
        TypeError: something else.
    """
    from .density import SentenceDensity

    if isinstance(aggregation, SentenceDensity):
        if not hasattr(aggregation, "mean_"):
            raise ValueError(f"aggregation: found {aggregation} that is not fitted; fit it to sentence vectors first")
        return aggregation
    if not isinstance(aggregation, (str, os.PathLike)):
        found = type(aggregation).__name__
        raise TypeError(f"aggregation: found {found}, expected one of {AGGREGATIONS}, a SentenceDensity or its file")
    if aggregation in AGGREGATIONS:
        return aggregation
    path = Path(aggregation).expanduser()
    if not path.is_file():
        raise ValueError(
            f"aggregation: found {str(aggregation)!r}, which is no file; expected one of {AGGREGATIONS} or the file "
            "of a saved SentenceDensity"
        )
    try:
        return SentenceDensity.load(path)
    except ValueError as error:
        raise ValueError(f"aggregation: {error}") from None


def check_dimension(density: SentenceDensity, dimension: int) -> None:
    """
    Raises:
        ValueError: a density that was fitted to vectors of another dimension than the model's.
    """
    if len(density.mean_) != dimension:
        raise ValueError(
            f"aggregation: found a density of vectors of dimension {len(density.mean_)}, expected {dimension}, "
            "that of the model; fit it to vectors of this model"
        )


def _fingerprint(density: SentenceDensity) -> str:
    """SHA-256 (first 16 hex digits) over all that it is made of."""
    digest = hashlib.sha256()
    for name, array in sorted(density.to_arrays().items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def _special_affixes(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """How many special tokens the tokenizer puts before a text, and after it.

    Raises:
        ValueError: it changes a text's own tokens when it adds them.
    """
    flags = {"return_attention_mask": False, "return_token_type_ids": False}
    text = tokenizer("a", add_special_tokens=False, **flags)["input_ids"]
    complete = tokenizer("a", **flags)["input_ids"]
    added = len(complete) - len(text)
    for prefix in range(added + 1):
        if complete[prefix : prefix + len(text)] == text:
            return prefix, added - prefix
    raise ValueError(
        f"tokenizer: found {complete} for 'a' with special tokens and {text} without, expected the same tokens with "
        "others around; its texts cannot be cut into windows"
    )


def _spans(characters: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Consecutive texts: at most `size`, and of at most `_GROUP_CHARACTERS`, or one. Of no text, one empty span."""
    start, total = 0, 0
    for number, count in enumerate(characters):
        if number > start and (number - start == size or total + count > _GROUP_CHARACTERS):
            yield start, number
            start, total = number, 0
        total += count
    yield start, len(characters)
