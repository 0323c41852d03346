"""Encoders exported for sentence-transformers compute the same vectors there."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragqa.artefacts.paths import DEFAULT_ENCODER
from ragqa.errors import BadInput
from ragqa.models.tower import Tower
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.sentence_transformers import export_sentence_transformer
from tests.conftest import run

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 " * 200]
OPTIONS = {
    "ORQA": {"pooling": "cls", "width": 8},
    "DPR": {"pooling": "cls", "width": None},
    "sentences": {"pooling": "mean", "width": None, "unit_length": True},
}


def write_tower(small: Path, folder: Path, **options: Any) -> Path:
    """Write a tower with random weights, and a tokenizer that adds [CLS] and [SEP]."""
    from tokenizers import Tokenizer, processors

    torch.manual_seed(3)
    tower = Tower.from_encoder(small, **options)
    if tower.norm is not None:
        torch.nn.init.constant_(tower.norm.weight, 0.4)
    tower.save(folder)
    tokenizer = Tokenizer.from_file(str(small / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.filterwarnings("ignore")
def test_sentence_transformers_computes_the_same_vectors(small: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    source = write_tower(small, tmp_path / "source", **options)
    export_sentence_transformer(source, tmp_path / "out")
    model = package.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    theirs, ours = model.encode(TEXTS), load_encoder(source).encode(TEXTS)
    assert theirs.shape == (3, options["width"] or 32)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert np.abs(ours[0] - ours[1]).max() > 0.001
    kinds = [type(module).__name__ for module in model]
    assert kinds[:2] == ["Transformer", "Pooling"] and set(kinds) <= {*kinds[:2], "Dense", "LayerNorm", "Normalize"}


def test_the_files_pool_as_the_encoder_does(small: Path, tmp_path: Path) -> None:
    """Compute the vectors with transformers and with the pooling that the files describe."""
    from transformers import AutoModel, AutoTokenizer

    source = write_tower(small, tmp_path / "source", pooling="mean", width=None, unit_length=True)
    settings = export_sentence_transformer(source, tmp_path / "out")
    assert settings["pooling"] == "mean" and settings["normalise"] and settings["width"] == 32
    modules = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [row["type"].rpartition(".")[2] for row in modules] == ["Transformer", "Pooling", "Normalize"]
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] and not pooling["pooling_mode_cls_token"]
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")("w1 w2 w3")["input_ids"]
    assert ids == [2, 6, 7, 8, 3]
    with torch.no_grad():
        states = AutoModel.from_pretrained(tmp_path / "out").eval()(torch.tensor([ids])).last_hidden_state[0]
    vector = states.mean(0) / states.mean(0).norm()
    np.testing.assert_allclose(load_encoder(source).encode(TEXTS[:1])[0], vector.numpy(), atol=1e-5)


def test_what_cannot_be_expressed_is_refused(small: Path, tmp_path: Path) -> None:
    source = write_tower(small, tmp_path / "source", width=8)
    towers = tmp_path / "towers"
    for name in ("passages", "questions"):
        shutil.copytree(source, towers / name)
    with pytest.raises(BadInput, match="two encoders: export its folders passages and questions"):
        export_sentence_transformer(towers, tmp_path / "out")
    with pytest.raises(BadInput, match="is an export in 8 bits, or an index: name a folder with torch weights"):
        export_sentence_transformer(DEFAULT_ENCODER, tmp_path / "out")
    shutil.copyfile(small / "tokenizer.json", source / "tokenizer.json")
    with pytest.raises(BadInput, match=r"does not add \[CLS\] and \[SEP\]"):
        export_sentence_transformer(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    write_tower(small, source, width=8)
    with pytest.raises(BadInput, match=r"thesis\.txt"):
        export_sentence_transformer(source, tmp_path / "mine")


def test_the_command(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tower(small, tmp_path / "source", pooling="mean", width=None, unit_length=True)
    (tmp_path / "card.md").write_text("# Card\n")
    options = ["--format", "sentence-transformers", "--out", str(tmp_path / "out")]
    status, out, _ = run("export", str(source), *options, "--card", str(tmp_path / "card.md"), capsys=capsys)
    assert status == 0 and out.endswith("out: 32 values, pooling mean, unit vectors\n")
    assert (tmp_path / "out" / "README.md").read_text() == "# Card\n"
    status, _, error = run("export", str(source), *options, "--share", "x", capsys=capsys)
    assert status == 2 and "--share is for --format onnx" in error
