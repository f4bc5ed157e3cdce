"""A name that is neither a path nor a repository is refused at once, with its reason."""

import socket
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from tests.hub_server import HubServer
from tmde.data.checks import CorpusError
from tmde.data.tables import find_tables
from tmde.embedding.hub_names import (
    HubNameError,
    check_model_path,
    check_repository,
    is_possible_hub_id,
)
from tmde.embedding.loading import local_or_hub
from tmde.hub_cards import describe_sources

QUESTION = """
import sys
from tmde.embedding.hub_names import HubNameError, check_repository
try:
    check_repository(sys.argv[1], sys.argv[2])
except HubNameError as error:
    print(error)
"""


def answer(endpoint: str, home: Path, *arguments: str) -> str:
    """Return what a fresh process prints when it asks the Hub at an address."""
    with HubServer() as hub:
        environment = hub.environment(home)
    environment["HF_ENDPOINT"] = endpoint
    process = subprocess.run(
        [sys.executable, "-c", QUESTION, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stderr == ""
    return process.stdout


def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("name", ["./nope", "../nope", "/nope", "~/nope", "a/b/c", "a b", "", "x/"])
def test_a_name_that_only_a_path_can_have_is_no_hub_id(name):
    assert not is_possible_hub_id(name)


@pytest.mark.parametrize("name", ["bert-base-uncased", "intfloat/multilingual-e5-small", "a.b/c_d"])
def test_a_hub_id_is_possible(name):
    assert is_possible_hub_id(name)


@pytest.mark.parametrize(
    ("name", "is_possible"),
    [("owner/news", True), ("news", False), ("-owner/news", False), ("Übersetzer/x", False)],
)
def test_data_and_cards_agree_on_hub_ids(name, is_possible):
    assert is_possible_hub_id(name, needs_owner=True) == is_possible
    (description,) = describe_sources(name)
    assert description["kind"] == ("hub" if is_possible else "files")
    if is_possible:
        assert find_tables(name) is None
    else:
        with pytest.raises(CorpusError, match="no such file"):
            find_tables(name)


def test_a_mistyped_folder_is_refused_with_its_neighbors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    with pytest.raises(HubNameError, match=r"runs/mien: no such folder.*\(runs holds mine\)"):
        check_model_path("runs/mien")


def test_a_file_is_no_model(tmp_path):
    path = tmp_path / "model.bin"
    path.touch()
    with pytest.raises(HubNameError, match="model.bin: found a file"):
        check_model_path(str(path))


def test_an_unfinished_run_is_named_as_one(tmp_path):
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(FileNotFoundError, match="this run has no model yet.*--resume"):
        local_or_hub(tmp_path)


@pytest.mark.parametrize("repo_type", ["model", "dataset"])
def test_a_repository_that_the_hub_does_not_have(tmp_path, repo_type):
    with HubServer() as hub:
        printed = answer(hub.endpoint, tmp_path, "user/nope", repo_type)
        assert f"the Hub has no {repo_type} of this name" in printed
        questions = [path for _, path, _ in hub.requests if path.endswith("user/nope")]
        assert len(questions) == 1


@pytest.mark.parametrize(
    ("repo_type", "reason"),
    [("model", "it is not in the cache either"), ("dataset", "set HF_HUB_OFFLINE=1")],
)
def test_a_hub_that_is_not_reached(tmp_path, repo_type, reason):
    endpoint = f"http://127.0.0.1:{closed_port()}"
    printed = answer(endpoint, tmp_path, "user/nope", repo_type)
    assert printed.startswith(f"user/nope: no such folder, and {endpoint} is not reached")
    assert reason in printed


def test_a_failure_is_asked_again_and_a_success_is_not(monkeypatch):
    questions = []

    def answer_the_second_time(api, repo_id, **options):
        questions.append(repo_id)
        if len(questions) == 1:
            raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", answer_the_second_time)
    with pytest.raises(HubNameError, match="is not reached"):
        check_repository("user/comes-back")

    check_repository("user/comes-back")
    check_repository("user/comes-back")

    assert len(questions) == 2


def test_a_cached_model_needs_no_hub(tmp_path):
    snapshot = tmp_path / "hub" / "models--user--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = tmp_path / "hub" / "models--user--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    with HubServer() as hub:
        environment = hub.environment(tmp_path)
    environment["HF_ENDPOINT"] = f"http://127.0.0.1:{closed_port()}"
    question = "from tmde.embedding.loading import local_or_hub; print(local_or_hub('user/name'))"
    process = subprocess.run(
        [sys.executable, "-c", question],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == str(snapshot)
