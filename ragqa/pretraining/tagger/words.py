"""Word lists with which the rule-based tagger decides if a word is part of a name.

``names`` and ``works`` need these lists where capitals are not enough: at the start of a sentence, after titles
(President), and around linking words (``of``). The words are in ``words.toml``, in lower case unless the docstring of a
list says otherwise.
"""

import tomllib
from pathlib import Path

_TEXTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def _read_words(name: str) -> frozenset[str]:
    return frozenset(_TEXTS[name].split())


OPENERS = _read_words("openers")
"""Words that are not part of a name at the start of a sentence."""
ORDINARY = _read_words("ordinary")
"""Words that are not a name by themselves at the start of a sentence, but can begin a longer name."""
OFFICES = _read_words("offices")
"""Titles before a name that by the rules of CoNLL-2003 are not part of the name."""
SOVEREIGNS = _read_words("sovereigns")
"""Titles that are not part of a name even if a document title begins with them: Pope Paul VI."""
HOLDERS = _read_words("holders")
"""Titles that form a name together with a place: Duke of Wellington."""
HEADS = _read_words("heads")
"""Ordinary words that can begin a name: University of Oxford."""
INSTITUTIONS = _read_words("institutions")
"""Words of a name that ``for`` or ``and`` can continue: Institute for Advanced Study."""
PARTICLES = _read_words("particles")
"""Words in lower case within names from other languages: Ludwig van Beethoven."""
BYNAMES = _read_words("bynames")
"""Words after ``the`` in a person's name: Alexander the Great."""
SMALL = PARTICLES | _read_words("small")
"""Words in lower case within titles of works: Gone with the Wind."""
REFERENCES = _read_words("references")
"""Words for numbered parts of a text, which are not names before a number: Figure 3."""
NO_NAMES = _read_words("no_names")
"""Capitalised words that are not names by themselves (acronyms, units, titles), with their capitals."""
SUFFIXES = r"Inc\.?|Ltd\.?|LLC|Corp\.?|Co\.|Jr\.?|Sr\.?|S\.A\.|PLC|Esq\.?"
"""Pattern of the suffixes that can follow a name and a comma."""
ABBREVIATIONS = _read_words("abbreviations")
"""Words after which a full stop does not end a sentence."""
ENDINGS = tuple(_read_words("endings"))
"""Endings of words that are rarely names when they open a sentence."""
