"""Files of a saved model that belong on the Hub, and the one commit that brings them there."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)
from transformers.dynamic_module_utils import get_relative_import_files

from .onnx_files import FILES, data_file, record_file

CARD, PICTURE = "README.md", "curves.png"
# Beside the weights: what tokenizers save, what users write for sentence-transformers, the licence.
COMPANIONS = (
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
    "config_sentence_transformers.json",
)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
RESULTS = ("results.json", "recipe.yaml")  # what `tmde push` brings that tells of the weights, beside the card
# What a commit of weights takes away where it does not replace it: a loader might prefer it, or it is of others.
GRAPHS = "onnx/*"
STALE_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", GRAPHS, "*.bin", "*.bin.index.json")


class HubUploadError(OSError):
    """Nothing, or not all, could be uploaded; the message says what to do."""


def named_files(folder: str | os.PathLike, names: Iterable[str]) -> dict[str, Path]:
    """Those files that the folder has, by their path in it."""
    return {name: Path(folder, name) for name in sorted(set(names)) if Path(folder, name).is_file()}


def repository_files(folder: str | os.PathLike) -> dict[str, Path]:
    """Of a saved model: configuration, weights (safetensors alone), remote code, tokenizer, card.

    Each by its name, or because another of them names it: nothing else that lies in the folder, such as checkpoints,
    optimizer states, logs, or scripts and data of the user.

    Raises:
        HubUploadError: A module that the code imports is missing.
    """
    folder = Path(folder)
    names = [CARD, PICTURE, "config.json", "generation_config.json", *COMPANIONS, *weight_names(folder)]
    names += ["modules.json", "sentence_bert_config.json", *_code_names(folder), *_module_names(folder)]
    for graph in map(Path, FILES.values()):
        names += [part.as_posix() for part in (graph, data_file(graph), record_file(graph))]
    return named_files(folder, names)


def weight_names(folder: Path) -> list[str]:
    """The file of the weights, or their index and the shards that it names; what is missing is named as well."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return [WEIGHTS]
    return [INDEX, *sorted({name for name in _read(folder / INDEX, "weight_map").values() if _is_plain(name)})]


def _code_names(folder: Path) -> list[str]:
    """The modules that the config names as the model's code, and those that they import."""
    names = set()
    for reference in _read(folder / "config.json", "auto_map").values():
        code = folder / f"{str(reference).split('--')[-1].split('.')[0]}.py"
        try:
            names |= {code.name, *(Path(path).name for path in get_relative_import_files(code))}
        except FileNotFoundError as error:
            raise HubUploadError(
                f"{error.filename} is missing, which is part of the model's code; save the model again with "
                "save_pretrained"
            ) from None
    return sorted(names)


def _module_names(folder: Path) -> list[str]:
    """What the modules of sentence-transformers keep in folders of their own."""
    path = folder / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    places = [module["path"] for module in modules if _is_plain(module["path"])]
    return [f"{place}/{name}" for place in places for name in ("config.json", WEIGHTS)]


def _read(path: Path, key: str) -> dict:
    return (json.loads(path.read_text(encoding="utf-8")).get(key) or {}) if path.is_file() else {}


def _is_plain(name: str) -> bool:
    """Whether it is in the folder itself."""
    return name not in ("", "..") and Path(name).name == name


