"""Bad input: damaged, hostile and strange files, given to every command that reads them.

    python benchmarks/bad_input.py --json benchmarks/results/bad_input.json    # 300 cases
    python benchmarks/bad_input.py --cases 40 --seed 3

A case is a small valid file, a way to spoil it and a command that reads it; all follow from the
seed. The command must end well, or with one sentence that names the file (or its folder); within a
minute; in at most 1.5 GiB more memory than it takes by itself; and the result of an earlier run
must still be there if it fails. Every text of a file that is read to the end must have its row in
the result.
"""

import gzip
import json
import os
import random
import resource
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer
from faults import (
    RECIPE,
    JsonOption,
    Run,
    one_sentence,
    prepare,
    read_jsonl,
    run_to_end,
    start,
    tmde,
    write_lines,
)

MEMORY = 1.5  # GiB more than the command takes on a valid file
TIME = 60  # seconds of a command
LONGEST_SENTENCE = 2000  # characters of an error
# Files of an earlier run, which a command that fails must leave alone.
EARLIER_RESULTS = ("out.npy", "out.parquet", "mined.tsv", "pairs.tsv")
# Values that stand in the place of one of JSON.
VALUES = [
    None,
    True,
    -1,
    0.5,
    1e308,
    10**400,
    2**63,
    "",
    "\0",
    "\ud800",
    "../../etc/passwd",
    "x" * 10**6,
    [],
    {},
    {"a": {"b": 1}},
    ["a", 1],
    [[[]]],
    float("nan"),
    "-1",
    "null",
    "/",
    "é" * 3000,
]


def _letters_of_scripts() -> list[str]:
    """Return eight letters of each of a hundred blocks of Unicode."""
    scripts = []
    for first in range(0x0100, 0x3100, 0x70):
        letters = [chr(code) for code in range(first, first + 8)]
        scripts.append("".join(letters))
    return scripts


SCRIPTS = _letters_of_scripts()
STRANGE_TEXTS = [
    "x" * 10**6,
    "\0\0",
    "\r\r\n\n\r",
    "\u2028\u0085\x0b",
    "\t" * 50,
    "e\u0301" * 5000,
    "\ufeff",
    "</s><mask>",
    " ".join(SCRIPTS),
    *SCRIPTS[::9],
]
# Neither is valid UTF-8: a surrogate, and the byte order mark of UTF-16.
NOT_UTF8 = [b"\xed\xa0\x80", b"\xff\xfe"]
STRANGE_LINES = [*map(str.encode, STRANGE_TEXTS), *NOT_UTF8]
# Each line has the file that is spoiled, what it is, and the command that reads it.
COMMANDS = Path(__file__).with_suffix(".txt").read_text().splitlines()


# ---- Ways to spoil bytes, and what lies in them


def truncated(data: bytes, rng: random.Random) -> bytes:
    """Cut the end off."""
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    """Flip some bits."""
    spoiled = bytearray(data)
    for _ in range(rng.choice([1, 3, 30])):
        place = rng.randrange(len(spoiled))
        spoiled[place] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


def random_bytes(data: bytes, rng: random.Random) -> bytes:
    """Replace everything by random bytes."""
    return rng.randbytes(rng.choice([1, 10, 1000, 10**6]))


def empty(data: bytes, rng: random.Random) -> bytes:
    """Leave nothing."""
    return b""


def doubled(data: bytes, rng: random.Random) -> bytes:
    """Write everything twice."""
    return data + data


