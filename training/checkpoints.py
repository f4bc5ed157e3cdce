"""Weights of a model in training, whole or sharded over processes (FSDP2): gathered, saved and loaded."""

import copy
from pathlib import Path

import torch
from accelerate import PartialState, init_empty_weights
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from modeling_tmde.training.parallel_model import ParallelModel

WEIGHTS_NAME = "model.safetensors"


def is_sharded(model: nn.Module) -> bool:
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gathered_weights(model: PreTrainedModel, everywhere: bool = False) -> dict[str, torch.Tensor]:
    """The whole weights of a sharded model, tied ones once. Every process must call it.

    Args:
        everywhere: On the device of every process, or else on the host of the first alone; others then get none.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=not everywhere)
    weights = get_model_state_dict(model, options=options)
    return {name: tensor for name, tensor in weights.items() if name not in model.all_tied_weights_keys}


def whole_model(parallel: ParallelModel) -> ParallelModel:
    """The model itself, or of a sharded one a copy that each process can use alone. Every process must call it."""
    if not is_sharded(parallel):
        return parallel
    weights = gathered_weights(parallel.model, everywhere=True)
    with init_empty_weights(include_buffers=False):
        model = type(parallel.model)(copy.deepcopy(parallel.config))
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.to(next(iter(weights.values())).device)
    return ParallelModel(model, dict(parallel.objectives.items()))


def save_weights(parallel: ParallelModel, folder: str, weights: dict[str, torch.Tensor] | None = None) -> None:
    """Writes the inner model as a folder that every Auto class opens.

    Args:
        weights: What `gathered_weights` gave, if the model is sharded.
    """
    config = parallel.config
    use_cache = config.use_cache  # which transformers sets to off while it trains, whatever the model
    if parallel.has_decoder:
        config.use_cache = True
    else:
        del config.use_cache
    parallel.model.save_pretrained(folder, state_dict=weights)
    config.use_cache = use_cache


def load_weights(model: PreTrainedModel, folder: str) -> None:
    """Puts the weights of a `save_pretrained` folder into a model that exists already; into a sharded one from the
    first process, and every process must call it.

    Raises:
        ValueError: The weights are not those of such a model.
    """
    path = Path(folder) / WEIGHTS_NAME
    with safe_open(path, framework="pt") as file:
        found = set(file.keys())
    expected = set(model.state_dict())
    missing = sorted(expected - found - set(model.all_tied_weights_keys))
    unexpected = sorted(found - expected)
    if missing or unexpected:
        raise ValueError(
            f"The weights in {folder} do not fit the model: missing {missing[:5]}, unexpected {unexpected[:5]}; "
            "resume with the recipe the run was started with"
        )
    if is_sharded(model):
        tensors = load_file(path) if PartialState().is_main_process else {}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
        set_model_state_dict(model, tensors, options=options)
    else:
        model.load_state_dict(load_file(path), strict=False)
        model.tie_weights()
