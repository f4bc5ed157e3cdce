"""What a run measures: translation retrieval and the losses on its dev rows, and Same and Cross of a task."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager

import datasets
import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.classification import check_labels, check_plans, evaluate_classification, plan_protocol
from modeling_tmde.eval.results import summarize
from modeling_tmde.eval.retrieval import precision_at_1, retrieval_pool
from modeling_tmde.eval.systems import EmbeddingSystem
from modeling_tmde.eval.tasks import TASKS, ClassificationData, TaskError
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("modeling_tmde.training")

TASK_SPLITS = ("train", "dev", "test")
TASK_METRICS = ("same", "cross", "all")


def dev_retrieval(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset, args: TmdeTrainingArguments
) -> dict[str, float]:
    """Precision at 1 of translation retrieval, `p1_<a>-<b>` for each of `args.eval_pairs` that the rows have."""
    embedder = DocumentEmbedder(model.model.model, tokenizer, max_length=args.embed_max_length)
    translations = rows["translation"][:]
    pairs = args.eval_pairs
    if pairs is None:
        pairs = ["-".join(pair) for pair in itertools.combinations(model.config.languages, 2)]
    results = {}
    for pair in pairs:
        pool = retrieval_pool(translations, *pair.split("-"), size=args.eval_pool)
        if len(pool.sources) > 1:
            vectors = [embedder.encode(texts, show_progress_bar=False) for texts in (pool.sources, pool.targets)]
            results[f"p1_{pair}"] = precision_at_1(*vectors)
    return results


def dev_losses(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset, args: TmdeTrainingArguments
) -> dict[str, float]:
    """Every component of every objective, `<objective>_<component>`, on the first `args.eval_loss_rows` rows.

    The pairs and negatives are the same at every evaluation, and training's random numbers stay as they are.
    """
    batches = ParallelBatches(
        rows.select(range(min(len(rows), args.eval_loss_rows))),
        tokenizer,
        model.config.languages,
        model.config.pivot_languages,
        micro_batch_tokens=args.micro_batch_tokens,
        languages_per_row=2,
        max_length=args.train_max_length,
        seed=0,
    )
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    with torch.random.fork_rng([args.device] if args.device.type == "cuda" else []):
        torch.manual_seed(0)
        for batch in batches:
            inputs = batch.model_inputs()
            inputs |= {name: inputs[name].to(args.device) for name in ("input_ids", "attention_mask")}
            for name, components in model(**inputs).items():
                counts[name] += model.objectives[name].count(batch.sizes)
                for component, value in components.items():
                    if component != "total":
                        sums[f"{name}/{component}"] += float(value)
    return {key.replace("/", "_"): value / max(counts[key.split("/")[0]], 1) for key, value in sums.items()}


def load_eval_task(spec: str, languages: Sequence[str]) -> ClassificationData:
    """The data of `NAME` or `NAME=SOURCE`, in the languages of `languages` that they have.

    Raises:
        TaskError: No such task, one without classes, or too few languages or splits, see `task_in_languages`.
    """
    name, _, source = str(spec).partition("=")
    if name not in TASKS:
        raise TaskError(f"eval_task: found task {name!r}, expected NAME or NAME=SOURCE, NAME of {', '.join(TASKS)}")
    data = TASKS[name]().load(source or None)
    if not isinstance(data, ClassificationData):
        raise TaskError(f"eval_task: found {type(data).__name__} for {spec!r}, expected a task of classification")
    return task_in_languages(data, languages)


def task_in_languages(data: ClassificationData, languages: Sequence[str]) -> ClassificationData:
    """The splits `train`, `dev` and `test` of the languages that are in `languages` too.

    Raises:
        TaskError: Fewer than two such languages, which have no Cross; a split that is missing or empty; a label of dev
            or test that is not in every train split.
    """
    common = [language for language in languages if language in data.splits]
    if len(common) < 2:
        raise TaskError(
            f"eval_task: found the languages {data.languages} in the data, expected at least two of the model's "
            f"{list(languages)}"
        )
    try:
        for split in ("dev", "test"):
            check_plans(data, plan_protocol("zero-shot", common, common), split)
            for source, target in itertools.product(common, common):
                classes = set(data.splits[source]["train"].labels)
                check_labels(data.splits[target][split], f"{target}/{split}", classes, source)
    except TaskError as error:
        raise TaskError(f"eval_task: {error}") from error
    splits = {language: {name: data.splits[language][name] for name in TASK_SPLITS} for language in common}
    return ClassificationData(splits, data.provenance)


def check_selection(metric: str | None, dev_rows: bool, eval_task: bool) -> None:
    """Refuses a `metric_for_best_model` that no evaluation will measure, or that looks at labels of the test split.

    Raises:
        ValueError: Names the metric and what it needs.
    """
    name = (metric or "").removeprefix("eval_")
    if name in ("test_same", "test_cross"):
        raise ValueError(f"metric_for_best_model={metric} would choose by the test split; choose by cross, of the dev")
    if name in TASK_METRICS and not eval_task:
        raise ValueError(
            f"metric_for_best_model={metric} is measured on a classification task: give one, such as eval_task=sample "
            "or eval_task=mldoc=FOLDER"
        )
    if name == "retrieval" and eval_task and not dev_rows:
        raise ValueError(
            f"metric_for_best_model={metric} is measured on dev rows, of which there are none; choose by cross, or "
            "give dev or dev_rows"
        )


def measure_task(
    model: ParallelModel,
    tokenizer: PreTrainedTokenizerBase,
    data: ClassificationData,
    args: TmdeTrainingArguments,
    autocast: AbstractContextManager,
) -> dict[str, float]:
    """Evaluation II (thesis 4.4.2): a classifier for each language's `train` labels, applied to every language.

    Args:
        data: From `task_in_languages`. Every split is encoded once.
        autocast: In which texts are encoded, but no classifier is trained.

    Returns:
        `same`, `cross` and `all` on the dev split, `test_same` and `test_cross` on the test split, between 0 and 1.
    """
    embedder = DocumentEmbedder(model.model.model, tokenizer, max_length=args.embed_max_length)
    system = EmbeddingSystem("the model in training", embedder, show_progress_bar=False)
    with autocast:
        for split in itertools.chain.from_iterable(splits.values() for splits in data.splits.values()):
            for texts in filter(None, (split.texts, split.second_texts)):
                system.represent(texts)  # which keeps the vectors
    scores = {}
    with torch.enable_grad():  # a head may be trained by gradients, where an evaluation keeps none
        for split, prefix, names in (("dev", "", TASK_METRICS), ("test", "test_", ("same", "cross"))):
            cells = evaluate_classification(data, system, args.eval_head, test_split=split, seeds=(0,))
            means = {name.lower(): value for name, value in summarize(cells).items()}
            scores |= {f"{prefix}{name}": means[name] for name in names}
    if system.truncated:
        logger.warning_once(
            f"eval_task: {system.truncated:,} of {system.texts:,} texts are longer than embed_max_length="
            f"{args.embed_max_length} and are truncated at every evaluation; raise it if the model can take more"
        )
    return scores
