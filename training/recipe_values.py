"""Are the values of a recipe of the kinds that its readers take? What a word in a number's place does shows late."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any

from modeling_tmde.training.replay import ReplayedSources, replayed_sources

TEXTS = list[str]
_KINDS = {
    frozenset([bool]): "true or false",
    frozenset([int]): "a whole number",
    frozenset([float]): "a number",
    frozenset([TEXTS]): "a list of texts",
    frozenset([str, TEXTS]): "a text or a list of texts",
}
_SOURCE = "a path or Hub id, files by language, or a list of these"


def wrong_value(values: Mapping[str, Any], reader: Callable, words: Mapping[str, str]) -> str | None:
    """What is wrong with the first value that is no number, switch or list, where its reader takes nothing else.

    Args:
        values: By key; None is never wrong.
        reader: Class or function whose annotations have the keys; those of other kinds are not looked at.
        words: That keys take as well, such as `{"bf16": "auto"}`.

    Returns:
        None if all is well.
    """
    for key, value in values.items():
        kind = _kinds(reader).get(key)
        if kind is None or value is None or value == words.get(key) or _fits(value, kind):
            continue
        return f"{key}: found {value!r}, expected {_KINDS[kind]}"
    return None


def too_small(values: Mapping[str, Any], least: Mapping[str, int]) -> str | None:
    """What is wrong with the first number below the least of its key; what is no number is not looked at."""
    for key, number in least.items():
        found = values.get(key)
        if isinstance(found, (int, float)) and not isinstance(found, bool) and found < number:
            return f"{key}: found {found!r}, expected at least {number}"
    return None


def wrong_data(values: Mapping[str, Any]) -> str | None:
    """What is wrong with the first value of the `data` section, beside its kind."""
    for key in ("languages", "pivot_languages"):
        if values.get(key, []) is None:
            return f"{key}: found None, expected a list of texts"
    if values.get("bad_rows", "report") not in ("report", "raise"):
        return f"bad_rows: found {values['bad_rows']!r}, expected report or raise"
    temperature = values.get("temperature")
    if temperature is not None and not temperature > 0:
        return f"temperature: found {temperature!r}, expected a number above 0"
    train = values.get("train")
    wrong = too_small(values, {"max_rows": 1, "dev_rows": 0}) or _wrong_sources(train, values.get("dev"))
    if wrong is None and isinstance(train, Mapping) and "new" in train:
        if wrong := wrong_value(train, ReplayedSources, {}):
            return f"train.{wrong}"
        try:
            replayed_sources(train)
        except ValueError as error:
            return str(error)
    return wrong


def _wrong_sources(train: Any, dev: Any) -> str | None:
    """What is wrong with the first of `data.train` and `data.dev` that `load_parallel` would not take."""
    replayed = isinstance(train, Mapping) and "new" in train
    if replayed and train["new"] is None:
        return f"train.new: found None, expected {_SOURCE}"
    sources = {f"train.{key}": train.get(key) for key in ("new", "replay")} if replayed else {"train": train}
    if isinstance(dev, Mapping):
        for name, source in dev.items():
            if not isinstance(name, str):
                return f"dev: found the name {name!r}, expected a text"
            if source is None:
                return f"dev.{name}: found None, expected {_SOURCE}"
            sources[f"dev.{name}"] = source
    else:
        sources["dev"] = dev
    for key, source in sources.items():
        elements = source if isinstance(source, (list, tuple)) and source else [source]
        if source is not None and not all(map(_is_source, elements)):
            return f"{key}: found {source!r}, expected {_SOURCE}"
    return None


def _is_source(value: Any) -> bool:
    if isinstance(value, Mapping):
        paths = all(isinstance(part, (str, os.PathLike)) for part in value.values())
        return bool(value) and paths and all(isinstance(language, str) for language in value)
    return isinstance(value, (str, os.PathLike))


def _fits(value: Any, kinds: frozenset) -> bool:
    if TEXTS in kinds:
        is_texts = isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)
        return is_texts or (str in kinds and isinstance(value, str))
    if bool in kinds or isinstance(value, bool):
        return bool in kinds and isinstance(value, bool)
    if int in kinds:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())  # 1e6
    return isinstance(value, (int, float))


@cache
def _kinds(reader: Callable) -> dict[str, frozenset]:
    """By key, one of `_KINDS` where the annotation is that, or that or None."""
    found = {}
    for key, hint in typing.get_type_hints(reader).items():
        parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        kinds = frozenset(parts) - {NoneType}
        if kinds in _KINDS:
            found[key] = kinds
    return found
