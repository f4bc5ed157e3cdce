"""Write a translation memory or a catalog again, without or with marks at what is wrong.

Nothing else changes: all other bytes of the file are those that it had.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from modeling_tmde import TmdeError
from tmde.data import CorpusError
from tmde.data.io import replacing
from tmde.data.languages import fits_language
from tmde.data.pieces import WHITE_SPACE, Piece, UnitFile
from tmde.data.tables import find_tables, suffix_of
from tmde.data.unit_files import UNIT_FORMATS, open_units

FEWEST_TEXTS = 2  # of a unit


@dataclass(frozen=True)
class Decision:
    """What becomes of a row.

    Attributes:
        number: The number of its unit; a unit may have several rows.
        is_kept: Whether two of its texts are right.
        kept: The languages of the texts that are right.
        removed: Those of the texts that are wrong.
    """

    number: int
    is_kept: bool
    kept: tuple[str, ...]
    removed: tuple[str, ...]


def filtered_file(sources: Iterable[str | os.PathLike[str]], target: Path) -> UnitFile | None:
    """Return the only source, if it is of the format of the output and its units stay as they are.

    Args:
        sources: The files and the like that are read.
        target: The output.

    Returns:
        The source; None if a new file is made, because it is another format, or made of several.

    Raises:
        TmdeError: The output is a catalog, and the source is not one of the same format, or is cut
            off.
    """
    format = UNIT_FORMATS.get(target.suffix)
    if format is None:
        return None
    paths = [os.path.expanduser(os.fspath(source)) for source in sources]
    is_same = len(paths) == 1 and UNIT_FORMATS.get(suffix_of(paths[0])) == format
    if is_same and os.path.isfile(paths[0]):
        (table,) = find_tables(paths[0]) or []
        units = open_units(format, table.paths[0], table.place)
        if units.is_cut_off():
            raise CorpusError(
                f"{table.place}: the file is cut off before its last end tag; download or "
                "export it again"
            )
        return units
    if format == "tmx":
        return None
    raise TmdeError(
        f"output: found {target.name}, expected a source of the same format: a catalog "
        f"({target.suffix}) keeps the entries of one file {target.suffix}. Write .tmx for a new "
        "file of units"
    )


def write_filtered(target: Path, units: UnitFile, decisions: Iterable[Decision]) -> None:
    """Write a file of units again.

    A memory loses what is wrong, and units that were not read because they are bad. A catalog keeps
    all units, and those with something wrong are marked. A unit that nobody has judged, as those
    in other languages, stays.

    Args:
        target: The file. It appears when all is written.
        units: The file that is read.
        decisions: What becomes of the rows that were judged, in the order of the file.
    """
    with replacing(target) as temporary, open(temporary, "wb") as output:
        space = ""  # white space before a unit, which goes with it
        for text, is_unit in _texts(units, decisions):
            if text is None:
                space = ""
                continue
            output.write(units.encoded(space))
            space = ""
            if not is_unit and not units.is_catalog:
                content = text.rstrip(WHITE_SPACE)
                space = text[len(content) :]
                text = content
            output.write(units.encoded(text))
        output.write(units.encoded(units.missing_end() or space))


def _texts(units: UnitFile, decisions: Iterable[Decision]) -> Iterator[tuple[str | None, bool]]:
    """Yield the new text of each piece, None for a unit that goes, and whether it is a unit."""
    of_units = groupby(decisions, key=lambda decision: decision.number)
    number, group = next(of_units, (0, iter(())))
    for piece in units.pieces():
        if piece.number is None:
            yield piece.text, False
        elif piece.number == number:
            yield _judged(units, piece, list(group)), True
            number, group = next(of_units, (0, iter(())))
        else:
            yield _not_judged(units, piece), True


def _judged(units: UnitFile, piece: Piece, decisions: list[Decision]) -> str | None:
    """Return the new text of a unit by what becomes of its rows; None if it goes."""
    wrong = [decision for decision in decisions if decision.removed or not decision.is_kept]
    if not wrong:
        return piece.text
    if units.is_catalog:
        return units.edited(piece, ())
    decision = wrong[0]
    if not decision.is_kept:
        return None
    codes = set()
    for texts in units.rows(piece):
        for code in texts:
            if code not in decision.kept and _is_one_of(code, decision.removed):
                codes.add(code)
    return units.edited(piece, codes)


def _not_judged(units: UnitFile, piece: Piece) -> str | None:
    """Return the text of a unit that was not read; None if it goes, because it is bad."""
    if units.is_catalog:
        return piece.text
    try:
        rows = units.rows(piece)
    except CorpusError:
        return None
    texts = [text for row in rows for text in row.values() if text]
    return piece.text if len(texts) >= FEWEST_TEXTS else None


def _is_one_of(code: str, languages: Iterable[str]) -> bool:
    return any(code == language or fits_language(code, language) for language in languages)
