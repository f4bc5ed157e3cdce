"""Two processes: gathered negatives, and FSDP2, give the gradients of one process."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training import references
from tests.training import worker_distributed as worker
from tests.training.trainers import on_two_processes
from tmde.training.objectives import InfoNCE

SAME_LANGUAGES = [
    name for name, (_, (first, second)) in worker.CASES.items() if first[0] == second[0]
]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer) -> Path:
    """What `worker_distributed.py` wrote on two processes."""
    folder = tmp_path_factory.mktemp("two")
    tokenizer.save_pretrained(folder / "tokenizer")
    on_two_processes("worker_distributed.py", folder, HF_DATASETS_CACHE=str(folder / "cache"))
    return folder


# ---- Gathered negatives


def of_both(folder: Path, name: str) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / f"{name}-{rank}.safetensors") for rank in (0, 1)]


def components(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in found.items() if name.startswith("= ")}


@pytest.mark.parametrize("name", SAME_LANGUAGES)
def test_gradient_of_two_processes_is_that_of_one_with_all_rows(name, folder):
    case = worker.CASES[name]
    found = of_both(folder, name)
    (ids, languages), (others, _) = (worker.batch_of(case, rank) for rank in (0, 1))
    expected = worker.gradients(case, torch.cat([ids, others], dim=1), languages, processes=1)
    assert components(expected)
    for key, value in expected.items():
        if key in components(expected):
            torch.testing.assert_close(found[0][key] + found[1][key], value, rtol=1e-5, atol=1e-5)
        else:
            assert value.abs().max() > 1e-3 or key not in (
                "embed_tokens.weight",
                "model.embed_tokens.weight",
            )
            for gradients in found:
                torch.testing.assert_close(gradients[key], value, rtol=1e-4, atol=1e-6)
    # The rows of the other process matter, or the test would say nothing.
    alone = [worker.gradients(case, *worker.batch_of(case, rank), processes=1) for rank in (0, 1)]
    table = next(key for key in expected if key.endswith("embed_tokens.weight"))
    assert (sum(found[table] for found in alone) - expected[table]).norm() > 0.02 * expected[
        table
    ].norm()


@pytest.mark.parametrize("name", ["infonce differ", "infonce one row"])
def test_processes_with_other_languages_and_rows(name, folder):
    """No process waits for another, and texts at the same place among the languages are the
    negatives.
    """
    case = worker.CASES[name]
    found = of_both(folder, name)
    model = worker.model_of(case[0]).encoder
    embeddings = []
    for rank in (0, 1):
        ids, _ = worker.batch_of(case, rank)
        embeddings.append(model(ids.flatten(0, 1)).pooler_output.unflatten(0, ids.shape[:2]))
    loss = references.infonce(embeddings, temperature=0.2)
    (loss / worker.counts(case)["infonce"]).backward()
    for key, parameter in model.named_parameters():
        for gradients in found:
            torch.testing.assert_close(gradients[key], parameter.grad, rtol=1e-4, atol=1e-6)
    assert sum(parts["= infonce loss"] for parts in found).item() == pytest.approx(
        loss.item(), rel=1e-5
    )


@pytest.mark.parametrize("case", worker.OBJECTIVE_CASES)
def test_two_processes_are_one_that_accumulates_for_every_objective(case, folder):
    """Gradients, in double precision; negatives and masks are drawn alike."""
    expected = worker.objective_gradients(case, [0, 1])
    found = of_both(folder, f"objectives {case}")
    for rank in (0, 1):
        assert found[rank].keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                2 * found[rank][name], value, rtol=1e-6, atol=1e-6
            )  # DDP takes the mean
    alone = worker.objective_gradients(case, [0])
    assert max((alone[name] - value).abs().max() for name, value in expected.items()) > 1e-3


def test_one_process_gathers_nothing_and_numbers_are_summed_in_double_precision(folder):
    embeddings = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    found = load_file(folder / "evaluation.safetensors")
    assert found["infonce"].item() == pytest.approx(InfoNCE()(embeddings).loss.item(), rel=1e-6)
    for rank in (0, 1):
        assert load_file(folder / f"sums-{rank}.safetensors")["sums"].tolist() == [
            0.2,
            2 * 10.0**9 + 1,
        ]


# ---- FSDP2


def log_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def assert_same_weights(found: Path, expected: Path) -> None:
    weights, others = (load_file(path / "model.safetensors") for path in (found, expected))
    assert set(weights) == set(others)
    for name, value in others.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=2e-5)


def assert_same_log(found: Path, expected: Path, from_step: int = 0) -> None:
    logs = [
        [entry for entry in log_of(path) if entry["step"] > from_step] for path in (found, expected)
    ]
    assert [set(entry) for entry in logs[0]] == [set(entry) for entry in logs[1]]
    estimates = ("rows", "minutes", "second", "data_wait", "padding", "total_flos", "runtime")
    estimates += ("train_loss",) if from_step else ()
    for entry, other in zip(*logs, strict=True):
        compared = {
            name: value
            for name, value in entry.items()
            if not any(part in name for part in estimates)
        }
        assert compared == pytest.approx(
            {name: other[name] for name in compared}, rel=1e-4, abs=1e-5
        )


def test_two_processes_train_and_evaluate_as_one_that_accumulates(folder, tokenizer, tmp_path):
    trainer = worker.run(tokenizer, tmp_path, gradient_accumulation_steps=4)
    assert_same_log(folder / "run", tmp_path)
    for name in ("checkpoint-2", "checkpoint-4", "best"):
        assert_same_weights(folder / "run" / name, tmp_path / name)
    start = worker.fsdp_model().model.state_dict()
    weights = load_file(folder / "run" / "checkpoint-4" / "model.safetensors")
    assert (
        max((weights[name] - start[name]).abs().max() for name in weights) > 1e-3
    )  # something was learned
    for rank in (0, 1):
        held = json.loads((folder / f"run-{rank}.json").read_text())
        assert held["best"] == trainer.state.best_global_step
        assert 0.4 * held["whole"] < held["numbers"] < 0.6 * held["whole"]


def test_resumed_run_ends_as_one_that_was_not_interrupted(folder):
    assert_same_log(folder / "resumed", folder / "run", from_step=2)
    for name in ("checkpoint-4", "best"):
        assert_same_weights(folder / "resumed" / name, folder / "run" / name)


def test_checkpoints_open_as_any_folder(folder):
    path = folder / "run" / "checkpoint-4"
    batch = AutoTokenizer.from_pretrained(path)(["Das Haus ist alt."], return_tensors="pt")
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    assert AutoModel.from_pretrained(path).eval()(**inputs).pooler_output.isfinite().all()
    assert (
        AutoModelForSeq2SeqLM.from_pretrained(path)
        .generate(**inputs, target_language="en")
        .shape[0]
        == 1
    )


def test_what_accelerate_would_ignore_is_refused(folder):
    for rank in (0, 1):
        found = (folder / f"refused-{rank}.txt").read_text()
        assert found.startswith("fsdp: found processes on cpu")
