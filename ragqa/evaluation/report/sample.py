"""Samples of questions from the groups of a report or a comparison, for its page."""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from operator import itemgetter
from typing import Any, Generic, TypeVar

from ragqa.errors import SlowPattern
from ragqa.evaluation.compare import OUTCOMES, Comparison
from ragqa.evaluation.figures import is_reading
from ragqa.evaluation.report.store import Report
from ragqa.evaluation.rows import Excerpt, Row
from ragqa.evaluation.tally import find_loss
from ragqa.matching.patterns import Pattern, compile_pattern

SIZE = 20
"""Maximum number of questions shown for each group."""
_CONTEXT = 700
"""Maximum length in characters of a marked answer, of the text before it, and of the text after it."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Piece:
    """Piece of a passage, inside or outside the predicted answer and a gold answer."""

    text: str
    is_predicted: bool = False
    is_gold: bool = False


@dataclass(frozen=True)
class SampledQuestion:
    """Question on the page: its row, and its passages in pieces."""

    row: Row
    cited: tuple[Piece, ...]
    """Passage cited for the prediction; empty if no passage is cited."""
    holding: tuple[Piece, ...]
    """First hit that contains a gold answer; empty if no hit does, or if it is the cited passage."""


@dataclass(frozen=True)
class Group(Generic[Item]):
    """Group of questions, with a sample for the page."""

    name: str
    count: int
    """Number of questions in the group."""
    shown: list[Item]
    """Sample of the questions."""

    @property
    def anchor(self) -> str:
        """HTML id of the group on the page."""
        return "group-" + self.name.replace(" ", "-")


def sample_groups(items: Iterable[tuple[str, Row, Item]], order: Sequence[str]) -> list[Group[Item]]:
    """Sample up to ``SIZE`` items of each group, by a hash of the question and its number.

    The hash gives two reports with the same questions in a group the same sample.

    Args:
        items: for each question, the name of its group, its row and its item.
        order: names of the groups in the order of the result.

    Returns:
        The groups that have questions, with items in the order of their rows.
    """
    counts: Counter[str] = Counter()
    samples: defaultdict[str, list[tuple[int, int, Item]]] = defaultdict(list)
    for group, row, item in items:
        counts[group] += 1
        key = f"{row.number} {row.question}".encode("utf-8", "replace")
        # A heap drops its smallest entry first, so hashes are negated. Row numbers keep items from being compared.
        entry = (-int.from_bytes(blake2b(key, digest_size=8).digest()), row.number, item)
        push = heapq.heappush if len(samples[group]) < SIZE else heapq.heappushpop
        push(samples[group], entry)
    return [
        Group(name, counts[name], [item for _, _, item in sorted(samples[name], key=itemgetter(1))])
        for name in order
        if counts[name]
    ]


GROUPS = ("not chosen", "not read", "not retrieved", "not in the corpus", "wrong", "right", "found", "unanswerable")
"""Names of the groups of a report in the order of the page, the most instructive first."""


def sample_questions(report: Report) -> list[Group[SampledQuestion]]:
    """Sample the questions of a report, grouped by outcome.

    Raises:
        DamagedArtefact: a line of the rows is not a row.
    """
    missing, regex, has_answers = report.missing(), is_regex(report), is_read(report)
    has_passages = report.figures["coverage_bound"] is not None  # predictions of another system can be without passages

    def name_group(row: Row) -> str:
        if not row.answers:
            return "unanswerable"
        if not has_passages:
            return "right" if row.em else "wrong"
        if has_answers:
            return find_loss(row, missing)
        if row.rank is not None:
            return "found"
        return "not in the corpus" if missing is not None and row.number in missing.answers else "not retrieved"

    groups = sample_groups(((name_group(row), row, row) for row in report.rows()), GROUPS)
    return [Group(group.name, group.count, [mark_row(row, regex) for row in group.shown]) for group in groups]


def is_regex(report: Report) -> bool:
    """Return True if the gold answers of a report are patterns."""
    return bool(report.figures["about"]["rule"] == "regex")


def is_read(report: Report) -> bool:
    """Return True if the system of a report answered questions; False if it only retrieved."""
    return is_reading(report.figures["about"])


PAIR_GROUPS = ("only a", "only b", "neither", "both", "unanswerable")
"""Names of the groups of a comparison in the order of the page."""


def sample_pairs(comparison: Comparison) -> list[Group[tuple[SampledQuestion, SampledQuestion]]]:
    """Sample the questions of two reports, grouped by the systems that succeeded.

    Success is a right answer or, if a report scores only retrieval, a gold answer in the first ``find_common_depth``
    hits.

    Raises:
        Mismatch: the questions of the reports differ.
        DamagedArtefact: a line of the rows is not a row.
    """
    is_answered, depth = comparison.figures["right"] is not None, find_common_depth(comparison)

    def name_group(*rows: Row) -> str:
        if not rows[0].answers:
            return "unanswerable"
        a, b = (row.em if is_answered else row.rank is not None and row.rank <= depth for row in rows)
        return OUTCOMES[a, b]

    items = ((name_group(a, b), a, (a, b)) for a, b in comparison.pairs())
    groups, regex = sample_groups(items, PAIR_GROUPS), is_regex(comparison.a)
    return [
        Group(group.name, group.count, [(mark_row(a, regex), mark_row(b, regex)) for a, b in group.shown])
        for group in groups
    ]


def find_common_depth(comparison: Comparison) -> int:
    """Return the largest number of hits at which both reports have answer recall, or 0."""
    return max(map(int, comparison.figures["answer_recall"]), default=0)


def mark_row(row: Row, regex: bool) -> SampledQuestion:
    """Divide a row's passages into pieces; gold answers are patterns if ``regex`` is True."""
    cited, holding = (_split_excerpt(excerpt, row.answers, regex) for excerpt in (row.cited, row.holding))
    return SampledQuestion(row, cited, holding)


