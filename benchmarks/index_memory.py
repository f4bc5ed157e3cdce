"""Memory and time of `tmde index`: the peak of each stage for several numbers of documents.

    python benchmarks/index_memory.py --json benchmarks/results/index_memory.json   # half an hour
    python benchmarks/index_memory.py --documents 100000 --documents 200000

The documents are short made-up texts with ids, a year and a topic, embedded by the default model.
Each command runs in a process of its own: `tmde index` makes the index, runs again with nothing
changed, and runs with `--prune` on the first nine tenths of the documents. Peaks are the largest
resident set of the process up to the end of a stage (`ru_maxrss`).
"""

import json
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from common import in_fresh_process, markdown, write_json
from faults import JsonOption
from load import make_texts
from monitor import Monitor

from tmde.cli.main import app
from tmde.documents.index_table import DocumentTable

TOPICS = ("bridges", "rivers", "trains")
# The methods of an index's table that are stages of a command, in the order of their first calls.
STAGES = {
    "fetch": "look up ids",
    "append": "write rows",
    "merge": "replace rows",
    "build_word_index": "index words",
    "delete": "delete rows",
    "maintain": "upkeep, inverted file",
}


def write_documents(path: Path, count: int, shown: int) -> None:
    """Write the first `shown` of `count` documents as JSONL."""
    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(islice(make_texts(count), shown)):
            document = {
                "id": f"document-{number:08d}",
                "text": text,
                "year": 1990 + number % 30,
                "topic": TOPICS[number % len(TOPICS)],
            }
            file.write(json.dumps(document) + "\n")


def run_command(arguments: list[str]) -> dict[str, Any]:
    """Run `tmde index` in this process, and return its seconds and peak memory."""
    with Monitor() as monitor:
        for method, stage in STAGES.items():
            monitor.watch(stage, DocumentTable, method)
        begin = time.perf_counter()
        app(["index", *arguments], standalone_mode=False)
        seconds = time.perf_counter() - begin
    seconds_of_stages = {}
    peaks = {}
    for stage, measured in monitor.stages.items():
        seconds_of_stages[stage] = round(measured["seconds"], 1)
        peaks[stage] = round(measured["resident"])
    return {
        "seconds": round(seconds, 1),
        "peak, MiB": max(peaks.values()),
        "seconds of stages": seconds_of_stages,
        "peaks of stages, MiB": peaks,
    }


def measure(count: int, folder: Path) -> list[dict[str, Any]]:
    """Make, repeat and prune an index of so many documents, each in a process of its own."""
    documents = folder / "documents.jsonl"
    index = folder / "index"
    arguments = [str(documents), "-o", str(index), "--long-documents", "truncate"]
    runs = [
        ("new index", count, []),
        ("same documents again", count, []),
        ("--prune, a tenth removed", count * 9 // 10, ["--prune"]),
    ]
    rows = []
    for name, shown, options in runs:
        write_documents(documents, count, shown)
        result = in_fresh_process(run_command, [*arguments, *options])
        row = {"documents": count, "run": name, **result}
        print(row, flush=True)
        rows.append(row)
    size = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
    rows[0]["bytes a document on disk, after all runs"] = round(size / count)
    return rows


def main(
    documents: Annotated[list[int], typer.Option(help="Numbers of documents.")] = [  # noqa: B006
        250_000,
        500_000,
        1_000_000,
    ],
    json_file: JsonOption = None,
) -> None:
    """Measure an index for each number of documents."""
    rows = []
    for count in documents:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(count, Path(folder))
    columns = ("documents", "run", "seconds", "peak, MiB")
    print(markdown([{name: row[name] for name in columns} for row in rows]))
    write_json(json_file, "index_memory", {"documents": documents}, rows)


if __name__ == "__main__":
    typer.run(main)
