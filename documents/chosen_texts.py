"""Some of the texts of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np


class ChosenTexts(Sequence[str]):
    """Some of the texts of a sequence, which are not copied.

    Args:
        texts: All texts, (n,).
        rows: The numbers of those that are chosen, (m,).
    """

    def __init__(self, texts: Sequence[str], rows: np.ndarray) -> None:
        self.texts = texts
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self.texts[row] for row in self.rows[place].tolist()]
        return self.texts[int(self.rows[place])]