def _split_excerpt(excerpt: Excerpt | None, answers: Sequence[str], regex: bool) -> tuple[Piece, ...]:
    """Divide a passage into pieces around the predicted answer, or else the gold answer."""
    if excerpt is None:
        return ()
    text = excerpt.text
    predicted = _clip(excerpt.start, excerpt.end, len(text))
    gold = _find_gold(text, answers, regex)
    first, last = predicted if any(predicted) else gold
    low = max(0, first - _CONTEXT)
    high = min(len(text), max(low, min(last, first + _CONTEXT)) + _CONTEXT)  # a pattern can match the whole passage
    cuts = sorted({low, high, *(min(max(place, low), high) for place in (*predicted, *gold))})
    pieces = [
        Piece(text[start:end], predicted[0] <= start < predicted[1], gold[0] <= start < gold[1])
        for start, end in pairwise(cuts)
    ]
    return (*[Piece("… ")] * (low > 0), *pieces, *[Piece(" …")] * (high < len(text)))


def _clip(start: int | None, end: int | None, length: int) -> tuple[int, int]:
    return (0, 0) if start is None or end is None else (min(max(start, 0), length), min(max(end, 0), length))


def _find_gold(text: str, answers: Sequence[str], regex: bool) -> tuple[int, int]:
    """Return start and end of the longest gold answer in a text, ignoring case, or (0, 0)."""
    literal = (r"(?<!\w)" + r"\s+".join(map(re.escape, answer.split())) + r"(?!\w)" for answer in answers)
    if regex:
        matches = (_search(pattern, text) for pattern in map(compile_pattern, answers) if pattern)
    else:
        matches = (re.search(pattern, text, re.IGNORECASE) for pattern in literal)
    return max((match.span() for match in matches if match), key=lambda span: span[1] - span[0], default=(0, 0))


def _search(pattern: Pattern, text: str) -> Any:
    try:
        return pattern.search(text)
    except SlowPattern:  # the page then shows the passage without a mark
        return None
