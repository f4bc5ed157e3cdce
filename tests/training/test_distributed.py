"""Two processes: gathered negatives, and FSDP2, give the gradients of one process."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training import references
from tests.training import worker_distributed as worker
from tests.training.logs import read_log
from tests.training.trainers import on_two_processes
from tmde.training.objectives import InfoNCE

SAME_LANGUAGES = [
    "infonce three",
    "infonce nested",
    "infonce drawn",
    "infonce triples",
    "infonce translation",
]
RANKS = (0, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer) -> Path:
    """What `worker_distributed.py` wrote on two processes."""
    folder = tmp_path_factory.mktemp("two")
    tokenizer.save_pretrained(folder / "tokenizer")
    on_two_processes("worker_distributed.py", folder, HF_DATASETS_CACHE=str(folder / "cache"))
    return folder


# ---- Gathered negatives


def of_both(folder: Path, name: str) -> list[dict[str, torch.Tensor]]:
    """Return what both processes wrote under a name."""
    return [load_file(folder / f"{name}-{rank}.safetensors") for rank in RANKS]


def is_component(key: str) -> bool:
    """Return whether a tensor is a sum of an objective, and not a gradient."""
    return key.startswith("= ")


def table_of(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the gradient of the encoder's table."""
    for key, gradient in gradients.items():
        if key.endswith("embed_tokens.weight"):
            return gradient
    raise AssertionError("the model has no table")


