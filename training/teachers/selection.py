"""The text of each row that the teachers read."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import pyarrow as pa

from tmde.training.teachers.files import FileTeacher


@dataclass(frozen=True)
class TextSelection:
    """Chooses one text of a row, the same for all teachers.

    It is the one in the first of the languages that the row has, that belongs to the share, and
    that all files know. A row without such a text is not taught.

    Args:
        languages: The languages that the teachers read, by preference.
        share: The share of the texts, chosen by the text itself, wherever it stands.
        files: The teachers that know certain texts only.
    """

    languages: tuple[str, ...]
    share: float = 1.0
    files: tuple[FileTeacher, ...] = ()

    def choose(self, table: pa.Table) -> dict[str, dict[int, str]]:
        """Return the chosen texts by the number of their row, for each language with any.

        Args:
            table: Rows with `translation`.
        """
        rows = table["translation"].to_pylist()
        chosen_rows: set[int] = set()
        texts_by_language: dict[str, dict[int, str]] = {}
        for language in self.languages:
            texts_by_row = {}
            for index, row in enumerate(rows):
                text = row.get(language) if row else None
                if text and index not in chosen_rows and self._includes(text):
                    texts_by_row[index] = text
            if texts_by_row:
                texts_by_language[language] = texts_by_row
                chosen_rows.update(texts_by_row)
        return texts_by_language

    def _includes(self, text: str) -> bool:
        if zlib.crc32(text.encode()) >= self.share * 2**32:
            return False
        return all(file.knows(text) for file in self.files)
