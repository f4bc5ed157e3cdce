"""Hub datasets, by local folders laid out like them: selection of configs, fixed struct, mixing."""

import math

import pytest

from tmde.data import CorpusError, CorpusReport, load_parallel
from tmde.data.mixing import mixing_probabilities
from tmde.data.parts import select_configs


def pair(first: str, second: str, size: int) -> list[dict]:
    """Return rows of a language pair that tell where they come from."""
    return [{first: f"{first}{i} of {first}-{second}", second: f"{second}{i}"} for i in range(size)]


CONFIGS = {
    "de-en": pair("de", "en", 60),
    "de-fr": pair("de", "fr", 30),
    "en-fr": pair("en", "fr", 240),
}


def fixed(rows: list[dict], languages: str) -> list[dict]:
    """Return the rows with all the languages."""
    return [{code: row.get(code) for code in languages.split()} for row in rows]


def texts(dataset: object) -> list[dict]:
    """Return the `translation` values."""
    assert list(dataset.features) == ["translation"]
    return [row["translation"] for row in dataset]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_all_pairs(streaming, counts, hub_folder):
    dataset = load_parallel(hub_folder(CONFIGS, counts), streaming=streaming)
    expected = fixed(CONFIGS["de-en"] + CONFIGS["de-fr"] + CONFIGS["en-fr"], "de en fr")
    rows = texts(dataset)
    assert sorted(rows, key=str) == sorted(expected, key=str)
    if streaming and counts:  # drawn in proportion, not one config after the other
        assert 0.55 < sum(row["de"] is None for row in rows[:200]) / 200 < 0.9
    if not streaming:
        assert rows == expected


NAMES = ["de-en", "de-es", "de-fr", "en-es", "en-fr", "es-fr", "all"]


@pytest.mark.parametrize(
    ("names", "languages", "pivots", "expected"),
    [
        (
            NAMES,
            ["de", "en", "es", "fr"],
            ["en", "es"],
            ["de-en", "de-es", "en-es", "en-fr", "es-fr"],
        ),
        (NAMES, ["de", "en", "fr"], None, ["de-en", "de-fr", "en-fr"]),
        (["default"], ["de", "en"], None, ["default"]),
    ],
)
def test_select_configs(names, languages, pivots, expected):
    assert select_configs(names, languages, pivots, "x") == expected


@pytest.mark.parametrize(
    ("names", "languages", "message"),
    [
        (["a_b", "c_d"], None, "pass config="),
        (["de-en", "fr-it"], ["de", "fr"], "a pair such as"),
    ],
)
def test_no_config_fits(names, languages, message):
    with pytest.raises(CorpusError, match=message):
        select_configs(names, languages, None, "x")


@pytest.mark.parametrize(
    ("sizes", "temperature", "expected"),
    [
        ([100, 400], 1.0, [0.2, 0.8]),
        ([100, 400], 2.0, [1 / 3, 2 / 3]),
        ([100, 400], math.inf, [0.5, 0.5]),
        ([100, None], 2.0, [0.5, 0.5]),
        ([10, 10**7], 0.01, [0.0, 1.0]),
    ],
)
def test_probabilities(sizes, temperature, expected):
    assert mixing_probabilities(sizes, temperature) == pytest.approx(expected)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 30 / 330), (float("inf"), 1 / 3)])
def test_temperature(streaming, temperature, expected, hub_folder):
    configs = {name: rows * 10 for name, rows in CONFIGS.items()}
    report = CorpusReport()
    dataset = load_parallel(
        hub_folder(configs), report=report, temperature=temperature, streaming=streaming, seed=3
    )
    rows = texts(dataset)
    every_row = set()
    for part in CONFIGS.values():
        every_row.update(str(row) for row in fixed(part, "de en fr"))
    assert {str(row) for row in rows} == every_row
    # Rows that are repeated, until the largest part is exhausted, count once.
    assert len(rows) > 3300
    assert report.rows == 3300
    assert report.kept == 3300
    share = sum(row["en"] is None for row in rows[:1500]) / 1500
    assert share == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("streaming", [False, True])
def test_one_config_with_n_way_rows(streaming, hub_folder):
    rows = [{"de": "a", "en": "b", "fr": None}, {"de": "c", "en": "d", "fr": "e"}]
    folder = hub_folder({"default": rows})
    assert texts(load_parallel(folder, streaming=streaming)) == rows
    report = CorpusReport()
    found = texts(load_parallel(folder, languages=["de", "fr"], streaming=streaming, report=report))
    assert found == [{"de": "c", "fr": "e"}]
    assert report.other_rows == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_other_splits_and_bad_rows(streaming, hub_folder):
    rows = [{"de": "a", "en": "b"}, {"de": " ", "en": "b"}, {"de": "c", "en": "d"}]
    folder = hub_folder({"de-en": rows, "en-fr": pair("en", "fr", 4)}, split="test")
    report = CorpusReport()
    found = texts(load_parallel(folder, split="test", streaming=streaming, report=report))
    assert sorted(found, key=str) == sorted(
        fixed([rows[0], rows[2]] + pair("en", "fr", 4), "de en fr"), key=str
    )
    assert report.rows == 7
    assert report.kept == 6
    assert report.empty_texts == 1
    assert report.dropped_rows == 1
    with pytest.raises(
        CorpusError, match=r"europarl \(config de-en, split test\), row 2, field 'de'"
    ):
        list(load_parallel(folder, split="test", streaming=streaming, bad_rows="raise"))


def test_max_rows_are_shared(hub_folder):
    rows = texts(load_parallel(hub_folder(CONFIGS), max_rows=33))
    assert len(rows) == 33
    assert [sum(row[code] is None for row in rows) for code in ("fr", "en", "de")] == [6, 3, 24]
