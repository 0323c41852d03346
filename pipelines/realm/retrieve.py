"""The passages of a text in pretraining: proposed by an index, scored by live towers, read by a masked language model.

Legend: B texts of a batch, K passages of a text with the null passage last, P different passages of a batch,
N pairs, M masked positions, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.common.masked_text import MaskedBatch, Text
from pipelines.common.tokenized_passages import Blocks
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import pad_rows, round_up
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.objectives import gold_log_probs
from ragqa.retrieval.vectors.mips import Mips

NULL = -1
"""Row of the null passage, which is empty."""
SPARE = 4
"""Passages of a text that are asked for beyond those wanted: its own is dropped, and what repeats it."""
_FEW = 4
"""Wordpieces of a text that may stand in a passage by chance."""


def propose(index: Mips, queries_BD: np.ndarray, trivial: Callable[[int, int], bool], k: int) -> np.ndarray:
    """Rows [B, k] that the index holds to be the best, without trivial ones (REALM, section 3.4).

    More are asked for, and what is trivial is dropped. Where fewer are left, NULL stands.

    Args:
        index: of the passages.
        queries_BD: vectors of the texts.
        trivial: whether the passage of a row tells what is masked in the text of a number.
        k: passages of a text.
    """
    found = index.search(queries_BD, k + SPARE)
    rows = [[row for row in ranking.rows.tolist() if not trivial(at, row)][:k] for at, ranking in enumerate(found)]
    fewest = min(map(len, rows))
    if fewest < k and len(index) <= k:
        raise BadInput(f"the corpus has {fewest} passages for a text, not {k}: lower --k")
    return np.array([row + [NULL] * (k - len(row)) for row in rows])


def telling(texts: Sequence[Text], own_B: list[int], blocks: Blocks) -> Callable[[int, int], bool]:
    """What is ``trivial`` for masked texts: the passage that a text was taken from, and each in which it stands whole.

    Its first wordpiece is left out, which some tokenizers cut otherwise within a passage; texts of a few wordpieces
    stand anywhere.
    """
    wholes = [np.asarray(text.whole[1:], np.int32).tobytes() for text in texts]
    long = [len(text.whole) > _FEW for text in texts]
    return lambda at, row: row == own_B[at] or (long[at] and blocks.holds(row, wholes[at]))


def relevance(
    retriever: DualEncoder, query_BD: Tensor, rows_BK: np.ndarray, blocks: Blocks, limit: int
) -> tuple[Tensor, int]:
    """f(x, z) [B, K] by the live towers, each passage of the batch encoded once; and the tokens of that."""
    different, place_BK = np.unique(rows_BK, return_inverse=True)
    passages = different.tolist()
    passages += passages[-1:] * (round_up(len(passages)) - len(passages))  # whose vectors count nowhere
    batch = blocks.batch(passages, limit).to(query_BD.device)
    vector_PD = retriever.passages(batch.ids_NL, batch.mask_NL)
    place = torch.from_numpy(place_BK.reshape(rows_BK.shape)).to(query_BD.device)
    with torch.autocast(query_BD.device.type, enabled=False):  # bfloat16 would round scores near 100 to halves
        score_BP = query_BD @ vector_PD.T
    return torch.gather(score_BP, 1, place), batch.ids_NL.numel()


def gold(logits_NMV: Tensor, labels_NM: Tensor) -> Tensor:
    """log p(y_j | z, x) [N, M] of what was masked."""
    return gold_log_probs(logits_NMV.unsqueeze(1), labels_NM)[:, 0]


def read(
    reader: KnowledgeAugmentedEncoder,
    batch: MaskedBatch,
    rows_BK: np.ndarray,
    blocks: Blocks,
    limit: int,
    score: Callable[[Tensor, Tensor], Tensor] = gold,
) -> tuple[Tensor, int]:
    """What ``score`` makes of the logits at the masked positions of [CLS] x [SEP] z [SEP]; and the tokens of that.

    ``score`` is given logits [N, M, V] and labels [N, M] of some pairs, and its [N, M, …] come back as
    [B, K, M, …]: by default the labels' log-probabilities.
    """
    passages = [[blocks.ids(int(row), limit) for row in rows] for rows in rows_BK]
    return read_beside(reader, batch, passages, blocks.tokenizer.special_ids, score)


def read_beside(
    reader: KnowledgeAugmentedEncoder,
    batch: MaskedBatch,
    passages: Sequence[Sequence[Sequence[int]]],
    special: tuple[int, int],
    score: Callable[[Tensor, Tensor], Tensor] = gold,
) -> tuple[Tensor, int]:
    """``read`` of passages [B][K] that are given as wordpieces; ``special`` are [CLS] and [SEP].

    Pairs go through in parts of like length, so that little is padding.
    """
    first, last = special
    pairs = [
        ([first, *text.ids, last], [*passage, last])
        for text, own in zip(batch.texts, passages, strict=True)
        for passage in own
    ]
    order = np.argsort([-len(x) - len(z) for x, z in pairs], kind="stable")
    found, tokens, k = [], 0, len(passages[0])
    for part in np.array_split(order, 4 if len(order) >= 64 else 1):
        ids = pad_rows([pairs[at][0] + pairs[at][1] for at in part]).to(batch.labels_BM.device)
        text_N1 = torch.tensor([[len(pairs[at][0])] for at in part], device=ids.ids_NL.device)
        places_L = torch.arange(ids.ids_NL.shape[1], device=ids.ids_NL.device)
        types = (places_L >= text_N1).long() * ids.mask_NL
        texts = torch.from_numpy(part // k).to(types.device)
        logits_NMV = reader(ids.ids_NL, ids.mask_NL, types, batch.positions_BM[texts])
        found.append(score(logits_NMV.float(), batch.labels_BM[texts]))
        tokens += ids.ids_NL.numel()
    back = torch.from_numpy(np.argsort(order)).to(batch.labels_BM.device)
    return torch.cat(found)[back].unflatten(0, (len(batch.texts), k)), tokens
