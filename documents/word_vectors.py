"""Word vectors of two languages in one space: MUSE (Conneau et al., 2018, arXiv 1710.04087; 004, section 4.1).

german, english = read_word_vectors("wiki.de.vec"), read_word_vectors("wiki.en.vec")
mapping = align_words(german, english, read_dictionary("de-en.txt", german, english))
model, tokenizer = word_bag({"de": german.mapped(mapping), "en": english})
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from modeling_tmde import TmdeError
from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.modeling_bag import SPECIAL_LOG_WEIGHT, BagModel
from modeling_tmde.tokenization import SPECIAL_TOKENS, wrapped
from tmde.data.checks import Words, bad_value, is_code
from tmde.data.files import read_lines
from tmde.data.io import replacing
from tmde.documents.mining import first_occurrences, mine_bitext
from tmde.documents.neighbours import TIE, find_neighbours, row_cosines, target_ranks
from tmde.documents.unit_rows import slices
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.progress import progress_bar

IDENTICAL = "identical"
NEIGHBORS = 10  # of CSLS
FREQUENT = 20_000  # words whose mutual neighbors are the dictionary of a refinement
CRITERION = 10_000  # words whose neighbors tell how good a mapping is
BATCH = 32  # words of each language
QUERIES = 2000  # of sentence retrieval


@dataclass(frozen=True)
class WordVectors:
    """Different words of a language, the most frequent first, and their vectors (n, d) float32."""

    words: list[str]
    vectors: np.ndarray

    @cached_property
    def rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, rows: slice) -> WordVectors:
        return WordVectors(self.words[rows], self.vectors[rows])

    def mapped(self, mapping: np.ndarray) -> WordVectors:
        """`W x` of every vector x, for a mapping W (d, d)."""
        return WordVectors(self.words, self.vectors @ mapping.T.astype(np.float32))


def read_word_vectors(path: str | os.PathLike, max_words: int | None = 200_000) -> WordVectors:
    """Reads fastText's text format: a line with the numbers of words and of dimensions, then a word and its vector.

    Words are lowercased, as in MUSE; of those that then are the same, the first is kept.

    Args:
        max_words: Read the first ones, which are the most frequent. None for all.

    Raises:
        CorpusError: A line that is not as its header says, or no word.
        OSError: There is no such file.
    """
    place, vectors = os.fspath(path), {}
    lines = read_lines(place)
    _, header = next(lines, (1, ""))
    try:
        count, width = map(int, header.split())
    except ValueError:
        expected, advice = (
            "the numbers of words and of dimensions",
            "Pass a .vec file in fastText's text format.",
        )
        raise bad_value(place, 1, None, header, expected, advice) from None
    number = 1
    for number, line in lines:
        word, *values = line.rstrip().rsplit(" ", width)
        try:
            vector = np.array(values, dtype=np.float32)
        except ValueError:
            vector = np.array([np.nan])
        if len(vector) != width or not np.isfinite(vector).all():
            expected = f"a word and {width} finite numbers, with a space between"
            raise bad_value(place, number, None, line, expected, "Correct or delete the line.")
        vectors.setdefault(word.lower(), vector)
        if len(vectors) == max_words:
            break
    if not vectors:
        raise bad_value(place, None, None, Words("no word"), "one a line", "Fetch the file again.")
    if len(vectors) != max_words and number - 1 != count:
        found = Words(f"{number - 1:,} lines after the first")
        raise bad_value(
            place, None, None, found, f"the {count:,} of its header", "Fetch the file again."
        )
    return WordVectors(list(vectors), np.stack(list(vectors.values())))


def write_word_vectors(path: str | os.PathLike, words: WordVectors) -> None:
    """Writes fastText's text format."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(words)} {words.vectors.shape[1]}\n")
        for word, vector in zip(words.words, words.vectors, strict=True):
            file.write(f"{word} {' '.join(f'{value:.5f}' for value in vector)}\n")


