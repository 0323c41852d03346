"""Wordpieces of the passages of an index; they are computed once and mapped from disk."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.corpus.store import PassageStore
from ragqa.models.inputs import Inputs, pad_rows
from ragqa.progress import SILENT, Progress
from ragqa.runtime.tokens import TextTokenizer

_READ = 2048
"""Number of passages tokenized at a time."""


class TokenizedPassages:
    """Wordpieces of the title and text of each passage, by the row of the passage."""

    def __init__(self, store: PassageStore, tokenizer: TextTokenizer, ids: np.ndarray, starts: np.ndarray) -> None:
        """Combine the wordpieces with their passages; ``open`` computes or reads them.

        Args:
            store: N passages.
            tokenizer: tokenizer of the wordpieces.
            ids: int32 ids of the wordpieces of all passages, one passage after the other.
            starts: position in ``ids`` of the first wordpiece of each passage, and the end of the last [N + 1].
        """
        self.store, self.tokenizer = store, tokenizer
        self._ids, self._starts = ids, starts

    @classmethod
    def open(
        cls, index: Path, tokenizer: TextTokenizer, cache: Path, *, progress: Progress = SILENT
    ) -> "TokenizedPassages":
        """Open the wordpieces of the passages in an index; the first call computes them.

        Args:
            index: index directory.
            tokenizer: tokenizer of the model.
            cache: directory for the wordpieces.
            progress: shows the number of passages.

        Raises:
            ArtefactError, DamagedArtefact: ``index`` is not an index, or is damaged.
        """
        source = artefacts.read_manifest(index, "index")
        store = PassageStore.open(index / "passages")
        folder = cache / f"{source.parents['corpus'][:16]}-{tokenizer.fingerprint[:16]}"
        cache.mkdir(parents=True, exist_ok=True)
        with hold_lock(cache / ".lock", wait=True):
            if not folder.is_dir():
                _tokenize(store, tokenizer, folder, progress)
        names = json.loads((folder / "rows.json").read_text())
        ids = np.memmap(folder / "ids.bin", np.int32, "r", shape=(max(1, names["pieces"]),))
        return cls(store, tokenizer, ids, np.load(folder / "starts.npy"))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def ids(self, row: int, limit: int) -> list[int]:
        """Return the first wordpieces of the title and the text of a passage.

        Args:
            row: row of the passage; -1 is the null passage, which has no wordpieces.
            limit: largest number of wordpieces.
        """
        if row < 0 or limit < 0:
            return []
        start, end = self._starts[row : row + 2]
        ids: list[int] = self._ids[start : min(end, start + limit)].tolist()
        return ids

    def contains(self, row: int, pieces: bytes) -> bool:
        """Return True if a passage contains a sequence of wordpieces.

        Args:
            row: row of the passage.
            pieces: ids of the wordpieces, as the bytes of int32 numbers.
        """
        start, end = self._starts[row : row + 2]
        data = self._ids[start:end].tobytes()
        place = data.find(pieces)
        # A match of bytes can begin within a number, where it is not a match of wordpieces.
        while place > 0 and place % self._ids.itemsize:
            place = data.find(pieces, place + 1)
        return place >= 0

    def batch(self, rows: Sequence[int], max_tokens: int) -> Inputs:
        """Return the inputs [CLS] passage [SEP] of passages, as a retriever encodes them.

        Args:
            rows: rows of the passages; -1 is the null passage, which is empty.
            max_tokens: largest length of a passage in wordpieces, including [CLS] and [SEP].
        """
        first, last = self.tokenizer.special_ids
        return pad_rows([[first, *self.ids(row, max_tokens - 2), last] for row in rows])


def _tokenize(store: PassageStore, tokenizer: TextTokenizer, folder: Path, progress: Progress) -> None:
    with artefacts.create_directory(folder) as temporary:
        starts = np.zeros(len(store) + 1, np.int64)
        with (temporary / "ids.bin").open("wb") as file, progress.step("wordpieces", len(store), "passages") as step:
            for first in range(0, len(store), _READ):
                passages = store.read_rows(first, min(first + _READ, len(store)))
                for number, pieces in enumerate(
                    tokenizer.tokenize_batch([passage.titled_text for passage in passages]), first
                ):
                    file.write(np.asarray(pieces.ids, np.int32).tobytes())
                    starts[number + 1] = starts[number] + len(pieces.ids)
                step.advance_to(first + len(passages))
            if not starts[-1]:
                file.write(bytes(4))  # an empty file cannot be mapped
        np.save(temporary / "starts.npy", starts)
        (temporary / "rows.json").write_text(json.dumps({"pieces": int(starts[-1])}))
