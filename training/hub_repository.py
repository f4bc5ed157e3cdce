"""A repository of the Hub: what it holds, whether it may be replaced, and one commit to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import cast

from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    DatasetInfo,
    HfApi,
    ModelInfo,
    RepoCard,
)
from huggingface_hub.errors import HfHubHTTPError, HTTPError

from modeling_tmde import TmdeError
from tmde import hub_cards

CARD = "README.md"
# Files that say nothing about what a repository holds.
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
CORPUS_FILES = "data/*.parquet"
ADVICE = {
    401: "run `hf auth login`, or set HF_TOKEN to a token with write permission",
    403: "take a token with write permission, or choose another name",
}
OTHER_ADVICE = "run the same again: files that arrived are not sent twice"


class HubUploadError(OSError):
    """Nothing was published; the message says why and what to do."""


@contextmanager
def _hub_errors() -> Iterator[None]:
    """Raise errors of the Hub's client as one sentence.

    Raises:
        HubUploadError: In place of errors of the connection and of answers of the Hub.
        TmdeError: In place of a ValueError: the client or the Hub rejects a name or metadata.
    """
    try:
        yield
    except (HTTPError, ConnectionError, TimeoutError, RuntimeError) as error:
        cause: BaseException = error
        # A failed upload of a large file is a RuntimeError, raised from the error that says why.
        if isinstance(error, RuntimeError) and error.__cause__ is not None:
            cause = error.__cause__
        lines = str(cause).strip().splitlines()
        reason = lines[-1] if lines else type(cause).__name__
        raise HubUploadError(
            f"Nothing was published: {reason.rstrip('.')}; {_advice(cause)}"
        ) from error
    except ValueError as error:
        raise TmdeError(f"Nothing was published: {' '.join(str(error).split())}") from error


def _advice(cause: BaseException) -> str:
    """Return what to do about an error of the Hub's client."""
    if isinstance(cause, HfHubHTTPError):
        return ADVICE.get(cause.response.status_code, OTHER_ADVICE)
    return OTHER_ADVICE


