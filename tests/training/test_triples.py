"""Training on triples: the loss of sentence-transformers, the batches, and whole runs."""

import json
import math
import random
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer
from typer.testing import CliRunner

from tests.conftest import make_rows
from tests.hub_encoders import save_encoder
from tests.training.batches import parallel_batches
from tests.training.logs import read_log
from tmde import TmdeTrainer, TmdeTrainingArguments, adapt_encoder, load_parallel
from tmde.cli.main import app
from tmde.data.rows import triple_texts
from tmde.training.objectives import BatchSizes, DistanceConstraint, InfoNCE
from tmde.training.parallel_model import ParallelModel
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

SMALL_RUN = [
    "max_steps=60",
    "eval_steps=30",
    "warmup_steps=0",
    "encoder_learning_rate=0.003",
    "embedding_learning_rate=null",
    "per_device_train_batch_size=32",
    "train_max_length=40",
    "bf16=false",
    "disable_tqdm=true",
    "dataloader_num_workers=0",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoders") / "bert", "bert")


def write_triples(path: Path, number: int, seed: int) -> Path:
    """A German anchor, its English translation, and in two of three rows another English text."""
    rows = make_rows(number, seed=seed)
    draw = random.Random(seed)
    with path.open("w") as file:
        for place, row in enumerate(rows):
            triple = {"anchor": row["de"], "positive": row["en"]}
            if place % 3:
                triple["negative"] = draw.choice(rows)["en"]
            file.write(f"{json.dumps(triple)}\n")
    return path


def run(*arguments: str | Path):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


# ---- The loss


def test_loss_by_hand():
    """Cosines of a1 with p1, p2, n1, n2: 1, 0, 0, -1; of a2: 0.6, 0.8, 0.8, -0.6."""
    embeddings = torch.tensor(
        [[[1.0, 0], [3, 4]], [[2.0, 0], [0, 5]], [[0, 0.1], [-1, 0]]]
    )  # (3, 2, 2)
    logits = np.array([[1.0, 0, 0, -1], [0.6, 0.8, 0.8, -0.6]]) / 0.5
    expected = -(logits[0, 0] + logits[1, 1]) + np.log(np.exp(logits).sum(axis=1)).sum()

    output = InfoNCE(temperature=0.5)(embeddings, has_triples=True)

    assert output.loss.item() == pytest.approx(expected, rel=1e-6)
    assert output.components["accuracy"].item() == 2
    sizes = BatchSizes(2, 3, 0, 0, tokens=20, has_triples=True)
    assert InfoNCE().count(sizes) == 2


@pytest.mark.parametrize("negatives", [0, 1, 3])
def test_loss_and_gradient_are_those_of_sentence_transformers(negatives):
    losses = pytest.importorskip("sentence_transformers.losses")
    generator = torch.Generator().manual_seed(negatives)
    embeddings = torch.randn(2 + negatives, 6, 8, generator=generator, requires_grad=True)
    peer = losses.MultipleNegativesRankingLoss(model=None, scale=20.0)
    expected = peer.compute_loss_from_embeddings(list(embeddings), labels=None)
    [expected_gradient] = torch.autograd.grad(expected, embeddings)

    loss = InfoNCE(temperature=1 / 20)(embeddings, has_triples=True).loss / 6

    torch.testing.assert_close(loss, expected)
    [gradient] = torch.autograd.grad(loss, embeddings)
    torch.testing.assert_close(gradient, expected_gradient)


def test_nested_dimensions_of_triples():
    embeddings = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
    nested = InfoNCE(dims=[2, 8])(embeddings, has_triples=True).loss
    parts = [InfoNCE()(embeddings[..., :dim], has_triples=True).loss for dim in (2, 8)]
    torch.testing.assert_close(nested, (parts[0] + parts[1]) / 2)


# ---- Batches


def translations(rows: list[dict]) -> datasets.Dataset:
    text = datasets.Value("string")
    names = ("anchor", "negative", "positive")
    features = datasets.Features({"translation": dict.fromkeys(names, text)})
    return datasets.Dataset.from_list([{"translation": row} for row in rows], features=features)


def test_every_batch_has_anchors_and_positives_first(tokenizer):
    rows = [{"anchor": "haus", "positive": "house", "negative": "dog"}] * 10
    rows += [{"anchor": "hund", "positive": "dog", "negative": None}] * 5
    rows += [{"anchor": "hund", "positive": None, "negative": "house"}] * 3
    texts = triple_texts(["negative", "positive", "anchor"])

    # `languages_per_row` is of languages, and no text of a triple is left out.
    batches = list(
        parallel_batches(
            translations(rows), tokenizer, texts, ["en"], languages_per_row=2, pivots_only=False
        )
    )

    rows_of_texts: Counter[tuple[str, ...]] = Counter()
    for batch in batches:
        assert batch.sizes.has_triples
        rows_of_texts[batch.languages] += batch.sizes.rows
    assert rows_of_texts == {("anchor", "positive", "negative"): 10, ("anchor", "positive"): 5}
    assert batches[0].counts["rows_without_pair"] == 3


def test_triples_are_not_joined(tokenizer):
    rows = translations([{"anchor": "haus", "positive": "house", "negative": None}] * 4)
    with pytest.raises(ValueError, match="found triples, which do not form documents"):
        parallel_batches(rows, tokenizer, ("anchor", "positive"), [], max_joined_rows=2)


def test_an_objective_on_translations_is_refused(encoder):
    model = adapt_encoder(encoder, languages=["en"], pivot_languages=["en"])
    objectives = {"infonce": InfoNCE(), "distance": DistanceConstraint()}
    with pytest.raises(ValueError, match="'distance' cannot learn from triples"):
        ParallelModel(model, objectives, triples=("anchor", "positive"))
    parallel = ParallelModel(model, {"infonce": InfoNCE()}, triples=("anchor", "positive"))
    assert parallel.searched_texts == ("anchor", "positive")


# ---- Whole runs


def test_a_run_learns_to_find_positives(encoder, tmp_path):
    train = write_triples(tmp_path / "train.jsonl", 400, seed=5)
    dev = write_triples(tmp_path / "held.jsonl", 60, seed=6)
    folder = tmp_path / "run"

    result = run(
        "triples", "--encoder", encoder, "--train", train, "--dev", dev, "-o", folder, *SMALL_RUN
    )

    assert result.exit_code == 0, result.output
    assert "The data are triples of anchor and positive. Language of their texts: en" in (
        result.output
    )
    precision = [entry["eval_held_p1_anchor-positive"] for entry in read_log(folder, "eval_mix")]
    assert precision[-1] > precision[0] + 0.1
    results = json.loads((folder / "results.json").read_text())
    assert results["dev_pools"] == {"held": {"p1_anchor-positive": 60}}
    assert load_recipe(str(folder / "recipe.yaml")).data.triples


def test_a_trainer_in_python(encoder, tmp_path):
    train = load_parallel(str(write_triples(tmp_path / "train.jsonl", 60, seed=5)))
    held = load_parallel(str(write_triples(tmp_path / "held.jsonl", 20, seed=6)))
    arguments = TmdeTrainingArguments(
        str(tmp_path / "run"), max_steps=2, eval_steps=2, train_max_length=40, use_cpu=True
    )
    trainer = TmdeTrainer(
        adapt_encoder(encoder, languages=["de", "en"], pivot_languages=["en"]),
        arguments,
        train,
        held,
        objectives={"infonce": 1.0},
        processing_class=AutoTokenizer.from_pretrained(encoder),
    )
    trainer.train()
    metrics = trainer.evaluate()
    assert trainer.parallel_model.texts == ("anchor", "positive", "negative")
    assert "eval_p1_anchor-positive" in metrics
    # 20 anchors choose among 20 positives and the negatives of their rows.
    assert 0 < metrics["eval_infonce_loss"] < 2 * math.log(40)


@pytest.mark.parametrize("streaming", [False, True])
def test_columns_of_a_dataset_in_python(streaming, encoder, tmp_path):
    """Held-out rows may lack the negatives of training rows."""
    train = datasets.Dataset.from_json(str(write_triples(tmp_path / "train.jsonl", 60, seed=5)))
    if streaming:
        train = train.to_iterable_dataset().map(dict)
        assert train.features is None
    held = datasets.Dataset.from_json(str(write_triples(tmp_path / "held.jsonl", 20, seed=6)))
    arguments = TmdeTrainingArguments(
        str(tmp_path / "run"), max_steps=1, eval_steps=1, train_max_length=40, use_cpu=True
    )
    trainer = TmdeTrainer(
        adapt_encoder(encoder, languages=["de", "en"], pivot_languages=["en"]),
        arguments,
        train,
        held.remove_columns("negative"),
        objectives={"infonce": 1.0},
        processing_class=AutoTokenizer.from_pretrained(encoder),
    )
    assert trainer.parallel_model.texts == ("anchor", "positive", "negative")
    assert "eval_p1_anchor-positive" in trainer.evaluate()


def test_triples_are_found_in_the_data(encoder, tmp_path):
    train = write_triples(tmp_path / "train.jsonl", 60, seed=5)
    arguments = ["--encoder", encoder, "--train", train, "-o", tmp_path / "run", *SMALL_RUN]
    refused = run(*arguments)
    assert "'distillation' cannot learn from triples" in " ".join(refused.output.split())
    assert not (tmp_path / "run").exists()

    options = [*arguments, "objectives.distillation=null", "max_steps=2", "eval_steps=1"]
    options += ["keep_checkpoints=true", "cooldown=0"]
    assert run(*options).exit_code == 0
    resumed = run(*options, "max_steps=3", "--resume")
    assert resumed.exit_code == 0, resumed.output


def test_parallel_text_for_the_recipe_of_triples(encoder, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"de": "haus", "en": "house"}\n' * 20)
    recipe = load_recipe("triples", [f"data.train={path}", *SMALL_RUN], encoder=str(encoder))
    with pytest.raises(ValueError, match="--columns anchor=de,positive=en"):
        train_recipe(recipe, tmp_path / "run")
