"""Texts per second of `DocumentEmbedder`, beside sentence-transformers on the same weights.

    python benchmarks/embedding_speed.py                       # the packaged models
    python benchmarks/embedding_speed.py --model runs/small --threads 1

All models read the same sentences, paragraphs and pages of the built-in sample. A model is measured
in float32 and bfloat16, with the batches that each library makes by default, and in float32 with
batches of 4,096 tokens, which are the default of a bag.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import LANGUAGES, interleaved, markdown, median_ratio, write_json
from sentence_transformers import SentenceTransformer

from tmde.data.sample import sample_sentences
from tmde.embedding import DocumentEmbedder
from tmde.embedding.packaged_models import packaged_folder

# How many sentences of the sample make a text.
SENTENCES_OF_TEXT = {"sentence": 1, "paragraph": 8, "page": 20}
LARGE_BATCH = 4096  # tokens
DTYPES = ("float32", "bfloat16")

Encode = Callable[[list[str]], np.ndarray]


def make_texts(number: int) -> dict[str, list[str]]:
    """Return texts of each length in five languages, made of the same number of sentences."""
    rows = sample_sentences(number)["translation"]
    texts: dict[str, list[str]] = {}
    for kind, length in SENTENCES_OF_TEXT.items():
        texts[kind] = []
        for start in range(0, len(rows), length):
            language = LANGUAGES[start // length % len(LANGUAGES)]
            sentences = [row[language] for row in rows[start : start + length]]
            texts[kind].append(" ".join(sentences))
    return texts


def load_systems(model: str, device: str) -> dict[str, Encode]:
    """Return what is measured by name; the first is the reference of the vectors."""
    systems: dict[str, Encode] = {}
    folder = str(packaged_folder(model) or model)
    for dtype in DTYPES:
        embedder = DocumentEmbedder.from_pretrained(model, device=device, dtype=dtype)
        systems[f"tmde, {dtype}"] = embedder.encode
        if dtype == "float32":
            systems[f"tmde, {dtype}, {LARGE_BATCH:,} tokens"] = lambda texts, embedder=embedder: (
                embedder.encode(texts, batch_tokens=LARGE_BATCH)
            )
        peer = SentenceTransformer(
            folder, device=device, trust_remote_code=True, model_kwargs={"dtype": dtype}
        )
        if embedder.max_length is not None:
            peer.max_seq_length = embedder.max_length
        systems[f"sentence-transformers, {dtype}"] = peer.encode
    return systems


def measure(
    model: str, systems: dict[str, Encode], kind: str, texts: list[str], repeats: int
) -> list[dict[str, Any]]:
    """Return a row for each system; they are measured in turn."""
    calls = {}
    for name, encode in systems.items():
        calls[name] = lambda encode=encode: encode(texts)
    seconds = interleaved(calls, repeats, synchronize=torch.cuda.is_available())
    reference = unit_rows(systems["tmde, float32"](texts))
    rows = []
    for name, encode in systems.items():
        cosines = (unit_rows(encode(texts)) * reference).sum(axis=1)
        row = {
            "model": Path(model).name,
            "texts": kind,
            "threads": torch.get_num_threads(),
            "system": name,
            "texts/s": len(texts) / median(seconds[name]),
            "x sentence-transformers": median_ratio(
                seconds["sentence-transformers, float32"], seconds[name]
            ),
            "smallest cosine": float(cosines.min()),
        }
        rows.append(row)
    return rows


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (n, d) with length 1, in float64."""
    vectors = vectors.astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main(
    model: Annotated[
        list[str] | None, typer.Option(help="A packaged model or a folder; repeatable.")
    ] = None,
    threads: Annotated[
        list[int] | None, typer.Option(help="Threads of torch; repeatable. Default: torch's.")
    ] = None,
    number: Annotated[int, typer.Option(min=20, help="Sentences.")] = 240,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each, in turn.")] = 5,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Print the speed of every system on texts of every length."""
    models = model or ["default", "tmde", "accurate"]
    counts = threads or [torch.get_num_threads()]
    texts = make_texts(number)
    rows = []
    for name in models:
        systems = load_systems(name, device)
        for count in counts:
            torch.set_num_threads(count)
            for kind, texts_of_kind in texts.items():
                rows += measure(name, systems, kind, texts_of_kind, repeats)
                typer.echo(f"{name}, {count} threads, {kind}: done", err=True)
    typer.echo(markdown(rows))
    settings = {"number": number, "repeats": repeats, "device": device}
    write_json(json, "embedding_speed", settings, rows)


if __name__ == "__main__":
    typer.run(main)
