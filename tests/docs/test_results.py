"""Every decimal of RESULTS.md stands in a file of `benchmarks/results/`, to the printed digits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {  # by the beginning of a section's title
    "Vectors worth having": ["vectors"],
    "Beside what one can download": ["peers"],
    "A transformer beside the bag": ["hybrid"],
    "Probing": ["probing", "peers", "cold"],
    "Documents": ["document_excerpts", "document_representations", "document_representations_mlm"],
    "The papers' systems": [
        "compare_papers",
        "compare_bilingual",
        "compare_beta",
        "compare_light",
        "dual_band",
    ],
    "Word vectors": ["word_vectors"],
    "A teacher's space": ["teacher_space"],
    "A language added": ["added_language"],
    "Retrieval in flat memory": ["retrieval_memory"],
}
FILES["Documents"] += ["document_segmentation", "sentence_alignment"]
SECTIONS = re.split(r"(?m)^## ", (ROOT / "RESULTS.md").read_text())[1:]
NUMBER = r"[+-]?\d[\d,]*\.\d+"


def lists_of_numbers(value: object) -> Iterator[list[float]]:
    """Yield all lists of numbers, and single numbers as lists of one.

    Shares also come in percent, and large numbers in millions.
    """
    if isinstance(value, dict | list) and not all(isinstance(each, int | float) for each in value):
        for each in value.values() if isinstance(value, dict) else value:
            yield from lists_of_numbers(each)
    elif isinstance(value, list | int | float):
        found = value if isinstance(value, list) else [value]
        yield found
        if all(abs(each) <= 1 for each in found):
            yield [100 * each for each in found]
        elif min(found) > 1e5:
            yield [each / 1e6 for each in found]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_every_decimal_is_in_a_file(section):
    names = next(names for title, names in FILES.items() if section.startswith(title))
    *known, stated = [
        list(
            lists_of_numbers(
                json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
            )
        )
        for name in (*names, "stated")
    ]
    lists = sum(known, [])
    # A value with its interval is looked up as three numbers, if they are stored together.
    triples = {tuple(f"{each:.1f}" for each in found) for found in lists if len(found) == 3}
    singles = {
        f"{abs(each):.{digits}f}"
        for found in lists + stated
        for each in found
        for digits in range(1, 6)
    }
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", section, flags=re.DOTALL)
    for value, low, high in re.findall(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]", text):
        assert not triples or (value, low, high) in triples or "+" in value or "-" in value, (
            value,
            low,
            high,
        )
    missing = [
        each
        for each in re.findall(NUMBER, text)
        if each.lstrip("+-").replace(",", "") not in singles
    ]
    assert not missing
