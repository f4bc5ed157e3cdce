"""Does a vector depend on its text alone? 10,000 texts in 30 writing systems, every family, and lower precision.

    python benchmarks/invariance.py --json benchmarks/results/invariance.json

Texts are random words of 30 blocks of Unicode, 0 to 5,000 tokens; weights are random and tiny. Each text is embedded
three times: in batches by length as `DocumentEmbedder` makes them, in random order with a random number of tokens a
batch, and padded on the left in batches of 16 of like length. Differences are of vectors of length 1; the largest
counts. ONNX and int8 are compared as `tmde export onnx` does, on its texts; not all families have such a graph.
"""

import contextlib
import logging
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import typer
from common import markdown, write_json
from faults import JsonOption
from sklearn.preprocessing import normalize
from transformers import PreTrainedTokenizerBase

from modeling_tmde import train_tokenizer
from tmde.embedding import DocumentEmbedder
from tmde.embedding.export_onnx import export_onnx

BLOCKS = [
    0x61,
    0xC0,
    0x100,
    0x180,
    0x250,
    0x391,
    0x410,
    0x531,
    0x5D0,
    0x621,
    0x710,
    0x905,
    0x985,
    0xA05,
    0xA85,
    0xB05,
]
BLOCKS += [
    0xB85,
    0xC05,
    0xC85,
    0xD05,
    0xE01,
    0xE81,
    0x10D0,
    0x1200,
    0x13A0,
    0x1780,
    0x3041,
    0x30A1,
    0x4E00,
    0xAC00,
]
LIMIT = 5_000  # tokens


def made_up_texts(count: int, rng: random.Random) -> list[str]:
    """All but one in a hundred have up to 30 words; the others have up to 3,000 (log-uniform)."""
    texts = []
    for _ in range(count):
        block = rng.choice(BLOCKS)
        words = rng.randrange(30) if rng.random() < 0.99 else int(3000 ** rng.random())
        letters = [chr(block + offset) for offset in range(24)]
        texts.append(
            " ".join("".join(rng.choices(letters, k=rng.randint(1, 8))) for _ in range(words))
        )
    return texts


def families(vocabulary: int) -> dict:
    from tests.test_goldens import FAMILIES, fill

    models = {}
    for name, make in FAMILIES.items():
        config = make().config
        for part in (config, getattr(config, "encoder_config", None)):
            for key, value in (("vocab_size", vocabulary), ("max_position_embeddings", LIMIT + 10)):
                if isinstance(part, dict):
                    part |= {key: value} if key in part or key == "vocab_size" else {}
                elif hasattr(part, key):
                    setattr(part, key, value)
        models[name] = type(make())(config).eval()
        fill(models[name])
    return models


@torch.inference_mode()
def left_padded(
    embedder: DocumentEmbedder, texts: list[str], codes: list[str], rng: random.Random
) -> np.ndarray:
    """(n, d), in batches of 16 texts, padded on the left."""
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]) * rng.uniform(0.5, 1))
    vectors = np.empty((len(texts), embedder.dimension), np.float32)
    model = embedder.model.base_model
    for start in range(0, len(order), 16):
        rows = order[start : start + 16]
        batch = embedder.tokenizer(
            [texts[row] for row in rows], truncation=True, max_length=embedder.max_length
        )
        padded = embedder.tokenizer.pad(batch, return_tensors="pt", padding_side="left")
        inputs = {name: padded[name] for name in ("input_ids", "attention_mask")}
        if codes:
            inputs["language_ids"] = torch.tensor(
                [model.config.languages.index(codes[row]) for row in rows]
            )
        vectors[rows] = model(**inputs).pooler_output.float().numpy()
    return vectors


def exports(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
    """Largest difference of the ONNX graph, and the smallest cosine of its int8 form; none of a family without one."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
        found["ONNX"] = export_onnx(model, tokenizer, folder)[1]
        found["int8, 1 - cosine"] = 1 - export_onnx(model, tokenizer, folder, "int8")[2]
    return found


def main(number: int = 10_000, seed: int = 0, json_file: JsonOption = None) -> None:
    logging.getLogger("tmde.embedding").setLevel(logging.ERROR)  # of truncated texts
    rng = random.Random(seed)
    texts = made_up_texts(number, rng)
    tokenizer = train_tokenizer({"none": texts[:3000]}, vocab_size=3000, model_max_length=LIMIT)
    rows = []
    for name, model in families(len(tokenizer)).items():
        embedder = DocumentEmbedder(model, tokenizer, max_length=LIMIT)
        codes = rng.choices(model.config.languages, k=number) if embedder.needs_language else []
        expected = embedder.encode(texts, language=codes or None)
        order = rng.sample(range(number), number)
        mixed = np.empty_like(expected)
        language = [codes[row] for row in order] if codes else None
        mixed[order] = embedder.encode(
            [texts[row] for row in order], rng.randint(2000, 40_000), language=language
        )
        lengths = [
            len(ids) for ids in tokenizer(texts, truncation=True, max_length=LIMIT).input_ids
        ]
        left = left_padded(embedder, texts, codes, rng)
        exported = exports(model, tokenizer)
        bfloat16 = DocumentEmbedder(model.to(torch.bfloat16), tokenizer, max_length=LIMIT)
        half = bfloat16.encode(texts, language=codes or None)
        unit = normalize(expected)
        row = {"family": name, "longest, tokens": max(lengths)}
        for column, each in (("other batches", mixed), ("left padding", left)):
            row[column] = float(np.abs(normalize(each) - unit).max())
        row["bfloat16, 1 - cosine"] = float(1 - (normalize(half) * unit).sum(axis=1).min())
        rows.append(row | exported)
        print(row, flush=True)
    print(markdown(rows))
    write_json(json_file, "invariance", {"number": number, "seed": seed}, rows)
    if any(max(row["other batches"], row["left padding"]) > 1e-5 for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    typer.run(main)
