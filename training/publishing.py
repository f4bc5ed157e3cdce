"""Pushes models and parallel corpora to the Hub, each in one commit."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import datasets
from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    RepoCard,
    run_as_future,
)
from huggingface_hub.errors import HfHubHTTPError, HTTPError
from transformers import AutoModel, AutoTokenizer, Trainer
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from tmde import hub_cards
from tmde.data import DOCUMENT_ID, load_parallel
from tmde.embedding.loading import reading

logger = logging.get_logger("tmde.training")

CARD = "README.md"
STALE_CORPUS = ("data/train-*",)
NEUTRAL = (
    ".gitattributes",
    ".gitignore",
    "*.md",
    "LICENSE*",
    "tokenizer*",
    "vocab*",
    "*.model",
    "merges.txt",
)
SHARD_BYTES = 500_000_000


class HubUploadError(OSError):
    """Nothing was published; the message says why and what to do."""


# ---- Models


def push_model(
    folder: str | os.PathLike,
    repo_id: str,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
    message: str | None = None,
    **options: Any,
) -> tuple[dict[str, int], CommitInfo | None]:
    """Uploads a trained model in one commit: weights, configuration, remote code, tokenizer, the files of
    sentence-transformers, card and recipe.

    A card that a person edited keeps its text: that of the folder comes first, then that of the Hub.

    Args:
        folder: Of `tmde train`, or any that `save_pretrained` wrote, with a tokenizer.
        repo_id: `user/name`; created if it does not exist.
        license: Of the model, an id of the Hub such as "apache-2.0". Default: that of the card on the Hub, of the
            recipe or of the card in the folder.
        data_licenses: Of the training data, by their names in the card.
        results: Folders that `tmde eval` wrote, see `model_card`.
        message: Of the commit.
        options: Of `Repository`: `private`, `revision`, `create_pr`, `token`, `overwrite`, `dry_run`.

    Returns:
        Bytes by path in the repository, and the commit; None after a dry run.

    Raises:
        ValueError: `folder` holds no complete model, or the Hub rejects `repo_id` or `license`.
        HubUploadError: No token, no permission, no connection, or a repository that holds something else.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file() or not list(folder.glob("model*.safetensors")):
        raise TmdeError(
            f"{folder}: found no config.json and model*.safetensors, expected the folder of a trained model (parallel "
            "rows need --repo-type dataset)"
        )
    model = AutoModel.from_pretrained(
        folder, local_files_only=True
    )  # raises if files are missing or damaged
    AutoTokenizer.from_pretrained(folder, local_files_only=True)
    repository = Repository(repo_id, "model", **options)
    repository.check_kind(model.config.model_type)
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name)
        hub_cards.stage_model(folder, stage)
        if not (stage / "modules.json").is_file():
            write_sentence_transformers_files(model, stage)
        hub_cards.stage_records(folder, stage)
        with reading(folder):
            license = license or repository.license
            card = hub_cards.model_card(folder, repository.repo_id, license, data_licenses, results)
        repository.write_card(stage, card, folder / CARD)
        return repository.commit(
            stage, message or f"Upload {folder.resolve().name}", hub_cards.STALE_MODEL
        )


# ---- Corpora


