"""Training arguments: each of transformers' is honored or refused, and what ours add."""

import dataclasses
import logging
import math
import re
from pathlib import Path

import pytest
import torch
from accelerate import ParallelismConfig
from transformers import Seq2SeqTrainingArguments, TrainingArguments

from modeling_tmde import TmdeError
from tests.conftest import make_rows, tiny_model
from tests.training.logs import entries_with, values_of
from tests.training.trainers import tiny_trainer
from tmde.data import tokens
from tmde.embedding.progress import progress_bar
from tmde.training.argument_table import HONORED, REFUSED
from tmde.training.arguments import TmdeTrainingArguments, as_tmde_arguments
from tmde.training.objectives import DistanceConstraint, TranslationObjective

ONE_EPOCH = {"max_steps": -1, "num_train_epochs": 1}
FIELDS = {field.name for field in dataclasses.fields(TrainingArguments)}


def arguments(folder: Path, **values) -> TmdeTrainingArguments:
    return TmdeTrainingArguments(str(folder), **values)


# ---- The table


def test_the_table_has_every_argument_of_transformers_once():
    assert HONORED.keys() | REFUSED.keys() == FIELDS
    assert not HONORED.keys() & REFUSED.keys()


REFUSED_VALUES = {
    "auto_find_batch_size": True,
    "average_tokens_across_devices": False,
    "label_smoothing_factor": 0.9,
    "bf16_full_eval": True,
    "fp16_full_eval": True,
    "use_liger_kernel": True,
    "liger_kernel_config": {"rms_norm": True},
    "use_cache": True,
    "neftune_noise_alpha": 5.0,
    "prediction_loss_only": True,
    "eval_do_concat_batches": False,
    "eval_use_gather_object": True,
    "eval_accumulation_steps": 2,
    "include_for_metrics": ["loss"],
    "batch_eval_metrics": True,
    "enable_jit_checkpoint": True,
    "ignore_data_skip": True,
    "dataloader_drop_last": True,
    "dataloader_persistent_workers": True,
    "dataloader_in_order": False,
    "remove_unused_columns": False,
    "label_names": ["labels"],
    "train_sampling_strategy": "sequential",
    "length_column_name": "tokens",
    "parallelism_config": ParallelismConfig(),
    "deepspeed": {"zero_optimization": {"stage": 2}},
    "debug": "underflow_overflow",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_argument_is_named_with_its_value_and_the_reason(name, tmp_path):
    value = REFUSED_VALUES[name]
    refusal = REFUSED[name]
    message = f"{name}={value!r} is not supported: {refusal.reason}; {refusal.instead}"
    with pytest.raises(TmdeError, match=f"^{re.escape(message)}$"):
        arguments(tmp_path, **{name: value})


def test_an_argument_that_the_table_lacks_is_refused_when_it_is_set(tmp_path, monkeypatch):
    """A newer transformers may have more arguments than this version of tmde knows."""
    monkeypatch.delitem(HONORED, "project")
    arguments(tmp_path)
    with pytest.raises(TmdeError, match="project='mine' is not supported: tmde does not know"):
        arguments(tmp_path, project="mine")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"split_batches": True}, "accelerator_config: split_batches=True is not supported"),
        ({"dispatch_batches": True}, "dispatch_batches=True"),
        ({"even_batches": False}, "even_batches=False"),
        ({"use_seedable_sampler": False}, "use_seedable_sampler=False"),
        ({"non_blocking": True}, "non_blocking=True"),
        (
            {"gradient_accumulation_kwargs": {"sync_with_dataloader": False}},
            "sync_with_dataloader=False in gradient_accumulation_kwargs",
        ),
    ],
)
def test_options_of_other_data_loaders_are_refused(config, message, tmp_path):
    with pytest.raises(TmdeError, match=re.escape(message)):
        arguments(tmp_path, accelerator_config=config)


# ---- Honored arguments

