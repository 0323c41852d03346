"""Losses of a span reader, against loops and by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.common.examples import spans as reading
from pipelines.common.examples.spans import IMPOSSIBLE, MarkedWindow, collate, compute_span_logits
from pipelines.span_reader.config import MAX_HARD_SHARE, ReaderConfig
from pipelines.span_reader.loss import ReaderLosses, compute_losses, is_hard_step
from ragqa.errors import BadInput
from ragqa.models.span_readers import SpanReader
from ragqa.reading.windows import Window
from ragqa.runtime.tokens import TokenInput
from tests.helpers import tiny
from tests.helpers.span_reader import make_batches, make_config


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.TinyWorld, tmp_path: Path) -> ReaderConfig:
    return make_config(small, world, tmp_path)


def test_span_logits_by_hand() -> None:
    start = torch.tensor([[9.0, 1.0, 2.0, 3.0]])
    end = torch.tensor([[9.0, 10.0, 20.0, 30.0]])
    inside = torch.tensor([[False, True, True, True]])
    scores = compute_span_logits(start, end, inside, 2)
    possible = scores[0] > IMPOSSIBLE / 2
    assert possible.tolist() == [[False, False], [True, True], [True, True], [True, False]]
    assert scores[0][possible].tolist() == [11.0, 21.0, 22.0, 32.0, 33.0]


def compute_by_loops(
    reader: SpanReader, reads: Any, size: int, *, hard: bool, is_per_passage: bool
) -> tuple[list[float], list[float]]:
    """Return the two losses of each question, computed span by span."""
    start, end, relevance = (
        each.detach().double().numpy() for each in reader(reads.ids_NL, reads.mask_NL, reads.types_NL)
    )
    spans: list[dict[int, list[tuple[float, bool]]]] = [{} for _ in range(size)]
    relevance_losses: list[list[float]] = [[] for _ in range(size)]
    for n, (question, rank) in enumerate(zip(reads.question_N.tolist(), reads.rank_N.tolist(), strict=True)):
        own_spans = spans[question].setdefault(rank, [])
        for at, width in reads.possible_NLW[n].nonzero().tolist():
            score = start[n, at] + end[n, at + width] + relevance[n]
            own_spans.append((score, bool(reads.correct_NLW[n, at, width])))
        holds = any(right for _, right in own_spans)
        relevance_losses[question].append(math.log1p(math.exp(-relevance[n] if holds else relevance[n])))
    nll = []
    for each in spans:
        groups = (
            list(each.values()) if is_per_passage else [[span for own_spans in each.values() for span in own_spans]]
        )
        values = []
        for group in groups:
            right = [math.exp(score) for score, is_right in group if is_right]
            if right:
                total = sum(math.exp(score) for score, _ in group)
                values.append(-math.log((max(right) if hard else sum(right)) / total))
        nll.append(sum(values) / len(values) if values else 0.0)
    return nll, [sum(each) / len(each) for each in relevance_losses]


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("is_per_passage", [False, True])
def test_losses_agree_with_loops(
    config: ReaderConfig, tmp_path: Path, monkeypatch, hard: bool, is_per_passage: bool
) -> None:
    monkeypatch.setattr(
        torch, "autocast", lambda *_, **__: torch.enable_grad()
    )  # float32, so that losses can be compared
    monkeypatch.setattr(reading, "_CPU_ROWS", 1)  # each length is its own group
    monkeypatch.setattr(reading, "_CPU_LENGTH_STEP", 1)
    config = replace(config, per_passage=is_per_passage)
    reader = SpanReader.from_encoder(config.encoder).eval()
    (reads,) = make_batches(config, tmp_path / "mined", positives=2, distant=2, negatives=1.5)[1]
    assert len(reads.length_groups) > 1 and reads.tokens == int(reads.mask_NL.sum()) < reads.mask_NL.numel()
    found = compute_losses(reader, None, reads, 4, config, is_hard=hard)
    nll, relevance_losses = compute_by_loops(reader, reads, 4, hard=hard, is_per_passage=is_per_passage)
    assert found.nll_B.tolist() == pytest.approx(nll, rel=1e-4)
    assert found.relevance_B.tolist() == pytest.approx(relevance_losses, rel=1e-4)
    assert found.has_gold_B.tolist() == [value > 0 for value in nll]
    assert found.total(config).item() == pytest.approx(np.mean(nll) + 0.5 * np.mean(relevance_losses), rel=1e-4)


def test_a_cpu_reads_eight_rows_at_a_time() -> None:
    lengths = [3, 40, 33, 20, 16, 17, 5, 4, 60, 1]
    found = [(0, MarkedWindow(window, set())) for window in map(window_of, lengths)]
    reads = collate(found, 1)
    assert [(rows.tolist(), longest) for rows, longest in reads.length_groups] == [
        ([8, 1, 2, 3, 5, 4, 6, 7], 60),  # padded to 60, the longest, not to 64
        ([0, 9], 16),
    ]
    assert reads.tokens == 8 * 60 + 2 * 16


def window_of(length: int) -> Window:
    one = np.ones(1, dtype=bool)
    return Window(0, TokenInput([1] * length, 0), 0, np.zeros((1, 2), dtype=np.int64), 0, one, one)


def test_the_head_is_computed_in_float32(small: Path) -> None:
    torch.manual_seed(0)
    reader, hidden = SpanReader.from_encoder(small).eval(), []
    reader.encoder.register_forward_hook(lambda module, arguments, output: hidden.append(output.last_hidden_state))
    ids = torch.arange(30).reshape(2, 15) + 5
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            start, end, relevance = reader(ids, torch.ones_like(ids), torch.zeros_like(ids))
            rounded = reader.head(hidden[0])
        logits = reader.head(hidden[0].float())
    assert torch.equal(torch.stack([start, end], -1), logits[..., :2]) and torch.equal(relevance, logits[:, 0, 2])
    assert not torch.equal(rounded.float(), logits)


def test_the_teacher_counts_by_its_weight(config: ReaderConfig, tmp_path: Path) -> None:
    """First question: 0.75 · 2 + 0.25 · 6 + 0.5 · 4 = 5. Second question, without a gold span: 0.5 · 4 = 2."""
    nll_B, relevance_B, kl_B = torch.tensor([[2.0, 0.0], [4.0, 4.0], [6.0, 0.0]])
    none_B = torch.zeros(2)
    has_gold_B, other = torch.tensor([True, False]), {"absence_B": none_B, "early_B": none_B}
    found = ReaderLosses(nll_B=nll_B, relevance_B=relevance_B, kl_B=kl_B, has_gold_B=has_gold_B, **other)
    assert found.total(replace(config, teacher=tmp_path, teacher_weight=0.25, relevance=0.5)).item() == (5 + 2) / 2
    assert found.total(replace(config, relevance=0.5)).item() == (2 + 2 + 2) / 2
    figures = {"loss": 3.0, "span_nll": 1.0, "relevance_bce": 4.0, "right": 0.5}
    assert found.measure(replace(config, relevance=0.5)) == figures
    with_teacher = replace(config, teacher=tmp_path, teacher_weight=0.25, relevance=0.5)
    assert found.measure(with_teacher) == {**figures, "loss": 3.5, "kl": 3.0}


def test_a_teacher_equal_to_the_reader_has_no_loss(config: ReaderConfig, tmp_path: Path) -> None:
    config = replace(config, teacher=tmp_path)
    torch.manual_seed(1)
    reader, other = (SpanReader.from_encoder(config.encoder).eval() for _ in range(2))
    (reads,) = make_batches(config, tmp_path / "mined")[0]
    assert compute_losses(reader, reader, reads, 4, config, is_hard=False).kl_B.tolist() == pytest.approx(
        [0] * 4, abs=1e-5
    )
    assert compute_losses(reader, other, reads, 4, config, is_hard=False).kl_B.min() > 1e-4


def test_no_answer_competes_with_all_spans_of_a_passage(config: ReaderConfig, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: torch.enable_grad())
    reader = SpanReader.from_encoder(config.encoder, early_layer=1).eval()
    (reads,) = make_batches(config, tmp_path / "mined", negatives=1.5)[1]
    with torch.no_grad():
        start, end, _, early = reader(reads.ids_NL, reads.mask_NL, reads.types_NL)
    absence, soon = [[] for _ in range(4)], [[] for _ in range(4)]
    for n, question in enumerate(reads.question_N.tolist()):
        spans = [(start[n, at] + end[n, at + width]).item() for at, width in reads.possible_NLW[n].nonzero().tolist()]
        log_odds = math.log(sum(map(math.exp, spans))) - (start[n, 0] + end[n, 0]).item()
        sign = -1 if reads.correct_NLW[n].any() else 1
        absence[question].append(math.log1p(math.exp(sign * log_odds)))
        soon[question].append(math.log1p(math.exp(sign * early[n].item())))
    found = compute_losses(reader, None, reads, 4, replace(config, absence=1.0), is_hard=False)
    assert found.absence_B.tolist() == pytest.approx([np.mean(each) for each in absence], rel=1e-3)
    assert found.early_B.tolist() == pytest.approx([np.mean(each) for each in soon], rel=1e-3)
    passages = 0.5 * found.relevance_B + 1.0 * found.absence_B + 0.25 * found.early_B
    total = found.total(replace(config, relevance=0.5, absence=1.0, early=0.25))
    assert total.item() == pytest.approx((found.nll_B + passages).mean().item(), rel=1e-5)


def test_the_early_head_reads_the_hidden_states_after_its_layer(small: Path, tmp_path: Path) -> None:
    reader = SpanReader.from_encoder(small, early_layer=1).eval()
    ids = torch.arange(30).reshape(2, 15) + 5
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    with torch.no_grad():
        *scores, early = reader(ids, mask, types)
        hidden = reader.encoder(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        assert early.tolist() == pytest.approx(reader.early_head(30 * hidden[1][:, 0])[:, 0].tolist(), abs=1e-5)
        reader.save(tmp_path)
        again = SpanReader.load(tmp_path).eval()(ids, mask, types)
    assert all(torch.equal(one, other) for one, other in zip(again, (*scores, early), strict=True))
    with pytest.raises(BadInput, match=r"--early-layer .* layers: give less"):
        SpanReader.from_encoder(small, early_layer=reader.config.num_hidden_layers)


def test_hard_steps_become_more_frequent(config: ReaderConfig) -> None:
    assert not any(is_hard_step(step, replace(config, loss="marginal", steps=100)) for step in range(100))
    third = replace(config)
    object.__setattr__(third, "loss", "a further loss")
    assert not any(is_hard_step(step, third) for step in range(third.steps))
    config = replace(config, loss="hard", steps=4000, hard_warmup=0.5, warmup=None)
    relevance_losses = np.array([is_hard_step(step, config) for step in range(4000)])
    expected = np.minimum(np.arange(4000) / 2000, MAX_HARD_SHARE)
    for part in np.split(np.arange(4000), 8):
        assert relevance_losses[part].mean() == pytest.approx(expected[part].mean(), abs=0.1)
