# SPDX-License-Identifier: Apache-2.0

"""What all families share: base classes, the texts of a batch, pooling."""

import math
import os
import stat
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import as_validated_field, strict
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init

from .sentence_transformers_files import COMPANIONS, write_sentence_transformers_files

__all__ = [
    "EmbedderConfig",
    "EmbedderPreTrainedModel",
    "TmdeError",
    "TmdeOutputProjection",
    "check_inputs",
    "computes_from_weights",
    "first_places",
    "init_linear",
    "pool_states",
    "resized_token_weights",
    "sinusoidal_positions",
    "size",
    "text_mask",
]


class TmdeError(ValueError):
    """An error that the user can fix, such as an invalid argument.

    The `tmde` command prints it without a traceback.

    Example:
        ```python
        from tmde import DocumentEmbedder, TmdeError

        try:
            DocumentEmbedder.from_pretrained(pooling="average")
        except TmdeError as error:
            print(error)
        ```
    """


# ---- Base classes


@as_validated_field
def size(value: int) -> None:
    """Declare a field of a configuration that counts something and is at least 1.

    Example: `d_model: int = size(default=1024)`.

    Raises:
        ValueError: If the value is less than 1.
    """
    if value < 1:
        raise TmdeError(f"found {value}, expected at least 1")


@strict
class EmbedderConfig(PreTrainedConfig):
    r"""Base class of all configurations.

    Args:
        languages: The language codes. The position of a code is its language id.
        pivot_languages: The languages that the decoder learns to translate into; a subset of
            `languages`.
        bos_token_id: The id of `<s>`.
        pad_token_id: The id of `<pad>`.
        eos_token_id: The id of `</s>`, or several ids.

    Raises:
        ValueError: A language is listed twice, or a pivot language is not in `languages`.
    """

    languages: tuple[str, ...] | list[str] = ("de", "en", "es", "fr", "it")
    pivot_languages: tuple[str, ...] | list[str] = ("en", "es")
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs):
        # JSON has no tuples.
        self.languages = list(self.languages)
        self.pivot_languages = list(self.pivot_languages)
        super().__post_init__(**kwargs)

    def validate_languages(self) -> None:
        """Check the languages of a new config.

        A strict dataclass calls all of its methods that are named `validate_...`.

        Raises:
            ValueError: A language is listed twice, or a pivot language is not in `languages`.
        """
        if len(set(self.languages)) != len(self.languages):
            raise TmdeError(f"languages={self.languages} lists a language twice")
        unknown = [code for code in self.pivot_languages if code not in self.languages]
        if unknown:
            raise TmdeError(
                f"pivot_languages {unknown} are not among languages={self.languages}; set "
                "pivot_languages, the languages the decoder translates into (default: en and "
                "es)"
            )

    def _check_multiple(self, name: str, of: str) -> None:
        value = getattr(self, name)
        divisor = getattr(self, of)
        if value % divisor:
            raise TmdeError(f"{name}={value} is not a multiple of {of}={divisor}")

    def _check_even(self, name: str, reason: str) -> None:
        value = getattr(self, name)
        if value % 2:
            raise TmdeError(f"{name}={value} must be even: {reason}")

    @property
    def special_token_ids(self) -> list[int]:
        """Ids of `<s>`, `<pad>` and `</s>`, without those that are None."""
        token_ids = [self.bos_token_id, self.pad_token_id]
        if isinstance(self.eos_token_id, list):
            token_ids.extend(self.eos_token_id)
        else:
            token_ids.append(self.eos_token_id)
        return [token_id for token_id in token_ids if token_id is not None]


class TmdeOutputProjection(nn.Linear):
    """Projection of decoder states to the vocabulary, initialized like an embedding."""


