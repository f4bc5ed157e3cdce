"""Dev evaluation: the losses on dev rows, and with retrieval and classification tasks all that a run measures."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import fmean

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.dev_retrieval import dev_retrieval, language_pairs
from tmde.eval.dev_tasks import TASK_METRICS, measure_task
from tmde.eval.tasks import ClassificationData
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.batches import batches_of
from tmde.training.parallel_model import ParallelModel
from tmde.training.throughput import ComponentSums

DEV_METRICS = ("retrieval", "document_retrieval", "nli_accuracy")
MIX = (
    "retrieval",
    "document_retrieval",
    "same",
    "cross",
)  # means, each of which counts once in `mix`


def check_metric(
    args: TmdeTrainingArguments,
    dev_sets: Collection[str],
    tasks: Collection[str],
    languages: Sequence[str],
) -> None:
    """Checks `eval_pairs` and `metric_for_best_model` before training instead of at the first evaluation.

    Args:
        dev_sets, tasks: Their names.

    Raises:
        ValueError: Names the value, and the pairs or the metrics there are. Scores on a test split cannot choose.
    """
    for pair in args.eval_pairs or ():
        if pair not in language_pairs(languages):
            expected = f"pairs of the languages {', '.join(languages)}, or null for all of them"
            raise TmdeError(f"eval_pairs: found {pair!r}, expected {expected}")
    measured = ["mix", *(DEV_METRICS if dev_sets else []), *(TASK_METRICS if tasks else [])]
    prefixes = tuple(f"{name}_" for name in [*dev_sets, *(tasks if len(tasks) > 1 else [])])
    metric = (args.metric_for_best_model or "mix").removeprefix("eval_")
    if metric not in measured and not metric.startswith(prefixes):
        raise TmdeError(
            f"metric_for_best_model={args.metric_for_best_model}: no evaluation measures it, expected one of "
            + ", ".join([*measured, *(f"{prefix}..." for prefix in prefixes)])
        )


# ---- Dev rows


def loss_rows(rows: datasets.Dataset, args: TmdeTrainingArguments) -> datasets.Dataset:
    """The rows of a dev set on which the losses are measured."""
    return rows.select(range(min(len(rows), args.eval_loss_rows)))


def dev_losses(
    model: ParallelModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: datasets.Dataset,
    args: TmdeTrainingArguments,
) -> dict[str, float]:
    """Every component of every objective, `<objective>_<component>`, on the first `args.eval_loss_rows` rows.

    The pairs and negatives are the same at every evaluation, and the random state of training is left alone.
    """
    sums = ComponentSums()
    with torch.random.fork_rng([args.device] if args.device.type == "cuda" else []):
        torch.manual_seed(0)
        for batch in batches_of(loss_rows(rows, args), tokenizer, model, args):
            for name, components in model(batch.to(args.device)).items():
                sums.add(name, components, model.objectives[name].count(batch.sizes))
    return sums.means()


# ---- All of it


def evaluate_model(
    model: ParallelModel,
    tokenizer: PreTrainedTokenizerBase,
    dev_sets: Mapping[str, datasets.Dataset],
    tasks: Mapping[str, ClassificationData],
    args: TmdeTrainingArguments,
    autocast: Callable[[], AbstractContextManager],
) -> dict[str, float]:
    """Retrieval and losses of every dev set, scores of every task, and the means by which a checkpoint can be chosen.

    Returns:
        `<set>_<measure>` of `dev_retrieval` and `dev_losses`, and `<task>_<score>` of `measure_task` if there are
        several tasks; `retrieval` and `document_retrieval`, means over all sets and pairs, and `nli_accuracy`, that
        over all sets; the mean of each score over the tasks; and `mix`, the mean of those of `MIX` that are measured.
    """
    embedder = DocumentEmbedder(model.encoder, tokenizer, max_length=args.embed_max_length)
    metrics: dict[str, float] = {}
    groups: dict[str, list[float]] = defaultdict(list)
    for name, rows in dev_sets.items():
        with autocast():
            retrieval = dev_retrieval(embedder, rows, model.config.languages, args)
            measured = retrieval | dev_losses(model, tokenizer, rows, args)
        metrics |= {f"{name}_{key}": value for key, value in measured.items()}
        if "nli_accuracy" in measured:
            groups["nli_accuracy"].append(measured["nli_accuracy"])
        for key, value in retrieval.items():
            groups["document_retrieval" if key.startswith("doc_") else "retrieval"].append(value)
    for name, task in tasks.items():
        for key, value in measure_task(embedder, task, args, autocast()).items():
            groups[key].append(value)
            if len(tasks) > 1:
                metrics[f"{name}_{key}"] = value
    means = {name: fmean(values) for name, values in groups.items()}
    if mixed := [means[name] for name in MIX if name in means]:
        means["mix"] = fmean(mixed)
    return {key: round(value, 6) for key, value in (metrics | means).items()}
