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


def make_pair(
    number: int, positives: tuple[int | str, ...], known: tuple[int, ...], *negatives: list[int]
) -> RetrievalExample:
    pools = tuple(np.array(rows, np.int64) for rows in negatives)
    return RetrievalExample(Question(f"w{number}"), False, positives, pools, np.array(known, np.int64))


@pytest.fixture(scope="module")
def blocks(small: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenizedPassages:
    """Index ten passages of one word each, w10 to w19."""
    folder = tmp_path_factory.mktemp("blocks")
    index = index_texts(folder, [f"w{n}" for n in range(10, 20)])
    return TokenizedPassages.open(index, TextTokenizer(small), folder / "cut")


def make_batches(pairs: list[RetrievalExample], blocks: TokenizedPassages, **options: Any) -> RetrievalBatches:
    settings = {"batch": len(pairs), "hard": 1, "max_query": 64, "max_block": 64, "seed": (0, 1), **options}
    return RetrievalBatches(pairs, blocks, **settings)


def test_no_passage_is_its_own_negative(blocks: TokenizedPassages) -> None:
    """Questions share positives and gold texts, and the positive of one is a negative of another."""
    pairs = [
        make_pair(1, (0,), (0, 4), [5]),
        make_pair(2, (0,), (0,), [1]),
        make_pair(3, (1,), (1,), [4]),
        make_pair(4, ("w99",), (), [4]),
        make_pair(5, ("w99",), (), []),
        make_pair(6, ("w15",), (), [0]),
    ]
    first, last = blocks.tokenizer.special_ids
    word = {WORDS.index(f"w{n}"): n for n in range(1100)}
    batch = make_batches(pairs, blocks)[0]
    assert all(ids[0] == first and ids[-1] == last and len(ids) == 3 for ids in batch.questions + batch.passages)
    question_words = [word[ids[1]] for ids in batch.questions]
    passages = [word[ids[1]] for ids in batch.passages]
    assert sorted(question_words) == [1, 2, 3, 4, 5, 6]
    assert sorted(passages) == [10, 11, 14, 15, 99]
    right = {question: passages[row] for question, row in zip(question_words, batch.positive_B.tolist(), strict=True)}
    assert right == {1: 10, 2: 10, 3: 11, 4: 99, 5: 99, 6: 15}
    masked = {(question_words[b], passages[p]) for b, p in batch.masked_BP.nonzero().tolist()}
    assert masked == {(1, 14)}  # row 4 also answers the first question, but no other


def test_batches_depend_only_on_seed_and_step(blocks: TokenizedPassages) -> None:
    pairs = [make_pair(n, (n % 10,), (n % 10,), [(n + 1) % 10, (n + 2) % 10], [(n + 3) % 10]) for n in range(11)]
    one, other = make_batches(pairs, blocks, batch=4), make_batches(pairs, blocks, batch=4)
    assert one.per_epoch == 2
    for step in (7, 0, 3, 7):
        assert one[step].passages == other[step].passages and torch.equal(one[step].masked_BP, other[step].masked_BP)
    question_words = [ids[1] for step in (2, 3) for ids in one[step].questions]
    assert len(set(question_words)) == 8  # no question twice in an epoch
    assert {ids[1] for step in range(30) for ids in one[step].questions} == {WORDS.index(f"w{n}") for n in range(11)}
    different = [make_batches(pairs, blocks, batch=4, seed=seed)[0].questions for seed in ((0, 1), (1, 1), (0, 2))]
    assert different[0] != different[1] != different[2] != different[0]


def test_each_pool_of_negatives_is_sampled_equally_often(blocks: TokenizedPassages) -> None:
    pairs = [make_pair(1, (0,), (0,), [1, 2, 3], [4])]
    negatives = [WORDS[make_batches(pairs, blocks)[step].passages[1][1]] for step in range(400)]
    counts = {word: negatives.count(word) / 400 for word in set(negatives)}
    assert counts == pytest.approx({"w11": 1 / 6, "w12": 1 / 6, "w13": 1 / 6, "w14": 1 / 2}, abs=0.07)


def test_long_texts_are_cut(blocks: TokenizedPassages) -> None:
    long = RetrievalExample(Question("w1 " * 90), False, ("w7 " * 90,), (np.array([0]),), np.array([], np.int64))
    batch = make_batches([long], blocks, max_query=8, max_block=16)[0]
    assert [len(ids) for ids in (*batch.questions, *batch.passages)] == [8, 16, 3]
    assert make_batches([long], blocks, hard=0)[0].passages == [make_batches([long], blocks, hard=0)[0].passages[0]]
