"""Confidence of a written answer: its evidence, and the calibration of each language model.

``pipelines.calibrate.chat`` fits a calibration for one language model. It is saved in the user's folder of settings,
since a model on a server has no directory. A model without one uses the default calibration of the package.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragqa.artefacts.paths import get_weights_dir
from ragqa.reading.calibration import Calibration

CHAT_FEATURES = (
    "constant",
    "log-odds of the span reader",
    "agrees with the span reader",
    "log-odds, agreeing",
    "share supported",
    "all supported",
    "share cited",
    "words",
)
"""Names of the features of an answer by a language model."""


@dataclass(frozen=True)
class ChatEvidence:
    """Evidence for an answer by a language model, from which its confidence is computed."""

    span_confidence: float
    """Confidence of the span reader in its own answer to the question; 0 if it has none."""
    agrees: bool
    """True if the written answer contains the span reader's answer, or is contained in it."""
    share_supported: float
    """Share of the statements that their passages support."""
    share_cited: float
    """Share of the statements for which the language model itself cited an existing passage."""
    words: int
    """Number of words of the answer."""

    def compute_features(self, names: Sequence[str] = CHAT_FEATURES) -> np.ndarray:
        """Return the values of the features, in the order of ``names``.

        Raises:
            KeyError: a name is not the name of a feature.
        """
        confidence = min(max(self.span_confidence, 1e-3), 1 - 1e-3)
        log_odds = float(np.log(confidence / (1 - confidence)))
        values = {
            "constant": 1.0,
            "log-odds of the span reader": log_odds,
            "agrees with the span reader": float(self.agrees),
            "log-odds, agreeing": log_odds * self.agrees,
            "share supported": self.share_supported,
            "all supported": float(self.share_supported == 1),
            "share cited": self.share_cited,
            "words": float(np.log1p(self.words)),
        }
        return np.array([values[name] for name in names])


def get_calibration_dir(identity: str) -> Path:
    """Return the folder of a language model's calibration, which need not exist.

    It is in ``$XDG_CONFIG_HOME/ragqa/chat``, or in ``~/.config/ragqa/chat`` if the variable is not an absolute path.

    Args:
        identity: ``LanguageModel.identity``.
    """
    config = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    folder = (config if config.is_absolute() else Path.home() / ".config") / "ragqa" / "chat"
    name = re.sub(r"[^\w.-]+", "-", identity.rpartition("/")[2] or identity).strip("-.")[-60:]
    return folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def load_chat_calibration(identity: str) -> tuple[Calibration, bool]:
    """Load the calibration of a language model, or the default calibration of the package.

    Args:
        identity: ``LanguageModel.identity``.

    Returns:
        The calibration, and True if it was fitted for this model.

    Raises:
        DamagedArtefact: the file is not a calibration.
    """
    example = ChatEvidence(0.5, True, 1.0, 1.0, 1)
    own = Calibration.load_for(example, get_calibration_dir(identity))
    if own is not None:
        return own, True
    default = Calibration.load_for(example, get_weights_dir() / "chat")
    assert default is not None
    return default, False
