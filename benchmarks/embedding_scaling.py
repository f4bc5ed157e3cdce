"""How the cost of embedding grows with the number of documents, with their length, and with processes.

    python benchmarks/embedding_scaling.py --json benchmarks/results/embedding_scaling.json
    python benchmarks/embedding_scaling.py --quick     # a rehearsal

A bag and a small T-MDE with made-up weights embed made-up documents on the CPU. Beside them, at the sizes that take it
seconds, `SentenceTransformer.encode` on the same weights.

On paper, an encoder of n layers, width d and feed-forward width f costs a document of L tokens

    L * n * (8 d^2 + 4 d f)      operations of the linear maps (two for each weight: a product and a sum)
    L * n * 4 L d                of attention (scores and weighted sum)

so that time grows with exponent 1 in the number of documents, and in their length with one between 1 and 2: the two
terms are equal at L = 2 d + f tokens. A bag adds L vectors of width d: exponent 1 in both. Memory is that of the model
and of the documents in hand (`tmde embed`: one shard), whatever their number.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import interleaved, markdown, median_ratio, summary, write_json
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder, TmdeConfig, TmdeModel, train_tokenizer
from modeling_tmde.export import export_static_embedding

WIDTH, LAYERS, FFN, LONGEST = 128, 3, 512, 4096
NUMBERS = (1_000, 3_000, 10_000, 30_000, 100_000)
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
PEER_DOCUMENTS = {"bag": 100_000, "T-MDE": 10_000}  # most that the peer is given
# Runs a command and prints the peak of its memory. Started from here it would have at least our own: Linux counts the
# memory that a process has before it becomes another program.
PEAK = """
import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print(usage.ru_maxrss)
os._exit(abs(os.waitstatus_to_exitcode(status)))
"""
Encoders = dict[str, dict[str, Callable[[list[str]], Any]]]  # of each model: ours, the peer's


@cache
def made_up_words(seed: int = 0) -> list[str]:
    """20,000 words of one to four syllables, the frequent ones first."""
    rng = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in ("a", "e", "i", "o", "u", "er")]
    return ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(20_000)]


def made_up_documents(number: int, words: int, seed: int) -> list[str]:
    """Documents of about `words` words, whose frequencies fall as those of a language do (Zipf)."""
    rng, vocabulary = random.Random(seed), made_up_words()
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(vocabulary) + 1)))
    sizes = [rng.randint(words // 2, words + words // 2) for _ in range(number)]
    return [" ".join(rng.choices(vocabulary, cum_weights=weights, k=size)) for size in sizes]


def save_models(folder: Path) -> dict[str, Path]:
    """A bag and a T-MDE with made-up weights and one tokenizer."""
    tokenizer = train_tokenizer({"none": made_up_documents(4000, 20, seed=1)}, vocab_size=8000)
    tokenizer.model_max_length = LONGEST
    ids = {"bos_token_id": tokenizer.bos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"encoder_layers": LAYERS, "encoder_attention_heads": 4, "encoder_ffn_dim": FFN}
    sizes |= {"max_position_embeddings": LONGEST, "eos_token_id": tokenizer.eos_token_id}
    config = TmdeConfig(vocab_size=len(tokenizer), d_model=WIDTH, **sizes, **ids)
    models = {"bag": BagModel(BagConfig(vocab_size=len(tokenizer))), "T-MDE": TmdeModel(config)}
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in models}


def encoders(folders: dict[str, Path]) -> Encoders:
    """Ours, and sentence-transformers' on the same weights where it is installed."""
    found: Encoders = {}
    for name, folder in folders.items():
        embedder = DocumentEmbedder.from_pretrained(folder, device="cpu")
        found[name] = {"tmde": partial(embedder.encode, show_progress_bar=False)}
        try:
            from sentence_transformers import SentenceTransformer, models
        except ImportError:
            continue
        if name == "bag":
            peer = SentenceTransformer(
                str(export_static_embedding(embedder.model, embedder.tokenizer, folder=folder / "static")),
                device="cpu",
            )
        else:
            body = models.Transformer(str(folder), max_seq_length=LONGEST)
            peer = SentenceTransformer(modules=[body, models.Pooling(WIDTH, "cls")], device="cpu")
        found[name]["sentence-transformers"] = partial(peer.encode, show_progress_bar=False)
    return found


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Slope of log seconds over log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(sizes) > 1 else None


