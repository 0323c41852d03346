"""What RAG costs here and in transformers' own classes: the bench runs, and what it compares is equal."""

import json
from pathlib import Path

import pytest
from seq2seq import counting

from eval.bench import rag_speed as bench


@pytest.mark.thorough
def test_the_bench_runs_and_says_how_long_answers_are(tmp_path: Path) -> None:
    """It leaves the program itself where losses or answers differ. Two passages: transformers' own default is five."""
    asked, out = tmp_path / "asked.jsonl", tmp_path / "speed.json"
    rows = [{"question": f"W{n} W{n + 1}", "answers": [f"W{n + 2} W{n + 3}"]} for n in (3, 20)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"index": counting(tmp_path), "questions": asked, "out": out, "shape": "tiny", "batch": 2, "passages": 2}
    given |= {"beams": 2, "longest": 5, "decoding-tokens": 12, "steps": 1}
    bench.main([part for name, value in given.items() for part in (f"--{name}", str(value))])
    found = json.loads(out.read_text())
    for name in ("step_token", "step_sequence"):
        assert set(found[name]) == {"ours", "transformers", "transformers_300"}
        assert all(row["seconds"] > 0 for row in found[name].values())
    assert found["training_inputs"]["texts"] == 4 and found["training_answers"]["texts"] == 2
    assert set(found["decode_thorough"]) == {"ours", "transformers", "answers"}
    assert 2 <= found["decode_thorough"]["answers"]["tokens_mean"] <= 5
    assert found["decoding_inputs"]["tokens_longest"] == 12
