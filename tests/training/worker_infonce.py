"""Started by `torchrun` in `test_infonce.py`: gradients of batches that differ from process to process."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.training.objectives import BatchSizes, InfoNCE, Objective, TranslationObjective
from modeling_tmde.training.parallel_model import ParallelModel
from tests.conftest import tiny_model

LENGTH, VOCABULARY = 7, 400
# For each case the languages and rows of either process.
CASES = {
    "agree": [(("de", "en"), 6), (("de", "en"), 3)],
    "three": [(("de", "en", "fr"), 2), (("de", "en", "fr"), 4)],
    "margin": [(("de", "en"), 1), (("de", "en"), 5)],
    "translation": [(("de", "en"), 4), (("de", "en"), 2)],
    "not gathered": [(("de", "en"), 6), (("de", "en"), 3)],
    "differ": [(("de", "en", "fr"), 5), (("es", "it"), 3)],
    "one row": [(("fr", "it"), 1), (("de", "en", "es", "fr"), 1)],
}


def objectives(case: str) -> dict[str, Objective]:
    infonce = InfoNCE(temperature=0.2, margin=0.3 if case == "margin" else 0.0, gather=case != "not gathered")
    # In this order the decoder's gradients are exchanged while those of the vectors still have to be.
    return {"infonce": infonce} | ({"translation": TranslationObjective()} if case == "translation" else {})


def parallel_model(case: str) -> ParallelModel:
    if case == "translation":
        return ParallelModel(tiny_model(seed=1).train(), objectives(case))
    torch.manual_seed(1)
    return ParallelModel(BagModel(BagConfig(vocab_size=VOCABULARY, d_model=16)).train(), objectives(case))


def batch_of(case: str, rank: int) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Token ids (languages, rows, length) without padding, and the languages."""
    languages, rows = CASES[case][rank]
    generator = torch.Generator().manual_seed(10 * list(CASES).index(case) + rank)
    ids = torch.randint(5, VOCABULARY, (len(languages), rows, LENGTH), generator=generator)
    ids[..., 0], ids[..., -1] = 0, 2
    return ids, languages


def counts(case: str) -> dict[str, int]:
    """Of each objective over both processes."""
    totals = dict.fromkeys(objectives(case), 0)
    for languages, rows in CASES[case]:
        directions = rows * (len(languages) - 1) * sum(language in ("en", "es") for language in languages)
        sizes = BatchSizes(rows, len(languages), directions, directions * (LENGTH - 1))
        for name, objective in objectives(case).items():
            totals[name] += objective.count(sizes)
    return totals


def gradients(case: str, ids: torch.Tensor, languages: tuple[str, ...], processes: int) -> dict[str, torch.Tensor]:
    """Gradients and components after one step scaled as `TmdeTrainer.compute_loss` does."""
    parallel = parallel_model(case)
    model = DistributedDataParallel(parallel) if processes > 1 else parallel
    outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids), languages=languages)
    sum(outputs[name]["total"] * processes / count for name, count in counts(case).items()).backward()
    found = {name: parameter.grad.clone() for name, parameter in parallel.model.named_parameters()}
    return found | {f"infonce {name}": value.detach().float().clone() for name, value in outputs["infonce"].items()}


def main() -> None:
    distributed.init_process_group("gloo")
    rank, folder = distributed.get_rank(), Path(sys.argv[1])
    for case in CASES:
        save_file(gradients(case, *batch_of(case, rank), processes=2), folder / f"{case}-{rank}.safetensors")
    if rank == 0:  # an evaluation of one process alone waits for no other
        vectors = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
        save_file({"loss": InfoNCE().eval()(vectors).loss}, folder / "evaluation.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
