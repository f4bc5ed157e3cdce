"""Make the pages of `docs/results/` from the files of `benchmarks/results/`.

    python -m benchmarks.report              # write the pages, README's table and the figure
    python -m benchmarks.report --check      # exit with 1 if one differs from its regeneration

Each page is a template in `benchmarks/pages/`. A template takes its numbers from the files of
measurements, and states what it concludes from them in a tag:

    {% claim peers["hybrid"]["SIB-200 Cross"].value > peers["default"]["SIB-200 Cross"].value %}

If new measurements contradict the condition, making the page fails with the name of the template,
the line and the condition. The sentence beside the tag then has to be rewritten.
"""

import argparse
import json
import math
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from tmde.eval.statistics import holm
from tmde.papers import verdicts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TEMPLATES = ROOT / "benchmarks" / "pages"
PAGES = ROOT / "docs" / "results"
# Pages that lie one folder above the others.
PAGES_ABOVE = ("claims",)
README = ROOT / "README.md"
README_TEMPLATE = "_readme.md.jinja"
# The lines of README.md between which the table of models stands.
README_BLOCK = re.compile(r"(?<=<!-- models -->\n).*?(?=\n<!-- end of models -->)", re.DOTALL)
FIGURE = ROOT / "docs" / "figures" / "quality_speed.png"
# The measurements of the summary, of README's table and of the figure.
TEST_DATA = "test_data"
CODE_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# A list, a picture or a heading also begins a block where no empty line is before it.
END_OF_BLOCK = re.compile(r"\n\s*\n|\n(?=- |!\[|#{1,6} )")
# A space at which a narrow table does not break a value from its margin.
NO_BREAK = "\u00a0"
# The runs of the packaged models one by one, which stand on the page of test data alone.
SINGLE_RUNS = ("default-run", "accurate-run")
# The systems of the comparison with peers and of the test data, in the order of their rows.
SYSTEM_TITLES = (
    ("TF-IDF", "TF-IDF of characters"),
    ("StaticEmbedding", "`StaticEmbedding`"),
    ("default", "`default`"),
    ("default-run", "`default`, of one run (mean ± deviation)"),
    ("small", "`small`"),
    ("hybrid", "`hybrid`"),
    ("adapted", "`adapted`"),
    ("accurate", "`accurate`"),
    ("accurate-run", "`accurate`, of one run (mean ± deviation)"),
    ("e5-small", "multilingual-e5-small"),
    ("USE", "universal-sentence-encoder-multilingual 3"),
    ("MiniLM", "all-MiniLM-L6-v2 (English)"),
)
# Systems of this package, which the figure shows in color.
OUR_SYSTEMS = ("default", "small", "hybrid", "adapted", "accurate")
OUR_COLOR = "#1f5fa8"
OTHER_COLOR = "#757575"
FRONT_COLOR = "#b9c9de"
SPEED_TICKS = (10, 100, 1000, 10_000)
LEAST_SENTENCES = 50.0  # Systems that find fewer translations than this, in %, are not drawn.
# The best value of a column is bold, and so is every value that is printed with the same digits.
LARGEST = "largest"
SMALLEST = "smallest"
# The units of the measures of claims; others are counts.
SHARE = "share"
RATIO = "ratio"
# What ± is: a 95 % interval over test items, or one standard deviation over seeds.
INTERVAL = "95 % interval"
DEVIATION = "standard deviation"


class ReportError(ValueError):
    """A page cannot be made, or is not what the measurements say."""


# ---- Values


@dataclass(frozen=True)
class Measure:
    """A measured value and its spread.

    Args:
        value: The value.
        low: The lower bound of the spread; None if it is unknown.
        high: The upper bound of the spread; None if it is unknown.
        spread: The kind of the spread: `INTERVAL` or `DEVIATION`.
    """

    value: float
    low: float | None = None
    high: float | None = None
    spread: str = INTERVAL

    @classmethod
    def of(cls, numbers: Sequence[float], scale: float = 1.0, spread: str = INTERVAL) -> "Measure":
        """Return the measure of a list `[value]` or `[value, low, high]`, times `scale`."""
        scaled = [scale * number for number in numbers]
        if len(scaled) not in (1, 3):
            raise ReportError(f"a measure has 1 or 3 numbers (value, low, high), found {numbers}")
        return cls(*scaled, spread=spread)

    @property
    def margin(self) -> float:
        """The larger distance of the value to a bound of its spread."""
        if self.low is None or self.high is None:
            return 0.0
        return max(self.value - self.low, self.high - self.value)

    def above(self, other: "Measure") -> bool:
        """Return whether the whole spread lies above that of the other measure.

        Raises:
            ReportError: A measure has no spread, or the two spreads are of different kinds.
        """
        if self.low is None or other.high is None:
            raise ReportError("both measures need an interval to be told apart")
        if self.spread != other.spread:
            raise ReportError(
                f"cannot compare a measure with a {self.spread} and one with a {other.spread}; "
                "compare their values, or measure both in the same way"
            )
        return self.low > other.high

    def text(self, digits: int) -> str:
        """Return the value with so many decimals, and the margin behind it."""
        if self.low is None:
            return f"{self.value:.{digits}f}"
        return f"{self.value:.{digits}f} ± {self.margin:.{digits}f}"

    def __str__(self) -> str:
        return self.text(supported_digits([self]))


