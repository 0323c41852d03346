"""Common interface of transformers' seq2seq models.

Texts are encoded once; then answers are scored or decoded.

Legend: N texts, R decoder rows (R / N consecutive rows read the same text), L tokens of a text, T tokens of an answer,
M selected positions, V vocabulary, D width.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ragqa.errors import ArtefactError, Mismatch
from ragqa.models import attention
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs, group_by_length
from ragqa.models.pretrained import get_max_input, load_seq2seq_module, silence_transformers
from ragqa.objectives import IGNORED

_MIN_SAVING = {"cpu": 64, "cuda": 8192}
"""Minimum number of padding tokens, by device, that another call of the encoder must save."""
_MAX_ENCODED = 1 << 15
"""Maximum number of tokens in one call of the encoder without gradients."""
_ROUNDING = 128
"""Multiple to which models may round up their number of embeddings.

T5 has 32,128 embeddings for 32,100 pieces, mT5 has 250,112 for 250,100.
"""
CONVENTIONS = (
    *("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"),
)
"""Settings of a generation config that decoding uses."""


@dataclass(frozen=True)
class Conventions:
    """Special tokens of a model's decoder."""

    start: int
    """First input of the decoder; not part of the answer."""
    pad: int
    ends: tuple[int, ...]
    """Tokens that end an answer and are part of it."""
    forced_first: int | None
    """First token of every answer; None if the model forces none."""
    forced_last: int | None
    """Last token of an answer of maximum length; None if the model forces none."""
    bos: int | None
    """Token that marks the beginning of a text; None if there is none."""
    forbidden: tuple[int, ...] = ()
    """Tokens that the model must not generate (``bad_words_ids`` of one token, such as Marian's padding)."""


@dataclass(frozen=True)
class EncoderStates:
    """Encoder output for N texts."""

    hidden_NLD: Tensor
    mask_NL: Tensor
    """True on tokens, false on padding."""

    def __getitem__(self, rows: Tensor | slice) -> "EncoderStates":
        return EncoderStates(self.hidden_NLD[rows], self.mask_NL[rows])

    @property
    def bias(self) -> Tensor:
        """Padding mask ``[N, 1, 1, L]`` that is added to attention scores."""
        return _make_bias(self.mask_NL, self.hidden_NLD.dtype)


