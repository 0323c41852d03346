"""Which questions a corpus can answer at all: those with an answer in the text of any passage."""

from collections.abc import Sequence

from ragqa.corpus.store import PassageStore
from ragqa.metrics import has_answer
from ragqa.progress import SILENT, Progress
from ragqa.text import words
from ragqa.types import Passage

_BATCH = 1000
Wanted = Sequence[tuple[int, tuple[str, ...]]]
"""Numbers of questions, and their answers."""


def not_in_corpus(
    passages: PassageStore, wanted: Wanted, *, regex: bool = False, progress: Progress = SILENT
) -> set[int]:
    """The numbers of the questions none of whose answers any passage holds (``metrics.has_answer``).

    Reads every passage once, and stops where all are found. Patterns cost a search each in every passage.
    """
    missing = dict(wanted)
    if not missing:
        return set()
    rarest = {} if regex else _by_rarest_token(wanted)
    with progress.step("looking for the answers in the corpus", len(passages), "passages") as step:
        for batch in passages.batches(size=_BATCH):
            for passage in batch:
                near = missing if regex else _candidates(passage, rarest)
                found = [n for n in near if n in missing and has_answer(passage.text, missing[n], regex=regex)]
                for number in found:
                    del missing[number]
            step.at(batch[-1].id + 1)
            if not missing:
                break
    return set(missing)


def _by_rarest_token(wanted: Wanted) -> dict[str, set[int]]:
    """Questions by a token that a passage must have to hold one of their answers: the longest, as likely the rarest."""
    questions: dict[str, set[int]] = {}
    for number, answers in wanted:
        for answer in answers:
            if tokens := words(answer):
                questions.setdefault(max(tokens, key=len), set()).add(number)
    return questions


def _candidates(passage: Passage, by_token: dict[str, set[int]]) -> set[int]:
    """Questions one of whose answers the passage may hold."""
    return set().union(*(by_token[token] for token in by_token.keys() & set(words(passage.text))))
