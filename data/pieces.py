"""A file of units, such as a translation memory, in pieces: what is read, filtered and marked."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .checks import CorpusError

WHITE_SPACE = " \t\r\n"  # of XML; other characters may be bytes of letters


@dataclass(frozen=True)
class Piece:
    """Consecutive text of a file: a unit, or what stands between units.

    Attributes:
        text: The text as the file has it; see `UnitFile.encoded`.
        number: The number of the unit; None if it is none.
        languages: The source and the target language, if they do not stand in the unit.
    """

    text: str
    number: int | None = None
    languages: tuple[str, str] = ("", "")


class UnitFile(ABC):
    """A file of units with texts by language.

    The file is not held in memory: each pass over the pieces reads it again.

    Args:
        path: The file, plain or gzipped.
        place: Its name in messages.
    """

    # Whether a program or a project needs each unit, so that none is ever left out.
    is_catalog = False

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        self.place = place

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in the order of the file.

        Raises:
            CorpusError: The file is another one than its name says, or damaged.
            OSError: There is no such file.
        """

    @abstractmethod
    def encoded(self, text: str) -> bytes:
        """Return the text of pieces as the bytes that the file has for it."""

    @abstractmethod
    def rows(self, piece: Piece) -> list[dict[str, str]]:
        """Return the texts of a unit by language, as the file writes the codes.

        A unit with plural forms has several rows. One that is no translation, such as a draft, has
        none.

        Raises:
            CorpusError: The unit cannot be read.
        """

    @abstractmethod
    def edited(self, piece: Piece, languages: Collection[str]) -> str:
        """Return the text of a unit of which some texts are wrong.

        Args:
            piece: The unit.
            languages: The codes of these texts. A memory loses them; a catalog keeps all texts, and
                its unit is marked so that it is not used before somebody has looked at it.
        """

    def is_cut_off(self) -> bool:
        """Read a catalog, and return whether its end is missing. A memory can do without it."""
        return False

    def missing_end(self) -> str:
        """Return the end tags that a memory lacks without its bad units, after the last piece."""
        return ""

    def numbered_rows(self) -> Iterator[tuple[int, dict[str, str] | CorpusError]]:
        """Yield the number of each row, and its texts, or the error of a unit that is none.

        Raises:
            CorpusError: See `pieces`.
        """
        for piece in self.pieces():
            if piece.number is None:
                continue
            try:
                rows = self.rows(piece)
            except CorpusError as error:
                yield piece.number, error
                continue
            for row in rows:
                yield piece.number, row
