"""Score all spans of token sequences as answers, with ONNX Runtime or torch.

Legend: N sequences, L tokens of a sequence, P tokens of the passage, W longest span in tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import ArtefactError
from ragqa.runtime.runner import OnnxRunner, Runner, TorchRunner, check_device
from ragqa.runtime.tokens import TextTokenizer, TokenInput

RAW, SPREAD = "raw", "spread"
"""Forms of a retrieval score in a reader's prior.

``raw`` is the score itself, for a reader trained together with its retriever. ``spread`` is its distance to the
question's best score in standard deviations, for scores on any scale.
"""


@dataclass(frozen=True)
class SpanScores:
    """Scores of a sequence by a reader that scores the starts and ends of spans separately."""

    start: np.ndarray
    """[L], score of each token as the start of an answer."""
    end: np.ndarray
    """[L], score of each token as the end of an answer."""
    relevance: float
    """Score of the passage."""
    longest: int | None = None
    """Maximum length of a span in tokens in the reader's training; None if there was no maximum."""
    early: float = 0.0
    """Score of the passage after the reader's early layer; 0 if the reader has no early layer."""

    @property
    def absence(self) -> float:
        """Score of "no answer", the span of only the first token (Devlin et al. 2019, 4.3)."""
        return float(self.start[0]) + float(self.end[0])

    def make_table(self, part: slice, longest: int) -> np.ndarray:
        """Return the scores of all spans that begin in the passage.

        Args:
            part: positions of the passage's tokens in the sequence.
            longest: maximum length of a span in tokens, W; lowered if the reader was trained with shorter spans.

        Returns:
            ``[P, W]``; entry (p, w) is the score of the w + 1 tokens from token p of ``part``, including the relevance
            of the passage. It is -inf for spans that exceed ``part``.
        """
        longest = min(longest, self.longest or longest)
        start, end = self.start[part].astype(np.float64), self.end[part]
        ends = np.full(len(end) + longest - 1, -np.inf)
        ends[: len(end)] = end
        scores: np.ndarray = start[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest) + self.relevance
        return scores


@dataclass(frozen=True)
class SpanTable:
    """Scores of a sequence by a reader that scores each span as a whole."""

    spans: np.ndarray
    """[L, W]; entry (i, w) is the score of the w + 1 tokens from token i."""
    relevance: float = 0.0
    """Score of the passage."""
    absence: float = 0.0
    """Score of "no answer": always 0, since such a reader does not score it."""
    early: float = 0.0
    """Score of the passage after an early layer: always 0, since such a reader has none."""

    def make_table(self, part: slice, longest: int) -> np.ndarray:
        """Return the scores of all spans that begin in the passage.

        Arguments and returned value: as for ``SpanScores.make_table``, but spans that exceed ``part`` are also scored.
        """
        scores: np.ndarray = self.spans[part, :longest].astype(np.float64) + self.relevance
        return scores


Scores = SpanScores | SpanTable
Select = Callable[[np.ndarray], np.ndarray]
"""Function from the early scores [N] of N sequences to a mask [N], true for sequences to read further."""


