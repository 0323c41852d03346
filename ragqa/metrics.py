"""Scores of answers and of retrieval against what is known to be right: pure functions.

Rules: SQuAD 1.1 (Rajpurkar et al. 2016, official script), ORQA and NQ-open (Lee et al. 2019,
``orqa/utils/eval_utils.py``), DPR (Karpukhin et al. 2020, ``qa_validation.py``). Shares are in [0, 1].
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal

from ragqa.matching import patterns
from ragqa.matching.patterns import compiled
from ragqa.text import normalize_answer, words

__all__ = [
    "accuracy_at",
    "answer_recall",
    "compiled",
    "exact_match",
    "f1",
    "first_rank",
    "has_answer",
    "joined",
    "mean_reciprocal_rank",
    "nfd",
    "normalize_answer",
]

_SEPARATOR = "\x1f"
"""Stands between tokens: a control character, and so never part of one."""


def exact_match(
    prediction: str | None,
    answers: Sequence[str],
    *,
    regex: bool = False,
    unicode: Literal["NFD"] | None = "NFD",
) -> bool:
    """Whether the prediction is one of the answers; None never is.

    Args:
        prediction: as it was given.
        answers: any of them is right.
        regex: the answers are patterns, matched from the start of the raw prediction and not
            necessarily to its end, without regard to case (CuratedTREC, by ORQA's rule); one that is
            no valid pattern matches nothing.
        unicode: what happens before normalisation: ``NFD`` is the rule of ORQA, REALM and NQ-open,
            None that of SQuAD 1.1 and DPR. Patterns take no part in it.
    """
    _check(answers)
    if prediction is None:
        return False
    if regex:
        return any(p.match(prediction) is not None for answer in answers if (p := compiled(answer)))
    said = normalize_answer(prediction, unicode=unicode)
    return any(said == normalize_answer(answer, unicode=unicode) for answer in answers)


def f1(prediction: str | None, answers: Sequence[str]) -> float:
    """Best bag-of-tokens overlap with one of the answers (SQuAD 1.1, so without a Unicode step).

    An empty side gives 0, even where ``exact_match`` gives True, as in the official script.
    """
    _check(answers)
    if prediction is None:
        return 0.0
    said = normalize_answer(prediction).split()
    return max((_overlap(said, normalize_answer(answer).split()) for answer in answers), default=0.0)


def _check(answers: Sequence[str]) -> None:
    if isinstance(answers, str):  # its letters would be taken for the answers
        raise TypeError(f"answers must be a list of texts, not the text {answers!r}")


def _overlap(said: list[str], gold: list[str]) -> float:
    common = sum((Counter(said) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(said), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def has_answer(passage_text: str, answers: Sequence[str], *, regex: bool = False) -> bool:
    """Whether the text of a passage holds one of the answers (DPR's rule; the title does not count).

    The tokens of an answer must stand in the text one after the other, case and Unicode form aside.
    Articles and punctuation count. An answer without tokens is held by nothing (in DPR's code by
    everything). With ``regex`` the answers are patterns that are searched anywhere in the text.
    """
    _check(answers)
    if regex:
        text = nfd(passage_text)
        low = patterns.folded(text)
        searches = (patterns.search(nfd(answer)) for answer in answers if answer.strip())
        return any(search.finds(text, low) for search in searches if search)
    runs = [run for answer in answers if (run := _run(answer))]
    folded = _folded(passage_text)
    # Most passages lack some token of every answer: that is seen without taking them apart.
    runs = [run for run in runs if all(token in folded for token in run.folded)]
    if not runs:
        return False
    text = joined(words(passage_text))
    return any(run.joined in text for run in runs)


class _Run:
    """The tokens of an answer, as they are looked for."""

    def __init__(self, tokens: list[str]) -> None:
        self.joined = joined(tokens)
        self.folded = [_folded(token) for token in tokens]


@lru_cache(4096)
def _run(answer: str) -> _Run | None:
    tokens = words(answer)
    return _Run(tokens) if tokens else None


def joined(tokens: list[str]) -> str:
    """Tokens as one text, of which those of an answer are a part where they stand one after the other."""
    return _SEPARATOR + _SEPARATOR.join(tokens) + _SEPARATOR


def _folded(text: str) -> str:
    # How a sigma is lowered depends on its neighbours, and so on where the text is cut into tokens.
    return nfd(text).lower().replace("ς", "σ")


def nfd(text: str) -> str:
    """Unicode's canonical decomposition: letters apart from their accents.

    Of a pattern it may be none: an escaped accent is not, and CuratedTREC has a few.
    """
    return unicodedata.normalize("NFD", text)


def first_rank(marks: Iterable[bool]) -> int | None:
    """Place, counted from 1, of the first hit that is marked; None if none is."""
    return next((rank for rank, marked in enumerate(marks, 1) if marked), None)


def accuracy_at(ranks: Iterable[int | None], ks: Sequence[int]) -> dict[int, float]:
    """Share of the questions whose first right hit has a rank of at most k, for each k.

    ``ranks`` is consumed one by one; without any, every share is 0. With ranks of hits that hold an
    answer this is DPR's top-k accuracy, with ranks of the gold passage gold-passage accuracy.
    """
    within, total = dict.fromkeys(ks, 0), 0
    for rank in ranks:
        total += 1
        if rank is not None:
            for k in within:
                within[k] += rank <= k
    return {k: count / max(1, total) for k, count in within.items()}


def mean_reciprocal_rank(ranks: Iterable[int | None], *, cutoff: int | None = None) -> float:
    """Mean of 1 / rank, 0 for None and for ranks beyond ``cutoff``; without ranks 0."""
    total, count = 0.0, 0
    for rank in ranks:
        count += 1
        if rank is not None and (cutoff is None or rank <= cutoff):
            total += 1 / rank
    return total / max(1, count)


def answer_recall(
    passage_texts_per_question: Iterable[Iterable[str]],
    answers_per_question: Iterable[Sequence[str]],
    ks: Sequence[int],
    *,
    regex: bool = False,
) -> dict[int, float]:
    """Share of the questions with an answer in one of their first k passages, for each k.

    Both iterables are consumed side by side, so that any number of questions fits.

    Raises:
        ValueError: they are of unequal length.
    """
    pairs = zip(passage_texts_per_question, answers_per_question, strict=True)
    deepest = max(0, *ks, 0)
    return accuracy_at(
        (
            first_rank(has_answer(text, answers, regex=regex) for text in islice(texts, deepest))
            for texts, answers in pairs
        ),
        ks,
    )
