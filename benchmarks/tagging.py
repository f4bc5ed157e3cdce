"""Does a second band pay in tagging? T-MDE, T-MDE_F and dbT-MDE as taggers of parts of speech.

    tmde compare claims ... -o comparison/        # the page of claims has the whole command
    python benchmarks/tagging.py --runs comparison/runs --train DATA/general/tatoeba.parquet \
        --test DATA/test/sts.parquet --json benchmarks/results/tagging.json

The thesis (section 5.2) expects that the second band of dbT-MDE, which shows the decoder the state
of every token, serves tagging. Here each checkpoint becomes a tagger in two ways:

- probe: a logistic regression on the states of the tokens, which stay as they are.
- fine-tuned: all weights are trained by examples/tag_parts_of_speech.py.

Training reads English sentences alone. The test has other English sentences, and sentences in
languages whose tags were never seen.

The tags are silver: no treebank is at hand. spaCy's rules split the words, and RippleTagger, whose
rules were learned from the treebanks of Universal Dependencies 1.3, tags them
(`pip install spacy==3.8.18 rippletagger==0.2`). It errs, in the same places for all systems: read
the differences, and not the accuracy.

Two systems without any pretraining stand beside them: the most frequent tag of each word, and
T-MDE with random weights.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import torch
import typer
from common import markdown, write_json
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from tmde.eval.verdicts import seed_difference

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from tag_parts_of_speech import fine_tune, read_sentences, tokenize_file  # noqa: E402

LANGUAGES = ("en", "de", "es", "fr", "it")
TRAIN_LANGUAGE = "en"
# Tags of Universal Dependencies 1 that have another name in version 2. Its treebanks split
# contractions ("zum" is "zu dem"); RippleTagger tags them "_". They are a preposition and an
# article.
NEW_NAMES = {"CONJ": "CCONJ", "_": "ADP"}
FEWEST_WORDS = 4
BATCH_SENTENCES = 50
UNTRAINED = "untrained"
MOST_FREQUENT = "most frequent tag"

Scores = dict[str, float]  # accuracy by language


# ---- Tagged sentences


def training_texts(path: Path, count: int, seed: int) -> list[str]:
    """Return so many English texts of a file of parallel rows, drawn at random."""
    texts: dict[str, None] = {}
    for row in pq.read_table(path, columns=["translation"]).to_pylist():
        text = row["translation"][TRAIN_LANGUAGE]
        if text and len(text.split()) >= FEWEST_WORDS:
            texts[text] = None
    order = np.random.default_rng(seed).permutation(len(texts))
    all_texts = list(texts)
    return [all_texts[place] for place in order[:count]]


def test_texts(path: Path, language: str) -> list[str]:
    """Return the different first sentences of a language of a file of sentence pairs."""
    texts: dict[str, None] = {}
    for row in pq.read_table(path, columns=["lang", "sentence1"]).to_pylist():
        if row["lang"] == f"{language}-{language}":
            texts[row["sentence1"]] = None
    return list(texts)


def write_tagged(texts: Iterable[str], language: str, path: Path) -> None:
    """Split texts into words, tag them, and write them in CoNLL-U."""
    import rippletagger.models
    import spacy
    from rippletagger.tagger import Tagger

    rippletagger.models.xrange = range  # Version 0.2 was written for Python 2.
    split = spacy.blank(language)
    tagger = Tagger(language)
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            words = [token.text for token in split(text) if not token.is_space]
            tagged = tagger.tag(" ".join(words))
            # The tagger turns every quotation mark into two apostrophes: the words are ours.
            for number, (word, (_, tag)) in enumerate(zip(words, tagged, strict=True), start=1):
                columns = [str(number), word, "_", NEW_NAMES.get(tag, tag), *["_"] * 6]
                file.write("\t".join(columns) + "\n")
            file.write("\n")


# ---- Taggers


def most_frequent_tag(train: datasets.Dataset, test: datasets.Dataset) -> float:
    """Return the accuracy of the most frequent tag of each word in the training sentences.

    A word that does not occur there has the most frequent tag of all.
    """
    tags_of_word: dict[str, Counter[int]] = defaultdict(Counter)
    all_tags: Counter[int] = Counter()
    for row in train:
        for word, tag in zip(row["words"], row["tags"], strict=True):
            tags_of_word[word.lower()][tag] += 1
            all_tags[tag] += 1
    hits = []
    for row in test:
        for word, tag in zip(row["words"], row["tags"], strict=True):
            counts = tags_of_word.get(word.lower(), all_tags)
            hits.append(counts.most_common(1)[0][0] == tag)
    return float(np.mean(hits))


@torch.inference_mode()
def token_states(
    model: PreTrainedModel, tokenized: datasets.Dataset, tokenizer: PreTrainedTokenizerBase
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last states of the tokens that have a tag: (tokens, d_model), and their tags."""
    collate = DataCollatorForTokenClassification(tokenizer)
    states = []
    tags = []
    for start in range(0, len(tokenized), BATCH_SENTENCES):
        rows = tokenized.select(range(start, min(start + BATCH_SENTENCES, len(tokenized))))
        batch = collate(list(rows))
        labels = batch.pop("labels")
        output = model(**batch).last_hidden_state
        is_tagged = labels != -100
        states.append(output[is_tagged].numpy())
        tags.append(labels[is_tagged].numpy())
    return np.concatenate(states), np.concatenate(tags)


def probe(
    checkpoint: Path, tokenized: dict[str, datasets.Dataset], tokenizer: PreTrainedTokenizerBase
) -> Scores:
    """Return the accuracy of a linear classifier on the states that the checkpoint gives."""
    model = AutoModel.from_pretrained(checkpoint).eval()
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(*token_states(model, tokenized["train"], tokenizer))
    scores = {}
    for language in LANGUAGES:
        scores[language] = classifier.score(*token_states(model, tokenized[language], tokenizer))
    return scores