def supported_digits(measures: Sequence[Measure]) -> int:
    """Return the number of decimals that the intervals of a column support.

    It is 0 if all margins are 1.5 or more, and 1 otherwise.
    """
    return 0 if all(measure.margin >= 1.5 for measure in measures) else 1


def share(number: float) -> str:
    """Return a share as percent with one decimal: 0.714 gives 71.4."""
    return f"{100 * number:.1f}"


def fixed(number: float, digits: int = 1) -> str:
    """Return a number with so many decimals."""
    return f"{number:.{digits}f}"


def signed(number: float, digits: int = 1) -> str:
    """Return a number with its sign and so many decimals."""
    return f"{number:+.{digits}f}"


def count(number: float) -> str:
    """Return a whole number with separators of thousands."""
    return f"{number:,.0f}"


def rounded_count(number: float, digits: int = 2) -> str:
    """Return a number with its first digits alone, for measurements that scatter: 12,000."""
    return f"{float(f'{number:.{digits - 1}e}'):,.0f}"


def scientific(number: float) -> str:
    """Return a small number with one digit, such as 3e-07; 0 if it is exactly 0."""
    return "0" if number == 0 else f"{number:.0e}".replace("e-0", "e-")


def gibibytes(number: float) -> str:
    """Return bytes as GiB with one decimal."""
    return f"{number / 2**30:.1f}"


def p_text(p: float) -> str:
    """Return a p-value with two digits that count, and a very small one as a bound."""
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def seed_values(values: Mapping[str, float], unit: str) -> str:
    """Return the mean of the values of all seeds, and their number.

    Args:
        values: The values by seed; none if no seed is measured.
        unit: `share`, which becomes %, `count` or `ratio`.
    """
    if not values:
        return verdicts.NOT_RUN
    mean = fmean(values.values())
    seeds = "1 seed" if len(values) == 1 else f"{len(values)} seeds"
    if unit == SHARE:
        number = share(mean)
    elif mean < 100:
        number = f"{mean:.3g}"
    else:
        number = rounded_count(mean, 3)
    return f"{number} ({seeds})"


def seed_difference(measure: Mapping[str, Any]) -> str:
    """Return the difference of a measure of a claim with its 95 % interval, in its unit.

    Shares are in points. A ratio is stored as the difference of logarithms.
    """
    difference = measure["difference"]
    if difference is None:
        return ""
    numbers = [difference["mean"], difference["low"], difference["high"]]
    if measure["unit"] == SHARE:
        mean, low, high = [signed(100 * number) for number in numbers]
    elif measure["unit"] == RATIO:
        mean, low, high = [f"× {math.exp(number):.2f}" for number in numbers]
    else:
        mean, low, high = [signed(number) for number in numbers]
    return f"{mean} ({low} to {high})"


def smallest_told(measure: Mapping[str, Any], claims: int) -> str:
    """Return the smallest difference of a measure of a claim that could be told, in its unit.

    It is "" if a share would have to differ by 100 points or more.

    Args:
        measure: The measure with its difference.
        claims: The number of claims that are corrected together.
    """
    fields = dict(measure["difference"])
    told = verdicts.smallest_told(verdicts.SeedDifference(**fields), claims)
    if measure["unit"] == SHARE:
        return f"{fixed(100 * told, 1)} points" if told < 1 else ""
    if measure["unit"] == RATIO:
        return f"a factor of {math.exp(told):.2f}"
    return fixed(told, 1)