# Arguments whose effect other tests show.
SHOWN_ELSEWHERE = {
    # tests/training/test_trainer.py
    *("output_dir", "max_steps", "logging_steps", "eval_strategy", "eval_steps", "save_strategy"),
    *("save_steps", "save_total_limit", "gradient_accumulation_steps", "seed", "bf16"),
    *("max_grad_norm",),
    # tests/training/test_train.py, test_recipe.py and test_recipe_runs.py
    *("metric_for_best_model", "greater_is_better", "load_best_model_at_end", "report_to"),
    # tests/training/test_distributed.py
    *("fsdp", "fsdp_config", "ddp_backend"),
    # tests/hub
    *("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy"),
    *("hub_always_push", "hub_revision"),
}
# Arguments that only an accelerator, several nodes, other packages or scripts can show.
NOT_SHOWN = {
    *("fp16", "tf32", "optim_target_modules", "log_on_each_node", "save_on_each_node"),
    *("logging_nan_inf_filter",),
    *("run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
    *("do_train", "do_eval", "do_predict", "resume_from_checkpoint", "local_rank"),
}
SHOWN_HERE = {
    *("num_train_epochs", "warmup_steps", "lr_scheduler_type", "accelerator_config", "use_cpu"),
    *("per_device_train_batch_size", "per_device_eval_batch_size", "logging_strategy"),
    *("include_num_input_tokens_seen", "skip_memory_metrics", "torch_empty_cache_steps"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs", "activation_checkpointing"),
    *("activation_checkpointing_kwargs", "eval_on_start", "eval_delay", "save_only_model"),
    *("full_determinism", "restore_callback_states_from_checkpoint", "torch_compile"),
    *("log_level", "log_level_replica", "logging_first_step"),
    *("disable_tqdm", "ddp_timeout", "optim_args"),
}


def optimizer_option(trainer, name: str):
    return trainer.create_optimizer().param_groups[0][name]


def schedule_factor(trainer, step: int) -> float:
    trainer.create_optimizer()
    return trainer.create_scheduler(trainer.args.max_steps).lr_lambdas[0](step)


def loader_option(trainer, name: str):
    return getattr(trainer.get_train_dataloader(), name)


def ddp_option(trainer, name: str):
    return getattr(trainer.accelerator.ddp_handler, name)


def compile_option(trainer, name: str):
    return getattr(trainer.accelerator.state.dynamo_plugin, name)


# A value of an argument, where a trainer shows its effect, and the effect.
EFFECTS = {
    "learning_rate": (0.25, optimizer_option, "lr", 0.25),
    "weight_decay": (0.5, optimizer_option, "weight_decay", 0.5),
    "adam_beta1": (0.5, optimizer_option, "betas", (0.5, 0.98)),
    "adam_beta2": (0.5, optimizer_option, "betas", (0.9, 0.5)),
    "adam_epsilon": (1e-3, optimizer_option, "eps", 1e-3),
    "optim": ("sgd", optimizer_option, "momentum", 0.0),
    # The default timescale is the warmup of 2 steps: sqrt(16 / (18 + 16 - 2)).
    "lr_scheduler_kwargs": ({"timescale": 16}, schedule_factor, 18, pytest.approx(0.5**0.5)),
    "dataloader_num_workers": (2, loader_option, "num_workers", 2),
    "dataloader_pin_memory": (False, loader_option, "pin_memory", False),
    "ddp_find_unused_parameters": (True, ddp_option, "find_unused_parameters", True),
    "ddp_bucket_cap_mb": (7, ddp_option, "bucket_cap_mb", 7),
    "ddp_broadcast_buffers": (True, ddp_option, "broadcast_buffers", True),
    "ddp_static_graph": (True, ddp_option, "static_graph", True),
    "torch_compile_backend": ("eager", compile_option, "backend", "EAGER"),
    "torch_compile_mode": ("max-autotune", compile_option, "mode", "max-autotune"),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_an_argument_reaches_what_it_is_for(name, tokenizer, tmp_path):
    value, read, option, expected = EFFECTS[name]
    trainer = tiny_trainer(tmp_path, tokenizer, **{name: value})
    assert read(trainer, option) == expected


def test_options_reach_the_optimizer(tokenizer, tmp_path):
    trainer = tiny_trainer(tmp_path, tokenizer, optim="sgd", optim_args="momentum=0.5")
    assert optimizer_option(trainer, "momentum") == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"optim_args": "amsgrad=true"},
            "optim_args='amsgrad=true': optim=adamw_torch_fused takes",
        ),
        ({"optim": "adafactor", "optim_args": "a=1"}, "optim_args='a=1': optim=adafactor takes no"),
        ({"optim_target_modules": ["fc1"]}, "optim_target_modules=.*: optim=adamw_torch_fused has"),
    ],
)
def test_options_that_an_optimizer_would_ignore_are_refused(options, message, tmp_path):
    with pytest.raises(TmdeError, match=message):
        arguments(tmp_path, **options)


