"""What the card of parallel rows says of them."""

import datasets
import pytest

from tests.conftest import make_rows
from tests.hub_cards.recorded_runs import row_of
from tmde.hub_cards import dataset_card


@pytest.fixture
def rows() -> datasets.Dataset:
    """30 rows in three languages; the first lacks French."""
    languages = ("de", "en", "fr")
    translations = make_rows(30, languages=languages)
    translations[0]["fr"] = None
    features = datasets.Features({"translation": datasets.Translation(list(languages))})
    records = [{"translation": translation} for translation in translations]
    return datasets.Dataset.from_list(records, features=features)


@pytest.fixture
def scored_rows(rows) -> datasets.Dataset:
    return rows.add_column("score", [index / 10 for index in range(30)])


def test_languages_and_license(rows):
    card = str(dataset_card(rows, "user/rows", license="cc0-1.0"))

    assert "30 rows of parallel text in `de`, `en`, `fr` (not every row" in card
    assert "`cc0-1.0`." in card


def test_rows_are_counted_by_pair(rows):
    card = dataset_card(rows, "user/rows")

    assert row_of(card, "de-fr") == ["29"]
    assert row_of(card, "de-en") == ["30"]


def test_a_missing_license_is_stated(rows):
    assert "**Not stated**" in str(dataset_card(rows, "user/rows"))


def test_scores(scored_rows):
    card = str(dataset_card(scored_rows, "user/rows"))

    assert "lowest 0, median 1.45, highest 2.9" in card


@pytest.mark.parametrize(
    ("column", "values", "origin"),
    [("ids", [{"de": "1"}] * 30, "mined"), ("segment", list(range(30)), "aligned")],
)
def test_the_columns_tell_how_scored_rows_were_made(scored_rows, column, values, origin):
    card = dataset_card(scored_rows.add_column(column, values), "user/rows")

    assert origin in card.data.tags
    assert f"has every language), {origin}:" in str(card)
