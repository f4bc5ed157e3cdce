"""Does a second band pay in tagging? T-MDE, T-MDE_F and dbT-MDE as taggers of parts of speech.

    tmde compare claims ... -o claims/        # docs/claims.md has the whole command
    python benchmarks/tagging.py --comparison claims/ --train DATA/general/tatoeba.parquet \
        --test DATA/test/tatoeba.parquet --json benchmarks/results/tagging.json

The thesis (section 5.2) expects that the second band of dbT-MDE, which shows the decoder the state
of every token, serves tagging. Here the encoder of each checkpoint becomes a tagger in three ways:

- last layer: a logistic regression on the last states of the tokens, which stay as they are.
- layer below: the same on the states of the layer before.
- fine-tuned: all weights are trained by examples/tag_parts_of_speech.py.

In T-MDE, the decoder reads the last state of the first token alone. So training does not reach the
last states of all other tokens, and the layer below is the last one that learns of them.

Taggers learn from English sentences alone. The test has other English sentences, and sentences in
languages whose tags they have never seen.

The tags are silver: no treebank is at hand. spaCy's rules split the words, and RippleTagger, whose
rules were learned from the treebanks of Universal Dependencies 1.3, tags them
(`pip install spacy==3.8.18 rippletagger==0.2`). So systems are measured by how well they imitate
RippleTagger, whose errors and conventions differ between languages. Sentences with a word that it
does not tag, such as the German contraction "zum", are left out. Encoders read the words with
spaces between them ("do n't").

Beside the systems stand the most frequent tag of each word, without a model, and T-MDE as it was
before its training: random layers over the token vectors of the bag with which all of them began.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import datasets
import numpy as np
import torch
import typer
from common import markdown, sentence_pairs, translations, write_json
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

from tmde.papers.verdicts import seed_difference
from tmde.training.starts.weights import warm_start

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from tag_parts_of_speech import fine_tune, read_sentences, tokenize_file  # noqa: E402

LANGUAGES = ("en", "de", "es", "fr", "it")
TRAIN_LANGUAGE = "en"
NEW_NAMES = {"CONJ": "CCONJ"}  # Universal Dependencies 1 and 2.
UNTAGGED = "_"
FEWEST_WORDS = 4
BATCH_SENTENCES = 50
BEFORE_TRAINING = "before training"
MOST_FREQUENT = "most frequent tag"
# The layers whose states are probed, from the last one.
LAYERS = {"last layer": -1, "layer below": -2}

Accuracies = dict[str, float]  # by language
Tag = Callable[[str], list[tuple[str, str]]]  # from a text to its words and their tags


# ---- Tagged sentences


def load_tagger(language: str) -> Tag:
    """Return a function that splits a text into words and tags them.

    Raises:
        typer.BadParameter: A package is not installed.
    """
    try:
        import rippletagger.models
        import spacy
        from rippletagger.tagger import Tagger
    except ImportError as error:
        message = f"{error}. Install both: pip install spacy==3.8.18 rippletagger==0.2"
        raise typer.BadParameter(message) from error

    rippletagger.models.xrange = range  # Version 0.2 was written for Python 2.
    split = spacy.blank(language)
    tagger = Tagger(language)

    def tag(text: str) -> list[tuple[str, str]]:
        words = [token.text for token in split(text) if not token.is_space]
        tags = [tag for _, tag in tagger.tag(" ".join(words))]
        # The tagger replaces quotation marks. The words are those of the text.
        return list(zip(words, tags, strict=True))

    return tag


def training_texts(path: Path, count: int, seed: int) -> list[str]:
    """Return so many English texts of a file of parallel rows, drawn at random."""
    texts: dict[str, None] = {}
    for row in translations(path):
        text = row[TRAIN_LANGUAGE]
        if text and len(text.split()) >= FEWEST_WORDS:
            texts[text] = None
    order = np.random.default_rng(seed).permutation(len(texts))
    all_texts = list(texts)
    return [all_texts[place] for place in order[:count]]


def test_texts(path: Path, language: str) -> list[str]:
    """Return the different texts of a language of a file of sentence pairs.

    The column `pair` has the languages of `sentence1` and `sentence2`, such as `de-en`.

    Raises:
        typer.BadParameter: The file has no text in the language.
    """
    texts: dict[str, None] = {}
    for languages, pairs in sentence_pairs(path).items():
        if language in languages:
            side = languages.index(language)
            texts |= dict.fromkeys(pair[side] for pair in pairs)
    if not texts:
        raise typer.BadParameter(f"{path} has no pair with {language!r}; expected {LANGUAGES}")
    return list(texts)


def write_tagged(texts: Iterable[str], tag: Tag, path: Path) -> None:
    """Tag texts and write them in CoNLL-U. Texts with a word without a tag are left out."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            tagged = tag(text)
            if any(name == UNTAGGED for _, name in tagged):
                continue
            for number, (word, name) in enumerate(tagged, start=1):
                columns = [str(number), word, "_", NEW_NAMES.get(name, name), *["_"] * 6]
                file.write("\t".join(columns) + "\n")
            file.write("\n")


