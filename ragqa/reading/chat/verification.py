"""Checks of a written statement against the passages that it cites.

A statement is unsupported if one of these checks fails:

- All numbers, dates, names and addresses of the statement, and enough of its words, are in the passages.
- The statement does not deny what a passage states, or state what a passage denies.
- The supporting sentences are not orders to a language model.
- A short statement is of the kind that the question asks for.
- A span reader finds no other name or number: a name or number of the statement is replaced by a question word, and the
  span reader answers the resulting question.
- A span reader gives no other answer to the user's question, if the statement repeats the question.

None of these checks proves that a statement is right.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ragqa.matching.sentences import find_sentences
from ragqa.reading.answer_kinds import make_kind_check
from ragqa.text import FUNCTION_WORDS, to_nfd
from ragqa.types import Hit, Passage, Span

Asker = Callable[[str, list[Hit]], tuple[str, float] | None]
"""Function from a question and hits to the text and confidence of the best span, or to None without a span."""

MIN_SHARED_WORDS = 0.4
"""Minimum share of a statement's main words that its passages contain; chosen on labelled statements."""
MIN_CONTRADICTION = 0.7
"""Minimum confidence at which another answer of the span reader counts; chosen on labelled statements."""
MIN_REPEATED = 0.6
"""Minimum share of a question's main words in a statement that answers it in a full sentence."""
SHORT = 6
"""Maximum number of words of a statement that is only an answer, not a full sentence."""
MAX_QUESTIONS = 6
"""Maximum number of names and numbers of a statement for which the span reader is asked."""
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_NUMBER_WORDS = {word: number for number, word in enumerate(_UNITS.split())}
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
for _number, _tens in enumerate(_TENS, 2):
    _NUMBER_WORDS |= {_tens: 10 * _number}
    _NUMBER_WORDS |= {f"{_tens}-{unit}": 10 * _number + n for n, unit in enumerate(_UNITS.split()[:10]) if n}
_MONTHS = "january february march april may june july august september october november december"
_MONTH = rf"(?:{'|'.join(m.capitalize() for m in _MONTHS.split())})"
_NEGATIONS = frozenset(["not", "no", "never", "neither", "nor", "cannot", "without", "none", "nobody", "nothing"])
_WORD = re.compile(
    rf"\d[\d.,]*\d(?:st|nd|rd|th)?\b|\d(?:st|nd|rd|th)?\b|(?:{'|'.join(_TENS)})-[a-z]+|[^\W\d_]+(?:['’][^\W\d_]+)*",
    re.IGNORECASE,
)
_URL = re.compile(r"(?:\bhttps?:)?//[^\s<>()\[\]'\"]+|\bwww\.[^\s<>()\[\]'\"]+|\b[\w.+-]+@[\w-]+\.\w+", re.IGNORECASE)
_CAPITALISED = r"[^\W\d_a-zß-öø-ÿ][^\W_]*(?:[-’'][^\W_]+)*"
_ITEM = re.compile(
    rf"(?P<date>(?:\d{{1,2}} )?{_MONTH}(?: \d{{1,2}}(?!\d))?(?:,? \d{{4}})?)"
    r"|(?P<number>\d[\d.,]*\d|\d)"
    rf"|(?P<name>{_CAPITALISED}(?: (?:(?:of|de|da|di|van|von|the|la|le) )*{_CAPITALISED})*)"
)
_PLACE_BEFORE = re.compile(r"\b(?:in|at|from|near|to|into|towards) (?:the )?$", re.IGNORECASE)
_YES_OR_NO = re.compile(r"^(?:yes|no)\b[,.;:]? *", re.IGNORECASE)
_WRITING = r"(?:answer|reply|respond|say|write|print|output|repeat|begin|start|end|tell)"
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,60}\b(?:instructions?|prompts?|rules?|previous|above"
    r"|guidelines)\b|\b(?:system|developer) (?:prompt|message|mode)\b|^\W*(?:system|assistant|user)\W*:"
    rf"|\bas an ai\b|\blanguage model\b|\b{_WRITING}\b (?:\w+ ){{0,4}}(?:only|exactly|always|with)\b"
    rf"|\b(?:only|always|just|must|should|now|please) {_WRITING}\b"
    rf"|(?:^|[:;!] )\W*(?:{_WRITING}|pretend|reveal|visit|send|call)\b",
    re.IGNORECASE,
)
"""Orders to a language model, which people hide in documents."""
_YEAR = re.compile(r"1\d{3}|20\d{2}")


