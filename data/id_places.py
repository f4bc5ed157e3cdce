"""The ids that a command has read, each with its place, in memory that does not grow with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from modeling_tmde import TmdeError

Place = tuple[str, int]  # a file and a row

_CACHE_KIBIBYTES = 32 * 1024


class IdPlaces:
    """Different ids and their places in a temporary database of SQLite.

    SQLite keeps up to 32 MiB in memory and the rest in a temporary file, which it removes when the
    object is gone.
    """

    def __init__(self) -> None:
        # An empty name is that of a temporary database on disk.
        self._database = sqlite3.connect("")
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
        # The database need not survive this process.
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE places (id TEXT PRIMARY KEY, file TEXT, number INTEGER) WITHOUT ROWID"
        )

    def add(self, ids: Sequence[str], places: Sequence[Place]) -> int | None:
        """Add ids with their places; an id that is there keeps its first place.

        Args:
            ids: n ids.
            places: The file and row of each.

        Returns:
            The position of the first id that was there before, or occurs twice; None if all are
            new.

        Raises:
            TmdeError: The temporary file cannot be written.
        """
        rows = [(id, *place) for id, place in zip(ids, places, strict=True)]
        try:
            with self._database:  # one transaction
                cursor = self._database.executemany(
                    "INSERT OR IGNORE INTO places VALUES (?, ?, ?)", rows
                )
        except sqlite3.OperationalError as error:
            raise TmdeError(
                f"the temporary file of ids can't be written ({error}); free disk space "
                "there, or set the environment variable TMPDIR to another folder"
            ) from error
        if cursor.rowcount == len(rows):
            return None
        for position, (id, place) in enumerate(zip(ids, places, strict=True)):
            if self.place(id) != place:
                return position
        return None

    def place(self, id: str) -> Place:
        """Return the first place of an id.

        Raises:
            KeyError: The id is not there.
        """
        place = self._find(id)
        if place is None:
            raise KeyError(id)
        return place

    def absent(self, ids: Iterable[str]) -> list[str]:
        """Return those ids that are not there, in their order."""
        return [id for id in ids if self._find(id) is None]

    def _find(self, id: str) -> Place | None:
        query = "SELECT file, number FROM places WHERE id = ?"
        row: Place | None = self._database.execute(query, (id,)).fetchone()
        return row
