"""Figures of retrieval in training agree with hand computation, and raise their alarms once."""

import json
import math

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from ragqa.training.health import WINDOW, Health, compute_passage_utility, measure_retrieval
from ragqa.training.meter import count_flops, measure_peak_flops

# One text, one masked token; two passages and null: p(z|x) = 1/2, 1/4, 1/4 and p(y|z,x) = 0.8, 0.2, 0.1.
GOLD = torch.tensor([[[0.8], [0.2], [0.1]]]).log()
RELEVANCE = torch.tensor([[0.5, 0.25, 0.25]]).log()
COUNTED = torch.tensor([[True]])


def test_figures_agree_with_hand_computation() -> None:
    row = measure_retrieval(GOLD, GOLD[:, -1:], RELEVANCE, COUNTED, np.array([[7, 9, -1]]), has_null=True)
    first, second = math.log(0.8 / 0.1), math.log(0.2 / 0.1)
    assert row["utility_top"] == pytest.approx(first, abs=1e-5)
    assert row["utility"] == pytest.approx((2 * first + second) / 3, abs=1e-5)
    assert row["null"] == pytest.approx(0.25)
    assert row["entropy"] == pytest.approx((0.5 * math.log(2) + 0.5 * math.log(4)) / math.log(3), abs=1e-5)
    assert row["distinct"] == 1.0


def test_utility_is_summed_over_the_counted_tokens() -> None:
    gold, alone = torch.tensor([[[0.8, 0.5]]]).log(), torch.tensor([[[0.4, 0.5]]]).log()
    both = compute_passage_utility(gold, alone, torch.tensor([[True, True]]))
    first = compute_passage_utility(gold, alone, torch.tensor([[True, False]]))
    assert both.item() == pytest.approx(math.log(2), abs=1e-5)
    assert first.item() == pytest.approx(math.log(2), abs=1e-5)


def test_distinct_counts_a_passage_of_several_texts_once() -> None:
    relevance = torch.zeros(2, 3)
    rows = np.array([[1, 2, -1], [1, 3, -1]])
    gold, alone, counted = torch.zeros(2, 3, 1), torch.zeros(2, 1, 1), torch.ones(2, 1)
    assert measure_retrieval(gold, alone, relevance, counted, rows, has_null=True)["distinct"] == 0.5  # 3 of 2 to 4
    without = measure_retrieval(gold, alone, relevance, counted, np.array([[1, 2, 4], [1, 3, 4]]), has_null=False)
    assert without["distinct"] == pytest.approx(1 / 3) and without["entropy"] == pytest.approx(1.0)


@pytest.mark.parametrize("texts", [2, 8, 64])
def test_distinct_means_the_same_in_batches_of_any_size(texts: int) -> None:
    same, other = np.tile([3, 1, 2], (texts, 1)), np.arange(3 * texts).reshape(texts, 3)
    gold, alone, counted = torch.zeros(texts, 3, 1), torch.zeros(texts, 1, 1), torch.ones(texts, 1)
    for rows, expected in ((same, 0.0), (other, 1.0)):
        assert (
            measure_retrieval(gold, alone, torch.zeros(texts, 3), counted, rows, has_null=False)["distinct"] == expected
        )


def test_utility_is_relative_to_the_null_passage_even_if_it_is_no_candidate() -> None:
    row = measure_retrieval(GOLD[:, :2], GOLD[:, 2:], RELEVANCE[:, :2], COUNTED, np.array([[7, 9]]), has_null=False)
    assert row["utility"] == pytest.approx((2 * math.log(8) + math.log(2)) / 3, abs=1e-5)
    assert "null" not in row


HEALTHY = {"distinct": 0.9, "null": 0.2, "entropy": 0.5}


@pytest.mark.parametrize(
    ("ill", "message"),
    [({"distinct": 0.02}, "all texts get the same"), ({"null": 0.99}, "not used"), ({"entropy": 0.999}, "preferred")],
)
def test_alarms_are_raised_once_and_again_after_recovery(ill: dict[str, float], message: str) -> None:
    health = Health()
    healthy = [health.check_step(HEALTHY) for _ in range(2 * WINDOW)]
    assert not any(healthy)
    raised = [line for _ in range(3 * WINDOW) for line in health.check_step({**HEALTHY, **ill})]
    assert len(raised) == 1 and message in raised[0]
    assert not any(health.check_step(HEALTHY) for _ in range(2 * WINDOW))
    assert [line for _ in range(3 * WINDOW) for line in health.check_step({**HEALTHY, **ill})] == raised


