"""Where data come from, in words that may be published: no path of a machine, no key; and the licence, if known."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from huggingface_hub import metadata_load

from modeling_tmde.data.files import find_files

SAMPLE_LICENSE = "Apache-2.0 (made by a generator in the package tmde)"
# Datasets of the Hub whose cards are known without asking for them: a run may end where there is no network.
KNOWN_LICENSES = {
    "Helsinki-NLP/europarl": "not stated by its Hub page; its makers know of no copyright restriction",
}
# Wherever they stand in a recipe.
_SECRET = re.compile(r"(?:.*_)?(?:hub_token|access_token|api_key|password|secret)")
# Values of these keys are paths if they have a slash; those of the second may be the id of a model as well.
_SOURCE_KEYS = ("train", "dev", "eval_task", "recipe", "data_licenses", "token_cache_dir", "output_dir", "logging_dir")
_SOURCE_KEYS += ("run_name", "resume_from_checkpoint", "deepspeed", "fsdp_config", "accelerator_config")
_MODEL_KEYS = ("path", "checkpoint", "teacher", "encoder")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_ABSOLUTE = re.compile(r"[/\\]|~[\w.-]*[/\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\w+://")
_PATH_IN_TEXT = re.compile(r"(?<![^\s(\"'`])(?:~[\w.-]*/|\.{1,2}/|/[^/\s]+/|[A-Za-z]:[/\\])[^\s)\"'`]*")


class DataSource(NamedTuple):
    """What a corpus was read from: its public name; `"sample"`, `"hub"` or `"files"`; the licence, if known."""

    name: str
    kind: str
    license: str | None

    @property
    def link(self) -> str:
        """Markdown."""
        if self.kind == "hub":
            return f"[{self.name}](https://huggingface.co/datasets/{self.name})"
        return "built-in sample of tmde" if self.kind == "sample" else f"`{self.name}`"


def read_json(path: Path) -> dict[str, Any]:
    """A file of a run's folder; {} if it is not there.

    Raises:
        ValueError: It is damaged.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: found what is not JSON ({error}), expected what a training run wrote") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: found {type(content).__name__}, expected a mapping")
    return content


def read_recipe(folder: Path) -> dict[str, Any]:
    """`recipe.yaml` of a run's folder as it is; {} if it is not there.

    Raises:
        ValueError: It is no mapping.
    """
    path = folder / "recipe.yaml"
    if not path.is_file():
        return {}
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: found what is not YAML ({error}), expected a recipe") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: found {type(content).__name__}, expected the sections of a recipe")
    return content


def listed_sources(train: Any) -> list[Any]:
    """Each source of `data.train`: one, a list, or what a run that adds languages reads, `new` and `replay`."""
    if isinstance(train, Mapping) and {"new", "new_languages"} <= set(train):
        return [*listed_sources(train["new"]), *listed_sources(train.get("replay"))]
    return [source for source in (train if isinstance(train, list | tuple) else [train]) if source is not None]


def describe_sources(source: Any) -> list[dict[str, Any]]:
    """The sources of `data.train` as `run.json` keeps them: `name`, `kind` and `license` of each.

    To be called where the source was read: only there is it known whether `a/b` is a folder or a dataset of the Hub.
    The licence of a folder is what its own dataset card says.
    """
    return [_describe(element)._asdict() for element in listed_sources(source)]


def _describe(element: Any) -> DataSource:
    name = public_name(element)
    if element == "sample":
        return DataSource("sample", "sample", SAMPLE_LICENSE)
    if isinstance(element, Mapping):
        return DataSource(name, "files", None)
    path = os.path.expanduser(os.fspath(element))
    if not os.path.exists(path) and find_files(path) is None:
        return DataSource(os.fspath(element), "hub", KNOWN_LICENSES.get(os.fspath(element)))
    return DataSource(name, "files", stated_license(path))