# ---- Taggers


def most_frequent_tag_accuracy(train: datasets.Dataset, test: datasets.Dataset) -> float:
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
    model: PreTrainedModel,
    tokenized: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    layer: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the states of the tokens that have a tag, (tokens, d_model), and their tags.

    Args:
        model: The encoder.
        tokenized: The tokenized sentences.
        tokenizer: The tokenizer, which pads them.
        layer: The place of the layer in `hidden_states`: -1 is the last one.
    """
    collate = DataCollatorForTokenClassification(tokenizer)
    states = []
    tags = []
    for start in range(0, len(tokenized), BATCH_SENTENCES):
        rows = tokenized.select(range(start, min(start + BATCH_SENTENCES, len(tokenized))))
        batch = collate(list(rows))
        labels = batch.pop("labels")
        output = model(**batch, output_hidden_states=True).hidden_states[layer]
        is_tagged = labels != -100
        states.append(output[is_tagged].numpy())
        tags.append(labels[is_tagged].numpy())
    return np.concatenate(states), np.concatenate(tags)


def probe_accuracies(
    checkpoint: Path,
    tokenized: Mapping[str, datasets.Dataset],
    tokenizer: PreTrainedTokenizerBase,
    layer: int,
) -> Accuracies:
    """Return the accuracies of a linear classifier of the states of one layer."""
    model = AutoModel.from_pretrained(checkpoint).eval()
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(*token_states(model, tokenized["train"], tokenizer, layer))
    accuracies = {}
    for language in LANGUAGES:
        states, tags = token_states(model, tokenized[language], tokenizer, layer)
        accuracies[language] = float(classifier.score(states, tags))
    return accuracies


def fine_tuned_accuracies(
    checkpoint: Path,
    tokenized: Mapping[str, datasets.Dataset],
    tokenizer: PreTrainedTokenizerBase,
    output: Path,
    epochs: float,
    seed: int,
) -> Accuracies:
    """Return the accuracies of a tagger whose weights are all trained."""
    trainer = fine_tune(checkpoint, tokenized["train"], tokenizer, output, epochs, seed)
    accuracies = {}
    for language in LANGUAGES:
        accuracies[language] = trainer.evaluate(tokenized[language])["eval_accuracy"]
    return accuracies


def save_before_training(checkpoint: Path, bag: Path, folder: Path, seed: int) -> Path:
    """Save the model of a checkpoint as it was before its training, and return the folder."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModel.from_config(AutoConfig.from_pretrained(checkpoint))
    warm_start(model, tokenizer, bag, direct_path=False)
    target = folder / f"{BEFORE_TRAINING}-{seed}"
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def measure_checkpoint(
    checkpoint: Path, paths: Mapping[str, Path], output: Path, epochs: float, seed: int
) -> dict[str, float]:
    """Return the measures of the taggers of one checkpoint.

    Args:
        checkpoint: Its folder.
        paths: The files of tagged sentences: `train`, and one for each language.
        output: A folder for fine-tuning.
        epochs: How often fine-tuning reads the training sentences.
        seed: The seed of fine-tuning.
    """
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenized = {name: tokenize_file(path, tokenizer) for name, path in paths.items()}
    accuracies = {}
    for way, layer in LAYERS.items():
        accuracies[way] = probe_accuracies(checkpoint, tokenized, tokenizer, layer)
    accuracies["fine-tuned"] = fine_tuned_accuracies(
        checkpoint, tokenized, tokenizer, output, epochs, seed
    )
    return measures_of(accuracies)


# ---- Results


