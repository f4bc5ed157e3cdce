"""Languages added to a trained checkpoint: more tokens, their pairs with the old languages, and what it cost.

The run is an ordinary one, `train_recipe` of a recipe made from the checkpoint. Its tokenizer is made beforehand, in
the folder `warm_start` of the run.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
import yaml
from accelerate import PartialState
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import cached_file, logging

from modeling_tmde.data.checks import is_code
from modeling_tmde.data.io import write_atomically
from modeling_tmde.embedding import local_or_hub
from modeling_tmde.tokenization import (
    extend_tokenizer,
    is_byte_level_bpe,
    share_of_changed_texts,
    tokens_per_word,
)
from modeling_tmde.training.architectures import ARCHITECTURES, architecture_of
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.building import (
    STAGE_FOLDER,
    build_model,
    check_warm_start,
    load_data,
    texts_by_language,
)
from modeling_tmde.training.evaluation import check_metric, dev_retrieval, load_eval_tasks
from modeling_tmde.training.hub_encoder import open_config
from modeling_tmde.training.language_report import LanguageReport, Retrieval
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import ADAPTED, SECTIONS, Recipe, RecipeError, load_recipe, section_keys
from modeling_tmde.training.train import (
    RunFolderError,
    check_inputs_stay,
    check_run_folder,
    save_best,
    train_recipe,
    write_card,
)
from modeling_tmde.training.trainer import TmdeTrainer
from modeling_tmde.training.warm_start import warm_start

logger = logging.get_logger("modeling_tmde.training")

STATE_NAME = "languages.json"  # in the folder `warm_start`: what was measured before training
LEARNING_RATE_SHARE = 0.3  # of the recipe's rates: much of what there is stays
LEARNING_CHARACTERS = 5_000_000  # of each language, from which tokens are learned
SHARES = [number / 10 for number in range(9, -1, -1)]  # of the trained weights, tried where retrieval fell too far
# A resumed run may be longer, and its folder may have moved.
MAY_DIFFER = ("max_steps", "max_minutes", "max_cpu_minutes", "num_train_epochs")


@dataclass(frozen=True)
class AddedLanguages:
    """
    What `tmde add-language` is asked for.

    Args:
        checkpoint: Folder or Hub id of a trained model with its tokenizer.
        languages: Codes of the languages to add.
        train: Source or sources of parallel text that pair them with the checkpoint's languages.
        replay: Source or sources of the old languages' parallel text; None takes what `train` holds of them.
        replay_share: Share of the training rows that are replayed.
        dev: Dev sets by name; None holds rows out of the training data.
        pivots: Which of the languages are pivots too, which the objectives translate into.
        new_tokens: Entries that the vocabulary gains; None for as many for each language as the old ones have on
            average, 0 to keep the tokenizer.
        recipe: Name or path of the recipe with the objectives and training settings; None for the one in the
            checkpoint's folder.
        overrides: Keys of the recipe, `key=value`. Without one, the learning rates are `LEARNING_RATE_SHARE` of the
            recipe's.
        max_drop: By how many points the old pairs' mean precision at 1 on the dev rows may fall.
    """

    checkpoint: str
    languages: list[str]
    train: Any
    replay: Any = None
    replay_share: float = 0.5
    dev: Mapping[str, Any] | None = None
    pivots: Sequence[str] = ()
    new_tokens: int | None = None
    recipe: str | None = None
    overrides: Sequence[str] = ()
    max_drop: float | None = None


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
        resume: Go on with the run in the folder, begun with the same arguments.
        overwrite: Delete an earlier run in the folder.

    Returns:
        What `languages.json` holds.

    Raises:
        RecipeError, RunFolderError, CorpusError, ValueError: Each names what was found and what was expected;
            also where even the untrained model's retrieval is lower by more than `max_drop`.
    """
    if PartialState().num_processes > 1:
        raise RecipeError("add-language runs in one process; found several, start it without a launcher")
    folder = Path(output_dir).absolute()
    start = folder / STAGE_FOLDER
    recipe = recipe_of(asked, start)
    if resume:
        if not (start / STATE_NAME).is_file():
            raise RunFolderError(f"{folder} holds no run of add-language to resume")
    else:
        check_warm_start(recipe)
        if overwrite:
            check_inputs_stay(recipe, folder, made=("tokenizer.path",))
        check_run_folder(folder, False, overwrite)
        _begin(asked, recipe, folder, overwrite)
    report = LanguageReport(**json.loads((start / STATE_NAME).read_text(encoding="utf-8")))
    _check_same_run(asked, recipe, folder, report)
    _check_limit(asked, report)
    trainer = train_recipe(recipe, folder, resume=True)
    report.max_drop = asked.max_drop
    _measure_result(recipe, trainer, folder, report)
    return report