@dataclass(frozen=True)
class _Words:
    """Numbers and stems of the words of a text."""

    numbers: frozenset[str]
    stems: frozenset[str]
    """Stems of all words except negations and numbers in digits."""
    negated: frozenset[str]
    """Stems of the words that a negation applies to: up to the first main word after it."""
    plain: frozenset[str]
    """Stems of the other words."""


def find_problem(statement: str, hits: Sequence[Hit], question: str = "", ask: Asker | None = None) -> str | None:
    """Return the reason why passages do not support a statement, as a phrase for messages.

    Args:
        statement: sentence without citations.
        hits: passages that the statement cites; together they must support it.
        question: question that the statement answers; an empty text leaves out the checks that need it.
        ask: span reader; None leaves out the checks that need it.

    Returns:
        The reason, or None if no check fails.
    """
    statement = _YES_OR_NO.sub("", statement)
    passages = [hit.passage for hit in hits]
    whole = "\n".join(f"{passage.titled_text} {passage.date}" for passage in passages)
    problem = (
        find_missing(statement, whole)
        or _find_denial(statement, passages)
        or _find_order(statement, passages)
        or _find_other_kind(statement, question)
    )
    if problem is None and ask is not None:
        problem = find_other_answer(statement, hits, question, ask) or find_contradiction(
            statement, hits, question, ask
        )
    return problem


def find_missing(statement: str, text: str) -> str | None:
    """Return a phrase that names a part of a statement that a text lacks, or None.

    The phrase names the first missing address, number, name or date. If none is missing, the phrase can still say that
    the text contains less than ``MIN_SHARED_WORDS`` of the statement's main words, or that there is nothing to check.
    """
    addresses = _URL.findall(statement)
    for address in addresses:
        if address.rstrip(".,;:!?").lower() not in text.lower():
            return f"{address!r:.80} is not there"
    for address in addresses:
        statement = statement.replace(address, " ")
    said, there = _read_words(statement), _read_words(text)
    for number in _iter_words(statement):
        if (value := _to_number(number)) and value not in there.numbers:
            return f"{number} is not there"
    for name in _iter_names(statement):
        if _stem(name) not in there.stems:
            return f"{name} is not there"
    if (date := _find_scattered_date(statement, text)) is not None:
        return f"{date} is not there"
    content = [stem for stem in said.stems if stem not in _FUNCTION_STEMS]
    if not content and not said.numbers:
        return "there is nothing to check in it"
    shared = sum(stem in there.stems for stem in content)
    if content and shared < MIN_SHARED_WORDS * len(content):
        return f"only {shared} of its {len(content)} main words are there"
    return None


def find_other_answer(statement: str, hits: Sequence[Hit], question: str, ask: Asker) -> str | None:
    """Return a phrase with the span reader's answer if a statement does not contain it.

    The result is also None if the statement has a main word of the answer that the question lacks, if it does not
    repeat the question, or if the span reader is not confident enough. The arguments are as for ``find_problem``.
    """
    if not _repeats(statement, question) or (found := ask(question, list(hits))) is None:
        return None
    said, asked = _content(statement), _content(question)
    text, confidence = found
    answer = _content(text)
    if confidence < MIN_CONTRADICTION or not answer or answer & (said - asked) or answer <= said:
        return None
    return f"a span reader answers the question with {text!r:.80}"


