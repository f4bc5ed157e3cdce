"""Expansion of `FOLDER/*` in the navigation of `mkdocs.yml`."""

from typing import Any

from mkdocs.structure.files import Files

PAGE_SUFFIXES = (".md", ".ipynb")


def expand(entries: list[Any], files: Files) -> list[Any]:
    """Return the navigation with every `FOLDER/*` replaced by the pages not listed by name.

    A listed page that does not exist stays, so that mkdocs warns of it and a strict build fails.
    """
    uris = sorted(file.src_uri for file in files if file.src_uri.endswith(PAGE_SUFFIXES))
    listed = set(_listed_pages(entries))
    return _expand_entries(entries, uris, listed)


def _expand_entries(entries: list[Any], uris: list[str], listed: set[str]) -> list[Any]:
    expanded = []
    for entry in entries:
        if isinstance(entry, str):
            expanded += _expand_page(entry, uris, listed)
            continue
        ((title, value),) = entry.items()
        if isinstance(value, list):
            expanded.append({title: _expand_entries(value, uris, listed)})
        else:
            for uri in _expand_page(value, uris, listed):
                expanded.append({title: uri})
    return expanded


def _expand_page(pattern: str, uris: list[str], listed: set[str]) -> list[str]:
    if not pattern.endswith("/*"):
        return [pattern]
    folder = pattern.removesuffix("*")
    return [uri for uri in uris if _is_in(uri, folder) and uri not in listed]


def _is_in(uri: str, folder: str) -> bool:
    """Whether a page is in a folder itself, not in one below it."""
    return uri.startswith(folder) and "/" not in uri.removeprefix(folder)


def _listed_pages(entries: list[Any]) -> list[str]:
    pages = []
    for entry in entries:
        value = entry
        if isinstance(entry, dict):
            (value,) = entry.values()
        if isinstance(value, list):
            pages += _listed_pages(value)
        else:
            pages.append(value)
    return pages
