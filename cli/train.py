"""The command `tmde train`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from tmde.cli.errors import OptionError
from tmde.cli.options import (
    ColumnsOption,
    DevOption,
    QuotingOption,
    TrainOption,
    check_model_name,
    columns_of,
)
from tmde.cli.train_options import check_quoting, user_settings

DEFAULT_OUTPUT = Path("runs/tmde")

_run_option = functools.partial(typer.Option, rich_help_panel="Run")


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a recipe, or the path of a YAML file. With --encoder: adapted by default."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys, such as learning_rate=3e-4."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the run.")
    ] = DEFAULT_OUTPUT,
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    columns: ColumnsOption = None,
    quoting: QuotingOption = None,
    warm_start: Annotated[
        str | None,
        typer.Option(
            "--warm-start",
            help="Begin with this bag or T-MDE model: folder, Hub id, `default`.",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            help="Begin with this pretrained encoder, a folder or Hub id, and its tokenizer.",
        ),
    ] = None,
    lora: Annotated[
        bool,
        typer.Option(
            "--lora",
            help="Train LoRA adapters of the encoder alone, and merge them at the end.",
        ),
    ] = False,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Do not begin with the packaged model.")
    ] = False,
    languages: Annotated[
        str | None, _run_option("--languages", help="Such as de,en. Default: those of the data.")
    ] = None,
    pivots: Annotated[
        str | None,
        _run_option("--pivots", help="Languages to translate into, such as en. Default: en, es."),
    ] = None,
    minutes: Annotated[
        float | None,
        _run_option("--minutes", help="Minutes of training, without those of evaluations."),
    ] = None,
    steps: Annotated[
        int | None,
        _run_option("--steps", min=1, help="Number of steps. It replaces the limit of minutes."),
    ] = None,
    seed: Annotated[int | None, _run_option("--seed", min=0, help="Default: 42.")] = None,
    batch_tokens: Annotated[
        int | None,
        _run_option("--batch-tokens", min=1, help="Tokens of a step, by accumulation."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run in the folder.")
    ] = False,
) -> None:
    r"""Train a document embedder on parallel text.

        tmde train bag --train memory.tsv --minutes 10

    The languages are those of the data. Recipes: bag (weighted subword vectors, 5 minutes on a
    CPU), small (T-MDE trained mainly with InfoNCE, 10 minutes after such a bag), base (the same for
    a GPU, larger), adapted (on a pretrained encoder, --encoder), distil (from a teacher's vectors),
    tmde, ctmde, ctmde_p (T-MDE as in Li's thesis), quickstart; `tmde recipes` lists them all. bag,
    small and base begin with the packaged model if it has the languages. With `torchrun
    --nproc-per-node 2 -m tmde train` or `accelerate launch -m tmde train`, the same command trains
    on several processes.
    """
    words = [word for word in (recipe, *(overrides or ())) if word is not None]
    check_quoting(words)
    if from_scratch and (warm_start or encoder):
        raise OptionError("--from-scratch excludes --warm-start and --encoder; give one of them")
    if lora and not (encoder or warm_start or resume):
        raise OptionError(
            "--lora trains adapters of a pretrained encoder; name one with --encoder, or a model "
            "that has one with --warm-start"
        )
    if not resume:  # A run goes on without the model that it began with.
        check_model_name(warm_start)
        check_model_name(encoder)

    from accelerate import PartialState

    from tmde.cli.train_recipe import TrainCommand, make_recipe
    from tmde.cli.train_summary import summarize
    from tmde.training.resuming import RunCompleteError
    from tmde.training.run import train_recipe
    from tmde.training.run_folder import RECIPE_NAME, check_inputs_stay

    name, overrides = _recipe_and_overrides(recipe, overrides or [], encoder)
    if lora:
        overrides = ["model.lora={}", *overrides]
    settings = user_settings(
        overrides,
        languages=languages,
        pivots=pivots,
        minutes=minutes,
        steps=steps,
        seed=seed,
        batch_tokens=batch_tokens,
        quoting=quoting,
    )
    made = make_recipe(
        TrainCommand(
            name=name,
            settings=settings,
            output=output,
            train_data=train_data,
            dev_data=dev_data,
            columns=columns_of(columns),
            warm_start=warm_start,
            encoder=encoder,
            from_scratch=from_scratch,
            resume=resume,
        )
    )
    is_written_again = Path(name).name == RECIPE_NAME
    if overwrite and not resume and not is_written_again:
        check_inputs_stay(made.recipe, output, name)
    if PartialState().is_main_process:
        for message in made.messages:
            typer.echo(message, err=True)
    try:
        trainer = train_recipe(
            made.recipe, output, resume=resume, overwrite=overwrite, measure_packaged=True
        )
    except RunCompleteError as complete:
        typer.echo(str(complete))
        return
    if PartialState().is_main_process:
        summarize(trainer, output)
    # Without this, a process that ends first is an error for the others.
    PartialState().destroy_process_group()


def _recipe_and_overrides(
    recipe: str | None, overrides: list[str], encoder: str | None
) -> tuple[str, list[str]]:
    """Return the recipe's name and the overrides. With an encoder, the name may be left out."""
    from tmde.training.recipe import RecipeError

    if recipe is None and not encoder:
        raise RecipeError(
            "Name a recipe, such as bag or small, or give --encoder, which has a default recipe"
        )
    if recipe is None:
        return "adapted", overrides
    is_override = "=" in recipe and not Path(recipe).exists()
    if encoder and is_override:
        return "adapted", [recipe, *overrides]
    return recipe, overrides
