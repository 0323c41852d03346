"""Check of an answer while a language model writes it, statement by statement."""

import re

from ragqa.reading.chat.prompt import NumberedPassages
from ragqa.reading.chat.statements import CitedSentence, ParsedReply, drop_open_mark, parse_reply
from ragqa.reading.chat.verification import Asker, find_problem, locate_evidence, measure_overlap
from ragqa.text import normalize_answer
from ragqa.types import Source, Statement, cite_statements

MAX_CHARACTERS, MAX_STATEMENTS = 20_000, 100
"""Maximum length of a reply in characters and in statements, for servers that ignore the limit of tokens."""
CANDIDATES, MIN_OVERLAP = 3, 0.6
"""Maximum number of passages to check for a statement without a citation, and the minimum share of the statement's main
words in such a passage."""
_CUT_MARK = re.compile(r"\s*[\[【][\d,\s]*\Z")
_DECLINING = re.compile(
    r"(?:the |these |this |provided |given )*(?:passages?|documents?|text|context|information)(?: provided| given)? "
    r"(?:do(?:es)? not|don't|doesn't) (?:answer|contain|mention|provide|say|state|include|give|specify)"
    r"|(?:i |we )(?:cannot|can't|could not) (?:answer|find)|(?:i |we )(?:do not|don't) know",
    re.IGNORECASE,
)


class Draft:
    """Reply of a language model while it is written.

    Attributes:
        statements: complete and checked statements.
        attributed: number of statements without a citation for which a supporting passage was found.
        is_repeating: True if the reply repeats a statement or is too long; the rest of the reply is then ignored.
    """

    def __init__(self, question: str, passages: NumberedPassages, ask: Asker | None) -> None:
        """Prepare to receive a reply.

        Args:
            question: question to answer.
            passages: passages of the prompt.
            ask: span reader that checks the statements; None leaves out its checks.
        """
        self.question, self.passages, self._ask = question, passages, ask
        self.statements: list[Statement] = []
        self.attributed, self.is_repeating = 0, False
        self._raw = self._text = self._shown = ""
        self._next_check = 0
        self._numbers: list[int] = []
        """Numbers in the prompt of the cited passages; the answer numbers them from 1 in this order."""

    @property
    def text(self) -> str:
        """Text of the complete statements, without citations."""
        return self._text[: self.statements[-1].end] if self.statements else ""

    @property
    def is_declined(self) -> bool:
        """True if all statements say that the passages do not answer the question."""
        return bool(self.statements) and all(_DECLINING.match(statement.text) for statement in self.statements)

    def add(self, piece: str) -> str:
        """Add a piece of the reply, and check the statements that are complete now.

        Returns:
            Text of the new statements with their citations; empty if there are none, if the reply is too long, or
            while ``is_declined`` is True.
        """
        self._raw += piece
        if len(self._raw) > MAX_CHARACTERS:
            self.is_repeating = True
            return ""
        if len(self._raw) < self._next_check:
            return ""
        self._next_check = len(self._raw) * 101 // 100  # pieces of one character would take quadratic time
        reply = parse_reply(drop_open_mark(self._raw))
        return self._check(reply, reply.statements[:-1])  # the last one may be incomplete

    def finish(self) -> str:
        """Check and return the last statements, with citations; empty if ``is_repeating`` is True."""
        if self.is_repeating:
            return ""
        reply = parse_reply(_CUT_MARK.sub("", self._raw))
        return self._check(reply, reply.statements)

    def count_cited(self) -> int:
        """Return the number of statements for which the model itself cited an existing passage."""
        return sum(bool(statement.citations) for statement in self.statements) - self.attributed

    def make_sources(self) -> tuple[Source, ...]:
        """Return the cited passages as sources, in the order of their numbers in the answer.

        The span of a source is the sentence that supports a citing statement (``locate_evidence``), or None. The weight
        is the passage's share of all citations.
        """
        total = sum(len(statement.citations) for statement in self.statements)
        sources = []
        for number, prompt_number in enumerate(self._numbers, 1):
            hit = self.passages.hits[prompt_number - 1]
            citing = [statement for statement in self.statements if number in statement.citations]
            spans = (locate_evidence(statement.text, hit.passage) for statement in citing)
            sources.append(Source(hit, next(filter(None, spans), None), len(citing) / total))
        return tuple(sources)

    def _check(self, reply: ParsedReply, complete: tuple[CitedSentence, ...]) -> str:
        for sentence in complete[len(self.statements) :]:
            if self._is_repeated(sentence) or len(self.statements) == MAX_STATEMENTS:
                self.is_repeating = True
                break
            self.statements.append(self._make_statement(sentence))
            self._text = reply.text
        if self.is_declined:
            return ""
        shown, self._shown = self._shown, cite_statements(self.text, self.statements)
        return self._shown[len(shown) :]

    def _is_repeated(self, sentence: CitedSentence) -> bool:
        text = normalize_answer(sentence.text)
        return any(normalize_answer(statement.text) == text for statement in self.statements)

    def _make_statement(self, sentence: CitedSentence) -> Statement:
        count = len(self.passages.hits)
        if wrong := [number for number in sentence.numbers if not 1 <= number <= count]:
            known = tuple(self._renumber(number) for number in sentence.numbers if number not in wrong)
            why = f"it cites [{wrong[0]}], but {count} passages were given"
            return Statement(sentence.text, sentence.start, known, is_supported=False, reason=why)
        if not sentence.numbers:
            return self._attribute(sentence)
        hits = [self.passages.hits[number - 1] for number in sentence.numbers]
        problem = find_problem(sentence.text, hits, self.question, self._ask)
        citations = tuple(self._renumber(number) for number in sentence.numbers)
        marks = "".join(f"[{number}]" for number in citations)
        reason = f"in {marks}, {problem}" if problem else None
        return Statement(sentence.text, sentence.start, citations, is_supported=problem is None, reason=reason)

    def _attribute(self, sentence: CitedSentence) -> Statement:
        """Cite a passage that supports a sentence without a citation, if there is one.

        The ``CANDIDATES`` passages with the most of its words are checked; each must have the share ``MIN_OVERLAP``.
        """
        overlaps = [measure_overlap(sentence.text, hit.passage) for hit in self.passages.hits]
        near = [place for place, overlap in enumerate(overlaps) if overlap >= MIN_OVERLAP]
        order = sorted(near, key=lambda place: -overlaps[place])[:CANDIDATES]
        for place in order if not _DECLINING.match(sentence.text) else []:
            if find_problem(sentence.text, [self.passages.hits[place]], self.question, self._ask) is None:
                self.attributed += 1
                return Statement(sentence.text, sentence.start, (self._renumber(place + 1),))
        why = "it cites no passage, and none that was read supports it"
        return Statement(sentence.text, sentence.start, is_supported=False, reason=why)

    def _renumber(self, number: int) -> int:
        """Return a passage's number in the answer, by its number in the prompt."""
        if number not in self._numbers:
            self._numbers.append(number)
        return self._numbers.index(number) + 1
