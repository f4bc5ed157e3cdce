"""Checks T-MDE on a GPU against the CPU, then times training and embedding there.

    python benchmarks/gpu.py                  # some minutes on one GPU
    python benchmarks/gpu.py --device cpu     # a rehearsal: the checks are trivial, nothing is timed

The checks compare loss, gradient norm and embedding of one fixed batch per variant with fp32 on the CPU. The tables of
`training_speed.py` and `embedding_speed.py` follow, each in a process of its own.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from common import markdown, write_json

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration

TOLERANCES = {"fp32": 1e-4, "bf16": 2e-2}  # relative, of loss and gradient norm
VARIANTS: dict[str, dict[str, Any]] = {
    "T-MDE": {},
    "T-MDE_P": {"bottleneck": "pyramid"},
    "T-MDE_F": {"bottleneck": "full"},
    "dbT-MDE": {"bottleneck": "dual"},
}
SIZES = {
    "tiny": {"d_model": 64, "encoder_layers": 3, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 1000},
    "small": {"d_model": 512, "encoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048},
}


def measure(
    model: TmdeForConditionalGeneration, batch: dict[str, torch.Tensor], device: str, bf16: bool
) -> tuple[float, float, torch.Tensor]:
    """Loss, norm of its gradient, and embeddings (rows, d_model) in fp32, on the CPU."""
    model = model.to(device)
    model.zero_grad()
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss = model(**batch, target_language="es").loss
    loss.backward()
    squares = [
        parameter.grad.double().square().sum() for parameter in model.parameters() if parameter.grad is not None
    ]
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=bf16):
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        embeddings = model.model(**inputs).pooler_output.float().cpu()
    return loss.item(), torch.stack(squares).sum().sqrt().item(), embeddings


def check(name: str, size: str, device: str) -> dict[str, Any]:
    """A row of relative differences of one variant from fp32 on the CPU."""
    torch.manual_seed(0)
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    config = TmdeConfig(**SIZES[size], **heads, **VARIANTS[name], dropout=0.0)
    model = TmdeForConditionalGeneration(config).eval()
    ids = torch.randint(5, config.vocab_size, (24, 40))
    mask = (torch.arange(40) < torch.randint(5, 41, (24, 1))).long()
    ids = ids.masked_fill(mask == 0, config.pad_token_id)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    loss, norm, embeddings = measure(model, batch, "cpu", bf16=False)
    row: dict[str, Any] = {"variant": name, "loss": loss}
    within = True
    for precision, limit in TOLERANCES.items():
        other_loss, other_norm, other = measure(model, batch, device, precision == "bf16")
        differences = abs(other_loss / loss - 1), abs(other_norm / norm - 1)
        row[f"loss, {precision}"], row[f"gradient, {precision}"] = differences
        row[f"embedding, {precision}"] = float((other - embeddings).abs().max())
        within &= max(differences) <= limit
    return row | {"within tolerance": "yes" if within else "NO"}


def main(
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SIZES)}.")] = "small",
    json: Annotated[Path | None, typer.Option(help="File to write the checks to.")] = None,
) -> None:
    rows = [check(name, size, device) for name in VARIANTS]
    typer.echo(markdown(rows))
    write_json(json, "gpu", {"device": device, "size": size}, rows)
    here = Path(__file__).parent
    if device == "cuda":
        for script, options in (("training_speed.py", ["--bf16"]), ("embedding_speed.py", ["--device", "cuda"])):
            subprocess.run([sys.executable, str(here / script), *options], check=True)
    if any(row["within tolerance"] != "yes" for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
