"""Find the code that a module runs: its file, and the files of this project that it imports.

Cached results are valid for the code that made them. Which files that is follows from the imports,
direct and indirect. So a new module is never forgotten, and a change of figures or reports, which
no measurement imports, throws nothing away.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

# Packages whose imports are followed. transformers puts the code that comes with a checkpoint of
# the Hub below the last one.
PROJECT_PACKAGES = {"tmde", "modeling_tmde", "transformers_modules"}


@cache
def imported_files(*modules: str) -> tuple[Path, ...]:
    """Return the files of modules, and of all modules of this project that they import.

    The `__init__.py` of a package counts only if it defines something that is imported. Where it
    passes on a name of one of its modules, that module counts: with the `__init__.py` would come
    everything that the package offers.

    Args:
        *modules: Dotted names. They may be of another project, whose other modules are not
            followed.

    Returns:
        The files in the order of the names of their modules.
    """
    files: dict[str, Path] = {}
    pending = list(modules)
    while pending:
        module = pending.pop()
        file = _file_of(module)
        if module in files or file is None:
            continue
        files[module] = file
        names = _imported_names(module, file)
        pending += [name for name in names if _package_of(name) in PROJECT_PACKAGES]
    return tuple(files[module] for module in sorted(files))


def imported_libraries(*modules: str) -> set[str]:
    """Return the top-level names of the libraries that the files of `imported_files` import.

    Args:
        *modules: Dotted names.
    """
    names: set[str] = set()
    for file in imported_files(*modules):
        for node in _import_statements(_parse(file)):
            if isinstance(node, ast.Import):
                names.update(_package_of(alias.name) for alias in node.names)
            elif node.level == 0 and node.module is not None:
                names.add(_package_of(node.module))
    return names - PROJECT_PACKAGES - sys.stdlib_module_names


def _imported_names(module: str, file: Path) -> set[str]:
    """Return the full names of the modules that a module imports."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in _import_statements(_parse(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        else:
            source = resolve_name("." * node.level + (node.module or ""), package)
            names.update(_modules_of_import(source, [alias.name for alias in node.names]))
    return names


def _modules_of_import(source: str, imported: Iterable[str]) -> Iterator[str]:
    """Yield the modules that define what `from source import imported` reads.

    They are modules of the package `source`, `source` itself, or modules from which the package
    passes names on.
    """
    if not _is_package_of_project(source):
        yield source
        return
    passed_on = _names_passed_on(source)
    for name in imported:
        submodule = f"{source}.{name}"
        if _file_of(submodule) is not None:
            yield submodule
        elif name in passed_on:
            origin, original_name = passed_on[name]
            yield from _modules_of_import(origin, [original_name])
        else:
            yield source


@cache
def _names_passed_on(package: str) -> dict[str, tuple[str, str]]:
    """Return the names that a package imports from modules: the module, and the name there."""
    names: dict[str, tuple[str, str]] = {}
    file = _file_of(package)
    if file is None:
        return names
    for node in _import_statements(_parse(file)):
        if isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                names[alias.asname or alias.name] = (origin, alias.name)
    return names


def _is_package_of_project(module: str) -> bool:
    """Return whether a module of this project may have others below it.

    Looking for those imports the package, but none of its modules.
    """
    if _package_of(module) not in PROJECT_PACKAGES:
        return False
    file = _file_of(module)
    return file is not None and file.name == "__init__.py"


def _import_statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports at every depth, but for those that only a type checker runs."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not _is_for_type_checkers(child):
            yield from _import_statements(child)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _package_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def _file_of(module: str) -> Path | None:
    """Return the Python file of a module; None if there is none, or it is not written in Python."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        origin = _origin_on_disk(module)
    if origin is None or not origin.endswith(".py"):
        return None
    return Path(origin)


def _origin_on_disk(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except (ModuleNotFoundError, ValueError):
        # The module of a class that was made in a notebook is no file.
        return None
    return None if spec is None else spec.origin
