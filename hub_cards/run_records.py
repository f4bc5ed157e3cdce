"""What a run recorded in its folder: settings, recipe, data, results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeling_tmde import TmdeError
from tmde.hub_cards.privacy import public_recipe


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; {} if it does not exist.

    Raises:
        TmdeError: The file is damaged, or holds no JSON object.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TmdeError(f"{path}: damaged JSON ({error})") from None
    if not isinstance(content, dict):
        raise TmdeError(f"{path}: found {type(content).__name__}, expected a JSON object")
    return content


@dataclass(frozen=True)
class RunRecords:
    """The records in the folder of a run or of a saved model. What is missing is {}.

    Args:
        folder: The folder.
        config: The configuration of the model.
        recipe: The public recipe, without its section `card`.
        card: The section `card` of the recipe: license, licenses of the data, description.
        run: What was recorded when the run began: sources, machine, versions ...
        results: What was recorded when it ended: steps, minutes, dev results ...
        languages: The report of a run that adds languages.
    """

    folder: Path
    config: dict[str, Any]
    recipe: dict[str, Any]
    card: dict[str, Any]
    run: dict[str, Any]
    results: dict[str, Any]
    languages: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> RunRecords:
        """Read the records of a folder.

        Raises:
            TmdeError: A file is damaged, or the folder has no model of this package.
        """
        config = read_json(folder / "config.json")
        model_type = str(config.get("model_type"))
        if not model_type.startswith("tmde"):
            raise TmdeError(
                f"{folder}: found model_type {model_type!r} in config.json, "
                "expected a model of this package"
            )
        recipe = public_recipe(folder)
        card = recipe.pop("card", None) or {}
        return cls(
            folder=folder,
            config=config,
            recipe=recipe,
            card=card,
            run=read_json(folder / "run.json"),
            results=read_json(folder / "results.json"),
            languages=read_json(folder / "languages.json"),
        )

    @property
    def origins(self) -> list[dict[str, Any]]:
        """The model that the run started from, then the one which that model started from ..."""
        origins: list[dict[str, Any]] = self.run.get("begun_with") or []
        return origins

    @property
    def teachers(self) -> list[dict[str, Any]]:
        """The teachers of the run."""
        teachers: list[dict[str, Any]] = self.run.get("teachers") or []
        return teachers