def find_contradiction(statement: str, hits: Sequence[Hit], question: str, ask: Asker) -> str | None:
    """Return a phrase that says where a span reader contradicts a statement, or None.

    The span reader is asked for at most ``MAX_QUESTIONS`` names, numbers and dates of the statement. It contradicts the
    statement if it finds another one with enough confidence. The arguments are as for ``find_problem``.
    """
    # A question for the subject of the passages, or for a name in the question, can have any answer.
    known = {_stem(word) for hit in hits for word in _iter_words(hit.passage.context)}
    known |= {_stem(word) for word in _iter_words(question)} if _repeats(statement, question) else set()
    asked = 0
    for kind, start, end in _find_items(statement):
        item, is_short = statement[start:end], not _content(statement[:start] + statement[end:])
        if kind == "name" and not is_short and {_stem(word) for word in _iter_words(item)} <= known:
            continue
        if (asked := asked + 1) > MAX_QUESTIONS:
            break
        gap = _choose_question_word(kind, statement, start, end)
        claim = question if is_short else f"{statement[:start]}{gap}{statement[end:]}".rstrip(" .!") + "?"
        found = ask(claim, list(hits)) if claim else None
        if found is None:
            continue
        text, confidence = found
        if confidence >= MIN_CONTRADICTION and _is_same_kind(kind, text) and not _agrees(kind, item, text):
            return f"a span reader finds {text!r:.80} instead of {item!r:.80}"
    return None


def _repeats(statement: str, question: str) -> bool:
    """Return True if a statement contains most main words of the question."""
    asked = _content(question)
    return bool(asked) and len(_content(statement) & asked) >= MIN_REPEATED * len(asked)


def _find_other_kind(statement: str, question: str) -> str | None:
    is_short = len(statement.split()) <= SHORT
    if is_short and question and not make_kind_check(question)(statement.rstrip(" .")):
        return "there is nothing of the kind that the question asks for"
    return None


def _find_scattered_date(statement: str, text: str) -> str | None:
    """Return a date of a statement that no sentence of a text contains as a whole, or None."""
    dates = [statement[start:end] for kind, start, end in _find_items(statement) if kind == "date"]
    if not dates:
        return None
    sentences = [_content(text[start:end]) for start, end, _ in find_sentences(text)]
    return next((date for date in dates if not any(_content(date) <= sentence for sentence in sentences)), None)


def locate_evidence(statement: str, passage: Passage) -> Span | None:
    """Return the place of the passage's sentence with the most main words of a statement.

    The result is None if no sentence has a third of them. Numbers count as main words.
    """
    said = _content(statement)
    best, most = None, 0.0
    for start, end, _ in find_sentences(passage.text):
        shared = len(said & _content(passage.text[start:end])) / max(1, len(said))
        if shared > most:
            best, most = Span(start, end), shared
    return best if most >= 1 / 3 else None


def measure_overlap(statement: str, passage: Passage) -> float:
    """Return the share of a statement's main words and numbers in a passage, from 0 to 1."""
    said = _content(statement)
    return len(said & _content(passage.titled_text)) / max(1, len(said))


def _content(text: str) -> frozenset[str]:
    """Return the main words of a text as stems, and its numbers."""
    words = _read_words(text)
    return (words.stems - _FUNCTION_STEMS) | words.numbers


def _find_denial(statement: str, passages: Sequence[Passage]) -> str | None:
    """Return a problem if a statement denies what a passage states, or the reverse.

    The statement is compared with the nearest sentence of each passage.
    """
    said = _read_words(statement)
    for passage in passages:
        if (span := locate_evidence(statement, passage)) is None:
            continue
        there = _read_words(passage.text[span.start : span.end])
        turned = ((said.negated - said.plain) & (there.plain - there.negated)) | (
            (said.plain - said.negated) & (there.negated - there.plain)
        )
        if turned - _FUNCTION_STEMS:
            return "it denies what the passage states, or states what the passage denies"
    return None


def _find_order(statement: str, passages: Sequence[Passage]) -> str | None:
    spans = ((passage.text, locate_evidence(statement, passage)) for passage in passages)
    found = [text[span.start : span.end] for text, span in spans if span is not None]
    if found and all(_ORDER.search(sentence) for sentence in found):
        return "the passage tells a language model what to write"
    return None


def _iter_words(text: str) -> Iterator[str]:
    """Yield the words and numbers of a text without possessive endings."""
    for word in _WORD.finditer(text):
        yield re.sub(r"['’]s?$", "", word[0])


