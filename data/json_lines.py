"""Read JSON Lines: an object a line, with fields of any kind."""

import json
from collections.abc import Iterator
from typing import Any

from .checks import CorpusError, Unquoted, bad_value
from .lines import read_lines

ARRAY_ADVICE = (
    "Write the objects of the array one a line (jq -c '.[]' in.json > out.jsonl, or in pandas: "
    "to_json(..., orient='records', lines=True))."
)


def read_json_lines(
    path: str, place: str
) -> Iterator[tuple[int, dict[str, Any] | CorpusError, str]]:
    """Yield the number of each row, the row or the error of one that is none, and its JSON.

    Lines of blanks are skipped. NaN and infinities, which are no JSON but written by some, are
    null.

    Args:
        path: A file, plain or gzipped, in UTF-8.
        place: Its name in messages.

    Raises:
        CorpusError: The file is damaged or not UTF-8, or an array of objects.
    """
    for number, line in read_lines(path, place):
        if not line.strip(" "):
            continue
        row, text = _parsed(line)
        if not isinstance(row, dict):
            if _begins_an_array(row, line):
                array = Unquoted("an array")
                raise bad_value(place, number, None, array, "a JSON object", ARRAY_ADVICE)
            advice = "Correct or delete the line."
            yield number, bad_value(place, number, None, row, "a JSON object", advice), line
            continue
        yield number, row, text


def _parsed(line: str) -> tuple[object, str]:
    """Return the value of a line and its JSON; a description of the mistake if it is none."""
    constants: list[str] = []  # NaN and the like
    try:
        value = json.loads(line, parse_constant=constants.append)
    except (ValueError, RecursionError) as error:
        return Unquoted(f"invalid JSON ({error})"), line
    if constants:
        line = json.dumps(value, ensure_ascii=False)
    return value, line


def _begins_an_array(row: object, line: str) -> bool:
    """Return whether a line, and what it holds if it is JSON, begins an array of objects."""
    if isinstance(row, list):
        return bool(row) and isinstance(row[0], dict)
    return line.lstrip().startswith("[")