class SpanScorer:
    """Scorer of the spans of token sequences; ``load_scorer`` returns one.

    Args:
        runner: runner of the reader, or of its layers up to the early one.
        tokenizer: tokenizer of the reader.
        config: settings that ``EncoderReader.describe`` returned, and ``identity``, a digest of the weights.
        path: directory of the reader.
        later: runner of the layers after the early one; None if ``runner`` runs all layers.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: TextTokenizer,
        config: dict[str, Any],
        path: Path,
        later: OnnxRunner | None = None,
    ) -> None:
        self._runner, self._later = runner, later
        self.tokenizer = tokenizer
        self.path = path
        """Directory of the reader, which also holds its calibration."""
        self.max_tokens: int = config["max_tokens"]
        """Maximum length of a sequence in tokens."""
        self.head: str = config.get("reader", "ends")  # the only head of exports that do not name it
        """Name of the reader's head in ``ragqa.models.span_readers``; only ``ends`` scores relevance."""
        self.prior: str = config.get("prior", SPREAD)
        """Form of retrieval scores in the prior, ``RAW`` or ``SPREAD``."""
        self.knows_absence: bool = bool(config.get("absence"))
        """True if the reader was trained to score "no answer"."""
        self.early_layer: int | None = config.get("early_layer")
        """Number of layers after which the passage is scored early; None if it is scored only after all layers."""
        self._longest: int | None = config.get("max_span")
        self.fingerprint: str = f"{config['identity']} {runner.engine} {self.max_tokens} {self._longest}"
        """Text that identifies weights, engine, sequence length and longest span."""

    def score(self, inputs: Sequence[TokenInput], select: Select | None = None) -> list[Scores | None]:
        """Return the scores of each sequence, in order.

        Args:
            inputs: sequences of tokens.
            select: function that chooses the sequences to read beyond the early layer; the scores of the others are
                None. By default, and without an early layer, all sequences are read completely.
        """
        outputs = self._runner.run(inputs)
        if self.early_layer is None:
            return [self._make_scores(len(item.ids), *output) for item, output in zip(inputs, outputs, strict=True)]
        early_N = np.array([output[-1] for output in outputs])
        chosen_N = np.ones(len(inputs), dtype=bool) if select is None else select(early_N)
        rows = np.flatnonzero(chosen_N).tolist()
        if self._later is None:
            later = [output[:-1] for output in outputs]
        else:
            later = [()] * len(inputs)
            for row, output in zip(rows, self._later.run_on([outputs[row][0] for row in rows]), strict=True):
                later[row] = output
        scores: list[Scores | None] = [None] * len(inputs)
        for row in rows:
            scores[row] = self._make_scores(len(inputs[row].ids), *later[row], early=float(early_N[row]))
        return scores

    def _make_scores(self, length: int, *outputs: np.ndarray, early: float = 0.0) -> Scores:
        if len(outputs) == 1:  # a head that scores whole spans
            return SpanTable(outputs[0][:length])
        start, end, relevance = outputs
        return SpanScores(start[:length], end[:length], float(relevance), self._longest, early)


def load_scorer(path: Path | None = None, *, device: str = "cpu") -> SpanScorer:
    """Load the scorer of a reader.

    Args:
        path: export, or torch directory of a reader of ``ragqa.models``; None for the reader of the package.
        device: ``cpu``, ``cuda`` or ``cuda:N`` for torch models; exports run on the CPU.

    Raises:
        ArtefactError, DamagedArtefact: there is no reader, or it is incomplete.
        Mismatch: the encoder with which an export shares word embeddings has changed, or a newer version of ragqa wrote
            the export.
        MissingExtra: torch is needed and not installed.
        BadInput: torch sees no such device.
    """
    path = get_weights_dir() / "reader" if path is None else path
    if (path / artefacts.MANIFEST).is_file():
        with artefacts.report_damage(path):
            return _load_export(path)
    if not path.exists():
        raise ArtefactError(f"{path}: no such directory")
    if not (path / "config.json").is_file():
        raise ArtefactError(f"{path} is not a reader: neither {artefacts.MANIFEST} nor config.json is in it")
    check_device(device)
    from ragqa.models.span_readers import load_reader

    reader = load_reader(path).eval().to(device)
    identity = artefacts.checksum(path / "model.safetensors")[:16]
    return make_torch_scorer(reader, TextTokenizer(path), path, identity, device=device)


def _load_export(path: Path) -> SpanScorer:
    manifest = artefacts.read_manifest(path, "reader")
    # The identity is the checksum of the graph, because two versions of the exporter can round weights differently.
    config = {**manifest.config, "identity": manifest.files[artefacts.MODEL]["sha256"][:16]}
    artefacts.check_count(config["max_tokens"], "max_tokens")
    if (longest := config.get("max_span")) is not None:
        artefacts.check_count(longest, "max_span")
    if config.get("prior", SPREAD) not in (RAW, SPREAD):
        raise ValueError(f"prior is {config['prior']!r:.40}")
    later = None
    if (layer := config.get("early_layer")) is not None:
        artefacts.check_count(layer, "early_layer")
        config["identity"] += f" {manifest.files[artefacts.LATER_MODEL]['sha256'][:16]}"
        later = OnnxRunner(path, config, file=artefacts.LATER_MODEL)
    return SpanScorer(OnnxRunner(path, config), TextTokenizer(path), config, path, later)


def make_torch_scorer(reader: Any, tokenizer: TextTokenizer, path: Path, identity: str, *, device: str) -> SpanScorer:
    """Make a scorer from a torch reader, which may be trained between calls.

    Args:
        reader: reader of ``ragqa.models``, already on ``device``.
        tokenizer: tokenizer of the reader.
        path: directory that holds the calibration.
        identity: digest of the weights.
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        DamagedArtefact: as for ``EncoderReader.describe``.
    """

    def run_reader(ids: Any, mask: Any, types: Any) -> tuple[Any, ...]:
        outputs = reader(ids, mask, types)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    config = {**reader.describe(), "identity": identity}
    return SpanScorer(TorchRunner(run_reader, device=device), tokenizer, config, path)
