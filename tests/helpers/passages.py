"""A passage store in memory."""

from collections.abc import Iterator

from ragqa.types import Passage


class PassageList:
    """Passages in a list, read in batches of three."""

    def __init__(self, texts: list[str], titles: list[str] | None = None) -> None:
        titles = titles or [""] * len(texts)
        self.passages = [
            Passage(i, f"d{i}", title, text, "file", 0, len(text))
            for i, (text, title) in enumerate(zip(texts, titles, strict=True))
        ]

    def __len__(self) -> int:
        return len(self.passages)

    def get(self, rows: list[int]) -> list[Passage]:
        """Return the passages in these rows."""
        return [self.passages[row] for row in rows]

    def iter_batches(self, first: int = 0, size: int = 3) -> Iterator[list[Passage]]:
        """Yield batches from a row on."""
        for start in range(first, len(self), size):
            yield self.passages[start : start + size]
