"""`TmdeTrainer`: HuggingFace's Trainer over parallel rows."""

import copy
import functools
import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
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
from transformers import PreTrainedTokenizerBase, ProgressCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import rotate_checkpoints
from transformers.utils import SAFE_WEIGHTS_NAME

from modeling_tmde import TmdeError
from tmde.data.tokens import Tokens, open_tokens
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
from tmde.training.checkpoints import find_checkpoint, find_damage, seal
from tmde.training.distributed import (
    gathered_weights,
    is_sharded,
    load_weights,
    prepare_fsdp,
    whole_model,
)
from tmde.training.evaluation import evaluate_model
from tmde.training.interruption import Interruption
from tmde.training.memory import PeakMemory, keep_freed_memory
from tmde.training.objectives.gather import sum_on_host
from tmde.training.optimization import (
    cool_down,
    follows_progress,
    freeze,
    limit_steps,
    needs_step_count,
    progress_schedule,
    special_rates,
    warn_of_long_warmup,
)
from tmde.training.parallel_model import ParallelModel
from tmde.training.publishing import HubTrainer
from tmde.training.teachers import RunTeachers
from tmde.training.throughput import ComponentSums, RunMeter

DATA_STATE_NAME = "data_state.json"
OBJECTIVES_NAME = "objectives.safetensors"
PREFETCHED_BATCHES = 4  # The number for each worker that loads data.


