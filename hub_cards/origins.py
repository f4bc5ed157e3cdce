"""The models that a run drew on, what it began with and its teacher: recorded where the run is, told on its card."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from modeling_tmde.hub_cards.sources import (
    DataSource,
    hub_models,
    public_name,
    read_json,
    read_recipe,
    recorded_sources,
    stated_license,
)

FIRST_STAGE = "warm_start"  # folder of a run's first stage in that of the run


class Origin(NamedTuple):
    """
    A model that a run drew on.

    Args:
        name: Hub id, or the last component of a folder.
        hub: Whether it was opened from the Hub.
        license: As its own card states it, where that was there.
        sources: Of its training text; None where nothing told them.
    """

    name: str
    hub: bool
    license: str | None = None
    sources: list[DataSource] | None = None

    @property
    def link(self) -> str:
        return f"[{self.name}](https://huggingface.co/{self.name})" if self.hub else f"`{self.name}`"

    @property
    def sentence(self) -> str:
        """Markdown: what it is and what it was trained on, as far as that is known."""
        stated = f" (licence: {self.license})" if self.license else ""
        if self.hub:
            return f"{self.link}{stated}, whose card says what it was trained on"
        if not self.sources:
            return f"{self.link}{stated}, whose data are not listed"
        data = (f"{source.link} (licence: {source.license or 'not stated'})" for source in self.sources)
        return f"{self.link}{stated}, trained on {', '.join(data)}"


def describe_origins(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What `run.json` keeps of the models that a recipe draws on; a model of a Hub id is one that is no folder here.

    Args:
        recipe: Its sections.

    Returns:
        `base_model`, a Hub id or None; `begun_with`, the model that the run begins with, then those that this one had
        begun with, as far as its folder tells; `teacher`, or None; `hub_models`, all Hub ids of models in the recipe.
    """
    begun = [origin._asdict() for origin in _describe(_start(recipe))]
    teacher = next(iter(_describe(_teacher(recipe))), None)
    return {
        "base_model": begun[0]["name"] if begun and begun[0]["hub"] else None,
        "begun_with": [_plain(origin) for origin in begun],
        "teacher": teacher and _plain(teacher._asdict()),
        "hub_models": hub_models(recipe),
    }


def recorded_origins(folder: Path) -> tuple[list[Origin], list[Origin]]:
    """What the run in a folder began with, the nearest first, and its teachers; a first stage in it counts as well.

    Of runs of before that was recorded, as far as their recipes tell.
    """
    begun: list[Origin] = []
    teachers: list[Origin] = []
    for path in (folder, folder / FIRST_STAGE):
        recipe, run = read_recipe(path), read_json(path / "run.json")
        if "begun_with" in run:
            begun = begun or [_read(item) for item in run["begun_with"]]
            teachers += [_read(run["teacher"])] if run.get("teacher") else []
            continue
        named = _start(recipe), _teacher(recipe)
        start, teacher = ([_of_recipe(name, run)] if name else [] for name in named)
        begun, teachers = begun or start, teachers + teacher
    return begun, teachers


def _start(recipe: Mapping[str, Any]) -> str | None:
    """What a run begins with, but for a first stage of its own."""
    model = recipe.get("model") or {}
    encoder = model.get("encoder") if model.get("architecture") == "adapted" else None
    return (recipe.get("warm_start") or {}).get("checkpoint") or encoder


def _teacher(recipe: Mapping[str, Any]) -> str | None:
    return ((recipe.get("objectives") or {}).get("distillation") or {}).get("teacher")


def _describe(start: str | None) -> list[Origin]:
    if not start:
        return []
    path = Path(os.path.abspath(os.path.expanduser(start)))
    if not path.exists():
        return [Origin(start, True)]
    name = path.name
    if re.fullmatch(r"checkpoint-\d+", name):  # the run's records are in the folder around it
        path = path.parent
    try:
        sources = recorded_sources(read_recipe(path), read_json(path / "run.json")) or None
        before, _ = recorded_origins(path)
    except (ValueError, TypeError, KeyError, AttributeError):  # what stands beside its weights is none of ours
        sources, before = None, []
    return [Origin(name, False, stated_license(path), sources), *before]


def _of_recipe(name: str, run: Mapping[str, Any]) -> Origin:
    hub = name == run.get("base_model")
    return Origin(name if hub else public_name(name), hub)


def _plain(origin: Mapping[str, Any]) -> dict[str, Any]:
    """For JSON, which has no names for the fields of a tuple."""
    sources = origin["sources"]
    return {**origin, "sources": sources and [source._asdict() for source in sources]}


def _read(item: Mapping[str, Any]) -> Origin:
    sources = item.get("sources")
    return Origin(item["name"], item["hub"], item.get("license"), sources and [DataSource(**each) for each in sources])
