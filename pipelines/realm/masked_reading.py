"""Prediction of the masked words of a text from the text and a passage.

Legend: B texts of a batch, K passages of a text, N pairs of text and passage, L tokens, M masked positions,
V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.common.masked_text import MaskedBatch
from ragqa.models.inputs import pad_rows
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.objectives import gold_log_probs

Score = Callable[[Tensor, Tensor], Tensor]
"""Function from logits [N, M, V] and labels [N, M] to scores whose first dimensions are [N, M]."""


def gold_log_likelihood(logits_NMV: Tensor, labels_NM: Tensor) -> Tensor:
    """Return log p(y_j | z, x) of the masked wordpieces [N, M]; 0 for padding.

    Source: Guu et al. 2020, section 3.2.

    Args:
        logits_NMV: logits of the reader at the masked positions.
        labels_NM: ids of the masked wordpieces; ``IGNORED`` for padding.
    """
    return gold_log_probs(logits_NMV.unsqueeze(1), labels_NM)[:, 0]


def read_with_passages(
    reader: KnowledgeAugmentedEncoder,
    batch: MaskedBatch,
    passages: Sequence[Sequence[Sequence[int]]],
    special: tuple[int, int],
    score: Score = gold_log_likelihood,
) -> tuple[Tensor, int]:
    """Read each text with each of its passages, as [CLS] text [SEP] passage [SEP].

    Pairs of similar length are read together, so that little padding is needed.

    Args:
        reader: masked language model.
        batch: masked texts.
        passages: wordpiece ids of the K passages of each text; the null passage is empty.
        special: ids of [CLS] and [SEP].
        score: function of the logits at the masked positions, and of the labels.

    Returns:
        The scores, whose first dimensions are [B, K, M]; and the number of tokens that were read, including padding.
    """
    first, last = special
    pairs = [
        ([first, *text.ids, last], [*passage, last])
        for text, candidates in zip(batch.texts, passages, strict=True)
        for passage in candidates
    ]
    order = np.argsort([-len(x) - len(z) for x, z in pairs], kind="stable")
    scores, tokens, k = [], 0, len(passages[0])
    # Four parts need less padding than one. For few pairs, further calls would cost more than the padding.
    for part in np.array_split(order, 4 if len(order) >= 64 else 1):
        ids = pad_rows([pairs[number][0] + pairs[number][1] for number in part]).to(batch.labels_BM.device)
        text_N1 = torch.tensor([[len(pairs[number][0])] for number in part], device=ids.ids_NL.device)
        places_L = torch.arange(ids.ids_NL.shape[1], device=ids.ids_NL.device)
        types = (places_L >= text_N1).long() * ids.mask_NL
        texts = torch.from_numpy(part // k).to(types.device)
        logits_NMV = reader(ids.ids_NL, ids.mask_NL, types, batch.positions_BM[texts])
        scores.append(score(logits_NMV.float(), batch.labels_BM[texts]))
        tokens += ids.ids_NL.numel()
    back = torch.from_numpy(np.argsort(order)).to(batch.labels_BM.device)
    return torch.cat(scores)[back].unflatten(0, (len(batch.texts), k)), tokens