def operations(length: float) -> float:
    """Of one document through the T-MDE's encoder, on paper."""
    return length * LAYERS * (8 * WIDTH**2 + 4 * WIDTH * FFN + 4 * length * WIDTH)


def measure(
    chosen: dict[str, Callable[[list[str]], Any]], documents: list[str], repeats: int, warmup: int = 1
) -> tuple[dict[str, float], float | None, dict[str, Any]]:
    """Median seconds of each, the peer's time over ours, and all summaries."""
    seconds = interleaved({name: partial(encode, documents) for name, encode in chosen.items()}, repeats, warmup)
    medians = {name: summary(values)["median"] for name, values in seconds.items()}
    ratio = median_ratio(*(seconds[name] for name in ("sentence-transformers", "tmde"))) if len(seconds) == 2 else None
    return medians, ratio, {name: summary(values) for name, values in seconds.items()}


def by_number(found: Encoders, numbers: Sequence[int], words: int, repeats: int) -> list[dict[str, Any]]:
    """Time against the number of documents."""
    rows = []
    for model, pair in found.items():
        for number in numbers:
            documents = made_up_documents(number, words, seed=2)
            chosen = pair if number <= PEER_DOCUMENTS[model] else {"tmde": pair["tmde"]}
            turns = {"repeats": repeats} if number <= 10_000 else {"repeats": 1, "warmup": 0}
            medians, ratio, summaries = measure(chosen, documents, **turns)
            rows.append({"model": model, "documents": number, **_row(medians, ratio), "summaries": summaries})
    return rows


def by_length(
    found: Encoders, tokenizer: PreTrainedTokenizerFast, lengths: Sequence[int], tokens: int, repeats: int
) -> list[dict[str, Any]]:
    """Time a document against its length; every row embeds about as many tokens."""
    rows = []
    for model, pair in found.items():
        for length in lengths:
            number = max(1, tokens // length)
            documents = [document_of(length, tokenizer, seed) for seed in range(number)]
            medians, ratio, summaries = measure(pair, documents, repeats)
            paper = operations(length) / operations(lengths[0]) if model == "T-MDE" else length / lengths[0]
            rows.append(
                {"model": model, "tokens": length, "documents": number, **_row(medians, ratio)}
                | {"ms a document": 1000 * medians["tmde"] / number, "on paper, relative": paper}
                | {"summaries": summaries}
            )
    return rows


def document_of(length: int, tokenizer: PreTrainedTokenizerFast, seed: int) -> str:
    """A document of about `length` tokens, special tokens included."""
    (text,) = made_up_documents(1, 2 * length, seed)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    special = tokenizer.num_special_tokens_to_add(pair=False)
    return tokenizer.decode(ids[: length - special])


def _row(medians: dict[str, float], ratio: float | None) -> dict[str, Any]:
    return {"tmde, s": medians["tmde"], "peer, s": medians.get("sentence-transformers"), "peer / tmde": ratio}


def embed_command(model: Path, source: Path, out: Path, processes: int, threads: int) -> dict[str, Any]:
    """`tmde embed` in fresh processes: the seconds that it reports, without start-up, and the largest peak memory."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] * (processes > 1)
    command = [sys.executable, *launcher, "-m", "modeling_tmde.cli.main", "embed", str(source), "-o", str(out)]
    command += ["-m", str(model), "--device", "cpu", "--overwrite", "--shard-size", "1024"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    process = subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True, env=environment)
    found = re.search(r" in ([\d.]+) s, ", process.stderr)
    if process.returncode or not found:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{process.stderr[-2000:]}")
    peak = int(process.stdout.split()[-1]) / (2**20 if sys.platform == "darwin" else 2**10)
    return {"seconds": float(found[1]), "peak MiB": peak}


def by_memory(folders: dict[str, Path], numbers: dict[str, Sequence[int]], words: int) -> list[dict[str, Any]]:
    """Peak memory of `tmde embed` against the number of documents."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "documents.txt"
        for model, folder in folders.items():
            for number in numbers[model]:
                source.write_text("\n".join(made_up_documents(number, words, seed=2)) + "\n", encoding="utf-8")
                result = embed_command(folder, source, Path(temporary) / "out.npy", processes=1, threads=1)
                rows.append({"model": model, "documents": number, "peak MiB": result["peak MiB"]})
    return rows


def by_processes(folder: Path, number: int, words: int, repeats: int) -> list[dict[str, Any]]:
    """Seconds of one file with a thread, with two, and with two processes of one."""
    layouts = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2), "2 processes, 1 thread each": (2, 1)}
    seconds: dict[str, list[float]] = {name: [] for name in layouts}
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "documents.txt"
        source.write_text("\n".join(made_up_documents(number, words, seed=2)) + "\n", encoding="utf-8")
        for _ in range(repeats):
            for name, (processes, threads) in layouts.items():
                result = embed_command(folder, source, Path(temporary) / "out.npy", processes, threads)
                seconds[name].append(result["seconds"])
    first = seconds["1 process, 1 thread"]
    return [
        {"layout": name, "documents": number, **summary(values), "speed-up": median_ratio(first, values)}
        for name, values in seconds.items()
    ]


