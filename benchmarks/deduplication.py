"""Seconds, memory and what is found when many documents are deduplicated.

    python benchmarks/deduplication.py --data DATA --work WORK \
        --documents 250000 --documents 500000 --documents 1000000 \
        --json benchmarks/results/deduplication.json

The documents are different texts of `DATA/parallel/` and `DATA/general/` in five languages, most of
them sentences. Of 100, five are planted: half of these are copies with other case and white space,
half are near-duplicates, in which one word is another one. Without `DATA`, they are of the built-in
sample. Every collection is deduplicated by the
code of `tmde dedupe` in a process of its own. Its memory is read ten times a second: `own` is what
the process alone has, `resident` has mapped files in it, too, as far as they are in memory.
"""

import json as json_format
import random
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from common import in_fresh_process, markdown, read_rows, write_json
from monitor import Monitor

from tmde.documents import deduplication, file_deduplication
from tmde.documents.signature_bands import comparable_text, resemblance, shingles

PLANTED_SHARE = 0.05
SHORTEST = 60  # characters of a text that is planted again
# The steps that are timed: a name, and the function or method that does the work.
STAGES = (
    ("read", file_deduplication.StoredDocuments, "write"),
    ("copies", deduplication, "first_occurrences"),
    ("signatures", deduplication, "SignatureBands"),
    ("compare", deduplication.DuplicateFinder, "_add_near_duplicates"),
    ("write", file_deduplication, "_write"),
)


# ---- The documents


def read_texts(data: Path | None) -> list[tuple[str, str]]:
    """Return all different texts with their languages: without data, those of the sample."""
    texts: dict[str, tuple[str, str]] = {}
    for row in read_rows(data):
        for language, text in row.items():
            if text:
                texts.setdefault(comparable_text(text), (text, language))
    return list(texts.values())


def changed_text(text: str, generator: random.Random) -> str | None:
    """Return a near-duplicate of a text; None if its similarity would be too low."""
    words = text.split()
    words[generator.randrange(len(words))] = "changed"
    changed = " ".join(words)
    similarity = resemblance(shingles(text), shingles(changed))
    if not deduplication.MIN_SIMILARITY <= similarity < 1:
        return None
    return changed


def make_documents(
    texts: list[tuple[str, str]], count: int, seed: int
) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return documents in random order, and the original of each planted one.

    Args:
        texts: Different texts with their languages.
        count: The number of documents.
        seed: Chooses texts, order and changes.

    Returns:
        Rows with id, text and lang. The id of a planted document tells its kind.
    """
    generator = random.Random(seed)
    planted_count = round(count * PLANTED_SHARE)
    rows = []
    for text, language in generator.sample(texts, count - planted_count):
        rows.append({"id": f"{len(rows)}", "text": text, "lang": language})
    originals: dict[str, str] = {}
    for row in generator.sample(rows, len(rows)):
        if len(originals) == planted_count:
            break
        if len(row["text"]) < SHORTEST:
            continue
        kind = "near" if len(originals) % 2 else "copy"
        text = f" {row['text'].upper()} "
        if comparable_text(text) != comparable_text(row["text"]):
            continue  # A sharp s has no upper case of its own.
        if kind == "near":
            changed = changed_text(row["text"], generator)
            if changed is None:
                continue
            text = changed
        id = f"{kind}-{row['id']}"
        originals[id] = row["id"]
        rows.append({"id": id, "text": text, "lang": row["lang"]})
    generator.shuffle(rows)
    return rows, originals


# ---- The run


def deduplicate(documents: Path) -> dict[str, Any]:
    """Deduplicate a file as the command does; return the seconds, and the stages."""
    folder = documents.parent
    with Monitor() as monitor:
        for stage in STAGES:
            monitor.watch(*stage)
        begin = time.perf_counter()
        # The planted near-duplicates are short, and differ in a word.
        file_deduplication.dedupe_files(
            documents, folder / "unique.jsonl", groups=folder / "groups.jsonl", min_words=0
        )
        seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time(),
        "stages": monitor.stages,
    }


# ---- Measures


def measure(texts: list[tuple[str, str]], count: int, seed: int, work: Path) -> dict[str, Any]:
    """Deduplicate so many documents, and return seconds, memory and what was found."""
    rows, originals = make_documents(texts, count, seed)
    work.mkdir(parents=True, exist_ok=True)
    documents = work / "documents.jsonl"
    with open(documents, "w", encoding="utf-8") as file:
        for row in rows:
            print(json_format.dumps(row, ensure_ascii=False), file=file)
    characters = sum(len(row["text"]) for row in rows)
    del rows
    measured = in_fresh_process(deduplicate, documents)
    stages = measured["stages"].values()
    return {
        "documents": count,
        "characters": characters / count,
        **measured,
        "resident": max(stage["resident"] for stage in stages),
        "own": max(stage["own"] for stage in stages),
        **found_pairs(work / "groups.jsonl", originals),
    }


def found_pairs(path: Path, originals: dict[str, str]) -> dict[str, Any]:
    """Return how many planted documents are in the group of their original, of each kind.

    Args:
        path: The file of the groups.
        originals: The original of each planted document.
    """
    group_of: dict[str, int] = {}
    removed = 0
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            group = json_format.loads(line)
            group_of[group["kept"]] = number
            for duplicate in group["duplicates"]:
                group_of[duplicate["id"]] = number
                removed += 1
    found = {"copy": [0, 0], "near": [0, 0]}
    planted_groups = set()
    for id, original in originals.items():
        counts = found[id.partition("-")[0]]
        counts[1] += 1
        if id in group_of and group_of[id] == group_of.get(original):
            counts[0] += 1
            planted_groups.add(group_of[id])
    groups = set(group_of.values())
    return {
        "found": found,
        "removed": removed,
        "groups": len(groups),
        "groups_without_planted": len(groups - planted_groups),
    }


# ---- The command


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with parallel/ and general/.")] = None,
    work: Annotated[Path, typer.Option(help="Folder of the documents.")] = Path("dedupe"),
    documents: Annotated[list[int] | None, typer.Option(help="Sizes. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="That of the planted documents.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure `tmde dedupe`."""
    texts = read_texts(data)
    results = []
    for count in documents or [100_000]:
        typer.echo(f"{count:,} documents", err=True)
        results.append(measure(texts, count, seed, work))
        # Written after each size, because the larger ones take long.
        write_json(json, "deduplication", {"seed": seed}, results)
    print(markdown([table_row(result) for result in results]))


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    columns = ("documents", "seconds", "cpu_seconds", "own", "resident", "removed")
    row = {name: result[name] for name in columns}
    for kind, (found, planted) in result["found"].items():
        row[f"{kind}, %"] = 100 * found / max(planted, 1)
    for name, stage in result["stages"].items():
        row[f"{name}, s"] = stage["seconds"]
    return row


if __name__ == "__main__":
    typer.run(main)
