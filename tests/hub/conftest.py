"""One Hub for all tests, a process whose forks are its clients, and a small model to push."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import save, tiny_model
from tests.forking import ForkServer
from tests.hub_server import Account, HubServer

ACCOUNTS = {
    "hf_user": Account("user"),
    "hf_reader": Account("user", writes=False),
    "hf_eve": Account("eve"),
}

# Code before that of a test: `report` sends a value back; `tmde` runs the command and returns exit
# code, stdout and stderr. There is no waiting between attempts.
PRELUDE = """
import json, os, sys, time
time.sleep = lambda seconds: None
output, arguments = sys.argv[1], sys.argv[2:]
def report(value):
    with open(output, "w") as file:
        json.dump(value, file)
def tmde(*words):
    from typer.testing import CliRunner
    from tmde.cli.main import app
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [result.exit_code, result.stdout, " ".join(result.stderr.split())]
"""

# Code that hides the package, as on a machine where it is not installed.
WITHOUT_PACKAGE = """
import sys
sys.modules["modeling_tmde"] = None
sys.modules["tmde"] = None
"""


@pytest.fixture(scope="session")
def hub_and_server(tmp_path_factory) -> Iterator[tuple[HubServer, ForkServer]]:
    folder = tmp_path_factory.mktemp("hub")
    with HubServer(ACCOUNTS) as hub, ForkServer(hub.environment(folder / "home"), folder) as server:
        yield hub, server


@pytest.fixture
def hub(hub_and_server) -> HubServer:
    """The Hub of the session, empty."""
    hub, _ = hub_and_server
    hub.cut_upload = False
    hub.cut_commit = False
    hub.repositories.clear()
    hub.objects.clear()
    hub.requests.clear()
    return hub


@pytest.fixture
def client(hub: HubServer, hub_and_server, tmp_path: Path) -> Callable[..., Any]:
    """A function that runs code as a client of the Hub, and returns what the code reports.

    The code runs in a fork of a process that has imported the package, or, with `package=False`, in
    a process that lacks the package.
    """
    _, fork_server = hub_and_server

    def run(code: str, *arguments: Any, package: bool = True) -> Any:
        output = tmp_path / "report.json"
        executable = str(fork_server.executable) if package else sys.executable
        source = PRELUDE + code if package else WITHOUT_PACKAGE + PRELUDE + code
        process = subprocess.run(
            [executable, "-c", source, str(output), *map(str, arguments)],
            cwd=tmp_path,
            env=hub.environment(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr[-6000:]
        return json.loads(output.read_text()) if output.exists() else None

    return run


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, tokenizer) -> Path:
    return save(tmp_path_factory.mktemp("models") / "tiny", tiny_model(seed=3), tokenizer)
