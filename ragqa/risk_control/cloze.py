"""Make questions from sentences (cloze questions) and records by rule.

A question word replaces a salient span of a sentence, which is a name, a number or a date. The question word comes
first if the span is the subject, or if an auxiliary verb follows a short subject. Otherwise it takes the place of the
span: "… in what year?". Source: Lewis et al. 2019, "Unsupervised question answering by cloze translation", which
describes questions by rule, question words by the type of the answer, and noisy clozes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ragqa.pretraining.salient import SalientSpan, Tagger
from ragqa.pretraining.tagger.dates import find_dates
from ragqa.text import FUNCTION_WORDS, normalize_answer

MIN_WORDS, MAX_WORDS = 5, 24
"""Minimum and maximum number of words of a question."""
_MIN_CONTENT = 2
"""Minimum number of words of a question that are not function words."""
_MAX_SUBJECT = 8
"""Maximum number of words of a subject in front of an auxiliary verb."""
_MAX_FIELD, _MAX_VALUE = 4, 8
"""Maximum number of words in the name and in the value of a field of a record."""
_WITHOUT_TAIL = 6
"""Minimum number of words that stay when a phrase at the end of a question is left out."""

_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATES = {
    "what year": re.compile(r"\d{3,4}(?: ?(?:BCE?|CE|AD))?"),
    "what century": re.compile(r".*centur(?:y|ies).*"),
    "what decade": re.compile(r"\d{1,3}0s"),
    "when": re.compile(rf".*\d.*(?:{_MONTH}).*|.*(?:{_MONTH}).*\d.*|{_MONTH}"),
}
"""Question words for dates, each with the pattern of its dates."""
_BEFORE_DATE = re.compile(
    r"\b(?P<preposition>in|on|from|since|until|by|to|during|around|about|of)(?: (?:the|early|late|around|about))*$",
    re.IGNORECASE,
)
_DATE_ADJUNCT = re.compile(rf" (?:and )?{_BEFORE_DATE.pattern}", re.IGNORECASE)
_QUALIFIER = re.compile(
    r"\b(?:(?:only|well|just) )?(?:about|around|nearly|almost|over|some|exactly|only|up to|(?:more|less) than"
    r"|at (?:least|most)) $",
    re.IGNORECASE,
)
_NO_COUNT = re.compile(r".*(?:st|nd|rd|th|half|halves|quarters?|thirds?)|[IVXLCDM]+|first|second|.*[:/–—-].*", re.I)
_LABEL = re.compile(r"[A-Z]\w* $|\b(?:page|number|no\.|line|row|figure|table|chapter|section|part|step|day|room) $")
_NOUN = re.compile(r" (?P<noun>[a-zµ°][\w²³-]*)")
_NO_NOUN = FUNCTION_WORDS | {"per", "percent", "minus", "plus", "times", "through", "while", "until", "because"}
_PERCENT = re.compile(r" ?(?:%|per ?cent\b)")
_CURRENCY = re.compile(r"[$€£¥] ?$")
_HAS_NUMBER = re.compile(r"(?P<subject>[^,;:()]+?) (?P<verb>has|have|had) $")
_DO = {"has": "does", "have": "do", "had": "did"}

_PLACE = re.compile(r"\b(?P<preposition>in|at|near|from) $")
_AGENT = re.compile(r"\bby (?:the )?$")
_NAMED = re.compile(r"\b(?:called|named|nicknamed|titled) $")
_APPOSITION = re.compile(
    r"(?:^The|\bthe) (?P<noun>(?:[A-Z][\w-]+ )?(?:[a-z][a-z-]+ ){0,2}"
    r"(?:[a-z-]+(?:er|or|ist|ian|man|woman|eer|ant|ent|ect)"
    r"|king|queen|poet|chef|judge|monk|pilot|nurse|company|firm|ship|town|city|village|island|river)) $"
)
_ADJECTIVE = re.compile(r"[^\W\d_]+(?:an|ish|ese|ic|ch|ern|i|man|ss|ek)")
_LISTED = re.compile(r"(?:,? and|,? or|, [A-Z])\b")
_NO_VERB = re.compile(r" (?:of|in|on|at|by|from|for|to|with|and|or|as|near|into|but)\b|[^ ]| *$")
_PERSON = re.compile(r"[^\W\d_][\w'’.-]+(?: (?:[^\W\d_][\w'’.-]*\.?|van|von|de|da|di|la|le|der|bin|ibn)){1,3}")
_NO_PERSON = re.compile(
    r"\b(?:of|the|University|Company|Institute|Museum|War|Battle|River|Lake|Mount|Sea|Ocean|Island|Street|Road|Bridge"
    r"|Palace|Cathedral|Church|Castle|Tower|Park|Prize|Club|House|Office|Act|Treaty|School|College|Republic|Kingdom"
    r"|Empire|States|Society|Academy|Union|Council|City|New|North|South|East|West|Great|Games|Cup|Station)\b",
    re.IGNORECASE,
)

_CLAUSE = re.compile(
    r"(?P<subject>[^,;:()]+?) (?P<auxiliary>was|were|is|are|has|had|have|can|could|will|would|must|should) (?P<rest>.*)"
)
_NO_SUBJECT = re.compile(
    r"\b(?:that|which|who|whose|where|when|while|because|if|as|and|but|or|there|so)\b|^(?:in|on|at|by|from|for|after"
    r"|before|during|under|with|without|since|until|to|although|through|between|near|of|not)\b",
    re.IGNORECASE,
)
_DETERMINER = re.compile(r"(?:The|An?|Its|Our|My|Each|Every|All|Some|Many|Most|Both|No|One|Only|In|On|At|For|As) ")
_BRACKETS = re.compile(r" ?\([^()]*\)")
_ASIDE = re.compile(r", (?:the|an?|who|which|whose|then|later|now|born|known|called) [^,;]*,(?! (?:and|or|but) )")
_TAIL = re.compile(
    r"(?:, (?:and|but|while|where|which|who|whose|whom|of which|so|because|although|after|before|until|when|then)|;| –"
    r"| —|:| because| although| whereas)(?= )"
)
_PHRASE = re.compile(r",? (?:in|at|on|with|for|during|after|before|under|from|near|as) ")
_PRONOUN = re.compile(
    r"\b(?:he|she|it|they|him|them|his|her|hers|its|their|theirs|this|these|those|here|there|i|we|you|me|us|my|our|your"
    r"|the (?:former|latter|same|other))\b",
    re.IGNORECASE,
)
_POSSESSIVE = re.compile(r"his|her|its|their", re.IGNORECASE)
_UNUSABLE = re.compile(r"[?!|\"“”…]|\.\.")
_ASKING = re.compile(r"\b(?:who|whom|what|which|when|where|how many|how much)\b", re.IGNORECASE)
_RECORD = re.compile(r"[^:;\n]+: [^;\n]+(?:; [^:;\n]+: [^;\n]+)+")


@dataclass(frozen=True)
class ClozeQuestion:
    """Question that was made from a sentence or a record."""

    text: str
    answers: tuple[str, ...]
    """Forms of the answer, such as a number without and with its noun."""


def make_sentence_questions(sentence: str, tagger: Tagger) -> Iterator[ClozeQuestion]:
    """Yield a question for each salient span of a sentence to which a rule applies.

    Args:
        sentence: English sentence with its full stop; other texts yield nothing.
        tagger: tagger of salient spans.
    """
    text = " ".join(sentence.split())
    if not text.endswith(".") or not text[0].isupper() or _UNUSABLE.search(text):
        return
    text = text[:-1]
    for span in tagger.find_spans(text):
        if (question := _ask(text, span)) and _is_usable(question):
            yield question


def make_record_questions(record: str) -> Iterator[ClozeQuestion]:
    """Yield questions about the short fields of a record, except the first field.

    An example of a record is ``Part: lamp; Price: £4; Weight: 20 g``. The value of the first field names the record:
    "What is the price of lamp?".

    Args:
        record: text of a passage; other texts than records yield nothing.
    """
    if not _RECORD.fullmatch(record):
        return
    fields = [field.partition(": ")[::2] for field in record.split("; ")]
    name = fields[0][1]
    if not re.search(r"[^\W\d_]{3}", name) or len(name.split()) > _MAX_VALUE:
        return
    for field, value in fields[1:]:
        words = field.replace("_", " ").lower().split()
        is_name = 0 < len(words) <= _MAX_FIELD and words[-1] not in FUNCTION_WORDS
        if is_name and len(value.split()) <= _MAX_VALUE:
            yield ClozeQuestion(f"What is the {' '.join(words)} of {name}?", (value,))


def drop_words(question: str, rng: np.random.Generator, rate: float) -> str:
    """Return a question without some of its words, chosen at random.

    People remember only some words of a sentence. Names, numbers, function words, the first word, and the word after
    "what", "which", "many" or "much" stay. Function words at the end, except question words, are also left out.

    Args:
        question: question with its question mark.
        rng: random generator.
        rate: probability that another word is left out.
    """
    words = question.removesuffix("?").split()
    remaining = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not before
        or word[0].isupper()
        or not word[0].isalpha()
        or word.strip(",").lower() in FUNCTION_WORDS
        or _ASKING.fullmatch(word)
        or before.lower() in ("what", "which", "many", "much")
        or rng.random() >= rate
    ]
    while remaining and remaining[-1].lower() in FUNCTION_WORDS and not _ASKING.fullmatch(remaining[-1]):
        remaining.pop()
    return _tidy(f"{' '.join(remaining)}?")


def _ask(text: str, span: SalientSpan) -> ClozeQuestion | None:
    before, answer, after = text[: span.start], text[span.start : span.end], text[span.end :]
    if before.count("(") != before.count(")"):
        return None
    before, after = (_ASIDE.sub("", _BRACKETS.sub("", part)) for part in (before, after))
    if tail := _TAIL.search(after):
        after = after[: tail.start()]
    rule = {"date": _ask_date, "number": _ask_number, "name": _ask_name}[span.kind]
    question = rule(before, answer, after)
    return question and ClozeQuestion(_shorten(question.text), question.answers)


def _is_usable(question: ClozeQuestion) -> bool:
    """Return True if a question can be used.

    It must have from ``MIN_WORDS`` to ``MAX_WORDS`` words and a question word, stand alone, and not contain its answer.
    """
    words = normalize_answer(question.text)
    content = [word for word in words.split() if word not in FUNCTION_WORDS]
    if not MIN_WORDS <= len(question.text.split()) <= MAX_WORDS or len(content) < _MIN_CONTENT:
        return False
    if not _ASKING.search(question.text) or any(f" {normalize_answer(a)} " in f" {words} " for a in question.answers):
        return False
    for pronoun in _PRONOUN.finditer(question.text):
        named = re.search(r" [A-Z]\w+", question.text[: pronoun.start()])
        if not (named and _POSSESSIVE.fullmatch(pronoun[0])):
            return False
    return True


def _ask_date(before: str, answer: str, after: str) -> ClozeQuestion | None:
    match = _BEFORE_DATE.search(before.rstrip())
    word = next((word for word, pattern in _DATES.items() if pattern.fullmatch(answer)), None)
    if not match or not word:
        return None
    preposition = match["preposition"].lower()
    word = word if word == "when" and preposition in ("in", "on") else f"{preposition} {word}"
    return ClozeQuestion(_insert(before[: match.start()], word, after), (answer,))


def _ask_number(before: str, answer: str, after: str) -> ClozeQuestion | None:
    if _NO_COUNT.fullmatch(answer) or _LABEL.search(before):
        return None
    if currency := _CURRENCY.search(before):
        head = _QUALIFIER.sub("", before[: currency.start()])
        return ClozeQuestion(_insert(head, "how much", after), (f"{currency[0].strip()}{answer}", answer))
    head = _QUALIFIER.sub("", before)
    if percent := _PERCENT.match(after):
        question = _insert(head, "what percentage", after[percent.end() :])
        return ClozeQuestion(question, (f"{answer}{percent[0]}", answer))
    noun = _NOUN.match(after)
    if not noun or noun["noun"] in _NO_NOUN or head.endswith("the "):
        return None
    answers = tuple(dict.fromkeys([answer, f"{answer}{noun[0]}", f"{before[len(head) :]}{answer}"]))
    has = _HAS_NUMBER.fullmatch(head)
    if has and not _NO_SUBJECT.search(has["subject"]):
        rest = f"{_DO[has['verb']]} {_lower(has['subject'])} have{after[noun.end() :]}"
        return ClozeQuestion(f"How many {noun['noun']} {rest}?", answers)
    return ClozeQuestion(_close(f"{head}how many{after}"), answers)


def _ask_name(before: str, answer: str, after: str) -> ClozeQuestion | None:
    is_listed = before.endswith((", ", "and ", "or ", ": ")) or _LISTED.match(after)
    is_adjective = _ADJECTIVE.fullmatch(answer) and re.match(" [a-z]", after)  # the Dutch geologist
    if is_listed or is_adjective or not re.search("(?:^| )$", before) or after.startswith(("'", "’")):
        return None
    if apposition := _APPOSITION.search(before):
        head = before[: apposition.start()]
        text = _close(f"{head}which {apposition['noun']}{after}")
        return ClozeQuestion(text, (answer, f"{apposition[0]}{answer}")) if not head or _AGENT.search(head) else None
    if before in ("", "The "):
        is_person = not before and _PERSON.fullmatch(answer) and not _NO_PERSON.search(answer)
        text = f"{'Who' if is_person else 'What'}{after}?"
        return None if _NO_VERB.match(after) else ClozeQuestion(text, (answer,))
    if agent := _AGENT.search(before):
        return ClozeQuestion(_insert(before[: agent.start()], "by whom", after), (answer,))
    if place := _PLACE.search(before):
        word = "where" if place["preposition"] in ("in", "at") else f"{place['preposition']} where"
        return ClozeQuestion(_insert(before[: place.start()], word, after), (answer,))
    return ClozeQuestion(_close(f"{before}what{after}"), (answer,)) if _NAMED.search(before) else None


def _insert(before: str, word: str, after: str) -> str:
    """Return a question with a question word between two parts of a sentence, or before them.

    The question word is first if ``before`` is empty, or if ``before`` is one clause with a short subject and an
    auxiliary verb. Otherwise it takes the place of the answer.
    """
    if not before:
        rest = after.lstrip(" ,")
        return _close(f"{word} {_invert(rest) or _lower(rest)}")
    inverted = _invert(before)
    # After a comma or "and", the verb of the span can be another one: "was born in Ulm and died in …".
    if inverted and not re.search(r",| and\b", inverted):
        return _close(f"{word} {inverted}{after}")
    return _close(f"{before}{word}{after}")


def _invert(clause: str) -> str | None:
    """Put a clause's auxiliary verb before its short subject; return None if it lacks one."""
    match = _CLAUSE.fullmatch(clause)
    if not match or _NO_SUBJECT.search(match["subject"]) or len(match["subject"].split()) > _MAX_SUBJECT:
        return None
    return f"{match['auxiliary']} {_lower(match['subject'])} {match['rest']}"


def _shorten(question: str) -> str:
    """Drop dates with their prepositions, and phrases at the end; users rarely type either."""
    text = question
    for start, end in reversed(list(find_dates(text))):
        if adjunct := _DATE_ADJUNCT.search(text[:start].rstrip()):
            text = text[: adjunct.start()] + text[end:]
    text = text.removesuffix("?")
    for phrase in reversed(list(_PHRASE.finditer(text))):
        rest = text[: phrase.start()]
        if len(rest.split()) < _WITHOUT_TAIL or not _ASKING.search(rest):
            break
        text = rest
    return _close(text)


def _lower(text: str) -> str:
    """Return a text with its first word in lower case if that is a determiner or preposition."""
    return text[:1].lower() + text[1:] if _DETERMINER.match(text) else text


def _close(text: str) -> str:
    return _tidy(f"{text[:1].upper()}{text[1:]}?")


def _tidy(text: str) -> str:
    return re.sub(r",(?=\?)| +(?=[,?])", "", " ".join(text.split()))
