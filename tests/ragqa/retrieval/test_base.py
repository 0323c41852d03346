"""Rankings: selection of the best scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragqa.retrieval.base import select_best


@given(scores=st.lists(st.integers(0, 3), min_size=1, max_size=40), k=st.integers(1, 50))
def test_select_best_returns_what_sorting_returns(scores: list[int], k: int) -> None:
    rows = np.random.default_rng(0).permutation(len(scores))
    expected = sorted(zip(rows.tolist(), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))[:k]
    found = select_best(rows, scores, k)
    assert list(zip(found.rows.tolist(), found.scores.tolist(), strict=True)) == expected
