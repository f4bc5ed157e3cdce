"""Runs Python code and the `tmde` command in forks of one process that has imported the package.

The import takes seconds, a fork milliseconds. A fork has its own arguments, environment, folder and
standard streams; only variables that libraries read on import (HF_HOME, HF_ENDPOINT ...) are those
of the server.

    with ForkServer(environment, folder) as server:
        subprocess.run([server.executable, "embed", ...])    # or [server.executable, "-c", CODE]
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

# The executable: sends its arguments, folder, environment and streams, and waits for the status.
CLIENT = """#!{python} -SI
import json, os, socket, sys
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect({address!r})
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    status = int(connection.recv(16) or 1)
sys.exit(status if status >= 0 else 128 - status)
"""


class ForkServer:
    """A process that has imported the package, and forks for every request.

    Args:
        environment: The environment of the process.
        folder: A folder that takes the executable.

    Attributes:
        executable: `tmde`, in a fork.
        environment: The environment of the process.
    """

    def __init__(self, environment: dict[str, str], folder: Path):
        if sys.platform != "linux":
            pytest.skip("the address of the socket is one that only Linux has")
        self.environment = environment
        folder.mkdir(parents=True, exist_ok=True)
        address = f"\0tmde-{folder}"
        self.executable = folder / "tmde"
        self.executable.write_text(CLIENT.format(python=sys.executable, address=address))
        self.executable.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(listener.fileno())],
                env=environment,
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def import_commands() -> None:
    """Import what all commands use; the page of the demo alone is left out."""
    import sentence_transformers  # noqa: F401

    import tmde.cli

    for module in pkgutil.iter_modules(tmde.cli.__path__, "tmde.cli."):
        if module.name != "tmde.cli.demo_page":
            importlib.import_module(module.name)


def next_request(listener: socket.socket) -> list[str]:
    """Wait for requests, and fork for each.

    Returns:
        The arguments of the request, in a fork that has its folder, environment and streams.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        child = os.fork()
        if child:
            send_status(connection, child, streams)
        connection.close()
        become(json.loads(message), streams)
        return json.loads(message)["arguments"]


def send_status(connection: socket.socket, child: int, streams: list[int]) -> None:
    """Wait for the process of a request, send its exit status, and end."""
    # Otherwise a reader of the command's output would wait for this process too.
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    _, status = os.waitpid(child, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(request: dict, streams: list[int]) -> None:
    """Take the streams, the folder and the environment of a request."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])


def main() -> None:
    import_commands()
    gc.freeze()  # A fork neither collects nor copies what was imported.
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        arguments = next_request(listener)
    if arguments[:1] == ["-c"]:
        _, code, *words = arguments
        sys.argv = ["-c", *words]
        sys.path.insert(0, "")
        exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
        return
    from tmde.cli.main import app

    sys.argv = ["tmde", *arguments]
    app()


if __name__ == "__main__":
    main()
