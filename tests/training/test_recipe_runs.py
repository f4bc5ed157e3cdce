"""A tiny run of every family of the papers."""

import math

import pytest

from tests.conftest import nightly_except
from tests.training.logs import read_log
from tests.training.trainers import checkpoint_recipe
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

LANGUAGES = ["de", "en", "es", "fr", "it"]
SHORT = {
    "max_steps": 2,
    "eval_strategy": "no",
    "bf16": "false",
    "batch_tokens": "null",
    "micro_batch_tokens": 300,
}
SHORT |= {"dataloader_num_workers": 0, "logging_steps": 1}
DATA = [
    "data.train=sample",
    "data.streaming=false",
    "data.temperature=null",
    "data.max_rows=150",
    "data.dev_rows=12",
    f"data.languages={LANGUAGES}",
    "disable_tqdm=true",
    *(f"{name}={value}" for name, value in SHORT.items()),
]
SIZES = ["tokenizer.vocab_size=400", "model.d_model=16"]
LSTM = [*SIZES, "embedding_dim=12", "decoder_hidden_size=20"]
ENCODER = [*SIZES, "encoder_layers=2", "encoder_ffn_dim=24", "encoder_attention_heads=2"]
TRANSFORMER = [*ENCODER, "decoder_ffn_dim=24", "decoder_attention_heads=2"]


BRNN = ["model.d_model=16", "embedding_dim=12"]
PAIR = ["data.languages=[de, en]", "data.pivot_languages=[de, en]"]
CBOW = ["encoder_config={d_model: 16, normalize: false}"]
BILSTM = [
    "encoder_config={embedding_dim: 12, d_model: 16, encoder_layers: 1, pooling: max, dropout: 0.0}"
]
RUNS = {
    "claser_6": ([*LSTM, "encoder_layers=2"], {"translation_nll", "distance_hinge"}),
    "tmde_f": (TRANSFORMER, {"translation_nll"}),
    "gated_convnet": ([*LSTM, "encoder_layers=2"], {"translation_nll"}),
    "dbtmde": (TRANSFORMER, {"translation_nll", "translation_bottleneck_nll"}),
    "cnv": ([*PAIR, *BRNN, "attention_heads=2"], {"translation_nll", "ntdv_distance_loss"}),
    "xnli_cbow": (CBOW, {"xnli_alignment_loss"}),
    "xnli_bilstm": (BILSTM, {"xnli_alignment_loss"}),
    "clm": (ENCODER, {"causal_lm_loss"}),
    "tlm": (ENCODER, {"masked_lm_loss", "translation_lm_loss"}),
    "light": (
        ENCODER,
        {"unified_generative_loss", "alignment_softmax_loss", "similarity_softmax_loss"},
    ),
    "similarity_seq2seq": (
        [*LSTM, f"data.pivot_languages={LANGUAGES}"],
        {"translation_nll", "similarity_loss"},
    ),
}

# One with a decoder, one of language modeling, and one for each way to begin with a checkpoint.
DAILY = {"tmde_f", "tlm", "cnv", "xnli_bilstm"}

# The settings of the runs whose checkpoints they begin with.
CHECKPOINTS = {
    "cnv": [*PAIR, *SIZES, "embedding_dim=12"],
    "xnli_cbow": SIZES,
    "xnli_bilstm": ["data.languages=[en, es]", *LSTM],
}


@pytest.mark.parametrize("name", nightly_except(DAILY, RUNS))
def test_runs(name, tmp_path):
    overrides, expected = RUNS[name]
    settings = DATA + overrides
    if name in CHECKPOINTS:
        checkpoint = tmp_path / "checkpoint"
        train_recipe(checkpoint_recipe(name, *DATA, *CHECKPOINTS[name]), checkpoint)
        settings.append(f"warm_start.checkpoint={checkpoint}")
    run = tmp_path / "run"
    train_recipe(load_recipe(name, settings), run)
    first = read_log(run, "loss")[0]
    assert expected <= first.keys()
    for name in expected:
        assert math.isfinite(first[name]), name
