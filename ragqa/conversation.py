"""Conversations, in which a follow-up question is completed from the previous turn."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ragqa.follow_ups import Turn, rewrite_follow_up
from ragqa.pipeline import Pipeline, clean_question
from ragqa.retrieval.filters import PassageFilter
from ragqa.types import Answer


def make_standalone(question: str, turns: Iterable[Turn]) -> str:
    """Return a question in a form that stands alone, completed from earlier turns.

    Args:
        question: follow-up question; a question that stands alone is only cleaned by ``clean_question``.
        turns: earlier turns, oldest first; their questions can also be follow-ups.

    Raises:
        BadInput: one of the questions is empty or not text.
    """
    last: Turn | None = None
    for turn in (*turns, Turn(question, None)):
        cleaned = clean_question(turn.question)
        last = replace(turn, question=rewrite_follow_up(cleaned, last) if last else cleaned)
    assert last is not None
    return last.question


class Conversation:
    """Sequence of questions to a pipeline, each of which can refer to the previous question.

    Pronouns, as in "When did he do it?", are replaced by the names that they stand for, and short questions such as
    "Why?" are completed. ``Answer.question`` is the question as the user typed it. ``Answer.asked`` is the completed
    question with corrected spelling; None if nothing was completed or corrected.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        """Begin a conversation with ``pipeline``, which answers the questions."""
        self.pipeline = pipeline
        self.last_turn: Turn | None = None
        """Last question in the form that stands alone, and its answer; None before the first answer."""

    def ask(
        self,
        question: str,
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> Answer:
        """Answer a question; arguments and errors: as for ``Pipeline.ask``."""
        *_, answer = self.stream(question, k=k, min_confidence=min_confidence, filter=filter)
        assert isinstance(answer, Answer)
        return answer

    def stream(
        self,
        question: str,
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> Iterator[str | Answer]:
        """Yield pieces of the answer, then the answer.

        Arguments and errors: as for ``Pipeline.stream``.
        """
        cleaned = clean_question(question)
        asked = make_standalone(question, [self.last_turn] if self.last_turn else [])
        for piece in self.pipeline.stream(asked, k=k, min_confidence=min_confidence, filter=filter):
            if isinstance(piece, Answer):
                title = piece.sources[0].hit.passage.title if piece.sources else ""
                self.last_turn = Turn(piece.asked or asked, piece.text, title)
                yield replace(piece, question=question, asked=piece.asked or (asked if asked != cleaned else None))
            else:
                yield piece
