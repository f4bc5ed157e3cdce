"""Started by `torchrun` in `test_fsdp.py`: trains under FSDP2 on two processes of a CPU, and writes what they hold."""

import json
import os
import sys
from pathlib import Path

import yaml
from accelerate import PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer

from modeling_tmde.training import train as train_module
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.objectives import DistanceConstraint, TranslationObjective
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import make_dataset, make_rows, tiny_model

ARGUMENTS = {
    "max_steps": 4,
    "warmup_steps": 2,
    "logging_steps": 1,
    "eval_steps": 2,
    "save_steps": 2,
    "eval_pairs": ["de-en"],
    "micro_batch_tokens": 300,
    "learning_rate": 5e-3,
    "cooldown": 0.4,
    "seed": 7,
    "use_cpu": True,
    "disable_tqdm": True,
    "metric_for_best_model": "retrieval",
}


class ShardedOnCpu(TmdeTrainer):
    """accelerate shards on accelerators alone: `AcceleratorState` does not look at its FSDP plugin on a CPU. All that
    comes after, FSDP2 itself and what accelerate and transformers do with it, is the same on any device."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fsdp:
            state = self.accelerator.state
            state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
            if state.mixed_precision != "no":
                state.fsdp_plugin.set_mixed_precision(state.mixed_precision)
            state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
            self.is_fsdp_enabled = True


def parallel_model() -> ParallelModel:
    """The pyramid uses some layers several times, and its tables are tied."""
    objectives = {"translation": TranslationObjective(), "distance": DistanceConstraint(negatives=100)}
    return ParallelModel(tiny_model(seed=1, share_embeddings=True, bottleneck="pyramid"), objectives)


def run(tokenizer, folder: Path, resume: Path | None = None, **arguments) -> TmdeTrainer:
    """A short training on 150 rows in five languages, evaluated on 20 others."""
    args = TmdeTrainingArguments(output_dir=str(folder), **(ARGUMENTS | arguments))
    rows, dev = make_dataset(make_rows(150, seed=2)), make_dataset(make_rows(20, seed=3))
    trainer = ShardedOnCpu(parallel_model(), args, rows, tokenizer, eval_dataset={"dev": dev})
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    trainer.save_model(str(folder / "best"))
    return trainer


def forget_processes(distributed_type: DistributedType) -> None:
    """So that the next run may wrap its model in another way."""
    os.environ.pop("ACCELERATE_USE_FSDP", None)  # which TrainingArguments set
    AcceleratorState._reset_state()
    PartialState().distributed_type = distributed_type


def held(trainer: TmdeTrainer) -> dict:
    """What this process holds of the model, and how."""
    parameters = list(trainer.model.parameters())
    return {
        "numbers": sum(parameter.to_local().numel() for parameter in parameters if isinstance(parameter, DTensor)),
        "whole": sum(parameter.numel() for parameter in parameters),
        "units": sorted({type(module).__name__ for module in trainer.model.modules() if _is_unit(module)}),
        "best": trainer.state.best_global_step,
    }


def _is_unit(module: nn.Module) -> bool:
    return type(module).__name__.startswith("FSDP")


def main() -> None:
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    kind = PartialState(cpu=True).distributed_type
    rank = PartialState().process_index
    fsdp = {"fsdp": True, "fsdp_config": {"version": 2}}
    trainer = run(tokenizer, folder / "run", gradient_accumulation_steps=2, **fsdp)
    (folder / f"run-{rank}.json").write_text(json.dumps(held(trainer)))
    forget_processes(kind)
    run(tokenizer, folder / "resumed", folder / "run" / "checkpoint-2", gradient_accumulation_steps=2, **fsdp)
    forget_processes(kind)
    try:
        none = {"eval_strategy": "no", "load_best_model_at_end": False, "use_cpu": True}
        args = TmdeTrainingArguments(str(folder / "no"), max_steps=1, **none, **fsdp)
        TmdeTrainer(parallel_model(), args, make_dataset(make_rows(2)), tokenizer)
    except ValueError as error:
        (folder / f"refused-{rank}.txt").write_text(str(error))
    forget_processes(kind)
    train_module.TmdeTrainer = ShardedOnCpu
    overrides = yaml.safe_load((folder / "overrides.yaml").read_text())
    train_module.train_recipe(load_recipe("ctmde", overrides), folder / "recipe")


if __name__ == "__main__":
    main()
