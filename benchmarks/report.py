"""Make the pages of `docs/results/` from the files of `benchmarks/results/`.

    python -m benchmarks.report              # write the pages, README's table and the figure
    python -m benchmarks.report --check      # exit with 1 if one differs from its regeneration

Each page is a template in `benchmarks/pages/`. Tables and most numbers come from the files of
measurements; conclusions are prose. The last line of a page names its files and the day on which
its conclusions were last compared with them:

    {{ sources("2026-11-30") }}

Making a page fails if one of its measurements is newer: read the conclusions again then.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks import claims_page
from benchmarks.quality_figure import draw_quality_and_speed
from benchmarks.tables import (
    LARGEST,
    SMALLEST,
    Measure,
    ReportError,
    SystemSummary,
    all_best,
    count,
    fixed,
    gibibytes,
    markdown_table,
    mean_and_deviation,
    measure_table,
    rounded_count,
    scientific,
    share,
    signed,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TEMPLATES = ROOT / "benchmarks" / "pages"
PAGES = ROOT / "docs" / "results"
RESULTS_LINK = "../../benchmarks/results"  # from a page
README = ROOT / "README.md"
README_TEMPLATE = "_readme.md.jinja"
# The lines of README.md around the table of models.
README_BLOCK = re.compile(r"(?<=<!-- models -->\n).*?(?=\n<!-- end of models -->)", re.DOTALL)
FIGURE = ROOT / "docs" / "figures" / "quality_speed.png"
# The measurements of the summary, of README's table and of the figure.
TEST_DATA = "test_data"
EMPTY_LINES = re.compile(r"\n{3,}")
# The mean scores of the single runs behind each packaged model, which the summary leaves out.
SINGLE_RUNS = ("default-run", "accurate-run")
# The systems of the test data and of the development data, in the order of their rows.
SYSTEM_TITLES = (
    ("TF-IDF", "TF-IDF of characters"),
    ("StaticEmbedding", "`StaticEmbedding`, ours (from scratch, 8 minutes)"),
    ("default", "`default`"),
    ("small", "`small`"),
    ("tmde", "`tmde`"),
    ("hybrid", "`hybrid`"),
    ("adapted", "`adapted`"),
    ("accurate", "`accurate`"),
    ("e5-small", "multilingual-e5-small"),
    ("USE", "universal-sentence-encoder-multilingual 3"),
    ("MiniLM", "all-MiniLM-L6-v2 (English)"),
)


# ---- Measurements


class Measurements:
    """The files of measurements of a page.

    Args:
        folder: The folder of the JSON files.

    Attributes:
        used: The names of the files that the page has read.
        newest: The latest date of these, "2026-11-30"; "" if none has a date.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.used: set[str] = set()
        self.newest = ""

    def load(self, name: str) -> Any:
        """Return the content of a file."""
        self.used.add(name)
        path = self.folder / f"{name}.json"
        if not path.exists():
            raise ReportError(f"{path} does not exist; a page needs it")
        content = json.loads(path.read_text(encoding="utf-8"))
        day, _, _ = content.get("date", "").partition("T")
        self.newest = max(self.newest, day)
        return content

    def sources(self, day: str, *names: str) -> str:
        """Return the line that names the measurements of a page.

        Args:
            day: The day on which the conclusions of the page were last compared with its
                measurements, "2026-11-30".
            names: Files that the page quotes or links without a table.

        Raises:
            ReportError: A file of the page is newer.
        """
        for name in names:
            self.load(name)
        if day < self.newest:
            raise ReportError(
                f"the conclusions are of {day} and the measurements of {self.newest}: read them "
                "again, and change the date"
            )
        links = []
        for name in sorted(self.used):
            links.append(f"[{name}.json]({RESULTS_LINK}/{name}.json)")
        return f"Measurements: {', '.join(links)}. The conclusions were last checked on {day}."

    def by_system(self, name: str) -> dict[str, dict[str, Measure]]:
        """Return the measures of each system of a file whose `results` are a list of systems."""
        systems = {}
        for result in self.load(name)["results"]:
            measures = {}
            for title, numbers in result["measures"].items():
                measures[title] = Measure.of(numbers)
            systems[result["system"]] = measures
        return systems

    def summary(self) -> dict[str, SystemSummary]:
        """Return size, speed and quality of each system on the test data."""
        measures_of = self.by_system(TEST_DATA)
        summaries = {}
        for result in self.load(TEST_DATA)["results"]:
            system = result["system"]
            if system in SINGLE_RUNS:
                continue
            size = result.get("megabytes")
            speed = result.get("texts_per_second")
            summaries[system] = SystemSummary(system, size, speed, measures_of[system])
        return summaries

    def compared(self, name: str) -> dict[str, dict[str, Measure]]:
        """Return means over the seeds in % of the systems of a `tmde compare` file.

        The spread of a system with several seeds is one standard deviation; a system with one seed
        has none.
        """
        systems = {}
        for system, values in self.load(name)["means and standard deviations"].items():
            measures = {}
            for title, numbers in values.items():
                mean = 100 * numbers[0]
                if len(numbers) == 1:
                    measures[title] = Measure(mean)
                    continue
                deviation = 100 * numbers[1]
                measures[title] = Measure(mean, mean - deviation, mean + deviation)
            systems[system] = measures
        return systems


