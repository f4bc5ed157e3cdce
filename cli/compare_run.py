"""What `tmde compare` does: trains, measures and compares all systems of a comparison."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from modeling_tmde.cli.compare_file import Comparison, Training, load_comparison
from modeling_tmde.cli.compare_folder import ComparisonFolder, ComparisonFolderError
from modeling_tmde.cli.compare_jobs import Job, Watcher, run_jobs
from modeling_tmde.cli.compare_report import TABLE_NAME, write_table
from modeling_tmde.cli.compare_values import ComparisonFileError
from modeling_tmde.eval.figures import LOG_NAME

LOOK_EVERY = 2.0  # seconds

console = Console()
errors = Console(stderr=True)


def run_comparison(
    name_or_path: str,
    output: Path,
    train: Sequence[str] | None,
    dev: Sequence[str] | None,
    eval_data: Path | None,
    jobs: int,
    only: Sequence[str] | None,
    overwrite: bool,
) -> int:
    """Everything, from nothing or from where it stopped; returns the exit code."""
    try:
        from modeling_tmde.training.building import named_sources

        sources = named_sources(list(dev)) if dev else None
        comparison = load_comparison(name_or_path, output, train, sources, eval_data)
        chosen = _chosen(comparison, only, name_or_path)
        folder = ComparisonFolder(output)
        with _lock(output) as lock:
            for note in comparison.budget_notes():
                console.print(escape(note), highlight=False, style="yellow")
            for change in folder.open(comparison, overwrite):
                console.print(f"changed: {escape(change)}", highlight=False, style="yellow")
            return _run(comparison, folder, chosen, jobs, lock)
    except (ValueError, OSError, yaml.YAMLError) as error:
        _print_error(error)
        return 1
    except KeyboardInterrupt:
        _print_error("interrupted; what was finished is kept, so the same command goes on from there")
        return 130


def _print_error(error: Exception | str) -> None:
    errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def _chosen(comparison: Comparison, only: Sequence[str] | None, where: str) -> list[Training]:
    """The trainings of `--only` with the starts that they need, or all."""
    unknown = set(only or ()) - set(comparison.systems)
    if unknown:
        raise ComparisonFileError(
            f"--only: found {', '.join(sorted(unknown))}, expected some of the systems of {where}: "
            f"{', '.join(comparison.systems)}"
        )
    systems = [each for each in comparison.trainings if not each.is_start and (not only or each.system in only)]
    needed = {name for each in systems for name in each.needs}
    return [each for each in comparison.trainings if each.is_start and each.system in needed] + systems


@contextmanager
def _lock(output: Path) -> Iterator[int]:
    """Keeps other comparisons out of the folder, also while processes of one that was killed still work in it.

    SIGTERM becomes a KeyboardInterrupt: what was started is ended with us.
    """

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    if output.exists() and not output.is_dir():
        raise ComparisonFolderError(f"-o {output}: found a file, expected a folder")
    output.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(output / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ComparisonFolderError(
            f"{output}: another `tmde compare`, or a process that one started, is at work in it; wait for it or end it"
        ) from None
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield descriptor
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(descriptor)


def _run(comparison: Comparison, folder: ComparisonFolder, chosen: list[Training], at_once: int, lock: int) -> int:
    jobs = plan_jobs(comparison, folder, chosen)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, cores // at_once)
    finished = 2 * len(chosen) - sum(each.is_start for each in chosen) - len(jobs)
    if finished:
        console.print(f"{finished} of {finished + len(jobs)} trainings and evaluations are finished already")
    failures: list[str] = []
    if jobs:
        with _progress() as progress:
            watcher = _Shown(comparison, folder, progress, len(jobs))
            failures = run_jobs(jobs, at_once, threads, watcher, lock)
    with console.status("testing differences"):
        header, rows = write_table(comparison, folder, failures)
    _print_table(header, rows)
    console.print(f"Everything is in {folder.path}/, the table in {folder.path / TABLE_NAME}", highlight=False)
    for failure in failures:
        _print_error(failure)
    return 1 if failures else 0


def plan_jobs(comparison: Comparison, folder: ComparisonFolder, chosen: Sequence[Training]) -> list[Job]:
    """What is still to be done: starts, then trainings, each with its evaluation as soon as it can be."""
    jobs = []
    tfidf = _Tfidf(comparison, folder)
    for training in chosen:
        if not folder.is_trained(training):
            jobs.append(_training_job(training, folder))
    for training in chosen:
        if not training.is_start and not (folder.is_trained(training) and folder.is_evaluated(training)):
            jobs.append(_evaluation_job(training, comparison, folder, tfidf))
    return jobs


def _training_job(training: Training, folder: ComparisonFolder) -> Job:
    def command() -> list[str]:
        recipe, run = folder.recipe(training), folder.run(training)
        return ["train", str(recipe), "-o", str(run), *folder.begin_run(training)]

    needs = [f"start {name}" for name in training.needs]
    rank = 0 if training.is_start else 2
    return Job(training.job, command, folder.log(training.job), needs, rank=rank, run=folder.run(training))


def _evaluation_job(training: Training, comparison: Comparison, folder: ComparisonFolder, tfidf: _Tfidf) -> Job:
    def command() -> list[str]:
        folder.begin_evaluation(training)
        arguments = ["eval", "run", f"{training.name}={folder.run(training)}"]
        for task in comparison.tasks:
            arguments += ["--tasks", task]
        if comparison.eval_data:
            arguments += ["--data", comparison.eval_data]
        if comparison.max_length is not None:
            arguments += ["--max-length", str(comparison.max_length)]
        for key, value in comparison.task_options.items():
            arguments += ["--set", f"{key}={json.dumps(value)}"]
        arguments += ["--no-figures", "--tfidf" if tfidf.take(job) else "--no-tfidf"]
        arguments.append("--folds" if comparison.folds else "--no-folds")
        arguments += ["--cache-dir", str(folder.path / "cache"), "-o", str(folder.evaluation(training))]
        return arguments

    def done() -> None:
        folder.finish_evaluation(training)

    name = f"eval {training.name}"
    job = Job(name, command, folder.log(name), [training.job], done, rank=1)
    return job


class _Tfidf:
    """TF-IDF is measured once, on the data of the system that is measured first."""

    def __init__(self, comparison: Comparison, folder: ComparisonFolder):
        self.comparison, self.folder = comparison, folder
        self.taken_by: Job | None = None

    def take(self, job: Job) -> bool:
        """Whether this evaluation should do it: no finished one has, and none that runs will."""
        if self.taken_by is not None and self.taken_by.is_running:
            return False
        if any(self.folder.has_tfidf(each) for each in self.comparison.trainings if not each.is_start):
            return False
        self.taken_by = job
        return True


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console,
        transient=True,
    )  # fmt: skip


class _Shown(Watcher):
    """A bar of all jobs, a line for each that runs, and one that stays for each that ended."""

    def __init__(self, comparison: Comparison, folder: ComparisonFolder, progress: Progress, jobs: int):
        self.comparison, self.folder, self.progress = comparison, folder, progress
        self.all = progress.add_task("comparison", total=jobs)
        self.lines: dict[str, TaskID] = {}
        self.looked = 0.0

    def began(self, job: Job) -> None:
        self.lines[job.name] = self.progress.add_task(escape(job.name), total=None)
        if not console.is_terminal:
            console.print(f"{job.name} ...", highlight=False, markup=False)

    def running(self, jobs: Sequence[Job]) -> None:
        if time.monotonic() - self.looked < LOOK_EVERY:
            return
        self.looked = time.monotonic()
        for job in jobs:
            self.progress.update(self.lines[job.name], description=escape(f"{job.name} {_state_of(job)}"))

    def ended(self, job: Job, seconds: float) -> None:
        self._close(job)
        console.print(f"{job.name}: done in {seconds / 60:.1f} minutes", highlight=False, markup=False)
        if job.name.startswith("eval "):
            write_table(self.comparison, self.folder, test=False)  # so far

    def failed(self, job: Job, reason: str) -> None:
        self._close(job)
        console.print(f"{job.name}: {reason}", style="red", highlight=False, markup=False)

    def _close(self, job: Job) -> None:
        self.progress.advance(self.all)
        if job.name in self.lines:
            self.progress.remove_task(self.lines.pop(job.name))


def _state_of(job: Job) -> str:
    """What a training logged last."""
    log = None if job.run is None else job.run / LOG_NAME
    if log is None or not log.is_file():
        return ""
    try:
        entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[-20:]]
    except ValueError:  # a line that is being written
        return ""
    entry = next((entry for entry in reversed(entries) if "loss" in entry), {})
    return f"step {entry['step']:,}, loss {entry['loss']:.3g}" if entry else ""


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table()
    for number, title in enumerate(header):
        table.add_column(escape(title), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
