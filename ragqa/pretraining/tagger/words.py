"""Word lists, by which the rule-based tagger tells whether a word is part of a name.

``names`` and ``works`` use them where capitals alone tell nothing: at the start of a sentence, after titles such as
President, and around linking words such as ``of``. All words are in lower case unless a list says otherwise.
"""


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPENERS = _split_words(
    """
    the in this it a he on however as for there after they these some when at during by his although according one other
    if while many an since with she most to from all another but because its despite early thus later following both
    also two their each several that we more under among though such even no and before of her due over today then once
    see further between only three therefore unlike so first additionally instead what furthermore within about
    nevertheless similarly note meanwhile not here much those upon you finally around until others prior using through
    throughout every my sometimes moreover now people beginning various soon four any originally indeed having along
    initially historically often hence just given similar second currently where starting how besides consequently
    rather yet based generally typically together almost five likewise traditionally without apart nonetheless depending
    certain still numerous approximately perhaps usually conversely additional born former different being recently six
    subsequently our outside alternatively third neither nearly contemporary late whereas unfortunately overall beyond
    whether again who subsequent aside do well why out consider very previously located ten none compared ultimately
    last accordingly or don't is specifically suppose related immediately below multiple few taking earlier twenty never
    occasionally against significant famous except inside otherwise thereafter regarding lost nine returning written
    there's regardless let owing everything whatever whilst above inspired left assuming older nowadays half especially
    ironically normally particularly thanks notably going far come making your either previous had amongst can published
    possible already adding behind combined released nor looking thirty built past formerly everyone officially be which
    across concerning increasing increased have does did was were are am has would could should will might must shall
    whenever toward towards finding commonly elsewhere something secondly firstly lastly thirdly selected playing
    considering interestingly virtually too like anyone nobody unable continuing apparently nearby gradually called
    newer noting knowing please give say put ever probably possibly certainly partly essentially sometime alongside
    altogether clearly fortunately increasingly including included limited proposed designed developed created founded
    established introduced directed i me him them us hers theirs yours ours himself herself itself themselves whose whom
    than per via off down into onto yes okay afterwards afterward thousands hundreds millions dozens seven eight eleven
    twelve mid less fewer least worse worst leading notable fellow historian historians critics scholars researchers
    scientists author authors actor actress singer composer poet writer playwright philosopher mathematician physicist
    guitarist drummer bassist director producer novelist journalist artist architect members examples references events
    politics economy geography demographics transport transportation telecommunications history list biography works
    bibliography etymology notes sources music
    """
)
"""Words that are no part of a name at the start of a sentence."""

ORDINARY = _split_words(
    """
    new old long high free large small good modern ancient classical medieval local public natural human military social
    political economic foreign cultural scientific commercial personal real main major minor special general short low
    near key single double full known final external current private legal nuclear digital global regional urban rural
    ethnic domestic original financial critical important official professional open initial literary popular common
    basic physical chemical medical mathematical independent male female adult young poor sweet hard soft fresh pure
    strong regular simple complex formal solid liquid electric mechanical next year years day days time times date dates
    life death birth child children women men males females humans students citizens residents participants players
    users workers parents friends individuals climate weather rain rainfall snow ice water air fire light sound heat
    power energy space land nature food fish meat milk sugar salt oil gas coal blood body head hand heart brain skin
    eyes sex marriage war peace law laws crime government religion education culture tourism media film films video
    radio television computer computers data software hardware network agriculture trade industry taxes tax money income
    market price prices language languages literature poetry philosophy art arts science theory method methods analysis
    evidence proof criticism controversy background career legacy plot overview aftermath structure construction design
    production development growth rise fall use uses usage effects results origin origins cause causes types type class
    example part parts article articles section group groups team teams player rules game games sport sports book books
    song songs story stories novel album role name names word words text letters number numbers color size shape species
    plants animals birds trees seeds leaves roots cells proteins drugs disease symptoms diagnosis treatment patients
    surgery cancer copper gold silver iron steel carbon hydrogen oxygen nitrogen uranium sodium metal metals stone glass
    wood paper road roads rail railways bus buses train trains ships aircraft airports ports cars car traffic bridges
    buildings houses schools universities museums churches cities towns villages districts regions country countries
    mountains rivers lakes forests farmers soldiers troops police prisoners women's north south east west northern
    southern eastern western central winter summer spring autumn temperatures temperature areas area population source
    statistics records record reports report attempts efforts changes problems properties features products services
    companies banks exports imports elections parties top average mass direct linear quantum magnetic classic artificial
    synthetic experimental theoretical infinite finite positive negative parallel internal actual primary secondary
    principal folk jazz rock comic traditional mainstream fans videos characters scenes episodes versions models symbols
    vowels consonants nouns verbs vector functions objects points elements compounds isotopes alcohol coffee tea bread
    rice wheat beer wine honey fruit fruits vegetables cotton leather dust sand soil rocks minerals crops customs
    legends myths rituals prayers gods angels demons priests monks judges lawyers doctors engineers radiation pressure
    speed density distance depth length width weight voltage frequency waves
    """
)
"""Words that are no name alone at the start of a sentence; before a capital they may begin one."""

