"""Rules that rewrite a follow-up question so that it stands alone.

The rules use the names and words of the last question and its answer, and the title of its source. A follow-up has
pronouns ("When did he do it?"), or is a part of a question ("And in 2019?", "Why?"). A question whose pronouns refer to
its own words ("Which consul lost his life?") stands alone and does not change.
"""

import re
from dataclasses import dataclass
from itertools import takewhile

from ragqa.text import FUNCTION_WORDS, split_words


@dataclass(frozen=True)
class Turn:
    """Question of a conversation and its answer."""

    question: str
    answer: str | None
    """Text of the answer; None if the question was declined."""
    title: str = ""
    """Title of the answer's first source; empty if there is none."""


_PERSON = ("he", "him", "she", "his", "her", "hers")
_THING = ("it", "its", "they", "them", "their", "theirs", "there")
_POSSESSIVES = ("his", "hers", "its", "their", "theirs")
_PRONOUN = re.compile(rf"\b({'|'.join(_PERSON + _THING)})\b(?!['’])", re.IGNORECASE)
_OBJECTS = ("him", "them", "it", "there")
"""Pronouns that, as objects, do not refer to the subject of their clause."""
_CLAUSE = re.compile(r"(?<=\w )(when|while|after|before|because|since|until|so that|as|whom?|which|that|if|and)\b")
_CAPITALISED = r"[A-ZÀ-Þ][\w’'-]*"
_NAME = re.compile(
    rf"(?:the )?\b{_CAPITALISED}(?: (?:(?:of|the|de|van|von|da|di|la|le|off) )*(?:{_CAPITALISED}|\d+\b))*"
    r"(?: brothers| sisters)?"
)
_THING_PHRASE = re.compile(
    r"\b(?:the|an?) (?!(?:first|last|name)\b)[\w-]+(?: [\w-]+)*?(?= ?\?|$| (?:of|to|in|on|at|for|by|with|that|who)\b)"
)
_PERSON_NOUN = re.compile(
    r"\w+(?:er|or|ist|ian|man|men|woman|women|ess|ary)|king|queen|pope|consul|emperor|general|architect|monk|artist|poet"
)
_QUESTION_START = re.compile(
    r"(?:(?:in|at|on|to|from|by|for|into|with|through|under|after|of) )?"
    r"(?:who|whom|whose|what|which|when|where|why|how)(?: (?:much|many|old|long|tall|far|deep|high|fast|year))?\b",
    re.IGNORECASE,
)
_ASKS_PERSON = re.compile(r"\b(who|whom|whose)\b|\b(which|what)\b[\w\s-]* (" + _PERSON_NOUN.pattern + r")\b", re.I)
_ASKS_PLACE = re.compile(r"\bwhere\b|\b(which|what) (\w+ )?(place|city|town|country|island|village|port)\b", re.I)
_LEAD = re.compile(r"^(?:and|but|so|ok|okay)\b[, ]*", re.IGNORECASE)
_PART = re.compile(r"^(?:what about|how about|and)\b[, ]*(?P<part>[^?]+)\?*$", re.IGNORECASE)
_SHORT = re.compile(
    r"^(?:and |but )?(why|when|where|how|who|how many|how much|how long)(?: not| so| exactly)?\?*$", re.I
)
_WHO_ACTS = re.compile(
    r"\W*who (?!(?:is|are|was|were|do|does|did|has|have|had|will|would|can|could|else)\b)\w", re.IGNORECASE
)
"""Beginning of a question about the person who did something: "Who discovered …", but not "Who was Newton's wife?"."""
_TO_BE = re.compile(r"\b(is|are|was|were|be)\s*$", re.IGNORECASE)
_NEEDS_NAME = re.compile(r"\b(is|was|are|were|for|by|to|of|with|at)\s*$", re.IGNORECASE)
"""Words before a pronoun that cannot refer to the person asked for: "Who was a teacher of his?"."""
_NOUN = re.compile(r"\b(?:the|an?|our|my|your|these|those) (?!(?:first|last)\b)[a-z]")
_HOW_MUCH = re.compile(r"how \w+$", re.IGNORECASE)
_PREPOSITION = re.compile(r"(?:in|on|at|for|of|to|with|by|from|after|before|during|under)\b", re.IGNORECASE)
_DO = re.compile(r"\b(?:do|does|did|can|could|will|would|should|must)\s+$", re.IGNORECASE)
"""Auxiliary verb before a subject, after which the main verb follows: "did the mill burn down?"."""
_PARTICLES = ("away", "back", "down", "off", "out", "over", "up")
_YEAR = re.compile(r"\b\d{3,4}\b")
MAX_CHARS = 1_000
"""Maximum length in characters of a text for the rules; their time grows with the square of the length."""
_FEMALE_ENDINGS = ("a", "ie", "ly", "ine", "beth", "ette", "rose", "ce")


