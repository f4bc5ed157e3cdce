"""Repositories of the local Hub (`hub_server.py`): files by their hashes in a folder, commits, branches."""

import base64
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import yaml

# As in the .gitattributes that the Hub gives to every new repository; other files are large above 10 MB.
LARGE = "arrow bin bz2 ckpt gz joblib lz4 model msgpack npy npz onnx ot parquet pb pickle pkl pt pth safetensors tar"
LARGE = [f"*.{ending}" for ending in [*LARGE.split(), "png", "zip", "zst"]]
LARGE_SIZE = 10_000_000


class HubError(Exception):
    """An answer that is an error, with the headers by which huggingface_hub tells errors apart."""

    def __init__(self, status: int, message: str, code: str = "", extra: dict[str, str] | None = None, body=None):
        super().__init__(message)
        self.status, self.message, self.code, self.extra = status, message, code, extra or {}
        self.body = {"error": message} | (body or {})

    def headers(self) -> dict[str, str]:
        return {"X-Error-Message": self.message} | ({"X-Error-Code": self.code} if self.code else {}) | self.extra


@dataclass
class Account:
    name: str
    organizations: tuple[str, ...] = ()
    writes: bool = True  # or its token may only read

    def may_read(self, repo_id: str) -> bool:
        return repo_id.split("/")[0] in (self.name, *self.organizations)

    def may_write(self, repo_id: str) -> bool:
        return self.writes and self.may_read(repo_id)


@dataclass
class File:
    oid: str  # git's SHA-1 of the file, or of the pointer of a large one
    size: int
    sha256: str | None = None  # of a large file

    def lfs(self) -> dict | None:
        return self.sha256 and {"oid": self.sha256, "sha256": self.sha256, "size": self.size, "pointerSize": 134}


@dataclass
class Commit:
    oid: str
    parent: str | None
    title: str
    description: str
    date: str
    files: dict[str, File]

    def described(self) -> dict:
        return {"id": self.oid, "title": self.title, "message": self.description, "date": self.date, "authors": []}

    def entries(self, folder: str, recursive: bool) -> list[dict]:
        """Files and folders below a folder, as the tree API lists them."""
        last = {"id": self.oid, "title": self.title, "date": self.date}
        found: dict[str, dict] = {}
        for path, file in sorted(self.files.items()):
            if folder and not path.startswith(f"{folder}/"):
                continue
            for parent in reversed(PurePosixPath(path).parents[:-1]):
                name = str(parent)
                if len(name) > len(folder):
                    oid = hashlib.sha1(f"{self.oid}{name}".encode()).hexdigest()
                    found[name] = {"type": "directory", "oid": oid, "size": 0, "path": name, "lastCommit": last}
            found[path] = {"type": "file", "oid": file.oid, "size": file.size, "path": path, "lastCommit": last}
            if file.sha256:
                found[path]["lfs"] = file.lfs()
        if not found and folder:
            raise HubError(404, f"{folder} does not exist", "EntryNotFound")
        depth = len(PurePosixPath(folder).parts) + 1
        return [one for path, one in found.items() if recursive or len(PurePosixPath(path).parts) == depth]


@dataclass
class Repository:
    kind: str  # models, datasets, spaces
    repo_id: str
    private: bool
    created: str
    refs: dict[str, str] = field(default_factory=dict)  # branch, or refs/pr/N -> commit
    all_commits: dict[str, Commit] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)  # SHA-256 of large files that were uploaded

    def resolve(self, revision: str) -> Commit:
        revision = revision.removeprefix("refs/heads/")
        if revision in self.refs:
            return self.all_commits[self.refs[revision]]
        for oid, commit in self.all_commits.items():
            if len(revision) >= 7 and oid.startswith(revision):
                return commit
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def history(self, revision: str = "main") -> list[Commit]:
        """The commits of a branch, the newest first."""
        commits = [self.resolve(revision)]
        while commits[-1].parent:
            commits.append(self.all_commits[commits[-1].parent])
        return commits

    def is_large(self, path: str, size: int) -> bool:
        return size > LARGE_SIZE or any(fnmatch(PurePosixPath(path).name, pattern) for pattern in LARGE)


