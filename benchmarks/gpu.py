"""Everything that is measured on a GPU, in under nine minutes on one, unattended.

    python benchmarks/gpu.py                    # writes benchmarks/results/gpu.json, prints tables
    python benchmarks/gpu.py --rehearse         # the same on the CPU with tiny sizes: does it run?

Checks against the CPU, training beside peers at paper size and small, what pays on a GPU alone (packing,
torch.compile), embedding beside sentence-transformers; all on made-up text. Needs this package installed (`pip install
--no-deps --no-build-isolation -e .` where there is no network) and torch, transformers and accelerate; training also
`datasets`, peers `sentence-transformers`. A part that lacks something, fails, or takes too long is reported, and the
next one goes on; parts that the budget has no time for are left out, the least important ones last in the list. The
JSON file is written anew after every part. One GPU is used, the first of CUDA_VISIBLE_DEVICES.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from gpu_tables import report

from modeling_tmde.data.io import write_atomically

DEFAULT_JSON = Path(__file__).parent / "results" / "gpu.json"
STDERR_LINES = 30
STATED = ["T-MDE", "cT-MDE", "T-MDE_P", "T-MDE_F"]
PEERS = ["Marian, Seq2SeqTrainer, by length", "BERT, SentenceTransformerTrainer"]


@dataclass(frozen=True)
class Part:
    """One process. `needs`: seconds below which it is not begun; `limit`: seconds after which it is ended."""

    kind: str
    argument: str
    needs: float
    limit: float

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.argument}"


def training(size: str, systems: list[str]) -> list[Part]:
    return [Part("training", f"{size}: {system}", 20, 75) for system in systems]


PARTS = [
    Part("machine", "here", 10, 90),
    Part("checks", "small", 20, 120),
    Part("data", "made-up", 20, 120),
    *training("paper", [STATED[0], *PEERS, *STATED[1:], "cT-MDE, all languages of a row"]),
    Part("embedding", "fp32", 20, 60),
    Part("embedding", "bf16", 20, 60),
    Part("variations", "paper", 40, 150),
    *training("small", [STATED[0], *PEERS, *STATED[1:]]),
    *training("paper", ["T-MDE, all languages of a row", "T-MDE_P, all languages of a row"]),
    Part("embedding", "modes", 40, 120),
    *training("paper", ["T-MDE's encoder, InfoNCE alone", "Marian, Seq2SeqTrainer"]),
    Part("variations", "small", 40, 120),
]


@dataclass
class Outcome:
    """`measured`, `failed`, `timed out` or `skipped`, why, and the rows that were there by then."""

    status: str
    seconds: float = 0.0
    reason: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Process:
    """A part whose imports are under way, or done: it waits for its turn."""

    part: Part
    popen: subprocess.Popen
    out: Path
    log: Path

    def kill(self) -> None:
        """With all the processes it started, which hold memory of the accelerator or wait for it."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()


def environment(rehearse: bool) -> dict[str, str]:
    """Of the parts: one GPU at most, no questions to the Hub, which an unconnected machine would wait for."""
    changed = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    changed["CUDA_VISIBLE_DEVICES"] = "" if rehearse else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    kept = {key: value for key, value in os.environ.items() if key != "NVIDIA_TF32_OVERRIDE"}
    return kept | changed


def start(part: Part, folder: Path, number: int, rehearse: bool, fail: str) -> Process:
    """Starts the imports of a part."""
    out, log = folder / f"{number}.jsonl", folder / f"{number}.log"
    command = [sys.executable, str(Path(__file__).with_name("gpu_parts.py")), part.kind, part.argument]
    command += ["--folder", str(folder / "data"), "--out", str(out)]
    command += ["--rehearse"] if rehearse else []
    command += ["--fail"] if fail and fail in part.name else []
    with log.open("wb") as stream:
        popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.STDOUT, env=environment(rehearse),
            start_new_session=True,
        )  # fmt: skip
    return Process(part, popen, out, log)


