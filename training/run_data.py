"""The rows of a run: those to train on, and those held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from tmde.data import CorpusReport, load_parallel
from tmde.data.dev_rows import hold_out_rows
from tmde.data.document_share import draw_share
from tmde.data.parts import AnyDataset
from tmde.data.rows import ANCHOR, POSITIVE, TRANSLATION, triple_texts
from tmde.training.recipe.building import build_objectives
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.overrides import with_settings
from tmde.training.recipe.schema import Recipe
from tmde.training.run_languages import choose_languages
from tmde.training.starts.replay import load_present, load_replayed

SAMPLE_DEV_ROWS = 2000


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


@dataclass(frozen=True)
class GivenData:
    """Datasets of the caller, in the place of the sources that a recipe names.

    Attributes:
        train: The training rows, as `load_parallel` takes them; None for those of the recipe.
        dev: Held-out rows, or several sets of them by name; None for those of the recipe.
    """

    train: AnyDataset | None = None
    dev: datasets.Dataset | Mapping[str, datasets.Dataset] | None = None

    def fit(self, recipe: Recipe) -> Recipe:
        """Return the recipe without its sources, with the languages that the rows have.

        Languages that the recipe states stay.
        """
        if self.train is None:
            return recipe
        recipe = with_settings(recipe, {"data.train": None})
        if "languages" in recipe.data.settings() or recipe.named_texts is not None:
            return recipe
        texts = load_parallel(self.train, streaming=True).features[TRANSLATION]
        if triple_texts(texts):
            recipe = with_settings(recipe, {"data.triples": True})
            return choose_languages(recipe).recipe
        return choose_languages(recipe, sorted(texts)).recipe


NO_DATASETS = GivenData()


def load_data(recipe: Recipe, given: GivenData = NO_DATASETS) -> RunData:
    """Return the training rows and the dev sets of a recipe.

    Args:
        recipe: The recipe.
        given: Datasets in the place of the sources that the recipe names.

    Raises:
        RecipeError: There is no training data.
        CorpusError: See `load_parallel`.
    """
    data = recipe.data
    source = given.train
    if source is None:
        check_has_data(recipe)
        source = data.train
    report = CorpusReport()
    dev = _load_dev_sets(recipe, given.dev)
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
        "target_columns": recipe.target_columns,
        "fewest_texts": 2 if needs_two else 1,
    }


def _load_dev_sets(
    recipe: Recipe, given: datasets.Dataset | Mapping[str, datasets.Dataset] | None
) -> dict[str, datasets.Dataset]:
    if given is not None:
        given_sets = given if isinstance(given, Mapping) else {"dev": given}
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
                f"Two --dev sources are called {name!r}; name them, --dev NAME=SOURCE"
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
