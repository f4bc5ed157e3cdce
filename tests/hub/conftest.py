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
# `report` sends a value back; `tmde` runs the command: [exit code, stdout, stderr]. No waiting between attempts.
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


@pytest.fixture(scope="session")
def hub_and_server(tmp_path_factory) -> Iterator[tuple[HubServer, ForkServer]]:
    folder = tmp_path_factory.mktemp("hub")
    with HubServer(ACCOUNTS) as hub, ForkServer(hub.environment(folder / "home"), folder) as server:
        yield hub, server


@pytest.fixture
def hub(hub_and_server) -> HubServer:
    """The Hub of the session, empty."""
    hub, _ = hub_and_server
    hub.cut_upload = hub.cut_commit = False
    for held in (hub.repositories, hub.objects, hub.requests):
        held.clear()
    return hub


@pytest.fixture
def client(hub: HubServer, hub_and_server, tmp_path: Path) -> Callable[..., Any]:
    """`client(code, *arguments)` runs code in a fork, or in a process that lacks the package, and returns what it
    reports."""

    def run(code: str, *arguments: Any, package: bool = True) -> Any:
        output = tmp_path / "report.json"
        executable = str(hub_and_server[1].executable) if package else sys.executable
        source = (
            ("" if package else "import sys\nsys.modules['modeling_tmde'] = None\n")
            + PRELUDE
            + code
        )
        command = [executable, "-c", source, str(output), *map(str, arguments)]
        environment = hub.environment(tmp_path / "home")
        process = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr[-6000:]
        return json.loads(output.read_text()) if output.exists() else None

    return run


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, tokenizer) -> Path:
    return save(tmp_path_factory.mktemp("models") / "tiny", tiny_model(seed=3), tokenizer)
