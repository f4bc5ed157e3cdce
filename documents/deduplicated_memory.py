"""Write what is kept of a translation memory, or of rows as one, without duplicates."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from modeling_tmde import TmdeError
from tmde.data.documents import text_fields_of
from tmde.data.languages import names_a_language
from tmde.data.pieces import UnitFile
from tmde.documents.filtered_files import FEWEST_TEXTS, Decision, filtered_file, write_filtered
from tmde.documents.memory_writer import memory_writer


class MemoryOutput:
    """A translation memory that holds what is kept of documents.

    From TMX to TMX, the units that stay are the same bytes as before. Rows of another table become
    a new memory.

    Args:
        source: The file or folder of the documents.
        target: The file to write, .tmx.
        field: The fields of the documents' texts.
        columns: The columns of a row by the languages of their texts; None for the fields, which
            are named by languages then.

    Raises:
        TmdeError: A new memory has no two languages.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        target: Path,
        field: str | Sequence[str] | None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        fields = text_fields_of(field)
        self._target = target
        self._columns = columns or dict(zip(fields, fields, strict=True))
        self._units = filtered_file([source], target)
        if self._units is not None:
            return
        languages = list(filter(names_a_language, self._columns))
        if len(languages) < FEWEST_TEXTS or len(languages) < len(self._columns):
            raise TmdeError(
                f"output: found {target.name}, a translation memory, with texts in "
                f"{', '.join(self._columns)}; expected columns in two languages, such as de "
                "and en"
            )

    def write(self, json_rows: Iterable[str], is_kept: Iterable[bool]) -> None:
        """Write what is kept.

        Args:
            json_rows: The columns of each document as JSON.
            is_kept: Whether each is kept.
        """
        if self._units is not None:
            write_filtered(self._target, self._units, self._decisions(self._units, is_kept))
            return
        with memory_writer(self._target, list(self._columns)) as write:
            for json_row, row_is_kept in zip(json_rows, is_kept, strict=True):
                if row_is_kept:
                    row = json.loads(json_row)
                    texts = {name: row.get(column) for name, column in self._columns.items()}
                    write(texts, {})

    def _decisions(self, units: UnitFile, is_kept: Iterable[bool]) -> Iterator[Decision]:
        """Yield what becomes of each unit that is a document."""
        kept = iter(is_kept)
        for number, row in units.numbered_rows():
            if isinstance(row, dict) and any(map(row.get, self._columns.values())):
                languages = tuple(row)
                unit_is_kept = next(kept)
                yield Decision(number, unit_is_kept, languages if unit_is_kept else (), ())
