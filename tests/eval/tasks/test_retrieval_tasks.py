"""Retrieval of sentences: alignment, ids, and joining of pairs."""

import json

import pandas as pd
import pytest

from tests.eval.numbered import numbered
from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

SENTENCES = TASKS["sentence_retrieval"]()
TATOEBA = TASKS["tatoeba"]()
MATRIX = TASKS["europarl_matrix"]()
XSR = TASKS["xsr"]()

both = pytest.mark.parametrize("streaming", [False, True])


# ---- Rows in several languages


@pytest.fixture
def n_way(tmp_path) -> str:
    """Nine rows in three languages, of which every third lacks German."""
    lines = []
    for i in range(9):
        german = None if i % 3 == 2 else f"de {i}"
        row = {"de": german, "en": f"en {i}", "fr": f"fr {i}"}
        lines.append(json.dumps({"translation": row}))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


COMPLETE = {
    "de": ["de 0", "de 1", "de 3", "de 4"],
    "en": ["en 0", "en 1", "en 3", "en 4"],
    "fr": ["fr 0", "fr 1", "fr 3", "fr 4"],
}


@both
def test_rows_may_lack_languages(streaming, n_way):
    data = SENTENCES.load(n_way, streaming=streaming)
    assert data.languages == ["de", "en", "fr"]
    assert list(data.ids) == list("012345678")
    assert list(data.texts["de"])[:4] == ["de 0", "de 1", None, "de 3"]
    assert list(data.texts["fr"]) == numbered("fr ", range(9))


@both
def test_provenance_of_a_file(streaming, n_way):
    provenance = SENTENCES.load(n_way, streaming=streaming).provenance
    assert provenance.source == n_way
    assert provenance.hub_id is None
    assert provenance.split is None


@both
def test_the_first_rows_of_some_languages(streaming, n_way):
    data = SENTENCES.load(n_way, languages=["fr", "de"], streaming=streaming, max_rows=3)
    assert data.languages == ["fr", "de"]
    assert list(data.texts["fr"]) == ["fr 0", "fr 1", "fr 3"]


@both
def test_the_matrix_has_complete_rows(streaming, n_way):
    assert dict(MATRIX.load(n_way, streaming=streaming, rows=4).texts) == COMPLETE


@both
def test_xsr_has_complete_rows(streaming, n_way):
    data = XSR.load(n_way, streaming=streaming, queries=2, candidates=4)
    assert dict(data.texts) == COMPLETE
    assert list(data.ids) == ["0", "1", "2", "3"]
    assert data.queries == 2


@both
def test_xsr_without_german_has_all_rows(streaming, n_way):
    data = XSR.load(n_way, ["fr", "en"], streaming, 1, 9)
    assert list(data.texts) == ["fr", "en"]
    assert len(data.ids) == 9


def test_the_number_of_queries_is_in_the_fingerprint(n_way):
    two = XSR.load(n_way, queries=2, candidates=4)
    three = XSR.load(n_way, queries=3, candidates=4)
    assert data_fingerprint(two) != data_fingerprint(three)


# ---- Pairs of languages

# German misses multiples of 5; French comes in another order, and one sentence of it twice.
GERMAN = [i for i in range(60) if i % 5]
FRENCH = [*[i for i in range(60) if i % 4 != 1][::-1], 2]


def parallel_rows(first_language, first_texts, second_language, second_texts) -> list[dict]:
    rows = []
    for first, second in zip(first_texts, second_texts, strict=True):
        rows.append({"translation": {first_language: first, second_language: second}})
    return rows


def french_texts() -> list[str]:
    """French texts hold their place, which tells the two of a repeated English sentence apart."""
    texts = []
    for place, number in enumerate(FRENCH):
        texts.append(f"fr {number} {place}")
    return texts


