"""Codes of languages as people write them: `de`, `De`, `deu`, `de-DE`, `en_US.UTF-8`."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from langcodes import Language, tag_is_valid
from langcodes.tag_parser import LanguageTagError

from .checks import NOT_LANGUAGES, bad_value

LOCALE = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]{2,8})*([.@][\w.@-]+)?", re.ASCII)
SCRIPT = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{4})(?![A-Za-z0-9])", re.ASCII)

# Languages without a code of two letters that the columns, folders and files of users are in: those
# of FLORES-200, Tatoeba, Wikipedia and African benchmarks. All 7,900 codes of ISO 639-3 would be
# too many: `len`, `set` and `key` are languages too.
_THREE_LETTER_CODES = """
ace ach acm acq ada aeb agr ajp als ang apc arb arq ars ary arz ast awa ayr azb azj ban bar bas bbj
bci bcl bem ber bho bin bjn bpy bss bug bxr bzd cak cbk cdo ceb chr cjk ckb cmn cni crh csb dik diq
dje dsb dtp dyu efi eml fan fat fil fon frp frr fur fuv gag gan gaz glk gom gsw gur guw hak hch hif
hne hsb iba ilo jbo kab kac kam kbd kbp kea kek khk kmb kmr knc koi kqn krc ksh kwy kzj lad lbe lez
lfn lgg lij lmo loz ltg lua lue lun luo lus luy lvs lzh mag mai mam mas mdf mer mfe mhr mni mos mrj
mwl myv mzn nah nan nap nba nds nov npi nrm nso nus nyk nym nyn nzi olo orv ory oto pag pam pap pbt
pcd pcm pdc pes pfl pis plt pms pnb pnt quc quy quz rar rmy rnd roa rue rup sah sat scn sco sgs shn
shp sid sma smj smn sms srm srn stq swg swh szl taq tcy teo tet tgl tiv tll tog toh toi tpi tsc tum
tvl tyv tyy tzl tzm udm umb uzn vec vep vls vro wal war wuu xal xmf yap ydd yue zea zne zsm zza
"""
THREE_LETTER_CODES = frozenset(_THREE_LETTER_CODES.split())
# Three letters that are languages, but the usual name of a column, too. With a script they are
# clear: `cat_Latn`.
AMBIGUOUS_CODES = frozenset(["cat", "ext", "ind", "may", "max", "min", "new", "per", "run", "tel"])

# The languages of FLORES-200 that have one usual ISO 639-1 code.
_FLORES_CODES = """
eng_Latn deu_Latn spa_Latn fra_Latn ita_Latn por_Latn nld_Latn pol_Latn ces_Latn rus_Cyrl ukr_Cyrl
ron_Latn cat_Latn swe_Latn dan_Latn fin_Latn hun_Latn ell_Grek tur_Latn arb_Arab heb_Hebr hin_Deva
zho_Hans jpn_Jpan kor_Hang vie_Latn ind_Latn swh_Latn tha_Thai urd_Arab bul_Cyrl
"""
# With their scripts. zho_Hant, for example, keeps its own code.
FLORES_CODES: tuple[str, ...] = tuple(_FLORES_CODES.split())

# English names of languages, by which people guess at their codes.
_CODES_OF_NAMES = {
    "arabic": "ar", "bulgarian": "bg", "catalan": "ca", "chinese": "zh", "croatian": "hr",
    "czech": "cs", "danish": "da", "dutch": "nl", "english": "en", "estonian": "et",
    "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi",
    "hungarian": "hu", "indonesian": "id", "irish": "ga", "italian": "it", "japanese": "ja",
    "korean": "ko", "latvian": "lv", "lithuanian": "lt", "norwegian": "no", "persian": "fa",
    "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "serbian": "sr",
    "slovak": "sk", "slovenian": "sl", "spanish": "es", "swahili": "sw", "swedish": "sv",
    "thai": "th", "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "vietnamese": "vi",
}  # fmt: skip


def check_code(code: str | None, argument: str) -> None:
    """Raise `CorpusError` if a code that a user gives is that of no language.

    Args:
        code: A code or a locale, such as `de` or `pt-BR`; None if none was given.
        argument: The argument or option.
    """
    if code is None:
        return
    language = language_of_locale(code)
    if may_name_a_language(code) and tag_is_valid(language):
        return
    advice = "Codes are those of ISO 639."
    similar = similar_codes(code)
    if similar:
        advice = f"Did you mean {' or '.join(similar)}?"
    expected = "the code of a language, such as de or pt-BR"
    raise bad_value(argument, None, None, code, expected, advice)


def check_codes(codes: Iterable[str], argument: str) -> None:
    """Do as `check_code` for several codes."""
    for code in codes:
        check_code(code, argument)


def similar_codes(code: str) -> list[str]:
    """Return the codes that may be meant by one that is none.

    Example:
        >>> similar_codes("po")
        ['pl', 'pt']
        >>> similar_codes("jp")
        ['ja']
    """
    guess = re.split("[-_.@]", code.strip().lower())[0]
    codes = []
    for name, language in _CODES_OF_NAMES.items():
        if name.startswith(guess):
            codes.append(language)
    if len(guess) == 2 and guess.isalpha():
        # The code of a country; one that is none is taken for English.
        spoken = Language.make(territory=guess.upper()).maximize().language
        if spoken is not None and spoken not in ("en", *codes):
            codes.append(spoken)
    return codes


def language_of_locale(code: str) -> str:
    """Return the language of a locale: `de` of `de-DE`, `en` of `en_US`, `EN` and `en`.

    A name that is no locale is returned as it is.
    """
    if not may_name_a_language(code):
        return code
    return re.split("[-_.@]", code.strip())[0].lower()


@lru_cache(maxsize=4096)
def two_letter_code(code: str) -> str:
    """Return the shortest code of the language of a locale: `de` of `deu`, `ger` and `de-AT`.

    A language without a code of two letters keeps its own. Mandarin is `zh`, and Standard Arabic
    `ar`.
    """
    language = language_of_locale(code)
    if len(language) != 3:
        return language
    if language == "tgl":
        return "tl"  # CLDR calls it Filipino, `fil`.
    try:
        known = Language.get(language).prefer_macrolanguage().language or language
    except LanguageTagError:
        return language
    return known if len(known) == 2 else language


def merged_languages(codes: Collection[str]) -> dict[str, str]:
    """Return the language that each code stands for, where several or longer ones mean the same.

    A code that names a script keeps its name, and so does Chinese, whose regions differ in script.

    Example:
        >>> merged_languages(["de-AT", "de-DE", "eng", "zh-TW"])
        {'de-AT': 'de', 'de-DE': 'de', 'eng': 'en', 'zh-TW': 'zh-TW'}
    """
    languages = {}
    for code in codes:
        language = two_letter_code(code)
        has_script = SCRIPT.match(code) is not None or language == "zh"
        languages[code] = code if has_script else language
    return languages


def known_code(code: str, known_languages: Collection[str]) -> str | None:
    """Return the language, among known ones, that a code means; None if there is none.

    A locale that is known itself keeps its name: `zh-Hant` of a model with that language.

    Args:
        code: A code or a locale.
        known_languages: The languages of a model or a run.
    """
    for candidate in (code, language_of_locale(code), two_letter_code(code)):
        if candidate in known_languages:
            return candidate
    return None


def may_name_a_language(name: str) -> bool:
    """Return whether a name has the form of a code or a locale, whatever language it is."""
    plain = name.strip().lower()
    if LOCALE.fullmatch(plain) is None or plain in NOT_LANGUAGES:
        return False
    return re.split("[-_.@]", plain)[0] not in NOT_LANGUAGES


def names_a_language(name: str) -> bool:
    """Return whether a name that nobody asked for is that of a known language, or its locale.

    `de`, `En-US`, `ENG` and `cat_Latn` are; `len` has the form of a code, and `cat` is more often a
    category than Catalan.
    """
    if not may_name_a_language(name):
        return False
    language = language_of_locale(name)
    if language in AMBIGUOUS_CODES:
        return SCRIPT.match(name.strip()) is not None
    if len(language) == 2:
        return tag_is_valid(language)
    return language in THREE_LETTER_CODES or len(two_letter_code(language)) == 2


def same_locale(first: str, second: str) -> bool:
    """Return whether two names are one locale, written differently: `pt-BR`, `pt_br`."""
    return _plain(first) == _plain(second)


def fits_language(locale: str, language: str) -> bool:
    """Return whether a locale is of a language: `de-DE` of `de`, and also `de` of `de-DE`.

    `deu` is `de`. `en-GB` is not of `en-US`: both name a region.
    """
    if not may_name_a_language(locale) or not may_name_a_language(language):
        return False
    if two_letter_code(locale) != two_letter_code(language):
        return False
    names = (_plain(locale), _plain(language))
    return language_of_locale(locale) in names or language_of_locale(language) in names


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def iso_of_flores(code: str) -> str:
    """Return the ISO 639-1 code of a FLORES-200 code such as `deu_Latn`.

    A code for which none is usual is returned itself.
    """
    return two_letter_code(code) if code in FLORES_CODES else code