def finish(process: Process, seconds: float) -> Outcome:
    """Gives a part its turn, of so many seconds at most."""
    begin = time.monotonic()
    try:
        process.popen.stdin.write(b"go\n")
        process.popen.stdin.close()
    except BrokenPipeError:  # its imports failed
        pass
    try:
        code = process.popen.wait(timeout=seconds)
        status, reason = ("measured", "") if code == 0 else ("failed", last_lines(process.log))
    except subprocess.TimeoutExpired:
        status, reason = "timed out", f"{last_lines(process.log)}\nafter {seconds:.0f} s"
    finally:
        process.kill()
    return Outcome(status, time.monotonic() - begin, reason, read_rows(process.out))


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-STDERR_LINES:])


def read_rows(out: Path) -> list[dict[str, Any]]:
    """What a part has written; its last line may be cut off."""
    rows = []
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def write(path: Path, settings: dict[str, Any], outcomes: dict[str, Outcome]) -> None:
    machine = next((row for outcome in outcomes.values() for row in outcome.rows if "machine" in row), {})
    content = {
        "benchmark": "gpu",
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.get("machine"),
        "settings": settings,
        "results": {name: vars(outcome) for name, outcome in outcomes.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=2) + "\n")


def stops(part: Part, outcome: Outcome, rehearse: bool) -> str:
    """Why nothing more is worth measuring, if so."""
    if part.kind != "machine" or rehearse or not outcome.rows:
        return ""
    return "" if outcome.rows[0]["device"] == "cuda" else "no CUDA device was found; --rehearse runs on the CPU"


def run_all(
    parts: list[Part], folder: Path, budget: float, rehearse: bool, fail: str, done: dict[str, Outcome], save
) -> None:
    """Runs parts in order, the next one importing meanwhile; `done` gets outcomes, `save()` is called each time."""
    end = time.monotonic() + budget
    waiting: Process | None = None
    why = ""
    try:
        for number, part in enumerate(parts):
            left = end - time.monotonic()
            if why or left < part.needs:
                done[part.name] = Outcome("skipped", reason=why or f"{left:.0f} s left, it needs {part.needs:.0f} s")
                save()
                continue
            mine = waiting if waiting is not None and waiting.part is part else None
            if mine is None and waiting is not None:
                waiting.kill()
            mine, waiting = mine or start(part, folder, number, rehearse, fail), None
            try:
                if number + 1 < len(parts):
                    waiting = start(parts[number + 1], folder, number + 1, rehearse, fail)
                done[part.name] = finish(mine, min(left, part.limit))
            finally:
                mine.kill()
            why = stops(part, done[part.name], rehearse)
            save()
            typer.echo(f"{part.name}: {done[part.name].status}, {done[part.name].seconds:.0f} s", err=True)
    finally:
        if waiting is not None:
            waiting.kill()


def main(
    budget: Annotated[float, typer.Option(min=1, help="Seconds for everything.")] = 520,
    json_path: Annotated[Path, typer.Option("--json", help="File to write after every part.")] = DEFAULT_JSON,
    only: Annotated[str, typer.Option(help="Parts whose name holds this, and what they build on.")] = "",
    rehearse: Annotated[bool, typer.Option("--rehearse", help="On the CPU, with tiny sizes.")] = False,
    fail: Annotated[str, typer.Option(help="Let parts whose name holds this fail, to see the rest go on.")] = "",
) -> None:
    """Measures all parts and prints their tables; the exit code is 0 if every one was measured."""

    def ended(*_):
        raise SystemExit(1)

    signal.signal(signal.SIGTERM, ended)
    parts = [part for part in PARTS if only in part.name or part.kind in ("machine", "data")]
    settings = {"budget": budget, "rehearse": rehearse, "only": only, "fail": fail}
    outcomes: dict[str, Outcome] = {}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        (folder / "data").mkdir()
        try:
            run_all(parts, folder, budget, rehearse, fail, outcomes, lambda: write(json_path, settings, outcomes))
        finally:
            typer.echo(f"\n{time.monotonic() - begin:.0f} s; {json_path}\n")
            typer.echo(report({name: vars(outcome) for name, outcome in outcomes.items()}))
    if len(outcomes) < len(parts) or any(outcome.status != "measured" for outcome in outcomes.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
