"""What a run begins with: its data, its tokenizer, its model, and a checkpoint or first stage to start from."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import datasets
from accelerate import PartialState
from accelerate.state import AcceleratorState
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
from transformers.utils import logging

from modeling_tmde.data import CorpusReport, load_parallel
from modeling_tmde.data.dev_rows import hold_out_rows
from modeling_tmde.embedding import DEFAULT_FOLDER, DEFAULT_MODEL, local_or_hub
from modeling_tmde.tokenization import is_byte_level_bpe, load_tokenizer, train_tokenizer
from modeling_tmde.training.evaluation import language_pairs
from modeling_tmde.training.hub_encoder import (
    build_adapted,
    encoder_tokenizer,
    open_config,
    open_encoder,
    token_settings,
)
from modeling_tmde.training.recipe import ADAPTED, SECTIONS, Recipe, RecipeError, architecture_of, load_recipe
from modeling_tmde.training.replay import load_replayed
from modeling_tmde.training.token_vectors import save_encoder_bag
from modeling_tmde.training.warm_start import BAG, warm_start

logger = logging.get_logger("modeling_tmde.training")

STAGE_FOLDER = "warm_start"
# Training keys that a first stage takes from the run: the same rows are held out, and curves are comparable.
SHARED_KEYS = ("seed", "data_seed", "use_cpu", "token_cache_dir", "fsdp", "fsdp_config", "disable_tqdm")
SHARED_KEYS += ("eval_pairs", "eval_pool", "eval_loss_rows", "eval_head")


# ---- Data


def load_data(recipe: Recipe) -> tuple[Any, dict[str, datasets.Dataset], CorpusReport]:
    """Training rows (map-style or streaming), dev sets by name, and the count of bad training rows."""
    data, report = recipe.data, CorpusReport()
    if data.train is None:
        raise RecipeError(
            f"Recipe {recipe.name} needs training data: give --train with a file, a folder, a Hub dataset id, "
            "or 'sample' for the built-in sample"
        )
    if data.replay is not None:
        return load_replayed(recipe)
    options = {name: getattr(data, name) for name in ("languages", "pivot_languages", "bad_rows")}
    own = {name: getattr(data, name) for name in ("streaming", "temperature", "max_rows")}
    documents = not data.streaming
    train = load_parallel(data.train, **options, **own, seed=recipe.seed, report=report, document_ids=documents)
    if data.dev is None and data.dev_rows:
        train, held = hold_out_rows(train, data.dev_rows, recipe.seed)
        return train, {"dev": held}, report
    dev = {}
    for name, source in (data.dev if isinstance(data.dev, dict) else named_sources(data.dev)).items():
        split = {"split": "dev", "max_rows": 2000} if source == "sample" else {}
        dev[name] = load_parallel(source, **options, **split, document_ids=True)
    return train, dev, report


def named_sources(values: Any) -> dict[str, Any]:
    """Dev sets by name.

    Args:
        values: One source or a list of them, each `NAME=SOURCE` or a source, whose name is then that of its file.
    """
    named: dict[str, Any] = {}
    for value in [values] if isinstance(values, str) else values or []:
        name, separator, source = value.partition("=")
        if not separator or "/" in name:  # a path may hold an equals sign
            name, source = Path(value).name.partition(".")[0].replace("*", "") or "dev", value
        if name in named:
            raise RecipeError(f"Two --dev sources are called {name!r}; name them, --dev NAME=SOURCE")
        named[name] = source
    return named


# ---- Tokenizer and model


def prepare_tokenizer(
    recipe: Recipe, train: Any, folder: Path, resumed: Path | None = None
) -> PreTrainedTokenizerBase:
    """The tokenizer of `tokenizer.path`, of the run's folder, or a new one trained on the corpus. An encoder of the
    Hub has its own; a resumed run has it in its checkpoint."""
    if recipe.architecture == ADAPTED:
        return encoder_tokenizer(recipe, resumed)
    options = dict(recipe.sections["tokenizer"])
    path = options.pop("path", None) or folder
    if path == folder and not (folder / "tokenizer_config.json").exists():
        temporary = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        texts = texts_by_language(train, recipe.data.languages, options.get("max_characters", 20_000_000), recipe.seed)
        length = getattr(recipe.build_config(), "max_position_embeddings", VERY_LARGE_INTEGER)  # a bag has no limit
        train_tokenizer(texts, **{"model_max_length": length, **options}).save_pretrained(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    try:
        return AutoTokenizer.from_pretrained(DEFAULT_FOLDER if path == DEFAULT_MODEL else path)
    except (OSError, ValueError) as error:
        raise RecipeError(f"tokenizer.path={path}: {error}") from error


def texts_by_language(train, languages: list[str], max_characters: int, seed: int) -> dict[str, list[str]]:
    """Texts of shuffled rows until every language has its characters or the rows end."""
    texts: dict[str, list[str]] = {language: [] for language in languages}
    sizes = dict.fromkeys(languages, 0)
    buffer = {} if isinstance(train, datasets.Dataset) else {"buffer_size": 10_000}
    for batch in train.shuffle(seed=seed, **buffer).iter(batch_size=1000):  # much faster than row by row
        for row, language in itertools.product(batch["translation"], languages):
            text = row.get(language)
            if text and sizes[language] < max_characters:
                texts[language].append(text)
                sizes[language] += len(text)
        if all(size >= max_characters for size in sizes.values()):
            break
    return texts


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, resumed: Path | None = None) -> PreTrainedModel:
    """A new model of the recipe's architecture, for this tokenizer.

    Args:
        resumed: The checkpoint whose weights it will get, which has the config of an encoder of the Hub.

    Raises:
        RecipeError: The architecture cannot be trained with this tokenizer or encoder.
    """
    if recipe.architecture == ADAPTED:
        return build_adapted(recipe, tokenizer, resumed)
    settings = token_settings(tokenizer) | {"vocab_size": len(tokenizer), "mask_token_id": tokenizer.mask_token_id}
    if not settings.pop("reads_bos"):
        raise RecipeError(f"tokenizer: that of {tokenizer.name_or_path!r} puts no token before a text; take another")
    known = {field.name for field in fields(recipe.model_class.config_class)}
    return recipe.model_class(recipe.build_config(**{name: settings[name] for name in known & settings.keys()}))


# ---- Warm starts


def begins_with_encoder(recipe: Recipe) -> bool:
    """Whether a bag begins with the token vectors of an encoder that is no model of this package."""
    checkpoint = recipe.warm_start.checkpoint
    if recipe.architecture != "bag" or checkpoint is None:
        return False
    try:
        return architecture_of(AutoConfig.from_pretrained(local_or_hub(checkpoint))) is None
    except (OSError, ValueError):  # `check_warm_start` tells
        return False


def prepare_encoder_bag(recipe: Recipe, train: Any, folder: Path) -> None:
    """Where a bag begins with an encoder, makes the bag of its token vectors in `warm_start/` of the folder, and takes
    that for the checkpoint and the tokenizer of the run."""
    if not begins_with_encoder(recipe):
        return
    stage, temporary = folder / STAGE_FOLDER, folder / f".{STAGE_FOLDER}.tmp"
    if not stage.exists():
        characters = recipe.sections["tokenizer"].get("max_characters", 20_000_000)
        texts = texts_by_language(train, recipe.data.languages, characters, recipe.seed)
        texts = itertools.chain.from_iterable(texts.values())
        save_encoder_bag(recipe, recipe.warm_start.checkpoint, texts, temporary)
        os.replace(temporary, stage)
    recipe.sections["tokenizer"] = {"path": str(stage)}
    recipe.set("warm_start.checkpoint", str(stage))


def stage_recipe(recipe: Recipe) -> Recipe | None:
    """The recipe of a run's first stage, on the run's data; None if it has no such stage.

    Raises:
        RecipeError: The stage has a first stage of its own, or overrides the run's data or seed (it may have fewer
            languages).
    """
    start, training = recipe.warm_start, recipe.sections["training"]
    if start.checkpoint is not None or start.recipe is None:
        return None
    stage = load_recipe(start.recipe)
    stage.sections["data"] = dict(recipe.sections["data"])
    stage.sections["training"] |= {key: training[key] for key in SHARED_KEYS if key in training}
    for name, value in start.overrides.items():
        key = name.removeprefix("data.").removeprefix("training.")
        if key in {"seed", "data_seed", *SECTIONS["data"]} - {"languages", "pivot_languages"}:
            raise RecipeError(
                f"warm_start.overrides: found {name}={value}, but the first stage has the run's data and seed"
            )
        stage.set(name, value)
    found, known = stage.data.languages, recipe.data.languages
    if not set(found) <= set(known):
        raise RecipeError(f"warm_start.overrides: found languages={found}, expected some of {known}")
    if pairs := stage.sections["training"].get("eval_pairs"):
        kept = [pair for pair in pairs if pair in language_pairs(stage.data.languages)]
        stage.sections["training"]["eval_pairs"] = kept or None
    if stage.warm_start.recipe is not None and stage.warm_start.checkpoint is None:
        raise RecipeError(f"warm_start.recipe={start.recipe}: a first stage may not have a first stage of its own")
    return stage


def begin_with(recipe: Recipe, checkpoint: str) -> None:
    """Puts a checkpoint in the place of a recipe's first stage, as `--warm-start` does.

    Of the recipe, what could not begin with the checkpoint becomes as it is there: the width of a bag, and a
    vocabulary that cannot be mapped, which is any but a byte-level BPE.
    """
    for key in ("recipe", "overrides"):
        recipe.sections["warm_start"].pop(key, None)
    recipe.set("warm_start.checkpoint", checkpoint)
    if begins_with_encoder(recipe):
        return
    start = open_config(checkpoint)
    if _stays_narrow(recipe, start) or (recipe.architecture == "bag" and start.model_type == BAG):
        recipe.set("model.d_model", start.d_model)
    if recipe.sections["tokenizer"] and not is_byte_level_bpe(load_tokenizer(local_or_hub(checkpoint))):
        recipe.sections["tokenizer"] = {}


def check_warm_start(recipe: Recipe) -> None:
    """Checks the checkpoint or first stage before anything is deleted or trained.

    Raises:
        RecipeError: The checkpoint is missing or no model of this package, or its bag is too narrow.
    """
    stage, checkpoint = stage_recipe(recipe), recipe.warm_start.checkpoint
    if stage is None and checkpoint is None:
        return
    if begins_with_encoder(recipe):
        open_encoder(checkpoint)
        return
    start = open_config(checkpoint) if stage is None else stage.build_config()
    if _stays_narrow(recipe, start):
        width = recipe.build_config().d_model
        raise RecipeError(
            f"d_model={width}: the columns that a bag with d_model={start.d_model} lacks would stay zero with "
            f"embedding_learning_rate=0; set model.d_model={start.d_model} or embedding_learning_rate=null"
        )


def _stays_narrow(recipe: Recipe, start: PreTrainedConfig) -> bool:
    """Whether a model begins with a narrower bag and never fills its other columns."""
    frozen = recipe.sections["training"].get("embedding_learning_rate") == 0 and not recipe.warm_start.new_columns_std
    is_t_mde_on_a_bag = recipe.architecture == "tmde" and start.model_type == BAG
    return is_t_mde_on_a_bag and frozen and recipe.build_config().d_model > start.d_model


def share_tokenizer(recipe: Recipe, train: Any, folder: Path) -> None:
    """Where a first stage has fewer languages than the run, trains the tokenizer of both on all of them."""
    stage = stage_recipe(recipe)
    if stage is None or stage.data.languages == recipe.data.languages or recipe.sections["tokenizer"]:
        return
    options = stage.sections["tokenizer"]
    if "path" not in options and (options or stage.warm_start.checkpoint is None):
        stage.sections["data"]["languages"] = recipe.data.languages
        prepare_tokenizer(stage, train, folder)
        recipe.set("warm_start.overrides.tokenizer.path", str(folder))


def prepare_warm_start(recipe: Recipe, folder: Path, resumed: Path | None, train: Callable[..., Any]) -> str | None:
    """
    The checkpoint that a run begins with, or None. A first stage is trained in `warm_start/` of the folder, or resumed
    there, unless it is done.

    Settles what follows in `recipe`: the checkpoint's tokenizer, if the recipe has no `tokenizer` section, and its way
    to make a bag (`bag_residual`, `sublinear_counts`), unless the recipe says otherwise.

    Args:
        resumed: The run's own checkpoint to resume from, which settles the same; nothing is trained then.
        train: `train_recipe`.

    Raises:
        RecipeError: The checkpoint is missing or no model of this package.
    """
    start = recipe.warm_start
    if start.checkpoint is None and start.recipe is None:
        return None
    checkpoint = start.checkpoint if resumed is None else str(resumed)
    if checkpoint is None:
        stage, state = folder / STAGE_FOLDER, PartialState()
        if not (stage / "results.json").exists():
            if state.is_main_process:
                logger.warning(f"Stage 1 of 2: recipe {start.recipe}, in {stage}")
            kind = state.distributed_type
            train(stage_recipe(recipe), stage, resume=find_checkpoint(stage) is not None, overwrite=True)
            state.wait_for_everyone()
            AcceleratorState._reset_state()  # which holds the stage's precision, and refuses another
            state.distributed_type = kind  # which FSDP of the stage may have changed
        if state.is_main_process:
            logger.warning(f"Stage 2 of 2: recipe {recipe.name}, from {stage}")
        checkpoint = str(stage)
    config = open_config(checkpoint)
    if not recipe.sections["tokenizer"]:
        recipe.sections["tokenizer"]["path"] = checkpoint
    model, is_bag = recipe.sections["model"], config.model_type == BAG
    direct = start.direct_path if is_bag else getattr(config, "bag_residual", False)
    if recipe.architecture == "tmde" and direct:
        model.setdefault("bag_residual", True)
    if (recipe.architecture == "tmde" and direct) or (recipe.architecture == "bag" and is_bag):
        model.setdefault("sublinear_counts", config.sublinear_counts)
    return checkpoint


def apply_warm_start(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, checkpoint: str
) -> dict[str, Any]:
    """Changes a new model to begin as the checkpoint ended; returns the `warm_start` of `run.json`."""
    start = recipe.warm_start
    report = warm_start(model, tokenizer, checkpoint, start.residual_scale, start.new_columns_std, start.direct_path)
    if PartialState().is_main_process:
        logger.warning("%s", report)
    results = Path(checkpoint) / "results.json"
    minutes = json.loads(results.read_text()).get("minutes") if results.is_file() else None
    return {**asdict(report), "minutes": minutes}


def find_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; one that was cut off while it was written has no readable state."""
    steps = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    for path in sorted(steps, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())
            return path
        except (OSError, ValueError):
            logger.warning("%s is incomplete and is skipped", path)
    return None