class EmbedderPreTrainedModel(PreTrainedModel):
    """Base class of all models.

    An encoder's `forward` takes `input_ids` and `attention_mask` first. With `pooled_only`, it may
    skip all states except the embedding.

    Attributes:
        needs_language_ids: Whether the encoder requires the language of every text.
        _auto_map: The module and class of a checkpoint's code, by Auto class.
    """

    base_model_prefix = "model"
    needs_language_ids: ClassVar[bool] = False
    _auto_map: ClassVar[dict[str, str]] = {}

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers looks for the call of an implementation in the file of the model. Here, that
        # call is in `attention_function`.
        return True

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """Resize the tables as transformers does, and the parts of a bag.

        Args:
            args: As in transformers.
            kwargs: As in transformers.

        Returns:
            The input table. New tokens of a bag have the median weight.
        """
        table = super().resize_token_embeddings(*args, **kwargs)
        num_tokens = table.num_embeddings
        for module in self.modules():
            token_weights = getattr(module, "token_weights", None)
            if token_weights is not None:
                module.token_weights = resized_token_weights(token_weights, num_tokens)
            bag_tokens = getattr(module, "bag_tokens", None)
            if bag_tokens is not None:
                module.bag_tokens = self._get_resized_embeddings(bag_tokens, num_tokens)
        return table

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        token_weights = getattr(module, "token_weights", None)
        if isinstance(token_weights, nn.Parameter):
            init.zeros_(token_weights)
        if isinstance(module, TmdeOutputProjection):
            init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Linear):
            init_linear(module)
        elif isinstance(module, nn.Embedding):
            init_embedding(module)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)

    def save_pretrained(
        self, save_directory: str | os.PathLike, is_main_process: bool = True, **kwargs
    ) -> None:
        """Save as transformers does, with an `auto_map` of every Auto class of the family.

        Args:
            save_directory: The folder.
            is_main_process: Whether this process writes the files.
            kwargs: As in transformers.
        """
        self.config.auto_map = dict(self._auto_map)
        if is_main_process:
            write_sentence_transformers_files(self, save_directory)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            _share_weights(save_directory)

    def _upload_modified_files(
        self,
        working_dir: str | os.PathLike,
        repo_id: str,
        files_timestamps: dict[str, float],
        **kwargs: Any,
    ) -> Any:
        """Upload what is new in a folder, as transformers does, and the files of `COMPANIONS`.

        `save_pretrained(push_to_hub=True)` of transformers lists the files that a folder has before
        it saves, and uploads those that change. Companions are written before the list is made.
        """
        for name in COMPANIONS:
            files_timestamps.pop(Path(name).parts[0], None)
        return super()._upload_modified_files(working_dir, repo_id, files_timestamps, **kwargs)


def _share_weights(folder: str | os.PathLike) -> None:
    """Give the weights in a folder the permissions of their configuration.

    The umask decides about the configuration. safetensors writes weights through a temporary file,
    which only its owner may read. With an adapter, there is an adapter's configuration alone.
    """
    for config_name, weights in (
        ("config.json", "model*.safetensors"),
        ("adapter_config.json", "adapter_model*.safetensors"),
    ):
        config_path = Path(folder, config_name)
        if not config_path.exists():
            continue
        mode = stat.S_IMODE(config_path.stat().st_mode)
        for path in Path(folder).glob(weights):
            path.chmod(mode)


# ---- Layers


