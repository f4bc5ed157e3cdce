"""`TmdeTrainer`: gradients, limits, schedules, logs, resuming and precision."""

import copy
import itertools
import math
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import TrainerCallback

from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training.logs import assert_equal_weights, entries_with, read_log, values_of
from tests.training.trainers import tiny_trainer
from tmde.training.batches import ParallelBatch
from tmde.training.trainer import TmdeTrainer

WEIGHTS = {"translation": 0.5, "distance": 0.25}


def weights_of(trainer: TmdeTrainer) -> dict[str, torch.Tensor]:
    return {
        name: value.detach().clone() for name, value in trainer.parallel_model.state_dict().items()
    }


def logged(trainer: TmdeTrainer, key: str = "loss") -> list[dict]:
    return entries_with(trainer.state.log_history, key)


class Gradients(TrainerCallback):
    """Keeps the gradients of every optimizer step."""

    def __init__(self):
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        gradients = {}
        for name, parameter in model.named_parameters():
            gradients[name] = parameter.grad.clone()
        self.steps.append(gradients)


# ---- Gradients do not depend on how a batch is cut up


def count_by_hand(
    batches: list[ParallelBatch], pivots: tuple[str, ...] = ("en", "es")
) -> dict[str, int]:
    """Return target tokens without `<s>`, and ordered pairs of languages times rows."""
    num_tokens = 0
    num_pairs = 0
    for batch in batches:
        num_rows = batch.input_ids.shape[1]
        for _, target in itertools.permutations(batch.languages, 2):
            num_pairs += num_rows
            if target in pivots:
                mask = batch.attention_mask[batch.languages.index(target)]
                num_tokens += int(mask.sum()) - num_rows
    return {"translation": num_tokens, "distance": num_pairs}


def mean_losses(model, batches: list[ParallelBatch]) -> dict[str, torch.Tensor]:
    """Return the mean of every objective over all micro-batches together."""
    counts = count_by_hand(batches)
    means = dict.fromkeys(counts, 0.0)
    for batch in batches:
        for name, output in model(batch).items():
            means[name] = means[name] + output["total"] / counts[name]
    return means


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("languages_per_row", [2, 3])
def test_accumulated_gradient_equals_one_reference_backward(
    accumulation, languages_per_row, tokenizer, tmp_path
):
    gradients = Gradients()
    options = {"max_steps": 1, "gradient_accumulation_steps": accumulation, "max_grad_norm": 0.0}
    options["languages_per_row"] = languages_per_row
    trainer = tiny_trainer(tmp_path, tokenizer, callbacks=[gradients], **options)
    batches = list(itertools.islice(trainer.get_train_dataloader(), accumulation))
    sizes = {batch.input_ids.shape[1] for batch in batches}
    assert accumulation == 1 or len(sizes) > 1  # The micro-batches are unequal.
    reference = copy.deepcopy(trainer.parallel_model)

    trainer.train()

    losses = mean_losses(reference, batches)
    loss = WEIGHTS["translation"] * losses["translation"] + WEIGHTS["distance"] * losses["distance"]
    loss.backward()
    assert len(gradients.steps) == 1
    for name, parameter in reference.model.named_parameters():
        torch.testing.assert_close(gradients.steps[0][name], parameter.grad, rtol=1e-4, atol=1e-7)
    (log,) = logged(trainer)
    assert log["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, mean in losses.items():
        assert log[f"{name}_loss"] == pytest.approx(mean.item(), rel=1e-5)


# ---- What ends a run


def test_max_steps_ends_with_one_last_evaluation_and_checkpoint(tokenizer, tmp_path):
    dev = make_rows(12, seed=9)
    options = {"max_steps": 5, "eval_steps": 2, "save_steps": 2}
    options |= {"save_strategy": "steps", "save_total_limit": None}
    trainer = tiny_trainer(tmp_path, tokenizer, dev=dev, **options)

    trainer.train()

    assert trainer.state.global_step == 5
    assert trainer.progress() == 1.0
    assert values_of(logged(trainer), "step") == [1, 2, 3, 4, 5]
    assert values_of(logged(trainer, "eval_retrieval"), "step") == [2, 4, 5]
    checkpoints = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert checkpoints == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]


# ---- Logs and evaluation

COMPONENTS = [
    "translation_loss",
    "translation_nll",
    "distance_loss",
    "distance_positive",
    "distance_hinge",
]


