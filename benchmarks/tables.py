"""Values with their spread, numbers as text, and tables of the pages of results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tmde.eval import markdown

# A space at which a narrow table does not break a value from its margin.
NO_BREAK = "\u00a0"
# The best value of a column is bold, and so is every value that is printed with the same digits.
LARGEST = "largest"
SMALLEST = "smallest"


class ReportError(ValueError):
    """A page cannot be made, or is not what the measurements say."""


# ---- Values


@dataclass(frozen=True)
class Measure:
    """A measured value and its spread: a 95% interval over items, or a deviation over seeds.

    Args:
        value: The value.
        low: The lower bound of the spread; None if it is unknown.
        high: The upper bound of the spread; None if it is unknown.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Measure":
        """Return the measure of a list `[value]` or `[value, low, high]`."""
        if len(numbers) not in (1, 3):
            raise ReportError(f"a measure has 1 or 3 numbers (value, low, high), found {numbers}")
        return cls(*numbers)

    @property
    def margin(self) -> float:
        """The larger distance of the value to a bound of its spread."""
        if self.low is None or self.high is None:
            return 0.0
        return max(self.value - self.low, self.high - self.value)

    def text(self, digits: int) -> str:
        """Return the value with so many decimals, and the margin behind it."""
        if self.low is None:
            return f"{self.value:.{digits}f}"
        return f"{self.value:.{digits}f} ± {self.margin:.{digits}f}"

    def __str__(self) -> str:
        return self.text(supported_digits([self]))


@dataclass(frozen=True)
class SystemSummary:
    """Size, speed and quality of a system.

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


def mean_and_deviation(values: Mapping[str, float | None]) -> str:
    """Return a mean over seeds with its deviation, which one seed does not have."""
    mean = fixed(values["mean"])
    if values["deviation"] is None:
        return mean
    return f"{mean} ± {fixed(values['deviation'])}"


def gibibytes(number: float) -> str:
    """Return bytes as GiB with one decimal."""
    return f"{number / 2**30:.1f}"


# ---- Tables


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], best: Mapping[int, str] | None = None
) -> str:
    """Return a Markdown table; numbers are aligned to the right, and the best of a column is bold.

    Args:
        header: The titles of the columns.
        rows: The cells: texts, numbers that are printed as they are, `Measure`s, or None.
        best: `LARGEST` or `SMALLEST` for the columns, by number, whose best value is bold.
    """
    alignment = []
    columns = []
    for number, cells in enumerate(zip(*rows, strict=True)):
        has_numbers = any(number_of(cell) is not None for cell in cells)
        alignment.append("right" if number and has_numbers else "left")
        columns.append(column_texts(cells))
    for column, kind in (best or {}).items():
        for place in best_rows([row[column] for row in rows], columns[column], kind):
            columns[column][place] = f"**{columns[column][place]}**"
    texts = list(zip(*columns, strict=True))
    return "\n".join(markdown.markdown_table(header, texts, alignment=alignment))


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


def all_best(columns: int, kind: str = LARGEST, first: int = 1) -> dict[int, str]:
    """Return `best` of `markdown_table` for all columns from the first one on."""
    return dict.fromkeys(range(first, columns), kind)
