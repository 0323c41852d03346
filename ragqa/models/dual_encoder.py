"""Dual encoder: relevance is the inner product of a question vector and a passage vector."""

from pathlib import Path
from typing import cast

from torch import nn

from ragqa.models.pretrained import check_tokenizer, copy_tokenizer
from ragqa.models.tower import Pooling, Tower

QUESTIONS, PASSAGES = "questions", "passages"
"""Names of the directories of the two towers."""


class DualEncoder(nn.Module):
    """Two towers for questions and passages (ORQA, REALM, DPR), or one shared tower.

    On disk, two towers are two subdirectories, and a shared tower is the directory itself, in sentence-transformers'
    format. ``ragqa.runtime.encoder.load_encoder`` reads both forms, including the tokenizer.
    """

    def __init__(self, questions: Tower, passages: Tower | None = None, *, tokenizer: Path | None = None) -> None:
        """Combine two towers, or use one tower for questions and passages.

        Args:
            questions: tower for questions, and for passages if ``passages`` is None.
            passages: tower for passages.
            tokenizer: tokenizer file, which ``save`` copies next to the weights.

        Raises:
            Mismatch: as for ``check_tokenizer``.
        """
        super().__init__()
        check_tokenizer(questions.encoder, tokenizer)
        self.towers = nn.ModuleList([questions] if passages is None else [questions, passages])
        self.tokenizer = tokenizer

    @property
    def questions(self) -> Tower:
        """Question tower."""
        return cast(Tower, self.towers[0])

    @property
    def passages(self) -> Tower:
        """Passage tower."""
        return cast(Tower, self.towers[-1])

    @property
    def is_shared(self) -> bool:
        """True if one tower encodes questions and passages."""
        return len(self.towers) == 1

    def limit_tokens(self, questions: int, passages: int) -> None:
        """Set the maximum input length of each tower in tokens.

        Args:
            questions: limit of the question tower; without effect on a shared tower.
            passages: limit of the passage tower, or of a shared tower.
        """
        self.questions.config.tower_tokens = questions
        self.passages.config.tower_tokens = passages

    @classmethod
    def from_encoder(
        cls,
        path: Path,
        *,
        width: int | None = 128,
        pooling: Pooling = "cls",
        shared: bool = False,
        gain: float = 1.0,
    ) -> "DualEncoder":
        """Make a dual encoder from an encoder, with new projections to ``width``.

        Args:
            path: directory of the encoder.
            width: length of the vectors; None leaves out projections, so that vectors are as wide as the encoder.
            pooling: ``cls`` or ``mean``.
            shared: True for one tower for questions and passages.
            gain: initial weight of the layer norms; inner products grow with its square. Small towers with random
                weights learn faster with ``width ** -0.25`` than with ORQA's value of 1.

        Raises:
            ArtefactError: there is no encoder, or some of its weights are missing.
            Mismatch: as for ``check_tokenizer``, with ``tokenizer.json`` in ``path``.
        """
        towers = [Tower.from_encoder(path, pooling=pooling, width=width) for _ in range(1 if shared else 2)]
        for tower in towers:
            if tower.norm is not None:
                nn.init.constant_(tower.norm.weight, gain)
        if not shared:  # with two different random projections, inner products would be random
            towers[1].load_state_dict(towers[0].state_dict())
        return cls(*towers, tokenizer=path / "tokenizer.json")

    def save(self, path: Path) -> None:
        """Write the towers and the tokenizer into the directory ``path``."""
        if self.is_shared:
            self.save_passages(path)
        else:
            self._save(self.questions, path / QUESTIONS)
            self._save(self.passages, path / PASSAGES)

    def save_passages(self, path: Path) -> None:
        """Write only the passage tower and the tokenizer into the directory ``path``.

        An index needs only this tower to embed its passages.
        """
        self._save(self.passages, path)

    def _save(self, tower: Tower, path: Path) -> None:
        tower.save(path)
        copy_tokenizer(self.tokenizer, path)

    @classmethod
    def load(cls, path: Path) -> "DualEncoder":
        """Load the two towers in the directory ``path``, or the encoder there as a shared tower.

        Raises:
            ArtefactError: there is no encoder, some of its weights are missing, or it has an unknown module.
            Mismatch: the encoder is one of DPR's two encoders; or as for ``check_tokenizer``.
        """
        if not (path / QUESTIONS).is_dir():
            return cls(Tower.load(path), tokenizer=path / "tokenizer.json")
        towers = Tower.load(path / QUESTIONS), Tower.load(path / PASSAGES)
        return cls(*towers, tokenizer=path / PASSAGES / "tokenizer.json")
