"""Dev evaluation: translation retrieval, the losses on dev rows, and classification tasks."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from statistics import fmean

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.data.dev_rows import MIN_DOCUMENTS, documents_of, join_documents
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.classification import check_plans, evaluate_classification, plan_protocol
from modeling_tmde.eval.results import summarize
from modeling_tmde.eval.retrieval import RetrievalPool, precision_at_1, retrieval_pool
from modeling_tmde.eval.systems import EmbeddingSystem
from modeling_tmde.eval.tasks import TASKS, ClassificationData, TaskError
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import batches_of
from modeling_tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("modeling_tmde.training")

TASK_METRICS = ("same", "cross", "all")
MIX = ("retrieval", "document_retrieval", "same", "cross")  # means, each of which counts once in `mix`


def language_pairs(languages: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Every pair, in both orders, by the name `<a>-<b>`: codes have hyphens too."""
    return {f"{source}-{target}": (source, target) for source, target in itertools.permutations(languages, 2)}


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
            raise ValueError(f"eval_pairs: found {pair!r}, expected pairs of the languages {', '.join(languages)}")
    measured = ["mix", *(["retrieval", "document_retrieval"] if dev_sets else []), *(TASK_METRICS if tasks else [])]
    prefixes = tuple(f"{name}_" for name in [*dev_sets, *(tasks if len(tasks) > 1 else [])])
    metric = (args.metric_for_best_model or "mix").removeprefix("eval_")
    if metric not in measured and not metric.startswith(prefixes):
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model}: no evaluation measures it, expected one of "
            + ", ".join([*measured, *(f"{prefix}..." for prefix in prefixes)])
        )


# ---- Dev rows


def retrieval_pools(
    rows: datasets.Dataset, languages: Sequence[str], args: TmdeTrainingArguments
) -> dict[str, RetrievalPool]:
    """The retrieval pools of dev rows by the name of their metric.

    For each of `args.eval_pairs` these are the sentences, `p1_<a>-<b>`, and the documents, `doc_p1_<a>-<b>`, where
    there are at least `MIN_DOCUMENTS`.
    """
    translations = rows["translation"][:]
    documents = documents_of(rows, args.eval_document_rows)
    pairs = itertools.combinations(languages, 2)
    if args.eval_pairs is not None:
        pairs = map(language_pairs(languages).get, args.eval_pairs)
    pools = {}
    for pair in pairs:
        joined = join_documents(documents, *pair, args.eval_document_rows)
        for prefix, texts, least in (("p1", translations, 2), ("doc_p1", joined, MIN_DOCUMENTS)):
            pool = retrieval_pool(texts, *pair, args.eval_pool)
            if len(pool.sources) >= least:
                pools[f"{prefix}_{'-'.join(pair)}"] = pool
    return pools


def dev_retrieval(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: datasets.Dataset,
    languages: Sequence[str],
    args: TmdeTrainingArguments,
) -> dict[str, float]:
    """Precision at 1 in each of the `retrieval_pools`. Every text is encoded once in each of its languages."""
    system = _system(encoder, tokenizer, args)
    pools = retrieval_pools(rows, languages, args)
    texts: dict[str, dict[str, None]] = defaultdict(dict)  # by language, each once
    for pool in pools.values():
        texts[pool.source_language] |= dict.fromkeys(pool.sources)
        texts[pool.target_language] |= dict.fromkeys(pool.targets)
    vectors = {
        language: dict(zip(found, system.represent(list(found), language=language), strict=True))
        for language, found in texts.items()
    }
    _warn_of_truncation(system, args)
    return {
        name: precision_at_1(
            np.stack([vectors[pool.source_language][text] for text in pool.sources]),
            np.stack([vectors[pool.target_language][text] for text in pool.targets]),
        )
        for name, pool in pools.items()
    }


def _system(
    encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, args: TmdeTrainingArguments
) -> EmbeddingSystem:
    embedder = DocumentEmbedder(encoder, tokenizer, max_length=args.embed_max_length)
    return EmbeddingSystem("the model in training", embedder, show_progress_bar=False)


def _warn_of_truncation(system: EmbeddingSystem, args: TmdeTrainingArguments) -> None:
    if system.truncated:
        logger.warning_once(
            f"{system.truncated:,} of {system.texts:,} dev texts are longer than embed_max_length="
            f"{args.embed_max_length} and are truncated at every evaluation; raise it if the model can take more"
        )


def loss_rows(rows: datasets.Dataset, args: TmdeTrainingArguments) -> datasets.Dataset:
    """The rows of a dev set on which the losses are measured."""
    return rows.select(range(min(len(rows), args.eval_loss_rows))).select_columns("translation")


