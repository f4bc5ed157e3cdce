"""Sentences: abbreviations of five languages, other scripts, and no character is lost.

The splits of Yu et al. (2018): at punctuation, and windows of words.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tmde.embedding.sentences import (
    SPLITTER_LANGUAGES,
    split_at_punctuation,
    split_sentences,
    word_windows,
)

# "|" marks where a sentence ends.
KNOWN = [
    ("de", "Am 3. Mai kam Dr. Meier an.| Er blieb ca. 2 Std. im Hotel."),
    ("de", "Das gilt z. B. auch hier, d. h. überall.| Oder?| Ja!"),
    ("en", "Mr. Smith paid 3.5 dollars, i.e. too much.| Why?| He said so."),
    ("es", "El Sr. Pérez llegó.| ¿Qué quería?| Nadie lo sabe."),
    ("fr", "Elle habite av. Foch.| Il est né en 1950.| « Ça va ? »"),
    ("it", "Il sig. Rossi è arrivato.| Dove?| Non lo so."),
    ("ru", "Привет.| Как дела?| Хорошо."),
    ("el", "Τι κάνεις;| Καλά."),  # The question mark looks like a semicolon.
    ("ja", "今日は晴れです。|明日は雨ですか？|はい！"),
    ("zh", "我来了。|你好吗？|好。"),
    ("hi", "यह अच्छा है।| वह आया।"),
    ("ar", "كيف حالك؟| بخير."),
    ("am", "ሰላም።| እንዴት ነህ።"),
    ("hy", "Բարեւ։| Ինչպես ես։"),
    ("my", "မင်္ဂလာပါ။| နေကောင်းလား။"),
]
# Where the language is not known, the rules of five have to agree.
UNKNOWN = [
    "Das gilt z. B. auch hier.| M. Dupont est là.| El Sr. Pérez también.| Il sig. Rossi è qui.|"
    " Mr. Smith left.",
    "Am 3. Mai kam Dr. Meier.| Er blieb drei Tage.",
    'He said: "Go away. Now!"| Then he left.',
    "今日は晴れです。|明日は雨ですか？| Привет.| यह अच्छा है।| كيف حالك؟| بخير.",
    "Version 1.2.3 is on www.example.com now.| It costs 3.50 euros.",
]
MARKED = [*KNOWN, *((None, text) for text in UNKNOWN)]


@pytest.mark.parametrize(("language", "marked"), MARKED)
def test_sentences_of_many_languages(language, marked):
    expected = [sentence.strip() for sentence in marked.split("|")]
    assert split_sentences(marked.replace("|", ""), language) == expected


# The last two languages have no rules of their own.
@pytest.mark.parametrize("language", [None, "en", "xx", "zz-Latn"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\u2028", "\x85"])
def test_a_line_break_ends_a_sentence(line_break, language):
    text = f"  A heading{line_break}- an item{line_break}One. Two{line_break} \t{line_break}"
    assert split_sentences(text, language) == ["A heading", "- an item", "One.", "Two"]


PARTS = [
    "z. B.", "Dr.", "M.", "e.g.", "3.", "A", "B", "é", "日", "。", "؟", "।", "😀", "e\u0301",
    ".", "!", "?", "…", ";", "»", "“", '"', ")", "(", " ", "\n", "\t",
    "\u00a0", "\u2003", "\u2009", "\u202f", "\u3000", "\u200b", "\ufeff",
    "\x1c", "\x85", "\u2028", "\x00",
]  # fmt: skip
ANY = st.one_of(st.lists(st.sampled_from(PARTS), max_size=20).map("".join), st.text(max_size=40))
LANGUAGES = [
    None,
    *SPLITTER_LANGUAGES,
    "pt",
    "ru",
    "ja",
    "zh",
    "ar",
    "hi",
    "el",
    "nl",
    "kk",
    "my",
    "xx",
]


@settings(max_examples=50, deadline=None)
@given(text=ANY, language=st.sampled_from(LANGUAGES))
@example(text="A\u2003. B", language="en")
def test_every_other_character_is_kept_in_order(text, language):
    assert_keeps_all_but_white_space(split_sentences(text, language), text)


def assert_keeps_all_but_white_space(pieces: list[str], text: str) -> None:
    left_out = []
    end = 0
    for piece in pieces:
        assert piece
        assert piece == piece.strip()
        start = text.index(piece, end)  # It is behind the piece before.
        left_out.append(text[end:start])
        end = start + len(piece)
    left_out.append(text[end:])
    assert not "".join(left_out).strip()


@pytest.mark.parametrize(
    "marked",
    [
        "One.| Two!| Three?| Four",
        "Das gilt z.| B.| auch hier",
        "It costs 3.|50 euros...| Really?!| Yes.",
        "A heading\nOne. \n| Two: three; four",
        ".| one",
    ],
)
def test_pieces_end_with_punctuation(marked):
    expected = [piece.strip() for piece in marked.split("|")]
    assert split_at_punctuation(marked.replace("|", "")) == expected


@pytest.mark.parametrize("text", ["", " \n"])
def test_white_space_has_no_pieces(text):
    assert split_at_punctuation(text) == []


@settings(max_examples=50, deadline=None)
@given(text=ANY)
def test_punctuation_keeps_every_other_character_in_order(text):
    pieces = split_at_punctuation(text)
    assert_keeps_all_but_white_space(pieces, text)
    for piece in pieces[:-1]:
        assert piece[-1] in ".!?"
    for piece in pieces:
        assert not set(".!?") & set(piece.rstrip(".!?").lstrip(".!?"))


@pytest.mark.parametrize(
    ("num_words", "size", "stride", "expected"),
    [
        (300, 128, 64, [(0, 128), (64, 192), (128, 256), (192, 300)]),
        (256, 128, 64, [(0, 128), (64, 192), (128, 256)]),
        (257, 128, 64, [(0, 128), (64, 192), (128, 256), (192, 257)]),
        (129, 128, 64, [(0, 128), (64, 129)]),
        (128, 128, 64, [(0, 128)]),
        (7, 3, 3, [(0, 3), (3, 6), (6, 7)]),
        (4, 1, 1, [(0, 1), (1, 2), (2, 3), (3, 4)]),
    ],
)
def test_windows_of_words(num_words, size, stride, expected):
    words = [f"w{number}" for number in range(num_words)]
    windows = word_windows("\n ".join(words), size, stride)
    assert windows == ["\n ".join(words[start:stop]) for start, stop in expected]


def test_a_text_of_one_window_stays_as_it_is():
    assert word_windows("  one two ", 2, 1) == ["  one two "]
    assert word_windows("", 2, 1) == [""]
