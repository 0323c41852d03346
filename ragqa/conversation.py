"""Conversations: follow-up questions are asked with what they refer to."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ragqa.follow_ups import Turn, rewrite_follow_up
from ragqa.pipeline import Pipeline, clean_question
from ragqa.retrieval.filters import PassageFilter
from ragqa.types import Answer


def make_standalone(question: str, turns: Iterable[Turn]) -> str:
    """Return a question with what it refers to in the turns before it; one that stands alone is only cleaned.

    Args:
        question: the question.
        turns: earlier turns, oldest first; their questions can be follow-ups, too.

    Raises:
        BadInput: a question is empty.
    """
    last: Turn | None = None
    for turn in (*turns, Turn(question, None)):
        cleaned = clean_question(turn.question)
        last = replace(turn, question=rewrite_follow_up(cleaned, last) if last else cleaned)
    assert last is not None
    return last.question


class Conversation:
    """Sequence of questions to a pipeline, in which a question can refer to the one before.

    "When did he do it?" is asked with the names that it stands for, and ``Answer.asked`` is the question as it was
    asked. A question that stands alone is asked as it is.
    """

    def __init__(self, pipeline: Pipeline, *, turns: int = 5) -> None:
        """Begin a conversation.

        Args:
            pipeline: pipeline that answers the questions.
            turns: number of last turns to keep.
        """
        self.pipeline = pipeline
        self.turns: deque[Turn] = deque(maxlen=turns)
        """The last turns, oldest first."""

    def ask(
        self,
        question: str,
        *,
        k: int | None = None,
        min_confidence: float | None = None,
        filter: PassageFilter | None = None,
    ) -> Answer:
        """Answer a question; the arguments and errors are those of ``Pipeline.ask``."""
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
        """Yield pieces of the answer and then the answer, as ``Pipeline.stream`` does."""
        cleaned = clean_question(question)
        asked = make_standalone(question, list(self.turns)[-1:])  # whose question stands alone already
        for piece in self.pipeline.stream(asked, k=k, min_confidence=min_confidence, filter=filter):
            if isinstance(piece, Answer):
                title = piece.sources[0].hit.passage.title if piece.sources else ""
                self.turns.append(Turn(piece.asked or asked, piece.text, title))
                was_changed = asked != cleaned
                yield replace(piece, question=question, asked=piece.asked or (asked if was_changed else None))
            else:
                yield piece
