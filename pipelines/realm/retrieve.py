"""Retrieval in pretraining: the passages of a masked text, without those that give the answer away.

Legend: B texts of a batch, K passages of a text, D width.
"""

from collections.abc import Callable, Sequence

import numpy as np

from pipelines.common.masked_text import NULL, MaskedText
from pipelines.common.tokenized_passages import TokenizedPassages
from ragqa.errors import BadInput
from ragqa.retrieval.vectors.mips import Mips

SPARE = 4
"""Passages of a text that are searched beyond those wanted, because trivial ones are dropped."""
_SHORT = 4
"""Wordpieces of a text that may occur in a passage by chance."""


def propose(index: Mips, queries_BD: np.ndarray, is_trivial: Callable[[int, int], bool], k: int) -> np.ndarray:
    """Return the rows [B, k] of the best passages by the index, without trivial ones (REALM, section 3.4).

    Args:
        index: of the passages.
        queries_BD: vectors of the texts.
        is_trivial: tells whether the passage of a row gives away what is masked in the text of a number.
        k: passages of a text.

    Returns:
        Rows; NULL where fewer passages are left.
    """
    rankings = index.search(queries_BD, k + SPARE)
    rows = [
        [row for row in ranking.rows.tolist() if not is_trivial(number, row)][:k]
        for number, ranking in enumerate(rankings)
    ]
    fewest = min(map(len, rows))
    if fewest < k and len(index) <= k:
        raise BadInput(f"the corpus has {fewest} passages for a text, not {k}: lower --k")
    return np.array([row + [NULL] * (k - len(row)) for row in rows])


def make_triviality_test(texts: Sequence[MaskedText], passages: TokenizedPassages) -> Callable[[int, int], bool]:
    """Return the function that tells whether the passage of a row gives away what is masked in the text of a number.

    Trivial is the passage that a text was taken from, and every other that contains the whole text. The text's first
    wordpiece is left out, because some tokenizers cut it differently within a passage; very short texts may occur
    anywhere.
    """
    contents = [np.asarray(text.original_ids[1:], np.int32).tobytes() for text in texts]
    is_long = [len(text.original_ids) > _SHORT for text in texts]

    def is_trivial(number: int, row: int) -> bool:
        return row == texts[number].row or (is_long[number] and passages.contains(row, contents[number]))

    return is_trivial
