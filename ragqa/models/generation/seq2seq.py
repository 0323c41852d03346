"""Sequence-to-sequence models of transformers behind one face: encode once, then score or go on token by token.

Legend: N texts, R rows of the decoder (R / N in a run read the same text), L tokens of a text, T tokens of an answer,
M chosen positions, V vocabulary, D width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ragqa.errors import ArtefactError, Mismatch
from ragqa.models.generation import attention
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs, group_by_length
from ragqa.models.pretrained import load_seq2seq_module, max_input_tokens, silence_transformers
from ragqa.objectives import IGNORED

_GROUP = {"cpu": 64, "cuda": 8192}
"""Tokens of padding that are worth a call of the encoder of its own, by device."""

_MOST = 1 << 15
"""Tokens that the encoder reads in one call where nothing is kept for a gradient."""

_ROUNDED = 128
"""Numbers of embeddings are rounded up to a multiple of this at most: T5 has 32,128 for 32,100 pieces, mT5 250,112 for
250,100."""

CONVENTIONS = (
    "decoder_start_token_id",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
)
"""What of a generation config is followed."""


@dataclass(frozen=True)
class Conventions:
    """Where an answer begins and ends: a model's own, as its ``generate`` follows them."""

    start: int
    """What the decoder is told first; no part of the answer."""
    pad: int
    ends: tuple[int, ...]
    """Tokens that end an answer, and are part of it."""
    first: int | None
    """Token that every answer is made to begin with, if there is one."""
    last: int | None
    """Token that the longest answer is made to end with, if there is one."""
    bos: int | None
    """Token that stands for the beginning; RAG does not count it where all candidates begin with it."""
    never: tuple[int, ...] = ()
    """Tokens that no answer has: ``bad_words_ids`` of a single token, as Marian's padding is."""


@dataclass(frozen=True)
class EncoderStates:
    """What the encoder made of N texts."""

    hidden_NLD: Tensor
    mask_NL: Tensor
    """True on the texts' own tokens."""

    def __getitem__(self, rows: Tensor | slice) -> "EncoderStates":
        return EncoderStates(self.hidden_NLD[rows], self.mask_NL[rows])

    @property
    def bias(self) -> Tensor:
        """``[N, 1, 1, L]`` to be added to attention scores."""
        return _bias(self.mask_NL, self.hidden_NLD.dtype)


