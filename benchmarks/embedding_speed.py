"""Texts per second of `DocumentEmbedder`, beside sentence-transformers on the same weights.

    python benchmarks/embedding_speed.py                       # made-up documents, random weights
    python benchmarks/embedding_speed.py --model runs/small

Documents are of log-normal length, about 60 tokens in the median, at most 512. Each library has its
own defaults.
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

MAX_LENGTH = 512  # tokens
VOCABULARY = 20_000  # words of the made-up language
MODES: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "torch.compile": {"dtype": "float32", "compile": True},
}


# ---- Texts and models


def make_words(rng: random.Random) -> list[str]:
    """Return words of one to four syllables."""
    syllables = []
    for consonant in "bcdfghjklmnprstvwz":
        for vowel in ("a", "e", "i", "o", "u", "er"):
            syllables.append(consonant + vowel)
    words = []
    for _ in range(VOCABULARY):
        length = rng.choice((1, 2, 2, 3, 3, 4))
        words.append("".join(rng.choices(syllables, k=length)))
    return words


def make_texts(number: int, seed: int = 0) -> list[str]:
    """Return texts of log-normal length, whose words have the frequencies of a language (Zipf)."""
    rng = random.Random(seed)
    words = make_words(rng)
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    lengths = []
    for _ in range(number):
        length = round(rng.lognormvariate(np.log(42), 0.8))
        lengths.append(max(3, min(length, 350)))
    texts = []
    for length in lengths:
        text = " ".join(rng.choices(words, weights, k=length))
        texts.append(text.capitalize() + ".")
    return texts


def make_models(texts: list[str], folder: Path, width: int) -> dict[str, Path]:
    """Save models of random weights, of the kinds that people use; return their folders."""
    tokenizer = train_tokenizer({"none": texts}, vocab_size=32_000)
    torch.manual_seed(0)
    bag_config = BagConfig(vocab_size=len(tokenizer), d_model=width)
    tmde_config = TmdeConfig(
        vocab_size=len(tokenizer),
        d_model=width,
        encoder_layers=6,
        encoder_attention_heads=8,
        encoder_ffn_dim=2 * width,
        dropout=0.0,
    )
    models = {"bag": BagModel(bag_config), "T-MDE, 6 layers": TmdeModel(tmde_config)}
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in models}


def copy_model(model: Path, folder: Path) -> dict[str, Path]:
    """Save a model anew, with today's code beside it; return its folder by name."""
    copy = folder / model.name
    AutoModel.from_pretrained(model).save_pretrained(copy)
    AutoTokenizer.from_pretrained(model).save_pretrained(copy)
    return {model.name: copy}


# ---- Measuring


def load_embedders(name: str, folder: Path, device: str) -> dict[str, DocumentEmbedder]:
    """Return the model in all modes that it has."""
    embedders = {}
    for mode, options in MODES.items():
        try:
            embedders[mode] = DocumentEmbedder.from_pretrained(
                folder, device=device, max_length=MAX_LENGTH, **options
            )
        except ValueError as error:  # a bag does not compile
            typer.echo(f"{name}, {mode}: {error}", err=True)
    return embedders


def measure(
    name: str, folder: Path, texts: list[str], device: str, repeats: int
) -> list[dict[str, Any]]:
    """Return a row for each mode of a model; all modes and the peer are measured in turn."""
    embedders = load_embedders(name, folder, device)
    peer = SentenceTransformer(str(folder), device=device, trust_remote_code=True)
    peer.max_seq_length = MAX_LENGTH
    functions = {}
    for mode, embedder in embedders.items():
        functions[mode] = lambda embedder=embedder: embedder.encode(texts)
    functions["peer"] = lambda: peer.encode(texts)
    seconds = interleaved(functions, repeats, synchronize=device == "cuda")
    peer_vectors = peer.encode(texts)
    rows = []
    for mode, embedder in embedders.items():
        duration = median(seconds[mode])
        vectors, report = embedder.encode_with_report(texts)
        difference = np.abs(vectors - peer_vectors).max()
        row = {
            "model": name,
            "mode": mode,
            "texts/s": len(texts) / duration,
            "tokens/s": report.tokens / duration,
            "x sentence-transformers": median_ratio(seconds["peer"], seconds[mode]),
            "largest difference": float(difference),
        }
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
    """Print the speed of every mode of every model."""
    texts = make_texts(number)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        if model is None:
            folders = make_models(texts, scratch, width)
        else:
            folders = copy_model(model, scratch)
        for name, folder in folders.items():
            rows += measure(name, folder, texts, device, repeats)
    threads = torch.get_num_threads()
    typer.echo(f"{number:,} documents, {device}, {threads} threads, median of {repeats}\n")
    typer.echo(markdown(rows))
    settings = {
        "model": model,
        "number": number,
        "width": width,
        "repeats": repeats,
        "device": device,
    }
    write_json(json, "embedding_speed", settings, rows)


if __name__ == "__main__":
    typer.run(main)
