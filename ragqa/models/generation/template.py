"""Input texts of generators: question and passage in a template, the passage cut to fit.

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
    """Text with the fields ``{title}``, ``{passage}`` and ``{question}``."""

    text: str

    def __post_init__(self) -> None:
        """Raise BadInput unless the question occurs once and the passage at most once."""
        if self.text.count("{question}") != 1 or self.text.count("{passage}") > 1:
            raise BadInput(f"template {self.text!r}: use {{question}} once and {{passage}} at most once")

    @property
    def closed(self) -> bool:
        """True if the template has no passage (closed book)."""
        return "{passage}" not in self.text

    def fill(self, question: str, passage: Passage | None = None) -> str:
        """Return the text of one pair; without a passage, title and text are empty."""
        return _fill(self.text, question, passage)

    def text_before(self, question: str, passage: Passage) -> str:
        """Return the part of ``fill`` before the passage."""
        return _fill(self.text.partition("{passage}")[0], question, passage)

    def text_after(self, question: str, passage: Passage | None) -> str:
        """Return the part of ``fill`` after the passage."""
        return _fill(self.text.rpartition("{passage}")[2], question, passage)


def _fill(text: str, question: str, passage: Passage | None) -> str:
    # RAG's released code removes quotes around titles and doubled spaces, so checkpoints expect it.
    title = passage.title.removeprefix('"').removesuffix('"') if passage else ""
    values = {"title": title, "passage": passage.text if passage else "", "question": question}
    return _FIELD.sub(lambda match: values[match[1]], text).replace("  ", " ")


RAG = Template("{title} / {passage} // {question}")
"""Lewis et al. 2020, released code."""
FID = Template("question: {question} title: {title} context: {passage}")
"""Izacard & Grave 2021, section 3."""
CLOSED_BOOK = Template("{question}")
"""Roberts et al. 2020; their checkpoints for a single task have no prefix."""


def assemble_inputs(
    tokens: Seq2SeqTokenizer,
    template: Template,
    questions: Sequence[str],
    passages: Sequence[Sequence[Passage]],
    max_tokens: int,
) -> Inputs:
    """Encode the N pairs of questions and passages, ordered by question.

    K is the largest number of passages of a question, or 1 for a closed book. A question with fewer passages gets
    empty ones, whose relevance must be -inf. A pair that is too long loses the end of its passage; the question is cut
    only if it does not fit without a passage.

    Args:
        tokens: tokenizer of the generator.
        template: text of a pair.
        questions: B texts.
        passages: passages of each question.
        max_tokens: maximum length of a pair.

    Raises:
        BadInput: the template alone is too long.
    """
    count = 1 if template.closed else max(1, *map(len, passages))
    pairs: list[tuple[str, Passage | None]] = []
    for question, own_passages in zip(questions, passages, strict=True):
        hits = [] if template.closed else list(own_passages)
        pairs += [(question, passage) for passage in [*hits, *[None] * (count - len(hits))]]
    rows = tokens.ids([template.fill(*pair) for pair in pairs])
    return tokens.pad_rows(
        [
            row if len(row) <= max_tokens else _cut_passage(tokens, template, row, *pair, max_tokens)
            for row, pair in zip(rows, pairs, strict=True)
        ]
    )


def fits_input(
    tokens: Seq2SeqTokenizer, template: Template, question: str, passage: Passage, end: int, max_tokens: int
) -> bool:
    """Tell whether the input of ``assemble_inputs`` contains the passage up to the character ``end``."""
    read = replace(passage, text=passage.text[:end])
    question = _fit_question(tokens, template, question, max_tokens)
    return len(tokens.ids([template.fill(question, read)])[0]) <= max_tokens


def _fit_question(tokens: Seq2SeqTokenizer, template: Template, question: str, max_tokens: int) -> str:
    """Return the question, shortened if it is too long even without a passage."""
    if len(tokens.ids([template.fill(question)])[0]) <= max_tokens:
        return question
    return _shorten_question(tokens, template, question, max_tokens)


def _cut_passage(
    tokens: Seq2SeqTokenizer,
    template: Template,
    row: list[int],
    question: str,
    passage: Passage | None,
    max_tokens: int,
) -> list[int]:
    """Return ``row`` without the end of the passage that does not fit."""
    fitting = _fit_question(tokens, template, question, max_tokens)
    if fitting != question:
        question, row = fitting, tokens.ids([template.fill(fitting, passage)])[0]
        if len(row) <= max_tokens:
            return row
    closing = len(tokens.ids([""])[0]) - tokens.opening
    tail = len(tokens.encode_bare(template.text_after(question, passage))) + closing
    return [*row[: max_tokens - tail], *row[len(row) - tail :]]


def _shorten_question(tokens: Seq2SeqTokenizer, template: Template, question: str, max_tokens: int) -> str:
    """Return the longest beginning of a question that fits into the input, or into half of it if there are passages."""

    def length(characters: int) -> int:
        return len(tokens.ids([template.fill(question[:characters])])[0])

    room = max_tokens if template.closed else (max_tokens + length(0)) // 2
    if length(0) > max_tokens:
        raise BadInput(f"template {template.text!r} alone is longer than the {max_tokens} tokens of the input")
    characters = bisect_right(range(len(question)), room, key=length) - 1
    return question[: max(characters, 0)]