def overwritten(data: bytes, rng: random.Random) -> bytes:
    """Fill a block in the middle with zeros, as after a crash of the machine."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice([1, 16, 512]))
    return data[:begin] + bytes(end - begin) + data[end:]


def huge_claim(data: bytes, rng: random.Random) -> bytes:
    """Let the header or the footer claim a size of 10 GB."""
    size = struct.pack("<Q", 10 * 2**30)
    shape = b'"shape":['
    larger_header = size + data[8:]
    larger_footer = data[:-8] + size[:4] + data[-4:]
    larger_shape = data.replace(shape, shape + b"99999999,", 1)
    return rng.choice([larger_header, larger_footer, larger_shape])


def strange_text(data: bytes, rng: random.Random) -> bytes:
    """Insert lines of unusual characters, and change the ends of lines."""
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 5])):
        place = rng.randrange(len(lines) + 1)
        lines.insert(place, rng.choice(STRANGE_LINES))
    return rng.choice([b"\n", b"\r\n"]).join(lines)


def changed_value(data: bytes, rng: random.Random) -> bytes:
    """Change one value of JSON, or of a line of it, to another type or size, or delete its key."""
    is_one_object = data.lstrip()[:1] == b"{" and data.count(b"\n{") == 0
    lines = [data] if is_one_object else data.split(b"\n")
    number = rng.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except ValueError:
        return data[::-1]
    places = list(places_in(value))
    if not places:
        return data
    # Large files have most values deep inside, so half of the changes are near the top.
    if rng.random() < 0.5:
        places = places[:40]
    container, key = rng.choice(places)
    if isinstance(container, dict) and rng.random() < 0.2:
        del container[key]
    else:
        container[key] = rng.choice(VALUES)
    lines[number] = json.dumps(value).encode()
    return b"\n".join(lines)


def places_in(container: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield every container and key within a value of JSON, from the outside to the inside."""
    if isinstance(container, dict):
        keys = list(container)
    elif isinstance(container, list):
        keys = list(range(len(container)))
    else:
        return
    for key in keys:
        yield container, key
        yield from places_in(container[key])


def deep(data: bytes, rng: random.Random) -> bytes:
    """Put a hundred thousand lists within each other before the rest."""
    return b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n" + data


Way = Callable[[bytes, random.Random], bytes]
EVERY: list[Way] = [truncated, flipped, random_bytes, empty, doubled, overwritten]
WAYS: dict[str, list[Way]] = {
    "binary": [*EVERY, huge_claim],
    "text": [*EVERY, strange_text],
    "json": [*EVERY, strange_text, deep, *[changed_value] * 4],
}


