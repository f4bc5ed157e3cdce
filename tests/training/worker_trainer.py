"""Started by `torchrun` in `test_trainer.py`: trains as `one_run` says and writes the weights."""

import dataclasses
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoTokenizer

from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatch
from modeling_tmde.training.objectives import (
    BatchSizes,
    DistanceConstraint,
    Distillation,
    InfoNCE,
    Objective,
    TranslationObjective,
)
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import LANGUAGES, make_dataset, make_rows, tiny_model


def joined(one: ParallelBatch, other: ParallelBatch) -> ParallelBatch:
    """The rows of two batches in the same languages, in one."""
    assert one.languages == other.languages
    width = max(one.input_ids.shape[2], other.input_ids.shape[2])

    def padded(tensors: list[torch.Tensor], value: int) -> torch.Tensor:
        wide = [torch.nn.functional.pad(tensor, (0, width - tensor.shape[2]), value=value) for tensor in tensors]
        return torch.cat(wide, dim=1)

    sizes = [dataclasses.astuple(batch.sizes) for batch in (one, other)]
    rows, targets, tokens = (sum(size[place] for size in sizes) for place in (0, 3, 4))
    return dataclasses.replace(
        other,
        input_ids=padded([one.input_ids, other.input_ids], tiny_model().config.pad_token_id),
        attention_mask=padded([one.attention_mask, other.attention_mask], 0),
        sizes=BatchSizes(rows, one.sizes.languages, one.sizes.directions, targets, tokens),
        lengths=np.concatenate([one.lengths, other.lengths], axis=1),
        words=tuple(np.add(one.words, other.words).tolist()),
    )


class JoiningTrainer(TmdeTrainer):
    """One process that trains on the micro-batches of two at once."""

    def get_train_dataloader(self) -> DataLoader:
        class Joined(IterableDataset):
            def __iter__(inner):
                return itertools.starmap(joined, zip(*[iter(batches)] * 2, strict=False))

        batches = super().get_train_dataloader()
        return DataLoader(Joined(), batch_size=None, generator=torch.Generator())


def objectives(gathered: bool, teacher: str | None = None) -> dict[str, Objective]:
    if teacher is not None:  # which has a vector for half of the rows
        return {"distillation": Distillation(teacher, teacher_languages=["en"])}
    found = {"translation": TranslationObjective(), "distance": DistanceConstraint(negatives=100, gather=gathered)}
    return found | ({"infonce": InfoNCE(temperature=0.2)} if gathered else {})


def one_run(
    tokenizer, output_dir: str, gathered: bool = False, join: bool = False, teacher: str | None = None, **arguments
) -> TmdeTrainer:
    """A short training on 150 rows in five languages, evaluated on 20 others; in two languages if negatives are
    gathered, or two micro-batches could not always be joined; by a teacher's vectors alone if there is one."""
    args = TmdeTrainingArguments(output_dir=output_dir, use_cpu=True, disable_tqdm=True, **arguments)
    languages = ("de", "en") if gathered else LANGUAGES
    rows = make_rows(150, seed=2, languages=languages)
    if teacher is not None:
        rows = [row | {"en": row["en"] if place % 2 else None} for place, row in enumerate(rows)]
    trainer = (JoiningTrainer if join else TmdeTrainer)(
        ParallelModel(tiny_model(seed=1), objectives(gathered, teacher)),
        args,
        make_dataset(rows),
        tokenizer,
        eval_dataset=make_dataset(make_rows(20, seed=3)),
    )
    trainer.train()
    return trainer


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    tokenizer = AutoTokenizer.from_pretrained(options["tokenizer"])
    trainer = one_run(tokenizer, gathered=options["gathered"], teacher=options.get("teacher"), **options["arguments"])
    rank = trainer.args.process_index
    state = {name: value.contiguous() for name, value in trainer.model.state_dict().items()}
    save_file(state, Path(options["arguments"]["output_dir"]) / f"weights-{rank}.safetensors")
    (Path(options["arguments"]["output_dir"]) / f"seen-{rank}.json").write_text(
        json.dumps({**trainer.seen, "world_size": trainer.args.world_size, "backend": str(trainer.args.ddp_backend)})
    )


if __name__ == "__main__":
    main()
