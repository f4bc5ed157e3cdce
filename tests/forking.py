"""Runs Python code and the `tmde` command in forks of one process that has imported the package.

The import takes seconds, a fork milliseconds. A fork has its own arguments, environment, folder and standard streams;
only variables that libraries read on import (HF_HOME, HF_ENDPOINT ...) are those of the server.

    with ForkServer(environment, folder) as server:
        subprocess.run([server.executable, "embed", ...])    # or [server.executable, "-c", CODE]
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

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
    """
    Args:
        environment: Of the process that imports the package.
        folder: Takes the executable.

    Attributes:
        executable: `tmde`, in a fork.
    """

    def __init__(self, environment: dict[str, str], folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.executable, address = folder / "tmde", f"\0tmde-{folder}"
        self.executable.write_text(CLIENT.format(python=sys.executable, address=address))
        self.executable.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen()
            command, number = (
                [sys.executable, "-P", __file__, str(listener.fileno())],
                listener.fileno(),
            )
            self.process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def next_request(listener: socket.socket) -> list[str]:
    """Returns in a fork that has become the requested command; its parent sends the exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if child := os.fork():
            for stream in (
                0,
                1,
                2,
                *streams,
            ):  # or a reader of the command's output would wait for this process
                os.close(stream)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            connection.send(str(status).encode())
            os._exit(0)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        request = json.loads(message)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        return request["arguments"]


if __name__ == "__main__":
    import sentence_transformers  # noqa: F401

    from tmde.cli.main import app

    gc.freeze()  # a fork neither collects nor copies what was imported
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        arguments = next_request(listener)
    if arguments[:1] == ["-c"]:
        sys.argv, sys.path = ["-c", *arguments[2:]], ["", *sys.path]
        exec(compile(arguments[1], "<block>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = ["tmde", *arguments]
        app()
