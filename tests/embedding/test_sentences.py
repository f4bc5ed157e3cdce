"""Sentences: abbreviations of five languages, other scripts, and no character is lost."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tmde.embedding.sentences import SPLITTER_LANGUAGES, split_sentences

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
    sentences = split_sentences(text, language)
    left_out = []
    end = 0
    for sentence in sentences:
        assert sentence
        assert sentence == sentence.strip()
        start = text.index(sentence, end)  # It is behind the sentence before.
        left_out.append(text[end:start])
        end = start + len(sentence)
    left_out.append(text[end:])
    assert not "".join(left_out).strip()
