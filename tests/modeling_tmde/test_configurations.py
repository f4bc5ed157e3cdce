"""Configurations of all families: paper defaults, round trips, and errors that name the field and what was found."""

import pytest
from huggingface_hub.errors import StrictDataclassError

from modeling_tmde import AdaptedConfig, AlignedConfig, LaserConfig, TmdeConfig, TmdeEncoderConfig


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (TmdeConfig, {"d_model": 0}, "field 'd_model':\n *TmdeError: found 0, expected at least 1"),
        (TmdeConfig, {"encoder_layers": -1}, "field 'encoder_layers':\n *TmdeError: found -1"),
        (
            TmdeConfig,
            {"bottleneck": "mean"},
            r"'bottleneck' expected one of \('first', .*'dual'\), got mean",
        ),
        (
            TmdeConfig,
            {"d_model": 100},
            "d_model=100 is not a multiple of encoder_attention_heads=16",
        ),
        (
            TmdeConfig,
            {"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 5},
            "must be even",
        ),
        (TmdeConfig, {"bottleneck": "pyramid", "encoder_layers": 2}, "encoder_layers=2"),
        (TmdeConfig, {"bottleneck_loss_weight": 1.5}, "1.5 must lie between 0 and 1"),
        (TmdeConfig, {"pivot_languages": ("nl",)}, r"\['nl'\] are not among"),
        (TmdeConfig, {"languages": ("de", "de"), "pivot_languages": ()}, "names a language twice"),
        (
            TmdeEncoderConfig,
            {"encoder_attention_heads": 5},
            "d_model=512 is not a multiple of encoder_att.*heads=5",
        ),
        (LaserConfig, {"d_model": 15}, "d_model=15 is not a multiple of 2"),
        (
            LaserConfig,
            {"encoder_layers": 2, "unidirectional_layers": 3},
            "unidirectional_layers=3: expected 0 to 2",
        ),
        (
            LaserConfig,
            {"pooling": "attention", "attention_views": 3},
            "d_model=1024 is not a multiple of 6",
        ),
        (
            LaserConfig,
            {"cell": "conv", "encoder_layers": 4, "pooling": "last"},
            "pooling='last': expected max, mean",
        ),
        (
            AlignedConfig,
            {"encoder_config": {"cell": "gruu"}},
            "cell='gruu', .* expected conv, lstm, gru",
        ),
        (LaserConfig, {"share_embeddings": True}, "embedding_dim=512 and decoder_hidden_size=2048"),
        (
            AlignedConfig,
            {"encoder_config": {"layers": 2}},
            "encoder_config names 'layers'; known: .*encoder_layers",
        ),
        (AlignedConfig, {"source_language": "xx"}, "source_language='xx' is not among"),
        (
            AdaptedConfig,
            {"decoder_attention_heads": 5},
            "hidden_size=768 is not a multiple of decoder_att.*heads=5",
        ),
        (AdaptedConfig, {"encoder_config": {"model_type": "nothing"}}, "model_type='nothing'"),
        (AdaptedConfig, {"encoder_config": {"model_type": "vit"}}, "'vit' without vocab_size"),
    ],
)
def test_wrong_values_are_refused(config, changes, message):
    with pytest.raises((StrictDataclassError, ValueError), match=message):
        config(**changes)
