"""How several processes train one model: DDP's and FSDP's settings that transformers leaves to accelerate."""

import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from modeling_tmde.training.arguments import TmdeTrainingArguments


def prepare_processes(accelerator: Accelerator, args: TmdeTrainingArguments, model: nn.Module) -> None:
    """Settles how the model will be wrapped.

    Raises:
        ValueError: FSDP is asked for and accelerate would ignore it, or it is FSDP of the first version.
    """
    if accelerator.ddp_handler is not None:
        accelerator.ddp_handler.gradient_as_bucket_view = True  # one copy of the gradients instead of two
    if args.ddp_broadcast_buffers is None:
        # Tables of positions, the same everywhere, would be sent before every step.
        buffers = [name for name, _ in model.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, buffers)
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None:
        asked = bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
        if asked and args.world_size > 1:
            raise ValueError(
                f"fsdp: found processes on {accelerator.device.type}, where accelerate does not shard a model, "
                "expected accelerators; leave fsdp out to train with DDP"
            )
        return
    if plugin.fsdp_version != 2:
        raise ValueError(
            f"fsdp: found version {plugin.fsdp_version}, expected 2: accelerate launch --fsdp_version 2, or "
            'fsdp_config={"version": 2}'
        )
    if plugin.mixed_precision_policy is not None:  # which would round losses and sums of gradients as well
        dtype = plugin.mixed_precision_policy.param_dtype
        plugin.mixed_precision_policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
