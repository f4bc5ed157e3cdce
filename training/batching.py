"""From parallel rows to micro-batches that fill a token budget, the same for every run of a seed.

An epoch is cut into chunks of `buffer_rows` rows. Each chunk is planned on its own from (seed, epoch, chunk): which
languages of a row are used, which rows share a batch, in which order the batches come. So a run resumes at any
batch by planning one chunk, and every process plans the same batches and keeps its share. Memory holds one chunk of a
stream. The tokens of a map-style dataset are read from a `TokenCache`, if one is given; without it every process and
DataLoader worker makes and holds the token ids of the rows drawn so far (2 bytes a token, 16 a text).
"""

import itertools
from collections.abc import Iterator

import datasets
import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.data.token_cache import TokenCache
from modeling_tmde.data.token_store import (
    ArrowSource,
    ListSource,
    TextEncoder,
    Tokens,
    TokenStore,
    forkable_tokenizers,
)
from modeling_tmde.training.collate import Collator, ParallelBatch
from modeling_tmde.training.planning import ChunkCounts, Plan, Planner, Position
from modeling_tmde.training.teacher_vectors import TeacherVectors, check_unjoined

__all__ = ["ChunkCounts", "ParallelBatch", "ParallelBatches", "ParallelLoader", "Position"]

logger = logging.get_logger("modeling_tmde.training")


