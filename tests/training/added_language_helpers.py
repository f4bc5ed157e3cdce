"""A bag that knows three languages by construction, and rows that pair them with Greek.

The bag reads Greek as bytes.
"""

import random
from pathlib import Path

import torch

from modeling_tmde import BagConfig, BagModel, train_tokenizer
from tests.conftest import WORDS, make_dataset
from tmde.data.sample import sample_sentences

OLD = ("de", "en", "es")
NEW = "el"
GREEK_WORDS = [
    "σπίτι",
    "σκύλος",
    "γάτα",
    "δέντρο",
    "ποτάμι",
    "πόλη",
    "φως",
    "νύχτα",
    "ψωμί",
    "νερό",
]
GREEK = {**WORDS, NEW: GREEK_WORDS}
QUIET = [
    "disable_tqdm=true",
    "token_cache_dir=null",
    "logging_steps=1",
    "warmup_steps=1",
    "eval_loss_rows=10",
]
SHORT = [
    *QUIET,
    "max_steps=6",
    "eval_steps=3",
    "max_minutes=null",
    "eval_minutes=null",
    "per_device_train_batch_size=32",
]


def greek_rows(
    number: int, seed: int = 0, languages: tuple[str, ...] = (*OLD, NEW)
) -> list[dict[str, str | None]]:
    """Word-for-word translations of different lists of words; other languages have none."""
    rng = random.Random(seed)
    lists = set()
    while len(lists) < number:
        lists.add(tuple(rng.randrange(10) for _ in range(rng.randint(3, 9))))
    return [
        {
            code: " ".join(GREEK[code][word] for word in words) if code in languages else None
            for code in (*OLD, NEW)
        }
        for words in sorted(lists)
    ]


def ciphered_rows(number: int, seed: int = 0) -> list[dict[str, str]]:
    """English sentences of the sample, and the German ones in Greek letters."""
    letters = "abcdefghijklmnopqrstuvwxyzäöüß"
    cipher = str.maketrans(letters, "αβγδεζηθικλμνξοπρςστυφχψωάέήίό")
    rows = []
    for row in sample_sentences(number, "train", seed=seed)["translation"]:
        rows.append({"en": row["en"], NEW: row["de"].lower().translate(cipher)})
    return rows


def write_rows(path: Path, rows: list[dict[str, str | None]]) -> str:
    make_dataset(rows).to_parquet(path)
    return str(path)


def planted_bag(folder: Path, recipe: bool = True) -> Path:
    """A checkpoint in which the words of one meaning have one vector, in every old language."""
    texts = {code: [row[code] for row in greek_rows(300, seed=5)] for code in OLD}
    tokenizer = train_tokenizer(
        texts, vocab_size=400, lowercase=True, add_prefix_space=True, model_max_length=128
    )
    config = BagConfig(
        vocab_size=len(tokenizer), d_model=16, languages=list(OLD), pivot_languages=["en"]
    )
    torch.manual_seed(3)
    bag = BagModel(config)
    meanings = torch.randn(10, 16)
    with torch.no_grad():
        for code in OLD:
            for meaning, word in zip(meanings, WORDS[code], strict=True):
                (token,) = tokenizer.encode(word, add_special_tokens=False)
                bag.embed_tokens.weight[token] = meaning
    bag.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if recipe:
        from tmde.training.recipe import load_recipe

        (folder / "recipe.yaml").write_text(load_recipe("bag", ["token_dropout=0.0"]).to_yaml())
    return folder


def planted_place(folder: Path) -> Path:
    """Write a checkpoint `bag`, and rows of three files.

    `new.parquet` pairs English and Greek, `old.parquet` the old languages; `dev.parquet` has both.
    """
    planted_bag(folder / "bag")
    write_rows(folder / "new.parquet", greek_rows(300, 1, ("en", NEW)))
    write_rows(folder / "old.parquet", greek_rows(300, 2, OLD))
    write_rows(folder / "dev.parquet", greek_rows(60, 7))
    return folder