def rewrite_follow_up(question: str, turn: Turn) -> str:
    """Rewrite a follow-up question so that it stands alone; return another question unchanged.

    Args:
        question: question in one line.
        turn: last turn, whose question stands alone.
    """
    if len(question) > MAX_CHARS:  # such a long question stands alone
        return question
    turn = Turn(turn.question[:MAX_CHARS], turn.answer and turn.answer[:MAX_CHARS], turn.title[:MAX_CHARS])
    if short := _SHORT.match(question):
        return _complete(short[1], turn)
    part = _PART.match(question)
    if part and not _QUESTION_START.match(part["part"]) and len(part["part"].split()) <= 6:
        return _replace_part(part["part"].strip(), turn)
    asked = _LEAD.sub("", question) if _PRONOUN.search(question) else question
    rewritten = _replace_pronouns(asked, turn)
    if rewritten == asked:
        return question
    return rewritten[0].upper() + rewritten[1:]


def list_names(question: str) -> list[str]:
    """Return the names in a question, such as "Newton", "the Bay of Biscay" or "Apollo 11".

    A final "'s" is left out. The first word of the question, or a beginning such as "How many", is not part of a name.
    """
    found = [match[0] for match in _NAME.finditer(question, _find_start(question))]
    return [re.sub(r"['’]s$", "", name) for name in found if name.lower() not in FUNCTION_WORDS]


def _find_start(question: str) -> int:
    """Return the place after the question word, or else after the first word."""
    start = _QUESTION_START.match(question) or re.match(r"\W*\w*", question)
    return start.end() if start else 0


def _replace_pronouns(question: str, turn: Turn) -> str:
    parts, end, names = [], 0, dict[bool, str]()
    for match in _PRONOUN.finditer(question):
        pronoun, before = match[0].lower(), question[: match.start()]
        is_person = pronoun in _PERSON
        if is_person in names or _has_antecedent(before, pronoun, question[match.end() :]):
            continue
        if pronoun == "there" and _TO_BE.search(before):  # "How many moons are there?", "Is there life?"
            continue
        if pronoun == "it" and re.search(r"\b(do|does|did|done|doing)\s*$", before, re.IGNORECASE):  # means an action
            continue
        if pronoun in ("its", "their") and names:  # means a thing in the question: "Who gave his house its name?"
            continue
        find = _find_person if is_person else _find_thing
        if not (name := find(pronoun, turn, list(names.values()))):
            continue
        names[is_person] = name
        parts += [question[end : match.start()], _inflect(name, pronoun, question[match.end() :])]
        end = match.end()
    return "".join((*parts, question[end:]))


def _inflect(name: str, pronoun: str, after: str) -> str:
    """Return a name in the form of a pronoun: "Darwin's" for "his", "in Paris" for "there"."""
    following = after.strip(" ?").partition(" ")[0].lower()
    if pronoun == "there":
        return f"in {name}"
    is_possessive = pronoun in _POSSESSIVES or (pronoun == "her" and following and following not in FUNCTION_WORDS)
    return name + ("'" if name.endswith("s") else "'s") if is_possessive else name


def _has_antecedent(before: str, pronoun: str, after: str) -> bool:
    """Return True if a pronoun refers to a word of its question, which is split at the pronoun."""
    is_object = pronoun in _OBJECTS
    clauses = list(_CLAUSE.finditer(before, _find_start(before)))
    if clauses and is_object and not re.match(r" \w", after) and before[clauses[-1].end() :].strip() in ("", "of"):
        clauses.pop()  # "after it?" is not a clause, but "after it was built" is
    if clauses:  # in a subordinate clause, a pronoun means a name or a thing in the main clause, if there is any
        main = before[: clauses[0].start()]
        if any(not _has_antecedent(main[: m.start()], m[0].lower(), main[m.end() :]) for m in _PRONOUN.finditer(main)):
            return False
        if list_names(main) or (is_object and clauses[0][0] in ("that", "which", "who", "whom")):
            return bool(list_names(main))
        return bool(_ASKS_PERSON.search(main)) or len(main.split()) > 4
    if pronoun == "it" and re.search(r"\b(does|did|will|would|do)\s*$", before):  # "How long does it take to …"
        return bool(re.match(r" (take|cost|mean)\w* \w+ \w+", after))
    if is_object:
        return False
    if pronoun in ("they", "their") and _NOUN.search(before):  # "Why did the company say they were sorry?"
        return True
    if pronoun in ("he", "she") and _DO.search(before):  # "Who did he marry?": he is not the person who is asked for
        return bool(list_names(before))
    if pronoun in _THING or list_names(before):
        return bool(list_names(before))
    return bool(_ASKS_PERSON.search(before)) and not _NEEDS_NAME.search(before)


