"""InferSent's training: the loss by hand, a planted task, and data in the layout of the Hub."""

import itertools
import json
import random
from pathlib import Path

import datasets
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from tests.data.conftest import separate_cache, write_hub_folder  # noqa: F401
from tests.training.logs import assert_equal_weights, values_of
from tests.training.trainers import interrupt
from tmde.data.parallel import load_parallel
from tmde.data.report import CorpusReport
from tmde.training.objectives import NaturalLanguageInference
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

TINY = [
    "model.d_model=32",
    "model.embedding_dim=16",
    "model.decoder_hidden_size=16",
    "tokenizer.vocab_size=300",
]
TINY += [
    "objectives.nli.hidden_size=16",
    "per_device_train_batch_size=16",
    "bf16=false",
    "disable_tqdm=true",
    "num_train_epochs=3",
]
TINY += ["dataloader_num_workers=0", "learning_rate=0.3"]


def test_loss():
    objective = NaturalLanguageInference(hidden_size=2)
    objective.build(width=1)
    hidden = objective.classifier[1]
    output = objective.classifier[4]
    with torch.no_grad():
        hidden.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1, 2, 3]]))
        output.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [0, 0]]))
        hidden.bias.zero_()
        output.bias.zero_()
    # [u, v, |u - v|, u * v] = [0.5, -0.5, 1, -0.25]: hidden tanh(0.5) and tanh(0.75), then logits
    # 0.462, 0.635, 0.
    logits = torch.tensor([0.5, 0.75, 0.0]).tanh()
    output_sums = objective(torch.tensor([[[0.5], [0.5]], [[-0.5], [-0.5]]]), torch.tensor([0, 1]))
    expected = 2 * logits.exp().sum().log() - logits[0] - logits[1]
    assert torch.allclose(output_sums.loss, expected)
    assert int(output_sums.components["accuracy"]) == 1


def write_pairs(path, rows: int, seed: int) -> str:
    """A hypothesis repeats a word of the premise, denies it, or speaks of another."""
    draw = random.Random(seed)
    words = list(map("".join, itertools.product("bdfgk", ("ana", "olo", "imi", "eru"))))
    with path.open("w") as file:
        for row in range(rows):
            premise = draw.sample(words, 2)
            label = draw.randrange(3)
            hypothesis = (premise[0], draw.choice(words), f"not {premise[0]}")[label]
            label = -1 if row % 10 == 9 else ("entailment", 1, "2")[label]
            pair = {"premise": " ".join(premise), "hypothesis": hypothesis, "label": label}
            file.write(json.dumps(pair) + "\n")
    return str(path)


def test_a_planted_task_is_learned_and_resumed(tmp_path, monkeypatch):
    train = write_pairs(tmp_path / "train.jsonl", 1500, 0)
    dev = write_pairs(tmp_path / "held.jsonl", 300, 1)
    keep = "keep_checkpoints=true"
    recipe = load_recipe("infersent", [f"data.train={train}", f"data.dev={dev}", *TINY, keep])
    whole = train_recipe(recipe, tmp_path / "whole")
    results = json.loads((tmp_path / "whole" / "results.json").read_text())
    assert results["corpus"]["dropped_rows"] == 150
    assert results["best"]["eval_nli_accuracy"] > 0.6
    assert not (tmp_path / "whole" / "objectives.safetensors").exists()
    assert AutoModel.from_pretrained(tmp_path / "whole").config.pooling == "max"

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, tmp_path / "resumed", whole.state.global_step // 2)
        train_recipe(recipe, tmp_path / "resumed")
    train_recipe(recipe, tmp_path / "resumed", resume=True)
    for name in ("model", "objectives"):
        expected = weights_of_last_checkpoint(tmp_path / "whole", name)
        weights = weights_of_last_checkpoint(tmp_path / "resumed", name)
        assert expected.keys() == weights.keys()
        assert_equal_weights(weights, expected)


def weights_of_last_checkpoint(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(max(folder.glob(f"checkpoint-*/{name}.safetensors")))


@pytest.mark.parametrize("streaming", [False, True])
def test_layout_of_the_hub(tmp_path, streaming):
    # The order of the classes is not that of SNLI.
    classes = datasets.ClassLabel(names=["contradiction", "neutral", "entailment"])
    text = datasets.Value("string")
    features = datasets.Features({"premise": text, "hypothesis": text, "label": classes})
    rows = [
        {"premise": "a", "hypothesis": "d", "label": 2},
        {"premise": "b", "hypothesis": "e", "label": -1},
        {"premise": "c", "hypothesis": "f", "label": 0},
    ]
    splits = {"validation": rows}
    write_hub_folder(tmp_path, {"de": splits, "en": splits}, features)
    report = CorpusReport()
    options = {"split": "validation", "streaming": streaming, "report": report}
    loaded = list(load_parallel(str(tmp_path), ["en", "fr"], labels=True, **options))
    assert values_of(loaded, "label") == [0, 2]
    assert loaded[1]["translation"] == {"hypothesis": "f", "premise": "c"}
    assert "row 2, field 'label': found -1" in report.summary()


def test_rows_with_labels_are_not_joined(tmp_path):
    train = write_pairs(tmp_path / "train.jsonl", 30, 0)
    options = [*TINY, "max_joined_rows=2", "tokenizer.add_prefix_space=true"]
    with pytest.raises(ValueError, match="found labels, which belong to single rows"):
        train_recipe(load_recipe("infersent", [f"data.train={train}", *options]), tmp_path / "run")
