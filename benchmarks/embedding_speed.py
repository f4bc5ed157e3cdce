"""Texts per second of `DocumentEmbedder` beside `SentenceTransformer.encode` on the same weights, and its modes.

    python benchmarks/embedding_speed.py                       # made-up documents, random weights
    python benchmarks/embedding_speed.py --model runs/small

Documents are of log-normal length, about 60 tokens in the median, at most 512. Each library has its own defaults.
"""

import random
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import interleaved, markdown, median_ratio, write_json
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from modeling_tmde import BagConfig, BagModel, TmdeConfig, TmdeModel, train_tokenizer
from tmde.embedding import DocumentEmbedder

MODES: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "torch.compile": {"dtype": "float32", "compile": True},
}


def made_up_texts(number: int, seed: int = 0) -> list[str]:
    """Texts of log-normal length, whose words are as unevenly frequent as those of a language (Zipf)."""
    rng = random.Random(seed)
    syllables = [
        consonant + vowel
        for consonant in "bcdfghjklmnprstvwz"
        for vowel in ("a", "e", "i", "o", "u", "er")
    ]
    words = [
        "".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(20_000)
    ]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    lengths = [max(3, min(round(rng.lognormvariate(np.log(42), 0.8)), 350)) for _ in range(number)]
    return [
        " ".join(rng.choices(words, weights, k=length)).capitalize() + "." for length in lengths
    ]


def made_up_models(texts: list[str], folder: Path, width: int) -> dict[str, Path]:
    """Random weights of the kinds that people use."""
    tokenizer = train_tokenizer({"none": texts}, vocab_size=32_000)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "d_model": width}
    transformer = {
        **sizes,
        "encoder_attention_heads": 8,
        "encoder_ffn_dim": 2 * width,
        "dropout": 0.0,
    }
    models = {
        "bag": BagModel(BagConfig(**sizes)),
        "T-MDE, 6 layers": TmdeModel(TmdeConfig(encoder_layers=6, **transformer)),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in models}


def measure(
    name: str, folder: Path, texts: list[str], device: str, repeats: int
) -> list[dict[str, Any]]:
    """A row for each mode, all of them and the peer in turn."""
    embedders = {}
    for mode, options in MODES.items():
        try:
            embedders[mode] = DocumentEmbedder.from_pretrained(
                folder, device=device, max_length=512, **options
            )
        except ValueError as error:  # a bag does not compile
            typer.echo(f"{name}, {mode}: {error}", err=True)
    theirs = SentenceTransformer(str(folder), device=device, trust_remote_code=True)
    theirs.max_seq_length = 512
    functions = {mode: lambda e=embedder: e.encode(texts) for mode, embedder in embedders.items()}
    seconds = interleaved(
        {**functions, "theirs": lambda: theirs.encode(texts)}, repeats, synchronize=device == "cuda"
    )
    exact = theirs.encode(texts)
    rows = []
    for mode, embedder in embedders.items():
        row = {"model": name, "mode": mode, "texts/s": len(texts) / median(seconds[mode])}
        vectors, report = embedder.encode_with_report(texts)
        row["tokens/s"] = report.tokens / median(seconds[mode])
        row["x sentence-transformers"] = median_ratio(seconds["theirs"], seconds[mode])
        row["largest difference"] = float(np.abs(vectors - exact).max())
        rows.append(row)
    return rows


def main(
    model: Annotated[
        Path | None, typer.Option(help="Folder of a trained model; default: random weights.")
    ] = None,
    number: Annotated[int, typer.Option(min=10, help="Documents.")] = 2000,
    width: Annotated[int, typer.Option(help="Of the random models.")] = 512,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each, in turn.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    settings = {
        "model": model,
        "number": number,
        "width": width,
        "repeats": repeats,
        "device": device,
    }
    texts = made_up_texts(number)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        if model is None:
            models = made_up_models(texts, scratch, width)
        else:  # saved anew, with today's code beside it
            models = {model.name: scratch / model.name}
            AutoModel.from_pretrained(model).save_pretrained(scratch / model.name)
            AutoTokenizer.from_pretrained(model).save_pretrained(scratch / model.name)
        rows = [
            row
            for name, folder in models.items()
            for row in measure(name, folder, texts, device, repeats)
        ]
    typer.echo(
        f"{number:,} documents, {device}, {torch.get_num_threads()} threads, median of {repeats}\n"
    )
    typer.echo(markdown(rows))
    write_json(json, "embedding_speed", settings, rows)


if __name__ == "__main__":
    typer.run(main)
