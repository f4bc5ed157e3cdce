"""`TmdeTrainer`: HuggingFace's Trainer over parallel rows."""

import copy
import functools
import itertools
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProgressCallback,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import (
    EvalPrediction,
    IntervalStrategy,
    PredictionOutput,
    rotate_checkpoints,
)
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data import load_parallel
from tmde.data.parts import AnyDataset
from tmde.data.rows import NLI_TEXTS, TRANSLATION, triples_of
from tmde.data.tokens import Tokens, open_tokens
from tmde.embedding.progress import phase
from tmde.eval.dev_tasks import load_eval_tasks
from tmde.eval.tasks import ClassificationData
from tmde.training.arguments import TmdeTrainingArguments, as_tmde_arguments
from tmde.training.batches import (
    ParallelBatch,
    ParallelBatches,
    ParallelLoader,
    Position,
    batches_of,
)
from tmde.training.callbacks import EarlyStopping, RunProgress, RunSchedule
from tmde.training.checkpoints import (
    check_resumable,
    check_undamaged,
    find_checkpoint,
    publish,
    writing_unfinished,
)
from tmde.training.distributed import (
    check_processes,
    gathered_weights,
    is_sharded,
    load_weights,
    prepare_fsdp,
    whole_model,
)
from tmde.training.evaluation import (
    check_metric,
    evaluate_model,
    labels_of,
    loss_rows,
    measured_metrics,
)
from tmde.training.interruption import Interruption
from tmde.training.lora import has_adapters, merged_copy, save_adapters, unwrap_peft
from tmde.training.memory import PeakMemory, keep_freed_memory
from tmde.training.objectives import Objective
from tmde.training.objectives.encoded_batch import encoder_of
from tmde.training.objectives.gather import sum_on_host
from tmde.training.optimization import (
    cool_down,
    follows_progress,
    frozen,
    limit_steps,
    needs_step_count,
    progress_schedule,
    special_rates,
    untrained_parameters,
    warn_of_long_warmup,
)
from tmde.training.parallel_model import ParallelModel
from tmde.training.publishing import HubTrainer
from tmde.training.recipe import Recipe
from tmde.training.recipe.objective_classes import make_objectives
from tmde.training.run_record import write_records
from tmde.training.teachers import Teachers, open_teachers
from tmde.training.throughput import ComponentSums, RunMeter

logger = logging.get_logger("tmde.training")

DATA_STATE_NAME = "data_state.json"
OBJECTIVES_NAME = "objectives.safetensors"
PREFETCHED_BATCHES = 4  # The number for each worker that loads data.
# The losses of cT-MDE with their weights (Li's thesis, eq. 4.21).
DEFAULT_OBJECTIVES = {"translation": 0.5, "distance": 0.25}
# Arguments of `transformers.Trainer` that this trainer has no use for, and why.
REFUSED = {
    "tokenizer": "its name is processing_class",
    "data_collator": "the trainer makes batches of parallel text itself",
    "compute_loss_func": "write an Objective, and give it in `objectives`",
    "preprocess_logits_for_metrics": "predictions are embeddings, and no logits are kept",
}