def early_checkpoints(system: str, results: Mapping[str, Any]) -> str:
    """Return a sentence on the reported checkpoints of a system; "" if they are the last ones.

    Args:
        system: The id of the system.
        results: The content of `claims.json`.
    """
    of_seeds = results["systems"][system]["seeds"].values()
    is_early = any(seed["best_step"] != seed["steps"] for seed in of_seeds)
    if not is_early:
        return ""
    checkpoints = [f"{seed['best_step']} of {seed['steps']}" for seed in of_seeds]
    title = results["titles"].get(system, system)
    if len(set(checkpoints)) == 1:
        return f"Of {title}, the checkpoint after {checkpoints[0]} steps is reported."
    listed = ", ".join(checkpoints[:-1])
    return f"Of {title}, the checkpoints after {listed} and {checkpoints[-1]} steps are reported."


# ---- Tables


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], best: Mapping[int, str] | None = None
) -> str:
    """Return a Markdown table; numbers stand at the right, and the best of a column is bold.

    Args:
        header: The titles of the columns.
        rows: The cells: texts, numbers that are printed as they are, `Measure`s, or None.
        best: `LARGEST` or `SMALLEST` for the columns, by number, whose best value is bold.
    """
    columns = [column_texts(cells) for cells in zip(*rows, strict=True)]
    for column, kind in (best or {}).items():
        for place in best_rows([row[column] for row in rows], columns[column], kind):
            columns[column][place] = f"**{columns[column][place]}**"
    texts = list(zip(*columns, strict=True))
    rule = ["---"]
    for column in list(zip(*rows, strict=True))[1:]:
        has_number = any(number_of(cell) is not None for cell in column)
        rule.append("--:" if has_number else "---")
    lines = [header, rule, *texts]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def column_texts(cells: Sequence[object]) -> list[str]:
    """Return the texts of the cells of a column, whose measures have equally many decimals."""
    digits = supported_digits([cell for cell in cells if isinstance(cell, Measure)])
    texts = []
    for cell in cells:
        if cell is None:
            texts.append("")
        elif isinstance(cell, Measure):
            texts.append(cell.text(digits).replace(" ", NO_BREAK))
        else:
            texts.append(str(cell))
    return texts


def best_rows(cells: Sequence[object], texts: Sequence[str], kind: str) -> list[int]:
    """Return the numbers of the rows whose value is printed as the best one."""
    numbers = {place: number_of(cell) for place, cell in enumerate(cells)}
    known = {place: number for place, number in numbers.items() if number is not None}
    if not known:
        return []
    choose = max if kind == LARGEST else min
    best = choose(known, key=lambda place: known[place])
    printed = texts[best].split(NO_BREAK)[0]
    return [place for place in known if texts[place].split(NO_BREAK)[0] == printed]


def number_of(cell: object) -> float | None:
    """Return the number of a cell, None if it has none."""
    if cell is None:
        return None
    if isinstance(cell, Measure):
        return cell.value
    try:
        return float(str(cell).split(" ")[0].replace(",", ""))
    except ValueError:
        return None


def measure_table(
    systems: Mapping[str, Mapping[str, object]],
    rows: Sequence[tuple[str, str]],
    columns: Sequence[tuple[str, str]],
    kind: str | None = LARGEST,
) -> str:
    """Return a table with a system a row and a measure a column.

    Args:
        systems: The measures by system and name of the measure.
        rows: Names of systems and their titles; systems without measures are left out.
        columns: Names of measures and their titles.
        kind: Which value of a column is bold; None for no bold value.
    """
    cells = []
    for system, title in rows:
        if system in systems:
            values = [systems[system].get(measure) for measure, _ in columns]
            cells.append([title, *values])
    header = ["", *(title for _, title in columns)]
    best = None if kind is None else all_best(len(header), kind)
    return markdown_table(header, cells, best)


def rank(systems: Mapping[str, Mapping[str, Measure]], measure: str) -> list[str]:
    """Return the names of the systems that have a measure, the one of the largest value first."""
    named = [name for name, measures in systems.items() if measure in measures]
    return sorted(named, key=lambda name: systems[name][measure].value, reverse=True)


def all_best(columns: int, kind: str = LARGEST, first: int = 1) -> dict[int, str]:
    """Return `best` of `markdown_table` for all columns from the first one on."""
    return dict.fromkeys(range(first, columns), kind)


# ---- Measurements


@dataclass(frozen=True)
class SystemSummary:
    """What the summary says of a system.

    Attributes:
        name: Its name.
        megabytes: The size of its weights and tokenizer; None if it has none.
        texts_per_second: Its speed on one core; None if it was not measured.
        measures: Its quality in %, by name.
    """

    name: str
    megabytes: float | None
    texts_per_second: float | None
    measures: Mapping[str, Measure]


