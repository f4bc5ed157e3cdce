"""A Hub on this machine: the part of the Hub's protocol that huggingface_hub, transformers and datasets use.

In a shell (one line `HF_ENDPOINT=http://127.0.0.1:PORT` is printed once it listens; `user` owns the token `hf_user`):

    python tests/hub_server.py --port 0 --folder DIR > endpoint.txt &
    export HF_HUB_DISABLE_XET=1 HF_TOKEN=hf_user "$(head -n 1 endpoint.txt)"   # before Python imports huggingface_hub

In a test: `with HubServer(tmp_path) as hub`, and child processes with `hub.environment(HOME_FOLDER)`, since a process
reads HF_ENDPOINT once, when it imports huggingface_hub. Files of the folder outlive the server. Large files go the
LFS way, not xet's, which speaks to another server. Errors have the status codes and headers of huggingface.co.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

if __package__:
    from tests.hub_store import Account, HubError, Repository, Store, card_problems
else:  # run as a script, from its own folder
    from hub_store import Account, HubError, Repository, Store, card_problems

BLOCK = 1 << 16
LFS_MIME = "application/vnd.git-lfs+json"


class ConnectionCut(Exception):
    """A planned fault: the connection ends here, without an answer."""


class HubServer(ThreadingHTTPServer):
    """
    Args:
        folder: Where repositories are kept.
        accounts: By token; None for the one of `user` (`hf_user`).
        port: 0 for any that is free.

    Attributes:
        requests: What was asked, (method, path, status), in order; status 0 where the connection was cut.
        cut_upload: Called with the size of a file that is uploaded; returns after how many of its bytes the connection
            is cut, or None.
        cut_commit: Returns "before" or "after" where the connection is cut before or after a commit is made, or None.
        part_size: Files above so many bytes are uploaded in parts of so many.
    """

    daemon_threads = True

    def __init__(self, folder: Path, accounts: dict[str, Account] | None = None, port: int = 0):
        super().__init__(("127.0.0.1", port), HubHandler)
        self.store = Store(Path(folder))
        self.accounts = {"hf_user": Account("user")} if accounts is None else accounts
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.signature = secrets.token_hex(8)  # of URLs that need no token, as those of a storage service
        self.requests: list[tuple[str, str, int]] = []
        self.cut_upload: Callable[[int], int | None] = lambda size: None
        self.cut_commit: Callable[[], str | None] = lambda: None
        self.part_size = 50_000_000
        self.lock = threading.RLock()

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def environment(self, home: Path, token: str | None = "hf_user") -> dict[str, str]:
        """Environment of a client process: this server, a cache of its own in `home`, a token."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        ours = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        return kept | ours | ({} if token is None else {"HF_TOKEN": token})

    def handle_error(self, *connection: object) -> None:
        """A client that went away."""


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *message: object) -> None:
        pass

    # ---- One request

    def _dispatch(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        status = 0
        try:
            status = self._route(url.path)
        except HubError as error:
            self._read_rest()
            status = self._answer(error.status, error.body, error.headers())
        except ConnectionCut:
            self.close_connection = True
            self.connection.shutdown(2)
        finally:
            self.server.requests.append((self.command, url.path, status))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _dispatch

    def _route(self, path: str) -> int:
        self._rest = self._blocks()
        for methods, pattern, handle in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods:
                with self.server.lock if self.command != "PUT" else threading.Lock():
                    return handle(self, **{name: unquote(text or "") for name, text in match.groupdict().items()})
        raise HubError(404, "Repository not found", "RepoNotFound")

    def _blocks(self) -> Iterator[bytes]:
        """The request's body, whichever way its length is told."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            block = self.rfile.read(min(left, BLOCK))
            if not block:
                return
            left -= len(block)
            yield block

    def _body(self) -> bytes:
        return b"".join(self._rest)

    def _read_rest(self) -> None:
        for _ in self._rest:  # or the next request of this connection would begin in the middle of it
            pass

    def _answer(self, status: int, content: object = b"", headers: dict[str, str] | None = None) -> int:
        self._read_rest()
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))} | (headers or {})
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return status

    # ---- Who asks, and for what

    def _account(self, needed: bool = False) -> Account | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.server.accounts:
            raise HubError(401, "Invalid credentials in Authorization header")
        if needed and not token:
            raise HubError(401, "Invalid username or password.")
        return self.server.accounts.get(token)

    def _repository(self, kind: str, repo_id: str, write: bool = False) -> Repository:
        account = self._account(needed=write)
        repository = self.server.store.find(kind, repo_id)
        if repository is None or (repository.private and not (account and account.may_read(repo_id))):
            raise HubError(404 if account else 401, "Repository not found", "RepoNotFound")
        if write and not account.may_write(repo_id):
            raise HubError(403, "Authorization error.")
        return repository

    def whoami(self) -> int:
        account = self._account(needed=True)
        token = {"displayName": "test", "role": "write" if account.writes else "read"}
        described = {"type": "user", "name": account.name, "fullname": account.name, "email": None, "orgs": []}
        described["orgs"] = [{"name": name, "type": "org", "roleInOrg": "write"} for name in account.organizations]
        return self._answer(200, described | {"auth": {"type": "access_token", "accessToken": token}})

    # ---- Repositories

    def create(self) -> int:
        account, asked = self._account(needed=True), json.loads(self._body())
        repo_id = f"{asked.get('organization') or account.name}/{asked['name']}"
        kind = f"{asked.get('type') or 'model'}s"
        prefix = "" if kind == "models" else f"{kind}/"
        url = f"{self.server.endpoint}/{prefix}{repo_id}"
        if not account.may_write(repo_id):
            namespace = repo_id.split("/")[0]
            message = f'You don\'t have the rights to create a {kind[:-1]} under the namespace "{namespace}"'
            raise HubError(403, message)
        if self.server.store.find(kind, repo_id):
            raise HubError(409, f"You already created this {kind[:-1]} repo", body={"url": url, "name": repo_id})
        private = asked.get("private", False) or asked.get("visibility") == "private"
        self.server.store.create(kind, repo_id, private)
        return self._answer(200, {"url": url, "name": repo_id, "id": secrets.token_hex(12)})

    def info(self, kind: str, repo_id: str, revision: str = "") -> int:
        repository = self._repository(kind, repo_id)
        commit = repository.resolve(revision or "main")
        return self._answer(200, self.server.store.describe(repository, commit, blobs="blobs" in self.query))

    def tree(self, kind: str, repo_id: str, revision: str, path: str = "") -> int:
        commit = self._repository(kind, repo_id).resolve(revision)
        entries = commit.entries(path.strip("/"), self.query.get("recursive", "").lower() == "true")
        return self._answer(200, entries)

    def paths_info(self, kind: str, repo_id: str, revision: str) -> int:
        commit = self._repository(kind, repo_id).resolve(revision)
        paths = parse_qs(self._body().decode()).get("paths", [])
        known = {entry["path"]: entry for entry in commit.entries("", recursive=True)}
        return self._answer(200, [known[path.strip("/")] for path in paths if path.strip("/") in known])

    def refs(self, kind: str, repo_id: str) -> int:
        named = self._repository(kind, repo_id).refs
        refs = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid} for name, oid in named.items()]
        requests = [ref | {"ref": ref["name"]} for ref in refs if ref["name"].startswith("refs/pr/")]
        branches = [ref for ref in refs if not ref["name"].startswith("refs/pr/")]
        return self._answer(200, {"branches": branches, "converts": [], "tags": [], "pullRequests": requests})

    def commits(self, kind: str, repo_id: str, revision: str) -> int:
        history = self._repository(kind, repo_id).history(revision)
        return self._answer(200, [commit.described() for commit in history])

    def branch(self, kind: str, repo_id: str, name: str) -> int:
        repository = self._repository(kind, repo_id, write=True)
        asked = json.loads(self._body() or b"{}")
        if name in repository.refs:
            raise HubError(409, f"Reference already exists: refs/heads/{name}")
        repository.refs[name] = repository.resolve(asked.get("startingPoint", "main")).oid
        self.server.store.save()
        return self._answer(201)

    def validate(self) -> int:
        """The checks of a card's metadata that a commit would fail on."""
        errors, warnings = card_problems(json.loads(self._body())["content"])
        found = {name: [{"message": one} for one in all] for name, all in (("errors", errors), ("warnings", warnings))}
        return self._answer(400 if errors else 200, found)

    # ---- Uploads

    def preupload(self, kind: str, repo_id: str, revision: str) -> int:
        repository = self._repository(kind, repo_id, write="create_pr" not in self.query)
        files = repository.resolve(revision).files
        modes = []
        for asked in json.loads(self._body())["files"]:
            mode = "lfs" if repository.is_large(asked["path"], asked["size"]) else "regular"
            there = files.get(asked["path"])
            oid = there and (there.sha256 or there.oid)
            modes.append({"path": asked["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return self._answer(200, {"files": modes})

    def lfs_batch(self, kind: str, repo_id: str) -> int:
        repository = self._repository(kind or "models", repo_id, write=False)
        self._account(needed=True)
        base = f"{self.server.endpoint}/lfs/{self.server.signature}/{kind or 'models'}/{repo_id}"
        objects = []
        for asked in json.loads(self._body())["objects"]:
            oid, size = asked["oid"], asked["size"]
            if oid in repository.objects:
                objects.append({"oid": oid, "size": size})
                continue
            header, count = {}, -(-size // self.server.part_size)
            if count > 1:
                header = {str(part): f"{base}/{oid}/{part}" for part in range(1, count + 1)}
                header["chunk_size"] = str(self.server.part_size)
            actions = {"upload": {"href": f"{base}/{oid}/0", "header": header}, "verify": {"href": f"{base}/{oid}"}}
            objects.append({"oid": oid, "size": size, "actions": actions})
        return self._answer(200, {"transfer": "basic", "objects": objects}, {"Content-Type": LFS_MIME})

    def lfs_put(self, signature: str, kind: str, repo_id: str, oid: str, part: str) -> int:
        self._check_signature(signature)
        limit = self.server.cut_upload(int(self.headers.get("Content-Length") or 0))
        digest = hashlib.sha256()
        with self.server.store.incoming(oid, int(part)) as file:
            for block in self._rest:
                file.write(block)
                digest.update(block)
                if limit is not None and file.tell() >= limit:
                    raise ConnectionCut
        if part == "0":
            self._receive(kind, repo_id, oid, [0])
        return self._answer(200, b"", {"ETag": f'"{digest.hexdigest()}"'})

    def lfs_parts(self, signature: str, kind: str, repo_id: str, oid: str, part: str) -> int:
        self._check_signature(signature)
        self._receive(kind, repo_id, oid, [entry["partNumber"] for entry in json.loads(self._body())["parts"]])
        return self._answer(200, {})

    def _receive(self, kind: str, repo_id: str, oid: str, parts: list[int]) -> None:
        if not self.server.store.receive(oid, parts):
            raise HubError(400, "The content does not have the stated SHA-256")
        with self.server.lock:
            self.server.store.find(kind, repo_id).objects.add(oid)
            self.server.store.save()

    def lfs_verify(self, signature: str, kind: str, repo_id: str, oid: str) -> int:
        repository = self._repository(kind, repo_id)
        if oid not in repository.objects or self.server.store.size(oid) != json.loads(self._body())["size"]:
            raise HubError(404, "The object is not there in full")
        return self._answer(200, {})

    def commit(self, kind: str, repo_id: str, revision: str) -> int:
        pull_request = "create_pr" in self.query
        repository = self._repository(kind, repo_id, write=not pull_request)
        account = self._account(needed=True)
        lines = [json.loads(line) for line in self._body().splitlines()]
        cut = self.server.cut_commit()
        if cut == "before":
            raise ConnectionCut
        commit, number = self.server.store.commit(repository, revision, lines, account.name, pull_request)
        if cut == "after":
            raise ConnectionCut
        prefix = f"{self.server.endpoint}/{'' if kind == 'models' else kind + '/'}{repo_id}"
        url = f"{prefix}/discussions/{number}" if pull_request else None
        answer = {"success": True, "commitOid": commit.oid, "commitUrl": f"{prefix}/commit/{commit.oid}"}
        return self._answer(200, answer | {"pullRequestUrl": url, "hookOutput": ""})

    # ---- Downloads

    def resolve(self, kind: str, repo_id: str, revision: str, path: str) -> int:
        commit = self._repository(kind or "models", repo_id).resolve(revision)
        file = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if file is None:
            raise HubError(404, "Entry not found", "EntryNotFound", extra=headers)
        if file.sha256 is None:
            return self._send_file(self.server.store.path(file.oid), headers | {"ETag": f'"{file.oid}"'})
        location = f"http://localhost:{self.server.server_address[1]}/cdn/{self.server.signature}/{file.sha256}"
        headers |= {"X-Linked-Size": str(file.size), "X-Linked-ETag": f'"{file.sha256}"', "Location": location}
        return self._answer(302, b"", headers)

    def cdn(self, signature: str, oid: str) -> int:
        self._check_signature(signature)
        return self._send_file(self.server.store.path(oid), {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})

    def _check_signature(self, signature: str) -> None:
        if signature != self.server.signature:
            raise HubError(403, "Access denied")

    def _send_file(self, path: Path, headers: dict[str, str]) -> int:
        data, status = path.read_bytes(), 200
        headers = {"Content-Type": "application/octet-stream"} | headers
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if asked and any(asked.groups()):
            first, last = asked.groups()
            begin = int(first) if first else max(len(data) - int(last), 0)
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            if begin >= len(data):
                raise HubError(416, "Range not satisfiable", extra={"Content-Range": f"bytes */{len(data)}"})
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
            data, status = data[begin:end], 206
        return self._answer(status, data, headers)


_API = r"/api/(?P<kind>models|datasets|spaces)/(?P<repo_id>[^/]+/[^/]+)"
_PLACE = r"/(?:(?P<kind>datasets|spaces)/)?(?P<repo_id>[^/]+/[^/]+?)"
_LFS = r"/lfs/(?P<signature>\w+)/(?P<kind>\w+)/(?P<repo_id>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})"
ROUTES: list[tuple[tuple[str, ...], str, Callable]] = [
    (("GET",), r"/api/whoami-v2", HubHandler.whoami),
    (("POST",), r"/api/repos/create", HubHandler.create),
    (("POST",), r"/api/validate-yaml", HubHandler.validate),
    (("GET",), _API, HubHandler.info),
    (("GET",), _API + r"/revision/(?P<revision>[^/]+)", HubHandler.info),
    (("GET",), _API + r"/tree/(?P<revision>[^/]+)(?P<path>/.*)?", HubHandler.tree),
    (("POST",), _API + r"/paths-info/(?P<revision>[^/]+)", HubHandler.paths_info),
    (("GET",), _API + r"/refs", HubHandler.refs),
    (("GET",), _API + r"/commits/(?P<revision>[^/]+)", HubHandler.commits),
    (("POST",), _API + r"/branch/(?P<name>[^/]+)", HubHandler.branch),
    (("POST",), _API + r"/preupload/(?P<revision>[^/]+)", HubHandler.preupload),
    (("POST",), _API + r"/commit/(?P<revision>[^/]+)", HubHandler.commit),
    (("POST",), _PLACE + r"\.git/info/lfs/objects/batch", HubHandler.lfs_batch),
    (("PUT",), _LFS + r"/(?P<part>\d+)", HubHandler.lfs_put),
    (("POST",), _LFS + r"/(?P<part>0)", HubHandler.lfs_parts),
    (("POST",), _LFS, HubHandler.lfs_verify),
    (("GET", "HEAD"), _PLACE + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", HubHandler.resolve),
    (("GET", "HEAD"), r"/cdn/(?P<signature>\w+)/(?P<oid>[0-9a-f]{64})", HubHandler.cdn),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 (default) for any that is free")
    parser.add_argument("--folder", type=Path, required=True, help="where repositories are kept")
    parser.add_argument("--account", action="append", metavar="NAME=TOKEN", help="default: user=hf_user; repeatable")
    options = parser.parse_args()
    accounts = {}
    for account in options.account or ["user=hf_user"]:
        name, _, token = account.partition("=")
        accounts[token] = Account(name)
    server = HubServer(options.folder, accounts, options.port)
    print(f"HF_ENDPOINT={server.endpoint}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
