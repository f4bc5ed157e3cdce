"""A parallel corpus on the Hub: parquet shards in the schema of Europarl, with a card, in one commit."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets.data_files import sanitize_patterns
from datasets.info import DatasetInfo, DatasetInfosDict
from datasets.table import InMemoryTable
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard, DatasetCardData, metadata_load

from modeling_tmde import hub_cards
from modeling_tmde.card_text import is_untouched
from modeling_tmde.data import DOCUMENT_ID, load_parallel
from modeling_tmde.data.files import FileSource, count_rows, find_files, parse_json, read_lines
from modeling_tmde.hub_cards.readme import write_card
from modeling_tmde.hub_upload import HubRepository, HubUploadError
from modeling_tmde.training.publishing import Publication, check_license, check_repo_id, is_companion, sizes_of

logger = logging.getLogger("modeling_tmde.training")

SHARD_BYTES, BLOCK_ROWS = 500_000_000, 10_000
SHARDS = "data/train-*"
EXTRA_COLUMNS = ("score", "ids", "segment")  # what `tmde mine` and `tmde align` say of a row


def push_corpus(
    source: str | os.PathLike,
    repo_id: str,
    private: bool | None = None,
    license: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    message: str | None = None,
    token: str | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Uploads parallel rows in one commit, as parquet shards with the column `translation` and a card, such that
    `load_dataset(repo_id, streaming=True)` and `tmde train --train repo_id` read them. `doc_id` goes along where there
    is one, and so does what `tmde mine` and `tmde align` say of a row.

    They are the split `train`: other splits that the repository holds stay, and so does what a person wrote into its
    card.

    Args:
        source: Files or a folder, as `load_parallel` takes them.
        others: As `push_model`.

    Raises:
        CorpusError: Rows that are none; empty texts and rows with fewer than two languages are left out and counted.
        PublishError, HubUploadError: As `push_model`; a repository that holds something else than parallel rows,
            several configs, or splits with other columns, is refused.
    """
    check_repo_id(repo_id)
    check_license(license)
    source = os.path.expanduser(source)
    own = _Readme.read(os.path.join(source, "README.md"))
    rows = _rows(source)
    with tempfile.TemporaryDirectory() as name:
        folder, readme = Path(name) / "data", Path(name) / "README.md"
        files: dict[str, Path | bytes] = dict(_write_shards(rows, folder))
        size = sum(sizes_of(files).values())
        repository, held, splits = None, _Readme(), _Splits()
        if not dry_run:
            repository = HubRepository(repo_id, "dataset", private, token, revision, create_pr)
        if repository is not None and not overwrite:
            if "README.md" in repository.files:
                held = _Readme.read(repository.download("README.md"))
            splits = _other_splits(repository, held.metadata, rows)
        metadata = {**held.metadata, **own.metadata}
        card = hub_cards.dataset_card(folder, repo_id=repo_id, license=license or metadata.get("license"))
        _add_metadata(card, metadata, [*_tags(held), *_tags(own)])
        _add_schema(card, rows, size, splits)
        base = held if held.by_hand and not own.by_hand else own if own.path else held
        if base.path:
            shutil.copyfile(base.path, readme)
        write_card(card, readme)
        files["README.md"] = readme
        if repository is None:
            return Publication(repo_id, sizes_of(files))
        stale = ("**",) if overwrite else (SHARDS,)
        commit = repository.commit(files, message or "Upload parallel corpus", stale=stale)
        return Publication(repository.repo_id, sizes_of(files), commit, commit.oid == repository.sha)


# ---- Rows


def _rows(source: str) -> datasets.Dataset:
    """The checked rows, with the columns by which a card tells how they were made."""
    rows = load_parallel(source, document_ids=True)
    if not any(rows.unique(DOCUMENT_ID)):
        rows = rows.remove_columns(DOCUMENT_ID)
    rows = rows.cast_column("translation", datasets.Translation(sorted(rows.features["translation"])))
    extra = _extra_columns(find_files(source) or [], len(rows))
    return datasets.concatenate_datasets([rows, extra], axis=1) if extra is not None else rows


