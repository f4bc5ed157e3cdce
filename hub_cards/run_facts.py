"""What the folder of a trained model says about it: its configuration, recipe, run and results."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from modeling_tmde.hub_cards.sources import DataSource, base_model_of, clean_recipe, recorded_sources
from modeling_tmde.loading import NO_LIMIT

FIRST_STAGE = "warm_start"  # folder of a run's first stage in that of the run
DECODER_PREFIXES = ("decoder.", "lm_head.")


def read_json(path: Path) -> dict[str, Any]:
    """A file of the folder; {} if it is not there.

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
    """`recipe.yaml` as it is; {} if it is not there.

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


@dataclass(frozen=True)
class RunFacts:
    """
    A model's folder.

    Args:
        folder: Of a saved model of this package; what a run wrote beside it may be missing.
        config: Its configuration.
        recipe: Sections of the recipe, without paths of the machine.
        run, results: `run.json` and `results.json`.
        first_stage: `results.json` of the stage before, in the run's own folder.
        sources: Of the training text.
        base_model: Hub id of the model that it was begun with.
    """

    folder: Path
    config: Any
    recipe: dict[str, Any]
    run: dict[str, Any]
    results: dict[str, Any]
    first_stage: dict[str, Any]
    sources: list[DataSource]
    base_model: str | None

    @classmethod
    def read(cls, folder: str | os.PathLike) -> RunFacts:
        """
        Raises:
            ValueError: No model of this package, or a damaged file.
        """
        from transformers import AutoConfig

        folder = cls.path_of(folder)
        kind = read_json(folder / "config.json").get("model_type")
        if not str(kind).startswith("tmde"):
            found = "no config.json" if kind is None else f"a model of type {kind!r}"
            raise ValueError(f"{folder}: found {found}, expected the folder of a model of this package")
        recipe, run = read_recipe(folder), read_json(folder / "run.json")
        config = AutoConfig.from_pretrained(str(folder))
        cleaned, sources = clean_recipe(recipe, run), recorded_sources(recipe, run)
        results = [read_json(path / "results.json") for path in (folder, folder / FIRST_STAGE)]
        return cls(folder, config, cleaned, run, *results, sources, base_model_of(run))

    @staticmethod
    def path_of(folder: str | os.PathLike) -> Path:
        return Path(folder).expanduser()

    @property
    def name(self) -> str:
        """Of the folder; of that around it where `tmde quickstart` calls every model `model`."""
        path = self.folder.resolve()
        return path.parent.name if path.name == "model" else path.name

    @property
    def languages(self) -> list[str]:
        return list(self.config.languages)

    @property
    def objectives(self) -> list[str]:
        return list(self.recipe.get("objectives") or {})

    @property
    def card(self) -> dict[str, Any]:
        """The section `card` of the recipe."""
        return self.recipe.get("card") or {}

    def training(self, key: str) -> Any:
        """A setting of the run: as it was recorded, else as the recipe states it, else None."""
        return (self.run.get("settings") or {}).get(key, (self.recipe.get("training") or {}).get(key))

    @cached_property
    def parameters(self) -> tuple[int, int] | None:
        """Numbers in the weights: of all, and of those that embed; None if the folder has no weights."""
        from safetensors import safe_open

        total = encoder = 0
        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    size = 1
                    for length in file.get_slice(name).get_shape():
                        size *= length
                    total += size
                    encoder += 0 if name.startswith(DECODER_PREFIXES) else size
        return (total, encoder) if total else None

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        return read_json(self.folder / "tokenizer_config.json")

    @cached_property
    def lowercases(self) -> bool:
        """Whether the tokenizer reads capital letters as small ones."""
        normalizer = read_json(self.folder / "tokenizer.json").get("normalizer")
        return '"Lowercase"' in json.dumps(normalizer) or bool(self.tokenizer.get("do_lower_case"))

    @property
    def max_length(self) -> int | None:
        """Longest input in tokens; None for no limit. See [`~modeling_tmde.loading.length_limit`]."""
        limit = getattr(self.config, "max_position_embeddings", None)
        if not isinstance(limit, int) or limit < 1:
            return None
        of_tokenizer = self.tokenizer.get("model_max_length")
        if isinstance(of_tokenizer, int | float) and of_tokenizer < NO_LIMIT:
            limit = min(limit, int(of_tokenizer))
        return limit

    @property
    def needs_language(self) -> bool:
        """Whether the model must be told the language of a text."""
        return self.config.model_type in ("tmde_ntdv", "tmde_aligned")

    @property
    def decodes_embeddings(self) -> bool:
        """Whether its decoder writes text from an embedding alone."""
        architecture = (self.config.architectures or [""])[0]
        if not architecture.endswith("ForConditionalGeneration"):
            return False
        return self.config.model_type != "tmde_ntdv" and getattr(self.config, "bottleneck", None) != "full"

    @property
    def opens_in_sentence_transformers(self) -> bool:
        return (self.folder / "modules.json").is_file()
