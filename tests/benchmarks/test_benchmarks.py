"""Every benchmark runs on a tiny setting."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRAINING = [
    *("--size", "tiny"),
    *("--rows", "100"),
    *("--steps", "1"),
    *("--repeats", "1"),
    *("--system", "cT-MDE"),
]
OPTIONS = {
    "deduplication.py": ["--documents", "300", "--work", "{folder}"],
    "mining.py": ["--sentences", "200", "--work", "{folder}"],
    "embedding_speed.py": ["--number", "20", "--repeats", "1"],
    "index_memory.py": ["--documents", "50"],
    "index_size.py": ["--rows", "20"],
    "seed_tests.py": ["--repetitions", "3"],
    "peers.py": [
        *("--static", "{folder}/static"),
        *("--minutes", "0.02"),
        *("--cache", "{folder}"),
    ],
    "vector_size.py": ["--dim", "32", "--precision", "ubinary"],
    "training_speed.py": [*TRAINING, "--system", "Marian, Seq2SeqTrainer, by length"],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPTIONS)
def test_benchmark_runs(name, tmp_path):
    options = [option.format(folder=tmp_path) for option in OPTIONS[name]]
    command = [sys.executable, str(BENCHMARKS / name), *options]
    process = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )
    assert process.returncode == 0, process.stdout[-3000:]
    assert "|" in process.stdout, process.stdout[-3000:]