def _read_words(text: str) -> _Words:
    numbers: set[str] = set()
    negated: set[str] = set()
    plain: set[str] = set()
    is_negated = False
    for word in _iter_words(text):
        lower = word.lower()
        if value := _to_number(word):
            numbers.add(value)
            if not word[0].isdigit():
                plain.add(_stem(word))
            continue
        stem = _stem(word)
        if lower in _NEGATIONS or lower.endswith(("n't", "n’t")):
            is_negated = True
            continue
        (negated if is_negated else plain).add(stem)
        is_negated = is_negated and lower in FUNCTION_WORDS  # "not been seen" denies "seen"
    return _Words(frozenset(numbers), frozenset(negated | plain), frozenset(negated), frozenset(plain))


def _to_number(word: str) -> str | None:
    """Return a number in digits, such as 4 for 4th or four; None for other words.

    The words zero and one count as other words, because "one" is often a pronoun.
    """
    if word[0].isdigit():
        digits = re.sub(r"(?:st|nd|rd|th)$", "", word)
        digits = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", digits)
        return re.sub(r"^0+(?=\d)", "", digits)
    value = _NUMBER_WORDS.get(word.lower())
    return str(value) if value is not None and value > 1 else None


def _stem(word: str) -> str:
    """Return a word without accents, case and the commonest endings of English."""
    plain = "".join(c for c in to_nfd(word.lower()) if c.isalnum())
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("ly", "")):
        if plain.endswith(ending) and len(plain) - len(ending) >= 3 and not plain.endswith("ss"):
            plain = plain[: -len(ending)] + rest
            break
    if len(plain) > 3 and plain[-1] == plain[-2]:  # stopped, stop
        plain = plain[:-1]
    return plain[:-1] if len(plain) > 3 and plain[-1] == "e" else plain


_FUNCTION_STEMS = frozenset(map(_stem, FUNCTION_WORDS)) | {"ye"}


def _iter_names(statement: str) -> Iterator[str]:
    """Yield the capitalised words of the names and dates in a statement.

    A name of one word at the start of the statement is left out, since it may be a common word.
    """
    for kind, start, end in _find_items(statement):
        words = list(_iter_words(statement[start:end]))
        if kind != "number" and not (start == 0 and len(words) == 1):
            yield from (word for word in words if word[0].isupper() and len(word) > 1)


def _find_items(statement: str) -> list[tuple[str, int, int]]:
    """Return the dates, numbers and names of a statement.

    Returns:
        Kind, start and end (exclusive) of each. The kind is ``date``, ``number`` or ``name``; start and end are in
        characters.
    """
    items = []
    for match in _ITEM.finditer(statement):
        kind, (start, end) = str(match.lastgroup), match.span()
        first = match[0].split()[0]
        if start == 0 and first.lower() in FUNCTION_WORDS:  # "The Althing", "It"
            start = min(end, len(first) + 1)
        if kind == "name" and _to_number(statement[start:end] or "?"):
            kind = "number"
        if end - start > (kind == "name"):  # a single letter is no name
            items.append((kind, start, end))
    return items


def _choose_question_word(kind: str, statement: str, start: int, end: int) -> str:
    item = statement[start:end]
    if kind == "date":
        return "which date"
    if kind == "number":
        return "which year" if _YEAR.fullmatch(item) else "how many"
    return "which place" if _PLACE_BEFORE.search(statement[:start]) else "who or what"


def _is_same_kind(kind: str, text: str) -> bool:
    has_number = bool(_read_words(text).numbers)
    if kind == "name":
        return not has_number and any(word[0].isupper() for word in _iter_words(text))
    return has_number


def _agrees(kind: str, item: str, text: str) -> bool:
    """Return True if one of two texts contains all numbers of the other.

    For the kind ``name``, stems are compared instead.
    """
    one, other = _read_words(item), _read_words(text)
    first, second = (one.stems, other.stems) if kind == "name" else (one.numbers, other.numbers)
    return first <= second or second <= first
