"""What a run begins with: its data, its tokenizer, its model, and a checkpoint or first stage to start from."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import datasets
from accelerate import PartialState
from accelerate.state import AcceleratorState
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
from transformers.utils import logging

from modeling_tmde.tokenization import is_byte_level_bpe, load_tokenizer, train_tokenizer
from tmde.data import CorpusReport, load_parallel
from tmde.data.dev_rows import hold_out_rows
from tmde.embedding.loading import DEFAULT_FOLDER, DEFAULT_MODEL, local_or_hub, reading
from tmde.eval.dev_retrieval import language_pairs
from tmde.training.checkpoints import find_checkpoint
from tmde.training.hub_encoder import (
    build_adapted,
    open_config,
    open_encoder,
    open_tokenizer,
    token_settings,
)
from tmde.training.recipe import (
    ADAPTED,
    SECTIONS,
    Recipe,
    RecipeError,
    architecture_of,
    load_recipe,
)
from tmde.training.replay import load_present, load_replayed
from tmde.training.token_vectors import save_encoder_bag
from tmde.training.warm_start import BAG, warm_start

logger = logging.get_logger("tmde.training")

STAGE_FOLDER = "warm_start"
# Training keys that a first stage takes from the run: the same rows are held out, and curves are comparable.
SHARED_KEYS = (
    "seed",
    "data_seed",
    "use_cpu",
    "token_cache_dir",
    "fsdp",
    "fsdp_config",
    "disable_tqdm",
)
SHARED_KEYS += ("eval_pairs", "eval_pool", "eval_loss_rows")


# ---- Data


def load_data(recipe: Recipe) -> tuple[Any, dict[str, datasets.Dataset], CorpusReport]:
    """Training rows (map-style or streaming), dev sets by name, and the count of bad training rows."""
    data, report = recipe.data, CorpusReport()
    if data.train is None:
        sources = "a file, a folder, a Hub dataset id, or 'sample' for the built-in sample"
        raise RecipeError(f"Recipe {recipe.name} needs training data: give --train with {sources}")
    options = {name: getattr(data, name) for name in ("languages", "pivot_languages", "bad_rows")}
    options["labels"] = "nli" in recipe.sections["objectives"]
    load = load_parallel if data.replay is None else load_present
    dev = {}
    for name, source in (
        data.dev if isinstance(data.dev, dict) else named_sources(data.dev)
    ).items():
        split = (
            {"split": "dev", "max_rows": 2000} if source == "sample" else {"split": data.dev_split}
        )
        dev[name] = load(source, **options, **split, document_ids=True)
    if data.replay is not None:
        return *load_replayed(recipe, dev, report), report
    options |= {name: getattr(data, name) for name in ("streaming", "temperature", "max_rows")}
    options |= {"document_ids": not data.streaming, "seed": recipe.seed, "report": report}
    train = load_parallel(data.train, **options)
    if not dev and data.dev_rows:
        train, dev["dev"] = hold_out_rows(train, data.dev_rows, recipe.seed)
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
            raise RecipeError(
                f"Two --dev sources are called {name!r}; name them, --dev NAME=SOURCE"
            )
        named[name] = source
    return named


# ---- Tokenizer and model


def prepare_tokenizer(
    recipe: Recipe, train: Any, folder: Path, resumed: Path | None = None
) -> PreTrainedTokenizerBase:
    """The tokenizer of a resumed run's checkpoint, of an encoder of the Hub, of `tokenizer.path`, of the run's folder,
    or a new one trained on the corpus.
    """
    if recipe.architecture == ADAPTED and resumed is None:
        return open_tokenizer(recipe)
    options = dict(recipe.sections["tokenizer"])
    path = resumed or options.pop("path", None) or folder
    if path == folder and not (folder / "tokenizer_config.json").exists():
        temporary = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        length = getattr(
            recipe.build_config(), "max_position_embeddings", VERY_LARGE_INTEGER
        )  # a bag has no limit
        options = {"model_max_length": length, **options}
        if options.pop("whole_words", 0):
            raise RecipeError(
                "tokenizer.whole_words: only for a bag that begins with an encoder (--warm-start)"
            )
        train_tokenizer(tokenizer_texts(recipe, train), **options).save_pretrained(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    with reading(f"tokenizer.path={path}", RecipeError):
        return AutoTokenizer.from_pretrained(DEFAULT_FOLDER if path == DEFAULT_MODEL else path)


def tokenizer_texts(recipe: Recipe, rows: Any) -> dict[str, list[str]]:
    """The texts from which the tokenizer of a recipe is made, by language."""
    characters = recipe.sections["tokenizer"].get("max_characters", 20_000_000)
    return texts_by_language(rows, recipe.texts, characters, recipe.seed)


def texts_by_language(
    train, languages: Sequence[str], max_characters: int, seed: int
) -> dict[str, list[str]]:
    """Texts of shuffled rows until every language has its characters or the rows end."""
    texts: dict[str, list[str]] = {language: [] for language in languages}
    sizes = dict.fromkeys(languages, 0)
    buffer = {} if isinstance(train, datasets.Dataset) else {"buffer_size": 10_000}
    for batch in train.shuffle(seed=seed, **buffer).iter(
        batch_size=1000
    ):  # much faster than row by row
        for row, language in itertools.product(batch["translation"], languages):
            text = row.get(language)
            if text and sizes[language] < max_characters:
                texts[language].append(text)
                sizes[language] += len(text)
        if all(size >= max_characters for size in sizes.values()):
            break
    return texts


def build_model(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, resumed: Path | None = None
) -> PreTrainedModel:
    """A new model of the recipe's architecture, for this tokenizer.

    Args:
        resumed: The checkpoint whose config it has and whose weights it will get.

    Raises:
        RecipeError: The architecture cannot be trained with this tokenizer or encoder.
    """
    if resumed is not None:
        return recipe.model_class(open_config(resumed))
    if recipe.architecture == ADAPTED:
        return build_adapted(recipe, tokenizer)
    settings = token_settings(tokenizer) | {
        "vocab_size": len(tokenizer),
        "mask_token_id": tokenizer.mask_token_id,
    }
    if not settings.pop("reads_bos"):
        raise RecipeError(
            f"tokenizer: that of {tokenizer.name_or_path!r} puts no token before a text; take another"
        )
    known = {field.name for field in fields(recipe.model_class.config_class)}
    return recipe.model_class(
        recipe.build_config(**{name: settings[name] for name in known & settings.keys()})
    )


# ---- Warm starts


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
            found = f"warm_start.overrides: found {name}={value}"
            raise RecipeError(f"{found}, but the first stage has the run's data and seed")
        stage.set(name, value)
    found, known = stage.data.languages, recipe.data.languages
    if not set(found) <= set(known):
        raise RecipeError(
            f"warm_start.overrides: found languages={found}, expected some of {known}"
        )
    if pairs := stage.sections["training"].get("eval_pairs"):
        kept = [pair for pair in pairs if pair in language_pairs(stage.data.languages)]
        stage.sections["training"]["eval_pairs"] = kept or None
    if stage.warm_start.recipe is not None and stage.warm_start.checkpoint is None:
        raise RecipeError(
            f"warm_start.recipe={start.recipe}: a first stage may not have a first stage of its own"
        )
    return stage


def open_start(recipe: Recipe) -> PreTrainedConfig | None:
    """The config of what a run begins with: a first stage, or a checkpoint, which for a bag may be any encoder.

    Raises:
        RecipeError: The checkpoint is missing or no model of this package.
    """
    stage, checkpoint = stage_recipe(recipe), recipe.warm_start.checkpoint
    if stage is not None:
        return stage.build_config()
    kind = "" if recipe.architecture == "bag" else "tmde"
    return None if checkpoint is None else open_config(checkpoint, kind=kind)


def begin_with(recipe: Recipe, checkpoint: str) -> None:
    """Puts a checkpoint in the place of a recipe's first stage, as `--warm-start` does.

    Of the recipe, what could not begin with the checkpoint becomes as it is there: the width of a bag, and a
    vocabulary that cannot be mapped, which is any but a byte-level BPE.
    """
    for key in ("recipe", "overrides"):
        recipe.sections["warm_start"].pop(key, None)
    recipe.set("warm_start.checkpoint", checkpoint)
    start = open_start(recipe)
    if architecture_of(start) is None:
        return
    if _stays_narrow(recipe, start) or (recipe.architecture == "bag" and start.model_type == BAG):
        recipe.set("model.d_model", start.d_model)
    if recipe.sections["tokenizer"] and not is_byte_level_bpe(
        load_tokenizer(local_or_hub(checkpoint))
    ):
        recipe.sections["tokenizer"] = {}


def check_warm_start(recipe: Recipe) -> None:
    """Checks the checkpoint or first stage before anything is deleted or trained.

    Raises:
        RecipeError: The checkpoint is missing or no model that the run can begin with, or its bag is too narrow.
    """
    start = open_start(recipe)
    if start is None:
        return
    if architecture_of(start) is None:
        open_encoder(recipe.warm_start.checkpoint)
    elif _stays_narrow(recipe, start):
        raise RecipeError(
            f"d_model={recipe.build_config().d_model}: columns that a bag with d_model={start.d_model} lacks stay "
            f"zero with embedding_learning_rate=0; set model.d_model={start.d_model} or embedding_learning_rate=null"
        )


def _stays_narrow(recipe: Recipe, start: PreTrainedConfig) -> bool:
    """Whether a model begins with a narrower bag and never fills its other columns."""
    frozen = recipe.sections["training"].get("embedding_learning_rate") == 0
    is_t_mde_on_a_bag = recipe.architecture == "tmde" and start.model_type == BAG
    return is_t_mde_on_a_bag and frozen and recipe.build_config().d_model > start.d_model


def share_tokenizer(recipe: Recipe, rows: Any, folder: Path) -> None:
    """Where a first stage has fewer languages than the run, trains the tokenizer of both on all of them."""
    stage = stage_recipe(recipe)
    if stage.data.languages == recipe.data.languages or recipe.sections["tokenizer"]:
        return
    options = stage.sections["tokenizer"]
    if "path" not in options and (options or stage.warm_start.checkpoint is None):
        stage.sections["data"]["languages"] = recipe.data.languages
        prepare_tokenizer(stage, rows, folder)
        recipe.set("warm_start.overrides.tokenizer.path", str(folder))


def prepare_warm_start(
    recipe: Recipe, folder: Path, rows: Any, train: Callable[..., Any]
) -> str | None:
    """The checkpoint that a new run begins with, or None. What has to be made for it is made in `warm_start/` of the
    folder, unless it is there: a first stage is trained, or resumed, and an encoder's token vectors become a bag.

    Settles what follows in `recipe`: the checkpoint's tokenizer, if the recipe has no `tokenizer` section or takes it
    from an encoder, and its way to make a bag (`bag_residual`, `sublinear_counts`), unless the recipe says otherwise.

    Args:
        rows: The training rows.
        train: `train_recipe`.

    Raises:
        RecipeError: The checkpoint is missing or no model that the run can begin with.
    """
    start, found, stage, state = (
        recipe.warm_start,
        open_start(recipe),
        folder / STAGE_FOLDER,
        PartialState(),
    )
    if found is None:
        return None
    checkpoint = start.checkpoint or str(stage)
    if start.checkpoint is None:
        if not (stage / "results.json").exists():
            if state.is_main_process:
                logger.warning(f"Stage 1 of 2: recipe {start.recipe}, in {stage}")
            with state.main_process_first():
                share_tokenizer(recipe, rows, folder / "tokenizer")
            kind = state.distributed_type
            train(
                stage_recipe(recipe),
                stage,
                resume=find_checkpoint(stage) is not None,
                overwrite=True,
            )
            state.wait_for_everyone()
            AcceleratorState._reset_state()  # which holds the stage's precision, and refuses another
            state.distributed_type = kind  # which FSDP of the stage may have changed
    elif architecture_of(found) is None:
        with state.main_process_first():
            if not stage.exists():
                temporary = folder / f".{STAGE_FOLDER}.tmp"
                texts = itertools.chain.from_iterable(tokenizer_texts(recipe, rows).values())
                save_encoder_bag(recipe, checkpoint, texts, temporary)
                os.replace(temporary, stage)
        checkpoint, recipe.sections["tokenizer"] = str(stage), {}
    config = open_config(checkpoint)
    if not recipe.sections["tokenizer"]:
        recipe.sections["tokenizer"]["path"] = checkpoint
    model, is_bag = recipe.sections["model"], config.model_type == BAG
    direct = start.direct_path if is_bag else getattr(config, "bag_residual", False)
    if recipe.architecture == "tmde" and direct:
        model.setdefault("bag_residual", True)
    if (recipe.architecture == "tmde" and direct) or (
        recipe.architecture in ("bag", ADAPTED) and is_bag
    ):
        model.setdefault("sublinear_counts", config.sublinear_counts)
    return checkpoint


def apply_warm_start(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, checkpoint: str
) -> dict[str, Any]:
    """Changes a new model to begin as the checkpoint ended; returns the `warm_start` of `run.json`."""
    report = warm_start(model, tokenizer, checkpoint, recipe.warm_start.direct_path)
    if PartialState().is_main_process:
        counts = [
            f"{report[f'tokens_{kind}']:,} tokens {kind}" for kind in ("copied", "mapped", "left")
        ]
        kept = f"{len(report['tensors_kept'])} parameters as initialized"
        logger.warning(
            f"Warm start from {checkpoint} ({report['model_type']}): {', '.join(counts)}, {kept}"
        )
    results = Path(checkpoint) / "results.json"
    return report | {
        "minutes": json.loads(results.read_text()).get("minutes") if results.is_file() else None
    }
