"""Encoders and readers: the packaged ones, and a small model through torch and through its export."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import publish
from pipelines.common.recipe_calibration import install_calibration
from ragqa import artefacts
from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.reading.calibration import Calibration
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.restore import restore_weights
from ragqa.runtime.scorer import SpanScores, load_scorer
from ragqa.runtime.tokens import TextTokenizer, TokenInput


@pytest.fixture(scope="session")
def small_reader(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a span reader on the small BERT; all weights but the word embeddings are changed."""
    import torch

    from ragqa.models.span_readers import SpanReader

    path = tmp_path_factory.mktemp("small-reader")
    torch.manual_seed(1)
    reader = SpanReader.from_encoder(small)
    own = reader.encoder.embeddings
    learned = own.position_embeddings, own.token_type_embeddings, own.LayerNorm, reader.encoder.encoder
    for parameter in (each for part in learned for each in part.parameters()):
        parameter.data += 0.01 * torch.randn_like(parameter)
    reader.save(path)
    (path / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    return path


@pytest.fixture(scope="session")
def exported(small: Path, small_reader: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export both; the reader shares the embeddings of the encoder."""
    from ragqa.runtime.export import export

    path = tmp_path_factory.mktemp("exported")
    export(small, path / "encoder")
    export(small_reader, path / "reader", share=path / "encoder")
    return path


def test_the_packaged_encoder_ranks_related_texts_higher() -> None:
    vectors = load_encoder().encode(
        [
            "Who invented the telescope?",
            "Lippershey made the first telescopes in 1608.",
            "Bananas are rich in potassium.",
        ]
    )
    assert vectors.shape == (3, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3


def test_the_vector_of_a_text_does_not_depend_on_the_batch() -> None:
    encoder = load_encoder()
    alone = encoder.encode(["a short text"])
    beside = encoder.encode(["a short text", "another, much longer text " * 30])
    assert np.array_equal(alone[0], beside[0])
    assert encoder.encode([]).shape == (0, 384)


def test_long_and_strange_texts_are_encoded() -> None:
    vectors = load_encoder().encode(["", "word " * 5000, "\x00\x07", "日本語の文", "\U0001f9ea" * 50])
    assert np.isfinite(vectors).all()


def test_an_exported_encoder_equals_the_torch_one_up_to_rounding(small: Path, exported: Path) -> None:
    torch_encoder, onnx_encoder = load_encoder(small), load_encoder(exported / "encoder")
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 1100, n)) for n in (1, 3, 17, 120, 700)]
    one, other = torch_encoder.encode(texts), onnx_encoder.encode(texts)
    assert np.sum(one * other, axis=1).min() > 0.99
    assert torch_encoder.fingerprint == onnx_encoder.fingerprint
    assert onnx_encoder.max_tokens == 512


@pytest.mark.parametrize("kind", ["encoder", "reader"])
def test_slow_operators_are_not_exported(exported: Path, kind: str) -> None:
    """A mask is not exported either, because single texts are not padded."""
    import onnx

    graph = onnx.load(exported / kind / "model.onnx", load_external_data=False).graph
    operators = {node.op_type for node in graph.node}
    assert operators >= {"MatMulInteger", "Softmax", "LayerNormalization"}
    assert not operators & {"SkipLayerNormalization", "BiasGelu", "Where", "GreaterOrEqual"}


def test_slow_fusions_are_off_when_an_export_is_opened(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    opened = tmp_path / "opened.onnx"

    class Session(onnxruntime.InferenceSession):
        def __init__(self, model: str, options: Any, **keywords: Any) -> None:
            options.optimized_model_filepath = str(opened)
            super().__init__(model, options, **keywords)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    load_scorer(exported / "reader")
    graph = opened.read_bytes()
    assert b"LayerNormalization" in graph and not any(name in graph for name in (b"SkipLayerNorm", b"BiasGelu"))


def test_an_exported_reader_scores_like_the_torch_one(small_reader: Path, exported: Path) -> None:
    inputs = [TokenInput([2, 10, 11, 3, 20, 21, 22, 3], 4), TokenInput([2, 10, 3, 30, 31, 3], 3)]
    exported_scores, torch_scores = (
        load_scorer(exported / "reader").score(inputs),
        load_scorer(small_reader).score(inputs),
    )
    for one, other in zip(exported_scores, torch_scores, strict=True):
        assert one.start.shape == other.start.shape
        assert np.corrcoef(one.start, other.start)[0, 1] > 0.95
        assert one.relevance == pytest.approx(other.relevance, abs=0.05)


def test_shared_embeddings_are_stored_once_and_checked(exported: Path, small_reader: Path, tmp_path: Path) -> None:
    from ragqa.runtime.export import export

    assert not (exported / "reader" / "embeddings.bin").exists()
    with pytest.raises(Mismatch, match="are not those of this model"):
        export(small_reader, tmp_path / "reader", share=get_weights_dir() / "encoder")
    assert not (tmp_path / "reader").exists()


@pytest.mark.thorough
def test_exporting_equal_weights_again_keeps_card_and_calibration(
    exported: Path, small_reader: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    from ragqa.runtime.export import export

    shutil.copytree(exported, tmp_path / "weights")
    reader, encoder = tmp_path / "weights" / "reader", tmp_path / "weights" / "encoder"
    before = (reader / "model.onnx").read_bytes()
    install_calibration(Calibration((0.0, 2.0, 0.0, 0.0), "made up", 7), reader)
    (tmp_path / "card.md").write_text("# A card\n")
    with pytest.raises(BadInput, match=r"--card .*none\.md: there is no such file"):
        publish.add_card(tmp_path / "none.md", reader)
    publish.add_card(tmp_path / "card.md", reader)
    publish.add_card(tmp_path / "card.md", encoder)
    assert set(artefacts.read_manifest(reader, "reader").files) >= {"README.md", "calibration.json"}
    assert (reader / "model.onnx").read_bytes() == before and load_scorer(reader)
    export(small_reader, reader, share=encoder)
    assert Calibration.load(reader).answers == 7 and (reader / "README.md").read_text() == "# A card\n"
    other = tmp_path / "other"
    shutil.copytree(small_reader, other)
    weights = load_file(other / "model.safetensors")
    weights["head.bias"] += 1.0
    save_file(weights, other / "model.safetensors")
    export(other, reader, share=encoder)
    assert not (reader / "calibration.json").exists() and not (reader / "README.md").exists()
    artefacts.read_manifest(reader, "reader")
    with pytest.raises(ArtefactError, match="not an exported encoder or reader"):
        publish.add_card(tmp_path / "card.md", _write_report(tmp_path))


def _write_report(folder: Path) -> Path:
    made = folder / "r.report"
    made.mkdir()
    artefacts.write_manifest(made, "report", {}, {})
    return made


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="is not an encoder"):
        load_encoder(tmp_path)
    with pytest.raises(ArtefactError, match="is not a reader"):
        load_scorer(tmp_path)
    with pytest.raises(ArtefactError, match="not a ragqa encoder"):
        load_encoder(get_weights_dir() / "reader")


def test_the_packaged_weights_are_complete_and_small() -> None:
    size = 0
    for kind in ("encoder", "reader"):
        manifest = artefacts.read_manifest(get_weights_dir() / kind, kind)
        assert "README.md" in manifest.files, f"the {kind} has no model card"
        size += sum(file["size"] for file in manifest.files.values())
    assert size < 75e6


def test_reader_prefixes_match_ids_by_hand() -> None:
    tokenizer = TextTokenizer(get_weights_dir() / "encoder")
    first, last = tokenizer.special_ids
    assert (first, last) == (101, 102)
    assert tokenizer.make_reader_prefix([7, 8], [9]) == ([101, 7, 8, 102, 9, 102], 4)
    assert tokenizer.make_reader_prefix([7, 8], []) == ([101, 7, 8, 102], 4)
    assert tokenizer.encode_text("the cat " * 50, 8).ids[-1] == 102
    assert len(tokenizer.encode_text("the cat " * 50, 8).ids) == 8


def test_only_the_beginning_of_a_text_of_megabytes_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = TextTokenizer(get_weights_dir() / "encoder")
    for unit in ("北京是首都。", "the cat ", "x,"):
        text = unit * 20_000
        assert list(tokenizer.encode_text(text, 256).ids) == [101, *tokenizer.tokenize(text).ids[:254], 102]
    lengths: list[int] = []
    encode = tokenizer._encode
    monkeypatch.setattr(tokenizer, "_encode", lambda text: (lengths.append(len(text)), encode(text))[1])
    tokenizer.encode_text("北" * 4_000_000, 256)
    assert lengths == [25_600]


def test_an_exported_reader_is_restored_up_to_rounding(
    small: Path, small_reader: Path, exported: Path, tmp_path: Path
) -> None:
    """Each weight is within one 8-bit step; exported again, the reader scores the same."""
    from safetensors.torch import load_file

    from ragqa.models.span_readers import load_reader
    from ragqa.runtime.export import export

    restore_weights(exported / "reader", small, tmp_path / "restored")
    before, after = (load_file(path / "model.safetensors") for path in (small_reader, tmp_path / "restored"))
    assert before.keys() == after.keys()
    assert load_reader(tmp_path / "restored").describe() == load_reader(small_reader).describe()
    for name, value in before.items():
        assert (after[name] - value).abs().max() <= value.abs().max() / 127 + 1e-6, name
    export(tmp_path / "restored", tmp_path / "again")
    inputs = [TokenInput([2, 10, 11, 3, 20, 21, 22, 3], 4)]
    (one,), (other,) = (load_scorer(path).score(inputs) for path in (exported / "reader", tmp_path / "again"))
    assert isinstance(one, SpanScores) and isinstance(other, SpanScores)
    assert np.allclose(one.start, other.start, atol=1e-2) and np.allclose(one.end, other.end, atol=1e-2)


def test_other_files_are_never_overwritten(small: Path, small_reader: Path, exported: Path, tmp_path: Path) -> None:
    from ragqa.runtime.export import export

    shutil.copytree(small, tmp_path / "encoder")
    shutil.copytree(small_reader, tmp_path / "reader")
    shutil.copytree(exported / "reader", tmp_path / "exported")
    for name in ("reader", "exported"):
        (tmp_path / name / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds something other than a reader"):
        restore_weights(exported / "reader", small, tmp_path / "encoder")
    with pytest.raises(BadInput, match=r"reader also holds notes\.txt, which would be deleted"):
        restore_weights(exported / "reader", small, tmp_path / "reader")
    with pytest.raises(BadInput, match=r"exported also holds notes\.txt"):
        export(small_reader, tmp_path / "exported")
    assert all((tmp_path / name / "notes.txt").read_text() == "mine" for name in ("reader", "exported"))


@pytest.mark.parametrize(("name", "value"), [("reader_span", 3), ("reader_tokens", 20)])
def test_limits_of_a_reader_change_its_fingerprint(small_reader: Path, tmp_path: Path, name: str, value: int) -> None:
    import json

    other = tmp_path / "other"
    shutil.copytree(small_reader, other)
    settings = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**settings, name: value}))
    assert load_scorer(other).fingerprint != load_scorer(small_reader).fingerprint


def test_weights_that_cannot_be_restored_are_refused(small: Path, exported: Path, tmp_path: Path) -> None:
    import json

    with pytest.raises(ArtefactError):
        restore_weights(exported / "encoder", small, tmp_path / "out")
    other = tmp_path / "other"
    shutil.copytree(small, other)
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + " ")
    with pytest.raises(Mismatch, match="does not have the tokenizer"):
        restore_weights(exported / "reader", other, tmp_path / "out")
    with pytest.raises(Mismatch, match="nowhere does not have the tokenizer"):
        restore_weights(exported / "reader", tmp_path / "nowhere", tmp_path / "out")
    shutil.copytree(small, tmp_path / "deeper")
    config = json.loads((small / "config.json").read_text())
    for changed in ({"num_hidden_layers": 3}, {"intermediate_size": 32}):
        (tmp_path / "deeper" / "config.json").write_text(json.dumps(config | changed))
        with pytest.raises((Mismatch, ArtefactError)):
            restore_weights(exported / "reader", tmp_path / "deeper", tmp_path / "out")
    assert not (tmp_path / "out").exists()
