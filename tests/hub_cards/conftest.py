"""Runs of every family, trained for two steps."""

import json
from pathlib import Path

import pytest
import yaml
from transformers import XLMRobertaConfig, XLMRobertaModel

from modeling_tmde import train_tokenizer
from modeling_tmde.training.callbacks import CurvePicture
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
from tests.conftest import make_rows

TRAINING = {
    "max_steps": 2,
    "warmup_steps": 1,
    "eval_steps": 2,
    "logging_steps": 1,
    "eval_pool": 16,
    "eval_pairs": ["de-en"],
    "eval_loss_rows": 8,
    "micro_batch_tokens": 512,
    "train_max_length": 32,
    "disable_tqdm": True,
    "bf16": False,
}
TRANSFORMER = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "max_position_embeddings": 64,
}
DECODER = {"decoder_attention_heads": 2, "decoder_ffn_dim": 16, "language_embedding_dim": 4, "share_embeddings": True}
LSTM = {"d_model": 16, "embedding_dim": 8, "encoder_layers": 1}
ALIGNED = {"encoder": "bag", "encoder_config": {"d_model": 8, "normalize": False}}
FAMILIES = {
    "tmde": ({**TRANSFORMER, **DECODER}, {"translation": {"weight": 0.5}, "distance": {"negatives": 3}}),
    "bag": ({"d_model": 8}, {"infonce": {}}),
    "laser": ({**LSTM, "decoder_hidden_size": 16, "language_embedding_dim": 4}, {"translation": {"reduction": "sum"}}),
    "ntdv": ({"d_model": 8, "embedding_dim": 8, "attention_heads": 2}, {"translation": {}}),
    "encoder": ({**TRANSFORMER, "pooling": "mean"}, {"masked_lm": {}}),
    "aligned": (ALIGNED, {"xnli_alignment": {"source_language": "en"}}),
    "adapted": ({"decoder_ffn_dim": 16, "language_embedding_dim": 4}, {"translation": {}, "infonce": {}}),
}


def write_recipe(folder: Path, family: str, train: Path, **changes: dict) -> Path:
    model, objectives = FAMILIES[family]
    tokenizer = {"vocab_size": 300, "lowercase": family == "bag"}
    if family == "adapted":
        model, tokenizer = {**model, "encoder": str(_encoder(folder))}, {}
    sections = {
        "description": f"a tiny {family}",
        "data": {"train": str(train), "languages": ["de", "en", "fr"], "pivot_languages": ["en"], "dev_rows": 20},
        "tokenizer": tokenizer,
        "model": {"architecture": family, **model},
        "objectives": objectives,
        "training": TRAINING,
        **changes,
    }
    path = folder / f"{family}_recipe.yaml"
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    return path


def _encoder(folder: Path) -> Path:
    """A tiny encoder of another library, with its tokenizer."""
    path = folder / "tiny-roberta"
    if not path.exists():
        rows = make_rows(120)
        texts = {code: [row[code] for row in rows] for code in ("de", "en", "fr")}
        train_tokenizer(texts, vocab_size=300, model_max_length=32).save_pretrained(path)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        config = XLMRobertaConfig(vocab_size=300, max_position_embeddings=34, pad_token_id=1, **sizes)
        XLMRobertaModel(config).save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no curves, which takes a second of each."""
    monkeypatch.setattr(CurvePicture, "_draw", lambda *args: None)


@pytest.fixture(scope="session")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of everything, whose name must be in no card."""
    return tmp_path_factory.mktemp("somebodys-machine")


@pytest.fixture(scope="session")
def corpus(secret: Path) -> Path:
    """Parallel rows of de, en, fr."""
    path = secret / "words.jsonl"
    rows = make_rows(120, languages=("de", "en", "fr"))
    path.write_text("".join(json.dumps({"translation": row}) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def runs(secret: Path, corpus: Path) -> dict[str, Path]:
    """The folder of a finished run of each family."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("modeling_tmde.data.token_cache.default_folder", lambda: secret / "tokens")
        patch.setattr(CurvePicture, "_draw", lambda *args: None)
        for family in FAMILIES:
            recipe = load_recipe(str(write_recipe(secret, family, corpus)))
            train_recipe(recipe, secret / "runs" / f"tiny-{family}")
    return {family: secret / "runs" / f"tiny-{family}" for family in FAMILIES}
