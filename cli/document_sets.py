"""Two files of documents and pairs of their rows, for the commands that align and mine them."""

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import typer

from modeling_tmde import TmdeError
from tmde.cli.models import load_embedder
from tmde.data.checks import is_code
from tmde.data.documents import Documents, InputFormat
from tmde.data.io import replacing
from tmde.documents.quality import PairQuality
from tmde.embedding import DocumentEmbedder

_CHUNK_SIZE = 8192  # documents that are read at once


@dataclass(frozen=True)
class DocumentSet:
    """The n documents of one file.

    Attributes:
        name: The file in messages.
        texts: Their texts.
        ids: Their ids.
        urls: Their URLs, "" for one without; None if no field of URLs was asked for.
        language: The code of the language of all; None if it was not given.
    """

    name: str
    texts: list[str]
    ids: list[str]
    urls: list[str] | None
    language: str | None

    def __len__(self) -> int:
        return len(self.texts)

    def embed(self, rows: Sequence[int] | np.ndarray, embedder: DocumentEmbedder) -> np.ndarray:
        """Return the vectors of some rows, (rows, d), and print what was left out and truncated."""
        texts = [self.texts[row] for row in rows]
        vectors, report = embedder.encode_with_report(texts, language=self.language)
        left_out = len(self) - len(rows)
        typer.echo(
            f"{self.name}: {len(rows):,} texts embedded in {report.seconds:.1f} s "
            f"({left_out:,} empty or repeated: left out; {report.split:,} split; "
            f"{report.truncated:,} truncated)",
            err=True,
        )
        return np.asarray(vectors)


Sides = tuple[DocumentSet, DocumentSet]


@dataclass(frozen=True)
class SidesOptions:
    """How both files are read: the values of the options of `SIDES_OPTIONS`.

    Attributes:
        url_field: The field of the URLs; None if they are not needed.
    """

    format: InputFormat | None = None
    field: str | None = None
    id_field: str | None = None
    language_a: str | None = None
    language_b: str | None = None
    url_field: str | None = None

    def check_languages(self) -> None:
        """Raise `TmdeError` if a language is no code, or if both are the same."""
        codes = {"--language-a": self.language_a, "--language-b": self.language_b}
        for option, code in codes.items():
            if code is not None and not is_code(code):
                raise TmdeError(
                    f"{option}: found {code!r}, expected a language code such as de or pt-BR"
                )
        if self.language_a is not None and self.language_a == self.language_b:
            raise TmdeError(
                f"--language-b: found {self.language_b!r}, the same as --language-a; expected "
                "another language"
            )


def read_sides(a: str, b: str, options: SidesOptions) -> Sides:
    """Read both files.

    A file is text (one document a line), TSV (id, tab, text), JSONL or parquet; `-` is stdin.

    Raises:
        TmdeError: A file cannot be read, a column is missing, an id occurs twice, all documents are
            empty, or the languages are no codes or equal.
    """
    if a == b == "-":
        raise TmdeError(
            "A and B are both -, but there is only one stdin; give a file for one of them"
        )
    options.check_languages()
    first = _read_side(a, options.language_a, options)
    second = _read_side(b, options.language_b, options)
    return first, second


def _read_side(source: str, language: str | None, options: SidesOptions) -> DocumentSet:
    """Read one file; see `read_sides`."""
    id_field = options.id_field or "id"
    kept_columns = [id_field]
    if options.url_field is not None:
        kept_columns.append(options.url_field)
    with ExitStack() as stack:
        documents = Documents(
            stack, source, options.format, options.field, kept_columns, _CHUNK_SIZE
        )
        chunks = list(documents.chunks)
    _check_field(documents, "--id-field", options.id_field)
    _check_field(documents, "--url-field", options.url_field)
    texts: list[str] = []
    numbers: list[int] = []
    for chunk in chunks:
        texts += chunk.texts
        numbers += chunk.numbers
    if not any(text.strip() for text in texts):
        raise TmdeError(f"{documents.name}: found no document with text, expected at least one")
    columns = pa.concat_tables([chunk.columns for chunk in chunks]).to_pydict()
    # Without ids, a document is known by its row.
    id_values = columns.get(id_field, numbers)
    ids = checked_ids(documents, id_field, id_values, numbers, row_of_id={})
    urls = None
    if options.url_field is not None:
        urls = [_without_spaces(url) for url in columns[options.url_field]]
    return DocumentSet(documents.name, texts, ids, urls, language)


def _check_field(documents: Documents, option: str, name: str | None) -> None:
    if name is not None and name not in documents.fields:
        raise TmdeError(
            f"{documents.name}: no field {name!r}, found {list(documents.fields)}; see {option}"
        )


def _without_spaces(url: object) -> str:
    """Return a URL without white space; "" for a document that has none."""
    return "".join(str(url or "").split())


def checked_ids(
    documents: Documents,
    id_field: str,
    values: Sequence,
    numbers: Sequence[int],
    row_of_id: dict[str, int],
) -> list[str]:
    """Return ids as strings.

    Args:
        documents: The file, for messages.
        id_field: The field of the ids, for messages.
        values: The ids, strings or integers.
        numbers: The row of each.
        row_of_id: The rows of all ids so far; those of `values` are added.

    Raises:
        TmdeError: A value is no id, or it occurs twice.
    """
    for number, value in zip(numbers, values, strict=True):
        place = documents.place(number, id_field)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise TmdeError(f"{place}: found {value!r}, expected a string or an integer")
        first_row = row_of_id.setdefault(str(value), number)
        if first_row != number:
            raise TmdeError(
                f"{place}: found {value!r}, the id of row {first_row} too; expected unique ids"
            )
    return [str(value) for value in values]


def load_embedder_of_sides(model: str, sides: Sides, **loading: Any) -> DocumentEmbedder:
    """Call `load_embedder`, and check the languages of a model that has an encoder for each.

    Raises:
        TmdeError: The model cannot be used, or it has no encoder for the language of a side.
    """
    embedder = load_embedder(model, **loading)
    if not embedder.needs_language:
        return embedder
    known = embedder.model.config.languages
    for option, side in zip(("--language-a", "--language-b"), sides, strict=True):
        if side.language not in known:
            raise TmdeError(
                f"{option}: found {side.language!r}, expected a language of the model: "
                f"{', '.join(known)}"
            )
    return embedder


def write_rows(target: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write rows as JSONL, or as TSV with a header, by the suffix of the file.

    Args:
        target: The file.
        columns: The names of the fields.
        rows: The values of each row, in the order of `columns`.
    """
    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if target.suffix == ".jsonl":
            for row in rows:
                fields = dict(zip(columns, row, strict=True))
                file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            return
        file.write("\t".join(columns) + "\n")
        for row in rows:
            file.write("\t".join(_tsv_field(value) for value in row) + "\n")


def _tsv_field(value: str | float) -> str:
    """Return a field of TSV: whatever is a tab or a line end to some reader becomes a space."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return " ".join(value.replace("\t", " ").splitlines())


def report_quality(path: Path, quality: PairQuality) -> None:
    """Print how many of the right pairs of a file were found."""
    typer.echo(
        f"{path}: {quality.correct:,} of {quality.gold:,} right pairs among {quality.found:,}: "
        f"precision {quality.precision:.4f}, recall {quality.recall:.4f}, F1 {quality.f1:.4f}",
        err=True,
    )
