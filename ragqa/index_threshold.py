"""Threshold of confidence that is stored with an index (``threshold.json``), set by ``ragqa calibrate``."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from ragqa.artefacts import report_damage

THRESHOLD_FILE = "threshold.json"
"""File in the directory of an index; updates keep it."""


@dataclass(frozen=True, kw_only=True)
class IndexThreshold:
    """Confidence below which questions to an index are declined, for one reader."""

    threshold: float
    """Confidence, from 0 to 1."""
    risk: float
    """Wanted share of wrong answers among all questions."""
    questions: int
    """Number of questions that set the threshold."""
    reader: str
    """Fingerprint of the reader whose confidence it was."""
    encoder: str | None
    """Fingerprint of the index's encoder; None for an index without vectors."""

    @classmethod
    def load(cls, index: Path) -> Self | None:
        """Read the threshold of an index directory; None if there is none.

        Raises:
            DamagedArtefact: the file is not a threshold.
        """
        file = index / THRESHOLD_FILE
        if not file.is_file():
            return None
        with report_damage(index):
            row = json.loads(file.read_text(encoding="utf-8"))
            values = {field.name: row[field.name] for field in fields(cls)}
            stored = cls(**{**values, "threshold": float(values["threshold"])})
            if not 0 <= stored.threshold <= 1:
                raise ValueError(f"a threshold of {stored.threshold}")
        return stored

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def find_mismatch(self, reader: str, encoder: str | None) -> str | None:
        """Return the part, ``reader`` or ``encoder``, that is another one than when the threshold was set, or None.

        Args:
            reader: fingerprint of the reader.
            encoder: fingerprint of the index's encoder.
        """
        if reader != self.reader:
            return "reader"
        return "encoder" if encoder != self.encoder else None
