"""Started by `torchrun` in `test_trainer.py`: trains as `one_run` says and writes the weights."""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from transformers import AutoTokenizer

from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.objectives import DistanceConstraint, TranslationObjective
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import make_dataset, make_rows, tiny_model


def one_run(tokenizer, output_dir: str, **arguments) -> TmdeTrainer:
    """A short training on 150 rows in five languages, evaluated on 20 others."""
    parallel = ParallelModel(
        tiny_model(seed=1), {"translation": TranslationObjective(), "distance": DistanceConstraint(negatives=100)}
    )
    args = TmdeTrainingArguments(output_dir=output_dir, use_cpu=True, disable_tqdm=True, **arguments)
    trainer = TmdeTrainer(
        parallel,
        args,
        make_dataset(make_rows(150, seed=2)),
        tokenizer,
        eval_dataset=make_dataset(make_rows(20, seed=3)),
    )
    trainer.train()
    return trainer


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    trainer = one_run(AutoTokenizer.from_pretrained(options["tokenizer"]), **options["arguments"])
    rank = trainer.args.process_index
    state = {name: value.contiguous() for name, value in trainer.model.state_dict().items()}
    save_file(state, Path(options["arguments"]["output_dir"]) / f"weights-{rank}.safetensors")
    (Path(options["arguments"]["output_dir"]) / f"seen-{rank}.json").write_text(
        json.dumps({**trainer.seen, "world_size": trainer.args.world_size, "backend": str(trainer.args.ddp_backend)})
    )


if __name__ == "__main__":
    main()
