"""One Hub for all tests, clients in processes of their own, and a small model to push."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import tiny_model
from tests.hub_server import Account, HubServer

ACCOUNTS = {
    "hf_user": Account("user", ("lab",)),
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
    import datasets, transformers  # their log handlers keep the stderr that they find
    from typer.testing import CliRunner
    from modeling_tmde.cli.main import app
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [result.exit_code, result.stdout, " ".join(result.stderr.split())]
"""
WITHOUT_PACKAGE = "import sys\nsys.modules['modeling_tmde'] = None\n"


@pytest.fixture(scope="session")
def hub_of_the_session() -> Iterator[HubServer]:
    with HubServer(ACCOUNTS) as server:
        yield server


@pytest.fixture
def hub(hub_of_the_session: HubServer) -> HubServer:
    """The Hub of the session, empty."""
    hub_of_the_session.cut_upload = hub_of_the_session.cut_commit = False
    for held in (hub_of_the_session.repositories, hub_of_the_session.objects, hub_of_the_session.requests):
        held.clear()
    return hub_of_the_session


@pytest.fixture
def client(hub: HubServer, tmp_path: Path) -> Callable[..., Any]:
    """`client(code, *arguments)` runs code in a fresh process and returns what it reports."""

    def run(code: str, *arguments: Any, token: str | None = "hf_user", package: bool = True) -> Any:
        output = tmp_path / "report.json"
        environment = hub.environment(tmp_path / "home", token) | {"OMP_NUM_THREADS": "1"}
        source = ("" if package else WITHOUT_PACKAGE) + PRELUDE + code
        command = [sys.executable, "-c", source, str(output), *map(str, arguments)]
        process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert process.returncode == 0, process.stderr[-6000:]
        return json.loads(output.read_text()) if output.exists() else None

    return run


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model(seed=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
