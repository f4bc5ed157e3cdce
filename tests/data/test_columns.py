"""Names of columns that the user gives."""

import pytest

from tmde.data.columns import with_plain_languages


@pytest.mark.parametrize(
    ("columns", "plain"),
    [
        ({"de-DE": "Source", "en_GB": "Target"}, {"de": "Source", "en": "Target"}),
        ({"en-US": "a", "en-GB": "b", "de": "c"}, {"en-US": "a", "en-GB": "b", "de": "c"}),
        ({"doc_id": "File", "DE": "x"}, {"doc_id": "File", "de": "x"}),
    ],
)
def test_a_locale_is_named_by_its_language(columns, plain):
    assert with_plain_languages(columns) == plain
