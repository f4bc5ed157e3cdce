"""What a run measures on its dev rows: translation retrieval and the losses."""

import itertools
from collections import defaultdict

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.retrieval import precision_at_1, retrieval_pool
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.parallel_model import ParallelModel


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
