"""`TmdeTrainer`: HuggingFace's Trainer over parallel rows."""

import contextlib
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
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, ProgressCallback, Trainer
from transformers.trainer_callback import PrinterCallback

from modeling_tmde.eval.tasks import ClassificationData
from modeling_tmde.training.arguments import NO_STEP_LIMIT, TmdeTrainingArguments
from modeling_tmde.training.batching import ChunkCounts, ParallelBatch, ParallelBatches, Position
from modeling_tmde.training.callbacks import CurvePicture, EarlyStopping, ParallelProgress, RunLimits
from modeling_tmde.training.epoch_table import EpochEnds
from modeling_tmde.training.evaluation import (
    check_documents,
    check_selection,
    dev_losses,
    dev_means,
    dev_retrieval,
    measure_task,
    task_in_languages,
    task_means,
)
from modeling_tmde.training.parallel_model import ParallelModel

DATA_STATE_NAME = "data_state.json"


class TmdeTrainer(Trainer):
    """
    Trains a `ParallelModel` on parallel rows.

    Micro-batches fill a token budget. Every loss is a sum divided by its count over all micro-batches and processes
    of an optimizer step, so gradients do not depend on how a batch is cut up, except that the negatives of an
    embedding objective are those of one micro-batch. Checkpoints hold the inner encoder-decoder as any
    `save_pretrained` folder does, and the place in the data, so that a run resumes where it stopped. Evaluation
    measures translation retrieval of the sentences and of the documents of the dev rows between every pair of
    languages, and Same and Cross of classification tasks; their mean, `mix`, chooses the checkpoint. The run's folder
    gets `log.jsonl`, `epochs.md` and, where matplotlib is installed, `curves.png`.

    Args:
        model: The parallel model.
        args: Training arguments.
        train_dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        eval_dataset: Map-style rows, or several sets by name; where they have a column `doc_id`, it tells documents.
        eval_task: Texts with classes in at least two of the model's languages, with the splits `train`, `dev`, `test`;
            or several such tasks by name.
        processing_class: The tokenizer.
        callbacks, optimizers: As in `Trainer`.

    Raises:
        ValueError: If nothing limits the run, the schedule needs a number of steps that is not known, or the best
            checkpoint is chosen by what is not measured.
    """

    def __init__(
        self,
        model: ParallelModel,
        args: TmdeTrainingArguments,
        train_dataset: datasets.Dataset | datasets.IterableDataset,
        processing_class: PreTrainedTokenizerBase,
        eval_dataset: datasets.Dataset | dict[str, datasets.Dataset] | None = None,
        eval_task: ClassificationData | dict[str, ClassificationData] | None = None,
        callbacks: list | None = None,
        optimizers: tuple = (None, None),
    ):
        self.step_limit = args.max_steps if 0 < args.max_steps < NO_STEP_LIMIT else None
        if self.step_limit is None:
            if args.lr_scheduler_type not in ("inverse_sqrt", "constant", "constant_with_warmup"):
                raise ValueError(f"lr_scheduler_type={args.lr_scheduler_type.value} needs max_steps to be set")
            for name in ("warmup_steps", "eval_steps", "save_steps", "logging_steps"):
                if 0 < (getattr(args, name) or 0) < 1:
                    raise ValueError(f"{name}={getattr(args, name)} is a share of all steps and needs max_steps")
            endless = not args.max_minutes and not isinstance(train_dataset, datasets.Dataset)
            if args.cooldown and endless:
                raise ValueError("cooldown of streamed data needs max_steps or max_minutes: their length is unknown")
            args.max_steps = NO_STEP_LIMIT
        # Parallel batches are made here, for this process, so the Trainer gets no dataset to wrap and shard.
        if isinstance(eval_dataset, datasets.Dataset):
            eval_dataset = {"dev": eval_dataset}
        for pair in args.eval_pairs or ():
            if not set(pair.split("-")) <= set(model.config.languages) or pair.count("-") != 1:
                raise ValueError(f"eval_pairs: {pair!r} is not a pair of the languages {model.config.languages}")
        languages = model.config.languages
        check_selection(args.metric_for_best_model, bool(eval_dataset), bool(eval_task))
        check_documents(args.metric_for_best_model, eval_dataset or {}, languages, args)
        tasks = {"task": eval_task} if isinstance(eval_task, ClassificationData) else eval_task or {}
        self.eval_tasks = {name: task_in_languages(task, languages) for name, task in tasks.items()}
        args.remove_unused_columns = False
        args.ignore_data_skip = True  # the data resume at a position, see `_load_data_state`
        if args.ddp_find_unused_parameters is None:
            args.ddp_find_unused_parameters = False
        super().__init__(
            model=model,
            args=args,
            eval_dataset=eval_dataset or ({} if tasks else None),
            processing_class=processing_class,
            callbacks=callbacks,
            optimizers=optimizers,
        )
        self.parallel_dataset = train_dataset
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True  # `compute_loss` divides by the counts of the whole step
        self.position = Position()
        self.chunk_done = 0.0  # of the chunk at `position`
        self.seen: dict[str, float] = defaultdict(float)  # by this process, since the beginning of the run
        self.chunk_counts = ChunkCounts()
        self.data_wait = 0.0
        self._last_chunk: tuple[int, int] | None = None
        self._components: dict[str, torch.Tensor] = {}
        self._component_counts: dict[str, float] = defaultdict(float)
        self._window: tuple[float, dict[str, float]] | None = None
        self._elapsed_before = 0.0
        self._train_begin = time.perf_counter()
        # The first process's clock as of this step: what depends on time must be decided alike by every process.
        self.elapsed = 0.0
        self.remove_callback(ProgressCallback)
        self.remove_callback(PrinterCallback)
        self.add_callback(RunLimits(self))
        self.add_callback(EpochEnds(self))
        self.add_callback(ParallelProgress(self))
        self.add_callback(CurvePicture(self))
        if args.early_stopping_patience is not None:
            self.add_callback(EarlyStopping(args.early_stopping_patience))

    # ---- How far the run is

    @property
    def epoch_rows(self) -> int | None:
        """Rows of one epoch, or None for a stream of unknown length."""
        return len(self.parallel_dataset) if isinstance(self.parallel_dataset, datasets.Dataset) else None

    @property
    def seconds(self) -> float:
        """Seconds of training by this process's clock, those before a resume included."""
        return self._elapsed_before + time.perf_counter() - self._train_begin

    @property
    def epochs_done(self) -> float | None:
        if not self.epoch_rows:
            return None
        chunks = math.ceil(self.epoch_rows / self.args.buffer_rows)
        return self.position.epoch + (self.position.chunk + self.chunk_done) / chunks

    @property
    def whole_epochs(self) -> int:
        """Epochs that are over; one of a stream is when the next has begun, or the stream has ended."""
        return self.position.epoch if self.epochs_done is None else int(self.epochs_done)

    def progress(self, step: int | None = None) -> float:
        """Share of the run that is done, between 0 and 1, by whichever limit is nearest; `step` if not this one."""
        shares = [0.0]
        if self.step_limit:
            shares.append((self.state.global_step if step is None else step) / self.step_limit)
        else:
            if self.epochs_done is not None:
                shares.append(self.epochs_done / self.args.num_train_epochs)
        if self.args.max_minutes:
            shares.append(self.elapsed / 60 / self.args.max_minutes)
        return min(max(shares), 1.0)

    # ---- Data

    def get_train_dataloader(self) -> DataLoader:
        args = self.args
        model: ParallelModel = self.accelerator.unwrap_model(self.model)
        batches = ParallelBatches(
            self.parallel_dataset,
            self.processing_class,
            model.config.languages,
            model.config.pivot_languages,
            micro_batch_tokens=args.micro_batch_tokens,
            languages_per_row=args.languages_per_row,
            temperature=args.pair_temperature,
            buffer_rows=args.buffer_rows,
            micro_batch_rows=args.micro_batch_rows,
            max_joined_rows=args.max_joined_rows,
            neighbor_share=args.neighbor_share,
            pivots_only=model.needs_pivot,
            max_length=args.train_max_length,
            seed=args.data_seed if args.data_seed is not None else args.seed,
            epochs=None if self.step_limit else math.ceil(args.num_train_epochs),
            rank=args.process_index,
            world_size=args.world_size,
            start=self.position,
        )
        return DataLoader(
            batches,
            batch_size=None,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
            # Starting to iterate draws a number; from a generator of its own, a resumed run is not one draw ahead.
            generator=torch.Generator(),
        )

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """The micro-batches of one optimizer step, and every objective's count over all of them and all processes."""
        if self.progress() >= 1.0 or self.control.should_training_stop:  # a finished run was resumed
            self.control.should_training_stop = True
            return [], None
        begin = time.perf_counter()
        batches: list[ParallelBatch] = list(itertools.islice(epoch_iterator, num_batches))
        self.data_wait += time.perf_counter() - begin
        if len(batches) < num_batches:
            if self.state.global_step == 0:
                raise ValueError(
                    f"The training data fill {len(batches)} micro-batches per process, an optimizer step takes "
                    f"{num_batches}: lower batch_tokens or micro_batch_tokens, or give more rows"
                )
            self.control.should_training_stop = True
            if self.epochs_done is None:  # the stream is over, which nothing else would show
                self.position = Position(math.ceil(self.args.num_train_epochs))
            return [], None
        for batch in batches:
            self._account(batch)
        self.position, self.chunk_done = batches[-1].next_position, batches[-1].chunk_done
        objectives = self.accelerator.unwrap_model(self.model).objectives
        totals = [sum(objective.count(batch.sizes) for batch in batches) for objective in objectives.values()]
        totals.append(self.seconds if self.args.process_index == 0 else 0.0)
        if self.args.world_size > 1:
            totals = self.accelerator.reduce(torch.tensor(totals, device=device, dtype=torch.float32), "sum").tolist()
        *counts, self.elapsed = totals
        return batches, dict(zip(objectives, counts, strict=True))

    def _account(self, batch: ParallelBatch) -> None:
        self.seen["rows"] += batch.sizes.rows
        self.seen["source_tokens"] += float(batch.attention_mask.sum())
        self.seen["padded_tokens"] += batch.attention_mask.numel()
        self.seen["target_tokens"] += batch.sizes.target_tokens
        self.seen["source_words"] += batch.words[0]
        self.seen["target_words"] += batch.words[1]
        chunk = (batch.position.epoch, batch.position.chunk)
        if chunk != self._last_chunk:
            self._last_chunk = chunk
            self.chunk_counts.add(batch.counts)

    def _prepare_inputs(self, batch: ParallelBatch) -> ParallelBatch:
        batch.input_ids = batch.input_ids.to(self.args.device, non_blocking=True)
        batch.attention_mask = batch.attention_mask.to(self.args.device, non_blocking=True)
        return batch

    # ---- Loss

    def compute_loss(self, model, inputs: ParallelBatch, return_outputs=False, num_items_in_batch=None):
        """The sum of `weight * loss / count` over the objectives, such that DDP's mean over processes is the loss."""
        outputs = model(**inputs.model_inputs())
        objectives = self.accelerator.unwrap_model(model).objectives
        loss = 0.0
        for name, components in outputs.items():
            scale = self.args.world_size / max(num_items_in_batch[name], 1.0)
            loss = loss + objectives[name].weight * scale * components["total"]
            self._component_counts[name] += objectives[name].count(inputs.sizes)
            for component, value in components.items():
                if component != "total":
                    key = f"{name}/{component}"
                    self._components[key] = self._components.get(key, 0) + value
        return (loss, outputs) if return_outputs else loss

    def floating_point_ops(self, inputs: ParallelBatch) -> float:
        """6 operations per parameter and token (Kaplan et al. 2020), embedding tables not counted; of an encoder that
        has little else, as the bag, 6 per dimension and token, the share of the table that a token has."""
        parallel: ParallelModel = self.accelerator.unwrap_model(self.model)
        if not parallel.has_decoder:
            return 6.0 * parallel.config.hidden_size * float(inputs.attention_mask.sum())
        model = parallel.model
        tables = (model.model.embed_tokens.weight.numel(), model.decoder.embed_tokens.weight.numel())
        encoder = sum(parameter.numel() for parameter in model.model.parameters()) - tables[0]
        decoder = sum(parameter.numel() for parameter in model.decoder.parameters()) - tables[1]
        output = model.lm_head.weight.numel()
        return 6.0 * (encoder * inputs.attention_mask.numel() + (decoder + output) * inputs.sizes.target_tokens)

    # ---- Schedule

    def create_optimizer(self, *args, **kwargs):
        """As in transformers, with the embedding tables in a group of their own if their rate is another."""
        rate = self.args.embedding_learning_rate
        tables = self.accelerator.unwrap_model(self.model).embedding_parameters()
        if rate == 0:
            for parameter in tables:
                parameter.requires_grad_(False)
        optimizer = super().create_optimizer(*args, **kwargs)
        if rate:
            known = {id(parameter) for parameter in tables}
            for group in list(optimizer.param_groups):
                own = [parameter for parameter in group["params"] if id(parameter) in known]
                if own:
                    group["params"] = [parameter for parameter in group["params"] if id(parameter) not in known]
                    optimizer.add_param_group({**group, "params": own, "lr": rate})
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """The schedule of the arguments, brought linearly to 0 over the last `cooldown` share of the run."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self.args.cooldown:

            def cooled(schedule):
                return lambda step: schedule(step) * min(1.0, (1.0 - self.progress(step)) / self.args.cooldown)

            scheduler.lr_lambdas = [cooled(schedule) for schedule in scheduler.lr_lambdas]
        return scheduler

    # ---- Logging

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # Of a stream whole passes are known; what transformers thinks is a share of the steps.
        self.state.epoch = round(float(self.position.epoch) if self.epochs_done is None else self.epochs_done, 4)
        if "loss" in logs:
            logs.update(self._drain_components())
            logs.update(self._throughput())
        super().log(logs, start_time)

    def _drain_components(self) -> dict[str, float]:
        """Every component of every loss, averaged over what was trained since the last call."""
        names = sorted(self._components)
        if not names:
            return {}
        values = torch.stack([self._components[name].float() for name in names])
        counts = torch.tensor([self._component_counts[name.split("/")[0]] for name in names], device=values.device)
        if self.args.world_size > 1:
            values, counts = self.accelerator.reduce((values, counts.float()), "sum")
        self._components.clear()
        self._component_counts.clear()
        means = (values / counts.clamp_min(1)).tolist()
        return {name.replace("/", "_"): value for name, value in zip(names, means, strict=True)}

    def _throughput(self) -> dict[str, float]:
        """Words and tokens per second since the last call, and the share of the time spent waiting for data."""
        now = time.perf_counter()
        totals = {**self.seen, "data_wait": self.data_wait}
        if self._window is None:
            self._window = (self._train_begin, {})
        before, last = self._window
        seconds = max(now - before, 1e-9)
        self._window = (now, totals)
        new = {name: (value - last.get(name, 0.0)) for name, value in totals.items()}
        processes = self.args.world_size  # every process trains an equal share
        return {
            "words_per_second": round((new["source_words"] + new["target_words"]) * processes / seconds, 1),
            "source_words_per_second": round(new["source_words"] * processes / seconds, 1),
            "target_words_per_second": round(new["target_words"] * processes / seconds, 1),
            "tokens_per_second": round((new["source_tokens"] + new["target_tokens"]) * processes / seconds, 1),
            "padding": round(1 - new["source_tokens"] / max(new["padded_tokens"], 1.0), 4),
            "data_wait": round(new["data_wait"] / seconds, 4),
            "rows": self.seen["rows"] * processes,
            "minutes": round(self.seconds / 60, 3),
        }

    # ---- Evaluation

    @torch.no_grad()
    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Retrieval precision at 1 for the language pairs of every dev set, the losses on its rows, and the tasks.

        Returns:
            `eval_<set>_p1_<a>-<b>` (both directions averaged, pool of `eval_pool` rows), their mean over all sets and
            pairs, `eval_retrieval`; the same of documents, `eval_<set>_doc_p1_<a>-<b>`, of sets that have enough, and
            `eval_document_retrieval`; `eval_<set>_<objective>_<part>`; of the classification tasks, if there are any,
            `eval_same`, `eval_cross` and `eval_all` on their dev splits, `eval_test_same` and `eval_test_cross`; and
            `eval_mix` (see `dev_means`). Every process returns what the first one measured.
        """
        begin = time.perf_counter()
        dev_sets = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dev_sets, datasets.Dataset):
            dev_sets = {"dev": dev_sets}
        model: ParallelModel = self.accelerator.unwrap_model(self.model)
        was_training = model.training
        model.eval()
        metrics: dict[str, float] = {}
        retrieval: list[dict[str, float]] = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.compute_loss_context_manager())
            for name, rows in dev_sets.items():
                retrieval.append(dev_retrieval(model, self.processing_class, rows, self.args))
                measured = retrieval[-1] | dev_losses(model, self.processing_class, rows, self.args)
                metrics.update({f"{name}_{key}": value for key, value in measured.items()})
        if dev_sets and not any(retrieval):
            raise ValueError(
                f"No dev set has two rows of any of the pairs {self.args.eval_pairs or 'of its languages'}; "
                "check eval_pairs and the dev data"
            )
        scores = self._evaluate_tasks(model)
        model.train(was_training)
        metrics |= scores | dev_means(retrieval, scores)
        metrics = {f"{metric_key_prefix}_{key}": round(value, 6) for key, value in metrics.items()}
        metrics[f"{metric_key_prefix}_minutes"] = round(self.seconds / 60, 3)
        if self.args.world_size > 1:  # which must choose the same checkpoint, and stop at the same step
            metrics = broadcast_object_list([metrics])[0]
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        if self._window is not None:  # words per second are of training alone
            self._window = (self._window[0] + time.perf_counter() - begin, self._window[1])
        return metrics

    def _evaluate_tasks(self, model: ParallelModel) -> dict[str, float]:
        """Measured by the first process for all: a classifier is trained for every language of every task."""
        scores = {}
        if self.is_world_process_zero():
            for name, task in self.eval_tasks.items():
                autocast = self.compute_loss_context_manager()
                scores[name] = measure_task(model, self.processing_class, task, self.args, autocast)
        return task_means(scores)

    # ---- Checkpoints

    def _save(self, output_dir: str | None = None, state_dict=None) -> None:
        """Writes the model, not its training wrapper: a folder that every Auto class opens."""
        if not self.args.should_save:
            return
        output_dir = output_dir or self.args.output_dir
        model: ParallelModel = self.accelerator.unwrap_model(self.model)
        use_cache = model.config.use_cache  # which transformers sets to off while it trains, whatever the model
        if model.has_decoder:
            model.config.use_cache = True
        else:
            del model.config.use_cache
        model.model.save_pretrained(output_dir)
        model.config.use_cache = use_cache
        self.processing_class.save_pretrained(output_dir)
        state = {
            "position": asdict(self.position),
            "chunk_done": self.chunk_done,
            "seen": dict(self.seen),
            "chunk_counts": asdict(self.chunk_counts),
            "elapsed": self.seconds,
        }
        (Path(output_dir) / DATA_STATE_NAME).write_text(json.dumps(state, indent=2))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        model = self.accelerator.unwrap_model(self.model if model is None else model)
        load_weights(model.model, resume_from_checkpoint)
        state = json.loads((Path(resume_from_checkpoint) / DATA_STATE_NAME).read_text())
        self.position, self.chunk_done = Position(**state["position"]), state["chunk_done"]
        self.seen = defaultdict(float, state["seen"])
        self.chunk_counts = ChunkCounts(**state["chunk_counts"])
        self._last_chunk = (self.position.epoch, self.position.chunk)
        self._elapsed_before = self.elapsed = state["elapsed"]
        self._window = (time.perf_counter(), dict(self.seen))

    def _load_best_model(self) -> None:
        load_weights(self.accelerator.unwrap_model(self.model).model, self.state.best_model_checkpoint)

    def train(self, *args, **kwargs):
        self._train_begin = time.perf_counter()
        return super().train(*args, **kwargs)


def load_weights(model, folder: str) -> None:
    """Puts the weights of a `save_pretrained` folder into a model that exists already."""
    tensors = load_file(Path(folder) / "model.safetensors")
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    tied = set(model.all_tied_weights_keys)
    if unexpected or set(missing) - tied:
        raise ValueError(
            f"The weights in {folder} do not fit the model: missing {sorted(set(missing) - tied)[:5]}, "
            f"unexpected {unexpected[:5]}; resume with the recipe the run was started with"
        )
