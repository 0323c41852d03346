"""The bench of RAG runs, and both sides have equal losses and answers."""

import json
from pathlib import Path

import pytest
from seq2seq import counting

from eval.bench import rag_speed as bench
from eval.bench.rag_speed import RagSpeedConfig


@pytest.mark.thorough
def test_both_sides_have_equal_losses_and_answers(tmp_path: Path) -> None:
    """The bench stops where losses or answers differ. Two passages: transformers' own default is five."""
    questions, out = tmp_path / "asked.jsonl", tmp_path / "speed.json"
    rows = [{"question": f"W{n} W{n + 1}", "answers": [f"W{n + 2} W{n + 3}"]} for n in (3, 20)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench.main(
        RagSpeedConfig(
            index=counting(tmp_path), questions=questions, out=out, shape="tiny", batch=2, passages=2, beams=2,
            longest=5, decoding_tokens=12, steps=1,
        )
    )  # fmt: skip
    found = json.loads(out.read_text())
    for name in ("step_token", "step_sequence"):
        assert set(found[name]) == {"ours", "transformers", "transformers_300"}
        assert all(row["seconds"] > 0 for row in found[name].values())
    assert found["training_inputs"]["texts"] == 4 and found["training_answers"]["texts"] == 2
    assert set(found["decode_thorough"]) == {"ours", "transformers", "answers"}
    assert 2 <= found["decode_thorough"]["answers"]["tokens_mean"] <= 5
    assert found["decoding_inputs"]["tokens_longest"] == 12
