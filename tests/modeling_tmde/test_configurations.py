"""Configurations of all families: errors name the field and the value found."""

import copy

import pytest
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoModel

from modeling_tmde import (
    AdaptedConfig,
    AlignedConfig,
    BagConfig,
    EmbedderConfig,
    LaserConfig,
    TmdeConfig,
    TmdeEncoderConfig,
)
from tests.test_goldens import FAMILIES


def assert_refused(config_class: type[EmbedderConfig], settings: dict, message: str) -> None:
    with pytest.raises((StrictDataclassError, ValueError), match=message):
        config_class(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 0}, "field 'd_model':\n *TmdeError: found 0, expected at least 1"),
        ({"encoder_layers": -1}, "field 'encoder_layers':\n *TmdeError: found -1"),
        ({"bottleneck": "mean"}, r"'bottleneck' expected one of \('first', .*'dual'\), got mean"),
        ({"d_model": 100}, "d_model=100 is not a multiple of encoder_attention_heads=16"),
        (
            {"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 5},
            "d_model=15 must be even",
        ),
        ({"bottleneck": "pyramid", "encoder_layers": 2}, "encoder_layers=2"),
        ({"bottleneck_loss_weight": 1.5}, "1.5 must lie between 0 and 1"),
        ({"pivot_languages": ("nl",)}, r"\['nl'\] are not among"),
        ({"languages": ("de", "de"), "pivot_languages": ()}, "lists a language twice"),
    ],
)
def test_wrong_settings_of_tmde_are_named(settings, message):
    assert_refused(TmdeConfig, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"encoder_attention_heads": 5},
            "d_model=512 is not a multiple of encoder_attention_heads=5",
        ),
        ({"pooling": "first", "causal": True}, "pooling: found 'first', .* expected 'mean'"),
    ],
)
def test_wrong_settings_of_the_encoder_are_named(settings, message):
    assert_refused(TmdeEncoderConfig, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 15}, "d_model=15 is not a multiple of 2"),
        (
            {"encoder_layers": 2, "unidirectional_layers": 3},
            "unidirectional_layers=3: expected 0 to 2",
        ),
        ({"pooling": "attention", "attention_views": 3}, "d_model=1024 is not a multiple of 6"),
        ({"cell": "conv", "encoder_layers": 3}, "d_model=1024 is not a multiple of 3"),
        (
            {"cell": "conv", "encoder_layers": 4, "unidirectional_layers": 1},
            "unidirectional_layers=1: expected 0 to 0",
        ),
        (
            {"cell": "conv", "encoder_layers": 4, "pooling": "last"},
            "pooling='last': expected max, mean",
        ),
        (
            {"cell": "gated_conv", "pooling": "attention"},
            "cell='gated_conv', pooling='attention': expected max, mean",
        ),
        (
            {"cell": "gated_conv", "unidirectional_layers": 1},
            "unidirectional_layers=1: expected 0 to 0",
        ),
        ({"cell": "gated_conv", "embedding_dim": 15}, "embedding_dim=15 must be even"),
        ({"share_embeddings": True}, "embedding_dim=512 and decoder_hidden_size=2048"),
    ],
)
def test_wrong_settings_of_laser_are_named(settings, message):
    assert_refused(LaserConfig, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"encoder_config": {"cell": "gruu"}},
            "'cell' expected one of .*'gru', .* got gruu",
        ),
        (
            {"encoder_config": {"layers": 2}},
            "encoder_config names 'layers'; known: .*encoder_layers",
        ),
        (
            {"encoder": "bag", "encoder_config": {"cell": "lstm"}},
            "encoder_config names 'cell'; known: d_model, normalize, sublinear_counts",
        ),
        ({"source_language": "xx"}, "source_language='xx' is not among"),
    ],
)
def test_wrong_settings_of_aligned_encoders_are_named(settings, message):
    assert_refused(AlignedConfig, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"decoder_attention_heads": 5},
            "hidden_size=768 is not a multiple of decoder_attention_heads=5",
        ),
        ({"encoder_config": {"model_type": "nothing"}}, "model_type='nothing'"),
        ({"encoder_config": {"model_type": "vit"}}, "'vit' without vocab_size"),
    ],
)
def test_wrong_settings_of_adapted_encoders_are_named(settings, message):
    assert_refused(AdaptedConfig, settings, message)


def test_special_tokens_are_those_that_are_set():
    assert BagConfig().special_token_ids == [0, 1, 2]
    assert BagConfig(bos_token_id=None).special_token_ids == [1, 2]
    assert BagConfig(eos_token_id=[2, 7]).special_token_ids == [0, 1, 2, 7]
    assert TmdeEncoderConfig().special_token_ids == [0, 1, 2, 4]


def test_settings_of_aligned_encoders_change_those_of_the_paper():
    settings = AlignedConfig(encoder_config={"d_model": 6, "cell": "gru"}).settings_of_encoder
    assert settings.d_model == 6
    assert settings.cell == "gru"
    assert settings.embedding_dim == 300


@pytest.mark.parametrize("family", ["first", "pyramid", "laser", "encoder-mean", "adapted-cls"])
def test_the_layers_of_a_configuration_are_those_of_the_encoder(family):
    changes = {"decoder_layers": 5} if hasattr(FAMILIES[family]().config, "decoder_layers") else {}
    config = copy.deepcopy(FAMILIES[family]().config)
    for name, value in changes.items():
        setattr(config, name, value)
    encoder = AutoModel.from_config(config)
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    assert [len(stack) for stack in stacks] == [config.num_hidden_layers]
    if changes:
        decoder_config = config.get_text_config(decoder=True)
        assert decoder_config.num_hidden_layers == 5
        assert decoder_config.num_attention_heads == config.decoder_attention_heads


def test_the_heads_of_an_adapted_configuration_are_those_of_the_encoder():
    config = FAMILIES["adapted-cls"]().config
    assert config.num_attention_heads == 2
    assert config.get_text_config(encoder=True) is config.encoder_config
    assert config.get_text_config() is config


ENCODER = {
    "model_type": "bert",
    **{"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50},
}
SIZES = [
    ("num_hidden_layers", 2, "num_hidden_layers"),
    ("num_attention_heads", 2, "num_attention_heads"),
    ("hidden_size", 128, "hidden_size"),
    ("d_model", 128, "hidden_size"),
    ("vocab_size", 70, "vocab_size"),
]


@pytest.mark.parametrize(("name", "size", "encoder_name"), SIZES)
def test_sizes_of_an_adapted_configuration_are_set_in_the_encoder(name, size, encoder_name):
    assigned = AdaptedConfig(encoder_config=ENCODER)
    saved = assigned.to_dict()
    setattr(assigned, name, size)
    from_keyword = AdaptedConfig(encoder_config=ENCODER, **{name: size})
    read = AdaptedConfig.from_dict(saved | {name: size})
    changed = AdaptedConfig.from_dict(saved, **{name: size})
    for config in (assigned, from_keyword, read, changed):
        assert getattr(config, name) == size
        assert getattr(config.encoder_config, encoder_name) == size
        again = AdaptedConfig.from_dict(config.to_dict())
        assert again.to_dict() == config.to_dict()
    # Defaults that are multiples of the width are made from the new one.
    assert from_keyword.decoder_ffn_dim == 4 * from_keyword.d_model
