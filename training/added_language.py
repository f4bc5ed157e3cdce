"""Languages added to a trained checkpoint: more tokens, their pairs with the old languages replayed, and what it cost.

The run is an ordinary one, `train_recipe` of a recipe made from the checkpoint. Its tokenizer is made beforehand, in
the folder `warm_start` of what the run begins with.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
import torch
import yaml
from accelerate import PartialState
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging

from modeling_tmde.data.io import write_atomically
from modeling_tmde.data.token_cache import open_token_cache
from modeling_tmde.data.token_store import ArrowSource, TextEncoder, TokenStore
from modeling_tmde.loading import local_or_hub
from modeling_tmde.tokenizer_extension import (
    extend_tokenizer,
    is_byte_level_bpe,
    share_of_changed_texts,
    tokens_per_word,
)
from modeling_tmde.training.architectures import architecture_of
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.building import build_model, texts_by_language
from modeling_tmde.training.evaluation import check_metric, load_eval_tasks
from modeling_tmde.training.language_recipe import RECIPE_NAME, AddedLanguages, open_checkpoint, recipe_of
from modeling_tmde.training.language_report import LanguageReport, Retrieval, measure_retrieval
from modeling_tmde.training.overwriting import check_inputs_stay
from modeling_tmde.training.recipe import Recipe, RecipeError
from modeling_tmde.training.replay import count_drawn, needs_pivot
from modeling_tmde.training.run_record import write_card
from modeling_tmde.training.stages import STAGE_FOLDER, check_warm_start
from modeling_tmde.training.train import RunFolderError, load_data, open_run_folder, save_best, train_recipe
from modeling_tmde.training.trainer import TmdeTrainer
from modeling_tmde.training.warm_start import warm_start

logger = logging.get_logger("modeling_tmde.training")

STATE_NAME = "languages.json"  # in the folder `warm_start`: what was measured before training
# Of a run that goes on. Its tokenizer is in its folder, wherever that is now.
RUN_LIMITS = ("max_steps", "max_minutes", "max_cpu_minutes", "num_train_epochs")
MAY_DIFFER = {"tokenizer.path", *(f"training.{key}" for key in RUN_LIMITS)}
SHARES = [number / 10 for number in range(9, -1, -1)]  # of the trained weights, tried where retrieval fell too far
LEARNING_CHARACTERS = 5_000_000  # of each language, from which tokens are learned


def add_languages(
    asked: AddedLanguages, output_dir: str | Path, resume: bool = False, overwrite: bool = False
) -> LanguageReport:
    """
    Trains languages into a checkpoint, in a run of its own, and measures what that did to the old ones.

    The tokenizer gets more entries (see `extend_tokenizer`), whose vectors begin as the means of what they were read
    as before. Rows of the old languages are replayed (see `load_replayed`). Where the old pairs' mean falls by more
    than `max_drop` points, the result is a weighted mean of the weights before and after training, with as much of
    the trained ones as keeps it: 90%, 80% and so on (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903, eq. 1).

    Args:
        asked: Checkpoint, languages, data and settings.
        output_dir: New or empty, unless resuming or overwriting; a folder as `train_recipe` makes it, with
            `languages.md` and `languages.json`.
        resume: Go on with the run in the folder, that was begun with the same arguments; there must be one.
        overwrite: Delete an earlier run in the folder.

    Returns:
        What `languages.json` holds.

    Raises:
        RecipeError, RunFolderError, CorpusError, ValueError: Each names what was found and what was expected;
            also where even the untrained model's retrieval is lower by more than `max_drop`.
    """
    if PartialState().num_processes > 1:
        raise RecipeError("add-language runs in one process; found several, start it without a launcher")
    if asked.max_drop is not None and asked.max_drop < 0:
        raise RecipeError(f"max_drop={asked.max_drop}: expected points that retrieval may fall by, 0 or more")
    folder = Path(output_dir).absolute()
    start = folder / STAGE_FOLDER
    recipe = recipe_of(asked, start)
    if resume and not (start / STATE_NAME).is_file():  # which is there before the first checkpoint
        raise RunFolderError(
            f"{folder} holds no complete checkpoint to resume from, and no run of add-language that was begun"
        )
    if not resume:
        check_warm_start(recipe)
        if overwrite:
            check_inputs_stay(recipe, folder, made=["tokenizer.path"])
        else:
            open_run_folder(folder, resume=False, overwrite=False)
        _begin(asked, recipe, folder, overwrite)
    report = LanguageReport(**json.loads((start / STATE_NAME).read_text(encoding="utf-8")))
    if (report.checkpoint, report.new_languages) != (str(asked.checkpoint), list(asked.languages)):
        raise RecipeError(
            f"{folder} holds a run that adds {', '.join(report.new_languages)} to {report.checkpoint}, expected "
            f"{', '.join(asked.languages)} and {asked.checkpoint}: choose another folder, or --overwrite it"
        )
    _check_same_run(asked, recipe, folder, report)
    _check_limit(asked, report)
    trainer = train_recipe(recipe, folder, resume=True)
    report.max_drop = asked.max_drop
    _measure_result(recipe, trainer, folder, report)
    return report


# ---- Before the first step


def _begin(asked: AddedLanguages, recipe: Recipe, folder: Path, overwrite: bool) -> None:
    """Makes the folder, with the extended tokenizer and what was measured of the checkpoint."""
    train, dev, _ = load_data(recipe)
    languages = recipe.data.languages
    source = local_or_hub(asked.checkpoint)
    old_tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer, counts = _extended(asked, recipe, old_tokenizer, train)
    report = LanguageReport(
        checkpoint=str(asked.checkpoint),
        old_languages=[language for language in languages if language not in asked.languages],
        new_languages=list(asked.languages),
        tokenizer=counts | _effects(old_tokenizer, tokenizer, dev, asked.languages, languages),
        before={},
        start={},
    )
    report.tokenizer["asked"] = asked.new_tokens  # a run that goes on is compared with it
    with tempfile.TemporaryDirectory() as temporary:
        arguments = recipe.build_arguments(temporary)
    report.data = _drawn(recipe, train, tokenizer, arguments, asked.languages)
    new, old = report.data["new"]["rows"], report.data["old"]["rows"]
    logger.warning(f"Of the first {new + old:,} rows drawn, {new:,} are of new pairs and {old:,} of old ones")
    if not old:
        logger.warning(
            f"Nothing protects the old languages ({', '.join(report.old_languages)}): none of their pairs is trained; "
            "--replay gives them rows"
        )
    objectives = recipe.build_objectives()
    check_metric(arguments, dev, load_eval_tasks(recipe.data.eval_task, languages), objectives, languages)
    options = (dev, languages, objectives, arguments)
    checkpoint = architecture_of(open_checkpoint(asked.checkpoint)).model.from_pretrained(source, dtype=torch.float32)
    report.before = measure_retrieval(checkpoint, old_tokenizer, *options)
    report.start = measure_retrieval(start_model(recipe, tokenizer), tokenizer, *options)
    if not any(report.before.values()):
        raise RecipeError("The dev rows have no two with texts of one pair of languages; give --dev with more")
    _check_limit(asked, report)
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    tokenizer.save_pretrained(temporary)
    write_atomically(temporary / STATE_NAME, json.dumps(asdict(report), indent=2, ensure_ascii=False))
    open_run_folder(folder, False, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    os.replace(temporary, folder / STAGE_FOLDER)
    write_atomically(folder / RECIPE_NAME, recipe.to_yaml())


def _check_limit(asked: AddedLanguages, report: LanguageReport) -> None:
    if asked.max_drop is not None and report.fall(report.before) is None:
        raise RecipeError(
            f"max_drop={asked.max_drop:g}: found no dev set with two rows of a pair of the old languages "
            f"({', '.join(report.old_languages)}), so what they lose would not be measured; give --dev with rows of "
            "two of the old languages"
        )


def _check_same_run(asked: AddedLanguages, recipe: Recipe, folder: Path, report: LanguageReport) -> None:
    """A run that goes on may be longer, and nothing else."""
    kept = folder / RECIPE_NAME
    if not kept.is_file():  # interrupted just before
        return
    found = _flat(yaml.safe_load(kept.read_text(encoding="utf-8")))
    wanted = _flat(yaml.safe_load(recipe.to_yaml()))
    found["new_tokens"] = report.tokenizer.get("asked")
    wanted["new_tokens"] = asked.new_tokens
    other = {key for key in found | wanted if found.get(key) != wanted.get(key)} - MAY_DIFFER
    if other:
        values = [f"{key} (found {found.get(key)!r}, now {wanted.get(key)!r})" for key in sorted(other)]
        raise RecipeError(
            f"{folder} holds a run with other arguments: {', '.join(values)}. Give those it was begun with; only "
            "--max-drop and its length, such as max_steps, may differ. Or choose another folder, or --overwrite it"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By `section.key`; an empty mapping has none."""
    found = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _extended(
    asked: AddedLanguages, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, train: datasets.Dataset
) -> tuple[PreTrainedTokenizerBase, dict[str, int]]:
    """The tokenizer of the run, and how it became."""
    wanted = asked.new_tokens
    extendable = is_byte_level_bpe(tokenizer) and recipe.architecture != "adapted"  # the Hub's encoders keep theirs
    if wanted is None:
        known = len(recipe.data.languages) - len(asked.languages)
        wanted = len(tokenizer) // known * len(asked.languages) if extendable else 0
    if wanted and not extendable:
        raise RecipeError(
            f"new_tokens={wanted}: the tokenizer of {asked.checkpoint} is not one that this package trained, and "
            "stays as it is; leave --new-tokens out"
        )
    if not wanted:
        if not extendable:
            logger.warning("The tokenizer is that of an encoder of the Hub and stays as it is")
        return tokenizer, {"new_tokens": 0, "left_out": 0, "vocab_size": len(tokenizer)}
    seed = recipe.sections["training"].get("seed", 42)
    texts = texts_by_language(train, recipe.data.languages, LEARNING_CHARACTERS, seed)
    texts = {language: list(dict.fromkeys(found)) for language, found in texts.items()}  # rows are repeated
    new = {language: texts.pop(language) for language in asked.languages}
    extension = extend_tokenizer(tokenizer, new, wanted, texts, max_characters=LEARNING_CHARACTERS)
    counts = {
        "new_tokens": extension.new_tokens,
        "left_out": extension.left_out,
        "vocab_size": len(extension.tokenizer),
    }
    return extension.tokenizer, counts


