"""Initialisation of cross-attention, so that an untrained generator copies from its text.

A decoder with random cross-attention (Rothe et al. 2020) learns to copy only after thousands of steps. The encoder's
states show which token is at each position. So three linear maps, fitted by least squares, are enough for copying:

- Values map a state of the encoder to the embedding of the token at its position.
- Keys map a state of the encoder to the token before its position. Queries map a state of the decoder to the last token
  that it has read. A query therefore matches the positions that follow this token in the text. Keys and queries use
  coordinates in which different tokens are far apart.
- Values are rotated, and the layer before the vocabulary rotates them back. The residual connection adds the decoder's
  state to the values; after the rotation, this state resembles no token.

The encoder of a span reader also shows where answers are, so two coordinates of each head serve to find answers.
Through the first coordinate, the first output token attends to the first tokens of answers. Through the second, later
output tokens attend to the tokens that follow these.

Legend: N texts, L tokens of a text, T tokens of an answer, M tokens of all texts, V vocabulary, D width, H heads.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from ragqa.errors import BadInput
from ragqa.models.generation.seq2seq import Seq2Seq

_RIDGE = 1e-2
"""Ridge penalty: share of the mean variance that is added to each variance."""
_SHARPNESS = 1.5
"""Scale of queries, at which a matching token stands out among a few hundred others."""
_SHIFT = 4.0
"""Shift of a state into the linear range of the activation; the next layer norm removes the shift."""
_GAIN = 3.0
"""Length of a value relative to the decoder state that it is added to."""
_DECAY = 1e-3
"""Weight decay in the fit of positions."""
_BATCH = 32
"""Number of texts that the model reads at once."""
_MAX_TOKENS = 128
"""Maximum length of the texts of ``initialise_copying`` in tokens; the rest is cut."""


class _LeastSquares:
    """Least-squares fit of a linear map (weight ``[E, D]``, bias ``[E]``) to rows in parts."""

    def __init__(self) -> None:
        self._within: Tensor | float = 0.0
        self._across: Tensor | float = 0.0

    def add(self, x_MD: Tensor, y_ME: Tensor) -> None:
        x = torch.cat([x_MD, torch.ones_like(x_MD[:, :1])], 1).double()
        self._within, self._across = self._within + x.T @ x, self._across + x.T @ y_ME.double()

    def solve(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self._within, Tensor)
        ridge = _RIDGE * self._within.diagonal().mean() * torch.eye(len(self._within), dtype=torch.double)
        solution = torch.linalg.solve(self._within + ridge, self._across).float()
        return solution[:-1].T, solution[-1]


@dataclass(frozen=True)
class Example:
    """Text to read and the answer to generate, as token ids."""

    ids: list[int]
    answer: list[int]
    """Tokens of the answer, including the end."""
    places: list[int]
    """Positions in the text where the answer begins."""


def initialise_copying(model: Seq2Seq, texts: Sequence[str]) -> None:
    """Fit the last cross-attention and layers after it so that the model copies its text.

    The bias of the vocabulary becomes the log-frequency of the tokens.

    Args:
        model: result of ``encoder_decoder.make_from_encoder``.
        texts: a few hundred texts of the kind that the model will read.

    Raises:
        BadInput: there are no texts, or the model does not have the layers of BERT or RoBERTa.
    """
    parts = _find_layers(model)
    rows = [row[:_MAX_TOKENS] for row in model.tokens.encode(texts) if len(row) > 2]
    if not rows:
        raise BadInput("no texts to fit a generator's attention to: give some hundred passages")
    _fit_copying(model, parts, rows)


def initialise_answering(model: Seq2Seq, examples: Sequence[Example]) -> None:
    """Fit the last layer's cross-attention so that copying begins where answers begin.

    The encoder comes from a span reader, so its states show where answers are. The function fits the same layers as
    ``initialise_copying``, and ignores examples without an answer in the text.

    Args:
        model: result of ``encoder_decoder.make_from_reader``.
        examples: a few hundred examples of the kind that the model will read.

    Raises:
        BadInput: no text contains its answer, or the model does not have the layers of BERT or RoBERTa.
    """
    parts = _find_layers(model)
    answerable = [example for example in examples if example.places]
    if not answerable:
        raise BadInput("no text holds its answer: give some hundred questions with passages that hold theirs")
    _fit_copying(model, parts, [example.ids for example in answerable])
    _fit_answer_positions(model, parts, answerable)
    with torch.no_grad():
        parts.bias_V.zero_()  # passages and answers have different token frequencies


@dataclass(frozen=True)
class _Layers:
    cross: Any
    """Cross-attention of the last layer."""
    feed: nn.Linear
    """Second feed-forward layer after the cross-attention."""
    transform: nn.Linear
    """Layer before the vocabulary."""
    norm: nn.LayerNorm
    """Norm of ``transform``."""
    bias_V: Tensor


def _fit_copying(model: Seq2Seq, parts: _Layers, rows: Sequence[list[int]]) -> None:
    embedding_VD = model.model.get_encoder().get_input_embeddings().weight.detach().float().cpu()
    pieces_M = torch.tensor([piece for row in rows for piece in row])
    count_V = torch.bincount(pieces_M, minlength=len(embedding_VD)).float()
    piece_VD, whitened_VD, rotation_DD = _make_coordinates(embedding_VD, count_V)
    value, key, query = _LeastSquares(), _LeastSquares(), _LeastSquares()
    embedding_norm, decoder_norm = 0.0, 0.0
    for ids, state_LD, decoder_LD in _iter_states(model, parts.cross, rows, rows):
        ids_L = torch.tensor(ids)
        value.add(state_LD, piece_VD[ids_L] @ rotation_DD)
        key.add(state_LD[1:], whitened_VD[ids_L[:-1]])
        query.add(decoder_LD, whitened_VD[ids_L])
        embedding_norm += float(piece_VD[ids_L].norm(dim=-1).sum())
        decoder_norm += float(decoder_LD.norm(dim=-1).sum())
    own, out, transform = parts.cross.self, parts.cross.output.dense, parts.transform
    with torch.no_grad():
        _set_layer(own.value, value, _GAIN * decoder_norm / embedding_norm)
        _set_layer(own.key, key, 1.0)
        _set_layer(own.query, query, _SHARPNESS)
        nn.init.eye_(out.weight)
        transform.weight.copy_(rotation_DD)
        for layer in (out, transform, parts.feed):
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(parts.feed.weight)  # its trained weights would disturb the new inputs
        transform.bias.add_(_SHIFT)
        parts.norm.reset_parameters()
        log_count_V = (count_V + 1).log()
        parts.bias_V.copy_(log_count_V - log_count_V.mean())


def _fit_answer_positions(model: Seq2Seq, parts: _Layers, examples: Sequence[Example]) -> None:
    first = _LeastSquares()
    states, starts, later_tokens = [], [], []
    start_D = torch.zeros(0)
    rows, answers = [example.ids for example in examples], [example.answer for example in examples]
    for example, (_, state_LD, decoder_TD) in zip(
        examples, _iter_states(model, parts.cross, rows, answers), strict=True
    ):
        states.append(state_LD)
        starts.append(_make_distribution(len(state_LD), example.places, (0,)))
        later_tokens.append(_make_distribution(len(state_LD), example.places, range(1, len(example.answer))))
        is_first_T2 = torch.zeros(len(decoder_TD), 2)
        is_first_T2[0, 0] = is_first_T2[1:, 1] = 1
        first.add(decoder_TD, is_first_T2)
        start_D = decoder_TD[0]  # equal for all examples: nothing is decoded yet
    state_NLD = pad_sequence(states, batch_first=True)
    inside_NL = pad_sequence([torch.ones(len(state_LD), dtype=torch.bool) for state_LD in states], batch_first=True)
    key_2D = torch.stack(
        [
            _fit_positions(state_NLD, inside_NL, pad_sequence(shares, batch_first=True))
            for shares in (starts, later_tokens)
        ]
    )
    (query_2D, query_2), own = first.solve(), parts.cross.self
    heads, width = own.num_attention_heads, own.attention_head_size
    with torch.no_grad():
        device = own.query.weight.device
        # The copying query of the first output token is subtracted, so that it attends to starts of answers only.
        start_query_D = own.query(start_D.to(device)).cpu()
        own.query.weight.sub_(torch.outer(start_query_D, query_2D[0]).to(device))
        own.query.bias.sub_((start_query_D * query_2[0]).to(device))
        for layer, weight_2D, bias_2 in ((own.query, query_2D, query_2), (own.key, key_2D, torch.zeros(2))):
            scale = width**0.5 if layer is own.query else 1.0  # attention divides scores by this factor
            layer.weight.view(heads, width, -1)[:, :2] = scale * weight_2D.to(device)
            layer.bias.view(heads, width)[:, :2] = scale * bias_2.to(device)


def _make_distribution(length: int, positions: Sequence[int], offsets: Sequence[int] | range) -> Tensor:
    """Return a uniform distribution ``[L]`` over the tokens at ``positions`` plus ``offsets``."""
    shares_L = torch.zeros(length)
    shares_L[[position + offset for position in positions for offset in offsets]] = 1.0
    return shares_L / shares_L.sum()


def _fit_positions(state_NLD: Tensor, inside_NL: Tensor, share_NL: Tensor) -> Tensor:
    """Fit weights ``[D]`` so that the softmax of states times weights is close to ``share_NL``."""
    weight_D = torch.zeros(state_NLD.shape[-1], requires_grad=True)
    solver = torch.optim.LBFGS([weight_D], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        score_NL = (state_NLD @ weight_D).masked_fill(~inside_NL, -1e9)
        value = cross_entropy(score_NL, share_NL) + _DECAY * weight_D.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    return weight_D.detach()


def _find_layers(model: Seq2Seq) -> _Layers:
    decoder = model.model.decoder
    try:
        last = getattr(decoder, decoder.base_model_prefix).encoder.layer[-1]
        if hasattr(decoder, "cls"):
            head = decoder.cls.predictions.transform
            behind = head.dense, head.LayerNorm
        else:
            behind = decoder.lm_head.dense, decoder.lm_head.layer_norm
        bias_V = cast(Tensor, decoder.get_output_embeddings().bias)
        return _Layers(last.crossattention, last.output.dense, *behind, bias_V)
    except AttributeError as error:
        family = decoder.config.model_type
        raise BadInput(f"copying is fitted to decoders like BERT's and RoBERTa's, and not to a {family}") from error


def _make_coordinates(embedding_VD: Tensor, count_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return centred and whitened embeddings ``[V, D]``, and a random rotation ``[D, D]``."""
    share_V = count_V / count_V.sum()
    piece_VD = embedding_VD - share_V @ embedding_VD
    size, direction_DD = torch.linalg.eigh((piece_VD.T * share_V) @ piece_VD)
    # Every attention head sees only some coordinates; in a random basis each head can tell tokens apart.
    random = torch.Generator().manual_seed(0)
    mix_DD, rotation_DD = (torch.linalg.qr(torch.randn(direction_DD.shape, generator=random)).Q for _ in range(2))
    return piece_VD, piece_VD @ (direction_DD * (size + _RIDGE * size.mean()).rsqrt()) @ mix_DD, rotation_DD


