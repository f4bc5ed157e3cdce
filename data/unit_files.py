"""The formats whose files hold units in two or more languages, and what reads each."""

from collections.abc import Iterator

from .checks import CorpusError
from .pieces import UnitFile
from .po_catalogs import PoCatalog
from .translation_memories import TranslationMemory
from .xml_catalogs import QtCatalog, XliffCatalog

UNIT_FORMATS = {".tmx": "tmx", ".po": "po", ".xliff": "xliff", ".xlf": "xliff", ".ts": "ts"}
_READERS: dict[str, type[UnitFile]] = {
    "tmx": TranslationMemory,
    "po": PoCatalog,
    "xliff": XliffCatalog,
    "ts": QtCatalog,
}


def open_units(format: str, path: str, place: str) -> UnitFile:
    """Return the file of units of a format: `tmx`, `po`, `xliff` or `ts`."""
    return _READERS[format](path, place)


def read_units(
    format: str, path: str, place: str
) -> Iterator[tuple[int, dict[str, str] | CorpusError]]:
    """Yield the number and the texts of each unit; see `UnitFile.numbered_rows`."""
    return open_units(format, path, place).numbered_rows()
