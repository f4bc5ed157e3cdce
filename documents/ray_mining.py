"""Mine translations on several machines with Ray Data (`pip install 'tmde[ray,search]'`).

```python
import pyarrow.parquet as pq
import ray
from tmde.documents.ray_mining import mine_datasets

german = ray.data.read_parquet("s3://bucket/de")
english = ray.data.read_parquet("s3://bucket/en")
pairs = mine_datasets(german, english, "path/to/model", concurrency=8, num_cpus=4, threshold=1.1)
pq.write_table(pairs, "pairs.parquet")
```

Each side is embedded by a pool of actors, and its vectors stay in Ray's object store, which spills
them to the disks of the machines. Then they are cut into shards of at most a million. Each shard is
indexed by an actor, which searches it for all vectors of the other side. The process that calls
this function holds the texts, and the nearest neighbors of each.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from modeling_tmde import TmdeError
from tmde.documents.mining import (
    Neighbors,
    check_retrieval,
    first_occurrences,
    retrieved_pairs,
    scored_neighbors,
)
from tmde.documents.neighbors import (
    EXACT_COST,
    LAST_EFFORT,
    SAMPLE,
    SHARD,
    NeighborGraph,
    check_scoring,
    exact_neighbors,
    merge_neighbors,
)
from tmde.documents.ray_embedding import embed_dataset
from tmde.documents.unit_rows import UnitRows
from tmde.embedding.progress import progress_bar

if TYPE_CHECKING:
    import ray.data

logger = logging.getLogger(__name__)

_ROW_COLUMN = "row"
_VECTOR_COLUMN = "embedding"


@dataclass(frozen=True)
class _Side:
    """The n different sentences of one side, and their vectors on the machines.

    Attributes:
        ids: The ids, (n,).
        texts: The texts, (n,).
        blocks: References to tables of some rows each: their numbers, and their vectors.
        block_sizes: The number of rows of each block.
        dimension: The dimension of the vectors.
    """

    ids: pa.ChunkedArray
    texts: pa.ChunkedArray
    blocks: list[Any]
    block_sizes: list[int]
    dimension: int

    @classmethod
    def of(cls, ids: pa.ChunkedArray, texts: pa.ChunkedArray, embedded: ray.data.Dataset) -> _Side:
        """Embed a side, and leave its vectors on the machines."""
        import ray

        chosen = embedded.select_columns([_ROW_COLUMN, _VECTOR_COLUMN])
        blocks = chosen.to_arrow_refs()
        count_rows = ray.remote(_count_rows)
        block_sizes = ray.get([count_rows.remote(block) for block in blocks])
        is_filled = [size > 0 for size in block_sizes]
        filled_blocks = list(itertools.compress(blocks, is_filled))
        filled_sizes = list(itertools.compress(block_sizes, is_filled))
        schema = ray.get(filled_blocks[0]).schema
        dimension = schema.field(_VECTOR_COLUMN).type.list_size
        return cls(ids, texts, filled_blocks, filled_sizes, dimension)

    def __len__(self) -> int:
        return len(self.texts)

    def sample(self, count: int) -> pa.Table:
        """Return about `count` rows, chosen at random, as many of each block."""
        import ray

        count_of_block = math.ceil(count / len(self.blocks))
        choose_rows = ray.remote(_random_rows)
        parts = ray.get([choose_rows.remote(block, count_of_block) for block in self.blocks])
        return pa.concat_tables(parts)

    def shards(self, shard_size: int) -> Iterator[list[Any]]:
        """Yield the blocks in groups of at most `shard_size` rows, or of one larger block."""
        group: list[Any] = []
        rows = 0
        for block, size in zip(self.blocks, self.block_sizes, strict=True):
            if group and rows + size > shard_size:
                yield group
                group = []
                rows = 0
            group.append(block)
            rows += size
        yield group


def mine_datasets(
    first: ray.data.Dataset,
    second: ray.data.Dataset,
    model: str,
    *,
    column: str = "text",
    id_column: str = "id",
    scoring: str = "ratio",
    k: int = 4,
    retrieval: str = "max",
    threshold: float | None = None,
    max_pairs: int | None = None,
    shard_size: int = SHARD,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    batch_size: int = 8192,
    **options: Any,
) -> pa.Table:
    """Return pairs of texts of two datasets that are likely translations.

    Up to n m d = 1e13 the pairs are those of [`~tmde.documents.mining.mine_bitext`]. Beyond, each
    shard is searched by a graph; see [`~tmde.documents.neighbors`].

    Args:
        first: Any Ray dataset with a column of texts.
        second: The same of the other side.
        model: The folder of a saved model that every machine can read, or a Hub id.
        column: The column of the texts. Empty and repeated ones are left out.
        id_column: The column of the ids. Without it, texts are numbered from 0.
        scoring: How pairs are scored, see `mine_bitext`.
        k: The number of neighbors of a margin.
        retrieval: How pairs are chosen, see `mine_bitext`.
        threshold: The least score of a pair; None for all.
        max_pairs: The most pairs, of the highest scores; None for all.
        shard_size: The most vectors that an actor searches. With 384 numbers, a million need 1.4
            GiB, and their graph 0.6 GiB.
        concurrency: The number of actors that embed; see
            [`~tmde.documents.ray_embedding.embed_dataset`].
        num_cpus: The CPUs, and threads, of an actor that embeds or searches.
        num_gpus: The GPUs of an actor that embeds.
        batch_size: The number of texts that an actor embeds at a time.
        **options: Further arguments of [`~tmde.documents.ray_embedding.BatchEmbedder`].

    Returns:
        A table of pairs, best first, with the columns `score`, `id_a`, `id_b`, `text_a` and
        `text_b`.

    Raises:
        TmdeError: As `mine_bitext`. What `BatchEmbedder` raises comes wrapped by Ray.
        ImportError: faiss is not installed.
    """
    check_scoring(scoring, k)
    check_retrieval(retrieval)
    sides = []
    for dataset in (first, second):
        ids, texts = _different_texts(dataset, id_column, column)
        embedded = embed_dataset(
            _numbered(texts, batch_size),
            model,
            output_column=_VECTOR_COLUMN,
            concurrency=concurrency,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            batch_size=batch_size,
            **options,
        )
        sides.append(_Side.of(ids, texts, embedded))
    first_side, second_side = sides
    search = _Search(k, shard_size, num_cpus)
    forward = search.neighbors(first_side, second_side)
    backward = search.neighbors(second_side, first_side)
    pairs = retrieved_pairs(scored_neighbors(forward, backward, scoring), retrieval, threshold)
    best = pairs[:max_pairs]
    return pa.table(
        {
            "score": best.scores,
            "id_a": first_side.ids.take(best.first),
            "id_b": second_side.ids.take(best.second),
            "text_a": first_side.texts.take(best.first),
            "text_b": second_side.texts.take(best.second),
        }
    )


def _different_texts(
    dataset: ray.data.Dataset, id_column: str, column: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the ids and texts of a dataset, without those that are empty or repeated, (n,) each.

    Raises:
        TmdeError: There is no such column, or no text.
    """
    import ray

    names = dataset.columns()
    if column not in names:
        raise TmdeError(f"column: found {column!r}, expected one of {names}")
    has_ids = id_column in names
    chosen = [id_column, column] if has_ids else [column]
    table = pa.concat_tables(ray.get(dataset.select_columns(chosen).to_arrow_refs()))
    _, rows = first_occurrences(table[column].to_pylist())
    if not len(rows):
        raise TmdeError(f"column: found no text in {column!r}, expected at least one")
    if has_ids:
        return table[id_column].take(rows), table[column].take(rows)
    return pa.chunked_array([rows]), table[column].take(rows)


