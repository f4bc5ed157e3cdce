"""Started by `torchrun` in `test_trainer.py`: trains as `one_run` says and writes the weights."""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from transformers import AutoTokenizer

from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.objectives import DistanceConstraint, Distillation, Objective, TranslationObjective
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import make_dataset, make_rows, tiny_model


def objectives(teacher: str | None = None) -> dict[str, Objective]:
    if teacher is not None:  # which has a vector for half of the rows
        return {"distillation": Distillation(teacher, teacher_languages=["en"])}
    return {"translation": TranslationObjective(), "distance": DistanceConstraint(negatives=100)}


def one_run(tokenizer, output_dir: str, teacher: str | None = None, **arguments) -> TmdeTrainer:
    """A short training on 150 rows in five languages, evaluated on 20 others; by a teacher's vectors alone if there
    is one."""
    args = TmdeTrainingArguments(output_dir=output_dir, use_cpu=True, disable_tqdm=True, **arguments)
    rows = make_rows(150, seed=2)
    if teacher is not None:
        rows = [row | {"en": row["en"] if place % 2 else None} for place, row in enumerate(rows)]
    trainer = TmdeTrainer(
        ParallelModel(tiny_model(seed=1), objectives(teacher)),
        args,
        make_dataset(rows),
        tokenizer,
        eval_dataset={"dev": make_dataset(make_rows(20, seed=3))},
    )
    trainer.train()
    return trainer


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    tokenizer = AutoTokenizer.from_pretrained(options["tokenizer"])
    trainer = one_run(tokenizer, teacher=options.get("teacher"), **options["arguments"])
    rank = trainer.args.process_index
    state = {name: value.contiguous() for name, value in trainer.model.state_dict().items()}
    save_file(state, Path(options["arguments"]["output_dir"]) / f"weights-{rank}.safetensors")
    (Path(options["arguments"]["output_dir"]) / f"seen-{rank}.json").write_text(
        json.dumps(
            {
                **trainer.throughput.seen,
                "world_size": trainer.args.world_size,
                "backend": str(trainer.args.ddp_backend),
            }
        )
    )


if __name__ == "__main__":
    main()
