"""Snippets are sentences, also of texts whose lines are wrapped at a fixed width."""

import textwrap

import pytest

from tmde.documents.snippets import matching_sentences, unwrapped, without_markup

SENTENCE = (
    "The committee has decided to close the bridge over the river for the whole summer, because "
    "its pillars have to be repaired."
)
CHINESE_LINE = "委员会决定整个夏天关闭河上的大桥因为桥墩需要修理" * 2
CHINESE = "\n".join([CHINESE_LINE] * 3)
TEXT = f"{SENTENCE} Buses take another way until the autumn, and nobody knows which one."


@pytest.mark.parametrize("width", [50, 72, 100])
def test_wrapped_lines_are_joined(width):
    wrapped = textwrap.fill(TEXT, width, break_on_hyphens=False)
    assert "\n" in wrapped
    assert unwrapped(wrapped) == TEXT
    assert unwrapped(f"Title\n\n{wrapped}\n\n{wrapped}") == f"Title\n\n{TEXT}\n\n{TEXT}"
    assert unwrapped(wrapped.replace("\n", "\r\n")) == TEXT


def test_a_single_break_before_a_small_letter_is_removed():
    text = "The committee has decided to close the bridge\nfor the summer."
    assert unwrapped(text) == text.replace("\n", " ")


def test_breaks_before_capitals_are_removed_within_prose():
    lines = [
        "Der Ausschuss hat jetzt beschlossen, dass die",
        "Brücke über den Fluss im Sommer gesperrt wird,",
        "weil ihre Pfeiler repariert werden müssen.",
    ]
    assert unwrapped("\n".join(lines)) == " ".join(lines)


def test_wrapped_lines_of_a_script_without_case_are_joined():
    sentence = "قررت اللجنة إغلاق الجسر فوق النهر طوال فصل الصيف لأن أعمدته تحتاج إلى إصلاح شامل"
    wrapped = textwrap.fill(f"{sentence} {sentence}", 50)
    assert unwrapped(wrapped) == f"{sentence} {sentence}"


@pytest.mark.parametrize(
    "text",
    [
        f"Heading\n{TEXT}",
        "one\ntwo\nthree",
        f"- {SENTENCE[:60]}\n- {SENTENCE[:60]}\n1. {SENTENCE[:60]}",
        f"{SENTENCE[:60]}.\n\n{SENTENCE[:60]}.",
        "A line of a verse that is long enough\nto be prose\nand has short lines after it",
        "Quarterly report of the steel works in Bremen\nThe numbers are bad.",
        "Quarterly report of the steel works in Bremen\n2019 was a bad year.",
        "The lamps were lit along the harbor wall at nine,\nAnd every boat came slowly home again.",
        "The lamps were lit along the harbor wall at nine,\nAnd every boat was home before rain;"
        "\nThe women counted all the lights along the line,\nAnd nobody would sail the bay again.",
        CHINESE,
        "図書館は月曜日が休みで、火曜日から土曜日までは午前九時から午後八時まで開いています。\n"
        "日曜日は午後五時に閉まります。",
        "",
        "\n\n",
    ],
)
def test_other_breaks_stay(text):
    assert unwrapped(text) == text


def test_the_snippet_of_a_wrapped_text_is_the_sentence():
    wrapped = textwrap.fill(TEXT, 60)
    assert matching_sentences([wrapped], ["en"], "pillars repaired") == [SENTENCE]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("## The **first** [page](../a.md) { #first-page }", "The first page"),
        ("Use `pip` and *not* <abbr title='x'>conda</abbr>.", "Use pip and not conda."),
        ("![A logo](logo.png)", "A logo"),
        ("snake_case_name, 2 * 3 * 4 and a < b > c", "snake_case_name, 2 * 3 * 4 and a < b > c"),
        ("Open <path> or __init__.py", "Open <path> or __init__.py"),
        ("**", "**"),
    ],
)
def test_markup(text, plain):
    assert without_markup(text) == plain
