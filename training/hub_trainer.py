"""`Trainer(push_to_hub=True)` for models in training: what is pushed, in one commit each time."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, metadata_load, metadata_save
from transformers import Trainer
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from modeling_tmde import hub_cards
from modeling_tmde.card_text import is_untouched
from modeling_tmde.data.io import replacing
from modeling_tmde.hub_upload import (
    CARD,
    PICTURE,
    RESULTS,
    STALE_WEIGHTS,
    HubRepository,
    HubUploadError,
    repository_files,
)
from modeling_tmde.sharing import short_card, weight_hashes
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.publishing import check_kind, push_model

logger = logging.get_logger("modeling_tmde.training")

PUSH_OPTIONS = ("license", "data_licenses", "results")  # of `push_model`
# Of `Trainer.create_model_card`: what the card takes, by its name there, and what it knows from the run alone.
CARD_METADATA = {"tags": "tags", "finetuned_from": "base_model", "dataset_tags": "datasets"}
OF_THE_RUN = ("language", "model_name", "tasks", "dataset", "dataset_args")


def open_hub_repository(args: TmdeTrainingArguments, model_type: str) -> HubRepository:
    """That of `hub_model_id`, or the run folder's name; made if it is not there.

    Raises:
        HubUploadError: It cannot be pushed to, or holds another kind of thing.
    """
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    repository = HubRepository(name, "model", args.hub_private_repo, args.hub_token, args.hub_revision)
    check_kind(repository, model_type)
    return repository


class HubTrainer(Trainer):
    """Pushes the model, not its training wrapper, and not the whole folder of the run, as `Trainer` would."""

    @cached_property
    def _background(self) -> HfApi:
        """One, since its jobs run one after the other: each commit says which one it follows."""
        return HfApi()

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        if not self.is_world_process_zero():
            return
        self.args.hub_token = token or self.args.hub_token
        self.args.hub_private_repo = self.args.hub_private_repo if private is None else private
        config = self.accelerator.unwrap_model(self.model).config
        self.hub_model_id = open_hub_repository(self.args, config.model_type).repo_id
        self.push_in_progress = None

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs,
    ) -> CommitInfo | Future | None:
        """Saves the model as it is now in the run's folder, and pushes it with tokenizer, remote code, recipe and a
        filled-in card, in one commit.

        Args:
            private: A repository that is there already must be private then; None for `hub_private_repo`.
            kwargs: Of `push_model`: license, data_licenses, results. Of `Trainer.create_model_card`: tags; and
                finetuned_from and dataset_tags, where the run does not tell them. Others of that method have no effect
                but a warning, since the card is made of what the run recorded.

        Raises:
            TypeError: Other `kwargs`; nothing is saved.
            HubUploadError: See `push_model`.
        """
        unknown = sorted(set(kwargs) - {*PUSH_OPTIONS, *CARD_METADATA, *OF_THE_RUN})
        if unknown:
            raise TypeError(f"push_to_hub() got an unexpected keyword argument {unknown[0]!r}")
        left = [name for name in OF_THE_RUN if kwargs.get(name) is not None]
        if left:
            logger.warning(f"The card tells what the run recorded; it is not changed by {', '.join(left)}")
        if self.hub_model_id is None:
            self.init_hf_repo(token=token, private=private)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        metadata = {key: kwargs[name] for name, key in CARD_METADATA.items() if kwargs.get(name)}
        if metadata:
            _add_to_card(Path(self.args.output_dir), self.hub_model_id, metadata)
        options = {name: kwargs[name] for name in PUSH_OPTIONS if kwargs.get(name) is not None}
        return self.push_folder(commit_message, blocking, token, revision, private, **options)

    def push_folder(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **options,
    ) -> CommitInfo | Future | None:
        """As `push_to_hub`, of the model that the run's folder holds; `options` of `push_model`."""
        if not self.is_world_process_zero():
            return None
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self._finish_current_push()
        options |= {"revision": revision or self.args.hub_revision, "token": token or self.args.hub_token}
        options |= {"message": commit_message, "private": self.args.hub_private_repo if private is None else private}
        if not blocking:
            return self._background.run_as_future(
                lambda: push_model(self.args.output_dir, self.hub_model_id, **options).commit
            )
        try:
            return push_model(self.args.output_dir, self.hub_model_id, **options).commit
        except HubUploadError as error:
            raise HubUploadError(
                f"{error}. The model is in {self.args.output_dir}; `tmde push {self.args.output_dir} "
                f"{self.hub_model_id}` brings it to the Hub"
            ) from error

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """In the background, from copies: a later checkpoint deletes this one."""
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        busy = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if busy and not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        steps = self.args.save_strategy == SaveStrategy.STEPS
        place = f"step {self.state.global_step}" if steps else f"epoch {int(self.state.epoch)}"
        job = self._background.run_as_future(
            self._push_copies, _copies(checkpoint_folder), f"Training in progress, {place}"
        )
        if busy:
            self.push_in_progress.jobs.append(job)
        else:
            self._warn_of_failed_pushes()
            self.push_in_progress = PushInProgress([job])

    def _push_copies(self, folder: tempfile.TemporaryDirectory, message: str) -> CommitInfo:
        """The folder's model at the top of the repository; if checkpoints are asked for, all of it in one of its own
        too, optimizer and place in the data included.

        What the repository holds of an earlier run's results goes with its weights; a card that a person wrote stays.
        """
        with folder as name:
            [checkpoint] = Path(name).iterdir()
            files, stale = dict(repository_files(checkpoint)), list(STALE_WEIGHTS)
            if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
                last = self.args.hub_strategy == HubStrategy.CHECKPOINT
                place = "last-checkpoint" if last else checkpoint.name
                inside = (path for path in checkpoint.rglob("*") if path.is_file())
                files |= {f"{place}/{path.relative_to(checkpoint).as_posix()}": path for path in inside}
                stale.append(f"{place}/*")
            args = self.args
            # Private also here: it makes the repository anew if somebody has deleted it since.
            private, token = args.hub_private_repo, args.hub_token
            repository = HubRepository(self.hub_model_id, "model", private, token, args.hub_revision)
            if not repository.holds(weight_hashes(checkpoint)):
                stale += RESULTS
                if (card := _replaced_card(repository, checkpoint)) is not None:
                    files = {CARD: card, **files}
                    stale.append(PICTURE)
            return repository.commit(files, message, stale=stale)

    def _finish_current_push(self) -> None:
        super()._finish_current_push()
        self._warn_of_failed_pushes()

    def _warn_of_failed_pushes(self) -> None:
        """Of a push in the background nobody hears otherwise; training goes on, and the next one brings the model."""
        pushes = getattr(self, "push_in_progress", None)
        for job in pushes.jobs if pushes is not None else ():
            if job.done() and job.exception() is not None:
                logger.warning(f"A push during the training failed, the next one makes up for it: {job.exception()}")
        self.push_in_progress = None


