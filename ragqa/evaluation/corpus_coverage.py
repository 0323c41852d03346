"""Coverage of a question set by a corpus: answers, gold passages and gold documents.

Coverage bounds the scores, since a retriever finds only passages of the corpus.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragqa.corpus.store import PassageStore
from ragqa.evaluation.rows import Row, digest_text
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Progress
from ragqa.text import split_words
from ragqa.types import Question

_BATCH = 1000


@dataclass(frozen=True)
class Missing:
    """Positions, from 0, of questions whose answers or gold texts the corpus lacks."""

    answers: frozenset[int]
    """Questions without a gold answer in any passage, except correctly answered and unanswerable questions."""
    passages: frozenset[int]
    """Questions whose gold passages are all missing from the corpus."""
    documents: frozenset[int]
    """Questions whose gold documents have no passage in the corpus."""

    def to_json(self) -> dict[str, list[int]]:
        """Return sorted lists of positions, by the names of the fields."""
        return {name: sorted(numbers) for name, numbers in asdict(self).items()}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Missing":
        """Restore the positions from the result of ``to_json``.

        Raises:
            KeyError: a field is missing.
        """
        return cls(*(frozenset(row[name]) for name in ("answers", "passages", "documents")))


def find_missing(
    passages: PassageStore, rows: Iterable[Row], *, regex: bool = False, progress: Progress = SILENT
) -> Missing:
    """Find the questions whose answers, gold passages or gold documents are not in the corpus.

    The corpus is read only if an answer, a gold passage or a gold document is not among the hits.

    Args:
        passages: the corpus.
        rows: scored rows of the questions.
        regex: True if gold answers are patterns, each of which is searched in every passage until it matches.
        progress: receiver of the number of passages read.

    Raises:
        SlowPattern: a gold answer is a pattern whose search takes too long; the error names the question.
    """
    answers, texts, documents = _MissingAnswers(regex), _MissingNames(), _MissingNames()
    for row in rows:
        if row.answers and row.rank is None and row.loss not in ("right", "not chosen"):
            answers.add(row.number, row.as_question)
        if row.passages and row.passage_rank is None:
            texts.add(row.number, row.passages)
        if row.documents and row.document_rank is None:
            documents.add(row.number, row.documents)
    if answers.missing or texts.missing or documents.missing:
        name_question = name_slow_question(answers.missing.values())
        with name_question, progress.step("searching the corpus", len(passages), "passages") as step:
            for batch in passages.iter_batches(size=_BATCH):
                for passage in batch:
                    answers.mark_seen(passage.text)
                    if texts.missing:
                        texts.mark_seen([digest_text(passage.text)])
                    if documents.missing:  # a question names the id of a document, or the end of its path
                        parts = passage.document.split("/")
                        documents.mark_seen("/".join(parts[n:]) for n in range(len(parts)))
                step.advance_to(batch[-1].id + 1)
    return Missing(frozenset(answers.missing), frozenset(texts.missing), frozenset(documents.missing))


class _MissingNames:
    """Questions whose gold passages or documents have not been seen, indexed by digest or name."""

    def __init__(self) -> None:
        self.missing: set[int] = set()
        self._questions: defaultdict[str, set[int]] = defaultdict(set)

    def add(self, number: int, names: Iterable[str]) -> None:
        self.missing.add(number)
        for name in names:
            self._questions[name].add(number)

    def mark_seen(self, names: Iterable[str]) -> None:
        for name in names:
            self.missing -= self._questions.pop(name, set())


class _MissingAnswers:
    """Questions whose answers have not been seen, indexed by a token of each answer."""

    def __init__(self, regex: bool) -> None:
        self.missing: dict[int, Question] = {}
        self._regex = regex
        self._by_token: defaultdict[str, set[int]] = defaultdict(set)

    def add(self, number: int, question: Question) -> None:
        self.missing[number] = question
        for answer in () if self._regex else question.answers:
            if tokens := split_words(answer):
                # A passage with the answer contains its longest token, which is probably the rarest.
                self._by_token[max(tokens, key=len)].add(number)

    def mark_seen(self, text: str) -> None:
        candidates = list(self.missing)
        if candidates and not self._regex:
            tokens = self._by_token.keys() & set(split_words(text))
            candidates = [number for token in tokens for number in self._by_token[token]]
        for number in candidates:
            if number in self.missing and has_answer(text, self.missing[number].answers, regex=self._regex):
                del self.missing[number]