OFFICES = _split_words(
    """
    mr mrs ms miss dr prof professor sir dame lord lady king queen prince princess emperor empress tsar czar kaiser
    sultan shah pope president chancellor premier minister senator congressman congresswoman governor mayor general
    colonel major captain lieutenant sergeant admiral commander marshal brigadier bishop archbishop cardinal father
    brother sister rabbi imam reverend rev ambassador secretary chairman chief director vice prime archduke emir
    senators representatives caliph pharaoh rep sen gov gen col capt lt sgt maj adm cpt hon pres fr count countess baron
    baroness representative speaker deputy commissioner commodore ritter don doña monsieur madame herr foreign ceo cfo
    cto mp mps frau sheikh ayatollah deacon attorney vice-president crown kings queens presidents popes emperors bishops
    princes governors generals ministers captains
    """
)
"""Titles before a name that are not part of it, by the rules of CoNLL-2003."""

SOVEREIGNS = _split_words("pope popes emperor emperors empress sir dame tsar shah sultan president")
"""Titles left out of a name even where an article's title begins with them: Pope Paul VI."""

HOLDERS = _split_words("duke duchess earl marquess marquis viscount prince princess count countess baron lord")
"""Titles that form a name together with a place: Duke of Wellington."""

HEADS = _split_words(
    """
    university universities college school academy institute institution battle siege treaty kingdom republic empire
    house city county province state district department ministry bank bay gulf cape lake mount isle isles island
    islands strait sea river church order society association federation league union council court bureau board office
    commission committee museum library hospital royal national international federal central united northern southern
    eastern western north south east west palace castle tower bridge port fort st saint san santa santo los las el la le
    new great statue book gospel epistle declaration bill act arch duke duchess earl count lord knights daughters sons
    army navy air parliament congress senate faculty principality duchy grand confederation commonwealth communist
    people's party alliance organization organisation armed bishopric diocese archdiocese edict peace convention flag
    hall center centre
    """
)
"""Ordinary words that may begin a name: University of Oxford."""

INSTITUTIONS = _split_words(
    """
    academy agency alliance association authority board bureau campaign center centre college commission committee
    conference confederation congress council department faculty federation foundation fund institute institution group
    initiative instituto laboratory league medal ministry movement museum office organisation organization party prize
    award program programme project school secretariat service society trust union university
    """
)
"""Words after which ``for`` and ``and`` continue the name: Institute for Advanced Study."""

PARTICLES = _split_words(
    """
    de da di do du das dos del della dello delle dei degli des van von vom der den dem ten ter zu zum zur und af av la
    le les el los las y e et al bin ibn ben bint abu upon aan
    """
)
"""Words in lower case within names from other languages: Ludwig van Beethoven."""

BYNAMES = _split_words(
    """
    great elder younger terrible bald pious fat wise good bad bold brave conqueror confessor lionheart magnificent
    handsome fair short tall simple stammerer unready unwashed ripper baptist apostle evangelist martyr venerable
    impaler navigator barbarian wicked just child cruel hermit redeemer builder philosopher
    """
)
"""Words after ``the`` in a person's name: Alexander the Great."""

SMALL = PARTICLES | _split_words(
    "a an and as at but by for from in into it nor of off on or over so than the to up via vs with no"
)
"""Words in lower case within titles of works: Gone with the Wind."""

REFERENCES = _split_words(
    """
    article articles section sections chapter chapters figure figures fig table tables page pages volume volumes vol
    part parts book books appendix paragraph verse verses line lines stage level note notes year years no nos number
    numbers item step phase round rule example equation eq ed edition isbn issn doi
    """
)
"""Words that number parts of a text, and are no names before a number: Figure 3."""

NO_NAMES = _split_words(
    """
    DNA RNA mRNA ATP HIV AIDS CPU CPUs GPU RAM ROM CD CDs DVD DVDs TV TVs PC PCs LCD LED LEDs GDP GNP IQ ID OK VHS
    ISBN CEO CEOs PhD Ph.D MD BA MA MSc BSc MP MPs AM PM FM UV IR AC DC RF IC ICs VIP PDF URL GUI API OS RPG
    RPGs DJ DJs MC EP LP LPs NPC NPCs AI IT HR PR BC AD CE BCE B.C A.D B.C.E C.E Hz kHz MHz GHz KB MB GB TB PB Mbit Gbit
    kW MW GW TWh MWh kWh Pa MPa GPa km mm cm nm dB pH mph rpm psi SOS FAQ PCR MRI CT EEG ECG BMI I II III IV VI
    VII VIII IX XI XII Mr Mrs Ms Dr Prof Jr Sr St Inc Ltd Co Corp Figure Figures Table Chapter Section Article Volume
    Appendix Note
    """
)
"""Capitalised words that are no names alone: acronyms, units, titles. Written as in texts."""

SUFFIXES = r"Inc\.?|Ltd\.?|LLC|Corp\.?|Co\.|Jr\.?|Sr\.?|S\.A\.|PLC|Esq\.?"
"""Pattern of the suffixes that may follow a name and a comma."""

ABBREVIATIONS = _split_words(
    """
    mr mrs ms dr prof st sts rev hon gen col maj capt cpt lt cmdr adm sgt cpl gov sen rep pres vs v cf op trans mt mts
    ft no nos vol pp p fig ca c approx jan feb mar apr jun jul aug sep sept oct nov dec jr fr bros e.g i.e viz messrs
    """
)
"""Words after which a full stop does not end a sentence."""

ENDINGS = (
    *("ing", "ings", "ed", "ly", "tion", "tions", "sion", "sions", "ment", "ments", "ness", "ity", "ities", "ical"),
    *("ous", "ive", "able", "ible", "ful", "less", "ology", "ologists", "ers", "ors", "ists", "ics", "als", "isms"),
    *("ances", "ences", "phy", "ase", "ases", "ene", "ine", "ic", "ary", "ives", "ages"),
)
"""Endings of words that are rarely names at the start of a sentence."""