def read_dictionary(
    path: str | os.PathLike, source: WordVectors, target: WordVectors
) -> np.ndarray:
    """Row numbers (p, 2) of the pairs of a dictionary whose words both have vectors.

    Args:
        path: UTF-8, a word and its translation a line, with a space or tab between, as MUSE's dictionaries; or
            `identical`, for the words that both languages have, such as names and numbers.

    Raises:
        CorpusError: A line that is not two words, or no pair whose words both have vectors.
        OSError: There is no such file.
    """
    place = os.fspath(path)
    pairs = [(word, word) for word in source.words] if place == IDENTICAL else []
    for number, line in () if pairs else read_lines(place):
        if not line.strip():
            continue
        pairs.append(line.lower().split())
        if len(pairs[-1]) != 2:
            raise bad_value(
                place,
                number,
                None,
                line,
                "a word and its translation",
                "Correct or delete the line.",
            )
    known = [
        (source.rows[x], target.rows[y]) for x, y in pairs if x in source.rows and y in target.rows
    ]
    if not known:
        found = Words(f"{len(pairs):,} pairs, none of words that both have vectors")
        raise bad_value(
            place, None, None, found, "at least one", "Check the languages and their order."
        )
    return np.array(known)


def check_codes(*codes: str) -> None:
    """Raises [`CorpusError`] unless the codes are those of different languages: they name files and what they hold."""
    if len(set(codes)) < len(codes) or not all(map(is_code, codes)):
        raise bad_value(
            "languages",
            None,
            None,
            list(codes),
            "two codes such as de and pt-BR",
            "Correct the codes.",
        )


