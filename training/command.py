"""The command `tmde train`; torch and the rest are imported when it runs, so that its help need not wait for them."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of a recipe, or the path of a YAML file. With --encoder: adapted by default."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys, such as learning_rate=3e-4.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")] = Path("runs/tmde"),
    train_data: Annotated[
        list[str] | None,
        typer.Option("--train", help="Parallel text: file, folder, glob, Hub id or 'sample'."),
    ] = None,
    dev_data: Annotated[
        list[str] | None, typer.Option("--dev", help="Held-out rows, [NAME=]SOURCE. Repeatable.")
    ] = None,
    warm_start: Annotated[
        str | None, typer.Option("--warm-start", help="Begin with this bag or T-MDE model, a folder or Hub id.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Begin with this pretrained encoder, a folder or Hub id, and its tokenizer."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier run in the folder.")] = False,
) -> None:
    """Train a document embedder on parallel text.

        tmde train small --train my_corpus/ -o runs/mine 'languages=\\[de, en]' 'pivot_languages=\\[en]'

    Recipes: tmde, ctmde, ctmde_p (the thesis's settings), bag (weighted subword vectors, minutes on a CPU), small
    (cT-MDE that begins with such a bag, half an hour on a CPU), base (the same on a GPU, larger), adapted (on a
    pretrained encoder, --encoder), distil (from a teacher's vectors), quickstart; docs/train.md has them all. Under
    `accelerate launch -m modeling_tmde.training.train`, the same command trains on several processes.
    """
    from accelerate import PartialState

    from modeling_tmde.training.overwriting import check_recipe_stays
    from modeling_tmde.training.recipe import RecipeError, load_recipe
    from modeling_tmde.training.train import _summarise, named_sources, train_recipe

    try:
        if encoder and (recipe is None or ("=" in recipe and not Path(recipe).exists())):
            recipe, overrides = "adapted", [*([recipe] if recipe else []), *(overrides or [])]
        if recipe is None:
            raise RecipeError("Name a recipe, such as quickstart; or give --encoder, for which there is one")
        chosen = load_recipe(recipe, overrides, encoder)
        if overwrite and not resume:
            check_recipe_stays(recipe, output)
        if train_data:
            chosen.set("data.train", train_data[0] if len(train_data) == 1 else list(train_data))
        if dev_data:
            chosen.set("data.dev", named_sources(dev_data))
        if warm_start:
            if any(override.startswith("warm_start.") for override in overrides or ()):
                raise RecipeError(
                    "Give --warm-start or keys of warm_start, not both: a checkpoint takes the first stage's place"
                )
            chosen.sections["warm_start"] = {"checkpoint": warm_start}
        trainer = train_recipe(chosen, output, resume=resume, overwrite=overwrite)
    except (ValueError, OSError, ImportError) as error:
        # Every error of ours about input is one of these, with a full sentence; a traceback would bury it.
        typer.secho(f"Error: {error}", fg="red", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.secho(f"Interrupted; `--resume -o {output}` goes on from the last checkpoint.", fg="yellow", err=True)
        raise typer.Exit(130) from None
    if PartialState().is_main_process:
        _summarise(trainer, output)
