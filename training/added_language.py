"""Languages added to a trained checkpoint, and what that cost the old ones.

The run is an ordinary one, `train_recipe` of a recipe made from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import (
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import cached_file, logging

from modeling_tmde.configuration_aligned import AlignedConfig
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.tokenization import can_be_extended
from tmde.data.io import write_atomically
from tmde.data.languages import check_codes
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import load_encoder, local_or_hub
from tmde.embedding.packaged_models import ACCURATE_MODEL, DEFAULT_MODEL, TMDE_MODEL
from tmde.eval.dev_retrieval import dev_retrieval, language_pairs, retrieval_pools
from tmde.training.checkpoints import discard_checkpoints
from tmde.training.language_report import Report, describe, fall, means
from tmde.training.new_tokens import place_added_tokens
from tmde.training.recipe import (
    Recipe,
    RecipeError,
    load_recipe,
    with_overrides,
    with_settings,
)
from tmde.training.recipe.architectures import ADAPTED, architecture_of
from tmde.training.recipe.building import build_arguments
from tmde.training.recipe.options import model_keys
from tmde.training.recipe.schema import validate_recipe
from tmde.training.run import train_recipe
from tmde.training.run_folder import RECIPE_NAME, check_new_folder
from tmde.training.run_record import save_best, write_card
from tmde.training.starts import choose_start
from tmde.training.starts.base import open_config
from tmde.training.starts.replay import replay_sources
from tmde.training.trainer import TmdeTrainer

logger = logging.get_logger("tmde.training")

REPORT_NAME = "languages.json"
# The learning rates are this share of the recipe's, so that the model keeps what it knows.
LEARNING_RATE_SHARE = 0.3
LEARNING_RATES = ("learning_rate", "encoder_learning_rate", "embedding_learning_rate")
# The shares of the trained weights that are tried after the whole, until enough is kept.
SMALLER_SHARES = [number / 10 for number in range(9, -1, -1)]
ROUNDING = 1e-9  # points
# The recipes of the packaged models, and what differs for a language that is added. The table of
# `default` is stored 80 times as large as the recipe's own start, so its learning rate is too.
PACKAGED_RECIPES = {
    DEFAULT_MODEL: (
        "default",
        ["training.learning_rate=0.16", "training.max_minutes=3", "training.eval_minutes=1"],
    ),
    # All languages learn the vectors that the model had of English before.
    ACCURATE_MODEL: (
        "adapted",
        [
            f"objectives.distillation.teacher={ACCURATE_MODEL}",
            "objectives.distillation.teacher_languages=[en]",
        ],
    ),
    # Its decoder follows the encoder, and learns a new pivot language.
    TMDE_MODEL: (
        "adapted",
        [
            f"objectives.distillation.teacher={TMDE_MODEL}",
            "objectives.distillation.teacher_languages=[en]",
            "objectives.translation={weight: 0.1, sampled_vocabulary: 2000}",
        ],
    ),
}
# Models with an encoder for each language.
MODELS_BY_LANGUAGE = (NtdvConfig.model_type, AlignedConfig.model_type)
# Training keys that belong to the checkpoint's run alone.
KEYS_OF_ONE_RUN = ("eval_pairs", "greater_is_better", "push_to_hub", "hub_")


# ---- The recipe


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
    """Return the recipe of a run that adds languages to a checkpoint.

    The sizes and objectives are the checkpoint's.

    Args:
        checkpoint: Folder or Hub id of a trained model with its tokenizer.
        languages: The codes of the languages to add.
        train: Source or sources of parallel text that pair them with the checkpoint's languages.
        replay: Source or sources of the old languages' parallel text; None takes what `train` holds
            of them.
        replay_share: The share of the training rows that are replayed.
        dev: Dev sets by name; None holds rows out of the training data.
        pivots: Those of the languages that are pivots too, which the objectives translate into.
        recipe: Name or path of the recipe with the objectives and training settings; None for the
            one in the checkpoint's folder.
        overrides: Keys of the recipe, `key=value`. Without one, the learning rates are
            `LEARNING_RATE_SHARE` of the recipe's.

    Raises:
        RecipeError: The checkpoint cannot be extended, has the languages already, or has no recipe
            that fits.
    """
    config = open_config(checkpoint, purpose="Checkpoint")
    _check_new_languages(checkpoint, config, languages)
    base = _base_recipe(checkpoint, recipe)
    old_languages = list(config.languages)
    pivot_languages = list(dict.fromkeys([*config.pivot_languages, *pivots]))
    description = (
        f"{', '.join(languages)} added to {Path(checkpoint).name} ({', '.join(old_languages)})"
    )
    card = base.card.settings()
    sections = {
        "data": {
            "train": {
                "new": train,
                "new_languages": list(languages),
                "replay": replay,
                "replay_share": replay_share,
            },
            "dev": dev,
            "languages": [*old_languages, *languages],
            "pivot_languages": pivot_languages,
        },
        "tokenizer": {},
        "warm_start": {"checkpoint": str(checkpoint)},
        "model": _model_section(config),
        "objectives": base.objectives.settings(),
        "training": _training_section(base),
        "card": {key: value for key, value in card.items() if key == "license"},
    }
    extended = validate_recipe("add_language", description, sections)
    extended = with_overrides(extended, overrides)
    if extended.training.push_to_hub:
        raise RecipeError(
            "push_to_hub: push with `tmde push` after checking what the old languages lost"
        )
    return extended


def _check_new_languages(
    checkpoint: str, config: PreTrainedConfig, languages: Sequence[str]
) -> None:
    """Refuse a checkpoint that cannot be extended, and languages that cannot be added to it."""
    if config.model_type in MODELS_BY_LANGUAGE:
        raise RecipeError(
            f"{checkpoint} has one encoder per language: train all of them with tmde train "
            "--warm-start"
        )
    check_codes(languages, "languages")
    old = list(config.languages)
    all_languages = [*old, *languages]
    has_repeated = len(set(all_languages)) < len(all_languages)
    if not languages or has_repeated:
        raise RecipeError(
            f"Languages: found {', '.join(languages) or 'none'}, expected codes such as it or "
            f"pt-BR, each once and not already in the checkpoint ({', '.join(old)}); to keep "
            "training on these, use tmde train --warm-start"
        )


def _base_recipe(checkpoint: str, recipe: str | None) -> Recipe:
    """Return the recipe with the objectives and training settings."""
    if recipe is None and checkpoint in PACKAGED_RECIPES:
        name, overrides = PACKAGED_RECIPES[checkpoint]
        return with_overrides(load_recipe(name), overrides)
    try:
        path = recipe or cached_file(local_or_hub(checkpoint), RECIPE_NAME)
        assert path is not None  # A missing file is an OSError.
        return load_recipe(path)
    except OSError as error:
        raise RecipeError(
            f"Checkpoint {checkpoint} has no recipe.yaml: give a matching one with --recipe"
        ) from error


def _model_section(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the `model` section of a checkpoint."""
    architecture = architecture_of(config)
    assert architecture is not None  # `open_config` refuses models of other packages.
    options = json.loads(config.to_json_string(use_diff=False))
    section: dict[str, Any] = {"architecture": architecture}
    for key in model_keys(architecture):
        if key in options:
            section[key] = options[key]
    return section


