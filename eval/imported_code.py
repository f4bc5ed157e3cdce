"""The code that a module runs: its file and those of this project that it imports, even indirectly.

Cached results are valid for the code that made them. Which files that is follows from the imports,
so that a new module is never forgotten, and a change of figures or reports, which no measurement
imports, throws nothing away.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

# Packages whose imports are followed. Code that a checkpoint of the Hub brings along is below the
# last one.
PROJECT_PACKAGES = {"tmde", "modeling_tmde", "transformers_modules"}


@cache
def imported_files(*modules: str) -> tuple[Path, ...]:
    """Return the files of modules and of all modules of this project that they import.

    The `__init__.py` of a package would bring in everything that the package offers. It counts only
    where something that it defines itself is imported from it. Of a name that it imports from a
    module, that module counts.

    Args:
        *modules: Dotted names. They may be of another project; its other modules are not followed.

    Returns:
        The files, in the order of the modules' names.
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
    """Return the top-level names of what modules of this project import from outside of it.

    Args:
        *modules: Dotted names; the imports of all their `imported_files` count.
    """
    names: set[str] = set()
    for file in imported_files(*modules):
        for node in _import_statements(_parse(file)):
            if isinstance(node, ast.Import):
                names.update(_package_of(alias.name) for alias in node.names)
            elif node.level == 0:
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
            imported = [alias.name for alias in node.names]
            names.update(_modules_of_import(_source_of(node, package), imported))
    return names


def _modules_of_import(source: str, imported: list[str]) -> Iterator[str]:
    """Yield what `from source import imported` reads.

    These are modules of the package `source`, modules from which the package takes a name, or
    `source` itself.
    """
    if not _is_package_of_project(source):
        yield source
        return
    for name in imported:
        submodule = f"{source}.{name}"
        if _file_of(submodule) is not None:
            yield submodule
        else:
            yield from _modules_of_name(source, name)


def _modules_of_name(package: str, name: str) -> Iterator[str]:
    """Yield the module from which a package imports a name, or the package if it does not."""
    for node in _import_statements(_parse(_file_of(package))):
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            if name == (alias.asname or alias.name):
                yield from _modules_of_import(_source_of(node, package), [alias.name])
                return
    yield package


def _source_of(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module or package in `from source import ...`."""
    return resolve_name("." * node.level + (node.module or ""), package)


def _is_package_of_project(module: str) -> bool:
    """Return whether a module may have others below it.

    Looking for them imports it, but nothing else.
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
    """Return the Python file of a module.

    None if there is no such module, or if it is not written in Python.
    """
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        origin = _origin_on_disk(module)
    if origin is None or not origin.endswith(".py"):
        return None
    return Path(origin)


def _origin_on_disk(module: str) -> str | None:
    try:
        spec = find_spec(module)
    # A class that was made in a notebook has a module without a file.
    except (ModuleNotFoundError, ValueError):
        return None
    if spec is None:
        return None
    return spec.origin
