"""Tiny random encoders of many kinds, with tokenizers of their own, in folders as on the Hub."""

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
    "mask_token": "[MASK]",
}
ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
T5_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
VOCABULARY = 300


# The special tokens of each kind of tokenizer, and those before and after a text.
SPECIAL_TOKENS = {
    "wordpiece": (BERT_TOKENS, "[CLS]", "[SEP]"),
    "bpe": (BERT_TOKENS, "[CLS]", "[SEP]"),
    "unigram": (ROBERTA_TOKENS, "<s>", "</s>"),
    "t5": (T5_TOKENS, None, "</s>"),
}


def make_tokenizer(
    kind: str, texts: list[str], vocabulary: int = VOCABULARY, limit: int = 62
) -> PreTrainedTokenizerFast:
    """Train a tokenizer.

    Args:
        kind: `wordpiece` (BERT), `unigram` (XLM-R), `t5` (Unigram, nothing before a text) or `bpe`
            (ModernBERT).
        texts: What it is trained on.
        vocabulary: The number of its tokens.
        limit: The longest text in tokens.
    """
    tokens, before, after = SPECIAL_TOKENS[kind]
    names = list(dict.fromkeys(tokens.values()))
    backend, trainer = _untrained(kind, vocabulary, names)
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = _template(names, before, after)
    input_names = ["input_ids", "attention_mask"]
    if kind == "wordpiece":
        input_names.append("token_type_ids")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **tokens, model_max_length=limit, model_input_names=input_names
    )


def _untrained(kind: str, vocabulary: int, names: list[str]) -> tuple[Tokenizer, trainers.Trainer]:
    """Return a tokenizer of a kind and what trains it."""
    options = {"vocab_size": vocabulary, "special_tokens": names, "show_progress": False}
    if kind == "wordpiece":
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        return backend, trainers.WordPieceTrainer(**options)
    if kind == "bpe":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        return backend, trainers.BpeTrainer(**options, initial_alphabet=alphabet)
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend, trainers.UnigramTrainer(**options, unk_token="<unk>")


def _template(names: list[str], before: str | None, after: str) -> processors.TemplateProcessing:
    """Return what puts special tokens before and after a text."""
    if before is None:
        return processors.TemplateProcessing(
            single=f"$A {after}", special_tokens=[(after, names.index(after))]
        )
    return processors.TemplateProcessing(
        single=f"{before} $A {after}",
        special_tokens=[(before, names.index(before)), (after, names.index(after))],
    )


# By kind: the model with its head, as pretraining leaves it, its settings, and its tokenizer.
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
        | {
            "bos_token_id": 2,
            "eos_token_id": 3,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "global_attn_every_n_layers": 2,
            "local_attention": 8,
        },
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
    """Save a random model with its head, as pretraining leaves it, and its tokenizer.

    Args:
        folder: The folder to make.
        kind: `bert`, `distilbert`, `xlm-roberta`, `modernbert`, `t5`, or `gpt2`, which is no
            encoder.
        seed: The seed of its weights.
        extra_rows: The rows of its table beyond the vocabulary of the tokenizer.
    """
    texts = []
    for row in make_rows(300):
        texts += [row[language] for language in LANGUAGES]
    model_class, settings, tokenizer_kind = MODELS[kind]
    tokenizer = make_tokenizer(tokenizer_kind, texts)
    torch.manual_seed(seed)
    config = model_class.config_class(vocab_size=len(tokenizer) + extra_rows, **settings)
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def adapt_encoder(folder: Path, **settings) -> AdaptedForConditionalGeneration:
    """Put T-MDE's bottleneck and decoder on the encoder of a folder, as `tmde train --encoder`."""
    encoder = open_encoder(folder)
    tokenizer = load_tokenizer(str(folder))
    config = AdaptedConfig(encoder_config=encoder.config, **settings, **token_settings(tokenizer))
    model = AdaptedForConditionalGeneration(config)
    model.take_encoder(encoder)
    return model