def _extra_columns(files: Sequence[FileSource], count: int) -> datasets.Dataset | None:
    """Those of `EXTRA_COLUMNS` that every row has, in one type; others are left out with a warning.

    Args:
        count: Of the checked rows; where some were dropped, columns no longer fit the others.
    """
    blocks = [block for file in files for block in _extra_blocks(file)]
    total = sum(length for length, _ in blocks)
    columns, unfit = {}, []
    for name in EXTRA_COLUMNS:
        parts = [found.get(name, pa.nulls(length)) for length, found in blocks]
        if all(part is not None and part.null_count == len(part) for part in parts):
            continue  # no such column
        column = _joined(parts)
        if column is None or column.null_count:
            unfit.append(name)
        else:
            columns[name] = column
    if unfit:
        logger.warning(f"Left out the columns {', '.join(unfit)}: not every row has them, in one type")
    if columns and total != count:
        logger.warning(f"Left out the columns {', '.join(columns)}: {total - count:,} rows were dropped")
        return None
    return datasets.Dataset(InMemoryTable(pa.table(columns))) if columns else None


def _joined(parts: Sequence[pa.Array | pa.ChunkedArray | None]) -> pa.ChunkedArray | None:
    """One column; None where they have no common type. Structs get the fields of all, numbers the wider type."""
    if any(part is None for part in parts):
        return None
    try:
        tables = [pa.table({"column": part}) for part in parts]
        return pa.concat_tables(tables, promote_options="permissive").column("column")
    except pa.ArrowException:
        return None


def _extra_blocks(file: FileSource) -> Iterator[tuple[int, dict[str, pa.Array | pa.ChunkedArray | None]]]:
    """Numbers of rows, and their extra columns; None for one that has several types."""
    if file.format == "parquet":
        with pq.ParquetFile(file.paths[0]) as parquet:
            names = [name for name in EXTRA_COLUMNS if name in parquet.schema_arrow.names]
            table = parquet.read(columns=names)
            yield parquet.metadata.num_rows, {name: table.column(name) for name in names}
    elif file.format == "jsonl":
        path = file.paths[0]
        found = (parse_json(line, path, number) for number, line in read_lines(path) if line.strip())
        while rows := list(itertools.islice(found, BLOCK_ROWS)):
            yield len(rows), {name: _array([row.get(name) for row in rows]) for name in EXTRA_COLUMNS}
    else:
        yield count_rows(file), {}


def _array(values: list) -> pa.Array | None:
    try:
        return pa.array(values)
    except pa.ArrowException:
        return None


def _write_shards(rows: datasets.Dataset, folder: Path) -> dict[str, Path]:
    folder.mkdir()
    count = max(1, -(-rows.data.nbytes // SHARD_BYTES))
    paths = {}
    for index in range(count):
        name = f"train-{index:05d}-of-{count:05d}.parquet"
        rows.shard(count, index, contiguous=True).to_parquet(folder / name)
        paths[f"data/{name}"] = folder / name
    return paths


# ---- The card, and what the repository holds


@dataclass
class _Readme:
    """A README.md, or none. `by_hand`: a person wrote its text."""

    path: Path | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    by_hand: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike) -> _Readme:
        """
        Raises:
            ValueError: Its front matter is no YAML mapping.
        """
        path = Path(path)
        if not path.is_file():
            return cls()
        try:
            metadata = metadata_load(path) or {}
        except Exception as error:  # yaml's errors have no common base with that of a block that is no mapping
            raise ValueError(
                f"{path}: its front matter (between the lines ---) is not a YAML mapping ({error}); correct or "
                "delete it"
            ) from error
        return cls(path, metadata, not is_untouched(path.read_text(encoding="utf-8-sig")))


@dataclass
class _Splits:
    """Splits besides `train` that a repository holds: what its card says of their rows, and their files."""

    infos: list[datasets.SplitInfo] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)


