"""What a corpus holds of a question set: answers, gold passages, gold documents.

What it does not hold no retriever can find, so scores are read beside it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragqa.corpus.store import PassageStore
from ragqa.evaluation.rows import Row, text_digest
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Progress
from ragqa.text import split_words
from ragqa.types import Passage

_BATCH = 1000


@dataclass(frozen=True)
class Missing:
    """Numbers of the questions of which the corpus lacks something."""

    answers: frozenset[int]
    """No passage holds one of their answers (``metrics.has_answer``), and they were not answered rightly either."""
    passages: frozenset[int]
    """None of their gold passages is a passage of the corpus."""
    documents: frozenset[int]
    """No passage is from one of their gold documents."""

    def to_json(self) -> dict[str, list[int]]:
        """Sorted lists."""
        return {name: sorted(numbers) for name, numbers in asdict(self).items()}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Missing":
        """What ``to_json`` gave."""
        return cls(*(frozenset(row[name]) for name in ("answers", "passages", "documents")))


def find_missing(
    passages: PassageStore, rows: Iterable[Row], *, regex: bool = False, progress: Progress = SILENT
) -> Missing:
    """Look for what the hits of ``rows`` lack in the whole corpus, reading every passage once.

    In memory are numbers, answers and names of the questions that lack something. Patterns cost a search each in
    every passage until they are found.
    """
    answers, texts, documents = _Answers(regex), _Wanted(), _Wanted()
    for row in rows:
        if row.answers and row.rank is None and row.loss not in ("right", "not chosen"):
            answers.want(row.number, row.answers)
        if row.passages and row.passage_rank is None:
            texts.want(row.number, row.passages)
        if row.documents and row.document_rank is None:
            documents.want(row.number, row.documents)
    if answers.missing or texts.missing or documents.missing:
        with progress.step("looking through the corpus", len(passages), "passages") as step:
            for batch in passages.iter_batches(size=_BATCH):
                for passage in batch:
                    answers.see(passage)
                    if texts.missing:
                        texts.see([text_digest(passage.text)])
                    if documents.missing:
                        documents.see(_names(passage.document))
                step.advance_to(batch[-1].id + 1)
    return Missing(frozenset(answers.missing), frozenset(texts.missing), frozenset(documents.missing))


def _names(document: str) -> list[str]:
    """The id of a document and all ends of its path, by which a question may name it."""
    parts = document.split("/")
    return ["/".join(parts[n:]) for n in range(len(parts))]


class _Wanted:
    """Questions by what would do for them, until it is seen."""

    def __init__(self) -> None:
        self.missing: set[int] = set()
        self._questions: dict[str, set[int]] = {}

    def want(self, number: int, names: Iterable[str]) -> None:
        self.missing.add(number)
        for name in names:
            self._questions.setdefault(name, set()).add(number)

    def see(self, names: Iterable[str]) -> None:
        for name in names:
            self.missing -= self._questions.pop(name, set())


class _Answers:
    """Questions by their answers, until a passage holds one."""

    def __init__(self, regex: bool) -> None:
        self.missing: dict[int, tuple[str, ...]] = {}
        self._regex = regex
        self._by_token: dict[str, set[int]] = {}

    def want(self, number: int, answers: tuple[str, ...]) -> None:
        self.missing[number] = answers
        for answer in () if self._regex else answers:
            if tokens := split_words(answer):  # a passage must have the longest, likely the rarest, to hold the answer
                self._by_token.setdefault(max(tokens, key=len), set()).add(number)

    def see(self, passage: Passage) -> None:
        for number in self._near(passage):
            if number in self.missing and has_answer(passage.text, self.missing[number], regex=self._regex):
                del self.missing[number]

    def _near(self, passage: Passage) -> list[int]:
        """Questions one of whose answers the passage may hold."""
        if self._regex or not self.missing:
            return list(self.missing)
        tokens = self._by_token.keys() & set(split_words(passage.text))
        return [number for token in tokens for number in self._by_token[token]]
