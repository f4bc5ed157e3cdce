"""A Hub on this machine: the part of the Hub's protocol that huggingface_hub, transformers and datasets use.

In a shell (`HF_ENDPOINT=http://127.0.0.1:PORT` is printed once it listens; the token `hf_user` is that of `user`):

    python tests/hub_server.py [NAME=TOKEN] > endpoint.txt &
    export HF_HUB_DISABLE_XET=1 HF_TOKEN=hf_user "$(head -n 1 endpoint.txt)"   # before Python imports huggingface_hub

In a test: `with HubServer() as hub`, and child processes with `hub.environment(HOME_FOLDER)`, since a process reads
HF_ENDPOINT once, when it imports huggingface_hub. Repositories are kept in memory. Large files go the LFS way, not
xet's, which speaks to another server. Errors have the status codes and headers of huggingface.co.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

LARGE = (
    "*.arrow",
    "*.bin",
    "*.npy",
    "*.onnx",
    "*.parquet",
    "*.png",
    "*.pt",
    "*.safetensors",
)  # and above 10 MB
LICENSES = ("apache-2.0", "cc-by-4.0", "cc0-1.0", "mit", "other")
DATE = "2026-01-01T00:00:00.000Z"


class HubError(Exception):
    """An error answer, with the headers by which huggingface_hub tells errors apart."""

    def __init__(self, status: int, message: str, code: str = "", body: dict | None = None):
        super().__init__(message)
        self.status, self.body = status, {"error": message} | (body or {})
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


class ConnectionCut(Exception):
    """A planned fault: the connection ends here, without an answer."""


@dataclass
class Account:
    name: str
    writes: bool = True  # otherwise its token may only read

    def may_write(self, repo_id: str) -> bool:
        return self.writes and repo_id.startswith(f"{self.name}/")


@dataclass
class Commit:
    oid: str
    parent: str | None
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    kind: str  # models or datasets
    repo_id: str
    private: bool
    refs: dict[str, str] = field(default_factory=dict)  # branch, or refs/pr/N -> commit
    all_commits: dict[str, Commit] = field(default_factory=dict)

    def add(self, ref: str, parent: str | None, title: str, files: dict[str, bytes]) -> Commit:
        commit = Commit(os.urandom(20).hex(), parent, title, files)
        self.all_commits[commit.oid] = commit
        self.refs[ref] = commit.oid
        return commit

    def resolve(self, revision: str = "main") -> Commit:
        oid = self.refs.get(revision.removeprefix("refs/heads/"), revision)
        if oid not in self.all_commits:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.all_commits[oid]

    def history(self, revision: str = "main") -> list[str]:
        """Titles of the commits of a branch, the newest first."""
        commits = [self.resolve(revision)]
        while commits[-1].parent:
            commits.append(self.all_commits[commits[-1].parent])
        return [commit.title for commit in commits]


class HubServer(ThreadingHTTPServer):
    """
    Args:
        accounts: By token; the default is `user` with `hf_user`.

    Attributes:
        repositories: By kind (`models`, `datasets`) and id.
        requests: What was asked, (method, path, status), in order; status 0 where the connection was cut.
        cut_upload, cut_commit: Whether the connection is cut in the middle of an upload of a large file, or before a
            commit.
    """

    daemon_threads = True

    def __init__(self, accounts: dict[str, Account] | None = None):
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.accounts = accounts or {"hf_user": Account("user")}
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}  # large files by SHA-256
        self.requests: list[tuple[str, str, int]] = []
        self.cut_upload = self.cut_commit = False
        self.lock = threading.RLock()

    def __enter__(self) -> "HubServer":
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def model(self, repo_id: str) -> Repository:
        return self.repositories["models", repo_id]

    def environment(self, home: Path, token: str = "hf_user") -> dict[str, str]:
        """Environment of a client process: this server, a cache of its own in `home`, a token."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "HUGGING"))
        }
        ours = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_TOKEN": token}
        return kept | ours | {"HF_HUB_DISABLE_XET": "1"}

    def handle_error(self, *connection: object) -> None:
        """A client that went away."""


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *message: object) -> None:
        pass

    def _dispatch(self) -> None:
        url = urlsplit(self.path)
        self.query, self._rest = parse_qs(url.query), self._blocks()
        status = 0
        try:
            status = self._route(url.path)
        except HubError as error:
            status = self._answer(error.status, error.body, error.headers)
        except ConnectionCut:
            self.close_connection = True
            self.connection.shutdown(2)
        finally:
            self.server.requests.append((self.command, url.path, status))

    do_GET = do_HEAD = do_POST = do_PUT = _dispatch

    def _route(self, path: str) -> int:
        for methods, pattern, handle in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods.split():
                with self.server.lock:
                    return handle(
                        self,
                        **{name: unquote(text or "") for name, text in match.groupdict().items()},
                    )
        raise HubError(404, "Repository not found", "RepoNotFound")

    def _blocks(self) -> Iterator[bytes]:
        left = int(self.headers.get("Content-Length") or 0)
        while left and (block := self.rfile.read(min(left, 1 << 16))):
            left -= len(block)
            yield block

    def _body(self) -> bytes:
        return b"".join(self._rest)

    def _answer(
        self, status: int, content: object = b"", headers: dict[str, str] | None = None
    ) -> int:
        self._body()  # or the next request of this connection would begin in the middle of it
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))} | (
            headers or {}
        )
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return status

    def _account(self, needed: bool = False) -> Account | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if needed and not token or token and token not in self.server.accounts:
            raise HubError(401, "Invalid credentials in Authorization header")
        return self.server.accounts.get(token)

    def _repository(self, kind: str, repo_id: str, write: bool = False) -> Repository:
        account = self._account(needed=write)
        repository = self.server.repositories.get((kind or "models", repo_id))
        if repository is None or (
            repository.private and not (account and repo_id.startswith(f"{account.name}/"))
        ):
            raise HubError(404 if account else 401, "Repository not found", "RepoNotFound")
        if write and not account.may_write(repo_id):
            raise HubError(403, "Authorization error.")
        return repository

    # ---- Repositories

    def whoami(self) -> int:
        account = self._account(needed=True)
        return self._answer(
            200, {"type": "user", "name": account.name, "fullname": account.name, "orgs": []}
        )

    def create(self) -> int:
        account, asked = self._account(needed=True), json.loads(self._body())
        repo_id = f"{asked.get('organization') or account.name}/{asked['name']}"
        kind = f"{asked.get('type', 'model')}s"
        url = f"{self.server.endpoint}/{'' if kind == 'models' else kind + '/'}{repo_id}"
        if not account.may_write(repo_id):
            raise HubError(
                403,
                f"You don't have the rights to create a repository under {repo_id.split('/')[0]!r}",
            )
        if (kind, repo_id) in self.server.repositories:
            raise HubError(
                409, "You already created this repository", body={"url": url, "name": repo_id}
            )
        private = asked.get("private", False) or asked.get("visibility") == "private"
        repository = self.server.repositories[kind, repo_id] = Repository(kind, repo_id, private)
        attributes = "".join(
            f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE
        )
        repository.add("main", None, "initial commit", {".gitattributes": attributes.encode()})
        return self._answer(200, {"url": url, "name": repo_id, "id": "0" * 24})

    def info(self, kind: str, repo_id: str, revision: str = "main") -> int:
        repository = self._repository(kind, repo_id)
        commit = repository.resolve(revision)
        described = {
            "id": repo_id,
            "sha": commit.oid,
            "private": repository.private,
            "tags": [],
            "lastModified": DATE,
        }
        described["cardData"] = front_matter(commit.files.get("README.md", b"").decode())
        return self._answer(
            200, described | {"siblings": [{"rfilename": path} for path in sorted(commit.files)]}
        )

    def _entries(self, commit: Commit) -> dict[str, dict]:
        """Files and folders, as the tree API lists them."""
        found: dict[str, dict] = {}
        for path, data in sorted(commit.files.items()):
            for parent in PurePosixPath(path).parents[:-1]:
                found[str(parent)] = {
                    "type": "directory",
                    "oid": commit.oid,
                    "size": 0,
                    "path": str(parent),
                }
            found[path] = {"type": "file", "oid": oid_of(data), "size": len(data), "path": path}
            if is_large(path, len(data)):
                found[path]["lfs"] = {"oid": sha256_of(data), "size": len(data), "pointerSize": 134}
        return found

    def tree(self, kind: str, repo_id: str, revision: str, path: str = "") -> int:
        folder = path.strip("/")
        entries = self._entries(self._repository(kind, repo_id).resolve(revision))
        inside = {
            name: one
            for name, one in entries.items()
            if not folder or name.startswith(f"{folder}/")
        }
        if folder and not inside:
            raise HubError(404, f"{folder} does not exist", "EntryNotFound")
        recursive = self.query.get("recursive", [""])[0].lower() == "true"
        depth = len(PurePosixPath(folder).parts) + 1
        listed = [
            one
            for name, one in inside.items()
            if recursive or len(PurePosixPath(name).parts) == depth
        ]
        return self._answer(200, listed)

    def branch(self, kind: str, repo_id: str, name: str) -> int:
        repository = self._repository(kind, repo_id, write=True)
        if name in repository.refs:
            raise HubError(409, f"Reference already exists: refs/heads/{name}")
        repository.refs[name] = repository.resolve().oid
        return self._answer(201)

    def validate(self) -> int:
        """The check of a card's metadata that refuses a commit."""
        metadata = front_matter(json.loads(self._body())["content"]) or {}
        wrong = [
            code
            for code in metadata.get("language") or []
            if not re.fullmatch(r"[a-z]{2,3}", str(code))
        ]
        errors = [
            {"message": f'"language" must only contain ISO 639 codes, found {code!r}'}
            for code in wrong
        ]
        if metadata.get("license", "other") not in LICENSES:
            errors.append({"message": f'"license" must be one of {", ".join(LICENSES)}'})
        return self._answer(400 if errors else 200, {"errors": errors, "warnings": []})

    # ---- Uploads

    def preupload(self, kind: str, repo_id: str, revision: str) -> int:
        files = (
            self._repository(kind, repo_id, write="create_pr" not in self.query)
            .resolve(revision)
            .files
        )
        modes = []
        for asked in json.loads(self._body())["files"]:
            path, large = asked["path"], is_large(asked["path"], asked["size"])
            oid = path in files and (sha256_of if large else oid_of)(files[path])
            modes.append(
                {"path": path, "uploadMode": "lfs" if large else "regular", "oid": oid or None}
            )
        return self._answer(200, {"files": [mode | {"shouldIgnore": False} for mode in modes]})

    def lfs_batch(self, kind: str, repo_id: str) -> int:
        self._repository(kind, repo_id)
        self._account(needed=True)
        objects = [
            {"oid": asked["oid"], "size": asked["size"]}
            for asked in json.loads(self._body())["objects"]
        ]
        for entry in objects:
            if entry["oid"] not in self.server.objects:
                entry["actions"] = {
                    "upload": {"href": f"{self.server.endpoint}/lfs/{entry['oid']}", "header": {}}
                }
        return self._answer(200, {"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str) -> int:
        if self.server.cut_upload:
            next(self._rest)
            raise ConnectionCut
        self.server.objects[oid] = self._body()
        return self._answer(200)

    def commit(self, kind: str, repo_id: str, revision: str) -> int:
        pull_request = "create_pr" in self.query
        repository = self._repository(kind, repo_id, write=not pull_request)
        head = repository.resolve(revision)
        files, lines = dict(head.files), [json.loads(line) for line in self._body().splitlines()]
        header = lines[0]["value"]
        for key, value in [(line["key"], line["value"]) for line in lines[1:]]:
            if key == "deletedFile":
                del files[value["path"]]
            elif key == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            else:
                files[value["path"]] = base64.b64decode(value["content"])
        if self.server.cut_commit:
            raise ConnectionCut
        if not pull_request and header.get("parentCommit", head.oid) != head.oid:
            raise HubError(412, "A commit has happened since. Please refresh and try again.")
        ref = f"refs/pr/{len(repository.refs)}" if pull_request else revision
        commit = repository.add(ref, head.oid, header["summary"], files)
        url = f"{self.server.endpoint}/{'' if kind == 'models' else kind + '/'}{repo_id}"
        answer = {
            "success": True,
            "commitOid": commit.oid,
            "commitUrl": f"{url}/commit/{commit.oid}",
        }
        request = f"{url}/discussions/1" if pull_request else None
        return self._answer(200, answer | {"pullRequestUrl": request, "hookOutput": ""})

    # ---- Downloads

    def download(self, kind: str, repo_id: str, revision: str, path: str) -> int:
        commit = self._repository(kind, repo_id).resolve(revision)
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if path not in commit.files:
            error = HubError(404, "Entry not found", "EntryNotFound")
            return self._answer(404, error.body, headers | error.headers)
        data = commit.files[path]
        if not is_large(path, len(data)):
            return self._send(data, headers | {"ETag": f'"{oid_of(data)}"'})
        sha = sha256_of(data)
        self.server.objects[sha] = data
        # Another host, as the Hub's: a client drops its token on the way.
        location = f"http://localhost:{self.server.server_address[1]}/cdn/{sha}"
        headers |= {
            "X-Linked-Size": str(len(data)),
            "X-Linked-ETag": f'"{sha}"',
            "Location": location,
        }
        return self._answer(302, b"", headers)

    def cdn(self, oid: str) -> int:
        return self._send(self.server.objects[oid], {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})

    def _send(self, data: bytes, headers: dict[str, str]) -> int:
        status = 200
        headers = {"Content-Type": "application/octet-stream"} | headers
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            begin, end = int(asked[1]), int(asked[2] or len(data) - 1) + 1
            headers["Content-Range"] = f"bytes {begin}-{min(end, len(data)) - 1}/{len(data)}"
            data, status = data[begin:end], 206
        return self._answer(status, data, headers)


def oid_of(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_large(path: str, size: int) -> bool:
    return size > 10_000_000 or any(fnmatch(PurePosixPath(path).name, pattern) for pattern in LARGE)


def front_matter(text: str) -> dict | None:
    match = re.match(r"\s*---[ \t]*\r?\n(.*?)\r?\n---", text, re.DOTALL)
    return yaml.safe_load(match[1]) if match else None


_API = r"/api/(?P<kind>models|datasets)/(?P<repo_id>[^/]+/[^/]+)"
_PLACE = r"/(?:(?P<kind>datasets)/)?(?P<repo_id>[^/]+/[^/]+?)"
ROUTES: list[tuple[str, str, Callable]] = [
    ("GET", r"/api/whoami-v2", HubHandler.whoami),
    ("POST", r"/api/repos/create", HubHandler.create),
    ("POST", r"/api/validate-yaml", HubHandler.validate),
    ("GET", _API, HubHandler.info),
    ("GET", _API + r"/revision/(?P<revision>[^/]+)", HubHandler.info),
    ("GET", _API + r"/tree/(?P<revision>[^/]+)(?P<path>/.*)?", HubHandler.tree),
    ("POST", _API + r"/branch/(?P<name>[^/]+)", HubHandler.branch),
    ("POST", _API + r"/preupload/(?P<revision>[^/]+)", HubHandler.preupload),
    ("POST", _API + r"/commit/(?P<revision>[^/]+)", HubHandler.commit),
    ("POST", _PLACE + r"\.git/info/lfs/objects/batch", HubHandler.lfs_batch),
    ("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})", HubHandler.lfs_put),
    ("GET HEAD", _PLACE + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", HubHandler.download),
    ("GET HEAD", r"/cdn/(?P<oid>[0-9a-f]{64})", HubHandler.cdn),
]


def main() -> None:
    name, _, token = (sys.argv[1] if sys.argv[1:] else "user=hf_user").partition("=")
    server = HubServer({token: Account(name)})
    print(f"HF_ENDPOINT={server.endpoint}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
