"""What is fast on this machine: whether bfloat16 is, and the batch size on a CPU."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from modeling_tmde import BagModel

# A bag has no layers whose results should stay in the cache.
_BAG_BATCH_TOKENS = 4096
_FEWEST_BATCH_TOKENS = 128
_USUAL_CACHE = 2**20  # bytes of the level-2 cache of a core, if the CPU does not tell
# What the widest layer writes for a batch, over the size of the cache. For `accurate` on one core,
# half of it was up to 16% slower, and twice as much up to 7%.
_CACHES = 1.5


def has_fast_bf16(use_cpu: bool) -> bool:
    """Return whether this machine multiplies matrices in bfloat16 faster than in float32.

    A CPU needs instructions of its own for that (AVX512-BF16, AMX).

    Args:
        use_cpu: Whether to compute on the CPU, even if there is an accelerator.
    """
    if not use_cpu and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def cpu_batch_tokens(model: PreTrainedModel) -> int:
    """Return how many padded tokens a batch should have on this CPU.

    The layers of a deep encoder are fastest if what they write stays in the caches of the cores.

    Args:
        model: The encoder.
    """
    if isinstance(model, BagModel):
        return _BAG_BATCH_TOKENS
    widths = [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]
    cache = torch.cpu.get_capabilities().get("l2_cache_size") or _USUAL_CACHE
    bytes_of_token = 4 * max(widths, default=model.config.hidden_size)
    tokens = int(_CACHES * cache * torch.get_num_threads() / bytes_of_token)
    return max(tokens, _FEWEST_BATCH_TOKENS)
