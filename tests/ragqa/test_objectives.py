"""Losses agree with hand computation and with independent implementations."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from ragqa.objectives import (
    IGNORED,
    distilled_kl,
    in_batch_nll,
    rag_sequence_nll,
    rag_token_nll,
    realm_mlm_nll,
    retrieval_nll,
    span_nll,
)


def test_span_nll_of_two_passages_agrees_with_hand_computation() -> None:
    # exp of span + relevance: passage 0: 1, 2; passage 1 (relevance log 3): 3, 3. Correct: 2 and 3.
    spans = torch.tensor([[0.0, math.log(2)], [0.0, 0.0]])
    relevance = torch.tensor([0.0, math.log(3)])
    correct = torch.tensor([[False, True], [True, False]])
    assert span_nll(spans, relevance, correct).item() == pytest.approx(-math.log(5 / 9), abs=1e-6)


def test_span_nll_without_a_correct_span_is_zero_without_gradient() -> None:
    spans = torch.randn(2, 3, 4, requires_grad=True)
    correct = torch.zeros(2, 3, 4, dtype=torch.bool)
    correct[1, 2, 1] = True
    loss = span_nll(spans, torch.zeros(2, 3), correct)
    loss.sum().backward()
    assert loss[0].item() == 0.0
    assert torch.all(spans.grad[0] == 0)
    assert torch.isfinite(spans.grad).all() and spans.grad[1].abs().sum() > 0


@pytest.fixture(scope="module")
def realm() -> dict[str, torch.Tensor]:
    """Return random tensors, and the results of the REALM classes of transformers 4.39.3."""
    data = np.load(Path(__file__).parents[1] / "data" / "realm.npz")
    return {name: torch.from_numpy(data[name]) for name in data.files}


def test_masked_token_nll_agrees_with_realm(realm: dict[str, torch.Tensor]) -> None:
    relevance = realm["relevance"].clone().requires_grad_()
    labels = realm["labels"].long().masked_fill(realm["mlm_mask"] == 0, IGNORED)
    loss = realm_mlm_nll(realm["mlm_logits"], relevance, labels)
    loss.backward()
    assert loss.item() == pytest.approx(realm["mlm_loss"].item(), abs=1e-5)
    assert torch.allclose(relevance.grad, realm["mlm_grad_relevance"], atol=1e-5)


def test_fine_tuning_losses_agree_with_realm(realm: dict[str, torch.Tensor]) -> None:
    gold_KAS = (realm["span_starts"] == realm["gold_starts"][..., None]) & (
        realm["span_ends"] == realm["gold_ends"][..., None]
    )
    correct = (gold_KAS & (realm["gold_starts"] >= 0)[..., None]).any(1)
    relevance = realm["reader_relevance"].clone().requires_grad_()
    read = span_nll(realm["span_logits"], relevance, correct)
    retrieve = retrieval_nll(relevance, realm["has_answer"].bool())
    (read + retrieve).backward()
    assert read.item() == pytest.approx(realm["reader_loss"].item(), abs=1e-5)
    assert retrieve.item() == pytest.approx(realm["retriever_loss"].item(), abs=1e-5)
    assert torch.allclose(relevance.grad, realm["reader_grad_relevance"], atol=1e-5)


def make_inputs(prior: list[float], likelihood: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits [1, K, L, 2] and relevance [1, K] with these p(z|x) and p(y_j|z,x), for labels 0."""
    p = torch.tensor(likelihood)
    return torch.stack([p, 1 - p], dim=-1).log().unsqueeze(0), torch.tensor([prior]).log()


def test_token_and_sequence_marginals_agree_with_hand_computation() -> None:
    logits, relevance = make_inputs([0.75, 0.25], [[0.5, 0.1], [0.2, 0.8]])
    labels = torch.zeros(1, 2, dtype=torch.long)
    token = -(math.log(0.75 * 0.5 + 0.25 * 0.2) + math.log(0.75 * 0.1 + 0.25 * 0.8)) / 2
    sequence = -math.log(0.75 * 0.5 * 0.1 + 0.25 * 0.2 * 0.8)
    assert realm_mlm_nll(logits, relevance, labels).item() == pytest.approx(token)
    assert realm_mlm_nll(logits, relevance, labels, marginal="sequence").item() == pytest.approx(sequence)


def test_ignored_positions_and_questions_change_nothing() -> None:
    logits, relevance = make_inputs([0.75, 0.25], [[0.5, 0.1], [0.2, 0.8]])
    labels = torch.tensor([[0, IGNORED], [IGNORED, IGNORED]])
    both, scores = logits.repeat(2, 1, 1, 1), relevance.repeat(2, 1)
    for marginal in ("token", "sequence"):
        loss = realm_mlm_nll(both, scores, labels, marginal=marginal)
        assert loss.item() == pytest.approx(-math.log(0.75 * 0.5 + 0.25 * 0.2))
        assert realm_mlm_nll(both[1:], scores[1:], labels[1:], marginal=marginal).item() == 0.0


