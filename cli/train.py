"""The command `tmde train`."""

from tmde.training.train import train

__all__ = ["train"]
