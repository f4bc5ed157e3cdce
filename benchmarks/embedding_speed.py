"""Texts per second of a bag model, tokenisation included, beside sentence-transformers' StaticEmbedding.

    python benchmarks/embedding_speed.py                       # a made-up model on made-up sentences
    python benchmarks/embedding_speed.py MODEL --texts FILE    # a saved model on the lines of a file, but empty ones

Both give the same vectors: the peer opens what `export_static_embedding` writes of the model. They take turns, and the
best of the rounds counts. CPU time is that of all threads of the process: unlike the wall clock it says the same on a
busy machine. A model that is no bag has no such peer and is measured alone.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder, train_tokenizer
from modeling_tmde.static_embedding import export_static_embedding


def made_up_texts(number: int, seed: int) -> list[str]:
    """Sentences of about 75 characters, whose words are as unevenly frequent as those of a language (Zipf)."""
    rng = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in ("a", "e", "i", "o", "u", "er")]
    words = ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [" ".join(rng.choices(words, weights, k=12)).capitalize() + "." for _ in range(number)]


def made_up_model(texts: list[str], folder: Path, seed: int) -> Path:
    """A bag of the default size, with random weights, and a tokenizer trained on the texts."""
    tokenizer = train_tokenizer({"none": texts}, vocab_size=BagConfig().vocab_size)
    torch.manual_seed(seed)
    model = BagModel(BagConfig(vocab_size=len(tokenizer)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def fastest(encoders: dict[str, Callable[[list[str]], np.ndarray]], texts: list[str], rounds: int) -> dict[str, dict]:
    """Seconds of the wall clock and of the CPU, each the least of the rounds, and the vectors."""
    results = {name: {"wall": float("inf"), "cpu": float("inf")} for name in encoders}
    for _ in range(rounds):
        for name, encode in encoders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            vectors = encode(texts)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            best = results[name]
            results[name] = {"wall": min(wall, best["wall"]), "cpu": min(cpu, best["cpu"]), "vectors": vectors}
    return results


def main(
    model: Annotated[str | None, typer.Argument(help="Folder or Hub id of a model; default: a made-up bag.")] = None,
    texts: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="File of one text a line; default: made-up.")
    ] = None,
    number: Annotated[int, typer.Option(min=1, help="Made-up texts, or lines that are read at most.")] = 50_000,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements; the best counts.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts in a batch of the peer.")] = 2048,
    seed: Annotated[int, typer.Option(help="Of made-up texts and weights.")] = 0,
) -> None:
    """Prints texts per second of MODEL and of its StaticEmbedding export on the CPU."""
    if texts is None:
        documents = made_up_texts(number, seed)
    else:
        with texts.open(encoding="utf-8") as lines:
            stripped = (line.strip() for line in lines)
            documents = list(islice((line for line in stripped if line), number))
        if not documents:
            raise typer.BadParameter(f"{texts} is empty; expected a text on each line", param_hint="--texts")
    with tempfile.TemporaryDirectory() as temporary:
        source = model or made_up_model(documents, Path(temporary) / "bag", seed)
        embedder = DocumentEmbedder.from_pretrained(source, device="cpu")
        encoders = {"tmde DocumentEmbedder": embedder.encode}
        if embedder.model.config.model_type == "tmde_bag":
            folder = export_static_embedding(embedder.model, embedder.tokenizer, folder=Path(temporary) / "static")
            from sentence_transformers import SentenceTransformer  # after the export, which says how to get it

            peer = SentenceTransformer(str(folder), device="cpu")
            encoders["sentence-transformers StaticEmbedding"] = lambda rows: peer.encode(rows, batch_size=batch_size)
        for encode in encoders.values():
            encode(documents[:1000])  # first calls set things up
        results = fastest(encoders, documents, rounds)
    characters = np.mean([len(text) for text in documents])
    typer.echo(
        f"{len(documents):,} texts of {characters:.0f} characters, {embedder.last_report.tokens / len(documents):.1f} "
        f"tokens on average; {torch.get_num_threads()} threads in torch; best of {rounds}\n"
    )
    typer.echo("| | texts per second | texts per second of CPU time |\n|---|---:|---:|")
    for name, best in results.items():
        typer.echo(f"| {name} | {len(documents) / best['wall']:,.0f} | {len(documents) / best['cpu']:,.0f} |")
    if len(results) == 2:
        ours, peers = (best["vectors"] for best in results.values())
        typer.echo(f"\nLargest difference between their vectors: {np.abs(ours - peers).max():.1e}")


if __name__ == "__main__":
    typer.run(main)
