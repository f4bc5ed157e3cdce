"""Retrieval of sentences and documents: alignment, ids, and joining of pairs."""

import json

import pytest

from modeling_tmde.eval.tasks import TASKS, TaskError, data_fingerprint

SENTENCES, TATOEBA, MATRIX, XSR = (
    TASKS[name]() for name in ("sentence_retrieval", "tatoeba", "europarl_matrix", "xsr")
)


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def n_way(count):
    """Return rows in three languages, of which every third lacks German."""
    return [{"de": None if i % 3 == 2 else f"de {i}", "en": f"en {i}", "fr": f"fr {i}"} for i in range(count)]


@pytest.mark.parametrize("streaming", [False, True])
def test_sentences_of_a_file(streaming, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", [{"translation": row} for row in n_way(5)])
    data = SENTENCES.load(source, streaming=streaming)
    assert list(data.ids) == ["0", "1", "2", "3", "4"] and data.languages == ["de", "en", "fr"]
    assert list(data.texts["de"]) == ["de 0", "de 1", None, "de 3", "de 4"]
    assert list(data.texts["fr"]) == [f"fr {i}" for i in range(5)]
    data = SENTENCES.load(source, languages=["fr", "de"], streaming=streaming, max_rows=3)
    assert data.languages == ["fr", "de"] and list(data.texts["fr"]) == ["fr 0", "fr 1", "fr 3"]


def test_sentences_of_moses_files(tmp_path):
    (tmp_path / "corpus.de").write_text("eins\nzwei\n")
    (tmp_path / "corpus.en").write_text("one\ntwo\n")
    data = SENTENCES.load(tmp_path / "corpus")
    assert dict(data.texts) == {"de": ["eins", "zwei"], "en": ["one", "two"]}
    (tmp_path / "corpus.en").write_text("one\n")
    with pytest.raises(TaskError, match=r"different numbers of lines"):
        SENTENCES.load(tmp_path / "corpus")


def pair_rows(first, second, texts):
    return [{"translation": {first: f"{first} {text}", second: f"{second} {text}"}} for text in texts]


@pytest.mark.parametrize("streaming", [False, True])
def test_sentences_of_pairs(streaming, dataset_folder):
    configs = {"de-en": pair_rows("de", "en", "abc"), "en-fr": pair_rows("en", "fr", "xyz")}
    configs["de-en"][1]["translation"]["de"] = " "  # a bad row: the stream and the file must both skip it
    folder = dataset_folder({name: {"train": rows} for name, rows in configs.items()})
    data = SENTENCES.load(folder, streaming=streaming, max_rows=2)
    assert list(data.ids) == ["de-en:0", "de-en:1", "en-fr:0", "en-fr:1"]
    assert dict(data.texts) == {
        "de": ["de a", "de c", None, None],
        "en": ["en a", "en c", "en x", "en y"],
        "fr": [None, None, "fr x", "fr y"],
    }
    assert SENTENCES.load(folder, ["fr", "en"], streaming).ids == ["en-fr:0", "en-fr:1", "en-fr:2"]
    assert SENTENCES.load(folder, config="de-en", streaming=streaming).languages == ["de", "en"]


# Europarl


def europarl(dataset_folder, block=7):
    """Return pairs with overlapping English: de misses multiples of 5, fr comes in another order, some repeat."""
    german = [i for i in range(60) if i % 5]
    french = [i for i in range(60) if i % 4 != 1][::-1] + [2]
    spanish = [*range(60)]
    configs = {
        "de-en": [{"translation": {"de": f"de {i}", "en": f"en {i}"}} for i in german],
        "en-es": [{"translation": {"en": f"en {i}", "es": f"es {i}"}} for i in spanish],
        "en-fr": [{"translation": {"en": f"en {i}", "fr": f"fr {i} {n}"}} for n, i in enumerate(french)],
        "de-fr": [{"translation": {"de": "never", "fr": "read"}}],
    }
    return dataset_folder({name: {"train": rows} for name, rows in configs.items()}), german, french


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("block", [7, 1000])
def test_matrix_joins_pairs_on_english(streaming, block, dataset_folder, monkeypatch):
    monkeypatch.setattr("modeling_tmde.eval.tasks.parallel.BLOCK_ROWS", block)
    folder, german, french = europarl(dataset_folder)
    data = MATRIX.load(folder, streaming=streaming, rows=20)
    assert data.languages == ["de", "en", "es", "fr"]  # of the default ones, those that are there
    assert list(data.ids) == [str(i) for i in range(20)]
    numbers = [int(text.split()[1]) for text in data.texts["en"]]
    assert len(set(numbers)) == 20 and set(numbers) <= set(german) & set(french)
    assert list(data.texts["de"]) == [f"de {i}" for i in numbers]
    assert list(data.texts["es"]) == [f"es {i}" for i in numbers]
    assert list(data.texts["fr"]) == [f"fr {i} {french.index(i)}" for i in numbers]  # the first of a repeated one
    if block == 1000:  # everything is read: the complete rows in German's order
        assert numbers == [i for i in german if i in french][:20]


def test_matrix_is_the_same_streamed(dataset_folder):
    folder, german, french = europarl(dataset_folder)
    size = len(set(german) & set(french))
    loaded = [MATRIX.load(folder, ["fr", "en", "de"], streaming, rows=size) for streaming in (False, True)]
    assert data_fingerprint(loaded[0]) == data_fingerprint(loaded[1])
    assert loaded[0].languages == ["fr", "en", "de"]
    with pytest.raises(TaskError, match=rf"'rows': found {size} rows with all .*, expected {size + 1}"):
        MATRIX.load(folder, ["fr", "en", "de"], rows=size + 1)


@pytest.mark.parametrize("streaming", [False, True])
def test_matrix_and_xsr_of_n_way_rows(streaming, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", n_way(9))
    expected = {
        "de": [f"de {i}" for i in (0, 1, 3, 4)],
        "en": [f"en {i}" for i in (0, 1, 3, 4)],
        "fr": [f"fr {i}" for i in (0, 1, 3, 4)],
    }
    assert dict(MATRIX.load(source, streaming=streaming, rows=4).texts) == expected
    data = XSR.load(source, streaming=streaming, queries=2, candidates=4)
    assert dict(data.texts) == expected and list(data.ids) == ["0", "1", "2", "3"]
    assert data.queries == 2
    assert data_fingerprint(data) != data_fingerprint(XSR.load(source, queries=3, candidates=4))
    assert list(XSR.load(source, ["fr", "en"], streaming, 1, 9).texts) == ["fr", "en"]


@pytest.mark.parametrize("streaming", [False, True])
def test_xsr_of_pairs(streaming, dataset_folder):
    folder, german, _ = europarl(dataset_folder)
    data = XSR.load(folder, languages=["en", "de", "es"], streaming=streaming, queries=10, candidates=30)
    assert data.languages == ["en", "de", "es"]
    assert list(data.ids) == [f"{pair}:{i}" for pair in ("de-en", "en-es") for i in range(30)]
    assert list(data.texts["de"]) == [f"de {i}" for i in german[:30]] + [None] * 30
    assert list(data.texts["en"]) == [f"en {i}" for i in [*german[:30], *range(30)]]
    with pytest.raises(TaskError, match=r"\(config de-en\), field 'candidates': found 48 rows .*expected 50\."):
        XSR.load(folder, languages=["en", "de"], streaming=streaming, queries=10, candidates=50)


# Tatoeba


def write_tatoeba(folder, pairs):
    for code, texts in pairs.items():
        for side in (code, "eng"):
            lines = "".join(f"{side} {text}\n" for text in texts)
            (folder / f"tatoeba.{code}-eng.{side}").write_text(lines)
    return str(folder)


@pytest.mark.parametrize("streaming", [False, True])
def test_tatoeba(streaming, tmp_path, dataset_folder):
    pairs = {"deu": "abc", "cmn": "de", "ast": "f"}
    configs = {
        f"{code}-eng": {
            "test": [
                {"sentence1": f"{code} {text}\n", "sentence2": f"eng {text}", "lang": f"{code}-eng"} for text in texts
            ]
        }
        for code, texts in pairs.items()
    }
    hub, files = dataset_folder(configs), tmp_path / "files"
    files.mkdir()
    write_tatoeba(files, pairs)
    loaded = [TATOEBA.load(source, ["zh", "de", "ast"], streaming) for source in (files, hub)]
    assert data_fingerprint(loaded[0]) == data_fingerprint(loaded[1])
    data = loaded[0]
    assert list(data.ids) == ["cmn-eng:0", "cmn-eng:1", "deu-eng:0", "deu-eng:1", "deu-eng:2", "ast-eng:0"]
    assert dict(data.texts) == {
        "zh": ["cmn d", "cmn e", None, None, None, None],
        "de": [None, None, "deu a", "deu b", "deu c", None],
        "ast": [None, None, None, None, None, "ast f"],
        "en": ["eng d", "eng e", "eng a", "eng b", "eng c", "eng f"],
    }
    assert TATOEBA.load(files, streaming=streaming).languages == ["de", "en"]
    assert TATOEBA.load(hub, ["en", "zh"], streaming).languages == ["zh", "en"]