class Seq2Seq(nn.Module):
    """A seq2seq of transformers of one of the families ``options.SEQ2SEQS``, and its tokenizer.

    Beginning and end of an answer, and the shift between labels and decoder inputs, are the model's own.
    """

    def __init__(self, model: nn.Module, tokens: Seq2SeqTokenizer) -> None:
        """Raises ArtefactError where the tokenizer is not the model's."""
        super().__init__()
        self.model = cast(Any, model)
        self.tokens = tokens
        self.model.set_attn_implementation(attention.NAME)
        self.conventions = _conventions(self.model)
        _check(self.model, tokens, self.conventions)
        rules = self.conventions
        tokens.start, tokens.ends = rules.start, rules.ends
        tokens.silent = frozenset(each for each in (rules.start, rules.pad, rules.bos, *rules.ends) if each is not None)

    @property
    def max_tokens(self) -> int:
        """Longest text that both sides take."""
        config = self.model.config
        if (encoder := getattr(config, "encoder", None)) is not None:
            return min(max_input_tokens(encoder), max_input_tokens(config.decoder))
        return min(1024, int(getattr(config, "max_position_embeddings", None) or 1024))  # T5's have no end

    @property
    def vocabulary(self) -> int:
        """V."""
        return int(cast(Any, self._head).weight.shape[0])

    @property
    def layers(self) -> int:
        """Of the decoder."""
        return int(self.model.get_decoder().config.num_hidden_layers)

    @property
    def heads(self) -> int:
        """Of each of these."""
        return int(self.model.get_decoder().config.num_attention_heads)

    @property
    def _head(self) -> nn.Module:
        return cast(nn.Module, self.model.get_output_embeddings())

    def encode(self, inputs: Inputs) -> EncoderStates:
        """N texts, padded on the right, to their states.

        Texts of like length go through the encoder together: padding costs as much as text, and no loss needs it.
        """
        encoder, mask_NL = self.model.get_encoder(), inputs.mask_NL.bool()
        length_N = mask_NL.sum(-1)
        order_N = length_N.argsort(descending=True)
        lengths = length_N[order_N].tolist()
        embedded_NLE: Tensor = encoder.get_input_embeddings()(inputs.ids_NL[order_N, : lengths[0]])
        embedded_NLE = embedded_NLE * getattr(encoder, "embed_scale", 1.0)  # Pegasus and Marian scale ids alone
        most = None if torch.is_grad_enabled() else _MOST
        groups = [*group_by_length(lengths, _GROUP.get(mask_NL.device.type, 8192), most)]
        parts = []
        for (begin, end), texts in zip(groups, embedded_NLE.split([end - begin for begin, end in groups]), strict=True):
            longest = lengths[begin]
            even = lengths[end - 1] == longest
            bias = None if even else _bias(mask_NL[order_N[begin:end], :longest], texts.dtype)
            states = encoder(inputs_embeds=texts[:, :longest], attention_mask=bias).last_hidden_state
            parts.append(pad(states, (0, 0, 0, lengths[0] - longest)))
        hidden_NLD = torch.cat(parts)[order_N.argsort()]
        return EncoderStates(hidden_NLD, mask_NL[:, : lengths[0]])

    def decoder_inputs(self, labels_BT: Tensor) -> Tensor:
        """The labels moved right behind the decoder's start, as the model moves them."""
        if hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            return cast(Tensor, self.model.prepare_decoder_input_ids_from_labels(labels=labels_BT))
        said_BT = labels_BT.masked_fill(labels_BT == IGNORED, self.conventions.pad)
        return torch.cat([torch.full_like(said_BT[:, :1], self.conventions.start), said_BT[:, :-1]], -1)

    def logits(self, states: EncoderStates, inputs_RT: Tensor, chosen_RT: Tensor | None = None) -> Tensor:
        """What follows each of ``inputs_RT``: ``[R, T, V]``, or ``[M, V]`` at the chosen positions only."""
        return self._run(states, inputs_RT, chosen_RT, use_cache=False)

    def _run(self, states: EncoderStates, inputs_RT: Tensor, chosen_RT: Tensor | None, **options: Any) -> Tensor:
        with self._head_at(chosen_RT):
            logits = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states.hidden_NLD),
                attention_mask=states.bias,
                decoder_input_ids=inputs_RT,
                **options,
            ).logits
        return cast(Tensor, logits).float()

    @contextmanager
    def _head_at(self, chosen_RT: Tensor | None) -> Iterator[None]:
        """Have the model compute logits at the chosen positions only: at all of them they may cost more than it."""
        if chosen_RT is None:
            yield
            return
        hook = self._head.register_forward_pre_hook(lambda _, arguments: (arguments[0][chosen_RT],))
        try:
            yield
        finally:
            hook.remove()

    def save(self, path: Path) -> None:
        """Write a directory in transformers' own format, tokenizer included."""
        with silence_transformers():
            self.model.save_pretrained(path)
        self.tokens.save(path)

    @classmethod
    def load(cls, source: str | Path, *, fresh: bool = False) -> "Seq2Seq":
        """The model and the tokenizer in a directory or on the hub; ``fresh`` has it begin from random weights.

        Raises:
            ArtefactError: there is none, weights are missing, or the tokenizer is another model's.
        """
        model, tokens = load_seq2seq_module(source, fresh=fresh), Seq2SeqTokenizer.load(source)
        try:
            return cls(model, tokens)
        except ArtefactError as error:
            raise ArtefactError(f"{source}: {error}") from error