class Store:
    """All repositories of a server; the folder outlives it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.repositories: dict[tuple[str, str], Repository] = {}
        (folder / "objects").mkdir(parents=True, exist_ok=True)
        (folder / "incoming").mkdir(exist_ok=True)
        if (folder / "repositories.json").exists():
            for state in json.loads((folder / "repositories.json").read_text()):
                commits = {
                    oid: Commit(**commit | {"files": {path: File(**file) for path, file in commit["files"].items()}})
                    for oid, commit in state["all_commits"].items()
                }
                repository = Repository(**state | {"all_commits": commits, "objects": set(state["objects"])})
                self.repositories[repository.kind, repository.repo_id] = repository

    def save(self) -> None:
        temporary = self.folder / "repositories.json.tmp"
        states = [asdict(repository) for repository in self.repositories.values()]
        temporary.write_text(json.dumps(states, default=sorted))
        os.replace(temporary, self.folder / "repositories.json")

    def find(self, kind: str, repo_id: str) -> Repository | None:
        return self.repositories.get((kind, repo_id))

    def create(self, kind: str, repo_id: str, private: bool) -> Repository:
        repository = Repository(kind, repo_id, private, _now())
        attributes = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE)
        files = {".gitattributes": self._keep(attributes.encode())}
        self._add(repository, "main", None, files, {"summary": "initial commit"})
        self.repositories[kind, repo_id] = repository
        self.save()
        return repository

    def describe(self, repository: Repository, commit: Commit, blobs: bool) -> dict:
        """What the API says of a model or a dataset."""
        readme = commit.files.get("README.md")
        described = {
            "id": repository.repo_id,
            "modelId": repository.repo_id,
            "author": repository.repo_id.split("/")[0],
        }
        described |= {"sha": commit.oid, "private": repository.private, "gated": False, "tags": [], "downloads": 0}
        described |= {"likes": 0, "lastModified": commit.date, "createdAt": repository.created}
        described["cardData"] = front_matter(self.read(readme).decode()) if readme else None
        described["siblings"] = [
            {"rfilename": path} | ({"size": file.size, "blobId": file.oid, "lfs": file.lfs()} if blobs else {})
            for path, file in sorted(commit.files.items())
        ]
        return described

    # ---- Files

    def path(self, oid: str) -> Path:
        return self.folder / "objects" / oid

    def size(self, oid: str) -> int:
        return self.path(oid).stat().st_size

    def read(self, file: File) -> bytes:
        return self.path(file.sha256 or file.oid).read_bytes()

    def _keep(self, data: bytes) -> File:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        self.path(oid).write_bytes(data)
        return File(oid, len(data))

    def incoming(self, oid: str, part: int) -> BinaryIO:
        return open(self.folder / "incoming" / f"{oid}.{part}", "wb")

    def receive(self, oid: str, parts: list[int]) -> bool:
        """Puts a large file together; whether it is the one it should be."""
        paths = [self.folder / "incoming" / f"{oid}.{part}" for part in parts]
        data = b"".join(path.read_bytes() for path in paths)
        for path in paths:
            path.unlink()
        if hashlib.sha256(data).hexdigest() != oid:
            return False
        self.path(oid).write_bytes(data)
        return True

    # ---- Commits

    def commit(
        self, repository: Repository, revision: str, lines: list[dict], author: str, pull_request: bool
    ) -> tuple[Commit, int]:
        """All of it or nothing: `lines` as the commit API gets them. Returns the pull request's number as well."""
        head = repository.resolve(revision)
        files = dict(head.files)
        header: dict = {}
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header":
                header = value
            elif key == "file":
                files[value["path"]] = self._keep(base64.b64decode(value["content"]))
            elif key == "lfsFile":
                if value["oid"] not in repository.objects:
                    raise HubError(400, f"LFS pointer of {value['path']} points to a file that does not exist")
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{value['oid']}\n"
                pointer += f"size {self.size(value['oid'])}\n"
                files[value["path"]] = File(self._keep(pointer.encode()).oid, self.size(value["oid"]), value["oid"])
            elif key in ("deletedFile", "deletedFolder"):
                gone = [
                    path
                    for path in files
                    if path == value["path"]
                    or key == "deletedFolder"
                    and path.startswith(value["path"].rstrip("/") + "/")
                ]
                if not gone:
                    raise HubError(404, "A file with this name doesn't exist", "EntryNotFound")
                for path in gone:
                    del files[path]
            else:
                raise HubError(400, f"Unknown operation {key}")
        parent = header.get("parentCommit")
        if parent and not pull_request and not head.oid.startswith(parent):
            raise HubError(412, "A commit has happened since. Please refresh and try again.")
        number = 1 + sum(name.startswith("refs/pr/") for name in repository.refs)
        name = f"refs/pr/{number}" if pull_request else revision
        commit = self._add(repository, name, head.oid, files, header)
        self.save()
        return commit, number

    def _add(
        self, repository: Repository, name: str, parent: str | None, files: dict[str, File], header: dict
    ) -> Commit:
        content = json.dumps([repository.repo_id, parent, header, _now(), sorted(files)])
        oid = hashlib.sha1(content.encode() + os.urandom(8)).hexdigest()
        commit = Commit(oid, parent, header["summary"], header.get("description", ""), _now(), files)
        repository.all_commits[oid] = commit
        repository.refs[name] = oid
        return commit


def front_matter(text: str) -> dict | None:
    match = re.match(r"\s*---[ \t]*\r?\n(.*?)\r?\n---", text, re.DOTALL)
    metadata = yaml.safe_load(match[1]) if match else None
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("the metadata are no mapping")
    return metadata


def card_problems(content: str) -> tuple[list[str], list[str]]:
    """Errors, which refuse a commit, and warnings of a README.md."""
    try:
        metadata = front_matter(content)
    except (yaml.YAMLError, ValueError) as error:
        return [f"Invalid YAML: {error}"], []
    if not metadata:
        return [], ["empty or missing yaml metadata in repo card"]
    errors = []
    languages = metadata.get("language") or []
    for language in [languages] if isinstance(languages, str) else languages:
        if not re.fullmatch(r"[a-z]{2,3}|multilingual|code", str(language)):
            errors.append(f'"language" must only contain ISO 639 codes, found {language!r}')
    for entry in metadata.get("model-index") or []:
        for result in entry.get("results") or [{}]:
            if not all(result.get(key) for key in ("task", "dataset", "metrics")):
                errors.append('"model-index[0].results[0]" needs task, dataset and metrics')
    return errors, []


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
