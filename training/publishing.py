"""Pushes of models and parallel corpora to the Hub, each in one commit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
from huggingface_hub import CommitInfo, run_as_future
from transformers import AutoTokenizer, PreTrainedModel, Trainer
from transformers.trainer_utils import HubStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from tmde import hub_cards
from tmde.data import DOCUMENT_ID, load_parallel
from tmde.embedding.loading import errors_about, load_encoder
from tmde.training.hub_repository import CARD, HubUploadError, Repository

if TYPE_CHECKING:
    from tmde.training.arguments import TmdeTrainingArguments

logger = logging.get_logger("tmde.training")

# Options of `TmdeTrainer.push_to_hub`.
PUSH_OPTIONS = ("token", "revision", "private", "license", "data_licenses", "results")

STALE_CORPUS = ("data/train-*",)
SHARD_BYTES = 500_000_000
# `tmde mine` and `tmde align` add these columns to rows.
EXTRA_COLUMNS = ("score", "ids", "segment")


# ---- Models


def push_model(
    folder: str | os.PathLike,
    repo_id: str,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
    message: str | None = None,
    license_override: str | None = None,
    **options: Any,
) -> tuple[dict[str, int], CommitInfo | None]:
    """Upload a trained model in one commit.

    The commit holds weights, configuration, remote code, tokenizer, the files of
    sentence-transformers, card and recipe. A card that a person edited keeps its text: that of the
    folder comes first, then that of the Hub.

    Args:
        folder: A folder of `tmde train`, or any that `save_pretrained` wrote, with a tokenizer.
        repo_id: `user/name`; created if it does not exist.
        license: The license of the model, an id of the Hub such as "apache-2.0". None takes that of
            the card on the Hub, of the recipe or of the card in the folder, or the one that the
            licenses of what the model was made from demand.
        data_licenses: The licenses of the training data, by their names in the card.
        results: Folders that `tmde eval` wrote, see `model_card`.
        message: The message of the commit.
        license_override: Why `license` is right although the license of what the model was made
            from does not allow it; the card repeats the reason.
        options: Options of `Repository`: `private`, `revision`, `create_pr`, `token`, `overwrite`,
            `dry_run`.

    Returns:
        The bytes of each path in the repository, and the commit; None after a dry run.

    Raises:
        TmdeError: `folder` holds no complete model, or the Hub rejects `repo_id` or `license`, or
            the license of what the model was made from does not allow `license`.
        HubUploadError: There is no token, no permission or no connection, or the repository holds
            something else.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file() or not list(folder.glob("model*.safetensors")):
        raise TmdeError(
            f"{folder}: found no config.json or model*.safetensors, expected the folder of a "
            "trained model (for parallel rows, give --repo-type dataset)"
        )
    # Both raise if files are missing or damaged.
    model = load_encoder(str(folder), local_files_only=True)
    AutoTokenizer.from_pretrained(folder, local_files_only=True)
    repository = Repository(repo_id, "model", **options)
    repository.check_kind(model.config.model_type)
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name)
        hub_cards.stage_model(folder, stage)
        if not (stage / "modules.json").is_file():
            write_sentence_transformers_files(model, stage)
        with errors_about(folder):
            card = hub_cards.model_card(
                folder,
                repository.repo_id,
                license or repository.license,
                data_licenses,
                results,
                license_override,
                is_shared=True,
            )
        chosen_license = card.data.get("license")
        if chosen_license is None:
            logger.warning("Found no license; set one with --license, such as apache-2.0")
        elif not license and not repository.license:
            logger.warning(
                f"License: {chosen_license}, taken from the card in {folder} or from the base "
                "models and data; set another with --license"
            )
        repository.write_card(stage, card, folder / CARD)
        if not message:
            message = f"Upload {folder.resolve().name}"
        return repository.commit(stage, message, hub_cards.STALE_MODEL)


# ---- Corpora


