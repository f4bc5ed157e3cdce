"""Recipes of the papers: the published settings of the LSTM systems, and a tiny run of every family."""

import json
import math

import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.modeling_laser import LaserModel
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe

LANGUAGES = ["de", "en", "es", "fr", "it"]
TINY = [
    "data.train=sample",
    "data.streaming=false",
    "data.temperature=null",
    "data.max_rows=150",
    "data.dev_rows=12",
    f"data.languages={LANGUAGES}",
    "train_max_length=64",
    "batch_tokens=null",
    "micro_batch_tokens=300",
    "dataloader_num_workers=0",
    "bf16=false",
    "max_steps=2",
    "logging_steps=1",
    "eval_steps=2",
    "eval_pairs=[de-en]",
    "eval_pool=12",
    "disable_tqdm=true",
]
SIZES = ["tokenizer.vocab_size=400", "model.d_model=16"]
LSTM = [*SIZES, "embedding_dim=12", "decoder_hidden_size=20"]
TRANSFORMER = [*SIZES, "encoder_layers=2", "encoder_ffn_dim=24", "decoder_ffn_dim=24"]
TRANSFORMER += ["encoder_attention_heads=2", "decoder_attention_heads=2"]
ENCODER = [*SIZES, "encoder_layers=2", "encoder_ffn_dim=24", "encoder_attention_heads=2"]


def first_stage(**overrides) -> list[str]:
    """Settings of a tiny first stage."""
    overrides = {"max_steps": 2, "eval_steps": 2, "bf16": "false", "batch_tokens": "null"} | overrides
    overrides |= {"micro_batch_tokens": 300, "dataloader_num_workers": 0, "tokenizer.vocab_size": 400}
    return [f"warm_start.overrides.{name}={value}" for name, value in overrides.items()]


BRNN = {"model.d_model": 16, "model.embedding_dim": 12}
PAIR = ["data.languages=[de, en]", "data.pivot_languages=[de, en]", "attention_heads=2"]
PAIR += [*first_stage(**BRNN), *(f"{name}={value}" for name, value in BRNN.items())]
CBOW = [*first_stage(**{"model.d_model": 16}), "encoder_config={d_model: 16, normalize: false}"]
BILSTM = "{embedding_dim: 12, d_model: 16, encoder_layers: 1, pooling: max, dropout: 0.0}"
BILSTM = [*first_stage(**BRNN, **{"model.decoder_hidden_size": 20}), f"encoder_config={BILSTM}"]