LOADER_EFFECTS = {
    "data_seed": (3, lambda loader: loader.dataset.seed, 3),
    "dataloader_prefetch_factor": (7, lambda loader: loader.prefetch_factor, 7),
    "dataloader_multiprocessing_context": (
        "spawn",
        lambda loader: loader.multiprocessing_context.get_start_method(),
        "spawn",
    ),
}


@pytest.mark.parametrize("name", LOADER_EFFECTS)
def test_an_argument_reaches_the_loader_and_its_workers(name, tokenizer, tmp_path):
    value, read, expected = LOADER_EFFECTS[name]
    trainer = tiny_trainer(tmp_path, tokenizer, dataloader_num_workers=1, **{name: value})
    assert read(trainer.get_train_dataloader()) == expected


def test_every_honored_argument_has_a_test():
    shown = EFFECTS.keys() | LOADER_EFFECTS.keys() | SHOWN_HERE | SHOWN_ELSEWHERE | NOT_SHOWN
    assert HONORED.keys() == shown


def test_arguments_of_logs_and_memory(tokenizer, tmp_path, monkeypatch):
    """One run of four steps shows several arguments."""
    emptied = []
    is_hidden = []

    def make_bar(**options):
        is_hidden.append(options["disable"])
        return progress_bar(**options)

    monkeypatch.setattr("tmde.training.callbacks.progress_bar", make_bar)
    monkeypatch.setattr("transformers.trainer.clear_device_cache", lambda: emptied.append(1))
    trainer = tiny_trainer(
        tmp_path,
        tokenizer,
        logging_steps=3,
        logging_first_step=True,
        include_num_input_tokens_seen="non_padding",
        skip_memory_metrics=False,
        torch_empty_cache_steps=2,
        full_determinism=True,
        log_level="error",
        log_level_replica="critical",
        disable_tqdm=False,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}},
    )
    try:
        assert torch.are_deterministic_algorithms_enabled()
        result = trainer.train()
    finally:
        torch.use_deterministic_algorithms(False)

    entries = entries_with(trainer.state.log_history, "loss")
    assert values_of(entries, "step") == [1, 3, 4]
    assert values_of(entries, "num_input_tokens_seen")[-1] == trainer.meter.seen["source_tokens"]
    assert "train_mem_cpu_alloc_delta" in result.metrics
    assert len(emptied) == 2
    assert trainer.args.get_process_log_level() == logging.ERROR
    assert is_hidden == [False]
    assert trainer.parallel_model.model.is_activation_checkpointing
    assert trainer.accelerator.gradient_state.plugin_kwargs["sync_each_batch"]


