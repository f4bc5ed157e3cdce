"""Filtered files: what stays is the same bytes as before."""

import gzip
import re
from xml.etree import ElementTree

import pytest

from modeling_tmde import TmdeError
from tmde.data import CorpusError
from tmde.data.tables import find_tables
from tmde.data.unit_files import open_units
from tmde.documents.filtered_files import Decision, filtered_file, write_filtered

MEMORY = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<!-- A memory: <tu> -->
<tmx version="1.4">
  <header srclang='en' creationdate = "20240101T000000Z"><note>Größe &amp; x</note></header>
  <body>
    <!-- one -->
    <tu tuid="1" creationdate="20240101T000000Z"><prop type="a>b">x</prop>
      <tuv xml:lang="en"><seg>The <bpt i="1">&lt;b&gt;</bpt>door<ept i='1'/></seg></tuv>
      <tuv xml:lang="de-DE" changeid="ü"><seg>Die T&#252;r</seg></tuv>
      <!-- French -->
      <tuv xml:lang="FR"><seg><![CDATA[La <porte>]]></seg></tuv>
    </tu>
    <?keep me?>
    <tu   tuid='2'  ><tuv xml:lang="en"><seg>Two</seg></tuv>
    <tuv lang="de"><seg>Zwei</seg></tuv></tu>
    <tu tuid="3"><tuv xml:lang="en"><seg>Three</seg></tuv>
    <tuv xml:lang="de"><seg>Drei</seg></tuv></tu>
  </body>
</tmx>
<!-- end -->
"""
UNIT_2 = re.compile(r"\s*<tu   [^!]*?</tu>")


def decision(number, *removed, languages=("en", "de")):
    kept = tuple(language for language in languages if language not in removed)
    return Decision(number, len(kept) > 1, kept, removed)


def filtered(path, decisions):
    (table,) = find_tables(path)
    target = path.with_name(f"new{path.suffix}")
    units = open_units(table.format, str(path), str(path))
    write_filtered(target, units, decisions)
    return target.read_bytes()


def written(tmp_path, name, text, encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "cp1252"])
def test_what_stays_of_a_memory_is_the_same_bytes(encoding, line_end, tmp_path):
    text = MEMORY.format(encoding=encoding.removesuffix("-sig")).replace("\n", line_end)
    path = written(tmp_path, "a.tmx", text, encoding)
    all_right = [decision(number) for number in (1, 2, 3)]
    assert filtered(path, all_right) == path.read_bytes()
    without_second = [decision(1), decision(2, "de"), decision(3)]
    expected = UNIT_2.sub("", text)
    assert expected != text
    assert filtered(path, without_second) == expected.encode(encoding)


def test_a_unit_loses_one_of_several_texts(tmp_path):
    text = MEMORY.format(encoding="UTF-8")
    path = written(tmp_path, "a.tmx", text)
    decisions = [decision(1, "fr", languages=("en", "de", "fr")), decision(2), decision(3)]
    expected = re.sub(r'\s*<tuv xml:lang="FR">.*</tuv>', "", text)
    assert filtered(path, decisions) == expected.encode()
    decisions[0] = decision(1, "de", languages=("en", "de", "fr"))
    expected = re.sub(r'\s*<tuv xml:lang="de-DE".*</tuv>', "", text)
    assert filtered(path, decisions) == expected.encode()


def test_units_that_nobody_judged(tmp_path):
    """Those of other languages stay; those that no one can use go."""
    good = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="fr"><seg>b</seg></tuv></tu>'
    lonely = '<tu><tuv xml:lang="en"><seg>a</seg></tuv></tu>'
    broken = "<tu><tuv xml:lang='en'><seg>a & b</seg></tuv></tu>"
    body = "<tmx><body>{}</body></tmx>"
    path = written(tmp_path, "a.tmx", body.format(f"{good} {lonely}\n{broken}\n{good}\n"))
    assert filtered(path, []) == body.format(f"{good}\n{good}\n").encode()


def test_a_gzipped_memory_is_unpacked(tmp_path):
    path = tmp_path / "a.tmx.gz"
    data = MEMORY.format(encoding="UTF-8").encode()
    path.write_bytes(gzip.compress(data))
    units = filtered_file([path], tmp_path / "b.tmx")
    write_filtered(tmp_path / "b.tmx", units, [decision(number) for number in (1, 2, 3)])
    assert (tmp_path / "b.tmx").read_bytes() == data


PO = """# Comment
msgid ""
msgstr "Language: de\\n"

#: a.c:1
#, c-format
msgid "Two %d"
msgstr "Zwei %d"

# Old
#~ msgid "Old"
#~ msgstr "Alt"

#. Note
msgctxt "x"
msgid "Three"
msgid_plural "Threes"
msgstr[0] "Drei"
msgstr[1] "Dreien"
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_wrong_entries_of_po_are_fuzzy(line_end, tmp_path):
    pytest.importorskip("translate")
    text = PO.replace("\n", line_end)
    path = written(tmp_path, "a.po", text)
    rows = [decision(7), decision(15), decision(15)]
    assert filtered(path, rows) == path.read_bytes()
    rows[0] = decision(7, "de")
    expected = text.replace("#, c-format", "#, fuzzy, c-format")
    assert filtered(path, rows) == expected.encode()
    rows = [decision(7), decision(15), decision(15, "de")]
    expected = text.replace("#. Note", f"#. Note{line_end}#, fuzzy")
    assert filtered(path, rows) == expected.encode()


