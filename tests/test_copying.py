"""A generator made of an encoder copies before it was trained."""

from pathlib import Path

import numpy as np
import pytest
import torch
from generators import bart_tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModel

from ragqa.errors import BadInput
from ragqa.models.copying import _LeastSquares, begin_copying
from ragqa.models.encoder_decoder import from_encoder
from ragqa.models.seq2seq import Seq2Seq


def texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{n}" for n in rng.integers(1, 300, 30)) for _ in range(count)]


def said(model: Seq2Seq, given: list[str]) -> tuple[Tensor, Tensor]:
    """Logits while each text is written that is read, and its ids."""
    ids_NL = model.tokens.pad_rows(model.tokens.ids(given)).ids_NL
    with torch.no_grad():
        states = model.eval().encode(model.tokens.pad_rows(model.tokens.ids(given)))
        return model.logits(states, ids_NL), ids_NL


def of_the_text(model: Seq2Seq, given: list[str]) -> float:
    """How often the likeliest piece is one of the text."""
    logits_NLV, ids_NL = said(model, given)
    best_NL = logits_NLV.argmax(-1)
    return float((best_NL.unsqueeze(-1) == ids_NL.unsqueeze(1)).any(-1).float().mean())


def test_least_squares_in_parts() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 3)).astype(np.float32)
    y = x @ np.array([[2.0], [-1.0], [0.5]], np.float32) + 5
    fitted = _LeastSquares()
    for part in (slice(0, 10), slice(10, 1000)):
        fitted.add(torch.from_numpy(x[part]), torch.from_numpy(y[part]))
    weight, bias = fitted.solve()
    assert weight.shape == (1, 3) and bias.shape == (1,)
    assert np.allclose(weight, [[2, -1, 0.5]], atol=0.05) and np.allclose(bias, 5, atol=0.1)  # 1 % ridge


def test_what_it_says_stands_in_what_it_reads(small: Path) -> None:
    model, asked = from_encoder(small, decoder_layers=1), texts(20, 1)
    before = of_the_text(model, asked)
    begin_copying(model, texts(100, 0))
    assert before < 0.2 and of_the_text(model, asked) > 0.8


def test_only_the_last_layer_is_fitted_and_mode_and_device_stay(small: Path) -> None:
    torch.manual_seed(0)
    model = from_encoder(small).train()
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    begin_copying(model, texts(40, 0))
    changed = {name for name, value in model.model.state_dict().items() if not torch.equal(value, before[name])}
    last = f"decoder.bert.encoder.layer.{model.layers - 1}.crossattention."
    assert changed and all(name.startswith((last, "decoder.cls.predictions.")) for name in changed)
    assert model.training and {value.requires_grad for value in model.parameters()} == {True}
    torch.manual_seed(0)
    again = from_encoder(small)
    begin_copying(again, texts(40, 0))
    assert all(torch.equal(again.model.state_dict()[name], model.model.state_dict()[name]) for name in changed)


def of_family(family: str, path: Path) -> Seq2Seq:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model(family, vocab_size=300, max_position_embeddings=200, pad_token_id=1, **sizes)
    AutoModel.from_config(config).save_pretrained(path)
    bart_tokenizer().save_pretrained(path)
    return from_encoder(path)


def test_a_roberta_copies_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, asked = of_family("roberta", tmp_path), ["who wrote it", "a lady in a tale"]
    before = said(model, asked)[0]
    begin_copying(model, asked * 10)
    after, ids_NL = said(model, asked)
    assert (
        after.log_softmax(-1).gather(-1, ids_NL.unsqueeze(-1)).mean()
        > 2 + before.log_softmax(-1).gather(-1, ids_NL.unsqueeze(-1)).mean()
    )


def test_others_and_no_texts_are_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no texts to fit"):
        begin_copying(from_encoder(small), ["", " "])
    with pytest.raises(BadInput, match="not to a electra"):
        begin_copying(of_family("electra", tmp_path), ["a lady"])
