"""What may change when a run is resumed, and what of a recipe has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tmde.training.optimization import METRIC_SCHEDULES, OPEN_SCHEDULES
from tmde.training.recipe.schema import SECTIONS, Recipe

# The training keys that a resumed run may change only where its learning rates do not depend on
# them.
LIMITS = ("max_steps", "num_train_epochs", "max_minutes", "max_cpu_minutes")
EVALUATION_TIMES = ("eval_strategy", "eval_steps", "eval_minutes", "eval_delay")
# The training keys that a resumed run may always change. They do not affect what a step computes:
# they say when the run stops early, what it reports, when it saves, and on which hardware it runs.
# Every other key would make a model that no recipe describes: its first steps would be made with
# one value and its last with another, or the optimizer's state of a checkpoint would overrule the
# new value.
CHANGEABLE_KEYS = frozenset(
    {
        "early_stopping_patience",
        # Logs and reports.
        *("logging_strategy", "logging_steps", "logging_first_step", "logging_nan_inf_filter"),
        *("log_level", "log_level_replica", "log_on_each_node", "disable_tqdm"),
        *("report_to", "run_name", "project", "skip_memory_metrics"),
        *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
        # What an evaluation measures chooses the best checkpoint, so it stays.
        "eval_on_start",
        # What is saved, and where.
        *("save_strategy", "save_steps", "save_total_limit", "save_on_each_node"),
        *("load_best_model_at_end", "keep_checkpoints"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision"),
        *("hub_strategy", "hub_always_push"),
        # Devices, processes, workers and memory.
        *("use_cpu", "local_rank", "ddp_backend", "ddp_timeout", "ddp_bucket_cap_mb"),
        *("ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph"),
        *("dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory"),
        "dataloader_multiprocessing_context",
        *("token_cache_dir", "keep_freed_memory", "torch_empty_cache_steps"),
        *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
        *("activation_checkpointing", "activation_checkpointing_kwargs"),
    }
)
# Sections whose values may be the names of files, which have several spellings.
SOURCE_SECTIONS = ("data", "tokenizer", "warm_start", "model", "objectives")


@dataclass(frozen=True)
class SettingChange:
    """A key whose value is not the one that a run was begun with.

    Attributes:
        key: The key, such as `training.learning_rate`.
        before: The value of the run.
        now: The value of the recipe with which it is resumed.
        is_allowed: Whether a resumed run may change the key.
        reason: Why this run may not change a key that others may, as a clause; "" for every other
            change.
    """

    key: str
    before: Any
    now: Any
    is_allowed: bool = False
    reason: str = ""

    @property
    def section(self) -> str:
        """The section of the key."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """The name of the key in its section, without the keys of a mapping below it."""
        return self.key.split(".")[1]


def changed_settings(stored: Recipe, recipe: Recipe) -> list[SettingChange]:
    """Return the keys in which two recipes differ.

    A key that is left out has its default. Two names of the same file are equal.

    Args:
        stored: The recipe with which a run was begun.
        recipe: The recipe with which it is resumed.
    """
    changes = []
    for section in SECTIONS:
        before = getattr(stored, section).values()
        now = getattr(recipe, section).values()
        for change in _differences(section, before, now):
            names_same_file = section in SOURCE_SECTIONS and is_same_source(
                change.before, change.now
            )
            if not names_same_file:
                changes.append(_judge(change, stored))
    return changes


def _judge(change: SettingChange, stored: Recipe) -> SettingChange:
    """Return a change with the answer to whether a resumed run may make it, and why not."""
    reason = ""
    if change.section == "card":  # The model card may say anything.
        is_allowed = True
    elif change.section == "training" and change.name in LIMITS:
        reason = _dependence_on_limits(stored)
        is_allowed = not reason
    elif change.section == "training" and change.name in EVALUATION_TIMES:
        reason = _dependence_on_evaluations(stored)
        is_allowed = not reason
    else:
        is_allowed = change.section == "training" and change.name in CHANGEABLE_KEYS
    return replace(change, is_allowed=is_allowed, reason=reason)


def _dependence_on_limits(recipe: Recipe) -> str:
    """Return why the learning rates of a run depend on its limits; "" if they do not."""
    training = recipe.training
    if training.lr_scheduler_type not in OPEN_SCHEDULES:
        return f"lr_scheduler_type={training.lr_scheduler_type} depends on where the run ends"
    if training.cooldown:
        return f"cooldown={training.cooldown} lowers the learning rate toward the end of the run"
    if 0 < training.warmup_steps < 1:
        return f"warmup_steps={training.warmup_steps} is a share of all steps"
    return ""


def _dependence_on_evaluations(recipe: Recipe) -> str:
    """Return why the learning rates of a run depend on its evaluations; "" if they do not."""
    schedule = recipe.training.lr_scheduler_type
    if schedule in METRIC_SCHEDULES:
        return f"lr_scheduler_type={schedule} follows the evaluations"
    return ""


def _differences(key: str, before: Any, now: Any) -> Iterator[SettingChange]:
    """Yield the differences of two values of a key; of two mappings, those of their keys."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        if before != now:
            yield SettingChange(key, before, now)
        return
    for name in {**before, **now}:
        yield from _differences(f"{key}.{name}", before.get(name), now.get(name))


def is_same_source(old: Any, new: Any) -> bool:
    """Return whether two sources are the same; a file may be named in several ways."""
    return bool(_absolute(old) == _absolute(new))


def _absolute(source: Any) -> Any:
    """Return a source whose files have absolute paths, at any depth."""
    if isinstance(source, str):
        path = Path(source).expanduser()
        return str(path.resolve()) if path.exists() else source
    if isinstance(source, Mapping):
        return {name: _absolute(value) for name, value in source.items()}
    if isinstance(source, list):
        return [_absolute(value) for value in source]
    return source