class Seq2Seq(nn.Module):
    """Seq2seq model of transformers with its tokenizer (families: ``pretrained.SEQ2SEQS``).

    The model defines the special tokens and the shift between labels and decoder inputs.
    """

    def __init__(self, model: nn.Module, tokens: Seq2SeqTokenizer) -> None:
        """Combine a model and its tokenizer, and set the tokenizer's special tokens.

        Args:
            model: seq2seq model of transformers; its attention function becomes ``attention.SHARED``.
            tokens: tokenizer of the model.

        Raises:
            ArtefactError: the tokenizer belongs to another model, or the model defines no start, end or padding token.
        """
        super().__init__()
        self.model = cast(Any, model)
        self.tokens = tokens
        self.model.set_attn_implementation(attention.SHARED)
        self.conventions = rules = _read_conventions(self.model)
        _check_tokenizer(self.model, tokens, rules)
        tokens.start, tokens.ends = rules.start, rules.ends
        special = (rules.start, rules.pad, rules.bos, *rules.ends)
        tokens.silent_ids = frozenset(token for token in special if token is not None)

    @property
    def max_tokens(self) -> int:
        """Maximum length of a text in tokens for encoder and decoder, at most 1024.

        Raises:
            DamagedArtefact: the configuration has a limit that is not a number of tokens.
        """
        config = self.model.config
        if (encoder := getattr(config, "encoder", None)) is not None:
            return min(get_max_input(encoder), get_max_input(config.decoder))
        return min(1024, int(getattr(config, "max_position_embeddings", None) or 1024))  # T5 has no limit

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V."""
        return int(cast(Any, self._head).weight.shape[0])

    @property
    def decoder_config(self) -> Any:
        """Configuration of the decoder."""
        return self.model.get_decoder().config

    @property
    def _head(self) -> nn.Module:
        return cast(nn.Module, self.model.get_output_embeddings())

    def encode(self, inputs: Inputs) -> EncoderStates:
        """Encode a batch of texts.

        Only texts of similar length are encoded together, because padding costs as much time as text.

        Args:
            inputs: N texts, padded on the right to L tokens.

        Returns:
            The states of the texts, cut to the length of the longest text.
        """
        encoder, mask_NL = self.model.get_encoder(), inputs.mask_NL.bool()
        length_N = mask_NL.sum(-1)
        order_N = length_N.argsort(descending=True)
        lengths = length_N[order_N].tolist()
        embedded_NLE: Tensor = encoder.get_input_embeddings()(inputs.ids_NL[order_N, : lengths[0]])
        # Pegasus and Marian scale embeddings only if they get ids, so scale here for these models.
        embedded_NLE = embedded_NLE * getattr(encoder, "embed_scale", 1.0)
        most = None if torch.is_grad_enabled() else _MAX_ENCODED
        groups = [*group_by_length(lengths, _MIN_SAVING.get(mask_NL.device.type, 8192), most)]
        parts = []
        for begin, end in groups:
            texts, longest = embedded_NLE[begin:end], lengths[begin]
            is_even = lengths[end - 1] == longest
            bias = None if is_even else _make_bias(mask_NL[order_N[begin:end], :longest], texts.dtype)
            states = encoder(inputs_embeds=texts[:, :longest], attention_mask=bias).last_hidden_state
            parts.append(pad(states, (0, 0, 0, lengths[0] - longest)))
        hidden_NLD = torch.cat(parts)[order_N.argsort()]
        return EncoderStates(hidden_NLD, mask_NL[:, : lengths[0]])

    def shift_labels(self, labels_BT: Tensor) -> Tensor:
        """Return the decoder inputs ``[B, T]`` from which the decoder predicts labels ``[B, T]``.

        Decoder inputs are the start token and the labels without the last; ``IGNORED`` becomes padding.
        """
        if hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            return cast(Tensor, self.model.prepare_decoder_input_ids_from_labels(labels=labels_BT))
        ids_BT = labels_BT.masked_fill(labels_BT == IGNORED, self.conventions.pad)
        return torch.cat([torch.full_like(ids_BT[:, :1], self.conventions.start), ids_BT[:, :-1]], -1)

    def compute_logits(
        self, states: EncoderStates, inputs_RT: Tensor, chosen_RT: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Return logits ``[R, T, V]`` after each input, or ``[M, V]`` at the chosen positions.

        Args:
            states: N encoded texts.
            inputs_RT: ``[R, T]`` decoder inputs, for example from ``shift_labels``.
            chosen_RT: ``[R, T]`` bool, true at the M chosen positions; None for all positions.
            options: further arguments of the transformers model.
        """

        # Compute logits at the chosen positions only; at all positions they may take longer than the model itself.
        def choose_positions(head: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
            return arguments if chosen_RT is None else (arguments[0][chosen_RT],)

        with self._head.register_forward_pre_hook(choose_positions):
            logits: Tensor = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states.hidden_NLD),
                attention_mask=states.bias,
                decoder_input_ids=inputs_RT,
                **{"use_cache": False, **options},
            ).logits
        return logits.float()

    def save(self, path: Path) -> None:
        """Write the model and its tokenizer into a directory, in transformers' format."""
        with silence_transformers():
            self.model.save_pretrained(path)
        self.tokens.save(path)

    @classmethod
    def load(cls, source: str | Path, *, fresh: bool = False) -> "Seq2Seq":
        """Load a seq2seq model and its tokenizer from a directory or the hub.

        Args:
            source: directory or hub name.
            fresh: True to make random weights instead of loading the model's weights.

        Raises:
            ArtefactError: there is no seq2seq model of a supported family, weights are missing, or the tokenizer
                belongs to another model.
            MissingExtra: the vocabulary needs a package that is not installed.
        """
        model, tokens = load_seq2seq_module(source, fresh=fresh), Seq2SeqTokenizer.load(source)
        try:
            return cls(model, tokens)
        except ArtefactError as error:
            raise ArtefactError(f"{source}: {error}") from error


