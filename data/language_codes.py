"""The codes of ISO 639 that the columns, folders and files of users have.

All 7,900 codes of ISO 639-3 would be too many: `len`, `set` and `key` are languages too.
"""

_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id
ie ig ii ik io is it iu iw ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li
ln lo lt lu lv mg mh mi mk ml mn mo mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa
pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_FLORES = """
ace acm acq aeb afr ajp aka als amh apc arb ars ary arz asm ast awa ayr azb azj bak bam ban bel bem
ben bho bjn bod bos bug bul ceb ces cjk ckb crh cym dan deu dik dyu dzo ell eng epo est eus ewe fao
fij fin fon fra fur fuv gaz gla gle glg grn guj hat hau heb hin hne hrv hun hye ibo ilo isl ita jav
jpn kab kac kam kan kas kat kaz kbp kea khk khm kik kin kir kmb kmr knc kon kor lao lij lim lin lit
lmo ltg ltz lua lug luo lus lvs mag mai mal mar mkd mlt mni mos mri mya nld nno nob npi nso nus nya
oci ory pag pan pap pbt pes plt pol por prs quy ron rus sag san sat scn shn sin slk slv smo sna snd
som sot spa srd srp ssw sun swe swh szl tam taq tat tgk tgl tha tir tpi tsn tso tuk tum tur twi tzm
uig ukr umb urd uzn vec vie war wol xho ydd yor yue zho zsm zul
"""
_TATOEBA_AND_WIKIPEDIA = """
ang ara arq aze bar bcl ber bpy bre bxr cbk cdo cha chr cmn cor csb cos diq dsb dtp eml frp frr fry
gag gan glk gom gsw hak hbs hif hsb ido ile ina jbo kbd koi krc ksh kur kzj lad lat lav lbe lez lfn
lzh mdf mhr mlg mon mrj msa mwl myv mzn nah nan nap nav nds nep nov nrm nor olo ori orv oss pam pcd
pdc pfl pms pnb pnt pus que rmy roa roh rue rup sah sco sgs sma sme smj smn sms sqi srn stq swa swg
tcy tet tyv tzl udm uzb vep vls vol vro wln wuu xal xmf yid zea zza
"""
_AFRICA_AND_AMERICAS = """
ach ada agr bas bbj bci bin bss bzd cak cni dje efi fan fat ful gur guw hch her iba kal kau kek kqn
kua kwy lgg loz lub lue lun luy mam mas mer mfe nba nbl nde ndo nyk nym nyn nzi orm oto pcm pis quc
quz rar rnd shp sid srm swc teo tiv tog toh toi tll tsc tvl tyy ven wal yap zne
"""
_OTHERS_WITH_TWO_LETTERS = """
aar abk arg ava ave aym bis che chu chv cre div fas glv hmo iii iku ipk kom mah nau oji pli tah ton
zha
"""
_CODES_OF_LIBRARIES = """
alb arm baq bur chi cze dut fre geo ger gre ice rum slo wel
"""

# ISO 639-2, terminological and bibliographic, with the code of ISO 639-1; beside them Mandarin and
# Standard Arabic, which ISO 639-3 has apart.
_THREE_LETTERS_WITH_TWO = """
aar=aa abk=ab afr=af aka=ak alb=sq amh=am ara=ar arb=ar arg=an arm=hy asm=as ava=av ave=ae aym=ay
aze=az bak=ba bam=bm baq=eu bel=be ben=bn bih=bh bis=bi bod=bo bos=bs bre=br bul=bg bur=my cat=ca
ces=cs cha=ch che=ce chi=zh chu=cu chv=cv cmn=zh cor=kw cos=co cre=cr cym=cy cze=cs dan=da deu=de
div=dv dut=nl dzo=dz ell=el eng=en epo=eo est=et eus=eu ewe=ee fao=fo fas=fa fij=fj fin=fi fra=fr
fre=fr fry=fy ful=ff geo=ka ger=de gla=gd gle=ga glg=gl glv=gv gre=el grn=gn guj=gu hat=ht hau=ha
heb=he her=hz hin=hi hmo=ho hrv=hr hun=hu hye=hy ibo=ig ice=is ido=io iii=ii iku=iu ile=ie ina=ia
ind=id ipk=ik isl=is ita=it jav=jv jpn=ja kal=kl kan=kn kas=ks kat=ka kau=kr kaz=kk khm=km kik=ki
kin=rw kir=ky kom=kv kon=kg kor=ko kua=kj kur=ku lao=lo lat=la lav=lv lim=li lin=ln lit=lt ltz=lb
lub=lu lug=lg mac=mk mah=mh mal=ml mao=mi mar=mr may=ms mkd=mk mlg=mg mlt=mt mon=mn mri=mi msa=ms
mya=my nau=na nav=nv nbl=nr nde=nd ndo=ng nep=ne nld=nl nno=nn nob=nb nor=no nya=ny oci=oc oji=oj
ori=or orm=om oss=os pan=pa per=fa pli=pi pol=pl por=pt pus=ps que=qu roh=rm ron=ro rum=ro run=rn
rus=ru sag=sg san=sa sin=si slk=sk slo=sk slv=sl sme=se smo=sm sna=sn snd=sd som=so sot=st spa=es
sqi=sq srd=sc srp=sr ssw=ss sun=su swa=sw swe=sv tah=ty tam=ta tat=tt tel=te tgk=tg tgl=tl tha=th
tib=bo tir=ti ton=to tsn=tn tso=ts tuk=tk tur=tr twi=tw uig=ug ukr=uk urd=ur uzb=uz ven=ve vie=vi
vol=vo wel=cy wln=wa wol=wo xho=xh yid=yi yor=yo zha=za zho=zh zul=zu
"""
TWO_LETTER_CODES: dict[str, str] = dict(pair.split("=") for pair in _THREE_LETTERS_WITH_TWO.split())

# Three letters that are languages, but the usual name of a column, too. With a script they are
# clear: `cat_Latn`.
AMBIGUOUS_CODES = frozenset(["cat", "ext", "ind", "may", "max", "min", "new", "per", "run", "tel"])
LANGUAGE_CODES = frozenset(
    " ".join(
        (
            _TWO_LETTERS,
            _FLORES,
            _TATOEBA_AND_WIKIPEDIA,
            _AFRICA_AND_AMERICAS,
            _OTHERS_WITH_TWO_LETTERS,
            _CODES_OF_LIBRARIES,
        )
    ).split()
)
