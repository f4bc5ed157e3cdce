"""The console of tables: whole names in a terminal, and whole lines in a pipe."""

import os
import sys

from rich.console import Console

# A table takes the width that it needs, up to this one, where no terminal limits it.
_PIPED_WIDTH = 10_000


def table_console() -> Console:
    """Return a console for tables.

    rich takes a file or a pipe for a terminal of 80 columns, and would cut what is wider. The
    variable COLUMNS still says another width.
    """
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console()
    return Console(width=_PIPED_WIDTH)
