"""What is asked of any encoder before texts go through it: where it is, how long an input it takes, which fillers."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

NO_LIMIT = 10**9  # tokenizers without a limit say 1e30
_DEFAULT_LENGTH = 750  # tokens, of a model that names no limit but was not trained on any length either


def position_limit(model: PreTrainedModel) -> int:
    """Longest input that the model has positions for; a large number if it does not say."""
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:  # T5 has none, XLNet says -1
        return NO_LIMIT
    if is_ours(model):  # whose configs count what is usable
        return limit
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from padding_idx + 1: of 514, 512 are usable.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - module.padding_idx - 1
    return limit


def tokenizer_limit(tokenizer: PreTrainedTokenizerBase) -> int:
    limit = tokenizer.model_max_length
    return int(limit) if limit and limit < NO_LIMIT else NO_LIMIT


def length_limit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ours: bool, asked: int | None) -> int:
    """Longest input in tokens, special tokens included.

    Args:
        ours: a model of this package. If it names no limit (a bag), the tokenizer's is that of other models.
        asked: lowered to what model and tokenizer can take; None takes all of it, or 750 of a foreign model where
            neither names a limit.

    Raises:
        ValueError: no room for text.
    """
    limit = position_limit(model)
    if limit < NO_LIMIT or not ours:
        limit = min(limit, tokenizer_limit(tokenizer))
    if asked is not None:
        limit = min(asked, limit)
    elif limit >= NO_LIMIT and not ours:
        limit = _DEFAULT_LENGTH
    special_tokens = tokenizer.num_special_tokens_to_add(pair=False)
    if limit <= special_tokens:
        raise ValueError(
            f"max_length: found {limit}, expected more than the {special_tokens} special tokens that the tokenizer "
            "adds to every text"
        )
    return limit


def load_tokenizer(name: str, shared: dict) -> PreTrainedTokenizerBase:
    """Of a folder or a Hub id; `shared`: arguments of every `from_pretrained`.

    Raises:
        OSError, ValueError: its files are missing or damaged.
    """
    try:
        return AutoTokenizer.from_pretrained(name, **shared)
    except OSError:
        raise
    except Exception as error:  # without its files, anything from KeyError to a Rust error
        raise ValueError(f"{name}: its tokenizer cannot be loaded; are its files there? {error}") from error


def check_vocabulary(tokenizer: PreTrainedTokenizerBase) -> None:
    """Where tokenizer files are missing, transformers 5 makes up a tokenizer of special tokens without a warning.

    Raises:
        ValueError: this is such a one.
    """
    if len(tokenizer) <= len(tokenizer.all_special_ids) + 1:  # mBART's made-up one has a word mark as well
        raise ValueError(
            f"tokenizer: found a vocabulary of {len(tokenizer)} with {len(tokenizer.all_special_ids)} special "
            f"tokens, expected more than these: are the tokenizer's files in {tokenizer.name_or_path!r}?"
        )


def input_vocabulary(model: PreTrainedModel) -> int | None:
    try:
        return getattr(model.get_input_embeddings(), "num_embeddings", None)
    except (NotImplementedError, AttributeError):
        return None


def filler_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Ids for padding (masked, so any will do) and for a text without any token (attended)."""
    pads = (tokenizer.pad_token_id, getattr(model.config, "pad_token_id", None), tokenizer.eos_token_id)
    pad = next((i for i in pads if i is not None and i >= 0), 0)
    attended = (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.unk_token_id)
    return pad, next((i for i in attended if i is not None), pad)


def encoder_body(model: nn.Module) -> nn.Module:
    """What embeds: of a model with a head its body, of an encoder-decoder (T5, Marian, BART) its encoder."""
    model = getattr(model, "base_model", model)
    # TmdeModel is an encoder alone, although its config describes an encoder-decoder.
    if getattr(model.config, "is_encoder_decoder", False) and not is_ours(model):
        return model.get_encoder()
    return model


def is_ours(model: nn.Module) -> bool:
    """Whether this is an encoder of this package."""
    return model.config.model_type.startswith("tmde")


def pooled_options(model: nn.Module) -> dict[str, bool]:
    """Arguments of a forward pass that computes no more than P, where there is such a thing."""
    return {"pooled_only": True} if model.config.model_type == "tmde" else {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a `with` block: an embedder may share the model with a training run."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def default_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(device: str | torch.device | None) -> None:
    """Before a large model is loaded; torch itself raises an AssertionError without CUDA."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ValueError(f"device: found {str(device)!r}, which cannot be used here: {error}") from error


def has_fast_bf16(use_cpu: bool) -> bool:
    """Whether this machine multiplies matrices in bfloat16 faster than in float32; `bf16: auto` of a recipe.

    On a CPU that takes instructions of its own (AVX512-BF16, AMX); without them bfloat16 is many times slower.
    """
    if use_cpu or not torch.cuda.is_available():
        return "avx512_bf16" in _cpu_flags() or "amx_bf16" in _cpu_flags()
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _cpu_flags() -> set[str]:
    """Instruction sets by Linux's names; none where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def local_or_hub(path: str | os.PathLike) -> str:
    """The folder, or the Hub id; what can be neither gets a better error than the Hub client's about repo names."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise FileNotFoundError(f"folder {folder} has no config.json; expected the folder of a saved model")
        return str(folder)
    if folder.exists():
        raise NotADirectoryError(f"{folder} is a file; expected the folder of a saved model")
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", str(path)):
        raise FileNotFoundError(f"no folder {folder}; expected a saved model's folder or a Hub id, 'name/model'")
    return str(path)
