"""What `TmdeTrainer` does with each argument of HuggingFace's `TrainingArguments`.

Every argument is honored, or refused by name when it is set.
"""

import dataclasses
from typing import Any, NamedTuple

from transformers import TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from modeling_tmde import TmdeError


class Refusal(NamedTuple):
    """An argument that must have its default.

    Attributes:
        reason: Why the trainer cannot honor it, as a clause.
        instead: What to do, as a clause in the imperative mood.
    """

    reason: str
    instead: str = "omit it"


# ---- Honored arguments, and what they do

# Arguments that affect what a step computes, or which checkpoint is the best. A resumed run keeps
# them: otherwise it would make a model that no recipe describes, or the optimizer's state in the
# checkpoint would overrule the new value.
LASTING: dict[str, str] = {
    # The run
    "output_dir": "Folder of checkpoints, `log.jsonl` and `curves.png`.",
    "num_train_epochs": "Ends the run after this many passes over the data, unless `max_steps` "
    "is set. May be a fraction.",
    "max_steps": "Ends the run after this many optimizer steps, unless `max_minutes` or "
    "`max_cpu_minutes` ends it earlier.",
    "seed": "Seeds the order of the data, dropout and sampling.",
    "data_seed": "Seeds the order of the data, instead of `seed`.",
    "full_determinism": "Restricts torch to deterministic algorithms.",
    # Batches
    "per_device_train_batch_size": "Maximum number of rows in a micro-batch. None, the default "
    "here, limits only tokens (`micro_batch_tokens`).",
    "per_device_eval_batch_size": "Maximum number of dev rows in a micro-batch, for losses. "
    "Retrieval and classification do not depend on batches.",
    "gradient_accumulation_steps": "Number of micro-batches in an optimizer step. Derived if "
    "`batch_tokens` is set.",
    # Optimizer and schedule
    "learning_rate": "Peak learning rate. `embedding_learning_rate` and `encoder_learning_rate` "
    "override it for their parameters.",
    "lr_scheduler_type": "Learning rate schedule. With a time limit, schedules that need the "
    "length of the run follow its progress instead of its steps.",
    "lr_scheduler_kwargs": "Options of the schedule.",
    "warmup_steps": "Number of warmup steps, or their share of all steps if below 1.",
    "optim": "Optimizer.",
    "optim_args": "Options of the optimizer. Refused for optimizers without options in "
    "transformers, such as `adamw_torch_fused`.",
    "optim_target_modules": "Linear layers that GaLore or APOLLO projects. Refused with other "
    "optimizers.",
    "weight_decay": "Weight decay, except for biases and norms.",
    "adam_beta1": "First beta of Adam.",
    "adam_beta2": "Second beta of Adam; 0.98 by default here.",
    "adam_epsilon": "Epsilon of Adam.",
    "max_grad_norm": "Norm to which gradients are clipped; 0 disables clipping.",
    # Precision, memory and speed
    "bf16": 'Computes in bfloat16. `"auto"` does so if it is faster than float32.',
    "fp16": "Computes in float16 with loss scaling. Refused on CPUs.",
    "tf32": "Allows or forbids TF32 in matrix products of float32.",
    "torch_compile": "Compiles the forward pass.",
    "torch_compile_backend": "Backend of `torch_compile`; setting it turns compilation on.",
    "torch_compile_mode": "Mode of `torch_compile`; setting it turns compilation on.",
    # Logs
    "include_num_input_tokens_seen": "Logs the number of encoded tokens over all languages and "
    "processes: `all` with padding, `non_padding` without.",
    # Evaluation
    "eval_strategy": "When to evaluate: by steps, by epochs or never. `eval_minutes` evaluates by "
    "the clock.",
    "eval_steps": "Number of steps between evaluations, or their share of all steps if below 1.",
    "eval_delay": "Steps or epochs before the first evaluation.",
    "metric_for_best_model": "Metric that selects the checkpoint; `mix` by default here.",
    "greater_is_better": "Whether higher is better. Default: yes, unless the metric's name "
    "ends with `loss`, `nll` or `hinge`.",
    # Checkpoints
    "save_only_model": "Omits optimizer, schedule and random states from checkpoints.",
    "restore_callback_states_from_checkpoint": "Restores the states of callbacks on resuming. "
    "Early stopping always resumes its count.",
    # Hub
    "hub_token": "Hub token.",
    # Several processes
    "accelerator_config": "Options of accelerate: `gradient_accumulation_kwargs` with `num_steps` "
    "and `sync_each_batch`, and `use_configured_state`. Those of its data loaders are refused.",
    "fsdp": "Shards the weights over the accelerators.",
    "fsdp_config": 'Options of FSDP, of which `{"version": 2}` is required.',
    # Arguments for scripts, which `Trainer` does not read either
    "do_train": "For scripts that read it.",
    "do_eval": "For scripts that read it. Set to True by an `eval_strategy`.",
    "do_predict": "For scripts that read it.",
    "resume_from_checkpoint": "For scripts that pass it on to `train`.",
}
# Arguments that a resumed run may change: what it reports, when it saves, and on which hardware it
# runs.
CHANGEABLE: dict[str, str] = {
    # The run
    "use_cpu": "Trains on the CPU. Set to True without an accelerator.",
    # Batches
    "dataloader_num_workers": "Number of processes that prepare batches. None, the default here, "
    "is 1 with an accelerator and 0 on a CPU.",
    "dataloader_pin_memory": "Pins batches in host memory, for a CUDA device.",
    "dataloader_prefetch_factor": "Number of micro-batches that each worker prepares ahead; 4 by "
    "default.",
    "dataloader_multiprocessing_context": "How workers are started.",
    # Precision, memory and speed
    "activation_checkpointing": "Recomputes activations in the backward pass, in models whose "
    "architecture supports it.",
    "activation_checkpointing_kwargs": "Options of activation checkpointing.",
    "gradient_checkpointing": "Deprecated name of `activation_checkpointing`.",
    "gradient_checkpointing_kwargs": "Deprecated name of `activation_checkpointing_kwargs`.",
    "torch_empty_cache_steps": "Number of steps between emptying the accelerator's cache.",
    # Logs
    "logging_strategy": "When to log: by steps, by epochs or never.",
    "logging_steps": "Number of steps between logs, or their share of all steps if below 1.",
    "logging_first_step": "Logs the first step too.",
    "logging_nan_inf_filter": "Omits NaN and infinite losses from the logged mean. False by "
    "default here, because it waits for the accelerator at each micro-batch.",
    "log_level": "Log level of the first process.",
    "log_level_replica": "Log level of the other processes.",
    "log_on_each_node": "Whether each node's first process logs at `log_level`.",
    "disable_tqdm": "Hides the progress bar.",
    "report_to": "Integrations that get the logs, such as `tensorboard`.",
    "run_name": "Name of the run in the integrations.",
    "project": "Project of the run, in Trackio.",
    "trackio_space_id": "Trackio Space on the Hub.",
    "trackio_bucket_id": "Trackio bucket on the Hub.",
    "trackio_static_space_id": "Trackio static Space on the Hub.",
    "skip_memory_metrics": "False adds memory use to the metrics of training.",
    # Evaluation
    "eval_on_start": "Evaluates before the first step.",
    "load_best_model_at_end": "Loads the best checkpoint at the end; True by default here.",
    # Checkpoints
    "save_strategy": "When to save: by steps, by epochs, when the metric improves (`best`), or "
    "never.",
    "save_steps": "Number of steps between checkpoints, or their share of all steps if below 1.",
    "save_total_limit": "Maximum number of checkpoints to keep; 2 by default here. The best one "
    "is always kept.",
    "save_on_each_node": "Saves on each node instead of only on the first.",
    # Hub
    "push_to_hub": "Pushes the model to the Hub.",
    "hub_private_repo": "Makes a new repository private.",
    "hub_model_id": "Repository; by default named after the folder of the run.",
    "hub_strategy": "When to push: `end` or `every_save`. Others are refused with `push_to_hub`.",
    "hub_always_push": "Pushes a checkpoint even if the last push has not finished.",
    "hub_revision": "Branch of the repository.",
    # Several processes
    "ddp_find_unused_parameters": "Option of DDP. Default: True for encoders with per-language "
    "parts, False otherwise.",
    "ddp_bucket_cap_mb": "Option of DDP.",
    "ddp_broadcast_buffers": "Option of DDP; False by default here.",
    "ddp_static_graph": "Option of DDP.",
    "ddp_backend": "Backend of the processes, such as `nccl` or `gloo`.",
    "ddp_timeout": "Timeout of the processes in seconds, with accelerators. Refused on CPUs.",
    # Arguments for scripts, which `Trainer` does not read either
    "local_rank": "For launchers that pass it. The environment decides.",
}
HONORED = LASTING | CHANGEABLE
# The arguments of `TmdeTrainingArguments` that a resumed run may change as well.
CHANGEABLE_ADDITIONS = (
    "early_stopping_patience",
    "keep_checkpoints",
    "keep_freed_memory",
    "token_cache_dir",
)

