"""What `tmde demo` shows: documents of a file, of an index or of the built-in sample, embedded and drawn as a map."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from modeling_tmde.cli.document_sets import DocumentSet, read_document_set
from modeling_tmde.cli.embedding_job import load_model, stderr_is_terminal, told_out_of_memory
from modeling_tmde.cli.search import embedder_of_index, opened_index
from modeling_tmde.data.documents import EmbedError, InputFormat

if TYPE_CHECKING:
    from modeling_tmde.documents.collection_map import CollectionMap
    from modeling_tmde.documents.index import DocumentIndex
    from modeling_tmde.documents.index_documents import Hit
    from modeling_tmde.embedding import DocumentEmbedder

SAMPLE = "the built-in sample"
NOTHING = "(none)"  # the value of a document that has none
OTHERS = "(others)"
_SAMPLE_DOCUMENTS = 60  # in each of five languages
_MOST_GROUPS = 24  # colours and markers that can still be told apart
_TITLE = "title"
_EXAMPLE_CHARACTERS = (25, 140)
_EXAMPLES = 5


@dataclass(frozen=True)
class Source:
    """Where the documents are, and which of their fields is what; `tmde demo` has an option for each.

    name: a file, `-` for stdin, or None for the built-in sample; label_fields: none for `label`, where there is one.
    """

    name: str | None = None
    format: InputFormat | None = None
    field: str | None = None
    id_field: str | None = None
    language_field: str | None = None
    label_fields: Sequence[str] = ()

    def given(self) -> list[str]:
        """Options that only a file of documents can have."""
        names = ("format", "field", "id_field", "language_field")
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]

    @property
    def shown_labels(self) -> list[str]:
        """`label_fields` as the documents of the collection have them: the language is `language`, whatever it was."""
        return ["language" if name == self.language_field else name for name in self.label_fields]


@dataclass(frozen=True)
class Collection:
    """Documents that can be searched, and those of them that are drawn.

    name: what the page calls it; model: what it calls the model; drawn: the documents on the map, rows of `map`;
    groups: by name of a field, the value of each drawn document; languages: of all documents, drawn or not, None for
    those without one; empty where no document has a language; examples: language and text of queries.
    """

    name: str
    model: str
    index: DocumentIndex
    drawn: list[Hit]
    map: CollectionMap
    groups: Mapping[str, Sequence[str]]
    languages: list[str | None] = field(default_factory=list)
    examples: list[tuple[str, str]] = field(default_factory=list)


def index_documents(
    source: Source, model: str, folder: Path, device: str | None, loading: Mapping[str, Any]
) -> DocumentIndex:
    """Embeds the documents of a file, or of the built-in sample, into a new index.

    Args:
        source: Of the documents.
        model: Folder or Hub id.
        folder: Of the index.
        device: None for the best there is.
        loading: More arguments of `DocumentEmbedder.from_pretrained`. A document that is too long is embedded sentence
            by sentence if they say nothing else.

    Raises:
        EmbedError: What is wrong with the source or the model.
        ImportError: Without faiss.
    """
    from modeling_tmde.documents.index import DocumentIndex

    documents, metadata = _sample_documents(source) if source.name is None else _file_documents(source)
    loading = {"long_documents": "sentences"} | dict(loading)
    try:
        embedder = load_model(model, device, stderr_is_terminal(), loading)
    except EmbedError as error:  # of an option in other commands
        raise EmbedError(str(error).replace("--model ", "MODEL ", 1)) from None
    languages = metadata.get("language")
    if embedder.needs_language:
        _check_languages(documents, languages, embedder)
    index = DocumentIndex.create(folder, embedder)
    typer.echo(f"Embedding {len(documents):,} documents of {documents.name} ...", err=True)
    with told_out_of_memory(embedder, "give --device cpu"):
        codes = languages if languages and None not in languages else None
        vectors = embedder.encode(documents.texts, show_progress_bar=stderr_is_terminal(), language=codes)
    if cut := embedder.last_report.truncated:
        typer.echo(f"{cut:,} documents truncated: longer than {embedder.max_length:,} tokens", err=True)
    names = list(metadata)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*metadata.values(), strict=True)]
    index.add(documents.ids, documents.texts, rows or None, vectors)
    return index


def _sample_documents(source: Source) -> tuple[DocumentSet, dict[str, list]]:
    from modeling_tmde.data.sample import sample_documents

    if source.given() or source.label_fields:
        option = (source.given() or ["--label-field"])[0]
        raise EmbedError(f"{option}: names a field of a file of documents; give COLLECTION as well")
    table = sample_documents(_SAMPLE_DOCUMENTS).with_format("arrow")[:]
    ids = [
        f"{number} ({language})"
        for number, language in zip(table["doc_id"].to_pylist(), table["language"].to_pylist(), strict=True)
    ]
    documents = DocumentSet(SAMPLE, table["text"].to_pylist(), ids, list(range(1, len(ids) + 1)), table)
    return documents, {name: table[name].to_pylist() for name in ("language", "label")}


def _file_documents(source: Source) -> tuple[DocumentSet, dict[str, list]]:
    """Documents that are not empty, and their fields by the names that a hit shows them under."""
    language_field = source.language_field or "language"
    if language_field != "language" and "language" in source.label_fields:
        raise EmbedError(
            "--label-field: found 'language', as which the page shows the field of --language-field "
            f"{language_field!r}; give another one, rename it in the file, or leave --language-field out"
        )
    labels = list(source.label_fields) or ["label"]
    columns = [language_field, _TITLE, *labels]
    documents = read_document_set(source.name, source.format, source.field, source.id_field, columns)
    there = documents.columns.column_names
    wanted = [(source.language_field, "--language-field"), *((name, "--label-field") for name in source.label_fields)]
    for name, option in wanted:
        if name is not None and name not in there:
            found = list(documents.fields or there)
            raise EmbedError(f"{documents.name}: no {documents.words[1]} {name!r}, found {found}; see {option}")
    kept = [row for row, text in enumerate(documents.texts) if text.strip()]
    if not kept:
        raise EmbedError(f"{documents.name}: found no document that is not empty")
    if len(kept) < len(documents):
        typer.echo(f"{len(documents) - len(kept):,} empty documents left out", err=True)
    metadata = {}
    for name in dict.fromkeys(columns):
        if name in there:
            values = documents.columns.column(name).to_pylist()
            shown = "language" if name == language_field else name
            metadata[shown] = [_text_or_none(values[row]) for row in kept]
    texts, ids, numbers = (
        [column[row] for row in kept] for column in (documents.texts, documents.ids, documents.numbers)
    )
    return DocumentSet(documents.name, texts, ids, numbers, documents.columns, documents.words), metadata


def _text_or_none(value: Any) -> str | None:
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    return None if value is None or value == "" else str(value)


def _check_languages(documents: DocumentSet, languages: list | None, embedder: DocumentEmbedder) -> None:
    known = list(embedder.model.config.languages)
    expected = f"expected one of those that the model has an encoder for: {', '.join(known)}"
    if languages is None:
        raise EmbedError(f"{documents.name}: found no language of the documents, {expected}; see --language-field")
    for number, code in zip(documents.numbers, languages, strict=True):
        if code not in known:
            raise EmbedError(f"{documents.name}, {documents.words[0]} {number}: found language {code!r}, {expected}")


def open_index(source: Source, model: str | None, device: str | None, loading: Mapping[str, Any]) -> DocumentIndex:
    """An index that `tmde index` made, with its model.

    Args:
        source: Whose name is the index's folder.
        model: Where its model is now; None: where it was.
        device, loading: As in `index_documents`.

    Raises:
        EmbedError: Options that only a file can have, an empty index, a model that cannot be loaded.
        DocumentIndexError: A damaged index, or another model than its own.
    """
    if options := source.given():
        raise EmbedError(f"{options[0]}: {source.name} is an index, which has been told its fields by tmde index")
    index = opened_index(Path(source.name))
    if not len(index):
        raise EmbedError(f"{source.name}: found an index without documents")
    try:
        index.embedder = embedder_of_index(index, model, device, dict(loading))
    except EmbedError as error:
        named = str(error).replace("--model ", "MODEL ", 1)
        raise EmbedError(named.replace("give --model", f"give it: tmde demo MODEL {source.name}")) from None
    return index


def draw_collection(
    index: DocumentIndex,
    name: str,
    model: str,
    label_fields: Sequence[str] = (),
    points: int = 5000,
    method: str | None = None,
    seed: int = 0,
) -> Collection:
    """What the page shows of an index.

    Args:
        index: With its embedder.
        name, model: What the page calls collection and model.
        label_fields: Metadata whose values are groups of the map beside `language`; none: all of which the drawn
            documents have two to `_MOST_GROUPS` different values.
        points: Documents drawn at most; others are chosen by `seed`.
        method: See `map_collection`.
        seed: Of the choice, of the map and of the examples.

    Raises:
        EmbedError: A label field that no document has.
    """
    from modeling_tmde.documents.collection_map import drawn_rows, map_collection

    ids = sorted(index)
    ids = [ids[row] for row in drawn_rows(len(ids), points, seed)]
    typer.echo(f"Drawing a map of {len(ids):,} documents ...", err=True)
    drawn = [index.document(id) for id in ids]
    collection_map = map_collection(index.vectors(ids), method, seed)
    groups = _groups(drawn, name, label_fields)
    languages = sorted(map(_code, index.values("language")), key=lambda code: (code is None, code or ""))
    languages = [] if set(languages) == {None} else list(dict.fromkeys(languages))
    return Collection(name, model, index, drawn, collection_map, groups, languages, _examples(drawn, seed))


def language_of(hit: Hit) -> str | None:
    return _code(hit.metadata.get("language"))


def _code(language: Any) -> str | None:
    return language if isinstance(language, str) and language else None


def _groups(drawn: Sequence[Hit], name: str, label_fields: Sequence[str]) -> dict[str, list[str]]:
    names = list(dict.fromkeys(key for hit in drawn for key in hit.metadata))
    for wanted in label_fields:
        if wanted not in names:
            raise EmbedError(f"{name}: no field {wanted!r}, found {names}; see --label-field")
    groups = {}
    for key in ["language", *(label_fields or names)]:
        values = [_text_or_none(hit.metadata.get(key)) for hit in drawn]
        counts = Counter(value for value in values if value is not None)
        if key in groups or not counts or (key == _TITLE and key not in label_fields):
            continue
        if key not in ("language", *label_fields) and not 2 <= len(counts) <= _MOST_GROUPS:
            continue
        kept = {
            value for value, _ in counts.most_common(_MOST_GROUPS if len(counts) <= _MOST_GROUPS else _MOST_GROUPS - 1)
        }
        groups[key] = [NOTHING if value is None else value if value in kept else OTHERS for value in values]
    return groups


def _examples(drawn: Sequence[Hit], seed: int) -> list[tuple[str, str]]:
    """A sentence of a document in each of several languages, (language, sentence)."""
    from modeling_tmde.long_documents import split_sentences

    by_language: dict[str, list[Hit]] = {}
    for hit in drawn:
        if (code := language_of(hit)) is not None:
            by_language.setdefault(code, []).append(hit)
    rng = random.Random(seed)
    shortest, longest = _EXAMPLE_CHARACTERS
    examples = []
    for code in sorted(by_language)[:_EXAMPLES]:
        for hit in rng.sample(by_language[code], min(20, len(by_language[code]))):
            sentences = split_sentences(hit.text[:2000], code)
            if fitting := [text for text in sentences if shortest <= len(text) <= longest]:
                examples.append((code, " ".join(max(fitting, key=len).split())))
                break
    return examples
