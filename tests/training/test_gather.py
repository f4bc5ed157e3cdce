"""Objectives on two processes: gradients equal those of one process with all rows, and none waits for another."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from modeling_tmde.training.objectives import DistanceConstraint, InfoNCE
from modeling_tmde.training.objectives.gather import sum_on_host
from tests.training import references
from tests.training import worker_gather as worker

ROOT = Path(__file__).parents[2]

SAME_LANGUAGES = [name for name, case in worker.CASES.items() if case.batches[0][0] == case.batches[1][0]]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """The folder of what `worker_gather.py` found on two processes."""
    folder = tmp_path_factory.mktemp("gather")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    process = subprocess.run(
        [*command, worker.__file__, str(folder)],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
        capture_output=True,
        text=True,
        timeout=120,  # a deadlock
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return folder


def of_both(folder: Path, name: str) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / f"{name}-{rank}.safetensors") for rank in (0, 1)]


def components(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in found.items() if name.startswith("= ")}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME_LANGUAGES)
def test_gradient_of_two_processes_is_that_of_one_with_all_rows(name, two_processes):
    case, found = worker.CASES[name], of_both(two_processes, name)
    (ids, languages), (others, _) = (worker.batch_of(case, rank) for rank in (0, 1))
    expected = worker.gradients(case, torch.cat([ids, others], dim=1), languages, processes=1)
    assert components(expected)
    for key, value in expected.items():
        if key in components(expected):
            torch.testing.assert_close(found[0][key] + found[1][key], value, rtol=1e-5, atol=1e-5)
        else:
            assert value.abs().max() > 1e-3 or key not in ("embed_tokens.weight", "model.embed_tokens.weight")
            for gradients in found:
                torch.testing.assert_close(gradients[key], value, rtol=1e-4, atol=1e-6)
    # The rows of the other process matter, or the test would say nothing.
    alone = [worker.gradients(case, *worker.batch_of(case, rank), processes=1) for rank in (0, 1)]
    table = next(key for key in expected if key.endswith("embed_tokens.weight"))
    assert (sum(found[table] for found in alone) - expected[table]).norm() > 0.02 * expected[table].norm()


def infonce(batches: list[torch.Tensor]) -> torch.Tensor:
    return references.infonce(batches, temperature=0.2)


def distance(batches: list[torch.Tensor]) -> torch.Tensor:
    """Each pair of places among the languages, with the rows of all processes that have both."""
    total = torch.zeros((), dtype=torch.float64)
    for a, b in itertools.combinations(range(max(map(len, batches))), 2):
        rows = torch.cat([batch[[a, b]] for batch in batches if len(batch) > b], dim=1)
        if rows.shape[1] > 1:
            total = total + references.distance(rows.double(), worker.distance())
        else:  # no negatives: the distance to the translation over itself
            total = total + 2
    return total


@pytest.mark.slow
@pytest.mark.parametrize("batches", ["differ", "one row"])
@pytest.mark.parametrize(("objective", "reference"), [("infonce", infonce), ("distance", distance)])
def test_processes_with_other_languages_and_rows(objective, reference: Callable, batches, two_processes):
    """No process waits for another, and texts at the same place among the languages are the negatives."""
    name = f"{objective} {batches}"
    case, found = worker.CASES[name], of_both(two_processes, name)
    model = worker.parallel_model(case).encoder
    embeddings = []
    for rank in (0, 1):
        ids, _ = worker.batch_of(case, rank)
        embeddings.append(model(ids.flatten(0, 1)).pooler_output.unflatten(0, ids.shape[:2]))
    loss = reference(embeddings)
    (loss / worker.counts(case)[objective]).backward()
    for key, parameter in model.named_parameters():
        for gradients in found:
            torch.testing.assert_close(gradients[key], parameter.grad, rtol=1e-4, atol=1e-6)
    assert sum(parts[f"= {objective} loss"] for parts in found).item() == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.slow
def test_evaluation_of_one_process_gathers_nothing(two_processes):
    embeddings = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    found = load_file(two_processes / "evaluation.safetensors")
    assert found["infonce"].item() == pytest.approx(InfoNCE()(embeddings).loss.item(), rel=1e-6)
    alone = DistanceConstraint(negatives=worker.EVERY_NEGATIVE)
    assert found["distance"].item() == pytest.approx(alone(embeddings).loss.item(), rel=1e-6)


@pytest.mark.slow
def test_numbers_of_the_host_are_summed_in_double_precision(two_processes):
    for rank in (0, 1):
        assert load_file(two_processes / f"sums-{rank}.safetensors")["sums"].tolist() == [0.2, 2 * 10.0**9 + 1]
    assert sum_on_host([1.0, 2.0]) == [1.0, 2.0]  # one process
