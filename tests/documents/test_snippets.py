"""Snippets are sentences, also of texts whose lines are wrapped at a fixed width."""

import textwrap

import pytest

from tmde.documents.snippets import matching_sentences, unwrapped

SENTENCE = (
    "The committee has decided to close the bridge over the river for the whole summer, because "
    "its pillars have to be repaired."
)
TEXT = f"{SENTENCE} Buses take another way until the autumn, and nobody knows which one."


@pytest.mark.parametrize("width", [50, 72, 100])
def test_wrapped_lines_are_joined(width):
    wrapped = textwrap.fill(TEXT, width, break_on_hyphens=False)
    assert "\n" in wrapped
    assert unwrapped(wrapped) == TEXT
    assert unwrapped(f"Title\n\n{wrapped}\n\n{wrapped}") == f"Title\n\n{TEXT}\n\n{TEXT}"
    assert unwrapped(wrapped.replace("\n", "\r\n")) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        f"Heading\n{TEXT}",
        "one\ntwo\nthree",
        f"- {SENTENCE[:60]}\n- {SENTENCE[:60]}\n1. {SENTENCE[:60]}",
        f"{SENTENCE[:60]}.\n\n{SENTENCE[:60]}.",
        "A line of a verse that is long enough\nto be prose\nand has short lines after it",
        "",
        "\n\n",
    ],
)
def test_other_breaks_stay(text):
    assert unwrapped(text) == text


def test_the_snippet_of_a_wrapped_text_is_the_sentence():
    wrapped = textwrap.fill(TEXT, 60)
    assert matching_sentences([wrapped], ["en"], "pillars repaired") == [SENTENCE]
