"""How questions are asked, to learn when a reader is right: as users ask, beside their own paragraph, in vain."""

from collections.abc import Callable, Sequence

from ragqa.metrics import has_answer
from ragqa.retrieval.base import Retriever
from ragqa.types import Hit, Passage, Question

Condition = Callable[[Sequence[Question]], list[list[Hit]]]
"""What is read for each question."""
ANSWERABLE, MISSED, VAIN = "answerable", "missed", "vain"
"""Kinds of questions: a passage that is read holds an answer; none does, as it happens; all such were taken out."""
FURTHER = 10
"""Times as many hits as are read are looked for where some are taken out."""


def over(retriever: Retriever, k: int) -> Condition:
    """The first ``k`` hits."""
    return lambda questions: retriever.search([question.text for question in questions], k)


def without(retriever: Retriever, k: int) -> Condition:
    """The first ``k`` hits of other documents than those a question names, or that are found to hold an answer."""

    def found(questions: Sequence[Question]) -> list[list[Hit]]:
        hits = retriever.search([question.text for question in questions], FURTHER * k)
        return [_elsewhere(each, question)[:k] for each, question in zip(hits, questions, strict=True)]

    return found


def _elsewhere(hits: list[Hit], question: Question) -> list[Hit]:
    own = {_document(hit) for hit in hits if has_answer(hit.passage.text, question.answers)}.union(question.titles)
    return [hit for hit in hits if _document(hit) not in own]


def _document(hit: Hit) -> str:
    """Its title: the paragraphs of an article of SQuAD's are documents of their own."""
    return hit.passage.title or hit.passage.document


def gold(questions: Sequence[Question]) -> list[list[Hit]]:
    """The passages that a question names, without their titles, as ``eval.squad --gold`` has them read."""
    return [
        [Hit(Passage(n, str(n), "", text, "", 0, len(text)), 0.0) for n, text in enumerate(question.passages)]
        for question in questions
    ]


def kind_of(hits: Sequence[Hit], question: Question, *, vain: bool) -> str:
    """Of a question by what is read for it; ``vain``: its documents were taken out."""
    if vain:
        return VAIN
    return ANSWERABLE if any(has_answer(hit.passage.text, question.answers) for hit in hits) else MISSED