def computes_from_weights(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a layer does what its class does, with weights that tensor operations read.

    Only then may a model compute with the weights instead of calling the layer. Adapters and
    `bitsandbytes` change the class of a layer, `torchao` that of its weights, and hooks act where a
    layer is called.

    Args:
        layer: The layer.
        kind: The class that it is built as.
    """
    if type(layer) is not kind:
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook"):
        return False
    weights = layer.parameters(recurse=False)
    return not any(is_traceable_wrapper_subclass(weight) for weight in weights)


def init_linear(module: nn.Linear | nn.Conv1d) -> None:
    """Initialize the weight by Xavier's rule and the bias, if there is one, to 0."""
    init.xavier_uniform_(module.weight)
    if module.bias is not None:
        init.zeros_(module.bias)


def init_embedding(module: nn.Embedding) -> None:
    """Initialize the rows to vectors of about length 1, and that of padding to 0."""
    init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if module.padding_idx is not None:
        init.zeros_(module.weight[module.padding_idx])


def resized_token_weights(weights: nn.Parameter, size: int) -> nn.Parameter:
    """Return the log weights of a bag for a vocabulary of `size`.

    New tokens get the median weight.
    """
    resized = weights.detach().median().repeat(size)  # (size,)
    shared = min(len(weights), size)
    resized[:shared] = weights.detach()[:shared]
    return nn.Parameter(resized, requires_grad=weights.requires_grad)


def sinusoidal_positions(length: int, width: int) -> torch.Tensor:
    """Return the vectors of the first positions, (length, width), for an even width.

    The first half of a vector holds sines, the second half cosines.
    """
    half = width // 2
    steps = torch.arange(half, dtype=torch.float64)
    rates = torch.exp(steps * (-math.log(10000.0) / max(half - 1, 1)))  # (half,)
    positions = torch.arange(length, dtype=torch.float64)
    angles = positions[:, None] * rates  # (length, half)
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


# ---- Texts of a batch


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
) -> torch.Tensor:
    """Return the ids (batch, length) or the vectors (batch, length, width), whichever is there.

    Args:
        input_ids: (batch, length).
        inputs_embeds: (batch, length, width).
        attention_mask: (batch, length).

    Raises:
        ValueError: If both or neither of ids and vectors are there, or the mask does not fit.
    """
    if input_ids is not None and inputs_embeds is None:
        inputs = input_ids
    elif inputs_embeds is not None and input_ids is None:
        inputs = inputs_embeds
    else:
        raise TmdeError("Give exactly one of input_ids and inputs_embeds")
    if attention_mask is not None and attention_mask.shape != inputs.shape[:2]:
        raise TmdeError(
            f"attention_mask {tuple(attention_mask.shape)} must be (batch, length) of the input, "
            f"{tuple(inputs.shape)}"
        )
    return inputs


# Additive masks below this value hide a token.
_HIDING_SUMMAND = -1e4


def text_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the mask of the tokens of the first text of each row, (batch, length).

    Args:
        attention_mask: (batch, length), which is returned as it is, or
            (batch, 1 or heads, length, length) of rows that hold several texts. The tokens of
            the first one see its first token.
    """
    if attention_mask.dim() == 2:
        return attention_mask
    seen = attention_mask[:, 0]  # (batch, length, length), which token sees which
    if seen.dtype != torch.bool:
        seen = seen > _HIDING_SUMMAND
    is_token = seen.diagonal(dim1=1, dim2=2)  # Padding does not see itself.
    rows = torch.arange(len(is_token), device=is_token.device)
    return is_token & seen[rows, :, first_places(is_token)]


def first_places(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the position of the first token of each text, (batch,), after padding on the left."""
    return attention_mask.ne(0).long().argmax(dim=1)


def pool_states(states: torch.Tensor, real: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return one vector a text, (batch, width), from the states at its tokens.

    Padding may hold anything, even NaN. Sums are at least of float32: in bfloat16 a long text would
    lose its last tokens.

    Args:
        states: (batch, length, width).
        real: (batch, length), true or 1 at tokens.
        pooling: `"mean"`, `"max"`, or the state of the first token: `"first"`, `"cls"`.
    """
    if pooling not in ("mean", "max"):
        rows = torch.arange(len(states), device=states.device)
        return states[rows, first_places(real)]
    padding = real.eq(0).unsqueeze(2)  # (batch, length, 1)
    if pooling == "max":
        return states.masked_fill(padding, -torch.inf).max(dim=1).values
    sum_dtype = torch.promote_types(states.dtype, torch.float32)
    total = states.masked_fill(padding, 0).sum(dim=1, dtype=sum_dtype)  # (batch, width)
    lengths = real.ne(0).sum(dim=1, keepdim=True).clamp(min=1)  # (batch, 1)
    return (total / lengths).to(states.dtype)
