"""Retrieval of sentences: alignment, ids, and joining of pairs."""

import json

import pytest

from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

SENTENCES, TATOEBA, MATRIX, XSR = (
    TASKS[name]() for name in ("sentence_retrieval", "tatoeba", "europarl_matrix", "xsr")
)
both = pytest.mark.parametrize("streaming", [False, True])


@pytest.fixture
def n_way(tmp_path):
    """Rows in three languages, of which every third lacks German."""
    rows = [
        {"de": None if i % 3 == 2 else f"de {i}", "en": f"en {i}", "fr": f"fr {i}"}
        for i in range(9)
    ]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"translation": row}) + "\n" for row in rows)
    )
    return str(tmp_path / "rows.jsonl")


@both
def test_n_way_rows(streaming, n_way):
    data = SENTENCES.load(n_way, streaming=streaming)
    assert list(data.ids) == list("012345678") and data.languages == ["de", "en", "fr"]
    assert list(data.texts["de"])[:4] == ["de 0", "de 1", None, "de 3"]
    assert list(data.texts["fr"]) == [f"fr {i}" for i in range(9)]
    assert (data.provenance.source, data.provenance.hub_id, data.provenance.split) == (
        n_way,
        None,
        None,
    )
    data = SENTENCES.load(n_way, languages=["fr", "de"], streaming=streaming, max_rows=3)
    assert data.languages == ["fr", "de"] and list(data.texts["fr"]) == ["fr 0", "fr 1", "fr 3"]
    complete = {code: [f"{code} {i}" for i in (0, 1, 3, 4)] for code in ("de", "en", "fr")}
    assert dict(MATRIX.load(n_way, streaming=streaming, rows=4).texts) == complete
    data = XSR.load(n_way, streaming=streaming, queries=2, candidates=4)
    assert (
        dict(data.texts) == complete
        and list(data.ids) == ["0", "1", "2", "3"]
        and data.queries == 2
    )
    assert data_fingerprint(data) != data_fingerprint(XSR.load(n_way, queries=3, candidates=4))
    assert list(XSR.load(n_way, ["fr", "en"], streaming, 1, 9).texts) == ["fr", "en"]


@pytest.fixture
def europarl(dataset_folder):
    """Pairs with overlapping English: de misses multiples of 5, fr comes in another order, some repeat."""
    german = [i for i in range(60) if i % 5]
    french = [i for i in range(60) if i % 4 != 1][::-1] + [2]
    configs = {
        "de-en": [{"de": f"de {i}", "en": f"en {i}"} for i in german],
        "en-es": [{"en": f"en {i}", "es": f"es {i}"} for i in range(60)],
        "en-fr": [{"en": f"en {i}", "fr": f"fr {i} {n}"} for n, i in enumerate(french)],
        "de-fr": [{"de": " ", "fr": "empty"}, {"de": "never", "fr": "read"}],
    }
    splits = {
        name: {"train": [{"translation": row} for row in rows]} for name, rows in configs.items()
    }
    return dataset_folder(splits), german, french


@both
def test_pairs(streaming, europarl):
    folder, german, _ = europarl
    data = SENTENCES.load(folder, ["fr", "de", "en"], streaming=streaming, max_rows=2)
    assert list(data.ids) == [
        "de-en:0",
        "de-en:1",
        "de-fr:0",
        "en-fr:0",
        "en-fr:1",
    ]  # without the empty German
    assert list(data.texts["de"]) == ["de 1", "de 2", "never", None, None]
    assert list(data.texts["en"]) == ["en 1", "en 2", None, "en 59", "en 58"]
    assert SENTENCES.load(folder, config="de-en", streaming=streaming).languages == ["de", "en"]
    data = XSR.load(
        folder, languages=["en", "de", "es"], streaming=streaming, queries=10, candidates=30
    )
    assert data.languages == ["en", "de", "es"]
    assert list(data.ids) == [f"{pair}:{i}" for pair in ("de-en", "en-es") for i in range(30)]
    assert list(data.texts["de"]) == [f"de {i}" for i in german[:30]] + [None] * 30
    assert list(data.texts["en"]) == [f"en {i}" for i in [*german[:30], *range(30)]]
    with pytest.raises(
        TaskError, match=r"\(config de-en\), field 'candidates': found 48 rows .*expected 50\."
    ):
        XSR.load(folder, languages=["en", "de"], streaming=streaming, queries=10, candidates=50)


@both
@pytest.mark.parametrize("block", [7, 1000])
def test_matrix_joins_pairs_on_english(streaming, block, europarl, monkeypatch):
    monkeypatch.setattr("tmde.eval.tasks.parallel.BLOCK_ROWS", block)
    folder, german, french = europarl
    data = MATRIX.load(folder, streaming=streaming, rows=20)
    assert data.languages == ["de", "en", "es", "fr"]  # of the default ones, those that are there
    assert list(data.ids) == [str(i) for i in range(20)]
    numbers = [int(text.split()[1]) for text in data.texts["en"]]
    assert len(set(numbers)) == 20 and set(numbers) <= set(german) & set(french)
    assert list(data.texts["de"]) == [f"de {i}" for i in numbers]
    assert list(data.texts["es"]) == [f"es {i}" for i in numbers]
    assert list(data.texts["fr"]) == [
        f"fr {i} {french.index(i)}" for i in numbers
    ]  # the first of a repeated one
    if block == 1000:  # everything is read: the complete rows in German's order
        assert numbers == [i for i in german if i in french][:20]
    size = len(set(german) & set(french))
    with pytest.raises(
        TaskError, match=rf"'rows': found {size} rows with all .*, expected {size + 1}"
    ):
        MATRIX.load(folder, ["fr", "en", "de"], streaming, rows=size + 1)


@both
def test_tatoeba(streaming, tmp_path, dataset_folder):
    pairs, files = {"deu": "abc", "cmn": "de", "ast": "f"}, tmp_path / "files"
    files.mkdir()
    for code, texts in pairs.items():
        for side in (code, "eng"):
            (files / f"tatoeba.{code}-eng.{side}").write_text(
                "".join(f"{side} {text}\n" for text in texts)
            )
    hub = dataset_folder(
        {
            f"{code}-eng": {
                "test": [
                    {"sentence1": f"{code} {text}\n", "sentence2": f"eng {text}"} for text in texts
                ]
            }
            for code, texts in pairs.items()
        }
    )
    loaded = [TATOEBA.load(source, ["zh", "de", "ast"], streaming) for source in (files, hub)]
    assert data_fingerprint(loaded[0]) == data_fingerprint(loaded[1])
    assert loaded[0].ids == [
        "cmn-eng:0",
        "cmn-eng:1",
        "deu-eng:0",
        "deu-eng:1",
        "deu-eng:2",
        "ast-eng:0",
    ]
    assert dict(loaded[0].texts) == {
        "zh": ["cmn d", "cmn e", None, None, None, None],
        "de": [None, None, "deu a", "deu b", "deu c", None],
        "ast": [None, None, None, None, None, "ast f"],
        "en": ["eng d", "eng e", "eng a", "eng b", "eng c", "eng f"],
    }
    assert TATOEBA.load(files, streaming=streaming).languages == ["de", "en"]