def components(folder) -> set[str]:
    """Losses and counts that a run logged, all of them finite."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    (first, *_) = [line for line in lines if "loss" in line]
    assert all(math.isfinite(value) for value in first.values() if isinstance(value, float))
    return set(first)


@pytest.mark.parametrize(("name", "layers"), [("laser_1", 1), ("laser_6", 6), ("claser_6", 6)])
def test_laser_of_the_thesis(name, layers, tmp_path):
    recipe = load_recipe(name)
    config = recipe.build_config(vocab_size=recipe.sections["tokenizer"]["vocab_size"])
    assert type(config) is LaserConfig and config.vocab_size == 50000
    assert (config.encoder_layers, config.unidirectional_layers, config.pooling) == (layers, 0, "max")
    assert (config.d_model, config.decoder_hidden_size, config.language_embedding_dim) == (1024, 2048, 32)
    assert config.languages == LANGUAGES and config.pivot_languages == ["en", "es"]
    arguments = recipe.build_arguments(str(tmp_path / "run"))
    assert (arguments.learning_rate, arguments.lr_scheduler_type) == (0.001, "constant")
    assert arguments.micro_batch_tokens * arguments.gradient_accumulation_steps == 128_000
    objectives = recipe.build_objectives()
    assert objectives["translation"].label_smoothing == 0
    assert set(objectives) == ({"translation", "distance"} if name == "claser_6" else {"translation"})


def test_constraint_of_claser():
    """Section 4.3.1 and table 4.7: N_s = 40, lambda = 1, alpha = 0.5, beta = 0.25, and half the translation loss."""
    objectives = load_recipe("claser_6").build_objectives()
    distance = objectives["distance"]
    assert (distance.weight, distance.margin, distance.hinge_weight, distance.negatives) == (0.25, 0.5, 1.0, 40)
    assert objectives["translation"].weight == 0.5


def test_seq2seq_of_paper_001(tmp_path):
    recipe = load_recipe("similarity_seq2seq")
    config = recipe.build_config(vocab_size=recipe.sections["tokenizer"]["vocab_size"])
    assert config.vocab_size == 85000 and len(config.languages) == 6
    assert set(config.pivot_languages) == set(config.languages)  # both directions of every pair
    assert (config.encoder_layers, config.unidirectional_layers, config.pooling) == (2, 1, "mean")
    assert (config.d_model, config.decoder_hidden_size, config.language_signal) == (1024, 1024, "start_token")
    assert recipe.build_arguments(str(tmp_path / "run")).max_grad_norm == 5
    assert set(recipe.build_objectives()) == {"translation", "similarity"}


@pytest.mark.parametrize(("name", "bottleneck"), [("tmde_f", "full"), ("dbtmde", "dual")])
def test_variants_differ_from_tmde_in_their_bottleneck_alone(name, bottleneck):
    recipe, plain = load_recipe(name), load_recipe("tmde")
    model = dict(recipe.sections.pop("model"))
    assert model.pop("bottleneck") == bottleneck
    assert model.pop("bottleneck_loss_weight", 0.5) == 0.5
    assert model == {key: value for key, value in plain.sections.pop("model").items() if key != "bottleneck"}
    assert recipe.sections == plain.sections


RUNS = {
    "laser_1": (LSTM, {"translation_nll"}),
    "claser_6": ([*LSTM, "encoder_layers=2"], {"translation_nll", "distance_hinge"}),
    "tmde_f": (TRANSFORMER, {"translation_nll"}),
    "dbtmde": (TRANSFORMER, {"translation_nll", "translation_bottleneck_nll"}),
    "nv": (PAIR, {"translation_nll"}),
    "cnv": (PAIR, {"translation_nll", "ntdv_distance_loss"}),
    "xnli_cbow": (CBOW, {"xnli_alignment_loss"}),
    "xnli_bilstm": (BILSTM, {"xnli_alignment_loss"}),
    "mlm": (ENCODER, {"masked_lm_loss"}),
    "tlm": (ENCODER, {"masked_lm_loss", "translation_lm_loss"}),
    "light": (ENCODER, {"unified_generative_loss", "alignment_softmax_loss", "similarity_softmax_loss"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_runs(name, tmp_path):
    overrides, expected = RUNS[name]
    trainer = train_recipe(load_recipe(name, TINY + overrides), tmp_path)
    assert trainer.state.global_step == 2
    assert expected <= components(tmp_path)


@pytest.mark.parametrize("regularized", [False, True])
def test_paper_001_runs_and_opens_with_the_auto_classes(regularized, tmp_path):
    other = ["objectives.similarity=null", "objectives.weight_regularization.weight=1e-5"] if regularized else []
    recipe = load_recipe("similarity_seq2seq", [*TINY, *LSTM, f"data.pivot_languages={LANGUAGES}", *other])
    trainer = train_recipe(recipe, tmp_path)
    penalty = "weight_regularization_loss" if regularized else "similarity_loss"
    assert {"translation_nll", penalty} <= components(tmp_path)
    encoder, whole = (kind.from_pretrained(tmp_path) for kind in (AutoModel, AutoModelForSeq2SeqLM))
    assert type(encoder) is LaserModel
    inputs = AutoTokenizer.from_pretrained(tmp_path)(
        ["Das Haus.", "The old house."], return_tensors="pt", padding=True
    )
    trained = trainer.model.model.eval()  # the best checkpoint is loaded at the end
    with torch.no_grad():
        expected = trained.model(inputs["input_ids"], inputs["attention_mask"]).pooler_output
        assert torch.equal(encoder(**inputs).pooler_output, expected)
    assert whole.generate(**inputs, target_language="fr", max_new_tokens=4).shape[0] == 2
