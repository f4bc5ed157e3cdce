"""Started by `torchrun` in `test_gather.py`: gradients of batches that differ from process to process."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.training.objectives import BatchSizes, DistanceConstraint, InfoNCE, Objective, TranslationObjective
from modeling_tmde.training.objectives.base import EmbeddingObjective
from modeling_tmde.training.objectives.gather import sum_on_host
from modeling_tmde.training.parallel_model import ParallelModel
from tests.conftest import tiny_model

LENGTH, VOCABULARY = 7, 400
EVERY_NEGATIVE = 100


@dataclass
class Case:
    """One step of two processes.

    Attributes:
        objectives: Made anew for each model.
        batches: Languages and rows of either process.
    """

    objectives: dict[str, Objective]
    batches: list[tuple[tuple[str, ...], int]]


def distance(**options) -> DistanceConstraint:
    return DistanceConstraint(**{"weight": 1.0, "negatives": EVERY_NEGATIVE, "gather": True} | options)


THREE = [(("de", "en", "fr"), 2), (("de", "en", "fr"), 4)]
DIFFER = [(("de", "en", "fr"), 5), (("es", "it"), 3)]
ONE_ROW = [(("fr", "it"), 1), (("de", "en", "es", "fr"), 1)]
# In this order the decoder's gradients are exchanged while those of the vectors still have to be.
WITH_DECODER = [(("de", "en"), 4), (("de", "en"), 2)]

CASES = {
    "infonce three": Case({"infonce": InfoNCE(temperature=0.2)}, THREE),
    "infonce margin": Case({"infonce": InfoNCE(temperature=0.2, margin=0.3)}, [(("de", "en"), 1), (("de", "en"), 5)]),
    "infonce differ": Case({"infonce": InfoNCE(temperature=0.2)}, DIFFER),
    "infonce one row": Case({"infonce": InfoNCE(temperature=0.2)}, ONE_ROW),
    "distance three": Case({"distance": distance()}, THREE),
    "distance batch_mean_norm": Case({"distance": distance(normalizer="batch_mean_norm")}, THREE),
    "distance differ": Case({"distance": distance()}, DIFFER),
    "distance one row": Case({"distance": distance()}, ONE_ROW),
    "both translation": Case(
        {"distance": distance(), "infonce": InfoNCE(temperature=0.2), "translation": TranslationObjective()},
        WITH_DECODER,
    ),
}


def parallel_model(case: Case) -> ParallelModel:
    if "translation" in case.objectives:
        return ParallelModel(tiny_model(seed=1).train(), case.objectives)
    torch.manual_seed(1)
    return ParallelModel(BagModel(BagConfig(vocab_size=VOCABULARY, d_model=16)).train(), case.objectives)


def batch_of(case: Case, rank: int) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Token ids (languages, rows, length) without padding, and the languages."""
    languages, rows = case.batches[rank]
    generator = torch.Generator().manual_seed(10 * len(languages) + rank)
    ids = torch.randint(5, VOCABULARY, (len(languages), rows, LENGTH), generator=generator)
    ids[..., 0], ids[..., -1] = 0, 2
    return ids, languages


def counts(case: Case) -> dict[str, int]:
    """Of each objective over both processes."""
    totals = dict.fromkeys(case.objectives, 0)
    for languages, rows in case.batches:
        directions = rows * (len(languages) - 1) * sum(language in ("en", "es") for language in languages)
        sizes = BatchSizes(rows, len(languages), directions, directions * (LENGTH - 1), rows * len(languages) * LENGTH)
        for name, objective in case.objectives.items():
            totals[name] += objective.count(sizes)
    return totals


def gradients(case: Case, ids: torch.Tensor, languages: tuple[str, ...], processes: int) -> dict[str, torch.Tensor]:
    """Gradients and components after one step scaled as `TmdeTrainer.compute_loss` does."""
    parallel = parallel_model(case)
    model = DistributedDataParallel(parallel) if processes > 1 else parallel
    outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids), languages=languages)
    sum(outputs[name]["total"] * processes / count for name, count in counts(case).items()).backward()
    found = {name: parameter.grad.clone() for name, parameter in parallel.model.named_parameters()}
    for name, objective in case.objectives.items():
        if isinstance(objective, EmbeddingObjective):
            components = outputs[name].items()
            found |= {f"= {name} {part}": value.detach().float().clone() for part, value in components}
    return found


def main() -> None:
    distributed.init_process_group("gloo")
    rank, folder = distributed.get_rank(), Path(sys.argv[1])
    for name, case in CASES.items():
        save_file(gradients(case, *batch_of(case, rank), processes=2), folder / f"{name}-{rank}.safetensors")
    if rank == 0:  # an evaluation of one process alone waits for no other
        vectors = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
        evaluated = {"infonce": InfoNCE(), "distance": distance()}
        losses = {name: objective.eval()(vectors).loss for name, objective in evaluated.items()}
        save_file(losses, folder / "evaluation.safetensors")
    sums = sum_on_host([0.1, 10.0**9 + rank])
    save_file({"sums": torch.tensor(sums, dtype=torch.float64)}, folder / f"sums-{rank}.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
