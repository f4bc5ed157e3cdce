"""Bad input: damaged, hostile and strange files, given to every command that reads them.

    python benchmarks/bad_input.py --json benchmarks/results/bad_input.json    # 300 cases, some minutes
    python benchmarks/bad_input.py --cases 40 --seed 3

A case is a small valid file, a way to spoil it and a command that reads it; all follow from the seed. The command must
end well, or with one sentence that names the file (or its folder); within a minute; in at most 1.5 GiB more memory
than it takes by itself; and the result of an earlier run must still be there if it fails. Every text of a file that
is read to the end must have its row in the result.
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
from functools import partial
from pathlib import Path
from typing import Any

import typer
from faults import RECIPE, JsonOption, Run, finished, one_sentence, prepare, start, tmde

MEMORY = 1.5  # GiB more than the command takes on a valid file
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
]
VALUES += [{"a": {"b": 1}}, ["a", 1], [[[]]], float("nan"), "-1", "null", "/", "é" * 3000]
SCRIPTS = [
    "".join(map(chr, range(start, start + 8))) for start in range(0x0100, 0x3100, 0x70)
]  # a hundred blocks
STRANGE = [
    "x" * 10**6,
    "\0\0",
    "\r\r\n\n\r",
    "\u2028\u0085\x0b",
    "\t" * 50,
    "e\u0301" * 5000,
    "\ufeff",
    "</s><mask>",
]
STRANGE = [text.encode() for text in [*STRANGE, " ".join(SCRIPTS), *SCRIPTS[::9]]] + [
    b"\xed\xa0\x80",
    b"\xff\xfe",
]
# Of each line: the file that is spoiled, what it is, and the command that reads it.
COMMANDS = Path(__file__).with_suffix(".txt").read_text().splitlines()


# ---- Spoiling bytes, and what lies in them


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(rng.choice([1, 3, 30])):
        spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


def random_bytes(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([1, 10, 1000, 10**6]))


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def doubled(data: bytes, rng: random.Random) -> bytes:
    return data + data


def overwritten(data: bytes, rng: random.Random) -> bytes:
    """A block in the middle is zeros, as after a crash of the machine."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice([1, 16, 512]))
    return data[:begin] + bytes(end - begin) + data[end:]


def huge_claim(data: bytes, rng: random.Random) -> bytes:
    """The header or the footer says 10 GB."""
    size, shape = struct.pack("<Q", 10 * 2**30), b'"shape":['
    larger = data.replace(shape, shape + b"99999999,", 1)
    return rng.choice([size + data[8:], data[:-8] + size[:4] + data[-4:], larger])


def strange_text(data: bytes, rng: random.Random) -> bytes:
    """Lines of text among what texts may hold."""
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 5])):
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(STRANGE))
    return rng.choice([b"\n", b"\r\n"]).join(lines)


def changed_value(data: bytes, rng: random.Random) -> bytes:
    """One value of JSON, or of a line of it, is of another type or size, or its key is gone."""
    lines = [data] if data.lstrip()[:1] == b"{" and data.count(b"\n{") == 0 else data.split(b"\n")
    number = rng.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except ValueError:
        return data[::-1]
    places = []

    def visit(container: Any) -> None:
        for key in container if isinstance(container, dict) else range(len(container)):
            places.append((container, key))
            if isinstance(container[key], (dict, list)) and container[key]:
                visit(container[key])

    visit(value)
    if not places:
        return data
    container, key = rng.choice(places[:40] if rng.random() < 0.5 else places)
    if isinstance(container, dict) and rng.random() < 0.2:
        del container[key]
    else:
        container[key] = rng.choice(VALUES)
    lines[number] = json.dumps(value).encode()
    return b"\n".join(lines)


def deep(data: bytes, rng: random.Random) -> bytes:
    return b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n" + data


EVERY = [truncated, flipped, random_bytes, empty, doubled, overwritten]
WAYS = {"binary": [*EVERY, huge_claim], "text": [*EVERY, strange_text]}
WAYS["json"] = [*WAYS["text"], deep, *[changed_value] * 4]


# ---- A case


