"""Which teacher a run has: settled once for all processes, recorded in the run's folder, and kept when it goes on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

from modeling_tmde.data.io import write_atomically

if TYPE_CHECKING:
    from modeling_tmde.training.objectives import Distillation

MODULES = "modules.json"
RECORD = "teacher.json"
# What stands beside a model and does not decide its vectors. All else may: tables of words, templates, code.
RECORDS = {"results.json", "run.json", "data_state.json", "log.jsonl", "recipe.yaml", RECORD}
RECORDS |= {"trainer_state.json", "training_args.bin", "optimizer.pt", "scheduler.pt"}
RECORD_SUFFIXES = {".md", ".log", ".png", ".lock", ".pyc"}
RECORD_FOLDERS = {"warm_start", "runs", "logs", "eval", "onnx", "openvino", "__pycache__"}


class TeacherError(ValueError):
    """A teacher that can't be opened, or whose vectors are none, or another than a run began with."""


@dataclass(frozen=True)
class TeacherVersion:
    """
    A teacher and its weights.

    Attributes:
        name: Folder or Hub id.
        revision: Of a Hub model, as it was asked for; None is the newest.
        commit: Of a Hub model.
        sha256: Of a folder: of the names and contents of its files, see `model_files`.
    """

    name: str
    revision: str | None = None
    commit: str | None = None
    sha256: str | None = None

    @property
    def identity(self) -> str:
        """Another one for other weights; the same for a folder that was copied."""
        return self.sha256 or f"{self.name}@{self.commit}"

    def __str__(self) -> str:
        return f"{self.name} " + (f"at commit {self.commit}" if self.commit else f"with checksum {self.sha256[:12]}")


