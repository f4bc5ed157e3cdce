"""Folders with the files of a run, and what tests read from cards."""

import json
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

WITH_DECODER = {"architectures": ["XForConditionalGeneration"]}
TRANSFORMER = {"encoder_layers": 1, "max_position_embeddings": 64}

# The configuration of each family, without what all of them have.
FAMILIES = {
    "tmde": {**TRANSFORMER, **WITH_DECODER, "bottleneck": "first", "bag_residual": False},
    "tmde_bag": {"normalize": True},
    "tmde_laser": {**WITH_DECODER, "encoder_layers": 2, "pooling": "max"},
    "tmde_ntdv": {**WITH_DECODER, "shared_layers": True, "attention_heads": 2},
    "tmde_encoder": {**TRANSFORMER, "pooling": "mean"},
    "tmde_aligned": {"encoder": "bag", "encoder_config": {"d_model": 16}, "source_language": "en"},
    "tmde_adapted": {
        **TRANSFORMER,
        **WITH_DECODER,
        "encoder_config": {"model_type": "bert"},
        "pooling": "cls",
    },
}

RECIPE = {
    "data": {
        "train": [
            "/home/somebody/words.jsonl",
            "https://me:secret@host/place/x?key=1",
            "Helsinki-NLP/europarl",
        ],
        "languages": ["de", "en", "fr"],
    },
    "objectives": {"translation": {"weight": 0.5}, "distance": {}},
    "training": {"max_steps": 2, "hub_token": "hf_secret"},
}

RUN = {
    "recipe": "small",
    "sources": [
        {"name": "words.jsonl", "kind": "files", "license": None},
        {"name": "Helsinki-NLP/europarl", "kind": "hub", "license": "known"},
    ],
    "machine": {"threads": 2, "cpus": 4, "gpus": [], "processor": "x86"},
    "data": {"train": {"rows": 108}},
    "processes": 1,
}

RESULTS = {
    "steps": 2,
    "minutes": 150.0,
    "seen": {"source_words": 1234},
    "best": {
        "eval_dev_p1_de-en": 0.25,
        "eval_retrieval": 0.25,
        "eval_translation_nll": 2.0,
        "eval_same": 0.9,
        "eval_cross": 0.8,
    },
    "best_step": 2,
    "metric": "mix",
    "dev_pools": {"dev": {"p1_de-en": 12}},
}


def write(path: Path, content) -> None:
    """Write content as JSON, or as YAML if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content) if path.suffix == ".yaml" else json.dumps(content)
    path.write_text(text)


def change(path: Path, **values) -> None:
    """Change some values of a JSON file."""
    write(path, {**json.loads(path.read_text()), **values})


def make_run(folder: Path, family: str = "tmde") -> Path:
    """Write the files of a run; the encoder has 40 weights and the decoder 8."""
    config = {
        "model_type": family,
        "languages": ["de", "en", "fr"],
        "pivot_languages": ["en"],
        "vocab_size": 300,
        **FAMILIES[family],
    }
    normalizer = {"type": "Lowercase"} if family == "tmde_bag" else None
    write(folder / "config.json", config)
    write(folder / "tokenizer_config.json", {"model_max_length": 64})
    write(folder / "tokenizer.json", {"normalizer": normalizer})
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16})
    write(folder / "recipe.yaml", RECIPE)
    write(folder / "run.json", RUN)
    write(folder / "results.json", RESULTS)
    weights = {"encoder.x": torch.zeros(40), "decoder.y": torch.zeros(8)}
    save_file(weights, folder / "model.safetensors")
    return folder


def cells_of_line(line: str) -> list[str]:
    """The cells of a line of a table, without the first."""
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def row_of(card, name: str) -> list[str]:
    """The cells of the first row of a card that begins with a name, without that name."""
    line = next(line for line in str(card).splitlines() if line.startswith(f"| {name}"))
    return cells_of_line(line)
