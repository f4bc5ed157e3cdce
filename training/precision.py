"""The precision in which this machine computes fastest."""

from pathlib import Path

import torch


def has_fast_bf16(use_cpu: bool) -> bool:
    """Return whether this machine multiplies matrices in bfloat16 faster than in float32.

    Recipes with `bf16: auto` ask for this. A CPU needs instructions of its own for that
    (AVX512-BF16, AMX).

    Args:
        use_cpu: Whether to compute on the CPU, even if there is an accelerator.
    """
    if not use_cpu and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = cpuinfo.read_text(encoding="utf-8").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags
