"""The command `tmde train`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tmde.cli.options import DevOption, TrainOption


def train(
    recipe: Annotated[
        str | None,
        Argument(
            help="Name of a recipe, or the path of a YAML file. With --encoder: adapted by default."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        Argument(metavar="[KEY=VALUE]...", help="Recipe keys, such as learning_rate=3e-4."),
    ] = None,
    output: Annotated[Path, Option("-o", "--output", help="Folder of the run.")] = Path(
        "runs/tmde"
    ),
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    warm_start: Annotated[
        str | None,
        Option(
            "--warm-start", help="Begin with this bag or T-MDE model: folder, Hub id, `default`."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        Option(
            "--encoder",
            help="Begin with this pretrained encoder, a folder or Hub id, and its tokenizer.",
        ),
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Delete an earlier run in the folder.")
    ] = False,
) -> None:
    r"""Train a document embedder on parallel text.

        tmde train small --train my_corpus/ -o runs/mine 'languages=\[de, en]' 'pivot_languages=\[en]'

    Recipes: tmde, ctmde, ctmde_p (the thesis's settings), bag (weighted subword vectors, minutes on a CPU), small
    (cT-MDE that begins with such a bag, half an hour on a CPU), base (the same on a GPU, larger), adapted (on a
    pretrained encoder, --encoder), distil (from a teacher's vectors), quickstart; docs/train.md has them all. Under
    `accelerate launch -m tmde train`, the same command trains on several processes.
    """
    from tmde.training.train import train as run

    run(recipe, overrides, output, train_data, dev_data, warm_start, encoder, resume, overwrite)
