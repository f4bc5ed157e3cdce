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


# Few amounts of each kind: names and numbers look alike in every language, and with many of them a small model learns
# these first and the words that tell topics apart last.
TENTHS = [3, 8, 12, 15, 24, 37, 46, 58, 85]

NUMBER_TABLES: dict[str, list[Row]] = {
    "pct": percentages(TENTHS),
    "bigpct": percentages([10 * number for number in (11, 15, 20, 25, 30, 40, 80)]),
    "half": percentages([10 * number for number in (51, 55, 60, 70, 80)]),
    "money": millions([20, 45, 80, 250, 600]) + billions([24, 37, 58]),
    "count": counts([120, 300, 450, 840, 1200, 2500, 8000]),
    "points": [decimal(number) for number in (1230.7, 2456.3, 3810.5, 5127.4, 6942.8, 8305.2)],
    "price": [decimal(number, 2) for number in (13.35, 28.85, 47.75, 96.65, 124.45, 231.15)],
    "ayes": [(str(number),) * 5 for number in (214, 256, 301, 342, 387)],
    "noes": [(str(number),) * 5 for number in (103, 128, 151, 176, 199)],
    "past": [(str(year),) * 5 for year in (2009, 2012, 2015, 2018, 2020)],
    "year": [(str(year),) * 5 for year in (2027, 2028, 2030, 2035, 2040)],
}