class ParallelBatches(IterableDataset):
    """
    Micro-batches of parallel rows, for one process of `world_size`.

    Of every row at most `languages_per_row` languages are used. Which ones is drawn
    with weight `n ** (1 / temperature - 1)`, where `n` counts the rows of the chunk that could give the same
    languages: `temperature=1` draws among a row's own possibilities with equal chances, `inf` makes the pairs as
    even as the rows allow (the paper's uniform sampling).

    Args:
        dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        tokenizer: Makes `<s> tokens </s>`.
        languages, pivot_languages: Languages to use, and those the decoder translates into.
        micro_batch_tokens: Most padded tokens of a micro-batch, all languages counted; a row longer than that is a
            micro-batch of its own.
        languages_per_row: Languages used of each row; None uses all that a row has.
        temperature: Of the draw described above.
        buffer_rows: Rows of a chunk.
        micro_batch_rows: Most rows of a micro-batch; None for no such limit.
        max_joined_rows: Joins a row with up to this many less one that follow it in its document (a number drawn
            evenly from 1 to it) to one longer text in every language, so that the encoder also learns texts of several
            sentences; 1 leaves rows as they are. The tokenizer must begin texts with a blank, which then is between
            them. Which document a row belongs to says the column `doc_id` of a map-style dataset; without it, or of
            a stream, rows stay as they are, and a warning says so.
        neighbor_share: Of so many of the rows the last language's text is replaced by the row that follows in the
            document, if there is one: neighbours share their topic, not their words.
        pivots_only: Whether every set of languages must hold a pivot, as translation needs it.
        max_length: Longer texts are truncated to this many tokens, and counted.
        seed: Of shuffling and drawing.
        epochs: Passes over the rows; None repeats them for ever.
        shuffle: Whether rows and batches are shuffled.
        rank, world_size: Micro-batches `rank`, `rank + world_size`, ... are this process's. Rounds that cannot be
            filled for all processes at the very end are left out.
        start: Where to begin, for resuming.
        token_cache: The tokens of `dataset`, from `open_token_cache`; None makes them as rows are drawn. The batches
            are the same.
        teacher: Gives batches a teacher's vectors of `dataset`, from `open_teacher_vectors`.

    Raises:
        ValueError: If there are fewer than two languages or `languages_per_row` is below two, if an option is out of
            its range, rows are joined whose tokenizer leaves no blank between them or which a teacher reads, or the
            cache has other languages.
    """

    def __init__(
        self,
        dataset: datasets.Dataset | datasets.IterableDataset,
        tokenizer: PreTrainedTokenizerBase,
        languages: list[str],
        pivot_languages: list[str],
        micro_batch_tokens: int = 8192,
        languages_per_row: int | None = 2,
        temperature: float = float("inf"),
        buffer_rows: int = 8192,
        micro_batch_rows: int | None = None,
        max_joined_rows: int = 1,
        neighbor_share: float = 0.0,
        pivots_only: bool = True,
        max_length: int = 256,
        seed: int = 0,
        epochs: int | None = 1,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        start: Position | None = None,
        token_cache: TokenCache | None = None,
        teacher: TeacherVectors | None = None,
    ):
        self.planner = Planner(
            languages=list(languages),
            pivot_languages=list(pivot_languages),
            micro_batch_tokens=micro_batch_tokens,
            languages_per_row=languages_per_row,
            temperature=temperature,
            micro_batch_rows=micro_batch_rows,
            max_joined_rows=max_joined_rows,
            neighbor_share=neighbor_share,
            pivots_only=pivots_only,
            max_length=max_length,
            shuffle=shuffle,
        )
        if teacher is not None:
            check_unjoined(max_joined_rows, neighbor_share)
        joined = tokenizer.decode(2 * tokenizer.encode("a", add_special_tokens=False))
        if max_joined_rows > 1 and joined != "a a":
            raise ValueError(
                f"max_joined_rows={max_joined_rows}: the tokenizer makes {joined!r} of the texts 'a' and 'a' joined, "
                "expected 'a a': train it with tokenizer.add_prefix_space=true, or set max_joined_rows=1"
            )
        if token_cache is not None and token_cache.languages != list(languages):
            raise ValueError(
                f"The token cache {token_cache.folder} holds {token_cache.languages}, expected {list(languages)}"
            )
        self.dataset = dataset
        self.languages = list(languages)
        self.pivot_languages = list(pivot_languages)
        self.encoder = TextEncoder(tokenizer)
        self.collator = Collator(tokenizer, self.languages, self.pivot_languages, max_length, teacher)
        self.buffer_rows = buffer_rows
        self.seed = seed
        self.epochs = epochs
        self.shuffle = shuffle
        self.rank = rank
        self.world_size = world_size
        self.start = start or Position()
        self._tokens: tuple[datasets.Dataset, Tokens] | None = None
        if token_cache is not None:
            self._tokens = (dataset, token_cache)

    @property
    def num_rows(self) -> int | None:
        """Rows of an epoch, or None for a stream of unknown length."""
        return len(self.dataset) if isinstance(self.dataset, datasets.Dataset) else None

    def __iter__(self) -> Iterator[ParallelBatch]:
        worker = get_worker_info()
        workers, worker_id = (worker.num_workers, worker.id) if worker else (1, 0)
        batches = self._batches()
        for index in itertools.count():
            window = list(itertools.islice(batches, self.world_size))
            if len(window) < self.world_size:
                return
            if index % workers == worker_id:
                position, tokens, plan, counts, _ = window[self.rank]
                batch = self.collator(tokens, plan, position, counts)
                last, *_, batch.chunk_done = window[-1]
                batch.next_position = Position(last.epoch, last.chunk, last.batch + 1)
                yield batch

    def _batches(self) -> Iterator[tuple[Position, Tokens, Plan, ChunkCounts, float]]:
        epochs = itertools.count(self.start.epoch) if self.epochs is None else range(self.start.epoch, self.epochs)
        for epoch in epochs:
            first_chunk = self.start.chunk if epoch == self.start.epoch else 0
            found = False
            for chunk, (tokens, rows) in enumerate(self._chunks(epoch, first_chunk), start=first_chunk):
                skip = self.start.batch if (epoch, chunk) == (self.start.epoch, self.start.chunk) else 0
                planned, counts = self.planner.plan(tokens, rows, np.random.default_rng([self.seed, epoch, chunk]))
                found = found or bool(planned)
                for index, plan in enumerate(planned):
                    if index >= skip:
                        yield Position(epoch, chunk, index), tokens, plan, counts, (index + 1) / len(planned)
            if not found and first_chunk == 0:
                pivots = f" with one of the pivot languages {self.pivot_languages} among them"
                raise ValueError(
                    f"No row of the training data has two of the languages {self.languages}"
                    f"{pivots if self.planner.pivots_only else ''}; check data.languages and data.pivot_languages"
                )

    def _chunks(self, epoch: int, first_chunk: int) -> Iterator[tuple[Tokens, np.ndarray]]:
        """The rows of an epoch, `buffer_rows` at a time from chunk `first_chunk` on, and their tokens."""
        if isinstance(self.dataset, datasets.Dataset):
            if self._tokens is None or self._tokens[0] is not self.dataset:
                source = ArrowSource(self.dataset, self.languages)
                self._tokens = (self.dataset, TokenStore(source, self.encoder))
            tokens = self._tokens[1]
            order = np.arange(len(self.dataset))
            if self.shuffle:
                order = np.random.default_rng([self.seed, epoch]).permutation(order)
            self._check_documents(tokens)
            for begin in range(first_chunk * self.buffer_rows, len(order), self.buffer_rows):
                yield tokens, order[begin : begin + self.buffer_rows]
            return
        stream = self.dataset
        if self.shuffle:
            stream = stream.shuffle(seed=self.seed, buffer_size=self.buffer_rows)
            stream.set_epoch(epoch)
        # `iter` reads all of the stream in any DataLoader worker, where plain iteration would take a share of its
        # files and another seed; and `skip` would forget the epoch.
        for rows in itertools.islice(stream.iter(self.buffer_rows), first_chunk, None):
            tokens = TokenStore(ListSource(rows["translation"], self.languages), self.encoder)
            self._check_documents(tokens)
            yield tokens, np.arange(len(tokens.neighbors))

    def _check_documents(self, tokens: Tokens) -> None:
        if (self.planner.max_joined_rows > 1 or self.planner.neighbor_share) and not tokens.neighbors.any():
            option = f"neighbor_share={self.planner.neighbor_share}"
            if self.planner.max_joined_rows > 1:
                option = f"max_joined_rows={self.planner.max_joined_rows}"
            logger.warning_once(
                f"{option} has no effect: no two rows of the training data follow each other in a document, which a "
                "column doc_id of map-style data would say"
            )


class ParallelLoader(DataLoader):
    """A `DataLoader` of `ParallelBatches`, whose workers know from their start that they have no tokenizer threads."""

    def __iter__(self):
        with forkable_tokenizers():
            return super().__iter__()
