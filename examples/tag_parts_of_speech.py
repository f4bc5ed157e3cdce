r"""Fine-tune a T-MDE checkpoint to tag parts of speech, and test it in further languages.

    tmde train dbtmde --train my_corpus/ --dev dev.jsonl -o runs/dual
    python examples/tag_parts_of_speech.py runs/dual \
        --train en_ewt-ud-train.conllu --test en_ewt-ud-test.conllu de_gsd-ud-test.conllu

Tagged sentences are read in CoNLL-U, the format of Universal Dependencies
(https://universaldependencies.org): a word a line in ten columns between tabs, of which the second
is the word and the fourth its tag, and an empty line after every sentence. Training is
transformers' own `Trainer`. The first token of every word carries its tag. Words behind the longest
input of the model carry none, and their number is printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import datasets
import numpy as np
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    EvalPrediction,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

import modeling_tmde  # noqa: F401  Registers the models with the Auto classes.

# The universal part-of-speech tags.
TAGS = [
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
    "SCONJ",
    "SYM",
    "VERB",
    "X",
]


def read_sentences(path: Path) -> datasets.Dataset:
    """Return the words of each sentence of a CoNLL-U file, and the numbers of their tags.

    Raises:
        SystemExit: A word has no universal part-of-speech tag.
    """
    rows = []
    words: list[str] = []
    tags: list[int] = []
    lines = [*path.read_text("utf-8").splitlines(), ""]
    for line_number, line in enumerate(lines, start=1):
        if not line and words:
            rows.append({"words": words, "tags": tags})
            words = []
            tags = []
        columns = line.split("\t")
        # Comments have one column. Contractions ("3-4") and words that are left out in the text
        # ("3.1") are no words of their own.
        if len(columns) == 10 and columns[0].isdecimal():
            word = columns[1]
            tag = columns[3]
            if tag not in TAGS:
                raise SystemExit(
                    f"{path}, line {line_number}: found the tag {tag!r} for the word {word!r}, "
                    f"expected one of {', '.join(TAGS)}. Leave out sentences without tags."
                )
            words.append(word)
            tags.append(TAGS.index(tag))
    return datasets.Dataset.from_list(rows)


def tokenize(row: dict, tokenizer: PreTrainedTokenizerBase) -> dict:
    """Return the tokens of a sentence, and their labels: -100 but at the first token of a word."""
    # Words one by one would have other tokens: the tokenizer reads the space before a word with it.
    tokens = tokenizer(" ".join(row["words"]), truncation=True, return_offsets_mapping=True)
    word_of_character: list[int | None] = []
    for number, word in enumerate(row["words"]):
        word_of_character += [number] * len(word)
        word_of_character.append(None)  # the space behind it
    labels = []
    last_word = None
    for start, end in tokens.pop("offset_mapping"):
        # Special tokens cover no character.
        word = word_of_character[end - 1] if end > start else None
        is_first_token = word is not None and word != last_word
        labels.append(row["tags"][word] if is_first_token else -100)
        if word is not None:
            last_word = word
    return {**tokens, "labels": labels}


def tokenize_file(path: Path, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
    """Return the tokenized sentences of a file. Print how many words are cut off, if any are."""
    sentences = read_sentences(path)
    tokenized = sentences.map(
        tokenize, fn_kwargs={"tokenizer": tokenizer}, remove_columns=["words", "tags"]
    )
    word_count = sum(map(len, sentences["words"]))
    labeled_count = 0
    for labels in tokenized["labels"]:
        labeled_count += sum(label != -100 for label in labels)
    if labeled_count < word_count:
        print(
            f"{path.name}: {word_count - labeled_count:,} of {word_count:,} words are left out, "
            f"because they stand behind the first {tokenizer.model_max_length:,} tokens of a "
            "sentence"
        )
    return tokenized


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Return the share of the words that get their tag."""
    is_labeled = prediction.label_ids != -100
    predicted = prediction.predictions.argmax(axis=-1)
    return {"accuracy": float(np.mean((predicted == prediction.label_ids)[is_labeled]))}


def fine_tune(
    checkpoint: str | Path,
    train: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    output: Path,
    epochs: float = 3,
    seed: int = 42,
) -> Trainer:
    """Return a trainer with the tagger that begins as the encoder of a checkpoint.

    Args:
        checkpoint: A folder that `tmde train` wrote, or a Hub id.
        train: The tokenized sentences.
        tokenizer: The tokenizer of the checkpoint.
        output: The folder of the trainer.
        epochs: How often every sentence is read.
        seed: The seed of the classifier, of dropout and of the order of the sentences.
    """
    set_seed(seed)
    model = AutoModelForTokenClassification.from_pretrained(
        checkpoint,
        num_labels=len(TAGS),
        id2label=dict(enumerate(TAGS)),
        label2id={tag: number for number, tag in enumerate(TAGS)},
    )
    settings = TrainingArguments(
        output,
        per_device_train_batch_size=32,
        learning_rate=5e-4,
        num_train_epochs=epochs,
        warmup_steps=0.1,
        seed=seed,
        save_strategy="no",
    )
    trainer = Trainer(
        model,
        settings,
        train_dataset=train,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
        compute_metrics=accuracy,
    )
    trainer.train()
    return trainer


def main() -> None:
    """Fine-tune on one file, and print the accuracy on each of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint", help="a folder that `tmde train` wrote, or a Hub id")
    parser.add_argument("--train", type=Path, required=True, help="a CoNLL-U file")
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="CoNLL-U files")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, default=Path("runs/tagger"))
    arguments = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint)
    tokenized = {}
    for path in (arguments.train, *arguments.test):
        tokenized[path] = tokenize_file(path, tokenizer)
    trainer = fine_tune(
        arguments.checkpoint,
        tokenized[arguments.train],
        tokenizer,
        arguments.output,
        arguments.epochs,
        arguments.seed,
    )
    trainer.save_model(arguments.output)
    for path in arguments.test:
        metrics = trainer.evaluate(tokenized[path])
        print(f"{path.name}: {100 * metrics['eval_accuracy']:.1f}% of the words")


if __name__ == "__main__":
    main()