@pytest.fixture
def folder_with_log(tokenizer, tmp_path) -> Path:
    """The folder of a run that logs at each of four steps and evaluates at two of them."""
    dev = make_rows(12, seed=9)
    tiny_trainer(tmp_path, tokenizer, dev=dev, max_steps=4, eval_steps=2).train()
    return tmp_path


def test_log_lines_hold_speed_losses_and_epoch(folder_with_log):
    entries = read_log(folder_with_log, "loss")
    assert values_of(entries, "step") == [1, 2, 3, 4]
    names = {*COMPONENTS, "epoch", "learning_rate", "grad_norm", "rows", "padding", "data_wait"}
    for entry in entries:
        assert names <= set(entry)
        assert all(map(math.isfinite, entry.values()))
        assert entry["words_per_second"] > 0
        assert entry["tokens_per_second"] > 0
        translation = WEIGHTS["translation"] * entry["translation_loss"]
        distance = WEIGHTS["distance"] * entry["distance_loss"]
        assert entry["loss"] == pytest.approx(translation + distance, rel=1e-4)


def test_evaluations_hold_losses_and_retrieval(folder_with_log):
    entries = read_log(folder_with_log, "eval_retrieval")
    assert values_of(entries, "step") == [2, 4]
    assert "eval_dev_p1_de-en" in entries[0]
    for name in COMPONENTS:
        assert f"eval_dev_{name}" in entries[0]


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_words_and_tokens_of_two_epochs_are_counted(streaming, tokenizer, tmp_path):
    rows = make_rows(40, seed=4, languages=("de", "en", "es"))
    words = Counter()
    tokens = Counter()
    for row in rows:
        for language, text in row.items():
            words[language] += len(text.split())
            tokens[language] += len(tokenizer.encode(text))
    dataset = make_dataset(rows)
    if streaming:
        dataset = dataset.to_iterable_dataset(num_shards=2)
    options = {"max_steps": -1, "num_train_epochs": 2, "languages_per_row": None}
    trainer = tiny_trainer(tmp_path, tokenizer, dataset, **options)

    trainer.train()

    seen = trainer.meter.seen
    assert seen["rows"] == trainer.meter.chunk_counts["rows"] == 2 * 40
    assert seen["source_words"] == 2 * words.total()
    assert seen["target_words"] == 4 * (words["en"] + words["es"])
    assert seen["source_tokens"] == 2 * tokens.total()
    assert seen["target_tokens"] == 4 * (tokens["en"] + tokens["es"] - 2 * 40)
    assert trainer.meter.chunk_counts["truncated_texts"] == 0


@pytest.mark.parametrize("changes", [{}, {"share_embeddings": True}])
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(changes, tokenizer, tmp_path):
    """The run resumes in the middle of an epoch, with dropout, and is equal to the last bit."""
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "save_total_limit": None}
    options |= {"cooldown": 0.5, "languages_per_row": 2}

    def make_trainer(folder: Path) -> TmdeTrainer:
        model = tiny_model(seed=1, dropout=0.2, **changes)
        return tiny_trainer(folder, tokenizer, model=model, **options)

    whole = make_trainer(tmp_path)
    whole.train()
    resumed = make_trainer(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))

    assert 0 < resumed.epochs_done < 1
    assert resumed.meter.seen == whole.meter.seen
    assert_equal_weights(weights_of(whole), weights_of(resumed))
    assert values_of(logged(resumed), "loss") == values_of(logged(whole), "loss")


# ---- Memory and precision


def test_bfloat16_on_a_cpu_learns(tokenizer, tmp_path):
    dtypes = set()
    options = {"bf16": True, "max_steps": 40, "learning_rate": 5e-3, "warmup_steps": 5}
    trainer = tiny_trainer(tmp_path, tokenizer, **options)
    first_layer = trainer.model.model.layers[0]
    first_layer.fc1.register_forward_hook(lambda _, inputs, output: dtypes.add(output.dtype))

    trainer.train()

    assert torch.bfloat16 in dtypes
    for parameter in trainer.parallel_model.parameters():
        assert parameter.dtype == torch.float32
    losses = values_of(logged(trainer), "translation_nll")
    assert all(map(math.isfinite, losses))
    assert fmean(losses[-5:]) < 0.8 * fmean(losses[:5])
