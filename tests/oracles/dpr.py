"""DPR's rule for whether a passage holds an answer (Karpukhin et al. 2020), written from the rule.

No code of DPR or Pyserini was copied. Both sides are brought to NFD and cut into tokens: a longest run
of letters, numbers and marks, or any other character that is neither a separator nor a control
character. Tokens are lower-cased one by one, and the answer's must follow each other in the passage.

One difference is meant: an answer without tokens, or a blank pattern, is found nowhere (DPR finds it everywhere).
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence


def tokens(text: str) -> list[str]:
    found: list[str] = []
    inside = False  # a run of letters, numbers and marks
    for char in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(char)[0]
        if kind in "LNM" and inside:
            found[-1] += char
        elif kind not in "ZC":
            found.append(char)
        inside = kind in "LNM"
    return [token.lower() for token in found]


def has_answer(passage: str, answers: Iterable[str]) -> bool:
    text = tokens(passage)
    for answer_tokens in map(tokens, answers):
        if answer_tokens and any(text[start:][: len(answer_tokens)] == answer_tokens for start in range(len(text))):
            return True
    return False


def has_pattern(passage: str, patterns: Iterable[str]) -> bool:
    text = unicodedata.normalize("NFD", passage)
    for pattern in patterns:
        try:
            compiled = re.compile(unicodedata.normalize("NFD", pattern), re.IGNORECASE | re.UNICODE | re.MULTILINE)
        except re.error:
            continue
        if pattern.strip() and compiled.search(text):
            return True
    return False


def accuracy(passages: Sequence[Sequence[str]], answers: Sequence[Sequence[str]], k: int) -> float:
    """Return the share of the questions with an answer in one of their first ``k`` passages."""
    hits = [any(has_answer(text, gold) for text in texts[:k]) for texts, gold in zip(passages, answers, strict=True)]
    return sum(hits) / len(hits) if hits else 0.0
