"""Learning-rate schedules as functions of the step."""


def warmup_linear(step: int, *, peak: float, warmup: int, total: int) -> float:
    """Linear from 0 to ``peak`` over ``warmup`` steps, then linear to 0 at ``total`` (BERT)."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * max(0.0, (total - step) / max(1, total - warmup))


def warmup_steps(chosen: int | None, usual: int, total: int) -> int:
    """Steps of warm-up: as chosen, or the usual ones, though no more than a tenth of ``total``."""
    return min(usual, total // 10) if chosen is None else min(chosen, total)
