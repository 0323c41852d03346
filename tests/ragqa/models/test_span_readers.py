"""The span reader of ORQA and REALM computes, saves, loads and exports the same scores."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ragqa import artefacts
from ragqa.errors import ArtefactError, DamagedArtefact, Mismatch
from ragqa.models.span_readers import MlpSpanReader, SpanReader, load_reader, read_head_name
from ragqa.reading.span import ExtractiveReader
from ragqa.runtime.export import export
from ragqa.runtime.restore import restore_weights
from ragqa.runtime.scorer import SpanTable, load_scorer
from ragqa.runtime.tokens import TokenInput
from ragqa.types import Hit, Passage

INPUTS = [TokenInput([2, 10, 11, 3, 20, 21, 22, 3], 4), TokenInput([2, 10, 3, 30, 31, 3], 3)]


class Fixed(torch.nn.Module):
    """Encoder with given hidden states."""

    config = SimpleNamespace(hidden_size=2)

    def forward(self, input_ids: torch.Tensor, **others: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))


def test_a_span_score_agrees_with_hand_computation() -> None:
    """Add start (1, 0) or (0, 1) and end, then ReLU, layer norm, weights (1, 2) and bias 0.5."""
    reader = MlpSpanReader(Fixed(), hidden=2, max_span=2)
    with torch.no_grad():
        reader.project.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
        reader.score.weight.copy_(torch.tensor([[1.0, 2.0]]))
        reader.score.bias.fill_(0.5)
        scores = reader(torch.tensor([[1, 2]]), None, None)
    one = 1 / math.sqrt(1 + 1e-3)  # (2, 0) has mean 1 and variance 1; (1, 1) has no variance
    assert scores.shape == (1, 2, 2)
    assert scores[0].flatten().tolist()[:3] == pytest.approx([0.5 - one, 0.5, 0.5 + one])


@pytest.fixture(scope="module")
def saved_reader(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a reader with weights large enough that its scores differ."""
    path = tmp_path_factory.mktemp("mlp-reader")
    torch.manual_seed(1)
    reader = MlpSpanReader.from_encoder(small, hidden=16, max_span=4)
    with torch.no_grad():
        reader.project.weight.normal_(std=0.3)
        reader.score.weight.normal_(std=0.3)
    reader.config.reader_tokens = 40
    reader.save(path)
    (path / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    return path


def test_scores_agree_with_loops_over_the_spans(saved_reader: Path) -> None:
    reader = MlpSpanReader.load(saved_reader).eval()
    ids, types = torch.tensor([INPUTS[0].ids]), torch.tensor([[0] * 4 + [1] * 4])
    with torch.no_grad():
        scores = reader(ids, torch.ones_like(ids), types)[0].numpy()
        hidden = reader.encoder(input_ids=ids, token_type_ids=types).last_hidden_state[0].numpy()
    weights = {name: value.numpy() for name, value in reader.state_dict().items()}
    kernel, bias = weights["project.weight"], weights["project.bias"]
    for first in range(8):
        for last in range(first, min(8, first + 4)):
            both = kernel[:16] @ hidden[first] + bias[:16] + kernel[16:] @ hidden[last] + bias[16:]
            x = np.maximum(both, 0)
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-3) * weights["norm.weight"] + weights["norm.bias"]
            by_hand = x @ weights["score.weight"][0] + weights["score.bias"][0]
            assert scores[first, last - first] == pytest.approx(by_hand, abs=1e-4)


def test_scores_are_computed_in_float32(saved_reader: Path) -> None:
    reader, seen = MlpSpanReader.load(saved_reader).eval(), []
    reader.encoder.register_forward_hook(lambda module, arguments, output: seen.append(output.last_hidden_state))
    ids = torch.tensor([INPUTS[0].ids])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        scores = reader(ids, torch.ones_like(ids), torch.zeros_like(ids))
    with torch.no_grad():
        first, last = reader.project(seen[0].float()).chunk(2, -1)
        whole = reader.score(reader.norm(torch.relu(first[0, 2] + last[0, 4])))
    assert scores[0, 2, 2].item() == pytest.approx(whole.item(), abs=1e-6)


