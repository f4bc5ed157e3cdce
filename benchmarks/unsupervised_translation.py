"""Translation learned from texts of one language each (XLM), by BLEU and chrF on parallel rows.

    python benchmarks/unsupervised_translation.py --data DATA --output runs/unsupervised

The training rows are the Tatoeba sentences of DATA/general: the German ones of one half of the
English sentences, the English ones of the other half. No row has both languages, and no sentence
has its translation in the other half. The recipe is `unsupervised_translation` with a small model:
minutes on a CPU instead of days on eight GPUs.

BLEU (Papineni et al. 2002) and chrF (Popovic 2015) of sacrebleu, of `--rows` Tatoeba rows of
DATA/general_dev.parquet, in both directions. BLEU says nothing of poor translations, which have no
four words in a row right; chrF compares characters.

- copy: the source as its own translation.
- before: the model that begins with the language model, without a step of training.
- after: the model at the end.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import torch
import typer
from common import markdown
from sacrebleu.metrics import BLEU, CHRF
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe
from tmde.training.starts.weights import warm_start

LANGUAGES = ("de", "en")
BATCH_TEXTS = 50
SIZES = [
    "model.d_model=128",
    "model.encoder_layers=3",
    "model.encoder_attention_heads=4",
    "model.encoder_ffn_dim=512",
    "model.dropout=0",
    "model.attention_dropout=0",
]
TRAINING = [
    "learning_rate=0.001",
    "lr_scheduler_type=constant_with_warmup",
    "warmup_steps=100",
    "cooldown=0.3",
    "micro_batch_tokens=2000",
    "eval_steps=500",
    "eval_loss_rows=50",
    "dataloader_num_workers=0",
]

Row = dict[str, str]  # text by language


# ---- Rows


def in_first_half(text: str) -> bool:
    """Return whether a sentence belongs to the half of which the German side is read."""
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0] % 2 == 0


def one_language_each(rows: Iterable[Row]) -> list[Row]:
    """Return rows of one language: German of one half of the English sentences, else English.

    A text that occurs more than once is there once.
    """
    kept: dict[tuple[str, str], None] = {}
    for row in rows:
        language = "de" if in_first_half(row["en"]) else "en"
        kept[language, row[language]] = None
    return [{language: text} for language, text in kept]


def read_pairs(path: Path) -> list[Row]:
    """Return the Tatoeba rows of a file that are there in both languages."""
    table = pq.read_table(path, columns=["translation", "source"])
    pairs = []
    for row in table.to_pylist():
        texts = row["translation"]
        if row["source"] == "tatoeba" and texts["de"] and texts["en"]:
            pairs.append({language: texts[language] for language in LANGUAGES})
    return pairs


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as lines of JSON that `load_parallel` reads."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({"translation": row}, ensure_ascii=False) + "\n")


# ---- Scores


def scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return BLEU and chrF in % of a corpus with one reference a text, as sacrebleu's defaults."""
    return {
        "BLEU": BLEU().corpus_score(translations, [references]).score,
        "chrF": CHRF().corpus_score(translations, [references]).score,
    }


# ---- Translation


@torch.inference_mode()
def translate(
    model: PreTrainedModel, tokenizer: Tokenizer, texts: Sequence[str], language: str
) -> list[str]:
    """Return the greedy translations of texts into a language."""
    translations: list[str] = []
    for start in range(0, len(texts), BATCH_TEXTS):
        batch = list(texts[start : start + BATCH_TEXTS])
        inputs = tokenizer(batch, return_tensors="pt", padding=True)
        token_ids = model.generate(
            **inputs, target_language=language, max_new_tokens=60, do_sample=False
        )
        translations.extend(tokenizer.batch_decode(token_ids, skip_special_tokens=True))
    return translations


def measure(
    system: str, pairs: Sequence[Row], model: PreTrainedModel | None, tokenizer: Tokenizer
) -> dict[str, str | float]:
    """Return a row of the table: scores in both directions; without a model, of copies."""
    measured: dict[str, str | float] = {"system": system}
    for source, target in (LANGUAGES, LANGUAGES[::-1]):
        translations = [pair[source] for pair in pairs]
        if model is not None:
            translations = translate(model, tokenizer, translations, target)
        references = [pair[target] for pair in pairs]
        for score, value in scores(translations, references).items():
            measured[f"{source}-{target} {score}"] = value
    return measured


def main(
    data: Annotated[Path, typer.Option(help="Folder with `general` and `general_dev.parquet`.")],
    output: Annotated[Path, typer.Option(help="Folder of the run and of its rows.")],
    language_model_minutes: Annotated[float, typer.Option(help="CPU minutes.")] = 6,
    minutes: Annotated[float, typer.Option(help="CPU minutes of the translation model.")] = 6,
    rows: Annotated[int, typer.Option(help="The dev rows that are translated.")] = 200,
) -> None:
    """Train and print a table in Markdown, and some translations."""
    output.mkdir(parents=True, exist_ok=True)
    training_rows = one_language_each(read_pairs(data / "general" / "tatoeba.parquet"))
    pairs = read_pairs(data / "general_dev.parquet")[::5][:rows]
    write_rows(training_rows, output / "train.jsonl")
    write_rows(pairs, output / "dev.jsonl")
    counts = Counter(language for row in training_rows for language in row)
    print(f"{counts['de']:,} German and {counts['en']:,} English texts\n")

    settings = [
        f"data.train={output / 'train.jsonl'}",
        f"data.dev={output / 'dev.jsonl'}",
        f"data.languages=[{','.join(LANGUAGES)}]",
        f"data.pivot_languages=[{','.join(LANGUAGES)}]",
        *SIZES,
        *TRAINING,
    ]
    made_by = load_recipe("unsupervised_translation").warm_start.made_by
    _, _, first_recipe, *overrides = made_by.split()
    overrides += [*settings, "tokenizer.vocab_size=8000", "batch_tokens=null"]
    overrides.append(f"max_cpu_minutes={language_model_minutes}")
    language_model = output / "language_model"
    train_recipe(load_recipe(first_recipe, overrides), language_model)

    overrides = [
        *settings,
        "model.decoder_layers=3",
        "model.decoder_attention_heads=4",
        "model.decoder_ffn_dim=512",
        f"max_cpu_minutes={minutes}",
        f"warm_start.checkpoint={language_model}",
    ]
    run = output / "run"
    train_recipe(load_recipe("unsupervised_translation", overrides), run)

    tokenizer = AutoTokenizer.from_pretrained(run)
    model = AutoModelForSeq2SeqLM.from_pretrained(run).eval()
    torch.manual_seed(0)
    untrained = type(model)(model.config).eval()
    warm_start(untrained, tokenizer, language_model)
    table = [
        measure("copy", pairs, None, tokenizer),
        measure("before", pairs, untrained, tokenizer),
        measure("after", pairs, model, tokenizer),
    ]
    print(markdown(table))
    german = [pair["de"] for pair in pairs[:10]]
    for pair, translation in zip(pairs, translate(model, tokenizer, german, "en"), strict=False):
        print(f"\n- {pair['de']}\n- {pair['en']}\n- {translation}")


if __name__ == "__main__":
    typer.run(main)
