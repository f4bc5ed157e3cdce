# SPDX-License-Identifier: Apache-2.0

"""What all families share: base classes, attention, positions, pooling, bags, encoder-decoders."""

import logging
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from huggingface_hub.dataclasses import as_validated_field, strict
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPooling,
    Seq2SeqLMOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import (
    ModelOutput,
    cached_file,
    can_return_tuple,
    is_tracing,
)
from transformers.utils.generic import is_flash_attention_requested

__all__ = [
    "COMPANIONS",
    "SPECIAL_LOG_WEIGHT",
    "EmbedderConfig",
    "EmbedderPreTrainedModel",
    "EmbeddingSeq2Seq",
    "TmdeError",
    "TmdeOutputProjection",
    "TmdeSelfAttention",
    "TmdeSinusoidalPositions",
    "attention_function",
    "bag_direction",
    "check_inputs",
    "check_length",
    "check_position_ids",
    "classification_loss",
    "computes_from_weights",
    "eager_attention_forward",
    "first_places",
    "init_linear",
    "initial_token_weights",
    "is_embedding",
    "memory_implementation",
    "occurrences",
    "pool_states",
    "positions_of_tokens",
    "resized_token_weights",
    "sinusoidal_positions",
    "size",
    "text_mask",
    "token_mask",
    "weighted_bag",
]

logger = logging.getLogger(__name__)

# The files by which sentence-transformers opens a checkpoint.
COMPANIONS = (
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
)

# The first log weight of special tokens in a bag. e^-20 = 2e-9 is negligible beside any other
# token, but gives a text without other tokens a direction.
SPECIAL_LOG_WEIGHT = -20.0


class TmdeError(ValueError):
    """A mistake that the user can set right. The `tmde` command prints it as one sentence."""


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
    r"""Base of the configurations of all families.

    Args:
        languages: The language codes; the position of a code in this list is its language id.
        pivot_languages: The languages that the decoder translates into; a subset of `languages`.
        bos_token_id: The id of `<s>`.
        pad_token_id: The id of `<pad>`.
        eos_token_id: The id of `</s>`, or several ids.

    Raises:
        ValueError: If a language is listed twice, or a pivot language is not in `languages`.
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
            ValueError: If a language is listed twice, or a pivot language is not in `languages`.
        """
        if len(set(self.languages)) != len(self.languages):
            raise TmdeError(f"languages={self.languages} names a language twice")
        unknown = [code for code in self.pivot_languages if code not in self.languages]
        if unknown:
            raise TmdeError(f"pivot_languages {unknown} are not among languages={self.languages}")

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
    """Base of the models of all families.

    The `forward` of every encoder takes `input_ids` and `attention_mask` first and accepts
    `pooled_only`, with which it may leave out all states but the embedding.

    Attributes:
        needs_language_ids: Whether the encoder has to be told the language of every text.
        write_companions: A function that is called with the model and the folder before the model
            is saved, while `config.json` still is that of an earlier save. The package sets it to
            the function that writes the files of sentence-transformers. Remote code has none, and
            copies these files from the checkpoint that the model was opened from.
        _auto_map: The module and the class that open a checkpoint of this family, by Auto class.
    """

    base_model_prefix = "model"
    needs_language_ids: ClassVar[bool] = False
    write_companions: ClassVar[Callable[[PreTrainedModel, str | os.PathLike], None] | None] = None
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
        elif isinstance(module, TmdeSinusoidalPositions):
            # `from_pretrained` builds the model on the meta device, and a buffer that is not part
            # of the checkpoint is filled here.
            init.copy_(module.weight, module.table())

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
        write_companions = type(self).write_companions
        if is_main_process and write_companions is not None:
            write_companions(self, save_directory)
        elif is_main_process:
            _copy_companions(self, save_directory)
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


