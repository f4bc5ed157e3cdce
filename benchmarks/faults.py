"""A campaign of faults against `tmde`: kills, full disks, a lost process, a second writer.

    python benchmarks/faults.py --json benchmarks/results/faults.json     # a quarter of an hour on two cores
    python benchmarks/faults.py --kills 2 --full 1 --others 1             # a minute, as CI does

Every command runs in a fork of this process, on generated text and tiny models. Faults come at random moments that
follow from --seed. After a fault, no file that has its final name may be damaged; the command that the documentation
names for an interruption must then end as one that nothing disturbed: the same weights, vectors, documents and files
on the Hub. The small and the read-only file system are mounted (`tmpfs`), which only root may do, on Linux; where
mounting fails, these faults are left out.
"""

import contextlib
import json
import os
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[1]
RECIPE = str(ROOT / "benchmarks" / "tiny.yaml")
BAG = "languages=[de,en] pivot_languages=[en] data.dev_rows=12 vocab_size=400 d_model=32 max_steps=4 max_minutes=null"
JsonOption = Annotated[Path | None, typer.Option("--json", help="File to write.")]
LIMIT = 120  # seconds of one command


# ---- Commands in forks


@dataclass
class Run:
    """A command in a fork. log: what it writes to stdout and stderr; memory: GiB at its peak."""

    pid: int
    log: Path
    code: int | None = None
    memory: float = 0.0

    def wait(self, limit: float = LIMIT) -> int:
        """The exit code; that of a killed process is negative.

        Raises:
            AssertionError: It did not end in time.
        """
        end = time.monotonic() + limit
        while self.code is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.code, self.memory = os.waitstatus_to_exitcode(status), usage.ru_maxrss / 2**20
            elif time.monotonic() > end:
                self.kill()
                raise AssertionError(f"it did not end in {limit:.0f} s\n{self.text[-2000:]}")
            else:
                time.sleep(0.005)
        return self.code

    def kill(self) -> bool:
        """Whether it still ran."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code == -signal.SIGKILL

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")


def tmde(words: list[str]) -> None:
    from tmde.cli.main import app

    app(words, prog_name="tmde")


def start(function: Callable[[], Any], log: Path, **environment: str) -> Run:
    """Runs in a fork of this process, which has imported the package and done nothing."""
    pid = os.fork()
    if pid:
        return Run(pid, log)
    code = 70
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


def finished(words: str, log: Path) -> None:
    run = start(partial(tmde, words.split()), log)
    assert run.wait() == 0, run.text


def one_sentence(run: Run) -> str:
    """The sentence with which the command refused.

    Raises:
        AssertionError: It ended otherwise: with a traceback, with several sentences, or well.
    """
    text = run.text
    lines = [line for line in text.splitlines() if line.startswith("Error: ")]
    assert run.code == 1 and len(lines) == 1 and "Traceback" not in text, (
        f"exit {run.code}\n{text[-3000:]}"
    )
    return lines[0]


# ---- What is disturbed


@dataclass
class Case:
    """A command that writes.

    words: Of the command in a folder.
    again: Of the command that goes on after an interruption.
    state: What must be the same as after a run that nothing disturbed: arrays or bytes by name.
    begin: What lies in the folder before.
    expected, seconds, size: Of such a run: its state, how long it took, and its bytes on the disk.
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

    def start(self, folder: Path, words: Callable[[Path], list[str]]) -> list[Run]:
        """One process a rank, as a launcher starts them."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        runs = []
        for rank in range(self.processes):
            ranks = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.processes),
            } | shared
            log = folder.with_suffix(f".{time.monotonic_ns()}.log")
            run = partial(tmde, words(folder))
            runs.append(
                start(run, log, TMPDIR=str(folder), **(ranks if self.processes > 1 else {}))
            )
        return runs

    def make(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if self.begin is not None:
            shutil.copytree(self.begin, folder / self.begin.name)

    def undisturbed(self, folder: Path) -> None:
        self.make(folder)
        begin = time.monotonic()
        for run in self.start(folder, self.words):
            assert run.wait() == 0, run.text[-3000:]
        self.expected, self.seconds = self.state(folder), time.monotonic() - begin
        self.size = 2**14 + sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def check(self, folder: Path, interrupted: bool = True) -> None:
        """Goes on after an interruption, and compares the end."""
        import numpy as np

        for run in self.start(folder, self.again) if interrupted else ():
            assert run.wait() == 0, run.text[-3000:]
        found = self.state(folder)
        assert found.keys() == self.expected.keys(), (
            f"{sorted(found)} instead of {sorted(self.expected)}"
        )
        for name, value in self.expected.items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)
            else:
                assert np.array_equal(found[name], value), f"{name} differs"


def cases(inputs: Path, hub: str) -> list[Case]:
    def train(folder: Path) -> list[str]:
        return f"train {RECIPE} --train {inputs}/rows.jsonl -o {folder}/run".split()

    def train_again(folder: Path) -> list[str]:
        done = any(folder.glob("run/checkpoint-*/trainer_state.json"))
        return [*train(folder), "--resume" if done else "--overwrite"]

    def embed(folder: Path) -> list[str]:
        return f"embed {inputs}/docs.txt -o {folder}/out.npy -m {inputs}/bag --resume --shard-size 16".split()

    def index(folder: Path) -> list[str]:
        return f"index {inputs}/docs.jsonl -o {folder}/index -m {inputs}/bag --prune".split()

    def push(folder: Path) -> list[str]:
        return f"push {inputs}/bag user/{folder.name} --license mit --token hf_user".split()

    return [
        Case("train", train, train_again, weights),
        Case("train, two ranks", train, train_again, weights, 2),
        Case("embed", embed, embed, embedded),
        Case("index", index, index, indexed, begin=inputs / "index"),
        Case("push", push, push, partial(published, hub)),
    ]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    steps = [
        json.loads(line)["step"] for line in (folder / "run/log.jsonl").read_text().splitlines()
    ]
    assert set(range(1, 25)) <= set(steps), f"log.jsonl lacks steps: {steps}"
    results = json.loads((folder / "run/results.json").read_text())
    return load_file(folder / "run/model.safetensors") | {
        key: results[key] for key in ("steps", "best_step", "seen")
    }


def embedded(folder: Path) -> dict[str, Any]:
    import numpy as np

    return {"vectors": np.load(folder / "out.npy")}


def indexed(folder: Path) -> dict[str, Any]:
    """Read in a fork: LanceDB's threads would not survive in those to come."""
    import numpy as np

    def read() -> None:
        from tmde.documents import DocumentIndex

        index = DocumentIndex.open(folder / "index")
        ids = sorted(index)
        texts = np.array([hit.id + hit.text for hit in index.documents(ids)])
        np.savez(found, texts=texts, vectors=index.vectors(ids))

    found = folder.with_suffix(".npz")
    run = start(read, folder.with_suffix(".read"))
    assert run.wait() == 0, run.text
    return dict(np.load(found))


