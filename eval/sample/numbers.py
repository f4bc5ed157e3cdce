"""Tables of amounts, written as each language writes them; one row per amount in the order of LANGUAGES."""

from .grammar import Row


def decimal(value: float, digits: int = 1) -> Row:
    """A number with its decimals and thousands marks in every language: 1.234,5 in German, 1,234.5 in English."""
    english = f"{value:,.{digits}f}"
    german = english.translate(str.maketrans(",.", ".,"))
    french = english.translate(str.maketrans(",.", " ,"))
    return (german, english, german, french, german)


def percentages(tenths: list[int]) -> list[Row]:
    """Shares such as 3,5 % out of tenths of a percent, in Italian with the further forms `del`, `al` and `il`."""
    rows = []
    for number in tenths:
        de, en, es, fr, it = decimal(number / 10) if number % 10 else decimal(number // 10, 0)
        # 1 (uno), 8 (otto), 80 (ottanta) and 11 (undici) start with a vowel, 0 (zero) with a z: l' and lo before them
        if it.startswith(("8", "1,")) or it == "11":
            articles = ("dell'", "all'", "l'")
        elif it.startswith("0"):
            articles = ("dello ", "allo ", "lo ")
        else:
            articles = ("del ", "al ", "il ")
        italian = "|".join(f"{article}{it}%" for article in ("", *articles))
        rows.append((f"{de} %", f"{en}%", f"{es} %", f"{fr} %", italian))
    return rows


def counts(values: list[int]) -> list[Row]:
    """Whole numbers, in Italian with the further form `i 120` or `gli 840` (ottocento starts with a vowel)."""
    rows = []
    for value in values:
        de, en, es, fr, it = decimal(value, 0)
        rows.append((de, en, es, fr, f"{it}|{'gli' if it.startswith('8') else 'i'} {it}"))
    return rows


def millions(values: list[int]) -> list[Row]:
    """Amounts in millions of euros and of dollars."""
    return [
        (
            f"{value} Millionen {de}",
            f"{value} million {en}",
            f"{value} millones de {es}",
            f"{value} {fr}",
            f"{value} {it}",
        )
        for value in values
        for de, en, es, fr, it in (
            ("Euro", "euros", "euros", "millions d'euros", "milioni di euro"),
            ("Dollar", "dollars", "dólares", "millions de dollars", "milioni di dollari"),
        )
    ]


def billions(tenths: list[int]) -> list[Row]:
    """Amounts in billions of euros and of dollars, from 2 billion up; Spanish counts them in thousands of millions."""
    rows = []
    for number in tenths:
        de, en, _, fr, it = decimal(number / 10)
        es = decimal(number * 100, 0)[2]
        rows.append(
            (
                f"{de} Milliarden Euro",
                f"{en} billion euros",
                f"{es} millones de euros",
                f"{fr} milliards d'euros",
                f"{it} miliardi di euro",
            )
        )
        rows.append(
            (
                f"{de} Milliarden Dollar",
                f"{en} billion dollars",
                f"{es} millones de dólares",
                f"{fr} milliards de dollars",
                f"{it} miliardi di dollari",
            )
        )
    return rows


TENTHS = [number for number in range(2, 100) if number % 10]

NUMBER_TABLES: dict[str, list[Row]] = {
    "pct": percentages(TENTHS),
    "bigpct": percentages([10 * number for number in (11, 12, 14, 15, 18, 20, 22, 25, 28, 30, 33, 35, 40, 45, 80)]),
    "half": percentages([10 * number for number in (51, 53, 55, 58, 60, 62, 65, 70, 75, 80, 90)]),
    "money": millions([15, 20, 25, 30, 45, 60, 75, 80, 120, 150, 180, 250, 320, 450, 600, 850])
    + billions([number for number in TENTHS if number > 20 and number % 2]),
    "count": counts([*range(120, 1000, 40), *range(1200, 9000, 400)]),
    "points": [decimal(number) for number in (x + (x % 9 + 1) / 10 for x in range(1230, 9000, 190))],
    "price": [decimal(x + x % 10 * 0.1 + 0.05, 2) for x in range(13, 240, 11)],
    "ayes": [(str(number),) * 5 for number in range(205, 400, 9)],
    "noes": [(str(number),) * 5 for number in range(103, 200, 7)],
    "past": [(str(year),) * 5 for year in range(2008, 2023)],
    "year": [(str(year),) * 5 for year in range(2027, 2041)],
}
