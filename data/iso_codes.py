"""ISO 639-3 codes of FLORES-200, SIB-200 and LASER's Tatoeba files, and their ISO 639-1 codes."""

_CODES = """
afr af  amh am  ara ar  arb ar  aze az  bel be  ben bn  bos bs  bre br  bul bg  cat ca  ces cs
cmn zh  cor kw  cym cy  dan da  deu de  ell el  eng en  epo eo  est et  eus eu  fao fo  fin fi
fra fr  fry fy  gla gd  gle ga  glg gl  heb he  hin hi  hrv hr  hun hu  hye hy  ido io  ile ie
ina ia  ind id  isl is  ita it  jav jv  jpn ja  kat ka  kaz kk  khm km  kor ko  kur ku  lat la
lit lt  lvs lv  mal ml  mar mr  mkd mk  mon mn  nld nl  nno nn  nob nb  oci oc  pes fa  pol pl
por pt  ron ro  rus ru  slk sk  slv sl  spa es  sqi sq  srp sr  swe sv  swh sw  tam ta  tat tt
tel te  tgl tl  tha th  tuk tk  tur tr  uig ug  ukr uk  urd ur  uzb uz  vie vi  xho xh  yid yi
zho zh  zsm ms
"""
_FLORES_CODES = """
eng_Latn deu_Latn spa_Latn fra_Latn ita_Latn por_Latn nld_Latn pol_Latn ces_Latn rus_Cyrl ukr_Cyrl
ron_Latn cat_Latn swe_Latn dan_Latn fin_Latn hun_Latn ell_Grek tur_Latn arb_Arab heb_Hebr hin_Deva
zho_Hans jpn_Jpan kor_Hang vie_Latn ind_Latn swh_Latn tha_Thai urd_Arab bul_Cyrl
"""

_CODE_LIST = _CODES.split()
ISO_639_1: dict[str, str] = dict(zip(_CODE_LIST[::2], _CODE_LIST[1::2], strict=True))

# The languages (with script) whose FLORES-200 code has one usual ISO 639-1 code. zho_Hant, for
# example, keeps its own.
FLORES_CODES: tuple[str, ...] = tuple(_FLORES_CODES.split())


def iso_of_flores(code: str) -> str:
    """Return the ISO 639-1 code of a FLORES-200 code such as `deu_Latn`.

    A code for which none is usual is returned itself.
    """
    if code not in FLORES_CODES:
        return code
    return ISO_639_1[code.split("_")[0]]


def iso_of_iso3(code: str) -> str:
    """Return the ISO 639-1 code of an ISO 639-3 code such as `deu`, or the code itself if none."""
    return ISO_639_1.get(code, code)
