"""Translation memories: units are rows, inline tags are no text, and memory stays flat."""

import gzip
from pathlib import Path

import pytest

from tests.data.plain_rows import translations
from tmde.data import CorpusError, CorpusReport, load_parallel
from tmde.data.translation_memories import read_units

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
        (HEADER + unit(("de", "a"), ("en", "b")) + "<tu>", ("row 2", "invalid XML")),
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


def test_a_damaged_gzipped_memory(tmp_path):
    source = Path(write_memory(tmp_path / "a.tmx.gz", *[unit(("de", "a"), ("en", "b"))] * 999))
    source.write_bytes(source.read_bytes()[:-20])
    with pytest.raises(CorpusError, match="damaged file"):
        list(read_units(str(source), str(source)))


def test_tags_of_any_depth_hold_text_in_its_order(tmp_path):
    depth = 3000
    german = "<hi>a" * depth + "</hi>b" * depth
    source = write_memory(tmp_path / "a.tmx", unit(("de", german), ("en", "house")))
    assert list(read_units(source, source)) == [
        (1, {"de": "a" * depth + "b" * depth, "en": "house"})
    ]
