"""The bench of RAG runs, and both sides have equal losses and answers."""

import json
from pathlib import Path

import pytest

from eval.bench import rag_speed
from eval.bench.rag_speed import RagSpeedConfig


@pytest.mark.thorough
def test_both_sides_have_equal_losses_and_answers(tmp_path: Path) -> None:
    """The bench stops where losses or answers differ. Two passages: transformers' own default is five."""
    config = RagSpeedConfig(
        out=tmp_path / "speed.json", shape="tiny", batch=2, passages=2, beams=2, longest=5, tokens=20,
        decoding_tokens=12, steps=1,
    )  # fmt: skip
    rag_speed.main(config)
    found = json.loads(config.out.read_text())
    for name in ("step_token", "step_sequence"):
        assert set(found[name]) == {"ours", "transformers", "transformers_300"}
        assert all(row["seconds"] > 0 for row in found[name].values())
    assert found["training_inputs"]["texts"] == 4 and found["training_answers"]["texts"] == 2
    assert set(found["decode_thorough"]) == {"ours", "transformers", "answers"}
    assert 2 <= found["decode_thorough"]["answers"]["tokens_mean"] <= 5
