"""The command `tmde train`."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError
from tmde.cli.train_options import check_quoting, user_settings

DEFAULT_OUTPUT = Path("runs/tmde")

_run_option = functools.partial(Option, rich_help_panel="Run")


@dataclass(kw_only=True)
class KeyOptions:
    """Options that set recipe keys."""

    languages: Annotated[
        str | None, _run_option(help="Languages, such as de,en. Default: those of the data.")
    ] = None
    pivots: Annotated[
        str | None, _run_option(help="Languages to translate into, such as en. Default: en, es.")
    ] = None
    minutes: Annotated[
        float | None, _run_option(help="Minutes of training, excluding evaluations.")
    ] = None
    steps: Annotated[
        int | None, _run_option(min=1, help="Number of training steps, instead of a time limit.")
    ] = None
    seed: Annotated[int | None, _run_option(min=0, help="Random seed. Default: 42.")] = None
    batch_tokens: Annotated[
        int | None,
        _run_option(min=1, help="Tokens per optimizer step, by gradient accumulation."),
    ] = None
    quoting: common.QuotingOption = None


@dataclass(kw_only=True)
class StartOptions:
    """What determines the recipe of a run in addition to its keys."""

    output: Annotated[Path, Option("-o", "--output", help="Folder of the run.")] = DEFAULT_OUTPUT
    train_data: common.TrainOption = None
    dev_data: common.DevOption = None
    warm_start: Annotated[
        str | None,
        Option(help="Initialize from this bag or T-MDE model: folder, Hub id or `default`."),
    ] = None
    encoder: Annotated[
        str | None,
        Option(
            help="Initialize from this pretrained encoder (folder or Hub id) and use its tokenizer."
        ),
    ] = None
    from_scratch: Annotated[
        bool, Option("--from-scratch", help="Do not initialize from the packaged model.")
    ] = False
    resume: Annotated[bool, Option("--resume", help="Resume the run in the folder.")] = False


@dataclass(kw_only=True)
class TrainOptions(KeyOptions, StartOptions):
    """The options of `tmde train`."""

    recipe: Annotated[
        str | None,
        Argument(help="Name of a recipe, or path to a YAML file. Default with --encoder: adapted."),
    ] = None
    overrides: Annotated[
        list[str] | None,
        Argument(metavar="[KEY=VALUE]...", help="Recipe settings, such as learning_rate=3e-4."),
    ] = None
    columns: common.ColumnsOption = None
    lora: Annotated[
        bool,
        Option(
            "--lora", help="Train only LoRA adapters of the encoder, and merge them at the end."
        ),
    ] = False
    overwrite: Annotated[
        bool, Option("--overwrite", help="Delete an earlier run in the folder.")
    ] = False


@command(TrainOptions)
def train(options: TrainOptions) -> None:
    r"""Train a document embedder on parallel text.

        tmde train bag --train memory.tsv --minutes 10

    Languages are taken from the data. Recipes: bag (weighted subword vectors, 5 minutes on a
    CPU), small (T-MDE trained mainly with InfoNCE, 10 minutes, on top of such a bag), base (the
    same, larger, for a GPU), adapted (fine-tunes a pretrained encoder, --encoder), distil (learns a
    teacher's vectors), tmde, ctmde, ctmde_p (T-MDE as in Li's thesis), quickstart; `tmde recipes`
    lists all. bag, small and base are initialized from the packaged `default` model if it supports
    the languages. To train with several processes, use `torchrun --nproc-per-node 2 -m tmde train`
    or `accelerate launch -m tmde train`.
    """
    words = [word for word in (options.recipe, *(options.overrides or ())) if word is not None]
    check_quoting(words)
    _check_start(options)
    columns = common.columns_of(options.columns)

    from accelerate import PartialState

    from tmde.cli.train_summary import summarize
    from tmde.training.resuming import RunCompleteError
    from tmde.training.run import train_recipe
    from tmde.training.run_folder import RECIPE_NAME, check_inputs_stay
    from tmde.training.run_recipe import RunRequest, make_recipe

    name, overrides = _recipe_and_overrides(
        options.recipe, options.overrides or [], options.encoder
    )
    if options.lora:
        overrides = ["model.lora={}", *overrides]
    settings = user_settings(overrides, **keywords(options, KeyOptions))
    made = make_recipe(
        RunRequest(name=name, settings=settings, columns=columns, **keywords(options, StartOptions))
    )
    output = options.output
    is_written_again = Path(name).name == RECIPE_NAME
    if options.overwrite and not options.resume and not is_written_again:
        recipe_files = [name] if Path(name).is_file() else []
        check_inputs_stay(made.recipe, output, *recipe_files)
    if PartialState().is_main_process:
        for message in made.messages:
            typer.echo(message, err=True)
    try:
        trainer = train_recipe(
            made.recipe,
            output,
            resume=options.resume,
            overwrite=options.overwrite,
            measure_packaged=True,
        )
    except RunCompleteError as complete:
        typer.echo(str(complete))
        return
    if PartialState().is_main_process:
        summarize(trainer, output)
    # Without this, the first process to end causes an error in the others.
    PartialState().destroy_process_group()


def _check_start(options: TrainOptions) -> None:
    """Check the options that name a run's initial model.

    Raises:
        OptionError: Options contradict each other.
        OSError: A model is neither a folder nor a possible Hub id.
    """
    names_model = options.warm_start or options.encoder
    if options.from_scratch and names_model:
        raise OptionError(
            "--from-scratch can't be combined with --warm-start or --encoder; give only one"
        )
    if options.lora and not names_model and not options.resume:
        raise OptionError(
            "--lora trains adapters of a pretrained encoder; set one with --encoder, or a "
            "model that contains one with --warm-start"
        )
    if not options.resume:  # A resumed run doesn't load its initial model.
        common.check_model_name(options.warm_start)
        common.check_model_name(options.encoder)


def _recipe_and_overrides(
    recipe: str | None, overrides: list[str], encoder: str | None
) -> tuple[str, list[str]]:
    """Return the recipe's name and the overrides. With an encoder, the name may be left out."""
    from tmde.training.recipe import RecipeError

    if recipe is None and not encoder:
        raise RecipeError(
            "Give a recipe, such as bag or small, or --encoder, which has a default recipe"
        )
    if recipe is None:
        return "adapted", overrides
    is_override = "=" in recipe and not Path(recipe).exists()
    if encoder and is_override:
        return "adapted", [recipe, *overrides]
    return recipe, overrides
