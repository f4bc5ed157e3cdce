"""Run a comparison: what is not done yet is trained and measured, in processes of its own.

The folder of a comparison holds `evaluation.yaml`, the recipe of each training in `recipes/`, the
runs that others begin with in `start/`, those of the systems in `runs/`, their evaluations in
`eval/`, further evaluations in `evaluations/`, what each process printed in `logs/`, `table.md`,
the numbers of the table in `table.json`, and the verdicts on claims in `claims.json`.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

import yaml

from modeling_tmde import TmdeError
from tmde.data.cpus import usable_cpus
from tmde.data.io import locked, write_atomically
from tmde.papers.claims import write_claims
from tmde.papers.comparison import MAIN_EVALUATION
from tmde.papers.table import write_table
from tmde.papers.trainings import Training, load_comparison, trainings_of_claims
from tmde.training.checkpoints import find_checkpoint
from tmde.training.interruption import SIGNALS, RunInterrupted

EvalOptions = dict[str, list[str]]  # The options of `tmde eval run` by evaluation.
NEEDS_START = "needs the start"  # The reason of a system whose start failed begins so.


def run_comparison(
    name_or_path: str,
    folder: Path,
    data: dict[str, Any],
    eval_data: Path | None = None,
    jobs: int = 1,
    only: Sequence[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Train and measure the systems of a comparison, and print and write the table and verdicts.

    Args:
        name_or_path: The name of a comparison of the package, or a YAML file.
        folder: The folder of the comparison. What is finished there is kept.
        data: Keys of the data section that all recipes get, such as `data.train`.
        eval_data: The folder of the files of tasks.
        jobs: The number of processes at a time.
        only: The ids of the claims whose systems are run; None for all systems.
        overwrite: Whether results that a changed file makes obsolete may be deleted.

    Raises:
        TmdeError: The file or the folder cannot be used; or, at the end, a training or an
            evaluation failed.
        RunInterrupted: Ctrl-C or SIGTERM ended it.
    """
    file, trainings = load_comparison(name_or_path, folder, data, eval_data)
    chosen_trainings = trainings
    if only:
        chosen_trainings = trainings_of_claims(file, trainings, only)
    eval_options = file.options_of_evaluations(folder, eval_data)
    with locked(folder):
        open_folder(folder, eval_options, trainings, overwrite)
        runner = Runner(eval_options, jobs)
        runner.run_all(chosen_trainings)
        print(write_table(file, trainings, runner.failures))
        if file.claims:
            print(write_claims(file, trainings, only))
    print(f"Everything is in {folder}/, the table in {folder / 'table.md'}")
    if runner.failures:
        raise TmdeError(causes_of_failures(runner.failures))


def _evaluation_file(folder: Path, evaluation: str) -> Path:
    """Return the file with the options of an evaluation."""
    if evaluation == MAIN_EVALUATION:
        return folder / "evaluation.yaml"
    return folder / "evaluations" / f"{evaluation}.yaml"


def open_folder(
    folder: Path, eval_options: EvalOptions, trainings: list[Training], overwrite: bool
) -> None:
    """Prepare the folder, and delete the results that a changed comparison file makes obsolete.

    Args:
        folder: The folder of the comparison.
        eval_options: The options of `tmde eval run` of each evaluation.
        trainings: All trainings.
        overwrite: Whether results may be deleted.

    Raises:
        TmdeError: The folder holds a different comparison, and `overwrite` is not set.
    """
    text_of_file = {training.recipe_path: training.recipe.to_yaml() for training in trainings}
    changed_names = _changed_names(text_of_file)
    changed_evaluations = set()
    for evaluation, options in eval_options.items():
        path = _evaluation_file(folder, evaluation)
        options_text = {path: yaml.safe_dump(options)}
        if _changed_names(options_text):
            changed_evaluations.add(evaluation)
        text_of_file |= options_text
    for training in trainings:
        if training.needed_starts & changed_names:
            changed_names.add(training.name)
    changes = sorted(changed_names | {f"evaluation {name}" for name in changed_evaluations})
    if changes and not overwrite:
        raise TmdeError(
            f"{folder} holds a different comparison; choose another folder, or give --overwrite to "
            f"redo what has changed and keep the rest. Changed: {', '.join(changes)}"
        )
    _delete_obsolete(trainings, changed_names, changed_evaluations)
    for path, text in text_of_file.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def _delete_obsolete(
    trainings: list[Training], changed_names: set[str], changed_evaluations: set[str]
) -> None:
    """Delete the runs of changed trainings, and the evaluations that no longer fit."""
    for training in trainings:
        is_training_changed = training.name in changed_names
        if is_training_changed:
            shutil.rmtree(training.run, ignore_errors=True)
        for evaluation in training.evaluations:
            if is_training_changed or evaluation in changed_evaluations:
                shutil.rmtree(training.evaluation_folder(evaluation), ignore_errors=True)


def _changed_names(text_of_file: dict[Path, str]) -> set[str]:
    """Return the names, without suffixes, of files that exist with other settings."""
    names = set()
    for path, text in text_of_file.items():
        if path.exists() and _settings_of(path.read_text("utf-8")) != _settings_of(text):
            names.add(path.stem)
    return names