def test_arguments_of_evaluations_and_checkpoints(tokenizer, tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        tokenizer,
        dev=make_rows(12, seed=9),
        eval_on_start=True,
        eval_delay=3,
        eval_steps=1,
        logging_strategy="no",
        save_strategy="best",
        save_only_model=True,
        save_total_limit=None,
        include_num_input_tokens_seen="all",
    )

    trainer.train()

    evaluations = entries_with(trainer.state.log_history, "eval_mix")
    assert values_of(evaluations, "step") == [0, 3, 4]
    assert trainer.state.num_input_tokens_seen == trainer.meter.seen["padded_tokens"]
    scores = dict(
        zip(values_of(evaluations, "step"), values_of(evaluations, "eval_mix"), strict=True)
    )
    expected = {"checkpoint-3"}
    if scores[4] > scores[3]:
        expected.add("checkpoint-4")
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == expected
    assert not list(tmp_path.glob("*/optimizer.pt"))


@pytest.mark.nightly
def test_a_compiled_model_trains_as_another(tokenizer, tmp_path):
    losses = []
    for options in ({}, {"torch_compile": True, "torch_compile_backend": "eager"}):
        trainer = tiny_trainer(tmp_path, tokenizer, max_steps=2, **options)
        trainer.train()
        losses.append(values_of(entries_with(trainer.state.log_history, "loss"), "loss"))
    assert losses[1] == pytest.approx(losses[0])


# ---- Rows of a micro-batch


def test_a_micro_batch_has_no_more_rows_than_the_batch_size(tokenizer, tmp_path):
    trainer = tiny_trainer(tmp_path, tokenizer, per_device_train_batch_size=2, **ONE_EPOCH)
    sizes = {batch.sizes.rows for batch in trainer.get_train_dataloader()}
    assert max(sizes) == 2


def test_dev_rows_are_measured_in_batches_of_their_own_size(tokenizer, tmp_path):
    """With one row a batch there are no negatives, and the hinge is 0."""
    dev = make_rows(12, seed=9)
    options = {"max_steps": 1, "metric_for_best_model": "mix"}
    hinges = []
    for size in (None, 1):
        trainer = tiny_trainer(
            tmp_path, tokenizer, dev=dev, per_device_eval_batch_size=size, **options
        )
        hinges.append(trainer.evaluate()["eval_dev_distance_hinge"])
    assert hinges[0] > 0
    assert hinges[1] == 0


def test_without_a_batch_size_the_token_budget_is_the_only_limit(tokenizer, tmp_path):
    """transformers needs a number. Texts of two tokens are the shortest that there are."""
    args = arguments(tmp_path, micro_batch_tokens=400)
    assert args.per_device_train_batch_size is None
    assert args.train_batch_size == args.eval_batch_size == 200
    trainer = tiny_trainer(tmp_path, tokenizer, micro_batch_tokens=400)
    assert trainer.args.per_device_train_batch_size == 200


def test_accumulation_and_tokens_of_a_step_must_agree(tmp_path):
    args = arguments(tmp_path, batch_tokens=4000, micro_batch_tokens=1000)
    assert args.gradient_accumulation_steps == 4
    assert dataclasses.replace(args, seed=1).gradient_accumulation_steps == 4
    with pytest.raises(TmdeError, match="gradient_accumulation_steps=3: batch_tokens=4000.*gives"):
        arguments(
            tmp_path, batch_tokens=4000, micro_batch_tokens=1000, gradient_accumulation_steps=3
        )


# ---- Device and precision


@pytest.fixture
def no_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


def test_bf16_needs_no_use_cpu(no_accelerator, tmp_path):
    args = arguments(tmp_path, bf16=True)
    assert args.use_cpu
    assert args.device.type == "cpu"


