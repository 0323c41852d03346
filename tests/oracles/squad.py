"""SQuAD 1.1's scores (Rajpurkar et al. 2016, section 6.1), written from the rule; no script was copied.

Normalise: lower-case, delete ASCII punctuation, replace the words a, an, the by a space, collapse
white space. A score is the best over the gold answers, and a question without a prediction has 0.
"""

import string
from collections.abc import Mapping, Sequence
from itertools import groupby


def normalise(text: str) -> str:
    letters = "".join(char for char in text.lower() if char not in string.punctuation)
    runs = ("".join(run) for _, run in groupby(letters, _is_word_character))
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def _is_word_character(char: str) -> bool:
    """Return True for a character that ``\\w`` matches; a word boundary is an end of a run of these."""
    return char.isalnum() or char == "_"


def exact_match(prediction: str, answers: Sequence[str]) -> int:
    return max(int(normalise(prediction) == normalise(answer)) for answer in answers)


def f1(prediction: str, answers: Sequence[str]) -> float:
    return max(_overlap(normalise(prediction).split(), normalise(answer).split()) for answer in answers)


def _overlap(prediction_tokens: list[str], gold: list[str]) -> float:
    unmatched = list(gold)
    for token in prediction_tokens:
        if token in unmatched:
            unmatched.remove(token)
    same = len(gold) - len(unmatched)
    if same == 0:
        return 0.0
    precision, recall = same / len(prediction_tokens), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def evaluate(golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return the mean of both scores over the questions of ``golds`` (answers by id), in per cent."""
    answered = [id_ for id_ in golds if id_ in predictions]
    return {
        "exact_match": 100 * sum(exact_match(predictions[id_], golds[id_]) for id_ in answered) / len(golds),
        "f1": 100 * sum(f1(predictions[id_], golds[id_]) for id_ in answered) / len(golds),
    }
