"""Placeholders of many notations, and what only looks like them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_tmde import TmdeError
from tests.strange_texts import SAMPLES
from tmde.documents.placeholders import STYLES, Placeholders, decoded


@pytest.mark.parametrize(
    ("style", "placeholder", "other"),
    [
        ("c", "%d", "%s"),
        ("c", "%.2f", "%d"),
        ("c", "%1$s", "%2$s"),
        ("c", "%lu", ""),
        ("python", "%(name)s", "%(nom)s"),
        ("python", "{}", ""),
        ("python", "{name!r:>10}", "{nom!r:>10}"),
        ("qt", "%1", "%2"),
        ("qt", "%L1", "%1"),
        ("qt", "%n", ""),
        ("objc", "%@", ""),
        ("objc", "%1$@", "%2$@"),
        ("icu", "{0}", "{1}"),
        ("icu", "{count, plural, one {file} other {files}}", "one file, other files"),
        ("shell", "$1", "$2"),
        ("shell", "$name", "$nom"),
        ("shell", "${HOME}", "HOME"),
        ("at", "@1", "@2"),
        ("at", "@NAME@", "NAME"),
        ("mustache", "{{ user.name }}", "{{ nom }}"),
        ("brackets", "[[1]]", "[[2]]"),
        ("brackets", "[[user_name]]", ""),
        ("escapes", r"\n", ""),
        ("tags", "<b>", ""),
        ("tags", "</i>", "</b>"),
        ("tags", '<x id="1"/>', '<x id="2"/>'),
        ("urls", "https://a.org/x", "https://b.org/x"),
        ("emails", "a.b@c.de", "a@c.de"),
    ],
)
def test_every_style_is_seen_alone_and_with_the_others(style, placeholder, other):
    first = f"Datei {placeholder} ist offen"
    second = f"File {other} is open"
    for styles in (style, None):
        assert Placeholders(styles).differing(first, second) != ([], []), styles
        assert Placeholders(styles).differing(second, first) != ([], []), styles
        same = f"{placeholder} is an open file"
        assert Placeholders(styles).differing(first, same) == ([], []), styles
    others = ",".join(sorted(set(STYLES) - {style, "c", "python", "icu", "objc", "mustache"}))
    if style in ("qt", "shell", "brackets", "escapes", "tags", "urls", "emails"):
        assert Placeholders(others).differing(first, f"{placeholder} is open") == ([], [])


@given(st.text("ab1.,-_ @<>&;{}[]$%(s)\\\\/:=#^htp", max_size=30))
def test_no_placeholder_without_its_first_sign(text):
    """Texts without any of these signs are not searched."""
    text = decoded(text)
    expected = Placeholders()._pattern.sub("", text)
    if expected != text:
        assert Placeholders()._may_have_matches(text)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Öffne <Pfad>", "Open <path>"),
        ("<leere URL>", "<empty URL>"),
        ("x &amp; y", "x & y"),
        ("&lt;b&gt;", "<b>"),
        ("a&nbsp;b", "a b"),
        ("50 % der Fälle, 100%ige, 100-%ige", "50 % of cases, completely"),
        ("Das kostet 5 Dollar.", "It costs $5."),
        ("Das kostet 5,99 Dollar.", "It costs $5.99."),
        ("siehe https://a.org/de/x", "see https://a.org/en/y."),
        ('<a href="/de/x">hier</a>', '<a href="/en/x" title="this">here</a>'),
        ("%s: %s", "%2$s: %1$s"),
        ("Eine Datei wurde gelöscht", "%d file was deleted"),
        (
            "{count, plural, one {Datei} other {Dateien}}",
            "{count, plural, one {file} other {files}}",
        ),
        ("{count:n} Dateien", "{count:,} files"),
        ("Fehler.~%Wählen Sie", "Error.~%Select"),
        ("[[Haus]] am See", "[[house]] at the lake"),
        ("Ohne @Erwähnungen", "Without @mentions"),
        ("Peer-Anfrage %1abgebrochen%2", "Peer request %1timed out%2"),
        ("vier Millionen Dollar, 50 Mrd.", "$4 million, US$50 billion"),
        ("27 %. Eine Studie", "27%.A study"),
    ],
)
def test_what_is_translated_or_written_otherwise_is_no_difference(first, second):
    assert Placeholders().differing(first, second) == ([], [])
    assert Placeholders().differing(second, first) == ([], [])


def test_the_placeholders_that_differ_are_named():
    differing = Placeholders().differing("{name} hat %d Dateien", "{nom} has $1 files")
    assert differing == (["%d", "{name}"], ["$1", "{nom}"])


def test_the_content_of_inline_tags_is_seen():
    differing = Placeholders().differing("<ph>{1}</ph> Tage", "<ph>{2}</ph> days")
    assert differing == (["{1}"], ["{2}"])


def test_an_expression_of_the_user():
    placeholders = Placeholders(r"%[A-Z]+%")
    assert placeholders.differing("%NAME% %d", "%NOM% %s") == (["%NAME%"], ["%NOM%"])


@pytest.mark.parametrize(
    ("styles", "message"),
    [
        ("qt,pyton", "found 'pyton', expected names of c, python, qt"),
        ("%[A-Z", "expected a regular expression"),
    ],
)
def test_what_is_no_style_is_named(styles, message):
    with pytest.raises(TmdeError, match=message):
        Placeholders(styles)


def test_entities_end_with_a_semicolon():
    assert decoded("&Copy &copy; &#252; &reg") == "&Copy © ü &reg"


# In a time that grows with the square of their length, they would take hours.
PIECES = ("a", "%", "<a ", "<x ", "{", "{{a", "[[_", "$a.", "@a", "&a", "a@", "1.", "\\")
LONG_TEXTS = ["[[" + "_" * 20_000] + [piece * 20_000 for piece in PIECES]


@pytest.mark.parametrize("text", [*SAMPLES, *LONG_TEXTS])
def test_any_text_has_the_placeholders_of_itself(text):
    assert Placeholders().differing(text, text) == ([], [])
