# SPDX-License-Identifier: Apache-2.0

"""Documents longer than an input of the model: split into windows or sentences, embedded, aggregated to one vector.

Paper 001, table 5, compares such splits (by punctuation, by a fixed number of tokens) and aggregations (mean,
maximum); the density weights are those of paper 003 (LAWDR), eq. 3.

    from tmde.embedding import DocumentEmbedder, SentenceDensity

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
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import sentencex
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT
from tmde.embedding.text_tokenizer import TextTokenizer, TokenizedTexts, private_copy

MODES = ("truncate", "chunk", "sentences")
# Their rules split texts of unknown language.
SPLITTER_LANGUAGES = ("en", "de", "es", "fr", "it")

_BLOCK_PIECES = 4096  # whose vectors are in memory at once
_BLOCK_TOKENS = 2**20  # of these pieces
_LINE_BREAK = re.compile(r"[\r\n\u2028\u2029\x0b\x0c\x85]+")
_SPACE = re.compile(r"\s")
_LINE_BLOCK = (
    4096  # characters; the rules of some languages take time quadratic in the length of a line
)
_SELECTION_SAMPLE = (
    4000  # vectors that choose the bandwidth, which varies as n^(-1/20) in 16 dimensions
)
_BANDWIDTHS = 20


class LongDocuments:
    """Splits documents into pieces and aggregates their vectors.

    Args:
        tokenize: Of the model.
        mode: "chunk" or "sentences".
        window, stride, aggregation: See `DocumentEmbedder`.

    Raises:
        ValueError: An unknown mode or aggregation, or a number that leaves no room for text or leaves text out.
    """

    def __init__(
        self,
        tokenize: TextTokenizer,
        mode: str,
        window: int | None = None,
        stride: int | None = None,
        aggregation: str | os.PathLike | SentenceDensity = "mean",
    ) -> None:
        if mode not in MODES[1:]:
            raise TmdeError(f"long_documents: found {mode!r}, expected one of {MODES}")
        self.mode = mode
        self.aggregation = load_aggregation(aggregation)
        self._tokenize = TextTokenizer(
            tokenize.tokenizer, NO_LIMIT, tokenize.empty_id, tokenize.prompt
        )
        self._affixes = _affixes(tokenize.tokenizer, tokenize.prompt)
        max_length = tokenize.max_length
        self.window = max_length if window is None else window
        least = sum(self._affixes) + 1 if mode == "chunk" else 1
        if not least <= self.window <= max_length:
            expected = f"{least} to {max_length:,}, an input of the model"
            raise TmdeError(f"window: found {window} tokens, expected {expected}")
        self.piece_length = self.window if mode == "chunk" else max_length
        self._content = self.piece_length - sum(self._affixes)
        self.stride = max(1, self._content // 2) if stride is None else stride
        if not 1 <= self.stride <= self._content:
            expected = (
                f"1 to {self._content:,}, the tokens of text in a piece, so that none is left out"
            )
            raise TmdeError(f"stride: found {stride} tokens, expected {expected}")

    def describe(self) -> dict[str, str | int]:
        """All settings that a vector depends on; a density is named by its contents."""
        kind = self.aggregation
        if isinstance(kind, SentenceDensity):
            kind = f"density {kind.fingerprint()}"
        cut = {"stride": self.stride} if self.piece_length < NO_LIMIT else {}
        return {"long_documents": self.mode, "window": self.window, **cut, "aggregation": kind}

    def split(self, texts: list[str], languages: Sequence[str | None]) -> SplitDocuments:
        """Tokenizes documents, and splits the long ones into sentences in mode "sentences".

        Args:
            texts: Documents.
            languages: Code of each, which helps to find the ends of sentences.
        """
        whole = self._tokenize(texts)
        segments = [[ids] for ids in whole.rows()]
        if self.mode == "sentences":
            long = np.flatnonzero(whole.lengths > self.window).tolist()
            # A text of white space alone has no sentences, but may have tokens.
            sentences = [split_sentences(texts[i], languages[i]) or [texts[i]] for i in long]
            tokenized = iter(self._tokenize(list(itertools.chain(*sentences))).rows())
            for i, parts in zip(long, sentences, strict=True):
                segments[i] = list(itertools.islice(tokenized, len(parts)))
        return SplitDocuments(whole.lengths, segments)

    def embed(
        self,
        documents: SplitDocuments,
        embed: Callable[[TokenizedTexts], torch.Tensor],
        progress: Callable[[int], object],
    ) -> tuple[torch.Tensor, np.ndarray, int]:
        """Embeds the pieces of documents, some at a time, and aggregates their vectors.

        Args:
            embed: Gives the vectors (pieces, d) of inputs of the model.
            progress: Called with the number of documents that are done.

        Returns:
            Vectors (documents, d) float32; the number of pieces (documents,); tokens of all pieces.
        """
        pieces, counts, tokens, done = (
            self._pieces(documents.segments),
            np.zeros(len(documents.segments), int),
            0,
            -1,
        )
        longest = min(self.piece_length, int(documents.full_lengths.max()))
        size = max(1, min(_BLOCK_PIECES, _BLOCK_TOKENS // longest))
        result = weight_sums = None
        while block := list(itertools.islice(pieces, size)):
            owners = torch.tensor([owner for owner, _ in block])
            lengths = np.array([len(ids) for _, ids in block])
            inputs = TokenizedTexts(np.concatenate([ids for _, ids in block]), lengths, lengths)
            if documents.language_ids is not None:
                inputs.language_ids = documents.language_ids[owners]
            counts += np.bincount(owners, minlength=len(counts))
            tokens += len(inputs.token_ids)
            vectors = (
                embed(inputs).cpu().double()
            )  # (pieces, d); the order of float64 sums does not matter
            if result is None:
                first = -torch.inf if self.aggregation == "max" else 0.0
                result = vectors.new_full((len(counts), vectors.shape[1]), first)
                weight_sums = vectors.new_zeros((len(counts), 1))
            if self.aggregation == "max":
                result.scatter_reduce_(0, owners[:, None].expand_as(vectors), vectors, "amax")
                weight_sums.fill_(1)
            else:
                weights = vectors.new_ones((len(vectors), 1))
                if isinstance(self.aggregation, SentenceDensity):
                    weights = torch.from_numpy(self.aggregation.weights(vectors.numpy())).double()[
                        :, None
                    ]
                result.index_add_(0, owners, vectors * weights)
                weight_sums.index_add_(0, owners, weights)
            progress(int(owners[-1]) - done)
            done = int(owners[-1])
        return (result / weight_sums).float(), counts, tokens

    def _pieces(self, documents: list[list[np.ndarray]]) -> Iterator[tuple[int, np.ndarray]]:
        """The inputs of the model, in order, with the number of their document."""
        for number, segments in enumerate(documents):
            for ids in segments:
                if len(ids) <= self.piece_length:
                    yield number, ids
                    continue
                prefix, suffix = self._affixes
                text = ids[prefix : len(ids) - suffix]
                last = len(text) - self._content  # this window ends where the segment ends
                for start in (*range(0, last, self.stride), last):
                    window = text[start : start + self._content]
                    yield number, np.concatenate([ids[:prefix], window, ids[len(ids) - suffix :]])


@dataclass
class SplitDocuments:
    """Tokenized documents.

    full_lengths: (documents,) tokens.
    segments: Token ids of each document: of its sentences if it was split into any, else of the whole.
    language_ids: (documents,) int64, for a model that needs them.
    """

    full_lengths: np.ndarray
    segments: list[list[np.ndarray]]
    language_ids: torch.Tensor | None = None


def load_aggregation(aggregation: str | os.PathLike | SentenceDensity) -> str | SentenceDensity:
    """ "mean", "max", or a density, which may be given by its file.

    Raises:
        ValueError: It is none of these.
    """
    if isinstance(aggregation, SentenceDensity) or aggregation in ("mean", "max"):
        return aggregation
    try:
        return SentenceDensity.load(Path(aggregation).expanduser())
    except (OSError, ValueError) as error:
        raise TmdeError(
            f"aggregation: found {str(aggregation)!r}, expected 'mean', 'max' or a saved SentenceDensity: {error}"
        ) from error


def _affixes(tokenizer: PreTrainedTokenizerBase, prompt: str) -> tuple[int, int]:
    """How many tokens stand before a text (special tokens, those of the prompt), and after it (special tokens)."""
    tokenizer = private_copy(tokenizer)
    text, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    prefix = next(start for start in range(len(whole)) if whole[start : start + len(text)] == text)
    prompted = tokenizer(prompt + "a", add_special_tokens=False)["input_ids"]
    return prefix + len(prompted) - len(text), len(whole) - len(text) - prefix


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """The sentences of a document, in order, by the rules of the library `sentencex`.

    Line breaks end a sentence: documents have them between paragraphs, headings and list items. Text that is
    wrapped at a fixed width should be unwrapped first.

    Args:
        text: Any length.
        language: Its code (ISO 639-1), for its abbreviations; `sentencex` falls back to a related language. None: a
            sentence ends where the rules of German, English, Spanish, French and Italian all say so, so that neither
            "z. B." nor "M. Dupont" is cut in two.

    Returns:
        Non-empty strings without white space around. Together they hold every other character of the text.
    """
    languages = SPLITTER_LANGUAGES if language is None else (language,)
    lines = filter(None, map(str.strip, _LINE_BREAK.split(text)))
    pieces = itertools.chain.from_iterable(_split_line(line, languages) for line in lines)
    return list(filter(None, map(str.strip, pieces)))


def _split_line(line: str, languages: Sequence[str]) -> Iterator[str]:
    """Pieces that end where the rules of all languages end a sentence; of a long line, those of its blocks."""
    plain = _SPACE.sub(
        " ", line
    )  # the rules of some languages break on a wide or narrow space before a full stop
    start = 0
    for stop in sorted(_sentence_ends("en", plain)) if len(plain) > _LINE_BLOCK else [len(plain)]:
        if stop - start >= _LINE_BLOCK or stop == len(plain):
            ends = set.intersection(
                *(_sentence_ends(language, plain[start:stop]) for language in languages)
            )
            for begin, end in itertools.pairwise(sorted({0, stop - start} | ends)):
                yield line[start + begin : start + end]
            start = stop


def _sentence_ends(language: str, line: str) -> set[int]:
    """Where sentences end, the end of the line included."""
    return set(itertools.accumulate(map(len, sentencex.segment(language, line))))


@dataclass(eq=False)
class SentenceDensity:
    """Kernel density of sentence vectors and the weights b / (b + P(s)) of paper 003, eq. 3 and algorithm 1.

    As in the paper's section 10.2: a principal component analysis reduces vectors to 16 dimensions, the kernel is a
    tophat (a density is a count of neighbors within the bandwidth), the bandwidth is chosen by 5-fold
    cross-validation, and b is half of the mean density of the fitted sentences. A sentence of mean density weighs
    1/3, one without any neighbor 1, boilerplate nearly 0.

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
        ValueError: An unknown kernel.
    """

    components: int = 16
    kernel: str = "tophat"
    bandwidth: float | None = None
    sample: int = 20_000
    seed: int = 42

    def __post_init__(self) -> None:
        if self.kernel not in ("tophat", "gaussian"):
            raise TmdeError(f"kernel: found {self.kernel!r}, expected 'tophat' or 'gaussian'")

    def fit(self, vectors: np.ndarray) -> SentenceDensity:
        """Learns axes, bandwidth and b from vectors (n, d), n at least 2; a memory map stays on disk.

        Raises:
            ValueError: Another shape, fewer than two vectors, or a number that is not finite.
        """
        from sklearn.decomposition import PCA  # takes a second to import

        rng = np.random.default_rng(self.seed)
        rows = np.sort(rng.choice(len(vectors), min(self.sample, len(vectors)), replace=False))
        drawn = np.asarray(
            np.asarray(vectors)[rows], dtype=np.float64
        )  # (sample, d); a table's rows, not its columns
        analysis = PCA(min(self.components, *drawn.shape), random_state=self.seed).fit(drawn)
        self.mean_, self.axes_ = analysis.mean_, np.ascontiguousarray(analysis.components_)
        self.points_ = self._project(drawn)  # (sample, components)
        self.bandwidth_ = float(self.bandwidth or _choose_bandwidth(self.points_, self.kernel, rng))
        log_density = self.log_density(drawn)
        self.log_b_ = float(np.logaddexp.reduce(log_density) - math.log(2 * len(log_density)))
        return self

    def log_density(self, vectors: np.ndarray) -> np.ndarray:
        """Natural logarithm of P(s) in the reduced dimensions, (n,) float64; -inf where a tophat is 0."""
        return _log_density(self._project(vectors), self.points_, self.bandwidth_, self.kernel)

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """b / (b + P(s)) of each sentence: (n, d) to (n,) float32, above 0 and at most 1."""
        return (1 / (1 + np.exp(self.log_density(vectors) - self.log_b_))).astype(np.float32)

    def _project(self, vectors: np.ndarray) -> np.ndarray:
        """(n, d) to (n, components) float64."""
        return (np.asarray(vectors, dtype=np.float64) - self.mean_) @ self.axes_.T

    def save(self, path: str | os.PathLike) -> None:
        """Writes one file of arrays (numpy's .npz, without pickle), complete or not at all."""
        temporary = Path(path).with_name(f".{Path(path).name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as file:
            np.savez(file, **self.to_arrays())
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> SentenceDensity:
        """Reads what `save` wrote.

        Raises:
            OSError: No such file. ValueError: A file of something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls.from_arrays(file)
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise TmdeError(
                f"{path}: not a density that SentenceDensity.save wrote: {error}"
            ) from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that `from_arrays` needs, by name."""
        return {
            name: np.asarray(math.nan if value is None else value)
            for name, value in vars(self).items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SentenceDensity:
        """The inverse of `to_arrays`."""
        density = cls()
        for name in (*asdict(density), "mean_", "axes_", "points_", "bandwidth_", "log_b_"):
            setattr(density, name, arrays[name] if arrays[name].ndim else arrays[name].item())
        if math.isnan(density.bandwidth):
            density.bandwidth = None
        return density

    def fingerprint(self) -> str:
        """16 hex digits of a SHA-256 over all that it is made of."""
        arrays = sorted(self.to_arrays().items())
        return hashlib.sha256(
            b"".join(name.encode() + array.tobytes() for name, array in arrays)
        ).hexdigest()[:16]


def _log_density(
    queries: np.ndarray, points: np.ndarray, bandwidth: float, kernel: str
) -> np.ndarray:
    """Logarithm of the kernel density of `points` (m, k) at `queries` (n, k): (n,)."""
    from sklearn.neighbors import KernelDensity

    return KernelDensity(bandwidth=bandwidth, kernel=kernel).fit(points).score_samples(queries)


def _log_ball(dimensions: int) -> float:
    """Logarithm of the volume of a ball of radius 1."""
    return dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2 + 1)


def _choose_bandwidth(points: np.ndarray, kernel: str, rng: np.random.Generator) -> float:
    """The bandwidth of highest held-out likelihood; see the class."""
    from scipy.spatial.distance import pdist
    from sklearn.model_selection import KFold
    from sklearn.neighbors import NearestNeighbors

    dimensions, spread = points.shape[1], math.sqrt(points.var(axis=0).sum())
    if spread == 0:
        return 1.0
    chosen = points[rng.permutation(len(points))[:_SELECTION_SAMPLE]]
    # The same text in another batch differs by about 1e-6.
    _, firsts = np.unique(np.round(points / (1e-4 * spread)), axis=0, return_index=True)
    distinct = points[rng.permutation(firsts)[:_SELECTION_SAMPLE]]
    nearest = np.quantile(NearestNeighbors(n_neighbors=1).fit(distinct).kneighbors()[0], 0.1)
    typical = np.median(pdist(distinct))
    bandwidths = np.geomspace(max(nearest, 1e-3 * typical), typical, _BANDWIDTHS) / math.sqrt(
        dimensions
    )
    folds = list(KFold(min(5, len(chosen))).split(chosen))
    scores = [
        sum(
            _log_density(chosen[held], chosen[rest], bandwidth, "gaussian").sum()
            for rest, held in folds
        )
        for bandwidth in bandwidths
    ]
    best = float(bandwidths[np.argmax(scores)])
    if kernel == "gaussian":
        return best
    # Marron & Nolan 1988, in k dimensions: the canonical bandwidth is (R / m^2)^(1 / (k + 4)), with R the integral of
    # the squared kernel and m its variance along an axis.
    log_gaussian = -dimensions / 2 * math.log(4 * math.pi)
    log_tophat = 2 * math.log(dimensions + 2) - _log_ball(dimensions)
    return best * math.exp((log_tophat - log_gaussian) / (dimensions + 4))
