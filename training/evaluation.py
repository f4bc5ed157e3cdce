"""Dev evaluation: the losses on dev rows, classification tasks, and with retrieval all that a run measures."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from statistics import fmean

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.classification import check_plans, evaluate_classification, plan_protocol
from modeling_tmde.eval.dev_retrieval import dev_retrieval, encode_dev_texts, language_pairs
from modeling_tmde.eval.results import summarize
from modeling_tmde.eval.tasks import TASKS, ClassificationData, TaskError
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import batches_of
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.throughput import ComponentSums

TASK_METRICS = ("same", "cross", "all")
SPLITS = ("train", "dev", "test")
MIX = ("retrieval", "document_retrieval", "same", "cross")  # means, each of which counts once in `mix`


def check_metric(
    args: TmdeTrainingArguments, dev_sets: Collection[str], tasks: Collection[str], languages: Sequence[str]
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
            raise ValueError(f"eval_pairs: found {pair!r}, expected {expected}")
    measured = ["mix", *(["retrieval", "document_retrieval"] if dev_sets else []), *(TASK_METRICS if tasks else [])]
    prefixes = tuple(f"{name}_" for name in [*dev_sets, *(tasks if len(tasks) > 1 else [])])
    metric = (args.metric_for_best_model or "mix").removeprefix("eval_")
    if metric not in measured and not metric.startswith(prefixes):
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model}: no evaluation measures it, expected one of "
            + ", ".join([*measured, *(f"{prefix}..." for prefix in prefixes)])
        )


# ---- Dev rows


def loss_rows(rows: datasets.Dataset, args: TmdeTrainingArguments) -> datasets.Dataset:
    """The rows of a dev set on which the losses are measured."""
    return rows.select(range(min(len(rows), args.eval_loss_rows))).select_columns("translation")


def dev_losses(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset, args: TmdeTrainingArguments
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


# ---- Classification tasks


def load_eval_tasks(specs: str | Sequence[str] | None, languages: Sequence[str]) -> dict[str, ClassificationData]:
    """The data of one or several `NAME` or `NAME=SOURCE`, in those of `languages` that they have, by name.

    Each has the splits `train`, `dev` and `test`.

    Raises:
        TaskError: An unknown task, one that is no classification, a task twice, fewer than two of the languages, a
            split that is missing or empty, or a label of dev that a train split lacks.
    """
    tasks: dict[str, ClassificationData] = {}
    for spec in [specs] if isinstance(specs, str) else specs or []:
        name, _, source = str(spec).partition("=")
        if name not in TASKS or name in tasks:
            raise TaskError(f"eval_task: found task {spec!r}, expected NAME[=SOURCE] of {', '.join(TASKS)}, each once")
        data = TASKS[name]().load(source or None)
        if not isinstance(data, ClassificationData) or data.monolingual:
            raise TaskError(f"eval_task: found {type(data).__name__} for {spec!r}, expected classes across languages")
        common = [language for language in languages if language in data.splits]
        if len(common) < 2:
            raise TaskError(
                f"eval_task: found the languages {data.languages} in {spec!r}, expected at least two of the model's "
                f"{list(languages)}"
            )
        for split in ("dev", "test"):
            check_plans(data, plan_protocol("zero-shot", common, common), split)
        tasks[name] = replace(data, splits={one: {key: data.splits[one][key] for key in SPLITS} for one in common})
    return tasks


def measure_task(
    embedder: DocumentEmbedder, data: ClassificationData, args: TmdeTrainingArguments, autocast: AbstractContextManager
) -> dict[str, float]:
    """Evaluation II (thesis 4.4.2): a classifier for each language's `train` labels, applied to every language.

    Args:
        data: From `load_eval_tasks`. Every split is encoded once.
        autocast: In which texts are encoded; classifiers are trained outside of it.

    Returns:
        `same`, `cross` and `all` on the dev split, `test_same` and `test_cross` on the test split, between 0 and 1.
    """
    splits = [(language, split) for language, of_language in data.splits.items() for split in of_language.values()]
    texts = [(language, side) for language, split in splits for side in (split.texts, split.second_texts) if side]
    with autocast:
        system = encode_dev_texts(embedder, texts)
    scores = {}
    with torch.enable_grad():  # for heads that are trained by gradients
        for split, prefix, names in (("dev", "", TASK_METRICS), ("test", "test_", ("same", "cross"))):
            cells = evaluate_classification(data, system, args.eval_head or data.head, test_split=split, seeds=(0,))
            means = {name.lower(): value for name, value in summarize(cells).items()}
            scores |= {f"{prefix}{name}": means[name] for name in names}
    return scores


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
        several tasks; `retrieval` and `document_retrieval`, means over all sets and pairs; the mean of each score over
        the tasks; and `mix`, the mean of those of `MIX` that are measured.
    """
    embedder = DocumentEmbedder(model.encoder, tokenizer, max_length=args.embed_max_length)
    metrics: dict[str, float] = {}
    groups: dict[str, list[float]] = defaultdict(list)
    for name, rows in dev_sets.items():
        with autocast():
            retrieval = dev_retrieval(embedder, rows, model.config.languages, args)
            measured = retrieval | dev_losses(model, tokenizer, rows, args)
        metrics |= {f"{name}_{key}": value for key, value in measured.items()}
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
