"""Is the transcript of docs/hub_walkthrough.sh that docs/share.md prints still what the script prints?

    python tests/docs/transcript.py WORK/transcript.txt docs/share.md            # fails, and says where, if not
    python tests/docs/transcript.py WORK/transcript.txt docs/share.md --write    # puts the new one there

It stands there as a block of code after the comment BEGIN. Numbers may differ, and what follows `> `: a model says it.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

BEGIN = "<!-- transcript -->"
_BLOCK = re.compile(rf"({re.escape(BEGIN)}\n```text\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")


def comparable(transcript: str) -> list[str]:
    """Its lines, without what differs from run to run."""
    lines = []
    for line in transcript.strip().splitlines():
        line = re.sub(r"> .*", "> ...", line.rstrip())
        lines.append(re.sub(r" +", " ", _NUMBER.sub("N", line)))
    return lines


def printed_in(page: str) -> str:
    """The transcript in a page.

    Raises:
        ValueError: There is none, or more than one.
    """
    found = _BLOCK.findall(page)
    if len(found) != 1:
        raise ValueError(f"found {len(found)} blocks ```text after {BEGIN}, expected one")
    return found[0][1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcript", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    made, page = options.transcript.read_text("utf-8"), options.page.read_text("utf-8")
    try:
        printed = printed_in(page)
    except ValueError as error:
        print(f"{options.page}: {error}", file=sys.stderr)
        return 1
    if options.write:
        options.page.write_text(_BLOCK.sub(lambda found: found[1] + made.strip() + "\n" + found[3], page), "utf-8")
        return 0
    difference = difflib.unified_diff(
        comparable(printed), comparable(made), str(options.page), "this run", lineterm=""
    )
    if text := "\n".join(difference):
        again = f"python tests/docs/transcript.py {options.transcript} {options.page} --write"
        print(
            f"{text}\n{options.page} prints another transcript than this run; after a look: {again}", file=sys.stderr
        )
    return int(bool(text))


if __name__ == "__main__":
    sys.exit(main())
