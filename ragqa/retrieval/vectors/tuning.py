"""How hard an index has to search for a wanted recall: found on a sample of queries when it is built.

Shapes: N passages, B queries, D width.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa.retrieval.base import Rows
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_index import Effort, FaissIndex
from ragqa.retrieval.vectors.kinds import SPECS
from ragqa.retrieval.vectors.store import Queries, Vectors, forget, gathered

RECALL = 0.95
"""Of the 20 best, where nobody says otherwise."""
K = 20
PROBES = 400
"""Queries that are made up where nobody gives any."""
_COSINE = 0.45
"""Between a made-up query and its passage."""
_SCORED_AGAIN = 70
"""What a candidate costs, in codes of a list that are looked through: 110 of a single question, 50 of a batch."""
_SURE = 1.64
"""Standard errors that the mean recall must be above the wanted one: so it holds for other questions 19 times in 20."""
_FEW, _SPREAD = 100, 0.1
"""Below so many questions, the standard deviation that recall is taken to have at least: it had 0.07 to 0.1."""
_WIDEST_WALK = 4096


@dataclass(frozen=True)
class Tuned:
    """The cheapest effort that reached the wanted recall, or the one that came nearest."""

    effort: Effort
    recall: float
    """Recall@20 against exact search, mean over the sample."""
    wanted: float
    queries: int
    made_up: bool
    """The queries were made of passages: nobody gave any."""
    sure: bool
    """The wanted recall is passed with 95 % confidence; else no effort is known to be enough."""

    def as_dict(self) -> dict[str, Any]:
        """For a manifest."""
        return {**asdict(self.effort), **{name: value for name, value in vars(self).items() if name != "effort"}}


def tune(
    index: FaissIndex,
    vectors_ND: Vectors,
    kind: str,
    *,
    wanted: float,
    queries_BD: np.ndarray | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Tuned:
    """The effort with which ``index`` finds the share ``wanted`` of the 20 best of ``vectors_ND``.

    Args:
        index: over all of ``vectors_ND``; its vectors may be coarser.
        vectors_ND: what recall is measured against.
        kind: of the index.
        wanted: mean recall@20, to be passed with 95 % confidence.
        queries_BD: sample of real questions; None makes some up.
        progress: told a number that is near N when the work is.
    """
    made_up = queries_BD is None
    queries = probes(vectors_ND) if queries_BD is None else np.ascontiguousarray(queries_BD, np.float32)
    if not len(vectors_ND) or not len(queries):
        return Tuned(Effort(factor=SPECS[kind].factors[0]), 1.0, wanted, 0, made_up, True)
    truth = [found.rows for found in ExactIndex(vectors_ND, keep=False).search(queries, K)]
    tried = _tried(index, vectors_ND, kind, queries, truth, wanted, progress)
    if enough := [each for each in tried if each.sure]:
        best = min(enough, key=lambda each: each.cost)
        best = _less(best, index, queries, truth, wanted) or best
    else:
        best = max(tried, key=lambda each: each.recall)
    progress(len(vectors_ND))
    return Tuned(best.effort, round(best.recall, 4), wanted, len(queries), made_up, best.sure)


@dataclass(frozen=True)
class _Tried:
    effort: Effort
    cost: float
    recall: float
    sure: bool


def _tried(
    index: FaissIndex,
    vectors_ND: Vectors,
    kind: str,
    queries_BD: Queries,
    truth: list[Rows],
    wanted: float,
    progress: Callable[[int], None],
) -> list[_Tried]:
    """Efforts, cheapest first, until none that follows can be cheaper than one that is enough."""
    count, tried = len(vectors_ND), list[_Tried]()
    efforts = _reaches(kind, index.lists)
    for number, reach in enumerate(efforts):
        progress(number * count // len(efforts))
        least = cost(kind, Effort(reach, SPECS[kind].factors[0]), count, index.lists)
        if any(each.sure and each.cost <= least for each in tried):
            break
        for effort, recalls in _recalls(index, queries_BD, truth, reach, SPECS[kind].factors):
            mean, sure = float(recalls.mean()), _is_sure(recalls, wanted)
            tried.append(_Tried(effort, cost(kind, effort, count, index.lists), mean, sure))
        forget(vectors_ND)
        forget(index.vectors)
    return tried


def _less(enough: _Tried, index: FaissIndex, queries_BD: Queries, truth: list[Rows], wanted: float) -> _Tried | None:
    """Half a step less of reach, where that is enough, too."""
    reach, factor = round(enough.effort.reach / 2**0.25), enough.effort.factor
    ((effort, recalls),) = _recalls(index, queries_BD, truth, max(1, reach), (factor,))
    return _Tried(effort, enough.cost, float(recalls.mean()), True) if _is_sure(recalls, wanted) else None


def _is_sure(recalls: npt.NDArray[np.floating], wanted: float) -> bool:
    return bool(recalls.mean() - _SURE * _doubt(recalls, wanted) >= wanted)


def _doubt(recalls: npt.NDArray[np.floating], wanted: float) -> float:
    """Standard error of the mean; a few questions may happen to agree, so they are taken to vary as many do."""
    least = _SPREAD if len(recalls) < _FEW else math.sqrt(wanted * (1 - wanted) / K)
    return max(float(recalls.std()), least) / math.sqrt(len(recalls))


def cost(kind: str, effort: Effort, count: int, lists: int) -> float:
    """What a search of ``count`` vectors costs, in codes that are looked through."""
    scanned = effort.reach if SPECS[kind].is_graph else effort.reach * count / lists
    return scanned + effort.factor * K * _SCORED_AGAIN


def _reaches(kind: str, lists: int) -> list[int]:
    """Efforts to try: each 1.4 times the one before, the last as far as there is."""
    first, last = (32, _WIDEST_WALK) if SPECS[kind].is_graph else (1, lists)
    steps = [round(first * 2 ** (n / 2)) for n in range(2 * math.ceil(math.log2(last / first)) + 1)]
    return sorted({min(step, last) for step in (*steps, last)})


def _recalls(
    index: FaissIndex, queries_BD: Queries, truth: list[Rows], reach: int, factors: tuple[int, ...]
) -> Iterator[tuple[Effort, npt.NDArray[np.floating]]]:
    """Recall [B] for each factor: one search serves all, since the candidates of fewer are the first ones of more."""
    searcher = index.with_effort(Effort(reach, factors[-1]))
    candidates = searcher.propose(queries_BD, K * factors[-1])
    for factor in factors:
        found = searcher.rankings(queries_BD, [rows[: K * factor] for rows in candidates], K)
        shares = [len(np.intersect1d(a.rows, b)) / len(b) for a, b in zip(found, truth, strict=True)]
        yield Effort(reach, factor), np.array(shares)


def probes(vectors_ND: Vectors) -> Queries:
    """Passages with so much noise of the passages' own covariance that they are as hard to find as for questions.

    At 165,871 blocks of Wikipedia, 128 of 1,600 lists hold 0.958 of the 20 best for questions of NQ, 0.96 for
    these; white noise would be far too easy (0.98).
    """
    rng = np.random.default_rng(1)
    count = len(vectors_ND)
    if not count:
        return np.empty((0, vectors_ND.shape[1]), np.float32)
    passages = gathered(vectors_ND, np.sort(rng.integers(count, size=PROBES)))
    sample = gathered(vectors_ND, np.sort(rng.choice(count, min(count, 2000), replace=False)))
    noise = rng.standard_normal((PROBES, len(sample)), np.float32) @ (sample - sample.mean(axis=0))
    size = np.linalg.norm(noise, axis=1, keepdims=True)
    size[size < 1e-6] = np.inf  # all passages are alike
    noise *= np.linalg.norm(passages, axis=1, keepdims=True) / size
    return _COSINE * passages + math.sqrt(1 - _COSINE**2) * noise
