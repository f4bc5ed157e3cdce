"""Tiny models of every architecture, for all tests of training."""

from functools import partial

import torch
from transformers import PreTrainedModel

from modeling_tmde import (
    AlignedModel,
    BagModel,
    LaserForConditionalGeneration,
    NtdvForConditionalGeneration,
    TmdeEncoderForMaskedLM,
)

SHARED = {"vocab_size": 400, "languages": ["de", "en", "es"], "pivot_languages": ["en", "es"]}
LSTM = {"d_model": 16, "embedding_dim": 12, "encoder_layers": 1, "dropout": 0.0}
LAYERS = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "dropout": 0.0,
}
KINDS = {
    "laser": (LaserForConditionalGeneration, LSTM | {"decoder_hidden_size": 20}),
    "ntdv": (
        NtdvForConditionalGeneration,
        {"d_model": 16, "embedding_dim": 12, "attention_heads": 3},
    ),
    "encoder": (
        TmdeEncoderForMaskedLM,
        LAYERS | {"attention_dropout": 0.0, "max_position_embeddings": 128},
    ),
    "aligned": (AlignedModel, {"encoder": "bag", "encoder_config": {"d_model": 16}}),
    "bag": (BagModel, {"d_model": 16}),
}


def tiny(kind: str, seed: int = 0, **changes) -> PreTrainedModel:
    torch.manual_seed(seed)
    model_class, sizes = KINDS[kind]
    return model_class(model_class.config_class(**SHARED | sizes | changes)).eval()


laser, ntdv, encoder, aligned, bag = (partial(tiny, kind) for kind in KINDS)
