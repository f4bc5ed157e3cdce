"""Steps and learning rates of a run: frozen parameters, special rates, and the cooldown."""

from collections.abc import Callable, Sequence

from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers.trainer_utils import SchedulerType

from modeling_tmde import TmdeError
from tmde.training.arguments import NO_STEP_LIMIT, TmdeTrainingArguments
from tmde.training.lora import adapter_parameters
from tmde.training.parallel_model import ParallelModel

# Schedules that do not depend on the number of steps.
OPEN_SCHEDULES = ("inverse_sqrt", "constant", "constant_with_warmup", "reduce_lr_on_plateau")


def limit_steps(args: TmdeTrainingArguments, streaming: bool) -> int | None:
    """Return the number of steps that ends the run; None if something else ends it.

    Args:
        args: The training arguments.
        streaming: Whether the data is a stream, whose length is unknown.

    Raises:
        TmdeError: The schedule needs a number of steps that is not known, or has no cooldown.
    """
    if args.cooldown and args.lr_scheduler_type == "reduce_lr_on_plateau":
        raise TmdeError(
            f"cooldown={args.cooldown}: expected 0 with lr_scheduler_type=reduce_lr_on_plateau"
        )
    if args.max_steps < NO_STEP_LIMIT:
        return args.max_steps
    if args.lr_scheduler_type not in OPEN_SCHEDULES:
        schedule = SchedulerType(args.lr_scheduler_type).value
        raise TmdeError(f"lr_scheduler_type={schedule} needs max_steps to be set")
    for name in ("warmup_steps", "eval_steps", "save_steps", "logging_steps"):
        steps = getattr(args, name)
        if steps is not None and 0 < steps < 1:
            raise TmdeError(f"{name}={steps} is a share of all steps and needs max_steps")
    has_time_limit = args.max_minutes or args.max_cpu_minutes
    if args.cooldown and streaming and not has_time_limit:
        raise TmdeError(
            "cooldown needs max_steps, max_minutes or max_cpu_minutes: streams are of unknown "
            "length"
        )
    return None


def freeze(model: nn.Module, prefixes: Sequence[str] | None) -> None:
    """Freeze the parameters whose names begin with one of the prefixes.

    Args:
        model: The model.
        prefixes: Beginnings of names, such as "model.encoders.de".

    Raises:
        TmdeError: No parameter has a prefix, or nothing is left to train.
    """
    if not prefixes:
        return
    # A table that several modules share counts by each of its names.
    named_parameters = list(model.named_parameters(remove_duplicate=False))
    for prefix in prefixes:
        matching = [
            weight for name, weight in named_parameters if f"{name}.".startswith(f"{prefix}.")
        ]
        if not matching:
            raise TmdeError(
                f"freeze: found {prefix!r}, expected a prefix of parameters, such as "
                f"{', '.join(_example_prefixes(named_parameters))}"
            )
        for parameter in matching:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TmdeError(f"freeze={list(prefixes)} leaves nothing to train")


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
