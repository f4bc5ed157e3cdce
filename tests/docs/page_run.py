"""Runs the blocks of a page as a newcomer would: in order, in one folder, each in a process of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import Block, Page

_TIMEOUT = 600  # seconds of a block, lest a test hang
_TAIL = 60  # lines of output in a failure

# A block stands in its script at the lines that it has in the page, so that bash names the right one; this is line 1.
_BASH = r"""
pip() { [ "$1" = install ]; };
tmde() { case "${1-}" in train|compare) command tmde "$@" APPEND;; *) command tmde "$@";; esac; };
told() {
  local line=$1; if [ -n "${BASH_LINENO[2]-}" ]; then line=${BASH_LINENO[1]}; fi;
  echo "PAGE:$line: ended with status $2" >&2;
};
set -E; trap 'status=$?; told $LINENO $status' ERR
""".replace("\n", " ").strip()


class BlockFailed(AssertionError):
    """Names page and line, and shows the end of what the block printed."""


class PageRun:
    """A page in its folder. Blocks before the one that is asked for run first, each only once.

    Args:
        page: What to run.
        folder: Exists, with the files that the page presupposes.
        environment: Variables in place of those of this process.
    """

    def __init__(self, page: Page, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.page, self.folder = page, folder
        scripts = str(Path(sys.executable).parent)
        self.environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "120", **(environment or {})}
        self.environment["PATH"] = scripts + os.pathsep + self.environment["PATH"]
        self.outputs: dict[int, str] = {}  # by line of the page
        self.failed: Block | None = None

    def run(self, block: Block) -> str:
        """Runs a block, after those before it; returns what it printed, on both streams.

        Raises:
            BlockFailed: It ended with another status than 0, or an earlier block did.
        """
        for other in self.page.blocks[: self.page.blocks.index(block) + 1]:
            if self.failed is not None and block is not self.failed:
                raise BlockFailed(f"{block.place}: not run, because {self.failed.place} failed")
            if other.skip is None and other.line not in self.outputs:
                self.outputs[other.line] = self._run_alone(other)
        return self.outputs[block.line]

    def _run_alone(self, block: Block) -> str:
        script = self.folder.parent / f"{self.folder.name}.block"
        padded = "\n" * (block.line - 1) + block.code + "\n"
        if block.language == "bash":
            append = " ".join(map(shlex.quote, block.append))
            script.write_text(_BASH.replace("APPEND", append).replace("PAGE", block.page) + padded, "utf-8")
            command = ["bash", "-euo", "pipefail", str(script)]
        else:
            script.write_text(padded, "utf-8")
            program = "import sys; exec(compile(open(sys.argv[1], encoding='utf-8').read(), sys.argv[2], 'exec'))"
            command = [sys.executable, "-c", program, str(script), block.page]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=self.environment, text=True, errors="replace", timeout=_TIMEOUT,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            status, output = f"status {done.returncode}", done.stdout
            if done.returncode == 0:
                return output
        except subprocess.TimeoutExpired as error:
            status, output = f"no end after {_TIMEOUT} s", (error.stdout or b"").decode(errors="replace")
        self.failed = block
        tail = "\n".join(output.splitlines()[-_TAIL:])
        raise BlockFailed(f"{block.place}: {status}\n{block.code}\n--- printed:\n{tail}")
