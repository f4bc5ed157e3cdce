"""`load_parallel` on a `Dataset` or `IterableDataset` that is loaded already."""

import datasets
import pytest

from tmde.data import CorpusError, CorpusReport, load_parallel

FLAT = [
    {"de": "Haus", "en": "house", "id": 1},
    {"de": " ", "en": "mouse", "id": 2},
    {"de": "Baum", "en": "tree", "id": 3},
]
NESTED = [{"translation": {"de": row["de"], "en": row["en"]}} for row in FLAT]
GOOD = [{"de": "Haus", "en": "house"}, {"de": "Baum", "en": "tree"}]

every_layout = pytest.mark.parametrize("rows", [FLAT, NESTED], ids=["flat", "nested"])


def stream_of(rows: list[dict]) -> datasets.IterableDataset:
    return datasets.Dataset.from_list(rows).to_iterable_dataset()


def generated(rows: list[dict]) -> datasets.IterableDataset:
    """A stream whose columns are not known before it is read."""
    return datasets.IterableDataset.from_generator(lambda: iter(rows))


@every_layout
@pytest.mark.parametrize("kind", [datasets.Dataset.from_list, stream_of, generated])
def test_rows_are_checked_and_counted(rows, kind):
    report = CorpusReport()
    loaded = load_parallel(kind(rows), report=report)
    assert [row["translation"] for row in loaded] == GOOD
    assert loaded.column_names == ["translation"]
    assert (report.rows, report.kept) == (3, 2)
    assert type(loaded) is type(kind(rows))


@pytest.mark.parametrize("kind", [datasets.Dataset.from_list, stream_of])
def test_a_bad_row_is_named(kind):
    with pytest.raises(CorpusError, match=r"^dataset, row 2, field 'de': found ' ', expected a te"):
        list(load_parallel(kind(FLAT), bad_rows="raise"))


def test_streams_stay_lazy():
    """Opening reads one row, which names the columns; reading goes on by small batches."""
    rows_read = []

    def generate():
        for number in range(10**9):
            rows_read.append(number)
            yield {"de": f"de {number}", "en": f"en {number}"}

    loaded = load_parallel(datasets.IterableDataset.from_generator(generate))
    assert len(rows_read) <= 1
    assert list(loaded.take(2))[1]["translation"] == {"de": "de 1", "en": "en 1"}
    assert len(rows_read) < 5000


def test_a_dataset_is_streamed_on_demand_and_beside_a_stream():
    dataset = datasets.Dataset.from_list(FLAT)
    assert isinstance(load_parallel(dataset, streaming=True), datasets.IterableDataset)
    both = load_parallel([dataset, stream_of(NESTED)])
    assert isinstance(both, datasets.IterableDataset)
    assert [row["translation"] for row in both] == GOOD * 2


def test_columns_and_languages_are_chosen_as_of_files():
    dataset = datasets.Dataset.from_list([{"Source": "Haus", "Target": "house", "fr": "maison"}])
    columns = {"de": "Source", "en": "Target"}
    (row,) = load_parallel(dataset, columns=columns, languages=["de", "en"])
    assert row["translation"] == {"de": "Haus", "en": "house"}
    with pytest.raises(CorpusError, match=r"^dataset, field 'translation': .* Source, Target"):
        load_parallel(dataset, languages=["de", "en"])


@pytest.mark.parametrize("kind", [datasets.DatasetDict, datasets.IterableDatasetDict])
def test_a_dictionary_of_splits_is_refused_with_advice(kind):
    splits = kind({"train": datasets.Dataset.from_list(FLAT)})
    message = rf"'source': found a {kind.__name__} of the splits train, .*rows\['train'\]"
    with pytest.raises(CorpusError, match=message):
        load_parallel(splits)


def test_a_config_is_refused():
    with pytest.raises(CorpusError, match=r"^dataset, field 'config': found config='de-en'"):
        load_parallel(datasets.Dataset.from_list(FLAT), config="de-en")
