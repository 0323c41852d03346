"""A generator made from an encoder copies before it is trained."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from ragqa.errors import BadInput
from ragqa.models import attention
from ragqa.models.generation.copying import (
    Example,
    _fit_positions,
    _LeastSquares,
    _make_distribution,
    initialise_answering,
    initialise_copying,
)
from ragqa.models.generation.encoder_decoder import make_from_encoder
from ragqa.models.generation.seq2seq import Seq2Seq
from tests.helpers.generators import bart_tokenizer


def texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{n}" for n in rng.integers(1, 300, 30)) for _ in range(count)]


def copy_texts(model: Seq2Seq, sources: list[str]) -> tuple[Tensor, Tensor]:
    """Return the logits while each text is copied, and its ids."""
    ids_NL = model.tokens.pad_rows(model.tokens.encode(sources)).ids_NL
    with torch.no_grad():
        states = model.eval().encode(model.tokens.pad_rows(model.tokens.encode(sources)))
        return model.compute_logits(states, ids_NL), ids_NL


def measure_copying(model: Seq2Seq, sources: list[str]) -> float:
    """Return how often the most probable token is in the text."""
    logits_NLV, ids_NL = copy_texts(model, sources)
    best_NL = logits_NLV.argmax(-1)
    return float((best_NL.unsqueeze(-1) == ids_NL.unsqueeze(1)).any(-1).float().mean())


def test_least_squares_can_be_added_in_parts() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 3)).astype(np.float32)
    y = x @ np.array([[2.0], [-1.0], [0.5]], np.float32) + 5
    fitted = _LeastSquares()
    for part in (slice(0, 10), slice(10, 1000)):
        fitted.add(torch.from_numpy(x[part]), torch.from_numpy(y[part]))
    weight, bias = fitted.solve()
    assert weight.shape == (1, 3) and bias.shape == (1,)
    assert np.allclose(weight, [[2, -1, 0.5]], atol=0.05) and np.allclose(bias, 5, atol=0.1)  # 1 % ridge


def test_predicted_tokens_are_in_the_text(small: Path) -> None:
    model, sample = make_from_encoder(small, decoder_layers=1), texts(20, 1)
    before = measure_copying(model, sample)
    initialise_copying(model, texts(100, 0))
    assert before < 0.2 and measure_copying(model, sample) > 0.8


def test_only_the_last_layer_is_fitted_and_training_mode_stays(small: Path) -> None:
    torch.manual_seed(0)
    model = make_from_encoder(small).train()
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    initialise_copying(model, texts(40, 0))
    changed = {name for name, value in model.model.state_dict().items() if not torch.equal(value, before[name])}
    last = f"decoder.bert.encoder.layer.{model.decoder_config.num_hidden_layers - 1}."
    fitted = (f"{last}crossattention.", f"{last}output.dense.", "decoder.cls.predictions.")
    assert changed and all(name.startswith(fitted) for name in changed)
    assert model.training and {value.requires_grad for value in model.parameters()} == {True}
    torch.manual_seed(0)
    again = make_from_encoder(small)
    initialise_copying(again, texts(40, 0))
    assert all(torch.equal(again.model.state_dict()[name], model.model.state_dict()[name]) for name in changed)


def test_positions_are_fitted_by_their_likelihood() -> None:
    """The states are of two kinds, and the fitted weights attend to the right kind."""
    kinds = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    state_NLD = kinds[torch.tensor([[0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]])]
    inside_NL = torch.tensor([[True] * 4, [True] * 4, [True, True, False, False]])
    share_NL = torch.stack(
        [_make_distribution(4, [1], (0,)), _make_distribution(4, [2], range(2)), _make_distribution(4, [0], (0,))]
    )
    assert share_NL[1].tolist() == [0, 0, 0.5, 0.5]
    weight_D = _fit_positions(state_NLD, inside_NL, share_NL)
    assert weight_D[1] - weight_D[0] > 3  # regularisation costs the rest


def make_answered_texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Make texts whose fourth word is the answer; encoders know positions."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = [f"w{n}" for n in 1 + rng.permutation(300)[:20]]
        made.append((" ".join(words), words[3]))
    return made


def examples(model: Seq2Seq, rows: list[tuple[str, str]]) -> list[Example]:
    made = []
    for ids, (_, answer) in zip(model.tokens.encode([text for text, _ in rows]), rows, strict=True):
        (piece,) = model.tokens.encode_bare(answer)
        made.append(Example(ids, [piece, model.conventions.ends[0]], [ids.index(piece)]))
    return made


def test_answers_begin_where_the_encoder_expects_them(small: Path) -> None:
    model = make_from_encoder(small, decoder_layers=1)
    initialise_answering(model, examples(model, make_answered_texts(400, 0)))
    sample = examples(model.eval(), make_answered_texts(50, 1))
    ids_NL = model.tokens.pad_rows([each.ids for each in sample])
    start_N1 = torch.full((len(sample), 1), model.conventions.start)
    with torch.no_grad(), attention.record_weights() as seen:
        best_N = model.compute_logits(model.encode(ids_NL), start_N1)[:, 0].argmax(-1)
    places = torch.tensor([each.places[0] for each in sample])
    looked_N = seen[-1].mean(1)[torch.arange(len(sample)), 0, places]
    assert looked_N.mean() > 0.6  # of 22 places
    assert (
        best_N == torch.tensor([each.answer[0] for each in sample])
    ).float().mean() > 0.6  # one fixed place would give 0.02


def make_encoder_of_family(family: str, path: Path) -> Seq2Seq:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model(family, vocab_size=300, max_position_embeddings=200, pad_token_id=1, **sizes)
    AutoModel.from_config(config).save_pretrained(path)
    bart_tokenizer().save_pretrained(path)
    return make_from_encoder(path)


def test_a_roberta_copies(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, sample = make_encoder_of_family("roberta", tmp_path), ["who wrote it", "a lady in a tale"]
    before = copy_texts(model, sample)[0]
    initialise_copying(model, sample * 10)
    after, ids_NL = copy_texts(model, sample)
    assert (
        after.log_softmax(-1).gather(-1, ids_NL.unsqueeze(-1)).mean()
        > 1.5 + before.log_softmax(-1).gather(-1, ids_NL.unsqueeze(-1)).mean()
    )


def test_other_families_and_missing_texts_are_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no texts to fit"):
        initialise_copying(make_from_encoder(small), ["", " "])
    with pytest.raises(BadInput, match="no text holds its answer"):
        initialise_answering(make_from_encoder(small), [Example([2, 9, 3], [8, 3], [])])
    with pytest.raises(BadInput, match="not to a electra"):
        initialise_copying(make_encoder_of_family("electra", tmp_path), ["a lady"])
