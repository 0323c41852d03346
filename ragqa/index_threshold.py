"""Confidence threshold that ``ragqa calibrate`` stores with an index."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from ragqa.artefacts import report_damage

THRESHOLD_FILE = "threshold.json"
"""Name of the threshold's file in an index directory; updates of the index keep the file."""


@dataclass(frozen=True, kw_only=True)
class IndexThreshold:
    """Confidence threshold for an index and a reader, with the inputs of its calibration."""

    threshold: float
    """Confidence, from 0 to 1, below which questions are declined."""
    risk: float
    """Upper limit of the expected share of wrong answers among all questions, between 0 and 1."""
    questions: int
    """Number of questions with which the threshold was chosen."""
    reader: str
    """Fingerprint of the reader for which the threshold was chosen."""
    encoder: str | None
    """Fingerprint of the index's encoder; None if the index has no vectors."""

    @classmethod
    def load(cls, index: Path) -> Self | None:
        """Return the threshold stored in an index directory; None if there is none.

        Raises:
            DamagedArtefact: ``threshold.json`` is damaged.
            OSError: it cannot be read.
        """
        file = index / THRESHOLD_FILE
        if not file.is_file():
            return None
        with report_damage(file):
            row = json.loads(file.read_text(encoding="utf-8"))
            values = {field.name: row[field.name] for field in fields(cls)}
            stored = cls(**{**values, "threshold": float(values["threshold"])})
            if not 0 <= stored.threshold <= 1:
                raise ValueError(f"a threshold of {stored.threshold}")
        return stored

    def to_json(self) -> str:
        """Return the content of ``threshold.json``."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def find_mismatch(self, reader: str, encoder: str | None) -> str | None:
        """Return the changed part, ``reader`` or ``encoder``; None if neither changed.

        Args:
            reader: fingerprint of the current reader.
            encoder: fingerprint of the index's current encoder; None if the index has no vectors.
        """
        if reader != self.reader:
            return "reader"
        return "encoder" if encoder != self.encoder else None
