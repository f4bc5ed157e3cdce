"""Tiny random models of several families, and a tokenizer for them."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from modeling_tmde import (
    AlignedConfig,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserConfig,
    NtdvConfig,
    TmdeEncoderConfig,
)

TEXTS = [
    "Die Sitzung ist eröffnet.",
    "The sitting is open.",
    "",
    "Se abre la sesión; gracias por su atención.",
    "a",
]
COMMON = {"vocab_size": 400, "languages": ["de", "en", "fr"], "pivot_languages": ["en"]}


def make_tokenizer(special: bool = True, pad: bool = True) -> PreTrainedTokenizerFast:
    """Train a tokenizer, a BPE of bytes.

    Args:
        special: Put `<s>` before a text and `</s>` after it.
        pad: Let it have a padding token.
    """
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            special_tokens=[("<s>", names.index("<s>")), ("</s>", names.index("</s>"))],
        )
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if pad:
        roles["pad_token"] = "<pad>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def make_xlmr(max_positions: int = 66) -> XLMRobertaModel:
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=400,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=max_positions,
        pad_token_id=1,
        initializer_range=0.3,  # The outputs differ visibly from text to text.
    )
    return XLMRobertaModel(config, add_pooling_layer=False).eval()


def make_bag(**changes) -> BagModel:
    torch.manual_seed(1)
    model = BagModel(BagConfig(**{"vocab_size": 400, "d_model": 24} | changes)).eval()
    with torch.no_grad():
        model.token_weights[3:] = torch.randn(397)
    return model


def laser() -> LaserConfig:
    return LaserConfig(
        d_model=16, embedding_dim=8, encoder_layers=1, decoder_hidden_size=8, **COMMON
    )


def ntdv() -> NtdvConfig:
    return NtdvConfig(embedding_dim=8, d_model=8, attention_heads=2, vector="concat", **COMMON)


def encoder(pooling: str) -> TmdeEncoderConfig:
    sizes = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    return TmdeEncoderConfig(pooling=pooling, max_position_embeddings=40, **sizes, **COMMON)


def aligned(kind: str) -> AlignedConfig:
    sizes = {"d_model": 16}
    if kind == "bilstm":
        sizes["embedding_dim"] = 8
    return AlignedConfig(encoder=kind, encoder_config=sizes, source_language="en", **COMMON)


def make_tables() -> AlignedModel:
    """A bag for each of de, en and fr."""
    torch.manual_seed(0)
    return AlignedModel(aligned("bag")).eval()
