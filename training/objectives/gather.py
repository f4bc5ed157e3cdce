"""Exchange between processes: rows of all of them, with gradients that flow back to their origin.

Every process takes part in the same collectives, forward and backward, whatever its languages and
rows are. Nothing here waits for an accelerator.
"""

from functools import lru_cache

import torch
from torch import distributed, nn
from torch.distributed.nn.functional import all_gather


def num_processes() -> int:
    """Return the number of processes that train together; 1 where nothing is distributed."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


@lru_cache(maxsize=1)
def _gloo_group(world: distributed.ProcessGroup) -> distributed.ProcessGroup:
    """Return a new gloo group; `world` is the key of the cache."""
    group: distributed.ProcessGroup = distributed.new_group(backend="gloo")
    return group


def host_group() -> distributed.ProcessGroup:
    """Return a group of all processes that exchanges tensors in host memory."""
    world = distributed.group.WORLD
    assert world is not None  # Several processes train together.
    if distributed.get_backend() == "gloo":
        return world
    return _gloo_group(world)


def sum_on_host(values: list[float]) -> list[float]:
    """Return the sums of numbers over all processes; every process must call it."""
    if num_processes() == 1:
        return values
    total = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(total, group=host_group())
    sums: list[float] = total.tolist()
    return sums


def gather_rows(vectors: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """Return the rows of all processes, language by language.

    Each process must call it, and use some of the rows in what it calls `backward` on. Language `b`
    of another process is the one at the same place among its languages, whichever it is.

    Args:
        vectors: (languages, rows, d_model).

    Returns:
        For every language of this process, the vectors (rows of all, d_model), and where the
        process's own begin.
    """
    num_languages, num_rows, _ = vectors.shape
    shapes = _gather_shapes(num_languages, num_rows)
    most_languages = max(languages for languages, _ in shapes)
    most_rows = max(rows for _, rows in shapes)
    padding = (0, 0, 0, most_rows - num_rows, 0, most_languages - num_languages)
    padded = nn.functional.pad(vectors, padding).contiguous()
    parts = all_gather(padded)  # type: ignore[no-untyped-call]
    rank = distributed.get_rank()
    gathered = []
    for language in range(num_languages):
        counts = [rows if language < languages else 0 for languages, rows in shapes]
        rows = [part[language, :count] for part, count in zip(parts, counts, strict=True)]
        gathered.append((torch.cat(rows), sum(counts[:rank])))
    return gathered


def _gather_shapes(num_languages: int, num_rows: int) -> list[list[int]]:
    """Return (languages, rows) of every process."""
    shapes = torch.empty(num_processes(), 2, dtype=torch.int64)
    local_shape = torch.tensor([num_languages, num_rows])
    distributed.all_gather(list(shapes), local_shape, group=host_group())
    pairs: list[list[int]] = shapes.tolist()
    return pairs