def test_the_gradient_raises_passages_that_help_more_than_average() -> None:
    """Compare with REALM, section 3.3: (p(y|z,x) / p(y|x) - 1) p(z|x) for a single masked token."""
    logits, relevance = make_inputs([0.6, 0.3, 0.1], [[0.2], [0.9], [0.05]])
    relevance.requires_grad_()
    realm_mlm_nll(logits, relevance, torch.zeros(1, 1, dtype=torch.long)).backward()
    prior, likelihood = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.2, 0.9, 0.05])
    rise = (likelihood / (prior @ likelihood) - 1) * prior
    assert torch.allclose(-relevance.grad[0], rise, atol=1e-6)


RAG = {"sequence": rag_sequence_nll, "token": rag_token_nll}


def test_distillation_agrees_with_hand_computation() -> None:
    """Scores 0, 0 give (1/2, 1/2); a teacher's 2 ln 3, 0 at temperature 2 give (3/4, 1/4)."""
    teacher_score = torch.tensor([[2 * math.log(3), 0.0]])
    score = torch.zeros(1, 2, requires_grad=True)
    kl = distilled_kl(score, teacher_score, temperature=2.0)
    assert kl.item() == pytest.approx(4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5)))
    kl.sum().backward()
    assert score.grad is not None
    assert score.grad[0].tolist() == pytest.approx([2 * (0.5 - 0.75), 2 * (0.5 - 0.25)]), (
        "T (q - p): towards the teacher"
    )


@pytest.mark.parametrize("marginal", RAG)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_generator_losses_agree_with_rag(marginal: str, smoothing: float) -> None:
    """Compare with the results of the RAG classes of transformers 5.23 on random tensors."""
    data = np.load(Path(__file__).parents[1] / "data" / "rag.npz")
    rag = {name: torch.from_numpy(data[name]) for name in data.files}
    relevance = rag["doc_scores"].clone().requires_grad_()
    loss = RAG[marginal](rag["logits"], relevance, rag["labels"], smoothing=smoothing)
    loss.sum().backward()
    assert torch.allclose(loss, rag[f"{marginal}_nll_eps{smoothing}"], atol=1e-5, rtol=1e-6)
    assert torch.allclose(relevance.grad, rag[f"{marginal}_grad_eps{smoothing}"], atol=1e-5)


def test_generator_losses_of_two_tokens_agree_with_hand_computation() -> None:
    logits, relevance = make_inputs([0.75, 0.25], [[0.5, 0.1], [0.2, 0.8]])
    labels = torch.zeros(1, 2, dtype=torch.long)
    token = -math.log((0.75 * 0.5 + 0.25 * 0.2) * (0.75 * 0.1 + 0.25 * 0.8))
    sequence = -math.log(0.75 * 0.5 * 0.1 + 0.25 * 0.2 * 0.8)
    assert rag_token_nll(logits, relevance, labels).tolist() == pytest.approx([token])
    assert rag_sequence_nll(logits, relevance, labels).tolist() == pytest.approx([sequence])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("marginal", RAG)
def test_a_missing_passage_changes_nothing(marginal: str, smoothing: float) -> None:
    torch.manual_seed(0)
    logits, relevance, labels = torch.randn(2, 3, 4, 5), torch.randn(2, 3), torch.randint(0, 5, (2, 4))
    labels[1] = IGNORED
    more = torch.cat([relevance, torch.full((2, 1), -math.inf)], 1).requires_grad_()
    fewer = RAG[marginal](logits, relevance, labels, smoothing=smoothing)
    padded = RAG[marginal](torch.cat([logits, torch.randn(2, 1, 4, 5)], 1), more, labels, smoothing=smoothing)
    padded.sum().backward()
    assert torch.allclose(fewer, padded) and fewer[1] == 0
    assert torch.isfinite(more.grad).all() and not more.grad[:, 3].any()


def test_retrieval_nll_without_an_answer_is_zero_without_gradient() -> None:
    relevance = torch.tensor([[1.0, 2.0, 0.5], [3.0, 1.0, 1.0]], requires_grad=True)
    loss = retrieval_nll(relevance, torch.tensor([[False, True, True], [False, False, False]]))
    expected = -math.log((math.exp(2) + math.exp(0.5)) / (math.exp(1) + math.exp(2) + math.exp(0.5)))
    assert loss.tolist() == pytest.approx([expected, 0.0])
    loss.sum().backward()
    assert torch.isfinite(relevance.grad).all() and not relevance.grad[1].any()


def test_in_batch_nll_agrees_with_hand_computation() -> None:
    queries, passages = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    own = torch.tensor([0, 2])
    first = -math.log(math.e / (math.e + 1 + math.e))
    second = -math.log(math.exp(2) / (1 + math.exp(2) + math.exp(2)))
    assert in_batch_nll(queries, passages, own).item() == pytest.approx((first + second) / 2)
