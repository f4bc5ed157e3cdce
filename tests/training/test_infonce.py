"""InfoNCE: numbers by hand, a plain float64 reference, and negatives from other processes."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from modeling_tmde.training.objectives import OBJECTIVES, BatchSizes, InfoNCE
from tests.training import worker_infonce as worker

ROOT = Path(__file__).parents[2]


def vectors(languages: int, rows: int, width: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(languages, rows, width, generator=torch.Generator().manual_seed(seed))


def reference(batches: list[torch.Tensor], temperature: float, margin: float = 0.0) -> tuple[torch.Tensor, int]:
    """Loss and right first places of embeddings (languages, rows, d) by process, one scalar at a time in float64.

    Texts at the same place among the languages of any process are candidates.
    """
    batches = [batch.double() for batch in batches]
    loss, right = torch.zeros((), dtype=torch.float64), 0

    def cosine(x, y):
        return (x * y).sum() / (x.pow(2).sum().sqrt() * y.pow(2).sum().sqrt())

    for process, batch in enumerate(batches):
        for a, b in itertools.permutations(range(len(batch)), 2):
            for row in range(batch.shape[1]):
                positive = cosine(batch[a, row], batch[b, row])
                negatives = [
                    cosine(batch[a, row], other[b, j])
                    for number, other in enumerate(batches)
                    if b < len(other)
                    for j in range(other.shape[1])
                    if (number, j) != (process, row)
                ]
                exponentials = [
                    ((positive - margin) / temperature).exp(),
                    *((n / temperature).exp() for n in negatives),
                ]
                loss = loss - (exponentials[0] / sum(exponentials)).log()
                right += all(positive > negative for negative in negatives)
    return loss, right


# ---- By hand


def test_two_rows_by_hand():
    """Cosines A1B1 = 1, A1B2 = 0.6, A2B1 = 0, A2B2 = 0.8; with temperature 0.5 the logits are 2, 1.2, 0, 1.6."""
    embeddings = torch.tensor([[[1.0, 0.0], [0.0, 3.0]], [[2.0, 0.0], [0.3, 0.4]]])
    output = InfoNCE(temperature=0.5)(embeddings)
    forth = math.log(1 + math.exp(1.2 - 2)) + math.log(1 + math.exp(0 - 1.6))
    back = math.log(1 + math.exp(0 - 2)) + math.log(1 + math.exp(1.2 - 1.6))
    assert output.loss.item() == pytest.approx(forth + back, rel=1e-6)
    assert output.loss.item() == pytest.approx(0.371101 + 0.183901 + 0.126928 + 0.513015, abs=1e-6)
    assert output.components["loss"].item() == output.loss.item()
    assert output.components["accuracy"].item() == 4
    # A margin of 0.5 takes 1 from the logits of the right pairs; who is first stays as it was.
    output = InfoNCE(temperature=0.5, margin=0.5)(embeddings)
    differences = [1.2 - 1, 0 - 0.6, 0 - 1, 1.2 - 0.6]
    assert output.loss.item() == pytest.approx(sum(math.log(1 + math.exp(x)) for x in differences), rel=1e-6)
    assert output.components["accuracy"].item() == 4


def test_accuracy_counts_right_first_places():
    # A1 and A2 are both nearest to B1; B1 is nearest to A1, and B2 to A2.
    embeddings = torch.tensor([[[1.0, 0.0], [1.0, 0.2]], [[1.0, 0.0], [0.0, 1.0]]])
    output = InfoNCE()(embeddings.requires_grad_())
    assert output.components["accuracy"].item() == 3
    assert not output.components["accuracy"].requires_grad and not output.components["loss"].requires_grad


@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_equal_vectors_cost_the_logarithm_of_the_rows(margin):
    output = InfoNCE(temperature=0.1, margin=margin)(torch.ones(2, 7, 4))
    # 7 candidates, of which the right one has e^(-margin / temperature) of the weight of the others
    weight = math.exp(-margin / 0.1)
    assert output.loss.item() == pytest.approx(14 * math.log((6 + weight) / weight), rel=1e-6)
    assert output.components["accuracy"].item() < 14  # a collapse is no success


def test_one_row_costs_nothing():
    embeddings = vectors(3, 1).requires_grad_()
    output = InfoNCE(margin=0.3)(embeddings)
    output.loss.backward()
    assert output.loss.item() == 0
    assert output.components["accuracy"].item() == 6
    assert embeddings.grad.abs().max() == 0


def test_count_and_name():
    objective = OBJECTIVES["infonce"]()
    assert isinstance(objective, InfoNCE)
    assert (objective.weight, objective.temperature, objective.margin, objective.gather) == (1.0, 0.05, 0.0, True)
    assert objective.needs_all_embeddings and not objective.needs_decoder
    assert objective.count(BatchSizes(rows=5, languages=2, directions=1, target_tokens=9)) == 10
    assert objective.count(BatchSizes(rows=5, languages=4, directions=6, target_tokens=9)) == 60


@pytest.mark.parametrize("temperature", [0, -0.1, float("nan")])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match=f"infonce temperature={temperature} must be above 0"):
        InfoNCE(temperature=temperature)


# ---- Reference and properties


@settings(max_examples=20, deadline=None)
@given(
    languages=st.integers(2, 4),
    rows=st.integers(1, 5),
    temperature=st.sampled_from([0.05, 0.5, 2.0]),
    margin=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_loss_and_gradient_equal_the_plain_reference(languages, rows, temperature, margin, seed):
    embeddings = vectors(languages, rows, seed=seed).requires_grad_()
    output = InfoNCE(temperature=temperature, margin=margin)(embeddings)
    expected, right = reference([embeddings], temperature, margin)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    assert output.components["accuracy"].item() == right
    (wanted,) = torch.autograd.grad(expected, embeddings)
    (found,) = torch.autograd.grad(output.loss, embeddings)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_length_of_vectors_plays_no_part():
    embeddings = vectors(3, 6)
    scales = torch.rand(3, 6, 1, generator=torch.Generator().manual_seed(1)) * 10 + 0.01
    expected = InfoNCE(margin=0.1)(embeddings).loss
    torch.testing.assert_close(InfoNCE(margin=0.1)(embeddings * scales).loss, expected, rtol=1e-5, atol=1e-5)


def test_order_of_rows_and_languages_plays_no_part():
    embeddings = vectors(3, 6)
    expected = InfoNCE()(embeddings).loss
    for other in (embeddings[:, torch.tensor([3, 0, 5, 1, 4, 2])], embeddings[[2, 0, 1]]):
        torch.testing.assert_close(InfoNCE()(other).loss, expected, rtol=1e-5, atol=1e-5)


def test_float32_under_autocast():
    embeddings = vectors(2, 20, width=64)
    expected = InfoNCE()(embeddings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = InfoNCE()(embeddings)
    assert output.loss.dtype == torch.float32
    assert output.loss.item() == expected.loss.item()
    half = InfoNCE()(embeddings.bfloat16())
    assert half.loss.dtype == torch.float32
    assert half.loss.item() == InfoNCE()(embeddings.bfloat16().float()).loss.item()


# ---- Several processes


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """The folder of what `worker_infonce.py` found on two processes."""
    folder = tmp_path_factory.mktemp("infonce")
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


def of_both(folder: Path, case: str) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / f"{case}-{rank}.safetensors") for rank in (0, 1)]


def components(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in found.items() if name.startswith("infonce ")}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["agree", "three", "margin", "translation"])
def test_gradient_of_two_processes_is_that_of_one_with_all_rows(case, two_processes):
    found = of_both(two_processes, case)
    (ids, languages), (others, _) = (worker.batch_of(case, rank) for rank in (0, 1))
    expected = worker.gradients(case, torch.cat([ids, others], dim=1), languages, processes=1)
    for name, value in expected.items():
        if name.startswith("infonce "):
            torch.testing.assert_close(found[0][name] + found[1][name], value, rtol=1e-5, atol=1e-5)
        else:
            assert value.abs().max() > 1e-3 or name not in ("embed_tokens.weight", "model.embed_tokens.weight")
            for gradients in found:
                torch.testing.assert_close(gradients[name], value, rtol=1e-4, atol=1e-6)
    # The rows of the other process matter, or the test would say nothing.
    alone = [worker.gradients(case, *worker.batch_of(case, rank), processes=1) for rank in (0, 1)]
    assert sum(found["infonce loss"] for found in alone) < expected["infonce loss"] - 1


@pytest.mark.slow
@pytest.mark.parametrize("case", ["differ", "one row"])
def test_processes_with_other_languages_and_rows(case, two_processes):
    """No process waits for another, and texts at the same place among the languages are the negatives."""
    found = of_both(two_processes, case)
    model = worker.parallel_model(case).encoder
    batches = []
    for rank in (0, 1):
        ids, _ = worker.batch_of(case, rank)
        batches.append(model(ids.flatten(0, 1)).pooler_output.unflatten(0, ids.shape[:2]))
    loss, right = reference(batches, temperature=0.2)
    (loss / worker.counts(case)["infonce"]).backward()
    for name, parameter in model.named_parameters():
        for gradients in found:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert sum(parts["infonce loss"] for parts in found).item() == pytest.approx(loss.item(), rel=1e-5)
    assert sum(parts["infonce accuracy"] for parts in found).item() == right


@pytest.mark.slow
def test_without_gather_each_process_has_its_own_negatives(two_processes):
    case = "not gathered"
    for rank, found in enumerate(of_both(two_processes, case)):
        expected = worker.gradients(case, *worker.batch_of(case, rank), processes=1)
        torch.testing.assert_close(components(found), components(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_evaluation_of_one_process_gathers_nothing(two_processes):
    embeddings = vectors(2, 5)
    found = load_file(two_processes / "evaluation.safetensors")["loss"]
    assert found.item() == pytest.approx(InfoNCE()(embeddings).loss.item(), rel=1e-6)