@pytest.fixture
def europarl(dataset_folder) -> str:
    """Pairs with overlapping English."""
    english_spanish = (numbered("en ", range(60)), numbered("es ", range(60)))
    configs = {
        "de-en": parallel_rows("de", numbered("de ", GERMAN), "en", numbered("en ", GERMAN)),
        "en-es": parallel_rows("en", english_spanish[0], "es", english_spanish[1]),
        "en-fr": parallel_rows("en", numbered("en ", FRENCH), "fr", french_texts()),
        "de-fr": parallel_rows("de", [" ", "never"], "fr", ["empty", "read"]),
    }
    splits = {}
    for name, rows in configs.items():
        splits[name] = {"train": rows}
    return dataset_folder(splits)


@both
def test_every_pair_of_the_languages_is_taken(streaming, europarl):
    """Without the row of de-fr whose German is empty."""
    data = SENTENCES.load(europarl, ["fr", "de", "en"], streaming=streaming, max_rows=2)
    assert list(data.ids) == ["de-en:0", "de-en:1", "de-fr:0", "en-fr:0", "en-fr:1"]
    assert list(data.texts["de"]) == ["de 1", "de 2", "never", None, None]
    assert list(data.texts["en"]) == ["en 1", "en 2", None, "en 59", "en 58"]


@both
def test_one_config(streaming, europarl):
    data = SENTENCES.load(europarl, config="de-en", streaming=streaming)
    assert data.languages == ["de", "en"]


@both
def test_xsr_has_pairs_with_english(streaming, europarl):
    languages = ["en", "de", "es"]
    data = XSR.load(europarl, languages, streaming=streaming, queries=10, candidates=30)
    assert data.languages == languages
    assert list(data.ids) == numbered("de-en:", range(30)) + numbered("en-es:", range(30))
    assert list(data.texts["de"]) == numbered("de ", GERMAN[:30]) + [None] * 30
    assert list(data.texts["en"]) == numbered("en ", [*GERMAN[:30], *range(30)])


@both
def test_too_few_candidates_of_a_pair_are_an_error(streaming, europarl):
    message = r"\(config de-en\), field 'candidates': found 48 rows .*expected 50\."
    with pytest.raises(TaskError, match=message):
        XSR.load(europarl, ["en", "de"], streaming=streaming, queries=10, candidates=50)


def numbers_in(texts: list[str]) -> list[int]:
    """The numbers of texts such as `en 3`."""
    return [int(text.split()[1]) for text in texts]


@both
@pytest.mark.parametrize("block", [7, 1000])
def test_the_matrix_joins_pairs_on_english(streaming, block, europarl, monkeypatch):
    monkeypatch.setattr("tmde.eval.tasks.parallel.BLOCK_ROWS", block)
    data = MATRIX.load(europarl, streaming=streaming, rows=20)
    assert data.languages == ["de", "en", "es", "fr"]  # The default ones that are there.
    assert list(data.ids) == numbered("", range(20))
    numbers = numbers_in(data.texts["en"])
    assert len(set(numbers)) == 20
    assert set(numbers) <= set(GERMAN) & set(FRENCH)
    assert list(data.texts["de"]) == numbered("de ", numbers)
    assert list(data.texts["es"]) == numbered("es ", numbers)
    for number, french_text in zip(numbers, data.texts["fr"], strict=True):
        # A repeated sentence has its first translation.
        assert french_text == f"fr {number} {FRENCH.index(number)}"


@both
def test_the_rows_of_the_matrix_are_in_the_order_of_the_first_pair(streaming, europarl):
    """All rows are in one block, so that everything is read."""
    data = MATRIX.load(europarl, streaming=streaming, rows=20)
    common = [number for number in GERMAN if number in FRENCH]
    assert numbers_in(data.texts["en"]) == common[:20]


@both
@pytest.mark.parametrize("block", [7, 1000])
def test_too_few_complete_rows_are_an_error(streaming, block, europarl, monkeypatch):
    monkeypatch.setattr("tmde.eval.tasks.parallel.BLOCK_ROWS", block)
    size = len(set(GERMAN) & set(FRENCH))
    message = rf"'rows': found {size} rows with all .*, expected {size + 1}"
    with pytest.raises(TaskError, match=message):
        MATRIX.load(europarl, ["fr", "en", "de"], streaming, rows=size + 1)


