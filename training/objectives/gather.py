"""Exchange between processes: the rows of all of them, with gradients that flow back to where they came from.

Every process takes part in the same collectives, forward and backward, whatever its languages and rows are. Nothing
here waits for an accelerator.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import distributed, nn
from torch.distributed.nn.functional import all_gather


def num_processes() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


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


@dataclass
class GatheredRows:
    """The embeddings of all processes.

    Language `b` of another process is the one at the same place among its languages, whichever it is.

    Attributes:
        vectors: (processes, most languages of any, most rows of any, d_model), padded with zeros.
        shapes: (languages, rows) of each process.
        rank: The place of this process.
    """

    vectors: torch.Tensor
    shapes: list[tuple[int, int]]
    rank: int

    def rows(self, language: int) -> tuple[torch.Tensor, int]:
        """The vectors (rows of all, d_model) of a language, and where this process's own begin."""
        counts = [rows if language < languages else 0 for languages, rows in self.shapes]
        parts = [part[language, :count] for part, count in zip(self.vectors, counts, strict=True)]
        return torch.cat(parts), sum(counts[: self.rank])


def gather_rows(vectors: torch.Tensor) -> GatheredRows:
    """The rows of all processes; each must call it, and use some of them in what it calls `backward` on.

    Args:
        vectors: (languages, rows, d_model).
    """
    num_languages, num_rows, _ = vectors.shape
    sizes = torch.empty(num_processes(), 2, dtype=torch.int64)
    distributed.all_gather(list(sizes), torch.tensor([num_languages, num_rows]), group=host_group())
    shapes = [(languages, rows) for languages, rows in sizes.tolist()]
    most_languages, most_rows = map(max, zip(*shapes, strict=True))
    padding = (0, 0, 0, most_rows - num_rows, 0, most_languages - num_languages)
    padded = nn.functional.pad(vectors, padding).contiguous()
    return GatheredRows(torch.stack(all_gather(padded)), shapes, distributed.get_rank())
