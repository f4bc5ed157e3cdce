"""Two files of documents in memory and pairs of their rows, for the commands that align and mine them."""

import itertools
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import typer

from modeling_tmde import TmdeError
from tmde.cli.options import FieldOption, FormatOption, IdFieldOption, load_embedder
from tmde.data.checks import is_code
from tmde.data.documents import Documents
from tmde.data.io import replacing
from tmde.documents.mining import PairQuality
from tmde.embedding.document_embedder import DocumentEmbedder

Scoring = Literal["ratio", "distance", "cosine"]
ScoringOption = Annotated[
    Scoring, typer.Option(help="Margin of Artetxe & Schwenk 2019, or cosine.")
]
NeighborsOption = Annotated[int, typer.Option("-k", min=1, help="Neighbors of a margin.")]
SIDES_OPTIONS = {  # for `with_options` and `read_sides`
    "format": FormatOption,
    "field": FieldOption,
    "id_field": IdFieldOption,
    "language_a": Annotated[
        str | None, typer.Option(help="Code of A's language.", rich_help_panel="Input")
    ],
    "language_b": Annotated[
        str | None, typer.Option(help="Code of B's language.", rich_help_panel="Input")
    ],
}


@dataclass(frozen=True)
class DocumentSet:
    """The n documents of one file. urls: "" where one is not known, None if they were not asked for.

    language: Code of all, None if it was not given.
    """

    name: str
    texts: list[str]
    ids: list[str]
    urls: list[str] | None
    language: str | None

    def __len__(self) -> int:
        return len(self.texts)

    def embed(self, rows: Sequence[int], embedder: DocumentEmbedder) -> np.ndarray:
        """Vectors of these rows (rows, d); reports what was left out and cut off."""
        texts = [self.texts[row] for row in rows]
        vectors, report = embedder.encode_with_report(texts, language=self.language)
        typer.echo(
            f"{self.name}: {len(rows):,} texts embedded in {report.seconds:.1f} s ({len(self) - len(rows):,} empty or "
            f"repeated: left out; {report.split:,} split; {report.truncated:,} truncated)",
            err=True,
        )
        return vectors


Sides = tuple[DocumentSet, DocumentSet]


def checked_ids(
    documents: Documents,
    id_field: str,
    values: Sequence,
    numbers: Sequence[int],
    seen: dict[str, int],
) -> list[str]:
    """The ids as strings, noted with their row in `seen`; ValueError for one that is no id or occurs twice."""
    for number, value in zip(numbers, values, strict=True):
        where = documents.place(number, id_field)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise TmdeError(f"{where}: found {value!r}, expected a string or an integer")
        if seen.setdefault(str(value), number) != number:
            raise TmdeError(
                f"{where}: found {value!r}, which row {seen[str(value)]} has too; expected unique ids"
            )
    return list(map(str, values))


def read_sides(a: str, b: str, given: dict[str, Any], url_field: str | None = None) -> Sides:
    """Reads both files: text (one document a line), TSV (id, tab, text), JSONL or parquet; `-` is stdin.

    Takes the values of `SIDES_OPTIONS` out of `given`.

    Raises:
        ValueError: A file cannot be read, a column is missing, an id occurs twice, all documents are empty, or the
            languages are no codes or equal.
    """
    if a == b == "-":
        raise TmdeError("A and B are both -, but there is one stdin; give a file for one of them")
    languages = given.pop("language_a", None), given.pop("language_b", None)
    for option, code in zip(("--language-a", "--language-b"), languages, strict=True):
        if code is not None and not is_code(code):
            raise TmdeError(
                f"{option}: found {code!r}, expected a language code such as de or pt-BR"
            )
    if languages[0] is not None and languages[0] == languages[1]:
        raise TmdeError(
            f"--language-b: found {languages[1]!r}, that of --language-a too; expected another one"
        )
    format, field, id_field = (given.pop(name, None) for name in ("format", "field", "id_field"))
    sides, id_name = [], id_field or "id"
    for source, language in zip((a, b), languages, strict=True):
        with ExitStack() as stack:
            documents = Documents(stack, source, format, field, (id_name, url_field or ""), 8192)
            chunks = list(documents.chunks)
        for option, name in (("--id-field", id_field), ("--url-field", url_field)):
            if name is not None and name not in documents.fields:
                raise TmdeError(
                    f"{documents.name}: no field {name!r}, found {list(documents.fields)}; see {option}"
                )
        texts = [text for chunk in chunks for text in chunk.texts]
        numbers = [number for chunk in chunks for number in chunk.numbers]
        if not any(map(str.strip, texts)):
            raise TmdeError(
                f"{documents.name}: found no document that is not empty, expected at least one"
            )
        table = pa.concat_tables([chunk.columns for chunk in chunks]).to_pydict()
        ids = checked_ids(documents, id_name, table.get(id_name, numbers), numbers, {})
        urls = url_field and ["".join(str(url or "").split()) for url in table[url_field]]
        sides.append(DocumentSet(documents.name, texts, ids, urls, language))
    return tuple(sides)


def load_embedder_of_sides(model: str, sides: Sides, **loading: Any) -> DocumentEmbedder:
    """`load_embedder`; ValueError if the model has an encoder for each language, and none for one of these."""
    embedder = load_embedder(model, **loading)
    for option, side in zip(("--language-a", "--language-b"), sides, strict=True):
        if embedder.needs_language and side.language not in embedder.model.config.languages:
            known = ", ".join(embedder.model.config.languages)
            raise TmdeError(
                f"{option}: found {side.language!r}, expected a language of the model: {known}"
            )
    return embedder


def write_rows(target: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Writes JSONL, or TSV with a header, in which whatever is a tab or a line end to some reader becomes a space."""
    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if target.suffix == ".jsonl":
            lines = (
                json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows
            )
        else:
            fields = (
                [f"{each:.6f}" if isinstance(each, float) else each for each in row] for row in rows
            )
            clean = (
                (" ".join(each.replace("\t", " ").splitlines()) for each in row) for row in fields
            )
            lines = map("\t".join, itertools.chain([columns], clean))
        file.writelines(line + "\n" for line in lines)


def report_quality(path: Path, quality: PairQuality) -> None:
    """Prints how many of the right pairs of a file were found."""
    typer.echo(
        f"{path}: {quality.correct:,} of {quality.gold:,} right pairs among {quality.found:,}: precision "
        f"{quality.precision:.4f}, recall {quality.recall:.4f}, F1 {quality.f1:.4f}",
        err=True,
    )
