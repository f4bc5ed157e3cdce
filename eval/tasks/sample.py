"""The built-in sample: documents of four topics in five languages, no network and no files."""

from collections.abc import Sequence

from modeling_tmde.eval.sample import LANGUAGES, sample_documents

from .base import ClassificationData, Provenance, Split, Task, register


@register
class Sample(Task):
    """Topics of the built-in sample's documents; the five languages of a split are translations of each other."""

    name = "sample"
    description = "built-in sample documents, 4 topics, 5 languages (no files)"
    languages = LANGUAGES
    default_source = "sample"

    def load(
        self,
        source: str | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        sizes: Sequence[int] = (1000, 200, 200),
        seed: int = 42,
    ) -> ClassificationData:
        """`sizes` documents of train, dev and test. `source` and `streaming` mean nothing here."""
        chosen = list(languages or LANGUAGES)
        splits: dict[str, dict[str, Split]] = {language: {} for language in chosen}
        for name, size in zip(("train", "dev", "test"), sizes, strict=True):
            rows = sample_documents(size, name, seed=seed, languages=chosen).to_pandas()
            for language in chosen:
                part = rows[rows["language"] == language]
                splits[language][name] = Split(*(part[column].tolist() for column in ("doc_id", "text", "label")))
        return ClassificationData(splits, Provenance("the built-in grammar of tmde", "Apache-2.0", source="sample"))
