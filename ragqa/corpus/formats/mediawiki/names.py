"""Disambiguation templates of Wikipedias, and prefixes of links that show no text."""

import re

# Disambiguation templates of the English Wikipedia with their redirects, and those of some other large Wikipedias. A
# dump does not say which templates these are: each wiki lists them on a page of its own.
_DISAMBIGUATION_NAMES = """
aimai, airport disambig, airport disambiguation, begriffsklärung, biology disambiguation, call sign
disambiguation, callsigndis, caselaw disambiguation, chinese title disambig, chinese title disambiguation,
church disambig, church disambiguation, dab, dbig, desambig, desambiguação, desambiguación, desambiguació, dis,
disamb, disambig, disambig cleanup, disambig-cleanup, disambigua, disambiguation, disambiguation cleanup,
disambiguation page, doorverwijspagina, dp, dubbelsinnig, flertydig, förgrening, gadis, genus disambiguation,
geo-dis, geodab, geodis, gren, hndab, hndis, hndis-cleanup, homonymie, hospitaldis, hospital disambiguation,
human name disambiguation, human name disambiguation cleanup, internationalisation disambiguation,
latinnamedisambig, letter-number combination disambiguation, letter–number combination disambiguation,
letter-numbercombdisambig, lndab, math disambig, mathdab, mathematical disambiguation, mil-unit-dis, military
unit disambiguation, number disambig, number disambiguation, numberdis, opus number disambiguation, phonetics
disambiguation, place name disambiguation, road disambiguation, roaddis, school disambig, school disambiguation,
schooldab, schooldis, species latin name abbreviation disambiguation, species latin name disambiguation, station
disambiguation, stationdis, synagogue disambiguation, taxonomic authority disambiguation, taxonomy
disambiguation, täsmennyssivu, ujednoznacznienie, wikipedia disambiguation, woo number disambiguation,
неоднозначность, многозначность, багатозначність, 消歧义, 消歧義, 消歧义页, 消歧義頁, 曖昧さ回避,
동음이의, توضيح, ابهام‌زدایی, פירושונים
"""
_DISAMBIGUATION_TEMPLATES = frozenset(name.strip() for name in _DISAMBIGUATION_NAMES.replace("\n", " ").split(","))
_TEMPLATE = re.compile(r"\{\{\s*(?:template:\s*)?([^{}|<>\[\]]{2,60}?)\s*(?=[|}])", re.IGNORECASE)
_TITLE = re.compile(r"\(disambiguation(?: page)?\)\s*\Z", re.IGNORECASE)

# Every wiki understands these English names; its own names stand in the header of its dump.
_FILES_AND_CATEGORIES = frozenset(("file", "image", "category"))
# A link to a Wikipedia in another language is shown next to the page, not in its text.
_LANGUAGES = """
aa ab ace ady af ak als alt am ami an ang ann anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar
bat-smg bbc bcl bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy br bs btm bug bxr ca cbk-zam cdo ce
ceb ch cho chr chy ckb co cr crh cs csb cu cv cy da dag de dga din diq dsb dtp dty dv dz ee el eml en eo es et
eu ext fa fat ff fi fiu-vro fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc
gur guw gv ha hak haw he hi hif ho hr hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam
jbo jv ka kaa kab kbd kbp kcg kg kge ki kj kk kl km kn knc ko koi kr krc ks ksh ku kus kv kw ky la lad lb lbe
lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mos
mr mrj ms mt mus mwl my myv mzn na nah nan nap nds nds-nl ne new ng nia nl nn no nov nqo nr nrm nso nup nv ny oc
olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara rsk
ru rue rw sa sah sat sc scn sco sd se sg sh shi shn shy si simple sk skr sl sm smn sn so sq sr srn ss st stq su
sv sw syl szl szy ta tay tcy tdd te tet tg th ti tig tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur
uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh zh-classical zh-min-nan zh-yue zu
"""
INVISIBLE_PREFIXES = _FILES_AND_CATEGORIES.union(_LANGUAGES.split())
"""Normalised prefixes of links that show no text where they stand."""


def normalize_prefix(name: str) -> str:
    """Normalise the name of a namespace, or the prefix of a link, for comparison."""
    return name.strip(" _").replace("_", " ").casefold()


def is_disambiguation(title: str, wikitext: str) -> bool:
    """Tell whether a page only lists the meanings of its title.

    Its title, a template or ``__DISAMBIG__`` shows it. The rule for titles is that of DrQA (Chen et al. 2017), whose
    Wikipedia later systems use.
    """
    if _TITLE.search(title) or "__DISAMBIG__" in wikitext:
        return True
    return any(normalize_prefix(match[1]) in _DISAMBIGUATION_TEMPLATES for match in _TEMPLATE.finditer(wikitext))
