"""Documents longer than an input of the model: split into windows or sentences, embedded, aggregated to one vector.

Paper 001, table 5, compares such splits (by punctuation, by a fixed number of tokens) and aggregations (mean,
maximum); the density weights are those of paper 003 (LAWDR), eq. 3.

    from modeling_tmde import DocumentEmbedder, SentenceDensity

    embedder = DocumentEmbedder.from_pretrained("path/to/checkpoint", long_documents="sentences")
    density = SentenceDensity().fit(sentence_vectors)  # (n, d)
    weights = density.weights(sentence_vectors)  # (n,), near 0 for boilerplate
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencex
import torch
from transformers import PreTrainedTokenizerBase

from .tokenization import TextTokenizer, TokenizedTexts

NO_LIMIT = 10**9  # of an input's length; tokenizers without a limit say 1e30
MODES = ("truncate", "chunk", "sentences")
AGGREGATIONS = ("mean", "max")
KERNELS = ("tophat", "gaussian")
# Whose rules are asked where the language is unknown.
SPLITTER_LANGUAGES = ("en", "de", "es", "fr", "it")

_GROUP_CHARACTERS = 2**22  # of documents tokenized at once, about 100 MB
_BLOCK_TOKENS = 2**20  # of overlapping windows in memory at once
_BLOCK_PIECES = 4096  # of which the vectors are in memory at once

# The rules of Italian, and of languages that fall back to it, take time quadratic in the length of a line.
_LINEAR = SPLITTER_LANGUAGES[:4]
_WHOLE_LINE = 16_384  # characters of a line that those rules read whole
_LINE_BLOCK = 4096
_LINE_BREAK = re.compile(r"[\r\n\u2028\u2029\x0b\x0c\x85]+")
_SPACE = re.compile(r"\s")

_FOLDS = 5
_SELECTION_SAMPLE = 4000  # vectors that choose the bandwidth, which varies as n^(-1/20) in 16 dimensions
_BANDWIDTHS = 20
_PRODUCTS = 2**22  # computed at once: 32 MiB
_ROWS = 16384  # vectors projected at once
_FITTED = ("mean_", "axes_", "points_", "bandwidth_", "log_b_")


class LongDocuments:
    """Splits documents into pieces and aggregates their vectors.

    Args:
        tokenize: Of the model; its limit is not used.
        max_length: Longest input of the model in tokens, special tokens included.
        mode: "chunk" or "sentences".
        window, stride, aggregation: See `DocumentEmbedder`; None takes the default.

    Raises:
        ValueError: A number leaves no room for text or leaves text out, the mode or the aggregation is unknown, or
            nothing is ever split.
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
        if mode not in MODES[1:]:
            raise ValueError(f"long_documents: found {mode!r}, expected one of {MODES}")
        self.mode = mode
        self.aggregation = load_aggregation(aggregation)
        if window is None and max_length >= NO_LIMIT and (stride is not None or self.aggregation != "mean"):
            raise ValueError(
                "window: the model takes texts of any length, so nothing is split; give window=, in tokens"
            )
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
        """All settings that a vector depends on; a density is named by its contents."""
        kind = self.aggregation
        if not isinstance(kind, str):
            kind = f"density {kind.fingerprint()}"
        cut = {"stride": self.stride} if self.piece_length < NO_LIMIT else {}
        return {"long_documents": self.mode, "window": self.window, **cut, "aggregation": kind}

    def groups(
        self, texts: list[str], size: int, first_number: int = 0, languages: Sequence[str | None] | None = None
    ) -> Iterator[DocumentGroup]:
        """Splits at most `size` documents at a time, fewer where they are long.

        Args:
            texts: Documents.
            first_number: The number of the first one in errors.
            languages: Code of each, which helps to find the ends of sentences.
        """
        start = characters = 0
        for number, text in enumerate(texts):
            if number > start and (number - start == size or characters + len(text) > _GROUP_CHARACTERS):
                yield self._group(texts[start:number], first_number + start, languages and languages[start:number])
                start, characters = number, 0
            characters += len(text)
        if texts:
            yield self._group(texts[start:], first_number + start, languages and languages[start:])

    def _group(self, texts: list[str], first_number: int, languages: Sequence[str | None] | None) -> DocumentGroup:
        whole = self._tokenize(texts, first_number)
        owners, segments = np.arange(len(texts)), whole
        if self.mode == "sentences" and len(long := np.flatnonzero(whole.lengths > self.window)):
            fits = whole.lengths <= self.window
            # A text of white space alone has no sentences, but may have tokens.
            sentences = [split_sentences(texts[i], languages and languages[i]) or [texts[i]] for i in long]
            split = self._tokenize(list(itertools.chain.from_iterable(sentences)))
            owners = np.concatenate([owners[fits], long.repeat([len(document) for document in sentences])])
            lengths = np.concatenate([whole.lengths[fits], split.lengths])
            kept = whole.token_ids[fits.repeat(whole.lengths)]
            segments = TokenizedTexts(np.concatenate([kept, split.token_ids]), lengths, lengths)
        # (segments,) windows of each: 1 where it fits
        windows = 1 - (-np.maximum(segments.lengths - self.piece_length, 0) // self.stride)
        return DocumentGroup(self, segments, owners, windows, whole.lengths)

    def cut(self, segments: TokenizedTexts, rows: np.ndarray, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (tokens,) and lengths (pieces,) of window `windows[i]` of segment `rows[i]`, both (pieces,).

        Windows begin a stride apart; the last one ends where its segment ends. Each has the special tokens that
        stand before and after the segment.
        """
        prefix, suffix = self._affixes
        full = segments.lengths[rows]
        lengths = np.minimum(full, self.piece_length)
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1]) - (ends - lengths).repeat(lengths)  # of each token in its piece
        last = (full - lengths).repeat(lengths)
        shift = np.minimum((windows * self.stride).repeat(lengths), last)
        shift[places < prefix] = 0
        after = places >= (lengths - suffix).repeat(lengths)
        shift[after] = last[after]
        starts = (segments.ends[rows] - full).repeat(lengths)
        return segments.token_ids[starts + shift + places], lengths


@dataclass
class DocumentGroup:
    """Tokenized documents, some of them split.

    segments: Documents or sentences; owners: (segments,) the document of each; windows: (segments,) the pieces that
    each is cut into; full_lengths: (documents,) tokens; language_ids: (documents,) int64, for a model that needs them.
    """

    splitter: LongDocuments
    segments: TokenizedTexts
    owners: np.ndarray
    windows: np.ndarray
    full_lengths: np.ndarray
    language_ids: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.full_lengths)

    @property
    def pieces(self) -> np.ndarray:
        """(documents,) number of pieces of each."""
        return np.bincount(self.owners, self.windows, minlength=len(self)).astype(np.int64)

    @property
    def tokens(self) -> int:
        """Tokens of all pieces."""
        return int((np.minimum(self.segments.lengths, self.splitter.piece_length) * self.windows).sum())

    def embed(
        self, embed: Callable[[TokenizedTexts], torch.Tensor], progress: Callable[[int], object]
    ) -> torch.Tensor:
        """One vector for each document, (documents, d) float32.

        Args:
            embed: Gives the vectors (pieces, d) of inputs of the model.
            progress: Called with the number of documents that are done.
        """
        pieces, aggregation = self.pieces, self.splitter.aggregation
        total, done = int(pieces.sum()), 0
        result, weight_sums = None, None
        for inputs, owners in self._blocks():
            vectors = embed(inputs)
            index = torch.from_numpy(owners).to(vectors.device)
            dtype = torch.float32 if vectors.device.type == "mps" else torch.float64  # the order does not matter
            if aggregation == "max":
                if result is None:
                    result = vectors.new_full((len(self), vectors.shape[-1]), -torch.inf)
                result.scatter_reduce_(0, index[:, None].expand_as(vectors), vectors, "amax")
            else:
                if result is None:
                    result = vectors.new_zeros((len(self), vectors.shape[-1]), dtype=dtype)
                    weight_sums = vectors.new_zeros((len(self), 1), dtype=dtype)
                weights = self._weights(vectors, pieces[owners] > 1).to(dtype)[:, None]
                result.index_add_(0, index, vectors.to(dtype) * weights)
                weight_sums.index_add_(0, index, weights)
            before, done = done, done + len(owners)
            progress(done * len(self) // total - before * len(self) // total)
        return (result if weight_sums is None else result / weight_sums).float()

    def _weights(self, vectors: torch.Tensor, split: np.ndarray) -> torch.Tensor:
        """(pieces,): the density's weight for a piece of a document with several, otherwise 1."""
        weights = np.ones(len(vectors), dtype=np.float32)
        density = self.splitter.aggregation
        if split.any() and not isinstance(density, str):
            weights[split] = density.weights(vectors[torch.from_numpy(split)].cpu().numpy())
        return torch.from_numpy(weights).to(vectors.device)

    def _blocks(self) -> Iterator[tuple[TokenizedTexts, np.ndarray]]:
        """As many pieces as may be in memory, with the document of each."""
        ends = np.cumsum(self.windows)
        longest = int(np.minimum(self.segments.lengths, self.splitter.piece_length).max())
        size = max(1, min(_BLOCK_PIECES, _BLOCK_TOKENS // longest))
        for start in range(0, int(ends[-1]), size):
            numbers = np.arange(start, min(start + size, int(ends[-1])))
            rows = np.searchsorted(ends, numbers, side="right")
            ids, lengths = self.splitter.cut(self.segments, rows, numbers - (ends[rows] - self.windows[rows]))
            owners = self.owners[rows]
            languages = None if self.language_ids is None else self.language_ids[torch.from_numpy(owners)]
            yield TokenizedTexts(ids, lengths, lengths, languages), owners


def load_aggregation(aggregation: str | os.PathLike | SentenceDensity) -> str | SentenceDensity:
    """ "mean", "max", or a density, which may be given by its file.

    Raises:
        ValueError: It is none of these, or a density that is not fitted.
    """
    if isinstance(aggregation, SentenceDensity):
        if not hasattr(aggregation, "mean_"):
            raise ValueError(f"aggregation: found {aggregation} that is not fitted; fit it to sentence vectors first")
        return aggregation
    if aggregation in AGGREGATIONS:
        return aggregation
    if not isinstance(aggregation, (str, os.PathLike)) or not Path(aggregation).expanduser().is_file():
        raise ValueError(
            f"aggregation: found {str(aggregation)!r}, which is no file; expected one of {AGGREGATIONS}, a "
            "SentenceDensity or the file of a saved one"
        )
    try:
        return SentenceDensity.load(Path(aggregation).expanduser())
    except ValueError as error:
        raise ValueError(f"aggregation: {error}") from None


def _special_affixes(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """How many special tokens the tokenizer puts before a text, and after it.

    Raises:
        ValueError: It changes the text's own tokens when it adds them.
    """
    text = tokenizer("a", add_special_tokens=False)["input_ids"]
    complete = tokenizer("a")["input_ids"]
    added = len(complete) - len(text)
    for prefix in range(added + 1):
        if complete[prefix : prefix + len(text)] == text:
            return prefix, added - prefix
    raise ValueError(
        f"tokenizer: found {complete} for 'a' with special tokens and {text} without, expected the same tokens with "
        "others around; its texts cannot be cut into windows"
    )


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """The sentences of a document, in order, by the rules of the library `sentencex`.

    A line break ends a sentence: documents have them between paragraphs, headings and list items. Text that is
    wrapped at a fixed width should be unwrapped first.

    Args:
        text: Any length.
        language: Its code (ISO 639-1), for its abbreviations; `sentencex` falls back to a related language. None: a
            sentence ends where the rules of German, English, Spanish, French and Italian all say so, so that neither
            "z. B." nor "M. Dupont" is cut in two.

    Returns:
        Non-empty strings without white space around. Together they hold every other character of the text.

    Raises:
        TypeError: The text is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"text: found {type(text).__name__}, expected str")
    languages = SPLITTER_LANGUAGES if language is None else (language,)
    lines = (line.strip() for line in _LINE_BREAK.split(text))
    return [sentence for line in lines if line for sentence in _split_line(line, languages)]


def _split_line(line: str, languages: Sequence[str]) -> list[str]:
    ends: set[int] | None = None
    plain = _SPACE.sub(" ", line)  # the rules of some languages break on a wide or narrow space before a full stop
    for language in languages:
        short = language in _LINEAR or len(plain) <= _WHOLE_LINE
        found = (_sentence_ends if short else _sentence_ends_of_long_line)(language, plain)
        ends = found if ends is None else ends & found
        if len(ends) <= 1:
            return [line]
    cuts = [0, *sorted(ends | {len(line)})]
    return [piece for start, end in itertools.pairwise(cuts) if (piece := line[start:end].strip())]


def _sentence_ends(language: str, line: str) -> set[int]:
    """Where sentences end, the end of the line included."""
    return set(itertools.accumulate(map(len, sentencex.segment(language, line))))


def _sentence_ends_of_long_line(language: str, line: str) -> set[int]:
    """As `_sentence_ends`, for blocks of the line that stop where the English rules end a sentence."""
    found: set[int] = set()
    start = 0
    for stop in sorted(_sentence_ends("en", line)):
        if stop - start >= _LINE_BLOCK or stop == len(line):
            found |= {start + end for end in _sentence_ends(language, line[start:stop])}
            start = stop
    return found


@dataclass(eq=False)
class SentenceDensity:
    """Kernel density of sentence vectors and the weights b / (b + P(s)) of paper 003, eq. 3 and algorithm 1.

    As in the paper's section 10.2: a principal component analysis reduces vectors to 16 dimensions, the kernel is a
    tophat (a density is a count of neighbors within the bandwidth), the bandwidth is chosen by 5-fold
    cross-validation, and b is half of the mean density of the fitted sentences. A sentence of mean density weighs
    1/3, one without any neighbor 1, boilerplate nearly 0. The density equals that of scikit-learn's `KernelDensity`,
    which takes many times longer in 16 dimensions; only its logarithm is ever computed.

    Cross-validation maximizes the likelihood of held-out sentences, with two changes. A tophat gives no density at all
    to a sentence without neighbors, so that a single one would rule out every bandwidth but the widest: the bandwidth
    is chosen for a gaussian and multiplied by the ratio of the two kernels' canonical bandwidths (Marron & Nolan
    1988), 3.95 in 16 dimensions. And the likelihood of equal sentences grows without limit as the bandwidth falls: 20
    are tried, from the lower decile of the distances between a sentence and the nearest other that differs to the
    median of all distances (for a gaussian, over the square root of the dimensions).

    Args:
        components: Dimensions after the analysis; fewer where there are fewer dimensions or sentences.
        kernel: `"tophat"` or `"gaussian"`.
        bandwidth: In the units of the vectors: radius of the tophat, standard deviation of the gaussian. None: chosen.
        sample: Sentences, drawn at random, that all is fitted to; the time of `weights` grows with it.
        seed: Of that draw, and of the folds.

    Attributes:
        bandwidth_: The one used. mean_: (d,). axes_: (components, d), the principal ones, orthonormal.
        points_: (sample, components), the sentences of the sample. log_b_: Natural logarithm of b. All float64.

    Raises:
        ValueError: An argument is out of its range.
    """

    components: int = 16
    kernel: str = "tophat"
    bandwidth: float | None = None
    sample: int = 20_000
    seed: int = 42

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel: found {self.kernel!r}, expected one of {KERNELS}")
        for name, least in (("components", 1), ("sample", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least {least}")
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise ValueError(f"bandwidth: found {self.bandwidth}, expected a number above 0, or None to choose one")

    def fit(self, vectors: np.ndarray) -> SentenceDensity:
        """Learns axes, bandwidth and b from vectors (n, d), n at least 2; a memory map stays on disk.

        Raises:
            ValueError: Another shape, fewer than two vectors, or a number that is not finite.
        """
        from sklearn.decomposition import PCA  # takes a second to import

        vectors = vectors if hasattr(vectors, "shape") else np.asarray(vectors)
        for _ in _checked_blocks(vectors, None):
            pass
        if len(vectors) < 2:
            raise ValueError(f"vectors: found {len(vectors)}, expected at least 2 for a density")
        rng = np.random.default_rng(self.seed)
        rows = np.sort(rng.choice(len(vectors), min(self.sample, len(vectors)), replace=False))
        drawn = np.asarray(vectors[rows], dtype=np.float64)  # (sample, d)
        analysis = PCA(min(self.components, *drawn.shape), random_state=self.seed)
        with np.errstate(invalid="ignore", divide="ignore"):  # equal vectors have no variance to divide by
            analysis.fit(drawn)
        self.mean_, self.axes_ = analysis.mean_, np.ascontiguousarray(analysis.components_)
        self.points_ = self._project(drawn)  # (sample, components)
        self.bandwidth_ = float(self.bandwidth or _choose_bandwidth(self.points_, self.kernel, rng))
        log_density = _log_density(self.points_, self.points_, self.bandwidth_, self.kernel)
        self.log_b_ = float(np.logaddexp.reduce(log_density) - math.log(2 * len(log_density)))
        return self

    def log_density(self, vectors: np.ndarray) -> np.ndarray:
        """Natural logarithm of P(s) in the reduced dimensions, (n,) float64; -inf without a neighbor in a tophat.

        Raises:
            ValueError: Not fitted yet, another shape, or a number that is not finite.
        """
        self._check_fitted()
        parts = [
            _log_density(self._project(block), self.points_, self.bandwidth_, self.kernel)
            for block in _checked_blocks(vectors, len(self.mean_))
        ]
        return np.concatenate([np.empty(0), *parts])

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """b / (b + P(s)) of each sentence: (n, d) to (n,) float32, above 0 and at most 1.

        Raises:
            ValueError: Not fitted yet, another shape, or a number that is not finite.
        """
        log_density = self.log_density(vectors)
        return (1 / (1 + np.exp(log_density - self.log_b_))).astype(np.float32)

    def save(self, path: str | os.PathLike) -> None:
        """Writes one file of arrays (numpy's .npz, without pickle), complete or not at all."""
        arrays = self.to_arrays()
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                np.savez(file, **arrays)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike) -> SentenceDensity:
        """Reads what `save` wrote.

        Raises:
            OSError: No such file. ValueError: A file of something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls.from_arrays({name: file[name] for name in file.files})
        except (KeyError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise ValueError(f"{os.fspath(path)}: not a density that SentenceDensity.save wrote: {error}") from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that `from_arrays` needs, by name."""
        self._check_fitted()
        names = ("components", "kernel", "sample", "seed")
        settings = {name: np.asarray(getattr(self, name)) for name in names}
        settings["bandwidth"] = np.asarray(math.nan if self.bandwidth is None else self.bandwidth)
        return settings | {name: np.asarray(getattr(self, name)) for name in _FITTED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SentenceDensity:
        """The inverse of `to_arrays`."""
        settings = {name: arrays[name].item() for name in ("components", "kernel", "sample", "seed", "bandwidth")}
        density = cls(**settings | {"bandwidth": None if math.isnan(settings["bandwidth"]) else settings["bandwidth"]})
        for name in _FITTED:
            value = np.asarray(arrays[name], dtype=np.float64)
            setattr(density, name, value if value.ndim else float(value))
        return density

    def fingerprint(self) -> str:
        """16 hex digits of a SHA-256 over all that it is made of."""
        digest = hashlib.sha256()
        for name, array in sorted(self.to_arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()[:16]

    def _check_fitted(self) -> None:
        if not hasattr(self, "log_b_"):
            raise ValueError(f"{type(self).__name__}: fit it to sentence vectors first")

    def _project(self, vectors: np.ndarray) -> np.ndarray:
        """(n, d) to (n, components) float64."""
        return (np.asarray(vectors, dtype=np.float64) - self.mean_) @ self.axes_.T


def _log_density(queries: np.ndarray, points: np.ndarray, bandwidth: float, kernel: str) -> np.ndarray:
    """Logarithm of the kernel density of `points` (m, k) at `queries` (n, k): (n,)."""
    size, dimensions = points.shape
    log_norm = dimensions * math.log(bandwidth) + math.log(size)
    log_norm += _log_ball(dimensions) if kernel == "tophat" else dimensions / 2 * math.log(2 * math.pi)
    columns = np.vstack([points.T, np.einsum("ij,ij->i", points, points) / -2])  # (k + 1, m)
    found = [np.empty(0)]
    rows = max(1, _PRODUCTS // size)
    for start in range(0, len(queries), rows):
        block = queries[start : start + rows]
        half_norms = np.einsum("ij,ij->i", block, block)[:, None] / 2
        # (rows, m): x.y - |y|^2 / 2, which is (|x|^2 - |x - y|^2) / 2
        nearness = np.hstack([block, np.ones((len(block), 1))]) @ columns
        if kernel == "tophat":
            counts = np.count_nonzero(nearness > half_norms - bandwidth**2 / 2, axis=1)
            with np.errstate(divide="ignore"):
                found.append(np.log(counts) - log_norm)
        else:
            nearness -= half_norms
            nearness /= bandwidth**2
            highest = nearness.max(axis=1, keepdims=True)
            np.exp(np.subtract(nearness, highest, out=nearness), out=nearness)
            found.append(np.log(nearness.sum(axis=1)) + highest[:, 0] - log_norm)
    return np.concatenate(found)


def _choose_bandwidth(points: np.ndarray, kernel: str, rng: np.random.Generator) -> float:
    """The bandwidth of highest held-out likelihood; see the class."""
    dimensions = points.shape[1]
    spread = math.sqrt(points.var(axis=0).sum())
    if spread == 0:
        return 1.0
    # The same text in another batch differs by about 1e-6.
    _, firsts = np.unique(np.round(points / (1e-4 * spread)), axis=0, return_index=True)
    if len(firsts) < 2:
        return spread
    chosen = points[rng.permutation(len(points))[:_SELECTION_SAMPLE]]
    folds = np.arange(len(chosen)) % min(_FOLDS, len(chosen))
    bandwidths = _candidate_bandwidths(points[rng.permutation(firsts)[:_SELECTION_SAMPLE]])
    scores = [
        sum(
            _log_density(chosen[folds == fold], chosen[folds != fold], bandwidth, "gaussian").sum()
            for fold in range(folds.max() + 1)
        )
        for bandwidth in bandwidths
    ]
    best = float(bandwidths[int(np.argmax(scores))])
    if kernel == "gaussian":
        return best
    # Marron & Nolan 1988, in k dimensions: the canonical bandwidth is (R / m^2)^(1 / (k + 4)), with R the integral of
    # the squared kernel and m its variance along an axis.
    log_gaussian = -dimensions / 2 * math.log(4 * math.pi)
    log_tophat = 2 * math.log(dimensions + 2) - _log_ball(dimensions)
    return best * math.exp((log_tophat - log_gaussian) / (dimensions + 4))


def _log_ball(dimensions: int) -> float:
    """Logarithm of the volume of a ball of radius 1."""
    return dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2 + 1)


def _candidate_bandwidths(distinct: np.ndarray) -> np.ndarray:
    """Bandwidths of a gaussian to try, rising, for points no two of which are equal."""
    nearest, typical = [], []
    norms = np.einsum("ij,ij->i", distinct, distinct)
    for start in range(0, len(distinct), 512):
        block = slice(start, start + 512)
        squares = np.maximum(norms[block, None] + norms - 2 * distinct[block] @ distinct.T, 0)
        squares[np.arange(len(squares)), start + np.arange(len(squares))] = np.nan  # to itself
        nearest.append(np.nanmin(squares, axis=1))
        typical.append(np.nanmedian(squares))
    low, high = math.sqrt(np.quantile(np.concatenate(nearest), 0.1)), math.sqrt(np.median(typical))
    return np.geomspace(max(low, 1e-3 * high), high, _BANDWIDTHS) / math.sqrt(distinct.shape[1])


def _checked_blocks(vectors: np.ndarray, dimension: int | None) -> Iterator[np.ndarray]:
    """Blocks of rows, with the right shape and finite numbers."""
    shape = np.shape(vectors)
    if len(shape) != 2 or not shape[1] or dimension not in (None, shape[1]):
        wanted = f"(n, {'d' if dimension is None else dimension})"
        raise ValueError(f"vectors: found shape {shape}, expected {wanted}")
    for start in range(0, shape[0], _ROWS):
        block = np.asarray(vectors[start : start + _ROWS])
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            raise ValueError(f"vectors: row {start + bad[0]} has a number that is not finite, expected finite numbers")
        yield block