def _copy_companions(model: PreTrainedModel, folder: str | os.PathLike) -> None:
    """Copy the files of sentence-transformers from the checkpoint that a model was opened from.

    Without them, sentence-transformers takes the mean of all outputs, which is another vector.
    Files that the folder has already are kept. If the checkpoint cannot be reached any more,
    nothing is copied, and a warning says so.
    """
    checkpoint = model.name_or_path
    if not checkpoint:
        return  # The model was built and not opened.
    revision = getattr(model.config, "_commit_hash", None)
    stored: dict[str, str] = {}
    for name in COMPANIONS:
        if Path(folder, name).exists():
            continue
        try:
            path = cached_file(checkpoint, name, revision=revision)
        except OSError as error:
            # An error of `cached_file` has no cause where the checkpoint has no such file.
            if error.__cause__ is not None:
                logger.warning(
                    "could not look for %s of %s: %s\nIf %s has the files of sentence-transformers "
                    "(%s), copy them to %s. Without them, sentence-transformers takes the mean of "
                    "all outputs, which is another vector.",
                    name,
                    checkpoint,
                    error,
                    checkpoint,
                    ", ".join(COMPANIONS),
                    folder,
                )
                return
            continue
        if path is not None:
            stored[name] = path
    for name, path in stored.items():
        target = Path(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


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


# ---- Attention and positions


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute scaled dot-product attention (eq. 4.1) in plain operations.

    Args:
        module: The module that attends; dropout acts in its training mode.
        query: (batch, heads, query_length, head_dim).
        key: (batch, heads, key_length, head_dim).
        value: (batch, heads, key_length, head_dim).
        attention_mask: (batch, 1, query_length, key_length), true at what is seen or a summand of
            the scores, or None.
        scaling: A factor of the scores.
        dropout: The dropout rate of the probabilities.
        kwargs: Not used; what other implementations of transformers take.

    Returns:
        The attended values (batch, query_length, heads, head_dim) and the probabilities
        (batch, heads, query_length, key_length).
    """
    scores = query @ key.transpose(2, 3) * scaling  # (batch, heads, query_length, key_length)
    if attention_mask is not None:
        scores = masked_scores(scores, attention_mask)
    # In float32 or better, as in the eager attention of transformers.
    dtype = torch.promote_types(query.dtype, torch.float32)
    probabilities = nn.functional.softmax(scores, dim=-1, dtype=dtype).to(query.dtype)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    output = probabilities @ value  # (batch, heads, query_length, head_dim)
    return output.transpose(1, 2).contiguous(), probabilities


def masked_scores(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Apply a mask to the scores of queries.

    Args:
        scores: (batch, heads, ..., key_length).
        mask: (batch, 1 or heads, ..., key_length), true at what is seen, or a number to add.
    """
    if mask.dtype != torch.bool:
        return scores + mask
    # Not -inf: the softmax of a query that sees nothing would be NaN.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest)


# The most keys for which plain operations train faster than PyTorch's fused kernel in bfloat16 on a
# CPU. With 40 keys they take a sixth of its time, with 192 two thirds, with 256 a tenth more.
PLAIN_ATTENTION_KEYS = 192


def plain_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Compute what `sdpa_attention_forward` of transformers computes, in plain operations.

    A query that sees nothing, as in the padding of a text, gets a mean of values in place of zeros.

    Args:
        module: The module that attends. Its `is_causal` counts where there is no mask.
        query: (batch, heads, query_length, head_dim).
        key: (batch, heads, key_length, head_dim).
        value: (batch, heads, key_length, head_dim).
        attention_mask: (batch, 1, query_length, key_length), true at what is seen or a summand of
            the scores, or None.
        scaling: A factor of the scores.
        dropout: The dropout rate of the probabilities.
        kwargs: As for `eager_attention_forward`.

    Returns:
        The attended values (batch, query_length, heads, head_dim), and None.
    """
    query_length = query.shape[2]
    if attention_mask is None and module.is_causal and query_length > 1:
        shape = (query_length, key.shape[2])
        attention_mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    output, _ = eager_attention_forward(
        module, query, key, value, attention_mask, scaling, dropout, **kwargs
    )
    return output, None


def memory_implementation(config: EmbedderConfig) -> str:
    """Return the name of the implementation that computes attention over a memory.

    It is the one that the config names, unless that is only for texts that attend themselves. Flash
    attention takes the queries of a padded memory for padded on the left, and flex attention
    compiles a kernel for every number of queries. PyTorch's own function takes their place.
    """
    implementation = config._attn_implementation
    is_flash = is_flash_attention_requested(requested_attention_implementation=implementation)
    if is_flash or implementation == "flex_attention":
        return "sdpa"
    return implementation


def attention_function(
    implementation: str, query: torch.Tensor, key: torch.Tensor
) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
    """Return the function that computes attention fastest.

    It is the implementation of that name, except where gradients of bfloat16 are computed on a CPU:
    for short texts, the backward pass of PyTorch's fused kernel is several times slower than plain
    operations.

    Args:
        implementation: The name, as in `config._attn_implementation`.
        query: (batch, heads, query_length, head_dim).
        key: (batch, heads, key_length, head_dim).
    """
    is_trained_on_cpu = query.requires_grad and query.device.type == "cpu"
    is_short = key.shape[2] <= PLAIN_ATTENTION_KEYS
    if (
        implementation == "sdpa"
        and is_trained_on_cpu
        and query.dtype == torch.bfloat16
        and is_short
    ):
        return plain_attention_forward
    return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)


class TmdeSelfAttention(nn.Module):
    """Multi-head self-attention (eq. 4.1-4.2)."""

    def __init__(
        self,
        config: EmbedderConfig,
        num_heads: int,
        is_causal: bool = False,
        layer_idx: int = 0,
    ):
        super().__init__()
        self.config = config
        self.is_causal = is_causal
        self.layer_idx = layer_idx
        self.head_dim = config.d_model // num_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        # A bias on keys adds the same to all scores of a query, which softmax ignores.
        self.k_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def _split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """Turn (batch, length, d_model) into (batch, heads, length, head_dim)."""
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        cache: DynamicCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Let the states attend each other.

        Args:
            hidden_states: (batch, length, d_model).
            attention_mask: The mask that the attention implementation of the config expects.
            cache: Keys and values of earlier positions, to which those of the states are added.

        Returns:
            The attended states (batch, length, d_model) and, under eager attention, the
            probabilities (batch, heads, length, key_length).
        """
        query = self._split_heads(self.q_proj(hidden_states))  # (batch, heads, length, head_dim)
        key = self._split_heads(self.k_proj(hidden_states))
        value = self._split_heads(self.v_proj(hidden_states))
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        attention = attention_function(self.config._attn_implementation, query, key)
        dropout = self.config.attention_dropout if self.training else 0.0
        output, probabilities = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=self.head_dim**-0.5,
        )  # (batch, length, heads, head_dim)
        return self.out_proj(output.flatten(2)), probabilities


def check_length(length: int, limit: int) -> None:
    """Check that an input of `length` tokens is within `max_position_embeddings`.

    Raises:
        ValueError: If it is longer than `limit`.
    """
    if length > limit:
        raise TmdeError(
            f"An input of {length} tokens is longer than max_position_embeddings={limit}; truncate "
            "it, or embed it with DocumentEmbedder, which truncates and says so."
        )


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


