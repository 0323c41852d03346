"""Input texts of generators: a template joins question and passage up to a maximum length.

Legend: B questions, K passages per question, N = B * K pairs of question and passage.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragqa.errors import BadInput
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs
from ragqa.types import Passage

_FIELD = re.compile(r"\{(title|passage|question)\}")


@dataclass(frozen=True)
class Template:
    """Template of an input text, with the fields ``{title}``, ``{passage}`` and ``{question}``."""

    text: str

    def __post_init__(self) -> None:
        """Raise BadInput unless the question occurs once and the passage at most once."""
        if self.text.count("{question}") != 1 or self.text.count("{passage}") > 1:
            raise BadInput(f"template {self.text!r}: use {{question}} once and {{passage}} at most once")

    @property
    def is_closed_book(self) -> bool:
        """True if the template has no passage."""
        return "{passage}" not in self.text

    def fill(self, question: str, passage: Passage | None = None) -> str:
        """Return the text of a pair; title and passage are empty without a passage."""
        return _fill(self.text, question, passage)

    def get_text_before(self, question: str, passage: Passage) -> str:
        """Return the part of the filled template before the passage."""
        return _fill(self.text.partition("{passage}")[0], question, passage)

    def get_text_after(self, question: str, passage: Passage | None) -> str:
        """Return the part of the filled template after the passage; all of it in a closed book."""
        return _fill(self.text.rpartition("{passage}")[2], question, passage)


def _fill(text: str, question: str, passage: Passage | None) -> str:
    # RAG's released code removes quotes around titles and doubled spaces, so published checkpoints expect such texts.
    title = passage.context.removeprefix('"').removesuffix('"') if passage else ""
    values = {"title": title, "passage": passage.text if passage else "", "question": question}
    return _FIELD.sub(lambda match: values[match[1]], text).replace("  ", " ")


RAG = Template("{title} / {passage} // {question}")
"""Template of RAG (Lewis et al. 2020, released code)."""
FID = Template("question: {question} title: {title} context: {passage}")
"""Template of Fusion-in-Decoder (Izacard & Grave 2021, section 3)."""
CLOSED_BOOK = Template("{question}")
"""Template of closed-book generators (Roberts et al. 2020, checkpoints for a single task)."""


@dataclass(frozen=True)
class PairEncoder:
    """Tokenizer of pairs of question and passage, which cuts the passage of a long pair.

    It cuts the question only if the question is too long even without a passage.
    """

    tokens: Seq2SeqTokenizer
    template: Template
    max_tokens: int
    """Maximum length of a pair in tokens."""

    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> Inputs:
        """Encode the N pairs of B questions and their passages, ordered by question.

        K is the largest number of passages of a question (at least 1), or 1 for a closed-book template. A question with
        fewer passages gets empty ones in addition.

        Args:
            questions: B questions.
            passages: passages of each question, best first.

        Raises:
            BadInput: the template alone is too long.
        """
        is_closed = self.template.is_closed_book
        count = 1 if is_closed else max(1, *map(len, passages))
        pairs: list[tuple[str, Passage | None]] = []
        for question, question_passages in zip(questions, passages, strict=True):
            row = [] if is_closed else list(question_passages)
            pairs += [(question, passage) for passage in [*row, *[None] * (count - len(row))]]
        rows = self.tokens.encode([self.template.fill(*pair) for pair in pairs])
        return self.tokens.pad_rows([self._cut(ids, *pair) for ids, pair in zip(rows, pairs, strict=True)])

    def can_read(self, question: str, passage: Passage, end: int) -> bool:
        """Return True if the encoded pair contains all characters of the passage before ``end``.

        Raises:
            BadInput: the template alone is too long.
        """
        beginning = replace(passage, text=passage.text[:end])
        return self._count_tokens(self._cut_question(question), beginning) <= self.max_tokens

    def _cut(self, ids: list[int], question: str, passage: Passage | None) -> list[int]:
        """Cut the ids of a pair to ``max_tokens``, at the end of the passage if possible."""
        if len(ids) <= self.max_tokens:
            return ids
        if (shorter := self._cut_question(question)) != question:
            question, ids = shorter, self.tokens.encode([self.template.fill(shorter, passage)])[0]
            if len(ids) <= self.max_tokens:
                return ids
        closing = len(self.tokens.encode([""])[0]) - self.tokens.prefix_length
        tail = len(self.tokens.encode_bare(self.template.get_text_after(question, passage))) + closing
        return [*ids[: self.max_tokens - tail], *ids[len(ids) - tail :]]

    def _cut_question(self, question: str) -> str:
        """Return the question, cut if it is too long even without a passage.

        A cut question takes half of the room beside the template, because the passage needs the rest; in a closed book
        it takes all of the room.
        """

        def count(characters: int) -> int:
            return self._count_tokens(question[:characters])

        if count(len(question)) <= self.max_tokens:
            return question
        if count(0) > self.max_tokens:
            raise BadInput(
                f"template {self.template.text!r} alone is longer than the {self.max_tokens} tokens of the input"
            )
        room = self.max_tokens if self.template.is_closed_book else (self.max_tokens + count(0)) // 2
        return question[: max(0, bisect_right(range(len(question)), room, key=count) - 1)]

    def _count_tokens(self, question: str, passage: Passage | None = None) -> int:
        return len(self.tokens.encode([self.template.fill(question, passage)])[0])
