"""The languages of a source are found without reading it whole."""

import pytest

from tests.data.plain_rows import pair_rows
from tmde.data import CorpusError, load_parallel
from tmde.data.languages import (
    check_code,
    known_code,
    language_of_locale,
    merged_languages,
    names_a_language,
    two_letter_code,
)
from tmde.data.parts import languages_of

ROWS = [{"fr": "a", "de": "b"}]


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("de", "de"),
        ("de-DE", "de"),
        ("en_US", "en"),
        ("EN", "en"),
        ("pt-BR", "pt"),
        ("zh-Hans-CN", "zh"),
        ("de_DE.UTF-8", "de"),
        ("ast", "ast"),
        ("doc_id", "doc_id"),
        ("url", "url"),
        ("Source", "Source"),
    ],
)
def test_language_of_locale(code, language):
    assert language_of_locale(code) == language


@pytest.mark.parametrize(
    ("code", "known_languages", "language"),
    [
        ("zh-Hant", ["de", "zh"], "zh"),
        ("zh-Hant", ["zh-Hant", "zh"], "zh-Hant"),
        ("de", ["de"], "de"),
        ("nl", ["de"], None),
    ],
)
def test_known_code(code, known_languages, language):
    assert known_code(code, known_languages) == language


@pytest.mark.parametrize("name", ["de", "en-US", "EN", "deu", "deu_Latn", "cat_Latn", "gsw"])
def test_names_of_languages(name):
    assert names_a_language(name)


@pytest.mark.parametrize("name", ["len", "cat", "max", "src", "xx", "src_url", "Source"])
def test_names_of_no_languages(name):
    assert not names_a_language(name)


@pytest.mark.parametrize(
    "kind", ["parquet", "parquet-flat", "jsonl", "jsonl.gz", "tsv", "tsv.gz", "moses"]
)
def test_languages_of_every_format(kind, write):
    source = write(kind, ROWS)
    assert sorted(languages_of(source)) == ["de", "fr"]
    assert sorted(languages_of(source)) == list(load_parallel(source).features["translation"])


def test_order_of_appearance(tmp_path):
    (tmp_path / "a.csv").write_text("fr-FR;doc_id;DE\na;b;c\n")
    (tmp_path / "b.tsv").write_text("en\tde\na\tb\n")
    assert languages_of([str(tmp_path / "b.tsv"), str(tmp_path / "a.csv")]) == ["en", "de", "fr"]
    assert languages_of(str(tmp_path)) == ["fr", "de", "en"]


def test_columns_of_short_names_are_no_languages(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("de,en,len,cat\na,b,7,news\n")
    assert languages_of(str(source)) == ["de", "en"]


def test_any_code_is_a_language_if_the_user_says_so(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("de,tlh,cat\na,b,c\n")
    assert languages_of(str(source), {"ca": "cat"}) == ["de", "ca"]
    assert languages_of(str(source), {"de": "de", "tlh": "tlh"}) == ["de", "tlh"]
    rows = load_parallel(str(source), ["de", "tlh"])
    assert rows[0]["translation"] == {"de": "a", "tlh": "b"}


def test_any_code_is_a_language_in_a_translation_and_of_moses_files(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"translation": {"de": "a", "tlh": "b"}}\n')
    assert languages_of(str(source)) == ["de", "tlh"]
    for code in ("de", "tlh"):
        (tmp_path / f"b.{code}").write_text("a\n")
    files = {code: str(tmp_path / f"b.{code}") for code in ("de", "tlh")}
    assert languages_of(files) == ["de", "tlh"]


def test_columns_of_the_user(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("id,Target,Source\nno,a,b\n")
    columns = {"de": "Source", "en": "Target", "doc_id": "id"}
    assert languages_of(str(source), columns) == ["en", "de"]


def test_numbers_are_not_indonesian(tmp_path):
    source = tmp_path / "a.tsv"
    source.write_text("id\tde\ten\n17\ta\tb\n")
    assert languages_of(str(source)) == ["de", "en"]


def test_later_rows_of_jsonl(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"de": "a", "en": "b"}\n{"de": "a", "fr": "b"}\n')
    assert languages_of(str(source)) == ["de", "en", "fr"]


def test_a_large_file_is_not_read_whole(tmp_path):
    """The broken last line would be an error."""
    source = tmp_path / "a.jsonl"
    source.write_text('{"de": "a", "en": "b"}\n' * 5000 + "broken\n")
    assert languages_of(str(source)) == ["de", "en"]


def test_pairs_and_first_rows_of_the_hub(hub_folder, tmp_path):
    pairs = {"de-en": pair_rows("de", "en", 2), "en-fr": pair_rows("en", "fr", 2)}
    assert languages_of(hub_folder(pairs)) == ["de", "en", "fr"]


def test_the_only_config_of_the_hub(hub_folder):
    assert sorted(languages_of(hub_folder({"default": pair_rows("de", "en", 2)}))) == ["de", "en"]


def test_the_sample():
    assert languages_of("sample") == ["de", "en", "es", "fr", "it"]


def test_two_locales_of_a_language(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("de,en-US,en-GB\na,b,c\n")
    with pytest.raises(CorpusError) as caught:
        languages_of(str(source))
    for part in ("a.csv", "en-US, en-GB", "--columns en=en-US", "--languages de,en-US,en-GB"):
        assert part in str(caught.value)
    assert languages_of(str(source), {"en": "en-GB"}) == ["de", "en"]


def test_a_locale_beside_its_language(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("de,en-US,en\na,b,c\n")
    assert languages_of(str(source)) == ["de", "en"]


def test_a_header_without_languages(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("Source,Target\na,b\n")
    with pytest.raises(CorpusError, match="Source, Target.*--columns de=Source,en=Target"):
        languages_of(str(source))


@pytest.mark.parametrize(
    ("code", "short"),
    [
        *(
            ("deu", "de"),
            ("ger", "de"),
            ("fre", "fr"),
            ("fra", "fr"),
            ("eng", "en"),
            ("de-AT", "de"),
        ),
        *(("deu-AT", "de"), ("DE", "de"), ("ceb", "ceb"), ("gsw", "gsw"), ("Source", "Source")),
    ],
)
def test_two_letter_code(code, short):
    assert two_letter_code(code) == short


def test_locales_of_one_script_are_one_language():
    codes = ["de", "de-AT", "ger", "zh-CN", "zh-TW", "sr-Latn", "sr-RS", "pt_BR"]
    assert merged_languages(codes) == {
        "de": "de",
        "de-AT": "de",
        "ger": "de",
        "zh-CN": "zh-CN",
        "zh-TW": "zh-TW",
        "sr-Latn": "sr-Latn",
        "sr-RS": "sr",
        "pt_BR": "pt",
    }


@pytest.mark.parametrize("code", ["de", "DE", "de-AT", "deu", "ger", "zho_Hans", "en-UK", "nb"])
def test_codes_of_languages_are_taken(code):
    check_code(code, "language")


@pytest.mark.parametrize(
    ("code", "similar"),
    [("jp", "ja"), ("po", "pl or pt"), ("cz", "cs"), ("ge", "de or ka"), ("german", "de")],
)
def test_made_up_codes_are_refused(code, similar):
    with pytest.raises(CorpusError, match=rf"language_a: found '{code}'.* mean {similar}\?"):
        check_code(code, "language_a")


def test_a_code_like_no_other_is_refused():
    with pytest.raises(CorpusError, match="ISO 639"):
        check_code("xx", "language_a")