def _training_section(base: Recipe) -> dict[str, Any]:
    """Return the `training` section of a recipe at lower learning rates.

    Keys that only made sense in the checkpoint's own run are left out.
    """
    settings = base.training.settings()
    section = {}
    for key, value in settings.items():
        if not key.startswith(KEYS_OF_ONE_RUN):
            section[key] = value
    for key in LEARNING_RATES:
        rate = getattr(base.training, key)
        if rate:
            section[key] = LEARNING_RATE_SHARE * rate
    # The tables have new rows, and learn even if the recipe freezes them (0). The tables of an
    # encoder of the Hub have no new rows.
    if base.architecture != ADAPTED and not section.get("embedding_learning_rate"):
        section["embedding_learning_rate"] = None
    section["metric_for_best_model"] = "mix"
    return section


# ---- The run


def add_languages(
    recipe: Recipe,
    output_dir: str | Path,
    new_tokens: int | None = None,
    max_drop: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Report:
    """Train new languages into a checkpoint, and measure what that did to the old ones.

    The tokenizer gets more entries (see `extend_tokenizer`), whose vectors begin as the means of
    what they were read as before. Rows of the old languages are replayed (see `load_replayed`). If
    the old pairs' mean falls by more than `max_drop` points, the result is a weighted mean of the
    weights before and after training, with as much of the trained ones as keeps it: 90%, 80% and so
    on (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903, eq. 1).

    Args:
        recipe: The recipe, from `extension_recipe`.
        output_dir: The folder of the run, new or empty, unless resuming or overwriting; a folder as
            `train_recipe` makes it, with `languages.md` and `languages.json`.
        new_tokens: The most entries that the vocabulary gains. Rare ones are left out, see
            `extend_tokenizer`. None for as many for each language as the old ones have on average,
            0 to keep the tokenizer.
        max_drop: By how many points the old pairs' mean precision at 1 on the dev rows may fall, of
            sentences and of documents; None for any.
        resume: Resume the run in the folder, which began with the same arguments.
        overwrite: Delete an earlier run in the folder.

    Returns:
        What `languages.json` holds: `checkpoint`, `old_languages`, `new_languages`; `tokenizer`
        with `new_tokens` and `vocab_size`; `data`, the training rows of `old` and `new` pairs;
        `before` and `after`, retrieval by dev set and measure, their `means`, and the `fall` of the
        old pairs in points; `max_drop`; and `trained_share`, how much of the trained weights is in
        the result.

    Raises:
        TmdeError: Names what was found and what was expected; also if even the untrained model's
            retrieval is lower by more than `max_drop`.
    """
    folder = Path(output_dir).absolute()
    recipe = with_new_tokens(recipe, new_tokens)
    if not resume:
        check_new_folder(recipe, folder, overwrite)
    check_dev = None
    if max_drop is not None:
        check_dev = partial(_check_old_pairs, recipe, folder, max_drop)
    trainer = train_recipe(
        recipe,
        folder,
        resume=resume,
        overwrite=overwrite,
        keep_checkpoints=True,
        check_dev=check_dev,
    )
    report = _first_report(recipe, trainer, max_drop)
    _measure_result(recipe, trainer, folder, report)
    if not trainer.args.keep_checkpoints:
        discard_checkpoints(folder)
    return report


# ---- Before the first step


def _checkpoint_of(recipe: Recipe) -> str:
    checkpoint = recipe.warm_start.checkpoint
    assert checkpoint is not None  # `extension_recipe` has named it.
    return checkpoint


def with_new_tokens(recipe: Recipe, new_tokens: int | None) -> Recipe:
    """Return the recipe with the number of entries that the checkpoint's tokenizer gains.

    Args:
        recipe: The recipe of the run.
        new_tokens: The number of entries; None for as many for each new language as the old ones
            have on average.

    Raises:
        RecipeError: Entries are asked for, and the tokenizer cannot have more.
    """
    checkpoint = _checkpoint_of(recipe)
    tokenizer = AutoTokenizer.from_pretrained(local_or_hub(checkpoint))
    # The encoders of the Hub keep their tokenizers.
    is_extendable = can_be_extended(tokenizer) and recipe.architecture != ADAPTED
    if new_tokens is None and is_extendable:
        new_number = len(replay_sources(recipe).new_languages)
        old_number = len(recipe.data.languages) - new_number
        new_tokens = len(tokenizer) // old_number * new_number
    if not new_tokens:
        return recipe
    if not is_extendable:
        raise RecipeError(
            f"new_tokens={new_tokens}: the tokenizer of {checkpoint} cannot have more entries; "
            "leave --new-tokens out"
        )
    return with_settings(recipe, {"tokenizer.path": checkpoint, "tokenizer.new_tokens": new_tokens})


def _check_old_pairs(
    recipe: Recipe, folder: Path, max_drop: float, dev: Mapping[str, datasets.Dataset]
) -> None:
    """Refuse a limit for the old languages if no dev set has rows of them.

    Raises:
        RecipeError: No dev set has two rows of a pair.
    """
    languages = recipe.data.languages
    old_languages = _old_languages(recipe)
    old_metrics = set()
    for pair in language_pairs(old_languages):
        old_metrics |= {f"p1_{pair}", f"doc_p1_{pair}"}
    arguments = build_arguments(recipe, str(folder))
    for rows in dev.values():
        if old_metrics & retrieval_pools(rows, languages, arguments).keys():
            return
    raise RecipeError(
        f"max_drop={max_drop:g}: found no dev set with two rows in any pair of the old "
        f"languages ({', '.join(old_languages)}); give --dev with such rows"
    )


def _old_languages(recipe: Recipe) -> list[str]:
    new_languages = replay_sources(recipe).new_languages
    return [code for code in recipe.data.languages if code not in new_languages]


def model_before_training(
    recipe: Recipe, folder: Path, tokenizer: PreTrainedTokenizerBase, rows: datasets.Dataset
) -> PreTrainedModel:
    """Return the model of a run before its first step.

    That is the checkpoint with the tokenizer's new entries and the new languages.

    Args:
        recipe: The recipe of the run.
        folder: The folder of the run.
        tokenizer: The tokenizer of the run.
        rows: The training rows, by which the vectors of new tokens begin.
    """
    set_seed(recipe.seed)
    model, _ = choose_start(recipe, folder).apply(tokenizer)
    place_added_tokens(recipe, model, tokenizer, rows)
    return model.eval()


# ---- After the last step


def _first_report(recipe: Recipe, trainer: TmdeTrainer, max_drop: float | None) -> Report:
    """Return the report of the data, the tokenizer and the checkpoint before training."""
    checkpoint = _checkpoint_of(recipe)
    source = local_or_hub(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = load_encoder(source, dtype=torch.float32)
    model.to(trainer.args.device)  # type: ignore[arg-type]  # transformers wraps `to` without its types
    embedder = DocumentEmbedder(model, tokenizer, max_length=trainer.args.embed_max_length)
    new_languages = replay_sources(recipe).new_languages
    rows = trainer.train_dataset
    assert isinstance(rows, datasets.Dataset)  # Rows that are replayed are no stream.
    new_rows = 0
    for row in rows["translation"]:
        if any(row.get(language) for language in new_languages):
            new_rows += 1
    vocab_size = len(trainer.processing_class)
    return {
        "checkpoint": checkpoint,
        "old_languages": _old_languages(recipe),
        "new_languages": new_languages,
        "data": {"new": {"rows": new_rows}, "old": {"rows": len(rows) - new_rows}},
        "tokenizer": {"new_tokens": vocab_size - len(tokenizer), "vocab_size": vocab_size},
        "max_drop": max_drop,
        "before": _retrieval(embedder, trainer, recipe.data.languages),
    }


def _retrieval(
    embedder: DocumentEmbedder, trainer: TmdeTrainer, languages: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the retrieval of every dev set."""
    measured = {}
    for name, rows in trainer.eval_dataset.items():
        measured[name] = dev_retrieval(embedder, rows, languages, trainer.args)
    return measured


def _measure_result(recipe: Recipe, trainer: TmdeTrainer, folder: Path, report: Report) -> None:
    """Measure the result and write the report.

    If the old languages lost more than they may, weights are averaged first.
    """
    model = trainer.parallel_model.model
    tokenizer = trainer.processing_class
    embedder = DocumentEmbedder(model, tokenizer, max_length=trainer.args.embed_max_length)

    def measure(trained_share: float) -> None:
        report["after"] = _retrieval(embedder, trainer, recipe.data.languages)
        report["means"] = means(report)
        report["fall"] = fall(report)
        report["trained_share"] = trained_share

    measure(trained_share=1.0)
    if _lost_too_much(report):
        logger.warning(
            f"The old languages' mean fell by {report['fall']:.1f} points: averaging weights"
        )
        before = model_before_training(
            recipe, folder, tokenizer, trainer.train_dataset
        ).state_dict()
        trained = {name: value.clone() for name, value in model.state_dict().items()}
        for share in SMALLER_SHARES:
            _average_weights(model, before, trained, share)
            measure(trained_share=share)
            if not _lost_too_much(report):
                break
        save_best(trainer, folder)
        _correct_results(trainer, folder, report["trained_share"])
    write_atomically(folder / REPORT_NAME, json.dumps(report, indent=2, ensure_ascii=False))
    write_atomically(folder / "languages.md", describe(report))
    write_card(folder)
    if _lost_too_much(report):
        raise RecipeError(
            f"The new tokens alone, before the first step, lower the old languages' mean by "
            f"{report['fall']:.1f} points, expected at most {report['max_drop']:g}: lower "
            "--new-tokens, or raise --max-drop"
        )


def _lost_too_much(report: Report) -> bool:
    """Return whether the old languages lost more than they may."""
    if report["max_drop"] is None or report["fall"] is None:
        return False
    return report["fall"] > report["max_drop"] + ROUNDING


def _average_weights(
    model: PreTrainedModel,
    before: Mapping[str, torch.Tensor],
    trained: Mapping[str, torch.Tensor],
    share: float,
) -> None:
    """Set the weights to a mean of those before and after training.

    Args:
        model: The model, which is changed in place.
        before: The weights before training.
        trained: The weights after training.
        share: The share of the trained weights.
    """
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.lerp(before[name].to(value), trained[name], share))


def _correct_results(trainer: TmdeTrainer, folder: Path, trained_share: float) -> None:
    """Let `results.json` be about the averaged model that is in the folder."""
    path = folder / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    results["trained_share"] = trained_share
    if results["best"] is not None:  # None with eval_strategy=no
        results["best"].update(trainer.evaluate())
    write_atomically(path, json.dumps(results, indent=2))
