"""`end_process`: a process that was one of several ends at once, with its code and all that it wrote."""

import os
import socket
import subprocess
import sys

import pytest

from modeling_tmde.cli import main as main_module
from modeling_tmde.cli import processes

# Half a line each, which nothing but a flush brings out of a pipe; what ends an interpreter politely runs `atexit`.
WORKER = """
import atexit, sys
from modeling_tmde.cli.processes import end_process, joined_processes
atexit.register(lambda: print("the interpreter's end"))
with joined_processes() as found:
    everything = found.gather({"rank": found.rank, "text": "x" * 100_000})
print(f"process {found.rank} of {found.count}: {[len(item['text']) for item in everything]}", end="")
print(f"problem {found.rank}", end="", file=sys.stderr)
end_process(int(sys.argv[1]) + found.rank)
print("still there")
"""
# The same through the entry point, from a command that ends as typer's do.
COMMAND = """
import sys
from modeling_tmde.cli import main
from modeling_tmde.cli.processes import joined_processes

def app():
    with joined_processes() as found:
        ranks = found.gather(found.rank)
    print(ranks, end="")
    raise SystemExit(CODE)

main.app = app
main.main()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_two(code: str, *arguments: str) -> list[tuple[int, str, str]]:
    """The code, output and errors of two processes started as a launcher starts them."""
    settings = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "PYTHONUNBUFFERED": ""}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **settings, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=100) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(running, outputs, strict=True)]


def test_processes_that_were_joined_end_with_their_code_and_output():
    for rank, (code, output, errors) in enumerate(run_two(WORKER, "3")):
        assert code == 3 + rank, errors
        assert output == f"process {rank} of 2: [100000, 100000]"  # neither what follows nor the interpreter's end
        assert errors.endswith(f"problem {rank}")


@pytest.mark.parametrize(("ends", "code"), [pytest.param("0", 0, marks=pytest.mark.slow), ("7", 7)])
def test_the_command_ends_with_the_code_of_its_exit(ends, code):
    found = run_two(COMMAND.replace("CODE", ends))
    assert [(item[0], item[1]) for item in found] == [(code, "[0, 1]")] * 2


def ending(value) -> None:
    raise SystemExit(value)


def test_a_process_alone_ends_as_ever(monkeypatch):
    """Also after it went through `joined_processes` without a launcher."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(processes.os, "_exit", lambda code: pytest.fail(f"ended at once with {code}"))
    with processes.joined_processes() as alone:
        assert alone.count == 1
    processes.end_process(4)
    monkeypatch.setattr(main_module, "app", lambda: ending(4))
    with pytest.raises(SystemExit) as end:
        main_module.main()
    assert end.value.code == 4


@pytest.mark.parametrize(("value", "code"), [(0, 0), (2, 2), (None, 0), ("a text", 1)])
def test_codes_of_an_exit_are_those_of_python(value, code, monkeypatch):
    codes = []
    monkeypatch.setattr(main_module, "end_process", codes.append)
    monkeypatch.setattr(main_module, "app", lambda: ending(value))
    with pytest.raises(SystemExit):
        main_module.main()
    assert codes == [code]
