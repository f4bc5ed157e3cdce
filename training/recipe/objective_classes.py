"""The losses that a recipe or a user names: by a name of `OBJECTIVES`, or by an import path.

An import path is `module:Class`, such as `my_losses:CosineMargin`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tmde.training.objectives import OBJECTIVES
from tmde.training.objectives.base import Objective
from tmde.training.recipe.errors import RecipeError, unknown_name_message

SEPARATOR = ":"


def make_objectives(
    objectives: Mapping[str, float | Mapping[str, Any] | Objective],
) -> dict[str, Objective]:
    """Return losses by name.

    A loss that is named by its import path has the name of its class, which logs and metrics show.

    Args:
        objectives: By name or import path the weight of a loss, its options, or the loss itself.

    Raises:
        RecipeError: There is no such loss, an option does not fit, or two have the same name.
    """
    made: dict[str, Objective] = {}
    for path, value in objectives.items():
        _, _, name = path.rpartition(SEPARATOR)
        if name in made:
            raise RecipeError(f"found two losses called {name!r}, expected different names")
        if isinstance(value, Objective):
            made[name] = value
            continue
        options = value if isinstance(value, Mapping) else {"weight": value}
        made[name] = objective_class(path)(**options)
    return made


def objective_class(name: str) -> type[Objective]:
    """Return the class of a loss.

    The module of an import path is looked up as `import` does; the working directory is added to
    the end of `sys.path`, where it hides no installed package.

    Args:
        name: A name of `OBJECTIVES`, or an import path.

    Raises:
        RecipeError: There is no such name, module or class, or it is no `Objective`. An error that
            the module itself raises passes through.
    """
    if SEPARATOR not in name:
        if name not in OBJECTIVES:
            problem = unknown_name_message("objective", name, OBJECTIVES)
            raise RecipeError(
                f"{problem} A loss of your own is named by its import path, module:Class"
            )
        return OBJECTIVES[name]
    module_name, _, class_name = name.partition(SEPARATOR)
    module = _import_module(name, module_name)
    found = getattr(module, class_name, None)
    if isinstance(found, type) and issubclass(found, Objective):
        return found
    expected = f"a subclass of {Objective.__module__}.{Objective.__name__}"
    if found is None:
        known = _objectives_in(module)
        names = f"it has {', '.join(known)}" if known else f"it has no {expected[2:]}"
        raise RecipeError(f"{name}: {module.__file__} has no {class_name!r}; {names}")
    raise RecipeError(f"{name}: found {found!r}, expected {expected}")


def _import_module(name: str, module_name: str) -> ModuleType:
    """Import the module of a loss, which may be a file of the working directory."""
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.append(directory)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        is_missing = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        if not is_missing:  # The module is there, and imports one that is not.
            raise
        raise RecipeError(
            f"{name}: found no module {module_name!r} in {directory} nor among the installed "
            "packages; run the command in the folder of the module, or add that to PYTHONPATH"
        ) from error


def _objectives_in(module: ModuleType) -> list[str]:
    """Return the names of the losses that a module defines."""
    names = []
    for name, value in vars(module).items():
        is_loss = isinstance(value, type) and issubclass(value, Objective)
        if is_loss and value.__module__ == module.__name__:
            names.append(name)
    return names