# ---- Tatoeba

TATOEBA_TEXTS = {"deu": "abc", "cmn": "de", "ast": "f"}


@pytest.fixture
def tatoeba_files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for code, texts in TATOEBA_TEXTS.items():
        for side in (code, "eng"):
            with (folder / f"tatoeba.{code}-eng.{side}").open("w") as file:
                for text in texts:
                    file.write(f"{side} {text}\n")
    return folder


@pytest.fixture
def tatoeba_dataset(dataset_folder) -> str:
    """The same sentences; some kept the end of their line, as on the Hub."""
    configs = {}
    for code, texts in TATOEBA_TEXTS.items():
        rows = [{"sentence1": f"{code} {text}\n", "sentence2": f"eng {text}"} for text in texts]
        configs[f"{code}-eng"] = {"test": rows}
    return dataset_folder(configs)


@both
def test_rows_of_tatoeba(streaming, tatoeba_files):
    data = TATOEBA.load(tatoeba_files, ["zh", "de", "ast"], streaming)
    assert data.ids == [
        *("cmn-eng:0", "cmn-eng:1"),
        *("deu-eng:0", "deu-eng:1", "deu-eng:2"),
        "ast-eng:0",
    ]
    assert dict(data.texts) == {
        "zh": ["cmn d", "cmn e", None, None, None, None],
        "de": [None, None, "deu a", "deu b", "deu c", None],
        "ast": [None, None, None, None, None, "ast f"],
        "en": ["eng d", "eng e", "eng a", "eng b", "eng c", "eng f"],
    }


@both
def test_tatoeba_is_the_same_from_files_and_from_the_hub(streaming, tatoeba_files, tatoeba_dataset):
    languages = ["zh", "de", "ast"]
    from_files = TATOEBA.load(tatoeba_files, languages, streaming)
    from_hub = TATOEBA.load(tatoeba_dataset, languages, streaming)
    assert data_fingerprint(from_files) == data_fingerprint(from_hub)


# Pairs as ISO 639-1 codes, as ISO 639-3 codes, and with English first.
TABLE = [
    {"pair": "de-en", "sentence1": "eins\n", "sentence2": "one"},
    {"pair": "spa-eng", "sentence1": "uno", "sentence2": "one"},
    {"pair": "de-en", "sentence1": "zwei", "sentence2": "two"},
    {"pair": "en-pl", "sentence1": "three", "sentence2": "trzy"},
]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_tatoeba_from_a_table(suffix, tmp_path):
    path = tmp_path / f"pairs.{suffix}"
    frame = pd.DataFrame(TABLE)
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    data = TATOEBA.load(path, ["es", "de"])
    assert data.ids == ["de-en:0", "de-en:1", "es-en:0"]
    assert dict(data.texts) == {
        "es": [None, None, "uno"],
        "de": ["eins", "zwei", None],
        "en": ["one", "two", "one"],
    }
    assert TATOEBA.load(path).languages == ["de", "es", "en"]
    assert TATOEBA.load(path, ["pl"]).texts["pl"] == ["trzy"]


@pytest.mark.parametrize("pair", ["de-fr", "german", "en-en"])
def test_a_pair_of_a_table_without_english_is_refused(pair, tmp_path):
    pd.DataFrame([*TABLE, TABLE[0] | {"pair": pair}]).to_parquet(tmp_path / "pairs.parquet")
    message = rf"pairs\.parquet, row 5, field 'pair': found '{pair}', expected a language and"
    with pytest.raises(TaskError, match=message):
        TATOEBA.load(tmp_path / "pairs.parquet")


@both
def test_tatoeba_has_the_default_languages_that_are_there(streaming, tatoeba_files):
    assert TATOEBA.load(tatoeba_files, streaming=streaming).languages == ["de", "en"]
