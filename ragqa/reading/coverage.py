"""Coverage: the share of a question's words that stand in a passage.

A near miss, such as a question about "2019" beside a passage about 2018, often has a name or number that the passage
lacks. A reader trained on answerable questions does not see this by itself.
"""

import re
from collections.abc import Callable

_WORD = re.compile(r"\w+")
_STOP_WORDS = frozenset(
    "a about after all also an and any are as at be because been before between both but by can could did do does done"
    " during each for from get give given gives go goes had has have he her him his how i if in into is it its just"
    " kind made make many may me more most much my name named no not of off on one or other our out over she should"
    " so some such than that the their them then there these they this those through to type under until up us was we"
    " were what when where which while who whom whose why will with would year you your".split()
)


def make_coverage(question: str) -> Callable[[str], tuple[float, float]]:
    """Return a function that measures which words of a question a text covers.

    A word counts as covered if a word of the text begins alike, so that "painted" covers "painter".

    Returns:
        Function from a text to two shares from 0 to 1: of the question's content words, and of its names and numbers;
        1 if the question has none.
    """
    words = [match[0] for match in _WORD.finditer(question)]
    content = {word.lower() for word in words if word.lower() not in _STOP_WORDS}
    # The first word is upper case in any question.
    names = {word.lower() for n, word in enumerate(words) if (n and word[0].isupper()) or any(map(str.isdigit, word))}
    stems = {word: _get_stem(word) for word in content | names}

    def measure(text: str) -> tuple[float, float]:
        text_words = {word.lower() for word in _WORD.findall(text)}
        prefixes = {word[:length] for word in text_words for length in {len(stem) for stem in stems.values()}}
        covered = {word for word, stem in stems.items() if (stem in text_words if stem == word else stem in prefixes)}
        return _get_share(content, covered), _get_share(names, covered)

    return measure


def _get_stem(word: str) -> str:
    """Return the beginning of a word that its other forms share; numbers and short words have no other form."""
    return word if len(word) <= 4 or any(map(str.isdigit, word)) else word[: max(4, len(word) - 3)]


def _get_share(words: set[str], covered: set[str]) -> float:
    return len(words & covered) / len(words) if words else 1.0