def _effects(
    old: PreTrainedTokenizerBase,
    new: PreTrainedTokenizerBase,
    dev: dict[str, datasets.Dataset],
    new_languages: list[str],
    languages: list[str],
) -> dict[str, Any]:
    """Tokens a word before and after, and the share of the old languages' dev texts whose tokens changed."""
    rows = [row for dataset in dev.values() for row in dataset["translation"][:]]
    fertility, changed = {}, {}
    for language in languages:
        if texts := [row[language] for row in rows if row.get(language)]:
            fertility[language] = [tokens_per_word(tokenizer, texts) for tokenizer in (old, new)]
            if language not in new_languages:
                changed[language], _ = share_of_changed_texts(old, new, texts)
    return {"tokens_per_word": fertility, "changed_texts": changed}


def _drawn(
    recipe: Recipe,
    train: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    args: TmdeTrainingArguments,
    new_languages: list[str],
) -> dict[str, dict[str, int]]:
    """See `count_drawn`, of the batches that the trainer will make."""
    languages = recipe.data.languages
    batches = ParallelBatches(
        train,
        tokenizer,
        languages,
        recipe.data.pivot_languages,
        micro_batch_tokens=args.micro_batch_tokens,
        languages_per_row=args.languages_per_row,
        temperature=args.pair_temperature,
        buffer_rows=args.buffer_rows,
        micro_batch_rows=args.micro_batch_rows,
        max_joined_rows=args.max_joined_rows,
        neighbor_share=args.neighbor_share,
        pivots_only=needs_pivot(recipe),
        max_length=args.train_max_length,
        seed=args.data_seed if args.data_seed is not None else args.seed,
    )
    tokens = open_token_cache(train, tokenizer, languages, args.token_cache_dir, not args.disable_tqdm)
    if tokens is None:
        tokens = TokenStore(ArrowSource(train, languages), TextEncoder(tokenizer))
    return count_drawn(batches, tokens, new_languages)