def push_corpus(
    source: str | os.PathLike,
    repo_id: str,
    license: str | None = None,
    message: str | None = None,
    **options: Any,
) -> tuple[dict[str, int], CommitInfo | None]:
    """Uploads parallel rows in one commit, as parquet shards in the schema of Europarl, with a card.

    `load_dataset(repo_id)` and `tmde train --train repo_id` read them. They are the split `train`; other splits of the
    repository are kept, and so is the text of a card that a person edited. `Dataset.push_to_hub` would need a second
    commit for the card.

    Args:
        source: Files or a folder, as `load_parallel` takes them.
        others: As `push_model`.

    Raises:
        CorpusError: No valid rows; empty texts and rows with fewer than two languages are dropped and counted.
        ValueError, HubUploadError: As `push_model`.
    """
    source = Path(source).expanduser()
    rows = _read_rows(source)
    repository = Repository(repo_id, "dataset", **options)
    repository.check_kind(None)
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name)
        (stage / "data").mkdir()
        count = max(1, -(-rows.data.nbytes // SHARD_BYTES))
        for index in range(count):
            shard = rows.shard(count, index, contiguous=True)
            shard.to_parquet(stage / "data" / f"train-{index:05d}-of-{count:05d}.parquet")
        card = hub_cards.dataset_card(rows, repository.repo_id, license or repository.license)
        repository.write_card(stage, card, source / CARD)
        return repository.commit(stage, message or "Upload parallel corpus", STALE_CORPUS)


def _read_rows(source: Path) -> datasets.Dataset:
    """Checked rows, with the columns that `tmde mine` and `tmde align` add."""
    rows = load_parallel(str(source), document_ids=True)
    if not any(rows.unique(DOCUMENT_ID)):
        rows = rows.remove_columns(DOCUMENT_ID)
    rows = rows.cast_column(
        "translation", datasets.Translation(sorted(rows.features["translation"]))
    )
    files = [
        str(path)
        for path in (*sorted(source.glob("*")), source)
        if path.suffix in (".parquet", ".jsonl")
    ]
    if not files:
        return rows
    kind = "parquet" if files[0].endswith(".parquet") else "json"
    whole = datasets.load_dataset(kind, data_files=files, split="train")
    extra = [name for name in ("score", "ids", "segment") if name in whole.column_names]
    if extra and len(whole) != len(rows):
        logger.warning(
            f"Left out the columns {', '.join(extra)}: {len(whole) - len(rows):,} rows were dropped"
        )
        return rows
    return (
        datasets.concatenate_datasets([rows, whole.select_columns(extra)], axis=1)
        if extra
        else rows
    )


# ---- The Hub


@contextmanager
def _hub_errors() -> Iterator[None]:
    """Raises errors of the Hub's client as one sentence."""
    try:
        yield
    except (HTTPError, ConnectionError, TimeoutError, RuntimeError) as error:
        # A failed upload of a large file is a RuntimeError, raised from the error that says why.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
        message = str(cause).strip().splitlines() or [type(cause).__name__]
        advice = {
            401: "run `hf auth login`, or set HF_TOKEN to a token with write permission",
            403: "take a token with write permission, or choose another name",
        }.get(status, "run the same again: files that arrived are not sent twice")
        raise HubUploadError(
            f"Nothing was published: {message[-1].rstrip('.')}; {advice}"
        ) from error


@dataclass
class Repository:
    """A repository of the Hub, opened for one commit. It and the branch are created if they do not exist.

    Args:
        repo_id: `user/name`.
        repo_type: "model" or "dataset".
        private: Create a private repository; an existing one must be private.
        token: None takes HF_TOKEN or that of `hf auth login`.
        revision: Branch.
        create_pr: Open a pull request.
        overwrite: Delete everything that the repository holds, even if it is something else.
        dry_run: Ask nothing and commit nothing.

    Attributes:
        head: Its newest commit.
        files: Paths that it holds.
        license: In the metadata of its card.

    Raises:
        HubUploadError: No token, no permission, no connection, or it is public and `private` is asked for.
    """

    repo_id: str
    repo_type: str = "model"
    private: bool | None = None
    token: str | None = field(default=None, repr=False)
    revision: str | None = None
    create_pr: bool = False
    overwrite: bool = False
    dry_run: bool = False

    @_hub_errors()
    def __post_init__(self) -> None:
        self.api, kind = HfApi(token=self.token), {"repo_type": self.repo_type}
        self.files, self.license = [], None
        if self.dry_run:
            return
        self.repo_id = self.api.create_repo(
            self.repo_id, private=self.private, exist_ok=True, **kind
        ).repo_id
        if self.revision is not None and not self.create_pr:
            self.api.create_branch(self.repo_id, branch=self.revision, exist_ok=True, **kind)
        info = self.api.repo_info(self.repo_id, revision=self.revision, **kind)
        if self.private and not info.private:
            raise HubUploadError(
                f"{self.repo_id} is public, expected a private repository; change its settings"
            )
        self.head, self.files = info.sha, [file.rfilename for file in info.siblings or ()]
        self.license = (info.card_data or {}).get("license")

    @_hub_errors()
    def read(self, path: str) -> str:
        """The text of a file; empty if there is none."""
        if path not in self.files:
            return ""
        found = self.api.hf_hub_download(
            self.repo_id, path, repo_type=self.repo_type, revision=self.head
        )
        return Path(found).read_text("utf-8-sig")

    def check_kind(self, model_type: str | None) -> None:
        """Refuses to replace something else.

        Args:
            model_type: Of the model; None for a corpus.

        Raises:
            HubUploadError: The repository holds something else.
        """
        held = [
            path for path in self.files if not any(fnmatch(path, pattern) for pattern in NEUTRAL)
        ]
        if model_type is None:
            found = next((path for path in held if not fnmatch(path, "data/*.parquet")), None)
        else:
            found = json.loads(self.read("config.json") or "{}").get("model_type") or next(
                iter(held), None
            )
        expected = model_type or "parquet files in data/"
        if found not in (None, model_type) and not self.overwrite:
            raise HubUploadError(
                f"{self.repo_id}: found {found!r}, expected {expected!r}; choose another name, or replace everything "
                "with --overwrite. Nothing was published"
            )

    def write_card(self, stage: Path, card: RepoCard, local: Path) -> None:
        """Writes the card to publish: with the text of the card at `local` if a person edited it, otherwise with that
        of the card on the Hub if a person edited it."""
        here = local.read_text("utf-8-sig") if local.is_file() else ""
        there = "" if self.overwrite else self.read(CARD)
        here = next((text for text in (here, there) if text and hub_cards.is_edited(text)), here)
        (stage / CARD).write_text(str(hub_cards.merge_card(card, here)), "utf-8")

    @_hub_errors()
    def commit(
        self, stage: Path, message: str, stale: Sequence[str]
    ) -> tuple[dict[str, int], CommitInfo | None]:
        """Uploads all files of `stage` in one commit, which deletes those that match `stale` and are not replaced.

        `HfApi.upload_folder` may make several commits of a large folder.
        """
        paths = sorted(path for path in stage.rglob("*") if path.is_file())
        sizes = {path.relative_to(stage).as_posix(): path.stat().st_size for path in paths}
        if self.dry_run:
            return sizes, None
        stale = ("*",) if self.overwrite else stale
        gone = [path for path in self.files if any(fnmatch(path, pattern) for pattern in stale)]
        kept = {*sizes, ".gitattributes"}
        operations = [
            CommitOperationDelete(path, is_folder=False) for path in gone if path not in kept
        ]
        operations += [CommitOperationAdd(path, str((stage / path).resolve())) for path in sizes]
        options = {
            "repo_type": self.repo_type,
            "revision": self.revision,
            "create_pr": self.create_pr,
        }
        options |= {
            "commit_message": message,
            "parent_commit": None if self.create_pr else self.head,
        }
        return sizes, self.api.create_commit(self.repo_id, operations, **options)


# ---- Training


def open_hub_repository(args: Any, model_type: str) -> Repository:
    """The repository that a run pushes to: `hub_model_id`, by default the name of the run's folder.

    Raises:
        HubUploadError: It cannot be pushed to, or holds something else; or another `hub_strategy` than these two.
    """
    if args.hub_strategy not in ("end", "every_save"):
        raise HubUploadError(
            f"hub_strategy: found {args.hub_strategy.value!r}, expected 'end' or 'every_save'"
        )
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    repository = Repository(name, "model", args.hub_private_repo, args.hub_token, args.hub_revision)
    repository.check_kind(model_type)
    return repository


class HubTrainer(Trainer):
    """`Trainer` whose pushes hold the model with its card and recipe, and nothing else of the run's folder."""

    def push_to_hub(
        self, commit_message: str | None = "End of training", **options: Any
    ) -> CommitInfo | None:
        """Pushes the model that the run's folder holds in one commit.

        Args:
            options: Of `push_model`: token, revision, private, license, data_licenses, results.
        """
        if not self.is_world_process_zero():
            return None
        args, folder = self.args, Path(self.args.output_dir).absolute()
        self._finish_current_push()
        name = self.hub_model_id or folder.name
        defaults = {
            "revision": args.hub_revision,
            "token": args.hub_token,
            "private": args.hub_private_repo,
        }
        try:
            return push_model(folder, name, message=commit_message, **(defaults | options))[1]
        except HubUploadError as error:
            raise HubUploadError(
                f"{error}. The model is saved: `tmde push {folder} {name}`"
            ) from error

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Pushes the model of a checkpoint in the background. If a later one deletes it first, a warning says so."""
        args, step = self.args, self.state.global_step
        busy = (
            self.push_in_progress is not None
            and not self.push_in_progress.is_done()
            and not args.hub_always_push
        )
        if busy or not self.is_world_process_zero() or args.hub_strategy == "end":
            return
        model_type = self.accelerator.unwrap_model(self.model).model.config.model_type

        def push() -> None:
            try:
                with tempfile.TemporaryDirectory() as name:
                    hub_cards.stage_model(Path(checkpoint_folder), Path(name))
                    repository = open_hub_repository(args, model_type)
                    repository.commit(
                        Path(name), f"Training in progress, step {step}", hub_cards.STALE_MODEL
                    )
            except Exception as error:
                logger.warning(
                    f"A push during training failed, the next one makes up for it: {error}"
                )

        # One thread runs all of these jobs in turn: the last one ends last.
        self.push_in_progress = PushInProgress([run_as_future(push)])
