"""What the GPU script does with its parts and their numbers; the parts are replaced by scripts of a line or two."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Imports a module of `benchmarks/`, which is a folder of scripts, and forgets all of them afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield __import__
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == BENCHMARKS:
            del sys.modules[name]


@pytest.fixture
def run_parts(load, monkeypatch, tmp_path):
    """Runs parts that are Python source instead: {kind: source}, which may use `out`, the file for results."""
    gpu = load("gpu")

    def run(parts: dict[str, tuple[str, float, float]], budget: float):
        def start(part, folder, number, rehearse, fail):
            out, log = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.log"
            source = f"import sys, time; out = open({str(out)!r}, 'a')\n{parts[part.kind][0]}"
            with log.open("wb") as stream:
                popen = subprocess.Popen(
                    [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=stream, stderr=stream,
                    start_new_session=True,
                )  # fmt: skip
            return gpu.Process(part, popen, out, log)

        monkeypatch.setattr(gpu, "start", start)
        done, path = {}, tmp_path / "gpu.json"
        listed = [gpu.Part(kind, "x", needs, limit) for kind, (_, needs, limit) in parts.items()]
        statuses = []

        def save():
            gpu.write(path, {}, done)
            statuses.append([outcome["status"] for outcome in json.loads(path.read_text())["results"].values()])

        gpu.run_all(listed, tmp_path, budget, True, "", done, save)
        return {name.split(",")[0]: outcome for name, outcome in done.items()}, statuses

    return run


def test_a_part_that_fails_or_hangs_keeps_its_rows_and_the_next_goes_on(run_parts):
    row = """sys.stdin.readline(); out.write('{"value": 1}\\n'); out.flush()\n"""
    parts = {
        "good": (row, 0, 30),
        "broken": (row + "raise ValueError('what went wrong')", 0, 30),
        "hangs": (row + "out.write('{\"val'); out.flush(); time.sleep(600)", 0, 3),
        "unimportable": ("import no_such_module", 0, 30),
        "last": (row, 0, 30),
    }
    done, statuses = run_parts(parts, budget=100)
    found = {name: outcome.status for name, outcome in done.items()}
    assert found == {
        "good": "measured", "broken": "failed", "hangs": "timed out", "unimportable": "failed", "last": "measured",
    }  # fmt: skip
    assert [len(done[name].rows) for name in parts] == [1, 1, 1, 0, 1]
    assert done["broken"].reason.endswith("ValueError: what went wrong")
    assert "no_such_module" in done["unimportable"].reason
    assert [len(each) for each in statuses] == [1, 2, 3, 4, 5]  # the file had every outcome as soon as it was there


def test_parts_beyond_the_budget_are_said_to_be_skipped(run_parts):
    parts = {"first": ("sys.stdin.readline(); time.sleep(2)", 0, 30), "long": ("", 29, 30), "short": ("", 0, 30)}
    done, _ = run_parts(parts, budget=30)
    assert [outcome.status for outcome in done.values()] == ["measured", "skipped", "measured"]
    assert "it needs 29 s" in done["long"].reason


def test_only_as_many_lines_of_an_error_are_kept(load, tmp_path):
    gpu = load("gpu")
    log = tmp_path / "log"
    log.write_bytes(b"\n".join(b"%d" % number for number in range(100)) + b"\n\xff")
    kept = gpu.last_lines(log).splitlines()
    assert len(kept) == 30 and kept[0] == "71"


def test_micro_batches_are_halved_until_they_fit(load):
    parts, sizes = load("gpu_parts"), load("sizes")
    tried = []

    def run(size):
        tried.append(size.micro_batch_tokens)
        if size.micro_batch_tokens > 20_000:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        return {"value": 3}

    found = parts.with_smaller_batches(run, sizes.SIZES["paper"].on("cuda"))
    assert tried == [65536, 32768, 16384]
    assert found == {"value": 3, "micro_batch_tokens": 16384, "note": "out of memory at 65536 tokens, halved"}

    def never(size):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(RuntimeError, match="micro-batches of 256 tokens are too large: CUDA out of memory"):
        parts.with_smaller_batches(never, sizes.SIZES["paper"].on("cuda"))


def run_of(system: str, words: float, tokens: float) -> dict:
    return {
        "system": system, "words_per_second": words, "tokens_per_second": tokens, "parameters": 2.5e8, "padding": 0.01,
        "utilisation": 0.5, "matrix_rate": 800e12, "peak_memory": 2**34, "micro_batch_tokens": 65536, "note": "",
        "data_wait": 0.0,
    }  # fmt: skip


def test_goals_by_hand(load):
    tables = load("gpu_tables")
    runs = [run_of("T-MDE", 1000, 3000), run_of("cT-MDE", 960, 2500), run_of("T-MDE_P", 940, 2900)]
    runs.append(run_of("Marian, Seq2SeqTrainer, by length", 500, 1875))
    results = {
        f"training, paper: {run['system']}": {"rows": [run], "status": "measured", "reason": ""} for run in runs
    }
    machine = {"machine": {"gpu": "NVIDIA H200"}, "matrix rate, fp32": 5e13, "matrix rate, bf16": 8e14}
    results["machine, here"] = {"rows": [machine], "status": "measured", "reason": ""}
    found = {row["goal"]: (row["found"], row["met"]) for row in tables.goals(results)}
    assert found["paper: cost of the distance constraint"] == ("4.0%", "yes")
    assert found["paper: cost of the pyramid"] == ("6.0%", "no")
    assert found["paper: T-MDE's tokens/s to Marian, Seq2SeqTrainer, by length"] == ("1.60 x", "yes")
    assert found["paper: T-MDE's tokens/s to BERT, SentenceTransformerTrainer"] == ("not measured", "-")
    assert found["paper: T-MDE, of the published bf16 peak"] == ("40%", "yes")  # 0.5 * 800 / 989 = 0.4044
    assert found["small: cost of the pyramid"] == ("not measured", "-")
    error = "Traceback ...\nModuleNotFoundError: No module named 'datasets'\n[a warning at the exit]"
    results["training, small: T-MDE"] = {"rows": [], "status": "failed", "reason": error}
    report = tables.report(results)
    assert "| cT-MDE | 250.0 | 960 | 0.96 | 2,500 | 0.83 | 50% | 40% |" in report
    assert "| training, small: T-MDE | failed | ModuleNotFoundError: No module named 'datasets' |" in report