class Measurements:
    """The files of measurements, and which of them were read.

    Args:
        folder: The folder of the JSON files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.used: set[str] = set()

    def load(self, name: str) -> Any:
        """Return the content of a file."""
        self.used.add(name)
        path = self.folder / f"{name}.json"
        if not path.exists():
            raise ReportError(f"{path} does not exist; a page needs it")
        return json.loads(path.read_text(encoding="utf-8"))

    def by_system(self, name: str) -> dict[str, dict[str, Measure]]:
        """Return the measures of each system of a file whose `results` are a list of systems.

        The `spread` of a result says what the bounds of its measures are: by default, intervals.
        """
        systems = {}
        for result in self.load(name)["results"]:
            measures = {}
            for title, numbers in result["measures"].items():
                measures[title] = Measure.of(numbers, spread=result.get("spread", INTERVAL))
            systems[result["system"]] = measures
        return systems

    def summary(self) -> dict[str, "SystemSummary"]:
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
                low = mean - deviation
                high = mean + deviation
                measures[title] = Measure(mean, low, high, DEVIATION)
            systems[system] = measures
        return systems


# ---- Claims


class ClaimExtension(Extension):
    """The tag `{% claim CONDITION %}`, which prints nothing and fails if the condition is false."""

    tags: ClassVar[set[str]] = {"claim"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the node of one tag."""
        line = next(parser.stream).lineno
        condition = parser.parse_expression()
        arguments = [condition, nodes.Const(line), nodes.Const(parser.name)]
        return nodes.Output([self.call_method("check", arguments)]).set_lineno(line)

    def check(self, condition: object, line: int, template: str) -> str:
        """Return an empty text, or raise an error that quotes the condition."""
        if condition:
            return ""
        source, _, _ = self.environment.loader.get_source(self.environment, template)
        text = source.splitlines()[line - 1].strip()
        raise ReportError(
            f"{template}, line {line}: the measurements contradict {text}; rewrite the finding "
            "beside it"
        )


# ---- Pages


def make_environment(measurements: Measurements, templates: Path = TEMPLATES) -> Environment:
    """Return the environment in which templates become pages."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        extensions=[ClaimExtension, "jinja2.ext.do"],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals |= {
        "load": measurements.load,
        "by_system": measurements.by_system,
        "compared": measurements.compared,
        "summary": measurements.summary,
        "table": markdown_table,
        "measure_table": measure_table,
        "all_best": all_best,
        "rank": rank,
        "holm": holm,
        "measure": Measure.of,
        "LARGEST": LARGEST,
        "SMALLEST": SMALLEST,
        "SYSTEM_TITLES": SYSTEM_TITLES,
        "HOLDS": verdicts.HOLDS,
        "DOES_NOT_HOLD": verdicts.DOES_NOT_HOLD,
        "CANNOT_BE_TOLD": verdicts.CANNOT_BE_TOLD,
        "NOT_RUN": verdicts.NOT_RUN,
        "NOT_TESTED": verdicts.NOT_TESTED,
    }
    for function in (
        share,
        fixed,
        signed,
        count,
        rounded_count,
        scientific,
        gibibytes,
        p_text,
        seed_values,
        seed_difference,
        early_checkpoints,
        smallest_told,
    ):
        environment.filters[function.__name__] = function
    environment.filters["mean"] = fmean
    return environment


def make_pages(folder: Path = RESULTS, templates: Path = TEMPLATES) -> dict[str, str]:
    """Return the text of every page by its name.

    Raises:
        ReportError: If a finding is contradicted, or a file of measurements is used by no page.
    """
    measurements = Measurements(folder)
    environment = make_environment(measurements, templates)
    pages = {}
    for path in sorted(templates.glob("*.md.jinja")):
        name = path.name.removesuffix(".md.jinja")
        if name.startswith("_"):
            continue
        text = environment.get_template(path.name).render()
        pages[name] = tidy(text)
    unused = {path.stem for path in folder.glob("*.json")} - measurements.used
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


def tidy(text: str) -> str:
    """Return the text of a page with one empty line between blocks and wrapped paragraphs."""
    blocks = []
    for piece in CODE_BLOCK.split(text):
        if piece.startswith("```"):
            blocks.append(piece)
            continue
        for block in END_OF_BLOCK.split(piece):
            if block.strip():
                blocks.append(wrap(block.strip()))
    return join_blocks(blocks)


def wrap(text: str) -> str:
    """Return a paragraph, or an item of a list, in lines of 100 columns."""
    if text.startswith(("#", "<!--", "![", "|")):
        return text
    one_line = " ".join(text.split())
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        one_line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def join_blocks(blocks: Sequence[str]) -> str:
    """Return blocks with an empty line between them, and none between items of a list."""
    text = ""
    previous = ""
    for block in blocks:
        if text:
            text += "\n" if previous.startswith("- ") and block.startswith("- ") else "\n\n"
        text += block
        previous = block
    return text + "\n"


# ---- The figure


def draw_quality_and_speed(systems: Sequence[SystemSummary], path: Path) -> None:
    """Draw the quality of each system against its speed, and the Pareto front.

    Args:
        systems: The systems. Those whose speed is not known, and those that hardly find
            translations, are left out.
        path: The file, PNG or SVG. Its folder must exist.
    """
    # matplotlib takes a second to import, and only the figure needs it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "sentences": "finds the translation of a sentence, %",
        "questions_across": "finds the answer in another language, %",
        "similarity_across": "similarity across languages (Spearman x 100)",
    }
    settings = {"font.size": 13, "svg.hashsalt": "tmde", "figure.facecolor": "white"}
    with pyplot.rc_context(settings):
        figure, panels = pyplot.subplots(1, 3, figsize=(16.5, 4.8), layout="constrained")
        drawn = []
        for system in systems:
            finds_translations = system.measures["sentences"].value >= LEAST_SENTENCES
            if finds_translations and system.texts_per_second is not None:
                drawn.append(system)
        for panel, (measure, title) in zip(panels, titles.items(), strict=True):
            _draw_panel(panel, drawn, measure)
            panel.set_title(title, fontsize=13)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=130, metadata=metadata)
        pyplot.close(figure)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (speed, quality) for which no faster point is as good, fastest first."""
    front: list[tuple[float, float]] = []
    for speed, quality in sorted(points, reverse=True):
        if not front or quality > front[-1][1]:
            front.append((speed, quality))
    return front