@pytest.mark.parametrize("is_fast", [True, False])
def test_auto_is_bf16_where_that_is_faster(is_fast, no_accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr("tmde.training.arguments.has_fast_bf16", lambda use_cpu: is_fast)
    args = arguments(tmp_path, bf16="auto")
    assert args.bf16 is is_fast
    assert args.mixed_precision == ("bf16" if is_fast else "no")


def test_another_word_for_bf16_is_refused(tmp_path):
    with pytest.raises(TmdeError, match="bf16: found 'yes', expected true, false or auto"):
        arguments(tmp_path, bf16="yes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fp16": True}, "fp16=True needs an accelerator; set bf16 instead"),
        ({"ddp_timeout": 60}, "ddp_timeout=60 has no effect on CPUs"),
        ({"dataloader_prefetch_factor": 2}, "needs workers.*set dataloader_num_workers"),
    ],
)
def test_what_has_no_effect_on_a_cpu_is_refused(no_accelerator, options, message, tmp_path):
    with pytest.raises(TmdeError, match=message):
        arguments(tmp_path, **options)


# ---- Other kinds of arguments


def test_arguments_of_transformers_keep_their_values(tmp_path):
    given = TrainingArguments(str(tmp_path), learning_rate=0.25, use_cpu=True, bf16=True)
    args = as_tmde_arguments(given)
    assert isinstance(args, TmdeTrainingArguments)
    for field in dataclasses.fields(TrainingArguments):
        value = getattr(given, field.name)
        # These have no default in transformers.
        chosen = ("max_steps", "metric_for_best_model", "greater_is_better", "eval_steps")
        if field.name not in chosen:
            assert getattr(args, field.name) == value, field.name
    assert args.per_device_train_batch_size == 8
    assert args.micro_batch_tokens == 4096
    assert as_tmde_arguments(args) is args


def test_arguments_of_transformers_are_refused_as_ours_are(tmp_path):
    given = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True)
    with pytest.raises(TmdeError, match="label_smoothing_factor=0.1 is not supported"):
        as_tmde_arguments(given)


def test_arguments_of_another_trainer_are_refused_if_they_are_set(tmp_path):
    as_tmde_arguments(Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True))
    given = Seq2SeqTrainingArguments(str(tmp_path), predict_with_generate=True, use_cpu=True)
    with pytest.raises(TmdeError, match="predict_with_generate=True of Seq2SeqTrainingArguments"):
        as_tmde_arguments(given)


def test_a_trainer_takes_arguments_of_transformers(tokenizer, tmp_path):
    given = TrainingArguments(str(tmp_path), use_cpu=True, **ONE_EPOCH)
    ours = tiny_trainer(tmp_path, tokenizer)
    trainer = type(ours)(ours.model, given, ours.train_dataset, processing_class=tokenizer)
    assert trainer.args.cooldown == 0
    assert trainer.args.lr_scheduler_type == "linear"
    assert max(batch.sizes.rows for batch in trainer.get_train_dataloader()) == 8


# ---- Steps and schedules


def rates_of(trainer) -> list[float]:
    return values_of(entries_with(trainer.state.log_history, "loss"), "learning_rate")


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("epochs", [1.0, 1.5])
def test_the_steps_of_epochs_are_counted_before_training(epochs, accumulation, tokenizer, tmp_path):
    """120 rows make seven batches; a linear schedule ends with the last step."""
    trainer = tiny_trainer(
        tmp_path,
        tokenizer,
        max_steps=-1,
        num_train_epochs=epochs,
        lr_scheduler_type="linear",
        warmup_steps=0,
        learning_rate=1.0,
        gradient_accumulation_steps=accumulation,
        buffer_rows=50,
        logging_steps=0.5,
        optim="sgd",
        max_grad_norm=1e-9,
    )
    trainer.train()

    steps = trainer.state.global_step
    assert trainer.state.max_steps == steps
    assert trainer.lr_scheduler.get_last_lr()[0] == 0
    assert trainer.state.logging_steps == math.ceil(0.5 * steps)
    logged_steps = values_of(entries_with(trainer.state.log_history, "loss"), "step")
    assert rates_of(trainer) == pytest.approx([1 - (step - 1) / steps for step in logged_steps])


