"""Metrics of answers and of retrieval, as pure functions; shares are in [0, 1].

Sources of the rules: SQuAD 1.1 (Rajpurkar et al. 2016, official script), ORQA and NQ-open (Lee et al. 2019,
``orqa/utils/eval_utils.py``), and DPR (Karpukhin et al. 2020, ``qa_validation.py``).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal

from ragqa.matching.patterns import compile_pattern, compile_search, fold_case
from ragqa.text import join_tokens, split_words, to_nfd
from ragqa.text import normalize_answer as normalize_answer  # part of the public interface


def exact_match(
    prediction: str | None,
    answers: Sequence[str],
    *,
    regex: bool = False,
    unicode: Literal["NFD"] | None = "NFD",
) -> bool:
    """Return True if the prediction equals a gold answer after ``normalize_answer``.

    Args:
        prediction: answer of the system; None, for a declined question, is never right.
        answers: gold answers, any of which is right.
        regex: True if the answers are patterns (CuratedTREC, by ORQA's rule). A pattern must match the start of the
            prediction, which is not normalised; case is ignored. An invalid pattern matches nothing.
        unicode: Unicode form before normalisation: ``NFD`` as in ORQA, REALM and NQ-open, None for an unchanged form as
            in SQuAD 1.1 and DPR. It does not affect patterns.

    Raises:
        TypeError: ``answers`` is a text instead of a list.
        SlowPattern: a pattern takes too long.
    """
    _check_answers(answers)
    if prediction is None:
        return False
    if regex:
        return any(p.match(prediction) is not None for answer in answers if (p := compile_pattern(answer)))
    normalized = normalize_answer(prediction, unicode=unicode)
    return any(normalized == normalize_answer(answer, unicode=unicode) for answer in answers)


def f1(prediction: str | None, answers: Sequence[str]) -> float:
    """Return the highest token F1, in [0, 1], of a prediction and any gold answer (SQuAD 1.1).

    As in the official script, the Unicode form does not change, and F1 is 0 if the normalised prediction or answer is
    empty, even if ``exact_match`` is True.

    Args:
        prediction: answer of the system; for None, a declined question, F1 is 0.
        answers: gold answers, any of which is right.

    Raises:
        TypeError: ``answers`` is a text instead of a list.
    """
    _check_answers(answers)
    if prediction is None:
        return 0.0
    tokens = normalize_answer(prediction).split()
    return max((_token_f1(tokens, normalize_answer(answer).split()) for answer in answers), default=0.0)


def _check_answers(answers: Sequence[str]) -> None:
    if isinstance(answers, str):  # otherwise each letter would count as an answer
        raise TypeError(f"answers must be a list of texts, not the text {answers!r}")


def _token_f1(predicted: list[str], gold: list[str]) -> float:
    common = sum((Counter(predicted) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def has_answer(passage_text: str, answers: Sequence[str], *, regex: bool = False) -> bool:
    """Return True if a passage contains a gold answer (DPR's rule).

    The text must contain the tokens of an answer in a row. Case and Unicode form do not matter, but articles and
    punctuation do. No passage contains an answer without tokens (in DPR's code, every passage does).

    Args:
        passage_text: text of the passage, without its title.
        answers: gold answers.
        regex: True if the answers are patterns, which can match anywhere in the text.

    Raises:
        TypeError: ``answers`` is a text instead of a list.
        SlowPattern: a pattern takes too long.
    """
    _check_answers(answers)
    if regex:
        text = to_nfd(passage_text)
        folded = fold_case(text)
        searches = (compile_search(to_nfd(answer)) for answer in answers if answer.strip())
        return any(search.matches(text, folded) for search in searches if search)
    folded = _fold(passage_text)
    # Most passages lack a token of every answer. A substring search shows this faster than tokenization.
    possible = [
        joined for joined, tokens in map(_split_answer, answers) if tokens and all(token in folded for token in tokens)
    ]
    if not possible:
        return False
    text = join_tokens(split_words(passage_text))
    return any(joined in text for joined in possible)


@lru_cache(4096)
def _split_answer(answer: str) -> tuple[str, list[str]]:
    tokens = split_words(answer)
    return join_tokens(tokens), [_fold(token) for token in tokens]


def _fold(text: str) -> str:
    # The lower case of a capital sigma depends on its neighbours, so it can differ between a text and its tokens.
    return to_nfd(text).lower().replace("ς", "σ")


def first_rank(marks: Iterable[bool]) -> int | None:
    """Return the rank, from 1, of the first right hit; None if there is none.

    Args:
        marks: for each hit in order, True if it is right.
    """
    return next((rank for rank, marked in enumerate(marks, 1) if marked), None)


def accuracy_at(ranks: Iterable[int | None], ks: Sequence[int]) -> dict[int, float]:
    """Return, for each k, the share of questions whose first right hit has a rank of at most k.

    If the hits with an answer count as right, this is DPR's top-k accuracy.

    Args:
        ranks: rank of the first right hit of each question, from 1; None if there is none.
        ks: numbers of hits.

    Returns:
        Share of the questions for each k; 0 if there are no questions.
    """
    within, total = dict.fromkeys(ks, 0), 0
    for rank in ranks:
        total += 1
        if rank is not None:
            for k in within:
                within[k] += rank <= k
    return {k: count / max(1, total) for k, count in within.items()}


def mean_reciprocal_rank(ranks: Iterable[int | None], *, cutoff: int | None = None) -> float:
    """Return the mean of 1 / rank over questions; 0 if there are no questions.

    Args:
        ranks: rank of the first right hit of each question, from 1; None if there is none, which adds 0.
        cutoff: last rank that counts; later ranks add 0. By default all ranks count.
    """
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
    """Return, for each k, the share of questions with an answer in their first k passages.

    Both iterables are read question by question, so memory does not limit the number of questions.

    Args:
        passage_texts_per_question: texts of the passages of each question, best first.
        answers_per_question: gold answers of each question.
        ks: numbers of passages.
        regex: True if the answers are patterns, as for ``has_answer``.

    Returns:
        Share of the questions for each k; 0 if there are no questions.

    Raises:
        ValueError: the two iterables differ in length.
        TypeError: the answers of a question are a text instead of a list.
        SlowPattern: a pattern takes too long.
    """
    pairs = zip(passage_texts_per_question, answers_per_question, strict=True)
    depth = max(ks, default=0)
    return accuracy_at(
        (
            first_rank(has_answer(text, answers, regex=regex) for text in islice(texts, depth))
            for texts, answers in pairs
        ),
        ks,
    )
