"""Learning rates as functions of the step; no torch, because configs import this module."""

from dataclasses import dataclass


def compute_rate(step: int, *, peak: float, warmup: int | None, total: int, default_warmup: int = 1000) -> float:
    """Return the learning rate of a step: a linear rise to ``peak``, then a fall to 0 (BERT).

    Args:
        step: number of the step, from 0.
        peak: highest rate.
        warmup: steps of the rise, limited to ``total``; None takes ``default_warmup``.
        total: steps of the run.
        default_warmup: steps of the rise if ``warmup`` is None, but at most a tenth of ``total``.
    """
    warmup = limit_warmup(warmup, default_warmup, total)
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * max(0.0, (total - step) / max(1, total - warmup))


def limit_warmup(chosen: int | None, default: int, total: int) -> int:
    """Return the number of warm-up steps.

    Args:
        chosen: steps that the user has chosen, limited to ``total``; None takes ``default``.
        default: steps if ``chosen`` is None, but at most a tenth of ``total``.
        total: steps of the run.
    """
    return min(default, total // 10) if chosen is None else min(chosen, total)


@dataclass(frozen=True, kw_only=True)
class LearningRates:
    """Learning rates of a reader and of a retriever that starts to learn later."""

    steps: int
    """Steps of the run."""
    reader: float
    """Peak of the reader's learning rate."""
    retriever: float
    """Peak of the retriever's learning rate."""
    frozen: int
    """Number of steps before the retriever learns."""
    warmup: int | None
    """Steps in which each rate rises; None takes 1000, but at most a tenth of all steps.
    The retriever's rate begins to rise when the retriever starts to learn."""

    def compute_rates(self, step: int) -> list[float]:
        """Return the learning rates of a step: two for the retriever, then two for the reader.

        Each module has two parameter groups: with and without weight decay.

        Args:
            step: number of the step, from 0.
        """
        reader = compute_rate(step, peak=self.reader, warmup=self.warmup, total=self.steps)
        return [*self.compute_retriever_rates(step), reader, reader]

    def compute_retriever_rates(self, step: int) -> list[float]:
        """Return the learning rates of the retriever's two parameter groups in a step.

        Args:
            step: number of the step, from 0. In the first ``frozen`` steps the rates are 0.
        """
        if step < self.frozen:
            return [0.0, 0.0]
        step, warmup = step - self.frozen, limit_warmup(self.warmup, 1000, self.steps)
        return [compute_rate(step, peak=self.retriever, warmup=warmup, total=self.steps - self.frozen)] * 2
