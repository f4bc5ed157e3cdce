"""Mining and indexing with Ray Data: as on one machine, shard by shard."""

import numpy as np
import pyarrow as pa
import pytest

from modeling_tmde import TmdeError
from tests.conftest import nightly_except, save
from tests.tiny_embedders import make_bag, make_tokenizer
from tmde import DocumentEmbedder
from tmde.documents import DocumentIndex, mine_bitext, ray_mining

WORDS = ["haus", "hund", "katze", "baum", "fluss", "stadt", "licht", "nacht", "brot", "wasser"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save(tmp_path_factory.mktemp("bag"), make_bag(), make_tokenizer()))


@pytest.fixture(scope="module")
def ray():
    """One Ray of two CPUs on this machine."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tmde[ray]'")
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


def make_texts(count, seed):
    """Texts of three words, some of them repeated, and an empty one."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 3)) for _ in range(count)]
    return [*texts, "", texts[0]]


@pytest.mark.parametrize("exact_cost", nightly_except([1e13], [1e13, 0]))
def test_the_pairs_are_those_of_one_machine(monkeypatch, caplog, ray, model, exact_cost):
    """With shards of some blocks each, searched exactly and by graphs."""
    monkeypatch.setattr(ray_mining, "EXACT_COST", exact_cost)
    first_texts = make_texts(60, seed=1)
    second_texts = make_texts(45, seed=2)
    first = ray.data.from_arrow(
        pa.table({"id": [f"a{row}" for row in range(62)], "text": first_texts})
    )
    second = ray.data.from_arrow(
        [pa.table({"text": second_texts[:20]}), pa.table({"text": second_texts[20:]})]
    )
    options = {"scoring": "distance", "retrieval": "intersection", "threshold": 0.01}
    pairs = ray_mining.mine_datasets(
        first, second, model, shard_size=30, batch_size=10, device="cpu", **options
    )
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu")
    expected = mine_bitext(
        embedder.encode(first_texts),
        embedder.encode(second_texts),
        first_texts,
        second_texts,
        **options,
    )
    assert len(expected) > 5
    # Rows of the second side have no ids, so they are numbered.
    expected_ids = [(f"a{first_row}", second_row) for first_row, second_row in expected.rows()]
    ids = list(zip(pairs["id_a"].to_pylist(), pairs["id_b"].to_pylist(), strict=True))
    assert set(ids) == set(expected_ids)
    scores = dict(zip(expected_ids, expected.scores.tolist(), strict=True))
    assert pairs["score"].to_pylist() == pytest.approx([scores[pair] for pair in ids], abs=1e-5)
    for first_id, second_id, first_text, second_text in zip(
        *(pairs[name].to_pylist() for name in ("id_a", "id_b", "text_a", "text_b")), strict=True
    ):
        assert first_texts[int(first_id[1:])] == first_text
        assert second_texts[second_id] == second_text
    is_approximate = "by HNSW, which finds" in caplog.text
    assert is_approximate == (exact_cost == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "body"}, "column: found 'body', expected one of"),
        ({"retrieval": "best"}, "retrieval: found 'best'"),
        ({"k": 0}, "scoring, k: found 'ratio', 0"),
    ],
)
def test_bad_arguments_of_mining(ray, model, options, message):
    dataset = ray.data.from_arrow(pa.table({"text": ["haus"]}))
    with pytest.raises(TmdeError, match=message):
        ray_mining.mine_datasets(dataset, dataset, model, **options)


def test_no_texts(ray, model):
    dataset = ray.data.from_arrow(pa.table({"text": ["", " "]}))
    with pytest.raises(TmdeError, match="found no text in 'text', expected at least one"):
        ray_mining.mine_datasets(dataset, dataset, model)


def test_the_index_is_that_of_one_machine(ray, model, tmp_path):
    from tmde.documents.ray_index import index_dataset

    texts = make_texts(30, seed=3)
    table = pa.table(
        {"key": range(32), "body": texts, "year": [1990 + row % 3 for row in range(32)]}
    )
    folder = tmp_path / "ray.index"
    options = {"id_column": "key", "column": "body", "batch_size": 8, "device": "cpu"}
    changes = index_dataset(ray.data.from_arrow(table), folder, model, **options)
    assert (changes.added, changes.updated) == (31, 0)  # One text is empty.

    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", long_documents="sentences")
    index = DocumentIndex.open(folder, embedder)
    expected = DocumentIndex.create(tmp_path / "one.index", embedder)
    filled = [row for row in range(32) if texts[row]]
    expected.upsert(
        [str(row) for row in filled],
        [texts[row] for row in filled],
        [{"year": 1990 + row % 3} for row in filled],
    )
    for filter in (None, {"year": 1991}):
        hits = index.search(texts[5], k=8, filter=filter)
        expected_hits = expected.search(texts[5], k=8, filter=filter)
        assert {hit.id: hit.metadata for hit in hits} == {
            hit.id: hit.metadata for hit in expected_hits
        }
        assert [hit.score for hit in hits] == pytest.approx(
            [hit.score for hit in expected_hits], abs=1e-5
        )

    # Again, with one document more.
    more = pa.table({"key": [100], "body": ["nacht nacht"], "year": [2000]})
    again = index_dataset(ray.data.from_arrow([table, more]), folder, model, **options)
    assert (again.added, again.updated) == (1, 31)


def test_an_id_that_occurs_twice_is_refused(ray, model, tmp_path):
    from tmde.documents.ray_index import index_dataset

    tables = [pa.table({"id": [1], "text": ["haus"]}), pa.table({"id": [1], "text": ["hund"]})]
    with pytest.raises(TmdeError, match="id: found '1' twice, expected unique ids"):
        index_dataset(
            ray.data.from_arrow(tables), tmp_path / "new.index", model, batch_size=1, device="cpu"
        )