@pytest.mark.parametrize("name", SAME_LANGUAGES)
def test_gradient_of_two_processes_is_that_of_one_with_all_rows(name, folder):
    case = worker.CASES[name]
    first_ids, languages = worker.batch_of(case, rank=0)
    second_ids, _ = worker.batch_of(case, rank=1)
    all_ids = torch.cat([first_ids, second_ids], dim=1)
    expected = worker.gradients(case, all_ids, languages, processes=1)

    first, second = of_both(folder, name)

    assert any(map(is_component, expected))
    assert table_of(expected).abs().max() > 1e-3
    for key, value in expected.items():
        if is_component(key):
            torch.testing.assert_close(first[key] + second[key], value, rtol=1e-5, atol=1e-5)
        else:
            torch.testing.assert_close(first[key], value, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(second[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SAME_LANGUAGES)
def test_the_rows_of_the_other_process_matter(name):
    """Otherwise the test above would say nothing."""
    case = worker.CASES[name]
    first_ids, languages = worker.batch_of(case, rank=0)
    second_ids, _ = worker.batch_of(case, rank=1)
    all_ids = torch.cat([first_ids, second_ids], dim=1)

    together = table_of(worker.gradients(case, all_ids, languages, processes=1))
    first = table_of(worker.gradients(case, first_ids, languages, processes=1))
    second = table_of(worker.gradients(case, second_ids, languages, processes=1))

    assert (first + second - together).norm() > 0.02 * together.norm()


@pytest.mark.parametrize("name", ["infonce differ", "infonce one row"])
def test_processes_with_other_languages_and_rows(name, folder):
    """No process waits for another.

    The texts at the same place among the languages are the negatives.
    """
    case = worker.CASES[name]
    model = worker.model_of(case[0]).encoder
    embeddings = []
    for rank in RANKS:
        ids, _ = worker.batch_of(case, rank)
        embeddings.append(model(ids.flatten(0, 1)).pooler_output.unflatten(0, ids.shape[:2]))
    loss = references.infonce(embeddings, temperature=0.2)
    (loss / worker.counts(case)["infonce"]).backward()

    first, second = of_both(folder, name)

    for key, parameter in model.named_parameters():
        torch.testing.assert_close(first[key], parameter.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(second[key], parameter.grad, rtol=1e-4, atol=1e-6)
    sum_of_both = first["= infonce loss"] + second["= infonce loss"]
    assert sum_of_both.item() == pytest.approx(loss.item(), rel=1e-5)


def test_hard_negatives_of_the_other_process(folder):
    """Every anchor has those of both processes, though one process has none."""
    case = worker.CASES["infonce negatives differ"]
    model = worker.model_of(case[0]).encoder
    anchors = []
    positives = []
    negatives = []
    for rank in RANKS:
        ids, _ = worker.batch_of(case, rank)
        vectors = model(ids.flatten(0, 1)).pooler_output.unflatten(0, ids.shape[:2])
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
        anchors.append(vectors[0])
        positives.append(vectors[1])
        negatives.append(vectors[2:].flatten(0, 1))
    logits = torch.cat(anchors) @ torch.cat([*positives, *negatives]).T / 0.2  # (5, 9)
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(5))
    loss.backward()

    first, second = of_both(folder, "infonce negatives differ")

    for key, parameter in model.named_parameters():
        torch.testing.assert_close(first[key], parameter.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(second[key], parameter.grad, rtol=1e-4, atol=1e-6)
    sum_of_both = first["= infonce loss"] + second["= infonce loss"]
    assert sum_of_both.item() == pytest.approx(5 * loss.item(), rel=1e-5)


@pytest.mark.parametrize("case", worker.OBJECTIVE_CASES)
def test_two_processes_are_one_that_accumulates_for_every_objective(case, folder):
    """Compare gradients in double precision; negatives and masks are drawn alike."""
    expected = worker.objective_gradients(case, RANKS)
    for gradients in of_both(folder, f"objectives {case}"):
        assert gradients.keys() == expected.keys()
        for name, value in expected.items():
            # DDP takes the mean of two.
            torch.testing.assert_close(2 * gradients[name], value, rtol=1e-6, atol=1e-6)
    alone = worker.objective_gradients(case, [0])
    largest_difference = 0.0
    for name, value in expected.items():
        difference = (alone[name] - value).abs().max().item()
        largest_difference = max(largest_difference, difference)
    assert largest_difference > 1e-3


def test_one_process_gathers_nothing(folder):
    embeddings = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    loss = load_file(folder / "evaluation.safetensors")["infonce"]
    assert loss.item() == pytest.approx(InfoNCE()(embeddings).loss.item(), rel=1e-6)


def test_numbers_are_summed_in_double_precision(folder):
    for sums in of_both(folder, "sums"):
        assert sums["sums"].tolist() == [0.2, 2 * 10.0**9 + 1]


# ---- FSDP2


def assert_same_weights(folder: Path, expected_folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    expected = load_file(expected_folder / "model.safetensors")
    assert set(weights) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=2e-5)


# Parts of the names of values that depend on the time or on how data are distributed.
VARYING = ("rows", "minutes", "second", "data_wait", "padding", "total_flos", "runtime")


def entries_after(folder: Path, step: int) -> list[dict]:
    return [entry for entry in read_log(folder) if entry["step"] > step]


def comparable_log(folder: Path, from_step: int) -> list[dict]:
    """Return the log after a step, without what differs between runs that train alike."""
    varying = VARYING
    if from_step:
        varying = (*VARYING, "train_loss")
    entries = entries_after(folder, from_step)
    for entry in entries:
        for name in list(entry):
            if any(part in name for part in varying):
                del entry[name]
    return entries


def assert_same_log(folder: Path, expected_folder: Path, from_step: int = 0) -> None:
    names = list(map(set, entries_after(folder, from_step)))
    assert names == list(map(set, entries_after(expected_folder, from_step)))
    entries = comparable_log(folder, from_step)
    expected_entries = comparable_log(expected_folder, from_step)
    assert len(entries) == len(expected_entries)
    for entry, expected in zip(entries, expected_entries, strict=True):
        assert entry == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.fixture(scope="module")
def accumulated(tokenizer, tmp_path_factory) -> tuple[Path, int]:
    """The run of one process that accumulates, and its best step."""
    folder = tmp_path_factory.mktemp("accumulated")
    trainer = worker.run(tokenizer, folder, gradient_accumulation_steps=4)
    return folder, trainer.state.best_global_step


def test_two_processes_train_and_evaluate_as_one_that_accumulates(folder, accumulated):
    one_process, _ = accumulated
    assert_same_log(folder / "run", one_process)
    for name in ("checkpoint-2", "checkpoint-4", "best"):
        assert_same_weights(folder / "run" / name, one_process / name)


def test_the_model_has_learned_something(folder):
    begin = worker.fsdp_options(tokenizer=None)["model"].state_dict()
    weights = load_file(folder / "run" / "checkpoint-4" / "model.safetensors")
    largest_change = 0.0
    for name, value in weights.items():
        largest_change = max(largest_change, (value - begin[name]).abs().max().item())
    assert largest_change > 1e-3


@pytest.mark.parametrize("rank", RANKS)
def test_each_process_holds_half_of_the_numbers(rank, folder, accumulated):
    _, best_step = accumulated
    record = json.loads((folder / f"run-{rank}.json").read_text())
    assert record["best"] == best_step
    assert 0.4 * record["whole"] < record["numbers"] < 0.6 * record["whole"]


def test_resumed_run_ends_as_one_that_was_not_interrupted(folder):
    assert_same_log(folder / "resumed", folder / "run", from_step=2)
    for name in ("checkpoint-4", "best"):
        assert_same_weights(folder / "resumed" / name, folder / "run" / name)


def test_checkpoints_open_as_any_folder(folder):
    path = folder / "run" / "checkpoint-4"
    batch = AutoTokenizer.from_pretrained(path)(["Das Haus ist alt."], return_tensors="pt")
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    encoder = AutoModel.from_pretrained(path).eval()
    whole = AutoModelForSeq2SeqLM.from_pretrained(path)
    assert encoder(**inputs).pooler_output.isfinite().all()
    assert len(whole.generate(**inputs, target_language="en")) == 1


@pytest.mark.parametrize("rank", RANKS)
def test_what_accelerate_would_ignore_is_refused(rank, folder):
    message = (folder / f"refused-{rank}.txt").read_text()
    assert message.startswith("fsdp: found processes on cpu")
