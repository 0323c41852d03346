"""Batches of questions, their passages and hard negatives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import WORDS

from pipelines.common.examples.retrieval_examples import RetrievalExample
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.dpr.batches import RetrievalBatches
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Question
from tests.helpers.text_index import index_texts


def pair(
    number: int, positives: tuple[int | str, ...], known: tuple[int, ...], *negatives: list[int]
) -> RetrievalExample:
    pools = tuple(np.array(rows, np.int64) for rows in negatives)
    return RetrievalExample(Question(f"w{number}"), False, positives, pools, np.array(known, np.int64))


@pytest.fixture(scope="module")
def blocks(small: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenizedPassages:
    """Passages w10 to w19."""
    folder = tmp_path_factory.mktemp("blocks")
    index = index_texts(folder, [f"w{n}" for n in range(10, 20)])
    return TokenizedPassages.open(index, TextTokenizer(small), folder / "cut")


def batches(pairs: list[RetrievalExample], blocks: TokenizedPassages, **options: Any) -> RetrievalBatches:
    settings = {"batch": len(pairs), "hard": 1, "max_query": 64, "max_block": 64, "seed": (0, 1), **options}
    return RetrievalBatches(pairs, blocks, **settings)


def test_no_passage_is_its_own_negative(blocks: TokenizedPassages) -> None:
    """A positive of two, a positive that is another's negative, gold texts of two, and one that the corpus holds."""
    pairs = [
        pair(1, (0,), (0, 4), [5]),
        pair(2, (0,), (0,), [1]),
        pair(3, (1,), (1,), [4]),
        pair(4, ("w99",), (), [4]),
        pair(5, ("w99",), (), []),
        pair(6, ("w15",), (), [0]),
    ]
    first, last = blocks.tokenizer.special_ids
    word = {WORDS.index(f"w{n}"): n for n in range(1100)}
    batch = batches(pairs, blocks)[0]
    assert all(ids[0] == first and ids[-1] == last and len(ids) == 3 for ids in batch.questions + batch.passages)
    asked = [word[ids[1]] for ids in batch.questions]
    passages = [word[ids[1]] for ids in batch.passages]
    assert sorted(asked) == [1, 2, 3, 4, 5, 6]
    assert sorted(passages) == [10, 11, 14, 15, 99]
    right = {question: passages[at] for question, at in zip(asked, batch.positive_B.tolist(), strict=True)}
    assert right == {1: 10, 2: 10, 3: 11, 4: 99, 5: 99, 6: 15}
    masked = {(asked[b], passages[p]) for b, p in batch.masked_BP.nonzero().tolist()}
    assert masked == {(1, 14)}  # row 4 is right for the first question, too, and wrong for the others


def test_batches_depend_only_on_seed_and_step(blocks: TokenizedPassages) -> None:
    pairs = [pair(n, (n % 10,), (n % 10,), [(n + 1) % 10, (n + 2) % 10], [(n + 3) % 10]) for n in range(11)]
    one, other = batches(pairs, blocks, batch=4), batches(pairs, blocks, batch=4)
    assert one.per_epoch == 2
    for step in (7, 0, 3, 7):
        assert one[step].passages == other[step].passages and torch.equal(one[step].masked_BP, other[step].masked_BP)
    asked = [ids[1] for step in (2, 3) for ids in one[step].questions]
    assert len(set(asked)) == 8  # nobody twice in an epoch
    assert {ids[1] for step in range(30) for ids in one[step].questions} == {WORDS.index(f"w{n}") for n in range(11)}
    different = [batches(pairs, blocks, batch=4, seed=seed)[0].questions for seed in ((0, 1), (1, 1), (0, 2))]
    assert different[0] != different[1] != different[2] != different[0]


def test_pools_of_negatives_are_drawn_from_equally_often(blocks: TokenizedPassages) -> None:
    only = [pair(1, (0,), (0,), [1, 2, 3], [4])]
    drawn = [WORDS[batches(only, blocks)[step].passages[1][1]] for step in range(400)]
    counts = {word: drawn.count(word) / 400 for word in set(drawn)}
    assert counts == pytest.approx({"w11": 1 / 6, "w12": 1 / 6, "w13": 1 / 6, "w14": 1 / 2}, abs=0.07)


def test_long_texts_are_cut(blocks: TokenizedPassages) -> None:
    long = RetrievalExample(Question("w1 " * 90), False, ("w7 " * 90,), (np.array([0]),), np.array([], np.int64))
    batch = batches([long], blocks, max_query=8, max_block=16)[0]
    assert [len(ids) for ids in (*batch.questions, *batch.passages)] == [8, 16, 3]
    assert batches([long], blocks, hard=0)[0].passages == [batches([long], blocks, hard=0)[0].passages[0]]