def published(hub: str, folder: Path) -> dict[str, Any]:
    """Files of the repository on the Hub by name."""

    def get(path: str) -> bytes:
        request = urllib.request.Request(
            f"{hub}/{path}", headers={"Authorization": "Bearer hf_user"}
        )
        return urllib.request.urlopen(request, timeout=10).read()

    names = [
        each["rfilename"] for each in json.loads(get(f"api/models/user/{folder.name}"))["siblings"]
    ]
    files = {name: get(f"user/{folder.name}/resolve/main/{name}") for name in names}
    files["README.md"] = re.sub(
        rb"<!-- tmde:card \w+", b"", files.get("README.md", b"")
    )  # a fingerprint of the name
    return {name: data.replace(folder.name.encode(), b"NAME") for name, data in files.items()}


def check_whole(case: Case, folder: Path) -> None:
    """No file with its final name is half-written: each opens."""
    import numpy as np
    from safetensors.numpy import load_file

    openers = {
        ".npy": np.load,
        ".json": lambda path: json.loads(path.read_text()),
        ".safetensors": load_file,
    }
    for path in folder.rglob("*"):
        inside = str(path.relative_to(folder))
        if (
            path.is_file()
            and not re.search(r"(^|/)\.|tmp|checkpoint-|\.lance", inside)
            and path.suffix in openers
        ):
            openers[path.suffix](path)
    if case.name == "index" and (folder / "index/index.json").exists():
        indexed(folder)
    if case.name == "push":
        with contextlib.suppress(urllib.error.HTTPError):  # not created yet
            found = case.state(folder)
            assert len(found) == 2 or "model.safetensors" in found, (
                f"a part was published: {sorted(found)}"
            )


