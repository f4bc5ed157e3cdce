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
from collections.abc import Sequence
from dataclasses import dataclass
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


# ---- Texts and models


def make_texts(count: int, rng: random.Random) -> list[str]:
    """Return texts of up to 30 words; one in a hundred has up to 3,000 (log-uniform)."""
    texts = []
    for _ in range(count):
        block = rng.choice(BLOCKS)
        if rng.random() < 0.99:
            length = rng.randrange(30)
        else:
            length = int(3000 ** rng.random())
        texts.append(make_text(block, length, rng))
    return texts


def make_text(block: int, length: int, rng: random.Random) -> str:
    """Return random words of the first 24 letters of a block.

    Args:
        block: The code point of the first letter.
        length: The number of words.
        rng: Chooses the letters.
    """
    letters = [chr(code) for code in range(block, block + 24)]
    words = []
    for _ in range(length):
        word_length = rng.randint(1, 8)
        words.append("".join(rng.choices(letters, k=word_length)))
    return " ".join(words)


def make_models(vocabulary: int) -> dict[str, PreTrainedModel]:
    """Return a tiny model of every family, by name.

    Args:
        vocabulary: The tokens of the tokenizer. The models read texts of `LIMIT` tokens.
    """
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


# ---- Other ways to embed the same texts


@dataclass(frozen=True)
class Texts:
    """The texts of a family.

    Attributes:
        texts: (n,)
        languages: The language code of each text, (n,); None for a family that needs none.
    """

    texts: np.ndarray
    languages: np.ndarray | None

    def take(self, rows: Sequence[int]) -> "Texts":
        """Return the texts of some rows."""
        languages = self.languages
        if languages is not None:
            languages = languages[rows]
        return Texts(self.texts[rows], languages)

    def encode(self, embedder: DocumentEmbedder, batch_tokens: int | None = None) -> np.ndarray:
        """Return vectors of length 1, (n, d)."""
        languages = self.languages
        if languages is not None:
            languages = languages.tolist()
        vectors = embedder.encode(self.texts.tolist(), batch_tokens, language=languages)
        return normalize(vectors)


@torch.inference_mode()
def encode_left_padded(embedder: DocumentEmbedder, texts: Texts, rng: random.Random) -> np.ndarray:
    """Return the vectors of texts, (n, d), from batches that are padded on the left.

    The texts of a batch are of about the same length.
    """
    model = embedder.model.base_model
    lengths = []
    for text in texts.texts:
        lengths.append(len(text) * rng.uniform(0.5, 1))
    order = np.argsort(lengths, stable=True)
    vectors = np.empty((len(order), embedder.dimension), np.float32)
    for start in range(0, len(order), LEFT_PADDED_BATCH):
        rows = order[start : start + LEFT_PADDED_BATCH]
        inputs = left_padded_batch(embedder, texts.take(rows))
        vectors[rows] = model(**inputs).pooler_output.float().numpy()
    return normalize(vectors)


def left_padded_batch(embedder: DocumentEmbedder, texts: Texts) -> dict[str, torch.Tensor]:
    """Return the inputs of the model for some texts."""
    tokenizer = embedder.tokenizer
    batch = tokenizer(texts.texts.tolist(), truncation=True, max_length=embedder.max_length)
    padded = tokenizer.pad(batch, return_tensors="pt", padding_side="left")
    inputs = {
        "input_ids": padded["input_ids"],  # (texts, length)
        "attention_mask": padded["attention_mask"],  # (texts, length)
    }
    if texts.languages is not None:
        languages = embedder.model.config.languages
        language_ids = [languages.index(code) for code in texts.languages]
        inputs["language_ids"] = torch.tensor(language_ids)  # (texts,)
    return inputs


def encode_in_other_batches(
    embedder: DocumentEmbedder, texts: Texts, rng: random.Random
) -> np.ndarray:
    """Return the vectors of texts, (n, d), in random order and with batches of a random size."""
    count = len(texts.texts)
    order = rng.sample(range(count), count)
    batch_tokens = rng.randint(2000, 40_000)
    vectors = np.empty((count, embedder.dimension), np.float32)
    vectors[order] = texts.take(order).encode(embedder, batch_tokens)
    return vectors


# ---- Measuring


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
    """Return the differences of one family.

    Args:
        name: The name of the family.
        model: Its model, which is converted to bfloat16 at the end.
        tokenizer: The tokenizer of all families.
        texts: The texts to embed.
        rng: Chooses languages and batches.
    """
    embedder = DocumentEmbedder(model, tokenizer, max_length=LIMIT)
    languages = None
    if embedder.needs_language:
        languages = np.array(rng.choices(model.config.languages, k=len(texts)))
    family_texts = Texts(np.array(texts, dtype=object), languages)
    expected = family_texts.encode(embedder)  # (n, d)
    from_other_batches = encode_in_other_batches(embedder, family_texts, rng)
    left_padded = encode_left_padded(embedder, family_texts, rng)
    exports = compare_exports(model, tokenizer)
    half_embedder = DocumentEmbedder(model.to(torch.bfloat16), tokenizer, max_length=LIMIT)
    half_vectors = family_texts.encode(half_embedder)
    cosines = (half_vectors * expected).sum(axis=1)  # (n,)
    return {
        "family": name,
        "longest, tokens": longest_text(texts, tokenizer),
        "other batches": largest_difference(from_other_batches, expected),
        "left padding": largest_difference(left_padded, expected),
        "bfloat16, 1 - cosine": float(1 - cosines.min()),
        **exports,
    }


def largest_difference(vectors: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference of any number of vectors, both (n, d)."""
    return float(np.abs(vectors - expected).max())


def longest_text(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the most tokens of a text."""
    token_ids = tokenizer(texts, truncation=True, max_length=LIMIT).input_ids
    return max(map(len, token_ids))


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