def test_a_saved_reader_computes_the_same(small: Path, saved_reader: Path, tmp_path: Path) -> None:
    reloaded = load_reader(saved_reader)
    assert isinstance(reloaded, MlpSpanReader)
    assert (reloaded.max_span, reloaded.max_tokens, reloaded.norm.normalized_shape) == (4, 40, (16,))
    reloaded.save(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == (saved_reader / "model.safetensors").read_bytes()
    SpanReader.from_encoder(small).save(tmp_path / "other")
    assert isinstance(load_reader(tmp_path / "other"), SpanReader)


def test_readers_of_earlier_versions_are_recognised_by_their_weights(small: Path, tmp_path: Path) -> None:
    SpanReader.from_encoder(small).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["reader"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert isinstance(load_reader(tmp_path), SpanReader)


def test_directories_without_a_reader_are_reported(small: Path, saved_reader: Path, tmp_path: Path) -> None:
    assert read_head_name(small) is None
    with pytest.raises(ArtefactError, match="is not a reader"):
        load_scorer(small)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "model.safetensors").touch()
    with pytest.raises(ArtefactError, match=r"run is not a reader: name the model of the run, .*run/model$"):
        load_reader(tmp_path / "run")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((saved_reader / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "reader_hidden": 8}))
    with pytest.raises(DamagedArtefact, match=r"holds weights that do not fit its config\.json"):
        load_scorer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "reader": "oracle"}))
    with pytest.raises(ArtefactError, match="a reader with the unknown head 'oracle'; ragqa has ends, mlp"):
        load_scorer(tmp_path)


@pytest.fixture(scope="module")
def exported_reader(saved_reader: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlp-export") / "reader"
    export(saved_reader, path)
    return path


@pytest.mark.thorough
def test_an_export_of_this_reader_cannot_be_restored(exported_reader: Path, saved_reader: Path, tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match="holds a reader with the head 'mlp': only readers with the head 'ends'"):
        restore_weights(exported_reader, saved_reader, tmp_path / "out")


@pytest.mark.thorough
def test_an_export_scores_like_the_torch_reader(saved_reader: Path, exported_reader: Path) -> None:
    manifest = artefacts.read_manifest(exported_reader, "reader")
    assert manifest.config["reader"] == "mlp" and manifest.config["prior"] == "raw"
    ours, theirs = load_scorer(exported_reader), load_scorer(saved_reader)
    assert (ours.max_tokens, ours.prior) == (40, "raw")
    assert ours.fingerprint == f"{artefacts.checksum(exported_reader / 'model.onnx')[:16]} onnx 40 4", (
        "8 bits are not float32"
    )
    assert theirs.fingerprint == f"{artefacts.checksum(saved_reader / 'model.safetensors')[:16]} torch 40 4"
    for one, other, item in zip(ours.score(INPUTS), theirs.score(INPUTS), INPUTS, strict=True):
        assert isinstance(one, SpanTable) and one.spans.shape == other.spans.shape == (len(item.ids), 4)
        inside = np.arange(len(item.ids))[:, None] + np.arange(4) < len(item.ids)
        assert np.corrcoef(one.spans[inside], other.spans[inside])[0, 1] > 0.95


def test_scores_do_not_depend_on_the_batch(saved_reader: Path) -> None:
    scorer = load_scorer(saved_reader)
    (alone,) = scorer.score(INPUTS[1:])
    beside = scorer.score(INPUTS)[1]
    assert np.allclose(alone.spans[:3], beside.spans[:3], atol=1e-5)


def test_an_export_answers_with_spans_of_allowed_length(exported_reader: Path) -> None:
    text = " ".join(f"w{number}" for number in range(100, 190))  # three windows
    hit = Hit(Passage(0, "0", "", text, "memory", 0, len(text)), 3.0)
    answer = ExtractiveReader.load(exported_reader).read(["w1 w2"], [[hit]])[0]
    span = answer.sources[0].span
    assert span is not None and text[span.start : span.end] == answer.text
    assert 1 <= len(answer.text.split()) <= 4