def measures_of(accuracies: Mapping[str, Accuracies]) -> dict[str, float]:
    """Return the measures of one run in %: English, and the mean of the other languages."""
    measures = {}
    unseen_languages = [language for language in LANGUAGES if language != TRAIN_LANGUAGE]
    for way, of_language in accuracies.items():
        measures[f"{way}, English"] = 100 * of_language[TRAIN_LANGUAGE]
        unseen = [of_language[language] for language in unseen_languages]
        measures[f"{way}, other languages"] = 100 * float(np.mean(unseen))
    return measures


def describe(
    system: str,
    by_seed: Mapping[int, Mapping[str, float]],
    reference: Mapping[int, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Return means and standard deviations over the seeds, and the lead over another system.

    Args:
        system: The name of the system.
        by_seed: Its measures by seed.
        reference: Those of the system from which its own are subtracted; None for no difference.
    """
    measures: dict[str, list[float]] = {}
    differences = {}
    for measure in next(iter(by_seed.values())):
        values = {seed: of_seed[measure] for seed, of_seed in by_seed.items()}
        mean = float(np.mean(list(values.values())))
        measures[measure] = [mean]
        if len(values) > 1:
            deviation = float(np.std(list(values.values()), ddof=1))
            measures[measure] = [mean, mean - deviation, mean + deviation]
        if reference is None:
            continue
        of_reference = {seed: of_seed[measure] for seed, of_seed in reference.items()}
        difference = seed_difference(values, of_reference)
        if difference is not None:
            differences[measure] = asdict(difference)
    return {
        "system": system,
        "spread": "standard deviation",
        "measures": measures,
        "differences": differences,
        "seeds": by_seed,
    }


def describe_most_frequent(tagged: Mapping[str, datasets.Dataset]) -> dict[str, Any]:
    """Return the measures of the most frequent tag of each word, without a model."""
    accuracies = {}
    for language in LANGUAGES:
        accuracies[language] = most_frequent_tag_accuracy(tagged["train"], tagged[language])
    measures = {}
    for measure, value in measures_of({"words": accuracies}).items():
        measures[measure] = [value]
    return {"system": MOST_FREQUENT, "measures": measures}


# ---- The command


def check_folders(folders: Iterable[Path]) -> None:
    """Raise typer.BadParameter if a folder has no checkpoint."""
    for folder in folders:
        if not (folder / "config.json").is_file():
            raise typer.BadParameter(
                f"{folder} has no config.json. Run `tmde compare claims` into its folder first"
            )


def main(
    comparison: Annotated[Path, typer.Option(help="The folder of `tmde compare claims`.")],
    train: Annotated[Path, typer.Option(help="Parallel rows: their English texts are tagged.")],
    test: Annotated[Path, typer.Option(help="Sentence pairs, as `test/tatoeba.parquet`.")],
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
    bag = comparison / "start" / "bag"
    check_folders([bag])
    for name in system:
        check_folders(comparison / "runs" / f"{name}-{number}" for number in seed)

    work.mkdir(parents=True, exist_ok=True)
    paths = {"train": work / "train.conllu"}
    texts = training_texts(train, sentences, seed=0)
    write_tagged(texts, load_tagger(TRAIN_LANGUAGE), paths["train"])
    for language in LANGUAGES:
        paths[language] = work / f"{language}.conllu"
        write_tagged(test_texts(test, language), load_tagger(language), paths[language])
    tagged = {name: read_sentences(path) for name, path in paths.items()}
    settings["words"] = {name: sum(map(len, rows["words"])) for name, rows in tagged.items()}

    measured: dict[str, dict[int, dict[str, float]]] = {}
    for name in (*system, BEFORE_TRAINING):
        measured[name] = {}
        for number in seed:
            if name == BEFORE_TRAINING:
                trained = comparison / "runs" / f"{system[0]}-{number}"
                checkpoint = save_before_training(trained, bag, work, number)
            else:
                checkpoint = comparison / "runs" / f"{name}-{number}"
            measured[name][number] = measure_checkpoint(
                checkpoint, paths, work / "tagger", epochs, number
            )
            print(f"{name}-{number}: {measured[name][number]}", file=sys.stderr)

    results = []
    for name, by_seed in measured.items():
        reference = None if name == system[0] else measured[system[0]]
        results.append(describe(name, by_seed, reference))
    results.append(describe_most_frequent(tagged))
    write_json(json, "tagging", settings, results)
    rows = []
    for result in results:
        means = {measure: numbers[0] for measure, numbers in result["measures"].items()}
        rows.append({"system": result["system"], **means})
    print(markdown(rows))


if __name__ == "__main__":
    typer.run(main)
