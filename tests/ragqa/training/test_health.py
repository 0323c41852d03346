"""Figures of retrieval in training by hand, and the alarms they raise."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from ragqa.training.health import WINDOW, Health, figures, utility
from ragqa.training.meter import model_flops, peak_flops

# One text, one masked token; two passages and null: p(z|x) = 1/2, 1/4, 1/4 and p(y|z,x) = 0.8, 0.2, 0.1.
GOLD = torch.tensor([[[0.8], [0.2], [0.1]]]).log()
RELEVANCE = torch.tensor([[0.5, 0.25, 0.25]]).log()
COUNTED = torch.tensor([[True]])


def test_by_hand() -> None:
    row = figures(GOLD, GOLD[:, -1:], RELEVANCE, COUNTED, np.array([[7, 9, -1]]), null=True)
    first, second = math.log(0.8 / 0.1), math.log(0.2 / 0.1)
    assert row["utility_top"] == pytest.approx(first, abs=1e-5)
    assert row["utility"] == pytest.approx((2 * first + second) / 3, abs=1e-5)
    assert row["nll_alone"] == pytest.approx(-math.log(0.1), abs=1e-5)
    assert row["null"] == pytest.approx(0.25)
    assert row["entropy"] == pytest.approx((0.5 * math.log(2) + 0.5 * math.log(4)) / math.log(3), abs=1e-5)
    assert row["distinct"] == 1.0


def test_the_utility_of_a_text_is_that_of_all_its_tokens() -> None:
    gold, alone = torch.tensor([[[0.8, 0.5]]]).log(), torch.tensor([[[0.4, 0.5]]]).log()
    both = utility(gold, alone, torch.tensor([[True, True]]))
    first = utility(gold, alone, torch.tensor([[True, False]]))
    assert both.item() == pytest.approx(math.log(2), abs=1e-5)
    assert first.item() == pytest.approx(math.log(2), abs=1e-5)


def test_passages_of_all_texts_are_counted_once() -> None:
    relevance = torch.zeros(2, 3)
    rows = np.array([[1, 2, -1], [1, 3, -1]])
    gold, alone, counted = torch.zeros(2, 3, 1), torch.zeros(2, 1, 1), torch.ones(2, 1)
    assert figures(gold, alone, relevance, counted, rows, null=True)["distinct"] == 0.5  # 3 of 2 to 4
    without = figures(gold, alone, relevance, counted, np.array([[1, 2, 4], [1, 3, 4]]), null=False)
    assert without["distinct"] == pytest.approx(1 / 3) and without["entropy"] == pytest.approx(1.0)


@pytest.mark.parametrize("texts", [2, 8, 64])
def test_texts_with_the_same_passages_are_told_in_batches_of_any_size(texts: int) -> None:
    same, other = np.tile([3, 1, 2], (texts, 1)), np.arange(3 * texts).reshape(texts, 3)
    gold, alone, counted = torch.zeros(texts, 3, 1), torch.zeros(texts, 1, 1), torch.ones(texts, 1)
    for rows, wanted in ((same, 0.0), (other, 1.0)):
        assert figures(gold, alone, torch.zeros(texts, 3), counted, rows, null=False)["distinct"] == wanted


def test_without_a_null_passage_retrieval_is_measured_against_one_all_the_same() -> None:
    row = figures(GOLD[:, :2], GOLD[:, 2:], RELEVANCE[:, :2], COUNTED, np.array([[7, 9]]), null=False)
    assert row["nll_alone"] == pytest.approx(-math.log(0.1), abs=1e-5)
    assert row["utility"] == pytest.approx((2 * math.log(8) + math.log(2)) / 3, abs=1e-5)
    assert "null" not in row


@pytest.mark.parametrize(("marginal", "wanted"), [("token", 10 / 3), ("sequence", 5.0)])
def test_the_loss_alone_is_that_of_the_marginal(marginal: Any, wanted: float) -> None:
    """Of the tokens 1, 2 and 7 nats of two texts: a mean over tokens, or over texts."""
    alone = -torch.tensor([[[1.0, 2.0]], [[7.0, 9.0]]])
    counted = torch.tensor([[True, True], [True, False]])
    row = figures(alone, alone, torch.zeros(2, 1), counted, np.array([[-1], [-1]]), null=False, marginal=marginal)
    assert row["nll_alone"] == pytest.approx(wanted)


WELL = {"distinct": 0.9, "null": 0.2, "entropy": 0.5}


@pytest.mark.parametrize(
    ("ill", "told"),
    [({"distinct": 0.02}, "all texts get the same"), ({"null": 0.99}, "not used"), ({"entropy": 0.999}, "preferred")],
)
def test_alarms_are_raised_once_and_again_after_they_were_over(ill: dict[str, float], told: str) -> None:
    health = Health()
    well = [health.step(WELL) for _ in range(2 * WINDOW)]
    assert not any(well)
    raised = [line for _ in range(3 * WINDOW) for line in health.step({**WELL, **ill})]
    assert len(raised) == 1 and told in raised[0]
    assert not any(health.step(WELL) for _ in range(2 * WINDOW))
    assert [line for _ in range(3 * WINDOW) for line in health.step({**WELL, **ill})] == raised


def test_a_retriever_that_learns_from_a_reader_without_use_for_passages_is_told() -> None:
    """Once it has learned as many steps as are averaged, and while the loss is that of no passages at all."""
    health, vain, used = Health(), {**WELL, "nll": 4.95, "nll_alone": 5.0}, {**WELL, "nll": 4.0, "nll_alone": 5.0}
    assert not any(health.step(vain) for _ in range(2 * WINDOW))  # it does not learn yet
    raised = {n: lines for n in range(1, 3 * WINDOW) if (lines := health.step(vain, learned=n))}
    told = "the retriever learns, but with passages the loss is 99.0% of that without: it follows noise"
    assert raised == {WINDOW: [told]}
    assert not any(health.step(used, learned=n) for n in range(3 * WINDOW, 5 * WINDOW))
    assert not any(health.step(used, learned=n) for n in range(5 * WINDOW, 6 * WINDOW))


def test_recall_that_falls_is_told() -> None:
    health = Health()
    assert [health.recall(value, 1000) for value in (0.1, 0.5, 0.6, 0.35)] == [[], [], [], []]
    assert health.recall(0.2, 1000) == ["recall has fallen to 0.200 from 0.600"]
    assert health.recall(0.1, 1000) == [] and health.recall(0.5, 1000) == []


def test_recall_that_chance_may_have_lowered_is_not_told() -> None:
    """4 of 60, then 1 of 60: two standard errors of the difference are 0.07."""
    few, many = Health(), Health()
    assert [few.recall(right / 60, 60) for right in (4, 1)] == [[], []]
    assert [len(many.recall(right / 60, 6000)) for right in (4, 1)] == [0, 1]


def test_what_is_kept_raises_the_same_alarms() -> None:
    ill = {**WELL, "null": 0.99}
    rows = [*[WELL] * WINDOW, *[ill] * (2 * WINDOW)]
    health, unbroken = Health(), Health()
    health.recall(0.6, 1000)
    told = []
    for row in rows:
        health = Health.of(json.loads(json.dumps(health.kept())))
        told.append(health.step(row))
    assert told == [unbroken.step(row) for row in rows] and sum(map(len, told)) == 1
    assert health.recall(0.2, 1000) == ["recall has fallen to 0.200 from 0.600"]
    assert Health.of(health.kept()).recall(0.1, 1000) == []
    assert Health.of(None) == Health()


def test_flops_are_six_a_weight_and_token() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.LayerNorm(20))
    module.register_module("embedding", torch.nn.Embedding(1000, 10))
    assert model_flops(module, 7) == 6 * 200 * 7
    assert model_flops(module.requires_grad_(False), 7) == 2 * 200 * 7
    assert peak_flops() > 1e8


@pytest.mark.parametrize("tied", [True, False])
def test_the_vocabulary_is_scored_where_something_is_masked_only(tied: bool) -> None:
    """Width 8, one layer: attention 4 x 64, feed-forward 2 x 128, the head's dense layer 64; 50 pieces of 8."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=50, **sizes, tie_word_embeddings=tied))
    assert model_flops(model, 7) == 6 * 7 * (256 + 256 + 64)
    assert model_flops(model, 7, 3) - model_flops(model, 7) == 6 * 3 * 400


def test_answers_that_are_known_by_heart_are_told_once() -> None:
    """Of probability 0.9 in training: an alarm below 36 % right, and no other before it is over."""
    health = Health()
    assert health.answers(0.0) == []  # nothing was taught yet
    health.step({"nll": -math.log(0.9), "distinct": 1.0, "entropy": 0.5})
    assert health.answers(0.37) == []
    (line,) = health.answers(0.05)
    assert line == (
        "answers that are taught have probability 0.90, of held-out ones 5.0% are right: they are known by heart, "
        "passages are hardly read"
    )
    assert health.answers(0.0) == [] and Health.of(health.kept()).answers(0.0) == []
    book = Health()
    assert [book.step({"nll": 0.0}) for _ in range(2 * WINDOW)] == [
        []
    ] * 2 * WINDOW  # of retrieval there is nothing to say
    assert book.answers(0.0, reads=False)[0].endswith("are right: they are known by heart")
    assert health.answers(0.5) == [] and len(health.answers(0.35)) == 1
    unsure = Health()
    unsure.step({"nll": -math.log(0.4), "distinct": 1.0, "entropy": 0.5})
    assert unsure.answers(0.0) == []  # it has learned nothing yet, that is no harm