def exponents(rows: list[dict[str, Any]], size: str, of: Callable[[dict[str, Any]], float]) -> list[dict[str, Any]]:
    """Of each model, over all its rows and over the larger half, where fixed costs no longer show."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        points = [(row[size], of(row)) for row in rows if row["model"] == model]
        larger = points[len(points) // 2 :]
        slopes = {
            "exponent": exponent(*zip(*points, strict=True)),
            "of the larger half": exponent(*zip(*larger, strict=True)),
        }
        paper = None
        if "on paper, relative" in rows[0]:
            of_paper = [(row[size], row["on paper, relative"]) for row in rows if row["model"] == model]
            paper = exponent(*zip(*of_paper[len(of_paper) // 2 :], strict=True))
        found.append({"model": model, "against": size, **slopes, "larger half on paper": paper or 1.0})
    return found


def show(title: str, rows: list[dict[str, Any]]) -> None:
    shown = [{key: value for key, value in row.items() if key != "summaries"} for row in rows]
    typer.echo(f"\n{title}\n\n{markdown(shown)}")


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each (of 30,000 documents and more: one).")] = 3,
    words: Annotated[int, typer.Option(min=2, help="Words of a document, where lengths are not the question.")] = 12,
    tokens: Annotated[int, typer.Option(min=4096, help="Tokens of a measurement, where lengths are.")] = 32768,
    seed: Annotated[int, typer.Option(help="Of the weights.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: a rehearsal.")] = False,
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Prints tables of time and memory against size, with fitted exponents."""
    torch.manual_seed(seed)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    repeats = 1 if quick else repeats
    numbers = NUMBERS[:2] if quick else NUMBERS
    lengths = LENGTHS[::3] if quick else LENGTHS
    in_memory = {
        "bag": (1000, 3000) if quick else (1000, 10_000, 100_000),
        "T-MDE": (1000,) if quick else (1000, 10_000),
    }
    with tempfile.TemporaryDirectory() as temporary:
        folders = save_models(Path(temporary))
        found = encoders(folders)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folders["bag"])
        results: dict[str, Any] = {"documents": by_number(found, numbers, words, repeats)}
        show("Time against the number of documents", results["documents"])
        results["lengths"] = by_length(found, tokenizer, lengths, tokens, repeats)
        show("Time against the length of documents", results["lengths"])
        results["exponents"] = exponents(results["documents"], "documents", lambda row: row["tmde, s"])
        results["exponents"] += exponents(results["lengths"], "tokens", lambda row: row["ms a document"])
        show("Exponents", results["exponents"])
        results["memory"] = by_memory(folders, in_memory, words)
        show("Peak memory of `tmde embed`, in a fresh process", results["memory"])
        results["processes"] = by_processes(folders["T-MDE"], 4000 if quick else 20_000, words, 1 if quick else 2)
        show(
            "`tmde embed` of one file by one process and by two (torchrun), seconds without start-up",
            results["processes"],
        )
    settings = {"repeats": repeats, "words": words, "tokens": tokens, "seed": seed, "quick": quick}
    settings |= {"width": WIDTH, "layers": LAYERS, "ffn": FFN}
    write_json(json, "embedding_scaling", settings, results)


if __name__ == "__main__":
    typer.run(main)
