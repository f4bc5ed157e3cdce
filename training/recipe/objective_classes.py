"""The losses that a recipe or a user names: by a name of `OBJECTIVES`, or by an import path.

An import path is `module:Class`, such as `my_losses:CosineMargin`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tmde.training.objectives import OBJECTIVES
from tmde.training.objectives.base import Objective
from tmde.training.recipe.values import RecipeError, unknown_name_message

SEPARATOR = ":"
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def make_objectives(
    objectives: Mapping[str, float | Mapping[str, Any] | Objective],
) -> dict[str, Objective]:
    """Return losses by name.

    A loss that is named by its import path has the name of its class, which logs and metrics show.

    Args:
        objectives: By name or import path the weight of a loss, its options, or the loss itself.

    Raises:
        RecipeError: There is no such loss, an option is unknown or missing, a weight is no number
            from 0, two losses have the same name, or these are no losses by name.
    """
    if not isinstance(objectives, Mapping):
        raise RecipeError(
            f"objectives: found {objectives!r}, expected losses by name, such as "
            '{"translation": 0.5, "distance": 0.25}'
        )
    made: dict[str, Objective] = {}
    for path, value in objectives.items():
        _, _, name = path.rpartition(SEPARATOR)
        if name in made:
            raise RecipeError(f"found two losses called {name!r}, expected different names")
        if isinstance(value, Objective):
            made[name] = value
            continue
        options = value if isinstance(value, Mapping) else {"weight": value}
        _check_weight(path, options.get("weight"))
        loss_class = objective_class(path)
        _check_options(path, loss_class, options)
        made[name] = loss_class(**options)
    return made


def _check_weight(path: str, weight: object) -> None:
    """Raise RecipeError if a loss has a weight that is no number, or a negative one."""
    if weight is None:
        return
    if isinstance(weight, int | float) and not isinstance(weight, bool) and weight >= 0:
        return
    raise RecipeError(f"objectives.{path}: found the weight {weight!r}, expected a number from 0")


def _check_options(path: str, loss_class: type[Objective], options: Mapping[str, Any]) -> None:
    """Check that a loss has all options that are set, and gets all that it requires.

    Args:
        path: The name or import path of the loss.
        loss_class: Its class.
        options: The options by name.

    Raises:
        RecipeError: Names the loss and the option.
    """
    parameters = option_parameters(loss_class)
    for option in options:
        if option not in parameters:
            raise RecipeError(
                unknown_name_message(f"objectives.{path}: option", option, parameters)
            )
    for option, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise RecipeError(f"objectives.{path}: option {option!r} is missing")


def option_parameters(loss_class: type[Objective]) -> dict[str, inspect.Parameter]:
    """Return the options of a loss by name: the arguments of its `__init__`.

    They include those of the base classes to which it passes its `**kwargs` on.
    """
    parameters: dict[str, inspect.Parameter] = {}
    for init in inits_of(loss_class):
        for name, parameter in inspect.signature(init).parameters.items():
            if name != "self" and parameter.kind not in VARIADIC:
                parameters.setdefault(name, parameter)
    return parameters


def inits_of(loss_class: type[Objective]) -> list[Any]:
    """Return the `__init__` of a loss, and those to which it passes its `**kwargs` on."""
    inits = []
    for ancestor in loss_class.__mro__:
        init = vars(ancestor).get("__init__")
        if init is None:
            continue
        inits.append(init)
        kinds = [parameter.kind for parameter in inspect.signature(init).parameters.values()]
        if ancestor is Objective or inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return inits


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
    loss_class = getattr(module, class_name, None)
    if isinstance(loss_class, type) and issubclass(loss_class, Objective):
        return loss_class
    base_class = f"{Objective.__module__}.{Objective.__name__}"
    if loss_class is None:
        losses = _objectives_in(module) or [f"no subclass of {base_class}"]
        raise RecipeError(
            f"{name}: {module.__file__} has no {class_name!r}; it has {', '.join(losses)}"
        )
    raise RecipeError(f"{name}: found {loss_class!r}, expected a subclass of {base_class}")


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
            f"{name}: found no module {module_name!r} in {directory} or among the installed "
            "packages; run the command in the module's folder, or add that to PYTHONPATH"
        ) from error


def _objectives_in(module: ModuleType) -> list[str]:
    """Return the names of the losses that a module defines."""
    names = []
    for name, value in vars(module).items():
        is_loss = isinstance(value, type) and issubclass(value, Objective)
        if is_loss and value.__module__ == module.__name__:
            names.append(name)
    return names
