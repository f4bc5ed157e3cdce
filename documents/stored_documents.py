"""Documents of the input, kept in files that are mapped into memory.

Stdin cannot be read twice, and a file may change meanwhile. So what is read once is written to
temporary files in Arrow's format, from which it is read as often as needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import overload

import pyarrow as pa

from tmde.data.documents import Chunk

# 64-bit offsets: a chunk of long documents may have more than 2 GiB of text.
_TEXT_SCHEMA = pa.schema(
    [("text", pa.large_string()), ("id", pa.string()), ("language", pa.string())]
)
_ROW_SCHEMA = pa.schema([("json", pa.large_string())])


class Strings(Sequence[str]):
    """Strings of a column of Arrow, made when they are asked for.

    Args:
        column: The column, without nulls.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            strings: list[str] = self.column[place].to_pylist()
            return strings
        string: str = self.column[int(place)].as_py()
        return string

    def __iter__(self) -> Iterator[str]:
        for chunk in self.column.chunks:
            yield from chunk.to_pylist()


class StoredDocuments:
    """The n documents of the input, in files of a temporary folder.

    Attributes:
        texts: Their texts.
        ids: Their ids.
        languages: The language of each, null for one that is not known: (n,) strings.
    """

    def __init__(self, folder: Path) -> None:
        self._rows = folder / "rows.arrow"
        columns = pa.ipc.open_stream(pa.memory_map(str(folder / "texts.arrow"))).read_all()
        self.texts = Strings(columns["text"])
        self.ids = Strings(columns["id"])
        self.languages: pa.ChunkedArray = columns["language"]

    @classmethod
    def write(
        cls, folder: Path, chunks: Iterable[tuple[Chunk, list[str], list[str | None]]]
    ) -> "StoredDocuments":
        """Write documents and return them.

        Args:
            folder: An empty folder.
            chunks: The documents, with the id and the language of each.
        """
        with ExitStack() as stack:
            texts_file = folder / "texts.arrow"
            texts_writer = stack.enter_context(pa.ipc.new_stream(str(texts_file), _TEXT_SCHEMA))
            rows_file = folder / "rows.arrow"
            rows_writer = stack.enter_context(pa.ipc.new_stream(str(rows_file), _ROW_SCHEMA))
            for chunk, ids, languages in chunks:
                columns = {"text": chunk.texts, "id": ids, "language": languages}
                texts_writer.write_table(pa.table(columns, schema=_TEXT_SCHEMA))
                rows_writer.write_table(pa.table({"json": chunk.json_rows()}, schema=_ROW_SCHEMA))
        return cls(folder)

    def __len__(self) -> int:
        return len(self.texts)

    def json_rows(self) -> Iterator[str]:
        """Yield the JSON of each document: all columns, as the input has them."""
        with pa.memory_map(str(self._rows)) as file:
            for batch in pa.ipc.open_stream(file):
                yield from batch["json"].to_pylist()
