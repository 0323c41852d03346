"""Word lists, by which the rule-based tagger tells whether a word is part of a name.

``names`` and ``works`` use them where capitals alone tell nothing: at the start of a sentence, after titles
(President), and around linking words (``of``). The words stand in ``words.toml``, all in lower case unless a list
says otherwise.
"""

import tomllib
from pathlib import Path

_TEXTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def _read_words(name: str) -> frozenset[str]:
    return frozenset(_TEXTS[name].split())


OPENERS = _read_words("openers")
"""Words that are no part of a name at the start of a sentence."""
ORDINARY = _read_words("ordinary")
"""Words that alone are no name at the start of a sentence; a capital may follow."""
OFFICES = _read_words("offices")
"""Titles before a name that are not part of it, by the rules of CoNLL-2003."""
SOVEREIGNS = _read_words("sovereigns")
"""Titles left out of a name even where an article's title begins with them: Pope Paul VI."""
HOLDERS = _read_words("holders")
"""Titles that form a name together with a place: Duke of Wellington."""
HEADS = _read_words("heads")
"""Ordinary words that may begin a name: University of Oxford."""
INSTITUTIONS = _read_words("institutions")
"""Words after which ``for`` and ``and`` continue the name: Institute for Advanced Study."""
PARTICLES = _read_words("particles")
"""Words in lower case within names from other languages: Ludwig van Beethoven."""
BYNAMES = _read_words("bynames")
"""Words after ``the`` in a person's name: Alexander the Great."""
SMALL = PARTICLES | _read_words("small")
"""Words in lower case within titles of works: Gone with the Wind."""
REFERENCES = _read_words("references")
"""Words that number parts of a text, and are no names before a number: Figure 3."""
NO_NAMES = _read_words("no_names")
"""Capitalised words that are no names alone: acronyms, units, titles. Written as in texts."""
SUFFIXES = r"Inc\.?|Ltd\.?|LLC|Corp\.?|Co\.|Jr\.?|Sr\.?|S\.A\.|PLC|Esq\.?"
"""Pattern of the suffixes that may follow a name and a comma."""
ABBREVIATIONS = _read_words("abbreviations")
"""Words after which a full stop does not end a sentence."""
ENDINGS = tuple(_read_words("endings"))
"""Endings of words that are rarely names at the start of a sentence."""