def dev_losses(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset, args: TmdeTrainingArguments
) -> dict[str, float]:
    """Every component of every objective, `<objective>_<component>`, on the first `args.eval_loss_rows` rows.

    The pairs and negatives are the same at every evaluation, and the random state of training is left alone.
    """
    sums: dict[tuple[str, str], float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    batches = batches_of(loss_rows(rows, args), tokenizer, model, args)
    with torch.random.fork_rng([args.device] if args.device.type == "cuda" else []):
        torch.manual_seed(0)
        for batch in batches:
            for name, components in model(**batch.to(args.device).model_inputs()).items():
                counts[name] += model.objectives[name].count(batch.sizes)
                for component, value in components.items():
                    sums[name, component] += float(value)
    return {
        f"{name}_{component}": total / counts[name]
        for (name, component), total in sums.items()
        if component != "total" and counts[name]
    }


def dev_means(retrieval: Sequence[Mapping[str, float]], task: Mapping[str, float]) -> dict[str, float]:
    """The means by which a checkpoint can be chosen.

    Args:
        retrieval: The `dev_retrieval` of each dev set.
        task: `same` and `cross` on the dev split, if there is a classification task.

    Returns:
        `retrieval` and `document_retrieval`, means over all sets and pairs, and `mix`, the mean of these two, `same`
        and `cross`, as far as they are measured.
    """
    means = {name: task[name] for name in MIX if name in task}
    for name, prefix in (("retrieval", "p1_"), ("document_retrieval", "doc_p1_")):
        if values := [value for found in retrieval for key, value in found.items() if key.startswith(prefix)]:
            means[name] = fmean(values)
    return means | {"mix": fmean(means.values())} if means else {}


# ---- Classification tasks


def load_eval_tasks(specs: str | Sequence[str] | None, languages: Sequence[str]) -> dict[str, ClassificationData]:
    """The data of one or several `NAME` or `NAME=SOURCE`, in those of `languages` that they have, by name.

    Raises:
        TaskError: An unknown task, one that is no classification, a task twice; see also `task_in_languages`.
    """
    tasks: dict[str, ClassificationData] = {}
    for spec in [specs] if isinstance(specs, str) else specs or []:
        name, _, source = str(spec).partition("=")
        if name not in TASKS or name in tasks:
            raise TaskError(
                f"eval_task: found task {spec!r}, expected NAME or NAME=SOURCE, NAME of {', '.join(TASKS)}, each once"
            )
        data = TASKS[name]().load(source or None)
        if not isinstance(data, ClassificationData):
            raise TaskError(f"eval_task: found {type(data).__name__} for {spec!r}, expected a classification task")
        tasks[name] = task_in_languages(data, languages)
    return tasks


def task_in_languages(data: ClassificationData, languages: Sequence[str]) -> ClassificationData:
    """The splits `train`, `dev` and `test` of the languages that are in `languages` too.

    Raises:
        TaskError: Fewer than two such languages, a split that is missing or empty, or a label of dev that a train
            split lacks.
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
    except TaskError as error:
        raise TaskError(f"eval_task: {error}") from error
    names = ("train", "dev", "test")
    return replace(data, splits={one: {name: data.splits[one][name] for name in names} for one in common})


def measure_task(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: ClassificationData,
    args: TmdeTrainingArguments,
    autocast: AbstractContextManager,
) -> dict[str, float]:
    """Evaluation II (thesis 4.4.2): a classifier for each language's `train` labels, applied to every language.

    Args:
        data: From `task_in_languages`. Every split is encoded once.
        autocast: In which texts are encoded; classifiers are trained outside of it.

    Returns:
        `same`, `cross` and `all` on the dev split, `test_same` and `test_cross` on the test split, between 0 and 1.
    """
    system = _system(encoder, tokenizer, args)
    with autocast:
        for language, splits in data.splits.items():
            for split in splits.values():
                for texts in filter(None, (split.texts, split.second_texts)):
                    system.represent(texts, language=language)  # which keeps the vectors
    scores = {}
    with torch.enable_grad():  # for heads that are trained by gradients
        for split, prefix, names in (("dev", "", TASK_METRICS), ("test", "test_", ("same", "cross"))):
            cells = evaluate_classification(data, system, args.eval_head or data.head, test_split=split, seeds=(0,))
            means = {name.lower(): value for name, value in summarize(cells).items()}
            scores |= {f"{prefix}{name}": means[name] for name in names}
    _warn_of_truncation(system, args)
    return scores


def task_means(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each score of `measure_task` over the tasks; of several tasks also `<task>_<score>`."""
    names = next(iter(scores.values()), ())
    means = {name: fmean(found[name] for found in scores.values()) for name in names}
    if len(scores) > 1:
        means |= {f"{task}_{name}": value for task, found in scores.items() for name, value in found.items()}
    return means
