"""Micro-batches of parallel rows: what is in one, how they are planned, and how they are loaded."""

from tmde.training.batches.batch import ParallelBatch, Position
from tmde.training.batches.loading import ParallelBatches, ParallelLoader, batches_of

__all__ = ["ParallelBatch", "ParallelBatches", "ParallelLoader", "Position", "batches_of"]
