"""What a run measures: retrieval of translations and the losses on its dev rows, and Same and Cross of tasks."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager

import datasets
import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.classification import check_labels, check_plans, evaluate_classification, plan_protocol
from modeling_tmde.eval.results import summarize
from modeling_tmde.eval.retrieval import RetrievalPool, precision_at_1, retrieval_pool
from modeling_tmde.eval.systems import EmbeddingSystem
from modeling_tmde.eval.tasks import TASKS, ClassificationData, TaskError
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.dev_documents import MIN_DOCUMENTS, MIN_ROWS, document_pool, documents_of
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.teacher_vectors import open_teacher_vectors

logger = logging.get_logger("modeling_tmde.training")

TASK_SPLITS = ("train", "dev", "test")
TASK_METRICS = ("same", "cross", "all")
TextKey = tuple[str, str]  # language, or "" where that makes no difference, and text
MIX = ("retrieval", "document_retrieval", "same", "cross")  # means, each of which counts once


def language_pairs(languages: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Every pair, in both orders, by the name `<a>-<b>`: codes have hyphens too."""
    return {f"{source}-{target}": (source, target) for source, target in itertools.permutations(languages, 2)}


def retrieval_pools(
    rows: datasets.Dataset, languages: Sequence[str], args: TmdeTrainingArguments
) -> dict[str, RetrievalPool]:
    """What is searched on dev rows, by the measure's name: for each of `args.eval_pairs`, the sentences `p1_<a>-<b>`
    and the documents `doc_p1_<a>-<b>`, where there are two and `MIN_DOCUMENTS` of them."""
    translations = rows["translation"][:]
    documents = documents_of(rows, args.eval_document_rows)
    pairs = itertools.combinations(languages, 2)
    if args.eval_pairs is not None:
        known = language_pairs(languages)
        pairs = (known[pair] for pair in args.eval_pairs)
    pools = {}
    for source, target in pairs:
        sentences = retrieval_pool(translations, source, target, args.eval_pool)
        joined = document_pool(documents, source, target, args.eval_document_rows, args.eval_pool)
        for prefix, pool, least in (("p1", sentences, 2), ("doc_p1", joined, MIN_DOCUMENTS)):
            if len(pool.sources) >= least:
                pools[f"{prefix}_{source}-{target}"] = pool
    return pools


def dev_retrieval(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset, args: TmdeTrainingArguments
) -> dict[str, float]:
    """Precision at 1 of translation retrieval in each of the `retrieval_pools`.

    Every text is encoded once, and by an encoder with a part for each language once for each of its languages.
    """
    pools = retrieval_pools(rows, model.config.languages, args)
    if not pools:
        return {}
    embedder = DocumentEmbedder(model.encoder, tokenizer, max_length=args.embed_max_length)
    keys = {name: _text_keys(pool, embedder.needs_language) for name, pool in pools.items()}  # of both sides
    different = dict.fromkeys(key for sides in keys.values() for side in sides for key in side)
    place = {key: row for row, key in enumerate(different)}
    system = EmbeddingSystem("the model in training", embedder, show_progress_bar=False)
    vectors = system.represent([text for _, text in place], language=[code for code, _ in place])  # (texts, d)
    if system.truncated:
        logger.warning_once(
            f"{system.truncated:,} of {system.texts:,} dev sentences and documents are longer than embed_max_length="
            f"{args.embed_max_length} and are truncated at every evaluation; raise it if the model can take more"
        )
    return {
        name: precision_at_1(*(vectors[[place[key] for key in side]] for side in sides))
        for name, sides in keys.items()
    }


def _text_keys(pool: RetrievalPool, by_language: bool) -> tuple[list[TextKey], list[TextKey]]:
    """What stands for the vector of each source and target: its text, with the language where that decides it too."""
    codes = (pool.source_language, pool.target_language) if by_language else ("", "")
    return tuple(
        [(code, text) for text in side] for code, side in zip(codes, (pool.sources, pool.targets), strict=True)
    )


