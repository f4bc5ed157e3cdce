"""Warm starts of every family: a bag's tables, encoders for each language, and parts of the same architecture."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from modeling_tmde import (
    AlignedConfig,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserConfig,
    LaserForConditionalGeneration,
    NtdvConfig,
    NtdvForConditionalGeneration,
    TmdeEncoderConfig,
    TmdeEncoderForMaskedLM,
)
from modeling_tmde.training.warm_start import WarmStartReport, warm_start
from tests.conftest import tiny_model

BAG_WIDTH = 24
BOS, PAD, EOS = 0, 1, 2
SHARED = {"languages": ["de", "en", "es"], "pivot_languages": ["en", "es"]}


def bag(size: int = 400, seed: int = 0) -> BagModel:
    """With vectors and weights that differ by token, as training leaves them."""
    torch.manual_seed(seed)
    model = BagModel(BagConfig(vocab_size=size, d_model=BAG_WIDTH, **SHARED))
    with torch.no_grad():
        model.token_weights[EOS + 1 :] += torch.randn(size - EOS - 1)
        model.embed_tokens.weight *= torch.linspace(0.2, 2.0, BAG_WIDTH)
    return model.eval()


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bag_folder(tokenizer, tmp_path_factory) -> Path:
    return save(bag(), tokenizer, tmp_path_factory.mktemp("bag"))


def laser(seed: int = 1, **changes) -> LaserForConditionalGeneration:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 400, "d_model": 16, "embedding_dim": 12, "encoder_layers": 1, "decoder_hidden_size": 32}
    return LaserForConditionalGeneration(LaserConfig(**SHARED | sizes | {"dropout": 0.0} | changes)).eval()


def ntdv(seed: int = 1, **changes) -> NtdvForConditionalGeneration:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 400, "d_model": 16, "embedding_dim": 12, "attention_heads": 2}
    return NtdvForConditionalGeneration(NtdvConfig(**SHARED | sizes | changes)).eval()


def encoder(seed: int = 1, **changes) -> TmdeEncoderForMaskedLM:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 400, "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"encoder_ffn_dim": 24, "dropout": 0.0, "attention_dropout": 0.0}
    return TmdeEncoderForMaskedLM(TmdeEncoderConfig(**SHARED | sizes | changes)).eval()


def aligned(kind: str, seed: int = 1, languages: tuple[str, ...] = ("de", "en", "es"), **settings) -> AlignedModel:
    torch.manual_seed(seed)
    sizes = {"embedding_dim": 12, "d_model": 16, "encoder_layers": 1} if kind == "bilstm" else {"d_model": BAG_WIDTH}
    options = {"vocab_size": 400, "languages": list(languages), "pivot_languages": ["en"]}
    return AlignedModel(AlignedConfig(**options, encoder=kind, encoder_config=sizes | settings)).eval()


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


# ---- Tables of a bag


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], set[str], set[str]]] = {
    # The tables inside the encoder, which the weights are folded into, and those outside.
    "laser": (laser, {"model.embed_tokens.weight"}, {"decoder.embed_tokens.weight", "lm_head.weight"}),
    "laser wide": (
        lambda: laser(embedding_dim=40, decoder_hidden_size=BAG_WIDTH),
        {"model.embed_tokens.weight"},
        {"decoder.embed_tokens.weight", "lm_head.weight"},
    ),
    "aligned": (
        lambda: aligned("bilstm"),
        {f"encoders.{language}.embed_tokens.weight" for language in SHARED["languages"]},
        set(),
    ),
    "tmde with the direct path of its own": (
        lambda: tiny_model(d_model=16, bag_residual=True),
        {"model.embed_tokens.weight"},
        {"decoder.embed_tokens.weight", "lm_head.weight"},
    ),
}


def gram_of(source: BagModel, width: int, weighted: bool) -> torch.Tensor:
    """Inner products of the rows at a width: of all the columns, or of the leading singular directions of the weighted
    table; with every row times the weight of its token or not. In float64."""
    table, weights = source.embed_tokens.weight.detach().double(), source.token_weights.detach().double().exp()
    if width < BAG_WIDTH:
        _, _, right = torch.linalg.svd(weights[:, None] * table, full_matrices=False)
        table = table @ right[:width].T
    if weighted:
        table = weights[:, None] * table
    return table @ table.T


@pytest.mark.parametrize("kind", MODELS)
def test_every_table_takes_the_bags_at_its_own_width(kind, bag_folder, tokenizer):
    make, inside, outside = MODELS[kind]
    source, model = bag(), make()
    before = parameters_of(model)
    report = warm_start(model, tokenizer, bag_folder, direct_path=False)
    after = parameters_of(model)
    for name, weight in after.items():
        if name not in inside | outside:
            assert torch.equal(weight, before[name]), name  # the rest of the model is as it was
            continue
        gram = gram_of(source, weight.shape[1], weighted=name in inside)
        size = before[name].double().square().sum(1).mean()  # one factor gives the rows their mean square
        expected = gram * size / gram.diagonal().mean()
        found = weight.double() @ weight.double().T
        if "embed_tokens" in name:
            assert not weight[PAD].any(), name
            expected[PAD], expected[:, PAD] = 0.0, 0.0
        scale = expected.diagonal().max().item()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * scale, msg=name)
        if weight.shape[1] > BAG_WIDTH:
            assert not weight[:, BAG_WIDTH:].any()
        # `<s>` and `</s>` weigh nothing in a bag; what a decoder reads and writes has vectors for them.
        special = weight[[BOS, EOS]].norm(dim=1).max() / weight.norm(dim=1).median()
        assert special < 1e-6 if name in inside else special > 0.1, name
    assert (report.model_type, report.tokens_copied, report.tensors_copied) == ("tmde_bag", 400, 0)
    assert report.checkpoint_width == BAG_WIDTH
    json.dumps(asdict(report))


# ---- An encoder for each language


def test_every_language_begins_with_the_encoder_of_a_translation_model(tokenizer, tmp_path):
    source = laser(seed=5)
    model = aligned("bilstm", languages=("de", "en", "it"))  # of languages that the checkpoint lacks, too
    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path))
    expected = parameters_of(source.model)
    for language in ("de", "en", "it"):
        found = parameters_of(model.encoders[language])
        assert found.keys() == expected.keys()
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-7, msg=f"{language} {name}")
    assert (report.model_type, report.tensors_copied, report.tensors_kept) == ("tmde_laser", 3 * len(expected), [])
    inputs = tokenizer(["haus und hund", "casa"], return_tensors="pt", padding=True)
    vectors = [model(**inputs, language_ids=torch.tensor([code])).pooler_output for code in range(3)]
    for found in vectors:
        torch.testing.assert_close(found, source.model(**inputs).pooler_output, rtol=1e-5, atol=1e-6)


def test_aligned_from_aligned_matches_languages_by_their_codes(tokenizer, tmp_path):
    source = aligned("bag", seed=5, languages=("es", "en"))
    with torch.no_grad():
        for part in source.encoders.values():
            part.token_weights[EOS + 1 :] += torch.randn(400 - EOS - 1)
    model = aligned("bag", languages=("de", "en", "es"))
    before = parameters_of(model)
    report = warm_start(model, tokenizer, save(source, tokenizer, tmp_path))
    assert report.tensors_copied == 2 * 2
    assert set(report.tensors_kept) == {name for name in before if name.startswith("encoders.de.")}
    for name, weight in parameters_of(model).items():
        expected = before[name] if name in report.tensors_kept else source.get_parameter(name)
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7, msg=name)


# ---- The same architecture


def started(model: PreTrainedModel, source: PreTrainedModel, tokenizer, folder: Path) -> tuple[WarmStartReport, dict]:
    """The report, and the parameters before; checks that all are the checkpoint's but those the report names."""
    before = parameters_of(model)
    report = warm_start(model, tokenizer, save(source, tokenizer, folder))
    for name, weight in parameters_of(model).items():
        expected = before[name] if name in report.tensors_kept else source.get_parameter(name)
        if name.endswith("embed_languages.weight"):
            continue
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7, msg=name)
    return report, before


