"""The languages of FLORES-200 that have one usual ISO 639-1 code."""

from .locales import two_letter_code

_FLORES_CODES = """
eng_Latn deu_Latn spa_Latn fra_Latn ita_Latn por_Latn nld_Latn pol_Latn ces_Latn rus_Cyrl ukr_Cyrl
ron_Latn cat_Latn swe_Latn dan_Latn fin_Latn hun_Latn ell_Grek tur_Latn arb_Arab heb_Hebr hin_Deva
zho_Hans jpn_Jpan kor_Hang vie_Latn ind_Latn swh_Latn tha_Thai urd_Arab bul_Cyrl
"""

# With their scripts. zho_Hant, for example, keeps its own code.
FLORES_CODES: tuple[str, ...] = tuple(_FLORES_CODES.split())


def iso_of_flores(code: str) -> str:
    """Return the ISO 639-1 code of a FLORES-200 code such as `deu_Latn`.

    A code for which none is usual is returned itself.
    """
    return two_letter_code(code) if code in FLORES_CODES else code
