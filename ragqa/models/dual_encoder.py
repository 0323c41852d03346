"""The retriever: f(x, z) is the inner product of a question's vector and a passage's."""

import shutil
from pathlib import Path

from torch import nn

from ragqa.models.pretrained import check_tokenizer
from ragqa.models.tower import Pooling, Tower

QUESTIONS, PASSAGES = "questions", "passages"
"""Directories of the towers, where there are two."""


class DualEncoder(nn.Module):
    """Two towers, or one for both sides (ORQA, REALM and DPR have two; most sentence encoders one).

    On disk two towers are two directories of sentence-transformers, one is the directory itself;
    ``ragqa.runtime.load_encoder`` reads either, tokenizer included.
    """

    def __init__(self, questions: Tower, passages: Tower | None = None, *, tokenizer: Path | None = None) -> None:
        """Without ``passages`` one tower does both; ``tokenizer`` is the file that ``save`` puts beside the weights.

        Raises Mismatch where the tokenizer is another encoder's.
        """
        super().__init__()
        check_tokenizer(questions.encoder, tokenizer)
        self.towers = nn.ModuleList([questions] if passages is None else [questions, passages])
        self.tokenizer = tokenizer

    @property
    def questions(self) -> Tower:
        """The tower of questions."""
        tower = self.towers[0]
        assert isinstance(tower, Tower)
        return tower

    @property
    def passages(self) -> Tower:
        """The tower of passages."""
        tower = self.towers[-1]
        assert isinstance(tower, Tower)
        return tower

    @property
    def shared(self) -> bool:
        """Whether one tower does both."""
        return len(self.towers) == 1

    def limit_tokens(self, questions: int, passages: int) -> None:
        """Have what asks and embeds with the towers read no more tokens than they were trained on; a tower for both
        reads as many as passages have."""
        for tower, longest in ((self.questions, questions), (self.passages, passages)):
            tower.config.tower_tokens = longest

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
        """Towers that begin from the encoder in the directory ``path``, with fresh projections to ``width``.

        ``gain`` is what their layer norms begin with: inner products begin ``gain`` squared times as far apart. For
        small towers that begin from nothing ``width ** -0.25`` learns sooner than ORQA's 1.
        """
        towers = [Tower.from_encoder(path, pooling=pooling, width=width) for _ in range(1 if shared else 2)]
        for tower in towers:
            if tower.norm is not None:
                nn.init.constant_(tower.norm.weight, gain)
        if not shared:  # two projections that begin apart would make every inner product noise
            towers[1].load_state_dict(towers[0].state_dict())
        return cls(*towers, tokenizer=path / "tokenizer.json")

    def save(self, path: Path) -> None:
        """Write the directory ``path``."""
        if self.shared:
            self.save_passages(path)
            return
        for tower, name in ((self.questions, QUESTIONS), (self.passages, PASSAGES)):
            self._save(tower, path / name)

    def save_passages(self, path: Path) -> None:
        """Write what an index is made with: the tower of passages, as a directory of its own."""
        self._save(self.passages, path)

    def _save(self, tower: Tower, path: Path) -> None:
        tower.save(path)
        if self.tokenizer is not None and self.tokenizer.resolve() != (path / "tokenizer.json").resolve():
            shutil.copyfile(self.tokenizer, path / "tokenizer.json")

    @classmethod
    def load(cls, path: Path) -> "DualEncoder":
        """What ``save`` wrote into ``path``, or one tower for both from any encoder there.

        Raises:
            ArtefactError: it is none.
        """
        if not (path / QUESTIONS).is_dir():
            return cls(Tower.load(path), tokenizer=path / "tokenizer.json")
        towers = Tower.load(path / QUESTIONS), Tower.load(path / PASSAGES)
        return cls(*towers, tokenizer=path / PASSAGES / "tokenizer.json")
