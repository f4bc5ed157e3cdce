"""Sentences or windows, mean or maximum: paper 001, table 5, on the topic documents.

    python benchmarks/document_segmentation.py runs/small --data DATA -o results.json

The paper splits a document at [.!?], or into windows of 128 words, 64 apart, and takes the elementwise mean or
maximum; here sentences are those of `split_sentences`, and a window has 128 tokens, 64 apart. Beside these: the mean
weighted by inverse density (paper 003), a document cut at 128 tokens, and as one input. Logistic regression,
zero-shot; `Same`: trained in the language of the test, `Cross`: in another.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import markdown, write_json

from modeling_tmde import DocumentEmbedder
from modeling_tmde.eval.classification import evaluate_classification
from modeling_tmde.eval.results import TaskResult, summarize
from modeling_tmde.eval.statistics import compare, summary_intervals
from modeling_tmde.eval.systems import EmbeddingSystem
from modeling_tmde.eval.tasks import ClassificationData
from modeling_tmde.eval.tasks.documents import TopicDocuments
from modeling_tmde.long_documents import SentenceDensity, split_sentences

WINDOW, STRIDE = 128, 64
ALWAYS = 3  # a window that only texts of a token or so fit into: every document is split


def fitted_density(model: str, data: ClassificationData) -> SentenceDensity:
    """Of sentences of the train documents of all languages."""
    texts = [text for splits in data.splits.values() for text in splits["train"].texts]
    sentences = [sentence for text in texts for sentence in split_sentences(text)]
    step = max(1, len(sentences) // 40_000)
    return SentenceDensity().fit(DocumentEmbedder.from_pretrained(model).encode(sentences[::step]))


def embedders(model: str, data: ClassificationData) -> Iterator[tuple[str, DocumentEmbedder]]:
    """Every way of embedding a document, with its name."""
    yield "one input", DocumentEmbedder.from_pretrained(model)
    yield f"cut at {WINDOW} tokens", DocumentEmbedder.from_pretrained(model, max_length=WINDOW)
    for aggregation in ("mean", "max"):
        options = {"long_documents": "sentences", "window": ALWAYS, "aggregation": aggregation}
        yield f"sentences, {aggregation}", DocumentEmbedder.from_pretrained(model, **options)
    for aggregation in ("mean", "max"):
        options = {"long_documents": "chunk", "window": WINDOW, "stride": STRIDE, "aggregation": aggregation}
        yield f"windows of {WINDOW} tokens, {aggregation}", DocumentEmbedder.from_pretrained(model, **options)
    options = {"long_documents": "sentences", "window": ALWAYS, "aggregation": fitted_density(model, data)}
    yield "sentences, by density", DocumentEmbedder.from_pretrained(model, **options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True, help="topic_documents.parquet, or its folder")
    parser.add_argument("--languages", default="de,en,es,fr,it")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    data = TopicDocuments().load(options.data, options.languages.split(","))
    rows: list[dict] = []
    first: TaskResult | None = None
    for name, embedder in embedders(options.model, data):
        system = EmbeddingSystem(name, embedder)
        result = TaskResult("topic_documents", name, "zero-shot", evaluate_classification(data, system))
        row: dict = {"document": name}
        intervals = summary_intervals(result.cells)
        for group, value in summarize(result.cells).items():
            low, high = intervals[group]
            row |= {group: 100 * value, f"{group} interval": f"[{100 * low:.1f}, {100 * high:.1f}]"}
        first = first or result
        for found in compare(first, result) if result is not first else ():
            row[f"p {found.group}"] = round(found.p, 4)
        row |= {"truncated": system.truncated, "texts": system.texts, "seconds": system.seconds}
        rows.append(row)
        print(name, row, flush=True)
    print(markdown([dict.fromkeys(rows[-1]) | row for row in rows]))
    write_json(options.output, "document_segmentation", vars(options), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
