"""Which language a text is in, for encoders that have a part of their own for each language."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import nn


def needs_language(model: nn.Module) -> bool:
    """Whether the model has a part of its own for each language (NTDV, aligned), and must be told that of a text."""
    return bool(getattr(model, "needs_language_ids", False))


class TextLanguages:
    """The languages of texts that come in one list or several; not read, where nothing needs them.

    Args:
        model: an encoder, whose `config.languages` are the codes it knows.
        language: one code for all texts, or one for each, read in step with them.
        splits: the texts are split into sentences, for which a code helps; any code will do, and None.

    Raises:
        ValueError: None, for a model that needs languages.
    """

    def __init__(self, model: nn.Module, language: str | Iterable[str] | None, splits: bool = False) -> None:
        self.needed = needs_language(model)
        # Of the texts that were taken last: as they were given, where they are read, and what `take` returns.
        self.codes: list[str | None] | None = None
        self.ids: torch.Tensor | None = None
        self._read = self.needed or (splits and language is not None)
        if not self._read:
            return
        self._known = list(model.config.languages) if self.needed else []
        if language is None:
            raise ValueError(
                f"language: found None, but {type(model).__name__} has an encoder for each language; give language=, "
                f"the code of all texts or one for each, of {self._known}"
            )
        self._for_all = isinstance(language, str)
        self._codes = itertools.repeat(language) if self._for_all else iter(language)

    def take(self, texts: int, first_number: int = 0) -> torch.Tensor | None:
        """Positions (texts,) int64 of the languages of the next texts in `config.languages`, or None.

        Args:
            texts: how many.
            first_number: texts before these, by which errors number them.

        Raises:
            TypeError: a code that is not a string.
            ValueError: an unknown code, or fewer codes than texts.
        """
        if not self._read:
            return None
        self.codes = codes = list(itertools.islice(self._codes, texts))
        if len(codes) < texts:
            raise ValueError(f"language: found {first_number + len(codes)} codes for {first_number + texts} texts")
        for number, code in enumerate(codes, first_number):
            if not isinstance(code, str) and code is not None:
                raise TypeError(f"language of text {number}: found {type(code).__name__}, expected str")
        if not self.needed:
            return None
        for number, code in enumerate(codes, first_number):
            if code not in self._known:
                where = "language" if self._for_all else f"language of text {number}"
                raise ValueError(f"{where}: found {code!r}, expected one of {self._known}")
        self.ids = torch.tensor([self._known.index(code) for code in codes], dtype=torch.long)
        return self.ids

    def finish(self, texts: int) -> None:
        """
        Raises:
            ValueError: more codes than texts.
        """
        if self._read and not self._for_all and (more := sum(1 for _ in self._codes)):
            raise ValueError(f"language: found {texts + more} codes for {texts} texts")
