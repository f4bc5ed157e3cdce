"""SNLI, from folders laid out like the dataset of the Hub."""

import random

import datasets
import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.data.parallel import load_parallel
from tmde.eval.planning import plan_tasks
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.tasks import TASKS, TaskError, data_fingerprint
from tmde.training.recipe import load_recipe

SNLI = TASKS["snli"]()
CLASSES = ["entailment", "neutral", "contradiction"]


def snli_features(names=CLASSES) -> datasets.Features:
    text = datasets.Value("string")
    label = datasets.ClassLabel(names=names)
    return datasets.Features({"premise": text, "hypothesis": text, "label": label})


def pairs(labels: list[int]) -> list[dict]:
    rows = []
    for number, label in enumerate(labels):
        rows.append({"premise": f"p{number}", "hypothesis": f"h{number}", "label": label})
    return rows


@pytest.fixture
def snli(dataset_folder) -> str:
    splits = {
        "train": pairs([0, 1, -1, 2, 2, -1, 0, 1]),
        "validation": pairs([-1, 2, 0]),
        "test": pairs([1, -1, 0, 2]),
    }
    return dataset_folder({"plain_text": splits}, snli_features())


@pytest.mark.parametrize("streaming", [False, True])
def test_pairs_without_a_gold_label_are_left_out(streaming, snli):
    data = SNLI.load(snli, streaming=streaming)
    assert data.rows() == {"en": {"train": 6, "dev": 2, "test": 3}}
    test = data.splits["en"]["test"]
    assert list(test.ids) == ["test:0", "test:2", "test:3"]
    assert list(test.texts) == ["p0", "p2", "p3"]
    assert list(test.second_texts) == ["h0", "h2", "h3"]
    assert list(test.labels) == ["neutral", "entailment", "contradiction"]


def test_how_many_pairs_are_left_out_is_logged(snli, caplog):
    caplog.set_level("INFO", "tmde.eval.tasks")
    SNLI.load(snli)
    assert "split train): left out 2 pairs without a gold label" in caplog.text


def test_max_train_draws_among_the_pairs_with_a_label(dataset_folder):
    splits = {"train": pairs([0, -1] * 50), "validation": pairs([0]), "test": pairs([0])}
    folder = dataset_folder({"plain_text": splits}, snli_features())
    train = SNLI.load(folder, max_train=20, seed=3).splits["en"]["train"]
    order = np.argsort(np.random.default_rng(3).random(50))[:20]
    assert list(train.texts) == numbered("p", 2 * order)
    stream = SNLI.load(folder, streaming=True, max_train=20, seed=3)
    assert list(stream.splits["en"]["train"].texts) == list(train.texts)
    other_seed = SNLI.load(folder, max_train=20, seed=4)
    assert data_fingerprint(other_seed) != data_fingerprint(stream)


def test_the_names_of_the_classes_count_and_not_their_order(dataset_folder):
    splits = dict.fromkeys(("train", "validation", "test"), pairs([0, 1, 2]))
    folder = dataset_folder({"plain_text": splits}, snli_features(CLASSES[::-1]))
    assert list(SNLI.load(folder).splits["en"]["dev"].labels) == CLASSES[::-1]


def test_another_label_is_an_error(dataset_folder):
    rows = [{"premise": "a", "hypothesis": "b", "label": 3}]
    folder = dataset_folder({"plain_text": {"train": rows, "validation": rows, "test": rows}})
    message = "row 1, field 'label': found 3, expected one of entailment, neutral, contradiction"
    with pytest.raises(TaskError, match=message):
        SNLI.load(folder)


def test_a_dataset_with_a_config_for_each_language_is_for_xnli(dataset_folder):
    splits = dict.fromkeys(("train", "validation", "test"), pairs([0]))
    folder = dataset_folder({"de": splits, "en": splits}, snli_features())
    with pytest.raises(TaskError, match="found the configs de, en, expected one config. The task"):
        SNLI.load(folder)


def test_a_file_is_no_dataset(tmp_path):
    path = tmp_path / "snli.jsonl"
    path.write_text('{"premise": "a", "hypothesis": "b", "label": 0}\n')
    with pytest.raises(TaskError, match=r"snli\.jsonl: found a file, expected a Hub dataset"):
        SNLI.load(path)


def test_the_recipe_infersent_trains_on_the_same_pairs(snli):
    recipe = load_recipe("infersent", [])
    assert recipe.data.train == SNLI.default_source
    train = SNLI.load(snli).splits["en"]["train"]
    rows = load_parallel(snli, ["en"], labels=True, split="train")
    premises = [row["translation"]["premise"] for row in rows]
    labels = [CLASSES[row["label"]] for row in rows]
    assert premises == list(train.texts)
    assert labels == list(train.labels)


def vector_of(text: str) -> np.ndarray:
    """A text is a direction, `x3`, or its opposite, `-x3`."""
    sign = -1.0 if text.startswith("-") else 1.0
    vector = np.zeros(8)
    vector[int(text[-1])] = sign
    return vector


def planted_pairs(count: int, seed: int) -> list[dict]:
    """A hypothesis repeats the premise, denies it, or has another direction."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        direction, other = draw.sample(range(8), 2)
        label = draw.randrange(3)
        hypothesis = (f"x{direction}", f"x{other}", f"-x{direction}")[label]
        rows.append({"premise": f"x{direction}", "hypothesis": hypothesis, "label": label})
    return rows


def test_a_network_reads_the_relation_of_both_vectors(dataset_folder):
    splits = {
        "train": planted_pairs(600, 0),
        "validation": planted_pairs(100, 1),
        "test": planted_pairs(100, 2),
    }
    folder = dataset_folder({"plain_text": splits}, snli_features())
    (planned,) = plan_tasks([f"snli={folder}"])
    loaded = planned.load(known=["de", "en"])
    (result,) = evaluate([loaded], [FakeSystem(vector_of)], EvaluationOptions(seeds=1, samples=2))
    assert result.head == "ffn_512"
    assert result.settings["head"]["hidden"] == [512]
    (cell,) = result.cells
    assert cell.pair == ("en", "en")
    assert cell.value > 0.98
    assert cell.chance == pytest.approx(1 / 3)
