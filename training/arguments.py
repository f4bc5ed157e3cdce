"""Training arguments: HuggingFace's, and what parallel batches and time limits add."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.training_args import OptimizerNames

from modeling_tmde import TmdeError
from tmde.embedding.machine import has_fast_bf16
from tmde.eval.dev_retrieval import MIN_ROWS
from tmde.training.argument_table import (
    check_accelerator_options,
    check_supported,
    field_default,
)
from tmde.training.objectives.base import check_range

# The value of `max_steps` where epochs or minutes end the run; transformers needs a number.
NO_STEP_LIMIT = 2**31 - 1
# Numbers outside of these intervals would fail late, or leave no data.
INTERVALS = {
    "batch_tokens": "[1, inf)",
    "micro_batch_tokens": "[1, inf)",
    "per_device_train_batch_size": "[1, inf)",
    "per_device_eval_batch_size": "[1, inf)",
    "buffer_rows": "[1, inf)",
    "gradient_accumulation_steps": "[1, inf)",
    "max_joined_rows": "[1, inf)",
    "languages_per_row": "[2, inf)",
    "train_max_length": "[3, inf)",  # At least one token stands between <s> and </s>.
    "embed_max_length": "[3, inf)",
    "eval_loss_rows": "[1, inf)",
    "eval_pool": "[2, inf)",  # In a pool of one, every search succeeds.
    "eval_document_rows": f"[{MIN_ROWS}, inf)",
    "early_stopping_patience": "[1, inf)",
    "embedding_learning_rate": "[0, inf)",
    "encoder_learning_rate": "[0, inf)",
    "num_train_epochs": "(0, inf)",
    "max_minutes": "(0, inf]",
    "max_cpu_minutes": "(0, inf]",
    "eval_minutes": "(0, inf]",
    "cooldown": "[0, 1]",
}
# Optimizers for which transformers ignores `optim_args`.
OPTIMIZERS_WITHOUT_OPTIONS = (
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "lion_8bit",
    "lion_32bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "adafactor",
    "lomo",
    "adalomo",
)
SHORTEST_TEXT = 2  # The tokens of `<s> </s>`.
DEFAULT_EVAL_STEPS = 1000
# Ends of the names of dev measures of which less is better.
LESS_IS_BETTER = ("loss", "nll", "hinge")


@dataclass
class TmdeTrainingArguments(TrainingArguments):
    """`transformers.TrainingArguments` for parallel text.

    The defaults follow Li (2021, section 4.3.1): Adam with betas 0.9 and 0.98, decoupled weight
    decay 1e-4 as in fairseq, learning rate 5e-4, and an inverse square root schedule.

    `metric_for_best_model` defaults to `mix`: the mean of dev retrieval of sentences, dev retrieval
    of documents, and `same` and `cross` of the classification tasks, if the run evaluates them. If
    `greater_is_better` is None, lower is better for metrics that end with one of `LESS_IS_BETTER`.

    A run with evaluation data evaluates and saves every 1000 steps and ends with the best model. If
    only one of `eval_steps` and `save_steps` is set, it determines the other, as `eval_strategy`
    determines `save_strategy`.

    Without an accelerator, `use_cpu` is True. Arguments of transformers that this trainer can't
    honor raise an error; see `tmde.training.argument_table`.

    Args:
        per_device_train_batch_size: The maximum number of rows in a micro-batch; by default, only
            tokens are limited (`micro_batch_tokens`).
        per_device_eval_batch_size: The same for computing losses on dev rows.
        bf16: Whether to compute in bfloat16; "auto" does so if it multiplies matrices faster than
            float32.
        batch_tokens: The number of tokens in an optimizer step over all processes, including
            padding (128k in Li, 2021). None keeps `gradient_accumulation_steps`.
        micro_batch_tokens: The number of tokens in one forward pass, including padding, counted on
            the longer side of each row.
        languages_per_row: The number of languages of a row to use at a time; None for all.
        pivot_pairs: Whether to draw only language pairs with a pivot language, or a list of pivot
            languages.
        pair_temperature: How evenly language pairs are drawn, see `BatchPlanner`; inf is uniform.
        buffer_rows: The number of rows to plan and shuffle together; more rows mean less padding
            and more memory.
        max_joined_rows: Join up to this many rows into longer texts, see `BatchPlanner`.
        neighbor_share: The share of texts paired with the translation of the next text, see
            `BatchPlanner`.
        token_dropout: The probability of hiding a token from the encoder, see `ParallelModel`.
        token_dropout_share: The share of rows with token dropout.
        train_max_length: The length in tokens at which training texts are truncated.
        token_cache_dir: The cache folder for token ids of training data, except streams. "auto"
            is `tmde_tokens` in the cache folder of `datasets`. None tokenizes each text when it is
            first drawn.
        dataloader_num_workers: The number of processes that prepare batches. Default: 1 on an
            accelerator and 0 on a CPU.
        eval_minutes: Also evaluate and save every `eval_minutes` minutes of training.
        max_minutes: End the run after this many minutes of wall-clock training, excluding
            evaluations and computing the teacher's vectors.
        max_cpu_minutes: End the run after this many minutes of CPU time, summed over a process's
            threads, excluding the first evaluation.
        freeze: Prefixes of parameter names to freeze, such as "model.encoders.de".
        embedding_learning_rate: The learning rate of embedding tables and token weights. None is
            `learning_rate`; 0 freezes them.
        encoder_learning_rate: The learning rate of the encoder. None is `learning_rate`; 0 freezes
            it. For a pretrained encoder, use at most a tenth of its new decoder's rate. Its tables,
            which a decoder may share, have this rate unless `embedding_learning_rate` is set.
        cooldown: The final share of the run in which the learning rate falls linearly to 0.
        eval_pairs: The language pairs for retrieval on dev rows, such as "de-es"; None for all.
        eval_pool: The number of dev rows, or documents, among which to search.
        eval_document_rows: The maximum number of rows in a dev document: consecutive rows with the
            same `doc_id`, or this many consecutive rows if there are no ids.
        eval_loss_rows: The number of dev rows on which to compute losses.
        embed_max_length: The length in tokens at which texts are truncated for retrieval and
            classification.
        early_stopping_patience: End the run after this many evaluations in a row without
            improvement.
        keep_checkpoints: Keep the checkpoints of a finished run of `train_recipe` or `tmde train`,
            so that `--resume` can extend it, instead of only the best weights. A trainer built in
            Python always keeps them.
        keep_freed_memory: On a CPU with glibc, reuse the memory of freed tensors: with a vocabulary
            of 32,000, a step takes a quarter less time and up to twice the memory.

    Example:
        ```python
        from tmde import TmdeTrainingArguments

        args = TmdeTrainingArguments(
            "runs/ctmde", max_steps=100_000, batch_tokens=32_768, learning_rate=3e-4, eval_steps=500
        )
        ```
    """

    output_dir: str = "trainer_output"  # The default of transformers.
    # transformers' annotation has no room for None.
    per_device_train_batch_size: int | None = None  # type: ignore[assignment]
    per_device_eval_batch_size: int | None = None  # type: ignore[assignment]
    bf16: bool | Literal["auto"] = False  # type: ignore[assignment]
    optim: str = "adamw_torch_fused"
    adam_beta2: float = 0.98
    weight_decay: float = 1e-4
    learning_rate: float = 5e-4
    lr_scheduler_type: str = "inverse_sqrt"
    warmup_steps: float = 4000
    logging_steps: float = 50
    logging_nan_inf_filter: bool = False  # It waits for the accelerator at every micro-batch.
    eval_strategy: str | None = None  # type: ignore[assignment]  # chosen below
    eval_steps: float | None = None
    save_strategy: str | None = None  # type: ignore[assignment]
    save_steps: float | None = None  # type: ignore[assignment]
    report_to: str | list[str] = "none"
    save_total_limit: int | None = 2
    load_best_model_at_end: bool | None = None  # type: ignore[assignment]  # chosen below
    metric_for_best_model: str | None = "mix"
    greater_is_better: bool | None = None
    batch_tokens: int | None = None
    micro_batch_tokens: int = 4096
    languages_per_row: int | None = 2
    pivot_pairs: list[str] | bool = False
    pair_temperature: float = float("inf")
    buffer_rows: int = 65536
    max_joined_rows: int = 1
    neighbor_share: float = 0.0
    token_dropout: float = 0.0
    token_dropout_share: float = 1.0
    train_max_length: int = 256
    token_cache_dir: str | None = "auto"
    # None until `__post_init__` chooses, which transformers' annotation has no room for.
    dataloader_num_workers: int | None = None  # type: ignore[assignment]
    eval_minutes: float | None = None
    max_minutes: float | None = None
    max_cpu_minutes: float | None = None
    freeze: list[str] | None = None
    embedding_learning_rate: float | None = None
    encoder_learning_rate: float | None = None
    cooldown: float = 0.0
    eval_pairs: list[str] | None = None
    eval_pool: int = 1000
    eval_document_rows: int = 8
    eval_loss_rows: int = 500
    embed_max_length: int = 512
    early_stopping_patience: int | None = None
    keep_checkpoints: bool = False
    keep_freed_memory: bool = False

    def __post_init__(self):
        #: The values before any of them is derived from others.
        self.given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        check_supported(self)
        for name, interval in INTERVALS.items():
            check_range(name, getattr(self, name), interval)
        self._choose_device_and_precision()
        self._choose_evaluation()
        chooses_workers = self.dataloader_num_workers is None
        if chooses_workers:
            # transformers needs a number before it sets up the device.
            self.dataloader_num_workers = 1
        super().__post_init__()
        assert isinstance(self.accelerator_config, AcceleratorConfig)  # By now it is one.
        check_accelerator_options(self.accelerator_config)
        if chooses_workers and self.device.type == "cpu":
            self.dataloader_num_workers = 0
        self._check_optimizer()
        self._check_device()
        if self.max_steps <= 0:
            self.max_steps = NO_STEP_LIMIT
        # A reporting package that is missing raises its error here, before the data are read.
        for callback in get_reporting_integration_callbacks(self.report_to):
            callback()
        self._choose_accumulation()

    def _choose_evaluation(self) -> None:
        """Fill in the evaluation and checkpoint defaults that the user left unset."""
        if self.eval_strategy is None:
            self.eval_strategy = "steps"
        # The best checkpoint must be one that was saved: by default, a run saves when it evaluates.
        if self.save_strategy is None:
            self.save_strategy = "steps" if self.eval_strategy == "no" else self.eval_strategy
        if self.eval_steps is None:
            self.eval_steps = DEFAULT_EVAL_STEPS if self.save_steps is None else self.save_steps
        if self.save_steps is None:
            self.save_steps = self.eval_steps
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = "no" not in (self.eval_strategy, self.save_strategy)
        if self.metric_for_best_model is None:
            self.metric_for_best_model = "mix"
        if self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith(LESS_IS_BETTER)

    def evaluation_arguments(self) -> list[str]:
        """Return the arguments that were set and have no effect without evaluations."""
        names = []
        if self.eval_strategy != "no" and self.given["eval_strategy"] is not None:
            names.append("eval_strategy")
        if self.load_best_model_at_end and self.given["load_best_model_at_end"] is not None:
            names.append("load_best_model_at_end")
        if self.save_strategy == "best":
            names.append("save_strategy")
        if self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy"):
            names.append("lr_scheduler_type")
        for name in ("eval_on_start", "early_stopping_patience"):
            if getattr(self, name):
                names.append(name)
        return names

    def _choose_device_and_precision(self) -> None:
        """Set `use_cpu` where there is no accelerator, and resolve `bf16="auto"`."""
        if not torch.accelerator.is_available():
            # Without `use_cpu`, transformers refuses bf16, which a CPU can compute as well.
            self.use_cpu = True
        if isinstance(self.bf16, str):
            if self.bf16 != "auto":
                raise TmdeError(f"bf16: found {self.bf16!r}, expected true, false or auto")
            self.bf16 = has_fast_bf16(self.use_cpu)

    def _check_optimizer(self) -> None:
        """Check that the optimizer has the options that are set, because transformers does not.

        Raises:
            TmdeError: Names the option and the optimizer.
        """
        optimizer = OptimizerNames(self.optim).value
        if self.optim_args and optimizer in OPTIMIZERS_WITHOUT_OPTIONS:
            raise TmdeError(
                f"optim_args={self.optim_args!r}: optim={optimizer} takes no options here; "
                "omit it, or set another optim"
            )
        is_low_rank = optimizer.startswith(("galore", "apollo"))
        if self.optim_target_modules and not is_low_rank:
            raise TmdeError(
                f"optim_target_modules={self.optim_target_modules!r}: optim={optimizer} has no "
                "target modules, expected GaLore or APOLLO; omit it"
            )

    def _check_device(self) -> None:
        """Check for arguments that have no effect on this device.

        Raises:
            TmdeError: Names the argument and what to do.
        """
        if self.device.type != "cpu":
            return
        if self.fp16:
            raise TmdeError("fp16=True needs an accelerator; set bf16 instead")
        default_timeout = TrainingArguments.ddp_timeout
        if self.ddp_timeout != default_timeout:
            raise TmdeError(
                f"ddp_timeout={self.ddp_timeout} has no effect on CPUs, which use the default "
                "of torch.distributed; omit it"
            )
        if self.dataloader_prefetch_factor is not None and not self.dataloader_num_workers:
            raise TmdeError(
                f"dataloader_prefetch_factor={self.dataloader_prefetch_factor} needs workers, "
                "and a CPU has none by default: set dataloader_num_workers"
            )

    def _choose_accumulation(self) -> None:
        """Derive `gradient_accumulation_steps` from `batch_tokens`, if that is set."""
        if self.batch_tokens is None:
            return
        step_tokens = self.micro_batch_tokens * self.world_size
        steps = max(1, round(self.batch_tokens / step_tokens))
        if self.gradient_accumulation_steps not in (1, steps):
            raise TmdeError(
                f"gradient_accumulation_steps={self.gradient_accumulation_steps}: "
                f"batch_tokens={self.batch_tokens} with micro_batch_tokens="
                f"{self.micro_batch_tokens} and {self.world_size} processes gives {steps}: set "
                "only one of the two"
            )
        self.gradient_accumulation_steps = steps

    @property
    def train_batch_size(self) -> int:
        """The most rows of a micro-batch; without a limit, what its token budget allows."""
        return self._most_rows(self.per_device_train_batch_size)

    @property
    def eval_batch_size(self) -> int:
        """The same for the losses of dev rows."""
        return self._most_rows(self.per_device_eval_batch_size)

    def _most_rows(self, limit: int | None) -> int:
        if limit is None:
            return max(self.micro_batch_tokens // SHORTEST_TEXT, 1)
        return limit


def as_tmde_arguments(args: TrainingArguments) -> TmdeTrainingArguments:
    """Return training arguments of transformers as those of this package.

    All values are kept, also those that transformers sets by default, such as 8 rows for
    `per_device_train_batch_size`. What this package adds has its own defaults.

    Args:
        args: Training arguments. Those of this package are returned as they are.

    Raises:
        TmdeError: This package does not honor the value of an argument, or an argument of a
            subclass of `TrainingArguments`.
    """
    if isinstance(args, TmdeTrainingArguments):
        return args
    known_names = {field.name for field in dataclasses.fields(TmdeTrainingArguments)}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(args):
        value = getattr(args, field.name)
        if field.name in known_names:
            values[field.name] = value
        elif value != field_default(field):
            raise TmdeError(
                f"{field.name}={value!r} of {type(args).__name__}: expected an argument of "
                "TmdeTrainingArguments; leave it at its default"
            )
    return TmdeTrainingArguments(**values)
