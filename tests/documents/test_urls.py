"""URLs without the marks of their language, as in WMT16: pages that differ in these alone have one key."""

import pytest

from modeling_tmde.documents.urls import match_urls, strip_language_markers, website

SAME = [
    ("http://example.org/en/news/1", "http://example.org/fr/news/1"),
    ("http://example.org/en/news/1", "https://www.example.org/news/1/"),
    ("http://example.org/index.de.html", "http://example.org/index.html"),
    ("http://example.org/seite-de.html", "http://example.org/seite_en.html"),
    ("http://example.org/seite_fr.html", "http://example.org/seite.html"),
    ("http://example.org/de-AT/a", "http://example.org/en_us/a"),
    ("http://example.org/zh-hans/a", "http://example.org/es-419/a"),
    ("http://example.org/a?id=7&lang=de", "http://example.org/a?id=7"),
    ("http://example.org/a?lang=de&id=7", "http://example.org/a?id=7&hl=en-GB"),
    ("http://example.org/a?l=it", "http://example.org/a"),
    ("http://de.example.org/a", "http://www.example.org/a"),
    ("http://de-de.example.org/a", "http://en.example.org/a"),
    ("http://example.de/a", "http://example.com/a"),
    ("http://example.co.uk/a", "http://example.fr/a"),
    ("http://example.org/deutsch/a", "http://example.org/english/a"),
    ("http://example.org/A%20b", "HTTP://EXAMPLE.org/a b"),
    ("http://example.org:8080/a", "http://user@example.org/a#top"),
    ("example.org/fr/a", "http://example.org/a"),
    ("http://example.org/zh-hans-cn/a", "http://example.org/zh/a"),
    ("http://example.org/deu/a", "http://spa.example.org/a"),
    ("http://example.org/a?sprache=de", "http://example.org/a?locale=pt_br"),
    ("example.org/a//b", "http://example.org/en/a/b"),
    ("//example.org/a", "https://example.org/a"),
    ("http://example.eu/a", "http://example.com.br/a"),
    ("http://example.org.uk/a", "http://example.org/a"),
]
DIFFERENT = [
    ("http://example.org/en/1", "http://example.org/fr/2"),
    ("http://example.org/a?id=7", "http://example.org/a?id=8"),
    ("http://news.example.org/a", "http://example.org/a"),
    ("http://example.org/entry", "http://example.org/try"),  # a code inside a word is none
    ("http://example.org/modell", "http://example.org/mol"),
    ("http://10.0.0.1/a", "http://10.0.0.2/a"),
    ("http://example.org/a/b", "http://example.org/ab"),
    ("http://example.com/de/it-news", "http://example.com/it/"),
    ("http://example.com/en/it-jobs", "http://example.com/de"),
    ("http://example.com/de-luxe", "http://example.com/en"),
    ("http://example.com/en/spa", "http://example.com/es/"),
    ("http://example.com/en/it", "http://example.com/it"),
    ("http://example.com/pets/cat", "http://example.com/pets"),
    ("http://example.com/a?country=de", "http://example.com/a"),
    ("http://example.com/a?cat=en", "http://example.com/a?cat=fr"),
    ("http://example.com/a?l=7", "http://example.com/a?l=8"),
    ("http://example.com/a", "http://example.org/a"),
    ("http://example.de/a", "http://example.org/a"),
    ("http://example.co.uk/a", "http://example.org.uk/a"),
    ("example.com/a//b", "example.org/a//b"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_translations_have_one_key(first, second):
    assert strip_language_markers(first) == strip_language_markers(second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_other_pages_do_not(first, second):
    assert strip_language_markers(first) != strip_language_markers(second)


def test_only_the_languages_that_are_asked_for():
    url = "http://example.org/how-it-works/de"
    assert strip_language_markers(url) == "example.org/how-works"
    assert strip_language_markers(url, ["de", "en"]) == "example.org/how-it-works"
    assert strip_language_markers(url, ["fr", "en"]) == "example.org/how-it-works/de"
    assert strip_language_markers("http://example.org/xx/a", ["xx"]) == "example.org/a"  # a code without names


def test_website():
    for host in ("www.example.com", "de.example.com", "example.co.uk", "EXAMPLE.de:80", "example.eu"):
        assert website(f"http://{host}/a?b=c") == "example"
    for host in ("www.example.org", "de.example.org", "example.org.uk"):
        assert website(f"http://{host}") == "example.org"
    assert website("http://shop.example.com") == "shop.example"
    assert website("example.com/a//b") == "example"
    assert website("/a/b") == ""
    assert website("http://127.0.0.1/a") == "127.0.0.1"
    assert website("") == ""


def test_keys_that_occur_twice_are_not_matched():
    first = ["e.org/en/1", "e.org/en/2", "e.org/2", "", "e.org/en/4", "e.org/5"]
    second = ["e.org/fr/2", "e.org/fr/1", "e.org/5?lang=fr", "e.org/fr/4", "e.org/4", ""]
    # page 2 is there twice in first, page 4 twice in second; "" is not known
    assert match_urls(first, second) == [(0, 1), (5, 2)]
    assert match_urls([], second) == []


def test_odd_urls_are_taken_as_they_are():
    for url in ("", "?", "/", "http://", "http://[bad/a", "http://e.org/?&&=", "..", "://"):
        assert isinstance(strip_language_markers(url), str) and isinstance(website(url), str)


def test_bad_arguments():
    with pytest.raises(TypeError, match="url: found NoneType"):
        strip_language_markers(None)
    with pytest.raises(TypeError, match="url: found int"):
        website(3)
    with pytest.raises(TypeError, match="languages: found the string 'de'"):
        match_urls(["a"], ["b"], "de")
    with pytest.raises(ValueError, match="languages: found 'german'"):
        match_urls(["a"], ["b"], ["german"])
