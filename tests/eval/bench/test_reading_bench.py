"""The bench of reading: both sides read the same texts, and a missing peer is reported in one line."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from eval.bench import reading
from eval.bench.latency import convert_reader
from eval.bench.reading import ReadingConfig
from ragqa.errors import BadInput, Mismatch


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [{"question": f"which {word}?", "answers": ["river"]} for word in ("stone", "king", "tower")]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "questions.jsonl"


@pytest.fixture
def config(corpus: Path, questions: Path, tmp_path: Path) -> ReadingConfig:
    return ReadingConfig(index=corpus, questions=questions, work=tmp_path, out=tmp_path / "out.json", runs=1, k=4)


def with_peer(config: ReadingConfig, python: str, **changes: Any) -> ReadingConfig:
    return replace(config, peer_python=python, model=config.work, tokenizer=config.work, **changes)


def test_ragqa_is_measured_alone_without_a_pipeline(config: ReadingConfig, capsys: pytest.CaptureFixture[str]) -> None:
    reading.main(with_peer(config, "false"))
    found = json.loads(config.out.read_text())
    assert found["passages"] == 12 and found["cores"] <= 2
    assert found["ragqa"]["passages_per_s"] > 0 and found["ragqa"]["peak_rss_mb"] > 20
    assert found["peer"] == capsys.readouterr().err.splitlines()[-1]
    assert found["peer"].startswith("no peer: false has no question-answering pipeline: name one with")


def test_the_ratio_of_two_sides(config: ReadingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer is a script with a speed of its own that answers with what it read."""
    peer = tmp_path / "peer"
    script = "import json, sys; rows = json.load(open(sys.argv[-1]))\n"
    script += "answers = [row['contexts'][0] if n else None for n, row in enumerate(rows)]\n"
    script += "speed = 0.5 if sys.argv[-2] == '--batch' else 0.25\n"
    script += "print(json.dumps({'passages_per_s': speed, 'answers': answers, 'packages': {'torch': '1'}}))\n"
    (tmp_path / "peer.py").write_text(script.replace("sys.argv[-1]", "sys.argv[4]"))
    peer.write_text(f'#!/bin/sh\n[ "$1" = "-c" ] || exec "{sys.executable}" "{tmp_path}/peer.py" "$@"\n')
    peer.chmod(0o755)
    monkeypatch.setattr(reading, "convert_reader", lambda *_: None)
    monkeypatch.setattr(reading, "check_same_weights", lambda *_: None)
    reading.main(with_peer(config, str(peer)))
    found = json.loads(config.out.read_text())
    assert found["peer"]["passages_per_s"] == 0.2 and found["same_answers"] == 0.0
    assert found["peer's packages"] == {"torch": "1"}
    assert found["peer, one by one"]["passages_per_s"] == 0.5, "the faster way is what counts"
    assert found["ratio_passages_per_s"] == pytest.approx(2 * found["ragqa"]["passages_per_s"], rel=0.01)


def test_the_peers_reader_is_the_same_model(small: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForQuestionAnswering

    from ragqa.models.span_readers import SpanReader

    torch.manual_seed(0)
    ours = SpanReader.from_encoder(small).eval()
    ours.save(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (tmp_path / name).write_text("{}")
    convert_reader(tmp_path / "model", tmp_path, tmp_path / "peer")
    theirs = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "peer").eval()
    ids = torch.randint(5, 1000, (2, 12))
    mask, types = torch.ones_like(ids), (torch.arange(12) > 4).long().repeat(2, 1)
    with torch.no_grad():
        start, end, _ = ours(ids, mask, types)
        found = theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)
    assert torch.allclose(found.start_logits, start, atol=1e-6) and torch.allclose(found.end_logits, end, atol=1e-6)


def test_memory_is_measured_without_torch() -> None:
    told = "import sys, eval.bench.reading; print({'torch', 'transformers'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "set()"


def test_the_hits_are_read(config: ReadingConfig) -> None:
    texts, count = reading.prepare(replace(config, count=2, k=3))
    rows = json.loads(texts.read_text())
    assert count == 6 and [len(row["contexts"]) for row in rows] == [3, 3] and rows[0]["question"] == "which stone?"
    assert len(reading.read(None, texts)["answers"]) == 2
    with pytest.raises(BadInput, match="--count, --runs: at least 1 is needed"):
        replace(config, count=0, runs=-1)


def test_the_two_sides_have_the_same_weights(small: Path, tmp_path: Path) -> None:
    from ragqa.models.span_readers import SpanReader
    from ragqa.runtime.export import export

    for name in ("one", "other"):
        SpanReader.from_encoder(small).save(tmp_path / name)  # heads by chance
        (tmp_path / name / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    export(tmp_path / "one", tmp_path / "onnx")
    reading.check_same_weights(tmp_path / "onnx", tmp_path / "one")
    with pytest.raises(Mismatch, match="would read with different weights"):
        reading.check_same_weights(tmp_path / "onnx", tmp_path / "other")


def test_a_side_that_fails_says_why() -> None:
    for command, status in (("raise ValueError('no weights')", 1), ("import sys; sys.exit('no weights')", 1)):
        with pytest.raises(BadInput, match=f"ended with status {status}: .*no weights"):
            reading.run_peer([sys.executable, "-c", command])