def _draw_panel(panel: Any, systems: Sequence[SystemSummary], measure: str) -> None:
    """Draw one point a system, with its name and its interval, and a line through the best ones."""
    points = []
    for system in systems:
        points.append((system.name, system.texts_per_second, system.measures[measure]))
    front = pareto_front([(speed, value.value) for _, speed, value in points])
    panel.plot(*zip(*front, strict=True), color=FRONT_COLOR, linestyle="--", zorder=0)
    for system, speed, value in points:
        color = OUR_COLOR if system in OUR_SYSTEMS else OTHER_COLOR
        bars = [[value.value - value.low], [value.high - value.value]]
        panel.errorbar(speed, value.value, yerr=bars, fmt="o", color=color, markersize=9, capsize=3)
        # The name stands below the point if a system of about the same speed lies above it.
        is_below = any(
            max(speed, other) < 1.5 * min(speed, other) and other_value.value > value.value
            for _, other, other_value in points
        )
        # The name ends at the point if a faster system is close to it.
        is_left = any(
            speed < other < 5 * speed and abs(other_value.value - value.value) < 3
            for _, other, other_value in points
        )
        panel.annotate(
            system,
            (speed, value.value),
            xytext=(0, -23 if is_below else 11),
            textcoords="offset points",
            ha="right" if is_left else "center",
            color=color,
            weight="bold" if system in OUR_SYSTEMS else "normal",
        )
    panel.set_xscale("log")
    panel.margins(x=0.2, y=0.15)
    panel.set_xticks(SPEED_TICKS, [f"{tick:,}" for tick in SPEED_TICKS])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("texts a second on one core")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e5e5e5")
    panel.set_axisbelow(True)


# ---- The command


def page_path(name: str, folder: Path) -> Path:
    """Return the file of a page, whose folder is that of the pages or the one above."""
    if name in PAGES_ABOVE:
        folder = folder.parent
    return folder / f"{name}.md"


def differing_pages(pages: Mapping[str, str], folder: Path) -> list[str]:
    """Return the names of the pages that differ from their files, and of files without a page."""
    names = {path.stem for path in folder.glob("*.md")} | set(pages)
    differing = []
    for name in sorted(names):
        path = page_path(name, folder)
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
        page_path(name, folder).write_text(text, encoding="utf-8")


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
            print(f"{page_path(name, options.output)} differs; run python -m benchmarks.report")
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
