"""`TmdeTrainer`: gradients, limits, schedules, logs, resuming and precision."""

import copy
import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training.trainers import tiny_trainer
from tmde.training.batches import ParallelBatch
from tmde.training.trainer import TmdeTrainer

WEIGHTS = {"translation": 0.5, "distance": 0.25}


def weights_of(trainer: TmdeTrainer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def logged(trainer: TmdeTrainer, key: str = "loss") -> list[dict]:
    return [entry for entry in trainer.state.log_history if key in entry]


class Gradients(TrainerCallback):
    """Keeps the gradients of every optimizer step."""

    def __init__(self):
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append(
            {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        )


# ---- Gradients do not depend on how a batch is cut up


def count_by_hand(
    batches: list[ParallelBatch], pivots: tuple[str, ...] = ("en", "es")
) -> dict[str, int]:
    """Target tokens without `<s>`, and ordered pairs of languages times rows."""
    tokens = pairs = 0
    for batch in batches:
        for _, target in itertools.permutations(batch.languages, 2):
            pairs += batch.input_ids.shape[1]
            if target in pivots:
                mask = batch.attention_mask[batch.languages.index(target)]
                tokens += int(mask.sum()) - mask.shape[0]
    return {"translation": tokens, "distance": pairs}


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
    assert (
        accumulation == 1 or len({batch.input_ids.shape[1] for batch in batches}) > 1
    )  # unequal micro-batches
    reference = copy.deepcopy(trainer.model)
    trainer.train()
    counts = count_by_hand(batches)
    sums = {"translation": 0.0, "distance": 0.0}
    for batch in batches:
        for name, output in reference(batch).items():
            sums[name] = sums[name] + output["total"]
    loss = sum(WEIGHTS[name] * sums[name] / counts[name] for name in sums)
    loss.backward()
    assert len(gradients.steps) == 1
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(gradients.steps[0][name], parameter.grad, rtol=1e-4, atol=1e-7)
    (log,) = logged(trainer)
    assert log["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name in sums:
        assert log[f"{name}_loss"] == pytest.approx(sums[name].item() / counts[name], rel=1e-5)


# ---- What ends a run


def test_max_steps_ends_with_one_last_evaluation_and_checkpoint(tokenizer, tmp_path):
    saved = {"save_steps": 2, "save_strategy": "steps", "save_total_limit": None}
    trainer = tiny_trainer(
        tmp_path, tokenizer, dev=make_rows(12, seed=9), max_steps=5, eval_steps=2, **saved
    )
    trainer.train()
    assert trainer.state.global_step == 5
    assert [entry["step"] for entry in logged(trainer)] == [1, 2, 3, 4, 5]
    assert [entry["step"] for entry in logged(trainer, "eval_retrieval")] == [2, 4, 5]
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {
        "checkpoint-2",
        "checkpoint-4",
        "checkpoint-5",
    }
    assert trainer.progress() == 1.0


# ---- Logs and evaluation


def test_log_lines_hold_speed_losses_and_epoch(tokenizer, tmp_path):
    trainer = tiny_trainer(
        tmp_path, tokenizer, dev=make_rows(12, seed=9), max_steps=4, eval_steps=2
    )
    trainer.train()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == [1, 2, 3, 4]
    components = {
        "translation_loss",
        "translation_nll",
        "distance_loss",
        "distance_positive",
        "distance_hinge",
    }
    for line in training:
        assert components | {
            "epoch",
            "learning_rate",
            "grad_norm",
            "rows",
            "padding",
            "data_wait",
        } <= set(line)
        assert all(math.isfinite(value) for value in line.values())
        assert line["words_per_second"] > 0
        assert line["tokens_per_second"] > 0
        weighted = sum(weight * line[f"{name}_loss"] for name, weight in WEIGHTS.items())
        assert line["loss"] == pytest.approx(weighted, rel=1e-4)
    evaluations = [line for line in lines if "eval_retrieval" in line]
    assert [line["step"] for line in evaluations] == [2, 4]
    assert {f"eval_dev_{name}" for name in components} | {"eval_dev_p1_de-en"} <= set(
        evaluations[0]
    )


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_words_and_tokens_of_two_epochs_are_counted(streaming, tokenizer, tmp_path):
    rows = make_rows(40, seed=4, languages=("de", "en", "es"))
    dataset = make_dataset(rows).to_iterable_dataset(num_shards=2) if streaming else rows
    trainer = tiny_trainer(
        tmp_path, tokenizer, dataset, max_steps=-1, num_train_epochs=2, languages_per_row=None
    )
    trainer.train()
    seen = trainer.meter.seen
    words = {language: sum(len(row[language].split()) for row in rows) for language in rows[0]}
    tokens = {
        language: sum(len(tokenizer(row[language])["input_ids"]) for row in rows)
        for language in rows[0]
    }
    assert seen["rows"] == trainer.meter.chunk_counts["rows"] == 2 * 40
    assert seen["source_words"] == 2 * sum(words.values())
    assert seen["target_words"] == 4 * (words["en"] + words["es"])
    assert seen["source_tokens"] == 2 * sum(tokens.values())
    assert seen["target_tokens"] == 4 * (tokens["en"] + tokens["es"] - 2 * 40)
    assert trainer.meter.chunk_counts["truncated_texts"] == 0


@pytest.mark.parametrize("changes", [{}, {"share_embeddings": True}])
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(changes, tokenizer, tmp_path):
    """In the middle of an epoch, with dropout, and to the last bit."""
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "save_total_limit": None}
    options |= {"cooldown": 0.5, "languages_per_row": 2}

    def make_trainer(folder: Path) -> TmdeTrainer:
        return tiny_trainer(
            folder, tokenizer, model=tiny_model(seed=1, dropout=0.2, **changes), **options
        )

    whole = make_trainer(tmp_path)
    whole.train()
    resumed = make_trainer(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert 0 < resumed.epochs_done < 1
    assert resumed.meter.seen == whole.meter.seen
    expected = weights_of(whole)
    assert all(torch.equal(value, expected[name]) for name, value in weights_of(resumed).items())
    assert [line["loss"] for line in logged(resumed)] == [line["loss"] for line in logged(whole)]


# ---- Memory and precision


@pytest.mark.slow
def test_bfloat16_on_a_cpu_learns(tokenizer, tmp_path):
    dtypes = []
    trainer = tiny_trainer(
        tmp_path, tokenizer, bf16=True, max_steps=40, learning_rate=5e-3, warmup_steps=5
    )
    trainer.model.model.model.layers[0].fc1.register_forward_hook(
        lambda _, inputs, output: dtypes.append(output.dtype)
    )
    trainer.train()
    assert torch.bfloat16 in dtypes
    assert all(parameter.dtype == torch.float32 for parameter in trainer.model.parameters())
    losses = [entry["translation_nll"] for entry in logged(trainer)]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-5:]) / 5 < 0.8 * sum(losses[:5]) / 5