# ---- Mappings


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The orthogonal W (d, d) with the smallest `||W x - y||` over rows x and y of two (p, d): `U V^T`, where
    `U S V^T` is the singular value decomposition of `Y^T X` (004, equation 4.2)."""
    u, _, v = np.linalg.svd(target.T.astype(np.float64) @ source.astype(np.float64))
    return u @ v


def align_words(
    source: WordVectors,
    target: WordVectors,
    dictionary: np.ndarray | None = None,
    refinements: int = 5,
    **adversarial: int,
) -> np.ndarray:
    """The orthogonal mapping (d, d) of source vectors into the space of the target.

    Args:
        dictionary: Row numbers (p, 2) of translations, see [`read_dictionary`]. None: [`align_adversarially`].
        refinements: Most rounds of [`refine`].
        adversarial: Arguments of [`align_adversarially`].

    Raises:
        ValueError: The dimensions differ.
    """
    widths = [words.vectors.shape[1] for words in (source, target)]
    if widths[0] != widths[1]:
        raise TmdeError(
            f"Found word vectors of {widths[0]} and {widths[1]} dimensions, expected the same of both"
        )
    if dictionary is None:
        mapping = align_adversarially(source, target, **adversarial)
    else:
        mapping = procrustes(
            unit(source.vectors[dictionary[:, 0]]), unit(target.vectors[dictionary[:, 1]])
        )
    return refine(source, target, mapping, refinements)


def refine(
    source: WordVectors, target: WordVectors, mapping: np.ndarray, rounds: int = 5
) -> np.ndarray:
    """Procrustes on the mutual CSLS neighbors among the 20,000 most frequent words (004, section 4.1.2).

    Ends after `rounds`, or with the first that does not raise the [`criterion`]; returns the mapping of the highest.
    """
    first, second = unit(source.vectors[:FREQUENT]), unit(target.vectors[:FREQUENT])
    best = criterion(source, target, mapping) if rounds else 0.0
    for _ in range(rounds):
        pairs = mine_bitext(
            first @ mapping.T.astype(np.float32),
            second,
            scoring="distance",
            k=NEIGHBORS,
            retrieval="intersection",
        )
        found = procrustes(first[pairs.first], second[pairs.second])
        if (value := criterion(source, target, found)) <= best:
            break
        best, mapping = value, found
    return mapping


def criterion(source: WordVectors, target: WordVectors, mapping: np.ndarray) -> float:
    """Mean cosine of the 10,000 most frequent source words to their CSLS translations among as many target words,
    which needs no dictionary (004, section 4.1.3)."""
    queries, candidates = source[:CRITERION].mapped(mapping).vectors, target[:CRITERION].vectors
    pairs = mine_bitext(queries, candidates, scoring="distance", k=NEIGHBORS, retrieval="forward")
    return float(row_cosines(queries[pairs.first], candidates[pairs.second]).mean())


def align_adversarially(
    source: WordVectors,
    target: WordVectors,
    epochs: int = 5,
    steps: int = 31_250,
    frequent: int = 50_000,
    hidden: int = 2048,
    seed: int = 42,
) -> np.ndarray:
    """A mapping by which a discriminator cannot tell source words from target words, with no dictionary (004, 4.1).

    The settings are MUSE's: a discriminator with two hidden layers, input dropout 0.1 and smoothing 0.2; five steps
    of it for one of the mapping, in batches of 32 words of each language; SGD at 0.1, with decay 0.95 an epoch, halved
    where the [`criterion`] falls; after each step, `W <- 1.01 W - 0.01 W W^T W` (equation 4.7).

    The vectors keep their relative lengths, which tell frequent words from rare ones, but get the mean square length
    d: at length 1, the discriminator's gradients at this rate are too small to learn from.

    Args:
        epochs, steps: Steps of the mapping are their product. The default takes hours on a CPU.
        frequent: Words of each language that are drawn, all with one probability.
        hidden: Width of the discriminator's layers.
        seed: Of weights and draws.

    Returns:
        (d, d), orthogonal: the one nearest to the mapping after the epoch with the highest criterion.
    """
    width, device = source.vectors.shape[1], "cuda" if torch.cuda.is_available() else "cpu"
    tables = [torch.from_numpy(words.vectors[:frequent]).to(device) for words in (source, target)]
    tables = [table / table.square().mean().sqrt() for table in tables]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        discriminator = nn.Sequential(
            nn.Dropout(0.1),
            nn.Linear(width, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        ).to(device)
        mapping = nn.Parameter(torch.eye(width, device=device))
        players = [
            torch.optim.SGD(each, lr=0.1) for each in (discriminator.parameters(), [mapping])
        ]
        is_source = torch.tensor([0.8] * BATCH + [0.2] * BATCH, device=device)  # smoothed

        def loss(expected: torch.Tensor) -> torch.Tensor:
            words = [table[torch.randint(len(table), (BATCH,), device=device)] for table in tables]
            logits = discriminator(torch.cat([words[0] @ mapping.T, words[1]]))[:, 0]  # (2 BATCH,)
            return F.binary_cross_entropy_with_logits(logits, expected)

        best, found = -np.inf, np.eye(width)
        for epoch in range(epochs):
            for _ in progress_bar(
                range(steps), desc=f"Epoch {epoch + 1} of {epochs}", unit=" steps"
            ):
                for player, expected, times in zip(
                    players, (is_source, 1 - is_source), (5, 1), strict=True
                ):
                    discriminator.train(player is players[0])
                    for _ in range(times):
                        for each in players:
                            each.zero_grad()
                        loss(expected).backward()
                        player.step()
                with torch.no_grad():
                    mapping.copy_(1.01 * mapping - 0.01 * mapping @ mapping.T @ mapping)
            orthogonal = procrustes(np.eye(width), mapping.detach().cpu().numpy().T)
            value = criterion(source, target, orthogonal)
            for group in (group for player in players for group in player.param_groups):
                group["lr"] *= 0.95 if value >= best else 0.475
            if value > best:
                best, found = value, orthogonal
    return found


# ---- Measures


def translation_precision(
    source: WordVectors, target: WordVectors, dictionary: np.ndarray, scoring: str = "distance"
) -> dict[str, float]:
    """Precision at 1, 5 and 10 of dictionary induction: is a translation of the word among so many nearest words?

    Args:
        source, target: Vectors in one space.
        dictionary: Row numbers (p, 2), see [`read_dictionary`]; each source word counts once.
        scoring: `cosine`, or `distance` for CSLS (004, equation 4.6), `2 cos(x, y) - r(x) - r(y)`, with the mean
            cosines r to the ten nearest words of the other language.
    """
    known, places = np.unique(dictionary[:, 0], return_inverse=True)
    queries, candidates, density = (
        unit(source.vectors[known]),
        unit(target.vectors),
        np.zeros(len(target)),
    )
    if scoring == "distance":  # r(x) is the same for all candidates, and not needed
        density = find_neighbours(candidates, source.vectors, NEIGHBORS)[0].mean(axis=1) / 2
    best = np.full(len(known), len(target))
    for rows in slices(len(known), 256):
        scores = queries[rows] @ candidates.T - density  # (rows, m)
        here = np.flatnonzero((places >= rows.start) & (places < rows.stop))
        scores = scores[places[here] - rows.start]  # (pairs, m)
        right = np.take_along_axis(scores, dictionary[here, 1:], axis=1)
        np.minimum.at(best, places[here], np.count_nonzero(scores >= right - TIE, axis=1))
    return precision_at(best)


def precision_at(ranks: np.ndarray) -> dict[str, float]:
    """Shares of the (n,) ranks, counted from 1, that are at most 1, 5 and 10."""
    return {f"precision_at_{k}": float(np.mean(ranks <= k)) for k in (1, 5, 10)}


def measure(
    source: WordVectors,
    target: WordVectors,
    dictionary: np.ndarray | None,
    bag: tuple[BagModel, PreTrainedTokenizerFast],
    rows: Sequence[Mapping[str, str | None]],
) -> dict[str, dict[str, float]]:
    """Precision at 1, 5 and 10 of the translations of words and of sentences, by cosine and by CSLS (004, 4.1.4).

    Args:
        dictionary: As for [`translation_precision`]. None: words are not measured.
        bag: The [`word_bag`] of both languages.
        rows: Parallel rows of the bag's two languages; none: sentences are not measured. The first 2,000 of its first
            language are the queries, all of the other the candidates (table 4.3). Rows with a text of an earlier row
            are left out.
    """
    measures, pairs = {}, [tuple(row.get(code) for code in bag[0].config.languages) for row in rows]
    kept = [
        set(first_occurrences([text or "" for text in texts])[1].tolist())
        for texts in zip(*pairs, strict=True)
    ]
    pairs = [pair for row, pair in enumerate(pairs) if all(row in each for each in kept)]
    if pairs:
        sentences = [
            DocumentEmbedder(*bag).encode(list(texts)) for texts in zip(*pairs, strict=True)
        ]
    for name, scoring in (("cosine", "cosine"), ("CSLS", "distance")):
        if dictionary is not None:
            measures[f"words, {name}"] = translation_precision(source, target, dictionary, scoring)
        if pairs:
            queries, candidates = sentences[0][:QUERIES], sentences[1]
            ranks = target_ranks(queries, candidates, np.arange(len(queries)), scoring, NEIGHBORS)
            measures[f"sentences, {name}"] = precision_at(ranks)
    return measures


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


# ---- The bag


def word_bag(
    languages: Mapping[str, WordVectors], rows: Sequence[Mapping[str, str | None]] = ()
) -> tuple[BagModel, PreTrainedTokenizerFast]:
    """A bag of words of several languages in one space: each has its vector, at length 1, and its idf as weight.

    A word of several languages has the mean of its vectors. A text is lowercased, and punctuation is split off; words
    without a vector are left out of it.

    Args:
        languages: Word vectors by the code of the language.
        rows: Parallel rows, for the idf: the logarithm of their number over that of the texts with the word, or over
            1. Without rows, words have equal weights.
    """
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for words in languages.values():
        for word, vector in zip(words.words, unit(words.vectors), strict=True):
            found[word].append(vector)
    names = [*SPECIAL_TOKENS, *(word for word in found if word not in SPECIAL_TOKENS)]
    backend = Tokenizer(
        models.WordLevel({name: row for row, name in enumerate(names)}, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[\p{P}\p{S}]"), "isolated")]
    )
    tokenizer, special = wrapped(backend), len(SPECIAL_TOKENS)
    table = torch.from_numpy(np.stack([np.mean(found[name], axis=0) for name in names[special:]]))
    codes = {"languages": list(languages), "pivot_languages": list(languages)}
    model = BagModel(BagConfig(vocab_size=len(names), d_model=table.shape[1], **codes))
    with torch.no_grad():
        model.embed_tokens.weight[:special], model.embed_tokens.weight[special:] = (
            table.mean(dim=0),
            table,
        )
        if rows:
            texts = [text for row in rows for text in row.values() if text]
            with_word = np.ones(len(names))
            counts = Counter(token for ids in tokenizer(texts)["input_ids"] for token in set(ids))
            with_word[list(counts)] = list(counts.values())
            idf = np.log(np.maximum(len(rows) / with_word, 1))
            model.token_weights.copy_(torch.from_numpy(np.log(np.maximum(idf, 1e-6))))
        model.token_weights[:special] = SPECIAL_LOG_WEIGHT
    return model.eval(), tokenizer