@dataclass
class Repository:
    """A repository of the Hub, opened for one commit.

    It and the branch are created if they do not exist.

    Args:
        repo_id: `user/name`.
        repo_type: "model" or "dataset".
        private: Create a private repository; an existing one must be private.
        token: The token; None takes HF_TOKEN or that of `hf auth login`.
        revision: The branch.
        create_pr: Open a pull request.
        overwrite: Delete everything that the repository holds, even if it is something else.
        dry_run: Ask nothing and commit nothing.

    Attributes:
        head: Its newest commit.
        files: The paths that it holds.
        license: The license in the metadata of its card.

    Raises:
        HubUploadError: There is no token, no permission or no connection, or the repository is
            public and `private` is asked for.
    """

    repo_id: str
    repo_type: str = "model"
    private: bool | None = None
    token: str | None = field(default=None, repr=False)
    revision: str | None = None
    create_pr: bool = False
    overwrite: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.api = HfApi(token=self.token)
        self.head: str | None = None
        self.files: list[str] = []
        self.license: str | None = None
        if not self.dry_run:
            self._open()

    @_hub_errors()
    def _open(self) -> None:
        created = self.api.create_repo(
            self.repo_id, private=self.private, exist_ok=True, repo_type=self.repo_type
        )
        self.repo_id = created.repo_id
        if self.revision is not None and not self.create_pr:
            self.api.create_branch(
                self.repo_id, branch=self.revision, exist_ok=True, repo_type=self.repo_type
            )
        info = cast(
            ModelInfo | DatasetInfo,
            self.api.repo_info(self.repo_id, revision=self.revision, repo_type=self.repo_type),
        )
        if self.private and not info.private:
            raise HubUploadError(
                f"{self.repo_id} is public, expected a private repository; change its settings"
            )
        self.head = info.sha
        self.files = [file.rfilename for file in info.siblings or ()]
        if info.card_data:
            self.license = info.card_data.get("license")

    @_hub_errors()
    def read(self, path: str) -> str:
        """Return the text of a file; empty if there is none."""
        if path not in self.files:
            return ""
        downloaded = self.api.hf_hub_download(
            self.repo_id, path, repo_type=self.repo_type, revision=self.head
        )
        return Path(downloaded).read_text("utf-8-sig")

    def check_kind(self, model_type: str | None) -> None:
        """Refuse to replace something else.

        Args:
            model_type: The type of the model to publish; None for a corpus.

        Raises:
            HubUploadError: The repository holds something else.
        """
        if self.overwrite:
            return
        if model_type is None:
            expected = "parquet files in data/"
            content = self._foreign_file()
        else:
            expected = model_type
            content = self._published_model_type()
        if content not in (None, model_type):
            raise HubUploadError(
                f"{self.repo_id}: found {content!r}, expected {expected!r}; choose another "
                "name, or replace everything with --overwrite. Nothing was published"
            )

    def _telling_files(self) -> list[str]:
        """Return the files that say what the repository holds."""
        return [path for path in self.files if not _matches_any(path, NEUTRAL)]

    def _foreign_file(self) -> str | None:
        """Return the first file that does not belong to a corpus; None without any."""
        for path in self._telling_files():
            if not fnmatch(path, CORPUS_FILES):
                return path
        return None

    def _published_model_type(self) -> str | None:
        """Return the type of the model in the repository; of other content, the first file."""
        config_text = self.read("config.json")
        if config_text:
            model_type = json.loads(config_text).get("model_type")
            if model_type:
                return model_type
        files = self._telling_files()
        if files:
            return files[0]
        return None

    def write_card(self, stage: Path, card: RepoCard, local: Path) -> None:
        """Write the card to publish, with the text of a person if there is any.

        Args:
            stage: The folder to publish.
            card: The new card.
            local: The card of the folder that is published. Its text is taken if a person edited
                it, otherwise the text of the card on the Hub if a person edited that.
        """
        local_text = local.read_text("utf-8-sig") if local.is_file() else ""
        hub_text = "" if self.overwrite else self.read(CARD)
        base_text = local_text
        for text in (local_text, hub_text):
            if text and hub_cards.is_edited(text):
                base_text = text
                break
        (stage / CARD).write_text(str(hub_cards.merge_card(card, base_text)), "utf-8")

    @_hub_errors()
    def commit(
        self, stage: Path, message: str, stale: Sequence[str]
    ) -> tuple[dict[str, int], CommitInfo | None]:
        """Upload a folder in one commit; `HfApi.upload_folder` may make several of a large one.

        Args:
            stage: The folder, of which all files are uploaded.
            message: The message of the commit.
            stale: Patterns of files that are deleted if they are not replaced.

        Returns:
            The bytes of each path in the repository, and the commit; None after a dry run.
        """
        sizes = {}
        for file in sorted(stage.rglob("*")):
            if file.is_file():
                sizes[file.relative_to(stage).as_posix()] = file.stat().st_size
        if self.dry_run:
            return sizes, None
        patterns = ("*",) if self.overwrite else stale
        operations: list[CommitOperationAdd | CommitOperationDelete] = []
        for path in self.files:
            is_needed = path in sizes or path == ".gitattributes"
            if _matches_any(path, patterns) and not is_needed:
                operations.append(CommitOperationDelete(path, is_folder=False))
        for path in sizes:
            operations.append(CommitOperationAdd(path, str((stage / path).resolve())))
        commit = self.api.create_commit(
            self.repo_id,
            operations,
            commit_message=message,
            repo_type=self.repo_type,
            revision=self.revision,
            create_pr=self.create_pr,
            parent_commit=None if self.create_pr else self.head,
        )
        return sizes, commit


def _matches_any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)
