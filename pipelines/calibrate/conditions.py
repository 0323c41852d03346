"""Sets of calibration questions: the passages to read, and the judges of the answers.

Questions are answered from an index, as users' questions are. SQuAD's questions are also answered from their own
paragraphs. Some questions are answered again without the documents that contain an answer, so that every answer is
wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragqa import artefacts
from ragqa.corpus.splitters import DEFAULT_BLOCKS
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.metrics import exact_match, f1, has_answer
from ragqa.progress import Bars
from ragqa.question_files import SquadParagraph, write_documents
from ragqa.reading.span import SpanAnswer
from ragqa.retrieval import other_documents
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.registry import DEFAULT_RETRIEVER
from ragqa.types import Hit, Question

Condition = Callable[[Sequence[Question]], list[list[Hit]]]
"""Function that returns the passages to read for each question."""
Judge = Callable[[Sequence[SpanAnswer], Sequence[str]], list[float]]
"""Function from the answers and the gold answers of a question to the probability that each answer is right."""

ANSWERABLE, MISSED, UNANSWERABLE, NO_GOLD_ANSWER = "answerable", "missed", "unanswerable", "no gold answer"
"""Kinds of questions in reports.

ANSWERABLE: a passage that is read has an answer. MISSED: no passage that is read has one. UNANSWERABLE: the documents
that contain an answer were left out. NO_GOLD_ANSWER: the question has no gold answer.
"""
OWN_PARAGRAPH = "SQuAD, own paragraph"
"""Name of the set whose questions are answered from their own paragraphs."""
OTHER_ANNOTATORS = 2
"""Number of annotators of a SQuAD test question besides the first (Rajpurkar et al. 2016)."""


@dataclass(frozen=True)
class CalibrationSet:
    """Held-out questions, with the passages to read and the judge of the answers."""

    file: Path
    """File that the questions come from."""
    name: str
    """Name in reports."""
    questions: Sequence[Question]
    """Questions with gold answers."""
    condition: Condition
    """Function that returns the passages to read for each question."""
    judge: Judge
    """Function that returns the probability that each answer is right."""
    is_unanswerable: bool = False
    """True if the condition leaves out the documents that contain an answer."""
    weight: float = 1.0
    """Weight of an answer in the fit, relative to other answers of its file."""

    def __str__(self) -> str:
        return f"{self.name}, documents with an answer left out" if self.is_unanswerable else self.name


def search_passages(retriever: Retriever, k: int) -> Condition:
    """Return a condition that reads the ``k`` best passages that ``retriever`` finds."""
    return lambda questions: retriever.search([question.text for question in questions], k)


def search_other_documents(retriever: Retriever, k: int) -> Condition:
    """Return a condition that reads the ``k`` best passages in documents without an answer.

    A document is left out if it has the title of a gold passage or if one of its retrieved passages has an answer.
    Documents with the same title count as one document.
    """

    def drop_documents(hits: list[Hit], question: Question) -> list[Hit]:
        # The title identifies an article of SQuAD, whose paragraphs are separate documents.
        names = [hit.passage.title or hit.passage.document for hit in hits]
        pairs = list(zip(names, hits, strict=True))
        excluded = {name for name, hit in pairs if has_answer(hit.passage.text, question.answers)}
        return [hit for name, hit in pairs if name not in excluded.union(question.titles)]

    return lambda questions: other_documents.search_other_documents(retriever.search, questions, k, drop_documents)


def classify_question(hits: Sequence[Hit], question: Question, *, is_unanswerable: bool) -> str:
    """Return the kind of a question, one of ``ANSWERABLE`` to ``NO_GOLD_ANSWER``.

    Args:
        hits: passages to read.
        question: question with its gold answers.
        is_unanswerable: True if the documents that contain an answer were left out.
    """
    if is_unanswerable:
        return UNANSWERABLE
    if not question.answers:
        return NO_GOLD_ANSWER
    return ANSWERABLE if any(has_answer(hit.passage.text, question.answers) for hit in hits) else MISSED


def judge_exactly(answers: Sequence[SpanAnswer], gold: Sequence[str]) -> list[float]:
    """Return 1 for each answer that equals a gold answer by NQ's rule, else 0; a ``Judge``."""
    return [float(exact_match(answer.text, gold, unicode="NFD")) for answer in answers]


def judge_by_agreement(answers: Sequence[SpanAnswer], gold: Sequence[str]) -> list[float]:
    """Return the probability that at least one of three annotators gives each answer.

    The first annotator gave the gold answer. This function assumes that each of the two others independently gives one
    of the reader's answers that share a word with it, with a probability in proportion to the reader's weight.
    """
    weights = [answer.evidence.weight if f1(answer.text, gold) else 0.0 for answer in answers]
    total = sum(weights) or 1.0
    return [
        1.0 if exact_match(answer.text, gold) else 1 - (1 - weight / total) ** OTHER_ANNOTATORS
        for answer, weight in zip(answers, weights, strict=True)
    ]


def build_paragraph_index(
    paragraphs: list[SquadParagraph],
    out: Path,
    retriever: str = DEFAULT_RETRIEVER,
    blocks: str = DEFAULT_BLOCKS,
    block_size: int | None = None,
) -> Path:
    """Index SQuAD's paragraphs, each as a document, and return the directory of the index.

    An existing index of the same paragraphs is reused. To recognise them, a copy is kept next to it: ``.NAME.jsonl``.

    Args:
        paragraphs: paragraphs of a SQuAD file.
        out: directory of the index.
        retriever: kind of retriever to build the index for.
        blocks: unit of the passages, as in ``ragqa index --blocks``.
        block_size: size of a passage in this unit; None for the default of the unit.

    Raises:
        BadInput: ``out`` is an index of other paragraphs, in other blocks, or for another retriever.
        DamagedArtefact, Mismatch: the manifest of ``out`` is damaged, or a newer version of ragqa wrote it.
        RagqaError: as for ``build_index``.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    corpus, written = out.with_name(f".{out.name}.jsonl"), out.with_name(f".{out.name}.new.jsonl")
    try:
        write_documents(((paragraph.title, paragraph.text) for paragraph in paragraphs), written)
        if not (out / artefacts.MANIFEST).is_file():
            written.replace(corpus)
            build_index(
                [corpus], out, IndexConfig(retriever=retriever, blocks=blocks, block_size=block_size), progress=Bars()
            )
        elif (
            (config := artefacts.peek_manifest(out).config)["retriever"] != retriever
            or config["blocks"] != blocks
            or not corpus.is_file()
            or artefacts.checksum(corpus) != artefacts.checksum(written)
        ):
            wanted = f"these paragraphs in {blocks}, for {retriever}"
            raise BadInput(f"{out} is not an index of {wanted}: remove it, or name another directory")
    finally:
        written.unlink(missing_ok=True)
    return out
