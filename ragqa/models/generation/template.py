"""What a generator reads: question and passage as one text, and the passage cut where they do not fit.

Legend: N texts = B questions times K passages.
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
    """A text with the fields ``{title}``, ``{passage}`` and ``{question}``."""

    text: str

    def __post_init__(self) -> None:
        if self.text.count("{question}") != 1 or self.text.count("{passage}") > 1:
            raise BadInput(f"template {self.text!r}: {{question}} once and {{passage}} at most once are needed")

    @property
    def closed(self) -> bool:
        """Whether it is the question alone."""
        return "{passage}" not in self.text

    def fill(self, question: str, passage: Passage | None = None) -> str:
        """The text of one pair; without a passage title and text are empty."""
        return _fill(self.text, question, passage)

    def before(self, question: str, passage: Passage) -> str:
        """What of ``fill`` comes before the passage."""
        return _fill(self.text.partition("{passage}")[0], question, passage)

    def behind(self, question: str, passage: Passage | None) -> str:
        """What of ``fill`` comes after the passage."""
        return _fill(self.text.rpartition("{passage}")[2], question, passage)


def _fill(text: str, question: str, passage: Passage | None) -> str:
    # As the code of RAG does: titles in quotes lose them, two spaces become one.
    title = passage.title.removeprefix('"').removesuffix('"') if passage else ""
    values = {"title": title, "passage": passage.text if passage else "", "question": question}
    return _FIELD.sub(lambda match: values[match[1]], text).replace("  ", " ")


RAG = Template("{title} / {passage} // {question}")
"""Lewis et al. 2020, released code."""
FID = Template("question: {question} title: {title} context: {passage}")
"""Izacard & Grave 2021, section 3."""
CLOSED_BOOK = Template("{question}")
"""Roberts et al. 2020; their checkpoints that were fine-tuned on one task have no prefix."""


def assemble_inputs(
    tokens: Seq2SeqTokenizer,
    template: Template,
    questions: Sequence[str],
    passages: Sequence[Sequence[Passage]],
    max_tokens: int,
) -> Inputs:
    """The N pairs of each question with its passages, a question's one after the other, padded to the longest.

    K is the largest number of passages of a question (1 for a closed book, whatever was found); where a question has
    fewer, an empty passage stands, whose relevance is to be -inf. A pair that is too long loses the end of its
    passage, and none of its question, unless that is too long even without a passage: see ``_shortened``.

    Raises:
        BadInput: the template alone is too long.
    """
    count = 1 if template.closed else max(1, *map(len, passages))
    pairs: list[tuple[str, Passage | None]] = []
    for question, found in zip(questions, passages, strict=True):
        own = [] if template.closed else list(found)
        pairs += [(question, passage) for passage in [*own, *[None] * (count - len(own))]]
    rows = tokens.ids([template.fill(*pair) for pair in pairs])
    return tokens.pad_rows(
        [
            row if len(row) <= max_tokens else _cut(tokens, template, row, *pair, max_tokens)
            for row, pair in zip(rows, pairs, strict=True)
        ]
    )


def fits_input(
    tokens: Seq2SeqTokenizer, template: Template, question: str, passage: Passage, end: int, max_tokens: int
) -> bool:
    """Whether the pair that ``assemble_inputs`` makes has the passage's text up to the character ``end``."""
    read = replace(passage, text=passage.text[:end])
    question = _fitting(tokens, template, question, max_tokens)
    return len(tokens.ids([template.fill(question, read)])[0]) <= max_tokens


def _fitting(tokens: Seq2SeqTokenizer, template: Template, question: str, max_tokens: int) -> str:
    """The question, ``_shortened`` where it is too long even without a passage."""
    if len(tokens.ids([template.fill(question)])[0]) <= max_tokens:
        return question
    return _shortened(tokens, template, question, max_tokens)


def _cut(
    tokens: Seq2SeqTokenizer,
    template: Template,
    row: list[int],
    question: str,
    passage: Passage | None,
    max_tokens: int,
) -> list[int]:
    """``row`` without as much of the passage's end as is too much."""
    fitting = _fitting(tokens, template, question, max_tokens)
    if fitting != question:
        question, row = fitting, tokens.ids([template.fill(fitting, passage)])[0]
        if len(row) <= max_tokens:
            return row
    closing = len(tokens.ids([""])[0]) - tokens.opening
    kept = len(tokens.encode_bare(template.behind(question, passage))) + closing
    return [*row[: max_tokens - kept], *row[len(row) - kept :]]


def _shortened(tokens: Seq2SeqTokenizer, template: Template, question: str, max_tokens: int) -> str:
    """As much of a question's beginning as fits without a passage into what is read; into half of it, where there are
    passages to be read, too."""

    def length(characters: int) -> int:
        return len(tokens.ids([template.fill(question[:characters])])[0])

    room = max_tokens if template.closed else (max_tokens + length(0)) // 2
    if length(0) > max_tokens:
        raise BadInput(f"template {template.text!r} alone is longer than the {max_tokens} tokens that are read")
    kept = bisect_right(range(len(question)), room, key=length) - 1
    return question[: max(kept, 0)]
