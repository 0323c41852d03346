"""The bench of RAG compares systems with equal losses and answers."""

import json
from pathlib import Path

import pytest

from eval.bench import rag_speed
from eval.bench.rag_speed import RagSpeedConfig


@pytest.mark.thorough
def test_both_sides_have_equal_losses_and_answers(tmp_path: Path) -> None:
    """The bench fails if losses or answers differ. It reads two passages; transformers reads five by default."""
    config = RagSpeedConfig(
        out=tmp_path / "speed.json", shape="tiny", batch=2, passages=2, beams=2, longest=5, tokens=20,
        decoding_tokens=12, steps=1,
    )  # fmt: skip
    rag_speed.main(config)
    figures = json.loads(config.out.read_text())
    for name in ("step_token", "step_sequence"):
        assert set(figures[name]) == {"ours", "transformers", "transformers_300"}
        assert all(row["seconds"] > 0 for row in figures[name].values())
    assert figures["training_inputs"]["texts"] == 4 and figures["training_answers"]["texts"] == 2
    assert set(figures["decode_thorough"]) == {"ours", "transformers", "answers"}
    assert 2 <= figures["decode_thorough"]["answers"]["tokens_mean"] <= 5