class DecoderRun:
    """A decoder on its way over encoded texts; keys and values of each text are computed once, whatever is asked."""

    def __init__(self, model: Seq2Seq, states: EncoderStates, cross: DynamicCache | None = None) -> None:
        """Raises Mismatch where the model is in training mode."""
        if model.model.training:
            raise Mismatch("the generator is in training mode, and dropout would spoil its answers: call eval() first")
        self._model, self._states = model, states
        self._cross = DynamicCache() if cross is None else cross
        self.start()

    @property
    def rows(self) -> int:
        """R, once it has said something."""
        return int(self._cache.self_attention_cache.layers[0].keys.shape[0])

    def start(self) -> None:
        """Begin again: the texts stay, what the decoder said is forgotten."""
        self._cache = EncoderDecoderCache(DynamicCache(), self._cross)

    def step(self, tokens_R: Tensor) -> Tensor:
        """Logits ``[R, V]`` after one more token a row; R is the same at every step since the start."""
        return self._model._run(
            self._states, tokens_R[:, None], None, past_key_values=self._cache, use_cache=True
        ).squeeze(1)

    def score(self, inputs_RT: Tensor, chosen_RT: Tensor) -> Tensor:
        """Logits ``[M, V]`` at the chosen positions of whole rows; begins again."""
        self.start()
        logits = self._model._run(self._states, inputs_RT, chosen_RT, past_key_values=self._cache, use_cache=True)
        self.start()
        return logits

    def reorder(self, rows_R: Tensor) -> None:
        """Row r goes on from what row ``rows_R[r]``, of the same text, has said."""
        self._cache.self_attention_cache.reorder_cache(rows_R)

    def keep(self, texts: Tensor, rows: Tensor) -> "DecoderRun":
        """A run over some of the texts, which goes on with these rows; this one is not to go on."""
        cross = DynamicCache()
        for number, layer in enumerate(self._cross.layers):
            cross.update(layer.keys[texts], layer.values[texts], number)
        run = DecoderRun(self._model, self._states[texts], cross)
        said = self._cache.self_attention_cache
        said.batch_select_indices(rows)
        run._cache = EncoderDecoderCache(said, cross)
        return run


def _bias(mask_NL: Tensor, dtype: torch.dtype) -> Tensor:
    return (~mask_NL[:, None, None, :]).to(dtype) * torch.finfo(dtype).min


def _conventions(model: Any) -> Conventions:
    def said(name: str) -> Any:
        own = getattr(model.generation_config, name, None)
        return own if own is not None else getattr(model.config, name, None)

    ends = said("eos_token_id")
    start = next((said(name) for name in ("decoder_start_token_id", "bos_token_id") if said(name) is not None), None)
    if start is None or ends is None or said("pad_token_id") is None:
        raise ArtefactError(
            f"a {model.config.model_type} without decoder_start_token_id, eos_token_id or pad_token_id cannot generate"
        )
    return Conventions(
        start=start,
        pad=said("pad_token_id"),
        ends=(ends,) if isinstance(ends, int) else tuple(ends),
        first=said("forced_bos_token_id"),
        last=said("forced_eos_token_id"),
        bos=said("bos_token_id"),
        never=tuple(words[0] for words in said("bad_words_ids") or () if len(words) == 1),
    )


def _check(model: Any, tokens: Seq2SeqTokenizer, conventions: Conventions) -> None:
    rows = int(model.get_input_embeddings().weight.shape[0])
    if not 0 <= rows - tokens.size < _ROUNDED:
        sizes = f"the tokenizer has {tokens.size} pieces, the model {rows} embeddings"
        raise ArtefactError(f"{sizes}: it is another model's, or its files are missing")
    if tokens.pad not in (None, conventions.pad) or tokens.end not in (None, *conventions.ends):
        raise ArtefactError(
            f"the tokenizer pads with {tokens.pad} and ends with {tokens.end}, the model with {conventions.pad} and "
            f"{conventions.ends[0]}: it is another model's"
        )
