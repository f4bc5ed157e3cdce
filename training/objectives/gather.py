"""Exchange between processes: the rows of all of them, with gradients that flow back to where they came from.

Every process takes part in the same collectives, forward and backward, whatever its languages and rows are. Nothing
here waits for an accelerator.
"""

from functools import lru_cache

import torch
from torch import distributed, nn
from torch.distributed.nn.functional import all_gather


def num_processes() -> int:
    return (
        distributed.get_world_size()
        if distributed.is_available() and distributed.is_initialized()
        else 1
    )


@lru_cache(maxsize=1)
def _gloo_group(world: distributed.ProcessGroup) -> distributed.ProcessGroup:
    return distributed.new_group(backend="gloo")


def host_group() -> distributed.ProcessGroup:
    """A group of all processes that exchanges tensors in host memory, without waiting for the accelerator."""
    world = distributed.group.WORLD
    return world if distributed.get_backend() == "gloo" else _gloo_group(world)


def sum_on_host(values: list[float]) -> list[float]:
    """The sums of numbers over all processes; every process must call it."""
    if num_processes() == 1:
        return values
    total = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(total, group=host_group())
    return total.tolist()


def gather_rows(vectors: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """The rows of all processes; each must call it, and use some of them in what it calls `backward` on.

    Language `b` of another process is the one at the same place among its languages, whichever it is.

    Args:
        vectors: (languages, rows, d_model).

    Returns:
        For every language of this process, the vectors (rows of all, d_model), and where its own begin.
    """
    num_languages, num_rows, _ = vectors.shape
    sizes = torch.empty(num_processes(), 2, dtype=torch.int64)
    distributed.all_gather(list(sizes), torch.tensor([num_languages, num_rows]), group=host_group())
    shapes = sizes.tolist()
    most_languages, most_rows = map(max, zip(*shapes, strict=True))
    padding = (0, 0, 0, most_rows - num_rows, 0, most_languages - num_languages)
    padded = all_gather(nn.functional.pad(vectors, padding).contiguous())
    gathered = []
    for language in range(num_languages):
        counts = [rows if language < languages else 0 for languages, rows in shapes]
        parts = [part[language, :count] for part, count in zip(padded, counts, strict=True)]
        gathered.append((torch.cat(parts), sum(counts[: distributed.get_rank()])))
    return gathered