def _settings_of(text: str) -> object:
    """Return the content of a YAML file without its description, on which no result depends.

    A file that is no YAML is returned as it is, so that it differs from every other one.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(content, dict):
        content.pop("description", None)
    return content


class Runner:
    """Trains and measures what is not done yet, in processes that end when this one is interrupted.

    Args:
        eval_options: The options of `tmde eval run` of each evaluation.
        jobs: The number of processes at a time; they share the processor's cores.

    Attributes:
        failures: The reason of each failure, by the name of the training.
    """

    def __init__(self, eval_options: EvalOptions, jobs: int = 1) -> None:
        self.failures: dict[str, str] = {}
        self._eval_options = eval_options
        self._jobs = jobs
        self._running: set[subprocess.Popen] = set()
        self._is_interrupted = False

    def run_all(self, trainings: Sequence[Training]) -> None:
        """Train and measure what is not done yet. If one fails, the others go on.

        Args:
            trainings: The trainings, starts first.

        Raises:
            RunInterrupted: Ctrl-C or SIGTERM ended it. Trainings that were running have saved a
                checkpoint.
        """
        needed_starts: set[str] = set()
        for training in trainings:
            needed_starts |= training.needed_starts
        starts = [training for training in trainings if training.name in needed_starts]
        systems = [training for training in trainings if training.system is not None]
        with self.ending_processes(), ThreadPoolExecutor(self._jobs) as pool:
            while starts:
                waiting = {start.name for start in starts}
                ready_starts = [start for start in starts if not start.needed_starts & waiting]
                list(pool.map(self._finish, ready_starts))  # The list waits for the threads.
                starts = [start for start in starts if start not in ready_starts]
            list(pool.map(self._finish, systems))

    def _finish(self, training: Training) -> None:
        """Train and measure one training, or add the reason to `failures` if it fails."""
        try:
            failed_starts = training.needed_starts & self.failures.keys()
            if failed_starts:
                raise RuntimeError(f"{NEEDS_START} {min(failed_starts)}, which failed")
            if training.record is None:
                self._train(training)
            for evaluation in training.evaluations:
                if not training.is_measured(evaluation):
                    self._evaluate(training, evaluation)
        except RuntimeError as error:
            self.failures[training.name] = str(error)

    def _train(self, training: Training) -> None:
        """Train, or go on with a training that was interrupted."""
        mode = "--overwrite" if find_checkpoint(training.run) is None else "--resume"
        arguments = [str(training.recipe_path), "-o", str(training.run), mode]
        self.run_command("train", training, arguments)

    def _evaluate(self, training: Training, evaluation: str) -> None:
        folder = training.evaluation_folder(evaluation)
        shutil.rmtree(folder, ignore_errors=True)
        model = f"{training.name}={training.run}"
        options = self._eval_options[evaluation]
        self.run_command("eval", training, [model, "-o", str(folder), *options])

    def run_command(self, command: str, training: Training, arguments: list[str]) -> None:
        """Run `tmde COMMAND` with the arguments in a process of its own.

        Args:
            command: `train` or `eval`.
            training: The training that it is about; what the process prints goes into its log.
            arguments: The arguments of the command.

        Raises:
            RuntimeError: It failed; with the last error of its log.
        """
        log = training.folder / "logs" / f"{command}-{training.name}.log"
        log.parent.mkdir(exist_ok=True)
        print(f"{command} {training.name} ... (log: {log})", flush=True)
        with open(log, "a", encoding="utf-8") as output:
            begin = output.tell()
            exit_code = self.call([sys.executable, "-m", "tmde", command, *arguments], output)
        outcome = "failed" if exit_code else "done"
        print(f"{command} {training.name}: {outcome}", flush=True)
        if exit_code:
            error = _last_error(log, begin)
            raise RuntimeError(f"{command}: {error} (exit code {exit_code}; log: {log})")

    def call(self, words: list[str], output: IO[str]) -> int:
        """Run a program to its end, and return its exit code.

        Args:
            words: The program and its arguments.
            output: The file that takes what the process prints.

        Raises:
            RuntimeError: The comparison was interrupted before.
        """
        if self._is_interrupted:
            raise RuntimeError("interrupted")
        threads = str(max(1, usable_cpus() // self._jobs))
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": threads, "RAYON_NUM_THREADS": threads},
        )
        self._running.add(process)
        if self._is_interrupted:  # The signal came while the process began.
            process.terminate()
        try:
            return process.wait()
        finally:
            self._running.discard(process)

    @contextmanager
    def ending_processes(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the processes, too. A training saves a checkpoint first.

        Raises:
            RunInterrupted: A signal came.
        """

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._is_interrupted = True
            for process in list(self._running):
                process.terminate()
            raise RunInterrupted("Interrupted: give the same command again to go on", number)

        earlier_handlers = {}
        for number in SIGNALS:
            earlier_handlers[number] = signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number, handler in earlier_handlers.items():
                signal.signal(number, handler)


def _last_error(log: Path, begin: int) -> str:
    """Return the last line of a log that names an error.

    Args:
        log: The log, which begins with what earlier attempts printed.
        begin: The byte at which the last attempt begins.
    """
    printed = log.read_bytes()[begin:].decode("utf-8", errors="replace")
    for line in reversed(printed.splitlines()):
        if "Error" in line:
            return line
    return "it ended without an error message"


def causes_of_failures(failures: dict[str, str]) -> str:
    """Return the failures as one line, without those that a failed start brought about."""
    causes = []
    for name, reason in failures.items():
        if not reason.startswith(NEEDS_START):
            causes.append(f"{name}: {reason}")
    return "; ".join(causes)
