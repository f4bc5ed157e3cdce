"""Several processes that train one model: how they are launched, FSDP2, and sharded weights."""

import copy
import os
from collections.abc import Mapping
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
from transformers import PreTrainedModel, TrainingArguments

from modeling_tmde import TmdeError
from tmde.data.rows import triple_texts
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.lora import has_adapters, read_weights
from tmde.training.objectives import BackTranslation, WeightRegularization
from tmde.training.parallel_model import ParallelModel

FSDP_VERSION = 2
MAX_SHOWN_KEYS = 5


# Set by launchers for each process; the first is torch's, the others are those of MPI.
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def check_processes(args: TrainingArguments) -> None:
    """Check that the processes of a run train one model together.

    Args:
        args: The training arguments, which have set up the devices.

    Raises:
        TmdeError: A launcher has started several processes that each would train a model of their
            own, or one process instead of several; or one process sees several GPUs. Says what to
            type instead.
    """
    sizes = [int(os.environ.get(name, 1)) for name in WORLD_SIZE_VARIABLES]
    if max(sizes) > 1 and args.world_size == 1:
        raise TmdeError(
            f"The launcher started {max(sizes)} processes, but found world_size=1: each would "
            f"train its own model on {args.device}. On CPUs, set use_cpu=True; on GPUs, give "
            "each process one"
        )
    if args.world_size == 1 and _is_alone_after_accelerate(os.environ):
        raise TmdeError(
            "`accelerate launch` started only one process, as it does on CPUs. Use `torchrun "
            "--nproc-per-node 2` instead. (If you want one process, unset MASTER_ADDR and "
            "MASTER_PORT.)"
        )
    if args.n_gpu > 1:
        raise TmdeError(
            f"Found {args.n_gpu} visible GPUs and one process. transformers would use "
            "nn.DataParallel, which can't split parallel rows. Launch one process per GPU, "
            f"`accelerate launch --num_processes {args.n_gpu} SCRIPT` or `torchrun "
            f"--nproc-per-node {args.n_gpu} SCRIPT` (for the command, SCRIPT is `-m tmde "
            "train ...`); or train on one GPU: CUDA_VISIBLE_DEVICES=0"
        )


def _is_alone_after_accelerate(environment: Mapping[str, str]) -> bool:
    """Return whether `accelerate launch` has started one process although it was asked for more.

    Where it finds no GPU, `--num_processes 2` sets the address at which the processes would meet,
    and nothing else: none of the variables that tell a process its rank.
    """
    is_launched_by_accelerate = "ACCELERATE_MIXED_PRECISION" in environment
    has_address = "MASTER_ADDR" in environment and "MASTER_PORT" in environment
    is_one_of_several = any(name in environment for name in WORLD_SIZE_VARIABLES)
    return is_launched_by_accelerate and has_address and not is_one_of_several


def prepare_fsdp(
    accelerator: Accelerator, args: TmdeTrainingArguments, model: ParallelModel
) -> None:
    """Set what transformers leaves to accelerate, before the model is wrapped.

    Raises:
        TmdeError: FSDP is asked for where accelerate would ignore it, in its first version, for a
            model with adapters, or for an objective with weights of its own, which would be
            sharded, that translates, or that reads the weights.
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
        raise TmdeError("fsdp: found an objective with its own weights, such as nli; use DDP")
    if has_adapters(model.model):
        raise TmdeError("fsdp: found a model with adapters (LoRA); use DDP")
    for objective in model.objectives.values():
        if isinstance(objective, BackTranslation):
            raise TmdeError(
                "fsdp: found objective back_translation, which needs translations of equal "
                "length in all processes; use DDP"
            )
        if isinstance(objective, WeightRegularization):
            raise TmdeError(
                "fsdp: found objective weight_regularization, which needs all weights in one "
                "process; use DDP"
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
            f"The weights in {folder} do not match the model: missing "
            f"{missing[:MAX_SHOWN_KEYS]}, unexpected {keys.unexpected_keys[:MAX_SHOWN_KEYS]}; "
            "resume with the recipe of the run"
        )
    model.tie_weights()
