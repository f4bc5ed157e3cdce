"""Catalogs of translations: entries are rows, drafts are no pairs, and bad entries stand alone."""

import pytest

from tests.data.plain_rows import translations
from tmde.data import CorpusError, load_parallel
from tmde.data.unit_files import open_units, read_units

pypo = pytest.importorskip("translate.storage.pypo")

PO_HEADER = """# Comment
msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en-US" target-language="de-DE" original="a"><body>
{units}
</body></file></xliff>
"""
XLIFF_2 = """<?xml version="1.0"?>
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f">{units}</file></xliff>
"""
QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de_DE">
<context><name>About</name>
{units}
</context>
</TS>
"""


def rows_of(tmp_path, name, text, encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    format = {"po": "po", "ts": "ts"}.get(name.rpartition(".")[2], "xliff")
    return list(read_units(format, str(path), name))


def good_rows(tmp_path, name, text, encoding="utf-8"):
    return [row for _, row in rows_of(tmp_path, name, text, encoding)]


def test_entries_of_po_are_rows(tmp_path):
    text = (
        PO_HEADER
        + """
#. For translators
#: a.c:1
#, c-format
msgctxt "menu"
msgid ""
"Open the "
"\\"file\\"\\n"
msgstr "Die Datei öffnen"

msgid "Close"
msgstr "Schließen"
msgid "Not yet"
msgstr ""

#, fuzzy
#| msgid "Print"
msgid "Print it"
msgstr "Drucken"

#~ msgid "Old"
#~ msgstr "Alt"
"""
    )
    rows = rows_of(tmp_path, "a.po", text)
    assert rows == [
        (11, {"en": 'Open the "file"', "de": "Die Datei öffnen"}),
        (17, {"en": "Close", "de": "Schließen"}),
    ]
    (tmp_path / "other.po").write_text(text)
    assert translations(load_parallel(tmp_path / "other.po")) == [row for _, row in rows]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("charset", ["UTF-8", "ISO-8859-1"])
def test_po_in_other_encodings(charset, line_end, tmp_path):
    text = PO_HEADER.replace("UTF-8", charset) + '\nmsgid "door"\nmsgstr "Tür"\n'
    text = text.replace("\n", line_end)
    assert good_rows(tmp_path, "a.po", text, charset) == [{"en": "door", "de": "Tür"}]


def plural_entry(*forms):
    lines = [f'msgstr[{number}] "{text}"' for number, text in enumerate(forms)]
    return "\n".join(['\nmsgid "a file"', 'msgid_plural "%d files"', *lines, ""])


@pytest.mark.parametrize(
    ("plural", "forms", "sources"),
    [
        ("nplurals=2; plural=(n != 1)", ["eine", "viele"], ["a file", "%d files"]),
        ("nplurals=1; plural=0", ["%d"], ["%d files"]),
        (
            "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2)",
            ["x", "y", "z"],
            ["a file", "%d files", "%d files"],
        ),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2)", ["0", "1", "2"], None),
    ],
)
def test_plural_forms_stand_beside_the_source_of_their_number(plural, forms, sources, tmp_path):
    header = PO_HEADER.replace("nplurals=2; plural=(n != 1)", plural)
    rows = good_rows(tmp_path, "a.po", header + plural_entry(*forms))
    assert [row["de"] for row in rows] == forms
    sources = sources or ["%d files", "a file", "%d files"]
    assert [row["en"] for row in rows] == sources


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ('msgid "a\nmsgstr "b"\n', "end-of-line within string"),
        ('msgid "a"\nmsgstr b\n', "Syntax error"),
        ('msgid "a"\n', "a msgid without msgstr"),
        ('msgid "a"\nmsgid_plural "b"\n\n# x\n', "a msgid without msgstr"),
    ],
)
def test_a_bad_entry_spoils_no_other(entry, found, tmp_path):
    good = 'msgid "x"\nmsgstr "y"\n\n'
    rows = good_rows(tmp_path, "a.po", PO_HEADER + "\n" + good + entry + "\n" + good)
    assert rows[0] == rows[-1] == {"en": "x", "de": "y"}
    assert len(rows) == 3
    assert "a.po, row 11" in str(rows[1])
    assert found in str(rows[1])


def test_undecodable_bytes_spoil_no_other_entry(tmp_path):
    text = PO_HEADER + '\nmsgid "x"\nmsgstr "y"\n\nmsgid "a"\nmsgstr "\xfc"\n'
    rows = good_rows(tmp_path, "a.po", text, "latin-1")
    assert rows[0] == {"en": "x", "de": "y"}
    assert isinstance(rows[1], CorpusError)


@pytest.mark.parametrize(
    ("name", "language"),
    [("de.po", "de"), ("app.pt_BR.po", "pt_BR"), ("fr/LC_MESSAGES/a.po", "fr"), ("a.po", "target")],
)
def test_a_po_file_without_a_language_is_named_by_it(name, language, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('msgid "a"\nmsgstr "b"\n')
    assert list(read_units("po", str(path), name)) == [(1, {"en": "a", language: "b"})]
    if language == "target":
        rows = load_parallel(path, columns={"de": "target"})
        assert translations(rows) == [{"de": "b", "en": "a"}]


def test_units_of_xliff_are_rows(tmp_path):
    units = """<trans-unit id="1" approved="yes"><source>The <g id="1">old</g> house<x id="2"/>
