"""Former home of `modeling_tmde.cli.options.load_embedder`; it goes when its users have moved."""

import sys
from contextlib import nullcontext

from modeling_tmde.cli.options import _model_problem as model_problem
from modeling_tmde.cli.options import load_embedder


def load_model(model, device, bar, loading):
    return load_embedder(model, device=device, **loading)


def told_out_of_memory(embedder, hint):
    return nullcontext()


def stderr_is_terminal() -> bool:
    return sys.stderr.isatty()


__all__ = ["load_model", "model_problem", "stderr_is_terminal", "told_out_of_memory"]
