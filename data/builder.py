"""The `datasets` builder behind every corpus: cached Arrow files for map-style, a lazy stream otherwise."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import datasets
import pyarrow as pa

from .checks import Checker, CorpusError, CorpusReport, features_of
from .files import FileSource
from .readers import Block, check_lengths, columns_of_table, languages_of_schema, read_blocks

MAP_BLOCK_ROWS = 10_000
STREAM_BLOCK_ROWS = 500  # what a stream reads and checks ahead of the row it gives


@dataclass(frozen=True)
class DatasetSource:
    """A map-style dataset (from the Hub, or the built-in sample) whose rows are still to be checked."""

    dataset: datasets.Dataset
    place: str

    def stamps(self) -> tuple[str]:
        """Return the dataset's fingerprint, which changes with its files."""
        return (self.dataset._fingerprint,)

    def read_blocks(self, languages: Sequence[str], block_rows: int, document_ids: bool) -> Iterator[Block]:
        """Yield row numbers and strings by language, with `document_ids` also those of `doc_id`."""
        names = sorted(languages_of_schema(self.dataset.features.arrow_schema, self.place, languages))
        done = 0
        for table in self.dataset.with_format("arrow").iter(block_rows):
            numbers = range(done + 1, done + 1 + table.num_rows)
            yield columns_of_table(table, names, self.place, numbers, document_ids)
            done += table.num_rows


@dataclass
class ParallelConfig(datasets.BuilderConfig):
    """What decides the rows of a corpus. Together the fields are the key of the cache."""

    stamps: tuple = ()
    languages: tuple[str, ...] = ()
    inferred: bool = False
    bad_rows: str = "report"
    max_rows: int | None = None
    split: str = "train"
    document_ids: bool = False


class ParallelCorpus(datasets.ArrowBasedBuilder):
    """Reads and checks sources in blocks. Use [`build`].

    The sources and the report are attributes and not part of the config: the one may hold a whole dataset, the other
    changes while rows are read, and the config is hashed.
    """

    BUILDER_CONFIG_CLASS = ParallelConfig
    VERSION = datasets.Version("1.0.0")  # raise it when the checks change, so that cached corpora are read again

    sources: tuple[FileSource | DatasetSource, ...] = ()
    report: CorpusReport
    block_rows: int = MAP_BLOCK_ROWS
    log_sources: bool = False

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=features_of(self.config.languages, self.config.document_ids))

    def _split_generators(self, dl_manager: object) -> list[datasets.SplitGenerator]:
        for source in self.sources:
            if isinstance(source, FileSource):
                check_lengths(source)
        # A list in gen_kwargs makes each source a shard of the stream.
        return [datasets.SplitGenerator(name=self.config.split, gen_kwargs={"sources": list(self.sources)})]

    def _generate_tables(
        self, sources: list[FileSource | DatasetSource]
    ) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        config = self.config
        check = Checker(config.languages, config.bad_rows, self.report, config.document_ids)
        left = config.max_rows
        for source_index, source in enumerate(sources):
            if isinstance(source, FileSource):
                options = (config.inferred, self.block_rows, config.document_ids)
                blocks = read_blocks(source, config.languages, *options)
            else:
                blocks = source.read_blocks(config.languages, self.block_rows, config.document_ids)
            for block_index, (numbers, columns) in enumerate(blocks):
                table = check(columns, numbers, source.place, left)
                yield (source_index, block_index), table
                left = None if left is None else left - table.num_rows
                if left == 0:
                    break
            if self.log_sources:
                self.report.log(source.place)
            if left == 0:
                break
        # Kept with the cached files, for the next time they are loaded without being read.
        self.info.description = self.report.to_json()


def build(
    sources: Sequence[FileSource | DatasetSource],
    languages: Sequence[str],
    inferred: bool,
    bad_rows: str,
    split: str,
    streaming: bool,
    max_rows: int | None,
    report: CorpusReport,
    document_ids: bool = False,
) -> datasets.Dataset | datasets.IterableDataset:
    """Load sources one after the other.

    Args:
        sources: Files or datasets.
        languages: The sorted languages of the result.
        inferred: Whether they were looked up in the sources and not requested.
        bad_rows: `"report"` or `"raise"`.
        split: The name of the split of the result.
        streaming: Whether to read lazily.
        max_rows: Read no more than that many good rows. A stream ignores it: its shards do not know of each other.
        report: Filled in; at once (also from the cache) for a map-style dataset, as rows are read for a stream.
        document_ids: Whether to keep the column `doc_id`, null where a source has none.

    Raises:
        CorpusError: Bad input; for a stream, while it is read.
    """
    builder = ParallelCorpus(
        dataset_name="tmde_corpus",
        stamps=tuple(source.stamps() for source in sources),
        languages=tuple(languages),
        inferred=inferred,
        bad_rows=bad_rows,
        max_rows=None if streaming else max_rows,
        split=split,
        document_ids=document_ids,
    )
    builder.sources = tuple(sources)
    if streaming:
        for source in sources:
            report.begin(source.place)
        builder.report, builder.block_rows, builder.log_sources = report, STREAM_BLOCK_ROWS, True
        return builder.as_streaming_dataset(split=split)
    builder.report = CorpusReport()
    try:
        builder.download_and_prepare()
    except datasets.exceptions.DatasetGenerationError as error:
        if isinstance(error.__cause__, CorpusError):
            raise error.__cause__ from None
        raise
    place = " + ".join(source.place for source in sources)
    report.begin(place)
    counts = CorpusReport(**json.loads(builder.info.description))
    report.add(place, counts, counts.rows)
    if builder.info.splits[split].num_examples == 0:  # a split without rows can't be read back
        features = features_of(languages, document_ids)
        return datasets.Dataset.from_dict({name: [] for name in features}, features=features, split=split)
    return builder.as_dataset(split=split)
