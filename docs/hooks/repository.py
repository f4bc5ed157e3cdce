"""Pages from files outside `docs/`, and links to files that are no pages.

The same Markdown works on GitHub, where a link names a file, and on the site, where it leads to a
page or, if the file is none, to the repository.
"""

import logging
import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.structure.files import File, Files

logger = logging.getLogger("mkdocs.hooks.repository")

# Files of the repository by the page that shows them.
PAGES = {
    "project/benchmarks.md": "benchmarks/README.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/packaged-model.md": "embedding/default/README.md",
    "project/packaged-model-tmde.md": "embedding/tmde/README.md",
    "project/packaged-model-accurate.md": "embedding/accurate/README.md",
    "project/security.md": "SECURITY.md",
}
FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
# The target of `[text](target)` and `![text](target)`, or a span of code, which is left alone.
LINK = re.compile(r"(?P<code>`+)(?:.+?)(?P=code)|(?P<before>\]\()(?P<target>[^)\s]+)(?P<after>\))")
HTML_LINK = re.compile(r'(?P<before>\b(?:href|src)=")(?P<target>[^"]+)(?P<after>")')


def extra_pages(root: Path) -> dict[str, Path]:
    """Return the Markdown outside `docs/` that becomes pages, by the name of the page."""
    pages = {}
    for name, source in PAGES.items():
        if (root / source).exists():
            pages[name] = root / source
    return pages


def notebooks(root: Path) -> list[str]:
    """Return the names of the notebooks, which are also those of their pages."""
    paths = sorted((root / "examples").glob("*.ipynb"))
    return [path.relative_to(root).as_posix() for path in paths]


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Apply a function to the text between the blocks of code."""
    parts = []
    end = 0
    for fence in FENCE.finditer(markdown):
        parts.append(change(markdown[end : fence.start()]))
        parts.append(fence[0])
        end = fence.end()
    parts.append(change(markdown[end:]))
    return "".join(parts)


def rewrite_links(markdown: str, file: File, files: Files, root: Path, repo_url: str) -> str:
    """Return the Markdown of a page with its links to files made links of the site."""

    def rewrite(match: re.Match[str]) -> str:
        if match["target"] is None:
            return match[0]
        target = page_target(match["target"], file, files, root, repo_url)
        return match["before"] + target + match["after"]

    return outside_fences(markdown, lambda text: LINK.sub(rewrite, text))


def rewrite_html_links(html: str, file: File, files: Files, root: Path, repo_url: str) -> str:
    """Do the same in the HTML of a notebook, where pages have their final names."""

    def rewrite(match: re.Match[str]) -> str:
        target = page_target(match["target"], file, files, root, repo_url)
        path, mark, anchor = target.partition("#")
        if not is_relative(target) or not path.endswith((".md", ".ipynb")):
            return match["before"] + target + match["after"]
        uri = posixpath.normpath(posixpath.join(posixpath.dirname(file.src_uri), path))
        page = files.get_file_from_path(uri)
        if page is None:
            # mkdocs checks the links of Markdown only, and a warning fails a strict build.
            logger.warning("%s: links to %r, which is no file or page", file.src_uri, target)
            return match[0]
        return match["before"] + page.url_relative_to(file) + mark + anchor + match["after"]

    return HTML_LINK.sub(rewrite, html)


def is_relative(target: str) -> bool:
    """Whether a link names a file rather than a host, an anchor or data."""
    return not re.match(r"[a-z][a-z0-9+.-]*:|#|/", target)


def page_target(target: str, file: File, files: Files, root: Path, repo_url: str) -> str:
    """Return what a link of the site must say to reach what a link of the repository names."""
    path, mark, anchor = target.partition("#")
    if not is_relative(target) or not path:
        return target
    source = Path(os.path.normpath(Path(_source_path(file, root)).parent / path))
    if not source.is_relative_to(root) or not source.exists():
        return target  # mkdocs warns of it, or knows it as a page that was made.
    page = _page_of(source, files, root)
    if page is None:
        kind = "tree" if source.is_dir() else "blob"
        name = source.relative_to(root).as_posix()
        return f"{repo_url.rstrip('/')}/{kind}/main/{name}{mark}{anchor}"
    return posixpath.relpath(page, posixpath.dirname(file.src_uri) or ".") + mark + anchor


def _source_path(file: File, root: Path) -> Path:
    """Return the place of a page in the repository."""
    if file.abs_src_path is not None:
        return Path(file.abs_src_path)
    return root / "docs" / file.src_uri


def _page_of(source: Path, files: Files, root: Path) -> str | None:
    """Return the name of the page or picture on the site that shows a file."""
    for name, path in extra_pages(root).items():
        if path == source:
            return name
    name = source.relative_to(root).as_posix()
    if name in notebooks(root):
        return name
    docs = root / "docs"
    if source.is_relative_to(docs):
        name = source.relative_to(docs).as_posix()
        file = files.get_file_from_path(name)
        if file is not None and not file.inclusion.is_excluded():
            return name
    return None
