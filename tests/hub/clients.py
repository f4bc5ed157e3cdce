"""Processes that talk to a local Hub: HF_ENDPOINT is read when huggingface_hub is imported, so each is a new one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hub_server import HubServer

# Before the client's own code: no waiting between the attempts of huggingface_hub; `report` sends a value back.
PRELUDE = """
import json, sys, time
time.sleep = lambda seconds: None
output, arguments = sys.argv[1], sys.argv[2:]
def report(value):
    with open(output, "w") as file:
        json.dump(value, file)
"""

# Nothing can import the package; remote code is all that there is.
WITHOUT_PACKAGE = """
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
try:
    import modeling_tmde
except ModuleNotFoundError:
    pass
else:
    sys.exit("modeling_tmde is not blocked")
"""

# `tmde` as often as wanted in one process: [exit code, stdout, stderr] of each.
TMDE = """
import datasets, huggingface_hub, transformers  # whose log goes to the stderr that they find, not to one of a command
from typer.testing import CliRunner
from modeling_tmde.cli.main import app
def tmde(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [result.exit_code, result.stdout, result.stderr]
"""


def run_client(
    hub: HubServer,
    home: Path,
    code: str,
    *arguments: Any,
    token: str | None = "hf_user",
    package: bool = True,
    timeout: int = 240,
) -> Any:
    """What the code reports; `home` is the process's cache, `arguments` are its `arguments`.

    Args:
        package: Whether the process can import the package.
    """
    home.mkdir(parents=True, exist_ok=True)
    output = home / "report.json"
    output.unlink(missing_ok=True)
    environment = hub.environment(home, token) | {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    source = PRELUDE + ("" if package else WITHOUT_PACKAGE) + code
    command = [sys.executable, "-c", source, str(output), *map(str, arguments)]
    process = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=timeout)
    assert process.returncode == 0, process.stderr[-6000:]
    return json.loads(output.read_text()) if output.exists() else None
