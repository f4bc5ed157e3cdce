"""Several processes that train one model: settings of FSDP2, and weights of a sharded model."""

import copy
from typing import Any, cast

import torch
from accelerate import Accelerator, PartialState, init_empty_weights
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from modeling_tmde import TmdeError
from tmde.data.rows import triple_texts
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.lora import has_adapters, read_weights
from tmde.training.objectives import BackTranslation
from tmde.training.parallel_model import ParallelModel

FSDP_VERSION = 2
MAX_SHOWN_KEYS = 5


def prepare_fsdp(
    accelerator: Accelerator, args: TmdeTrainingArguments, model: ParallelModel
) -> None:
    """Set what transformers leaves to accelerate, before the model is wrapped.

    Raises:
        TmdeError: FSDP is asked for where accelerate would ignore it, in its first version, for a
            model with adapters, or for an objective with weights of its own, which would be
            sharded, or that translates.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    version = None if plugin is None else plugin.fsdp_version
    if args.fsdp and args.world_size > 1 and version != FSDP_VERSION:
        raise TmdeError(
            f"fsdp: found processes on {accelerator.device.type} and "
            f'fsdp_config={args.fsdp_config}, expected accelerators and {{"version": 2}}'
        )
    if plugin is None:
        return
    if list(model.objectives.parameters()):
        raise TmdeError(
            "fsdp: found an objective with weights of its own, such as nli, expected none: use DDP"
        )
    if has_adapters(model.model):
        raise TmdeError("fsdp: found a model with adapters (LoRA), expected one without: use DDP")
    for objective in model.objectives.values():
        if isinstance(objective, BackTranslation):
            raise TmdeError(
                "fsdp: found objective back_translation, whose processes write translations of "
                "different lengths, expected it without FSDP: use DDP"
            )
    policy = plugin.mixed_precision_policy
    if policy is not None:  # It would round losses and the sums of gradients.
        plugin.mixed_precision_policy = MixedPrecisionPolicy(
            param_dtype=policy.param_dtype, reduce_dtype=torch.float32
        )


def is_sharded(model: nn.Module) -> bool:
    """Return whether each process holds a share of the weights only."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gathered_weights(model: PreTrainedModel, everywhere: bool = False) -> dict[str, torch.Tensor]:
    """Return the whole weights of a sharded model, tied ones once. Every process must call it.

    Args:
        model: The model.
        everywhere: Whether the weights are put on the device of every process, instead of on the
            host of the first alone.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=not everywhere)
    # Whole weights are tensors; other options would give other values.
    weights = cast(dict[str, torch.Tensor], get_model_state_dict(model, options=options))
    tied = model.all_tied_weights_keys
    return {name: tensor for name, tensor in weights.items() if name not in tied}


def whole_model(parallel: ParallelModel) -> ParallelModel:
    """Return a model that each process can use alone. Every process must call it.

    A sharded model is copied; another one is returned itself.
    """
    if not is_sharded(parallel):
        return parallel
    weights = gathered_weights(parallel.model, everywhere=True)
    with init_empty_weights(include_buffers=False):
        model = type(parallel.model)(copy.deepcopy(parallel.config))
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    device = next(iter(weights.values())).device
    model.to(device)  # type: ignore[arg-type]  # transformers wraps `to` without its types
    objectives = dict(parallel.objectives.items())
    return ParallelModel(model, objectives, triples=triple_texts(parallel.texts))


def load_weights(model: PreTrainedModel, folder: str) -> None:
    """Load the weights of a `save_pretrained` folder into a model, sharded or not.

    Every process must call it.

    Raises:
        TmdeError: The weights are those of another model.
    """
    if is_sharded(model):
        weights: dict[str, Any] = {}
        if PartialState().is_main_process:
            weights = read_weights(model, folder)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
        set_model_state_dict(model, weights, options=options)
        return
    keys = model.load_state_dict(read_weights(model, folder), strict=False)
    missing = sorted(set(keys.missing_keys) - set(model.all_tied_weights_keys))
    if missing or keys.unexpected_keys:
        raise TmdeError(
            f"The weights in {folder} do not fit the model: missing {missing[:MAX_SHOWN_KEYS]}, "
            f"unexpected {keys.unexpected_keys[:MAX_SHOWN_KEYS]}; resume with the recipe of the run"
        )
    model.tie_weights()
