"""What `no` means: a word where there is a list or a key, a switch where there is a value."""

import pytest
import yaml

from modeling_tmde.data.files import find_files
from modeling_tmde.data.io import PlainLoader


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{en: c.en, no: c.no}", {"en": "c.en", "no": "c.no"}),
        ("{No: 1, NO: 2}", {"No": 1, "NO": 2}),
        ("{no: no}", {"no": False}),
        ("a: {no: [no, 'no', off]}", {"a": {"no": ["no", "no", False]}}),
        ("{off: 1, yes: 2}", {False: 1, True: 2}),
        ("{a: &base {no: 1, b: 2}, c: {<<: *base, b: 3}}", {"a": {"no": 1, "b": 2}, "c": {"no": 1, "b": 3}}),
        ("{a: &switch no, b: {*switch : 1}}", {"a": False, "b": {"no": 1}}),
        ("{1e-3: 1, 'no': 2}", {0.001: 1, "no": 2}),
    ],
)
def test_no_is_a_word_as_a_key(text, expected):
    assert yaml.load(text, PlainLoader) == expected


def test_norwegian_files_by_language(tmp_path):
    for code in ("en", "no"):
        (tmp_path / f"c.{code}").write_text("a\n")
    (found,) = find_files(yaml.load(f"{{en: {tmp_path}/c.en, no: {tmp_path}/c.no}}", PlainLoader))
    assert found.languages == ("en", "no")
