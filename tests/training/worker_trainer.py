"""Started by `torchrun` in `test_distillation_training.py`: trains and writes the weights."""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from transformers import AutoTokenizer

from tests.conftest import make_dataset, make_rows, tiny_model
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import Distillation
from tmde.training.trainer import TmdeTrainer


def one_run(tokenizer, output_dir: str, teacher: str, **arguments) -> TmdeTrainer:
    """A short training on 150 rows in five languages, of which the teacher has a vector for
    half, evaluated on 20.
    """
    args = TmdeTrainingArguments(
        output_dir=output_dir, use_cpu=True, disable_tqdm=True, **arguments
    )
    rows = [
        row | {"en": row["en"] if place % 2 else None}
        for place, row in enumerate(make_rows(150, seed=2))
    ]
    trainer = TmdeTrainer(
        model=tiny_model(seed=1),
        args=args,
        train_dataset=make_dataset(rows),
        eval_dataset={"dev": make_dataset(make_rows(20, seed=3))},
        objectives={"distillation": Distillation(teacher, teacher_languages=["en"])},
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    tokenizer = AutoTokenizer.from_pretrained(options["tokenizer"])
    trainer = one_run(tokenizer, teacher=options["teacher"], **options["arguments"])
    rank = trainer.args.process_index
    state = {
        name: value.contiguous() for name, value in trainer.parallel_model.state_dict().items()
    }
    save_file(state, Path(options["arguments"]["output_dir"]) / f"weights-{rank}.safetensors")


if __name__ == "__main__":
    main()