def push_corpus(
    source: str | os.PathLike,
    repo_id: str,
    license: str | None = None,
    message: str | None = None,
    **options: Any,
) -> tuple[dict[str, int], CommitInfo | None]:
    """Upload parallel rows in one commit, as parquet shards in the schema of Europarl, with a card.

    `load_dataset(repo_id)` and `tmde train --train repo_id` read them. They are the split `train`;
    other splits of the repository are kept, and so is the text of a card that a person edited.
    `Dataset.push_to_hub` would need a second commit for the card.

    Args:
        source: Files or a folder, as `load_parallel` takes them.
        repo_id: `user/name`; created if it does not exist.
        license: The license of the corpus, as for `push_model`.
        message: The message of the commit.
        options: Options of `Repository`, as for `push_model`.

    Returns:
        The bytes of each path in the repository, and the commit; None after a dry run.

    Raises:
        CorpusError: There are no valid rows; empty texts and rows with fewer than two languages are
            dropped and counted.
        TmdeError: As for `push_model`.
        HubUploadError: As for `push_model`.
    """
    source = Path(source).expanduser()
    rows = _read_rows(source)
    repository = Repository(repo_id, "dataset", **options)
    repository.check_kind(None)
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name)
        _write_shards(rows, stage / "data")
        if not license:
            license = repository.license
        card = hub_cards.dataset_card(rows, repository.repo_id, license)
        repository.write_card(stage, card, source / CARD)
        return repository.commit(stage, message or "Upload parallel corpus", STALE_CORPUS)