class HubRepository:
    """
    A repository of the Hub that one commit is made to; it is created if it is not there.

    Args:
        repo_id: `user/name`, or a name of one's own.
        repo_type: "model" or "dataset".
        private: Whether it must be private; None takes it as it is, and creates a public one.
        token: None takes HF_TOKEN or that of `hf auth login`.
        revision: Branch, created if it is not there.
        create_pr: Open a pull request instead of committing to the branch.

    Attributes:
        repo_id: With the user.
        files: Paths that it holds, without `.gitattributes`, which the Hub makes.
        hashes: SHA-256 of those that the Hub keeps as large files, such as weights.

    Raises:
        HubUploadError: No token, no permission, no connection, or it is public and `private` is asked for.
    """

    def __init__(
        self,
        repo_id: str,
        repo_type: str = "model",
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ):
        self.repo_id, self.repo_type, self.create_pr = repo_id, repo_type, create_pr
        self.revision = revision
        self.api = HfApi(token=token)
        if token is None and get_token() is None or token is False:
            raise HubUploadError(
                f"{repo_id}: found no token of the Hub; run `hf auth login`, or set HF_TOKEN to a token with write "
                f"permission from {constants.ENDPOINT}/settings/tokens"
            )
        with self._clear_errors():
            self.repo_id = self.api.create_repo(repo_id, repo_type=repo_type, private=private, exist_ok=True).repo_id
            if revision is not None and not revision.startswith("refs/") and not create_pr:
                self.api.create_branch(self.repo_id, branch=revision, repo_type=repo_type, exist_ok=True)
            info = self.api.repo_info(self.repo_id, repo_type=repo_type, revision=revision, files_metadata=True)
        self.sha = info.sha
        found = [file for file in info.siblings or () if file.rfilename != ".gitattributes"]
        self.files = sorted(file.rfilename for file in found)
        self.hashes = {file.rfilename: file.lfs.sha256 for file in found if file.lfs}
        if private and not info.private:
            raise HubUploadError(
                f"{self.repo_id}: the repository is public, and a private one is asked for; make it private in its "
                "settings, or choose another name. Nothing was uploaded"
            )

    def holds(self, hashes: Mapping[str, str]) -> bool:
        """Whether these large files are there; not so of none."""
        return bool(hashes) and hashes.items() <= self.hashes.items()

    def download(self, path: str) -> Path:
        """A file of the repository."""
        with self._clear_errors():
            return Path(self.api.hf_hub_download(self.repo_id, path, repo_type=self.repo_type, revision=self.sha))

    def commit(
        self,
        files: Mapping[str, Path | bytes],
        message: str,
        description: str | None = None,
        stale: Iterable[str] = STALE_WEIGHTS,
    ) -> CommitInfo:
        """Uploads all files in one commit, or none.

        Args:
            files: By their path in the repository.
            message, description: Of the commit.
            stale: Patterns of files that the commit deletes where it does not replace them; `*` is of one folder,
                and `**` takes all.

        Raises:
            HubUploadError: No permission, a connection that was cut, or another commit since this one was begun.
        """
        stale = list(stale)
        gone = [path for path in self.files if path not in files and any(_matches(path, one) for one in stale)]
        operations = [CommitOperationDelete(path, is_folder=False) for path in gone]
        contents = {path: str(file) if isinstance(file, Path) else file for path, file in files.items()}
        with self._clear_errors(ending=True):
            return self.api.create_commit(
                self.repo_id,
                [*operations, *(CommitOperationAdd(path, content) for path, content in contents.items())],
                commit_message=message,
                commit_description=description,
                repo_type=self.repo_type,
                revision=self.revision,
                create_pr=self.create_pr,
                parent_commit=None if self.create_pr else self.sha,
            )

    @contextmanager
    def _clear_errors(self, ending: bool = False) -> Iterator[None]:
        """Errors of the client in a sentence. `ending`: of the commit."""
        try:
            yield
        except LocalTokenNotFoundError as error:
            raise HubUploadError(f"{self.repo_id}: {error}") from error
        except OfflineModeIsEnabled as error:
            raise HubUploadError(
                f"{self.repo_id}: HF_HUB_OFFLINE is set, and uploading needs the Hub; unset it"
            ) from error
        except HfHubHTTPError as error:
            raise HubUploadError(self._refusal(error)) from error
        except (HTTPError, ConnectionError, TimeoutError, RuntimeError) as error:
            # From an upload of a large file comes a RuntimeError that names it, from the one that says why.
            cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
            if isinstance(cause, HfHubHTTPError):
                raise HubUploadError(self._refusal(cause)) from error
            raise HubUploadError(self._interruption(error, cause, ending)) from error
        except ValueError as error:  # what the Hub finds wrong with a card, or the client with an id
            raise HubUploadError(f"{self.repo_id}: {error}") from error

    def _interruption(self, error: BaseException, cause: BaseException, ending: bool) -> str:
        what = f"{error} ({cause})" if cause is not error else str(error) or type(error).__name__
        message = f"{self.repo_id}: the connection to {constants.ENDPOINT} failed: {what}."
        if not ending:
            return f"{message} Nothing was uploaded; look at the network and at HF_ENDPOINT, and try again"
        return (
            f"{message} All files go in one commit, so nothing is half-published; run the same again: what arrived "
            "is not sent twice"
        )

    def _refusal(self, error: HfHubHTTPError) -> str:
        status = error.response.status_code
        said = error.server_message or str(error).strip().splitlines()[-1]
        if status == 401:
            advice = "the Hub does not accept the token; run `hf auth login --force`, or correct HF_TOKEN"
        elif status == 403:
            user = self.repo_id.split("/")[0]
            advice = (
                f"the token may not write there; take a token with write permission of {user!r} or of a member of "
                "it, or another name"
            )
        elif isinstance(error, RevisionNotFoundError):
            advice = f"there is no revision {self.revision!r}"
        elif status == 404:
            advice = "there is no such repository that the token may read"
        elif status == 412:
            advice = "somebody else has committed to the repository meanwhile; look at it, and run the same again"
        elif status == 429 or status >= 500:
            advice = "the Hub is busy or down; run the same again later"
        else:
            advice = "the Hub refuses it"
        return f"{self.repo_id}: {advice} ({status}: {said}). Nothing was published"


def _matches(path: str, pattern: str) -> bool:
    return pattern == "**" or (path.count("/") == pattern.count("/") and fnmatch(path, pattern))
