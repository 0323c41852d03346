"""The parts of the latency bench: the peer has the same reader, and a run that fails says why."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForQuestionAnswering

from eval.bench.latency import convert_reader
from eval.bench.process import run_timed
from ragqa.errors import BadInput
from ragqa.models.span_readers import SpanReader


def test_the_peers_reader_is_the_same_model(small: Path, tmp_path: Path) -> None:
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
        output = theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)
    assert torch.allclose(output.start_logits, start, atol=1e-6) and torch.allclose(output.end_logits, end, atol=1e-6)


@pytest.mark.parametrize("command", ["raise ValueError('no weights')", "import sys; sys.exit('no weights')"])
def test_the_error_of_a_failed_command_is_quoted(command: str) -> None:
    with pytest.raises(BadInput, match=r"ended with status 1: .*no weights"):
        run_timed([sys.executable, "-c", command])
