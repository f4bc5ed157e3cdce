"""Static exports, and how they differ from their models on the built-in sample."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelCardData

from tmde.data.sample import LANGUAGES, sample_documents, sample_parallel
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.export_check import open_exportable
from tmde.embedding.export_static import export_static_embedding, static_encoder
from tmde.embedding.loading import local_or_hub
from tmde.eval.retrieval import precision_at_1, retrieval_pool

Encode = Callable[[Sequence[str]], np.ndarray]

_NUM_ROWS = 200  # parallel rows, and so many documents

_CARD = """
# A static model made from {model}

A table of {num_tokens:,} vectors of {dimension} numbers. The vector of a text is the mean of
the vectors of its tokens{scaled}. `tmde export static` wrote it. It opens without tmde:

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("{folder}").encode(["Guten Tag", "Good day"])
```

```python
from model2vec import StaticModel

vectors = StaticModel.from_pretrained("{folder}").encode(["Guten Tag", "Good day"])
```

## How it differs from the model

{differences}
"""


class Agreement(NamedTuple):
    """The cosines of the two vectors of each text."""

    mean_cosine: float
    least_cosine: float


@dataclass(frozen=True)
class StaticReport:
    """How a static export differs from its model.

    Attributes:
        damps_counts: Whether the model lets n occurrences of a token count sqrt(n) times.
        difference: The largest difference of unit vectors, of texts without a repeated token.
        parallel: The cosines on the texts of parallel rows.
        documents: The cosines on documents.
        model_precision: P@1 of translations with the model, in percent.
        static_precision: P@1 of translations with the export, in percent.
    """

    damps_counts: bool
    difference: float
    parallel: Agreement
    documents: Agreement
    model_precision: float
    static_precision: float

    def text(self) -> str:
        """Return the report as a few sentences."""
        sentences = []
        if self.damps_counts:
            sentences.append(
                "The model lets a token that occurs n times in a text count sqrt(n) times. A "
                "static model cannot: there it counts n times."
            )
            sentences.append(
                f"Vectors of texts without a repeated token differ by {self.difference:.1e} at "
                "most."
            )
        else:
            sentences.append(f"Vectors differ by {self.difference:.1e} at most.")
        sentences.append(
            f"On the built-in sample, the cosine with the model's vector is "
            f"{_cosines(self.parallel)} for the texts of {_NUM_ROWS} parallel rows, and "
            f"{_cosines(self.documents)} for {_NUM_ROWS} longer documents."
        )
        sentences.append(
            f"P@1 of translations in these rows, the mean of all pairs of languages, is "
            f"{self.static_precision:.2f}%, with the model {self.model_precision:.2f}%."
        )
        return "\n".join(sentences)


def export_static(
    model: str, output: str | os.PathLike[str], loading: Mapping[str, Any] | None = None
) -> StaticReport:
    """Write a bag as a table of vectors, with a card that says how it differs from the bag.

    ```python
    report = export_static("default", "static")
    ```

    Args:
        model: A folder, a Hub id, or the name of a packaged model.
        output: The folder to make.
        loading: Arguments of `DocumentEmbedder.from_pretrained`.

    Raises:
        TmdeError: The model cannot be opened, or is no bag.
    """
    output = Path(output)
    embedder = open_exportable(model, loading)
    difference = export_static_embedding(
        embedder.model, embedder.tokenizer, output, prompt=embedder.prompt
    )
    report = measure_static_export(embedder, output, difference)
    write_static_card(model, embedder, output, report)
    return report


def measure_static_export(
    embedder: DocumentEmbedder, folder: Path, difference: float
) -> StaticReport:
    """Compare a static export with its model on the built-in sample.

    Args:
        embedder: The model.
        folder: The folder of the export.
        difference: What `export_static_embedding` returned.
    """
    rows = list(sample_parallel(_NUM_ROWS, "test")["translation"])
    documents = list(sample_documents(_NUM_ROWS // len(LANGUAGES), "test")["text"])
    texts = list(itertools.chain.from_iterable(row.values() for row in rows))
    encode_static = static_encoder(folder)

    def encode_with_model(texts: Sequence[str]) -> np.ndarray:
        vectors = embedder.encode(texts)
        assert isinstance(vectors, np.ndarray)  # A tensor comes only if it is asked for.
        return vectors

    return StaticReport(
        damps_counts=embedder.model.config.sublinear_counts,
        difference=difference,
        parallel=_agreement(encode_static(texts), encode_with_model(texts)),
        documents=_agreement(encode_static(documents), encode_with_model(documents)),
        model_precision=_mean_precision(rows, encode_with_model),
        static_precision=_mean_precision(rows, encode_static),
    )


def write_static_card(
    model: str, embedder: DocumentEmbedder, folder: Path, report: StaticReport
) -> None:
    """Write `README.md`, with the license of the model if its folder has a card that names one."""
    config = embedder.model.config
    scaled = ", scaled to length 1" if config.normalize else ""
    body = _CARD.format(
        model="the model that comes with tmde" if model == "default" else Path(model).name,
        num_tokens=config.vocab_size,
        dimension=config.d_model,
        scaled=scaled,
        folder=folder.name,
        differences=report.text(),
    )
    data = ModelCardData(
        library_name="model2vec",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "model2vec", "static-embeddings", "tmde"],
        **_inherited_data(model),
    )
    ModelCard(f"---\n{data.to_yaml()}\n---\n{body}").save(folder / "README.md")


def _agreement(vectors: np.ndarray, expected: np.ndarray) -> Agreement:
    """Compare two vectors of each of some texts; a vector of zeros has cosine 0 with any other.

    Args:
        vectors: (texts, d), those of the exported model.
        expected: (texts, d), those of the model.
    """
    cosines = torch.nn.functional.cosine_similarity(
        torch.from_numpy(vectors).double(), torch.from_numpy(expected).double()
    )
    return Agreement(float(cosines.mean()), float(cosines.min()))


def _mean_precision(rows: list[dict[str, Any]], encode: Encode) -> float:
    """Return the mean P@1 of all pairs of languages, in percent."""
    precisions = []
    for source, target in itertools.combinations(LANGUAGES, 2):
        pool = retrieval_pool(rows, source, target, size=_NUM_ROWS)
        precisions.append(precision_at_1(encode(pool.sources), encode(pool.targets)))
    return 100 * float(np.mean(precisions))


def _cosines(cosines: Agreement) -> str:
    return f"{cosines.mean_cosine:.4f} on average and at least {cosines.least_cosine:.4f}"


def _inherited_data(model: str) -> dict[str, Any]:
    """Return what the card of the model says that holds for the export too."""
    card = Path(local_or_hub(model)) / "README.md"
    if not card.is_file():
        return {}
    data = ModelCard.load(card).data.to_dict()
    return {name: data[name] for name in ("language", "license") if name in data}
