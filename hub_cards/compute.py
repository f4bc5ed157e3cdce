"""What a training cost: the device and the hours, as they were measured."""

from __future__ import annotations

from modeling_tmde.hub_cards.run_facts import RunFacts


def compute_rows(facts: RunFacts) -> list[tuple[str, str]]:
    """Name and value of each fact that a run recorded; none where it recorded nothing."""
    run, results = facts.run, facts.results
    rows = []
    if machine := run.get("machine"):
        rows.append(("Device", _device(facts, machine)))
    minutes, first = results.get("minutes"), _first_stage(facts, "minutes")
    if minutes is not None:
        rows.append(("Wall clock", _hours(minutes, first)))
    cpu, first = results.get("cpu_minutes"), _first_stage(facts, "cpu_minutes")
    if cpu is not None:
        whose = "" if run.get("processes", 1) == 1 else " (of the first process)"
        rows.append((f"Processor time, all threads{whose}", _hours(cpu, first)))
    if versions := run.get("versions"):
        named = ("torch", "transformers", "tokenizers", "datasets")
        listed = [f"{name} {versions[name]}" for name in named if name in versions]
        rows.append(("Software", ", ".join([f"tmde {run.get('tmde', '?')}", *listed, f"Python {run.get('python')}"])))
    return rows


def _first_stage(facts: RunFacts, key: str) -> float | None:
    if facts.first_stage:
        return facts.first_stage.get(key)
    if key == "minutes" and (facts.recipe.get("warm_start") or {}).get("recipe"):  # its folder is not there any more
        return (facts.run.get("warm_start") or {}).get("minutes")
    return None


def _device(facts: RunFacts, machine: dict) -> str:
    device, processes = facts.run.get("device") or {}, facts.run.get("processes", 1)
    gpus = machine.get("gpus") or []
    kind, name = device.get("type", "cuda" if gpus else "cpu"), device.get("name")
    if kind == "cuda":
        return f"{processes} × {name or gpus[0]}"
    if kind != "cpu":  # such as mps, whose name is that of the processor beside it
        return f"{processes} × {kind}{f' ({name})' if name else ''}"
    name = name or machine.get("processor") or "unknown"
    threads = f"{machine.get('threads', '?')} thread{'' if machine.get('threads') == 1 else 's'}"
    each = threads if processes == 1 else f"{processes} processes of {threads}"
    return f"CPU: {name}, {each} on {machine.get('cpus', '?')} cores"


def _hours(minutes: float, first: float | None) -> str:
    total = minutes + (first or 0.0)
    text = f"{total:.1f} minutes" if total < 120 else f"{total / 60:.1f} hours"
    return text if first is None else f"{text}, {first:.1f} minutes of it for the first stage"