def _numbered(texts: pa.ChunkedArray, batch_size: int) -> ray.data.Dataset:
    """Return a dataset of texts and their numbers, in blocks of a batch."""
    import ray.data

    table = pa.table({_ROW_COLUMN: np.arange(len(texts)), "text": texts})
    blocks = [table.slice(start, batch_size) for start in range(0, len(table), batch_size)]
    return ray.data.from_arrow(blocks)


class _Search:
    """Searches the nearest neighbors of one side on the other, shard by shard.

    Args:
        k: The number of neighbors.
        shard_size: The most vectors of a shard.
        num_cpus: The CPUs of an actor.
    """

    def __init__(self, k: int, shard_size: int, num_cpus: float) -> None:
        self.k = k
        self.shard_size = shard_size
        self.num_cpus = num_cpus

    def neighbors(self, queries: _Side, candidates: _Side) -> Neighbors:
        """Return the nearest candidates of each query, in the order of the queries.

        Returns:
            Cosines (n, k) float32, falling, and row numbers (n, k) int64.
        """
        import ray

        sample = queries.sample(SAMPLE)
        is_exact = len(queries) * len(candidates) * candidates.dimension <= EXACT_COST
        k = min(self.k, len(candidates))
        cosines = np.full((len(queries), k), -np.inf, np.float32)
        numbers = np.full((len(queries), k), len(candidates), np.int64)
        actor_class = ray.remote(ShardSearch).options(num_cpus=self.num_cpus)
        # Ray starts as many of these actors at a time as the machines have CPUs for, and the next
        # one when an actor is no longer referred to.
        results = []
        recalls = []
        for shard in candidates.shards(self.shard_size):
            actor: Any = actor_class.remote(shard, k, is_exact)
            recalls.append(actor.tune.remote(sample))
            results += [actor.nearest.remote(block) for block in queries.blocks]
            del actor
        with progress_bar(total=len(results), desc="Searching", unit=" blocks") as bar:
            while results:
                finished, results = ray.wait(results)
                rows, neighbors_of_shard = ray.get(finished[0])
                cosines[rows], numbers[rows] = merge_neighbors(
                    (cosines[rows], numbers[rows]), neighbors_of_shard, k
                )
                bar.update()
        if not is_exact:
            _tell_recall(ray.get(recalls))
        return cosines, numbers


