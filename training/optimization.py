"""Steps and learning rates of a run: frozen parameters, parameters with their own rate, and the cooldown."""

from collections.abc import Callable, Sequence

from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from modeling_tmde import TmdeError
from tmde.training.arguments import NO_STEP_LIMIT, TmdeTrainingArguments
from tmde.training.parallel_model import ParallelModel


def limit_steps(args: TmdeTrainingArguments, streaming: bool) -> int | None:
    """The steps that end the run. Without such a limit None, and `args.max_steps` gets the number transformers needs.

    Raises:
        ValueError: The schedule needs a number of steps that is not known, or has no cooldown.
    """
    if args.cooldown and args.lr_scheduler_type == "reduce_lr_on_plateau":
        raise TmdeError(
            f"cooldown={args.cooldown}: expected 0 with lr_scheduler_type=reduce_lr_on_plateau"
        )
    if 0 < args.max_steps < NO_STEP_LIMIT:
        return args.max_steps
    if args.lr_scheduler_type not in (
        "inverse_sqrt",
        "constant",
        "constant_with_warmup",
        "reduce_lr_on_plateau",
    ):
        raise TmdeError(
            f"lr_scheduler_type={args.lr_scheduler_type.value} needs max_steps to be set"
        )
    for name in ("warmup_steps", "eval_steps", "save_steps", "logging_steps"):
        if 0 < (getattr(args, name) or 0) < 1:
            raise TmdeError(
                f"{name}={getattr(args, name)} is a share of all steps and needs max_steps"
            )
    if args.cooldown and streaming and not (args.max_minutes or args.max_cpu_minutes):
        raise TmdeError(
            "cooldown needs max_steps, max_minutes or max_cpu_minutes: streams are of unknown length"
        )
    args.max_steps = NO_STEP_LIMIT
    return None


def freeze(model: nn.Module, prefixes: Sequence[str] | None) -> None:
    """Freezes the parameters whose names begin with one of `prefixes`, such as "model.encoders.de".

    Raises:
        ValueError: A prefix of no parameter, or nothing is left to train.
    """
    named = list(
        model.named_parameters(remove_duplicate=False)
    )  # a tied table by each of its names
    for prefix in prefixes or ():
        found = [parameter for name, parameter in named if f"{name}.".startswith(f"{prefix}.")]
        if not found:
            known = dict.fromkeys(".".join(name.split(".")[:2]) for name, _ in named)
            raise TmdeError(
                f"freeze: found {prefix!r}, expected a prefix of parameters, such as {', '.join(known)}"
            )
        for parameter in found:
            parameter.requires_grad_(False)
    if prefixes and not any(parameter.requires_grad for parameter in model.parameters()):
        raise TmdeError(f"freeze={list(prefixes)} leaves nothing to train")


def own_rates(parallel: ParallelModel, args: TmdeTrainingArguments) -> dict[nn.Parameter, float]:
    """The rates of the encoder's parameters and of the tables, which are the encoder's without a rate of their own."""
    rates = {}
    if args.encoder_learning_rate is not None:
        rates |= dict.fromkeys(parallel.encoder.parameters(), args.encoder_learning_rate)
    if args.embedding_learning_rate is not None:
        rates |= dict.fromkeys(parallel.embedding_parameters(), args.embedding_learning_rate)
    return rates


def cool_down(scheduler: LambdaLR, progress: Callable[[int], float], share: float) -> None:
    """Brings the schedule linearly to 0 over the last `share` of the run, of which a step is at `progress(step)`."""

    def cooled(schedule: Callable[[int], float]) -> Callable[[int], float]:
        return lambda step: schedule(step) * min(1.0, (1.0 - progress(step)) / share)

    scheduler.lr_lambdas = [cooled(schedule) for schedule in scheduler.lr_lambdas]