def find_version(name: str, revision: str | None = None) -> TeacherVersion:
    """
    What a name stands for now: for a commit on the Hub or, offline, in the Hub's cache; or for the files of a folder.

    Args:
        name: Folder or Hub id.
        revision: Branch, tag or commit on the Hub; None is the newest.

    Raises:
        TeacherError: There is no such model, or a folder is none, or it has no revisions.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        return TeacherVersion(name, revision, _commit(name, revision))
    if revision is not None:
        raise TeacherError(
            f"objectives.distillation.teacher_revision: found {revision!r} of the folder {name}, expected null: only "
            "models on the Hub have revisions"
        )
    return TeacherVersion(name, sha256=folder_checksum(folder))


def settle_version(objective: Distillation, run_folder: Path | None = None) -> TeacherVersion:
    """
    The objective's teacher as it stays until the end, found by the first process for all: every process must call
    this for an objective whose `version` is None.

    Args:
        objective: Names the teacher; gets its `version`.
        run_folder: Keeps the version in `teacher.json`; where there is one, the run goes on with it.

    Raises:
        TeacherError: As `find_version`; or the run began with another teacher. In every process.
    """
    if objective.version is not None:
        return objective.version
    found = [None, ""]
    if PartialState().is_main_process:
        try:
            found[0] = _settle(objective, run_folder)
        except (TeacherError, OSError) as error:  # the others wait, whatever it is
            found[1] = str(error)
    version, error = broadcast_object_list(found) if PartialState().num_processes > 1 else found
    if error:
        raise TeacherError(error)
    objective.version = version
    return version


def _settle(objective: Distillation, run_folder: Path | None) -> TeacherVersion:
    name, revision = objective.teacher, objective.teacher_revision
    recorded = None if run_folder is None else _read_record(run_folder / RECORD)
    if recorded is None:
        version = find_version(name, revision)
        if run_folder is not None:
            run_folder.mkdir(parents=True, exist_ok=True)
            write_atomically(run_folder / RECORD, json.dumps(asdict(version), indent=2) + "\n")
        return version
    same = name == recorded.name and revision in (None, recorded.revision, recorded.commit)
    if same and recorded.commit is not None and not Path(name).expanduser().exists():
        return recorded  # whatever is the newest by now
    version = find_version(name, revision)
    if version.identity != recorded.identity:
        if name == recorded.name and version.sha256 and recorded.sha256:
            what = "found other files in the folder than those that the run began with: put them back"
        else:
            what = f"found {version}, and the run began with {recorded}: name that one"
        raise TeacherError(
            f"objectives.distillation.teacher={name}: {what}, or begin a new run, in another folder or with "
            f"--overwrite (the run's teacher stands in {run_folder / RECORD})"
        )
    return version


def _read_record(path: Path) -> TeacherVersion | None:
    try:
        return TeacherVersion(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise TeacherError(
            f"{path}: found no record of a teacher ({error}), expected what the run wrote; begin a new run"
        ) from error


def folder_checksum(folder: Path) -> str:
    """Of names and contents of `model_files`; read again only when a size or a time has changed.

    Raises:
        TeacherError: As `model_files`.
    """
    files = model_files(folder)
    status = [path.stat() for path in files]
    return _checksum(folder, tuple(files), tuple((each.st_size, each.st_mtime_ns) for each in status))


def _commit(name: str, revision: str | None) -> str:
    try:
        try:
            path = hf_hub_download(name, MODULES, revision=revision)
        except EntryNotFoundError:
            path = hf_hub_download(name, "config.json", revision=revision)
    except (OSError, ValueError, HfHubHTTPError) as error:
        at = "" if revision is None else f" at teacher_revision={revision}"
        raise TeacherError(
            f"objectives.distillation.teacher={name}: found no such folder and no such model on the Hub{at} "
            f"({type(error).__name__}), expected the folder or the Hub id of a model that sentence-transformers opens"
        ) from error
    return Path(path).parent.name  # .../snapshots/<commit>/modules.json


def model_files(folder: Path) -> list[Path]:
    """The files of a model's folder that may decide its vectors: all but records of runs and evaluations, other
    checkpoints, and hidden ones. A folder that `modules.json` names is read whatever it is called.

    Raises:
        TeacherError: The folder is none, or holds no model that sentence-transformers opens.
    """
    _check_folder(folder)
    modules = []
    if (folder / MODULES).is_file():
        modules = [each.get("path") for each in _read_json(folder / MODULES, list) if isinstance(each, dict)]
    found = {path for path in folder.rglob("*") if not _is_other(path.relative_to(folder).parts[:-1])}
    for path in filter(None, modules):
        found |= set((folder / path).rglob("*"))
    return sorted(path for path in found if path.is_file() and not _is_record(path.name))


def _check_folder(folder: Path) -> None:
    """Of a folder without modules, sentence-transformers would make a mean of token vectors, as of BERT."""
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise TeacherError(f"objectives.distillation.teacher={folder}: found {what}, expected a model's folder")
    if (folder / MODULES).is_file():
        return
    config = folder / "config.json"
    kind = _read_json(config, dict).get("model_type", "") if config.is_file() else ""
    if not kind or kind.startswith("tmde"):
        what = f"a model of type {kind!r} saved by an older release" if kind else "no model"
        raise TeacherError(
            f"objectives.distillation.teacher={folder}: found {what}, without {MODULES}, expected what "
            "sentence-transformers opens"
            + ("; load the model and save it again with save_pretrained, which writes that file" if kind else "")
        )


def _read_json(path: Path, kind: type) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TeacherError(
            f"objectives.distillation.teacher={path.parent}: {path.name} is no JSON file ({error})"
        ) from error
    if not isinstance(found, kind):
        raise TeacherError(
            f"objectives.distillation.teacher={path.parent}: {path.name} holds a {type(found).__name__}, expected a "
            f"{kind.__name__}"
        )
    return found


def _is_other(folders: tuple[str, ...]) -> bool:
    return any(name.startswith((".", "checkpoint-")) or name in RECORD_FOLDERS for name in folders)


def _is_record(name: str) -> bool:
    return name.startswith((".", "rng_state")) or name in RECORDS or Path(name).suffix in RECORD_SUFFIXES


@lru_cache
def _checksum(folder: Path, files: tuple[Path, ...], state: tuple) -> str:
    digest = hashlib.sha256()
    for path in files:
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        digest.update(f"{name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(2**24):
                digest.update(block)
    return digest.hexdigest()
