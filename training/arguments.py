"""Training arguments: HuggingFace's, and what parallel batches and time limits add."""

from dataclasses import dataclass

from transformers import TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks

from tmde.eval.dev_retrieval import MIN_ROWS
from tmde.training.objectives.base import check_range

# The value of `max_steps` where epochs or minutes end the run; transformers needs a number.
NO_STEP_LIMIT = 2**31 - 1
# Numbers outside of these intervals would fail late, or leave no data.
INTERVALS = {
    "batch_tokens": "[1, inf)",
    "micro_batch_tokens": "[1, inf)",
    "micro_batch_rows": "[1, inf)",
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
    "max_minutes": "(0, inf]",
    "max_cpu_minutes": "(0, inf]",
    "eval_minutes": "(0, inf]",
    "cooldown": "[0, 1]",
}
# Ends of the names of dev measures of which less is better.
LESS_IS_BETTER = ("loss", "nll", "hinge")


@dataclass
class TmdeTrainingArguments(TrainingArguments):
    """`transformers.TrainingArguments` with the defaults of thesis 4.3.1, and some additions.

    The defaults are Adam with betas 0.9 and 0.98, decoupled weight decay 1e-4 as fairseq has it,
    learning rate 5e-4, and the inverse square root schedule.

    `metric_for_best_model` is `mix` by default, and where it is None: the mean of the dev retrieval
    of sentences, that of documents, and Same and Cross on the dev split of the classification
    tasks. Measures that the run does not make are left out. If `greater_is_better` is None, lower
    is better for metrics whose name ends with one of `LESS_IS_BETTER`, and higher for all others.

    By default a run evaluates every `eval_steps`, if it has something to evaluate on, and ends with
    the best model.

    Args:
        batch_tokens: The padded tokens of an optimizer step over all processes; gradient
            accumulation follows from it (128k in the thesis). None keeps
            `gradient_accumulation_steps`.
        micro_batch_tokens: The padded tokens of one forward pass, of the longer side of its rows,
            as `fairseq --max-tokens` counts them.
        micro_batch_rows: The most rows of one forward pass; None for no such limit.
        languages_per_row: How many languages of each row are used at a time; None for all.
        pivot_pairs: Draw only pairs of which one is a pivot language, as objectives that translate
            need anyway; or a list of the pivot languages of which each pair has one.
        pair_temperature: How evenly language pairs are drawn, see `ParallelBatches`; inf is
            uniform.
        buffer_rows: The rows planned and shuffled together. The more there are, the less of a batch
            is padding; a stream holds twice as many in memory.
        max_joined_rows: Joins up to so many rows to longer texts, see `ParallelBatches`.
        neighbor_share: Pairs a text with the translation of the next one, see `ParallelBatches`.
        passage_share: Pairs a text with a passage of its document, see `ParallelBatches`.
        passage_rows: The most rows of such a passage.
        token_dropout: The probability that a token is hidden from the encoder, see `ParallelModel`.
        token_dropout_share: The share of the rows to which token dropout applies.
        train_max_length: The length in tokens at which training texts are truncated (and counted).
        token_cache_dir: The folder of the token ids of training data that are no stream, which are
            made once for all runs with the same data and tokenizer; "auto" is `tmde_tokens` in the
            cache folder of `datasets`. Without a folder, every run and process makes them
            again, when a text is first drawn.
        dataloader_num_workers: The processes that make batches while the model computes; None is 1
            where the model is on an accelerator and 0 on a CPU, whose cores they would take from
            it. A stream that a teacher reads has none.
        eval_minutes: Evaluate and save every so many minutes of training too, for runs limited by
            time.
        max_minutes: Ends the run after this many minutes of training on the wall clock. Evaluations
            and the reading of a teacher before the first step do not count.
        max_cpu_minutes: The CPU-time budget in minutes, summed over all threads of a process. Only
            the evaluation before the first step does not count. Runs with the same budget do the
            same work, also on a busy machine.
        freeze: Beginnings of names of parameters that stay as they are, such as
            "model.encoders.de".
        embedding_learning_rate: The rate of the embedding tables and token weights, on the same
            schedule; None is `learning_rate`, 0 leaves them as they are. Tables of a warm start
            have seen far more text than a short run on top of them will.
        encoder_learning_rate: The rate of the encoder, on the same schedule; None is
            `learning_rate`, 0 leaves it as it is. A pretrained encoder wants a tenth of what its
            new decoder does, or less. Its tables, which a decoder may share, have this rate where
            `embedding_learning_rate` is None.
        cooldown: The last share of the run, by its nearest limit, in which the rate falls linearly
            to 0.
        eval_pairs: The language pairs for retrieval on the dev rows, such as "de-es"; None for
            every pair.
        eval_pool: The rows of a dev set that retrieval searches; documents, where it searches
            these.
        eval_document_rows: The most rows of a dev document. Consecutive dev rows of one `doc_id`
            are a document, or so many consecutive rows of a dev set without ids.
        eval_loss_rows: The dev rows on which the losses are computed.
        embed_max_length: The length in tokens at which dev texts are truncated for retrieval, and
            the texts of the classification task.
        early_stopping_patience: Ends the run when so many evaluations one after the other have not
            bettered `metric_for_best_model`; None never does.
        keep_checkpoints: Keep the checkpoints of a run that has ended, from which `--resume` can
            extend it. Otherwise they are deleted at the end: the best weights are the model of the
            run's folder, and optimizer states take twice the room of the weights.
        keep_freed_memory: On a CPU, reuse the memory of freed tensors instead of giving it back to
            the system: a quarter less time a step with a vocabulary of 32,000, and up to twice the
            memory. See `tmde.training.memory`.
    """

    output_dir: str = "trainer_output"  # The default of transformers.
    optim: str = "adamw_torch_fused"
    adam_beta2: float = 0.98
    weight_decay: float = 1e-4
    learning_rate: float = 5e-4
    lr_scheduler_type: str = "inverse_sqrt"
    warmup_steps: float = 4000
    logging_steps: float = 50
    eval_strategy: str | None = None  # type: ignore[assignment]  # chosen below
    eval_steps: float | None = 1000
    save_steps: float = 1000
    report_to: str | list[str] = "none"
    save_total_limit: int | None = 2
    load_best_model_at_end: bool | None = None  # type: ignore[assignment]  # chosen below
    metric_for_best_model: str | None = "mix"
    greater_is_better: bool | None = None
    batch_tokens: int | None = None
    micro_batch_tokens: int = 4096
    micro_batch_rows: int | None = None
    languages_per_row: int | None = 2
    pivot_pairs: list[str] | bool = False
    pair_temperature: float = float("inf")
    buffer_rows: int = 65536
    max_joined_rows: int = 1
    neighbor_share: float = 0.0
    passage_share: float = 0.0
    passage_rows: int = 4
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
    keep_freed_memory: bool = True

    def __post_init__(self):
        for name, interval in INTERVALS.items():
            check_range(name, getattr(self, name), interval)
        self._choose_evaluation()
        chooses_workers = self.dataloader_num_workers is None
        if chooses_workers:
            # transformers needs a number before it sets up the device.
            self.dataloader_num_workers = 1
        super().__post_init__()
        if chooses_workers and self.device.type == "cpu":
            self.dataloader_num_workers = 0
        if self.max_steps <= 0:
            self.max_steps = NO_STEP_LIMIT
        # A reporting package that is missing raises its error here, before the data are read.
        for callback in get_reporting_integration_callbacks(self.report_to):
            callback()
        if self.batch_tokens is not None:
            step_tokens = self.micro_batch_tokens * self.world_size
            self.gradient_accumulation_steps = max(1, round(self.batch_tokens / step_tokens))

    def _choose_evaluation(self) -> None:
        """Choose what evaluates, and what chooses the best model, where nobody has."""
        #: Whether nobody asked for evaluations: without data for them, the trainer makes none.
        self.evaluates_by_default = self.eval_strategy is None
        if self.eval_strategy is None:
            self.eval_strategy = "steps"
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = "no" not in (self.eval_strategy, self.save_strategy)
        if self.metric_for_best_model is None:
            self.metric_for_best_model = "mix"
        if self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith(LESS_IS_BETTER)