def _iter_states(
    model: Seq2Seq, cross: nn.Module, rows: Sequence[list[int]], answers: Sequence[list[int]]
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield each text's ids, encoder states ``[L, D]`` and decoder states ``[T, D]``."""
    device, training = model.model.device, model.training
    model.eval()
    for begin in range(0, len(rows), _BATCH):
        part, outputs = rows[begin : begin + _BATCH], answers[begin : begin + _BATCH]
        inputs = model.tokens.pad_rows(part).to(device)
        # To copy a text, the decoder reads the text itself; an answer is shifted to the right.
        decoder_rows = outputs if rows is answers else [[model.conventions.start, *ids[:-1]] for ids in outputs]
        ids_NT = model.tokens.pad_rows(decoder_rows).ids_NL.to(device)
        first_NT = torch.zeros_like(ids_NT, dtype=torch.bool)
        first_NT[:, 0] = True  # logits are not needed, and at all positions they would take longer than all the rest
        with torch.no_grad(), _record_inputs(cross) as recorded:
            states = model.encode(inputs)
            model.compute_logits(states, ids_NT, first_NT)
        for ids, decoder_ids, encoder_LD, decoder_TD in zip(
            part, decoder_rows, states.hidden_NLD.float().cpu(), recorded[0].float().cpu(), strict=True
        ):
            yield ids, encoder_LD[: len(ids)], decoder_TD[: len(decoder_ids)]
    model.train(training)


@contextmanager
def _record_inputs(module: nn.Module) -> Iterator[list[Tensor]]:
    recorded: list[Tensor] = []
    hook = module.register_forward_pre_hook(
        lambda _, arguments, options: recorded.append(arguments[0] if arguments else options["hidden_states"]),
        with_kwargs=True,
    )
    try:
        yield recorded
    finally:
        hook.remove()


def _set_layer(layer: nn.Linear, fitted: _LeastSquares, scale: float) -> None:
    weight, bias = fitted.solve()
    layer.weight.copy_(scale * weight)
    layer.bias.copy_(scale * bias)
