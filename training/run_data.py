"""The rows of a run: those to train on, those held out, and their languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import datasets

from tmde.data import CorpusReport, load_parallel
from tmde.data.parts import AnyDataset, languages_of
from tmde.data.rows import ANCHOR, POSITIVE, TRANSLATION, triple_texts
from tmde.training.dev_rows import hold_out_rows
from tmde.training.document_share import draw_share
from tmde.training.recipe.building import build_objectives
from tmde.training.recipe.loading import with_settings
from tmde.training.recipe.schema import ChosenRecipe, Recipe
from tmde.training.recipe.values import RecipeError
from tmde.training.starts.replay import load_present, load_replayed

SAMPLE_DEV_ROWS = 2000
PREFERRED_PIVOT = "en"
EvalDataset: TypeAlias = datasets.Dataset | Mapping[str, datasets.Dataset]


class RunData(NamedTuple):
    """The rows of a run.

    Attributes:
        train: The training rows, a stream or not.
        dev: The dev sets by name.
        report: The counts of bad training rows.
    """

    train: datasets.Dataset | datasets.IterableDataset
    dev: dict[str, datasets.Dataset]
    report: CorpusReport


def fit_to_rows(recipe: Recipe, rows: AnyDataset) -> Recipe:
    """Return the recipe for training rows of the caller, with the languages that they have.

    Languages that the recipe states stay.
    """
    recipe = with_settings(recipe, {"data.train": None})
    if "languages" in recipe.data.settings() or recipe.named_texts is not None:
        return recipe
    texts = load_parallel(rows, streaming=True).features[TRANSLATION]
    if triple_texts(texts):
        recipe = with_settings(recipe, {"data.triples": True})
        return choose_languages(recipe).recipe
    return choose_languages(recipe, sorted(texts)).recipe


def load_data(
    recipe: Recipe,
    train_dataset: AnyDataset | None = None,
    eval_dataset: EvalDataset | None = None,
) -> RunData:
    """Return the training rows and the dev sets of a recipe.

    Args:
        recipe: The recipe.
        train_dataset: The training rows; None for those of the sources that the recipe names.
        eval_dataset: The held-out rows, or several sets of them by name; None for those of the
            recipe.

    Raises:
        RecipeError: There is no training data.
        CorpusError: See `load_parallel`.
    """
    data = recipe.data
    source: Any = train_dataset
    if source is None:
        check_has_data(recipe)
        source = data.train
    report = CorpusReport()
    dev = _load_dev_sets(recipe, eval_dataset)
    if data.replay is not None:
        train, dev = load_replayed(recipe, dev, report)
        return RunData(train, dev, report)
    seed = recipe.seed
    is_streamed = data.streaming or isinstance(source, datasets.IterableDataset)
    train = load_parallel(
        source,
        **_common_options(recipe),
        streaming=is_streamed,
        temperature=data.temperature,
        max_rows=data.max_rows,
        document_ids=not is_streamed,
        seed=seed,
        report=report,
    )
    if not dev and data.dev_rows:
        train, dev["dev"] = hold_out_rows(train, data.dev_rows, seed)
    if data.train_share is not None:
        train = draw_share(train, data.train_share)
    return RunData(train, dev, report)


def check_has_data(recipe: Recipe) -> None:
    """Refuse a recipe that names no training data.

    Raises:
        RecipeError: It names none.
    """
    if recipe.data.train is None:
        raise RecipeError(
            f"Recipe {recipe.name} needs training data: give --train with a file, a folder, a Hub "
            "dataset id, or 'sample' for the built-in sample"
        )


def _common_options(recipe: Recipe) -> dict[str, Any]:
    """Return the options of `load_parallel` for all rows of a run."""
    objectives = build_objectives(recipe).values()
    needs_two = any(objective.requirements.several_languages for objective in objectives)
    languages: Sequence[str] = recipe.data.languages
    pivot_languages: Sequence[str] | None = recipe.data.pivot_languages
    if recipe.data.triples:
        languages = (ANCHOR, POSITIVE)
        pivot_languages = None
    return {
        "languages": languages,
        "pivot_languages": pivot_languages,
        "bad_rows": recipe.data.bad_rows,
        "labels": recipe.named_texts is not None,
        "columns": recipe.data.columns,
        "quoting": recipe.data.quoting,
        "target_columns": recipe.target_columns,
        "fewest_texts": 2 if needs_two else 1,
    }


def _load_dev_sets(recipe: Recipe, eval_dataset: EvalDataset | None) -> dict[str, datasets.Dataset]:
    if eval_dataset is not None:
        given_sets = eval_dataset if isinstance(eval_dataset, Mapping) else {"dev": eval_dataset}
        loaded = {}
        for name, rows in given_sets.items():
            loaded[name] = load_parallel(rows, **_common_options(recipe), document_ids=True)
        return loaded
    data = recipe.data
    load = load_parallel if data.replay is None else load_present
    sources = data.dev
    if not isinstance(sources, Mapping):
        sources = named_sources(sources)
    dev = {}
    for name, source in sources.items():
        if source == "sample":
            part: dict[str, Any] = {"split": "dev", "max_rows": SAMPLE_DEV_ROWS}
        else:
            part = {"split": data.dev_split}
        dev[name] = load(source, **_common_options(recipe), **part, document_ids=True)
    return dev


def named_sources(sources: str | Sequence[str] | None) -> dict[str, str]:
    """Return dev sets by name.

    Args:
        sources: One source or several, each `NAME=SOURCE` or a source, whose name is then that of
            its file.

    Raises:
        RecipeError: Two sources have the same name.
    """
    if isinstance(sources, str):
        sources = [sources]
    named: dict[str, str] = {}
    for value in sources or ():
        name, source = _split_name(value)
        if name in named:
            raise RecipeError(
                f"Two --dev sources are called {name!r}; rename them with --dev NAME=SOURCE"
            )
        named[name] = source
    return named


def _split_name(value: str) -> tuple[str, str]:
    """Return the name and the source of `NAME=SOURCE`, or of a source alone."""
    name, separator, source = value.partition("=")
    if separator and "/" not in name:  # A path may contain an equals sign.
        return name, source
    stem = Path(value).name.partition(".")[0].replace("*", "")
    return stem or "dev", value


# ---- Languages


def choose_languages(
    recipe: Recipe,
    user_languages: Sequence[str] | None = None,
    user_pivots: Sequence[str] | None = None,
) -> ChosenRecipe:
    """Return the recipe with the languages and pivot languages of a run.

    The user's go first, then those of the recipe, then those of the data. Without pivot languages
    of the user, the run has those of the recipe that are among its languages, else English, else
    the first language.

    Args:
        recipe: The recipe with its training data.
        user_languages: The languages that the user names; None for no such wish.
        user_pivots: The pivot languages that the user names; None for no such wish.

    Raises:
        RecipeError: The data has fewer than two languages, or the pivots are not among them.
        TmdeError: The data cannot be found or read.
    """
    data = recipe.data
    is_stated = user_languages is not None or "languages" in data.settings()
    is_found = not is_stated and data.replay is None and recipe.named_texts is None
    is_triples = data.triples
    languages = list(data.languages if user_languages is None else user_languages)
    if is_found and not is_triples:
        languages = languages_of(data.train, data.columns, quoting=data.quoting)
        is_triples = triple_texts(languages) != ()
    if is_found and is_triples:
        languages = [PREFERRED_PIVOT]
    elif is_found:
        _check_two_languages(data.train, languages)
    pivots = user_pivots
    if pivots is None:
        pivots = _choose_pivots(languages, data.pivot_languages)
    messages = []
    if is_found and is_triples:
        messages.append(
            "The data are triples of anchor and positive. Language of their texts: "
            f"{PREFERRED_PIVOT} (change with --languages)."
        )
    elif is_found:
        # The same text in another format, with other columns first, makes the same run.
        languages = sorted(languages)
        message = f"Languages of the data: {', '.join(languages)}"
        if user_pivots is None:
            message += f"; {_describe_pivots(pivots, data.pivot_languages)}"
        messages.append(f"{message} (change with --languages and --pivots).")
    settings: dict[str, Any] = {
        "data.languages": languages,
        "data.pivot_languages": list(pivots),
    }
    if is_triples:
        settings["data.triples"] = True
    return ChosenRecipe(with_settings(recipe, settings), messages)


def _check_two_languages(source: Any, languages: Sequence[str]) -> None:
    """Refuse training data with fewer than two languages."""
    if len(languages) < 2:
        count = "no language" if not languages else f"only the language {languages[0]}"
        raise RecipeError(
            f"{source}: found {count}, expected at least two. Name each column by "
            "its language, such as de and en, or give --columns de=Source,en=Target"
        )


def _choose_pivots(languages: Sequence[str], preferred: Sequence[str]) -> list[str]:
    """Return the preferred pivots among the languages; else English, else the first language."""
    pivots = [code for code in preferred if code in languages]
    if pivots or not preferred:
        return pivots
    if PREFERRED_PIVOT in languages:
        return [PREFERRED_PIVOT]
    return list(languages[:1])


def _describe_pivots(pivots: Sequence[str], preferred: Sequence[str]) -> str:
    """Return the pivots of a run in words, and why it has none of those of the recipe."""
    if set(pivots) <= set(preferred):
        return f"pivots: {', '.join(pivots)}"
    return f"pivot: {pivots[0]}, since it has no {' and no '.join(preferred)}"