def start_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model before its first step: the checkpoint with the tokenizer's new entries and the new languages."""
    set_seed(recipe.sections["training"].get("seed", 42))
    model = build_model(recipe, tokenizer)
    warm_start(model, tokenizer, recipe.warm_start.checkpoint)
    return model.eval()


# ---- After the last


def _measure_result(recipe: Recipe, trainer: TmdeTrainer, folder: Path, report: LanguageReport) -> None:
    """Fills the report and writes it; the model in the folder keeps to what may be lost."""
    model = trainer.accelerator.unwrap_model(trainer.model).model
    options = (trainer.processing_class, trainer.eval_dataset, recipe.data.languages)
    objectives = recipe.build_objectives()

    def measure() -> Retrieval:
        return measure_retrieval(model, *options, objectives, trainer.args)

    report.after = measure()
    allowed = float("inf") if report.max_drop is None else report.max_drop + 1e-9
    if (report.fall(report.after) or 0) > allowed:
        logger.warning(f"The old languages' mean fell by {report.fall(report.after):.1f} points: weights are averaged")
        first = start_model(recipe, trainer.processing_class).state_dict()
        last = {name: value.clone() for name, value in model.state_dict().items()}
        for report.trained_share in SHARES:
            model.load_state_dict(_between(first, last, report.trained_share))
            report.after = measure()
            if report.fall(report.after) <= allowed:
                break
        save_best(trainer, folder)
        _correct_results(folder, trainer, report.trained_share)
    report.write(folder)
    write_card(folder)
    if (report.fall(report.after) or 0) > allowed:
        raise RecipeError(
            f"The old languages' mean is {report.fall(report.after):.1f} points lower, {report.max_drop:g} were "
            "allowed, even before the first step, by the new tokens alone: lower --new-tokens, or raise --max-drop"
        )


def _between(first: dict[str, torch.Tensor], last: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    return {
        name: torch.lerp(first[name].to(value), value, share) if value.is_floating_point() else value
        for name, value in last.items()
    }


def _correct_results(folder: Path, trainer: TmdeTrainer, trained_share: float) -> None:
    """`results.json` is of the model that is in the folder."""
    path = folder / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    if results["best"] is not None:  # with eval_strategy=no, none was chosen
        results["best"] |= {f"eval_{key}": value for key, value in trainer.measure().items()}
    results["trained_share"] = trained_share
    write_atomically(path, json.dumps(results, indent=2))