# ---- A case


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        way: How the file was spoiled.
        title: The file and the command.
        problem: What was wrong with the end of the command; None if nothing was.
    """

    way: str
    title: str
    problem: str | None


@dataclass(frozen=True)
class SpoiledFile:
    """A copy of an input, one file of which is spoiled.

    Attributes:
        path: The file.
        folder: The folder that a command names: that of a model or an index, else that of the case.
        way: How it was spoiled.
    """

    path: Path
    folder: Path
    way: str


def run_case(number: int, seed: int, inputs: Path, base: Path, memory: float) -> Outcome:
    """Spoil a file, and run the command that reads it.

    Args:
        number: The number of the case, which chooses the command.
        seed: The seed of the campaign.
        inputs: The folder of all valid files.
        base: The folder in which cases have their folders.
        memory: What the commands take on valid files, in GiB.
    """
    rng = random.Random(f"{seed} {number}")
    description, command = COMMANDS[number % len(COMMANDS)].split(": ", 1)
    name, kind = description.split()
    work = base / f"{number}"
    spoiled = spoil(name, kind, inputs, work, rng)
    earlier_results = [work / result for result in EARLIER_RESULTS]
    for path in earlier_results:
        path.write_text("earlier")
    paths = {
        "file": spoiled.path,
        "folder": spoiled.folder,
        "work": work,
        "inputs": inputs,
        "recipe": RECIPE,
    }
    words = [word.format(**paths) for word in command.split()]
    title = f"{spoiled.path.relative_to(work)}: tmde {' '.join(words)}"
    title = title.replace(str(inputs), "IN").replace(str(work), "WORK")
    run = start(partial(tmde, words), base / f"{number}.log")
    try:
        problem = problem_of(run, spoiled, memory)
    except AssertionError as error:
        problem = str(error)
    if run.code:
        lost = [path.name for path in earlier_results if path.read_bytes() != b"earlier"]
        if lost:
            problem = f"lost: {lost}"
    return Outcome(spoiled.way, title, problem)


def spoil(name: str, kind: str, inputs: Path, work: Path, rng: random.Random) -> SpoiledFile:
    """Copy an input into the folder of a case, and spoil it.

    Args:
        name: A file of the inputs, or `FOLDER/FILE`, or `FOLDER/START*` for any that begins so.
        kind: What the file is, a key of `WAYS`.
        inputs: The folder of all valid files.
        work: The folder of the case.
        rng: Chooses the way, and the file if there are several.
    """
    way = rng.choice(WAYS[kind])
    if "/" in name:
        folder = work / Path(name).parts[0]
        shutil.copytree(inputs / folder.name, folder)
        start_of_path = str(work / name).rstrip("*")
        candidates = []
        for path in sorted(work.rglob("*")):
            if path.is_file() and str(path).startswith(start_of_path):
                candidates.append(path)
        file = rng.choice(candidates)
    else:
        work.mkdir()
        folder = work
        file = Path(shutil.copy(inputs / name, work / name))
    file.write_bytes(way(file.read_bytes(), rng))
    return SpoiledFile(file, folder, way.__name__)


def problem_of(run: Run, spoiled: SpoiledFile, memory: float) -> str | None:
    """Wait for a command; return what is wrong with its end.

    Raises:
        AssertionError: It did not end in time, or with anything but one sentence.
    """
    code = run.wait(limit=TIME)
    if run.memory > memory + MEMORY:
        return f"it took {run.memory:.1f} GiB"
    if code == 0:
        return None
    sentence = one_sentence(run)
    # A full path contains the name of its file or folder.
    names = [spoiled.path.stem, spoiled.folder.name]
    is_named = any(name in sentence for name in names)
    if len(sentence) > LONGEST_SENTENCE or not is_named:
        return f"the sentence is long, or does not name the file: {sentence[:500]}"
    return None


# ---- The campaign


def make_more_inputs(folder: Path) -> None:
    """Make what `faults.make_inputs` does not: other formats, a T-MDE, an index and results."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = read_jsonl(folder / "docs.jsonl")[:300]
    rows = read_jsonl(folder / "rows.jsonl")
    pq.write_table(pa.Table.from_pylist(documents), folder / "docs.parquet")
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    write_lines(folder / "docs.jsonl", map(json.dumps, documents))
    pairs = ["de\ten"]
    for row in rows:
        translation = row["translation"]
        pairs.append(f"{translation['de']}\t{translation['en']}")
    write_lines(folder / "rows.tsv", pairs)
    texts = [document["text"] for document in documents]
    write_lines(folder / "docs.txt", texts)
    write_lines(folder / "few.txt", texts[:20])
    compressed = gzip.compress((folder / "docs.txt").read_bytes())
    (folder / "docs.txt.gz").write_bytes(compressed)

    log = folder / "made.log"
    task = f"sentence_retrieval={folder}/rows.jsonl"
    train = f"train {RECIPE} --train {folder}/rows.jsonl -o {folder}/run"
    run_to_end(f"{train} keep_checkpoints=true", log)
    run_to_end(f"index {folder}/docs.jsonl -o {folder}/index -m {folder}/bag", log)
    run_to_end(f"eval run {folder}/bag --tasks {task} -o {folder}/results", log)
    (folder / "small").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(folder / "run" / name, folder / "small" / name)


def main(cases: int = 300, seed: int = 0, only: str = "", json_file: JsonOption = None) -> None:
    """Run the cases, or those of `--only` (numbers, comma-separated); exit with the failures."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    numbers = list(range(cases))
    if only:
        numbers = list(map(int, only.split(",")))
    ways: Counter[str] = Counter()
    ended_well = 0
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        prepare(base)
        make_more_inputs(base / "inputs")
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        for number in numbers:
            outcome = run_case(number, seed, base / "inputs", base, memory)
            output = (base / f"{number}.log").read_text(errors="replace")
            ways[outcome.way] += 1
            if "Error: " not in output:
                ended_well += 1
            if outcome.problem:
                failed.append(f"{number}: {outcome.title}")
            if outcome.problem or only:
                print(f"{'-' * 40}\n{number}: {outcome.way}: {outcome.title}")
                print(outcome.problem or output[-1000:], flush=True)
            shutil.rmtree(base / str(number))
    results = {
        "cases": sum(ways.values()),
        "ended well": ended_well,
        "failed": failed,
        "ways": ways,
    }
    print(results)
    # It imports torch, which the forks must begin without.
    from common import write_json

    write_json(json_file, "bad_input", {"seed": seed}, results)
    raise SystemExit(len(failed))


if __name__ == "__main__":
    typer.run(main)
