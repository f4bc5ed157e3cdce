"""Makes a token cache as a process of its own: FOLDER MARKS SECONDS.

Appends a line to the file MARKS when it begins to make one, and one for every block of rows, for each of which it then
waits so long.
"""

import os
import sys
import time
from pathlib import Path

from modeling_tmde import train_tokenizer
from modeling_tmde.data import token_cache
from tests.conftest import LANGUAGES, make_dataset, make_rows


def data():
    rows = make_rows(60, seed=5)
    tokenizer = train_tokenizer({code: [row[code] for row in rows] for code in LANGUAGES}, vocab_size=400)
    return make_dataset(rows), tokenizer


def main(folder: str, marks: str, seconds: float) -> None:
    write, tokenize = token_cache._write, token_cache._tokenize_block

    def marked_write(*arguments):
        with Path(marks).open("a") as file:
            file.write(f"{os.getpid()}\n")
        return write(*arguments)

    def slow_tokenize(job, begin):
        with Path(marks).open("a") as file:
            file.write(f"block by {os.getpid()}\n")
        time.sleep(seconds)
        return tokenize(job, begin)

    token_cache.BLOCK_ROWS, token_cache._write, token_cache._tokenize_block = 10, marked_write, slow_tokenize
    cache = token_cache.open_token_cache(*data(), LANGUAGES, folder)
    print(cache.folder.name, len(cache.ids), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
