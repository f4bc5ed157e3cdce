"""What the systems of a training table share, and the machine's rate that they are measured against.

Nothing here needs more than torch, so that what the GPU script checks runs where `datasets` is missing.
"""

import time
from dataclasses import dataclass, replace

import torch

LANGUAGES = ["de", "en", "es", "fr", "it"]
PIVOTS = ["en", "es"]


@dataclass(frozen=True)
class Size:
    """Of every system of a table; `micro_batch_tokens` of a CPU and `gpu_micro_batch_tokens` count padding."""

    d_model: int
    layers: int
    heads: int
    ffn: int
    vocab_size: int
    micro_batch_tokens: int
    gpu_micro_batch_tokens: int
    max_length: int = 128
    decoder_layers: int = 1
    dropout: float = 0.1

    def on(self, device: str) -> "Size":
        """With the micro-batches of this device: matrices that fill a GPU are too large for a CPU's caches."""
        return self if device == "cpu" else replace(self, micro_batch_tokens=self.gpu_micro_batch_tokens)


SIZES = {
    "tiny": Size(64, 3, 4, 128, 1000, 1024, 1024),
    "small": Size(512, 6, 8, 2048, 32000, 4096, 131072),
    "paper": Size(1024, 6, 16, 4096, 50000, 4096, 65536, dropout=0.3),
}


def matrix_rate(bf16: bool, device: str, repeats: int = 5) -> float:
    """Operations per second of the fastest of a few large matrix products."""
    best = 0.0
    sizes = [(4096, 4096, 4096), (8192, 8192, 8192)] if device == "cuda" else [(2048, 512, 2048), (2048, 1024, 4096)]
    for rows, inner, columns in sizes:
        dtype = torch.bfloat16 if bf16 else torch.float32
        left = torch.randn(rows, inner, device=device, dtype=dtype)
        right = torch.randn(columns, inner, device=device, dtype=dtype)
        for _ in range(repeats):
            begin = time.perf_counter()
            torch.nn.functional.linear(left, right)
            if device == "cuda":
                torch.cuda.synchronize()
            best = max(best, 2.0 * rows * inner * columns / (time.perf_counter() - begin))
    return best