class ShardSearch:
    """Searches one shard of candidates: the class of a Ray actor.

    Args:
        blocks: References to the blocks of the shard.
        k: The number of neighbors; all of the shard if it has fewer.
        is_exact: Whether all candidates are compared; False for a graph.
    """

    def __init__(self, blocks: list[Any], k: int, is_exact: bool) -> None:
        import ray

        tables = ray.get(blocks)
        vectors = np.concatenate([_vectors(table) for table in tables])
        self.row_numbers = np.concatenate([_row_numbers(table) for table in tables])
        self.candidates = UnitRows("candidates", vectors)
        self.k = min(k, len(self.candidates))
        self.graph = None
        if not is_exact:
            self.graph = NeighborGraph(self.candidates)

    def tune(self, block: pa.Table) -> float:
        """Tune the graph by some queries; return the share of the exact neighbors it finds."""
        if self.graph is None:
            return 1.0
        sample = UnitRows("sample", _vectors(block))
        return self.graph.tune(sample, self.k, LAST_EFFORT)

    def nearest(self, block: pa.Table) -> tuple[np.ndarray, Neighbors]:
        """Return the numbers of the queries of a block, and their nearest candidates."""
        queries = UnitRows("queries", _vectors(block))
        if self.graph is None:
            cosines, places = exact_neighbors(queries, self.candidates, self.k)
        else:
            cosines, places = self.graph.nearest(queries[:], self.k)
        return _row_numbers(block), (cosines, self.row_numbers[places])


def _count_rows(table: pa.Table) -> int:
    """Return the number of rows of a block, on the machine that holds it."""
    return len(table)


def _random_rows(table: pa.Table, most: int) -> pa.Table:
    """Return some rows of a block, chosen at random, on the machine that holds it."""
    size = min(len(table), most)
    rows = np.random.default_rng(42).choice(len(table), size, replace=False)
    return table.take(np.sort(rows))


def _tell_recall(recalls: list[float]) -> None:
    logger.warning(
        "Approximate search of %d shards by HNSW, which finds %.1f %% of the exact neighbors",
        len(recalls),
        100 * min(recalls),
    )


def _vectors(table: pa.Table) -> np.ndarray:
    """Return the vectors of a block, (n, d)."""
    column = table[_VECTOR_COLUMN].combine_chunks()
    return column.flatten().to_numpy().reshape(len(table), column.type.list_size)


def _row_numbers(table: pa.Table) -> np.ndarray:
    """Return the numbers of the rows of a block, (n,)."""
    numbers: np.ndarray = table[_ROW_COLUMN].to_numpy()
    return numbers