# ---- Refused arguments

EVALUATION_LOOP = "evaluation measures retrieval, losses and tasks, and has no loop over logits"
REFUSED: dict[str, Refusal] = {
    "auto_find_batch_size": Refusal(
        "a smaller batch would silently change the negatives of a sentence",
        "lower micro_batch_tokens or per_device_train_batch_size",
    ),
    "average_tokens_across_devices": Refusal(
        "losses are always divided by their counts over all processes"
    ),
    "label_smoothing_factor": Refusal(
        "smoothing is an option of the translation objective",
        "set objectives.translation.label_smoothing in a recipe, or "
        "TranslationObjective(label_smoothing=...)",
    ),
    "bf16_full_eval": Refusal("evaluation never converts the weights"),
    "fp16_full_eval": Refusal("evaluation never converts the weights"),
    "use_liger_kernel": Refusal("Liger has no kernels for these models"),
    "liger_kernel_config": Refusal("Liger has no kernels for these models"),
    "use_cache": Refusal(
        "training never caches, and generation can always cache", "pass use_cache to model.generate"
    ),
    "neftune_noise_alpha": Refusal(
        "NEFTune needs one embedding table that all texts pass through, and models such as bags "
        "have none",
        "set token_dropout, which hides random tokens from the encoder",
    ),
    "prediction_loss_only": Refusal(EVALUATION_LOOP, "set eval_strategy=no to skip evaluations"),
    "eval_do_concat_batches": Refusal(EVALUATION_LOOP),
    "eval_use_gather_object": Refusal(EVALUATION_LOOP),
    "eval_accumulation_steps": Refusal(EVALUATION_LOOP),
    "include_for_metrics": Refusal(EVALUATION_LOOP),
    "batch_eval_metrics": Refusal(EVALUATION_LOOP),
    "enable_jit_checkpoint": Refusal(
        "it ignores Ctrl-C, and ends training as if it were complete",
        "rely on `tmde train`, or use `with trainer.interruption.heard():`; both save on SIGTERM "
        "and Ctrl-C",
    ),
    "ignore_data_skip": Refusal("a resumed run always continues at its position in the data"),
    "dataloader_drop_last": Refusal(
        "micro-batches are filled by tokens, so none is incomplete; only an optimizer step that "
        "the data can't fill is skipped"
    ),
    "dataloader_persistent_workers": Refusal("the workers live as long as the run anyway"),
    "dataloader_in_order": Refusal("a resumed run could not find its position in the data"),
    "remove_unused_columns": Refusal("batches contain only the columns that the objectives read"),
    "label_names": Refusal("the objectives know their own labels"),
    "train_sampling_strategy": Refusal(
        "rows are always shuffled and packed by length", "set buffer_rows, the rows packed together"
    ),
    "length_column_name": Refusal("lengths are counted in tokens when texts are tokenized"),
    "parallelism_config": Refusal("weights are shared only by DDP or FSDP", "set fsdp"),
    "deepspeed": Refusal("weights are shared only by DDP or FSDP", "set fsdp"),
    "debug": Refusal("its hooks can't read the outputs of the objectives"),
}
# Options of `accelerator_config` that accelerate applies to data loaders and schedules which this
# trainer does not use.
REFUSED_ACCELERATOR_OPTIONS = (
    "split_batches",
    "dispatch_batches",
    "even_batches",
    "use_seedable_sampler",
    "non_blocking",
)
HONORED_ACCUMULATION_OPTIONS = ("num_steps", "sync_each_batch")

