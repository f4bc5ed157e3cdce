"""Languages added to a trained checkpoint: more tokens, their pairs with the old languages, and what it cost.

The run is an ordinary one, `train_recipe` of a recipe made from the checkpoint. Its tokenizer is made beforehand, in
the folder `warm_start` of the run.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
import torch
from tabulate import tabulate
from transformers import (
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import cached_file, logging

from modeling_tmde import TmdeError
from modeling_tmde.tokenization import extend_tokenizer, is_byte_level_bpe
from tmde.data.checks import is_code
from tmde.data.io import write_atomically
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import local_or_hub
from tmde.eval.dev_retrieval import dev_retrieval, language_pairs
from tmde.eval.dev_tasks import load_eval_tasks
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.building import STAGE_FOLDER, build_model, load_data, texts_by_language
from tmde.training.evaluation import check_metric
from tmde.training.hub_encoder import open_config
from tmde.training.recipe import (
    ADAPTED,
    Recipe,
    RecipeError,
    architecture_of,
    load_recipe,
    section_keys,
)
from tmde.training.train import (
    check_run_folder,
    check_same_run,
    save_best,
    train_recipe,
    write_card,
)
from tmde.training.trainer import TmdeTrainer
from tmde.training.warm_start import warm_start

logger = logging.get_logger("tmde.training")

REPORT_NAME = "languages.json"
LEARNING_RATE_SHARE = 0.3  # of the recipe's rates: much of what there is stays
LEARNING_CHARACTERS = 5_000_000  # of each language, from which tokens are learned
SHARES = [
    number / 10 for number in range(10, -1, -1)
]  # of the trained weights, tried until enough is kept

Report = dict[str, Any]  # what `languages.json` holds


def extension_recipe(
    checkpoint: str,
    languages: Sequence[str],
    train: Any,
    replay: Any = None,
    replay_share: float = 0.5,
    dev: Mapping[str, Any] | None = None,
    pivots: Sequence[str] = (),
    recipe: str | None = None,
    overrides: Sequence[str] = (),
) -> Recipe:
    """The recipe of a run that adds languages: the checkpoint's sizes and objectives, its languages and the new ones.

    Args:
        checkpoint: Folder or Hub id of a trained model with its tokenizer.
        languages: Codes of the languages to add.
        train: Source or sources of parallel text that pair them with the checkpoint's languages.
        replay: Source or sources of the old languages' parallel text; None takes what `train` holds of them.
        replay_share: Share of the training rows that are replayed.
        dev: Dev sets by name; None holds rows out of the training data.
        pivots: Which of the languages are pivots too, which the objectives translate into.
        recipe: Name or path of the recipe with the objectives and training settings; None for the one in the
            checkpoint's folder.
        overrides: Keys of the recipe, `key=value`. Without one, the learning rates are `LEARNING_RATE_SHARE` of the
            recipe's.

    Raises:
        RecipeError: The checkpoint cannot be extended, has the languages already, or has no recipe that fits.
    """
    config = open_config(checkpoint, "Checkpoint")
    if config.model_type in ("tmde_ntdv", "tmde_aligned"):
        raise RecipeError(
            f"{checkpoint} has an encoder for each language: train all of them, tmde train --warm-start"
        )
    old, new = list(config.languages), list(languages)
    if not new or len({*old, *new}) < len(old) + len(new) or not all(map(is_code, new)):
        raise RecipeError(
            f"Languages: found {', '.join(new) or 'none'}, expected codes such as it or pt-BR, each once and none of "
            f"the checkpoint's ({', '.join(old)}); to train on with these, use tmde train --warm-start"
        )
    try:
        base = load_recipe(recipe or cached_file(local_or_hub(checkpoint), "recipe.yaml"))
    except OSError as error:
        raise RecipeError(
            f"Checkpoint {checkpoint} has no recipe.yaml: give --recipe with one that fits"
        ) from error
    sizes, architecture = json.loads(config.to_json_string(use_diff=False)), architecture_of(config)
    sizes = {key: sizes[key] for key in section_keys("model", architecture) if key in sizes}
    source = {"new": train, "new_languages": new, "replay": replay, "replay_share": replay_share}
    all_pivots = list(dict.fromkeys([*config.pivot_languages, *pivots]))
    sections = {
        "data": {
            "train": source,
            "dev": dev,
            "languages": old + new,
            "pivot_languages": all_pivots,
        },
        "tokenizer": {},
        "warm_start": {"checkpoint": str(checkpoint)},
        "model": sizes | {"architecture": architecture},
        "objectives": base.sections["objectives"],
        "training": _training_section(base.sections["training"], base.architecture),
        "card": {key: value for key, value in base.sections["card"].items() if key == "license"},
    }
    description = f"{', '.join(new)} added to {Path(checkpoint).name} ({', '.join(old)})"
    extended = Recipe("add_language", sections, description)
    extended.check()
    extended.override(overrides)
    if extended.sections["training"].get("push_to_hub"):
        raise RecipeError(
            "push_to_hub: push afterwards with `tmde push`, when you know what the old languages lost"
        )
    return extended


def _training_section(settings: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Those of the recipe at lower rates, without what is of the checkpoint's run alone."""
    left_out = ("eval_pairs", "greater_is_better", "push_to_hub", "hub_")
    training = {key: value for key, value in settings.items() if not key.startswith(left_out)}
    for name in ("learning_rate", "encoder_learning_rate", "embedding_learning_rate"):
        if rate := settings.get(name, getattr(TmdeTrainingArguments, name)):
            training[name] = LEARNING_RATE_SHARE * rate
    # The tables learn even where the recipe keeps them as they are (0): they have new rows, but for an encoder's.
    if architecture != ADAPTED:
        training["embedding_learning_rate"] = training.get("embedding_learning_rate") or None
    return training | {"metric_for_best_model": "mix"}


