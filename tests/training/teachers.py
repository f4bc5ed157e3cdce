"""Tiny sentence-transformers models that need no network, and who learns from them."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, BertTokenizerFast

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.objectives import Distillation
from modeling_tmde.training.parallel_model import ParallelModel
from tests.conftest import LANGUAGES, WORDS, make_rows

WIDTH = 32
ENGLISH = {word: number for number, word in enumerate(["[UNK]", *WORDS["en"]])}


def static_teacher(folder: Path, width: int = WIDTH, seed: int = 0, **vectors: list[float]) -> torch.Tensor:
    """A bag of English words, saved; it knows no word of another language.

    Args:
        vectors: Of some words, instead of those drawn.

    Returns:
        (words of `ENGLISH`, width), whose mean is a text's vector.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = Tokenizer(models.WordLevel(ENGLISH, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    table = torch.randn(len(ENGLISH), width, generator=torch.Generator().manual_seed(seed))
    for word, vector in vectors.items():
        table[ENGLISH[word]] = torch.tensor(vector)
    module = StaticEmbedding(tokenizer, embedding_weights=table.numpy())
    SentenceTransformer(modules=[module], device="cpu").save(str(folder), create_model_card=False)
    return table


def expected_vector(table: torch.Tensor, text: str) -> torch.Tensor:
    return table[[ENGLISH.get(word, 0) for word in text.split()]].mean(0)


def bert_teacher(folder: Path, max_length: int, width: int = WIDTH) -> None:
    """A random BERT of one layer with mean pooling, which reads `max_length` tokens, [CLS] and [SEP] among them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS["en"]]
    inner = folder.with_name(f"{folder.name}-bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=max_length,
    )
    BertModel(config).save_pretrained(inner)
    vocabulary = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocabulary, model_max_length=max_length).save_pretrained(inner)
    transformer = Transformer(str(inner), max_seq_length=max_length)
    SentenceTransformer(modules=[transformer, Pooling(width)], device="cpu").save(str(folder), create_model_card=False)


def student(teacher: Path | str, width: int = WIDTH, **options) -> ParallelModel:
    torch.manual_seed(0)
    model = BagModel(BagConfig(vocab_size=400, d_model=width, languages=list(LANGUAGES), pivot_languages=["en", "es"]))
    return ParallelModel(model, {"distillation": Distillation(str(teacher), **options)})


def arguments(folder: Path, **options) -> TmdeTrainingArguments:
    fixed = {"output_dir": str(folder / "run"), "use_cpu": True, "token_cache_dir": str(folder / "caches")}
    return TmdeTrainingArguments(**fixed | options)


def holey_rows(number: int, seed: int = 3) -> list[dict]:
    """Every third row has no English, every sixth no Spanish either."""
    rows = make_rows(number, seed)
    for place, row in enumerate(rows):
        row["en"] = None if place % 3 == 0 else row["en"]
        row["es"] = "" if place % 6 == 0 else row["es"]
    return rows