# ---- Checks


def field_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a dataclass's field."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def check_supported(args: TrainingArguments) -> None:
    """Check that the trainer honors every argument of transformers that is set.

    Raises:
        TmdeError: Names the argument, its value, why it is refused, and what to do.
    """
    for field in dataclasses.fields(TrainingArguments):
        value = getattr(args, field.name)
        default = field_default(field)
        # transformers replaces some empty values by others, such as "" by [].
        is_default = value == default or (not value and not default)
        if field.name in HONORED or is_default:
            continue
        if field.name in REFUSED:
            refusal = REFUSED[field.name]
            raise TmdeError(
                f"{field.name}={value!r} is not supported: {refusal.reason}; {refusal.instead}"
            )
        raise TmdeError(
            f"{field.name}={value!r} is not supported: tmde does not know this argument of "
            "the installed transformers; omit it"
        )


def check_accelerator_options(config: AcceleratorConfig) -> None:
    """Check that the trainer honors every option of `accelerator_config` that is set.

    Raises:
        TmdeError: Names the option and its value.
    """
    default = AcceleratorConfig()
    for name in REFUSED_ACCELERATOR_OPTIONS:
        value = getattr(config, name)
        if value != getattr(default, name):
            raise TmdeError(
                f"accelerator_config: {name}={value!r} is not supported, because this trainer has "
                "its own data loader; omit it"
            )
    for name, value in (config.gradient_accumulation_kwargs or {}).items():
        if name not in HONORED_ACCUMULATION_OPTIONS:
            raise TmdeError(
                f"accelerator_config: {name}={value!r} in gradient_accumulation_kwargs is not "
                f"supported, expected {' or '.join(HONORED_ACCUMULATION_OPTIONS)}; omit it"
            )
