r"""How often a title or a heading finds its page, with a vector for each passage or for the whole.

    python benchmarks/passages.py fastapi/docs/en/docs --translation fastapi/docs/de/docs \
        --json benchmarks/results/passages.json

The pages are Markdown, here those of https://github.com/fastapi/fastapi. Pages that have a
translation are indexed as by `tmde index`. Queries are the titles of the pages and of their
translations, and 300 headings of each that only one page has. P@1 is the share of queries whose
page is the first hit.
"""

import random
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from common import in_percent, markdown, write_json

from tmde.documents import DocumentIndex, index_files
from tmde.documents.passages import split_passages

MOST_HEADINGS = 300

Queries = dict[str, str]  # a title or heading, and the name of its page


def page_names(folder: Path) -> set[str]:
    """Return the names of the pages of a folder, without `.md`."""
    return {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.md")}


def read_queries(folder: Path, names: list[str]) -> dict[str, Queries]:
    """Return the titles and the headings that only one of some pages has."""
    pages_of: dict[str, dict[str, set[str]]] = {"title": {}, "heading": {}}
    for name in names:
        for passage in split_passages((folder / f"{name}.md").read_text("utf-8")):
            for depth, heading in enumerate(passage.path):
                kind = "heading" if depth else "title"
                pages_of[kind].setdefault(heading, set()).add(name)
    queries: dict[str, Queries] = {"title": {}, "heading": {}}
    for kind, names_of in pages_of.items():
        for heading, names_with_it in names_of.items():
            if len(names_with_it) == 1:
                queries[kind][heading] = min(names_with_it)
    headings = sorted(queries["heading"])
    random.Random(0).shuffle(headings)
    chosen = headings[:MOST_HEADINGS]
    queries["heading"] = {heading: queries["heading"][heading] for heading in chosen}
    return queries


def measure(
    pages: Path, names: list[str], folders: dict[str, Path], model: str, passages: bool
) -> dict[str, Any]:
    """Return P@1 in % with intervals, by language and kind of query."""
    precisions = {}
    with tempfile.TemporaryDirectory() as work:
        copied = Path(work) / "pages"
        for name in names:
            target = copied / f"{name}.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(pages / f"{name}.md", target)
        folder = Path(work) / "index"
        index_files(copied, folder, model=model, passages=passages)
        index = DocumentIndex.open(folder)
        for language, translated in folders.items():
            for kind, queries in read_queries(translated, names).items():
                hits = index.search(list(queries), k=1, snippet_width=0)
                outcomes = []
                for first, name in zip(hits, queries.values(), strict=True):
                    outcomes.append(first[0].id.endswith(f"pages/{name}"))
                precisions[f"{language} {kind}"] = in_percent(outcomes)
    return precisions


def main(
    pages: Annotated[Path, typer.Argument(help="Folder of the pages, DOCS/LANGUAGE/docs.")],
    translation: Annotated[list[Path], typer.Option(help="Folder of translations. Repeatable.")],
    model: Annotated[list[str] | None, typer.Option(help="Repeatable.")] = None,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure whole documents and passages."""
    folders = {folder.parent.name: folder for folder in [pages, *translation]}
    names = sorted(set.intersection(*map(page_names, folders.values())))
    results = []
    for name in model or ["default", "accurate"]:
        for passages in (False, True):
            vectors = "passages" if passages else "whole documents"
            precisions = measure(pages, names, folders, name, passages)
            results.append({"model": name, "vectors": vectors, **precisions})
            means = {query: interval[0] for query, interval in precisions.items()}
            print(markdown([{"model": name, "vectors": vectors, **means}]), flush=True)
    write_json(json, "passages", {"pages": len(names), "headings": MOST_HEADINGS}, results)


if __name__ == "__main__":
    typer.run(main)
