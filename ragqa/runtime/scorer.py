"""Span scorers: what an extractive reader computes, by whichever engine runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragqa import artefact
from ragqa.errors import ArtefactError
from ragqa.paths import weights_dir
from ragqa.runtime.runner import OnnxRunner, Runner, TorchRunner, check_device
from ragqa.runtime.tokens import TextTokenizer, TokenInput


@dataclass(frozen=True)
class SpanScores:
    """Of one sequence: a score for each token as start ``[L]`` and as end ``[L]``, one for the passage."""

    start: np.ndarray
    end: np.ndarray
    relevance: float


class SpanScorer:
    """Token sequences to span scores; ``load_scorer`` makes one."""

    def __init__(self, runner: Runner, tokenizer: TextTokenizer, config: dict[str, Any], path: Path) -> None:
        self._runner = runner
        self.tokenizer = tokenizer
        self.path = path
        """Where it was loaded from; what else belongs to the reader lies there."""
        self.max_tokens: int = config["max_tokens"]
        """Longest sequence in wordpieces."""
        self.fingerprint: str = config["identity"]

    def score(self, inputs: Sequence[TokenInput]) -> list[SpanScores]:
        """The scores of each sequence, in order."""
        return [
            SpanScores(start[: len(item.ids)], end[: len(item.ids)], float(relevance))
            for item, (start, end, relevance) in zip(inputs, self._runner.run(inputs), strict=True)
        ]


def load_scorer(path: Path | None = None, *, device: str = "cpu") -> SpanScorer:
    """The scorer at ``path``: an export, or the torch directory of a ``SpanReader``.

    None is the one that comes with the package. Exports run on the CPU, torch models on ``device``.
    Raises as ``load_encoder`` does.
    """
    path = weights_dir() / "reader" if path is None else path
    if (path / artefact.MANIFEST).is_file():
        config = artefact.read(path, "reader").config
        return SpanScorer(OnnxRunner(path, config), TextTokenizer(path), config, path)
    if not (path / "config.json").is_file():
        raise ArtefactError(f"{path} is not a reader: neither {artefact.MANIFEST} nor config.json is in it")
    check_device(device)
    from ragqa.models.span_reader import SpanReader

    reader = SpanReader.load(path).eval().to(device)
    config = {
        "max_tokens": reader.max_tokens,
        "identity": artefact.checksum(path / "model.safetensors")[:16],
    }
    return SpanScorer(TorchRunner(reader, device=device), TextTokenizer(path), config, path)
