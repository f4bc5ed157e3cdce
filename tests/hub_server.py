"""A Hub on this machine: what huggingface_hub, transformers and datasets use of its protocol.

In a shell (`HF_ENDPOINT=http://127.0.0.1:PORT` is printed once it listens; the token `hf_user` is
that of `user`; Python must not have imported huggingface_hub before):

    python tests/hub_server.py [NAME=TOKEN] > endpoint.txt &
    export HF_HUB_DISABLE_XET=1 HF_TOKEN=hf_user "$(head -n 1 endpoint.txt)"

In a test: `with HubServer() as hub`, and child processes with `hub.environment(HOME_FOLDER)`, since
a process reads HF_ENDPOINT once, when it imports huggingface_hub. Repositories are kept in memory.
Large files go the LFS way, not xet's, which speaks to another server. Errors have the status codes
and headers of huggingface.co.
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

# Large files are those of more than 10 MB, and those of these names.
LARGE_SIZE = 10_000_000
LARGE = (
    *("*.arrow", "*.npy", "*.parquet", "*.png"),
    *("*.bin", "*.onnx", "*.pt", "*.safetensors"),
)
LICENSES = ("apache-2.0", "cc-by-4.0", "cc0-1.0", "mit", "other")
DATE = "2026-01-01T00:00:00.000Z"


class HubError(Exception):
    """An error answer, with the headers by which huggingface_hub tells errors apart."""

    def __init__(self, status: int, message: str, code: str = "", body: dict | None = None):
        super().__init__(message)
        self.status = status
        self.body = {"error": message, **(body or {})}
        self.headers = {"X-Error-Message": message}
        if code:
            self.headers["X-Error-Code"] = code


class ConnectionCut(Exception):
    """A planned fault: the connection ends here, without an answer."""


@dataclass
class Account:
    """Who a token belongs to; if not `writes`, the token may only read."""

    name: str
    writes: bool = True

    def owns(self, repo_id: str) -> bool:
        return repo_id.startswith(f"{self.name}/")

    def may_write(self, repo_id: str) -> bool:
        return self.writes and self.owns(repo_id)


@dataclass
class Commit:
    oid: str
    parent: str | None
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    """A repository.

    Attributes:
        kind: `models` or `datasets`.
        repo_id: `USER/NAME`.
        private: Whether only its user sees it.
        refs: The commit of each branch, and of each pull request, `refs/pr/N`.
        all_commits: The commits by their ids.
    """

    kind: str
    repo_id: str
    private: bool
    refs: dict[str, str] = field(default_factory=dict)
    all_commits: dict[str, Commit] = field(default_factory=dict)

    def is_visible_to(self, account: Account | None) -> bool:
        return not self.private or (account is not None and account.owns(self.repo_id))

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
    """The Hub.

    Args:
        accounts: The accounts by token; the default is `user` with `hf_user`.

    Attributes:
        repositories: The repositories by kind (`models`, `datasets`) and id.
        objects: The large files by SHA-256.
        requests: What was asked, (method, path, status), in order; status 0 where the connection
            was cut.
        cut_upload: Whether the connection is cut in the middle of an upload of a large file.
        cut_commit: Whether the connection is cut before a commit.
    """

    daemon_threads = True

    def __init__(self, accounts: dict[str, Account] | None = None):
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.accounts = accounts or {"hf_user": Account("user")}
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, int]] = []
        self.cut_upload = False
        self.cut_commit = False
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
        """Return the environment of a client: this server, a cache in `home`, a token."""
        variables = {}
        for name, value in os.environ.items():
            if not name.startswith(("HF_", "HUGGING")):
                variables[name] = value
        return variables | {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
        }

    def url_of(self, kind: str, repo_id: str) -> str:
        """Return the address of a repository."""
        if kind == "models":
            return f"{self.endpoint}/{repo_id}"
        return f"{self.endpoint}/{kind}/{repo_id}"

    def handle_error(self, *connection: object) -> None:
        """A client that went away."""


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *message: object) -> None:
        pass

    def _dispatch(self) -> None:
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        self._rest = self._blocks()
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
            if not match or self.command not in methods.split():
                continue
            arguments = {name: unquote(text or "") for name, text in match.groupdict().items()}
            with self.server.lock:
                return handle(self, **arguments)
        raise HubError(404, "Repository not found", "RepoNotFound")

    def _blocks(self) -> Iterator[bytes]:
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            block = self.rfile.read(min(left, 1 << 16))
            if not block:
                return
            left -= len(block)
            yield block

    def _body(self) -> bytes:
        return b"".join(self._rest)

    def _answer(
        self, status: int, content: object = b"", headers: dict[str, str] | None = None
    ) -> int:
        # Otherwise the next request of this connection would begin in the middle of this one.
        self._body()
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        all_headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        all_headers |= headers or {}
        for name, text in all_headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return status

    def _account(self, needed: bool = False) -> Account | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        is_missing = needed and not token
        is_unknown = bool(token) and token not in self.server.accounts
        if is_missing or is_unknown:
            raise HubError(401, "Invalid credentials in Authorization header")
        return self.server.accounts.get(token)

    def _repository(self, kind: str, repo_id: str, write: bool = False) -> Repository:
        account = self._account(needed=write)
        repository = self.server.repositories.get((kind or "models", repo_id))
        if repository is None or not repository.is_visible_to(account):
            status = 404 if account else 401
            raise HubError(status, "Repository not found", "RepoNotFound")
        if write and not account.may_write(repo_id):
            raise HubError(403, "Authorization error.")
        return repository

    # ---- Repositories

    def whoami(self) -> int:
        name = self._account(needed=True).name
        return self._answer(200, {"type": "user", "name": name, "fullname": name, "orgs": []})

    def create(self) -> int:
        account = self._account(needed=True)
        request = json.loads(self._body())
        user = request.get("organization") or account.name
        repo_id = f"{user}/{request['name']}"
        kind = f"{request.get('type', 'model')}s"
        url = self.server.url_of(kind, repo_id)
        if not account.may_write(repo_id):
            raise HubError(403, f"You don't have the rights to create a repository under {user!r}")
        if (kind, repo_id) in self.server.repositories:
            raise HubError(
                409, "You already created this repository", body={"url": url, "name": repo_id}
            )
        is_private = request.get("private", False) or request.get("visibility") == "private"
        repository = Repository(kind, repo_id, is_private)
        self.server.repositories[kind, repo_id] = repository
        attributes = [f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE]
        files = {".gitattributes": "".join(attributes).encode()}
        repository.add("main", None, "initial commit", files)
        return self._answer(200, {"url": url, "name": repo_id, "id": "0" * 24})

    def info(self, kind: str, repo_id: str, revision: str = "main") -> int:
        repository = self._repository(kind, repo_id)
        commit = repository.resolve(revision)
        description = {
            "id": repo_id,
            "sha": commit.oid,
            "private": repository.private,
            "tags": [],
            "lastModified": DATE,
            "cardData": front_matter(commit.files.get("README.md", b"").decode()),
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
        }
        return self._answer(200, description)

    def _entries(self, commit: Commit) -> dict[str, dict]:
        """Return files and folders by path, as the tree API lists them."""
        entries: dict[str, dict] = {}
        for path, data in sorted(commit.files.items()):
            for parent in PurePosixPath(path).parents[:-1]:
                entries[str(parent)] = {
                    "type": "directory",
                    "oid": commit.oid,
                    "size": 0,
                    "path": str(parent),
                }
            entry = {"type": "file", "oid": oid_of(data), "size": len(data), "path": path}
            if is_large(path, len(data)):
                entry["lfs"] = {"oid": sha256_of(data), "size": len(data), "pointerSize": 134}
            entries[path] = entry
        return entries

    def tree(self, kind: str, repo_id: str, revision: str, path: str = "") -> int:
        folder = path.strip("/")
        entries = self._entries(self._repository(kind, repo_id).resolve(revision))
        if folder:
            entries = {
                name: entry for name, entry in entries.items() if name.startswith(f"{folder}/")
            }
            if not entries:
                raise HubError(404, f"{folder} does not exist", "EntryNotFound")
        is_recursive = self.query.get("recursive", [""])[0].lower() == "true"
        if not is_recursive:
            depth = len(PurePosixPath(folder).parts) + 1
            entries = {
                name: entry
                for name, entry in entries.items()
                if len(PurePosixPath(name).parts) == depth
            }
        return self._answer(200, list(entries.values()))

    def branch(self, kind: str, repo_id: str, name: str) -> int:
        repository = self._repository(kind, repo_id, write=True)
        if name in repository.refs:
            raise HubError(409, f"Reference already exists: refs/heads/{name}")
        repository.refs[name] = repository.resolve().oid
        return self._answer(201)

    def validate(self) -> int:
        """Check the metadata of a card, by which the Hub may refuse a commit."""
        metadata = front_matter(json.loads(self._body())["content"]) or {}
        errors = []
        for code in metadata.get("language") or []:
            if not re.fullmatch(r"[a-z]{2,3}", str(code)):
                message = f'"language" must only contain ISO 639 codes, found {code!r}'
                errors.append({"message": message})
        if metadata.get("license", "other") not in LICENSES:
            errors.append({"message": f'"license" must be one of {", ".join(LICENSES)}'})
        status = 400 if errors else 200
        return self._answer(status, {"errors": errors, "warnings": []})

    # ---- Uploads

    def preupload(self, kind: str, repo_id: str, revision: str) -> int:
        is_pull_request = "create_pr" in self.query
        repository = self._repository(kind, repo_id, write=not is_pull_request)
        files = repository.resolve(revision).files
        modes = []
        for request in json.loads(self._body())["files"]:
            path = request["path"]
            large = is_large(path, request["size"])
            oid = None
            if path in files:
                oid = sha256_of(files[path]) if large else oid_of(files[path])
            mode = {
                "path": path,
                "uploadMode": "lfs" if large else "regular",
                "oid": oid,
                "shouldIgnore": False,
            }
            modes.append(mode)
        return self._answer(200, {"files": modes})

    def lfs_batch(self, kind: str, repo_id: str) -> int:
        self._repository(kind, repo_id)
        self._account(needed=True)
        objects = []
        for request in json.loads(self._body())["objects"]:
            oid = request["oid"]
            entry = {"oid": oid, "size": request["size"]}
            if oid not in self.server.objects:
                upload = {"href": f"{self.server.endpoint}/lfs/{oid}", "header": {}}
                entry["actions"] = {"upload": upload}
            objects.append(entry)
        return self._answer(200, {"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str) -> int:
        if self.server.cut_upload:
            next(self._rest)
            raise ConnectionCut
        self.server.objects[oid] = self._body()
        return self._answer(200)

    def commit(self, kind: str, repo_id: str, revision: str) -> int:
        is_pull_request = "create_pr" in self.query
        repository = self._repository(kind, repo_id, write=not is_pull_request)
        head = repository.resolve(revision)
        lines = [json.loads(line) for line in self._body().splitlines()]
        header = lines[0]["value"]
        files = self._changed_files(head.files, lines[1:])
        if self.server.cut_commit:
            raise ConnectionCut
        is_outdated = header.get("parentCommit", head.oid) != head.oid
        if is_outdated and not is_pull_request:
            raise HubError(412, "A commit has happened since. Please refresh and try again.")
        ref = f"refs/pr/{len(repository.refs)}" if is_pull_request else revision
        commit = repository.add(ref, head.oid, header["summary"], files)
        url = self.server.url_of(kind, repo_id)
        answer = {
            "success": True,
            "commitOid": commit.oid,
            "commitUrl": f"{url}/commit/{commit.oid}",
            "pullRequestUrl": f"{url}/discussions/1" if is_pull_request else None,
            "hookOutput": "",
        }
        return self._answer(200, answer)

    def _changed_files(self, files: dict[str, bytes], operations: list[dict]) -> dict[str, bytes]:
        """Return the files after the operations of a commit."""
        changed = dict(files)
        for operation in operations:
            value = operation["value"]
            path = value["path"]
            if operation["key"] == "deletedFile":
                del changed[path]
            elif operation["key"] == "lfsFile":
                changed[path] = self.server.objects[value["oid"]]
            else:
                changed[path] = base64.b64decode(value["content"])
        return changed

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
        """Send a file, or the part of it that was asked for."""
        headers = {"Content-Type": "application/octet-stream"} | headers
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not part:
            return self._answer(200, data, headers)
        begin = int(part[1])
        end = min(int(part[2]) + 1, len(data)) if part[2] else len(data)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return self._answer(206, data[begin:end], headers)


def oid_of(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_large(path: str, size: int) -> bool:
    name = PurePosixPath(path).name
    return size > LARGE_SIZE or any(fnmatch(name, pattern) for pattern in LARGE)


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
