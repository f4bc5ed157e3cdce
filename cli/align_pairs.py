"""Files of pairs of documents: what `tmde align` writes, and lists of two ids a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from modeling_tmde.cli.document_sets import DocumentSet
from modeling_tmde.data.documents import EmbedError

# numpy is imported where it is used: `tmde --help` must not wait for it.
if TYPE_CHECKING:
    from modeling_tmde.documents.alignment import AlignedPair

COLUMNS = ("score", "id_a", "id_b")
URL_COLUMNS = ("url_a", "url_b", "matched_by")


class KnownPair(NamedTuple):
    """Row numbers of both sides."""

    first: int
    second: int


def pair_lines(
    pairs: Sequence[AlignedPair], a: DocumentSet, b: DocumentSet, urls: Sequence[Sequence[str]] | None
) -> Iterator[str]:
    """A header, and one line for each pair."""
    yield "\t".join(COLUMNS + (() if urls is None else URL_COLUMNS))
    for pair in pairs:
        fields = [f"{pair.score:.6f}", a.ids[pair.first], b.ids[pair.second]]
        if urls is not None:
            fields += [urls[0][pair.first], urls[1][pair.second], "url" if pair.by_url else "score"]
        yield "\t".join(fields)


def read_pairs(path: Path, option: str, a: DocumentSet, b: DocumentSet) -> list[KnownPair]:
    """Pairs of a file with a header that names the columns id_a and id_b, or without one: id of A, tab, id of B.

    Raises:
        EmbedError: A file that cannot be read, a line that is not two known ids, no pairs.
    """
    from modeling_tmde.documents.gold_pairs import read_gold_pairs

    try:
        with open(path, "rb") as file:
            header = file.readline().decode("utf-8-sig").rstrip("\r\n").split("\t")
            if {"id_a", "id_b"} <= set(header):
                return list(_parsed(path, file.read().decode("utf-8"), header, a, b))
        return [KnownPair(*pair) for pair in sorted(read_gold_pairs(path, a.ids, b.ids))]
    except OSError as error:
        raise EmbedError(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EmbedError(f"{option} {path}: found bytes that are not UTF-8, expected a file of text") from None
    except ValueError as error:
        raise EmbedError(f"{option} {error}") from None


def _parsed(path: Path, content: str, header: list[str], a: DocumentSet, b: DocumentSet) -> Iterator[KnownPair]:
    columns = [header.index(name) for name in ("id_a", "id_b")]
    rows = [{id: row for row, id in enumerate(side.ids)} for side in (a, b)]
    found = 0
    for number, line in enumerate(content.split("\n"), 2):
        if not line.strip():
            continue
        fields = line.rstrip("\r").split("\t")
        if len(fields) != len(header):
            raise ValueError(f"{path}, line {number}: found {len(fields)} fields, expected {len(header)}: {header}")
        ids = [fields[column] for column in columns]
        for side, id, known in zip((a, b), ids, rows, strict=True):
            if id not in known:
                raise ValueError(f"{path}, line {number}: found id {id!r}, which no document of {side.name} has")
        found += 1
        yield KnownPair(rows[0][ids[0]], rows[1][ids[1]])
    if not found:
        raise ValueError(f"{path}: found no pairs, expected at least one")
