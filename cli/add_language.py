"""The command `tmde add-language`."""

from pathlib import Path
from typing import Annotated

import typer

from modeling_tmde.training.added_language import AddedLanguages, add_languages
from modeling_tmde.training.building import named_sources


def add_language(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Folder or Hub id of a trained model.")],
    languages: Annotated[
        list[str],
        typer.Argument(
            metavar="LANG... [KEY=VALUE]...", help="Codes of the languages to add; recipe keys, such as max_minutes=5."
        ),
    ],
    train_data: Annotated[
        list[str],
        typer.Option("--train", help="Parallel text of the new languages: file, folder, glob or Hub id. Repeatable."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")],
    replay: Annotated[
        list[str] | None,
        typer.Option("--replay", help="Parallel text of the old languages, to be trained along. Repeatable."),
    ] = None,
    replay_share: Annotated[
        float, typer.Option(help="Share of the training rows that are of the old languages alone.")
    ] = 0.5,
    dev_data: Annotated[
        list[str] | None,
        typer.Option("--dev", help="Held-out rows, [NAME=]SOURCE, of old and new languages. Repeatable."),
    ] = None,
    pivots: Annotated[
        list[str] | None, typer.Option("--pivot", help="A new language to translate into as well. Repeatable.")
    ] = None,
    new_tokens: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Entries that the vocabulary gains; 0 keeps it. Default: for each new language, as many as the old "
            "ones have on average.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Recipe with the objectives and training settings. Default: that of the checkpoint."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Points by which the old languages' mean retrieval P@1 on the dev rows may fall; where it fell more, "
            "the weights are averaged with those before training.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier run in the folder.")] = False,
) -> None:
    """Add languages to a trained model: more tokens, training on their pairs, the old languages replayed.

        tmde add-language runs/model it --train new_pairs.parquet --replay old_pairs.parquet -o runs/with_it

    The run is one as `tmde train` makes it, with the checkpoint's objectives and settings at lower learning rates.
    What it did to each pair of languages is measured before and after, printed, and kept in OUT/languages.md.
    """

    def sources(values: list[str] | None) -> str | list[str] | None:
        return values[0] if values and len(values) == 1 else values or None

    asked = AddedLanguages(
        checkpoint=checkpoint,
        languages=[value for value in languages if "=" not in value],
        train=sources(train_data),
        replay=sources(replay),
        replay_share=replay_share,
        dev=named_sources(dev_data) if dev_data else None,
        pivots=pivots or (),
        new_tokens=new_tokens,
        recipe=recipe,
        overrides=[value for value in languages if "=" in value],
        max_drop=max_drop,
    )
    try:
        report = add_languages(asked, output, resume=resume, overwrite=overwrite)
    except KeyboardInterrupt:
        typer.echo(f"Interrupted; the same command with --resume goes on in {output}.", err=True)
        raise typer.Exit(130) from None
    typer.echo(report.markdown())
    typer.echo(f"The model is in {output}")