def case(
    number: int, seed: int, inputs: Path, base: Path, memory: float
) -> tuple[str, str, str | None]:
    """How the file was spoiled, the command, and what was wrong with its end."""
    rng = random.Random(f"{seed} {number}")
    (name, kind), words = (part.split() for part in COMMANDS[number % len(COMMANDS)].split(": ", 1))
    way, work = rng.choice(WAYS[kind]), base / f"{number}"
    if "/" in name:
        folder, part = work / Path(name).parts[0], str(work / name).rstrip("*")
        shutil.copytree(inputs / folder.name, folder)
        file = rng.choice(
            [
                path
                for path in sorted(work.rglob("*"))
                if path.is_file() and str(path).startswith(part)
            ]
        )
    else:
        work.mkdir()
        folder, file = work, Path(shutil.copy(inputs / name, work / name))
    file.write_bytes(way(file.read_bytes(), rng))
    earlier = [work / each for each in ("out.npy", "out.parquet", "mined.tsv", "pairs.tsv")]
    for path in earlier:
        path.write_text("earlier")
    words = [
        word.format(file=file, work=work, folder=folder, inputs=inputs, recipe=RECIPE)
        for word in words
    ]
    title = f"{file.relative_to(work)}: tmde {' '.join(words)}".replace(str(inputs), "IN").replace(
        str(work), "WORK"
    )
    run = start(partial(tmde, words), base / f"{number}.log")
    try:
        wrong = wrong_with(run, file, folder, memory)
    except AssertionError as error:
        wrong = str(error)
    if run.code and (lost := [path.name for path in earlier if path.read_text() != "earlier"]):
        wrong = f"lost: {lost}"
    return way.__name__, title, wrong


def wrong_with(run: Run, file: Path, folder: Path, memory: float) -> str | None:
    code = run.wait(limit=60)
    if run.memory > memory + MEMORY:
        return f"it took {run.memory:.1f} GiB"
    sentence = one_sentence(run) if code else folder.name
    if len(sentence) > 2000 or not any(
        each in sentence for each in (file.name, file.stem, str(folder), folder.name)
    ):
        return f"the sentence is long, or does not name the file: {sentence[:500]}"
    return None


def more_inputs(folder: Path) -> None:
    """Beside those of `make_inputs`: other formats, a T-MDE, its run, an index and results; made in a fork."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    docs = [json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines()][:300]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(docs), folder / "docs.parquet")
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    lines = [f"{row['translation']['de']}\t{row['translation']['en']}" for row in rows]
    (folder / "rows.tsv").write_text("\n".join(["de\ten", *lines, ""]))
    (folder / "docs.txt").write_text("".join(f"{row['text']}\n" for row in docs))
    (folder / "few.txt").write_text("".join(f"{row['text']}\n" for row in docs[:20]))
    (folder / "docs.txt.gz").write_bytes(gzip.compress((folder / "docs.txt").read_bytes()))
    for words in (
        f"train {RECIPE} --train {folder}/rows.jsonl -o {folder}/run",
        f"index {folder}/docs.jsonl -o {folder}/index -m {folder}/bag",
        f"eval run {folder}/bag --tasks sentence_retrieval={folder}/rows.jsonl -o {folder}/results",
    ):
        finished(words, folder / "made.log")
    (folder / "small").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(folder / "run" / name, folder / "small" / name)


def main(cases: int = 300, seed: int = 0, only: str = "", json_file: JsonOption = None) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    ways, well, failed = Counter(), 0, []
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        prepare(base)
        more_inputs(base / "inputs")
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        for number in map(int, only.split(",")) if only else range(cases):
            way, title, wrong = case(number, seed, base / "inputs", base, memory)
            output = (base / f"{number}.log").read_text(errors="replace")
            ways[way] += 1
            well += "Error: " not in output
            failed += [f"{number}: {title}"] if wrong else []
            if wrong or only:
                print(
                    f"{'-' * 40}\n{number}: {way}: {title}\n{wrong or output[-1000:]}", flush=True
                )
            shutil.rmtree(base / str(number))
    results = {"cases": sum(ways.values()), "ended well": well, "failed": failed, "ways": ways}
    print(results)
    from common import write_json  # which imports torch

    write_json(json_file, "bad_input", {"seed": seed}, results)
    raise SystemExit(len(failed))


if __name__ == "__main__":
    typer.run(main)