def _write_shards(rows: datasets.Dataset, folder: Path) -> None:
    folder.mkdir(parents=True)
    count = max(1, -(-rows.data.nbytes // SHARD_BYTES))
    for index in range(count):
        shard = rows.shard(count, index, contiguous=True)
        shard.to_parquet(folder / f"train-{index:05d}-of-{count:05d}.parquet")


def _read_rows(source: Path) -> datasets.Dataset:
    """Return checked rows, with the columns that `tmde mine` and `tmde align` add."""
    rows = load_parallel(str(source), document_ids=True)
    if not any(rows.unique(DOCUMENT_ID)):
        rows = rows.remove_columns(DOCUMENT_ID)
    languages = sorted(rows.features["translation"])
    rows = rows.cast_column("translation", datasets.Translation(languages))
    extra_columns = _read_extra_columns(source)
    if extra_columns is None:
        return rows
    if len(extra_columns) != len(rows):
        logger.warning(
            f"Left out the columns {', '.join(extra_columns.column_names)}: "
            f"{len(extra_columns) - len(rows):,} rows were dropped"
        )
        return rows
    return datasets.concatenate_datasets([rows, extra_columns], axis=1)


def _read_extra_columns(source: Path) -> datasets.Dataset | None:
    """Return the columns that `tmde mine` and `tmde align` add, of all rows; None without any."""
    paths = [*sorted(source.glob("*")), source]
    files = [str(path) for path in paths if path.suffix in (".parquet", ".jsonl")]
    if not files:
        return None
    kind = "parquet" if files[0].endswith(".parquet") else "json"
    whole = datasets.load_dataset(kind, data_files=files, split="train")
    names = [name for name in EXTRA_COLUMNS if name in whole.column_names]
    if not names:
        return None
    return whole.select_columns(names)


# ---- Training


def open_hub_repository(args: TmdeTrainingArguments, model_type: str) -> Repository:
    """Return the repository to which a run pushes.

    Args:
        args: The training arguments; `hub_model_id` is by default the name of the run's folder.
        model_type: The type of the model that is trained.

    Raises:
        HubUploadError: The repository cannot be pushed to, or holds something else; or
            `hub_strategy` is neither "end" nor "every_save".
    """
    if args.hub_strategy not in ("end", "every_save"):
        strategy = HubStrategy(args.hub_strategy).value
        raise HubUploadError(f"hub_strategy: found {strategy!r}, expected 'end' or 'every_save'")
    repository = Repository(
        args.hub_model_id or Path(args.output_dir).absolute().name,
        repo_type="model",
        private=args.hub_private_repo,
        token=args.hub_token,
        revision=args.hub_revision,
    )
    repository.check_kind(model_type)
    return repository


class HubTrainer(Trainer):
    """`Trainer` whose pushes hold the model with its card and recipe, and nothing else of a run."""

    args: TmdeTrainingArguments
    model: PreTrainedModel

    def push_to_hub(  # type: ignore[override]  # every push waits, and not all processes push
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        **options: Any,
    ) -> CommitInfo | None:
        """Save the model, and push it with its card and recipe in one commit.

        Args:
            commit_message: The message of the commit.
            blocking: Every push waits until it is done, so only True is accepted.
            options: token, revision, private, license, data_licenses or results, as in
                `tmde push`.

        Raises:
            TmdeError: There is no such option. The card is made from the records of the run.
            HubUploadError: The upload failed; the model is saved.
        """
        if not blocking:
            raise TmdeError("blocking: found False, expected True, because every push is blocking")
        for option in options:
            if option not in PUSH_OPTIONS:
                raise TmdeError(
                    f"push_to_hub has no option {option!r}, expected one of "
                    f"{', '.join(PUSH_OPTIONS)}; the card is made from the run's records"
                )
        pushes = self.args.push_to_hub
        self.args.push_to_hub = False  # Saving would push as well.
        try:
            self.save_model()
        finally:
            self.args.push_to_hub = pushes
        return self.push_saved(commit_message, **options)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the card of the model, which `save_model` writes as well.

        Raises:
            TmdeError: Facts for the card are given. It is made from the records of the run.
        """
        if args or kwargs:
            raise TmdeError(
                "create_model_card takes no arguments, because the card is made from the "
                "run's records; edit README.md instead: later cards keep your text"
            )
        self.save_model()

    def push_saved(
        self, commit_message: str | None = "End of training", **options: Any
    ) -> CommitInfo | None:
        """Push the model that the run's folder holds in one commit, see `push_to_hub`."""
        if not self.is_world_process_zero():
            return None
        push = getattr(self, "push_in_progress", None)
        if push is not None:
            push.wait_until_done()
        args = self.args
        folder = Path(args.output_dir).absolute()
        name = self.hub_model_id or args.hub_model_id or folder.name
        defaults = {
            "revision": args.hub_revision,
            "token": args.hub_token,
            "private": args.hub_private_repo,
        }
        try:
            _, commit = push_model(folder, name, message=commit_message, **(defaults | options))
        except HubUploadError as error:
            raise HubUploadError(
                f"{error}. The model is saved: `tmde push {folder} {name}`"
            ) from error
        return commit

    def _is_pushing(self) -> bool:
        """Return whether a push in the background is not done yet."""
        push = getattr(self, "push_in_progress", None)
        return push is not None and not push.is_done()

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Push the model of a checkpoint in the background.

        If a later checkpoint deletes it first, a warning says so.
        """
        args = self.args
        if not self.is_world_process_zero() or args.hub_strategy == "end":
            return
        if self._is_pushing() and not args.hub_always_push:
            return
        model_type = self.model.config.model_type
        message = f"Training in progress, step {self.state.global_step}"

        def push() -> None:
            try:
                with tempfile.TemporaryDirectory() as name:
                    hub_cards.stage_model(Path(checkpoint_folder), Path(name))
                    repository = open_hub_repository(args, model_type)
                    repository.commit(Path(name), message, hub_cards.STALE_MODEL)
            except Exception as error:
                logger.warning(
                    f"A push during training failed; the next one includes its files: {error}"
                )

        # One thread runs all of these jobs in turn: the last one ends last.
        # transformers annotates neither the attribute nor the list of jobs.
        self.push_in_progress = PushInProgress([run_as_future(push)])  # type: ignore[assignment, arg-type]