class TmdeTrainer(HubTrainer):
    """Trains a `ParallelModel` on parallel rows.

    Micro-batches fill a token budget. Every loss is a sum divided by its count over all
    micro-batches and processes of an optimizer step, so gradients do not depend on how a batch is
    split, except that the negatives of an embedding objective are those of one micro-batch, or with
    `gather` those of one micro-batch of every process. Checkpoints hold the inner encoder-decoder
    as any `save_pretrained` folder does, and the position in the data, so a run resumes where it
    stopped. Evaluation measures translation retrieval of the sentences and documents of the dev
    rows between every pair of languages, and Same and Cross of classification tasks; their mean,
    `mix`, chooses the checkpoint. The run's folder gets `log.jsonl` and, if matplotlib is
    installed, `curves.png`.

    Args:
        model: The parallel model.
        args: Training arguments. The trainer changes a copy of them.
        train_dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        processing_class: The tokenizer.
        eval_dataset: Dev sets by name, map-style rows; a column `doc_id` names their documents.
        eval_tasks: Classification tasks by name, from `load_eval_tasks`.
        teachers: The teachers of the run, from `prepare_teacher_vectors`; None for their newest
            versions.
        kwargs: `callbacks` and `optimizers` of `Trainer`.

    Raises:
        TmdeError: Nothing limits the run, the schedule needs a number of steps that is not known,
            or FSDP is asked for where there is none.
    """

    args: TmdeTrainingArguments
    processing_class: PreTrainedTokenizerBase
    eval_dataset: dict[str, datasets.Dataset] | None

    def __init__(
        self,
        model: ParallelModel,
        args: TrainingArguments,
        train_dataset: datasets.Dataset | datasets.IterableDataset,
        processing_class: PreTrainedTokenizerBase,
        eval_dataset: dict[str, datasets.Dataset] | None = None,
        eval_tasks: dict[str, ClassificationData] | None = None,
        teachers: RunTeachers | None = None,
        **kwargs: Any,
    ):
        args = _parallel_arguments(args, model)
        is_stream = not isinstance(train_dataset, datasets.Dataset)
        self.step_limit = limit_steps(args, streaming=is_stream)
        self.parallel_dataset = train_dataset
        self.eval_tasks = eval_tasks or {}
        self.teachers = teachers
        self.position = Position()
        self.chunk_done = 0.0  # The share of the chunk at `position`.
        self.meter = RunMeter()
        self.peak_memory = PeakMemory(args.device)
        self.interruption = Interruption()
        self._components = ComponentSums()
        self._tokens: Tokens | None = None
        self._rows_before = 0  # Those that this process saw before a resume.
        if not eval_dataset:
            eval_dataset = {} if eval_tasks else None
        freeze(model.model, args.freeze)
        # Parallel batches are made by this class, so `Trainer` gets no dataset to wrap and shard.
        super().__init__(
            model, args, eval_dataset=eval_dataset, processing_class=processing_class, **kwargs
        )
        _restore_use_cache(model)
        self._prepare_distribution(model)
        self._replace_callbacks()

    def _prepare_distribution(self, model: ParallelModel) -> None:
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True  # `compute_loss` divides by the counts of the whole step
        if self.accelerator.ddp_handler is not None:
            # One copy of the gradients instead of two.
            self.accelerator.ddp_handler.gradient_as_bucket_view = True
        prepare_fsdp(self.accelerator, self.args, model)

    def _replace_callbacks(self) -> None:
        self.remove_callback(ProgressCallback)
        self.remove_callback(PrinterCallback)
        self.add_callback(RunSchedule(self))
        self._progress = RunProgress(self)
        self.add_callback(self._progress)
        if self.args.early_stopping_patience is not None:
            self.add_callback(EarlyStopping(self.args.early_stopping_patience))

    @property
    def parallel_model(self) -> ParallelModel:
        """The model without what accelerate wraps around it."""
        model: ParallelModel = self.accelerator.unwrap_model(self.model)
        return model

    # ---- Progress

    @property
    def epochs_done(self) -> float | None:
        """The epochs that are done; None if the data is a stream, whose length is unknown."""
        if not isinstance(self.parallel_dataset, datasets.Dataset):
            return None
        chunks = math.ceil(len(self.parallel_dataset) / self.args.buffer_rows)
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
                self.parallel_dataset,
                self.processing_class,
                self.parallel_model.read_texts,
                self.args.token_cache_dir,
            )
        return self._tokens

    def get_train_dataloader(self) -> DataLoader:
        """Return the loader of this process's micro-batches from `position` on."""
        args = self.args
        model = self.parallel_model
        rows = self.parallel_dataset
        tokenizer = self.processing_class
        batches = batches_of(
            rows,
            tokenizer,
            model,
            args,
            self.teachers,
            tokens=self._open_tokens(),
            languages_per_row=args.languages_per_row,
            temperature=args.pair_temperature,
            buffer_rows=args.buffer_rows,
            micro_batch_rows=args.per_device_train_batch_size,
            max_joined_rows=args.max_joined_rows,
            neighbor_share=args.neighbor_share,
            passage_share=args.passage_share,
            passage_rows=args.passage_rows,
            seed=args.seed if args.data_seed is None else args.data_seed,
            epochs=None if self.step_limit else math.ceil(args.num_train_epochs),
            rank=args.process_index,
            world_size=args.world_size,
            start=self.position,
        )
        num_workers = args.dataloader_num_workers
        assert num_workers is not None  # The arguments have chosen a number.
        if batches.teacher is not None and batches.teacher.is_of_stream:
            num_workers = 0
        prefetch_factor = None
        if num_workers:
            prefetch_factor = args.dataloader_prefetch_factor or PREFETCHED_BATCHES
        return ParallelLoader(
            batches,
            batch_size=None,
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

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Optimizer:
        """Create the optimizer of transformers, with groups for parameters with their own rate."""
        rates = special_rates(self.parallel_model, self.args)
        for parameter, rate in rates.items():
            parameter.requires_grad_(parameter.requires_grad and rate > 0)
        optimizer = super().create_optimizer(*args, **kwargs)
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
    def evaluate(  # type: ignore[override]  # dev sets are rows of `datasets`
        self,
        eval_dataset: dict[str, datasets.Dataset] | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Measure retrieval on every dev set, the losses on its rows, and the tasks.

        Args:
            eval_dataset: Dev sets by name; None for those of the trainer.
            ignore_keys: Not used.
            metric_key_prefix: What the names of all metrics begin with.

        Returns:
            `eval_<set>_p1_<a>-<b>`, precision at 1 (both directions averaged, pool of `eval_pool`
            rows), and its mean over all sets and pairs, `eval_retrieval`; the same of documents,
            `eval_<set>_doc_p1_<a>-<b>`, of sets that have enough, and `eval_document_retrieval`;
            `eval_<set>_<objective>_<part>`; with classification tasks `eval_same`, `eval_cross` and
            `eval_all` on their dev splits, `eval_test_same` and `eval_test_cross`; and `eval_mix`
            (see `evaluate_model`). Every process returns what the first one measured.

        Raises:
            TmdeError: In training, no evaluation measures `metric_for_best_model`.
        """
        with self.meter.evaluation(is_before_training=self.state.global_step == 0):
            return self._evaluate_and_log(eval_dataset, metric_key_prefix)

    def _evaluate_and_log(
        self, eval_dataset: dict[str, datasets.Dataset] | None, metric_key_prefix: str
    ) -> dict[str, float]:
        """Do the work of `evaluate`, whose clock does not stand still."""
        dev_sets = self.eval_dataset if eval_dataset is None else eval_dataset
        trained = self.parallel_model
        was_training = trained.training
        measured = evaluate_model(
            whole_model(trained).eval(),
            self.processing_class,
            dev_sets or {},
            self.eval_tasks if self.is_world_process_zero() else {},
            self.args,
            self.compute_loss_context_manager,
            self.teachers,
        )
        trained.train(was_training)
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in measured.items()}
        metrics[f"{metric_key_prefix}_minutes"] = round(self.meter.seconds / 60, 3)
        if self.args.world_size > 1:
            # All must choose the same checkpoint, and stop at the same step.
            metrics = broadcast_object_list([metrics])[0]
        if self.is_in_train:
            self._check_best_metric(metrics)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

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

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the inner model as a folder that every Auto class opens, and the position.

        Where the weights are sharded, every process must call it.
        """
        parallel = self.parallel_model
        weights = None
        if is_sharded(parallel):
            weights = gathered_weights(parallel.model)
        if self.args.should_save:
            folder = Path(self.args.output_dir if output_dir is None else output_dir)
            parallel.model.save_pretrained(folder, state_dict=weights)
            self.processing_class.save_pretrained(folder)
            objective_weights = parallel.objectives.state_dict()
            if objective_weights:
                save_file(objective_weights, folder / OBJECTIVES_NAME)
            self._save_data_state(folder)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_data_state(self, folder: Path) -> None:
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
        # Checkpoints of earlier versions lack it.
        self.peak_memory.before = state.get("peak_memory_mib") or 0.0
        self.meter.load_state(state, (self.position.epoch, self.position.chunk))

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        parallel = self.accelerator.unwrap_model(self.model if model is None else model)
        load_weights(parallel.model, resume_from_checkpoint)
        if parallel.objectives.state_dict():
            objective_weights = load_file(Path(resume_from_checkpoint) / OBJECTIVES_NAME)
            parallel.objectives.load_state_dict(objective_weights)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        # No older checkpoint is deleted before this one is complete.
        limit = self.args.save_total_limit
        self.args.save_total_limit = None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial))
            seal(folder / f"checkpoint-{self.state.global_step}")
            rotate_checkpoints(str(folder), limit, self.state.best_model_checkpoint, use_mtime=True)
        if self.interruption.is_agreed:
            # The first process to end lets a launcher end the others.
            self.accelerator.wait_for_everyone()

    def _load_best_model(self) -> None:
        checkpoint = self.state.best_model_checkpoint
        assert checkpoint is not None  # `Trainer` calls this only where there is one.
        best = Path(checkpoint)
        reason = find_damage(best, only_file=SAFE_WEIGHTS_NAME)
        if reason is not None:
            raise TmdeError(
                f"{best}, the best: {reason}; copy it back, or set load_best_model_at_end=false"
            )
        load_weights(self.parallel_model.model, str(best))

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Train, from a checkpoint's position in the data and with its clock if one is given.

        Raises:
            RunInterrupted: A signal ended the run, while `interruption.heard()`.
        """
        if self.args.keep_freed_memory and self.args.device.type == "cpu":
            keep_freed_memory()
        if resume_from_checkpoint is True:
            resume_from_checkpoint = self._newest_checkpoint()
        if isinstance(resume_from_checkpoint, str):
            # Before the batches are made; weights that are sharded are loaded after.
            self._load_data_state(Path(resume_from_checkpoint))
        self._open_tokens()  # Making tokens is not training, so the clock starts after it.
        self._rows_before = self.meter.seen["rows"]
        self.meter.start()
        self.peak_memory.start()
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            self._progress.close()

    def _finalize_training(self, trial: Any, num_train_samples: float, start_time: float) -> Any:
        """End the training, and report its speed in rows of parallel text.

        transformers takes every step for the same number of rows, and `num_train_samples` for those
        of all `max_steps`.
        """
        (rows,) = sum_on_host([self.meter.seen["rows"] - self._rows_before])
        steps = self.state.global_step - self._initial_global_step
        samples = rows * self.state.max_steps / max(steps, 1)
        return super()._finalize_training(trial, samples, start_time)

    def _newest_checkpoint(self) -> str:
        checkpoint = find_checkpoint(Path(self.args.output_dir))
        if checkpoint is None:
            raise TmdeError(f"{self.args.output_dir} holds no complete checkpoint to resume from")
        return str(checkpoint)


def _parallel_arguments(args: TrainingArguments, model: ParallelModel) -> TmdeTrainingArguments:
    """Return a copy of the arguments, with those of `Trainer` that follow from parallel batches."""
    args = copy.copy(as_tmde_arguments(args))
    args.ignore_data_skip = True  # The data resume at a position; see `TmdeTrainer.train`.
    # transformers needs a number. `TmdeTrainingArguments` of the caller keep None.
    args.per_device_train_batch_size = args.train_batch_size
    if args.ddp_find_unused_parameters is None:
        # An encoder with parts for each language does not use those that a batch lacks.
        needs_languages = getattr(model.encoder, "needs_language_ids", False)
        args.ddp_find_unused_parameters = needs_languages
    if args.ddp_broadcast_buffers is None:
        args.ddp_broadcast_buffers = False  # Position tables are the same everywhere.
    return args


def _restore_use_cache(model: ParallelModel) -> None:
    """Set `use_cache` of a decoder's config, which `Trainer` has set to False in any config."""
    if hasattr(model.model, "decoder"):
        model.config.use_cache = True
    else:
        del model.config.use_cache