@pytest.mark.parametrize("world_size", [1, 2])
def test_counted_steps_are_those_of_the_loader(world_size, tokenizer, tmp_path):
    dataset = tiny_trainer(tmp_path, tokenizer).get_train_dataloader().dataset
    dataset = dataclasses.replace(dataset, world_size=world_size, epochs=2)
    num_batches = len(list(dataset))
    assert dataset.count_steps(1, 2.0) == num_batches
    assert dataset.count_steps(3, 2.0) == num_batches // 3


def test_a_warmup_longer_than_the_run_is_warned_of(tokenizer, tmp_path, caplog):
    logger = logging.getLogger("tmde.training")
    logger.addHandler(caplog.handler)
    try:
        options = {"lr_scheduler_type": "linear", "warmup_steps": 4000}
        trainer = tiny_trainer(tmp_path, tokenizer, **options)
        trainer.create_optimizer()
        trainer.create_scheduler(4)
    finally:
        logger.removeHandler(caplog.handler)
    assert "warmup_steps=4000: the run ends after 4 steps" in caplog.text


LINEAR = [0.0, 0.45, 0.8, 0.6, 0.2, 0.0]
SHARE_OF_WARMUP = [0.0, 0.5, 1.0, 0.75, 0.25, 0.0]
COSINE = [(1 + math.cos(math.pi * done)) / 2 for done in (0.0, 0.1, 0.2, 0.4, 0.8, 1.0)]

LAST = 1e-7 / 5e-4  # The last rate of a polynomial schedule, as a share of the first.
POLYNOMIAL = [LAST + (1 - LAST) * left for left in (1.0, 0.9, 0.8, 0.6, 0.2, 0.0)]


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("linear", 2, LINEAR),
        ("linear", 0.2, SHARE_OF_WARMUP),
        ("cosine", 0, COSINE),
        ("polynomial", 0, POLYNOMIAL),
    ],
)
def test_with_a_time_limit_schedules_follow_the_progress(
    schedule, warmup, expected, tokenizer, tmp_path
):
    """Six steps, after which 0, 10, 20, 40, 80 and 100% of the time are over."""
    options = {"max_steps": -1, "max_minutes": 5, "num_train_epochs": 100, "warmup_steps": warmup}
    trainer = tiny_trainer(tmp_path, tokenizer, lr_scheduler_type=schedule, **options)
    optimizer = trainer.create_optimizer()
    factors = []
    for minutes in (0.0, 0.5, 1.0, 2.0, 4.0, 5.0):
        trainer.meter.elapsed = 60 * minutes
        if factors:
            optimizer.step()
            trainer.lr_scheduler.step()
        else:
            trainer.create_scheduler(trainer.args.max_steps)
        factors.append(optimizer.param_groups[0]["lr"] / trainer.args.learning_rate)
    assert factors == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "streaming", "message"),
    [
        (
            {"lr_scheduler_type": "cosine"},
            True,
            "cosine needs the length of the run",
        ),
        ({"logging_steps": 0.1}, True, "logging_steps=0.1 is a share.*a stream leaves open"),
        ({"cooldown": 0.1}, True, "cooldown needs max_steps"),
        ({"save_steps": 0.1, "max_minutes": 1}, False, "eval_steps=0.1 is a share.*max_minutes"),
        ({"warmup_steps": 0.1, "max_minutes": 1}, False, "warmup_steps=0.1 is a share"),
        (
            {
                "lr_scheduler_type": "warmup_stable_decay",
                "lr_scheduler_kwargs": {"num_decay_steps": 2},
                "max_minutes": 1,
            },
            False,
            "warmup_stable_decay needs the number of steps.*cooldown",
        ),
        ({"lr_scheduler_type": "greedy", "cooldown": 0.1}, False, "cooldown=0.1: expected 0"),
    ],
)
def test_a_schedule_that_needs_an_unknown_number_of_steps_is_refused(
    options, streaming, message, tokenizer, tmp_path
):
    rows = tiny_trainer(tmp_path, tokenizer).train_dataset
    if streaming:
        rows = rows.to_iterable_dataset()
    dev = {}
    if options.get("lr_scheduler_type") == "greedy":
        dev = {"dev": make_rows(12, seed=9)}
    with pytest.raises(TmdeError, match=message):
        tiny_trainer(tmp_path, tokenizer, rows, max_steps=-1, **dev, **options)


