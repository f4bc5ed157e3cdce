"""Where data come from, in words that may be published: no path of a machine, no key; and the licence, if known."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from huggingface_hub import metadata_load

from modeling_tmde.eval.corpora.files import find_files

SAMPLE_LICENSE = "Apache-2.0 (made by a generator in the package tmde)"
# Datasets of the Hub whose cards are known without asking for them: a run may end where there is no network.
KNOWN_LICENSES = {
    "Helsinki-NLP/europarl": "not stated by its Hub page; its makers know of no copyright restriction",
}
SECRETS = ("hub_token", "push_to_hub_token")
# Values of these keys are paths if they have a slash; those of the second may be the id of a model as well.
_SOURCE_KEYS = ("train", "dev", "eval_task", "token_cache_dir", "recipe", "data_licenses")
_MODEL_KEYS = ("path", "checkpoint", "teacher", "encoder")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class DataSource(NamedTuple):
    """What a corpus was read from: its public name; `"sample"`, `"hub"` or `"files"`; the licence, if known."""

    name: str
    kind: str
    license: str | None


def describe_sources(source: Any) -> list[dict[str, Any]]:
    """The sources of `load_parallel` as `run.json` keeps them: `name`, `kind` and `license` of each.

    To be called where the source was read: only there is it known whether `a/b` is a folder or a dataset of the Hub.
    The licence of a folder is what its own dataset card says.
    """
    found = []
    for element in source if isinstance(source, list | tuple) else [source]:
        if element is not None:
            found.append(_describe(element)._asdict())
    return found


def _describe(element: Any) -> DataSource:
    name = public_name(element)
    if element == "sample":
        return DataSource("sample", "sample", SAMPLE_LICENSE)
    if isinstance(element, Mapping):
        return DataSource(name, "files", None)
    path = os.path.expanduser(os.fspath(element))
    if not os.path.exists(path) and find_files(path) is None:
        return DataSource(os.fspath(element), "hub", KNOWN_LICENSES.get(os.fspath(element)))
    card = Path(path, "README.md")
    try:
        license = (metadata_load(card) or {}).get("license") if card.is_file() else None
    except ValueError:  # front matter that is no mapping
        license = None
    return DataSource(name, "files", license if isinstance(license, str) else None)


def recorded_sources(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> list[DataSource]:
    """The training sources of a run; of a run of before they were recorded, as far as the recipe tells them apart."""
    recorded = run.get("sources")
    if recorded is not None:
        return [DataSource(item["name"], item["kind"], item.get("license")) for item in recorded]
    source = (recipe.get("data") or {}).get("train")
    found = []
    for element in source if isinstance(source, list) else [source]:
        if element == "sample":
            found.append(DataSource("sample", "sample", SAMPLE_LICENSE))
        elif element in KNOWN_LICENSES if isinstance(element, str) else False:
            found.append(DataSource(element, "hub", KNOWN_LICENSES[element]))
        elif element is not None:
            found.append(DataSource(public_name(element), "files", None))
    return found


def check_licenses(sources: Sequence[Mapping[str, Any]], stated: Mapping[str, str] | None) -> dict[str, str]:
    """Licences by the public name of their source.

    Args:
        sources: As `describe_sources` gives them.
        stated: By source, as it is read or by its public name.

    Raises:
        ValueError: Of a source that is none of these.
    """
    known = {source["name"] for source in sources}
    by_name = {key if key in known else public_name(key): text for key, text in (stated or {}).items()}
    if unknown := [name for name in by_name if name not in known]:
        raise ValueError(
            f"data_licenses: found {', '.join(unknown)}, expected some of the training sources: "
            f"{', '.join(sorted(known)) or 'none is recorded'}"
        )
    return by_name


def public_name(source: Any) -> str:
    """The last component of a path; of Moses files by language, those of all."""
    if isinstance(source, Mapping):
        return ", ".join(public_name(path) for _, path in sorted(source.items()))
    return re.split(r"[/\\]", str(source).rstrip("/\\"))[-1]


def is_hub_id(text: str) -> bool:
    """Whether it may be the id of a repository: `user/name`, and nothing on this machine."""
    return bool(_HUB_ID.fullmatch(text)) and not Path(text).expanduser().exists()


def public_value(value: Any, hub_ids: frozenset[str] = frozenset(), key: str = "") -> Any:
    """A setting without paths of the machine: what looks like one keeps its last component.

    Args:
        hub_ids: Ids of the Hub among the values, which stay.
        key: That of the value, or of the mapping around it, which may say that it is a path or a model.
    """
    if isinstance(value, Mapping):
        return {
            public_value(name, hub_ids, key): public_value(item, hub_ids, key if key in _SOURCE_KEYS else str(name))
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [public_value(item, hub_ids, key) for item in value]
    if not isinstance(value, str) or value in hub_ids:
        return value
    name, equals, path = value.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name):  # NAME=SOURCE of a task
        return f"{name}={public_value(path, hub_ids, key)}"
    if re.match(r"https?://|hf://", value) or (key in _MODEL_KEYS and is_hub_id(value)):
        return value
    absolute = re.match(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\w+://", value)
    is_path = absolute or (key in _SOURCE_KEYS + _MODEL_KEYS and re.search(r"[/\\]", value))
    return public_name(value) if is_path else value


def _hub_ids(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    """Those of the recipe that were read from the Hub."""
    yield from (source.name for source in recorded_sources(recipe, run) if source.kind == "hub")
    if base := base_model_of(run):
        yield base


def base_model_of(run: Mapping[str, Any]) -> str | None:
    """The Hub id of the model that the run began with, if it is one."""
    return run.get("base_model")


def public_recipe(folder: str | os.PathLike) -> str:
    """The recipe of a run's folder as it may be published: sources by their last component, no keys of the Hub.

    `tmde train` takes it, with sources of one's own: `tmde train recipe.yaml --train ...`.

    Raises:
        ValueError: `recipe.yaml` is not there or no mapping.
    """
    from modeling_tmde.hub_cards.run_facts import read_json, read_recipe

    folder = Path(folder)
    recipe = read_recipe(folder)
    if not recipe:
        raise ValueError(f"{folder}: found no recipe.yaml, expected the folder of a training run")
    return yaml.safe_dump(clean_recipe(recipe, read_json(folder / "run.json")), sort_keys=False, allow_unicode=True)


def clean_recipe(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """See `public_recipe`."""
    hub_ids = frozenset(_hub_ids(recipe, run))
    sections = {name: public_value(values, hub_ids) for name, values in recipe.items() if values not in ({}, None)}
    if isinstance(sections.get("training"), dict):
        sections["training"] = {key: value for key, value in sections["training"].items() if key not in SECRETS}
    return sections
