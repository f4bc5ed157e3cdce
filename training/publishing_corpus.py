"""A parallel corpus on the Hub: parquet shards in the schema of Europarl, with a card, in one commit."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

import datasets
from datasets.info import DatasetInfo, DatasetInfosDict
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard, metadata_load

from modeling_tmde import hub_cards
from modeling_tmde.eval.corpora import DOCUMENT_ID, load_parallel
from modeling_tmde.eval.corpora.files import find_files
from modeling_tmde.hub_cards.readme import write_card
from modeling_tmde.hub_upload import HubRepository, HubUploadError
from modeling_tmde.training.publishing import Publication, check_repo_id, sizes_of, warn_of_license

logger = logging.getLogger("modeling_tmde.training")

SHARD_BYTES = 500_000_000


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

    Args:
        source: Files or a folder, as `load_parallel` takes them.
        others: As `push_model`.

    Raises:
        CorpusError: Rows that are none; empty texts and rows with fewer than two languages are left out and counted.
        PublishError, HubUploadError: As `push_model`; a repository that holds something else than parallel rows is
            refused.
    """
    check_repo_id(repo_id)
    warn_of_license(license)
    source = os.path.expanduser(source)
    rows = _rows(source)
    with tempfile.TemporaryDirectory() as name:
        folder, readme = Path(name) / "data", Path(name) / "README.md"
        files: dict[str, Path | bytes] = dict(_write_shards(rows, folder))
        card = hub_cards.dataset_card(folder, repo_id=repo_id, license=license)
        if os.path.isfile(os.path.join(source, "README.md")):
            shutil.copyfile(os.path.join(source, "README.md"), readme)
        write_card(_with_schema(card, rows, sum(sizes_of(files).values())), readme)
        files["README.md"] = readme
        if dry_run:
            return Publication(repo_id, sizes_of(files))
        repository = HubRepository(repo_id, "dataset", private, token, revision, create_pr)
        if not overwrite:
            _check_kind(repository)
        stale = ("**",) if overwrite else ("data/*",)
        commit = repository.commit(files, message or "Upload parallel corpus", stale=stale)
        return Publication(repository.repo_id, sizes_of(files), commit, commit.oid == repository.sha)


def _rows(source: str) -> datasets.Dataset:
    """The checked rows, with the columns by which a card tells how they were made."""
    rows = load_parallel(source, document_ids=True)
    if not any(rows.unique(DOCUMENT_ID)):
        rows = rows.remove_columns(DOCUMENT_ID)
    rows = rows.cast_column("translation", datasets.Translation(sorted(rows.features["translation"])))
    found = find_files(source) or []
    readers = {"parquet": datasets.Dataset.from_parquet, "jsonl": datasets.Dataset.from_json}
    formats = {file.format for file in found}
    if len(formats) != 1 or not formats <= readers.keys():
        return rows
    with tempfile.TemporaryDirectory() as cache:
        written = readers[formats.pop()](
            [path for file in found for path in file.paths], cache_dir=cache, keep_in_memory=True
        )
    extra = [column for column in ("score", "ids", "segment") if column in written.column_names]
    if not extra:
        return rows
    if len(written) != len(rows):
        logger.warning(f"Left out the columns {', '.join(extra)}: {len(written) - len(rows):,} rows were dropped")
        return rows
    return datasets.concatenate_datasets([rows, written.select_columns(extra)], axis=1)


def _write_shards(rows: datasets.Dataset, folder: Path) -> dict[str, Path]:
    folder.mkdir()
    count = max(1, -(-rows.data.nbytes // SHARD_BYTES))
    paths = {}
    for index in range(count):
        name = f"train-{index:05d}-of-{count:05d}.parquet"
        rows.shard(count, index, contiguous=True).to_parquet(folder / name)
        paths[f"data/{name}"] = folder / name
    return paths


def _with_schema(card: DatasetCard, rows: datasets.Dataset, size: int) -> DatasetCard:
    """The card with what `datasets` reads in it: where the shards are, columns, and their rows."""
    split = datasets.SplitInfo("train", num_bytes=rows.data.nbytes, num_examples=len(rows))
    info = DatasetInfo(
        features=rows.features,
        splits=datasets.SplitDict({"train": split}),
        download_size=size,
        dataset_size=rows.data.nbytes,
    )
    DatasetInfosDict({"default": info}).to_dataset_card_data(card.data)
    files = {"data_files": [{"split": "train", "path": "data/train-*"}]}
    MetadataConfigs({"default": files}).to_dataset_card_data(card.data)
    return card


def _check_kind(repository: HubRepository) -> None:
    held = [path for path in repository.files if path != "README.md"]
    if not held:
        return
    metadata = metadata_load(repository.download("README.md")) if "README.md" in repository.files else None
    described = (metadata or {}).get("dataset_info")
    features = described.get("features", []) if isinstance(described, dict) else []
    if any(isinstance(feature, dict) and feature.get("name") == "translation" for feature in features):
        return
    raise HubUploadError(
        f"{repository.repo_id}: the repository holds {len(held)} files such as {held[0]!r}, and its card names no "
        "column 'translation'; push the corpus to another name, or replace all that is there with --overwrite "
        "(overwrite=True). Nothing was published"
    )
