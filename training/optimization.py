"""Steps and learning rates of a run: frozen parameters, special rates, and schedules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler
from transformers.trainer_utils import SchedulerType
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.training.arguments import NO_STEP_LIMIT, TmdeTrainingArguments
from tmde.training.lora import adapter_parameters
from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")

# Schedules that follow the metric of the evaluations.
METRIC_SCHEDULES = ("reduce_lr_on_plateau", "greedy")
# Schedules that do not depend on the number of steps.
OPEN_SCHEDULES = ("inverse_sqrt", "constant", "constant_with_warmup", *METRIC_SCHEDULES)
# Arguments that count steps, or with a value below 1 are a share of all steps.
STEP_COUNTS = ("warmup_steps", "eval_steps", "save_steps", "logging_steps")
# The length of a schedule that follows the progress of a run.
PROGRESS_STEPS = 1_000_000

# ---- The number of steps


def limit_steps(args: TmdeTrainingArguments, streaming: bool) -> int | None:
    """Return the number of steps that ends the run; None if something else ends it.

    Args:
        args: The training arguments.
        streaming: Whether the data is a stream, whose length is unknown.

    Raises:
        TmdeError: The schedule or a share of all steps needs a number of steps that cannot be
            known, or the schedule has no cooldown.
    """
    if args.cooldown and args.lr_scheduler_type in METRIC_SCHEDULES:
        raise TmdeError(
            f"cooldown={args.cooldown}: expected 0 with lr_scheduler_type={_schedule_name(args)}"
        )
    if args.lr_scheduler_type == SchedulerType.WARMUP_STABLE_DECAY and follows_progress(args):
        raise TmdeError(
            "lr_scheduler_type=warmup_stable_decay needs the number of steps, which is "
            "unknown with a time limit: set lr_scheduler_type=constant_with_warmup and "
            "cooldown, the share of the run in which the rate falls to 0"
        )
    if args.max_steps < NO_STEP_LIMIT:
        return args.max_steps
    if _has_time_limit(args):
        _refuse_shares(args, "max_minutes and max_cpu_minutes leave open")
    elif streaming:
        if args.lr_scheduler_type not in OPEN_SCHEDULES:
            raise TmdeError(
                f"lr_scheduler_type={_schedule_name(args)} needs the length of the run, which "
                "is unknown for a stream: set max_steps, max_minutes or max_cpu_minutes"
            )
        if args.cooldown:
            raise TmdeError(
                "cooldown needs max_steps, max_minutes or max_cpu_minutes, because the "
                "length of a stream is unknown"
            )
        _refuse_shares(args, "a stream leaves open")
    return None


def needs_step_count(args: TmdeTrainingArguments) -> bool:
    """Return whether the steps of all epochs must be counted before the run begins."""
    if args.max_steps < NO_STEP_LIMIT or _has_time_limit(args):
        return False
    return args.lr_scheduler_type not in OPEN_SCHEDULES or bool(_shares(args))


def _has_time_limit(args: TmdeTrainingArguments) -> bool:
    return bool(args.max_minutes or args.max_cpu_minutes)


def _shares(args: TmdeTrainingArguments) -> list[str]:
    """Return the arguments that are a share of all steps."""
    shares = []
    for name in STEP_COUNTS:
        steps = getattr(args, name)
        if steps is not None and 0 < steps < 1:
            shares.append(name)
    return shares


def _refuse_shares(args: TmdeTrainingArguments, reason: str) -> None:
    """Refuse shares of all steps, except a warmup that follows the progress of the run."""
    for name in _shares(args):
        if name == "warmup_steps" and follows_progress(args):
            continue
        raise TmdeError(
            f"{name}={getattr(args, name)} is a share of all steps, whose number {reason}; "
            "give a number of steps, or set max_steps"
        )


def _schedule_name(args: TmdeTrainingArguments) -> str:
    return SchedulerType(args.lr_scheduler_type).value


# ---- Parameters


@contextmanager
def frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Freeze parameters within this context; those that were trainable are again after it."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def untrained_parameters(parallel: ParallelModel, args: TmdeTrainingArguments) -> set[nn.Parameter]:
    """Return the parameters that stay as they are in a run.

    They belong to parts that no objective uses, are named by `freeze`, or have the learning rate 0.

    Raises:
        TmdeError: No parameter has a name that `freeze` describes, or nothing is left to train.
    """
    untrained = set(parallel.unused_parameters)
    untrained.update(parameters_below(parallel.model, args.freeze or ()))
    untrained.update(
        parameter for parameter, rate in special_rates(parallel, args).items() if rate == 0
    )
    trainable = {weight for weight in parallel.model.parameters() if weight.requires_grad}
    if trainable <= untrained:
        raise TmdeError(
            f"freeze={args.freeze}, embedding_learning_rate={args.embedding_learning_rate} and "
            f"encoder_learning_rate={args.encoder_learning_rate} leave nothing to train"
        )
    return untrained


def parameters_below(model: nn.Module, prefixes: Sequence[str]) -> list[nn.Parameter]:
    """Return the parameters whose names begin with one of the prefixes.

    Args:
        model: The model.
        prefixes: Beginnings of names, such as "model.encoders.de".

    Raises:
        TmdeError: No parameter has a prefix.
    """
    # A table that several modules share counts by each of its names.
    named_parameters = list(model.named_parameters(remove_duplicate=False))
    parameters = []
    for prefix in prefixes:
        matching = [
            weight for name, weight in named_parameters if f"{name}.".startswith(f"{prefix}.")
        ]
        if not matching:
            raise TmdeError(
                f"freeze: found {prefix!r}, expected a prefix of parameter names, such as "
                f"{', '.join(_example_prefixes(named_parameters))}"
            )
        parameters += matching
    return parameters


def _example_prefixes(named_parameters: Sequence[tuple[str, nn.Parameter]]) -> list[str]:
    """Return the first two components of all names, each once."""
    prefixes = [".".join(name.split(".")[:2]) for name, _ in named_parameters]
    return list(dict.fromkeys(prefixes))


def special_rates(
    parallel: ParallelModel, args: TmdeTrainingArguments
) -> dict[nn.Parameter, float]:
    """Return the learning rates of the parameters that do not learn at `learning_rate`.

    These are the parameters of the encoder (`encoder_learning_rate`) and the embedding tables
    (`embedding_learning_rate`; without it, those of the encoder learn at the encoder's rate).
    Adapters are new parameters, which learn at `learning_rate`.
    """
    rates: dict[nn.Parameter, float] = {}
    if args.encoder_learning_rate is not None:
        rates |= dict.fromkeys(parallel.encoder.parameters(), args.encoder_learning_rate)
        for parameter in adapter_parameters(parallel.encoder):
            del rates[parameter]
    if args.embedding_learning_rate is not None:
        rates |= dict.fromkeys(parallel.embedding_parameters(), args.embedding_learning_rate)
    return rates


# ---- Schedules


def follows_progress(args: TmdeTrainingArguments) -> bool:
    """Return whether the schedule follows the progress of the run instead of its steps.

    These are the schedules that end, in runs that a time limit may end before their last step.
    """
    return _has_time_limit(args) and args.lr_scheduler_type not in OPEN_SCHEDULES


def warn_of_long_warmup(args: TmdeTrainingArguments, num_steps: int) -> None:
    """Warn if the run ends before its warmup does, so that a schedule never reaches its peak."""
    warmup_steps = args.get_warmup_steps(num_steps)
    if args.lr_scheduler_type not in OPEN_SCHEDULES and warmup_steps >= num_steps:
        logger.warning(
            f"warmup_steps={warmup_steps}: the run ends after {num_steps} steps, so the learning "
            "rate never reaches learning_rate; set a share of all steps, such as warmup_steps=0.1"
        )


def progress_schedule(
    args: TmdeTrainingArguments, optimizer: Optimizer, progress: Callable[[int], float]
) -> LambdaLR:
    """Return the schedule of the arguments, which ends where the run ends.

    A warmup below 1 is a share of the run. Another one lasts so many steps, in which the rate
    rises to what the schedule gives.

    Args:
        args: The training arguments.
        optimizer: The optimizer.
        progress: Returns the share of the run that is done at a step.
    """
    is_share = args.warmup_steps < 1
    options = args.lr_scheduler_kwargs
    assert not isinstance(options, str)  # The arguments have parsed it.
    scheduler = get_scheduler(
        args.lr_scheduler_type,
        optimizer,
        num_warmup_steps=args.get_warmup_steps(PROGRESS_STEPS) if is_share else 0,
        num_training_steps=PROGRESS_STEPS,
        scheduler_specific_kwargs=options,
    )
    warmup_steps = 0 if is_share else args.warmup_steps
    schedules = [
        _followed_progress(schedule, progress, warmup_steps) for schedule in scheduler.lr_lambdas
    ]
    return LambdaLR(optimizer, schedules)


def _followed_progress(
    schedule: Callable[[float], float], progress: Callable[[int], float], warmup_steps: float
) -> Callable[[int], float]:
    def schedule_of_progress(step: int) -> float:
        factor = schedule(progress(step) * PROGRESS_STEPS)
        if step < warmup_steps:
            return factor * step / warmup_steps
        return factor

    return schedule_of_progress


def cool_down(scheduler: LambdaLR, progress: Callable[[int], float], share: float) -> None:
    """Bring the schedule linearly to 0 over the end of the run.

    Args:
        scheduler: The schedule, which is changed in place.
        progress: Returns the share of the run that is done at a step.
        share: The last share of the run in which the rate falls.
    """
    scheduler.lr_lambdas = [_cooled(schedule, progress, share) for schedule in scheduler.lr_lambdas]


def _cooled(
    schedule: Callable[[int], float], progress: Callable[[int], float], share: float
) -> Callable[[int], float]:
    def cooled_schedule(step: int) -> float:
        remaining = 1.0 - progress(step)
        return schedule(step) * min(1.0, remaining / share)

    return cooled_schedule
