"""Tiny sentence-transformers models that need no network, and who learns from them."""

from pathlib import Path

import datasets
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from modeling_tmde import BagConfig, BagModel
from tests.conftest import LANGUAGES, WORDS
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import Distillation
from tmde.training.parallel_model import ParallelModel
from tmde.training.teachers import Teachers, TeacherVectors, open_teachers

WIDTH = 32
ENGLISH = {word: number for number, word in enumerate(["[UNK]", *WORDS["en"]])}


def static_teacher(
    folder: Path, width: int = WIDTH, seed: int = 0, **vectors: list[float]
) -> torch.Tensor:
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


def student(teacher: Path | str | list[str], width: int = WIDTH, **options) -> ParallelModel:
    torch.manual_seed(0)
    model = BagModel(
        BagConfig(
            vocab_size=400, d_model=width, languages=list(LANGUAGES), pivot_languages=["en", "es"]
        )
    )
    named = teacher if isinstance(teacher, list) else str(teacher)
    return ParallelModel(model, {"distillation": Distillation(named, **options)})


def arguments(folder: Path, **options) -> TmdeTrainingArguments:
    fixed = {
        "output_dir": str(folder / "run"),
        "use_cpu": True,
        "token_cache_dir": str(folder / "caches"),
    }
    return TmdeTrainingArguments(**fixed | options)


def vectors_of(rows, parallel: ParallelModel, args: TmdeTrainingArguments) -> TeacherVectors:
    """Return the vectors of rows by the newest versions of the teachers."""
    return open_teachers(parallel, args).vectors_of(rows)


def prepared(
    train: datasets.Dataset | datasets.IterableDataset,
    dev: list[datasets.Dataset],
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
) -> Teachers:
    """Return the teachers of a run that have read its rows."""
    teachers = open_teachers(parallel, args, Path(args.output_dir))
    teachers.prepare(train, dev)
    return teachers