# ---- The recipe


def recipe_of(asked: AddedLanguages, tokenizer_folder: Path) -> Recipe:
    """The recipe of the run: the checkpoint's sizes and objectives, its languages and the new ones.

    Raises:
        RecipeError: The checkpoint cannot be extended, has the languages already, or has no recipe that fits.
    """
    config = open_config(asked.checkpoint, "Checkpoint")
    if config.model_type in ("tmde_ntdv", "tmde_aligned"):
        raise RecipeError(
            f"Checkpoint {asked.checkpoint}: a model of type {config.model_type!r} has an encoder for each language, "
            "and none can be added; train one with all languages (tmde train RECIPE --warm-start CHECKPOINT)"
        )
    old, new = list(config.languages), list(asked.languages)
    if not new or len({*old, *new}) < len(old) + len(new) or not all(map(is_code, new)):
        raise RecipeError(
            f"Languages: found {', '.join(new) or 'none'}, expected codes such as it or pt-BR, each once and none of "
            f"the checkpoint's ({', '.join(old)}); to train on with these, use tmde train --warm-start"
        )
    if unknown := [pivot for pivot in asked.pivots if pivot not in old + new]:
        raise RecipeError(f"Pivot {unknown[0]!r}: expected one of the languages {', '.join(old + new)}")
    path = asked.recipe or cached_file(
        local_or_hub(asked.checkpoint),
        "recipe.yaml",
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        raise RecipeError(f"Checkpoint {asked.checkpoint} has no recipe.yaml: give --recipe with fitting objectives")
    base = load_recipe(path)
    name = next(name for name, item in ARCHITECTURES.items() if item is architecture_of(config))
    if base.architecture != name:
        raise RecipeError(
            f"Recipe {base.name} trains a model of architecture {base.architecture!r}, and {asked.checkpoint} is of "
            f"{name!r}: give --recipe with one of its objectives"
        )
    source = {"new": asked.train, "new_languages": new, "replay": asked.replay, "replay_share": asked.replay_share}
    pivots = list(dict.fromkeys([*config.pivot_languages, *asked.pivots]))
    settings = json.loads(json.dumps(config.to_dict()))  # lists instead of tuples
    sections = {
        "data": {"train": source, "dev": asked.dev, "languages": old + new, "pivot_languages": pivots},
        "tokenizer": {"path": str(tokenizer_folder)},
        "warm_start": {"checkpoint": str(asked.checkpoint)},
        "model": {key: settings[key] for key in section_keys("model", name) if key in settings}
        | {"architecture": name},
        "objectives": base.sections["objectives"],
        "training": _training_section(base.sections["training"]),
        "card": {key: value for key, value in base.sections["card"].items() if key == "license"},
    }
    description = f"{', '.join(new)} added to {Path(asked.checkpoint).name} ({', '.join(old)})"
    recipe = Recipe("add_language", sections, description)
    recipe.check()
    recipe.override(asked.overrides)
    if pushed := [key for key in recipe.sections["training"] if key.startswith(("push_to_hub", "hub_"))]:
        raise RecipeError(
            f"{', '.join(pushed)}: the result would be published before it is known what the old languages lost; push "
            "afterwards with `tmde push`"
        )
    return recipe


def _training_section(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the recipe, at lower rates. Tables learn even where the recipe keeps them: they have new rows."""
    left_out = ("eval_pairs", "greater_is_better", "push_to_hub", "hub_")  # of the checkpoint's run alone
    kept = {key: value for key, value in settings.items() if not key.startswith(left_out)}
    rate = kept.get("learning_rate", TmdeTrainingArguments.learning_rate)
    rates = {"learning_rate": rate, "embedding_learning_rate": kept.get("embedding_learning_rate") or None}
    if "encoder_learning_rate" in kept:
        rates["encoder_learning_rate"] = kept["encoder_learning_rate"]
    rates = {name: value and LEARNING_RATE_SHARE * value for name, value in rates.items()}
    return {**kept, "metric_for_best_model": "mix", **rates}


def _check_same_run(asked: AddedLanguages, recipe: Recipe, folder: Path, report: LanguageReport) -> None:
    """A resumed run may be longer, and nothing else."""

    def items(sections: Mapping[str, Any]) -> dict[str, Any]:
        values = {f"{name}.{key}": value for name in SECTIONS for key, value in (sections.get(name) or {}).items()}
        return {key: value for key, value in values.items() if key.rpartition(".")[2] not in (*MAY_DIFFER, "path")}

    kept = folder / "recipe.yaml"
    found = items(yaml.safe_load(kept.read_text(encoding="utf-8"))) if kept.is_file() else items(recipe.sections)
    found["new_tokens"] = report.tokenizer["asked"]
    wanted = items(yaml.safe_load(recipe.to_yaml())) | {"new_tokens": asked.new_tokens}
    if other := sorted(key for key in found | wanted if found.get(key) != wanted.get(key)):
        values = [f"{key} (found {found.get(key)!r}, now {wanted.get(key)!r})" for key in other]
        raise RecipeError(
            f"{folder} holds a run with other arguments: {', '.join(values)}. Give those it was begun with; only "
            "--max-drop and its length, such as max_steps, may differ. Or choose another folder, or --overwrite it"
        )


# ---- Before the first step


def _check_limit(asked: AddedLanguages, report: LanguageReport) -> None:
    if asked.max_drop is not None and report.fall(report.before) is None:
        raise RecipeError(
            f"max_drop={asked.max_drop:g}: found no dev set with two rows of a pair of the old languages "
            f"({', '.join(report.old_languages)}), so what they lose would not be measured; give --dev with such rows"
        )


def _begin(asked: AddedLanguages, recipe: Recipe, folder: Path, overwrite: bool) -> None:
    """Makes the folder, with the extended tokenizer and what was measured of the checkpoint."""
    train, dev, _ = load_data(recipe)
    languages, source = recipe.data.languages, local_or_hub(asked.checkpoint)
    old_tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer, counts = _extended(asked, recipe, old_tokenizer, train)
    new_rows = sum(any(row.get(language) for language in asked.languages) for row in train["translation"])
    report = LanguageReport(
        checkpoint=str(asked.checkpoint),
        old_languages=[language for language in languages if language not in asked.languages],
        new_languages=list(asked.languages),
        tokenizer={**counts, "asked": asked.new_tokens, **_effects(old_tokenizer, tokenizer, dev, asked, languages)},
        data={"new": {"rows": new_rows}, "old": {"rows": len(train) - new_rows}},
    )
    logger.warning(f"Of {len(train):,} rows, {new_rows:,} are of new pairs and {len(train) - new_rows:,} of old ones")
    if new_rows == len(train):
        logger.warning(
            f"Nothing protects the old languages ({', '.join(report.old_languages)}): none of their pairs is trained; "
            "--replay gives them rows"
        )
    with tempfile.TemporaryDirectory() as temporary:
        arguments = recipe.build_arguments(temporary)
    objectives = recipe.build_objectives()
    check_metric(arguments, dev, load_eval_tasks(recipe.data.eval_task, languages), objectives, languages)
    model_class = architecture_of(open_config(source)).model
    checkpoint = model_class.from_pretrained(source, dtype=torch.float32)
    report.before = _retrieval(checkpoint, old_tokenizer, dev, recipe, arguments)
    report.start = _retrieval(_start_model(recipe, tokenizer), tokenizer, dev, recipe, arguments)
    if not any(report.before.values()):
        raise RecipeError("The dev rows have no two with texts of one pair of languages; give --dev with more")
    _check_limit(asked, report)
    if overwrite:
        shutil.rmtree(folder, ignore_errors=True)
    temporary = folder / f".{STAGE_FOLDER}.tmp"
    tokenizer.save_pretrained(temporary)
    write_atomically(temporary / STATE_NAME, json.dumps(asdict(report), indent=2, ensure_ascii=False))
    write_atomically(folder / "recipe.yaml", recipe.to_yaml())
    os.replace(temporary, folder / STAGE_FOLDER)


def _extended(
    asked: AddedLanguages, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, train: datasets.Dataset
) -> tuple[PreTrainedTokenizerBase, dict[str, int]]:
    """The tokenizer of the run, and its counts."""
    extendable = is_byte_level_bpe(tokenizer) and recipe.architecture != ADAPTED  # the Hub's encoders keep theirs
    known = len(recipe.data.languages) - len(asked.languages)
    wanted = asked.new_tokens
    if wanted is None:
        wanted = len(tokenizer) // known * len(asked.languages) if extendable else 0
    if wanted and not extendable:
        raise RecipeError(
            f"new_tokens={wanted}: the tokenizer of {asked.checkpoint} is not one that this package trained, and "
            "stays as it is; leave --new-tokens out"
        )
    if not wanted:
        return tokenizer, {"new_tokens": 0, "left_out": 0, "vocab_size": len(tokenizer)}
    texts = texts_by_language(train, recipe.data.languages, LEARNING_CHARACTERS, recipe.seed)
    texts = {language: list(dict.fromkeys(found)) for language, found in texts.items()}  # rows are repeated
    new = {language: texts.pop(language) for language in asked.languages}
    extension = extend_tokenizer(tokenizer, new, wanted, texts, max_characters=LEARNING_CHARACTERS)
    counts = {"new_tokens": extension.new_tokens, "left_out": extension.left_out}
    return extension.tokenizer, {**counts, "vocab_size": len(extension.tokenizer)}


def _effects(
    old: PreTrainedTokenizerBase,
    new: PreTrainedTokenizerBase,
    dev: dict[str, datasets.Dataset],
    asked: AddedLanguages,
    languages: list[str],
) -> dict[str, Any]:
    """Tokens a word before and after, and the share of the old languages' dev texts whose tokens changed."""
    rows = [row for dataset in dev.values() for row in dataset["translation"][:]]
    fertility, changed = {}, {}
    for language in languages:
        if texts := [row[language] for row in rows if row.get(language)]:
            fertility[language] = [tokens_per_word(tokenizer, texts) for tokenizer in (old, new)]
            if language not in asked.languages:
                changed[language], _ = share_of_changed_texts(old, new, texts)
    return {"tokens_per_word": fertility, "changed_texts": changed}


def _start_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model before its first step: the checkpoint with the tokenizer's new entries and the new languages."""
    set_seed(recipe.seed)
    model = build_model(recipe, tokenizer)
    warm_start(model, tokenizer, recipe.warm_start.checkpoint)
    return model.eval()


def _retrieval(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dev: Mapping[str, datasets.Dataset],
    recipe: Recipe,
    args: TmdeTrainingArguments,
) -> Retrieval:
    """`dev_retrieval` of every dev set in the recipe's languages, which may be more than the checkpoint's."""
    model = model.to(args.device).eval()
    known, model.config.languages = model.config.languages, list(recipe.data.languages)
    try:
        parallel = ParallelModel(model, recipe.build_objectives())
        return {name: dev_retrieval(parallel, tokenizer, rows, args) for name, rows in dev.items()}
    finally:
        model.config.languages = known


# ---- After the last step


def _measure_result(recipe: Recipe, trainer: TmdeTrainer, folder: Path, report: LanguageReport) -> None:
    """Fills the report and writes it; averages weights until the old languages lose no more than they may."""
    model = trainer.accelerator.unwrap_model(trainer.model).model
    tokenizer, dev = trainer.processing_class, trainer.eval_dataset
    report.after = _retrieval(model, tokenizer, dev, recipe, trainer.args)
    if report.falls_too_far():
        logger.warning(f"The old languages' mean fell by {report.fall(report.after):.1f} points: weights are averaged")
        first = _start_model(recipe, tokenizer).state_dict()
        last = {name: value.clone() for name, value in model.state_dict().items()}
        for report.trained_share in SHARES:
            model.load_state_dict(_between(first, last, report.trained_share))
            report.after = _retrieval(model, tokenizer, dev, recipe, trainer.args)
            if not report.falls_too_far():
                break
        save_best(trainer, folder)
        path = folder / "results.json"  # which is of the model in the folder
        results = json.loads(path.read_text(encoding="utf-8")) | {"trained_share": report.trained_share}
        if results["best"] is not None:  # None with eval_strategy=no
            results["best"] |= {f"eval_{key}": value for key, value in trainer.measure().items()}
        write_atomically(path, json.dumps(results, indent=2))
    report.write(folder)
    write_card(folder)
    if report.falls_too_far():
        raise RecipeError(
            f"The old languages' mean is {report.fall(report.after):.1f} points lower, {report.max_drop:g} were "
            "allowed, even before the first step, by the new tokens alone: lower --new-tokens, or raise --max-drop"
        )


def _between(first: dict[str, torch.Tensor], last: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    return {
        name: torch.lerp(first[name].to(value), value, share) if value.is_floating_point() else value
        for name, value in last.items()
    }
