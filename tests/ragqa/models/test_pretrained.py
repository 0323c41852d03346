"""Pretrained seq2seq models: dropout, and weights that are missing or damaged."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ragqa.errors import ArtefactError
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.pretrained import set_dropout
from tests.helpers.denoise import write_shapes


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_shapes(tmp_path_factory.mktemp("shapes"))


def test_dropout_is_set_in_every_layer(shapes: dict[str, Path]) -> None:
    """BART stores its rates as plain numbers. Without dropout two passes in training mode are equal."""
    for kind, path in shapes.items():
        torch.manual_seed(0)
        model = Seq2Seq.load(path, fresh=True).model
        ids = torch.arange(10).view(1, -1)
        for rate, equal in ((0.5, False), (0, True), (0.5, False)):
            set_dropout(model.train(), rate)
            one, two = (model(input_ids=ids, decoder_input_ids=ids).logits for _ in range(2))
            assert torch.equal(one, two) == equal, (kind, rate)
    layer = nn.Dropout(0.1)
    set_dropout(layer, 0.3)
    assert layer.p == 0.3


def test_missing_and_damaged_weights_are_named(shapes: dict[str, Path], tmp_path: Path) -> None:
    Seq2Seq.load(shapes["t5"], fresh=True).save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    weights = load_file(file)
    remaining = {name: value for name, value in weights.items() if "decoder.block.0.layer.0" not in name}
    save_file(remaining, file, {"format": "pt"})
    with pytest.raises(ArtefactError, match=r"lacks \d+ weights of its seq2seq, for example decoder.block.0"):
        Seq2Seq.load(tmp_path / "model")
    file.write_bytes(b"nothing")
    with pytest.raises(ArtefactError, match="is not a seq2seq that can be loaded"):
        Seq2Seq.load(tmp_path / "model")