def add_languages(
    recipe: Recipe,
    output_dir: str | Path,
    new_tokens: int | None = None,
    max_drop: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Report:
    """Trains languages into a checkpoint, in a run of its own, and measures what that did to the old ones.

    The tokenizer gets more entries (see `extend_tokenizer`), whose vectors begin as the means of what they were read
    as before. Rows of the old languages are replayed (see `load_replayed`). Where the old pairs' mean falls by more
    than `max_drop` points, the result is a weighted mean of the weights before and after training, with as much of
    the trained ones as keeps it: 90%, 80% and so on (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903, eq. 1).

    Args:
        recipe: From `extension_recipe`.
        output_dir: New or empty, unless resuming or overwriting; a folder as `train_recipe` makes it, with
            `languages.md` and `languages.json`.
        new_tokens: Entries that the vocabulary gains; None for as many for each language as the old ones have on
            average, 0 to keep the tokenizer.
        max_drop: By how many points the old pairs' mean precision at 1 on the dev rows may fall, of sentences and of
            documents; None for any.
        resume: Go on with the run in the folder, begun with the same arguments.
        overwrite: Delete an earlier run in the folder.

    Returns:
        What `languages.json` holds: `checkpoint`, `old_languages`, `new_languages`; `tokenizer` with `new_tokens`
        and `vocab_size`; `data`, the training rows of `old` and `new` pairs; `before` and `after`, retrieval by dev
        set and measure, their `means`, and the `fall` of the old pairs in points; `max_drop`; and `trained_share`, how
        much of the trained weights is in the result.

    Raises:
        ValueError: Names what was found and what was expected; also where even the untrained model's retrieval is
            lower by more than `max_drop`.
    """
    folder = Path(output_dir).absolute()
    start = folder / STAGE_FOLDER
    if not resume:
        _prepare(recipe, folder, new_tokens, max_drop, overwrite)
    if not (start / REPORT_NAME).is_file():
        raise TmdeError(f"{folder} holds no run of add-language to resume")
    check_same_run(recipe, folder, "data", "warm_start", "objectives")
    recipe.sections["tokenizer"]["path"] = str(start)
    trainer = train_recipe(recipe, folder, resume=True)
    report = json.loads((start / REPORT_NAME).read_text(encoding="utf-8")) | {"max_drop": max_drop}
    _measure_result(recipe, trainer, folder, report)
    return report


# ---- Before the first step


def _prepare(
    recipe: Recipe, folder: Path, new_tokens: int | None, max_drop: float | None, overwrite: bool
) -> None:
    """Puts the extended tokenizer, and what is measured of the checkpoint, where the run will take them from."""
    check_run_folder(recipe, folder, False, overwrite)
    train, dev, _ = load_data(recipe)
    languages, new = recipe.data.languages, recipe.data.replay.new_languages
    old = [language for language in languages if language not in new]
    arguments = recipe.build_arguments(str(folder))
    check_metric(arguments, dev, load_eval_tasks(recipe.data.eval_task, languages), languages)
    source = local_or_hub(recipe.warm_start.checkpoint)
    before = AutoTokenizer.from_pretrained(source)
    after = _extended(recipe, before, train, new_tokens)
    new_rows = sum(any(row.get(language) for language in new) for row in train["translation"])
    if new_rows == len(train):
        logger.warning(
            f"Nothing protects the old languages ({', '.join(old)}); --replay gives them rows"
        )
    model = AutoModel.from_pretrained(source, dtype=torch.float32).to(arguments.device)
    embedder = DocumentEmbedder(model, before, max_length=arguments.embed_max_length)
    report = {
        "checkpoint": recipe.warm_start.checkpoint,
        "old_languages": old,
        "new_languages": new,
    }
    report["tokenizer"] = {"new_tokens": len(after) - len(before), "vocab_size": len(after)}
    report["data"] = {"new": {"rows": new_rows}, "old": {"rows": len(train) - new_rows}}
    report["before"] = {
        name: dev_retrieval(embedder, rows, languages, arguments) for name, rows in dev.items()
    }
    if max_drop is not None and fall(report) is None:
        raise RecipeError(
            f"max_drop={max_drop:g}: found no dev set with two rows of a pair of the old languages "
            f"({', '.join(old)}); give --dev with such rows"
        )
    if overwrite:
        shutil.rmtree(folder, ignore_errors=True)
    (folder / STAGE_FOLDER).mkdir(parents=True, exist_ok=True)
    write_atomically(
        folder / "recipe.yaml", recipe.to_yaml()
    )  # now --overwrite may delete the folder
    after.save_pretrained(folder / STAGE_FOLDER)
    write_atomically(
        folder / STAGE_FOLDER / REPORT_NAME, json.dumps(report)
    )  # the last: now it can be resumed


def _extended(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    train: datasets.Dataset,
    new_tokens: int | None,
) -> PreTrainedTokenizerBase:
    extendable = (
        is_byte_level_bpe(tokenizer) and recipe.architecture != ADAPTED
    )  # the Hub's encoders keep theirs
    added, languages = recipe.data.replay.new_languages, recipe.data.languages
    if new_tokens is None:
        new_tokens = (
            len(tokenizer) // (len(languages) - len(added)) * len(added) if extendable else 0
        )
    if new_tokens and not extendable:
        raise RecipeError(
            f"new_tokens={new_tokens}: the tokenizer of {recipe.warm_start.checkpoint} is not one that this package "
            "trained, and stays as it is; leave --new-tokens out"
        )
    if not new_tokens:
        return tokenizer
    texts = texts_by_language(train, languages, LEARNING_CHARACTERS, recipe.seed)
    texts = {
        language: list(dict.fromkeys(found)) for language, found in texts.items()
    }  # rows are repeated
    new = {language: texts.pop(language) for language in added}
    return extend_tokenizer(tokenizer, new, new_tokens, texts, max_characters=LEARNING_CHARACTERS)


def _start_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model before its first step: the checkpoint with the tokenizer's new entries and the new languages."""
    set_seed(recipe.seed)
    model = build_model(recipe, tokenizer)
    warm_start(model, tokenizer, recipe.warm_start.checkpoint)
    return model.eval()


# ---- After the last step


def measures(report: Report) -> Iterator[tuple[str, str, str, float, float]]:
    """Dev set, kind of texts, pair, and precision before and after; until that is measured, the one before again."""
    after = report.get("after", report["before"])
    for name, measured in report["before"].items():
        for key, value in measured.items():
            documents, pair = key.split("p1_", 1)  # of p1_de-en or doc_p1_de-en
            yield name, "documents" if documents else "sentences", pair, value, after[name][key]


def means(report: Report) -> dict[str, dict[str, float]]:
    """Means over dev sets and pairs, `before` and `after` by `old_sentences`, `new_documents` and so on."""
    old, values = language_pairs(report["old_languages"]), defaultdict(list)
    for _, texts, pair, *both in measures(report):
        values[f"{'old' if pair in old else 'new'}_{texts}"].append(both)
    columns = {kind: zip(*found, strict=True) for kind, found in values.items()}
    return {
        kind: {"before": fmean(before), "after": fmean(after)}
        for kind, (before, after) in columns.items()
    }


def fall(report: Report) -> float | None:
    """By how many points the mean over the old pairs is lower than before, of sentences or of documents, whichever
    fell more; 0 if both rose, None if no old pair was measured.
    """
    old = [
        100 * (mean["before"] - mean["after"])
        for kind, mean in means(report).items()
        if kind.startswith("old")
    ]
    return max(0.0, *old) if old else None


def _measure_result(recipe: Recipe, trainer: TmdeTrainer, folder: Path, report: Report) -> None:
    """Fills the report and writes it; averages weights until the old languages lose no more than they may."""
    model, tokenizer = (
        trainer.accelerator.unwrap_model(trainer.model).model,
        trainer.processing_class,
    )
    args, dev, languages = trainer.args, trainer.eval_dataset or {}, recipe.data.languages
    embedder = DocumentEmbedder(model, tokenizer, max_length=args.embed_max_length)
    limit = report["max_drop"]
    for share in SHARES:
        if share == 0.9:  # too much was lost
            logger.warning(
                f"The old languages' mean fell by {report['fall']:.1f} points: weights are averaged"
            )
            first = _start_model(recipe, tokenizer).state_dict()
            last = {name: value.clone() for name, value in model.state_dict().items()}
        if share < 1:
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    value.copy_(torch.lerp(first[name].to(value), last[name], share))
        report["after"] = {
            name: dev_retrieval(embedder, rows, languages, args) for name, rows in dev.items()
        }
        report |= {"means": means(report), "fall": fall(report), "trained_share": share}
        too_far = limit is not None and (report["fall"] or 0.0) > limit + 1e-9
        if not too_far:
            break
    if share < 1:
        save_best(trainer, folder)
        path = folder / "results.json"  # which is of the model in the folder
        results = json.loads(path.read_text(encoding="utf-8")) | {"trained_share": share}
        if results["best"] is not None:  # None with eval_strategy=no
            results["best"] |= trainer.evaluate()
        write_atomically(path, json.dumps(results, indent=2))
    write_atomically(folder / REPORT_NAME, json.dumps(report, indent=2, ensure_ascii=False))
    write_atomically(folder / "languages.md", describe(report))
    write_card(folder)
    if too_far:
        raise RecipeError(
            f"The old languages' mean is {report['fall']:.1f} points lower, {limit:g} were allowed, "
            "even before the first step, by the new tokens alone: lower --new-tokens, or raise --max-drop"
        )


def describe(report: Report) -> str:
    """The report in words and tables, `languages.md`."""
    rows = list(measures(report))
    for kind, mean in report["means"].items():
        pairs, texts = kind.split("_")
        rows.append(("all", texts, f"mean of {pairs} pairs", mean["before"], mean["after"]))
    rows = [
        [*what, 100 * before, 100 * after, 100 * (after - before)] for *what, before, after in rows
    ]
    found = "was not measured" if report["fall"] is None else f"fell by {report['fall']:.1f} points"
    allowed = (
        "no limit was asked for"
        if report["max_drop"] is None
        else f"{report['max_drop']:g} were allowed"
    )
    summary, share = f"The old languages' mean {found} ({allowed}).", report["trained_share"]
    if share < 1:
        summary += (
            f" The weights are {share:.0%} of the trained ones, the rest those before training."
        )
    tokenizer, (new, old) = (
        report["tokenizer"],
        (report["data"][kind]["rows"] for kind in ("new", "old")),
    )
    header = ("dev set", "texts", "pair", "before", "after", "change")
    parts = [
        f"# {', '.join(report['new_languages'])} added to {', '.join(report['old_languages'])}",
        "Retrieval P@1 (%) of the dev rows, both directions, before and after.",
        tabulate(rows, header, "github", floatfmt=("", "", "", ".1f", ".1f", "+.1f")),
        summary,
        f"{tokenizer['new_tokens']:,} tokens were added to make {tokenizer['vocab_size']:,}.",
        f"Training rows: {new:,} of new pairs, {old:,} of old ones ({old / max(new + old, 1):.1%}).",
    ]
    return "\n\n".join(parts) + "\n"
