"""Dev evaluation: the losses on dev rows, with retrieval and tasks all that a run measures."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import fmean
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase
from transformers.trainer_utils import EvalPrediction

from modeling_tmde import TmdeError
from tmde.data.rows import LABEL
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.dev_retrieval import dev_retrieval, encode_dev_texts, language_pairs
from tmde.eval.dev_tasks import TASK_METRICS, measure_task
from tmde.eval.tasks import ClassificationData
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.batches import batches_of
from tmde.training.parallel_model import ParallelModel
from tmde.training.teachers import Teachers
from tmde.training.throughput import ComponentSums

# Measures of losses that are also averaged over the dev sets.
AVERAGED_LOSSES = (
    "back_translation_nll",
    "denoising_nll",
    "masked_lm_loss",
    "nli_accuracy",
    "translation_nll",
)
RETRIEVAL_METRICS = ("retrieval", "document_retrieval")
DEV_METRICS = ("loss", *RETRIEVAL_METRICS, *AVERAGED_LOSSES)
# Means, each of which counts once in `mix`.
MIX = (*RETRIEVAL_METRICS, "same", "cross")


# ---- Checks before training


def measured_metrics(
    args: TmdeTrainingArguments,
    dev_sets: Collection[str],
    tasks: Collection[str],
    languages: Sequence[str],
) -> list[str]:
    """Return the metrics over all sets and tasks that an evaluation may have.

    Args:
        args: The training arguments.
        dev_sets: The names of the dev sets.
        tasks: The names of the classification tasks.
        languages: The texts between which retrieval is measured.
    """
    searches = len(languages) > 1 and args.eval_pairs != []
    metrics = []
    if tasks or (dev_sets and searches):
        metrics.append("mix")
    if dev_sets:
        metrics.extend(DEV_METRICS)
    if tasks:
        metrics.extend(TASK_METRICS)
    return [name for name in metrics if searches or name not in RETRIEVAL_METRICS]


def check_metric(
    args: TmdeTrainingArguments,
    dev_sets: Collection[str],
    tasks: Collection[str],
    languages: Sequence[str],
) -> None:
    """Check `eval_pairs` and `metric_for_best_model` before training.

    Args:
        args: The training arguments.
        dev_sets: The names of the dev sets.
        tasks: The names of the classification tasks.
        languages: The texts between which retrieval is measured.

    Raises:
        TmdeError: Names the value, and the pairs or the metrics there are. Scores on a test split
            cannot choose.
    """
    _check_pairs(args.eval_pairs or (), languages)
    measured = measured_metrics(args, dev_sets, tasks, languages)
    prefixes = [f"{name}_" for name in dev_sets if name]
    if len(tasks) > 1:
        prefixes.extend(f"{name}_" for name in tasks)
    metric = (args.metric_for_best_model or "mix").removeprefix("eval_")
    # Where nothing measures `mix`, the trainer takes the loss.
    is_known = metric == "mix" or metric in measured
    if not is_known and not metric.startswith(tuple(prefixes)):
        expected = [*measured, *(f"{prefix}..." for prefix in prefixes)]
        raise TmdeError(
            f"metric_for_best_model={args.metric_for_best_model}: this run does not measure "
            f"it, expected one of {', '.join(expected)}"
        )


def _check_pairs(pairs: Sequence[str], languages: Sequence[str]) -> None:
    known_pairs = language_pairs(languages)
    for pair in pairs:
        if pair not in known_pairs:
            raise TmdeError(
                f"eval_pairs: found {pair!r}, expected pairs of the languages "
                f"{', '.join(languages)}, or null for all of them"
            )


# ---- Dev rows


def loss_rows(rows: datasets.Dataset, args: TmdeTrainingArguments) -> datasets.Dataset:
    """Return the rows of a dev set on which the losses are measured."""
    return rows.select(range(min(len(rows), args.eval_loss_rows)))


def dev_losses(
    model: ParallelModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: datasets.Dataset,
    args: TmdeTrainingArguments,
    teachers: Teachers | None = None,
) -> dict[str, float]:
    """Return every component of every objective on the first rows of a dev set.

    The pairs and negatives are the same at every evaluation, and the random state of training is
    left alone.

    Args:
        model: The model.
        tokenizer: The tokenizer.
        rows: The dev set, of which the first `args.eval_loss_rows` are used.
        args: The training arguments.
        teachers: The teachers of the run; None for their newest versions.

    Returns:
        Means by `<objective>_<component>`, and `loss`, the weighted sum of the losses.
    """
    sums = ComponentSums()
    totals: dict[str, float] = defaultdict(float)
    terms: dict[str, float] = defaultdict(float)
    devices = [args.device] if args.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        measured_rows = loss_rows(rows, args)
        batches = batches_of(
            measured_rows,
            tokenizer,
            model,
            args,
            teachers,
            planning={"micro_batch_rows": args.per_device_eval_batch_size},
        )
        for batch in batches:
            for name, components in model(batch.to(args.device)).items():
                count = model.objectives[name].count(batch.sizes)
                sums.add(name, components, count)
                totals[name] += float(components["total"])
                terms[name] += count
    loss = 0.0
    for name, total in totals.items():
        loss += model.objectives[name].weight * total / max(terms[name], 1.0)
    return {"loss": loss, **sums.means()}


# ---- Embeddings of dev rows


def model_embedder(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, args: TmdeTrainingArguments
) -> DocumentEmbedder:
    """Return what embeds texts with the model in training."""
    return DocumentEmbedder(model.encoder, tokenizer, max_length=args.embed_max_length)


def embed_rows(
    embedder: DocumentEmbedder, rows: datasets.Dataset, texts: Sequence[str]
) -> np.ndarray:
    """Return the embeddings of all texts of rows, (rows, texts, d), NaN where there is none.

    Args:
        embedder: The model.
        rows: Rows with the column `translation`.
        texts: The names of the texts of a row: languages, or premise and hypothesis.
    """
    translations = rows["translation"][:]
    embeddings = np.full((len(rows), len(texts), embedder.dimension), np.nan, dtype=np.float32)
    for number, name in enumerate(texts):
        present = [row for row, translation in enumerate(translations) if translation.get(name)]
        named_texts = [translations[row][name] for row in present]
        system = encode_dev_texts(embedder, [(name, named_texts)])
        if present:
            embeddings[present, number] = system.represent(named_texts, language=name)
    return embeddings


def labels_of(rows: datasets.Dataset) -> Any:
    """Return the labels of rows as an array (rows,); None if they have none."""
    if LABEL not in rows.column_names:
        return None
    return np.array(rows[LABEL][:])


# ---- All of it


def retrieval_mean_of(measure: str) -> str:
    """Return the name of the mean to which a measure of `dev_retrieval` belongs."""
    return "document_retrieval" if measure.startswith("doc_") else "retrieval"


def retrieval_scores(
    embedder: DocumentEmbedder,
    dev_sets: Mapping[str, datasets.Dataset],
    languages: Sequence[str],
    args: TmdeTrainingArguments,
) -> dict[str, float]:
    """Return the retrieval of a model on dev sets, as an evaluation of the trainer names it.

    Args:
        embedder: A model.
        dev_sets: The dev sets by name.
        languages: The languages of the run.
        args: The training arguments.

    Returns:
        `eval_<set>_<measure>`, and the means `eval_retrieval` and `eval_document_retrieval`.
    """
    scores: dict[str, float] = {}
    values_by_mean: dict[str, list[float]] = defaultdict(list)
    for set_name, rows in dev_sets.items():
        for measure, value in dev_retrieval(embedder, rows, languages, args).items():
            scores[f"eval_{set_name}_{measure}"] = round(value, 6)
            values_by_mean[retrieval_mean_of(measure)].append(value)
    for mean, values in values_by_mean.items():
        scores[f"eval_{mean}"] = round(fmean(values), 6)
    return scores


def evaluate_model(
    model: ParallelModel,
    tokenizer: PreTrainedTokenizerBase,
    dev_sets: Mapping[str, datasets.Dataset],
    tasks: Mapping[str, ClassificationData],
    args: TmdeTrainingArguments,
    autocast: Callable[[], AbstractContextManager],
    teachers: Teachers | None = None,
    compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
) -> dict[str, float]:
    """Measure retrieval and losses of every dev set, scores of every task, and their means.

    Args:
        model: The model.
        tokenizer: The tokenizer.
        dev_sets: Dev sets by name; measures of the set "" have no prefix.
        tasks: Classification tasks by name.
        args: The training arguments.
        autocast: The precision in which texts are encoded.
        teachers: The teachers of the run; None for their newest versions.
        compute_metrics: Measures the embeddings of a dev set, see `TmdeTrainer`.

    Returns:
        `<set>_<measure>` of `dev_retrieval`, `dev_losses` and `compute_metrics`, and
        `<task>_<score>` of `measure_task` if there are several tasks; `retrieval` and
        `document_retrieval`, means over all sets and pairs; `loss` and those of `AVERAGED_LOSSES`,
        means over all sets; the mean of each score over the tasks; and `mix`, the mean of those of
        `MIX` that are measured.
    """
    embedder = model_embedder(model, tokenizer, args)
    metrics: dict[str, float] = {}
    values_by_mean: dict[str, list[float]] = defaultdict(list)
    for set_name, rows in dev_sets.items():
        with autocast():
            measures = dev_retrieval(embedder, rows, model.searched_texts, args)
            for measure, value in measures.items():
                values_by_mean[retrieval_mean_of(measure)].append(value)
            losses = dev_losses(model, tokenizer, rows, args, teachers)
            if compute_metrics is not None:
                embeddings = embed_rows(embedder, rows, model.texts)
                custom = compute_metrics(EvalPrediction(embeddings, labels_of(rows)))
                measures |= _own_names(custom, {*measures, *losses, *DEV_METRICS, *MIX, "mix"})
        for measure in losses.keys() & {"loss", *AVERAGED_LOSSES}:
            values_by_mean[measure].append(losses[measure])
        for measure, value in {**losses, **measures}.items():
            metrics[f"{set_name}_{measure}".removeprefix("_")] = value
    for task_name, task in tasks.items():
        for score, value in measure_task(embedder, task, autocast()).items():
            values_by_mean[score].append(value)
            if len(tasks) > 1:
                metrics[f"{task_name}_{score}"] = value

    means = {name: fmean(values) for name, values in values_by_mean.items()}
    mixed = [means[name] for name in MIX if name in means]
    if mixed:
        means["mix"] = fmean(mixed)
    return {name: round(value, 6) for name, value in (metrics | means).items()}


def _own_names(custom: Mapping[str, float], measured: Collection[str]) -> dict[str, float]:
    """Return metrics of the user without the prefix `eval_`, which all metrics get later.

    Raises:
        TmdeError: A metric has the name of one that the trainer measures.
    """
    if not isinstance(custom, Mapping):
        raise TmdeError(f"compute_metrics returned {custom!r}, expected metrics by name")
    metrics = {name.removeprefix("eval_"): value for name, value in custom.items()}
    for name in metrics:
        if name in measured:
            raise TmdeError(
                f"compute_metrics returned {name!r}, a name of the trainer's own metrics; rename it"
            )
    return metrics