@pytest.mark.parametrize("epochs", [0, -1.0])
def test_a_run_of_no_epochs_is_refused(epochs, tmp_path):
    with pytest.raises(TmdeError, match=r"num_train_epochs=.* must lie in \(0, inf\)"):
        TmdeTrainingArguments(str(tmp_path), num_train_epochs=epochs)


# ---- What a run reports


def test_rows_of_parallel_text_are_the_samples_of_a_run(tokenizer, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "include_num_input_tokens_seen": "all"}
    trainer = tiny_trainer(tmp_path, tokenizer, **options)
    metrics = trainer.train().metrics
    rows = metrics["train_samples_per_second"] * metrics["train_runtime"]
    assert rows == pytest.approx(trainer.meter.seen["rows"], rel=0.02)

    resumed = tiny_trainer(tmp_path, tokenizer, **options)
    checkpoint = str(tmp_path / "checkpoint-2")
    metrics = resumed.train(resume_from_checkpoint=checkpoint).metrics
    rows = metrics["train_samples_per_second"] * metrics["train_runtime"]
    rows_before = entries_with(trainer.state.log_history, "rows")[1]["rows"]
    assert rows == pytest.approx(trainer.meter.seen["rows"] - rows_before, rel=0.02)
    assert resumed.state.num_input_tokens_seen == trainer.state.num_input_tokens_seen


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("logging_steps", [1, 3])
def test_the_logged_loss_is_the_weighted_sum_of_its_parts(
    logging_steps, accumulation, tokenizer, tmp_path
):
    """Losses of sentences differ by their length, and batches of short ones have more rows."""
    objectives = {
        "translation": TranslationObjective(reduction="sum"),
        "distance": DistanceConstraint(),
    }
    trainer = tiny_trainer(
        tmp_path,
        tokenizer,
        objectives=objectives,
        gradient_accumulation_steps=accumulation,
        logging_steps=logging_steps,
        max_steps=3,
    )

    trainer.train()

    entries = entries_with(trainer.state.log_history, "loss")
    assert len(entries) == 3 // logging_steps
    for entry in entries:
        parts = 0.5 * entry["translation_loss"] + 0.25 * entry["distance_loss"]
        assert entry["loss"] == pytest.approx(parts, rel=1e-5)


def test_the_logged_loss_of_both_bands_is_that_of_the_parts(tokenizer, tmp_path):
    model = tiny_model(seed=1, bottleneck="dual", bottleneck_loss_weight=0.3)
    objectives = {"translation": TranslationObjective()}
    trainer = tiny_trainer(tmp_path, tokenizer, model=model, objectives=objectives, max_steps=1)
    trainer.train()
    (entry,) = entries_with(trainer.state.log_history, "loss")
    assert entry["loss"] == pytest.approx(0.5 * entry["translation_loss"], rel=1e-5)


@pytest.mark.parametrize("folder", [None, "cache"])
def test_tokens_are_made_once(folder, tokenizer, tmp_path, monkeypatch):
    calls = []
    make_tokens = tokens.tokenize

    def count_rows(table, *args):
        calls.append(table.num_rows)
        return make_tokens(table, *args)

    monkeypatch.setattr(tokens, "tokenize", count_rows)
    cache = None if folder is None else str(tmp_path / folder)
    trainer = tiny_trainer(tmp_path, tokenizer, token_cache_dir=cache, max_steps=1)
    trainer.train()
    trainer.get_train_dataloader()
    assert sum(calls) == 120
