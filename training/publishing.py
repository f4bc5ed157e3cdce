"""Pushes models and parallel corpora to the Hub: all checks first, then everything in one commit."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import datasets
import yaml
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open
from transformers import AutoModel, AutoTokenizer, Trainer
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.trainer_utils import HubStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from modeling_tmde import hub_cards
from modeling_tmde.data import DOCUMENT_ID, load_parallel
from modeling_tmde.export import write_sentence_transformers_files

logger = logging.get_logger("modeling_tmde.training")

CARD = "README.md"
# Files of a model, beside the remote code that its configuration names. Nothing else of a run's folder is published:
# no checkpoints, optimizer states, logs, scripts or data.
MODEL_FILES = ("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json")
MODEL_FILES += ("onnx/*", "curves.png", "LICENSE*", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
MODEL_FILES += ("special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.spm", "spiece.model")
MODEL_FILES += ("sentencepiece.bpe.model", "chat_template.jinja", "modules.json", "sentence_bert_config.json")
MODEL_FILES += ("config_sentence_transformers.json", "[0-9]_*/config.json", "[0-9]_*/model.safetensors")
# Of earlier weights; a commit of new ones deletes them. A loader might prefer the one, the others state other results.
STALE = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "onnx/*", "curves.png")
STALE += ("recipe.yaml", "results.json")
NEUTRAL = (".gitattributes", ".gitignore", "*.md", "LICENSE*", "tokenizer*", "vocab*", "*.model", "merges.txt")
PUSHED_CARDS = ".pushed_cards.json"  # SHA-256 of the card that was pushed to each repository
SHARD_BYTES = 500_000_000
TABLES = {".parquet": "parquet", ".jsonl": "json"}  # builders of `datasets` by file ending
# https://huggingface.co/docs/hub/repositories-licenses
HUB_LICENSES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0
    bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0
    etalab-2.0 eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0
    grok2-community h-research intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2
    llama3.3 llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openrail openrail++ osl-3.0
    other pddl postgresql unknown unlicense wtfpl zlib
    """.split()
)


class HubUploadError(OSError):
    """Nothing was published; the message says why and what to do."""


@dataclass
class Publication:
    """What was pushed, or would be. `sizes`: bytes by path in the repository; `commit`: None after a dry run;
    `unchanged`: the repository held the same already."""

    repo_id: str
    sizes: dict[str, int]
    commit: CommitInfo | None = None
    unchanged: bool = False


# ---- Models