def _replaced_card(repository: HubRepository, folder: Path) -> bytes | None:
    """A short card instead of one that was made of other weights, until the end of training brings a whole one; None
    if there is none, or a person's."""
    there = repository.download(CARD) if CARD in repository.files else None
    if there is None or not is_untouched(there.read_text(encoding="utf-8-sig")):
        return None
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return str(short_card(repository.repo_id, config.get("languages") or (), there)).encode()


def _add_to_card(folder: Path, repo_id: str, metadata: dict[str, Any]) -> None:
    """To the metadata of the card in the folder, which a push brings up to date and otherwise keeps."""
    hub_cards.write_model_card(folder, repo_id=repo_id)
    readme = folder / "README.md"
    held, tags = metadata_load(readme) or {}, metadata.pop("tags", [])
    left = [name for name, value in metadata.items() if held.get(name, value) != value]
    if left:
        logger.warning(f"The card tells what the run recorded; it is not changed by {', '.join(left)}")
    tags = [*(held.get("tags") or []), *([tags] if isinstance(tags, str) else tags)]
    with replacing(readme) as temporary:
        shutil.copyfile(readme, temporary)
        metadata_save(temporary, {**metadata, **held, "tags": list(dict.fromkeys(tags))})


def _copies(folder: str) -> tempfile.TemporaryDirectory:
    """A second name for every file of a folder, inside a folder that goes when nobody holds it any more; a copy of the
    one that names a place on this machine, without it."""
    temporary = tempfile.TemporaryDirectory(dir=Path(folder).parent, prefix=".push-")
    copy = Path(temporary.name) / Path(folder).name
    shutil.copytree(folder, copy, copy_function=_link)
    state = copy / TRAINER_STATE_NAME
    if state.is_file():
        content = json.loads(state.read_text(encoding="utf-8"))
        if content.get("best_model_checkpoint"):
            content["best_model_checkpoint"] = Path(content["best_model_checkpoint"]).name
            state.unlink()  # or the checkpoint's own would be written to
            state.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return temporary


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)
