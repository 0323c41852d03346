"""The questions that a report's page shows: a few of every kind, chosen without regard to where they stand."""

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
from ragqa.evaluation.figures import reads
from ragqa.evaluation.report.store import Report
from ragqa.evaluation.rows import Excerpt, Row
from ragqa.evaluation.tally import loss_of
from ragqa.metrics import compile_pattern

SIZE = 20
"""Questions shown of a group."""
_CONTEXT = 700
"""Characters of a passage shown on either side of what is marked in it, and at most marked."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Piece:
    """Part of a passage: of the predicted answer, of a gold answer, of both or of neither."""

    text: str
    said: bool = False
    gold: bool = False


@dataclass(frozen=True)
class Shown:
    """A question as it is shown: its row, and its passages in pieces."""

    row: Row
    cited: tuple[Piece, ...]
    holding: tuple[Piece, ...]


@dataclass(frozen=True)
class Group(Generic[Item]):
    """Questions of a kind: how many there are, and those that are shown."""

    name: str
    count: int
    shown: list[Item]

    @property
    def anchor(self) -> str:
        """Its place in the page."""
        return "group-" + self.name.replace(" ", "-")


class Sampler(Generic[Item]):
    """Keeps ``SIZE`` items of every group: those with the smallest hashes, so that none is preferred by its place."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kept: dict[str, list[tuple[int, int, Item]]] = defaultdict(list)

    def add(self, group: str, row: Row, item: Item) -> None:
        """Offer the item of ``row``; equal questions fall alike in every report."""
        self.counts[group] += 1
        named = f"{row.number} {row.question}".encode("utf-8", "replace")
        # The heap's smallest entry, which goes first, is the largest hash; row numbers keep items from being compared.
        entry = (-int.from_bytes(blake2b(named, digest_size=8).digest()), row.number, item)
        kept = self._kept[group]
        if len(kept) < SIZE:
            heapq.heappush(kept, entry)
        else:
            heapq.heappushpop(kept, entry)

    def groups(self, order: Sequence[str]) -> list[Group[Item]]:
        """The groups that are not empty, each in the order of its rows."""
        return [
            Group(name, self.counts[name], [item for _, _, item in sorted(self._kept[name], key=lambda e: e[1])])
            for name in order
            if self.counts[name]
        ]


LOST = ("not chosen", "not read", "not retrieved", "not in the corpus", "wrong", "right", "found", "unanswerable")
"""Groups of one report, in the order of the page: what can be learnt from first."""


def sample(report: Report) -> list[Group[Shown]]:
    """Questions of a report by where their answers were lost; reads the rows once."""
    missing = report.missing()
    sampler: Sampler[Row] = Sampler()
    regex, read, hits = is_regex(report), is_read(report), _has_passages(report)
    for row in report.rows():
        sampler.add(_group(row, missing, read, hits), row, row)
    return [
        Group(group.name, group.count, [shown(row, regex) for row in group.shown]) for group in sampler.groups(LOST)
    ]


def _group(row: Row, missing: Missing | None, read: bool, hits: bool) -> str:
    if not row.answers:
        return "unanswerable"
    if not hits:
        return "right" if row.em else "wrong"
    if read:
        return loss_of(row, missing)
    if row.rank is not None:
        return "found"
    return "not in the corpus" if missing is not None and row.number in missing.answers else "not retrieved"


def is_regex(report: Report) -> bool:
    """Whether gold answers are patterns."""
    return bool(report.figures["about"]["rule"] == "regex")


def is_read(report: Report) -> bool:
    """Whether questions were answered, and not only passages retrieved."""
    return reads(report.figures["about"])


def _has_passages(report: Report) -> bool:
    """Whether there were hits at all: predictions of another system may come without."""
    return report.figures["coverage_bound"] is not None


PAIRED = {(True, False): "only a", (False, True): "only b", (False, False): "neither", (True, True): "both"}
"""Groups of two reports, by which of them is right, or found an answer where one of them was not read."""


def sample_pairs(comparison: Comparison) -> list[Group[tuple[Shown, Shown]]]:
    """Questions of two reports by which of them does well."""
    read, depth = comparison.figures["right"] is not None, common_depth(comparison)
    sampler: Sampler[tuple[Row, Row]] = Sampler()
    for a, b in comparison.pairs():
        does_well = _well(a, read, depth), _well(b, read, depth)
        sampler.add(PAIRED[does_well] if a.answers else "unanswerable", a, (a, b))
    regex = is_regex(comparison.a)
    return [
        Group(group.name, group.count, [(shown(a, regex), shown(b, regex)) for a, b in group.shown])
        for group in sampler.groups((*PAIRED.values(), "unanswerable"))
    ]


def common_depth(comparison: Comparison) -> int:
    """The deepest place that both looked for answers at."""
    return max(map(int, comparison.figures["answer_recall"]), default=0)


def _well(row: Row, read: bool, depth: int) -> bool:
    return row.em if read else row.rank is not None and row.rank <= depth


def shown(row: Row, regex: bool) -> Shown:
    """A row with its passages cut and marked."""
    cited, holding = (_pieces(excerpt, row.answers, regex) for excerpt in (row.cited, row.holding))
    return Shown(row, cited, holding)


def _pieces(excerpt: Excerpt | None, answers: Sequence[str], regex: bool) -> tuple[Piece, ...]:
    """The passage around the predicted answer, or the gold answer where none was predicted in it."""
    if excerpt is None:
        return ()
    text = excerpt.text
    said = _clipped(excerpt.start, excerpt.end, len(text))
    gold = _gold(text, answers, regex)
    first, last = said if any(said) else gold
    low = max(0, first - _CONTEXT)
    high = min(len(text), max(low, min(last, first + _CONTEXT)) + _CONTEXT)  # a pattern may match all of it
    cuts = sorted({low, high, *(min(max(place, low), high) for place in (*said, *gold))})
    pieces = [
        Piece(text[start:end], said[0] <= start < said[1], gold[0] <= start < gold[1]) for start, end in pairwise(cuts)
    ]
    return (*[Piece("… ")] * (low > 0), *pieces, *[Piece(" …")] * (high < len(text)))


def _clipped(start: int | None, end: int | None, length: int) -> tuple[int, int]:
    return (0, 0) if start is None or end is None else (min(max(start, 0), length), min(max(end, 0), length))


def _gold(text: str, answers: Sequence[str], regex: bool) -> tuple[int, int]:
    """The longest gold answer that stands in the text letter for letter, case and white space aside; else 0, 0."""
    patterns = (compile_pattern(answer if regex else _literal(answer)) for answer in answers)
    matches = (pattern.search(text) for pattern in patterns if pattern)
    return max((match.span() for match in matches if match), key=lambda span: span[1] - span[0], default=(0, 0))


def _literal(answer: str) -> str:
    return r"(?<!\w)" + r"\s+".join(map(re.escape, answer.split())) + r"(?!\w)"
