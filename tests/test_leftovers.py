"""A test run that was killed leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import leftovers

ROOT = Path(__file__).parents[1]

CONFTEST = """
from tests.leftovers import start_guard

def pytest_configure(config):
    config.guard = start_guard()
"""

# A fork server, its fork, the child of a shell in a session of its own, and a plain child.
TEST = """
import os
import subprocess
from pathlib import Path

from tests.forking import ForkServer

def test_that_waits(tmp_path):
    with ForkServer(dict(os.environ), tmp_path) as server:
        command = [server.executable, "-c", "print(1, flush=True); import time; time.sleep(600)"]
        fork = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert fork.stdout.readline()
        shell = subprocess.Popen(["sh", "-c", "sleep 600; true"], start_new_session=True)
        with subprocess.Popen(["sleep", "600"]) as child:
            processes = [server.process.pid, fork.pid, shell.pid, child.pid]
            words = [os.environ["TMDE_TEST_RUN"], *map(str, processes)]
            Path("words").write_text(" ".join(words))
            os.rename("words", "started")
"""


@pytest.fixture
def environment(tmp_path):
    """The packages that the fork server imports are empty, because that takes no time."""
    packages = tmp_path / "packages"
    (packages / "tmde" / "cli").mkdir(parents=True)
    (packages / "tmde" / "__init__.py").touch()
    (packages / "tmde" / "cli" / "__init__.py").touch()
    (packages / "sentence_transformers.py").touch()
    search_path = f"{packages}{os.pathsep}{ROOT}"
    return {**os.environ, "PYTHONPATH": search_path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.mark.skipif(sys.platform != "linux", reason="the guard reads /proc")
def test_a_killed_test_run_leaves_no_process_behind(tmp_path, environment):
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_waiting.py").write_text(TEST)
    run = subprocess.Popen([sys.executable, "-m", "pytest"], cwd=tmp_path, env=environment)
    wait_until((tmp_path / "started").exists)
    test_run, *started = (tmp_path / "started").read_text().split()
    # The fork of the server has a number that the test does not know.
    running = leftovers.processes_of(test_run)
    assert len(running) > len(started)
    assert set(map(int, started)) <= set(running)

    run.send_signal(signal.SIGKILL)
    run.wait()

    wait_until(lambda: leftovers.processes_of(test_run) == [])


def wait_until(is_true, seconds=60):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
