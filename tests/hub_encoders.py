"""Tiny encoders with tokenizers of their own, in folders as the Hub's repositories are; random, and of many kinds."""

from pathlib import Path

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertForMaskedLM,
    DistilBertModel,
    GPT2LMHeadModel,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    T5ForConditionalGeneration,
    XLMRobertaForMaskedLM,
)

from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from modeling_tmde.tokenization import load_tokenizer
from tests.conftest import LANGUAGES, make_rows
from tmde.training.starts.hub_encoders import open_encoder, token_settings

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
BERT_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
}
BERT_TOKENS |= {"mask_token": "[MASK]"}
ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
ROBERTA_TOKENS |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
T5_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
VOCABULARY = 300


def _around(
    tokens: dict[str, str], before: str | None, after: str
) -> processors.TemplateProcessing:
    names = list(dict.fromkeys(tokens.values()))
    template = f"{before} $A {after}" if before else f"$A {after}"
    used = [(name, names.index(name)) for name in (before, after) if name]
    return processors.TemplateProcessing(single=template, special_tokens=used)


def make_tokenizer(kind: str, texts: list[str], vocabulary: int = VOCABULARY, limit: int = 62):
    """`"wordpiece"` (BERT), `"unigram"` (XLM-R), `"t5"` (Unigram, nothing before a text) or `"bpe"` (ModernBERT)."""
    tokens = {
        "wordpiece": BERT_TOKENS,
        "bpe": BERT_TOKENS,
        "unigram": ROBERTA_TOKENS,
        "t5": T5_TOKENS,
    }[kind]
    special = list(dict.fromkeys(tokens.values()))
    options = {"vocab_size": vocabulary, "special_tokens": special, "show_progress": False}
    if kind == "wordpiece":
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(**options)
    elif kind == "bpe":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            **options, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
        )
    else:
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.NFKC()
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(**options, unk_token="<unk>")
    backend.train_from_iterator(texts, trainer)
    before, after = {"t5": (None, "</s>"), "unigram": ("<s>", "</s>")}.get(kind, ("[CLS]", "[SEP]"))
    backend.post_processor = _around(tokens, before, after)
    names = ["input_ids", *(["token_type_ids"] if kind == "wordpiece" else []), "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **tokens, model_max_length=limit, model_input_names=names
    )


# By kind: the model with its head, as pretraining leaves it, the settings of its configuration, and the tokenizer.
BERT = SIZES | {"max_position_embeddings": 62, "pad_token_id": 0}
MODELS = {
    "bert": (BertForMaskedLM, BERT, "wordpiece"),
    "distilbert": (
        DistilBertModel,
        {
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 62,
            "pad_token_id": 0,
        },
        "wordpiece",
    ),
    "xlm-roberta": (
        XLMRobertaForMaskedLM,
        SIZES | {"max_position_embeddings": 64, "type_vocab_size": 1, "pad_token_id": 1},
        "unigram",
    ),
    "modernbert": (
        ModernBertForMaskedLM,
        BERT
        | {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
        | {"global_attn_every_n_layers": 2, "local_attention": 8},
        "bpe",
    ),
    "t5": (
        T5ForConditionalGeneration,
        {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "pad_token_id": 0,
            "eos_token_id": 1,
        },
        "t5",
    ),
    "gpt2": (
        GPT2LMHeadModel,
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 62},
        "wordpiece",
    ),
}


def save_encoder(folder: Path, kind: str, seed: int = 0, extra_rows: int = 3) -> Path:
    """A random model with its head, as pretraining leaves it, and its tokenizer.

    Args:
        kind: `bert`, `distilbert`, `xlm-roberta`, `modernbert`, `t5`, or `gpt2`, which is no encoder.
        extra_rows: Of its table, beyond its tokenizer's vocabulary.
    """
    texts = [row[language] for row in make_rows(300) for language in LANGUAGES]
    model_class, settings, tokenizer_kind = MODELS[kind]
    tokenizer = make_tokenizer(tokenizer_kind, texts)
    torch.manual_seed(seed)
    config = model_class.config_class(vocab_size=len(tokenizer) + extra_rows, **settings)
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def adapt_encoder(folder: Path, **settings) -> AdaptedForConditionalGeneration:
    """T-MDE's bottleneck and decoder on the encoder of a folder, as `tmde train --encoder` makes it."""
    encoder, tokenizer = open_encoder(folder), load_tokenizer(str(folder))
    config = AdaptedConfig(encoder_config=encoder.config, **settings, **token_settings(tokenizer))
    model = AdaptedForConditionalGeneration(config)
    model.take_encoder(encoder)
    return model
