"""The table of a comparison: means over seeds, tests against the reference, and costs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from tabulate import tabulate

from tmde.data.io import write_atomically
from tmde.eval.markdown import markdown_escape, percent
from tmde.eval.report import differences_table
from tmde.eval.results import TaskResult, group_cells, pick_cells, read_results, summarize
from tmde.eval.statistics import Difference
from tmde.eval.statistics import compare as compare_results
from tmde.papers.comparison import ComparisonFile
from tmde.papers.trainings import Training

TFIDF = "TF-IDF"
SIGNIFICANT = 0.05
NOTE = (
    "All in %. ±: standard deviation over seeds. ▲ and ▼: above and below {} with p < 0.05 "
    "(approximate randomization over test items, with the first seed, not corrected for the number "
    "of comparisons); systems of other languages are not compared. Same: labels in the language of "
    "the test; Cross: in another. CPU minutes: of all threads, with the first seed, starts "
    "included."
)

ResultsByTask = dict[str, TaskResult]
# By task and group of cells.
DifferencesByColumn = dict[tuple[str, str], Difference]


@dataclass
class Measured:
    """What is measured so far.

    Attributes:
        seeds: The results of each seed of a system, by its name; those of the first seed come
            first.
        first_trainings: The training of the first seed of each system.
        starts: The trainings that others begin with, by name.
        tfidf: The results of TF-IDF, which every evaluation measures.
    """

    seeds: dict[str, list[ResultsByTask]] = field(default_factory=dict)
    first_trainings: dict[str, Training] = field(default_factory=dict)
    starts: dict[str, Training] = field(default_factory=dict)
    tfidf: ResultsByTask = field(default_factory=dict)

    def first_results(self, system: str) -> ResultsByTask:
        """Return the results of the first seed of a system; none if it is not measured."""
        seeds = self.seeds.get(system, [])
        return seeds[0] if seeds else {}


@dataclass
class Table:
    """The table and its numbers.

    Attributes:
        rows: The cells of each system, by column.
        chances: The accuracy of guessing, by column.
        values: The values of all seeds, by system and column.
    """

    rows: list[dict[str, str]] = field(default_factory=list)
    chances: dict[str, str | None] = field(default_factory=lambda: {"system": "chance"})
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def write_table(file: ComparisonFile, trainings: list[Training], failures: dict[str, str]) -> str:
    """Write `table.md` of what is measured so far, and the numbers of all seeds as `table.json`.

    Args:
        file: The comparison.
        trainings: All its trainings.
        failures: The reason of each training that failed.

    Returns:
        The text of `table.md`.
    """
    folder = trainings[0].folder
    reference = file.reference or next(iter(file.systems))
    measured = _read_measured(trainings)
    table = _fill_table(file, measured, reference)
    contrasts = _test_contrasts(file, measured)

    lines = [f"# {markdown_escape(file.description)}", "", _markdown(table), ""]
    lines += [NOTE.format(markdown_escape(reference)), ""]
    for name, differences in contrasts.items():
        lines.append(differences_table(name, differences))
    for name, reason in failures.items():
        lines.append(f"- Not measured: {markdown_escape(f'{name}: {reason}')}")
    text = "\n".join(lines).rstrip() + "\n"

    numbers: dict[str, Any] = {
        "description": file.description,
        "reference": reference,
        "values": table.values,
        "differences": {},
    }
    for name, differences in contrasts.items():
        numbers["differences"][name] = [asdict(difference) for difference in differences]
    write_atomically(folder / "table.json", json.dumps(numbers, indent=1))
    write_atomically(folder / "table.md", text)
    return text


def _read_measured(trainings: Iterable[Training]) -> Measured:
    measured = Measured()
    for training in trainings:
        if training.system is None:
            measured.starts[training.name] = training
            continue
        if not training.is_measured():
            continue
        results_of_seed = {}
        for result in read_results(training.evaluation):
            if result.system == TFIDF:
                measured.tfidf[result.task] = result
            else:
                results_of_seed[result.task] = result
        measured.seeds.setdefault(training.system, []).append(results_of_seed)
        measured.first_trainings.setdefault(training.system, training)
    return measured


def _fill_table(file: ComparisonFile, measured: Measured, reference: str) -> Table:
    """Return the table of all systems and of TF-IDF."""
    table = Table()
    for system, seeds in measured.seeds.items():
        differences = {}
        if system != reference:
            differences = _test(measured, system, reference)
        _add_row(table, file, system, seeds, differences)
        table.rows[-1] |= _costs(measured.first_trainings[system], measured.starts)
    _add_row(table, file, TFIDF, [measured.tfidf], {})
    return table


def _add_row(
    table: Table,
    file: ComparisonFile,
    system: str,
    seeds: list[ResultsByTask],
    differences: DifferencesByColumn,
) -> None:
    """Add a system to the table.

    Args:
        table: The table.
        file: The comparison, for titles.
        system: The name of the system.
        seeds: Its results with each seed.
        differences: Its differences from the reference.
    """
    row = {"system": markdown_escape(file.titles.get(system, system))}
    values_of_column = {}
    for task, first_result in seeds[0].items():
        groups = group_cells(first_result.cells)
        groups.pop("All")
        means_of_seeds = [summarize(results[task].cells) for results in seeds]
        for group, positions in groups.items():
            title = file.titles.get(task, task)
            if len(groups) > 1:
                title += f" {group}"
            title = markdown_escape(title)
            values = [means[group] for means in means_of_seeds]
            values_of_column[title] = values
            row[title] = _describe_values(values, differences.get((task, group)))
            table.chances[title] = _describe_chance(first_result, positions)
    table.rows.append(row)
    if values_of_column:
        table.values[system] = values_of_column


def _describe_chance(result: TaskResult, positions: Sequence[int]) -> str | None:
    """Return the mean chance of cells; None if one has none."""
    chances = []
    for cell in pick_cells(result.cells, positions):
        if cell.chance is None:
            return None
        chances.append(cell.chance)
    return percent(fmean(chances))


def _describe_values(values: list[float], difference: Difference | None) -> str:
    """Return mean and deviation over seeds, with an arrow for a significant difference."""
    text = percent(fmean(values))
    if len(values) > 1:
        text += f" ± {percent(stdev(values))}"
    if difference is not None and difference.p < SIGNIFICANT:
        text += " ▲" if difference.difference > 0 else " ▼"
    return text


def _test(measured: Measured, system: str, other: str) -> DifferencesByColumn:
    """Return the differences of a system from another, both with their first seed.

    A task that measured them on different data has none.
    """
    results = measured.first_results(system)
    other_results = measured.first_results(other)
    differences = {}
    for task, result in results.items():
        if task not in other_results:
            continue
        other_data = other_results[task].data
        if other_data.get("fingerprint") != result.data.get("fingerprint"):
            # The systems know other languages, and so were measured on other texts.
            continue
        for difference in compare_results(other_results[task], result):
            if difference.group != "All":
                differences[difference.task, difference.group] = difference
    return differences


def _test_contrasts(file: ComparisonFile, measured: Measured) -> dict[str, list[Difference]]:
    """Return the differences of each contrast of which both systems are measured."""
    contrasts = {}
    for better, worse in file.contrasts:
        differences = _test(measured, better, worse)
        if differences:
            contrasts[f"{better} - {worse}"] = list(differences.values())
    return contrasts


def _costs(training: Training, starts: Mapping[str, Training]) -> dict[str, str]:
    """Return the CPU minutes of all that led to a model, and its number of parameters."""
    minutes = training.cpu_minutes
    start = training.start
    while start is not None:
        minutes += starts[start].cpu_minutes
        start = starts[start].start
    parameters = json.loads((training.run / "run.json").read_text())["parameters"]
    return {"CPU minutes": f"{minutes:.1f}", "parameters": f"{parameters:,}"}


def _markdown(table: Table) -> str:
    return tabulate(
        [*table.rows, table.chances],
        "keys",
        "pipe",
        missingval="–",
        colglobalalign="right",
        colalign=("left",),
        disable_numparse=True,
    )
