"""A tiny corpus, tokenizer and model that need no files and no network."""

import os
import random
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

# `pytest -n 2`: one thread a worker. torch reads this when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import datasets
import pytest
import torch
from _pytest.mark import ParameterSet
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration, train_tokenizer
from tests.leftovers import start_guard
from tmde.embedding.progress import _LogLines

GUARD = pytest.StashKey()
BOTTLENECKS = ("first", "pyramid", "full", "dual")
LANGUAGES = ("de", "en", "es", "fr", "it")
WORDS = {
    "de": ["haus", "hund", "katze", "baum", "fluss", "stadt", "licht", "nacht", "brot", "wasser"],
    "en": ["house", "dog", "cat", "tree", "river", "town", "light", "night", "bread", "water"],
    "es": ["casa", "perro", "gato", "árbol", "río", "ciudad", "luz", "noche", "pan", "agua"],
    "fr": ["maison", "chien", "chat", "arbre", "fleuve", "ville", "lumière", "nuit", "pain", "eau"],
    "it": ["casa", "cane", "gatto", "albero", "fiume", "città", "luce", "notte", "pane", "acqua"],
}


def pytest_configure(config: pytest.Config) -> None:
    """No process outlives the test run."""
    config.stash[GUARD] = start_guard()


def nightly_except(daily: Container[Any], values: Iterable[Any]) -> list[ParameterSet]:
    """Return the parameters of a test; those that are not in `daily` run every night only."""
    parameters = []
    for value in values:
        marks = [] if value in daily else [pytest.mark.nightly]
        parameters.append(pytest.param(value, marks=marks))
    return parameters


def make_rows(
    num_rows: int, seed: int = 0, languages: tuple[str, ...] = LANGUAGES
) -> list[dict[str, str]]:
    """Return random word lists and their translations, word for word."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        indices = [rng.randrange(10) for _ in range(rng.randint(2, 9))]
        row = {}
        for language in languages:
            row[language] = " ".join(WORDS[language][index] for index in indices)
        rows.append(row)
    return rows


def make_dataset(rows: list[dict[str, str | None]]) -> datasets.Dataset:
    languages = dict.fromkeys(sorted(rows[0]), datasets.Value("string"))
    features = datasets.Features({"translation": languages})
    return datasets.Dataset.from_list([{"translation": row} for row in rows], features=features)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    texts: dict[str, list[str]] = {language: [] for language in LANGUAGES}
    for row in make_rows(300):
        for language, text in row.items():
            texts[language].append(text)
    return train_tokenizer(texts, vocab_size=400, model_max_length=128)


@pytest.fixture(scope="session")
def spaced_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens of two texts are those of the texts joined by a blank."""
    rows = make_rows(300)
    texts = {language: [row[language] for row in rows] for language in LANGUAGES}
    return train_tokenizer(texts, vocab_size=400, add_prefix_space=True)


def save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a model in a folder that `from_pretrained` opens."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def jittered(model: PreTrainedModel, size: float = 0.05) -> PreTrainedModel:
    """Change every parameter from its initial value, so that one that is left out is noticed."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * size)
    return model


def tiny_config(**changes) -> TmdeConfig:
    sizes = {
        "vocab_size": 400,
        "d_model": 32,
        "encoder_layers": 3,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_layers": 1,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 128,
        "language_embedding_dim": 8,
        "dropout": 0.0,
    }
    return TmdeConfig(**(sizes | changes))


def tiny_model(seed: int = 0, **changes) -> TmdeForConditionalGeneration:
    torch.manual_seed(seed)
    return TmdeForConditionalGeneration(tiny_config(**changes)).eval()


@pytest.fixture
def every_line(monkeypatch):
    """Stderr is a log, and every block of 4 rows writes its line, without a pause."""

    def progress_bar(**options):
        return _LogLines(**options, mininterval=0, delay=1e-9, miniters=1)

    # An earlier test of the same process may have shown the bars of `datasets`.
    are_shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    monkeypatch.setattr("tmde.data.tokens.progress_bar", progress_bar)
    monkeypatch.setattr("tmde.data.tokens.BLOCK_ROWS", 4)
    yield
    if are_shown:
        datasets.enable_progress_bars()