@pytest.mark.parametrize(
    ("name", "text", "old", "new"),
    [
        (
            "a.xlf",
            "<xliff version='1.2'><file source-language='en' target-language='de'><body>\n"
            "<trans-unit id='1' approved='yes'><source>a</source><alt-trans><target>c</target>"
            "</alt-trans><target  state='final' xml:lang='de'>b</target></trans-unit>\n"
            "</body></file></xliff>",
            "approved='yes'",
            "approved='no'",
        ),
        (
            "b.xlf",
            "<xliff version='2.0' srcLang='en' trgLang='de'><file id='f'><unit id='1'>"
            "<segment id='s'><source>a</source><target>b</target></segment></unit></file></xliff>",
            "<segment id",
            '<segment state="initial" id',
        ),
        (
            "a.ts",
            "<!DOCTYPE TS>\n<TS language='de'>\n<context><message><source>a</source>"
            "<translation>b</translation></message></context></TS>",
            "<translation>",
            '<translation type="unfinished">',
        ),
    ],
)
def test_wrong_units_of_xml_are_drafts(name, text, old, new, tmp_path):
    path = written(tmp_path, name, text)
    assert filtered(path, [decision(1)]) == text.encode()
    expected = text.replace(old, new).replace("state='final'", 'state="needs-review-translation"')
    result = filtered(path, [decision(1, "de")])
    assert result == expected.encode()
    path.write_bytes(result)
    (table,) = find_tables(path)
    assert list(table.rows()) == []


def test_what_is_filtered_and_what_is_written_anew(tmp_path):
    for name in ("a.tmx", "b.tmx", "a.po", "a.tsv"):
        (tmp_path / name).touch()
    paths = {path.name: path for path in tmp_path.iterdir()}
    assert filtered_file([paths["a.tmx"]], tmp_path / "new.tmx") is not None
    assert filtered_file([paths["a.tmx"], paths["b.tmx"]], tmp_path / "new.tmx") is None
    assert filtered_file([paths["a.tsv"]], tmp_path / "new.tmx") is None
    assert filtered_file([tmp_path], tmp_path / "new.tmx") is None
    assert filtered_file([paths["a.tmx"]], tmp_path / "new.jsonl") is None
    assert filtered_file([paths["a.po"]], tmp_path / "new.po") is not None
    with pytest.raises(TmdeError, match="expected a source of the same format"):
        filtered_file([paths["a.tmx"]], tmp_path / "new.po")


ENDS = [
    "",
    "  </bod",
    "  </body>",
    "  </body>\n</tm",
    "  </body>\n</tmx",
    "  <!-- </tmx> -->",
    "  <!-- </body> -->",
    '  <x a=">" b="',
    '  <tu tuid="3"><tuv xml:lang="de"><seg>Drei',
    '  <tu tuid="3"><tuv xml:lang="de"><seg>Drei</seg></tuv>\n  </body>\n</tmx>\n',
]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16"])
@pytest.mark.parametrize("prefix", ["", "x:"])
@pytest.mark.parametrize("end", ENDS)
def test_a_memory_without_its_end_is_closed(end, prefix, encoding, tmp_path):
    path = tmp_path / "a.tmx"
    units = MEMORY[MEMORY.index("<tmx") : MEMORY.index('    <tu tuid="3"')]
    text = f'<?xml version="1.0" encoding="{encoding}"?>\n' + units + end
    if prefix:
        elements = "tmx?|header|body?|tuv?|seg|prop|note|bpt|ept"
        text = re.sub(rf"<(/?)({elements})\b", r"<\1x:\2", text)
        text = text.replace("<x:tmx", '<x:tmx xmlns:x="urn:x"')
    path.write_bytes(text.encode(encoding))
    content = filtered(path, [decision(1), decision(2)])
    root = ElementTree.fromstring(content)
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names == ["header", "body"]
    numbers = [unit.get("tuid") for unit in root.iter() if unit.tag.rpartition("}")[2] == "tu"]
    assert numbers == ["1", "2"]


def test_a_comment_without_an_end_behind_a_memory_goes(tmp_path):
    path = tmp_path / "a.tmx"
    text = MEMORY.format(encoding="UTF-8")
    path.write_text(text.replace("<!-- end -->", "<!-- exported"), "utf-8")
    content = filtered(path, [decision(1), decision(2), decision(3)])
    assert content.decode().strip() == text.partition("<!-- end -->")[0].strip()


@pytest.mark.parametrize("comment", ["<!-- it's -->", "<!-- a < it's -->", "<?x a='<?>"])
def test_the_end_of_a_whole_memory_stays(comment, tmp_path):
    path = tmp_path / "a.tmx"
    text = MEMORY.format(encoding="UTF-8").replace("<!-- end -->", comment)
    path.write_text(text, "utf-8")
    assert filtered(path, [decision(1), decision(2), decision(3)]) == text.encode()


QT_CATALOG = (
    '<TS version="2.1" language="de"><context><name>x</name>'
    "<message><source>a</source><translation>b</translation></message>"
)


@pytest.mark.parametrize("end", ["", "</context>", "</context></TS", "<!-- </TS> -->"])
def test_a_catalog_that_is_cut_off_is_refused(end, tmp_path):
    path = tmp_path / "a.ts"
    path.write_text(QT_CATALOG + end)
    with pytest.raises(CorpusError, match="a.ts: the file is cut off before its last end tag"):
        filtered_file([path], tmp_path / "b.ts")


@pytest.mark.parametrize("end", ["", "<message>", "<!-- </TS> -->"])
def test_a_whole_catalog_is_not_refused(end, tmp_path):
    path = tmp_path / "a.ts"
    path.write_text(f"{QT_CATALOG}{end}</context></TS>")
    units = filtered_file([path], tmp_path / "b.ts")
    assert [row for _, row in units.numbered_rows()][0] == {"en": "a", "de": "b"}
