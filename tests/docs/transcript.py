"""Checks that the transcript in docs/guides/share.md is still what docs/hub_walkthrough.sh prints.

    python tests/docs/transcript.py WORK/transcript.txt docs/guides/share.md
    python tests/docs/transcript.py WORK/transcript.txt docs/guides/share.md --write

The first command fails with a diff if it is not; the second replaces it.

Numbers may differ, and so may what follows `> `, which a model says.
"""

import difflib
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"(<!-- transcript -->\n```text\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE)


def comparable(transcript: str) -> list[str]:
    text = re.sub(r"> .*", "> ...", transcript.strip())
    text = re.sub(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", "N", text)
    return [re.sub(r" +", " ", line.rstrip()) for line in text.splitlines()]


def main() -> int:
    made, page = Path(sys.argv[1]).read_text("utf-8"), Path(sys.argv[2])
    text = page.read_text("utf-8")
    if "--write" in sys.argv:
        page.write_text(
            BLOCK.sub(lambda found: found[1] + made.strip() + "\n" + found[3], text), "utf-8"
        )
        return 0
    printed = BLOCK.search(text)[2]
    difference = list(
        difflib.unified_diff(
            comparable(printed), comparable(made), str(page), "this run", lineterm=""
        )
    )
    print("\n".join(difference))
    return int(bool(difference))


if __name__ == "__main__":
    sys.exit(main())
