"""Languages without a code of two letters that the columns, folders and files of users are in.

These are the languages of FLORES-200, Tatoeba, Wikipedia and African benchmarks. All 7,900 codes of
ISO 639-3 would be too many: `len`, `set` and `key` are languages too.
"""

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
