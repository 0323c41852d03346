"""Conditions under which questions are read for calibration.

Users' questions are answered over an index. For comparison, some questions are read in their own paragraph, and some
without the documents that answer them, so that no answer can be right.

Users' questions are asked over an index. For comparison, questions are read in their own paragraph, and some are asked
after the documents that answer them were taken out, so that no answer can be right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.metrics import exact_match, f1, has_answer
from ragqa.progress import Bars
from ragqa.question_files import SquadParagraph, write_documents
from ragqa.reading.span import SpanAnswer
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.registry import DEFAULT_RETRIEVER
from ragqa.types import Hit, Question

Condition = Callable[[Sequence[Question]], list[list[Hit]]]
"""Function that returns the passages to read for each question."""
Judge = Callable[[Sequence[SpanAnswer], Sequence[str]], list[float]]
"""Function from answers and gold answers to the probability that each answer is right."""

ANSWERABLE, MISSED, UNANSWERABLE = "answerable", "missed", "vain"
"""Kinds of questions in reports, by the passages that are read.
A passage holds an answer; no passage does, although the corpus may; all passages with an answer were removed."""
OWN_PARAGRAPH = "SQuAD, own paragraph"
"""Name of the set whose questions are read in their own paragraphs."""
SEARCH_FACTOR = 10
"""Number of hits to search for each hit to read, if some are dropped."""
OTHER_ANNOTATORS = 2
"""Annotators of a SQuAD test question besides the first (Rajpurkar et al. 2016)."""


@dataclass(frozen=True)
class CalibrationSet:
    """Questions that a reader was not trained on, with their condition."""

    file: Path
    """File that the questions come from."""
    name: str
    questions: Sequence[Question]
    condition: Condition
    judge: Judge
    is_unanswerable: bool = False
    """True if the condition removes all passages with an answer."""

    def __str__(self) -> str:
        return f"{self.name}, in vain" if self.is_unanswerable else self.name


def search_passages(retriever: Retriever, k: int) -> Condition:
    """Return the condition that reads the first ``k`` hits."""
    return lambda questions: retriever.search([question.text for question in questions], k)


def search_other_documents(retriever: Retriever, k: int) -> Condition:
    """Return the condition that reads the first ``k`` hits from documents without an answer.

    Documents that the question names, and those with a hit that holds an answer, are left out.
    """

    def drop_documents(hits: list[Hit], question: Question) -> list[Hit]:
        # The title comes first: SQuAD's paragraphs are separate documents, but belong to one article.
        names = [hit.passage.title or hit.passage.document for hit in hits]
        pairs = list(zip(names, hits, strict=True))
        excluded = {name for name, hit in pairs if has_answer(hit.passage.text, question.answers)}
        return [hit for name, hit in pairs if name not in excluded.union(question.titles)]

    def search(questions: Sequence[Question]) -> list[list[Hit]]:
        hits = retriever.search([question.text for question in questions], SEARCH_FACTOR * k)
        return [
            drop_documents(question_hits, question)[:k] for question_hits, question in zip(hits, questions, strict=True)
        ]

    return search


def classify_question(hits: Sequence[Hit], question: Question, *, is_unanswerable: bool) -> str:
    """Return the kind of a question, given its hits.

    Args:
        hits: passages to read.
        question: question with gold answers.
        is_unanswerable: whether all documents with an answer were removed.
    """
    if is_unanswerable:
        return UNANSWERABLE
    return ANSWERABLE if any(has_answer(hit.passage.text, question.answers) for hit in hits) else MISSED


def judge_exactly(answers: Sequence[SpanAnswer], gold: Sequence[str]) -> list[float]:
    """Return 1 for each answer that equals a gold answer by NQ's rule, else 0."""
    return [float(exact_match(answer.text, gold, unicode="NFD")) for answer in answers]


def judge_by_agreement(answers: Sequence[SpanAnswer], gold: Sequence[str]) -> list[float]:
    """Return the probability of each answer that one of several annotators gives it.

    The other annotators are assumed to mean the same as the known one, and to choose their words independently: among
    the answers that share a word with the known one, each has its weight as probability. This is an assumption, not a
    measurement.

    The other annotators are assumed to mean the same thing as the known one and to word it independently: among the
    answers that share a word with the known one, each is said as often as its weight. This is an assumption, not a
    measurement.
    """
    weights = [answer.evidence.weight if f1(answer.text, gold) else 0.0 for answer in answers]
    total = sum(weights) or 1.0
    return [
        1.0 if exact_match(answer.text, gold) else 1 - (1 - weight / total) ** OTHER_ANNOTATORS
        for answer, weight in zip(answers, weights, strict=True)
    ]


def build_paragraph_index(paragraphs: list[SquadParagraph], out: Path, retriever: str = DEFAULT_RETRIEVER) -> Path:
    """Index SQuAD's paragraphs in ``out``, one passage each, unless the index exists.

    Raises:
        BadInput: ``out`` is an index of other paragraphs, or for another retriever.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    corpus, written = out.with_name(f".{out.name}.jsonl"), out.with_name(f".{out.name}.new.jsonl")
    try:
        write_documents(((paragraph.title, paragraph.text) for paragraph in paragraphs), written)
        if not (out / artefacts.MANIFEST).is_file():
            written.replace(corpus)
            build_index([corpus], out, IndexConfig(retriever=retriever, block_size=10_000), progress=Bars())
        elif (
            artefacts.peek_manifest(out).config["retriever"] != retriever
            or not corpus.is_file()
            or artefacts.checksum(corpus) != artefacts.checksum(written)
        ):
            raise BadInput(f"{out} is not of these paragraphs and {retriever}: remove it, or name another directory")
    finally:
        written.unlink(missing_ok=True)
    return out
