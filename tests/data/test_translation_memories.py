"""Translation memories: units are rows, inline tags are no text, and memory stays flat."""

import gzip
import re
from pathlib import Path

import pytest

from tests.data.plain_rows import translations
from tmde.data import CorpusError, CorpusReport, load_parallel
from tmde.data.unit_files import read_units

HEADER = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx11.dtd">\n'
    '<tmx version="1.1"><header srclang="de-DE"/><body>'
)


def unit(*variants: tuple[str, str]) -> str:
    """Return a translation unit of (language, segment)."""
    inner = [f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in variants]
    return f"<tu><prop>x</prop>{''.join(inner)}</tu>\n"


def write_memory(path: Path, *units: str, header: str = HEADER, encoding: str = "utf-8") -> str:
    """Write a TMX file, gzipped if its name says so."""
    text = header.replace("UTF-8", encoding.upper()) + "".join(units) + "</body></tmx>"
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("streaming", [False, True])
def test_units_are_rows(name, encoding, streaming, tmp_path):
    units = [unit(("de-DE", "Tür"), ("EN-US", "door")), unit(("de", "Haus"), ("en", "house"))]
    source = write_memory(tmp_path / name, *units, encoding=encoding)
    rows = load_parallel(source, ["de", "en"], streaming=streaming)
    assert translations(rows) == [{"de": "Tür", "en": "door"}, {"de": "Haus", "en": "house"}]


def test_inline_tags_are_no_text(tmp_path):
    german = '<bpt i="0">&lt;b&gt;</bpt>Das <hi type="x">alte</hi> Haus<ept i="0">&lt;/b&gt;</ept>'
    english = 'The old <ph x="1">&lt;br/&gt;</ph>house<it pos="end">x</it><ut>y</ut> &amp; garden'
    source = write_memory(tmp_path / "a.tmx", unit(("de", german), ("en", english)))
    rows = translations(load_parallel(source))
    assert rows == [{"de": "Das alte Haus", "en": "The old house & garden"}]


def test_the_first_variant_of_a_language_is_taken(tmp_path):
    source = write_memory(tmp_path / "a.tmx", unit(("de", "a"), ("de", "b"), ("en", "c")))
    assert translations(load_parallel(source)) == [{"de": "a", "en": "c"}]


