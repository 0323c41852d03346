"""Span scorers: what an extractive reader computes, by whichever engine runs it.

Legend: L tokens of a sequence, P of them, W longest span in tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.paths import weights_dir
from ragqa.errors import ArtefactError
from ragqa.runtime.runner import OnnxRunner, Runner, TorchRunner, check_device
from ragqa.runtime.tokens import TextTokenizer, TokenInput

RAW, SPREAD = "raw", "spread"
"""What of a retrieval score counts in answering: the score itself, where the reader learned beside the retriever, or
how many standard deviations of the question's scores it lies behind the best one, for scores of any scale."""


@dataclass(frozen=True)
class SpanScores:
    """Of one sequence: a score for each token as start ``[L]`` and as end ``[L]``, one for the passage."""

    start: np.ndarray
    end: np.ndarray
    relevance: float
    longest: int | None = None
    """Tokens of a span at most, where the reader learned no longer ones."""

    def table(self, part: slice, longest: int) -> np.ndarray:
        """``[P, W]`` of the tokens in ``part``: start + end + relevance of the span of w + 1 tokens from p."""
        longest = min(longest, self.longest or longest)
        start, end = self.start[part].astype(np.float64), self.end[part]
        ends = np.full(len(end) + longest - 1, -np.inf)
        ends[: len(end)] = end
        scores: np.ndarray = start[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest) + self.relevance
        return scores

    def plus(self, prior: float) -> "SpanScores":
        """The same of a passage that is so much the more likely."""
        return replace(self, relevance=self.relevance + prior)


@dataclass(frozen=True)
class SpanTable:
    """Of one sequence: a score for each span, ``[L, W]``, that of (i, w) being of the tokens i … i + w."""

    spans: np.ndarray
    relevance: float = 0.0

    def table(self, part: slice, longest: int) -> np.ndarray:
        """As that of ``SpanScores``; W is not more than the reader was made for."""
        scores: np.ndarray = self.spans[part, :longest].astype(np.float64) + self.relevance
        return scores

    def plus(self, prior: float) -> "SpanTable":
        """As that of ``SpanScores``."""
        return replace(self, relevance=self.relevance + prior)


Scores = SpanScores | SpanTable


class SpanScorer:
    """Token sequences to span scores; ``load_scorer`` makes one."""

    def __init__(self, runner: Runner, tokenizer: TextTokenizer, config: dict[str, Any], path: Path) -> None:
        self._runner = runner
        self.tokenizer = tokenizer
        self.path = path
        """Where it was loaded from; what else belongs to the reader lies there."""
        self.max_tokens: int = config["max_tokens"]
        """Longest sequence in wordpieces."""
        self.prior: str = config.get("prior", SPREAD)
        """``RAW`` or ``SPREAD``."""
        longest = config.get("max_span")
        self.fingerprint: str = f"{config['identity']} {runner.engine} {self.max_tokens} {longest}"
        """Of what computes, be it the same weights in 8 bits or in float32, of its windows and longest spans."""
        ends = partial(_of_ends, longest)
        self._scores: Callable[..., Scores] = _of_spans if config.get("reader") == "mlp" else ends

    def score(self, inputs: Sequence[TokenInput]) -> list[Scores]:
        """The scores of each sequence, in order."""
        return [
            self._scores(len(item.ids), *outputs)
            for item, outputs in zip(inputs, self._runner.run(inputs), strict=True)
        ]


def _of_ends(longest: int | None, length: int, start: np.ndarray, end: np.ndarray, relevance: np.ndarray) -> SpanScores:
    return SpanScores(start[:length], end[:length], float(relevance), longest)


def _of_spans(length: int, spans: np.ndarray) -> SpanTable:
    return SpanTable(spans[:length])


def load_scorer(path: Path | None = None, *, device: str = "cpu") -> SpanScorer:
    """The scorer at ``path``: an export, or the torch directory of a reader of ``ragqa.models``.

    None is the one that comes with the package. Exports run on the CPU, torch models on ``device``.
    Raises as ``load_encoder`` does.
    """
    path = weights_dir() / "reader" if path is None else path
    if (path / artefacts.MANIFEST).is_file():
        manifest = artefacts.read_manifest(path, "reader")
        # The file as it is: another exporter makes another one of the same weights, which rounds otherwise.
        config = {**manifest.config, "identity": manifest.files["model.onnx"]["sha256"][:16]}
        return SpanScorer(OnnxRunner(path, config), TextTokenizer(path), config, path)
    if not (path / "config.json").is_file():
        raise ArtefactError(f"{path} is not a reader: neither {artefacts.MANIFEST} nor config.json is in it")
    check_device(device)
    from ragqa.models.readers import load_reader

    reader = load_reader(path).eval().to(device)
    identity = artefacts.checksum(path / "model.safetensors")[:16]
    return torch_scorer(reader, TextTokenizer(path), path, identity, device=device)


def torch_scorer(reader: Any, tokenizer: TextTokenizer, path: Path, identity: str, *, device: str) -> SpanScorer:
    """The scorer of a reader of ``ragqa.models`` on ``device``, which may be in training otherwise."""
    from ragqa.models.readers import describe_reader

    def outputs(ids: Any, mask: Any, types: Any) -> tuple[Any, ...]:
        found = reader(ids, mask, types)
        return found if isinstance(found, tuple) else (found,)

    config = {**describe_reader(reader), "identity": identity}
    return SpanScorer(TorchRunner(outputs, device=device), tokenizer, config, path)