class TmdeSinusoidalPositions(nn.Module):
    """Fixed sine and cosine positions. The table is computed, so it is not part of a checkpoint."""

    def __init__(self, max_positions: int, d_model: int):
        super().__init__()
        self.max_positions = max_positions
        self.d_model = d_model
        self.weight: torch.Tensor
        self.register_buffer("weight", self.table(), persistent=False)

    def table(self) -> torch.Tensor:
        """Return the vectors of all positions, (max_positions, d_model)."""
        return sinusoidal_positions(self.max_positions, self.d_model)

    def forward(
        self, length: int, start: int | torch.Tensor = 0, firsts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the vectors of positions `start` to `start + length`, (length, d_model).

        Args:
            length: The number of positions.
            start: The first position. A static cache counts its tokens on the device, in a tensor
                of shape ().
            firsts: (batch,) index of the first token of each text, which is at position 0; then
                the result is (batch, length, d_model). Not together with `start`.

        Raises:
            ValueError: If the input is longer than the model's longest. A compiled graph cannot
                check a `start` that is a tensor; there, the lookup itself fails.
        """
        if isinstance(start, torch.Tensor):
            if not is_tracing(start):
                check_length(int(start) + length, self.max_positions)
            return self.at(start + torch.arange(length, device=start.device))
        check_length(start + length, self.max_positions)
        if firsts is None:
            return self.weight[start : start + length]
        positions = torch.arange(length, device=firsts.device) - firsts[:, None]  # (batch, length)
        return self.at(positions.clamp(min=0))

    def at(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors (..., d_model) of positions that are less than `max_positions`."""
        return nn.functional.embedding(position_ids, self.weight)


# ---- Texts of a batch


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    pair_masks_of: EmbedderConfig | None = None,
    position_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the ids (batch, length) or the vectors (batch, length, width), whichever is there.

    Args:
        input_ids: (batch, length).
        inputs_embeds: (batch, length, width).
        attention_mask: (batch, length), or a mask of pairs (batch, 1 or heads, length, length).
        pair_masks_of: The config of a transformer; it allows 4-D masks.
        position_ids: The positions of the tokens, which a mask of pairs needs.

    Raises:
        ValueError: If both or neither of ids and vectors are there, or the mask does not fit.
    """
    if input_ids is not None and inputs_embeds is None:
        inputs = input_ids
    elif inputs_embeds is not None and input_ids is None:
        inputs = inputs_embeds
    else:
        raise TmdeError("Give exactly one of input_ids and inputs_embeds")
    if attention_mask is None:
        return inputs
    if attention_mask.dim() == 4 and pair_masks_of is not None:
        _check_pair_mask(attention_mask, inputs, pair_masks_of)
        if position_ids is None:
            raise TmdeError(
                "position_ids: found none, expected the position of each token in its text, "
                f"(batch, length), because attention_mask {tuple(attention_mask.shape)} may "
                "separate several texts of a row"
            )
    elif attention_mask.shape != inputs.shape[:2]:
        raise TmdeError(
            f"attention_mask {tuple(attention_mask.shape)} must be (batch, length) of the input, "
            f"{tuple(inputs.shape)}"
        )
    return inputs


def _check_pair_mask(
    attention_mask: torch.Tensor, inputs: torch.Tensor, config: EmbedderConfig
) -> None:
    """Check a mask (batch, 1 or heads, length, length) that says which token sees which.

    Raises:
        ValueError: If its shape or type does not fit, or the implementation of attention reads
            masks of padding only.
    """
    batch_size, length = inputs.shape[:2]
    shape = tuple(attention_mask.shape)
    num_heads = config.num_attention_heads
    shared = (batch_size, 1, length, length)
    by_head = (batch_size, num_heads, length, length)
    if shape not in (shared, by_head):
        raise TmdeError(
            f"attention_mask {shape} must be (batch, 1 or {num_heads}, length, length) of the "
            f"input, {tuple(inputs.shape)}"
        )
    if attention_mask.dtype != torch.bool and not attention_mask.is_floating_point():
        raise TmdeError(
            f"attention_mask {shape}: found {attention_mask.dtype}, expected torch.bool, true where"
            " the token of a row sees the token of a column, or floats that are added to the scores"
        )
    implementation = config._attn_implementation
    if memory_implementation(config) != implementation:
        raise TmdeError(
            f"attention_mask {shape}: attn_implementation={implementation!r} reads masks "
            '(batch, length) only; use attn_implementation="sdpa" for packed texts'
        )


def finite_mask(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return a mask whose summands of scores, if it has such, are finite.

    The softmax of a row of -inf is NaN. The least number of float16 hides a token in every type,
    and stays finite when autocast converts it.
    """
    if attention_mask is None or not attention_mask.is_floating_point():
        return attention_mask
    if attention_mask.dim() != 4:
        return attention_mask
    return attention_mask.clamp(min=torch.finfo(torch.float16).min)


def check_position_ids(position_ids: torch.Tensor, limit: int, training: bool) -> None:
    """Check that the positions that a caller gave are within a table of `limit` rows.

    Reading them on the host would make every training step wait for the accelerator, so there they
    are checked in evaluation mode only. A traced graph cannot check them at all.

    Raises:
        ValueError: If one is negative, or not less than `limit`.
    """
    is_on_host = position_ids.device.type == "cpu"
    if position_ids.is_meta or is_tracing(position_ids) or (training and not is_on_host):
        return
    is_outside = (position_ids < 0) | (position_ids >= limit)
    if is_outside.any():
        position = int(position_ids[is_outside][0])
        raise TmdeError(
            f"position_ids: found {position}, expected 0 to {limit - 1}, the positions for which "
            "the model has vectors"
        )


def positions_of_tokens(
    position_ids: torch.Tensor, inputs: torch.Tensor, limit: int | None, training: bool
) -> torch.Tensor:
    """Return the positions that a caller gave for every token, (batch, length).

    Args:
        position_ids: (batch, length), or (1, length) for all texts.
        inputs: (batch, length) or (batch, length, width).
        limit: The number of positions for which the model has vectors; None if it has no table.
        training: Whether the model is in training mode.

    Raises:
        ValueError: If they do not fit the input, or the model has no vector for one of them.
    """
    batch_size, length = inputs.shape[:2]
    if position_ids.shape not in ((batch_size, length), (1, length)):
        raise TmdeError(
            f"position_ids {tuple(position_ids.shape)} must be (batch, length), "
            f"{(batch_size, length)}"
        )
    if limit is not None:
        check_position_ids(position_ids, limit, training)
    return position_ids.expand(batch_size, length)


# Additive masks below this value hide a token.
_HIDING_SUMMAND = -1e4


def _seen_tokens(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return which token sees which, (batch, length, length), of a mask of pairs of tokens."""
    seen = attention_mask[:, 0]
    return seen if seen.dtype == torch.bool else seen > _HIDING_SUMMAND


def token_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the mask of the tokens of each row, (batch, length).

    Args:
        attention_mask: (batch, length), which is returned as it is, or
            (batch, 1 or heads, length, length), where padding does not see itself.
    """
    if attention_mask.dim() == 2:
        return attention_mask
    return _seen_tokens(attention_mask).diagonal(dim1=1, dim2=2)


def text_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the mask of the tokens of the first text of each row, (batch, length).

    Args:
        attention_mask: (batch, length), which is returned as it is, or
            (batch, 1 or heads, length, length) of rows that hold several texts. The tokens of
            the first one see its first token.
    """
    if attention_mask.dim() == 2:
        return attention_mask
    is_token = token_mask(attention_mask)
    rows = torch.arange(len(is_token), device=is_token.device)
    return is_token & _seen_tokens(attention_mask)[rows, :, first_places(is_token)]


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


# ---- Labels


def classification_loss(
    model: PreTrainedModel,
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: int | torch.Tensor | None,
) -> torch.Tensor:
    """Return the loss of labeled texts, divided by `num_items_in_batch` for all kinds of labels.

    transformers does so for one class a text, and gives the mean of the batch for the others.

    Args:
        model: A model for sequence classification. Its `config.problem_type`, which is found out
            from the labels if it is None, chooses the loss.
        logits: (batch, num_labels).
        labels: (batch,) or (batch, num_labels).
        num_items_in_batch: Labels of all accumulated batches; those of `labels` if None.
    """
    if isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(logits.device)
    loss = model.loss_function(labels, logits, model.config, num_items_in_batch=num_items_in_batch)
    is_divided = model.config.problem_type == "single_label_classification"
    if num_items_in_batch is None or is_divided:
        return loss
    num_labels = (labels != -100).sum().to(loss.device)
    return loss * num_labels / num_items_in_batch


# ---- Bags of weighted token vectors


def initial_token_weights(config: EmbedderConfig, num_tokens: int) -> torch.Tensor:
    """Return the first log weights of a bag, (num_tokens,): 0 but for special tokens."""
    weights = torch.zeros(num_tokens)
    token_ids = [token_id for token_id in config.special_token_ids if token_id < num_tokens]
    weights[token_ids] = SPECIAL_LOG_WEIGHT
    return weights


def resized_token_weights(weights: nn.Parameter, size: int) -> nn.Parameter:
    """Return the log weights of a bag for a vocabulary of `size`.

    New tokens get the median weight.
    """
    resized = weights.detach().median().repeat(size)  # (size,)
    shared = min(len(weights), size)
    resized[:shared] = weights.detach()[:shared]
    return nn.Parameter(resized, requires_grad=weights.requires_grad)


# A graph (ONNX, torch.compile) cannot hold the ragged form of a bag, so this is its padded form.
def occurrences(input_ids: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return how often each token occurs in its text.

    Args:
        input_ids: (batch, length).
        counted: (batch, length), true where a token counts.

    Returns:
        (batch, length), at least 1; undefined where a token does not count.
    """
    ids = input_ids.masked_fill(~counted, -1).contiguous()
    ordered = ids.sort(dim=1).values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


# The ragged form of `occurrences`, which computes no padding but cannot be part of a graph.
def _packed_occurrences(
    token_ids: torch.Tensor, lengths: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Return how often each token occurs in its text, (tokens,), for texts without padding."""
    texts = torch.arange(len(lengths), device=lengths.device)
    texts = texts.repeat_interleave(lengths, output_size=len(token_ids))  # (tokens,)
    keys = texts * vocab_size + token_ids  # One number for each pair of text and token.
    _, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return counts[inverse]


def _sublinear(log_weights: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Let the n occurrences of a token in a text weigh as much as sqrt(n) of them."""
    return log_weights - counts.to(log_weights.dtype).log() / 2


# The ragged form of a bag, which computes no padding but cannot be part of a graph.
def weighted_bag(
    token_ids: torch.Tensor,
    lengths: torch.Tensor,
    embed_tokens: nn.Embedding,
    token_weights: torch.Tensor,
    *,
    sublinear_counts: bool,
    normalize: bool,
) -> torch.Tensor:
    """Return `sum_t exp(w_t) E_t` over the tokens t of each text, whatever their padding was.

    Args:
        token_ids: (tokens,) int32 or int64, those of the first text, then those of the second, ...
        lengths: (batch,) int64, the number of tokens of each text; their sum is `tokens`. A text
            of length 0 gets zeros.
        embed_tokens: The table of the E_t, (vocab_size, d_model).
        token_weights: (vocab_size,), the w_t.
        sublinear_counts: Let n occurrences of a token in a text count sqrt(n) times.
        normalize: Scale every sum to length 1; otherwise divide it by the number of tokens.

    Returns:
        (batch, d_model), in the type of the table.
    """
    log_weights = token_weights[token_ids].float()  # (tokens,)
    if sublinear_counts:
        counts = _packed_occurrences(token_ids, lengths, len(token_weights))
        log_weights = _sublinear(log_weights, counts)
    # Weights are relative to the largest one of the text: in half precision, e^-20 would be 0.
    heaviest = torch.segment_reduce(
        log_weights.detach(), "max", lengths=lengths, initial=-torch.inf
    )  # (batch,)
    largest = heaviest.repeat_interleave(lengths, output_size=len(token_ids))  # (tokens,)
    weights = torch.exp(log_weights - largest)
    summed, dtype = _packed_sum(embed_tokens, token_ids, lengths, weights)  # (batch, d_model)
    if normalize:
        embedding = nn.functional.normalize(summed, dim=-1)
    else:
        embedding = summed * (heaviest.exp() / lengths.clamp(min=1))[:, None]
    return embedding.to(dtype)


def _packed_sum(
    embed_tokens: nn.Embedding,
    token_ids: torch.Tensor,
    lengths: torch.Tensor,
    weights: torch.Tensor,
) -> tuple[torch.Tensor, torch.dtype]:
    """Return the weighted sum of the vectors of each text, (batch, d_model), in float32.

    The second result is the type of the vectors.
    """
    if not computes_from_weights(embed_tokens, nn.Embedding):
        vectors = embed_tokens(token_ids)  # (tokens, d_model)
        weighted = vectors.float() * weights[:, None]
        summed = torch.segment_reduce(weighted, "sum", lengths=lengths, initial=0.0)
        return summed, vectors.dtype
    table = embed_tokens.weight
    first_tokens = lengths.cumsum(0) - lengths  # (batch,)
    summed = nn.functional.embedding_bag(
        token_ids,
        table,
        offsets=first_tokens.to(token_ids.dtype),
        mode="sum",
        per_sample_weights=weights.to(table.dtype),
    )  # (batch, d_model)
    return summed.float(), table.dtype


# A graph (ONNX, torch.compile) cannot hold `weighted_bag`, so this is the padded form of it.
def bag_direction(
    config: EmbedderConfig,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    token_weights: torch.Tensor,
    vectors: torch.Tensor,
) -> torch.Tensor:
    """Return the direction of `sum_t exp(w_t) E_t` over the tokens of a text but special ones.

    This is the direction of [`weighted_bag`] in operations that a graph can hold, on vectors that
    the model has looked up already. A text without other tokens has the direction of its first one.

    Args:
        config: The configuration. With its `sublinear_counts`, n occurrences of a token count
            sqrt(n) times together.
        input_ids: (batch, length).
        attention_mask: (batch, length), or None if everything counts.
        token_weights: (vocab_size,), the w_t.
        vectors: (batch, length, d_model), the E_t of `input_ids`.

    Returns:
        Unit vectors, (batch, d_model).
    """
    is_token = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    rows = torch.arange(len(input_ids), device=input_ids.device)
    firsts = first_places(is_token)  # (batch,)
    counted = is_token.bool()  # (batch, length)
    for special in config.special_token_ids:
        counted = counted & (input_ids != special)
    log_weights = nn.functional.embedding(input_ids, token_weights.unsqueeze(1)).squeeze(2)
    log_weights = log_weights.to(torch.promote_types(log_weights.dtype, torch.float32))
    if config.sublinear_counts:
        log_weights = _sublinear(log_weights, occurrences(input_ids, counted))
    counted[rows, firsts] |= ~counted.any(dim=1)
    # The direction does not depend on the scale of the weights, and a softmax cannot overflow.
    shares = log_weights.masked_fill(~counted, -torch.inf).softmax(dim=1)  # (batch, length)
    shares = shares.to(vectors.dtype).unsqueeze(1)  # (batch, 1, length)
    summed = torch.bmm(shares, vectors).squeeze(1)  # (batch, d_model)
    return nn.functional.normalize(summed, dim=-1)


# ---- Encoder-decoders


if TYPE_CHECKING:
    from transformers import GenerationMixin

    class _Seq2SeqModel(EmbedderPreTrainedModel, GenerationMixin):
        """What every class with the mixin inherits beside it, for type checkers."""
else:
    _Seq2SeqModel = object


class EmbeddingOutput(BaseModelOutputWithPooling):
    """Embeddings as encoder outputs of length 1, without outputs for the tokens of a text."""


def is_embedding(encoder_outputs: Any) -> bool:
    """Return whether encoder outputs are embeddings alone."""
    return isinstance(encoder_outputs, (torch.Tensor, np.ndarray, list, EmbeddingOutput))


def _as_tensor(vectors: Any) -> torch.Tensor:
    """Return a tensor of a tensor, an array, a number, or a list of such.

    Raises:
        ValueError: If the vectors of a list differ in shape.
    """
    if isinstance(vectors, np.ndarray):
        # PyTorch cannot read an array backwards.
        return torch.tensor(np.ascontiguousarray(vectors))
    if not isinstance(vectors, list) or not vectors:
        return torch.as_tensor(vectors)
    tensors = [_as_tensor(vector) for vector in vectors]
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        raise TmdeError(
            f"encoder_outputs: found a list of tensors of shapes {shapes}, expected vectors of one "
            "length"
        )
    return torch.stack(tensors)


def _are_ids(target_language: Any) -> bool:
    """Return whether target languages are given by their ids, not by their codes."""
    if isinstance(target_language, (list, tuple)):
        return all(isinstance(language, (int, np.integer)) for language in target_language)
    return isinstance(target_language, (int, np.integer, np.ndarray, torch.Tensor))


class EmbeddingSeq2Seq(_Seq2SeqModel):
    """Mixin for models with a translation decoder.

    They have an encoder `model`, whose `pooler_output` is the embedding, a `decoder` that takes the
    target language, and an output projection `lm_head`.

    The mixin is the first base and, as transformers requires, `GenerationMixin` the last:
    `class XForConditionalGeneration(EmbeddingSeq2Seq, XPreTrainedModel, GenerationMixin)`.

    Attributes:
        decoder_sees_states: Whether the decoder attends all outputs of the encoder, not only the
            embedding.
        decodes_embeddings: Whether the model can generate from an embedding alone.
    """

    model: EmbedderPreTrainedModel
    decoder: EmbedderPreTrainedModel
    lm_head: nn.Linear
    decoder_sees_states = False
    decodes_embeddings = True

    def get_encoder(self, modality: str | None = None) -> PreTrainedModel:
        """Return the encoder; for a modality other than text, the model itself."""
        return self.model if modality is None else self

    def get_decoder(self) -> PreTrainedModel:
        """Return the decoder."""
        return self.decoder

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """Resize the tables of the encoder and the output, as transformers does, and the decoder's.

        Args:
            args: As in transformers.
            kwargs: As in transformers.
        """
        self.decoder.resize_token_embeddings(*args, **kwargs)
        return super().resize_token_embeddings(*args, **kwargs)

    # ---- Target languages

    def language_ids(
        self,
        target_language: str | int | list[str] | list[int] | torch.Tensor | None,
        batch_size: int,
        is_translation: bool = False,
    ) -> torch.Tensor:
        """Return the ids of target languages, (batch,).

        Args:
            target_language: One code or id, a code or id for each text, or a tensor of ids,
                (batch,) or (1,). Default: the pivot language, if there is only one. Ids on an
                accelerator are checked only before a model in evaluation mode translates.
            batch_size: The number of texts.
            is_translation: Whether codes have to be those of pivot languages. Ids may be of any
                language, because a decoder can be trained to write others too.

        Raises:
            ValueError: If they are missing, unknown, no pivot, or do not fit the batch.
        """
        known = self.config.languages
        pivots = self.config.pivot_languages
        if target_language is None:
            if len(pivots) != 1:
                raise TmdeError(
                    "target_language is missing: name the language to decode into, one of the "
                    f"pivot languages {pivots}. A trainer reads it from a column target_language, "
                    "of codes with TranslationCollator, otherwise of positions in config.languages"
                )
            target_language = pivots[0]
        if isinstance(target_language, str):
            codes = [target_language] * batch_size
        elif _are_ids(target_language):
            ids = torch.as_tensor(target_language)
            self._check_language_ids(ids, batch_size, is_translation)
            return ids.to(self.device).expand(batch_size)
        else:
            codes = list(cast(Iterable[str], target_language))
        unknown = sorted(set(codes) - set(known))
        if unknown:
            raise TmdeError(
                f"target_language {unknown[0]!r} is unknown to this model; it has {known}"
            )
        others = sorted(set(codes) - set(pivots))
        if is_translation and others:
            raise TmdeError(
                f"target_language {others[0]!r} is no pivot language: this model translates into "
                f"{pivots}. If its decoder was trained to write {others[0]!r} too, add it to "
                "config.pivot_languages"
            )
        if len(codes) != batch_size:
            raise TmdeError(f"target_language names {len(codes)} languages for {batch_size} texts")
        return torch.tensor([known.index(code) for code in codes], device=self.device)

    def _check_language_ids(self, ids: torch.Tensor, batch_size: int, is_translation: bool) -> None:
        """Check ids of target languages.

        Reading them from an accelerator would make every step of training and generation wait.

        Raises:
            ValueError: If they do not fit the batch, or one is not that of a language.
        """
        if ids.shape not in ((batch_size,), (1,), ()) or ids.is_floating_point():
            raise TmdeError(
                f"target_language: found ids {tuple(ids.shape)} of {ids.dtype}, expected integers "
                f"(1,) or ({batch_size},), one for each text"
            )
        is_on_host = ids.device.type == "cpu"
        is_read = is_on_host or (is_translation and not self.training)
        if not is_read or ids.is_meta or is_tracing(ids):
            return
        known = self.config.languages
        is_outside = (ids < 0) | (ids >= len(known))
        if is_outside.any():
            raise TmdeError(
                f"target_language: found the id {int(ids[is_outside][0])}, expected 0 to "
                f"{len(known) - 1}, a position in config.languages={known}"
            )

    # ---- Labels and losses

    def mask_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return a copy of labels with -100 wherever nothing is predicted.

        Args:
            labels: (batch, length), padded on either side with -100 or `pad_token_id`.

        Returns:
            (batch, length), -100 at padding and at the `<s>` that a row begins with.
        """
        targets = labels.masked_fill(labels == self.config.pad_token_id, -100)
        first_columns = first_places(targets != -100).unsqueeze(1)  # (batch, 1)
        first_labels = targets.gather(1, first_columns)  # (batch, 1)
        is_start = first_labels == self.config.decoder_start_token_id
        return targets.scatter(1, first_columns, first_labels.masked_fill(is_start, -100))

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the decoder input of labels, which stay as they are.

        In every row `<s>` is read where the first target is predicted, and each target where
        the next one is. A row that begins with `<s>`, as `tokenizer(text_target=...)` writes it,
        has padding at that place: `[<s>, a, b]` gives `[<pad>, <s>, a]`, and `[a, b]` gives
        `[<s>, a]`. `forward` moves such padding behind the row before it decodes.

        Args:
            labels: (batch, length), padded with -100 or `pad_token_id`.

        Returns:
            (batch, length); `logits[:, t]` predict `labels[:, t]`.
        """
        start = self.config.decoder_start_token_id
        first_columns = first_places(self.mask_labels(labels) != -100).unsqueeze(1)  # (batch, 1)
        columns = torch.arange(labels.shape[1], device=labels.device)
        decoder_input_ids = labels.roll(1, dims=1)
        is_padding = (decoder_input_ids == -100) | (columns < first_columns)
        decoder_input_ids = decoder_input_ids.masked_fill(is_padding, self.config.pad_token_id)
        return decoder_input_ids.masked_fill(columns == first_columns, start)

    def translation_loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the cross-entropy per target, where padding and a leading `<s>` are no targets.

        transformers' `Trainer` counts every label that is not -100. If some of the labels here
        are no targets, the same share of `num_items_in_batch` is taken for targets. This is exact
        for one batch; for accumulated batches it is exact if they have the same share of such
        labels, as those of [`TranslationCollator`] have, which has none.

        Args:
            logits: (batch, length, vocab_size).
            labels: (batch, length), padded with -100 or `pad_token_id`.
            num_items_in_batch: Labels of all accumulated batches; those of `labels` if None.
        """
        targets = self.mask_labels(labels)
        flat_logits = logits.flatten(0, 1).float()  # (batch * length, vocab_size)
        if num_items_in_batch is None:
            return nn.functional.cross_entropy(flat_logits, targets.flatten())
        total = nn.functional.cross_entropy(flat_logits, targets.flatten(), reduction="sum")
        if isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(total.device)
        num_labels = (labels != -100).sum()
        num_targets = (targets != -100).sum().clamp(min=1)
        return total / num_items_in_batch * (num_labels / num_targets)

    def decoder_loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
        decoder_inputs: dict[str, Any],
    ) -> torch.Tensor:
        """Return the loss of logits that `_decode(**decoder_inputs)` gave.

        Args:
            logits: (batch, length, vocab_size).
            labels: (batch, length), padded with -100 or `pad_token_id`.
            num_items_in_batch: As for [`EmbeddingSeq2Seq.translation_loss`].
            decoder_inputs: The arguments, for families that decode once more.
        """
        return self.translation_loss(logits, labels, num_items_in_batch)

    # ---- Outputs of the encoder

    def embedding_as_encoder_outputs(
        self, embedding: torch.Tensor | np.ndarray | list
    ) -> EmbeddingOutput:
        """Return embeddings as encoder outputs of length 1.

        They come from anywhere, so they are moved to the device and the type of the model.

        Args:
            embedding: (batch, d_model), (d_model,) of one text, or a list of the latter.

        Raises:
            ValueError: If the decoder needs more than the embedding, or the embedding is not one of
                this model.
        """
        vectors = _as_tensor(embedding)
        if not self.decodes_embeddings:
            raise TmdeError(
                f"{type(self).__name__} decodes from the outputs of its encoder for every token, "
                f"which an embedding alone ({tuple(vectors.shape)}) does not give; pass "
                "input_ids, or what get_encoder() returned"
            )
        if vectors.numel() == 0:
            raise TmdeError("encoder_outputs: found no embedding, expected at least one")
        width = self.config.hidden_size
        is_vector = vectors.is_floating_point() and vectors.dim() in (1, 2)
        if not is_vector or vectors.shape[-1] != width:
            raise TmdeError(
                f"encoder_outputs: found embeddings {tuple(vectors.shape)} of {vectors.dtype}, "
                f"expected floats ({width},) or (batch, {width}), as DocumentEmbedder.encode "
                "returns them"
            )
        vectors = torch.atleast_2d(vectors.to(self.device, self.dtype))  # (batch, d_model)
        return EmbeddingOutput(last_hidden_state=vectors[:, None], pooler_output=vectors)

    def as_encoder_outputs(
        self, encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | list
    ) -> BaseModelOutputWithPooling:
        """Return encoder outputs of any form with the embedding as `pooler_output`.

        Args:
            encoder_outputs: Output of `get_encoder()`, an output or a tuple whose first entry is
                `last_hidden_state` with the embedding at position 0, or embeddings
                (batch, d_model), (d_model,), or a list of the latter.

        Raises:
            ValueError: If the decoder needs more than the last hidden state, or embeddings do not
                fit.
        """
        if isinstance(encoder_outputs, (torch.Tensor, np.ndarray, list)):
            return self.embedding_as_encoder_outputs(encoder_outputs)
        if isinstance(encoder_outputs, tuple):
            encoder_outputs = BaseModelOutput(last_hidden_state=encoder_outputs[0])
        if encoder_outputs.get("pooler_output") is not None:
            # It is the output of an encoder, of a class with these fields and perhaps more.
            return cast(BaseModelOutputWithPooling, encoder_outputs)
        states = encoder_outputs["last_hidden_state"]  # (batch, length, d_model)
        embedding = self.embedding_as_encoder_outputs(states[:, 0]).pooler_output
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=embedding,
            hidden_states=encoder_outputs.get("hidden_states"),
            attentions=encoder_outputs.get("attentions"),
        )

    # ---- Decoding

    def _leading_padding(
        self, decoder_input_ids: torch.Tensor, has_labels: bool
    ) -> torch.Tensor | None:
        """Return how much padding each row begins with, (batch,), or None if no row does."""
        if self.config.pad_token_id == self.config.decoder_start_token_id:
            return None  # Every row begins with this token.
        is_token = decoder_input_ids != self.config.pad_token_id
        # A graph cannot branch on the tokens, and moving rows by 0 places changes nothing.
        is_graph_of_training = has_labels and is_tracing(decoder_input_ids)
        if not is_graph_of_training and is_token[:, 0].all():
            return None
        return first_places(is_token)

    def _decode(
        self,
        input_ids: torch.Tensor | None,
        leading_padding: torch.Tensor | None,
        logits_to_keep: int,
        attention_mask: torch.Tensor | None,
        **decoder_inputs,
    ) -> tuple[torch.Tensor, ModelOutput]:
        """Return the logits (batch, length, vocab_size) and the output of the decoder.

        Decoders count positions from the first column, and recurrent ones read all of a row.
        Padding that rows begin with is therefore moved behind them, together with its part of the
        mask, and their logits are moved back. The logits at such padding are 0, so that no loss has
        a gradient there.
        """
        if input_ids is None or leading_padding is None:
            outputs = self.decoder(
                input_ids=input_ids, attention_mask=attention_mask, **decoder_inputs
            )
            return self.lm_head(outputs.last_hidden_state[:, -logits_to_keep:]), outputs
        length = input_ids.shape[1]
        columns = torch.arange(length, device=input_ids.device)
        shifts = leading_padding.unsqueeze(1)  # (batch, 1)
        sources = (columns + shifts) % length  # (batch, length)
        if attention_mask is not None:
            attention_mask = self._moved_mask(attention_mask, sources)
        outputs = self.decoder(
            input_ids=input_ids.gather(1, sources), attention_mask=attention_mask, **decoder_inputs
        )
        states = outputs.last_hidden_state  # (batch, length, width)
        rows = torch.arange(len(states), device=states.device).unsqueeze(1)  # (batch, 1)
        states = states[rows, (columns - shifts) % length]
        states = states.masked_fill((columns < shifts).unsqueeze(2), 0)
        return self.lm_head(states[:, -logits_to_keep:]), outputs

    @staticmethod
    def _moved_mask(attention_mask: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
        """Return the mask of a target whose tokens were moved.

        Args:
            attention_mask: (batch, past + length).
            sources: (batch, length), the columns of the target that the new ones are made of.

        Returns:
            (batch, past + length); the part of the past stays where it is.

        Raises:
            ValueError: If the mask has no entry for every token of the target.
        """
        length = sources.shape[1]
        if attention_mask.dim() != 2 or attention_mask.shape[1] < length:
            raise TmdeError(
                f"decoder_attention_mask {tuple(attention_mask.shape)} must be (batch, past + "
                f"length) of the target, {tuple(sources.shape)} without a past, because rows of "
                "the target begin with padding"
            )
        past = attention_mask[:, :-length]  # (batch, past)
        moved = attention_mask[:, -length:].gather(1, sources)  # (batch, length)
        return torch.cat([past, moved], dim=1)

    @staticmethod
    def _is_whole_target(
        labels: torch.Tensor | None,
        decoder_attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
        use_cache: bool | None,
    ) -> bool:
        """Return whether `decoder_input_ids` that a caller gave are whole targets.

        Padding that whole targets begin with is not read. Generation continues targets, and masks
        the padding of those that it was given.
        """
        if past_key_values is not None:
            return False
        if labels is not None:
            return True
        return not use_cache and decoder_attention_mask is None

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | list | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        target_language: str | int | list[str] | list[int] | torch.Tensor | None = None,
        language_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        bottleneck_only: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Encode texts, unless `encoder_outputs` are given, and decode into the target language.

        Args:
            input_ids: (batch, length), the source; not needed with `encoder_outputs`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding.
            decoder_input_ids: (batch, target_length), beginning with `<s>`; made from `labels` if
                missing. Padding before `<s>` is not read, except in generation. With
                `past_key_values`, only the new ones.
            decoder_attention_mask: (batch, past + target_length), of the `decoder_input_ids` that
                are given or made.
            encoder_outputs: Output of `get_encoder()`, an output or a tuple (last_hidden_state,
                ...) whose position 0 is the embedding, or embeddings (batch, d_model),
                (d_model,), or a list of the latter.
            past_key_values: The cache of earlier calls.
            inputs_embeds: (batch, length, width) in place of `input_ids`.
            decoder_inputs_embeds: (batch, target_length, width) in place of `decoder_input_ids`.
            labels: (batch, target_length), `tokens </s>`, padded with -100 or `pad_token_id`. The
                `<s>` that a row begins with, as the tokenizer writes it, is no target.
            target_language: Language of the target: one code, one code per text, or ids, which are
                positions in `config.languages`: one, or (batch,). Default: the pivot language, if
                there is only one.
                With `labels`, codes are those of pivot languages.
            language_ids: (batch,) source languages, for models with an encoder per language.
            token_type_ids: (batch, length), for encoders that take them.
            use_cache: Whether to return a cache; without labels, by default as the config says.
            logits_to_keep: Compute the logits of this many last positions only; 0 for all.
            num_items_in_batch: Labels of all accumulated batches, as transformers' `Trainer`
                counts them, to divide the loss by; see [`EmbeddingSeq2Seq.translation_loss`].
                Default: the targets of this batch.
            bottleneck_only: For `TmdeConfig(bottleneck="dual")`: decode from the embedding alone.
                Default: if `encoder_outputs` are embeddings.
            kwargs: Passed to encoder and decoder.

        Returns:
            `logits` (batch, target_length, vocab_size), where `logits[:, t]` predict
            `labels[:, t]`, and with `labels` the mean cross-entropy per target token.

        Raises:
            ValueError: If there is nothing to decode, or the target language is missing or unknown.
        """
        if bottleneck_only is None:
            bottleneck_only = is_embedding(encoder_outputs)
        if encoder_outputs is None:
            encoder_outputs = self._encode_source(
                input_ids, attention_mask, inputs_embeds, language_ids, token_type_ids, **kwargs
            )
        else:
            if is_embedding(encoder_outputs):
                attention_mask = None  # It is that of the tokens, and an embedding is one slot.
            encoder_outputs = self.as_encoder_outputs(encoder_outputs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise TmdeError("Give decoder_input_ids, or labels to make them from")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            is_whole_target = True
        else:
            is_whole_target = self._is_whole_target(
                labels, decoder_attention_mask, past_key_values, use_cache
            )
        leading_padding = None
        if decoder_input_ids is not None and is_whole_target:
            leading_padding = self._leading_padding(decoder_input_ids, labels is not None)
        if use_cache is None:
            is_inference = labels is None and leading_padding is None
            use_cache = is_inference and getattr(self.config, "use_cache", False)

        embedding = encoder_outputs.pooler_output  # (batch, d_model)
        assert embedding is not None  # Every encoder returns it.
        states = encoder_outputs.last_hidden_state  # (batch, length, d_model)
        source_mask = None if attention_mask is None else text_mask(attention_mask)
        decoder_inputs: dict[str, Any] = {
            "input_ids": decoder_input_ids,
            "leading_padding": leading_padding,
            "logits_to_keep": logits_to_keep,
            "inputs_embeds": decoder_inputs_embeds,
            "embedding": embedding,
            "language_ids": self.language_ids(
                target_language, len(embedding), is_translation=labels is not None
            ),
            "encoder_hidden_states": encoder_outputs.get("memory", states),
            "encoder_attention_mask": source_mask,
            "attention_mask": decoder_attention_mask,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
            "bottleneck_only": bottleneck_only,
            "return_dict": True,
            **kwargs,
        }
        logits, decoder_outputs = self._decode(**decoder_inputs)
        loss = None
        if labels is not None:
            loss = self.decoder_loss(logits, labels, num_items_in_batch, decoder_inputs)
        return self._seq2seq_output(loss, logits, encoder_outputs, decoder_outputs)

    def _encode_source(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        language_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Return the output of the encoder, which gets only those optional inputs that are there.

        An encoder of the Hub would refuse the name of an input that it does not take.
        """
        optional_inputs = {
            "inputs_embeds": inputs_embeds,
            "language_ids": language_ids,
            "token_type_ids": token_type_ids,
        }
        for name, value in optional_inputs.items():
            if value is not None:
                kwargs[name] = value
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs
        )

    @staticmethod
    def _seq2seq_output(
        loss: torch.Tensor | None,
        logits: torch.Tensor,
        encoder_outputs: BaseModelOutputWithPooling,
        decoder_outputs: ModelOutput,
    ) -> Seq2SeqLMOutput:
        """Join the outputs of encoder and decoder as transformers names them."""
        # A decoder of one slot has no cross-attention: asked for attentions, it returns none of it.
        attentions = decoder_outputs.get("attentions")
        cross_attentions = None if attentions is None else ()
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=decoder_outputs.get("past_key_values"),
            decoder_hidden_states=decoder_outputs.get("hidden_states"),
            decoder_attentions=attentions,
            cross_attentions=decoder_outputs.get("cross_attentions", cross_attentions),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *args,
        target_language: str | int | list[str] | list[int] | torch.Tensor | None = None,
        encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | list | None = None,
        **kwargs,
    ) -> ModelOutput | torch.Tensor:
        """Translate texts, or decode `encoder_outputs`.

        Args:
            inputs: (batch, length), token ids of the source.
            args: As in `GenerationMixin.generate`.
            target_language: As for `forward`: one code, one code per text, or ids. Codes are those
                of pivot languages.
            encoder_outputs: As for `forward`: embeddings (batch, d_model), (d_model,), or a list of
                the latter, as `DocumentEmbedder.encode` returns them, or what an encoder returned.
                `TmdeConfig(bottleneck="dual")` decodes embeddings with its bottleneck band alone.
            kwargs: As in `GenerationMixin.generate`.

        Raises:
            ValueError: If there is nothing to decode, embeddings do not fit, or the target language
                is missing, unknown, or no pivot.
        """
        if encoder_outputs is None:
            batch_size = self._source_batch_size(inputs, **kwargs)
        else:
            encoder_outputs = self.as_encoder_outputs(encoder_outputs)
            kwargs["encoder_outputs"] = encoder_outputs
            embedding = encoder_outputs.pooler_output  # (batch, d_model)
            assert embedding is not None  # `as_encoder_outputs` has seen to it.
            batch_size = len(embedding)
        kwargs["target_language"] = self.language_ids(
            target_language, batch_size, is_translation=True
        )
        # The protocol by which transformers types `self` does not match its own models.
        return super().generate(inputs, *args, **kwargs)  # type: ignore[misc]

    @staticmethod
    def _source_batch_size(
        inputs: torch.Tensor | None,
        input_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs,
    ) -> int:
        """Return the number of texts that `generate` is to translate.

        Raises:
            ValueError: If there are none.
        """
        for source in (inputs, input_ids, inputs_embeds):
            if source is not None and len(source) > 0:
                return len(source)
        raise TmdeError("Give input_ids to translate, or encoder_outputs to decode embeddings from")