# ---- Faults: each returns how many there were


def killed(case: Case, folder: Path, rng: random.Random) -> int:
    """SIGKILL at random moments, up to five in the life of one folder."""
    case.make(folder)
    kills, words = 0, case.words
    for _ in range(rng.randint(1, 5)):
        runs = case.start(folder, words)
        time.sleep(rng.uniform(0.02, 1) * case.seconds)
        hit = [run.kill() for run in runs]
        assert case.processes > 1 or hit[0] or runs[0].code == 0, runs[0].text[-3000:]
        check_whole(case, folder)
        if not any(hit):
            break
        kills, words = kills + 1, case.again
    case.check(folder, any(hit))
    return kills


def disk_full(case: Case, folder: Path, rng: random.Random) -> int:
    """The disk is full at a random moment; once there is room, the command goes on."""
    with mounted(folder, 6 * case.size + 2**20):
        case.make(folder)
        free = rng.randint(4096, case.size)
        (folder / "ballast").write_bytes(bytes(shutil.disk_usage(folder).free - free))
        runs = case.start(folder, case.words)
        codes = [run.wait() for run in runs]
        sentences = [one_sentence(run) for run in runs if run.code]
        known = "No space left|full disk|another process of this run"
        assert all(re.search(known, sentence) for sentence in sentences), sentences
        check_whole(case, folder)
        (folder / "ballast").unlink()
        case.check(folder, any(codes))
    return int(any(codes))


def disk_read_only(case: Case, folder: Path, rng: random.Random) -> int:
    with mounted(folder, 6 * case.size + 2**20):
        case.make(folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        (run, *_) = case.start(folder, case.words)
        run.wait()
        assert re.search("Read-only|not writable", one_sentence(run)), run.text
    return 1


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """A file system of its own at the folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def one_rank_dies(case: Case, folder: Path, rng: random.Random) -> int:
    """The other one ends within a minute with one sentence."""
    case.make(folder)
    runs = case.start(folder, case.words)
    end = time.monotonic() + LIMIT
    while not (
        folder / ".run.lock"
    ).exists():  # before the processes have met, only a launcher can tell
        assert time.monotonic() < end, runs[0].text
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.5) * case.seconds)
    dead = rng.randrange(2)
    hit = runs[dead].kill()
    if runs[1 - dead].wait(limit=60):
        assert "another process of this run" in one_sentence(runs[1 - dead])
    check_whole(case, folder)
    case.check(folder, hit)
    return int(hit)


def two_writers(case: Case, folder: Path, rng: random.Random) -> int:
    """Two processes on one folder: one is refused, nothing is mixed. The later one may find all done."""
    case.make(folder)
    runs = []
    for _ in range(2):
        runs += case.start(folder, case.words)
        time.sleep(rng.choice([0, rng.uniform(0, 0.5) * case.seconds]))
    codes = [run.wait() for run in runs]
    assert 0 in codes and (codes != [0, 0] or case.name in ("index", "push")), (
        runs[0].text + runs[1].text
    )
    refusals = [one_sentence(run) for run in runs if run.code]
    known = "another process|not empty|exists; give|commit has happened"
    assert all(re.search(known, refusal) for refusal in refusals), refusals
    case.check(folder, interrupted=False)
    return 1


# ---- The campaign


def make_inputs(folder: Path) -> None:
    from tmde.data.sample import sample_parallel

    rows = [json.dumps({"translation": row}) + "\n" for row in sample_parallel(200)["translation"]]
    docs = [f"{number} {row[21:80]}" for number, row in enumerate(rows * 20)]
    (folder / "rows.jsonl").write_text("".join(rows))
    (folder / "docs.txt").write_text("".join(f"{text}\n" for text in docs))
    lines = [
        json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(docs)
    ]
    (folder / "docs.jsonl").write_text("".join(lines))
    changed = [
        line.replace("a", "e") if number % 3 else line for number, line in enumerate(lines[::2])
    ]
    (folder / "old.jsonl").write_text("".join(changed).replace('{"id": "1', '{"id": "old 1'))


def prepare(folder: Path) -> None:
    """Imports the package, which every fork then has, with a cache of its own."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_DISABLE_XET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "400",
    }
    os.environ["HF_HOME"] = f"{folder}/home"
    sys.path.insert(0, str(ROOT))
    import tmde.cli.main  # noqa: F401

    (folder / "inputs").mkdir()
    made = start(partial(make_inputs, folder / "inputs"), folder / "made.log")
    assert made.wait() == 0, made.text
    finished(
        f"train bag --train {folder}/inputs/rows.jsonl -o {folder}/inputs/bag {BAG}",
        folder / "made.log",
    )
    finished(
        f"index {folder}/inputs/old.jsonl -o {folder}/inputs/index -m {folder}/inputs/bag",
        folder / "made.log",
    )