def test_bad_units_are_counted(tmp_path):
    units = [unit(("de", "a"), ("en", "b")), unit(("de", "a")), unit(("de", "a"), ("en", " "))]
    report = CorpusReport()
    rows = load_parallel(write_memory(tmp_path / "a.tmx", *units), report=report)
    assert len(rows) == 1
    assert report.reasons == {"with fewer than two languages": 1, "with an empty text": 1}
    assert "row 2" in report.first_examples[0]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("<html><tu/></html>", ("<html>", "<tmx>")),
        ("<tu/>", ("<tu>", "<tmx>")),
        ("", ("invalid XML",)),
        (HEADER + "</body></tmx>", ("no rows",)),
        (
            '<!DOCTYPE tmx [<!ENTITY a "aaa">]><tmx><body><tu><tuv xml:lang="de"><seg>&a;</seg>'
            "</tuv></tu></body></tmx>",
            ("entity 'a'", "Take the declaration out"),
        ),
    ],
)
def test_bad_memories(content, parts, tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        load_parallel(path)
    for part in ("a.tmx", *parts):
        assert part in str(caught.value)


GOOD = unit(("de", "a"), ("en", "b"))


@pytest.mark.parametrize(
    ("bad_unit", "parts"),
    [
        ("<tu><tuv xml:lang='de'><seg>a & b</seg></tuv></tu>", ("invalid XML",)),
        ("<tu><tuv xml:lang='de'><seg>a < b</seg></tuv></tu>", ("invalid XML",)),
        ("<tu><tuv xml:lang='de'><seg>a</tuv></tu>", ("mismatched tag",)),
        ("<tu x='1><tuv xml:lang='de'><seg>a</seg></tuv></tu>", ("invalid XML",)),
        ("<tu><tuv xml:lang='de'><seg>a</seg></tuv>", ("invalid XML",)),
        ("<tu><tuv xml:lang='de'><seg>&nbsp;</seg></tuv></tu>", ("undefined entity",)),
        ("<tu><tuv><seg>a</seg></tuv></tu>", ("<tuv> without xml:lang",)),
        ("<tu><tuv xml:lang='de'>a</tuv></tu>", ("<tuv> without <seg>",)),
    ],
)
def test_a_bad_unit_spoils_no_other(bad_unit, parts, tmp_path):
    source = write_memory(tmp_path / "a.tmx", GOOD, bad_unit, GOOD, "<!-- <tu> -->")
    numbered = list(read_units("tmx", source, source))
    assert [number for number, _ in numbered] == [1, 2, 3]
    assert numbered[0][1] == numbered[2][1] == {"de": "a", "en": "b"}
    for part in ("a.tmx, row 2", *parts):
        assert part in str(numbered[1][1])


def test_undecodable_bytes_spoil_no_other_unit(tmp_path):
    path = Path(write_memory(tmp_path / "a.tmx", GOOD, unit(("de", "Tür"), ("en", "b")), GOOD))
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xfc"))
    numbered = list(read_units("tmx", str(path), "a.tmx"))
    assert [type(row) for _, row in numbered] == [dict, CorpusError, dict]
    assert r"b'\xfc', expected utf-8" in str(numbered[1][1])


@pytest.mark.parametrize("cut", ["</body></tmx>", "</tu>\n</body></tmx>", "b</seg>"])
def test_a_memory_that_is_cut_off(cut, tmp_path):
    path = Path(write_memory(tmp_path / "a.tmx", GOOD, GOOD))
    text = path.read_text()
    path.write_text(text[: text.rindex(cut)])
    numbered = list(read_units("tmx", str(path), "a.tmx"))
    assert isinstance(numbered[-1][1], CorpusError)
    assert numbered[0][1] == {"de": "a", "en": "b"}


def test_units_across_the_blocks_in_which_a_file_is_read(tmp_path, monkeypatch):
    units = [unit(("de", f"a{number}"), ("en", "<!-- </tu> -->b")) for number in range(50)]
    source = write_memory(tmp_path / "a.tmx", *units)
    expected = [(number + 1, {"de": f"a{number}", "en": "b"}) for number in range(50)]
    for size in (1, 7, 1000):
        monkeypatch.setattr("tmde.data.xml_pieces._BLOCK_BYTES", size)
        assert list(read_units("tmx", source, source)) == expected


def test_a_memory_with_a_prefix(tmp_path):
    text = HEADER + GOOD + "</body></tmx>"
    text = text.replace("<tmx ", '<x:tmx xmlns:x="urn:x" ').replace("</tmx>", "</x:tmx>")
    text = re.sub(r"<(/?)(tuv?|seg)\b", r"<\1x:\2", text)
    (tmp_path / "a.tmx").write_text(text)
    source = str(tmp_path / "a.tmx")
    assert list(read_units("tmx", source, source)) == [(1, {"de": "a", "en": "b"})]


def test_a_damaged_gzipped_memory(tmp_path):
    source = Path(write_memory(tmp_path / "a.tmx.gz", *[unit(("de", "a"), ("en", "b"))] * 999))
    source.write_bytes(source.read_bytes()[:-20])
    with pytest.raises(CorpusError, match="damaged file"):
        list(read_units("tmx", str(source), str(source)))


def test_tags_of_any_depth_hold_text_in_its_order(tmp_path):
    depth = 3000
    german = "<hi>a" * depth + "</hi>b" * depth
    source = write_memory(tmp_path / "a.tmx", unit(("de", german), ("en", "house")))
    assert list(read_units("tmx", source, source)) == [
        (1, {"de": "a" * depth + "b" * depth, "en": "house"})
    ]
