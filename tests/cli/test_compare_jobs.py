"""The processes of a comparison: their order, failures, logs, and how they are ended."""

import fcntl
import signal
import subprocess
import sys

import pytest

from modeling_tmde.cli import compare_jobs, compare_run
from modeling_tmde.cli.compare_jobs import Job, Watcher, run_jobs
from modeling_tmde.cli.compare_run import run_comparison
from tests.cli.compare_helpers import content, write


@pytest.fixture
def python_jobs(tmp_path, monkeypatch):
    """Jobs whose command is Python code in place of `tmde`."""
    monkeypatch.setattr(compare_jobs, "PROGRAM", [sys.executable, "-c"])
    monkeypatch.setattr(compare_jobs, "PAUSE", 0.01)

    def make(name: str, code: str, *needs: str, **options) -> Job:
        return Job(name, lambda: [code], tmp_path / f"{name}.log", needs, **options)

    return make


class Recorder(Watcher):
    def __init__(self):
        self.events, self.most = [], 0

    def began(self, job):
        self.events.append(("began", job.name))

    def ended(self, job, seconds):
        self.events.append(("ended", job.name))

    def failed(self, job, reason):
        self.events.append(("failed", job.name))

    def running(self, jobs):
        self.most = max(self.most, len(jobs))


def test_jobs_wait_for_what_they_need_and_begin_by_rank(python_jobs, tmp_path):
    watcher, done = Recorder(), []
    append = f"open({str(tmp_path / 'order')!r}, 'a').write('%s ')"
    jobs = [
        python_jobs("c", append % "c", "b"),
        python_jobs("d", append % "d", rank=-1),
        python_jobs("b", append % "b", "a", done=lambda: done.append("b")),
        python_jobs("a", append % "a", "made before"),  # no job of these: it is there
    ]
    assert run_jobs(jobs, 1, 1, watcher) == []
    assert (tmp_path / "order").read_text() == "d a b c " and done == ["b"] and watcher.most == 1


def test_a_failure_costs_what_needs_it_and_nothing_else(python_jobs):
    watcher, done = Recorder(), []
    jobs = [
        python_jobs("a", "print('loading'); raise SystemExit('Error: no such file')"),
        python_jobs("b", "pass", "a", done=lambda: done.append("b")),
        python_jobs("c", "pass", "b"),
        python_jobs("d", "pass", done=lambda: done.append("d")),
        python_jobs("e", "import os; os.kill(os.getpid(), 9)"),
    ]
    failures = run_jobs(jobs, 2, 1, watcher)
    assert done == ["d"]
    told = {failure.partition(": ")[0]: failure for failure in failures}
    assert set(told) == {"a", "b", "c", "e"}
    assert "Error: no such file (exit code 1; log: " in told["a"] and "a.log" in told["a"]
    assert told["b"] == "b: needs 'a', which failed" and told["c"] == "c: needs 'b', which failed"
    assert "signal 9" in told["e"]
    assert ("ended", "d") in watcher.events and ("failed", "c") in watcher.events
    assert watcher.most == 2


def test_a_command_that_cannot_be_made_fails_its_job(python_jobs, tmp_path):
    def command():
        raise OSError("no space left")

    jobs = [Job("a", command, tmp_path / "a.log"), python_jobs("b", "pass", "a"), python_jobs("c", "pass")]
    assert run_jobs(jobs, 1, 1, Watcher()) == ["a: no space left", "b: needs 'a', which failed"]


def test_logs_are_kept_and_the_last_attempt_is_told(python_jobs, tmp_path):
    run_jobs([python_jobs("a", "raise SystemExit('Error: first')")], 1, 1, Watcher())
    (failure,) = run_jobs([python_jobs("a", "import sys; print('second'); sys.exit(3)")], 1, 1, Watcher())
    assert failure.startswith("a: second (exit code 3")
    assert "Error: first" in (tmp_path / "a.log").read_text()


def test_threads_of_a_job(python_jobs, tmp_path):
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['RAYON_NUM_THREADS'])"
    run_jobs([python_jobs("a", code)], 1, 3, Watcher())
    assert (tmp_path / "a.log").read_text().splitlines()[-1] == "3 3"


def test_an_interruption_ends_the_processes(python_jobs, tmp_path):
    """The one that catches it may finish what it is writing; the one that does not is killed after some patience."""
    tidy = tmp_path / "tidy"
    code = f"""
import pathlib, signal, sys, time
def end(*_):
    time.sleep(0.2); pathlib.Path({str(tidy)!r}).touch(); sys.exit()
signal.signal(signal.SIGINT, end); print('ready', flush=True); time.sleep(60)
"""
    jobs = [python_jobs("a", code)]

    class Interrupts(Watcher):
        def running(self, running):
            if running and "ready" in running[0].log.read_text().splitlines():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, 1, 1, Interrupts())
    assert tidy.exists() and jobs[0].process.returncode == 0


def test_a_process_that_does_not_end_is_killed(python_jobs, monkeypatch):
    monkeypatch.setattr(compare_jobs, "PATIENCE", 0.1)
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    jobs = [python_jobs("a", code)]

    class Interrupts(Watcher):
        def running(self, running):
            if running and "ready" in running[0].log.read_text().splitlines():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, 1, 1, Interrupts())
    assert jobs[0].process.returncode == -signal.SIGKILL


def test_a_folder_is_kept_from_others_also_by_a_process_that_was_left(tmp_path, python_jobs, capsys):
    file, out = write(tmp_path / "file.yaml", content()), tmp_path / "out"
    with compare_run._lock(out) as lock:
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(lock,))
    try:
        assert run_comparison(file, out, ["sample"], None, None, 1, None, False) == 1
        assert "another `tmde compare`, or a process that one started, is at work" in capsys.readouterr().err
    finally:
        left.kill()
        left.wait()
    with compare_run._lock(out) as lock, open(out / ".lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
