"""A retriever and a generator with random weights learn from the loss of generation alone.

Legend: B questions, K passages a question.
"""

from typing import Literal

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.inputs import Inputs
from ragqa.models.tower import Tower
from tests.helpers.generators import tiny_bart, wordless

B, K = 16, 4
END, ENTITIES, OBJECTS = 2, 12, 20
SIZE = 5 + ENTITIES + OBJECTS


def facts() -> tuple[Tensor, Tensor, Tensor]:
    """Draw passages ``[B, K, 2]`` of entity and object, the entities of the questions ``[B, 1]`` and their objects.

    Each call draws new ones, so a model cannot memorise them.
    """
    entities_BK = 5 + torch.rand(B, ENTITIES).argsort(-1)[:, :K]
    objects_BK = torch.randint(5 + ENTITIES, SIZE, (B, K))
    gold_B1 = torch.randint(K, (B, 1))
    passages_BK2 = torch.stack([entities_BK, objects_BK], -1)
    return passages_BK2, entities_BK.gather(1, gold_B1), objects_BK.gather(1, gold_B1)


def tower() -> Tower:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=SIZE, max_position_embeddings=8, **sizes, **none)
    return Tower(BertModel(config, add_pooling_layer=False), pooling="mean")


def whole(ids: Tensor) -> Inputs:
    return Inputs(ids, torch.ones_like(ids))


@pytest.mark.parametrize("marginal", ["token", pytest.param("sequence", marks=pytest.mark.thorough)])
def test_retriever_and_generator_learn_together(marginal: Literal["token", "sequence"]) -> None:
    """Independent towers learn to find the entity of the question, and the generator learns to copy its object."""
    torch.manual_seed(0)
    retriever = DualEncoder(tower(), tower())
    generator = RagGenerator(Seq2Seq(tiny_bart(SIZE, spread=0.2), wordless(SIZE)), marginal=marginal)
    optimizer = torch.optim.AdamW([*retriever.parameters(), *generator.train().parameters()], lr=5e-3, fused=True)

    def read() -> tuple[Inputs, Tensor, Tensor, Tensor]:
        passages_BK2, asked_B1, answer_B1 = facts()
        texts = whole(passages_BK2.flatten(0, 1)), whole(asked_B1)
        vectors = [
            tower(each.ids_NL, each.mask_NL)
            for tower, each in zip((retriever.passages, retriever.questions), texts, strict=True)
        ]
        relevance_BK = torch.einsum("bd,bkd->bk", vectors[1], vectors[0].view(B, K, -1))
        pairs = torch.cat([texts[0].ids_NL, asked_B1.repeat_interleave(K, 0)], -1)
        right_BK = (passages_BK2[..., 0] == asked_B1).float()
        return whole(pairs), relevance_BK, torch.cat([answer_B1, torch.full((B, 1), END)], -1), right_BK

    for _ in range(200):
        inputs, relevance_BK, labels_BT, _ = read()
        optimizer.zero_grad()
        generator.compute_nll(inputs, relevance_BK, labels_BT).mean().backward()
        optimizer.step()
    inputs, relevance_BK, labels_BT, right_BK = read()
    assert (relevance_BK.softmax(-1) * right_BK).sum(-1).mean() > 0.9  # 1/4 by chance
    found = generator.eval().generate(inputs, relevance_BK.detach(), SearchSettings(max_answer=3, min_answer=1))
    answers = [row[0].ids[:2] for row in found]
    assert sum(ids == tuple(wanted) for ids, wanted in zip(answers, labels_BT.tolist(), strict=True)) >= 15
