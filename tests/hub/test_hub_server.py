"""The local Hub itself, asked by huggingface_hub: other tests believe what it says."""

import pytest

from tests.hub.clients import run_client

pytestmark = pytest.mark.slow


def test_huggingface_hub_finds_what_it_put_there(hub, tmp_path):
    hub.part_size = 1000  # files above are uploaded in parts
    code = """
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, HfFileSystem
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
api, found = HfApi(), {}
found["name"] = api.whoami()["name"]
api.create_repo("user/a")
first = api.model_info("user/a").sha
data = bytes(range(256)) * 40
add = [CommitOperationAdd("x/weights.bin", data), CommitOperationAdd("x/y/small.txt", b"text"),
       CommitOperationAdd("README.md", b"---\\nlicense: mit\\n---\\nbody")]
commit = api.create_commit("user/a", add, commit_message="Add", parent_commit=first)
found["content"] = open(api.hf_hub_download("user/a", "x/weights.bin"), "rb").read() == data
found["text"] = open(api.hf_hub_download("user/a", "x/y/small.txt")).read()
system = HfFileSystem()
with system.open("user/a/x/weights.bin", block_size=100) as file:
    file.seek(5000)
    found["range"] = list(file.read(3))
found["listed"] = sorted(path.removeprefix("user/a/") for path in system.find("user/a"))
found["folder"] = sorted(entry.path for entry in api.list_repo_tree("user/a", "x"))
[info] = api.get_paths_info("user/a", ["x/weights.bin"])
found["size"] = [info.size, info.lfs.size]
found["license"] = api.model_info("user/a").card_data.license
found["old"] = [file.rfilename for file in api.model_info("user/a", revision=first).siblings]
api.create_commit("user/a", [CommitOperationDelete("x/y/small.txt")], commit_message="Delete")
found["titles"] = [commit.title for commit in api.list_repo_commits("user/a")]
errors = {
    "stale": lambda: api.create_commit("user/a", add[1:2], commit_message="m", parent_commit=first),
    "exists": lambda: api.create_repo("user/a"),
    "missing": lambda: api.model_info("user/none"),
    "entry": lambda: api.hf_hub_download("user/a", "none.txt"),
    "revision": lambda: api.hf_hub_download("user/a", "README.md", revision="v9"),
    "card": lambda: api.upload_file(path_or_fileobj=b"---\\nlanguage: [german]\\n---", path_in_repo="README.md",
                                    repo_id="user/a"),
    "token": lambda: HfApi(token="hf_wrong").model_info("user/a"),
}
add[1]._is_committed = False
for name, ask in errors.items():
    try:
        ask()
        found[name] = None
    except (HfHubHTTPError, ValueError, EntryNotFoundError) as error:
        response = getattr(error, "response", None)
        found[name] = [type(error).__name__, response.status_code if response is not None else None]
report(found)
"""
    found = run_client(hub, tmp_path / "client", code)
    paths = [".gitattributes", "README.md", "x/weights.bin", "x/y/small.txt"]
    assert found == {
        "name": "user",
        "content": True,
        "text": "text",
        "range": [5000 % 256, 5001 % 256, 5002 % 256],
        "listed": paths,
        "folder": ["x/weights.bin", "x/y"],
        "size": [10240, 10240],
        "license": "mit",
        "old": [".gitattributes"],
        "titles": ["Delete", "Add", "initial commit"],
        "stale": ["HfHubHTTPError", 412],
        "exists": ["HfHubHTTPError", 409],
        "missing": ["RepositoryNotFoundError", 404],
        "entry": ["RemoteEntryNotFoundError", 404],
        "revision": ["RevisionNotFoundError", 404],
        "card": ["ValueError", None],
        "token": ["HfHubHTTPError", 401],
    }
    puts = [path for method, path, _ in hub.requests if method == "PUT"]
    assert len(puts) == 11 and {path.rpartition("/")[2] for path in puts} == {str(part) for part in range(1, 12)}


def test_the_folder_outlives_the_server(hub, tmp_path):
    from tests.hub_server import HubServer

    hub.store.create("datasets", "user/a", private=True)
    with HubServer(tmp_path / "hub") as again:
        repository = again.store.find("datasets", "user/a")
        assert repository.private and repository.history()[0].title == "initial commit"
        assert again.store.read(repository.resolve("main").files[".gitattributes"]).startswith(b"*.arrow filter=lfs")
