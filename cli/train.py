"""The command `tmde train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmde.cli.options import DevOption, TrainOption, one_or_all

if TYPE_CHECKING:
    from tmde.training.recipe import Recipe
    from tmde.training.trainer import TmdeTrainer

DEFAULT_OUTPUT = Path("runs/tmde")


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
    warm_start: Annotated[
        str | None,
        typer.Option(
            "--warm-start", help="Begin with this bag or T-MDE model: folder, Hub id, `default`."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            help="Begin with this pretrained encoder, a folder or Hub id, and its tokenizer.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run in the folder.")
    ] = False,
) -> None:
    r"""Train a document embedder on parallel text.

        tmde train small --train my_corpus/ 'languages=\[de, en]' 'pivot_languages=\[en]'

    Recipes: tmde, ctmde, ctmde_p (the thesis's settings), bag (weighted subword vectors, minutes
    on a CPU), small (cT-MDE that begins with such a bag, half an hour on a CPU), base (the same on
    a GPU, larger), adapted (on a pretrained encoder, --encoder), distil (from a teacher's vectors),
    quickstart; docs/train.md has them all. Under `accelerate launch -m tmde train`, the same
    command trains on several processes.
    """
    from accelerate import PartialState

    from tmde.training.run import train_recipe
    from tmde.training.run_folder import RECIPE_NAME, RunCompleteError, check_inputs_stay

    name, overrides = _recipe_and_overrides(recipe, overrides or [], encoder)
    chosen = _read_recipe(name, overrides, train_data, dev_data, warm_start, encoder)
    if resume:
        chosen = _with_data_of_run(chosen, output, overrides, train_data, dev_data)
    is_written_again = Path(name).name == RECIPE_NAME
    if overwrite and not resume and not is_written_again:
        check_inputs_stay(chosen, output, name)
    try:
        trainer = train_recipe(chosen, output, resume=resume, overwrite=overwrite)
    except RunCompleteError as complete:
        typer.echo(str(complete))
        return
    if PartialState().is_main_process:
        _summarize(trainer, output)
    # Without this, a process that ends first is an error for the others.
    PartialState().destroy_process_group()


def _recipe_and_overrides(
    recipe: str | None, overrides: list[str], encoder: str | None
) -> tuple[str, list[str]]:
    """Return the recipe's name and the overrides. With an encoder, the name may be left out."""
    from tmde.training.recipe import RecipeError

    if recipe is None and not encoder:
        raise RecipeError(
            "Name a recipe, such as quickstart, or give --encoder, which has a default recipe"
        )
    if recipe is None:
        return "adapted", overrides
    is_override = "=" in recipe and not Path(recipe).exists()
    if encoder and is_override:
        return "adapted", [recipe, *overrides]
    return recipe, overrides


def _read_recipe(
    name: str,
    overrides: list[str],
    train_data: list[str] | None,
    dev_data: list[str] | None,
    warm_start: str | None,
    encoder: str | None,
) -> Recipe:
    """Return the recipe with all that the command line says."""
    from tmde.training.recipe import load_recipe, with_overrides, with_settings
    from tmde.training.run_data import named_sources
    from tmde.training.starts import begin_with

    recipe = load_recipe(name, overrides, encoder)
    if train_data:
        recipe = with_settings(recipe, {"data.train": one_or_all(train_data)})
    if dev_data:
        recipe = with_settings(recipe, {"data.dev": named_sources(dev_data)})
    if warm_start:
        recipe = begin_with(recipe, warm_start)
        # The start has set keys of its own; those of the user go before them.
        recipe = with_overrides(recipe, overrides)
    return recipe


def _with_data_of_run(
    recipe: Recipe,
    output: Path,
    overrides: list[str],
    train_data: list[str] | None,
    dev_data: list[str] | None,
) -> Recipe:
    """Return the recipe of a run to resume, with the run's data where the user names none."""
    from tmde.training.run_folder import with_stored_data

    names = {override.partition("=")[0].removeprefix("data.") for override in overrides}
    names_train = bool(train_data) or "train" in names
    names_dev = bool(dev_data) or "dev" in names
    return with_stored_data(recipe, output, train=not names_train, dev=not names_dev)


def _summarize(trainer: TmdeTrainer, output: Path) -> None:
    """Print the measures of the best checkpoint."""
    from huggingface_hub.constants import ENDPOINT
    from tabulate import tabulate

    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    rows = []
    for key, value in (results["best"] or {}).items():
        if "_p1_" in key or "cross" in key or "accuracy" in key:
            rows.append((key.removeprefix("eval_"), f"{100 * value:.1f}"))
    if rows:
        typer.echo(tabulate(rows, ["Best checkpoint", "%"]))
    typer.echo(
        f"{results['steps']:,} steps in {results['minutes']:.2f} minutes; the model is in {output}"
    )
    if trainer.hub_model_id is not None:
        typer.echo(f"On the Hub: {ENDPOINT}/{trainer.hub_model_id}")
