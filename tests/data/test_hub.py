"""Hub datasets, by local folders laid out like them: selection of configs, fixed struct, mixing."""

import math

import pandas as pd
import pytest

from tests.data.plain_rows import pair_rows, select_languages, translations
from tmde.data import CorpusError, CorpusReport, load_parallel
from tmde.data.mixing import mixing_probabilities
from tmde.data.parts import select_configs

CONFIGS = {
    "de-en": pair_rows("de", "en", 60),
    "de-fr": pair_rows("de", "fr", 30),
    "en-fr": pair_rows("en", "fr", 240),
}


def share_without(rows: list[dict], language: str) -> float:
    """Return the share of the rows that have no text in a language."""
    return pd.DataFrame(rows)[language].isna().mean()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_all_pairs(streaming, counts, hub_folder):
    dataset = load_parallel(hub_folder(CONFIGS, counts), streaming=streaming)
    all_rows = CONFIGS["de-en"] + CONFIGS["de-fr"] + CONFIGS["en-fr"]
    expected = select_languages(all_rows, ["de", "en", "fr"])
    rows = translations(dataset)
    assert sorted(rows, key=str) == sorted(expected, key=str)
    if streaming and counts:
        # Configs are drawn in proportion, and do not come one after the other.
        assert 0.55 < share_without(rows[:200], "de") < 0.9
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
    rows = translations(dataset)
    every_row = set()
    for config_rows in CONFIGS.values():
        every_row.update(map(str, select_languages(config_rows, ["de", "en", "fr"])))
    assert set(map(str, rows)) == every_row
    # Rows that are repeated, until the largest part is exhausted, count once.
    assert len(rows) > 3300
    assert report.rows == 3300
    assert report.kept == 3300
    assert share_without(rows[:1500], "en") == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("streaming", [False, True])
def test_one_config_with_n_way_rows(streaming, hub_folder):
    rows = [{"de": "a", "en": "b", "fr": None}, {"de": "c", "en": "d", "fr": "e"}]
    folder = hub_folder({"default": rows})
    assert translations(load_parallel(folder, streaming=streaming)) == rows
    report = CorpusReport()
    dataset = load_parallel(folder, languages=["de", "fr"], streaming=streaming, report=report)
    assert translations(dataset) == [{"de": "c", "fr": "e"}]
    assert report.other_rows == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_other_splits_and_bad_rows(streaming, hub_folder):
    rows = [{"de": "a", "en": "b"}, {"de": " ", "en": "b"}, {"de": "c", "en": "d"}]
    folder = hub_folder({"de-en": rows, "en-fr": pair_rows("en", "fr", 4)}, split="test")
    report = CorpusReport()
    dataset = load_parallel(folder, split="test", streaming=streaming, report=report)
    good_rows = [rows[0], rows[2]] + pair_rows("en", "fr", 4)
    expected = select_languages(good_rows, ["de", "en", "fr"])
    assert sorted(translations(dataset), key=str) == sorted(expected, key=str)
    assert report.rows == 7
    assert report.kept == 6
    assert report.empty_texts == 1
    assert report.dropped_rows == 1
    with pytest.raises(
        CorpusError, match=r"europarl \(config de-en, split test\), row 2, field 'de'"
    ):
        list(load_parallel(folder, split="test", streaming=streaming, bad_rows="raise"))


def test_max_rows_are_shared(hub_folder):
    rows = translations(load_parallel(hub_folder(CONFIGS), max_rows=33))
    assert len(rows) == 33
    assert pd.DataFrame(rows).isna().sum().to_dict() == {"fr": 6, "en": 3, "de": 24}