def dev_means(retrieval: Sequence[Mapping[str, float]], task: Mapping[str, float]) -> dict[str, float]:
    """The means by which a checkpoint can be chosen.

    Args:
        retrieval: What `dev_retrieval` found, of each dev set.
        task: `same` and `cross` of the dev split, if there is a classification task.

    Returns:
        `retrieval` and `document_retrieval`, over all sets and pairs that have it, and `mix`: the mean of these two,
        `same` and `cross`, of those that there are, however many sets, pairs and tasks each is a mean of.
    """
    means = {name: task[name] for name in MIX if name in task}
    for name, prefix in (("retrieval", "p1_"), ("document_retrieval", "doc_p1_")):
        if values := [value for found in retrieval for key, value in found.items() if key.startswith(prefix)]:
            means[name] = sum(values) / len(values)
    return means | {"mix": sum(means.values()) / len(means)} if means else {}


def task_means(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean over the tasks of each score that `measure_task` found; of several tasks also `<task>_<score>`."""
    names = list(dict.fromkeys(name for found in scores.values() for name in found))
    means = {name: sum(found[name] for found in scores.values()) / len(scores) for name in names}
    if len(scores) > 1:
        means |= {f"{task}_{name}": value for task, found in scores.items() for name, value in found.items()}
    return means


def loss_rows(rows: datasets.Dataset, args: TmdeTrainingArguments) -> datasets.Dataset:
    """The rows of a dev set on which the losses are measured."""
    return rows.select(range(min(len(rows), args.eval_loss_rows))).select_columns("translation")


def dev_losses(
    model: ParallelModel, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset, args: TmdeTrainingArguments
) -> dict[str, float]:
    """Every component of every objective, `<objective>_<component>`, on the first `args.eval_loss_rows` rows.

    An objective that finds nothing in these, as distillation without a text that the teacher reads, is left out. The
    pairs and negatives are the same at every evaluation, and training's random numbers stay as they are.
    """
    rows = loss_rows(rows, args)
    batches = ParallelBatches(
        rows,
        tokenizer,
        model.config.languages,
        model.config.pivot_languages,
        micro_batch_tokens=args.micro_batch_tokens,
        languages_per_row=2,
        pivots_only=model.needs_pivot or args.pivot_pairs,
        max_length=args.train_max_length,
        seed=0,
        teacher=open_teacher_vectors(rows, model, args),
    )
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    with torch.random.fork_rng([args.device] if args.device.type == "cuda" else []):
        torch.manual_seed(0)
        for batch in batches:
            for name, components in model(**batch.to(args.device).model_inputs()).items():
                counts[name] += model.objectives[name].count(batch.sizes)
                for component, value in components.items():
                    if component != "total":
                        sums[f"{name}/{component}"] += float(value)
    measured = {key: counts[key.split("/")[0]] for key in sums}
    return {key.replace("/", "_"): sums[key] / count for key, count in measured.items() if count}


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


def load_eval_tasks(specs: str | Sequence[str] | None, languages: Sequence[str]) -> dict[str, ClassificationData]:
    """The data of one or several `NAME` or `NAME=SOURCE`, by name; see `load_eval_task`.

    Raises:
        TaskError: As `load_eval_task`; or a task twice.
    """
    tasks: dict[str, ClassificationData] = {}
    for spec in [specs] if isinstance(specs, str) else specs or []:
        name = str(spec).partition("=")[0]
        if name in tasks:
            raise TaskError(f"eval_task: found the task {name!r} twice, expected each once")
        tasks[name] = load_eval_task(spec, languages)
    return tasks


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

    `mix`, the mean of what is measured (see `dev_means`), needs no more than that anything is.

    Raises:
        ValueError: Names the metric and what it needs.
    """
    name = (metric or "").removeprefix("eval_")
    if name.endswith(("test_same", "test_cross")):  # of one of several tasks, too
        raise ValueError(f"metric_for_best_model={metric} would choose by the test split; choose by cross, of the dev")
    if name in TASK_METRICS and not eval_task:
        raise ValueError(
            f"metric_for_best_model={metric} is measured on a classification task: give one, such as eval_task=sample "
            "or eval_task=mldoc=FOLDER"
        )
    if name in ("retrieval", "document_retrieval") and eval_task and not dev_rows:
        raise ValueError(
            f"metric_for_best_model={metric} is measured on dev rows, of which there are none; choose by cross, or "
            "give dev or dev_rows"
        )


def check_metric(
    args: TmdeTrainingArguments,
    dev_sets: Collection[str],
    tasks: Collection[str],
    objectives: Collection[str],
    languages: Sequence[str],
) -> None:
    """Refuses a `metric_for_best_model` by its name, before the time is spent after which it would be missed.

    Args:
        dev_sets, tasks, objectives: Their names.

    Raises:
        ValueError: Names the metric and the names that there are.
    """
    scores = [*TASK_METRICS, *(f"{task}_{score}" for task in tasks for score in TASK_METRICS)] if tasks else []
    means = [*MIX[:2], "mix", *scores]
    kinds = [f"{name}_{kind}_" for name in dev_sets for kind in ("p1", "doc_p1", *objectives)]
    name = (args.metric_for_best_model or "mix").removeprefix("eval_")
    kind = next((kind for kind in kinds if name.startswith(kind)), None)
    if name not in means and kind is None:
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model}: no evaluation measures it, expected one of "
            + ", ".join(means)
            + (f", or a name that begins with one of {', '.join(kinds)}" if kinds else "")
        )
    if kind is not None and kind.endswith("p1_"):
        # A pair is measured in one order: both directions are in it.
        pairs = args.eval_pairs or [f"{one}-{other}" for one, other in itertools.combinations(languages, 2)]
        if name.removeprefix(kind) not in pairs:
            raise ValueError(
                f"metric_for_best_model={args.metric_for_best_model}: no evaluation measures it, expected {kind} and "
                f"one of the pairs {', '.join(pairs)}"
            )


