"""A generator made of an encoder begins by copying: its attention to what it reads, fitted by least squares.

No encoder has weights for a decoder's attention to what it reads. Begun at random (Rothe et al. 2020) it takes
thousands of steps until the decoder copies, and an answer out of a passage is a copy. The encoder's states say well
which piece stands where, so three linear maps are enough for a beginning:

- values: from the encoder's state to the embedding of the piece that stands there;
- keys, from the encoder's state to the piece before it, and queries, from the decoder's state to the piece that was
  said last, both to coordinates in which embeddings of unlike pieces are far apart: they meet where the text goes on;
- the layer before the vocabulary hands on what it is given, and the vocabulary's bias is how often a piece comes up.

Legend: N texts, L tokens of a text, M tokens of all texts, V vocabulary, D width.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from ragqa.errors import BadInput
from ragqa.models.seq2seq import Seq2Seq

_RIDGE = 1e-2
"""Share of the mean variance that is added to each."""
_SHARPNESS = 1.5
"""Of queries: tokens that match stand out of some hundred others."""
_SHIFT = 4.0
"""What a state is moved by before the activation, which then leaves it as it is; the norm behind takes it off again."""
_BATCH = 32


class _LeastSquares:
    """Weight ``[E, D]`` and bias ``[E]`` of the linear map from x to y, whose rows come in parts."""

    def __init__(self) -> None:
        self._within: Tensor | float = 0.0
        self._across: Tensor | float = 0.0

    def add(self, x_MD: Tensor, y_ME: Tensor) -> None:
        x = torch.cat([x_MD, torch.ones_like(x_MD[:, :1])], 1).double()
        self._within, self._across = self._within + x.T @ x, self._across + x.T @ y_ME.double()

    def solve(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self._within, Tensor)
        ridge = _RIDGE * self._within.diagonal().mean() * torch.eye(len(self._within), dtype=torch.double)
        both = torch.linalg.solve(self._within + ridge, self._across).float()
        return both[:-1].T, both[-1]


def begin_copying(model: Seq2Seq, texts: Sequence[str], *, max_tokens: int = 128) -> None:
    """Fit the last layer's attention to what is read, and what follows the layers, to ``texts``.

    The model is one of ``encoder_decoder.from_encoder``; some hundred texts of what it will read do.

    Raises:
        BadInput: there are no texts, or it is a family with other parts than BERT's and RoBERTa's.
    """
    cross, transform, norm, bias_V = _parts(model)
    rows = [row[:max_tokens] for row in model.tokens.ids(texts) if len(row) > 2]
    if not rows:
        raise BadInput("no texts to fit a generator's attention to: give some hundred passages")
    embedding_VD = model.model.get_encoder().get_input_embeddings().weight.detach().float().cpu()
    pieces_M = torch.tensor([piece for row in rows for piece in row])
    count_V = torch.bincount(pieces_M, minlength=len(embedding_VD)).float()
    piece_VD, apart_VD = _coordinates(embedding_VD, count_V)
    value, key, query = _LeastSquares(), _LeastSquares(), _LeastSquares()
    read, said = 0.0, 0.0
    for ids_L, state_LD, decoder_LD in _states(model, cross, rows):
        value.add(state_LD, piece_VD[ids_L])
        key.add(state_LD[1:], apart_VD[ids_L[:-1]])
        query.add(decoder_LD, apart_VD[ids_L])
        read, said = read + float(piece_VD[ids_L].norm(dim=-1).sum()), said + float(decoder_LD.norm(dim=-1).sum())
    own, out = cross.self, cross.output.dense
    with torch.no_grad():
        _put(own.value, value, said / read)  # as long as what it is added to
        _put(own.key, key, 1.0)
        _put(own.query, query, _SHARPNESS)
        for layer in (out, transform):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)
        transform.bias.add_(_SHIFT)
        norm.reset_parameters()
        often_V = (count_V + 1).log()
        bias_V.copy_(often_V - often_V.mean())


def _parts(model: Seq2Seq) -> tuple[Any, nn.Linear, nn.LayerNorm, Tensor]:
    """Attention of the last layer to what is read, the layer before the vocabulary, its norm, the vocabulary's bias."""
    decoder = model.model.decoder
    try:
        base = getattr(decoder, decoder.base_model_prefix)
        cross = base.encoder.layer[-1].crossattention
        if hasattr(decoder, "cls"):
            head = decoder.cls.predictions.transform
            parts = cross, head.dense, head.LayerNorm
        else:
            parts = cross, decoder.lm_head.dense, decoder.lm_head.layer_norm
        return *parts, cast(Tensor, decoder.get_output_embeddings().bias)
    except AttributeError as error:
        family = decoder.config.model_type
        raise BadInput(f"copying is fitted to decoders like BERT's and RoBERTa's, and not to a {family}") from error


def _coordinates(embedding_VD: Tensor, count_V: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings less their mean, and these again where all directions vary alike, in a random order of directions.

    The latter so that every head of attention, which sees some of the coordinates, tells pieces apart.
    """
    share_V = count_V / count_V.sum()
    piece_VD = embedding_VD - share_V @ embedding_VD
    size, direction_DD = torch.linalg.eigh((piece_VD.T * share_V) @ piece_VD)
    turn_DD = torch.linalg.qr(torch.randn(direction_DD.shape, generator=torch.Generator().manual_seed(0))).Q
    return piece_VD, piece_VD @ (direction_DD * (size + _RIDGE * size.mean()).rsqrt()) @ turn_DD


def _states(model: Seq2Seq, cross: nn.Module, rows: Sequence[list[int]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of each text its ids, the encoder's states, and those of the decoder that writes it, before it reads."""
    device, training = model.model.device, model.training
    model.eval()
    for begin in range(0, len(rows), _BATCH):
        part = rows[begin : begin + _BATCH]
        inputs = model.tokens.pad_rows(part).to(device)
        first_NL = torch.zeros_like(inputs.ids_NL, dtype=torch.bool)
        first_NL[:, 0] = True  # logits cost more than all else, and none is wanted
        with torch.no_grad(), _seen(cross) as seen:
            states = model.encode(inputs)
            model.logits(states, inputs.ids_NL, first_NL)
        for ids, read_LD, said_LD in zip(part, states.hidden_NLD.float().cpu(), seen[0].float().cpu(), strict=True):
            yield torch.tensor(ids), read_LD[: len(ids)], said_LD[: len(ids)]
    model.train(training)


@contextmanager
def _seen(module: nn.Module) -> Iterator[list[Tensor]]:
    """What the module is given first, call by call."""
    seen: list[Tensor] = []
    hook = module.register_forward_pre_hook(
        lambda _, given, named: seen.append(given[0] if given else named["hidden_states"]), with_kwargs=True
    )
    try:
        yield seen
    finally:
        hook.remove()


def _put(layer: nn.Linear, fitted: _LeastSquares, scale: float) -> None:
    weight, bias = fitted.solve()
    layer.weight.copy_(scale * weight)
    layer.bias.copy_(scale * bias)
