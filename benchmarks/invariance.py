"""Does a vector depend on its text alone? 10,000 texts in 30 writing systems, and every family.

    python benchmarks/invariance.py --json benchmarks/results/invariance.json

Texts are random words of 30 blocks of Unicode, 0 to 5,000 tokens; weights are random and tiny. Each
text is embedded three times: in batches by length as `DocumentEmbedder` makes them, in random order
with a random number of tokens a batch, and padded on the left in batches of 16 of like length.
Differences are of vectors of length 1; the largest counts. bfloat16 is compared with float32. ONNX
and int8 are compared as `tmde export onnx` does, on its texts; not all families have such a graph.
"""

import contextlib
import logging
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from common import markdown, write_json
from faults import JsonOption
from sklearn.preprocessing import normalize
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import train_tokenizer
from tmde.embedding import DocumentEmbedder
from tmde.embedding.export_onnx import export_onnx

# The first letters of blocks of Unicode: Latin, Greek, Cyrillic, ... Hangul.
BLOCKS = (
    *(0x61, 0xC0, 0x100, 0x180, 0x250, 0x391, 0x410, 0x531, 0x5D0, 0x621),
    *(0x710, 0x905, 0x985, 0xA05, 0xA85, 0xB05, 0xB85, 0xC05, 0xC85, 0xD05),
    *(0xE01, 0xE81, 0x10D0, 0x1200, 0x13A0, 0x1780, 0x3041, 0x30A1, 0x4E00, 0xAC00),
)
LIMIT = 5_000  # tokens
TOLERANCE = 1e-5
LEFT_PADDED_BATCH = 16  # texts


def make_texts(count: int, rng: random.Random) -> list[str]:
    """Return texts of up to 30 words; one in a hundred has up to 3,000 (log-uniform)."""
    texts = []
    for _ in range(count):
        block = rng.choice(BLOCKS)
        words = rng.randrange(30) if rng.random() < 0.99 else int(3000 ** rng.random())
        letters = [chr(block + offset) for offset in range(24)]
        text = ["".join(rng.choices(letters, k=rng.randint(1, 8))) for _ in range(words)]
        texts.append(" ".join(text))
    return texts


def make_models(vocabulary: int) -> dict[str, PreTrainedModel]:
    """Return a tiny model of every family, for so many tokens and for the longest text."""
    from tests.test_goldens import FAMILIES, fill

    models = {}
    for name, make in FAMILIES.items():
        config = make().config
        enlarge(config, vocabulary)
        # Aligned encoders have a dict here, whose settings depend on neither.
        encoder_config = getattr(config, "encoder_config", None)
        if isinstance(encoder_config, PretrainedConfig):
            enlarge(encoder_config, vocabulary)
        models[name] = type(make())(config).eval()
        fill(models[name])
    return models


def enlarge(config: PretrainedConfig, vocabulary: int) -> None:
    """Set the vocabulary and the positions of a configuration, as far as it has them."""
    if hasattr(config, "vocab_size"):
        config.vocab_size = vocabulary
    if hasattr(config, "max_position_embeddings"):
        config.max_position_embeddings = LIMIT + 10


@torch.inference_mode()
def encode_left_padded(
    embedder: DocumentEmbedder, texts: list[str], codes: list[str], rng: random.Random
) -> np.ndarray:
    """Return the vectors of texts, (n, d), from batches that are padded on the left."""
    vectors = np.empty((len(texts), embedder.dimension), np.float32)
    model = embedder.model.base_model
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]) * rng.uniform(0.5, 1))
    for start in range(0, len(order), LEFT_PADDED_BATCH):
        rows = order[start : start + LEFT_PADDED_BATCH]
        batch = embedder.tokenizer(
            [texts[row] for row in rows], truncation=True, max_length=embedder.max_length
        )
        padded = embedder.tokenizer.pad(batch, return_tensors="pt", padding_side="left")
        inputs = {
            "input_ids": padded["input_ids"],
            "attention_mask": padded["attention_mask"],
        }
        if codes:
            language_ids = [model.config.languages.index(codes[row]) for row in rows]
            inputs["language_ids"] = torch.tensor(language_ids)
        vectors[rows] = model(**inputs).pooler_output.float().numpy()
    return vectors


def encode_in_other_batches(
    embedder: DocumentEmbedder, texts: list[str], codes: list[str], rng: random.Random
) -> np.ndarray:
    """Return the vectors of texts, (n, d), in random order and with batches of a random size."""
    order = rng.sample(range(len(texts)), len(texts))
    languages = [codes[row] for row in order] if codes else None
    batch_tokens = rng.randint(2000, 40_000)
    vectors = np.empty((len(texts), embedder.dimension), np.float32)
    vectors[order] = embedder.encode(
        [texts[row] for row in order], batch_tokens, language=languages
    )
    return vectors


def compare_exports(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
    """Return the largest difference of the ONNX graph, and the smallest cosine of its int8 form.

    A family without a graph has neither.
    """
    differences = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
        _, difference, _ = export_onnx(model, tokenizer, folder)
        differences["ONNX"] = difference
        _, _, cosine = export_onnx(model, tokenizer, folder, "int8")
        differences["int8, 1 - cosine"] = 1 - cosine
    return differences


def measure(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    rng: random.Random,
) -> dict[str, Any]:
    """Return the differences of one family."""
    embedder = DocumentEmbedder(model, tokenizer, max_length=LIMIT)
    codes = []
    if embedder.needs_language:
        codes = rng.choices(model.config.languages, k=len(texts))
    unit_vectors = normalize(embedder.encode(texts, language=codes or None))

    def largest_difference(encode: Callable[..., np.ndarray]) -> float:
        vectors = normalize(encode(embedder, texts, codes, rng))
        return float(np.abs(vectors - unit_vectors).max())

    other_batches = largest_difference(encode_in_other_batches)
    left_padding = largest_difference(encode_left_padded)
    exports = compare_exports(model, tokenizer)
    token_ids = tokenizer(texts, truncation=True, max_length=LIMIT).input_ids
    half_embedder = DocumentEmbedder(model.to(torch.bfloat16), tokenizer, max_length=LIMIT)
    half_vectors = normalize(half_embedder.encode(texts, language=codes or None))
    cosines = (half_vectors * unit_vectors).sum(axis=1)  # (n,)
    return {
        "family": name,
        "longest, tokens": max(len(ids) for ids in token_ids),
        "other batches": other_batches,
        "left padding": left_padding,
        "bfloat16, 1 - cosine": float(1 - cosines.min()),
        **exports,
    }


def main(number: int = 10_000, seed: int = 0, json_file: JsonOption = None) -> None:
    """Measure every family; the exit code is 1 if a vector depends on more than its text."""
    # Texts are truncated on purpose.
    logging.getLogger("tmde.embedding").setLevel(logging.ERROR)
    rng = random.Random(seed)
    texts = make_texts(number, rng)
    tokenizer = train_tokenizer({"none": texts[:3000]}, vocab_size=3000, model_max_length=LIMIT)
    rows = []
    for name, model in make_models(len(tokenizer)).items():
        row = measure(name, model, tokenizer, texts, rng)
        print(row, flush=True)
        rows.append(row)
    print(markdown(rows))
    write_json(json_file, "invariance", {"number": number, "seed": seed}, rows)
    for row in rows:
        if max(row["other batches"], row["left padding"]) > TOLERANCE:
            raise SystemExit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    typer.run(main)
