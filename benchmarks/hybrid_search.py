"""How often a question finds the paragraph that answers it: by words, by meaning, and by both.

    python benchmarks/hybrid_search.py --data DATA/test/xquad.parquet --json hybrid_search.json

The file is XQuAD's (columns language, paragraph_id, paragraph, question_id, question). The
paragraphs of each language are an index of `tmde index`, which is searched as `tmde search --mode`
does it, by the questions of the same language and by those of the two others. P@1 is the share of
questions whose paragraph is the first hit, MRR the mean of 1 / rank among the first 50 hits.

`--mode both` was chosen on DATA/eval/xquad_dev.parquet.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import typer
from common import in_percent, markdown, write_json

from tmde.documents import DocumentIndex
from tmde.documents.index import MODES
from tmde.embedding import DocumentEmbedder

LANGUAGES = ("de", "en", "es")
HITS = 50


class Questions:
    """The questions and paragraphs of one language.

    Args:
        rows: The rows of the file in this language.
    """

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        self.texts = [row["question"] for row in rows]
        self.targets = [row["paragraph_id"] for row in rows]
        self.paragraphs = {row["paragraph_id"]: row["paragraph"] for row in rows}


def load(path: Path) -> dict[str, Questions]:
    """Return the questions of each language, in the same order."""
    rows = pq.read_table(path).sort_by("question_id").to_pylist()
    questions = {}
    for language in LANGUAGES:
        questions[language] = Questions([row for row in rows if row["language"] == language])
    return questions


def reciprocal_ranks(index: DocumentIndex, questions: Questions, mode: str) -> np.ndarray:
    """Return 1 / rank of the right paragraph of each question, (q,); 0 if it is not found."""
    ranks = np.zeros(len(questions.texts))
    found = index.search_queries(questions.texts, HITS, snippet_width=0, mode=mode)
    for number, (hits, target) in enumerate(zip(found.hits, questions.targets, strict=True)):
        for rank, hit in enumerate(hits, start=1):
            if hit.id == target:
                ranks[number] = 1 / rank
    return ranks


def measure(
    questions: dict[str, Questions], embedder: DocumentEmbedder, folder: Path
) -> dict[str, dict[str, np.ndarray]]:
    """Return the reciprocal ranks by mode, of one language and across, (questions, pairs)."""
    columns: dict[str, dict[str, list[np.ndarray]]] = {
        mode: {"same": [], "across": []} for mode in MODES
    }
    for language in LANGUAGES:
        index = DocumentIndex.create(folder / language, embedder)
        paragraphs = questions[language].paragraphs
        index.upsert(list(paragraphs), list(paragraphs.values()))
        index.index_words()
        for other in LANGUAGES:
            place = "same" if other == language else "across"
            for mode in MODES:
                columns[mode][place].append(reciprocal_ranks(index, questions[other], mode))
    stacked = {}
    for mode, places in columns.items():
        stacked[mode] = {place: np.stack(ranks, axis=1) for place, ranks in places.items()}
    return stacked


def main(
    data: Annotated[Path, typer.Option(help="File of XQuAD.")],
    model: Annotated[list[str] | None, typer.Option(help="Models of tmde. Repeatable.")] = None,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure P@1 and MRR."""
    questions = load(data)
    targets = questions[LANGUAGES[0]].targets
    results = []
    for name in model or ["default", "accurate"]:
        embedder = DocumentEmbedder.from_pretrained(name)
        with tempfile.TemporaryDirectory() as folder:
            ranks_of_modes = measure(questions, embedder, Path(folder))
        for mode, places in ranks_of_modes.items():
            measures = {}
            for place, ranks in places.items():
                # Questions about one paragraph are no independent ones.
                measures[f"p1_{place}"] = in_percent((ranks == 1).mean(axis=1), targets)
                measures[f"mrr_{place}"] = in_percent(ranks.mean(axis=1), targets)
            results.append({"model": name, "mode": mode, "measures": measures})
    print(markdown([table_row(result) for result in results]))
    sizes = {"questions": len(targets), "paragraphs": len(set(targets))}
    write_json(json, "hybrid_search", sizes | {"languages": LANGUAGES}, results)


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row = {"model": result["model"], "mode": result["mode"]}
    for name, numbers in result["measures"].items():
        row[name] = numbers[0]
    return row


if __name__ == "__main__":
    typer.run(main)