class TmdeTrainer(HubTrainer):
    """Train a model of this package on parallel text.

    This `transformers.Trainer` fills micro-batches up to a token budget. Gradients do not depend on
    how an optimizer step is split into micro-batches, except for the negatives of an embedding
    objective: they come from one micro-batch, or with `gather` from one micro-batch of every
    process.

    A checkpoint stores the model and the position in the data, so a run resumes where it stopped.
    `log.jsonl` and, if matplotlib is installed, `curves.png` are written to the output folder.

    Args:
        model: The model of this package to train. Without a decoder, pass `objectives` that don't
            require one, such as `{"infonce": 1.0}`.
        args: The training arguments, which are copied.
        train_dataset: A `Dataset` or stream with a `translation` column, `{language: text or
            None}`, as `load_parallel` returns it, or with one column per language. The columns
            `anchor`, `positive` and optionally `negative` form triples for `infonce`.
        eval_dataset: Held-out rows, or several sets of them by name. A `doc_id` column groups rows
            into documents.
        objectives: The losses by name: a weight, a mapping of options, or an `Objective`. Default:
            `translation` and `distance`, weighted 0.5 and 0.25 (Li, 2021, eq. 4.21).
        processing_class: The tokenizer.
        eval_tasks: Classification tasks for every evaluation: names such as "sib200" or
            "mldoc=FOLDER", or data by name from `load_eval_tasks`.
        compute_metrics: A function from an `EvalPrediction` to metrics by name, called for every
            set of held-out rows. `predictions` are the embeddings (rows, languages, d), NaN where a
            row lacks a language. `label_ids` are the labels (rows,), if any.
        model_init: A function that creates the model, instead of `model`.
        callbacks: More callbacks.
        optimizers: An optimizer and a schedule, instead of those in `args`.
        optimizer_cls_and_kwargs: The class of the optimizer and its arguments.
        recipe: The recipe to write into the output folder. By default, `save_model` describes the
            trainer as one.

    Raises:
        TmdeError: Model, objectives, data or arguments do not match.

    Example:
        ```python
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        from tmde import TmdeTrainer, TmdeTrainingArguments, load_parallel

        trainer = TmdeTrainer(
            model=AutoModelForSeq2SeqLM.from_pretrained("runs/tmde"),
            args=TmdeTrainingArguments("runs/ctmde", max_steps=3, micro_batch_tokens=1024),
            train_dataset=load_parallel("sample", languages=["de", "en"], max_rows=1000),
            processing_class=AutoTokenizer.from_pretrained("runs/tmde"),
        )
        trainer.train()
        trainer.save_model()
        ```
    """

    args: TmdeTrainingArguments
    processing_class: PreTrainedTokenizerBase
    eval_dataset: dict[str, datasets.Dataset]

    def __init__(
        self,
        model: PreTrainedModel | None = None,
        args: TrainingArguments | None = None,
        train_dataset: datasets.Dataset | datasets.IterableDataset | None = None,
        eval_dataset: datasets.Dataset | Mapping[str, datasets.Dataset] | None = None,
        objectives: Mapping[str, float | Mapping[str, Any] | Objective] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        eval_tasks: str | Sequence[str] | Mapping[str, ClassificationData] | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
        model_init: Callable[..., PreTrainedModel] | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[Optimizer | None, LambdaLR | None] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[Optimizer], dict[str, Any]] | None = None,
        recipe: Recipe | None = None,
        **refused: Any,
    ):
        _refuse(refused)
        if model is not None:
            model = unwrap_peft(model)
        if processing_class is None:
            raise TmdeError("processing_class: found None, expected the tokenizer of the model")
        self.processing_class = processing_class
        self.args = _parallel_arguments(args or TmdeTrainingArguments(), model)
        check_processes(self.args)
        self.objectives = make_objectives(DEFAULT_OBJECTIVES if objectives is None else objectives)
        _check_rows("train_dataset", train_dataset)
        self._triples = triples_of(train_dataset)
        if model is not None:
            self._make_parallel(model)
        super().__init__(
            model=model,
            args=self.args,
            # `Trainer` would refuse `eval_strategy` without data, and shard the training data.
            eval_dataset={},
            processing_class=processing_class,
            model_init=model_init,
            compute_metrics=compute_metrics,
            callbacks=None if callbacks is None else list(callbacks),
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
        )
        self.parallel_model.objectives.to(self.args.device)
        self.train_dataset = self._read(train_dataset)
        self.eval_dataset = self._read_sets(eval_dataset)
        self.eval_tasks = _named_tasks(eval_tasks, self.model.config.languages)
        self._check_evaluation()
        self._check_optimizers()
        self.step_limit: int | None = None
        if train_dataset is not None:
            is_stream = not isinstance(train_dataset, datasets.Dataset)
            self.step_limit = limit_steps(self.args, streaming=is_stream)
        self.teachers: Teachers | None = None
        self.recipe = recipe
        self.interruption = Interruption()
        self._tokens: Tokens | None = None
        self._begin_anew()
        self._restore_use_cache()
        self._prepare_distribution()
        self._replace_callbacks()

    def call_model_init(self, trial: Any = None) -> PreTrainedModel:
        """Make the model by `model_init`, and what trains it."""
        # transformers annotates modules of any kind.
        model: PreTrainedModel = super().call_model_init(trial)  # type: ignore[assignment]
        model = unwrap_peft(model)
        self._make_parallel(model)
        return model

    def _begin_anew(self) -> None:
        """Set the position in the data and the clock to those of a run without any steps."""
        self.position = Position()
        self.chunk_done = 0.0  # The share of the chunk at `position`.
        self.meter = RunMeter()
        self.peak_memory = PeakMemory(self.args.device)
        self._components = ComponentSums()
        self._rows_before = 0  # Those that this process saw before a resume.

    def _make_parallel(self, model: PreTrainedModel) -> None:
        """Make the module that data parallelism wraps: the model with its objectives."""
        check_model(model)
        vocabulary = len(self.processing_class)
        if vocabulary > model.config.vocab_size:
            raise TmdeError(
                f"processing_class has {vocabulary:,} tokens, and model.config.vocab_size is "
                f"{model.config.vocab_size:,}: make the model with vocab_size=len(tokenizer)"
            )
        self._use_cache = getattr(model.config, "use_cache", None)
        #: The module that DDP or FSDP wraps. `self.model` stays the model of the user.
        self.parallel_model = ParallelModel(
            model,
            self.objectives,
            self.args.token_dropout,
            self.args.token_dropout_share,
            self._triples,
        )
        untrained_parameters(self.parallel_model, self.args)  # Errors come before the training.

    def _restore_use_cache(self) -> None:
        """Give the model's config the `use_cache` that it had, which `Trainer` has changed."""
        if self._use_cache is not None:
            self.model.config.use_cache = self._use_cache
        else:
            del self.model.config.use_cache

    def _check_optimizers(self) -> None:
        """Refuse learning rates of parts of the model beside an optimizer of the user.

        Raises:
            TmdeError: Names the argument.
        """
        if self.optimizer is None:
            return
        for name in ("embedding_learning_rate", "encoder_learning_rate"):
            rate = getattr(self.args, name)
            if rate is not None:
                raise TmdeError(
                    f"{name}={rate}: found `optimizers`, whose parameter groups set the "
                    "rates; omit one of the two"
                )

    def _read(self, rows: AnyDataset | None) -> AnyDataset | None:
        """Return rows with the column `translation`, read from columns of their own if need be."""
        if rows is None or TRANSLATION in (rows.column_names or ()):
            return rows
        texts = list(self.parallel_model.texts)
        if self.parallel_model.has_named_texts:
            return load_parallel(rows, labels=tuple(texts) == NLI_TEXTS)
        return load_parallel(rows, languages=texts, document_ids=True)

    def _read_sets(
        self, rows: datasets.Dataset | Mapping[str, datasets.Dataset] | None
    ) -> dict[str, datasets.Dataset]:
        """Return sets of held-out rows by name; a single one has the name ""."""
        if rows is None:
            return {}
        sets = rows if isinstance(rows, Mapping) else {"": rows}
        read_sets = {}
        for name, rows_of_set in sets.items():
            if not isinstance(rows_of_set, datasets.Dataset):
                raise TmdeError(
                    f"eval_dataset {name}: found {type(rows_of_set).__name__}, expected a "
                    "Dataset; datasets.Dataset.from_list(list(stream.take(1000))) converts a "
                    "stream"
                )
            if len(rows_of_set) == 0:
                raise TmdeError(f"eval_dataset {name}: found no rows")
            read_sets[name] = self._read(rows_of_set)
        return read_sets

    @property
    def can_evaluate(self) -> bool:
        """Whether there are rows or tasks to evaluate on."""
        return bool(self.eval_dataset or self.eval_tasks)

    def _check_evaluation(self) -> None:
        """Check what chooses the checkpoint; without anything to evaluate on, turn it off.

        Raises:
            TmdeError: An evaluation is asked for, and there is nothing to evaluate on; or none
                measures `metric_for_best_model`.
        """
        args = self.args
        if self.can_evaluate:
            sources = (self.eval_dataset, self.eval_tasks, self.parallel_model.searched_texts)
            is_mix = args.metric_for_best_model in ("mix", "eval_mix")
            if is_mix and "mix" not in measured_metrics(args, *sources):
                args.metric_for_best_model = "loss"
                args.greater_is_better = False
            if self.compute_metrics is None:
                check_metric(args, *sources)
            return
        for name in args.evaluation_arguments():
            value = getattr(args, name)
            raise TmdeError(
                f"{name}={getattr(value, 'value', value)}: found no eval_dataset and no "
                f"eval_tasks, expected one of them; or leave {name} out"
            )
        args.eval_strategy = IntervalStrategy.NO
        args.load_best_model_at_end = False
        args.eval_on_start = False

    def _prepare_distribution(self) -> None:
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True  # `compute_loss` divides by the counts of the whole step
        if self.accelerator.ddp_handler is not None:
            # One copy of the gradients instead of two.
            self.accelerator.ddp_handler.gradient_as_bucket_view = True
        prepare_fsdp(self.accelerator, self.args, self.parallel_model)

    def _replace_callbacks(self) -> None:
        self.remove_callback(ProgressCallback)
        if self.recipe is not None:  # The command prints a summary of its own.
            self.remove_callback(PrinterCallback)
        self.add_callback(RunSchedule(self))
        self._progress = RunProgress(self)
        self.add_callback(self._progress)
        if self.args.early_stopping_patience is not None:
            self.add_callback(EarlyStopping(self.args.early_stopping_patience))

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        """Point `self.model` at the `ParallelModel`, which transformers wraps and optimizes."""
        model = self.model
        self.model = self.parallel_model  # type: ignore[assignment]  # for this context alone
        try:
            yield
        finally:
            self.model = model

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> tuple[nn.Module, DataLoader]:
        if self.model_wrapped is self.model:
            self.model_wrapped = self.parallel_model
        with self._wrapped():
            prepared = super()._prepare_for_training(*args, **kwargs)
        self.callback_handler.model = self.model
        return prepared

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        # FSDP names the states of the optimizer by the parameters of what was wrapped.
        with self._wrapped():
            super()._save_optimizer_and_scheduler(output_dir)

    # ---- Progress

    @property
    def epochs_done(self) -> float | None:
        """The epochs that are done; None if the data is a stream, whose length is unknown."""
        if not isinstance(self.train_dataset, datasets.Dataset):
            return None
        chunks = math.ceil(len(self.train_dataset) / self.args.buffer_rows)
        chunks_done = self.position.chunk + self.chunk_done
        return self.position.epoch + chunks_done / max(chunks, 1)

    @property
    def whole_epochs(self) -> int:
        """The completed epochs.

        An epoch of a stream is complete when the next has begun, or the stream has ended.
        """
        if self.epochs_done is None:
            return self.position.epoch
        return int(self.epochs_done)

    def progress(self, step: int | None = None) -> float:
        """Return the share of the run that is done, between 0 and 1, by the nearest limit.

        Args:
            step: The step at which to look; None for the current one.
        """
        shares = []
        if self.args.max_minutes:
            shares.append(self.meter.elapsed / 60 / self.args.max_minutes)
        if self.args.max_cpu_minutes:
            shares.append(self.meter.cpu_elapsed / 60 / self.args.max_cpu_minutes)
        if self.step_limit:
            steps_done = self.state.global_step if step is None else step
            shares.append(steps_done / self.step_limit)
        elif self.args.num_train_epochs:
            shares.append((self.epochs_done or 0.0) / self.args.num_train_epochs)
        return min(max(shares), 1.0)

    # ---- Data

    def _open_tokens(self) -> Tokens | None:
        """Return the tokens of the training data, which are made once; None for a stream."""
        if self._tokens is None:
            self._tokens = open_tokens(
                self.train_dataset,
                self.processing_class,
                self.parallel_model.read_texts,
                self.args.token_cache_dir,
            )
        return self._tokens

    def get_train_dataloader(self) -> DataLoader:
        """Return the loader of this process's micro-batches from `position` on."""
        args = self.args
        model = self.parallel_model
        rows = self.train_dataset
        tokenizer = self.processing_class
        batches = batches_of(
            rows,
            tokenizer,
            model,
            args,
            self.teachers,
            tokens=self._open_tokens(),
            planning={
                "languages_per_row": args.languages_per_row,
                "temperature": args.pair_temperature,
                "micro_batch_rows": args.per_device_train_batch_size,
                "max_joined_rows": args.max_joined_rows,
                "neighbor_share": args.neighbor_share,
            },
            buffer_rows=args.buffer_rows,
            seed=args.seed if args.data_seed is None else args.data_seed,
            epochs=None if self.step_limit else math.ceil(args.num_train_epochs),
            rank=args.process_index,
            world_size=args.world_size,
            start=self.position,
        )
        num_workers = args.dataloader_num_workers
        assert num_workers is not None  # The arguments have chosen a number.
        prefetch_factor = None
        if num_workers:
            prefetch_factor = args.dataloader_prefetch_factor or PREFETCHED_BATCHES
        return ParallelLoader(
            batches,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
            # Starting to iterate draws a number; from a generator of its own, a resumed run is not
            # one draw ahead.
            generator=torch.Generator(),
            multiprocessing_context=args.dataloader_multiprocessing_context,
        )

    def set_initial_training_values(
        self, args: TrainingArguments, dataloader: DataLoader
    ) -> tuple[Any, ...]:
        """Return what transformers does, with the number of steps where a schedule needs it."""
        *values, max_steps = super().set_initial_training_values(args, dataloader)
        if needs_step_count(self.args):
            batches = dataloader.dataset
            assert isinstance(batches, ParallelBatches)
            max_steps = batches.count_steps(args.gradient_accumulation_steps, args.num_train_epochs)
        return (*values, max_steps)

    def get_batch_samples(  # type: ignore[override]  # the counts are one for each objective
        self, epoch_iterator: Iterator[ParallelBatch], num_batches: int, device: torch.device
    ) -> tuple[list[ParallelBatch], dict[str, float] | None]:
        """Return the micro-batches of one optimizer step, and the counts of the objectives.

        The counts are sums over the micro-batches of all processes. There are no batches, and no
        counts, where the run is over.
        """
        # Progress is complete at once where a finished run is resumed.
        if self.progress() >= 1.0 or self.control.should_training_stop:
            self.control.should_training_stop = True
            return [], None
        begin = time.perf_counter()
        batches = list(itertools.islice(epoch_iterator, num_batches))
        self.meter.data_wait += time.perf_counter() - begin
        if len(batches) < num_batches:
            self._end_of_data(len(batches), num_batches)
            return [], None
        for batch in batches:
            self.meter.add(batch)
        self.position = batches[-1].next_position
        self.chunk_done = batches[-1].chunk_done
        return batches, self._sum_counts(batches)

    def _end_of_data(self, available: int, expected: int) -> None:
        """Stop the run, because the data end within a step."""
        if self.state.global_step == 0:
            raise TmdeError(
                f"The training data fill {available} micro-batches per process, a step takes "
                f"{expected}: lower batch_tokens or micro_batch_tokens, or give more rows"
            )
        self.control.should_training_stop = True
        if self.epochs_done is None:  # Nothing else would show that the stream is over.
            self.position = Position(math.ceil(self.args.num_train_epochs))

    def _sum_counts(self, batches: list[ParallelBatch]) -> dict[str, float]:
        """Return every objective's count over all processes, and set their common clock."""
        objectives = self.parallel_model.objectives
        totals: list[float] = []
        for objective in objectives.values():
            totals.append(sum(objective.count(batch.sizes) for batch in batches))
        # All processes follow the clock of the first, so that none stops alone.
        is_first = self.args.process_index == 0
        totals.append(self.meter.training_seconds if is_first else 0.0)
        totals.append(self.meter.cpu_seconds if is_first else 0.0)
        # A signal may reach one process alone, or reach them in different steps.
        totals.append(float(self.interruption.is_asked))
        *counts, self.meter.elapsed, self.meter.cpu_elapsed, asked = sum_on_host(totals)
        self.interruption.is_agreed = asked > 0
        return dict(zip(objectives, counts, strict=True))

    def _prepare_inputs(self, inputs: ParallelBatch) -> ParallelBatch:  # type: ignore[override]
        return inputs.to(self.args.device)

    # ---- Loss

    def compute_loss(  # type: ignore[override]  # transformers expects dictionaries
        self,
        model: nn.Module,
        inputs: ParallelBatch,
        return_outputs: bool = False,
        num_items_in_batch: dict[str, float] | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, dict[str, dict[str, torch.Tensor]]]:
        """Return the sum of `weight * loss / count` over the objectives.

        It is scaled such that DDP's mean over processes is the loss.

        Args:
            model: The model, as it is wrapped.
            inputs: A micro-batch.
            return_outputs: Whether to return the sums of the objectives as well.
            num_items_in_batch: The count of every objective, from `get_batch_samples`.
        """
        outputs = model(inputs)
        objectives = self.parallel_model.objectives
        assert num_items_in_batch is not None  # `get_batch_samples` counts them.
        losses = []
        for name, sums in outputs.items():
            objective = objectives[name]
            count = max(num_items_in_batch[name], 1.0)
            scale = self.args.world_size / count
            losses.append(objective.weight * scale * sums["total"])
            # The logged loss is the mean of the steps' losses, so each step's share in the means
            # of its parts is 1, however many terms it has.
            shares = {component: value / count for component, value in sums.items()}
            self._components.add(name, shares, objective.count(inputs.sizes) / count)
        loss = functools.reduce(torch.add, losses)
        if return_outputs:
            return loss, outputs
        return loss

    def _track_num_input_tokens(self, inputs: ParallelBatch) -> None:
        """Count the tokens of a micro-batch of every process, on the host."""
        if self.args.include_num_input_tokens_seen == "no":
            return
        num_tokens = inputs.attention_mask.numel()
        if self.args.include_num_input_tokens_seen == "non_padding":
            num_tokens = int(inputs.lengths.sum())
        self.state.num_input_tokens_seen += int(sum_on_host([num_tokens])[0])

    def floating_point_ops(self, inputs: ParallelBatch) -> int:  # type: ignore[override]
        """Return 6 FLOPs per token and non-embedding parameter (Kaplan et al. 2020)."""
        parameters = self.parallel_model.model.num_parameters(exclude_embeddings=True)
        return 6 * parameters * int(inputs.lengths.sum())

    # ---- Schedule

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """Create the optimizer of transformers, with groups for parameters with their own rate."""
        if self.optimizer is not None:
            return self.optimizer
        rates = special_rates(self.parallel_model, self.args)
        optimizer = super().create_optimizer(self.parallel_model if model is None else model)
        for group in list(optimizer.param_groups):
            parameters_by_rate = defaultdict(list)
            for parameter in group["params"]:
                rate = rates.get(parameter, group["lr"])
                parameters_by_rate[rate].append(parameter)
            group["params"] = parameters_by_rate.pop(group["lr"], [])
            for rate, parameters in parameters_by_rate.items():
                optimizer.add_param_group({**group, "params": parameters, "lr": rate})
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LRScheduler:
        """Create the schedule of the arguments, with the cooldown over the end of the run."""
        if self.lr_scheduler is None and follows_progress(self.args):
            trained = self.optimizer if optimizer is None else optimizer
            assert trained is not None  # `create_optimizer` was called.
            self.lr_scheduler = progress_schedule(self.args, trained, self.progress)
            self._created_lr_scheduler = True
        else:
            warn_of_long_warmup(self.args, num_training_steps)
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self.args.cooldown:
            assert isinstance(scheduler, LambdaLR)  # `limit_steps` refuses the others.
            cool_down(scheduler, self.progress, self.args.cooldown)
        return scheduler

    # ---- Logging

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log values with the epoch; training losses with their parts, speed and time as well."""
        # transformers would log the share of the steps as the epoch.
        epochs_done = self.epochs_done
        if epochs_done is None:
            epochs_done = float(self.position.epoch)
        self.state.epoch = round(epochs_done, 4)
        if "loss" in logs:
            logs = {
                **logs,
                **self._components.means(self.accelerator),
                **self.meter.rates(self.args.world_size),
                "minutes": round(self.meter.seconds / 60, 3),
            }
        super().log(logs, start_time)

    # ---- Evaluation

    @torch.no_grad()
    def evaluate(
        self,
        eval_dataset: datasets.Dataset | Mapping[str, datasets.Dataset] | str | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate translation retrieval, losses and classification tasks on held-out data.

        Args:
            eval_dataset: Rows, several sets of rows by name, or the name of one of the trainer's
                sets. Default: all sets of the trainer.
            ignore_keys: Not used.
            metric_key_prefix: The prefix of all metric names.

        Returns:
            Metrics by name:

            - `eval_loss`: the weighted sum of the losses; `eval_<objective>_<part>`: its parts.
            - `eval_p1_<a>-<b>`: precision at 1 of translation retrieval among `eval_pool` rows,
              averaged over both directions; `eval_retrieval`: its mean over all pairs.
            - `eval_doc_p1_<a>-<b>`, `eval_document_retrieval`: the same for documents, if there are
              enough.
            - `eval_same`, `eval_cross`, `eval_all`: accuracy of the classification tasks on dev
              splits; `eval_test_same`, `eval_test_cross`: on test splits.
            - `eval_mix`: the mean that selects the best checkpoint, see `TmdeTrainingArguments`.
            - The metrics of `compute_metrics`.

            A named set adds its name: `eval_<set>_p1_<a>-<b>`. Every process returns the first
            one's results.

        Raises:
            TmdeError: The trainer has no set of this name, or in training, no evaluation computes
                `metric_for_best_model`.
        """
        with self.meter.evaluation(is_before_training=self.state.global_step == 0):
            sets = self.eval_dataset
            if isinstance(eval_dataset, str):
                sets = self._named_set(eval_dataset)
            elif eval_dataset is not None:
                sets = self._read_sets(eval_dataset)
            metrics = self._measure(sets, self.eval_tasks, metric_key_prefix, self.compute_metrics)
            if self.is_in_train and self.args.load_best_model_at_end:
                self._check_best_metric(metrics)
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(
                self.args, self.state, self.control, metrics
            )
            return metrics

    def _named_set(self, name: str) -> dict[str, datasets.Dataset]:
        """Return the set of held-out rows with this name."""
        if name not in self.eval_dataset:
            names = ", ".join(map(repr, self.eval_dataset))
            raise TmdeError(f"eval_dataset: found {name!r}, expected {names or 'rows'}")
        return {name: self.eval_dataset[name]}

    def _measure(
        self,
        eval_sets: dict[str, datasets.Dataset],
        tasks: dict[str, ClassificationData],
        prefix: str,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None,
    ) -> dict[str, float]:
        """Return what an evaluation measures, by names with a prefix. All processes call it."""
        if self.train_dataset is not None:
            self._prepare_teachers()  # What they teach is fitted on the training rows.
        trained = self.parallel_model
        was_training = trained.training
        is_first = self.is_world_process_zero()
        with phase("Evaluating", is_first and not self.args.disable_tqdm, leave=False):
            measured = evaluate_model(
                whole_model(trained).eval(),
                self.processing_class,
                eval_sets,
                tasks if is_first else {},
                self.args,
                self.compute_loss_context_manager,
                self.teachers,
                compute_metrics,
            )
        trained.train(was_training)
        metrics = {f"{prefix}_{name}": value for name, value in measured.items()}
        metrics[f"{prefix}_minutes"] = round(self.meter.seconds / 60, 3)
        if self.args.world_size > 1:
            # All must choose the same checkpoint, and stop at the same step.
            metrics = broadcast_object_list([metrics])[0]
        return metrics

    @torch.no_grad()
    def predict(
        self,
        test_dataset: datasets.Dataset,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> PredictionOutput:
        """Embed rows, and evaluate retrieval and losses on them like `evaluate`.

        Args:
            test_dataset: Rows of parallel text.
            ignore_keys: Not used.
            metric_key_prefix: The prefix of all metric names.

        Returns:
            `predictions`, the embeddings (rows, languages, d) in float32, NaN where a row lacks a
            language; `label_ids`, the labels (rows,) or None; and `metrics`.
        """
        (test_dataset,) = self._read_sets(test_dataset).values()
        predictions = []

        def keep(prediction: EvalPrediction) -> dict[str, float]:
            predictions.append(prediction.predictions)
            return {} if self.compute_metrics is None else self.compute_metrics(prediction)

        metrics = self._measure({"": test_dataset}, {}, metric_key_prefix, keep)
        self.control = self.callback_handler.on_predict(
            self.args, self.state, self.control, metrics
        )
        return PredictionOutput(predictions[0], labels_of(test_dataset), metrics)

    def _check_best_metric(self, metrics: dict[str, float]) -> None:
        """Check that the metric that chooses the checkpoint was measured."""
        metric = self.args.metric_for_best_model or "mix"
        name = metric if metric.startswith("eval_") else f"eval_{metric}"
        if name not in metrics:
            raise TmdeError(
                f"metric_for_best_model={metric}: the evaluation measured no {name}, expected one "
                f"of {', '.join(metrics)}"
            )

    # ---- Checkpoints

    def save_model(
        self, output_dir: str | os.PathLike[str] | None = None, _internal_call: bool = False
    ) -> None:
        """Save the model in a folder that all Auto classes load, with tokenizer, card and recipe.

        With sharded weights, every process must call it.

        Args:
            output_dir: The folder. Default: `args.output_dir`.
            _internal_call: Whether transformers is writing a checkpoint.
        """
        folder = Path(self.args.output_dir if output_dir is None else output_dir)
        self.save_weights(folder)
        if self.args.should_save and _internal_call:
            self._save_data_state(folder)
        elif self.args.should_save:
            write_records(self, folder)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub("Model save")

    def save_weights(self, folder: Path) -> None:
        """Write model and tokenizer, with adapters merged into the weights.

        Where the weights are sharded, every process must call it.
        """
        model = self.parallel_model.model
        weights = None
        if is_sharded(self.parallel_model):
            weights = gathered_weights(model)
        if self.args.should_save:
            if has_adapters(model):
                model = merged_copy(model)
            model.save_pretrained(folder, state_dict=weights)
            self.processing_class.save_pretrained(folder)

    def _save_data_state(self, folder: Path) -> None:
        """Write what only a checkpoint holds: data position, adapters, and weights of losses."""
        save_adapters(self.parallel_model.model, folder)
        objective_weights = self.parallel_model.objectives.state_dict()
        if objective_weights:
            save_file(objective_weights, folder / OBJECTIVES_NAME)
        state = {
            "position": asdict(self.position),
            "chunk_done": self.chunk_done,
            "peak_memory_mib": self.peak_memory.mib,
            **self.meter.state(),
        }
        (folder / DATA_STATE_NAME).write_text(json.dumps(state, indent=2))

    def _load_data_state(self, folder: Path) -> None:
        state = json.loads((folder / DATA_STATE_NAME).read_text())
        self.position = Position(**state["position"])
        self.chunk_done = state["chunk_done"]
        # Some systems do not tell.
        self.peak_memory.before = state["peak_memory_mib"] or 0.0
        self.meter.load_state(state, (self.position.epoch, self.position.chunk))

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        parallel = self.parallel_model
        load_weights(parallel.model, resume_from_checkpoint)
        if parallel.objectives.state_dict():
            objective_weights = load_file(Path(resume_from_checkpoint) / OBJECTIVES_NAME)
            parallel.objectives.load_state_dict(objective_weights)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        with writing_unfinished(self.args) as folder:
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        unfinished = folder / f"checkpoint-{self.state.global_step}"
        checkpoint = Path(self.args.output_dir) / unfinished.name
        if self.state.best_model_checkpoint == str(unfinished):
            self.state.best_model_checkpoint = str(checkpoint)
        if self.args.should_save:
            self.state.save_to_json(str(unfinished / TRAINER_STATE_NAME))
            publish(unfinished, checkpoint)
            rotate_checkpoints(
                self.args.output_dir,
                self.args.save_total_limit,
                self.state.best_model_checkpoint,
                use_mtime=True,
            )
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(checkpoint))
        if self.interruption.is_agreed:
            # The first process to end lets a launcher end the others.
            self.accelerator.wait_for_everyone()

    def _load_best_model(self) -> None:
        checkpoint = self.state.best_model_checkpoint
        assert checkpoint is not None  # `Trainer` calls this only where there is one.
        self._load_from_checkpoint(checkpoint)

    def train(
        self,
        resume_from_checkpoint: str | os.PathLike[str] | bool | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Train the model, from the start or from a checkpoint.

        A resumed run continues at the checkpoint's position in the data and its clock.

        Args:
            resume_from_checkpoint: The folder of a checkpoint; True for the newest complete one in
                `output_dir`.
            args: See `transformers.Trainer.train`.
            kwargs: See `transformers.Trainer.train`.

        Raises:
            TmdeError: There are no rows to train on, or no checkpoint to resume from.

        Example:
            ```python
            from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

            from tmde import TmdeTrainer, TmdeTrainingArguments, load_parallel

            trainer = TmdeTrainer(
                model=AutoModelForSeq2SeqLM.from_pretrained("runs/tmde"),
                args=TmdeTrainingArguments("runs/resumed", max_steps=2, micro_batch_tokens=1024),
                train_dataset=load_parallel("sample", languages=["de", "en"], max_rows=1000),
                processing_class=AutoTokenizer.from_pretrained("runs/tmde"),
            )
            trainer.train()
            ```
        """
        if self.train_dataset is None:
            raise TmdeError("train_dataset: found None, expected rows to train on")
        if self.args.keep_freed_memory and self.args.device.type == "cpu":
            keep_freed_memory()
        self._begin_anew()
        checkpoint = None
        if resume_from_checkpoint is True:
            checkpoint = self._newest_checkpoint()
        elif resume_from_checkpoint:
            checkpoint = str(resume_from_checkpoint)
            check_undamaged(Path(checkpoint))
        if checkpoint is not None:
            check_resumable(Path(checkpoint))
            # Before the batches are made; weights that are sharded are loaded after.
            self._load_data_state(Path(checkpoint))
        self._prepare_teachers()
        self._open_tokens()  # Making tokens is not training, so the clock starts after it.
        self._rows_before = self.meter.seen["rows"]
        self.meter.start()
        self.peak_memory.start()
        try:
            return super().train(checkpoint, *args, **kwargs)
        finally:
            self._progress.close()

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        # By now `model_init` has made its model, and the optimizer has still to be created.
        with frozen(untrained_parameters(self.parallel_model, self.args)):
            return super()._inner_training_loop(*args, **kwargs)

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse the search of transformers.

        Raises:
            TmdeError: Always: the limits of a run, the losses and the accumulation are settled when
                the trainer is made, so trials would not have the values that they report.
        """
        raise TmdeError(
            "hyperparameter_search is not supported, because a trial would keep this "
            "trainer's limits, losses and accumulation; make a trainer for each trial "
            "instead"
        )

    def _prepare_teachers(self) -> None:
        """Let the teachers read the rows, before the clock of the run begins."""
        if self.teachers is not None:
            return
        run_folder = Path(self.args.output_dir)
        teachers = open_teachers(self.parallel_model, self.args, run_folder)
        if teachers is not None:
            measured = [loss_rows(rows, self.args) for rows in self.eval_dataset.values()]
            teachers.prepare(self.train_dataset, measured)
        self.teachers = teachers

    def _finalize_training(self, trial: Any, num_train_samples: float, start_time: float) -> Any:
        """End the training, and report its speed in rows of parallel text.

        transformers takes every step for the same number of rows, and `num_train_samples` for those
        of all `max_steps`.
        """
        (rows,) = sum_on_host([self.meter.seen["rows"] - self._rows_before])
        steps = self.state.global_step - self._initial_global_step
        if self.recipe is None and 0 < self.state.global_step <= self.args.warmup_steps:
            logger.warning(
                f"The run ended after {self.state.global_step:,} steps, while the learning "
                f"rate was still warming up (warmup_steps={self.args.warmup_steps:g}), so the "
                "model has hardly learned anything. Train longer, or lower warmup_steps."
            )
        samples = rows * self.state.max_steps / max(steps, 1)
        return super()._finalize_training(trial, samples, start_time)

    def _newest_checkpoint(self) -> str:
        checkpoint = find_checkpoint(Path(self.args.output_dir))
        if checkpoint is None:
            raise TmdeError(f"{self.args.output_dir} has no complete checkpoint to resume from")
        return str(checkpoint)


# ---- What is given to the trainer


def _check_rows(name: str, rows: object) -> None:
    """Check that rows are a dataset.

    Raises:
        TmdeError: They are something else. Says how to make a dataset of it.
    """
    if rows is None or isinstance(rows, datasets.Dataset | datasets.IterableDataset):
        return
    remedy = "load_parallel(...) or datasets.Dataset.from_list(...) makes one"
    if isinstance(rows, Mapping):
        remedy = f"choose one of its splits: {', '.join(map(str, rows))}"
    raise TmdeError(
        f"{name}: found {type(rows).__name__}, expected a Dataset or an IterableDataset; {remedy}"
    )


def check_model(model: object) -> None:
    """Check that a model is one that the trainer can train.

    Raises:
        TmdeError: It is none of this package.
    """
    if not isinstance(model, PreTrainedModel):
        raise TmdeError(
            f"model: found {type(model).__name__}, expected a model of this package, such as "
            "TmdeForConditionalGeneration(config)"
        )
    if not hasattr(model.config, "languages"):
        raise TmdeError(
            f"model: found {type(model).__name__}, expected a model of this package. To train "
            "an encoder from the Hub, load it with model = "
            "tmde.adapt_encoder(FOLDER_OR_HUB_ID, languages=['de', 'en'], "
            "pivot_languages=['en'])"
        )


def _refuse(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of `transformers.Trainer` that this trainer cannot use, if they are set.

    Raises:
        TmdeError: Names the argument and the reason.
        TypeError: There is no such argument.
    """
    for name, value in arguments.items():
        if name not in REFUSED:
            raise TypeError(f"TmdeTrainer has no argument {name!r}")
        if value is not None:
            raise TmdeError(f"{name}: found {type(value).__name__}, expected None: {REFUSED[name]}")


def _named_tasks(
    tasks: str | Sequence[str] | Mapping[str, ClassificationData] | None,
    languages: Sequence[str],
) -> dict[str, ClassificationData]:
    """Return classification tasks by name, loaded in these languages if they are names."""
    if isinstance(tasks, Mapping):
        return dict(tasks)
    return load_eval_tasks(tasks, languages)


def _parallel_arguments(
    args: TrainingArguments, model: PreTrainedModel | None
) -> TmdeTrainingArguments:
    """Return a copy of the arguments, with those of `Trainer` that follow from parallel batches."""
    args = copy.copy(as_tmde_arguments(args))
    args.ignore_data_skip = True  # The data resume at a position; see `TmdeTrainer.train`.
    # transformers needs a number. `TmdeTrainingArguments` of the caller keep None.
    args.per_device_train_batch_size = args.train_batch_size
    if args.ddp_find_unused_parameters is None:
        # An encoder with parts for each language does not use those that a batch lacks.
        # The model of `model_init` is not known yet.
        uses_all = model is not None and not getattr(encoder_of(model), "needs_language_ids", False)
        args.ddp_find_unused_parameters = not uses_all
    if args.ddp_broadcast_buffers is None:
        args.ddp_broadcast_buffers = False  # Position tables are the same everywhere.
    return args
