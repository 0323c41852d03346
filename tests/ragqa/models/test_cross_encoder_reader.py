"""A reader made from a cross-encoder keeps its score of relevance: torch, export and restored weights."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from ragqa.models.span_readers import SpanReader
from ragqa.runtime.export import export
from ragqa.runtime.restore import restore_weights
from ragqa.runtime.scorer import SpanScores, load_scorer
from ragqa.runtime.tokens import TokenInput

INPUTS = [TokenInput([2, 10 + n, 3, *range(20 + 3 * n, 25 + 4 * n), 3], 3) for n in range(5)]


def make_classifier(small: Path, path: Path, labels: int) -> torch.nn.Module:
    """Save a classifier with the encoder of ``small``, and weights large enough that its scores differ."""
    torch.manual_seed(3)
    config = AutoConfig.from_pretrained(small, num_labels=labels)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(path)
    (path / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    return model


def compute_logits(model: torch.nn.Module) -> list[float]:
    with torch.no_grad():
        return [
            model(
                input_ids=torch.tensor([item.ids]),
                token_type_ids=torch.tensor([[0] * item.first_segment + [1] * (len(item.ids) - item.first_segment)]),
            ).logits.item()
            for item in INPUTS
        ]


def list_relevance(path: Path) -> list[float]:
    return [score.relevance for score in load_scorer(path).score(INPUTS) if isinstance(score, SpanScores)]


def test_relevance_is_the_score_of_the_cross_encoder(small: Path, tmp_path: Path) -> None:
    logits = compute_logits(make_classifier(small, tmp_path / "cross", 1))
    SpanReader.from_encoder(tmp_path / "cross").save(tmp_path / "reader")
    (tmp_path / "reader" / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    assert max(logits) - min(logits) > 1.5
    assert list_relevance(tmp_path / "reader") == pytest.approx(logits, abs=1e-4)


@pytest.mark.parametrize("early_layer", [None, 1])
def test_exported_and_restored_weights_compute_the_same_relevance(
    small: Path, tmp_path: Path, early_layer: int | None
) -> None:
    logits = compute_logits(make_classifier(small, tmp_path / "cross", 1))
    reader = SpanReader.from_encoder(tmp_path / "cross", **({"early_layer": early_layer} if early_layer else {}))
    reader.save(tmp_path / "reader")
    (tmp_path / "reader" / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    export(tmp_path / "reader", tmp_path / "export")
    assert max(logits) - min(logits) > 1.5
    assert list_relevance(tmp_path / "export") == pytest.approx(logits, abs=0.2)  # 8 bits
    restore_weights(tmp_path / "export", tmp_path / "cross", tmp_path / "restored")
    assert list_relevance(tmp_path / "restored") == pytest.approx(logits, abs=0.2)


def test_a_classifier_with_two_classes_gives_no_relevance(small: Path, tmp_path: Path) -> None:
    make_classifier(small, tmp_path / "classes", 2)
    assert SpanReader.from_encoder(tmp_path / "classes").pooler is None
    assert SpanReader.from_encoder(small).pooler is None
