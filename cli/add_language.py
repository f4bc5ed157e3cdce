"""The command `tmde add-language`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords


@dataclass(kw_only=True)
class RecipeOptions:
    """What the recipe of the run is made of."""

    checkpoint: Annotated[
        str,
        Argument(
            metavar="CHECKPOINT",
            help="Folder or Hub id of a trained model.",
            callback=common.check_model_name,
        ),
    ]
    train: Annotated[
        list[str], Option(help="Parallel text in the new languages: file, folder, glob or Hub id.")
    ]
    replay: Annotated[
        list[str] | None, Option(help="Parallel text in the old languages, to train on too.")
    ] = None
    replay_share: Annotated[
        float, Option(help="Share of training rows that contain only old languages.")
    ] = 0.5
    recipe: Annotated[str | None, Option(help="Recipe of the run. Default: the checkpoint's.")] = (
        None
    )


@dataclass(kw_only=True)
class AddLanguageOptions(RecipeOptions):
    """The options of `tmde add-language`."""

    languages: Annotated[
        list[str],
        Argument(
            metavar="LANG... [KEY=VALUE]...", help="Language codes to add, then recipe settings."
        ),
    ]
    output: Annotated[Path, Option("-o", "--output", help="Folder of the run.")]
    dev: Annotated[
        list[str] | None, Option(help="Held-out rows in old and new languages, [NAME=]SOURCE.")
    ] = None
    columns: common.ColumnsOption = None
    quoting: common.QuotingOption = None
    pivot: Annotated[
        list[str] | None, Option(help="A new language that the decoder should also translate into.")
    ] = None
    new_tokens: Annotated[
        int | None,
        Option(
            min=0,
            help="Maximum number of vocabulary entries to add. Default: as many as an old "
            "language has.",
        ),
    ] = None
    max_drop: Annotated[
        float | None, Option(min=0, help="Maximum P@1 loss in the old languages, in points.")
    ] = None
    resume: Annotated[bool, Option("--resume", help="Resume the run in the folder.")] = False
    overwrite: Annotated[
        bool, Option("--overwrite", help="Delete an earlier run in the folder.")
    ] = False


@command(AddLanguageOptions)
def add_language(options: AddLanguageOptions) -> None:
    """Add languages to a trained model while replaying text in its old languages.

        tmde add-language runs/model it --train new.parquet --replay old.parquet -o runs/with_it

    It trains like `tmde train`, with the checkpoint's objectives and settings but lower learning
    rates. Retrieval is evaluated for each language pair before and after training. The results are
    printed and stored in OUT/languages.md.
    """
    columns = common.columns_of(options.columns)
    from tmde.training.added_language import add_languages, extension_recipe
    from tmde.training.language_report import describe
    from tmde.training.recipe import with_settings
    from tmde.training.run_data import named_sources

    extended = extension_recipe(
        languages=[value for value in options.languages if "=" not in value],
        overrides=[value for value in options.languages if "=" in value],
        dev=named_sources(options.dev) or None,
        pivots=options.pivot or (),
        **keywords(options, RecipeOptions),
    )
    if columns:
        extended = with_settings(extended, {"data.columns": columns})
    if options.quoting:
        extended = with_settings(extended, {"data.quoting": options.quoting})
    report = add_languages(
        extended,
        options.output,
        options.new_tokens,
        options.max_drop,
        resume=options.resume,
        overwrite=options.overwrite,
    )
    typer.echo(f"{describe(report)}\nThe model is in {options.output}")