</source><target state="final">Das <g id="1">alte</g> Haus<x id="2"/></target>
<alt-trans><target>Nein</target></alt-trans></trans-unit>
<trans-unit id="2"><source>a<ph id="1">&lt;br/&gt;</ph>b</source><target>c d</target></trans-unit>
<trans-unit id="3"><source>Draft</source><target state="needs-translation">D</target></trans-unit>
<trans-unit id="4"><source>None</source></trans-unit>
<trans-unit id="5" translate="no"><source>X</source><target>X</target></trans-unit>"""
    assert rows_of(tmp_path, "a.xlf", XLIFF.format(units=units)) == [
        (1, {"en-US": "The old house", "de-DE": "Das alte Haus"}),
        (2, {"en-US": "a b", "de-DE": "c d"}),
    ]


def test_segments_of_xliff_2_are_rows(tmp_path):
    units = """<unit id="1"><notes><note>n</note></notes>
<segment state="final"><source>One <pc id="1">two</pc></source><target>Eins zwei</target></segment>
<ignorable><source> </source></ignorable>
<segment state="initial"><source>Three</source><target>Drei</target></segment>
</unit>"""
    rows = good_rows(tmp_path, "a.xliff", XLIFF_2.format(units=units))
    assert rows == [{"en": "One two", "de": "Eins zwei"}]


def test_messages_of_qt_are_rows(tmp_path):
    units = """<message><source>Open &amp;file</source><translation>Datei ö&amp;ffnen</translation>
</message><message numerus="yes"><source>%n file(s)</source><translation>
<numerusform>%n Datei</numerusform><numerusform>%n Dateien</numerusform></translation></message>
<message><source>a</source><translation type="unfinished">b</translation></message>"""
    assert good_rows(tmp_path, "a.ts", QT.format(units=units)) == [
        {"en": "Open &file", "de_DE": "Datei ö&ffnen"},
        {"en": "%n file(s)", "de_DE": "%n Datei"},
        {"en": "%n file(s)", "de_DE": "%n Dateien"},
    ]


def test_a_ts_file_of_something_else(tmp_path):
    (tmp_path / "a.ts").write_text("const a: Array<string> = [];\n")
    with pytest.raises(CorpusError, match="expected the element <TS>"):
        load_parallel(tmp_path / "a.ts")


def test_catalogs_as_translate_toolkit_reads_them(tmp_path):
    """An independent reader finds the same pairs."""
    from translate.storage import factory

    units = "\n".join(
        f'<trans-unit id="{number}"><source>Text {number} &amp; é</source>'
        f'<target state="translated">Übersetzung {number}</target></trans-unit>'
        for number in range(20)
    )
    path = tmp_path / "a.xlf"
    path.write_text(XLIFF.format(units=units))
    store = factory.getobject(str(path))
    expected = [(str(unit.source), str(unit.target)) for unit in store.units]
    pairs = [tuple(row.values()) for _, row in read_units("xliff", str(path), "a")]
    assert pairs == expected


@pytest.mark.parametrize("name", ["a.po", "a.xlf", "a.ts"])
def test_pieces_are_the_file(name, tmp_path):
    text = {"a.po": PO_HEADER, "a.xlf": XLIFF, "a.ts": QT}[name]
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    units = open_units({"a.po": "po", "a.xlf": "xliff", "a.ts": "ts"}[name], str(path), name)
    assert b"".join(units.encoded(piece.text) for piece in units.pieces()) == path.read_bytes()
