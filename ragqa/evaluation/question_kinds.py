"""Classes of questions and answers for breakdowns of scores, by rules on words and digits."""

import re
from itertools import pairwise

from ragqa.types import Question

_WORDS = {word: word for word in ("who", "what", "which", "when", "where", "why", "how")} | {
    "whom": "who",
    "whose": "who",
}
_COUNTS = {"many", "much"}
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
)
_YEAR = r"(1[0-9]{3}|20[0-9]{2})"
_DATE = re.compile(
    rf"^(in |about |around |c\.? ?)?{_YEAR}s?( ?[-–] ?\d{{2,4}})?$|^the {_YEAR[:-1]})s$"
    rf"|\b({_MONTHS})\b\.? ?\d|\d(st|nd|rd|th)? (of )?({_MONTHS})\b|^({_MONTHS})$"
    r"|\b\d+ ?(bce?|ad|ce)\b|\bad \d|\bcentury\b",
    re.IGNORECASE,
)
_NUMBER_WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    "|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion"
)
_NUMBER = re.compile(rf"\d|^({_NUMBER_WORDS})\b", re.IGNORECASE)


def find_question_word(question: Question) -> str:
    """Return the first question word, such as ``who`` or ``how many``; ``other`` without one."""
    tokens = re.findall(r"[a-z]+", question.text.lower())
    for token, following in pairwise([*tokens, ""]):
        if token in _WORDS:
            return "how many" if token == "how" and following in _COUNTS else _WORDS[token]
    return "other"


def classify_answer(question: Question) -> str:
    """Return the type of the first gold answer.

    It is ``date``, ``number``, ``name``, ``phrase`` or ``none`` (no gold answer). In a name, all words of more than
    three characters begin with a capital letter.
    """
    answer = question.answers[0].strip("\"'“”‘’ ") if question.answers else ""
    if not answer:
        return "none"
    if _DATE.search(answer):
        return "date"
    if _NUMBER.search(answer):
        return "number"
    long_words = [word for word in answer.split() if len(word) > 3] or answer.split()
    return "name" if all(word[0].isupper() for word in long_words) else "phrase"


def classify_answer_length(question: Question) -> str:
    """Return the class of the first gold answer's length in words, such as ``4-5`` or ``none``."""
    count = len(question.answers[0].split()) if question.answers else 0
    return "none" if not count else f"{count}" if count < 4 else "4-5" if count < 6 else "6 or more"


def classify_question_length(question: Question) -> str:
    """Return the class of the question's length in words, such as ``6-8``."""
    count = len(question.text.split())
    return "up to 5" if count < 6 else "6-8" if count < 9 else "9-12" if count < 13 else "13 or more"


BREAKDOWNS = {
    "question word": find_question_word,
    "question length (words)": classify_question_length,
    "answer type": classify_answer,
    "answer length (words)": classify_answer_length,
}
"""Functions that return the class of a question, by the name of the breakdown."""
ORDER = {
    "question length (words)": ("up to 5", "6-8", "9-12", "13 or more"),
    "answer length (words)": ("none", "1", "2", "3", "4-5", "6 or more"),
}
"""Order of classes in the report; classes of other breakdowns are sorted by falling number of questions."""
