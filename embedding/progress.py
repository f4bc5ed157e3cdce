# SPDX-License-Identifier: Apache-2.0

"""Progress bars that also suit a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tqdm.auto import tqdm
from tqdm.std import tqdm as tqdm_std


class _LogLines(tqdm_std):
    """Progress for a log: whole lines, at most one every 30 seconds, and none for what takes less."""

    def refresh(self, *args, **kwargs) -> None:
        """Limits the lines of new descriptions too, which tqdm writes at once."""
        if self._time() - self.last_print_t >= self.mininterval:
            super().refresh(*args, **kwargs)
            self.last_print_t = self._time()

    @staticmethod
    def status_printer(file):
        return lambda text: print(text.strip(), file=file, flush=True)


def progress_bar(iterable: Iterable | None = None, **options) -> tqdm_std:
    """A tqdm bar on stderr; where that is no terminal, one line every 30 seconds. `options` are tqdm's."""
    if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
        return tqdm(iterable, **options)
    return _LogLines(iterable, **options, mininterval=30, delay=30, miniters=1)
