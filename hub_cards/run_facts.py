"""What the folder of a trained model says about it: its configuration, recipe, run and results."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from modeling_tmde.hub_cards.origins import FIRST_STAGE, Origin, recorded_origins
from modeling_tmde.hub_cards.sources import (
    DataSource,
    clean_recipe,
    read_json,
    read_recipe,
    recorded_sources,
)
from modeling_tmde.loading import NO_LIMIT

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DECODER_PREFIXES = ("decoder.", "lm_head.")


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
        begun_with: The model that the run began with, then what that one began with; a first stage of the run is none.
        teachers: Whose vectors it learned.
        languages_report: `languages.json` of a run that added languages.
    """

    folder: Path
    config: Any
    recipe: dict[str, Any]
    run: dict[str, Any]
    results: dict[str, Any]
    first_stage: dict[str, Any]
    sources: list[DataSource]
    begun_with: list[Origin]
    teachers: list[Origin]
    languages_report: dict[str, Any]

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
        report = read_json(folder / "languages.json")
        return cls(folder, config, cleaned, run, *results, sources, *recorded_origins(folder), report)

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
    def base_model(self) -> str | None:
        """Hub id of the model that it was begun with."""
        return next((origin.name for origin in self.begun_with[:1] if origin.hub), None)

    @property
    def goes_on(self) -> bool:
        """Whether the run began with what another had learned, which its own records do not count."""
        return bool(self.begun_with) or self.config.model_type == "tmde_adapted"

    @property
    def holds_out(self) -> bool:
        """Whether the dev rows are such as the run itself took out of its training text."""
        data = self.recipe.get("data") or {}
        return bool(data) and not data.get("dev")

    @property
    def added_languages(self) -> list[str]:
        """Those that the run added to the model that it began with."""
        train = (self.recipe.get("data") or {}).get("train")
        return list(train.get("new_languages") or ()) if isinstance(train, dict) else []

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
        """Numbers in the weights: of all, and of those that embed; None if the folder has no weights.

        Raises:
            ValueError: They are damaged, or a file of theirs is missing.
        """
        from safetensors import SafetensorError, safe_open

        total = encoder = 0
        for path in self._weights():
            try:
                with safe_open(path, framework="numpy") as file:
                    shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            except (SafetensorError, OSError) as error:
                raise ValueError(
                    f"{path}: the weights are missing or damaged ({error}); save the model again"
                ) from error
            for name, shape in shapes.items():
                total += math.prod(shape)
                encoder += 0 if name.startswith(DECODER_PREFIXES) else math.prod(shape)
        return (total, encoder) if total else None

    def _weights(self) -> list[Path]:
        """The files that `from_pretrained` reads."""
        if (self.folder / WEIGHTS).is_file():
            return [self.folder / WEIGHTS]
        files = read_json(self.folder / INDEX).get("weight_map") or {}
        return [self.folder / name for name in sorted(set(files.values()))]

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
        from transformers import MODEL_MAPPING

        return getattr(MODEL_MAPPING[type(self.config)], "needs_language_ids", False)

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