def check_documents(
    metric: str | None,
    dev_sets: Mapping[str, datasets.Dataset],
    languages: Sequence[str],
    args: TmdeTrainingArguments,
) -> None:
    """Refuses to choose by documents where dev rows have none, and names of dev sets that read as documents.

    Raises:
        ValueError: Names the metric or the set.
    """
    for name in dev_sets:
        if name.endswith("_doc"):  # eval_<set>_doc_p1_<pair> is of the documents of <set>
            raise ValueError(f"dev: found a set called {name!r}, expected a name without _doc at its end; rename it")
    if (metric or "").removeprefix("eval_") != "document_retrieval":
        return
    if not any("doc_" in key for rows in dev_sets.values() for key in retrieval_pools(rows, languages, args)):
        raise ValueError(
            f"metric_for_best_model={metric} is measured on dev documents: found no dev set with {MIN_DOCUMENTS} of "
            f"at least {MIN_ROWS} rows in both languages of a pair; give more dev rows, or choose by mix"
        )


def checked_evaluation(
    dev_sets: datasets.Dataset | Mapping[str, datasets.Dataset] | None,
    tasks: ClassificationData | Mapping[str, ClassificationData] | None,
    languages: Sequence[str],
    args: TmdeTrainingArguments,
) -> tuple[dict[str, datasets.Dataset], dict[str, ClassificationData]]:
    """Dev sets and classification tasks by name, the latter in `languages` alone.

    Raises:
        ValueError: `eval_pairs` or `metric_for_best_model` ask for what these do not have.
    """
    dev_sets = {"dev": dev_sets} if isinstance(dev_sets, datasets.Dataset) else dict(dev_sets or {})
    tasks = {"task": tasks} if isinstance(tasks, ClassificationData) else dict(tasks or {})
    for pair in args.eval_pairs or ():
        if pair not in language_pairs(languages):
            raise ValueError(f"eval_pairs: {pair!r} is not a pair of the languages {languages}")
    check_selection(args.metric_for_best_model, bool(dev_sets), bool(tasks))
    check_documents(args.metric_for_best_model, dev_sets, languages, args)
    return dev_sets, {name: task_in_languages(task, languages) for name, task in tasks.items()}


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
    embedder = DocumentEmbedder(model.encoder, tokenizer, max_length=args.embed_max_length)
    system = EmbeddingSystem("the model in training", embedder, show_progress_bar=False)
    with autocast:
        for language, splits in data.splits.items():
            for split in splits.values():
                for texts in filter(None, (split.texts, split.second_texts)):
                    system.represent(texts, language=language)  # which keeps the vectors
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
