"""What YAML means: `no` is a word, 1e-3 a number."""

import pytest
import yaml

from tmde.data.plain_yaml import PlainLoader


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{en: c.en, no: c.no}", {"en": "c.en", "no": "c.no"}),
        ("a: {No: [no, 'no', off, yes]}", {"a": {"No": ["no", "no", "off", "yes"]}}),
        ("[true, False, truely]", [True, False, "truely"]),
        ("{1e-3: 1, 'no': 2, a: 3e-4}", {0.001: 1, "no": 2, "a": 3e-4}),
    ],
)
def test_words_and_numbers(text, expected):
    assert yaml.load(text, PlainLoader) == expected
