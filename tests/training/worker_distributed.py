"""Started by `torchrun` in `test_distributed.py`; each process writes what it holds.

It takes gradients of batches that differ from process to process, and trains under FSDP2.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from safetensors.torch import save_file
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer

from modeling_tmde import BagConfig, BagModel
from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training import test_goldens
from tmde.data.rows import triple_texts
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import (
    OBJECTIVES,
    BatchSizes,
    InfoNCE,
    Objective,
    TranslationObjective,
)
from tmde.training.objectives.base import EmbeddingObjective
from tmde.training.objectives.gather import sum_on_host
from tmde.training.parallel_model import ParallelModel
from tmde.training.trainer import TmdeTrainer

LENGTH = 7
VOCABULARY = 400


# ---- Gathered negatives


def infonce(**options) -> InfoNCE:
    return InfoNCE(temperature=0.2, **options)


THREE = [(("de", "en", "fr"), 2), (("de", "en", "fr"), 4)]
DIFFER = [(("de", "en", "fr"), 5), (("es", "it"), 3)]
ONE_ROW = [(("fr", "it"), 1), (("de", "en", "es", "fr"), 1)]

# Objectives, and the languages and rows of either process.
Case = tuple[dict[str, Objective], list[tuple[tuple[str, ...], int]]]
CASES: dict[str, Case] = {
    "infonce three": ({"infonce": infonce(margin=0.3)}, THREE),
    "infonce nested": ({"infonce": infonce(dims=[4, 16])}, THREE),
    # Alone, the processes would draw different prefixes.
    "infonce drawn": ({"infonce": infonce(dims=[2, 4, 16], dims_per_step=1)}, THREE),
    "infonce differ": ({"infonce": infonce()}, DIFFER),
    "infonce one row": ({"infonce": infonce()}, ONE_ROW),
    "infonce triples": (
        {"infonce": infonce(margin=0.3, dims=[4, 16])},
        [(("anchor", "positive", "negative"), 2), (("anchor", "positive", "negative"), 4)],
    ),
    "infonce negatives differ": (
        {"infonce": infonce()},
        [(("anchor", "positive"), 3), (("anchor", "positive", "negative_1", "negative_2"), 2)],
    ),
    # In this order the decoder's gradients are exchanged while those of the vectors still have to
    # be.
    "infonce translation": (
        {"infonce": infonce(), "translation": TranslationObjective()},
        [(("de", "en"), 4), (("de", "en"), 2)],
    ),
}


def model_of(objectives: dict[str, Objective]) -> ParallelModel:
    if "translation" in objectives:
        return ParallelModel(tiny_model(seed=1).train(), objectives)
    torch.manual_seed(1)
    return ParallelModel(BagModel(BagConfig(vocab_size=VOCABULARY, d_model=16)).train(), objectives)


def batch_of(case: Case, rank: int) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Token ids (languages, rows, length) without padding, and the languages."""
    languages, rows = case[1][rank]
    generator = torch.Generator().manual_seed(10 * len(languages) + rank)
    ids = torch.randint(5, VOCABULARY, (len(languages), rows, LENGTH), generator=generator)
    ids[..., 0] = 0
    ids[..., -1] = 2
    return ids, languages


def counts(case: Case) -> dict[str, int]:
    """Return the number of terms of each objective over both processes."""
    totals = dict.fromkeys(case[0], 0)
    for languages, rows in case[1]:
        num_pivots = len({"en", "es"}.intersection(languages))
        directions = (len(languages) - 1) * num_pivots
        sizes = BatchSizes(
            rows=rows,
            languages=len(languages),
            directions=rows * directions,
            target_tokens=rows * directions * (LENGTH - 1),
            tokens=rows * len(languages) * LENGTH,
            has_triples="anchor" in languages,
        )
        for name, objective in case[0].items():
            totals[name] += objective.count(sizes)
    return totals


