"""LoRA: train adapters while the encoder's own weights stay frozen. Merge them on saving.

A checkpoint holds the merged weights, as `AutoModel` opens them, and beside them the adapters with
the weights that they were merged into, from which training resumes exactly.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_NAME, is_peft_available

from modeling_tmde import AdaptedForConditionalGeneration, TmdeError

if TYPE_CHECKING:
    from tmde.training.recipe.sections import LoraSection

ADAPTERS_NAME = "adapters.safetensors"


# ---- The adapters of a model


def add_adapters(model: PreTrainedModel, options: LoraSection) -> None:
    """Add LoRA adapters to the encoder of a model, in place, and freeze the encoder's own weights.

    Args:
        model: A model on an encoder of the Hub.
        options: The sizes of the adapters and the layers that get one.

    Raises:
        TmdeError: PEFT is not installed, or the encoder has none of the layers.
    """
    if not is_peft_available():
        raise TmdeError("model.lora requires the peft package: pip install 'tmde[lora]'")
    from peft import LoraConfig

    config = LoraConfig(
        r=options.r,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=options.target_modules,
    )
    assert isinstance(model, AdaptedForConditionalGeneration)  # No other section has `lora`.
    try:
        model.model.encoder.add_adapter(config)
    except ValueError as error:
        raise TmdeError(f"model.lora.target_modules={options.target_modules}: {error}") from error


def _adapted_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """Return the layers of a model that PEFT has wrapped, with their names."""
    if not is_peft_available():
        return []
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper  # The layers of `modules_to_save`.

    layers = []
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
            layers.append((name, module))
    return layers


def has_adapters(model: nn.Module) -> bool:
    """Return whether a model has adapters of PEFT."""
    return bool(_adapted_layers(model))


def adapter_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights of a model's adapters, which learn while those below them do not."""
    parameters = []
    for _, layer in _adapted_layers(model):
        parameters += [weight for weight in layer.parameters() if weight.requires_grad]
    return parameters


@torch.no_grad()
def merged_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model whose adapters are merged into its weights."""
    merged = copy.deepcopy(model)
    for name, layer in _adapted_layers(merged):
        if hasattr(layer, "merge"):
            layer.merge()
            plain = layer.get_base_layer()
        else:
            plain = layer.unload_and_optionally_merge_module(
                merge=True, safe_merge=False, adapter_names=None
            )
        parent_name, _, child = name.rpartition(".")
        setattr(merged.get_submodule(parent_name), child, plain)
    for module in merged.modules():
        if isinstance(module, PreTrainedModel):
            # Otherwise `save_pretrained` would look for adapters.
            module._hf_peft_config_loaded = False
    return merged


def unwrap_peft(model: Any) -> PreTrainedModel:
    """Return the model inside a `PeftModel`, with its adapters; any other model as it is.

    Raises:
        TmdeError: The `PeftModel` learns a prompt, which is no part of the model inside it.
    """
    if not is_peft_available():
        return cast(PreTrainedModel, model)
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return cast(PreTrainedModel, model)
    config = model.active_peft_config
    if config.is_prompt_learning:
        raise TmdeError(
            f"model: found a PeftModel with {type(config).__name__}, expected adapters in the "
            "model's layers, because a learned prompt can't be merged into the weights; use "
            "peft.LoraConfig"
        )
    return cast(PreTrainedModel, model.get_base_model())


# ---- Checkpoints


def save_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's adapters and the weights that they are merged into; nothing without any.

    The merged weights, which the folder holds already, do not give them back.
    """
    prefixes = tuple(f"{name}." for name, _ in _adapted_layers(model))
    weights = {}
    for name, weight in model.state_dict().items():
        if name.startswith(prefixes):
            weights[name] = weight.contiguous()
    if weights:
        save_file(weights, folder / ADAPTERS_NAME)


def read_weights(model: nn.Module, folder: str | Path) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint by the names that they have in a model.

    Of a model with adapters, these are its adapters and the weights below them. The merged weights
    in their place are left out.

    Raises:
        TmdeError: The checkpoint has adapters, and the model has none.
    """
    weights = load_file(Path(folder, SAFE_WEIGHTS_NAME))
    path = Path(folder, ADAPTERS_NAME)
    if not path.exists():
        return weights
    if not has_adapters(model):
        raise TmdeError(
            f"{folder} was trained with adapters: resume it with --lora, or in Python with a "
            "model that has the same adapters"
        )
    names = model.state_dict().keys()
    weights = {name: weight for name, weight in weights.items() if name in names}
    return weights | load_file(path)