def test_a_retriever_that_follows_noise_raises_an_alarm() -> None:
    """The alarm waits until the retriever has learned for as many steps as are averaged."""
    health, useless, useful = (
        Health(),
        {**HEALTHY, "nll": 4.95, "nll_alone": 5.0},
        {**HEALTHY, "nll": 4.0, "nll_alone": 5.0},
    )
    assert not any(health.check_step(useless) for _ in range(2 * WINDOW))  # the retriever does not learn yet
    raised = {n: lines for n in range(1, 3 * WINDOW) if (lines := health.check_step(useless, retriever_steps=n))}
    message = "the retriever learns, but with passages the loss is 99.0% of that without: it follows noise"
    assert raised == {WINDOW: [message]}
    assert not any(health.check_step(useful, retriever_steps=n) for n in range(3 * WINDOW, 5 * WINDOW))
    assert not any(health.check_step(useful, retriever_steps=n) for n in range(5 * WINDOW, 6 * WINDOW))


def test_falling_recall_raises_an_alarm() -> None:
    health = Health()
    assert [health.check_recall(value, 1000) for value in (0.1, 0.5, 0.6, 0.35)] == [[], [], [], []]
    assert health.check_recall(0.2, 1000) == ["recall has fallen to 0.200 from 0.600"]
    assert health.check_recall(0.1, 1000) == [] and health.check_recall(0.5, 1000) == []


def test_a_fall_within_sampling_error_raises_no_alarm() -> None:
    """From 4 of 60 to 1 of 60: two standard errors of the difference are 0.07."""
    few, many = Health(), Health()
    assert [few.check_recall(right / 60, 60) for right in (4, 1)] == [[], []]
    assert [len(many.check_recall(right / 60, 6000)) for right in (4, 1)] == [0, 1]


def test_a_restored_state_raises_the_same_alarms() -> None:
    ill = {**HEALTHY, "null": 0.99}
    rows = [*[HEALTHY] * WINDOW, *[ill] * (2 * WINDOW)]
    health, unbroken = Health(), Health()
    health.check_recall(0.6, 1000)
    messages = []
    for row in rows:
        health = Health.from_state(json.loads(json.dumps(health.to_state())))
        messages.append(health.check_step(row))
    assert messages == [unbroken.check_step(row) for row in rows] and sum(map(len, messages)) == 1
    assert health.check_recall(0.2, 1000) == ["recall has fallen to 0.200 from 0.600"]
    assert Health.from_state(health.to_state()).check_recall(0.1, 1000) == []
    assert Health.from_state(None) == Health()


def test_flops_are_six_per_weight_and_token() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.LayerNorm(20))
    module.register_module("embedding", torch.nn.Embedding(1000, 10))
    assert count_flops(module, 7) == 6 * 200 * 7
    assert count_flops(module.requires_grad_(False), 7) == 2 * 200 * 7
    assert measure_peak_flops() > 1e8


@pytest.mark.parametrize("tied", [True, False])
def test_the_vocabulary_is_scored_at_masked_positions_only(tied: bool) -> None:
    """Width 8, one layer: attention 4 x 64, feed-forward 2 x 128, the head's dense layer 64; 50 wordpieces of 8."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=50, **sizes, tie_word_embeddings=tied))
    assert count_flops(model, 7) == 6 * 7 * (256 + 256 + 64)
    assert count_flops(model, 7, 3) - count_flops(model, 7) == 6 * 3 * 400


def test_memorised_answers_raise_an_alarm_once() -> None:
    """With probability 0.9 in training the alarm is raised below 36 % right answers, and only once."""
    health = Health()
    assert health.check_answers(0.0) == []  # before the first step
    health.check_step({"nll": -math.log(0.9), "distinct": 1.0, "entropy": 0.5})
    assert health.check_answers(0.37) == []
    (line,) = health.check_answers(0.05)
    assert line == (
        "training answers have probability 0.90, but only 5.0% of the held-out questions are answered right: answers "
        "are memorised, passages are hardly read"
    )
    assert health.check_answers(0.0) == [] and Health.from_state(health.to_state()).check_answers(0.0) == []
    book = Health()
    lines = [book.check_step({"nll": 0.0}) for _ in range(2 * WINDOW)]
    assert not any(lines)  # without retrieval there is nothing to check
    assert book.check_answers(0.0, reads_passages=False)[0].endswith("are answered right: answers are memorised")
    assert health.check_answers(0.5) == [] and len(health.check_answers(0.35)) == 1
    unsure = Health()
    unsure.check_step({"nll": -math.log(0.4), "distinct": 1.0, "entropy": 0.5})
    assert unsure.check_answers(0.0) == []  # early in training a low score is no alarm