# ---- Pages


def make_environment(measurements: Measurements, templates: Path = TEMPLATES) -> Environment:
    """Return the environment in which templates become pages."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        extensions=["jinja2.ext.do"],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals |= {
        "load": measurements.load,
        "sources": measurements.sources,
        "by_system": measurements.by_system,
        "compared": measurements.compared,
        "summary": measurements.summary,
        "table": markdown_table,
        "measure_table": measure_table,
        "all_best": all_best,
        "measure": Measure.of,
        "claims_page": claims_page,
        "LARGEST": LARGEST,
        "SMALLEST": SMALLEST,
        "SYSTEM_TITLES": SYSTEM_TITLES,
    }
    functions = (
        share,
        fixed,
        signed,
        count,
        rounded_count,
        scientific,
        mean_and_deviation,
        gibibytes,
    )
    for function in functions:
        environment.filters[function.__name__] = unless_unknown(function)
    return environment


def unless_unknown(function: Callable[..., str]) -> Callable[..., str | None]:
    """Return a function that writes numbers, as a filter that leaves out unknown ones."""

    def filter(number: float | None, *arguments: int) -> str | None:
        return None if number is None else function(number, *arguments)

    return filter


def make_pages(folder: Path = RESULTS, templates: Path = TEMPLATES) -> dict[str, str]:
    """Return the text of every page by its name.

    Raises:
        ReportError: Conclusions are older than their measurements, or no page uses a file.
    """
    used: set[str] = set()
    pages = {}
    for path in sorted(templates.glob("*.md.jinja")):
        name = path.name.removesuffix(".md.jinja")
        if name.startswith("_"):
            continue
        measurements = Measurements(folder)
        environment = make_environment(measurements, templates)
        try:
            text = environment.get_template(path.name).render()
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from error
        pages[name] = EMPTY_LINES.sub("\n\n", text.lstrip())
        used |= measurements.used
    unused = {path.stem for path in folder.glob("*.json")} - used
    if unused:
        raise ReportError(
            f"no page uses {', '.join(sorted(unused))} of {folder}; add a template to {templates}, "
            "or delete the file"
        )
    return pages


def make_readme(readme: str, folder: Path = RESULTS, templates: Path = TEMPLATES) -> str:
    """Return README.md with the table of models that the measurements give.

    Args:
        readme: The text of README.md.
        folder: The folder of the measurements.
        templates: The folder of the templates.

    Raises:
        ReportError: The text has no place for the table.
    """
    environment = make_environment(Measurements(folder), templates)
    table = environment.get_template(README_TEMPLATE).render().strip()
    made, replaced = README_BLOCK.subn(lambda _: table, readme)
    if replaced != 1:
        raise ReportError(f"README.md has {replaced} places for the table of models, expected 1")
    return made


# ---- The command


def differing_pages(pages: Mapping[str, str], folder: Path) -> list[str]:
    """Return the names of the pages that differ from their files, and of files without a page."""
    names = {path.stem for path in folder.glob("*.md")} | set(pages)
    differing = []
    for name in sorted(names):
        path = folder / f"{name}.md"
        written = path.read_text(encoding="utf-8") if path.exists() else None
        if written != pages.get(name):
            differing.append(name)
    return differing


def write_pages(pages: Mapping[str, str], folder: Path) -> None:
    """Write the pages, and delete those that no template makes any more."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if needed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of measurements")
    parser.add_argument("--output", type=Path, default=PAGES, help="folder of the pages")
    parser.add_argument("--readme", type=Path, default=README, help="page with the table of models")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="file of the figure")
    options = parser.parse_args(arguments)
    readme = options.readme.read_text(encoding="utf-8")
    try:
        pages = make_pages(options.results)
        made_readme = make_readme(readme, options.results)
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.check:
        differing = differing_pages(pages, options.output)
        for name in differing:
            path = options.output / f"{name}.md"
            print(f"{path} differs; run python -m benchmarks.report")
        if made_readme != readme:
            print(f"{options.readme} differs; run python -m benchmarks.report")
        return 1 if differing or made_readme != readme else 0
    write_pages(pages, options.output)
    options.readme.write_text(made_readme, encoding="utf-8")
    summary = Measurements(options.results).summary()
    systems = [summary[name] for name, _ in SYSTEM_TITLES if name in summary]
    draw_quality_and_speed(systems, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