def push_model(
    folder: str | os.PathLike,
    repo_id: str,
    private: bool | None = None,
    license: str | None = None,
    data_licenses: Mapping[str, str] | None = None,
    results: Sequence[str | os.PathLike] = (),
    revision: str | None = None,
    create_pr: bool = False,
    message: str | None = None,
    token: str | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Uploads a trained model in one commit: weights, configuration, remote code, tokenizer, the files of
    sentence-transformers, card and recipe.

    If a person edited the card, on the Hub or in the folder, its text is kept in both places.

    Args:
        folder: Of `tmde train`, or any that `save_pretrained` wrote, with a tokenizer.
        repo_id: `user/name`; created if it does not exist.
        private: Create a private repository; an existing one must be private.
        license: Of the model, an id of the Hub such as "apache-2.0".
        data_licenses: Of the training data, by their names in the card.
        results: Folders that `tmde eval` wrote, see `model_card`.
        revision: Branch; created if it does not exist.
        create_pr: Open a pull request.
        message: Of the commit.
        token: None takes HF_TOKEN or that of `hf auth login`.
        overwrite: Delete everything that the repository holds, even if it is something else.
        dry_run: Return what would be uploaded; nothing is written or sent.

    Raises:
        ValueError: The folder is not complete, or `repo_id` or `license` is invalid.
        HubUploadError: No token, no permission, no connection, a repository that holds something else, or a card that
            was edited both there and here.
    """
    folder = Path(folder).expanduser()
    _check_names(repo_id, license)
    config = _check_model(folder)
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name)
        _stage_model(folder, stage)
        if "modules.json" not in os.listdir(stage):
            write_sentence_transformers_files(AutoModel.from_pretrained(folder, local_files_only=True), stage)
        if recipe := hub_cards.public_recipe(folder):
            (stage / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), "utf-8")
        if (folder / "results.json").is_file():
            found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
            (found.get("corpus") or {}).pop("first_examples", None)  # names and lines of the user's files
            (stage / "results.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        repository, card = None, folder / CARD
        if not dry_run:
            repository = Repository.open(repo_id, "model", private, token, revision, create_pr)
            if not overwrite:
                repository.check_kind(config["model_type"])
                card = _edited_card(repository, folder) or card
        if card.is_file():
            shutil.copyfile(card, stage / CARD)
        options = {"license": license or hub_cards.card_license(card), "data_licenses": data_licenses}
        hub_cards.save_card(hub_cards.model_card(folder, repo_id, results=results, **options), stage / CARD)
        if repository is None:
            return Publication(repo_id, _sizes(stage))
        publication = repository.commit(stage, message or f"Upload {folder.resolve().name}", overwrite=overwrite)
        try:  # the folder shows what was published
            shutil.copyfile(stage / CARD, folder / CARD)
            pushed = _read_json(folder / PUSHED_CARDS) | {repository.place: _sha256(stage / CARD)}
            (folder / PUSHED_CARDS).write_text(json.dumps(pushed, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            logger.warning(f"{folder / CARD} was not updated ({error}); the card is on the Hub")
        return publication


def _stage_model(folder: Path, stage: Path, copy: Callable[[Path, Path], Any] = os.symlink) -> None:
    """Puts the files of a model that may be published into `stage`."""
    config = _read_json(folder / "config.json")
    code: set[Path] = set()
    for reference in (config.get("auto_map") or {}).values():
        module = folder / f"{reference.split('--')[-1].split('.')[0]}.py"
        code |= {module, *map(Path, get_relative_import_files(module))}
    found = {path for pattern in MODEL_FILES for path in folder.glob(pattern)}
    for path in {*found, *code} - _outdated_graphs(folder):
        target = stage / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(path.resolve(), target)


def _outdated_graphs(folder: Path) -> set[Path]:
    """The files in `onnx/`, if the weights were saved after one of them: they are graphs of other weights."""
    graphs = set(folder.glob("onnx/*"))
    saved = max((path.stat().st_mtime_ns for path in folder.glob("model*.safetensors")), default=0)
    if all(path.stat().st_mtime_ns >= saved for path in graphs):
        return set()
    logger.warning(
        f"{folder / 'onnx'} is left out: it is older than the weights; write it again with `tmde export onnx {folder}`"
    )
    return graphs


def _check_model(folder: Path) -> dict[str, Any]:
    """The configuration of a complete folder.

    Raises:
        ValueError: A file is missing or damaged.
    """
    config = _read_json(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise ValueError(
            f"{folder}: found no config.json with a model_type, expected the folder of a trained model (parallel rows "
            "need --repo-type dataset)"
        )
    weights = sorted(folder.glob("model*.safetensors"))
    expected = set((_read_json(folder / "model.safetensors.index.json").get("weight_map") or {}).values())
    missing = ({"model.safetensors"} if not weights else expected) - {path.name for path in weights}
    if missing:
        raise ValueError(f"{folder}: found no {sorted(missing)[0]}, expected the weights of a trained model")
    for path in weights:
        try:
            with safe_open(path, framework="numpy"):  # compares the header with the size of the file
                pass
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: the weights are cut off or damaged ({error}); save the model again") from None
    for reference in (config.get("auto_map") or {}).values():
        module = f"{reference.split('--')[-1].split('.')[0]}.py"
        if not (folder / module).is_file():
            raise ValueError(f"{folder}: found no {module}, which config.json names; call save_pretrained again")
    try:
        tokens = len(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder}: the tokenizer is missing or damaged ({error}); call tokenizer.save_pretrained"
        ) from None
    size = config.get("vocab_size")
    if isinstance(size, int) and tokens > size:
        raise ValueError(f"{folder}: the tokenizer has {tokens:,} tokens, but the model has {size:,}")
    return config


def _edited_card(repository: Repository, folder: Path) -> Path | None:
    """The card in the repository, if a person edited it there since the last push from `folder`.

    Raises:
        HubUploadError: The card of the folder was edited too, differently.
    """
    if CARD not in repository.files:
        return None
    there, here = repository.download(CARD), folder / CARD
    pushed = _read_json(folder / PUSHED_CARDS).get(repository.place)
    if _sha256(there) == pushed or not hub_cards.is_edited(there.read_text(encoding="utf-8-sig")):
        return None
    edited_here = here.is_file() and hub_cards.is_edited(here.read_text(encoding="utf-8-sig"))
    if edited_here and _sha256(here) not in (_sha256(there), pushed):
        raise HubUploadError(
            f"{repository.repo_id}: its {CARD} was edited on the Hub, and {here} was edited here; put both texts into "
            f"the one on the Hub and delete {here}, or replace everything with --overwrite. Nothing was published"
        )
    return there


# ---- Corpora


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
    _check_names(repo_id, license)
    source = Path(source).expanduser()
    rows = _rows(str(source))
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name)
        (stage / "data").mkdir()
        count = max(1, -(-rows.data.nbytes // SHARD_BYTES))
        for index in range(count):
            shard = rows.shard(count, index, contiguous=True)
            shard.to_parquet(stage / "data" / f"train-{index:05d}-of-{count:05d}.parquet")
        repository, card = None, source / CARD
        if not dry_run:
            repository = Repository.open(repo_id, "dataset", private, token, revision, create_pr)
            if not overwrite:
                repository.check_kind(None)
                there = repository.download(CARD) if CARD in repository.files else None
                own = card.is_file() and hub_cards.is_edited(card.read_text(encoding="utf-8-sig"))
                card = card if own or there is None else there
        if card.is_file():
            shutil.copyfile(card, stage / CARD)
        made = hub_cards.dataset_card(rows, repo_id, license or hub_cards.card_license(card))
        hub_cards.save_card(made, stage / CARD, drop=("dataset_info", "configs"))  # read from the files instead
        if repository is None:
            return Publication(repo_id, _sizes(stage))
        return repository.commit(stage, message or "Upload parallel corpus", ("data/train-*",), overwrite)


def _rows(source: str) -> datasets.Dataset:
    """Checked rows, with the columns that `tmde mine` and `tmde align` add."""
    rows = load_parallel(source, document_ids=True)
    if not any(rows.unique(DOCUMENT_ID)):
        rows = rows.remove_columns(DOCUMENT_ID)
    rows = rows.cast_column("translation", datasets.Translation(sorted(rows.features["translation"])))
    files = [path for path in (*sorted(Path(source).glob("*")), Path(source)) if path.suffix in TABLES]
    if not files:
        return rows
    kind = TABLES[files[0].suffix]
    whole = datasets.load_dataset(kind, data_files=list(map(str, files)), split="train")
    extra = [name for name in ("score", "ids", "segment") if name in whole.column_names]
    if extra and len(whole) != len(rows):
        logger.warning(f"Left out the columns {', '.join(extra)}: {len(whole) - len(rows):,} rows were dropped")
        return rows
    return datasets.concatenate_datasets([rows, whole.select_columns(extra)], axis=1) if extra else rows


# ---- The Hub


@dataclass
class Repository:
    """A repository of the Hub at one commit.

    Attributes:
        files: Paths that it holds.
        place: Its id and branch.
    """

    api: HfApi
    repo_id: str
    repo_type: str
    revision: str | None
    create_pr: bool
    sha: str
    files: list[str]

    @classmethod
    def open(
        cls,
        repo_id: str,
        repo_type: str = "model",
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ) -> Repository:
        """Creates the repository and the branch if they do not exist.

        Raises:
            HubUploadError: No token, no permission, no connection, or it is public and `private` is asked for.
        """
        if token is None and get_token() is None:
            raise HubUploadError(
                f"{repo_id}: found no token of the Hub; run `hf auth login`, or set HF_TOKEN to a token with write "
                f"permission from {constants.ENDPOINT}/settings/tokens"
            )
        api = HfApi(token=token)
        with _hub_errors(repo_id):
            repo_id = api.create_repo(repo_id, repo_type=repo_type, private=private, exist_ok=True).repo_id
            if revision is not None and not create_pr:
                api.create_branch(repo_id, branch=revision, repo_type=repo_type, exist_ok=True)
            info = api.repo_info(repo_id, repo_type=repo_type, revision=revision)
        if private and not info.private:
            raise HubUploadError(
                f"{repo_id}: the repository is public, expected a private one; change its settings, or choose another "
                "name. Nothing was published"
            )
        files = [file.rfilename for file in info.siblings or ()]
        return cls(api, repo_id, repo_type, revision, create_pr, info.sha, files)

    @property
    def place(self) -> str:
        return f"{self.repo_id}@{self.revision or 'main'}"

    def download(self, path: str) -> Path:
        with _hub_errors(self.repo_id):
            return Path(self.api.hf_hub_download(self.repo_id, path, repo_type=self.repo_type, revision=self.sha))

    def check_kind(self, model_type: str | None) -> None:
        """Refuses to replace something else.

        Args:
            model_type: Of the model; None for a corpus.

        Raises:
            HubUploadError: The repository holds something else.
        """
        held = [path for path in self.files if not any(fnmatch(path, pattern) for pattern in NEUTRAL)]
        if not held:
            return
        if model_type is None:
            if all(path.startswith("data/") and path.endswith(".parquet") for path in held):
                return
            found, expected = f"files such as {held[0]!r}", "the parquet files of a corpus in data/"
        else:
            kind = _read_json(self.download("config.json")).get("model_type") if "config.json" in held else None
            if kind == model_type:
                return
            found = f"a model of type {kind!r}" if kind else f"files such as {held[0]!r} and no model"
            expected = f"a model of type {model_type!r}"
        raise HubUploadError(
            f"{self.repo_id}: found {found}, expected {expected}; choose another name, or replace everything with "
            "--overwrite. Nothing was published"
        )

    def commit(self, stage: Path, message: str, stale: Sequence[str] = STALE, overwrite: bool = False) -> Publication:
        """Uploads all files of `stage` in one commit, which deletes those that match `stale` and are not replaced.

        `HfApi.upload_folder` would make several commits of a large folder.
        """
        with _hub_errors(self.repo_id):
            operations = self.operations(stage, ("*",) if overwrite else stale)
            commit = self._create_commit(operations, message, None if self.create_pr else self.sha)
        return Publication(self.repo_id, _sizes(stage), commit, commit.oid == self.sha)

    def commit_later(self, stage: Path, message: str) -> Future:
        """As `commit`, in the background; commits follow one another."""
        return self._create_commit(self.operations(stage, STALE), message, run_as_future=True)

    def operations(self, stage: Path, stale: Sequence[str]) -> list[CommitOperationAdd | CommitOperationDelete]:
        paths = sorted(path for path in stage.rglob("*") if path.is_file())
        added = {path.relative_to(stage).as_posix(): path for path in paths}
        gone = [
            path
            for path in self.files
            if path not in added and path != ".gitattributes" and any(_matches(path, pattern) for pattern in stale)
        ]
        deletions = [CommitOperationDelete(path, is_folder=False) for path in gone]
        return deletions + [CommitOperationAdd(path, str(file.resolve())) for path, file in added.items()]

    def _create_commit(self, operations: list, message: str, parent: str | None = None, **options: Any) -> Any:
        place = {"repo_type": self.repo_type, "revision": self.revision, "create_pr": self.create_pr}
        return self.api.create_commit(
            self.repo_id, operations, commit_message=message, parent_commit=parent, **place, **options
        )


def _matches(path: str, pattern: str) -> bool:
    """`*` alone matches everything; in a longer pattern it matches within one folder."""
    return pattern == "*" or (path.count("/") == pattern.count("/") and fnmatch(path, pattern))


@contextmanager
def _hub_errors(repo_id: str) -> Iterator[None]:
    """Errors of the Hub's client as one sentence."""
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise HubUploadError(f"{repo_id}: HF_HUB_OFFLINE is set, but uploading needs the Hub; unset it") from error
    except (HfHubHTTPError, HTTPError, ConnectionError, TimeoutError, RuntimeError) as error:
        # The upload of a large file raises a RuntimeError from the error that says why.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        if not isinstance(cause, HfHubHTTPError):
            raise HubUploadError(
                f"{repo_id}: the connection to {constants.ENDPOINT} failed: {cause or type(cause).__name__}. Nothing "
                "was published: all files go in one commit. Run the same again; files that arrived are not sent twice"
            ) from error
        status = cause.response.status_code
        said = cause.server_message or str(cause).strip().splitlines()[-1]
        advice = {
            401: "the Hub rejects the token; run `hf auth login --force`, or correct HF_TOKEN",
            403: "the token may not write there; take one with write permission, or choose another name",
            404: "the token can read no such repository or revision",
            412: "somebody else has committed meanwhile; run the same again",
        }.get(status, "the Hub is busy; run the same again later" if status >= 429 else "the Hub refuses it")
        raise HubUploadError(f"{repo_id}: {advice} ({status}: {said}). Nothing was published") from error
    except ValueError as error:  # the Hub rejects the metadata of the card
        raise HubUploadError(f"{repo_id}: {error}. Nothing was published") from error


def _check_names(repo_id: str, license: str | None) -> None:
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is no valid name of a repository: {error}") from None
    if "/" not in repo_id:
        raise ValueError(f"found {repo_id!r}, expected USER/NAME, such as 'user/{repo_id}'")
    if license is not None and license not in HUB_LICENSES:
        near = difflib.get_close_matches(license.lower(), HUB_LICENSES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use 'other' for one without an id"
        raise ValueError(f"license={license!r} is no license id of the Hub; {hint}")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: found invalid JSON ({error})") from None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sizes(stage: Path) -> dict[str, int]:
    paths = sorted(path for path in stage.rglob("*") if path.is_file())
    return {path.relative_to(stage).as_posix(): path.stat().st_size for path in paths}


# ---- Training


def open_hub_repository(args: Any, model_type: str) -> Repository:
    """The repository that a run pushes to: `hub_model_id`, by default the name of the run's folder.

    Raises:
        HubUploadError: It cannot be pushed to, or holds something else.
    """
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    repository = Repository.open(name, "model", args.hub_private_repo, args.hub_token, args.hub_revision)
    repository.check_kind(model_type)
    return repository


class HubTrainer(Trainer):
    """`Trainer` whose pushes hold the model with its card and recipe, and nothing else of the run's folder."""

    def push_to_hub(
        self, commit_message: str | None = "End of training", blocking: bool = True, **options: Any
    ) -> CommitInfo | Future | None:
        """Saves the model in the run's folder and pushes it in one commit.

        Args:
            blocking: Wait for the push.
            options: Of `push_model`: token, revision, private, license, data_licenses, results.
        """
        if self.hub_model_id is None:
            self.init_hf_repo(token=options.get("token"), private=options.get("private"))
        self.save_model(_internal_call=True)
        return self.push_folder(commit_message, blocking, **options)

    def push_folder(
        self, commit_message: str | None = "End of training", blocking: bool = True, **options: Any
    ) -> CommitInfo | Future | None:
        """As `push_to_hub`, of the model that the run's folder holds already."""
        if not self.is_world_process_zero():
            return None
        args, folder, name = self.args, self.args.output_dir, self.hub_model_id
        self.callback_handler.on_push_begin(args, self.state, self.control)
        self._finish_current_push()
        defaults = {"revision": args.hub_revision, "token": args.hub_token, "private": args.hub_private_repo}
        options = {**defaults, "message": commit_message, **options}
        if not blocking:
            return HfApi().run_as_future(lambda: push_model(folder, name, **options).commit)
        try:
            return push_model(folder, name, **options).commit
        except HubUploadError as error:
            advice = f"The model is in {folder}; push it with `tmde push {folder} {name}`"
            raise HubUploadError(f"{error}. {advice}") from error

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Pushes the model of a checkpoint in the background, from a copy: later checkpoints delete this one."""
        args = self.args
        if not self.is_world_process_zero() or args.hub_strategy == HubStrategy.END:
            return
        busy = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if busy and not args.hub_always_push:
            return
        self.callback_handler.on_push_begin(args, self.state, self.control)
        checkpoint = Path(checkpoint_folder)
        temporary = tempfile.TemporaryDirectory()
        stage = Path(temporary.name)
        _stage_model(checkpoint, stage, shutil.copyfile)
        if args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            last = args.hub_strategy == HubStrategy.CHECKPOINT
            _stage_checkpoint(checkpoint, stage / ("last-checkpoint" if last else checkpoint.name))
        try:
            config = _read_json(checkpoint / "config.json")
            repository = open_hub_repository(args, config["model_type"])
            card = repository.download(CARD) if CARD in repository.files else None
            if card is None or not hub_cards.is_edited(card.read_text(encoding="utf-8-sig")):
                license = card and hub_cards.card_license(card)
                hub_cards.save_card(
                    hub_cards.short_card(repository.repo_id, config["languages"], license), stage / CARD
                )
            job = repository.commit_later(stage, f"Training in progress, step {self.state.global_step}")
        except HubUploadError as error:
            temporary.cleanup()
            logger.warning(f"A push during training failed, the next one makes up for it: {error}")
            return
        job.add_done_callback(lambda done: _finish_push(done, temporary))
        self.push_in_progress = PushInProgress([*(self.push_in_progress.jobs if busy else []), job])


def _stage_checkpoint(checkpoint: Path, target: Path) -> None:
    """A checkpoint with its optimizer state, to go on from elsewhere; `training_args.bin` names places here."""
    shutil.copytree(checkpoint, target, ignore=shutil.ignore_patterns("training_args.bin"))
    state = _read_json(target / "trainer_state.json")
    if state.get("best_model_checkpoint"):
        state["best_model_checkpoint"] = Path(state["best_model_checkpoint"]).name
        (target / "trainer_state.json").write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")


def _finish_push(job: Future, temporary: tempfile.TemporaryDirectory) -> None:
    temporary.cleanup()
    if job.exception() is not None:
        logger.warning(f"A push during training failed, the next one makes up for it: {job.exception()}")
