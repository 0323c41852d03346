"""The mean of the weights of readers, and readers that cannot be averaged."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from pipelines.span_reader.average import average_readers, main
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.models.span_readers import MlpSpanReader, SpanReader, load_reader


@pytest.fixture
def readers(small: Path, tmp_path: Path) -> list[Path]:
    """Save three readers: the weights of the second are 1 more than those of the first, of the third 5 more."""
    found = []
    for more in (0.0, 1.0, 5.0):
        torch.manual_seed(0)
        reader = SpanReader.from_encoder(small)
        for parameter in reader.parameters():
            parameter.data += more
        reader.config.reader_tokens = 64 + int(more)
        reader.save(tmp_path / f"plus-{more:g}")
        (tmp_path / f"plus-{more:g}" / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
        found.append(tmp_path / f"plus-{more:g}")
    return found


def test_weights_are_averaged(readers: list[Path], tmp_path: Path) -> None:
    main([*map(str, readers), "--out", str(tmp_path / "mean")])
    first, mean = load_reader(readers[0]).state_dict(), load_reader(tmp_path / "mean")
    assert mean.max_tokens == 69, "the configuration is that of the last reader"
    for name, value in mean.state_dict().items():
        assert torch.allclose(value, first[name] + 2, atol=1e-6), name  # (0 + 1 + 5) / 3
    average_readers(readers[:2], tmp_path / "mean")  # replaces the reader
    assert torch.allclose(load_reader(tmp_path / "mean").head.bias, first["head.bias"] + 0.5, atol=1e-6)


def test_different_readers_are_not_averaged(readers: list[Path], small: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at least two readers"):
        average_readers(readers[:1], tmp_path / "out")
    with pytest.raises(ArtefactError, match="is not a reader"):
        average_readers([small, *readers], tmp_path / "out")
    with pytest.raises(BadInput, match="is one of the readers"):
        average_readers(readers, readers[0])
    shutil.copytree(readers[0], tmp_path / "noted")
    (tmp_path / "noted" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"also holds notes\.txt"):
        average_readers(readers, tmp_path / "noted")
    for other in (tmp_path, small, small / "tokenizer.json"):  # a folder, an encoder, a file
        with pytest.raises(BadInput, match="holds something other than a reader"):
            average_readers(readers, other)
    MlpSpanReader.from_encoder(small, hidden=16, max_span=4).save(tmp_path / "mlp")
    with pytest.raises(Mismatch, match="has another head, early layer or size"):
        average_readers([tmp_path / "mlp", *readers], tmp_path / "out")
    words = (readers[0] / "tokenizer.json").read_text()
    (readers[0] / "tokenizer.json").write_text(words.replace('"w1":', '"w1234567":'))
    with pytest.raises(Mismatch, match="has other wordpieces"):
        average_readers(readers, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_readers_with_different_early_layers_are_not_averaged(small: Path, tmp_path: Path) -> None:
    """Their weights have the same shapes."""
    config = AutoConfig.from_pretrained(small, num_hidden_layers=3)
    for layer in (1, 2):
        encoder = AutoModel.from_config(config, add_pooling_layer=False)
        SpanReader(encoder, early_layer=layer).save(tmp_path / str(layer))
        shutil.copyfile(small / "tokenizer.json", tmp_path / str(layer) / "tokenizer.json")
    with pytest.raises(Mismatch, match="has another head, early layer or size"):
        average_readers([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    average_readers([tmp_path / "1", tmp_path / "1"], tmp_path / "out")


def test_the_command_reports_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none"), str(tmp_path / "nor"), "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert "nor is not a reader" in error and error.count("\n") == 1
