"""Usual names of columns: one table and one rule of case for all commands."""

import pytest

from tmde.data.document_fields import missing_columns
from tmde.data.language_columns import named_like_language
from tmde.data.usual_columns import same_name, usual_column


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(["Text", "text"], "text"), (["n", " TEXT"], " TEXT"), (["texts"], None)],
)
def test_the_column_of_a_name(columns, expected):
    assert same_name("text", columns) == expected


@pytest.mark.parametrize("name", ["Message", "texto", "Description", "body"])
def test_documents_and_labels_know_the_same_usual_names(name):
    assert usual_column("text", ["n", name]) == name
    assert f"--field {name}." in str(missing_columns("in", {"text": "--field"}, ["n", name]))


@pytest.mark.parametrize("name", ["LANGUAGE", "lang", "Sprache"])
def test_the_column_of_the_language(name):
    assert named_like_language(["text", name]) == name
