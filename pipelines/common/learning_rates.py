"""Learning rates of a retriever and of the reader or generator that teaches it."""

from dataclasses import dataclass

from ragqa.training.step import compute_rate, limit_warmup


@dataclass(frozen=True, kw_only=True)
class LearningRates:
    """Two schedules: the reader's, and the retriever's, which begins after some steps."""

    steps: int
    """Steps of the run."""
    reader: float
    """Peak of the reader's learning rate."""
    retriever: float
    """Peak of the retriever's learning rate."""
    frozen: int
    """Steps before the retriever learns."""
    warmup: int | None
    """Steps of warm-up; None for 1000, or a tenth of all if that is less."""

    def at(self, step: int) -> list[float]:
        """Return the rates of the retriever's two parameter groups, and of the reader's two."""
        reader = self.reader_at(step)
        return [*self.retriever_at(step), reader, reader]

    def reader_at(self, step: int) -> float:
        """Return the reader's learning rate at a step."""
        return compute_rate(step, peak=self.reader, warmup=self.warmup, total=self.steps)

    def retriever_at(self, step: int) -> list[float]:
        """Return the rates of the retriever's two parameter groups, 0 while it is frozen."""
        if step < self.frozen:
            return [0.0, 0.0]
        step, warmup = step - self.frozen, limit_warmup(self.warmup, 1000, self.steps)
        return [compute_rate(step, peak=self.retriever, warmup=warmup, total=self.steps - self.frozen)] * 2