def stated_license(folder: str | os.PathLike) -> str | None:
    """The licence in the front matter of a folder's `README.md`, if there is one."""
    card = Path(folder, "README.md")
    try:
        license = (metadata_load(card) or {}).get("license") if card.is_file() else None
    except (ValueError, yaml.YAMLError):  # front matter that is no mapping
        license = None
    return license if isinstance(license, str) else None


def recorded_sources(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> list[DataSource]:
    """The training sources of a run; of a run of before they were recorded, as far as the recipe tells them apart."""
    recorded = run.get("sources")
    if recorded is not None:
        return [DataSource(item["name"], item["kind"], item.get("license")) for item in recorded]
    found = []
    for element in listed_sources((recipe.get("data") or {}).get("train")):
        if element == "sample":
            found.append(DataSource("sample", "sample", SAMPLE_LICENSE))
        elif element in KNOWN_LICENSES if isinstance(element, str) else False:
            found.append(DataSource(element, "hub", KNOWN_LICENSES[element]))
        else:
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
    return re.split(r"[/\\]", _bare_url(str(source)).rstrip("/\\"))[-1]


def _bare_url(text: str) -> str:
    """Without user, password, query and fragment, if it is an address."""
    scheme, separator, rest = text.partition("://")
    if not separator or not re.fullmatch(r"\w+", scheme):
        return text
    host, slash, path = re.split(r"[?#]", rest)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


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
            if not _SECRET.fullmatch(str(name))
        }
    if isinstance(value, list | tuple):
        return [public_value(item, hub_ids, key) for item in value]
    if not isinstance(value, str) or value in hub_ids:
        return value
    key = key.rpartition(".")[2]  # of an override of a first stage
    if key == "description":
        return _public_text(value)
    name, equals, path = value.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", name):  # NAME=SOURCE of a task
        return f"{name}={public_value(path, hub_ids, key)}"
    if re.match(r"https?://|hf://", value):
        return _bare_url(value)
    is_path = _ABSOLUTE.match(value) or (key in _SOURCE_KEYS + _MODEL_KEYS and re.search(r"[/\\]", value))
    return public_name(value) if is_path else value


def _public_text(text: str) -> str:
    """A person's words, without paths of the machine and the keys of addresses."""
    text = re.sub(r"\w+://[^\s)>\"'`]+", lambda found: _bare_url(found[0]), text)
    return _PATH_IN_TEXT.sub(lambda found: public_name(found[0]), text)


def hub_models(recipe: Mapping[str, Any]) -> list[str]:
    """Ids of the Hub among the models that a recipe names: `user/name`, and nothing on this machine.

    To be asked where the run is: later, a folder that is gone reads the same.
    """
    start = recipe.get("warm_start") or {}
    if start.get("checkpoint"):  # no first stage, whose overrides nothing looks at
        recipe = {**recipe, "warm_start": {**start, "overrides": {}}}
    return sorted(set(_models(recipe)))


def _models(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _models(item, str(name).rpartition(".")[2])
    elif isinstance(value, str) and key in _MODEL_KEYS and is_hub_id(value):
        yield value


def _hub_ids(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    """Those of the recipe that were read from the Hub."""
    yield from (source.name for source in recorded_sources(recipe, run) if source.kind == "hub")
    yield from filter(None, [run.get("base_model"), *run.get("hub_models", ())])


def public_recipe(folder: str | os.PathLike) -> str:
    """The recipe of a run's folder as it may be published: sources by their last component, no keys of the Hub.

    `tmde train` takes it, with sources of one's own: `tmde train recipe.yaml --train ...`.

    Raises:
        ValueError: `recipe.yaml` is not there or no mapping.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    if not recipe:
        raise ValueError(f"{folder}: found no recipe.yaml, expected the folder of a training run")
    return yaml.safe_dump(clean_recipe(recipe, read_json(folder / "run.json")), sort_keys=False, allow_unicode=True)


def clean_recipe(recipe: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """See `public_recipe`."""
    hub_ids = frozenset(_hub_ids(recipe, run))
    filled = {name: values for name, values in recipe.items() if values not in ({}, None)}
    return public_value(filled, hub_ids)
