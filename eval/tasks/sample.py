"""The built-in sample: documents of four topics in five languages, no network and no files."""

from collections.abc import Sequence

from tmde.data.labeled_tables import choose_languages
from tmde.data.sample import LANGUAGES, sample_documents

from .base import ClassificationData, Languages, Provenance, Source, Split, Task, TaskError
from .sources import SPLIT_ORDER, Splits, check_count


class Sample(Task):
    """Topics of the built-in sample's documents.

    The five languages of a split are translations of each other.
    """

    name = "sample"
    description = "built-in sample documents, 4 topics, 5 languages (no files)"
    provenance = Provenance(
        "the built-in grammar of tmde", "Apache-2.0", source="sample", split="test"
    )
    languages = LANGUAGES
    default_source = "sample"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        sizes: Sequence[int] = (1000, 200, 200),
        seed: int = 42,
    ) -> ClassificationData:
        """Write the documents of the splits `train`, `dev` and `test`.

        Args:
            source: Ignored.
            languages: None for all five.
            streaming: Ignored.
            sizes: The number of documents of each split.
            seed: Seed of the documents.

        Raises:
            TaskError: An unknown language, or `sizes` that are not three whole numbers from 1.
        """
        chosen = choose_languages("sample", languages, LANGUAGES, self.languages)
        if not isinstance(sizes, list | tuple) or len(sizes) != 3:
            raise TaskError(
                f"{self.name}: found sizes={sizes!r}, expected three, such as [1000, 200, 200]."
            )
        splits: Splits = {language: {} for language in chosen}
        for name, size in zip(SPLIT_ORDER, sizes, strict=True):
            check_count(self, "sizes", size)
            documents = sample_documents(size, name, seed=seed, languages=chosen).to_pandas()
            for language in chosen:
                rows = documents[documents["language"] == language]
                splits[language][name] = Split(
                    ids=rows["doc_id"].tolist(),
                    texts=rows["text"].tolist(),
                    labels=rows["label"].tolist(),
                )
        return ClassificationData(splits, self.provenance)