def main(
    kills: int = 50,
    full: int = 20,
    others: int = 10,
    seed: int = 0,
    only: str = "",
    json_file: JsonOption = None,
) -> None:
    hub_server = [sys.executable, str(ROOT / "tests/hub_server.py")]
    results = []
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        hub = subprocess.Popen(
            hub_server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        stack.callback(hub.kill)
        os.environ |= {
            "HF_ENDPOINT": hub.stdout.readline().strip().partition("=")[2],
            "HF_HUB_OFFLINE": "0",
        }
        base = Path(temporary)
        prepare(base)
        mountable = False
        with (
            contextlib.suppress(OSError, subprocess.CalledProcessError),
            mounted(base / "disk", 2**20),
        ):
            mountable = True
        for case in cases(base / "inputs", os.environ["HF_ENDPOINT"]):
            slug = case.name.replace(", ", "-").replace(" ", "-")
            case.undisturbed(base / slug)
            faults: dict[Callable, int] = {killed: kills}
            faults |= {one_rank_dies: others} if case.processes > 1 else {two_writers: others}
            if mountable:
                faults |= {disk_full: full, disk_read_only: 1}
            for function, count in faults.items():
                row = f"{case.name}: {function.__name__.replace('_', ' ')}"
                rng, done, begin, wrong = random.Random(f"{seed} {row}"), 0, time.monotonic(), None
                for number in range(10 * count if re.search(only, row) else 0):
                    folder = base / f"{slug}-{function.__name__}-{number}"
                    try:
                        done += function(case, folder, rng)
                    except Exception as error:
                        traceback.print_exc()
                        wrong = str(error)[-3000:] or type(error).__name__
                    shutil.rmtree(folder, ignore_errors=True)
                    if done >= count or wrong:
                        break
                if done < count and re.search(only, row):
                    wrong = wrong or f"expected {count} faults"
                found = {
                    "row": row,
                    "faults": done,
                    "wrong": wrong,
                    "seconds": round(time.monotonic() - begin),
                }
                if done or wrong:
                    print(found, flush=True)
                    results.append(found)
    from common import write_json  # which imports torch

    write_json(
        json_file, "faults", {"kills": kills, "full": full, "others": others, "seed": seed}, results
    )
    raise SystemExit(any(each["wrong"] for each in results))


if __name__ == "__main__":
    typer.run(main)