@pytest.mark.parametrize("make", [laser, ntdv, encoder])
def test_the_same_model_is_copied_whole(make, tokenizer, tmp_path):
    model = make()
    report, before = started(model, make(seed=5), tokenizer, tmp_path)
    assert report.tensors_kept == [] and report.tensors_copied == len(before)


def test_laser_with_more_layers_and_other_languages(tokenizer, tmp_path):
    source = laser(seed=5)
    model = laser(encoder_layers=2, languages=["it", "es", "de"], pivot_languages=["es"])
    report, before = started(model, source, tokenizer, tmp_path)
    new = {name for name in before if name.startswith("model.layers.1.")}
    assert len(new) == 8 and set(report.tensors_kept) == new
    found, old = model.decoder.embed_languages.weight, source.decoder.embed_languages.weight
    assert torch.equal(found[1], old[2]) and torch.equal(found[2], old[0])
    assert torch.allclose(found[0], old.mean(dim=0))  # new


@pytest.mark.parametrize("vector", ["sum", "concat"])
def test_shared_layers_stand_new_between_trained_ones(vector, tokenizer, tmp_path):
    """The second stage of NTDV; the embedding of the first is narrower than a concatenation of context vectors."""
    model = ntdv(vector=vector)
    assert model.config.hidden_size == (32 if vector == "concat" else 16)
    report, before = started(model, ntdv(seed=5, shared_layers=False), tokenizer, tmp_path)
    shared = {name for name in before if name.startswith("model.shared.")}
    assert shared and set(report.tensors_kept) == shared
    assert report.tensors_copied == len(before) - len(shared)
    assert report.checkpoint_width == report.width == 16


# ---- Errors


def test_what_does_not_fit_is_refused(tokenizer, tmp_path):
    def refused(model, message: str, checkpoint: Path) -> None:
        before = parameters_of(model)
        with pytest.raises(ValueError, match=message):
            warm_start(model, tokenizer, checkpoint)
        assert all(torch.equal(weight, before[name]) for name, weight in parameters_of(model).items())

    tmde = save(tiny_model(), tokenizer, tmp_path / "tmde")
    refused(laser(), "of type 'tmde_laser': expected a checkpoint of tmde_bag or tmde_laser, found 'tmde'", tmde)
    refused(aligned("bilstm"), "checkpoint of tmde_aligned or tmde_bag or tmde_laser, found 'tmde'", tmde)
    laser_folder = save(laser(), tokenizer, tmp_path / "laser")
    refused(aligned("bag"), "expected a checkpoint of tmde_aligned or tmde_bag, found 'tmde_laser'", laser_folder)
    refused(laser(d_model=20), "it has d_model=16 and the new model 20; set model.d_model=16", laser_folder)
    message = "it has d_model=16 and the new model 20; set model.encoder_config.d_model=16"
    refused(aligned("bilstm", d_model=20), message, laser_folder)
