"""Do a student's vectors lie in its teacher's space? P@1 of a language's vectors against the teacher's of English.

    python benchmarks/distillation.py TEACHER STUDENT [STUDENT ...] --data parallel_dev.parquet -o results.json

Both directions averaged, by cosine, in one pool of `--rows` rows for each language. 'teacher' is the teacher with its
own vectors of both languages; 'student' the student with its own.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import markdown, write_json
from sentence_transformers import SentenceTransformer

from modeling_tmde import DocumentEmbedder
from modeling_tmde.data import load_parallel
from modeling_tmde.eval.retrieval import precision_at_1, retrieval_pool

PIVOT = "en"


def percent(first: np.ndarray, second: np.ndarray) -> float:
    return round(100 * float(precision_at_1(first, second)), 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", help="anything that SentenceTransformer opens")
    parser.add_argument("students", nargs="+")
    parser.add_argument("--data", required=True, help="parallel rows, none of them trained on")
    parser.add_argument("--languages", default="de,es,fr,it")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    languages = options.languages.split(",")
    rows = load_parallel(options.data, languages=[*languages, PIVOT], pivot_languages=[PIVOT])["translation"][:]
    pools = {code: retrieval_pool(rows, code, PIVOT, options.rows) for code in languages}
    teacher = SentenceTransformer(options.teacher, trust_remote_code=True, device="cpu")

    def read(texts: list[str]) -> np.ndarray:
        return np.asarray(teacher.encode(texts, show_progress_bar=False))

    targets = {code: read(pool.targets) for code, pool in pools.items()}
    table = [{"vectors": "teacher", **{code: percent(read(pools[code].sources), targets[code]) for code in languages}}]
    for folder in options.students:
        student = DocumentEmbedder.from_pretrained(folder)
        name = Path(folder).name
        width = next(iter(targets.values())).shape[1]
        if student.dimension != width:
            parser.error(f"{folder} has vectors of {student.dimension} numbers, its teacher of {width}")
        found = {code: student.encode(pool.sources) for code, pool in pools.items()}
        table.append(
            {"vectors": f"{name} and teacher", **{code: percent(found[code], targets[code]) for code in languages}}
        )
        own = {code: percent(found[code], student.encode(pools[code].targets)) for code in languages}
        table.append({"vectors": name, **own})
    print(markdown(table))
    settings = {"rows": options.rows, "data": Path(options.data).name, "teacher": Path(options.teacher).name}
    write_json(options.output, "distillation", settings, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
