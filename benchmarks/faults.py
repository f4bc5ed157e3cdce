"""A campaign of faults against `tmde`: kills, full disks, a lost process, a second writer.

    python benchmarks/faults.py --json benchmarks/results/faults.json     # a quarter of an hour
    python benchmarks/faults.py --kills 2 --full 1 --others 1             # a minute, as CI does

Every command runs in a fork of this process, on generated text and tiny models. Faults come at
random moments that follow from --seed. After a fault, no file that has its final name may be
damaged; the command that the documentation names for an interruption must then end as one that
nothing disturbed: the same weights, vectors, documents and files on the Hub. The small and the
read-only file system are mounted (`tmpfs`), which only root may do, on Linux; where mounting fails,
these faults are left out.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[1]
RECIPE = str(ROOT / "benchmarks" / "tiny.yaml")
BAG_OPTIONS = (
    "languages=[de,en] pivot_languages=[en] data.dev_rows=12 vocab_size=400 d_model=32 max_steps=4 "
    "max_minutes=null"
)
JsonOption = Annotated[Path | None, typer.Option("--json", help="File to write.")]
LIMIT = 120  # seconds of one command
CRASHED = 70  # the exit code of a fork that ends with a traceback
DISK_MARGIN = 2**14  # bytes of folders and of files that are written beside the final ones


# ---- Commands in forks


@dataclass
class Run:
    """A command in a fork.

    Attributes:
        pid: The number of its process.
        log: What it writes to stdout and stderr.
        code: Its exit code; None while it runs.
        memory: Its memory at the peak, in GiB.
    """

    pid: int
    log: Path
    code: int | None = None
    memory: float = 0.0

    def wait(self, limit: float = LIMIT) -> int:
        """Return the exit code; that of a killed process is negative.

        Raises:
            AssertionError: It did not end in time.
        """
        end = time.monotonic() + limit
        while self.code is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                self.memory = usage.ru_maxrss / 2**20
            elif time.monotonic() > end:
                self.kill()
                raise AssertionError(f"it did not end in {limit:.0f} s\n{self.text[-2000:]}")
            else:
                time.sleep(0.005)
        return self.code

    def kill(self) -> bool:
        """Kill it; return whether it still ran."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code == -signal.SIGKILL

    @property
    def text(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")


def tmde(words: list[str]) -> None:
    """Call the command in this process."""
    from tmde.cli.main import app

    app(words, prog_name="tmde")


def start(function: Callable[[], Any], log: Path, **environment: str) -> Run:
    """Run a function in a fork of this process, which has imported the package and done nothing.

    Args:
        function: The function to run.
        log: The file that gets stdout and stderr.
        environment: Environment variables of the fork.
    """
    pid = os.fork()
    if pid:
        return Run(pid, log)
    code = CRASHED
    try:
        with open(log, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.environ.update(environment)
        tempfile.tempdir = environment.get("TMPDIR")
        function()
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def read_jsonl(path: Path) -> list[Any]:
    """Return the value of every line of a file."""
    return list(map(json.loads, path.read_text().splitlines()))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write texts, one a line."""
    text = "\n".join(lines)
    path.write_text(f"{text}\n")


def run_to_end(words: str, log: Path) -> None:
    """Run a command in a fork, and wait until it has ended well."""
    run = start(partial(tmde, words.split()), log)
    assert run.wait() == 0, run.text


def one_sentence(run: Run) -> str:
    """Return the sentence with which the command refused.

    Raises:
        AssertionError: It ended otherwise: with a traceback, with several sentences, or well.
    """
    text = run.text
    sentences = [line for line in text.splitlines() if line.startswith("Error: ")]
    has_refused = run.code == 1 and len(sentences) == 1 and "Traceback" not in text
    assert has_refused, f"exit {run.code}\n{text[-3000:]}"
    return sentences[0]


# ---- What is disturbed


@dataclass
class Case:
    """A command that writes.

    Attributes:
        name: Its name in the results.
        words: The words of the command in a folder.
        again: The words of the command that goes on after an interruption.
        state: What must be the same as after a run that nothing disturbed: arrays or bytes by name.
        processes: How many processes take part.
        begin: A folder that lies there before.
        expected: The state after a run that nothing disturbed.
        seconds: How long such a run takes.
        size: The bytes that it leaves on the disk.
    """

    name: str
    words: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]]
    state: Callable[[Path], dict[str, Any]]
    processes: int = 1
    begin: Path | None = None
    expected: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    size: int = 0

    @property
    def slug(self) -> str:
        """Its name as a part of the names of folders."""
        return self.name.replace(", ", "-").replace(" ", "-")

    def start(self, folder: Path, words: Callable[[Path], list[str]]) -> list[Run]:
        """Start one process a rank, as a launcher does."""
        port = free_port()
        runs = []
        for rank in range(self.processes):
            environment = {"TMPDIR": str(folder)}
            if self.processes > 1:
                environment |= {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(self.processes),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                }
            log = folder.with_suffix(f".{time.monotonic_ns()}.log")
            runs.append(start(partial(tmde, words(folder)), log, **environment))
        return runs

    def make_folder(self, folder: Path) -> None:
        """Make a folder with what lies there before the command."""
        folder.mkdir(exist_ok=True)
        if self.begin is not None:
            shutil.copytree(self.begin, folder / self.begin.name)

    def run_undisturbed(self, folder: Path) -> None:
        """Run the command to its end, and remember the result, the time and the size."""
        self.make_folder(folder)
        begin = time.monotonic()
        for run in self.start(folder, self.words):
            assert run.wait() == 0, run.text[-3000:]
        self.expected = self.state(folder)
        self.seconds = time.monotonic() - begin
        self.size = DISK_MARGIN
        for path in folder.rglob("*"):
            if path.is_file():
                self.size += path.stat().st_size

    def check(self, folder: Path, interrupted: bool = True) -> None:
        """Go on after an interruption, and compare the end with an undisturbed one.

        Raises:
            AssertionError: It differs, or the command fails.
        """
        import numpy as np

        if interrupted:
            for run in self.start(folder, self.again):
                assert run.wait() == 0, run.text[-3000:]
        state = self.state(folder)
        difference = f"{sorted(state)} instead of {sorted(self.expected)}"
        assert state.keys() == self.expected.keys(), difference
        for name, expected in self.expected.items():
            value = state[name]
            is_float = isinstance(expected, np.ndarray) and expected.dtype.kind == "f"
            if is_float:
                np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6, err_msg=name)
            else:
                assert np.array_equal(value, expected), f"{name} differs"


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def make_cases(inputs: Path, hub: str) -> list[Case]:
    """Return the commands that are disturbed.

    Args:
        inputs: The folder of `make_inputs`.
        hub: The address of the Hub.
    """

    def train(folder: Path) -> list[str]:
        return f"train {RECIPE} --train {inputs}/rows.jsonl -o {folder}/run".split()

    def train_again(folder: Path) -> list[str]:
        has_checkpoint = any(folder.glob("run/checkpoint-*/trainer_state.json"))
        return [*train(folder), "--resume" if has_checkpoint else "--overwrite"]

    def embed(folder: Path) -> list[str]:
        options = "--resume --shard-size 16"
        return f"embed {inputs}/docs.txt -o {folder}/out.npy -m {inputs}/bag {options}".split()

    def index(folder: Path) -> list[str]:
        return f"index {inputs}/docs.jsonl -o {folder}/index -m {inputs}/bag --prune".split()

    def push(folder: Path) -> list[str]:
        return f"push {inputs}/bag user/{folder.name} --license mit --token hf_user".split()

    return [
        Case("train", train, train_again, trained_state),
        Case("train, two ranks", train, train_again, trained_state, processes=2),
        Case("embed", embed, embed, embedded_state),
        Case("index", index, index, indexed_state, begin=inputs / "index"),
        Case("push", push, push, partial(published_state, hub)),
    ]


def trained_state(folder: Path) -> dict[str, Any]:
    """Return weights and counts of a run, whose log must hold every step."""
    from safetensors.numpy import load_file

    steps = {record["step"] for record in read_jsonl(folder / "run/log.jsonl")}
    assert steps.issuperset(range(1, 25)), f"log.jsonl lacks steps: {sorted(steps)}"
    results = json.loads((folder / "run/results.json").read_text())
    state = load_file(folder / "run/model.safetensors")
    for key in ("steps", "best_step", "seen"):
        state[key] = results[key]
    return state


def embedded_state(folder: Path) -> dict[str, Any]:
    """Return the vectors that `tmde embed` wrote."""
    import numpy as np

    return {"vectors": np.load(folder / "out.npy")}


def indexed_state(folder: Path) -> dict[str, Any]:
    """Return documents and vectors of an index.

    It is read in a fork: LanceDB's threads would not survive in those to come.
    """
    import numpy as np

    arrays = folder.with_suffix(".npz")

    def read() -> None:
        from tmde.documents import DocumentIndex

        index = DocumentIndex.open(folder / "index")
        ids = sorted(index)
        texts = [hit.id + hit.text for hit in index.documents(ids)]
        np.savez(arrays, texts=np.array(texts), vectors=index.vectors(ids))

    run = start(read, folder.with_suffix(".read"))
    assert run.wait() == 0, run.text
    return dict(np.load(arrays))


def published_state(hub: str, folder: Path) -> dict[str, Any]:
    """Return the files of the repository on the Hub by name."""

    def get(path: str) -> bytes:
        headers = {"Authorization": "Bearer hf_user"}
        request = urllib.request.Request(f"{hub}/{path}", headers=headers)
        return urllib.request.urlopen(request, timeout=10).read()

    repository = json.loads(get(f"api/models/user/{folder.name}"))
    files = {"README.md": b""}
    for sibling in repository["siblings"]:
        name = sibling["rfilename"]
        data = get(f"user/{folder.name}/resolve/main/{name}")
        files[name] = data.replace(folder.name.encode(), b"NAME")
    return files


def check_whole(case: Case, folder: Path) -> None:
    """Check that no file with its final name is half-written: each must open."""
    import numpy as np
    from safetensors.numpy import load_file

    openers = {
        ".npy": np.load,
        ".json": lambda path: json.loads(path.read_text()),
        ".safetensors": load_file,
    }
    unfinished = re.compile(r"(^|/)[._]|tmp|\.lance")
    for path in folder.rglob("*"):
        is_final = not unfinished.search(str(path.relative_to(folder)))
        if is_final and path.is_file() and path.suffix in openers:
            openers[path.suffix](path)
    if case.name == "index" and (folder / "index/index.json").exists():
        indexed_state(folder)
    if case.name == "push":
        with contextlib.suppress(urllib.error.HTTPError):  # it is not created yet
            files = case.state(folder)
            # A new repository holds two files of the Hub itself.
            is_whole = len(files) == 2 or "model.safetensors" in files
            assert is_whole, f"a part was published: {sorted(files)}"


def check_refusals(runs: list[Run], known: str) -> None:
    """Check that every run that failed did so with one sentence of a known kind.

    Args:
        runs: Runs that have ended.
        known: A regular expression, which finds something in each expected sentence.
    """
    for run in runs:
        if run.code:
            sentence = one_sentence(run)
            assert re.search(known, sentence), sentence


# ---- Faults: each returns how many there were


def killed(case: Case, folder: Path, rng: random.Random) -> int:
    """Send SIGKILL at random moments, up to five in the life of one folder."""
    case.make_folder(folder)
    kills = 0
    words = case.words
    for _ in range(rng.randint(1, 5)):
        runs = case.start(folder, words)
        time.sleep(rng.uniform(0.02, 1) * case.seconds)
        hits = [run.kill() for run in runs]
        if case.processes == 1 and not hits[0]:
            assert runs[0].code == 0, runs[0].text[-3000:]
        check_whole(case, folder)
        if not any(hits):
            for run in runs:
                assert run.code == 0, run.text[-3000:]
            break
        kills += 1
        words = case.again
    case.check(folder, any(hits))
    return kills


def disk_full(case: Case, folder: Path, rng: random.Random) -> int:
    """Fill the disk at a random moment; once there is room, the command goes on."""
    with mounted(folder, 6 * case.size + 2**20):
        case.make_folder(folder)
        ballast = folder / "ballast"
        room = rng.randint(4096, case.size)
        ballast_size = shutil.disk_usage(folder).free - room
        ballast.write_bytes(bytes(ballast_size))
        runs = case.start(folder, case.words)
        codes = [run.wait() for run in runs]
        check_refusals(runs, "No space left|full disk|another process of this run")
        check_whole(case, folder)
        ballast.unlink()
        case.check(folder, any(codes))
    return int(any(codes))


def disk_read_only(case: Case, folder: Path, rng: random.Random) -> int:
    """Make the disk read-only: the command refuses with one sentence."""
    with mounted(folder, 6 * case.size + 2**20):
        case.make_folder(folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        first_run = case.start(folder, case.words)[0]
        first_run.wait()
        assert re.search("Read-only|not writable", one_sentence(first_run)), first_run.text
    return 1


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """Mount a file system of its own at the folder, of so many bytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    """Return whether this process may mount file systems."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError), mounted(folder, 2**20):
        return True
    return False


def one_rank_dies(case: Case, folder: Path, rng: random.Random) -> int:
    """Kill one of two processes: the other one ends within a minute with one sentence."""
    case.make_folder(folder)
    runs = case.start(folder, case.words)
    end = time.monotonic() + LIMIT
    # Before the processes have met, only a launcher can tell.
    while not (folder / ".run.lock").exists():
        assert time.monotonic() < end, runs[0].text
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.5) * case.seconds)
    dead = rng.randrange(2)
    survivor = runs[1 - dead]
    was_running = runs[dead].kill()
    if survivor.wait(limit=60):
        assert "another process of this run" in one_sentence(survivor)
    check_whole(case, folder)
    case.check(folder, was_running)
    return int(was_running)


def two_writers(case: Case, folder: Path, rng: random.Random) -> int:
    """Start two processes on one folder: one is refused, nothing is mixed.

    Where both are allowed to end well, the later one has found that all is done.
    """
    case.make_folder(folder)
    runs = []
    for _ in range(2):
        runs += case.start(folder, case.words)
        pause = rng.uniform(0, 0.5) * case.seconds
        time.sleep(rng.choice([0, pause]))
    codes = [run.wait() for run in runs]
    texts = runs[0].text + runs[1].text
    assert 0 in codes, texts
    if case.name not in ("embed", "index", "push"):
        assert codes != [0, 0], texts
    check_refusals(runs, "another process|not empty|exists; give|commit has happened")
    case.check(folder, interrupted=False)
    return 1


# ---- The campaign


def import_commands() -> None:
    """Import what all commands use, which every fork then has; the page of the demo is left out."""
    import tmde.cli

    for module in pkgutil.iter_modules(tmde.cli.__path__, "tmde.cli."):
        if module.name != "tmde.cli.demo_page":
            importlib.import_module(module.name)


def make_inputs(folder: Path) -> None:
    """Write parallel rows, documents as text and JSONL, and an older version of the documents."""
    from tmde.data.sample import sample_parallel

    rows = []
    for translation in sample_parallel(200)["translation"]:
        rows.append(json.dumps({"translation": translation}))
    texts = []
    documents = []
    for number, row in enumerate(rows * 20):
        text = f"{number} {row[21:80]}"
        texts.append(text)
        documents.append(json.dumps({"id": str(number), "text": text}))
    # The old version has every second document: two of three are changed, some have another id.
    old_documents = []
    for number, document in enumerate(documents[::2]):
        if number % 3:
            document = document.replace("a", "e")
        old_documents.append(document.replace('{"id": "1', '{"id": "old 1'))
    write_lines(folder / "rows.jsonl", rows)
    write_lines(folder / "docs.txt", texts)
    write_lines(folder / "docs.jsonl", documents)
    write_lines(folder / "old.jsonl", old_documents)


def prepare(folder: Path) -> None:
    """Import the package, and make inputs, a bag and an index in `inputs/`."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_DISABLE_XET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "400",
        "HF_HOME": f"{folder}/home",  # a cache of its own
    }
    sys.path.insert(0, str(ROOT))
    import_commands()
    inputs = folder / "inputs"
    log = folder / "made.log"
    inputs.mkdir()
    run = start(partial(make_inputs, inputs), log)
    assert run.wait() == 0, run.text
    run_to_end(f"train bag --train {inputs}/rows.jsonl -o {inputs}/bag {BAG_OPTIONS}", log)
    run_to_end(f"index {inputs}/old.jsonl -o {inputs}/index -m {inputs}/bag", log)


@dataclass(frozen=True)
class FaultCounts:
    """How many faults of each kind a command must survive.

    Attributes:
        kills: The kills at a random moment.
        full: The times that the disk is full.
        others: The losses of one process, or the pairs of writers.
    """

    kills: int
    full: int
    others: int

    def of(self, case: Case, is_mountable: bool) -> dict[Callable, int]:
        """Return the faults of a command with their numbers."""
        counts = {killed: self.kills}
        other_fault = one_rank_dies if case.processes > 1 else two_writers
        counts[other_fault] = self.others
        if is_mountable:
            counts[disk_full] = self.full
            counts[disk_read_only] = 1
        return counts


def disturb(
    case: Case, fault: Callable, count: int, base: Path, row: str, seed: int
) -> dict[str, Any]:
    """Disturb a command until there were `count` faults, or one that it did not survive.

    Returns:
        How many there were, what was wrong, and how long it took.
    """
    rng = random.Random(f"{seed} {row}")
    begin = time.monotonic()
    done = 0
    problem = None
    # A fault may miss: the command has ended before it.
    for number in range(10 * count):
        folder = base / f"{case.slug}-{fault.__name__}-{number}"
        try:
            done += fault(case, folder, rng)
        except Exception as error:
            traceback.print_exc()
            problem = str(error)[-3000:] or type(error).__name__
        shutil.rmtree(folder, ignore_errors=True)
        if done >= count or problem:
            break
    if done < count and problem is None:
        problem = f"expected {count} faults"
    seconds = round(time.monotonic() - begin)
    return {"row": row, "faults": done, "wrong": problem, "seconds": seconds}


@contextlib.contextmanager
def hub_server() -> Iterator[str]:
    """Start the tests' Hub; yield its address."""
    command = [sys.executable, str(ROOT / "tests/hub_server.py")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process.stdout.readline().strip().partition("=")[2]
    finally:
        process.kill()


def main(
    kills: int = 50,
    full: int = 20,
    others: int = 10,
    seed: int = 0,
    only: str = "",
    json_file: JsonOption = None,
) -> None:
    """Run the campaign; the exit code is 1 if a command did not survive a fault.

    `--only` is a regular expression for the names of the results.
    """
    counts = FaultCounts(kills, full, others)
    results = []
    with tempfile.TemporaryDirectory() as temporary, hub_server() as hub:
        os.environ |= {"HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0"}
        base = Path(temporary)
        prepare(base)
        is_mountable = can_mount(base / "disk")
        for case in make_cases(base / "inputs", hub):
            # `published_state` replaces the name of the folder, so no file may contain it.
            case.run_undisturbed(base / f"{case.slug}-undisturbed")
            for fault, count in counts.of(case, is_mountable).items():
                row = f"{case.name}: {fault.__name__.replace('_', ' ')}"
                if not count or not re.search(only, row):
                    continue
                result = disturb(case, fault, count, base, row, seed)
                print(result, flush=True)
                results.append(result)
    # It imports torch, which the forks must begin without.
    from common import write_json

    settings = {"kills": kills, "full": full, "others": others, "seed": seed}
    write_json(json_file, "faults", settings, results)
    raise SystemExit(any(result["wrong"] for result in results))


if __name__ == "__main__":
    typer.run(main)