class DecoderRun:
    """Incremental decoding, with keys and values of cross-attention computed once per text."""

    def __init__(self, model: Seq2Seq, states: EncoderStates, cross: DynamicCache | None = None) -> None:
        """Start decoding over encoded texts.

        Args:
            model: the seq2seq model.
            states: N encoded texts.
            cross: keys and values of cross-attention, if they exist already.

        Raises:
            Mismatch: the model is in training mode.
        """
        if model.model.training:
            raise Mismatch("the generator is in training mode, and dropout would spoil its answers: call eval() first")
        self.model, self._states = model, states
        self._cross = DynamicCache() if cross is None else cross
        self._restart()

    @property
    def rows(self) -> int:
        """Current number of decoder rows, R; available after the first ``step``."""
        return int(self._cache.self_attention_cache.layers[0].keys.shape[0])

    def _restart(self) -> None:
        """Discard the decoded tokens and keep the texts."""
        self._cache = EncoderDecoderCache(DynamicCache(), self._cross)

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append a token to each row and return the logits ``[R, V]`` of the next tokens.

        Between steps, only ``reorder`` and ``select`` change R.
        """
        return self._compute_logits(tokens_R[:, None]).squeeze(1)

    def score(self, inputs_RT: Tensor, chosen_RT: Tensor) -> Tensor:
        """Return logits ``[M, V]`` after the chosen positions, and discard all decoded tokens.

        Args:
            inputs_RT: ``[R, T]`` decoder inputs.
            chosen_RT: ``[R, T]`` bool, true at the M positions to score.
        """
        self._restart()
        logits = self._compute_logits(inputs_RT, chosen_RT)
        self._restart()
        return logits

    def _compute_logits(self, inputs_RT: Tensor, chosen_RT: Tensor | None = None) -> Tensor:
        cache = {"past_key_values": self._cache, "use_cache": True}
        return self.model.compute_logits(self._states, inputs_RT, chosen_RT, **cache)

    def reorder(self, rows_R: Tensor) -> None:
        """Continue row r with the tokens of row ``rows_R[r]``, which must read the same text."""
        self._cache.self_attention_cache.reorder_cache(rows_R)

    def select(self, texts: Tensor, rows: Tensor) -> "DecoderRun":
        """Return a run over the given texts and rows only; the old run must not be used again.

        Args:
            texts: numbers of the texts.
            rows: numbers of the rows that read these texts.
        """
        cross = DynamicCache()
        for number, layer in enumerate(self._cross.layers):
            cross.update(layer.keys[texts], layer.values[texts], number)
        run = DecoderRun(self.model, self._states[texts], cross)
        decoded = self._cache.self_attention_cache
        decoded.batch_select_indices(rows)
        run._cache = EncoderDecoderCache(decoded, cross)
        return run


def _make_bias(mask_NL: Tensor, dtype: torch.dtype) -> Tensor:
    return (~mask_NL[:, None, None, :]).to(dtype) * torch.finfo(dtype).min


def _read_conventions(model: Any) -> Conventions:
    def get(name: str) -> Any:
        value = getattr(model.generation_config, name, None)
        return getattr(model.config, name, None) if value is None else value

    ends, start = get("eos_token_id"), get("decoder_start_token_id")
    start = get("bos_token_id") if start is None else start
    if start is None or ends is None or get("pad_token_id") is None:
        raise ArtefactError(
            f"a {model.config.model_type} without decoder_start_token_id, eos_token_id or pad_token_id cannot generate"
        )
    return Conventions(
        start=start,
        pad=get("pad_token_id"),
        ends=(ends,) if isinstance(ends, int) else tuple(ends),
        forced_first=get("forced_bos_token_id"),
        forced_last=get("forced_eos_token_id"),
        bos=get("bos_token_id"),
        forbidden=tuple(words[0] for words in get("bad_words_ids") or () if len(words) == 1),
    )


def _check_tokenizer(model: Any, tokens: Seq2SeqTokenizer, conventions: Conventions) -> None:
    rows = int(model.get_input_embeddings().weight.shape[0])
    if not 0 <= rows - tokens.size < _ROUNDING:
        sizes = f"the tokenizer has {tokens.size} pieces, the model {rows} embeddings"
        raise ArtefactError(f"{sizes}: it belongs to another model, or files of it are missing")
    if tokens.pad not in (None, conventions.pad) or tokens.end not in (None, *conventions.ends):
        raise ArtefactError(
            f"the tokenizer pads with {tokens.pad} and ends with {tokens.end}, the model with {conventions.pad} and "
            f"{conventions.ends[0]}: it belongs to another model"
        )