def _find_person(pronoun: str, turn: Turn, used: list[str]) -> str:
    """Return the person whom a pronoun means; empty if there is none.

    This is a name in the last question or the answer to a question about a person, or else the title of the first
    source. Names whose ending fits the gender of the pronoun come first.
    """
    names = [name for name in list_names(turn.question) if not name.startswith("the ") and name not in used]
    candidates = [_complete_name(name, turn.title) for name in names if _share_words(name, turn.title)]
    if turn.answer and _ASKS_PERSON.search(turn.question) and list_names(f"Who {turn.answer}"):
        candidates.insert(0 if _WHO_ACTS.match(turn.question) else len(candidates), turn.answer)
    candidates += names
    if not candidates:
        return turn.title
    is_female = pronoun in ("she", "her", "hers")
    fitting = [name for name in candidates if name.split()[0].lower().endswith(_FEMALE_ENDINGS) == is_female]
    return (fitting or candidates)[0]


def _find_thing(pronoun: str, turn: Turn, used: list[str]) -> str:
    """Return the thing or place that a pronoun means; empty if there is none.

    This is a name or a noun phrase in the last question, or else the title of the first source, or else the answer.
    "There" means the answer to a question about a place.
    """
    if pronoun == "there" and turn.answer and _ASKS_PLACE.search(turn.question):
        return turn.answer
    title = re.search(rf"(the )?\b{re.escape(turn.title)}\b", turn.question, re.IGNORECASE)
    if title and turn.title and turn.title not in used:
        return title[0]
    taken = {word for name in used for word in split_words(name)}
    names = [name for name in list_names(turn.question) if not taken & set(split_words(name))]
    if names:
        return min(names, key=lambda name: not _share_words(name, turn.title))
    if phrase := _find_thing_phrase(turn.question):
        return phrase
    return turn.answer if turn.answer and not turn.title else turn.title


def _find_thing_phrase(question: str) -> str:
    """Return the first noun phrase with an article, without a verb that follows; or nothing."""
    match = _THING_PHRASE.search(question)
    if not match:
        return ""
    words = match[0].split()
    if _DO.search(question[: match.start()]):
        words = [*takewhile(lambda word: not word[0].isdigit(), words)]
        if len(words) > 3 and words[-1] in _PARTICLES:
            words.pop()
        if len(words) > 2:
            words.pop()  # the verb
    return " ".join(words)


def _complete_name(name: str, title: str) -> str:
    """Return a title such as "Isaac Newton" for a name that is a part of it; else the name."""
    is_part = set(split_words(name)) < set(split_words(title)) and len(title.split()) <= 3
    return title if is_part and title.istitle() else name


def _share_words(name: str, title: str) -> bool:
    return bool((set(split_words(name)) - FUNCTION_WORDS) & set(split_words(title)))


def _complete(word: str, turn: Turn) -> str:
    """Return the last question with another question word, as in "Why did Newton move?"."""
    start = _QUESTION_START.match(turn.question)
    rest = turn.question[start.end() :] if start else f" {turn.question}"
    if start and re.search(r"\b(who|whom|whose|what|which)\b", start[0], re.IGNORECASE) and turn.answer:
        rest = f": {turn.answer}{rest}"
    elif start and _HOW_MUCH.search(start[0].strip()) and turn.answer:  # "Why is the notice period two weeks?"
        rest = f"{rest.rstrip('? ')} {turn.answer}?"
    return word.capitalize() + rest


def _replace_part(part: str, turn: Turn) -> str:
    """Return the last question with another year, name or noun phrase.

    For "And in 2019?", ``part`` is "in 2019"; for "What about Pluto?", it is "Pluto". If ``part`` replaces nothing, it
    is added to the end of the question.
    """
    preposition = _PREPOSITION.match(part)
    bare = part[preposition.end() :].strip() if preposition else part
    names = sorted(list_names(turn.question), key=lambda name: not _share_words(name, turn.title))
    phrase = _find_thing_phrase(turn.question)
    year = _YEAR.search(turn.question)
    if _YEAR.search(bare):
        old = year[0] if year else ""
        part = part if preposition or year else f"in {part}"
    else:
        choices = [*names, phrase] if phrase else names
        if preposition:  # "And for managers?" replaces what follows the same preposition, if there is any
            choices = [
                old for old in choices if re.search(rf"\b{preposition[0]} {re.escape(old)}", turn.question, re.I)
            ]
        old = choices[0] if choices else ""
    return turn.question.replace(old, bare, 1) if old else f"{turn.question.rstrip('? ')} {part}?"