def gradients(
    case: Case, ids: torch.Tensor, languages: tuple[str, ...], processes: int, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Return gradients and components after a step scaled as `TmdeTrainer.compute_loss` does.

    Args:
        case: The objectives.
        ids: Token ids (languages, rows, length).
        languages: The languages.
        processes: The number of processes that do this together.
        seed: That of what the objectives draw.
    """
    parallel = model_of(case[0])
    model = DistributedDataParallel(parallel) if processes > 1 else parallel
    lengths = np.full(ids.shape[:2], ids.shape[2])
    batch = SimpleNamespace(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        languages=languages,
        sizes=SimpleNamespace(has_triples=bool(triple_texts(languages))),
        lengths=lengths,
    )
    torch.manual_seed(seed)
    outputs = model(batch)
    loss = 0.0
    for name, count in counts(case).items():
        loss = loss + outputs[name]["total"] * processes / count
    loss.backward()
    tensors = {}
    for name, parameter in parallel.model.named_parameters():
        tensors[name] = parameter.grad.clone()
    for name, objective in case[0].items():
        if isinstance(objective, EmbeddingObjective):
            for part, value in outputs[name].items():
                tensors[f"= {name} {part}"] = value.detach().float().clone()
    return tensors


def gather(folder: Path, rank: int) -> None:
    """Write what this process computes while the others compute the same."""
    for name, case in CASES.items():
        ids, languages = batch_of(case, rank)
        tensors = gradients(case, ids, languages, processes=2, seed=rank)
        save_file(tensors, folder / f"{name}-{rank}.safetensors")
    if rank == 0:  # An evaluation of one process alone waits for no other.
        vectors = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
        save_file({"infonce": InfoNCE().eval()(vectors).loss}, folder / "evaluation.safetensors")
    wrap = partial(DistributedDataParallel, find_unused_parameters=True)
    for case in OBJECTIVE_CASES:
        tensors = objective_gradients(case, [rank], wrap)
        save_file(tensors, folder / f"objectives {case}-{rank}.safetensors")
    sums = torch.tensor(sum_on_host([0.1, 10.0**9 + rank]), dtype=torch.float64)
    save_file({"sums": sums}, folder / f"sums-{rank}.safetensors")


# ---- Every objective

OBJECTIVE_CASES = test_goldens.CASES | {
    "nli": (test_goldens.bag, {"nli": {"hidden_size": 8}}),
    "causal": (partial(test_goldens.encoder, causal=True), {"causal_lm": {}}),
}


def half_of_batch(case: str, rank: int) -> SimpleNamespace:
    """Return the rows of one process."""
    batch = test_goldens.batch() | {"labels": torch.arange(6) % 3}
    rows = slice(3 * rank, 3 * rank + 3)
    texts = slice(2 if case == "nli" else 3)  # NLI reads a premise and a hypothesis.
    half = {"languages": batch["languages"][texts], "sizes": batch["sizes"]}
    for name in ("input_ids", "attention_mask", "lengths"):
        half[name] = batch[name][texts, rows]
    for name in ("teacher_vectors", "taught", "labels"):
        half[name] = batch[name][rows]
    return SimpleNamespace(**half)


def objective_gradients(
    case: str, ranks: Sequence[int], wrap: Callable = lambda parallel: parallel
) -> dict[str, torch.Tensor]:
    """Return the gradients of a model that reads halves of a batch, one after the other.

    Args:
        case: The name of the model with its objectives.
        ranks: The processes whose halves are read.
        wrap: Wraps the model.
    """
    make, options = OBJECTIVE_CASES[case]
    torch.manual_seed(0)
    objectives = {}
    for name, values in options.items():
        if name != "infonce":
            objectives[name] = OBJECTIVES[name](**values)
    parallel = ParallelModel(make(), objectives).double().train()
    model = wrap(parallel)
    for rank in ranks:
        torch.manual_seed(rank)  # Negatives and masks are drawn.
        outputs = model(half_of_batch(case, rank))
        loss = 0.0
        for name, output in outputs.items():
            loss = loss + objectives[name].weight * output["total"]
        loss.backward()
    gradients_by_name = {}
    for name, parameter in parallel.named_parameters():
        if parameter.grad is not None:
            gradients_by_name[name] = parameter.grad
    return gradients_by_name


# ---- FSDP2


ARGUMENTS = {
    "max_steps": 4,
    "warmup_steps": 2,
    "logging_steps": 1,
    "eval_steps": 2,
    "save_steps": 2,
}
ARGUMENTS |= {
    "eval_pairs": ["de-en"],
    "micro_batch_tokens": 300,
    "learning_rate": 5e-3,
    "cooldown": 0.4,
    "seed": 7,
}
ARGUMENTS |= {"use_cpu": True, "disable_tqdm": True, "metric_for_best_model": "retrieval"}


class ShardedOnCpu(TmdeTrainer):
    """accelerate shards on accelerators alone: `AcceleratorState` does not look at its FSDP plugin
    on a CPU. All that comes after, FSDP2 itself and what accelerate and transformers do with it, is
    the same on any device.
    """

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fsdp:
            state = self.accelerator.state
            state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
            if state.mixed_precision != "no":
                state.fsdp_plugin.set_mixed_precision(state.mixed_precision)
            state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
            self.is_fsdp_enabled = True


def fsdp_options(tokenizer) -> dict:
    """The pyramid uses some layers several times, and its tables are tied."""
    return {
        "model": tiny_model(seed=1, share_embeddings=True, bottleneck="pyramid"),
        "objectives": {"translation": 0.5, "distance": {"negatives": 100}},
        "processing_class": tokenizer,
    }


def run(tokenizer, folder: Path, resume: Path | None = None, **arguments) -> TmdeTrainer:
    """A short training on 150 rows in five languages, evaluated on 20 others."""
    args = TmdeTrainingArguments(output_dir=str(folder), **(ARGUMENTS | arguments))
    rows = make_dataset(make_rows(150, seed=2))
    dev = make_dataset(make_rows(20, seed=3))
    options = fsdp_options(tokenizer)
    trainer = ShardedOnCpu(args=args, train_dataset=rows, eval_dataset={"dev": dev}, **options)
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    trainer.save_model(str(folder / "best"))
    return trainer


def forget_processes(distributed_type: DistributedType) -> None:
    """Forget how a model was wrapped, so that the next run may wrap its own in another way."""
    os.environ.pop("ACCELERATE_USE_FSDP", None)  # TrainingArguments have set it.
    AcceleratorState._reset_state()
    PartialState().distributed_type = distributed_type


def count_numbers(model: ParallelModel) -> dict[str, int]:
    """Return how many numbers the model has, `whole`, and how many this process holds."""
    held = 0
    whole = 0
    for parameter in model.parameters():
        whole += parameter.numel()
        if isinstance(parameter, DTensor):
            held += parameter.to_local().numel()
    return {"numbers": held, "whole": whole}


def main() -> None:
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    kind = PartialState(cpu=True).distributed_type
    rank = PartialState().process_index
    gather(folder, rank)
    fsdp = {"fsdp": True, "fsdp_config": {"version": 2}, "gradient_accumulation_steps": 2}
    trainer = run(tokenizer, folder / "run", **fsdp)
    record = {**count_numbers(trainer.parallel_model), "best": trainer.state.best_global_step}
    (folder / f"run-{rank}.json").write_text(json.dumps(record))
    forget_processes(kind)
    run(tokenizer, folder / "resumed", folder / "run" / "checkpoint-2", **fsdp)
    forget_processes(kind)
    none = {"eval_strategy": "no", "load_best_model_at_end": False, "use_cpu": True}
    try:
        args = TmdeTrainingArguments(str(folder / "no"), max_steps=1, **none, **fsdp)
        rows = make_dataset(make_rows(2))
        TmdeTrainer(args=args, train_dataset=rows, **fsdp_options(tokenizer))
    except ValueError as error:
        (folder / f"refused-{rank}.txt").write_text(str(error))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
