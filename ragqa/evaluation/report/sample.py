"""Sample of the questions that a report's page shows: a few of every kind, independent of their position."""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Generic, TypeVar

from ragqa.evaluation.compare import Comparison
from ragqa.evaluation.coverage import Missing
from ragqa.evaluation.figures import is_reading
from ragqa.evaluation.report.store import Report
from ragqa.evaluation.rows import Excerpt, Row
from ragqa.evaluation.tally import find_loss
from ragqa.matching.patterns import compile_pattern

SIZE = 20
"""Number of questions shown of a group."""
_CONTEXT = 700
"""Characters of a passage shown on either side of a mark, and length up to which it is marked."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Piece:
    """A piece of a passage: part of the predicted answer, of a gold answer, of both or of neither."""

    text: str
    is_predicted: bool = False
    is_gold: bool = False


@dataclass(frozen=True)
class SampledQuestion:
    """A question on the page: its row, and its passages in pieces."""

    row: Row
    cited: tuple[Piece, ...]
    holding: tuple[Piece, ...]


@dataclass(frozen=True)
class Group(Generic[Item]):
    """A group of questions: their number, and the sample that is shown."""

    name: str
    count: int
    shown: list[Item]

    @property
    def anchor(self) -> str:
        """Anchor of the group in the page."""
        return "group-" + self.name.replace(" ", "-")


class Sampler(Generic[Item]):
    """Keeps the ``SIZE`` items with the smallest hashes of every group, so that position does not matter."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._samples: dict[str, list[tuple[int, int, Item]]] = defaultdict(list)

    def add(self, group: str, row: Row, item: Item) -> None:
        """Offer the item of ``row``; the same questions are chosen in every report."""
        self.counts[group] += 1
        key = f"{row.number} {row.question}".encode("utf-8", "replace")
        # The heap's smallest entry, which goes first, is the largest hash; row numbers keep items from being compared.
        entry = (-int.from_bytes(blake2b(key, digest_size=8).digest()), row.number, item)
        push = heapq.heappush if len(self._samples[group]) < SIZE else heapq.heappushpop
        push(self._samples[group], entry)

    def groups(self, order: Sequence[str]) -> list[Group[Item]]:
        """Return the groups that are not empty, each in the order of its rows."""
        return [
            Group(name, self.counts[name], [item for _, _, item in sorted(self._samples[name], key=lambda e: e[1])])
            for name in order
            if self.counts[name]
        ]


GROUPS = ("not chosen", "not read", "not retrieved", "not in the corpus", "wrong", "right", "found", "unanswerable")
"""Groups of a report in the order of the page, the most instructive first."""


def sample_questions(report: Report) -> list[Group[SampledQuestion]]:
    """Sample the questions of a report by the stage at which their answers were lost, reading the rows once."""
    missing = report.missing()
    sampler: Sampler[Row] = Sampler()
    regex, read, hits = is_regex(report), is_read(report), _has_passages(report)
    for row in report.rows():
        sampler.add(_group(row, missing, read, hits), row, row)
    return [
        Group(group.name, group.count, [mark_row(row, regex) for row in group.shown])
        for group in sampler.groups(GROUPS)
    ]


def _group(row: Row, missing: Missing | None, read: bool, hits: bool) -> str:
    if not row.answers:
        return "unanswerable"
    if not hits:
        return "right" if row.em else "wrong"
    if read:
        return find_loss(row, missing)
    if row.rank is not None:
        return "found"
    return "not in the corpus" if missing is not None and row.number in missing.answers else "not retrieved"


def is_regex(report: Report) -> bool:
    """Return whether gold answers are patterns."""
    return bool(report.figures["about"]["rule"] == "regex")


def is_read(report: Report) -> bool:
    """Return whether questions were answered, instead of only retrieving passages."""
    return is_reading(report.figures["about"])


def _has_passages(report: Report) -> bool:
    """Return whether there are hits, which predictions of another system may lack."""
    return report.figures["coverage_bound"] is not None


PAIR_GROUPS = {(True, False): "only a", (False, True): "only b", (False, False): "neither", (True, True): "both"}
"""Groups by outcome in two reports: a right answer, or a hit with one if either scores retrieval alone."""


def sample_pairs(comparison: Comparison) -> list[Group[tuple[SampledQuestion, SampledQuestion]]]:
    """Sample the questions of two reports by which of the two succeeded."""
    read, depth = comparison.figures["right"] is not None, common_depth(comparison)
    sampler: Sampler[tuple[Row, Row]] = Sampler()
    for a, b in comparison.pairs():
        outcomes = _succeeds(a, read, depth), _succeeds(b, read, depth)
        sampler.add(PAIR_GROUPS[outcomes] if a.answers else "unanswerable", a, (a, b))
    regex = is_regex(comparison.a)
    return [
        Group(group.name, group.count, [(mark_row(a, regex), mark_row(b, regex)) for a, b in group.shown])
        for group in sampler.groups((*PAIR_GROUPS.values(), "unanswerable"))
    ]


def common_depth(comparison: Comparison) -> int:
    """Return the largest depth at which the hits of both reports were searched for answers."""
    return max(map(int, comparison.figures["answer_recall"]), default=0)


def _succeeds(row: Row, read: bool, depth: int) -> bool:
    return row.em if read else row.rank is not None and row.rank <= depth


def mark_row(row: Row, regex: bool) -> SampledQuestion:
    """Return a row with its passages cut and marked."""
    cited, holding = (_split_excerpt(excerpt, row.answers, regex) for excerpt in (row.cited, row.holding))
    return SampledQuestion(row, cited, holding)


def _split_excerpt(excerpt: Excerpt | None, answers: Sequence[str], regex: bool) -> tuple[Piece, ...]:
    """Return the passage around the predicted answer, or around the gold answer if none was predicted in it."""
    if excerpt is None:
        return ()
    text = excerpt.text
    predicted = _clip(excerpt.start, excerpt.end, len(text))
    gold = _find_gold(text, answers, regex)
    first, last = predicted if any(predicted) else gold
    low = max(0, first - _CONTEXT)
    high = min(len(text), max(low, min(last, first + _CONTEXT)) + _CONTEXT)  # a pattern may match all of it
    cuts = sorted({low, high, *(min(max(place, low), high) for place in (*predicted, *gold))})
    pieces = [
        Piece(text[start:end], predicted[0] <= start < predicted[1], gold[0] <= start < gold[1])
        for start, end in pairwise(cuts)
    ]
    return (*[Piece("… ")] * (low > 0), *pieces, *[Piece(" …")] * (high < len(text)))


def _clip(start: int | None, end: int | None, length: int) -> tuple[int, int]:
    return (0, 0) if start is None or end is None else (min(max(start, 0), length), min(max(end, 0), length))


def _find_gold(text: str, answers: Sequence[str], regex: bool) -> tuple[int, int]:
    """Return the longest gold answer that stands in the text, ignoring case and white space, or 0, 0."""
    patterns = (compile_pattern(answer if regex else _literal_pattern(answer)) for answer in answers)
    matches = (pattern.search(text) for pattern in patterns if pattern)
    return max((match.span() for match in matches if match), key=lambda span: span[1] - span[0], default=(0, 0))


def _literal_pattern(answer: str) -> str:
    return r"(?<!\w)" + r"\s+".join(map(re.escape, answer.split())) + r"(?!\w)"