def fine_tuned(
    checkpoint: Path,
    tokenized: dict[str, datasets.Dataset],
    tokenizer: PreTrainedTokenizerBase,
    output: Path,
    epochs: float,
    seed: int,
) -> Scores:
    """Return the accuracy of a tagger whose weights are all trained."""
    trainer = fine_tune(checkpoint, tokenized["train"], tokenizer, output, epochs, seed)
    scores = {}
    for language in LANGUAGES:
        scores[language] = trainer.evaluate(tokenized[language])["eval_accuracy"]
    return scores


def save_untrained(checkpoint: Path, folder: Path, seed: int) -> Path:
    """Save the model of a checkpoint with random weights, beside the tokenizer; return where."""
    set_seed(seed)
    model = AutoModel.from_config(AutoConfig.from_pretrained(checkpoint))
    target = folder / f"{UNTRAINED}-{seed}"
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(target)
    return target


# ---- Results


def measures_of(scores: Mapping[str, Scores]) -> dict[str, float]:
    """Return the measures of one run in %: English, and the mean of the other languages."""
    measures = {}
    for way, of_language in scores.items():
        others = [of_language[language] for language in LANGUAGES if language != TRAIN_LANGUAGE]
        measures[f"{way}, English"] = 100 * of_language[TRAIN_LANGUAGE]
        measures[f"{way}, other languages"] = 100 * float(np.mean(others))
    return measures


def describe(
    system: str, runs: Mapping[int, dict[str, float]], reference: Mapping[int, dict[str, float]]
) -> dict[str, Any]:
    """Return means and standard deviations over the seeds, and differences to the reference.

    Args:
        system: The name of the system.
        runs: The measures by seed.
        reference: Those of the system with which it is compared.
    """
    described: dict[str, Any] = {"system": system, "spread": "standard deviation", "measures": {}}
    differences = {}
    for measure in next(iter(runs.values())):
        values = {seed: measures[measure] for seed, measures in runs.items()}
        mean = float(np.mean(list(values.values())))
        described["measures"][measure] = [mean]
        if len(values) > 1:
            deviation = float(np.std(list(values.values()), ddof=1))
            described["measures"][measure] = [mean, mean - deviation, mean + deviation]
        of_reference = {seed: measures[measure] for seed, measures in reference.items()}
        difference = seed_difference(values, of_reference)
        if difference is not None and runs is not reference:
            differences[measure] = asdict(difference)
    return {**described, "differences": differences, "seeds": runs}


def main(
    runs: Annotated[Path, typer.Option(help="Folder with the checkpoints SYSTEM-SEED.")],
    train: Annotated[Path, typer.Option(help="Parallel rows: their English texts are tagged.")],
    test: Annotated[Path, typer.Option(help="Sentence pairs, with the columns of STS.")],
    work: Annotated[Path, typer.Option(help="Folder of the tagged sentences.")] = Path("tagging"),
    system: Annotated[list[str], typer.Option(help="Repeat; the first is the reference.")] = [  # noqa: B006
        "tmde",
        "tmde_f",
        "dbtmde",
    ],
    seed: Annotated[list[int], typer.Option(help="Repeat.")] = [42, 43, 44],  # noqa: B006
    sentences: Annotated[int, typer.Option(help="The training sentences.")] = 2000,
    epochs: Annotated[float, typer.Option(help="How often fine-tuning reads them.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
) -> None:
    """Train the taggers and print a table in Markdown."""
    settings = dict(locals())
    work.mkdir(parents=True, exist_ok=True)
    paths = {"train": work / "train.conllu"}
    write_tagged(training_texts(train, sentences, seed=0), TRAIN_LANGUAGE, paths["train"])
    for language in LANGUAGES:
        paths[language] = work / f"{language}.conllu"
        write_tagged(test_texts(test, language), language, paths[language])
    tagged = {name: read_sentences(path) for name, path in paths.items()}
    settings["words"] = {name: sum(map(len, rows["words"])) for name, rows in tagged.items()}

    measured: dict[str, dict[int, dict[str, float]]] = {}
    for name in (*system, UNTRAINED):
        measured[name] = {}
        for number in seed:
            if name == UNTRAINED:
                checkpoint = save_untrained(runs / f"{system[0]}-{number}", work, number)
            else:
                checkpoint = runs / f"{name}-{number}"
            tokenizer = AutoTokenizer.from_pretrained(checkpoint)
            tokenized = {key: tokenize_file(path, tokenizer) for key, path in paths.items()}
            scores = {
                "probe": probe(checkpoint, tokenized, tokenizer),
                "fine-tuned": fine_tuned(
                    checkpoint, tokenized, tokenizer, work / "tagger", epochs, number
                ),
            }
            measured[name][number] = measures_of(scores)
            print(f"{name}-{number}: {measured[name][number]}", file=sys.stderr)

    reference = measured[system[0]]
    results = [describe(name, by_seed, reference) for name, by_seed in measured.items()]
    baseline = {name: most_frequent_tag(tagged["train"], tagged[name]) for name in LANGUAGES}
    baseline_measures = {}
    for measure, value in measures_of({"words": baseline}).items():
        baseline_measures[measure] = [value]
    results.append({"system": MOST_FREQUENT, "measures": baseline_measures})
    write_json(json, "tagging", settings, results)
    rows = []
    for result in results:
        means = {measure: numbers[0] for measure, numbers in result["measures"].items()}
        rows.append({"system": result["system"], **means})
    print(markdown(rows))


if __name__ == "__main__":
    typer.run(main)
