"""TmdeConfig: paper defaults, round trips, and errors that name what was found."""

import pytest

from modeling_tmde import TmdeConfig


def test_defaults_are_the_paper_size():
    config = TmdeConfig()
    assert (config.vocab_size, config.d_model, config.encoder_layers, config.encoder_ffn_dim) == (50000, 1024, 6, 4096)
    assert (config.decoder_layers, config.dropout, config.bottleneck) == (1, 0.3, "first")
    assert config.languages == ["de", "en", "es", "fr", "it"] and config.pivot_languages == ["en", "es"]
    assert config.hidden_size == 1024 and config.num_hidden_layers == 6


def test_round_trip(tmp_path):
    config = TmdeConfig(bottleneck="dual", languages=("nl", "sv"), pivot_languages=("sv",), share_embeddings=True)
    config.save_pretrained(tmp_path)
    loaded = TmdeConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    assert loaded.tie_word_embeddings is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottleneck": "mean"}, "'mean' is unknown; choose one of first, pyramid, full, dual"),
        ({"d_model": 100}, "d_model=100 is not a multiple of encoder_attention_heads=16"),
        ({"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 5}, "must be even"),
        ({"bottleneck": "pyramid", "encoder_layers": 2}, "encoder_layers=2"),
        ({"pivot_languages": ("nl",)}, r"\['nl'\] are not among"),
        ({"languages": ("de", "de"), "pivot_languages": ()}, "twice"),
        ({"bottleneck_loss_weight": 1.5}, "1.5 must lie between 0 and 1"),
    ],
)
def test_bad_values_are_refused(changes, message):
    with pytest.raises(Exception, match=message):
        TmdeConfig(**changes)