def _tags(readme: _Readme) -> list[str]:
    tags = readme.metadata.get("tags")
    return tags if isinstance(tags, list) else []


def _add_metadata(card: DatasetCard, metadata: Mapping[str, Any], tags: Sequence[str]) -> None:
    """What the card does not know itself."""
    made = card.data.to_dict()
    for key, value in metadata.items():
        if key not in made and key != "dataset_info":
            card.data[key] = value
    card.data.tags = list(dict.fromkeys([*tags, *(card.data.tags or [])]))


def _add_schema(card: DatasetCard, rows: datasets.Dataset, size: int, splits: _Splits) -> None:
    """What `datasets` reads in a card: where the shards are, columns, and their rows.

    Args:
        size: Of the shards of `rows`, in bytes.
    """
    train = datasets.SplitInfo("train", num_bytes=rows.data.nbytes, num_examples=len(rows))
    held = [train, *splits.infos]
    info = DatasetInfo(
        features=rows.features,
        splits=datasets.SplitDict({split.name: split for split in held}),
        download_size=size,
        dataset_size=sum(split.num_bytes or 0 for split in held),
    )
    DatasetInfosDict({"default": info}).to_dataset_card_data(card.data)
    if splits.files:  # whose size nobody has told
        del card.data["dataset_info"]["download_size"]
    files = {"train": [SHARDS], **splits.files}
    listed = [{"split": name, "path": paths[0] if len(paths) == 1 else paths} for name, paths in files.items()]
    MetadataConfigs({"default": {"data_files": listed}}).to_dataset_card_data(card.data)


def _other_splits(repository: HubRepository, metadata: Mapping[str, Any], rows: datasets.Dataset) -> _Splits:
    """
    Raises:
        HubUploadError: The repository holds what the rows cannot stand beside.
    """
    try:
        data = DatasetCardData(**copy.deepcopy(dict(metadata)))
        configs, infos = MetadataConfigs.from_dataset_card_data(data), DatasetInfosDict.from_dataset_card_data(data)
        files = sanitize_patterns(configs.get("default", {}).get("data_files") or {})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _refusal(repository, f"the configs or dataset_info of its card cannot be read ({error})") from error
    held = [path for path in repository.files if not is_companion(path)]
    if not held:
        return _Splits()
    others = sorted({*configs, *infos} - {"default"})
    if others:
        raise _refusal(repository, f"the repository has the configs {', '.join(others)}, and rows have none")
    info = infos.get("default")
    if "translation" not in ((info and info.features) or {}):
        found = f"the repository holds {len(held)} files such as {held[0]!r}, and its card names no column"
        raise _refusal(repository, f"{found} 'translation'")
    if not files:
        found = (re.fullmatch(r"data/(\w+)-\d{5}-of-\d{5}.*\.parquet", path) for path in held)
        files = {match[1]: [f"data/{match[1]}-*"] for match in found if match}
    files.pop("train", None)
    if not files:
        return _Splits()
    if not _same_columns(rows.features, info.features):
        raise _refusal(
            repository,
            f"its split {', '.join(files)} has the columns {info.features}, these rows have {rows.features}, and all "
            "splits must have the same",
        )
    return _Splits([split for name, split in (info.splits or {}).items() if name in files], files)


def _same_columns(first: datasets.Features, second: datasets.Features) -> bool:
    """Stored alike: a `Translation` is a struct."""
    return dict(zip(first, first.arrow_schema.types, strict=True)) == dict(
        zip(second, second.arrow_schema.types, strict=True)
    )


def _refusal(repository: HubRepository, found: str) -> HubUploadError:
    return HubUploadError(
        f"{repository.repo_id}: {found}; push the corpus to another name, or replace all that is there with "
        "--overwrite (overwrite=True). Nothing was published"
    )
