"""`TmdeTrainer`: HuggingFace's Trainer over parallel rows."""

import itertools
import json
import math
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import datasets
import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, ProgressCallback
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import rotate_checkpoints
from transformers.utils import SAFE_WEIGHTS_NAME

from modeling_tmde import TmdeError
from tmde.data.tokens import open_tokens
from tmde.eval.tasks import ClassificationData
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.batches import ParallelBatch, ParallelLoader, Position, batches_of
from tmde.training.callbacks import EarlyStopping, RunProgress, RunSchedule
from tmde.training.checkpoints import damage, find_checkpoint, seal
from tmde.training.distributed import (
    gathered_weights,
    is_sharded,
    load_weights,
    prepare_fsdp,
    whole_model,
)
from tmde.training.evaluation import evaluate_model
from tmde.training.memory import keep_freed_memory
from tmde.training.objectives.gather import sum_on_host
from tmde.training.optimization import cool_down, freeze, limit_steps, own_rates
from tmde.training.parallel_model import ParallelModel
from tmde.training.publishing import HubTrainer
from tmde.training.throughput import ComponentSums, RunMeter

DATA_STATE_NAME = "data_state.json"
OBJECTIVES_NAME = "objectives.safetensors"


class TmdeTrainer(HubTrainer):
    """
    Trains a `ParallelModel` on parallel rows.

    Micro-batches fill a token budget. Every loss is a sum divided by its count over all micro-batches and processes
    of an optimizer step, so gradients do not depend on how a batch is split, except that the negatives of an embedding
    objective are those of one micro-batch, or with `gather` those of one micro-batch of every process. Checkpoints
    hold the inner encoder-decoder as any `save_pretrained` folder does, and the position in the data, so a run resumes
    where it stopped. Evaluation measures translation retrieval of the sentences and documents of the dev rows between
    every pair of languages, and Same and Cross of classification tasks; their mean, `mix`, chooses the checkpoint. The
    run's folder gets `log.jsonl` and, if matplotlib is installed, `curves.png`.

    Args:
        model: The parallel model.
        args: Training arguments.
        train_dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        eval_dataset: Dev sets by name, map-style rows; a column `doc_id` names their documents.
        eval_tasks: Classification tasks by name, from `load_eval_tasks`.
        processing_class: The tokenizer.
        kwargs: `callbacks` and `optimizers` of `Trainer`.

    Raises:
        ValueError: Nothing limits the run, the schedule needs a number of steps that is not known, or FSDP is asked
            for where there is none.
    """

    def __init__(
        self,
        model: ParallelModel,
        args: TmdeTrainingArguments,
        train_dataset: datasets.Dataset | datasets.IterableDataset,
        processing_class: PreTrainedTokenizerBase,
        eval_dataset: dict[str, datasets.Dataset] | None = None,
        eval_tasks: dict[str, ClassificationData] | None = None,
        **kwargs,
    ):
        self.step_limit = limit_steps(
            args, streaming=not isinstance(train_dataset, datasets.Dataset)
        )
        self.eval_tasks = eval_tasks or {}
        args.remove_unused_columns = False
        args.ignore_data_skip = True  # the data resume at a position, see `train`
        args.logging_nan_inf_filter = False  # which would wait for the accelerator at every step
        if args.ddp_find_unused_parameters is None:  # of the languages that a batch lacks
            args.ddp_find_unused_parameters = getattr(model.encoder, "needs_language_ids", False)
        if args.ddp_broadcast_buffers is None:
            args.ddp_broadcast_buffers = False  # position tables are the same everywhere
        freeze(model.model, args.freeze)
        # Parallel batches are made here, for this process, so `Trainer` gets no dataset to wrap and shard.
        dev_sets = eval_dataset or ({} if eval_tasks else None)
        super().__init__(
            model, args, eval_dataset=dev_sets, processing_class=processing_class, **kwargs
        )
        model.config.use_cache = True  # which `Trainer` sets to False
        if not hasattr(model.model, "decoder"):
            del model.config.use_cache
        if self.accelerator.ddp_handler is not None:
            self.accelerator.ddp_handler.gradient_as_bucket_view = (
                True  # one copy of the gradients instead of two
            )
        prepare_fsdp(self.accelerator, args, model)
        self.parallel_dataset = train_dataset
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True  # `compute_loss` divides by the counts of the whole step
        self.position = Position()
        self.chunk_done = 0.0  # of the chunk at `position`
        self.meter = RunMeter()
        self._components = ComponentSums()
        self.remove_callback(ProgressCallback)
        self.remove_callback(PrinterCallback)
        self.add_callback(RunSchedule(self))
        self.add_callback(RunProgress(self))
        if args.early_stopping_patience is not None:
            self.add_callback(EarlyStopping(args.early_stopping_patience))

    # ---- Progress

    @property
    def epochs_done(self) -> float | None:
        """None for a stream, whose length is unknown."""
        if not isinstance(self.parallel_dataset, datasets.Dataset):
            return None
        chunks = math.ceil(len(self.parallel_dataset) / self.args.buffer_rows)
        return self.position.epoch + (self.position.chunk + self.chunk_done) / max(chunks, 1)

    @property
    def whole_epochs(self) -> int:
        """Completed epochs; one of a stream is complete when the next has begun, or the stream has ended."""
        return self.position.epoch if self.epochs_done is None else int(self.epochs_done)

    def progress(self, step: int | None = None) -> float:
        """Share of the run that is done at `step` (default: this one), between 0 and 1, by the nearest limit."""
        args, meter = self.args, self.meter
        limits = [
            (meter.elapsed / 60, args.max_minutes),
            (meter.cpu_elapsed / 60, args.max_cpu_minutes),
        ]
        if self.step_limit:
            limits.append((self.state.global_step if step is None else step, self.step_limit))
        else:
            limits.append((self.epochs_done or 0.0, args.num_train_epochs))
        return min(max(done / limit for done, limit in limits if limit), 1.0)

    # ---- Data

    def get_train_dataloader(self) -> DataLoader:
        args = self.args
        model: ParallelModel = self.accelerator.unwrap_model(self.model)
        rows, tokenizer = self.parallel_dataset, self.processing_class
        names = (
            "languages_per_row",
            "buffer_rows",
            "micro_batch_rows",
            "max_joined_rows",
            "neighbor_share",
        )
        options = {name: getattr(args, name) for name in names} | {
            "temperature": args.pair_temperature
        }
        options |= {
            "rank": args.process_index,
            "world_size": args.world_size,
            "start": self.position,
        }
        options |= {"seed": args.seed if args.data_seed is None else args.data_seed}
        options |= {"epochs": None if self.step_limit else math.ceil(args.num_train_epochs)}
        tokens = open_tokens(rows, tokenizer, model.texts, args.token_cache_dir)
        batches = batches_of(rows, tokenizer, model, args, tokens=tokens, **options)
        loading = {"pin_memory": args.dataloader_pin_memory and args.device.type == "cuda"}
        if args.dataloader_num_workers:
            ahead = args.dataloader_prefetch_factor or 4
            loading |= {"num_workers": args.dataloader_num_workers, "prefetch_factor": ahead}
        # Starting to iterate draws a number; from a generator of its own, a resumed run is not one draw ahead.
        return ParallelLoader(batches, batch_size=None, generator=torch.Generator(), **loading)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """The micro-batches of one optimizer step, and every objective's count over all of them and all processes."""
        if (
            self.progress() >= 1.0 or self.control.should_training_stop
        ):  # a finished run was resumed
            self.control.should_training_stop = True
            return [], None
        begin = time.perf_counter()
        batches: list[ParallelBatch] = list(itertools.islice(epoch_iterator, num_batches))
        self.meter.data_wait += time.perf_counter() - begin
        if len(batches) < num_batches:
            if self.state.global_step == 0:
                found = f"The training data fill {len(batches)} micro-batches per process, a step takes {num_batches}"
                raise TmdeError(
                    f"{found}: lower batch_tokens or micro_batch_tokens, or give more rows"
                )
            self.control.should_training_stop = True
            if self.epochs_done is None:  # the stream is over, which nothing else would show
                self.position = Position(math.ceil(self.args.num_train_epochs))
            return [], None
        for batch in batches:
            self.meter.add(batch)
        self.position, self.chunk_done = batches[-1].next_position, batches[-1].chunk_done
        objectives = self.accelerator.unwrap_model(self.model).objectives
        totals = [
            sum(objective.count(batch.sizes) for batch in batches)
            for objective in objectives.values()
        ]
        first = self.args.process_index == 0
        totals += [self.meter.seconds, self.meter.cpu_seconds] if first else [0.0, 0.0]
        *counts, self.meter.elapsed, self.meter.cpu_elapsed = sum_on_host(totals)
        return batches, dict(zip(objectives, counts, strict=True))

    def _prepare_inputs(self, batch: ParallelBatch) -> ParallelBatch:
        return batch.to(self.args.device)

    # ---- Loss

    def compute_loss(
        self, model, inputs: ParallelBatch, return_outputs=False, num_items_in_batch=None
    ):
        """The sum of `weight * loss / count` over the objectives, such that DDP's mean over processes is the loss."""
        outputs = model(inputs)
        objectives = self.accelerator.unwrap_model(model).objectives
        loss = 0.0
        for name, components in outputs.items():
            scale = self.args.world_size / max(num_items_in_batch[name], 1.0)
            loss = loss + objectives[name].weight * scale * components["total"]
            self._components.add(name, components, objectives[name].count(inputs.sizes))
        return (loss, outputs) if return_outputs else loss

    def floating_point_ops(self, inputs: ParallelBatch) -> float:
        """6 per parameter outside the tables and token (Kaplan et al. 2020)."""
        model = self.accelerator.unwrap_model(self.model).model
        return 6.0 * model.num_parameters(exclude_embeddings=True) * float(inputs.lengths.sum())

    # ---- Schedule

    def create_optimizer(self, *args, **kwargs):
        """As in transformers, with groups of their own for an encoder or tables with their own learning rate."""
        rates = own_rates(self.accelerator.unwrap_model(self.model), self.args)
        for parameter, rate in rates.items():
            parameter.requires_grad_(parameter.requires_grad and rate > 0)
        optimizer = super().create_optimizer(*args, **kwargs)
        for group in list(optimizer.param_groups):
            by_rate = defaultdict(list)
            for parameter in group["params"]:
                by_rate[rates.get(parameter, group["lr"])].append(parameter)
            group["params"] = by_rate.pop(group["lr"], [])
            for rate, parameters in by_rate.items():
                optimizer.add_param_group({**group, "params": parameters, "lr": rate})
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """The schedule of the arguments, brought linearly to 0 over the last `cooldown` share of the run."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self.args.cooldown:
            cool_down(scheduler, self.progress, self.args.cooldown)
        return scheduler

    # ---- Logging

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # transformers sets a share of the steps.
        self.state.epoch = round(
            float(self.position.epoch) if self.epochs_done is None else self.epochs_done, 4
        )
        if "loss" in logs:
            logs.update(self._components.means(self.accelerator))
            logs.update(self.meter.rates(self.args.world_size))
            logs["minutes"] = round(self.meter.seconds / 60, 3)
        super().log(logs, start_time)

    # ---- Evaluation

    def _determine_best_metric(self, metrics: dict[str, float], trial) -> bool:
        try:
            return super()._determine_best_metric(metrics, trial)
        except KeyError as error:  # whose text names what was measured
            raise TmdeError(error.args[0]) from error

    @torch.no_grad()
    def evaluate(
        self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Retrieval precision at 1 for the language pairs of every dev set, the losses on its rows, and the tasks.

        Returns:
            `eval_<set>_p1_<a>-<b>` (both directions averaged, pool of `eval_pool` rows), their mean over all sets and
            pairs, `eval_retrieval`; the same of documents, `eval_<set>_doc_p1_<a>-<b>`, of sets that have enough, and
            `eval_document_retrieval`; `eval_<set>_<objective>_<part>`; of the classification tasks, if there are any,
            `eval_same`, `eval_cross` and `eval_all` on their dev splits, `eval_test_same` and `eval_test_cross`; and
            `eval_mix` (see `evaluate_model`). Every process returns what the first one measured.
        """
        begin = time.perf_counter()
        trained: ParallelModel = self.accelerator.unwrap_model(self.model)
        was_training = trained.training
        dev_sets = self.eval_dataset if eval_dataset is None else eval_dataset
        tasks = self.eval_tasks if self.is_world_process_zero() else {}
        model, autocast = whole_model(trained).eval(), self.compute_loss_context_manager
        measured = evaluate_model(
            model, self.processing_class, dev_sets, tasks, self.args, autocast
        )
        trained.train(was_training)
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in measured.items()}
        metrics[f"{metric_key_prefix}_minutes"] = round(self.meter.seconds / 60, 3)
        if (
            self.args.world_size > 1
        ):  # which must choose the same checkpoint, and stop at the same step
            metrics = broadcast_object_list([metrics])[0]
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        self.meter.interval_begin += (
            time.perf_counter() - begin
        )  # words per second are of training alone
        return metrics

    # ---- Checkpoints

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in transformers; where the weights are sharded, every process must call it."""
        model = self.accelerator.unwrap_model(self.model)
        if not is_sharded(model):
            super().save_model(output_dir, _internal_call)
            return
        self._save(output_dir, state_dict=gathered_weights(model.model))

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Writes the inner model as a folder that every Auto class opens, and the position in the data.

        Args:
            state_dict: Weights of the inner model, if they are sharded.
        """
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        parallel = self.accelerator.unwrap_model(self.model)
        parallel.model.save_pretrained(folder, state_dict=state_dict)
        self.processing_class.save_pretrained(folder)
        if weights := parallel.objectives.state_dict():
            save_file(weights, folder / OBJECTIVES_NAME)
        state = {
            "position": asdict(self.position),
            "chunk_done": self.chunk_done,
            **self.meter.state(),
        }
        (folder / DATA_STATE_NAME).write_text(json.dumps(state, indent=2))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        model = self.accelerator.unwrap_model(self.model if model is None else model)
        load_weights(model.model, resume_from_checkpoint)
        if model.objectives.state_dict():
            model.objectives.load_state_dict(
                load_file(Path(resume_from_checkpoint) / OBJECTIVES_NAME)
            )

    def _save_checkpoint(self, model, trial) -> None:
        limit = self.args.save_total_limit
        self.args.save_total_limit = (
            None  # no older checkpoint is deleted before this one is complete
        )
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial))
            seal(folder / f"checkpoint-{self.state.global_step}")
            rotate_checkpoints(str(folder), limit, self.state.best_model_checkpoint, use_mtime=True)

    def _load_best_model(self) -> None:
        best = Path(self.state.best_model_checkpoint)
        if reason := damage(best, f" {SAFE_WEIGHTS_NAME}"):
            raise TmdeError(
                f"{best}, the best: {reason}; copy it back, or set load_best_model_at_end=false"
            )
        load_weights(self.accelerator.unwrap_model(self.model).model, str(best))

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        if self.args.keep_freed_memory and self.args.device.type == "cpu":
            keep_freed_memory()
        if resume_from_checkpoint is True:
            found = find_checkpoint(Path(self.args.output_dir))
            if found is None:
                raise TmdeError(
                    f"{self.args.output_dir} holds no complete checkpoint to resume from"
                )
            resume_from_checkpoint = str(found)
        if isinstance(
            resume_from_checkpoint, str
        ):  # before the batches are made; sharded weights are loaded after
            state = json.loads((Path(resume_from_checkpoint) / DATA_STATE_NAME).read_text())
            self.position, self.chunk_done = Position(**state["position"]), state["chunk_done"]
            self.meter.load_state(state, (self.position.epoch, self.position.chunk))
        self.meter.start()
        return super().train(resume_from_checkpoint, *args, **kwargs)
