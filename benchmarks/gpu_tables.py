"""The tables of `gpu.py`, from what its parts returned; nothing here needs an accelerator."""

import re
from collections.abc import Mapping
from typing import Any

from common import markdown

# Dense bf16 matrix rates that the manufacturer publishes, operations per second.
PUBLISHED_PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
BASELINE = "T-MDE"
Results = Mapping[str, Mapping[str, Any]]


def published_peak(results: Results) -> float | None:
    for row in rows_of(results, "machine"):
        gpu = row["machine"].get("gpu", "")
        return next((peak for name, peak in PUBLISHED_PEAKS.items() if name in gpu), None)
    return None


def rows_of(results: Results, beginning: str) -> list[dict[str, Any]]:
    """All rows of the parts whose name begins so."""
    return [row for name, outcome in results.items() if name.startswith(beginning) for row in outcome["rows"]]


def percent(share: float | None, digits: int = 0) -> str:
    return "not measured" if share is None else f"{share:.{digits}%}"


def training_table(results: Results, size: str) -> str:
    """Rates, and ratios to T-MDE's where it was measured."""
    runs = rows_of(results, f"training, {size}: ")
    base = next((run for run in runs if run["system"] == BASELINE), None)
    peak = published_peak(results)
    rows = []
    for run in runs:
        row: dict[str, Any] = {"system": run["system"], "parameters, M": run["parameters"] / 1e6}
        for key, title in (("words_per_second", "words/s"), ("tokens_per_second", "tokens/s")):
            row[title] = run[key]
            row[f"{title} / {BASELINE}"] = "not measured" if base is None else f"{run[key] / base[key]:.2f}"
        row["of measured rate"] = percent(run["utilisation"])
        row["of published peak"] = percent(run["utilisation"] * run["matrix_rate"] / peak if peak else None)
        row["padding"] = percent(run["padding"], 1)
        row["waited for data"] = percent(run["data_wait"], 1) if "MDE" in run["system"] else "-"
        row["peak memory, GiB"] = run["peak_memory"] / 2**30
        row["micro-batch, tokens"] = f"{run['micro_batch_tokens']:,}" + (f" ({run['note']})" if run["note"] else "")
        rows.append(row)
    return markdown(rows)


def goals(results: Results) -> list[dict[str, Any]]:
    """What is aimed at, beside what was found; what was not measured is a row as well."""
    rows = []

    def add(goal: str, wanted: str, value: float | None, met: bool | None, shown: str) -> None:
        rows.append({"goal": goal, "wanted": wanted, "found": shown if value is not None else "not measured"})
        rows[-1]["met"] = "-" if value is None else "yes" if met else "no"

    checked = [row for row in rows_of(results, "checks") if "variant" in row]
    within = sum(row["within tolerance"] == "yes" for row in checked)
    shown = f"{within} of {len(checked)}"
    add(
        "variants whose losses are those of the CPU", "all", within if checked else None, within == len(checked), shown
    )
    for size in ("paper", "small"):
        runs = {run["system"]: run for run in rows_of(results, f"training, {size}: ")}
        base = runs.get(BASELINE)
        for name, what in (("cT-MDE", "distance constraint"), ("T-MDE_P", "pyramid")):
            cost = 1 - runs[name]["words_per_second"] / base["words_per_second"] if base and name in runs else None
            add(f"{size}: cost of the {what}", "<= 5%", cost, cost is not None and cost <= 0.05, percent(cost, 1))
        for name in ("Marian, Seq2SeqTrainer, by length", "BERT, SentenceTransformerTrainer"):
            ratio = base["tokens_per_second"] / runs[name]["tokens_per_second"] if base and name in runs else None
            shown = "" if ratio is None else f"{ratio:.2f} x"
            add(f"{size}: T-MDE's tokens/s to {name}", ">= 1.5 x", ratio, ratio is not None and ratio >= 1.5, shown)
        peak = published_peak(results)
        if size == "paper":
            used = base["utilisation"] * base["matrix_rate"] / peak if base and peak else None
            add(
                "paper: T-MDE, of the published bf16 peak",
                ">= 40%",
                used,
                used is not None and used >= 0.4,
                percent(used),
            )
    for precision in ("fp32", "bf16"):
        for row in rows_of(results, f"embedding, {precision}"):
            ratio = row["ratio"]
            name = f"embedding, {precision}: {row['model']} to sentence-transformers"
            add(name, ">= 1.3 x", ratio, ratio >= 1.3, f"{ratio:.2f} x")
            if precision == "fp32":
                difference = row["largest difference"]
                add(f"{name}, vectors", "<= 1e-4", difference, difference <= 1e-4, f"{difference:.1e}")
    return rows


def checks_tables(results: Results) -> str:
    rows, waits = [], ""
    for row in rows_of(results, "checks"):
        if "waits" in row:
            waits = f"\nA step waits for the GPU at: {row['waits']}"
            continue
        rows.append({key: f"{value:.2g}" if isinstance(value, float) else value for key, value in row.items()})
    return markdown(rows) + "\n" + waits if rows else ""


def variations_table(rows: list[dict[str, Any]]) -> str:
    shown = []
    for row in rows:
        shown.append({"variation": row["variation"], "padding": percent(row["padding"], 1)})
        for key in ("tokens/s", "speed-up", "difference of losses", "seconds to compile"):
            shown[-1][key] = row.get(key, "-" if key == "seconds to compile" and "reason" not in row else None)
        shown[-1]["note"] = row.get("reason", "")
    return markdown(shown)


def without(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != key} for row in rows]


def why(reason: str) -> str:
    """The line that names the error, or the last one."""
    lines = reason.strip().splitlines() or [""]
    return next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1])[:160]


def report(results: Results) -> str:
    """Markdown: what was measured, then what was not and why."""
    sections = []

    def add(title: str, table: str) -> None:
        if table:
            sections.append(f"### {title}\n\n{table}")

    for row in rows_of(results, "machine"):
        rates = [
            f"{row[f'matrix rate, {precision}'] / 1e12:.1f} TFLOP/s {precision}" for precision in ("fp32", "bf16")
        ]
        add(f"{row['machine'].get('gpu', 'No accelerator')}", f"Matrix products: {', '.join(rates)}.")
    add("Goals", markdown(goals(results)))
    add("Against the CPU in fp32: relative differences, of embeddings the largest difference", checks_tables(results))
    for size in ("paper", "small"):
        add(f"Training, {size}, bf16", training_table(results, size))
        add(f"Variations, {size}, bf16: cT-MDE", variations_table(rows_of(results, f"variations, {size}")))
    for what in ("fp32", "bf16", "modes"):
        add(f"Embedding, {what}", markdown(without(rows_of(results, f"embedding, {what}"), "seconds")))
    missing = [
        {
            "part": name,
            "status": outcome["status"],
            "why": why(outcome["reason"]),
        }
        for name, outcome in results.items()
        if outcome["status"] != "measured"
    ]
    add("Not measured", markdown(missing))
    return "\n\n".join(sections)
