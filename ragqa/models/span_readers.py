"""Extractive readers: encoders over question and passage, with a head that scores spans.

Legend: N passages, L tokens, W longest span in tokens, D width of the encoder, H width of an MLP head.
"""

import json
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.functional import pad, relu
from transformers import AutoConfig, AutoModel

from ragqa import artefacts
from ragqa.artefacts.paths import suggest_model_folder
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact
from ragqa.models.pretrained import (
    get_encoder_options,
    get_max_input,
    load_encoder_module,
    load_module_weights,
    save_module,
    select_segments,
)

MLP_HIDDEN, MLP_MAX_SPAN = 256, 10
"""Width H of the head and longest span W in tokens, as in ORQA and REALM."""
_EARLY_GAIN = 30.0
"""Factor of the early head's input, without which the head learned nothing in 600 steps.

After four layers, the first token's vector hardly differs between passages (standard deviation 0.008).
"""
_POOLER, _CLASSIFIER = "bert.pooler.dense", "classifier"
"""Names of the layers of a cross-encoder that score relevance, in transformers."""
READER_FILES = ("config.json", "model.safetensors", "tokenizer.json", artefacts.CALIBRATION)
"""Names of the files in a reader's directory."""


class EncoderReader(nn.Module):
    """Base class of readers: an encoder with a head that scores spans.

    The entry ``reader`` of ``config.json`` is the name of the head.
    """

    head_name: ClassVar[str]
    """Name of the head, the key in ``SPAN_READERS``."""
    prior: ClassVar[str]
    """Form of retrieval scores in the prior: ``RAW`` or ``SPREAD`` of ``ragqa.runtime.scorer``."""
    outputs: ClassVar[tuple[str, ...]]
    """Names of the tensors that ``forward`` returns, apart from the early relevance."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = cast(Any, encoder.config)
        """Configuration of the encoder."""
        self.config.reader = self.head_name

    @property
    def max_tokens(self) -> int:
        """Maximum length of a sequence in tokens.

        Raises:
            DamagedArtefact: as for ``get_max_input``.
        """
        return get_max_input(self.config)

    @property
    def max_span(self) -> int | None:
        """Longest answer in training, in tokens; None if there was no maximum.

        Raises:
            DamagedArtefact: the setting is not a positive integer.
        """
        value = getattr(self.config, "reader_span", None)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise DamagedArtefact(f"config.json of a reader has reader_span: {value!r}, not a number of wordpieces")
        return value

    def describe(self) -> dict[str, Any]:
        """Return the settings of the reader for a ``SpanScorer``, by name.

        Raises:
            DamagedArtefact: as for ``max_tokens`` and ``max_span``.
        """
        limits = {"max_tokens": self.max_tokens, "max_span": self.max_span}
        optional = {name: getattr(self.config, f"reader_{name}", None) for name in ("early_layer", "absence", "pooler")}
        present = {name: value for name, value in optional.items() if value}
        return {"reader": self.head_name, "prior": self.prior, **limits, **present}

    def encode(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return the hidden states ``[N, L, D]`` of questions with their passages.

        Args:
            input_ids: ids of the tokens, ``[N, L]``.
            attention_mask: ``[N, L]``, 1 on tokens and 0 on padding.
            token_type_ids: ``[N, L]``, 0 on the question and 1 on the passage.
        """
        segments = select_segments(self.config, token_type_ids)
        hidden_NLD: Tensor = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **segments
        ).last_hidden_state
        return hidden_NLD

    @classmethod
    def from_encoder(cls, path: str | Path, **sizes: int) -> Self:
        """Make a reader with a new head on an encoder.

        Args:
            path: directory or hub name of the encoder.
            sizes: further arguments of the constructor.

        Raises:
            ArtefactError: there is no encoder, or some of its weights are missing.
            BadInput: as for ``SpanReader.add_early_head``.
        """
        return cls(load_encoder_module(path), **sizes)

    def save(self, path: Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` into the directory ``path``."""
        save_module(self, path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load the reader that ``save`` wrote into the directory ``path``.

        Raises:
            DamagedArtefact: the weights are missing or do not fit the configuration.
            OSError, ValueError: transformers cannot read ``config.json``.
        """
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        reader = cls(AutoModel.from_config(config, **get_encoder_options(config)), **cls._read_sizes(config))
        load_module_weights(reader, path)
        return reader

    @classmethod
    def _read_sizes(cls, config: Any) -> dict[str, int]:
        return {}


class SpanReader(EncoderReader):
    """Reader that scores every token as start and as end, and the passage as a whole.

    Starts and ends are scored as in BERT (Devlin et al. 2019, section 4.2). The relevance of the passage is scored from
    the first token, as in DPR's reader (Karpukhin et al. 2020, section 6.1). The span of the first token alone stands
    for "this passage has no answer" (Devlin et al. 2019, section 4.3), if the reader was trained on such passages.

    With an early layer, relevance is also scored after this layer, so that passages with a low relevance can skip the
    remaining layers.

    A reader made from a cross-encoder scores relevance with the pooler and the head of the cross-encoder.
    """

    head_name = "ends"
    prior = "spread"
    outputs = ("start", "end", "relevance")

    def __init__(self, encoder: nn.Module, *, early_layer: int | None = None, has_pooler: bool = False) -> None:
        """Put a new head on an encoder.

        Args:
            encoder: encoder of transformers.
            early_layer: number of layers after which relevance is scored for the first time, or None.
            has_pooler: True to score relevance from the tanh of a linear function of the first token's state, as
                cross-encoders in transformers do; False to score it from the state itself.

        Raises:
            BadInput: as for ``add_early_head``.
        """
        super().__init__(encoder)
        self.head = self._make_head(3)
        self.pooler: nn.Linear | None = None
        if has_pooler:
            self.pooler, self.config.reader_pooler = nn.Linear(self.config.hidden_size, self.config.hidden_size), True
        self.early_head: nn.Linear | None = None
        if early_layer:
            self.add_early_head(early_layer)

    @classmethod
    def from_encoder(cls, path: str | Path, **sizes: int) -> Self:
        """Make a reader with a new head, or with the relevance head of a cross-encoder.

        Only a cross-encoder in a directory keeps its head, not one from the hub. Arguments and errors: as for
        ``EncoderReader.from_encoder``.
        """
        weights = _read_relevance_head(Path(path))
        reader = super().from_encoder(path, has_pooler=bool(weights), **sizes)
        if weights and reader.pooler is not None:
            reader.pooler.load_state_dict({part: weights[f"{_POOLER}.{part}"] for part in ("weight", "bias")})
            with torch.no_grad():
                reader.head.weight[2] = weights[f"{_CLASSIFIER}.weight"][0]
                reader.head.bias[2] = weights[f"{_CLASSIFIER}.bias"][0]
        return reader

    def add_early_head(self, layer: int) -> None:
        """Put a new head for early relevance after ``layer`` layers, unless one is there.

        Raises:
            BadInput: the encoder does not have more than ``layer`` layers, or is not built like BERT.
        """
        encoder = cast(Any, self.encoder)
        layers = getattr(getattr(encoder, "encoder", None), "layer", ())
        if layer >= len(layers) or not hasattr(encoder, "embeddings"):
            words = f"has {len(layers)} layers: give less" if layers else "is not built like BERT"
            raise BadInput(f"--early-layer {layer}: the encoder {words}")
        if self.early_head is None or self.config.reader_early_layer != layer:
            self.early_head, self.config.reader_early_layer = self._make_head(1), layer

    def _make_head(self, scores: int) -> nn.Linear:
        head = nn.Linear(self.config.hidden_size, scores)
        nn.init.normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
        return head

    @classmethod
    def _read_sizes(cls, config: Any) -> dict[str, int]:
        layer = getattr(config, "reader_early_layer", None)
        sizes = {} if layer is None else {"early_layer": layer}
        return {**sizes, "has_pooler": bool(getattr(config, "reader_pooler", False))}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Score each token as start and as end of the answer, and each passage by its relevance.

        Arguments: as for ``encode``.

        Returns:
            Scores of starts ``[N, L]``, of ends ``[N, L]``, and relevance ``[N]``; with an early layer also the
            relevance ``[N]`` after this layer.
        """
        if self.early_head is None:
            return self._score_tokens(self.encode(input_ids, attention_mask, token_type_ids))
        segments = select_segments(self.config, token_type_ids)
        outputs = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **segments
        )
        early_NLD = outputs.hidden_states[self.config.reader_early_layer]
        return *self._score_tokens(outputs.last_hidden_state), self._score_early(early_NLD)

    def _score_tokens(self, hidden_NLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(hidden_NLD.device.type, enabled=False):  # bfloat16 would round scores near 10 to 1/16
            logits_NL3 = self.head(hidden_NLD.float())
            relevance_N = logits_NL3[:, 0, 2]
            if self.pooler is not None:
                pooled_ND = torch.tanh(self.pooler(hidden_NLD[:, 0].float()))
                # A second product with the head would be exported in 8 bits, and could not be restored.
                relevance_N = (pooled_ND * self.head.weight[2]).sum(-1) + self.head.bias[2]
        return logits_NL3[..., 0], logits_NL3[..., 1], relevance_N

    def _score_early(self, hidden_NLD: Tensor) -> Tensor:
        assert self.early_head is not None
        first_ND = _EARLY_GAIN * hidden_NLD[:, 0].float()
        # A matrix product would be exported in 8 bits, whose steps are as large as the differences of passages.
        early_N: Tensor = (first_ND * self.early_head.weight.float()).sum(-1) + self.early_head.bias.float()
        return early_N

    def read_early(self, input_ids: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Run the layers up to the early layer on unpadded questions and passages.

        Args:
            input_ids: ids of the tokens, ``[N, L]``.
            token_type_ids: ``[N, L]``, 0 on the question and 1 on the passage.

        Returns:
            Hidden states ``[N, L, D]`` after the early layer, and relevance ``[N]``.
        """
        encoder = cast(Any, self.encoder)
        hidden_NLD = encoder.embeddings(input_ids=input_ids, **select_segments(self.config, token_type_ids))
        for layer in encoder.encoder.layer[: self.config.reader_early_layer]:
            hidden_NLD = layer(hidden_NLD)
        return hidden_NLD, self._score_early(hidden_NLD)

    def read_on(self, hidden_NLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the layers after the early layer on the hidden states of ``read_early``.

        Returns:
            Scores of starts ``[N, L]``, of ends ``[N, L]``, and relevance ``[N]``.
        """
        for layer in cast(Any, self.encoder).encoder.layer[self.config.reader_early_layer :]:
            hidden_NLD = layer(hidden_NLD)
        return self._score_tokens(hidden_NLD)


def _read_relevance_head(path: Path) -> dict[str, Tensor]:
    """Return the weights of a cross-encoder's pooler and head by name; empty for other models.

    A cross-encoder is a BERT classifier with one output.
    """
    parts = [f"{layer}.{part}" for layer in (_POOLER, _CLASSIFIER) for part in ("weight", "bias")]
    try:
        with safe_open(path / "model.safetensors", "pt") as file:
            weights = {name: file.get_tensor(name) for name in parts if name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):  # loading the encoder later reports damage, and finds weights in other files
        return {}
    is_cross_encoder = len(weights) == len(parts) and len(weights[f"{_CLASSIFIER}.bias"]) == 1
    return weights if is_cross_encoder else {}


class MlpSpanReader(EncoderReader):
    """Reader that scores every span by linear(norm(ReLU(linear(start) + linear(end)))).

    This is the head of ORQA's released code (Lee et al. 2019), which REALM reuses. The retrieval score of a passage is
    added to the scores of its spans without scaling, since retriever and reader are trained together.
    """

    head_name = "mlp"
    prior = "raw"
    outputs = ("spans",)

    def __init__(self, encoder: nn.Module, *, hidden: int = MLP_HIDDEN, max_span: int = MLP_MAX_SPAN) -> None:
        """Put a new head on an encoder.

        Args:
            encoder: encoder of transformers.
            hidden: width of the head, H.
            max_span: longest span in tokens, W.
        """
        super().__init__(encoder)
        self.config.reader_hidden, self.config.reader_span = hidden, max_span
        self.project = nn.Linear(self.config.hidden_size, 2 * hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-3)
        self.score = nn.Linear(hidden, 1)
        for layer in (self.project, self.score):
            nn.init.trunc_normal_(layer.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(layer.bias)

    @classmethod
    def _read_sizes(cls, config: Any) -> dict[str, int]:
        return {"hidden": config.reader_hidden, "max_span": config.reader_span}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Score all spans of up to W tokens.

        Arguments: as for ``encode``.

        Returns:
            ``[N, L, W]``; element (i, w) is the score of the tokens i … i + w. Spans outside the passage also have
            scores; ``Window.find_possible_spans`` marks the allowed spans.
        """
        hidden_NLD = self.encode(input_ids, attention_mask, token_type_ids)
        width = self.config.reader_span
        with torch.autocast(hidden_NLD.device.type, enabled=False):  # bfloat16 would round the scores
            start_NLH, end_NLH = self.project(hidden_NLD.float()).chunk(2, -1)
            length = end_NLH.shape[1]
            end_NLH = pad(end_NLH, (0, 0, 0, width - 1))
            end_NLWH = torch.stack([end_NLH[:, w : w + length] for w in range(width)], 2)
            score_NLW: Tensor = self.score(self.norm(relu(start_NLH.unsqueeze(2) + end_NLWH))).squeeze(-1)
        return score_NLW


SPAN_READERS: dict[str, type[EncoderReader]] = {reader.head_name: reader for reader in (SpanReader, MlpSpanReader)}
"""Classes of readers by the name of their head."""


def read_head_name(path: Path) -> str | None:
    """Return the name of the head of the reader in a directory, or None if there is no reader.

    Raises:
        ArtefactError: the head is unknown, or ``config.json`` is damaged.
    """
    config, weights = path / "config.json", path / "model.safetensors"
    if not (config.is_file() and weights.is_file()):
        return None
    try:
        head_name = json.loads(config.read_text()).get("reader")
    except (ValueError, AttributeError) as error:
        raise ArtefactError(f"{config} is damaged: {error}") from error
    if head_name is None:  # earlier versions did not record the head
        with safe_open(weights, "pt") as file:
            return SpanReader.head_name if "head.weight" in file.keys() else None  # noqa: SIM118
    if head_name not in SPAN_READERS:
        heads = ", ".join(SPAN_READERS)
        raise ArtefactError(f"{path} holds a reader with the unknown head '{head_name}'; ragqa has {heads}")
    return str(head_name)


def check_replaceable(out: Path) -> None:
    """Check that ``out`` is missing, empty, or holds a reader and no other files.

    Raises:
        BadInput: ``out`` is a file, or holds other files than a reader's.
        ArtefactError: ``out`` holds a reader that is damaged or has an unknown head.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())) and read_head_name(out) is None:
        raise BadInput(f"{out} holds something other than a reader: choose another directory")
    artefacts.check_no_other_files(out, READER_FILES)


def load_reader(path: Path) -> EncoderReader:
    """Load the reader in the directory ``path``.

    Raises:
        ArtefactError: there is no reader, its head is unknown, or its configuration is damaged.
        DamagedArtefact, OSError, ValueError: as for ``EncoderReader.load``.
    """
    head_name = read_head_name(path)
    if head_name is None:
        raise ArtefactError(f"{path} is not a reader{suggest_model_folder(path)}")
    return SPAN_READERS[head_name].load(path)
