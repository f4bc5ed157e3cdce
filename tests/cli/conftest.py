"""What the tests of the table of `tmde compare` share."""

import json

import pytest

from modeling_tmde.cli.compare_file import Comparison
from modeling_tmde.cli.compare_folder import ComparisonFolder
from modeling_tmde.eval.results import write_results
from tests.cli.compare_helpers import classified, opened, outcomes_of


@pytest.fixture
def measured(tmp_path) -> tuple[Comparison, ComparisonFolder]:
    """Evaluations with known values: bag at 60 / 50, warm-1 at 90 / 80 and warm-2 at 70 / 46, and what they cost."""
    comparison, folder = opened(tmp_path)
    shares = {"bag": (0.5, 0.4, 0.6, 0.7), "warm1": (0.85, 0.8, 0.8, 0.95), "warm2": (0.7, 0.45, 0.47, 0.7)}
    for training, key in zip(comparison.trainings[1:], shares, strict=True):
        results = [classified(training.name, outcomes_of(*shares[key], seed=len(key)))]
        if key == "bag":
            results.append(classified("TF-IDF", outcomes_of(1.0, 0.3, 0.5, 1.0)))
        write_results(folder.evaluation(training), results, {})
        folder.finish_evaluation(training)
    for training, minutes in zip(comparison.trainings, (1.5, 2.0, 4.0, 4.0), strict=True):
        folder.run(training).mkdir(parents=True)
        results = {"minutes": 2 * minutes, "cpu_minutes": minutes, "steps": 7, "seen": {"source_words": 60_000.0}}
        (folder.run(training) / "results.json").write_text(json.dumps(results))
        (folder.run(training) / "run.json").write_text(json.dumps({"parameters": 1_234_567, "data": {"train": 1}}))
    return comparison, folder
