"""The option `--columns` of the commands that read parallel text or labeled documents."""

import pytest

from tmde.cli.errors import OptionError
from tmde.cli.options import columns_of
from tmde.cli.train_options import user_settings


@pytest.mark.parametrize(
    ("items", "columns"),
    [
        (None, None),
        ([], None),
        (["de=Source,en=Target"], {"de": "Source", "en": "Target"}),
        (["de=Source", " en = Target text "], {"de": "Source", "en": "Target text"}),
        (["de=a=b"], {"de": "a=b"}),
        (["de=Text, German"], {"de": "Text, German"}),
        (["de=Text, German, en=Text, English"], {"de": "Text, German", "en": "Text, English"}),
        (["de=Source,", ",en=Target"], {"de": "Source", "en": "Target"}),
    ],
)
def test_columns_by_name(items, columns):
    assert columns_of(items) == columns


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["de"], "found 'de', expected NAME=COLUMN"),
        (["=Source"], "found '=Source', expected NAME=COLUMN"),
        (["de=Source,de=Target"], "found de twice, 'Source' and 'Target'"),
    ],
)
def test_items_that_are_no_columns(items, message):
    with pytest.raises(OptionError, match=message):
        columns_of(items)


def test_the_error_tells_the_form_that_a_command_expects():
    with pytest.raises(OptionError, match=r"found 'label', expected FIELD=COLUMN$"):
        columns_of(["label"], "FIELD=COLUMN")


@pytest.mark.parametrize(
    ("languages", "pivots", "expected"),
    [
        ("de-DE,en_US", "EN", (["de", "en"], ["en"])),
        ("de,en-US,en-GB", "en-GB", (["de", "en-US", "en-GB"], ["en-GB"])),
        ("de,en", None, (["de", "en"], None)),
    ],
)
def test_locales_of_languages_and_pivots(languages, pivots, expected):
    settings = user_settings([], languages=languages, pivots=pivots)
    assert (settings["data.languages"], settings.get("data.pivot_languages")) == expected
