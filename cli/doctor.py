"""The command `tmde doctor`."""

from typing import Annotated

from typer import Option


def doctor(
    json: Annotated[
        bool, Option("--json", help="Print JSON, for a bug report or a program.")
    ] = False,
) -> None:
    """Show the environment of tmde: versions, device, threads, extras, caches, the Hub.

        tmde doctor

        tmde doctor --json > machine.json

    Problems are listed at the end, each with a fix.
    """
    from tmde.cli.machine_report import print_report

    print_report(as_json=json)
