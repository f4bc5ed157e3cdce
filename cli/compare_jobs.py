"""The processes of a comparison: trainings and evaluations, several at a time, each with its own log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = [sys.executable, "-m", "modeling_tmde.cli.main"]
PATIENCE = 20.0  # seconds in which a process that was interrupted may end by itself
PAUSE = 0.2


@dataclass(eq=False)
class Job:
    """One process.

    Args:
        name: Different for every job.
        command: Called when the job begins: the arguments of `tmde`. What it raises fails the job.
        log: Where the process's output goes, after that of earlier attempts.
        needs: Names of jobs that must have succeeded before.
        done: Called when the process has succeeded.
        rank: Of jobs that could begin, the lowest one does.
        run: Folder of a training.
    """

    name: str
    command: Callable[[], list[str]]
    log: Path
    needs: Sequence[str] = ()
    done: Callable[[], None] = lambda: None
    rank: int = 0
    run: Path | None = None
    process: subprocess.Popen | None = field(default=None, repr=False)
    began: float = 0.0

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Watcher:
    """Is told what happens; prints nothing."""

    def began(self, job: Job) -> None:
        pass

    def ended(self, job: Job, seconds: float) -> None:
        pass

    def failed(self, job: Job, reason: str) -> None:
        pass

    def running(self, jobs: Sequence[Job]) -> None:
        pass


def run_jobs(
    jobs: Sequence[Job], at_once: int, threads: int, watcher: Watcher, keep_open: int | None = None
) -> list[str]:
    """Runs all jobs, `at_once` of them at a time, each with `threads` threads.

    A job that fails costs those that need it, and no others. After Ctrl-C the processes are interrupted, too, and
    waited for, so that each can write what it has.

    Args:
        keep_open: File descriptor that every process inherits: a lock that lasts as long as any of them.

    Returns:
        `name: reason` of each job that failed or could not begin.
    """
    names = {job.name for job in jobs}
    waiting = sorted(jobs, key=lambda job: job.rank)  # stable
    running: list[Job] = []
    succeeded: set[str] = set()
    failed: dict[str, str] = {}
    try:
        while waiting or running:
            for job in list(waiting):
                lost = next((name for name in job.needs if name in failed), None)
                if lost is not None:
                    waiting.remove(job)
                    failed[job.name] = f"needs '{lost}', which failed"
                    watcher.failed(job, failed[job.name])
            ready = [job for job in waiting if all(name in succeeded or name not in names for name in job.needs)]
            for job in ready[: at_once - len(running)]:
                waiting.remove(job)
                try:
                    _begin(job, threads, keep_open)
                except (OSError, ValueError) as error:
                    failed[job.name] = str(error)
                    watcher.failed(job, failed[job.name])
                else:
                    running.append(job)
                    watcher.began(job)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                seconds = time.perf_counter() - job.began
                if job.process.returncode == 0:
                    job.done()
                    succeeded.add(job.name)
                    watcher.ended(job, seconds)
                else:
                    failed[job.name] = _reason(job)
                    watcher.failed(job, failed[job.name])
            watcher.running(running)
            if running:
                time.sleep(PAUSE)
    finally:
        _interrupt(running)
    return [f"{name}: {reason}" for name, reason in failed.items()]


def _begin(job: Job, threads: int, keep_open: int | None) -> None:
    arguments = job.command()
    job.log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, COLUMNS="160", PYTHONUNBUFFERED="1")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        environment[name] = str(threads)
    with open(job.log, "a", encoding="utf-8") as log:
        log.write(f"$ tmde {' '.join(arguments)}\n")
        log.flush()
        job.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches it through us
            pass_fds=() if keep_open is None else (keep_open,),
        )
    job.began = time.perf_counter()


def _interrupt(jobs: Sequence[Job]) -> None:
    """Ctrl-C to each; after `PATIENCE`, or another Ctrl-C, they are killed, with what they started."""
    for job in jobs:
        if job.is_running:
            job.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    try:
        for job in jobs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(max(deadline - time.monotonic(), 0.1))
    finally:
        for job in jobs:
            if job.is_running:
                os.killpg(job.process.pid, signal.SIGKILL)
                job.process.wait()


def _reason(job: Job) -> str:
    """The last error of the log, or its last line."""
    code = job.process.returncode
    lines = [line.strip() for line in job.log.read_text(encoding="utf-8", errors="replace").splitlines()]
    start = max((place for place, line in enumerate(lines) if line.startswith("$ tmde ")), default=0)
    lines = [line.rpartition("\r")[2] for line in lines[start + 1 :] if line]
    told = next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "it printed nothing")
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{told} ({ended}; log: {job.log})"
