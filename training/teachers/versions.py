"""The versions of teachers: what a name in a recipe stands for, and what a run keeps of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from accelerate import PartialState
from huggingface_hub import snapshot_download

from modeling_tmde import TmdeError
from tmde.data.io import digests, write_atomically
from tmde.embedding.loading import errors_about
from tmde.embedding.packaged_models import packaged_folder
from tmde.training.objectives import Distillation

KEY = "objectives.distillation.teacher"  # The key in a recipe.
RECORD = "teacher.json"  # The name of the file in the run's folder.
FILE_SUFFIX = ".parquet"  # The end of the name of a file with vectors.
# Suffixes of the files that decide the vectors of a folder.
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model", ".py"}
# Files that a run writes beside its model, which decide no vector.
REPORTS = {"results.json", "run.json", "data_state.json", "trainer_state.json", RECORD}


@dataclass(frozen=True)
class TeacherVersion:
    """A teacher and its weights, or its vectors.

    Attributes:
        name: The folder, Hub id, packaged model or file.
        revision: The revision of a Hub model that was asked for; None for the newest.
        commit: The commit of a Hub model; None for a folder or file.
        sha256: The digest of a file's content, or of the names and contents of a folder's files;
            None for a Hub model.
    """

    name: str
    revision: str | None = None
    commit: str | None = None
    sha256: str | None = None

    @property
    def path(self) -> Path:
        """The folder or file, if it is not a model of the Hub."""
        return packaged_folder(self.name) or Path(self.name).expanduser()

    @property
    def is_file(self) -> bool:
        """Whether the teacher is a file of vectors."""
        return self.commit is None and not self.path.is_dir()

    @property
    def identity(self) -> str:
        """Identifies the weights: it changes when they change, not when a folder is copied."""
        return self.sha256 or f"{self.name}@{self.commit}"


def find_version(name: str, revision: str | None = None) -> TeacherVersion:
    """Return what a name stands for now.

    This is a commit on the Hub (offline: in its cache), or the digest of a file or of a folder.

    Args:
        name: A folder, Hub id or parquet file.
        revision: The branch, tag or commit of a Hub model; None for the newest.

    Raises:
        TmdeError: There is no such model or file, a folder has no model, a file is not parquet, or
            a revision is given that is not of a Hub model.
    """
    path = packaged_folder(name) or Path(name).expanduser()
    if not path.exists():
        return _find_on_hub(name, revision)
    kind = "file" if path.is_file() else "folder"
    if revision is not None:
        raise TmdeError(f"{KEY}_revision: found {revision!r} of the {kind} {name}, expected null")
    if kind == "folder":
        checksums = digests(_files_of_model(path), path)
        return TeacherVersion(name, sha256=hashlib.sha256(checksums.encode()).hexdigest())
    if path.suffix != FILE_SUFFIX:
        raise TmdeError(
            f"{KEY}={path}: found a file {path.suffix or 'without a suffix'}, expected "
            f"{FILE_SUFFIX}, a folder or a Hub id"
        )
    checksum, _, _ = digests([path], path.parent).partition(" ")
    return TeacherVersion(name, sha256=checksum)


def _find_on_hub(name: str, revision: str | None) -> TeacherVersion:
    if name.endswith(FILE_SUFFIX):
        raise TmdeError(f"{KEY}={name}: found no such file, expected a parquet file with vectors")
    problem = f"{KEY}={name} is neither a folder nor a model that the Hub returns ({revision=})"
    with errors_about(problem):
        snapshot = snapshot_download(
            name, revision=revision, allow_patterns=["modules.json", "config.json"]
        )
    return TeacherVersion(name, revision, commit=Path(snapshot).name)  # snapshots/<commit>


def _files_of_model(folder: Path) -> list[Path]:
    """Return the files that decide the vectors of a folder's model."""
    modules = folder / "modules.json"
    # Without modules, sentence-transformers takes the mean of an encoder's outputs.
    if not modules.is_file() and not (folder / "config.json").is_file():
        raise TmdeError(
            f"{KEY}={folder}: found no modules.json and no config.json, expected an encoder's "
            "folder"
        )
    folders = {folder}
    if modules.is_file():
        for module in json.loads(modules.read_text()):
            folders.add(folder / module["path"])
    files = []
    for module_folder in folders:
        for path in module_folder.glob("*"):
            if path.suffix in WEIGHT_SUFFIXES and path.name not in REPORTS:
                files.append(path)
    return files


def find_versions(objective: Distillation) -> tuple[TeacherVersion, ...]:
    """Return what the names of an objective's teachers stand for now; see `find_version`."""
    names_and_revisions = zip(objective.teachers, objective.revisions, strict=True)
    return tuple(find_version(name, revision) for name, revision in names_and_revisions)


def pin_versions(objective: Distillation, run_folder: Path) -> tuple[TeacherVersion, ...]:
    """Return the versions of an objective's teachers that stay until the end of the run.

    Every process must call it.

    Args:
        objective: Names the teachers.
        run_folder: Keeps the versions in `teacher.json`; where there is one, the run goes on with
            it.

    Raises:
        TmdeError: As `find_version`; or the run began with other teachers.
    """
    record = run_folder / RECORD
    with PartialState().main_process_first():
        if not record.exists():
            run_folder.mkdir(parents=True, exist_ok=True)
            content = [asdict(version) for version in find_versions(objective)]
            write_atomically(record, json.dumps(content, indent=2) + "\n")
    recorded_versions = [TeacherVersion(**version) for version in json.loads(record.read_text())]
    if len(recorded_versions) != len(objective.teachers):
        raise TmdeError(
            f"{KEY}: found {len(objective.teachers)} teachers, but the run started with "
            f"{len(recorded_versions)} ({record}): use those, or start a new run, in another "
            "folder or with --overwrite"
        )
    names_and_revisions = zip(objective.teachers, objective.revisions, strict=True)
    versions = []
    for recorded, (name, revision) in zip(recorded_versions, names_and_revisions, strict=True):
        is_same_name = recorded.commit is not None and name == recorded.name
        if is_same_name and revision in (None, recorded.revision, recorded.commit):
            versions.append(recorded)  # The commit stays, whatever is the newest by now.
            continue
        current = find_version(name, revision)
        versions.append(current)
        if current.identity != recorded.identity:
            raise TmdeError(
                f"{KEY}={name}: found {current.identity}, but the run started with {recorded.name} "
                f"({recorded.identity}, in {record}): restore it, or start a new run, in "
                "another folder or with --overwrite"
            )
    return tuple(versions)


def names_of(versions: Sequence[TeacherVersion]) -> str:
    """Return the names of teachers, for a message."""
    return ", ".join(version.name for version in versions)
